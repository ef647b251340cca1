/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * OOPSLA 2014): a bijection of 64 bits after which neighbouring numbers look unrelated. Anybody can
 * invert it; without a key nobody can invert siphash.h's function.
 */
#ifndef THC_MIX_H
#define THC_MIX_H

#include <thc/types.h>

THC_INLINE u64 thc_mix64(u64 z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

#endif /* THC_MIX_H */
