/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Sparse floats: the places of those that are not zero, and their values by themselves. Bits are
 * words of 32 coordinates, the first one in the lowest bit. All implementations give the same
 * results.
 */
#ifndef LIBTHC_SPARSE_H
#define LIBTHC_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codec_ops.h"

/* Floats behind the last one that @pack and @widen may write to. */
#define THC_PACK_SLACK	16
/* Words that are passed over together if they have no bit: a branch for each would be mispredicted
 * where some have.
 */
#define THC_PACK_WORDS	16

/**
 * struct thc_sparse_ops - the loops
 * @mark: sets bit i of @bits if |@x[i]| is at least the float whose bits are @least (1: it is not
 *	0); zeros behind the last one. Returns whether some value without a bit is not +0
 * @pack: collects the floats, of 32 @words, whose bit is set, one behind the other; returns their
 *	number
 * @unpack: writes 32 @words floats: @values, one behind the other, where a bit is set, else 0;
 *	returns the number of values read
 * @scatter: writes @values, one behind the other, where a bit is set; other floats stay
 * @widen: turns @values of the bits @own, one behind the other, into those of @bits, which has all
 *	of @own: 0 for the others; returns the number of @values read. THC_PACK_SLACK floats behind
 *	@values may be read
 *
 * @pack and @scatter only move their input, which may be other words of 32 bits.
 */
struct thc_sparse_ops {
	bool (*mark)(const float *x, size_t n, uint32_t least, uint32_t *bits);
	size_t (*pack)(const float *x, const uint32_t *bits, size_t words, float *values);
	size_t (*unpack)(const float *values, const uint32_t *bits, size_t words, float *x);
	void (*scatter)(const float *values, const uint32_t *bits, size_t words, float *x);
	size_t (*widen)(const float *values, const uint32_t *own, const uint32_t *bits,
			size_t words, float *wide);
};

/* How many bits of @words words are set; by sums of pairs, fours and so on, since not every CPU has
 * an instruction for it.
 */
static inline uint32_t thc_bits_count(const uint32_t *bits, size_t words)
{
	uint32_t n = 0;
	uint64_t two;
	size_t i;

	for (i = 0; i < words; i += 2) {
		two = bits[i] | (i + 1 < words ? (uint64_t)bits[i + 1] << 32 : 0);
		two -= two >> 1 & 0x5555555555555555;
		two = (two & 0x3333333333333333) + (two >> 2 & 0x3333333333333333);
		two = (two + (two >> 4)) & 0x0f0f0f0f0f0f0f0f;
		n += (uint32_t)(two * 0x0101010101010101 >> 56);
	}
	return n;
}

/* @mark of thc_sparse_ops for values @from to @n, one after the other: bits of theirs are 0. */
static inline bool thc_mark_singly(const float *x, size_t from, size_t n, uint32_t least,
				   uint32_t *bits)
{
	uint32_t others = 0;
	size_t i;

	for (i = from; i < n; i++) {
		uint32_t v = thc_float_bits(x[i]), set = (v & 0x7fffffff) >= least;

		bits[i / 32] |= set << i % 32;
		others |= set ? 0 : v;
	}
	return others;
}

/* Has any of THC_PACK_WORDS words a bit? */
static inline bool thc_pack_any(const uint32_t *bits)
{
	uint32_t any = 0;
	unsigned int k;

	for (k = 0; k < THC_PACK_WORDS; k++)
		any |= bits[k];
	return any;
}

typedef size_t thc_pack_word(const float *x, uint32_t bits, float *values);

/* @pack of thc_sparse_ops: by @word, and the last words by @last, which reads no float but those
 * whose bit is set.
 */
static inline __attribute__((always_inline)) size_t thc_pack_by_words(const float *x,
								      const uint32_t *bits,
								      size_t words, float *values,
								      thc_pack_word *word,
								      thc_pack_word *last)
{
	size_t n = 0, i, k;

	for (i = 0; i + THC_PACK_WORDS < words; i += THC_PACK_WORDS) {
		if (!thc_pack_any(bits + i))
			continue;
		for (k = i; k < i + THC_PACK_WORDS; k++)
			n += word(x + 32 * k, bits[k], values + n);
	}
	for (; i < words; i++)
		n += last(x + 32 * i, bits[i], values + n);
	return n;
}

/* @scatter, one value after the other. */
static inline void thc_scatter_singly(const float *values, const uint32_t *bits, size_t words,
				      float *x)
{
	size_t n = 0, i;
	uint32_t left;

	for (i = 0; i < words; i++)
		for (left = bits[i]; left; left &= left - 1)
			memcpy(x + 32 * i + (size_t)__builtin_ctz(left), values + n++, sizeof(*x));
}

#endif /* LIBTHC_SPARSE_H */
