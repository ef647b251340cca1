/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Token buckets for JOINs and LEAVEs, which go on to the daemon. Strangers, whose JOINs no job
 * admits, share one: whoever has another key is to be told so, and a flood of them must not keep
 * the daemon from its own ranks. Each rank has two, for a JOIN or LEAVE that was recorded has a
 * right tag, too.
 *
 * Burst and rate are those of honest mistakes. A job of 64 ranks that is started
 * with a wrong key asks 64 times at once, and each rank stops at its refusal.
 * The daemon sends 200 refusals a second at most, so that more JOINs would have no
 * answer anyway. In XDP each CPU has a bucket: 128 CPUs under a flood pass on
 * 25,600 JOINs a second, which is less than a tenth of a core's work for the daemon.
 * A stranger beside a flood may get no token, and so no refusal: its joining times
 * out. A rank asks at most 10 times in 200 ms by its timer and answers four challenges each time,
 * so that its own bucket, of the same size, always has a token for it.
 *
 * A rank says three times that it leaves, and needs two JOINs at least to join. So there are four
 * tokens for LEAVEs where there are two for JOINs, and however often a rank joins and leaves, each
 * of its LEAVEs finds one. JOINs take none of them.
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

/* Takes a token at time @now, ns, if there is one more each @each ns; false: there is none. */
THC_INLINE int thc_bucket_take(struct thc_bucket *b, u64 now, u64 each)
{
	u64 full_at = b->full_at > now ? b->full_at : now;

	if (full_at - now > THC_JOINS_BURST * THC_JOINS_NS - each)
		return 0;
	b->full_at = full_at + each;
	return 1;
}

#endif /* THC_BUCKET_H */
