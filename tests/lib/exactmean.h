/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mean of floats, rounded once to the nearest of fp32, fp16 or bf16, ties to even: by integers
 * of 640 bits that no float arithmetic touches.
 */
#ifndef TESTS_EXACTMEAN_H
#define TESTS_EXACTMEAN_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "libthc.h"

#define BIG_WORDS	20
/* The last bit of a big number is 2^-BIG_UNIT. */
#define BIG_UNIT	256

/* Sums of positive and of negative values, apart; words of 32 bits, lowest first. */
struct big {
	uint32_t word[BIG_WORDS];
};

struct exact_sum {
	struct big	positive;
	struct big	negative;
};

/* @value < 2^32, times 2^@exponent */
static inline void big_add(struct big *b, uint32_t value, int exponent)
{
	unsigned int at = (unsigned int)(exponent + BIG_UNIT), i;
	uint64_t shifted = (uint64_t)value << at % 32, carry = 0;

	for (i = at / 32; i < BIG_WORDS && (shifted || carry); i++) {
		carry += b->word[i] + (shifted & UINT32_MAX);
		b->word[i] = (uint32_t)carry;
		carry >>= 32;
		shifted >>= 32;
	}
}

static inline int big_compare(const struct big *a, const struct big *b)
{
	int i;

	for (i = BIG_WORDS - 1; i >= 0; i--)
		if (a->word[i] != b->word[i])
			return a->word[i] < b->word[i] ? -1 : 1;
	return 0;
}

/* @a -= @b, which is no larger */
static inline void big_subtract(struct big *a, const struct big *b)
{
	uint64_t borrow = 0;
	int i;

	for (i = 0; i < BIG_WORDS; i++) {
		uint64_t left = (uint64_t)a->word[i] - b->word[i] - borrow;

		a->word[i] = (uint32_t)left;
		borrow = left >> 63;
	}
}

/* @b /= @n; what is left over */
static inline uint32_t big_divide(struct big *b, uint32_t n)
{
	uint64_t left = 0;
	int i;

	for (i = BIG_WORDS - 1; i >= 0; i--) {
		left = left << 32 | b->word[i];
		b->word[i] = (uint32_t)(left / n);
		left %= n;
	}
	return (uint32_t)left;
}

static inline bool big_bit(const struct big *b, int at)
{
	return at >= 0 && b->word[at / 32] >> at % 32 & 1;
}

static inline bool big_any_below(const struct big *b, int at)
{
	while (--at >= 0)
		if (big_bit(b, at))
			return true;
	return false;
}

/* Bits of a mantissa with the one in front; exponent of the smallest subnormal; bits of all. */
static const struct exact_form {
	int digits, least, bits;
} exact_form[] = { { 24, -149, 32 }, { 11, -24, 16 }, { 8, -133, 16 } };

/* The magnitude of a value is mantissa * 2^exponent. @bits: of a value of @dtype that is finite */
static inline uint32_t exact_parts(uint32_t bits, enum thc_dtype dtype, int *exponent)
{
	const struct exact_form *f = &exact_form[dtype];
	uint32_t above = 1U << (f->digits - 1), mantissa = bits & (above - 1);
	int e = (int)((bits & ((1U << (f->bits - 1)) - 1)) >> (f->digits - 1));

	assert(e + 1 < 1 << (f->bits - f->digits));
	*exponent = f->least + (e ? e - 1 : 0);
	return mantissa | (e ? above : 0);
}

static inline bool exact_is_negative(uint32_t bits, enum thc_dtype dtype)
{
	return bits >> (exact_form[dtype].bits - 1) & 1;
}

static inline void exact_add(struct exact_sum *s, uint32_t bits, enum thc_dtype dtype)
{
	uint32_t mantissa;
	int exponent;

	mantissa = exact_parts(bits, dtype, &exponent);
	big_add(exact_is_negative(bits, dtype) ? &s->negative : &s->positive, mantissa, exponent);
}

/* The bits of the mean of @ranks values: of a float of @dtype, in 32 bits. */
static inline uint32_t exact_bits(const struct exact_sum *s, uint32_t ranks, enum thc_dtype dtype)
{
	int digits = exact_form[dtype].digits, least = exact_form[dtype].least + BIG_UNIT;
	int top = BIG_WORDS * 32 - 1, last, i;
	bool negative = big_compare(&s->positive, &s->negative) < 0;
	struct big b = negative ? s->negative : s->positive;
	uint32_t kept = 0, left;

	big_subtract(&b, negative ? &s->positive : &s->negative);
	left = big_divide(&b, ranks);
	while (top > 0 && !big_bit(&b, top))
		top--;
	/* the last bit that stays */
	last = top - digits + 1;
	if (last < least)
		last = least;
	for (i = last + digits - 1; i >= last; i--)
		kept = kept << 1 | big_bit(&b, i);
	if (big_bit(&b, last - 1) && (kept & 1 || left || big_any_below(&b, last - 1)))
		kept++;
	/* the bit in front, where there is one, adds 1 to the exponent */
	kept += (uint32_t)(last - least) << (digits - 1);
	return kept | (uint32_t)negative << (exact_form[dtype].bits - 1);
}

#endif /* TESTS_EXACTMEAN_H */
