/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Token buckets that limit JOINs and LEAVEs to the daemon. Strangers, whose JOINs no job admits,
 * share one bucket: the daemon tells a worker with another key so, but a flood of JOINs must not
 * keep the daemon from its own ranks. Each rank has two buckets, since a replayed JOIN or LEAVE has
 * a right tag, too.
 *
 * Burst and rate follow from honest mistakes. A job of 64 ranks that is started with a wrong key
 * sends 64 JOINs at once, and each rank stops at its refusal. The daemon sends at most 200 refusals
 * a second, so more JOINs would get no answer anyway. In XDP each CPU has a bucket: 128 CPUs under
 * a flood pass 25,600 JOINs a second, which cost the daemon less than a tenth of a core. A stranger
 * beside a flood may get no token, and so no refusal: its joining times out. A rank sends at most
 * 10 JOINs in 200 ms by its timer, and four for challenges after each, so its own bucket, of the
 * same size, always has a token for it.
 *
 * A rank that leaves sends three LEAVEs, and a rank that joins sends at least two JOINs. So LEAVEs
 * get four tokens in the time of two tokens for JOINs: however often a rank joins and leaves, each
 * of its LEAVEs finds a token. JOINs take no tokens from LEAVEs.
 */
#ifndef THC_BUCKET_H
#define THC_BUCKET_H

#include <thc/types.h>

/* JOINs that a bucket lets through at once, and ns until it lets through one more. */
#define THC_JOINS_BURST	64
#define THC_JOINS_NS	5000000ULL
/* ns until a bucket of LEAVEs lets through one more; it lets through twice as many at once. */
#define THC_LEAVES_NS	(THC_JOINS_NS / 2)

/**
 * struct thc_bucket - how many tokens there are, as a time
 * @full_at: when all tokens will be there again; a zeroed bucket is full
 */
struct thc_bucket {
	u64	full_at;
};

/* Takes a token at time @now, ns; one more comes every @each ns. 0: there is none. */
THC_INLINE int thc_bucket_take(struct thc_bucket *b, u64 now, u64 each)
{
	u64 full_at = b->full_at > now ? b->full_at : now;

	if (full_at - now > THC_JOINS_BURST * THC_JOINS_NS - each)
		return 0;
	b->full_at = full_at + each;
	return 1;
}

#endif /* THC_BUCKET_H */
