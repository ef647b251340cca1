/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A fake aggregator, which is the test itself: a UDP socket on loopback, the packets that it
 * receives, and packets that it sends when the test says so.
 */
#ifndef THC_SELFTESTS_FAKE_H
#define THC_SELFTESTS_FAKE_H

#include <linux/udp.h>
#include <netinet/in.h>

#include "afthc.h"
#include "seals.h"

#include "../welcome.h"

#define FAKE_PORT	(PORT + 500)
#define FAKE_EPOCH	5
#define FAKE_SLOTS	256
#define ANSWER_BYTES	(sizeof(struct thc_hdr) + THC_LANE_BYTES)

void loopback(struct sockaddr_in *a, uint16_t port);

/* Seals of the fake aggregator's job, which has job_key, in FAKE_EPOCH. */
const struct job_seals *fake_seals(void);

/* Seals of another epoch; every epoch has its own keys. */
struct job_seals fake_seals_of(uint8_t epoch);

/* @to: a sockaddr_in, or a sockaddr_in6. */
int send_one(int fd, const void *to, const void *packet, size_t bytes);

/* Sends packets of @each bytes, the last one perhaps shorter, as one super-packet, which loopback
 * does not take apart. @to as above.
 */
int send_joined(int udp, const void *to, void *packets, size_t bytes, uint16_t each);

/* Puts @value into a field of @bytes, in network order. */
void put_field(void *packet, size_t offset, size_t bytes, uint64_t value);

/* The fake aggregator's socket; the argument @fd below is a rank's socket. */
int fake_open(void);

static inline struct sockaddr_thc fake_place(void)
{
	return place("127.0.0.1", FAKE_PORT, 1, 1);
}

/* Is any socket of this namespace bound to the UDP port? Sockets of the kernel count. */
bool is_bound(uint16_t port);

/* Has this host joined the multicast group @group? */
bool is_member(const char *group);

/* Waits until a socket listens at the group; else -ETIMEDOUT. Then sends to groups go through lo.
 */
int wait_for_group(const char *at, uint16_t port);

struct join_packet {
	struct thc_hdr	h;
	struct thc_join	j;
};

/* A JOIN's nonce as one number. */
typedef unsigned __int128 fake_nonce;

static inline fake_nonce nonce_of(const struct join_packet *p)
{
	fake_nonce nonce;

	memcpy(&nonce, p->j.nonce, sizeof(nonce));
	return nonce;
}

/* Takes the next packet, which must be a JOIN, and its sender. */
int fake_take_join_packet(int udp, struct sockaddr_in *worker, struct join_packet *p);

int fake_take_join(int udp, struct sockaddr_in *worker, fake_nonce *nonce);

/* Drops the packets that have come so far. */
void fake_forget(int udp);

/* Packets that a socket has looked at: its aggregator's, and strays. */
static inline uint64_t looked_at(int fd)
{
	struct thc_socket_stats s = stats_of(fd);

	return s.packets_down + s.foreign;
}

/* Sends a packet to @fd's socket, at @worker, and waits until the socket has judged it: softirqs
 * may be late.
 */
int deliver(int fd, int udp, const struct sockaddr_in *worker, const void *packet, size_t bytes);

/* --- WELCOME -------------------------------------------------------------- */

/* A WELCOME in one part. */
struct welcome_packet {
	struct thc_hdr		h;
	struct whole_welcome	all;
};

/* What is sent of a WELCOME to the group, and of a refusal. */
#define TO_GROUP_PACKET		(sizeof(struct thc_hdr) + TO_GROUP_BYTES)
#define REFUSAL_PACKET		(sizeof(struct thc_hdr) + sizeof(struct thc_welcome))

static inline void set_nonce(struct welcome_packet *p, fake_nonce nonce)
{
	memcpy(p->all.w.nonce, &nonce, sizeof(nonce));
}

/* A WELCOME for rank 1 of two joined ranks, not yet sealed. */
void good_welcome(struct welcome_packet *p, fake_nonce nonce);

/* Seals a WELCOME without computing its `constants`. */
static inline void fake_seal_as_is(struct welcome_packet *p, const void *to)
{
	seal_welcome(fake_seals(), &p->h, sizeof(*p), to);
}

static inline void fake_seal_welcome(struct welcome_packet *p, const void *to)
{
	whole_welcome_hash(&p->all);
	fake_seal_as_is(p, to);
}

/* Makes @p the WELCOME to the group, TO_GROUP_PACKET bytes, and seals it. */
void fake_seal_to_group(struct welcome_packet *p, const void *group);

struct challenge_packet {
	struct thc_hdr		h;
	struct thc_challenge	c;
};

/* A CHALLENGE to rank 1 that begins with @first, sealed for @to. */
void fake_challenge(struct challenge_packet *p, fake_nonce nonce, uint8_t first, const void *to);

/* Begins a JOIN, and answers it with one WELCOME. */
int fake_join(int fd, int udp, struct sockaddr_in *worker);

/* --- chunks --------------------------------------------------------------- */

struct chunk_packet {
	struct thc_hdr		h;
	uint8_t			lanes[THC_LANE_BYTES];
};

/* The next request, or -EAGAIN after @ms. */
int fake_take(int udp, struct chunk_packet *p, int ms);

/* Takes the request of chunk @chunk, and skips others. */
int fake_take_chunk(int udp, struct chunk_packet *p, uint32_t chunk);

/* The sealed answer to @request: a sum over @ranks, all bytes of which are @value. */
void fake_answer(struct chunk_packet *out, const struct thc_hdr *request, uint64_t ranks,
		 uint8_t value);

/* For tests with a fake aggregator: a rank's socket, and the aggregator's. */
#define FAKE_FIXTURE(name) \
	FIXTURE(name) \
	{ \
		int	fd; \
		int	udp; \
	}; \
	FIXTURE_SETUP(name) \
	{ \
		if (why_not()) \
			SKIP(return, "%s", why_not()); \
		ASSERT_EQ(enter_netns(), 0); \
		self->fd = thc_open(0); \
		ASSERT_GE(self->fd, 0); \
		self->udp = fake_open(); \
		ASSERT_GE(self->udp, 0); \
	} \
	FIXTURE_TEARDOWN(name) \
	{ \
		close_all(&self->fd, 1); \
		close_all(&self->udp, 1); \
	}

#endif /* THC_SELFTESTS_FAKE_H */
