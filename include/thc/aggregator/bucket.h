/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A token bucket for what strangers may ask: JOINs that no job admits. They go on
 * to the daemon, since whoever has another key is to be told so; a flood of
 * them must not keep the daemon from its own ranks.
 *
 * Burst and rate are those of honest mistakes. A job of 64 ranks that is started
 * with a wrong key asks 64 times at once, and each rank stops at its refusal.
 * The daemon sends 200 refusals a second at most, so that more JOINs would have no
 * answer anyway. In XDP each CPU has a bucket: 128 CPUs under a flood pass on
 * 25,600 JOINs a second, which is less than a tenth of a core's work for the daemon.
 * A stranger beside a flood may get no token, and so no refusal: its joining times
 * out. Ranks of the job need no token.
 */
#ifndef THC_BUCKET_H
#define THC_BUCKET_H

#include <thc/types.h>

/* JOINs that a bucket lets through at once, and ns until it lets through one more. */
#define THC_STRANGERS_BURST	64
#define THC_STRANGERS_NS	5000000ULL

/**
 * struct thc_bucket - how many tokens there are, as a time
 * @full_at: when all tokens will be there again; a zeroed bucket is full
 */
struct thc_bucket {
	u64	full_at;
};

/* Takes a token at time @now, ns; false: there is none. */
THC_INLINE int thc_bucket_take(struct thc_bucket *b, u64 now)
{
	u64 full_at = b->full_at > now ? b->full_at : now;

	if (full_at - now > (THC_STRANGERS_BURST - 1) * THC_STRANGERS_NS)
		return 0;
	b->full_at = full_at + THC_STRANGERS_NS;
	return 1;
}

#endif /* THC_BUCKET_H */
