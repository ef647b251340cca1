/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An aggregator that is the test itself: a UDP socket on loopback, the packets
 * that come to it and those that it sends, each when the test says so.
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

/* By what its job is sealed, which has job_key, in FAKE_EPOCH. */
const struct job_seals *fake_seals(void);

/* Of other epochs, too: no two have one. */
struct job_seals fake_seals_of(uint8_t epoch);

/* @to: a sockaddr_in, or a sockaddr_in6. */
int send_one(int fd, const void *to, const void *packet, size_t bytes);

/* Packets of @each bytes, the last one perhaps shorter, as one that the network takes
 * apart when it has to: loopback has not. @to as above.
 */
int send_joined(int udp, const void *to, void *packets, size_t bytes, uint16_t each);

/* Whatever @bytes has there, in network order. */
void put_field(void *packet, size_t offset, size_t bytes, uint64_t value);

/* Our socket; @fd: a rank's, to join us. */
int fake_open(void);

static inline struct sockaddr_thc fake_place(void)
{
	return place("127.0.0.1", FAKE_PORT, 1, 1);
}

/* Is a socket of this namespace bound to the UDP port? The kernel's own are shown, too. */
bool is_bound(uint16_t port);

/* Does this host hear packets of the aggregator to @group? */
bool is_member(const char *group);

/* Until it does, at that port; -ETIMEDOUT. What our socket sends there goes to lo. */
int wait_for_group(const char *at, uint16_t port);

struct join_packet {
	struct thc_hdr	h;
	struct thc_join	j;
};

/* A joining's nonce as one number. */
typedef unsigned __int128 fake_nonce;

static inline fake_nonce nonce_of(const struct join_packet *p)
{
	fake_nonce nonce;

	memcpy(&nonce, p->j.nonce, sizeof(nonce));
	return nonce;
}

/* The next packet, which has to be a JOIN, and who sent it. */
int fake_take_join_packet(int udp, struct sockaddr_in *worker, struct join_packet *p);

int fake_take_join(int udp, struct sockaddr_in *worker, fake_nonce *nonce);

/* What has come and is not looked at. */
void fake_forget(int udp);

/* Packets that a socket has looked at: its aggregator's, and strays. */
static inline uint64_t looked_at(int fd)
{
	struct thc_socket_stats s = stats_of(fd);

	return s.packets_down + s.foreign;
}

/* Sends @fd's socket, at @worker, a packet and waits until it has been looked at:
 * softirqs may be late.
 */
int deliver(int fd, int udp, const struct sockaddr_in *worker, const void *packet, size_t bytes);

/* --- WELCOME -------------------------------------------------------------- */

/* In one part. */
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

/* To rank 1 of two, both are in. It is to be sealed. */
void good_welcome(struct welcome_packet *p, fake_nonce nonce);

/* As it is, whatever its `constants` are. */
static inline void fake_seal_as_is(struct welcome_packet *p, const void *to)
{
	seal_welcome(fake_seals(), &p->h, sizeof(*p), to);
}

static inline void fake_seal_welcome(struct welcome_packet *p, const void *to)
{
	whole_welcome_hash(&p->all);
	fake_seal_as_is(p, to);
}

/* Of @p, what the group is told: TO_GROUP_PACKET bytes, which are sealed. */
void fake_seal_to_group(struct welcome_packet *p, const void *group);

struct challenge_packet {
	struct thc_hdr		h;
	struct thc_challenge	c;
};

/* To rank 1, one that begins with @first; sealed for @to. */
void fake_challenge(struct challenge_packet *p, fake_nonce nonce, uint8_t first, const void *to);

/* A JOIN of now begins, and is answered by one WELCOME. */
int fake_join(int fd, int udp, struct sockaddr_in *worker);

/* --- chunks --------------------------------------------------------------- */

struct chunk_packet {
	struct thc_hdr		h;
	uint8_t			lanes[THC_LANE_BYTES];
};

/* The next request, or -EAGAIN after @ms. */
int fake_take(int udp, struct chunk_packet *p, int ms);

/* The request of chunk @chunk; others are passed over. */
int fake_take_chunk(int udp, struct chunk_packet *p, uint32_t chunk);

/* Its sum over @ranks, all lanes of it bytes of @value; sealed. */
void fake_answer(struct chunk_packet *out, const struct thc_hdr *request, uint64_t ranks,
		 uint8_t value);

/* For a test that is the aggregator itself: a socket, and fake_open()'s. */
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
