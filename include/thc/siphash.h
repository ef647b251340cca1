/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * SipHash-2-4 (Aumasson, Bernstein: SipHash, a fast short-input PRF, INDOCRYPT
 * 2012) of 64-bit words: without the key, the function can neither be computed
 * nor inverted.
 */
#ifndef THC_SIPHASH_H
#define THC_SIPHASH_H

#include <thc/types.h>

struct thc_siphash {
	u64	v[4];
};

THC_INLINE u64 thc_siphash_rotate(u64 x, u32 by)
{
	return x << by | x >> (64 - by);
}

THC_INLINE void thc_siphash_round(struct thc_siphash *s)
{
	u64 a = s->v[0], b = s->v[1], c = s->v[2], d = s->v[3];

	a += b;
	b = thc_siphash_rotate(b, 13) ^ a;
	a = thc_siphash_rotate(a, 32);
	c += d;
	d = thc_siphash_rotate(d, 16) ^ c;
	a += d;
	d = thc_siphash_rotate(d, 21) ^ a;
	c += b;
	b = thc_siphash_rotate(b, 17) ^ c;
	c = thc_siphash_rotate(c, 32);
	s->v[0] = a;
	s->v[1] = b;
	s->v[2] = c;
	s->v[3] = d;
}

THC_INLINE void thc_siphash_rounds(struct thc_siphash *s, int rounds)
{
	int i;

	THC_UNROLL_BUT_BPF
	for (i = 0; i < rounds; i++)
		thc_siphash_round(s);
}

THC_INLINE void thc_siphash_word(struct thc_siphash *s, u64 word)
{
	s->v[3] ^= word;
	thc_siphash_rounds(s, 2);
	s->v[0] ^= word;
}

/* @key: two words */
THC_INLINE void thc_siphash_begin(struct thc_siphash *s, const u64 key[2])
{
	s->v[0] = key[0] ^ 0x736f6d6570736575ULL;
	s->v[1] = key[1] ^ 0x646f72616e646f6dULL;
	s->v[2] = key[0] ^ 0x6c7967656e657261ULL;
	s->v[3] = key[1] ^ 0x7465646279746573ULL;
}

/* @words: number of words that were hashed */
THC_INLINE u64 thc_siphash_end(struct thc_siphash *s, u32 words)
{
	/* the paper's last block: no bytes are left over, and the length */
	thc_siphash_word(s, (u64)(words * 8) << 56);
	s->v[2] ^= 0xff;
	thc_siphash_rounds(s, 4);
	return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}

/**
 * thc_siphash() - SipHash-2-4 of @words words under a key of 128 bits
 * @key: two words
 *
 * Words are as the paper reads a message: little-endian, eight bytes each.
 */
THC_INLINE u64 thc_siphash(const u64 key[2], const u64 *word, u32 words)
{
	struct thc_siphash s;
	u32 i;

	thc_siphash_begin(&s, key);
	for (i = 0; i < words; i++)
		thc_siphash_word(&s, word[i]);
	return thc_siphash_end(&s, words);
}

#endif /* THC_SIPHASH_H */
