/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, fast and secure message authentication,
 * CRYPTO 1999): under a random key two different payloads of one length have the same NH with a
 * probability of 2^-32. NH is no seal by itself, since its values reveal the key.
 */
#ifndef THC_NH_H
#define THC_NH_H

#include <thc/types.h>

/* u32 words of a key: as many as the longest payload has. */
#define THC_NH_WORDS	(THC_LANE_BYTES / 4)

/* One word after the other: clang would load many and add their products in pairs of pairs, and
 * BPF has not the registers for that. Unlike THC_IN_ORDER() it lets nothing be loaded earlier.
 */
#ifdef __bpf__
#define THC_NH_IN_ORDER(sum)	asm volatile("" : "+r"(sum) : : "memory")
#else
#define THC_NH_IN_ORDER(sum)	((void)0)
#endif

/* The term of a 64-bit word in NH. @low, @high: its halves; @key: the two u32 words of its place */
THC_INLINE u64 thc_nh_word(const u32 *key, u32 low, u32 high)
{
	low += key[0];
	high += key[1];
	return (u64)low * high;
}

/**
 * thc_nh() - NH of a payload
 * @key: as many u32 words as the payload has, in host order
 * @data: @words 64-bit words, little-endian; a constant where BPF calls
 */
THC_INLINE u64 thc_nh(const u32 *key, const void *data, int words)
{
	const thc_half_word *m = data;
	u64 sum = 0;
	int i;

	THC_UNROLL
	for (i = 0; i < words; i++) {
		sum += thc_nh_word(key + 2 * i, thc_le32(m[2 * i]), thc_le32(m[2 * i + 1]));
		THC_NH_IN_ORDER(sum);
	}
	return sum;
}

#endif /* THC_NH_H */
