/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sets of ranks, as thc_hdr.bitmap has them: bit r is rank r. */
#ifndef THC_RANKS_H
#define THC_RANKS_H

#include <thc/types.h>

/* Bit r for every r < @ranks; @ranks is 1 .. THC_RANKS_MAX. */
THC_INLINE u64 thc_ranks_mask(u32 ranks)
{
	return ~0ULL >> (THC_RANKS_MAX - ranks);
}

/* How many ranks are in @mask. */
THC_INLINE u32 thc_ranks_count(u64 mask)
{
	mask -= mask >> 1 & 0x5555555555555555ULL;
	mask = (mask & 0x3333333333333333ULL) + (mask >> 2 & 0x3333333333333333ULL);
	mask = (mask + (mask >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (u32)(mask * 0x0101010101010101ULL >> 56);
}

#endif /* THC_RANKS_H */
