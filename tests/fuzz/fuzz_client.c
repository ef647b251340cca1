// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes libthc with what comes from the network: WELCOME while it joins, answers while
 * it reduces. Client, engine, transport and codec are the library's; sockets, clock and
 * threads are this file's, so an input means the same on every machine. The aggregator
 * is honest, or changes what it sends, before the packet is sealed or after; packets come
 * twice, late, from other ports, or are bytes without a meaning.
 *
 * A model, written from the protocol's description, says of each packet whether a worker
 * has to believe it:
 *	- a join ends well exactly if the newest WELCOME to be believed says READY, and has
 *	  constants that a worker can serve;
 *	- an all-reduce succeeds only if all its chunks have answers to be believed and all
 *	  claims agree; its result is then what the codec makes of exactly these lanes;
 *	- one that fails leaves the caller's buffer as it was, and a sentence;
 *	- what is sent again has the very same bytes;
 *	- a claim has the digest of the answers to the round before the last one, and goes out
 *	  once it has all of them;
 *	- once all answers are there, the all-reduce ends.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <thc/worker/join.h>
#include <thc/worker/result.h>

#include "client.h"
#include "../lib/welcome.h"
#include "fuzz.h"
#include "request.h"
#include "scheme_thc.h"
#include "served.h"
#include "structs.h"
#include "transport_udp.h"

static int fuzz_clock(clockid_t id, struct timespec *t);
static int fuzz_poll(struct pollfd *fds, nfds_t count, int ms);
static ssize_t fuzz_random(void *to, size_t bytes, unsigned int flags);
static int no_thread(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);
static int no_end(pthread_t t, void **result);

#define clock_gettime	fuzz_clock
#include "../../userspace/libthc/queue.c"
#include "../../userspace/libthc/engine.c"
#define poll		fuzz_poll
#define getrandom	fuzz_random
#include "../../userspace/libthc/join.c"
#define pthread_create	no_thread
#define pthread_join	no_end
#include "../../userspace/libthc/client.c"
#undef poll
#undef pthread_create
#undef pthread_join

#define JOB		3
#define UNICAST		1000	/* instead of descriptors */
#define GROUP		2000
#define ASKED_MAX	128
#define QUEUE_MAX	128
#define PACKET_MAX	1200
#define VALUES_MAX	2500
#define ROUNDS_MAX	8
#define UNDER_WAY_MAX	3
#define CLAIM		32	/* bytes of a rank's */
/* Blocks beyond it take milliseconds each. */
#define BLOCK_LOG2_RUN	11
/* Looks of the engine in which an honest aggregator ends what was begun. */
#define LOOKS_MAX	200

enum {
	JOINED,
	JOIN_REFUSED,
	JOIN_UNKNOWN,
	JOIN_LATE,
	CHALLENGED,
	REJOINED,
	SUCCESS,
	UNIFORM,
	UNROTATED,
	NONFINITE,
	DISAGREED,
	NOT_FINITE,
	ENDED_SESSION,
	TIMED_OUT,
	RANK_LEFT,
	UNREACHABLE,
	PARTIAL_SUM,
	WITHOUT_US,
	SUM_GONE,
	DAMAGED,
	DISBELIEVED,
	WAITED,
	SENT_AGAIN,
	OUTCOMES
};

static struct outcome reached[OUTCOMES] = {
	[JOINED] = { "joined", 0 },
	[JOIN_REFUSED] = { "refused", 0 },
	[JOIN_UNKNOWN] = { "unknown constants", 0 },
	[JOIN_LATE] = { "joins timed out", 0 },
	[CHALLENGED] = { "challenges answered", 0 },
	[REJOINED] = { "joined again", 0 },
	[SUCCESS] = { "results", 0 },
	[UNIFORM] = { "of uniform THC", 0 },
	[UNROTATED] = { "not rotated", 0 },
	[NONFINITE] = { "results of NaN", 0 },
	[DISAGREED] = { "ranks disagree", 0 },
	[NOT_FINITE] = { "not finite", 0 },
	[ENDED_SESSION] = { "sessions ended", 0 },
	[TIMED_OUT] = { "timed out", 0 },
	[RANK_LEFT] = { "rank left", 0 },
	[UNREACHABLE] = { "unreachable", 0 },
	[PARTIAL_SUM] = { "partial sums", 0 },
	[WITHOUT_US] = { "sums without us", 0 },
	[SUM_GONE] = { "sums gone", 0 },
	[DAMAGED] = { "damaged", 0 },
	[DISBELIEVED] = { "disbelieved", 0 },
	[WAITED] = { "waits", 0 },
	[SENT_AGAIN] = { "sent again", 0 },
};
static uint64_t packets;

/* --- the world ------------------------------------------------------------------ */

/* A packet on its way to the client. */
struct coming {
	uint16_t	bytes;
	uint16_t	port;
	bool		ce;
	bool		group;
	__be64		request;	/* the tag of what it answers */
	uint8_t		at[PACKET_MAX] __attribute__((aligned(8)));
};

/* A chunk that the client has sent, and the answer that it has to believe. */
struct asked {
	uint16_t	bytes;
	bool		norms;		/* of the control stream */
	bool		claims;		/* and of its agreement */
	bool		answered;
	bool		gone;		/* by STALE that knows who was in */
	uint16_t	count;
	uint8_t		at[PACKET_MAX] __attribute__((aligned(8)));
	uint8_t		lanes[THC_LANE_BYTES];
};

static struct world {
	struct input		in;
	struct thc_client	*client;
	uint64_t		now;		/* ns */
	uint8_t			nonce[THC_NONCE_BYTES];	/* of the newest JOIN */
	uint8_t			salt[THC_SALT_BYTES];	/* of the last WELCOME to be believed */
	uint32_t		challenges;	/* bit n: the n-th is to be answered, or was */
	uint32_t		joins;		/* JOINs of this joining */
	uint64_t		joined_at;	/* when it began */
	uint64_t		drawn;		/* the last random number */
	uint32_t		epoch;		/* the aggregator's */
	uint32_t		asks;
	unsigned int		queued;
	unsigned int		read;		/* of them */
	int			complaint;	/* errno that the network reports next */
	bool			joining;
	bool			ready;		/* a WELCOME said so that is to be believed */
	bool			broken;		/* the session is over */
	bool			deaf;		/* no group */
	uint8_t			rank;
	struct {
		uint32_t	digest;
		uint32_t	missed;
	} held[ROUNDS_MAX];			/* by round: what the client has to believe */
	bool			keyed;		/* the job has a secret key */
	enum thc_seal_type	seal;		/* of its data */
	struct whole_welcome	welcome;	/* honest constants */
	bool			one_port;	/* as it was told */
} w;

static const uint8_t key[THC_KEY_BYTES] = { 0x5e, 0xed };
static const struct thc_end our_end = { { { 0, 0, 0xffff0000, 0x01004d0a } }, 0x409c, 0, 0 };
/* Of the session: what up and down are made of, [0] without the secret key. */
static struct keys {
	bool			made;
	uint8_t			salt[THC_SALT_BYTES];
	struct thc_seal_key	up;
	struct thc_seal_key	down;
} session[2];
static struct thc_member_key join_key[2], welcome_key[2], lost_key[2];
static struct asked asked[ASKED_MAX];
static struct coming queue[QUEUE_MAX];

static int fuzz_clock(clockid_t id, struct timespec *t)
{
	(void)id;
	t->tv_sec = (time_t)(w.now / 1000000000);
	t->tv_nsec = (long)(w.now % 1000000000);
	return 0;
}

static ssize_t fuzz_random(void *to, size_t bytes, unsigned int flags)
{
	(void)flags;
	require(bytes == THC_NONCE_BYTES);
	w.drawn += 0x9e3779b97f4a7c15ULL;
	memcpy(to, &w.drawn, sizeof(w.drawn));
	memcpy((uint8_t *)to + sizeof(w.drawn), &w.drawn, sizeof(w.drawn));
	/* a joining begins */
	w.challenges = w.joins = 0;
	w.joined_at = w.now;
	return (ssize_t)bytes;
}

static int no_thread(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
	(void)t, (void)a, (void)run, (void)arg;
	return 0;
}

static int no_end(pthread_t t, void **result)
{
	(void)t, (void)result;
	return 0;
}

/* --- the model: what a worker has to believe ---------------------------------------- */

static bool is_form(const struct thc_hdr *h, size_t bytes)
{
	return !(bytes % 8) && h->version == THC_VERSION && h->job == thc_be16(JOB);
}

static __be64 member_tag(const struct thc_member_key *k, const struct thc_hdr *h,
			 const void *payload, size_t bytes)
{
	return thc_member_tag(w.keyed ? THC_SEAL_NH : THC_SEAL_SUM, k, h, &our_end, payload,
			      (int)(bytes / 8));
}

/* Making keys takes longer than an input: those of one salt are kept. */
static void set_salt(const uint8_t salt[THC_SALT_BYTES])
{
	struct keys *k = &session[w.keyed];

	if (k->made && !memcmp(k->salt, salt, sizeof(k->salt)))
		return;
	memcpy(k->salt, salt, sizeof(k->salt));
	thc_seal_key_set(&k->up, w.keyed ? key : NULL, THC_KEY_UP, JOB, salt);
	thc_seal_key_set(&k->down, w.keyed ? key : NULL, THC_KEY_DOWN, JOB, salt);
	k->made = true;
}

/* Does an aggregator say it to this worker of its joining, @payload of that length? A nonce is what
 * both of its packets begin with, or have at @nonce_at.
 */
static bool is_of_joining(const struct coming *p, uint8_t op, size_t payload, size_t nonce_at)
{
	const uint8_t *at = p->at + sizeof(struct thc_hdr);
	struct thc_hdr h;

	memcpy(&h, p->at, sizeof(h));
	return p->bytes == sizeof(h) + payload && is_form(&h, p->bytes) && h.op == op &&
	       p->port == THC_PORT_DEFAULT && h.rank == thc_be16(w.rank) &&
	       !memcmp(at + nonce_at, w.nonce, sizeof(w.nonce)) &&
	       h.key_id == welcome_key[w.keyed].id &&
	       h.tag == member_tag(&welcome_key[w.keyed], &h, at, payload);
}

#define CHALLENGE_MARK	0xc4

/* The challenges are numbered: what a JOIN may say is what has been asked. */
static void believe_challenge(const struct coming *p)
{
	const uint8_t *c = p->at + sizeof(struct thc_hdr) + THC_NONCE_BYTES;

	if (!is_of_joining(p, THC_OP_CHALLENGE, sizeof(struct thc_challenge), 0)) {
		reached[DISBELIEVED].times++;
		return;
	}
	if (c[0] == CHALLENGE_MARK)
		w.challenges |= 1U << c[1] % 32;
}

/* While joining: does it end the join well? */
static void believe_welcome(const struct coming *p)
{
	const uint8_t *at = p->at + sizeof(struct thc_hdr);
	size_t bytes = p->bytes - sizeof(struct thc_hdr);
	unsigned int flags = be16_at(at + 52);
	struct records r;

	if (p->bytes < sizeof(struct thc_hdr) + sizeof(struct thc_welcome) ||
	    !is_whole_welcome(at, bytes) ||
	    !is_of_joining(p, THC_OP_WELCOME, bytes, offsetof(struct thc_welcome, nonce))) {
		reached[DISBELIEVED].times++;
		return;
	}
	w.ready = false;
	if (flags & THC_WELCOME_F_REFUSED || !can_be_served(at, bytes, w.rank, w.keyed))
		return;
	take_records(&r, at, bytes);
	memcpy(w.salt, r.seal + 4, sizeof(w.salt));
	w.seal = r.seal[0];
	set_salt(w.salt);
	w.one_port = flags & THC_WELCOME_F_ONE_PORT;
	w.ready = flags & THC_WELCOME_F_READY;
}

/* The chunk in flight that @h is about. */
static struct asked *asked_for(const struct thc_hdr *h)
{
	uint32_t i;

	for (i = 0; i < w.asks; i++) {
		const struct thc_hdr *was = (void *)asked[i].at;

		if (!asked[i].answered && was->slot == h->slot && was->chunk == h->chunk &&
		    was->generation == h->generation)
			return &asked[i];
	}
	return NULL;
}

static bool counts_fit(const struct thc_hdr *h)
{
	uint64_t bitmap = thc_be64(h->bitmap), all = ~0ULL >> (64 - w.client->spec.ranks);

	return bitmap && !(bitmap & ~all) && thc_be16(h->count) == __builtin_popcountll(bitmap);
}

static bool is_answer(const struct thc_hdr *h, const struct asked *a, size_t bytes)
{
	const struct thc_hdr *was = (void *)a->at;
	uint8_t width = a->norms ? 32 : thc_spec_sum_width(&w.client->spec);
	bool op = h->op == was->op || (!a->norms && h->op == THC_OP_ADD);

	return bytes == sizeof(*h) + THC_LANE_BYTES && h->flags & THC_F_ANSWER && op &&
	       h->round == was->round && h->width == width;
}

/* An answer behind the agreement of its round. */
static void hold(const struct asked *a, const struct thc_hdr *h, const uint8_t *lanes)
{
	const struct thc_seal_key *down = &session[w.keyed].down;
	uint32_t round = thc_be32(((const struct thc_hdr *)a->at)->round);
	struct thc_digest d;

	require(round < ROUNDS_MAX);
	if (!lanes) {
		w.held[round].missed++;
		return;
	}
	d = thc_seal_digest(w.seal, down, lanes, THC_LANE_WORDS);
	w.held[round].digest += thc_result_digest((u8)w.seal, down, h, d, lanes);
}

static void land(struct asked *a, const struct thc_hdr *h, const uint8_t *lanes)
{
	if (!a->claims)
		hold(a, h, lanes);
	a->answered = true;
	a->gone = !lanes;
	a->count = lanes ? thc_be16(h->count) : 0;
	if (lanes)
		memcpy(a->lanes, lanes, sizeof(a->lanes));
	if (a->norms)
		return;
	reached[SUM_GONE].times += !lanes;
	reached[PARTIAL_SUM].times += lanes && a->count < w.client->spec.ranks;
	reached[WITHOUT_US].times += !(thc_be64(h->bitmap) >> w.client->options.rank & 1);
}

/* Does the aggregator send from @port what is about slot @slot? */
static bool is_its_port(uint16_t port, unsigned int slot)
{
	const struct thc_spec *c = &w.client->spec;

	if (port == THC_PORT_DEFAULT)
		return true;
	return !w.one_port && slot < (unsigned int)c->data_slots + c->control_slots &&
	       port == THC_PORT_DEFAULT + slot / 64;
}

/* An epoch is over: does it answer what we asked for? */
static bool ends_epoch(const struct coming *p, const struct thc_hdr *h)
{
	const struct asked *a = asked_for(h);
	const struct thc_hdr *was = a ? (const void *)a->at : NULL;

	return a && p->bytes == sizeof(*h) && h->epoch != thc_be32(w.client->epoch) &&
	       h->key_id == lost_key[w.keyed].id &&
	       h->tag == member_tag(&lost_key[w.keyed], h, &was->tag, sizeof(was->tag));
}

/* True if the client has to take something from it. */
static bool believe(const struct coming *p)
{
	const struct thc_seal_key *down = &session[w.keyed].down;
	const struct thc_spec *c = &w.client->spec;
	struct asked *a;
	struct thc_hdr h;

	memcpy(&h, p->at, sizeof(h));
	if (!is_form(&h, p->bytes) || h.op == THC_OP_WELCOME ||
	    !is_its_port(p->port, thc_be16(h.slot)))
		return false;
	if (h.op == THC_OP_STALE && h.flags & THC_F_EPOCH) {
		w.broken |= ends_epoch(p, &h);
		return w.broken;
	}
	if (h.key_id != down->id ||
	    !thc_seal_ok(&h, w.seal, down, p->at + sizeof(h), (int)((p->bytes - sizeof(h)) / 8)))
		return false;
	a = h.epoch == thc_be32(w.client->epoch) ? asked_for(&h) : NULL;
	if (!a)
		return false;
	if (h.op == THC_OP_STALE && (a->norms || !(h.flags & THC_F_KNOWN))) {
		w.broken = true;
		return true;
	}
	if (!counts_fit(&h))
		return false;
	if (h.op == THC_OP_STALE)
		land(a, &h, NULL);
	else if (h.op == THC_OP_WAIT)
		reached[WAITED].times++;
	else if (is_answer(&h, a, p->bytes))
		land(a, &h, p->at + sizeof(h));
	else
		return false;
	return true;
}

/* --- instead of udp.c, way.c ---------------------------------------------------------------- */

int thc_sockets_open(struct thc_sockets *l, const struct thc_client_options *o)
{
	(void)o;
	*l = (struct thc_sockets){
		.unicast = UNICAST, .group = -1, .gso = true, .answers_max = 1000
	};
	l->way.aggregator.ss_family = AF_INET;
	return 0;
}

int thc_way_find(struct thc_way *way, const struct thc_client_options *o)
{
	(void)o;
	way->aggregator.ss_family = AF_INET;
	return 0;
}

/* There is one aggregator: who says that there are more has to say where. */
int thc_sockets_open_beside(struct thc_sockets *l, const struct thc_sockets *first,
			    const struct thc_end *to)
{
	(void)first;
	require(to->port && thc_be16(to->aggregator));
	l->unicast = l->group = -1;
	return -EHOSTUNREACH;
}

void thc_sockets_close(struct thc_sockets *l)
{
	l->unicast = l->group = -1;
}

int thc_sockets_join_group(struct thc_sockets *l, const struct thc_end *group)
{
	/* the group's port and address are another program's, if they are not sound */
	require(thc_be16(group->port) >= THC_PORT_UNPRIVILEGED);
	l->group = w.deaf || !thc_addr_is_v4(&group->addr) ? -1 : GROUP;
	return l->group < 0 ? -EAFNOSUPPORT : 0;
}

void thc_sockets_leave_group(struct thc_sockets *l)
{
	l->group = -1;
}

void thc_way_end(const struct thc_way *way, struct thc_end *end)
{
	(void)way;
	*end = our_end;
}

unsigned int thc_sockets_wire_bytes(const struct thc_sockets *l, unsigned int bytes)
{
	(void)l;
	return bytes + 42;
}

const char *thc_way_name(const struct thc_way *way, char *text, size_t size)
{
	(void)way;
	snprintf(text, size, "10.77.0.100:18500");
	return text;
}

/* What a claim says of the results of the round before the last one. */
static void check_claim(const struct thc_hdr *h, const uint8_t *claims)
{
	uint32_t round = thc_be32(h->round), said[2], i;

	memcpy(said, claims + CLAIM * w.client->options.rank + 20, sizeof(said));
	if (round < 2) {
		require(!said[0] && !said[1]);
		return;
	}
	for (i = 0; i < w.asks; i++)
		require(asked[i].answered ||
			thc_be32(((const struct thc_hdr *)asked[i].at)->round) != round - 2);
	require(thc_le32(said[1]) == w.held[round - 2].missed);
	require(thc_le32(said[0]) == (said[1] ? 0 : w.held[round - 2].digest));
}

/* Remembers a chunk; once more it has to be the same. */
static void note_request(const void *packet, size_t bytes)
{
	const struct thc_hdr *h = packet;
	struct asked *a = asked_for(h);

	if (a) {
		require(a->bytes == bytes && !memcmp(a->at, packet, bytes));
		reached[SENT_AGAIN].times++;
		return;
	}
	require(w.asks < ASKED_MAX && bytes <= sizeof(a->at));
	a = &asked[w.asks++];
	a->bytes = (uint16_t)bytes;
	a->claims = h->op == THC_OP_CLAIM;
	a->norms = h->op == THC_OP_MAX || a->claims;
	a->answered = a->gone = false;
	memcpy(a->at, packet, bytes);
	if (a->claims)
		check_claim(h, a->at + sizeof(*h));
}

/* A JOIN says what it was asked, or nothing, and with HEARD the salt; five in 20 ms at most. */
static void note_join(const struct thc_join *j)
{
	static const struct thc_join zero;
	bool heard = j->flags == thc_be32(THC_JOIN_F_HEARD);

	require(!j->flags || heard);
	require(j->offers == thc_be32(w.keyed ? 4 : 3) && j->version_max == 2 &&
		j->restarted == 0xffff && !j->workers && !j->reserved);
	require(!memcmp(j->reserved2, zero.reserved2, sizeof(zero.reserved2)));
	memcpy(w.nonce, j->nonce, sizeof(w.nonce));
	w.joins++;
	require(w.joins <= 5 * (1 + (w.now - w.joined_at) / 20000000));
	if (heard) {
		require(!memcmp(j->challenge, w.salt, sizeof(w.salt)));
	} else if (j->challenge[0] == CHALLENGE_MARK) {
		require(w.challenges >> j->challenge[1] % 32 & 1);
		reached[CHALLENGED].times++;
	}
}

static void note_sent(const struct thc_outgoing *out)
{
	const uint8_t *payload = (const uint8_t *)out->data + sizeof(struct thc_hdr);
	const struct thc_seal_key *up = &session[w.keyed].up;
	size_t bytes = out->bytes - sizeof(struct thc_hdr);
	struct thc_join j;
	struct thc_hdr h;

	memcpy(&h, out->data, sizeof(h));
	require(is_form(&h, out->bytes) && !h.flags && !h.bitmap);
	if (h.op == THC_OP_JOIN || h.op == THC_OP_LEAVE) {
		require(h.key_id == join_key[w.keyed].id);
		require(h.tag == member_tag(&join_key[w.keyed], &h, payload, bytes));
	}
	if (h.op == THC_OP_JOIN) {
		require(bytes == sizeof(j));
		memcpy(&j, payload, sizeof(j));
		note_join(&j);
	} else if (h.op == THC_OP_LEAVE) {
		require(bytes == sizeof(w.nonce) && !memcmp(payload, w.nonce, bytes));
	} else {
		require(h.key_id == up->id &&
			thc_seal_ok(&h, w.seal, up, payload, (int)(bytes / 8)));
		require(is_its_port(out->port, thc_be16(h.slot)));
		note_request(out->data, out->bytes);
	}
}

static int complain(void)
{
	int error = -w.complaint;

	w.complaint = 0;
	return error;
}

int thc_sockets_send(struct thc_sockets *l, const struct thc_outgoing *out, unsigned int count,
		     uint64_t *calls)
{
	unsigned int i;

	require(l->unicast == UNICAST);
	++*calls;
	for (i = 0; i < count; i++)
		note_sent(&out[i]);
	return w.complaint ? complain() : (int)count;
}

/* A copy that ends where the packet does. */
static void hand_over(const struct coming *p, thc_sockets_each *each, void *ctx)
{
	uint8_t *copy = malloc(p->bytes);

	require(copy);
	memcpy(copy, p->at, p->bytes);
	packets++;
	if (w.joining && p->at[1] == THC_OP_CHALLENGE)
		believe_challenge(p);
	else if (w.joining)
		believe_welcome(p);
	else if (!w.broken && !believe(p))
		reached[DISBELIEVED].times++;
	each(ctx, (void *)copy, p->bytes, (struct thc_origin){ p->port, p->ce });
	free(copy);
	if (w.joining)
		return;
	require(!w.broken || w.client->broken);
	w.broken = w.client->broken;
}

int thc_sockets_receive(struct thc_sockets *l, int fd, struct thc_buffer rx, thc_sockets_each *each,
			void *ctx, uint64_t *calls)
{
	int n = 0;

	require(rx.bytes);
	require(fd == UNICAST || (fd == GROUP && l->group == GROUP));
	++*calls;
	if (fd == UNICAST && w.complaint)
		return complain();
	/* in order, whichever way they come */
	while (w.read < w.queued && (l->group < 0 || queue[w.read].group == (fd == GROUP))) {
		hand_over(&queue[w.read++], each, ctx);
		n++;
	}
	if (w.read == w.queued)
		w.read = w.queued = 0;
	return n;
}

/* --- the aggregator --------------------------------------------------------------------- */

static struct coming *room_for_one(void)
{
	static struct coming nowhere;
	struct coming *p = w.queued < QUEUE_MAX ? &queue[w.queued++] : &nowhere;

	memset(p, 0, offsetof(struct coming, at) + sizeof(struct thc_hdr));
	p->port = THC_PORT_DEFAULT;
	return p;
}

/* As the aggregator does; the packet names the key. */
static void seal(struct coming *p)
{
	const struct thc_seal_key *down = &session[w.keyed].down;
	struct thc_hdr *h = (void *)p->at;
	size_t bytes = p->bytes - sizeof(*h);
	struct thc_digest d;

	if (p->bytes < sizeof(*h))
		return;
	if (h->op == THC_OP_WELCOME || h->op == THC_OP_CHALLENGE) {
		h->tag = member_tag(&welcome_key[w.keyed], h, h + 1, bytes);
	} else if (h->op == THC_OP_STALE && h->flags & THC_F_EPOCH) {
		h->tag = member_tag(&lost_key[w.keyed], h, &p->request, sizeof(p->request));
	} else {
		d = thc_seal_digest(w.seal, down, h + 1, (int)(bytes / 8));
		h->tag = thc_be64(thc_seal_tag(w.seal, down, h, d, bytes / 8));
	}
}

/* Changes some bytes, before the packet was sealed or after, its port or its length. */
static void spoil(struct coming *p, uint8_t how)
{
	int i;

	for (i = how & 3; i; i--) {
		size_t at = next(&w.in) << 8 | next(&w.in);

		at %= how & 4 ? sizeof(struct thc_hdr) : p->bytes;
		p->at[at] ^= next(&w.in);
	}
	if (how & 8)
		reached[DAMAGED].times++;
	else
		seal(p);
	if (how & 16)
		p->port += next(&w.in);
	if ((how & 0x60) == 0x60 && p->bytes > sizeof(struct thc_hdr))
		p->bytes -= next(&w.in) % (p->bytes - sizeof(struct thc_hdr) + 1);
	p->ce = how & 0x80;
}

static struct coming *put_welcome(uint8_t flags)
{
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;
	struct whole_welcome c = w.welcome;

	p->bytes = sizeof(*h) + sizeof(c);
	h->version = THC_VERSION;
	h->op = THC_OP_WELCOME;
	h->key_id = welcome_key[w.keyed].id;
	h->job = thc_be16(JOB);
	h->rank = thc_be16(w.rank);
	h->epoch = thc_be32(w.epoch);
	memcpy(c.w.nonce, w.nonce, sizeof(c.w.nonce));
	c.w.flags |= thc_be16(flags);
	memcpy(p->at + sizeof(*h), &c, sizeof(c));
	seal(p);
	return p;
}

static struct coming *put_refusal(uint8_t why)
{
	struct coming *p = put_welcome(0);
	struct thc_welcome c = {
		.flags = thc_be16(THC_WELCOME_F_REFUSED), .refusal = why, .parts = 1,
		.version_max = THC_VERSION,
	};

	memcpy(c.nonce, w.nonce, sizeof(c.nonce));
	memcpy(p->at + sizeof(struct thc_hdr), &c, sizeof(c));
	p->bytes = sizeof(struct thc_hdr) + sizeof(c);
	seal(p);
	return p;
}

/* The @n-th challenge. */
static struct coming *put_challenge(uint8_t n)
{
	struct thc_challenge c = { .challenge = { CHALLENGE_MARK, n % 32 } };
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;

	p->bytes = sizeof(*h) + sizeof(c);
	h->version = THC_VERSION;
	h->op = THC_OP_CHALLENGE;
	h->key_id = welcome_key[w.keyed].id;
	h->job = thc_be16(JOB);
	h->rank = thc_be16(w.rank);
	memcpy(c.nonce, w.nonce, sizeof(c.nonce));
	memcpy(p->at + sizeof(*h), &c, sizeof(c));
	seal(p);
	return p;
}

/* What anybody can send who has heard our JOIN. */
static void put_doubtful(uint8_t why)
{
	const struct thc_member_key none = { .id = 0 };
	struct coming *p = put_refusal(why);
	struct thc_hdr *h = (void *)p->at;

	h->key_id = 0;
	h->tag = thc_member_tag(THC_SEAL_SUM, &none, h, &our_end, h + 1,
				sizeof(struct thc_welcome) / 8);
}

/* What the client's scheme keeps. */
static const struct thc_compressor *compressor(void)
{
	return w.client->context[w.client->spec.scheme];
}

/* Index that rank @rank, not the client's, has at coordinate @i of a chunk. */
static unsigned int level_of(unsigned int rank, uint32_t chunk, unsigned int i)
{
	return (i * 5 + rank * 3 + chunk) % compressor()->codec.table.levels;
}

/* The sum of the ranks in @in over a chunk of gradients. */
static void sum_levels(const struct asked *a, uint64_t in, uint8_t *lanes)
{
	const uint8_t *own = a->at + sizeof(struct thc_hdr);
	const struct thc_spec *c = &w.client->spec;
	const struct thc_table *t = &compressor()->codec.table;
	unsigned int width = thc_spec_sum_width(c);
	uint32_t chunk = thc_be32(((const struct thc_hdr *)a->at)->chunk);
	unsigned int i, r;

	memset(lanes, 0, THC_LANE_BYTES);
	for (i = 0; i < compressor()->chunk; i++) {
		unsigned int sum = 0;

		for (r = 0; r < c->ranks; r++) {
			unsigned int z = level_of(r, chunk, i);

			if (r == w.client->options.rank)
				z = i % 2 ? own[i / 2] & 15 : own[i / 2] >> 4;
			if (in >> r & 1)
				sum += t->value[z];
		}
		for (r = 0; r < width; r += 8)
			lanes[i * width / 8 + r / 8] |= (uint8_t)(sum << i * width % 8 >> r);
	}
}

/* Everybody's claim is the client's; norms of others are smaller. */
static void max_lanes(const struct asked *a, uint64_t in, uint8_t *lanes)
{
	const struct thc_client *c = w.client;
	unsigned int r, self = c->options.rank;

	memcpy(lanes, a->at + sizeof(struct thc_hdr), THC_LANE_BYTES);
	for (r = 0; a->claims && r < c->spec.ranks; r++)
		if (in >> r & 1)
			memcpy(lanes + CLAIM * r, a->at + sizeof(struct thc_hdr) + CLAIM * self,
			       CLAIM);
		else
			memset(lanes + CLAIM * r, 0, CLAIM);
}

/* The answer to @a with the ranks in @in. */
static struct coming *put_answer(const struct asked *a, uint64_t in)
{
	const struct thc_spec *c = &w.client->spec;
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;
	uint64_t all = ~0ULL >> (64 - c->ranks);

	in = in & all ? in & all : all;
	memcpy(h, a->at, sizeof(*h));
	h->flags = THC_F_ANSWER | (in != all ? THC_F_CLOSED : 0);
	h->width = a->norms ? 32 : thc_spec_sum_width(c);
	/* as if a node's sums had been there first */
	if (!a->norms && thc_be32(h->chunk) & 1)
		h->op = THC_OP_ADD;
	h->bitmap = thc_be64(in);
	h->count = thc_be16((uint16_t)__builtin_popcountll(in));
	h->key_id = session[w.keyed].down.id;
	p->bytes = sizeof(*h) + THC_LANE_BYTES;
	p->group = c->reply == THC_REPLY_MULTICAST &&
		   thc_udp_of(w.client->transport)->peer->sockets.group >= 0;
	if (a->norms)
		max_lanes(a, in, p->at + sizeof(*h));
	else
		sum_levels(a, in, p->at + sizeof(*h));
	seal(p);
	return p;
}

/* WAIT and STALE: @flags, and who is in. */
static struct coming *put_header(const struct asked *a, uint8_t op, uint8_t flags, uint64_t in)
{
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;

	in &= ~0ULL >> (64 - w.client->spec.ranks);
	memcpy(h, a->at, sizeof(*h));
	h->op = op;
	h->width = 0;
	h->flags = flags;
	h->bitmap = thc_be64(in);
	h->count = thc_be16((uint16_t)__builtin_popcountll(in));
	p->request = h->tag;
	h->key_id = flags & THC_F_EPOCH ? lost_key[w.keyed].id : session[w.keyed].down.id;
	if (flags & THC_F_EPOCH)
		h->epoch = thc_be32(++w.epoch);
	p->bytes = sizeof(*h);
	seal(p);
	return p;
}

static struct coming *put_raw(void)
{
	struct coming *p = room_for_one();
	size_t i;

	p->bytes = (uint16_t)(sizeof(struct thc_hdr) + next(&w.in) * 4 % (THC_LANE_BYTES + 1));
	for (i = 0; i < p->bytes; i++)
		p->at[i] = next(&w.in);
	return p;
}

/* --- while joining --------------------------------------------------------------------- */

static void act_join(void)
{
	uint8_t action = next(&w.in);
	struct coming *p;
	size_t at;

	switch (action & 7) {
	case 0:
	case 1:
		put_welcome(THC_WELCOME_F_READY);
		break;
	case 2:
		p = put_welcome(THC_WELCOME_F_READY);
		spoil(p, action & 8 ? next(&w.in) : 1);
		break;
	case 3:
		/* a constant is another */
		p = put_welcome(THC_WELCOME_F_READY);
		at = next(&w.in) % sizeof(struct whole_welcome);
		p->at[sizeof(struct thc_hdr) + at] ^= next(&w.in);
		/* and meant so */
		if (action & 8)
			whole_welcome_hash((void *)(p->at + sizeof(struct thc_hdr)));
		seal(p);
		break;
	case 4:
		put_welcome(0);
		w.now += (action >> 3) * 10000000ULL;
		break;
	case 5:
		if (w.keyed && action & 0x40) {
			put_doubtful(action >> 3 & 7);
			break;
		}
		p = put_refusal(action >> 3);
		if (action & 0x80)
			spoil(p, next(&w.in));
		break;
	case 6:
		if (!(action & 8)) {
			put_raw();
			break;
		}
		p = put_challenge(action >> 4 & 7);
		if (action & 0x80)
			spoil(p, next(&w.in));
		break;
	case 7:
		w.complaint = action & 8 ? ECONNREFUSED : ENETUNREACH;
		w.now += (action >> 3) * 10000000ULL;
		break;
	}
}

static int fuzz_poll(struct pollfd *fds, nfds_t count, int ms)
{
	(void)fds, (void)count;
	w.now += (uint64_t)ms * 250000;
	if (w.in.left)
		act_join();
	else
		w.now += 50000000;
	return 0;
}

/* --- while reducing --------------------------------------------------------------------- */

static struct {
	struct thc_request *request;
	unsigned int round;
	size_t count;
	enum thc_dtype dtype;
	uint8_t *buf;
	uint8_t *was;
} under_way[UNDER_WAY_MAX];

static unsigned int rounds;	/* begun in this session */

static float some_float(uint32_t *x)
{
	*x = *x * 1664525 + 1013904223;
	return (float)(int32_t)*x * 0x1p-28f;
}

static void begin_round(uint8_t what)
{
	size_t count = 1 + (next(&w.in) << 8 | next(&w.in)) % (what & 8 ? VALUES_MAX : 1024), i;
	enum thc_dtype dtype = what % 3;
	uint32_t x = what;
	unsigned int k;
	size_t size;

	for (k = 0; k < UNDER_WAY_MAX && under_way[k].request; k++)
		;
	if (k == UNDER_WAY_MAX || rounds == ROUNDS_MAX || w.client->broken)
		return;
	size = count * thc_dtype_size(dtype);
	under_way[k].count = count;
	under_way[k].dtype = dtype;
	under_way[k].buf = malloc(size);
	under_way[k].was = malloc(size);
	require(under_way[k].buf && under_way[k].was);
	for (i = 0; i < count; i++) {
		float v = (what & 0x70) == 0x70 && i == count / 2 ? NAN : some_float(&x);

		thc_store(dtype, under_way[k].buf + i * thc_dtype_size(dtype), &v, 1);
	}
	memcpy(under_way[k].was, under_way[k].buf, size);
	if (!thc_allreduce_start(w.client, under_way[k].buf, count, dtype, count,
				 &under_way[k].request)) {
		under_way[k].round = rounds++;
		return;
	}
	/* its error memory is in use */
	require(*thc_last_error());
	free(under_way[k].buf);
	free(under_way[k].was);
}

/* The chunks of a round that were asked for, in order; how many. */
static unsigned int chunks_of(unsigned int round, bool norms, const struct asked **out)
{
	unsigned int n = 0;
	uint32_t i;

	for (i = 0; i < w.asks; i++)
		if (asked[i].norms == norms &&
		    thc_be32(((const struct thc_hdr *)asked[i].at)->round) == round)
			out[n++] = &asked[i];
	return n;
}

/* What the claims of the agreement @a come to: 0, -EBADMSG or -EDOM. */
static int agreed(const struct asked *a)
{
	const uint8_t *own = a->at + sizeof(struct thc_hdr) + CLAIM * w.client->options.rank;
	static const uint8_t fine[4];
	bool differ = false, bad = false, held = !memcmp(own + 24, fine, 4);
	uint8_t digest[4];
	unsigned int r;

	memcpy(digest, own + 20, 4);

	for (r = 0; r < w.client->spec.ranks; r++) {
		const uint8_t *claim = a->lanes + CLAIM * r;

		if (!claim[4])
			continue;
		bad |= claim[28] != 0;
		/* the upper bits of the last lane, too: a sketch, or none */
		differ |= memcmp(claim, own, 20) || (claim[31] ^ own[31]) >> 4;
		/* of those who have missed nothing */
		if (memcmp(claim + 24, fine, 4))
			continue;
		differ |= held && memcmp(claim + 20, digest, 4);
		memcpy(digest, claim + 20, 4);
		held = true;
	}
	bad |= own[28] != 0;
	return differ ? -EBADMSG : bad ? -EDOM : 0;
}

/* A lane of MAX: a norm, or one end of a range so that MAX orders both signs. */
static float scale_from(const uint8_t *lane)
{
	uint32_t bits = (uint32_t)lane[3] << 24 | lane[2] << 16 | lane[1] << 8 | lane[0];
	float scale;

	if (w.client->spec.scheme == THC_SCHEME_UTHC)
		bits = bits & 1U << 31 ? bits ^ 1U << 31 : ~bits;
	memcpy(&scale, &bits, sizeof(scale));
	return scale;
}

static void check_mean(unsigned int k, const struct asked **norms, const struct asked **data,
		       unsigned int chunks)
{
	static uint8_t lanes[ASKED_MAX][THC_LANE_BYTES];
	static float mean[ASKED_MAX * THC_COORDINATES(8)], norm[THC_NORMS];
	const struct thc_compressor *z = compressor();
	size_t blocks = chunks * z->chunk >> z->codec.block_log2, i;
	static uint8_t stored[VALUES_MAX * 4];
	uint16_t count[ASKED_MAX];

	require(blocks && blocks <= THC_NORMS);
	for (i = 0; i < chunks; i++) {
		memcpy(lanes[i], data[i]->lanes, THC_LANE_BYTES);
		count[i] = data[i]->count;
	}
	for (i = 0; i < THC_NORMS; i++)
		norm[i] = scale_from(norms[1]->lanes + 4 * i);
	thc_codec_decode(&z->codec,
			 &(struct thc_sums){ lanes, THC_LANE_BYTES, z->chunk,
					     thc_spec_sum_width(&w.client->spec), count },
			 under_way[k].count, &(struct thc_blocks){ under_way[k].round, 0, norm, 0 },
			 mean);
	thc_store(under_way[k].dtype, stored, mean, under_way[k].count);
	require(!memcmp(stored, under_way[k].buf,
			under_way[k].count * thc_dtype_size(under_way[k].dtype)));
}

static void check_result(unsigned int k)
{
	const struct asked *norms[ASKED_MAX], *data[ASKED_MAX];
	unsigned int n = chunks_of(under_way[k].round, true, norms), i;
	unsigned int chunks = chunks_of(under_way[k].round, false, data);
	size_t block = (size_t)1 << compressor()->codec.block_log2;

	require(n == 2 && norms[0]->answered && norms[1]->answered);
	require(!agreed(norms[0]));
	require(chunks == (under_way[k].count + block - 1) / block * (block / compressor()->chunk));
	for (i = 0; i < chunks; i++)
		require(data[i]->answered);
	check_mean(k, norms, data, chunks);
}

static void check_nonfinite(unsigned int k)
{
	const struct asked *norms[ASKED_MAX];
	float v;

	require(chunks_of(under_way[k].round, true, norms) == 1 && norms[0]->answered);
	require(w.client->options.flags & THC_CLIENT_NONFINITE && agreed(norms[0]) == -EDOM);
	thc_load(under_way[k].dtype, &v, under_way[k].buf, 1);
	require(v != v);
}

static void count_failure(int status)
{
	reached[DISAGREED].times += status == -EBADMSG;
	reached[NOT_FINITE].times += status == -EDOM;
	reached[ENDED_SESSION].times += status == -ESTALE;
	reached[TIMED_OUT].times += status == -ETIMEDOUT;
	reached[RANK_LEFT].times += status == -EPIPE;
	reached[UNREACHABLE].times += status == -ECONNREFUSED || status == -ENETUNREACH;
}

static void check_failure(unsigned int k, int status)
{
	const struct asked *norms[ASKED_MAX];

	require(*thc_last_error());
	require(!memcmp(under_way[k].was, under_way[k].buf,
			under_way[k].count * thc_dtype_size(under_way[k].dtype)));
	/* a rank that a deadline left out takes all others' rounds with it */
	if (!w.broken && (status == -EBADMSG || status == -EDOM))
		require(chunks_of(under_way[k].round, true, norms) == 1 && norms[0]->answered &&
			agreed(norms[0]) == status);
	count_failure(status);
}

static void count_success(int status)
{
	const struct thc_spec *p = &w.client->spec;

	reached[SUCCESS].times += !status;
	reached[UNIFORM].times += !status && p->scheme == THC_SCHEME_UTHC;
	reached[UNROTATED].times += !status && p->scheme_features & THC_SCHEME_F_UNROTATED;
	reached[NONFINITE].times += status == THC_NONFINITE;
}

/* Looks at all-reduces that have ended. */
static void collect(bool canceled)
{
	unsigned int k;
	int status;

	for (k = 0; k < UNDER_WAY_MAX; k++) {
		if (!under_way[k].request || !thc_allreduce_test(under_way[k].request))
			continue;
		status = thc_allreduce_wait(under_way[k].request);
		require(!canceled || status <= 0);
		if (!status)
			check_result(k);
		else if (status == THC_NONFINITE)
			check_nonfinite(k);
		else
			check_failure(k, status);
		count_success(status);
		free(under_way[k].buf);
		free(under_way[k].was);
		memset(&under_way[k], 0, sizeof(under_way[k]));
	}
}

/* What the I/O thread does between two sleeps. */
static bool look(void)
{
	struct thc_client *c = w.client;
	uint64_t due;
	bool busy;

	require(!stopping(c));
	busy = turn(c, &due);
	w.broken |= c->broken;
	collect(false);
	w.now += 20000;
	return busy;
}

/* A chunk that waits for its answer, of those there are. */
static struct asked *some_asked(void)
{
	uint8_t which = next(&w.in);
	uint32_t i, k;

	if (which & 0x80)
		return w.asks ? &asked[which % w.asks] : NULL;
	for (k = 0; k < w.asks; k++) {
		i = (k + which) % w.asks;
		if (!asked[i].answered)
			return &asked[i];
	}
	return NULL;
}

static void answer_all(uint64_t in)
{
	uint32_t i;

	for (i = 0; i < w.asks; i++)
		if (!asked[i].answered)
			put_answer(&asked[i], in);
}

static void act_answer(uint8_t action)
{
	struct asked *a = some_asked();
	struct coming *p;
	uint8_t flags;

	if (!a)
		return;
	switch (action >> 4 & 3) {
	case 0:
		p = put_answer(a, action & 0x80 ? next(&w.in) : 0);
		break;
	case 1:
		p = put_header(a, THC_OP_WAIT, action & 0x80 ? THC_F_LEFT : 0, next(&w.in));
		break;
	case 2:
		p = put_header(a, THC_OP_STALE, THC_F_KNOWN, next(&w.in));
		break;
	case 3:
		flags = next(&w.in);
		p = put_header(a, THC_OP_STALE, flags < 200 ? THC_F_KNOWN : flags, next(&w.in));
		break;
	}
	flags = next(&w.in);
	if (action & 0x40)
		spoil(p, flags);
}

static void check_joined(void)
{
	struct thc_client_info info = { .size = sizeof(info) };
	const struct thc_spec *p = &w.client->spec;

	require(w.ready);
	require(!thc_client_info(w.client, &info) && info.ranks == p->ranks);
	require(info.block == 1U << p->block_log2 && info.window <= info.data_slots);
}

/* Constants for which the answers are known here, and an all-reduce takes microseconds. */
static bool is_modelled(void)
{
	const struct thc_spec *p = &w.client->spec;

	return !thc_scheme_is_precise(p->scheme) && p->bits == 4 &&
	       p->block_log2 <= BLOCK_LOG2_RUN && p->ranks <= 16;
}

/* An agreement in which some rank claims something else. */
static void act_claim(void)
{
	struct asked *a = some_asked();
	struct coming *p;
	size_t at;

	if (!a || !a->claims)
		return;
	p = put_answer(a, 0);
	at = sizeof(struct thc_hdr) + next(&w.in) % (CLAIM * w.client->spec.ranks);
	p->at[at] ^= next(&w.in);
	seal(p);
}

static void rejoin(void)
{
	struct thc_client_info info = { .size = sizeof(info) };
	int error;

	w.joining = true;
	w.ready = false;
	w.read = w.queued = 0;
	error = thc_client_rejoin(w.client);
	collect(true);
	w.joining = false;
	w.asks = 0;
	rounds = 0;
	memset(w.held, 0, sizeof(w.held));
	w.read = w.queued = 0;
	w.broken = w.client->broken;
	require(!error == w.ready && !error == !w.broken);
	reached[REJOINED].times += !error;
	/* after a join that failed, too */
	require(!thc_client_info(w.client, &info));
	if (!error)
		check_joined();
	if (!error && !is_modelled())
		w.in.left = 0;
}

static void act(void)
{
	uint8_t action = next(&w.in);

	switch (action & 15) {
	case 0:
	case 1:
	case 2:
		begin_round(next(&w.in));
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		act_answer(action);
		break;
	case 7:
		answer_all(0);
		break;
	case 8:
		answer_all(next(&w.in));
		break;
	case 9:
		put_raw();
		break;
	case 10:
		w.now += (uint64_t)(action >> 4) * 100000000;
		break;
	case 11:
		w.complaint = action & 0x80 ? ECONNREFUSED : ENETUNREACH;
		break;
	case 12:
		if (w.broken)
			rejoin();
		break;
	case 13:
		act_claim();
		break;
	default:
		break;
	}
	if (w.client->running) {
		look();
		if (action & 0x80)
			look();
	}
}

/* From now on everybody answers: what was begun ends. */
static void drain(void)
{
	unsigned int looks, k, left;

	w.complaint = 0;
	for (looks = 0; looks < LOOKS_MAX; looks++) {
		for (left = k = 0; k < UNDER_WAY_MAX; k++)
			left += !!under_way[k].request;
		if (!left)
			return;
		if (w.read == w.queued)
			answer_all(0);
		if (!look())
			w.now += 5000000;
	}
	require(!"an all-reduce whose answers are there ends");
}

/* --- from the beginning ------------------------------------------------------------------ */

/* @form: bit 0: uniform THC, bit 1: blocks are not rotated */
static void make_job(uint8_t ranks, uint8_t how, uint8_t form)
{
	unsigned int i, g = (how | form) & 1 ? 15 : 21;
	struct whole_welcome *c = &w.welcome;

	whole_welcome_init(c);
	c->w.seed = thc_be64(0x1234567 + how);
	c->w.ranks = thc_be16(ranks);
	c->w.quorum = thc_be16(1);
	c->w.data_slots = thc_be16(4);
	c->w.control_slots = thc_be16(2);
	c->w.deadline_ms = thc_be32(how & 2 ? 50 : 0);
	c->w.features = thc_be32(THC_FEATURE_CORRELATED);
	c->w.reply = how & 8 ? THC_REPLY_MULTICAST : THC_REPLY_FANOUT;
	c->w.flags = thc_be16(how & 0x40 ? THC_WELCOME_F_ONE_PORT : 0);
	c->w.joined = thc_be64(~0ULL >> (64 - ranks));
	c->group.at.port = thc_be16(18564);
	memcpy(c->group.at.addr, (uint8_t[]){ 239, 84, 1, 2 }, 4);
	c->row.granularity = thc_be16((uint16_t)g);
	c->row.sum_width = how & 4 ? 16 : 8;
	c->row.clamp = thc_be64(0x4002000000000000ULL);
	for (i = 0; i < 16; i++)
		c->level[i] = thc_be16((uint16_t)(i * g / 15));
	c->scheme.scheme = form & 1 ? THC_SCHEME_UTHC : THC_SCHEME_THC;
	c->scheme.features = thc_be32(form & 2 ? THC_SCHEME_F_UNROTATED : 0);
	c->scheme.block_log2 = how & 0x10 ? 11 : 10;
	memcpy(c->seal.salt, (uint8_t[]){ 0x5a, 0x17 }, 2);
	whole_welcome_hash(c);
	w.deaf = how & 0x80;
	w.keyed = !(how & 0x20);
	w.seal = w.keyed ? THC_SEAL_NH : how & 1 ? THC_SEAL_SUM : THC_SEAL_NONE;
	c->seal.seal = w.seal;
	set_salt(c->seal.salt);
}

static void count_join(int error)
{
	reached[JOINED].times += !error;
	reached[JOIN_UNKNOWN].times += error == -EPROTO;
	reached[JOIN_LATE].times += error == -ETIMEDOUT || error == -EHOSTUNREACH;
	reached[JOIN_REFUSED].times += error == -ENOENT || error == -EACCES || error == -ERANGE ||
				       error == -EADDRINUSE || error == -EHOSTDOWN;
}

/* The client that joined, or NULL. */
static struct thc_client *join(uint8_t how)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	struct thc_client *c = NULL;
	int error;

	o.aggregator = "10.77.0.100";
	o.job = JOB;
	o.rank = w.rank;
	o.key = w.keyed ? key : NULL;
	o.timeout_ms = how & 0x20 ? 3000 : 400;
	o.join_timeout_ms = 300;
	o.transport = THC_TRANSPORT_UDP;
	/* the scalar code takes longer and does the same */
	o.simd = (how & 0xc1) == 0xc1 ? THC_SIMD_SCALAR : THC_SIMD_AUTO;
	o.flags = how >> 1 & 3;
	o.window = how >> 3 & 3;
	error = thc_client_open(&o, &c);
	count_join(error);
	require(!error == !!c && !error == w.ready);
	require(!error || *thc_last_error());
	return c;
}

static void report(void)
{
	report_outcomes(reached, OUTCOMES, "packets", packets);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	thc_member_key_derive(&join_key[1], key, THC_KEY_JOIN, JOB);
	thc_member_key_derive(&welcome_key[1], key, THC_KEY_WELCOME, JOB);
	thc_member_key_derive(&lost_key[1], key, THC_KEY_LOST, JOB);
	atexit(report);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t ranks, how, form;

	begin_input();
	memset(&w, 0, sizeof(w));
	w.in = (struct input){ data, size };
	w.now = 1000000000;
	ranks = next(&w.in);
	form = ranks >> 6;
	w.rank = (ranks >> 4 & 3) % (1 + ranks % 5);
	ranks = 1 + ranks % 5;
	how = next(&w.in);
	w.epoch = (uint32_t)next(&w.in) << 24 | 7;
	rounds = 0;
	make_job(ranks, next(&w.in), form);
	w.joining = true;
	w.client = join(how);
	w.joining = false;
	w.read = w.queued = 0;
	if (!w.client)
		return 0;
	check_joined();
	if (is_modelled()) {
		while (w.in.left && w.asks < ASKED_MAX / 2)
			act();
		drain();
	}
	thc_client_close(w.client);
	return 0;
}
