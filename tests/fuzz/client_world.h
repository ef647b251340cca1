/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fuzz_client: the world around a client, which are its clock, its threads, what it has asked for
 * and what is on its way to it.
 */
#ifndef THC_FUZZ_CLIENT_WORLD_H
#define THC_FUZZ_CLIENT_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <thc/wire/announce.h>
#include <thc/worker/join.h>

#include "../lib/welcome.h"
#include "client.h"
#include "fuzz.h"

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
	RATED,
	LEFT_OUT,
	SHARED,
	TRIED,
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
	[RATED] = { "with a rate", 0 },
	[LEFT_OUT] = { "blocks left out", 0 },
	[SHARED] = { "goals shared", 0 },
	[TRIED] = { "rates tried", 0 },
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
	bool		without_us;
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
	struct thc_announcement	more;		/* records behind them */
	struct {
		uint32_t	bits;
		uint32_t	error;
		bool		tried;
	} rate;					/* of that WELCOME; 0, 0: there is none */
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

#endif /* THC_FUZZ_CLIENT_WORLD_H */
