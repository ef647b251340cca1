/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Floats as integers that can be summed: fixed point, which rounds, or limbs, which do not.
 *
 * Coordinates share a scale in blocks of THC_SCALE_BLOCK: all of them are below 2^top in magnitude
 * and multiples of 2^low, on every rank. Of the @width bits of a lane one is for the sign and
 * ceil(log2 ranks) are for the sum. The other k are a rank's, so no sum can overflow.
 *
 *	fixed	x is sent as rint(x 2^(k - top)), ties to even, and the mean is the sum times
 *		2^(top - k), divided by the ranks, rounded once
 *	exact	x / 2^low, an integer, is sent as digits to the base 2^k, each with the sign of x: a
 *		limb is one digit of each coordinate. The mean is the sum of the digits' sums times
 *		their powers and 2^low, divided by the ranks, rounded once: the float next to the
 *		true mean, ties to even
 *
 * A sum that is zero gives +0. All implementations give the same bits. Threads that call them, such
 * as the I/O thread, round to nearest and keep subnormals.
 */
#ifndef LIBTHC_FIXED_H
#define LIBTHC_FIXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libthc.h"

/* Coordinates that share a scale. */
#define THC_SCALE_BLOCK		4096
/* Words of their bits, a bit each. */
#define THC_SCALE_WORDS		(THC_SCALE_BLOCK / 32)
/* Bounds of a scale's exponents for fp32, the smallest subnormal and the largest value. */
#define THC_SCALE_LOW_MIN	(-149)
#define THC_SCALE_TOP_MAX	128
/* Most digits, with k = 25 bits, for 64 ranks. */
#define THC_LIMBS_MAX		12
/* Least bits k of a number. */
#define THC_FIXED_BITS_MIN	4

/**
 * struct thc_scale - the scale of a block
 * @top: values are below 2^top
 * @low: values are multiples of 2^low; above @top: all are zero
 */
struct thc_scale {
	int16_t top;
	int16_t low;
};

/* An exponent that no value has. */
#define THC_SCALE_NONE		100000

/* Values that are all zero. */
#define THC_SCALE_ZERO	((struct thc_scale){ THC_SCALE_LOW_MIN, INT16_MAX })

static inline bool thc_scale_is_zero(struct thc_scale s)
{
	return s.low > s.top;
}

/**
 * struct thc_mean - how sums become means
 * @unit: of the lowest digit, a power of two
 * @ranks: the divisor, 1..64
 * @bits: k
 * @odd: results are rounded to odd instead of to nearest, since they are rounded once more, to a
 *	type of fewer bits
 */
struct thc_mean {
	double		unit;
	unsigned int	ranks;
	unsigned int	bits;
	bool		odd;
};

/**
 * struct thc_fixed_ops - the loops, over @n coordinates
 * @measure: *@most: the largest bits of |x|, of NaN and infinity, too; *@low: the exponent of the
 *	lowest bit that is set in any, about THC_SCALE_NONE: all are zero
 * @largest: *@most alone
 * @fixed: @lanes of @width bits, 8, 16 or 32; @bits: k, @top: of the scale
 * @limb: digits number @index
 * @mean: of lanes of @width bits that have one digit
 * @mean2: of two digits, lower one first
 */
struct thc_fixed_ops {
	void (*measure)(const float *x, size_t n, uint32_t *most, int32_t *low);
	void (*largest)(const float *x, size_t n, uint32_t *most);
	void (*fixed)(const float *x, size_t n, int top, unsigned int bits, unsigned int width,
		      void *lanes);
	void (*limb)(const float *x, size_t n, int low, unsigned int bits, unsigned int index,
		     int32_t *lanes);
	void (*mean)(const void *lanes, unsigned int width, size_t n, const struct thc_mean *m,
		     float *out);
	void (*mean2)(const int32_t *digit0, const int32_t *digit1, size_t n,
		      const struct thc_mean *m, float *out);
};

/* Is @precision one of enum thc_precision? */
bool thc_precision_known(unsigned int precision);
/* Has @precision enough bits for sums of @ranks ranks? */
bool thc_precision_fits(unsigned int precision, unsigned int ranks);
/* NULL, or why a job of @ranks ranks cannot have it. */
const char *thc_precision_check(unsigned int precision, unsigned int ranks);
/* Bits of a lane that are a rank's own, k; at most 31. */
unsigned int thc_fixed_bits(unsigned int width, unsigned int ranks);
/* The scale of @n values, for fixed point its top alone; false: one is not finite, *@bad is its
 * index.
 */
bool thc_scale_measure(const struct thc_fixed_ops *ops, const float *x, size_t n, bool exact,
		       struct thc_scale *s, size_t *bad);
/* Digits that the values of a block have, 0 if all are zero. */
unsigned int thc_scale_limbs(struct thc_scale s, unsigned int bits);

/* Lanes of MAX for a scale: 0 for a block of zeros, else larger the wider the scale is. Whatever a
 * lane holds, its scale fits THC_LIMBS_MAX limbs.
 */
uint32_t thc_scale_top_lane(struct thc_scale s);
uint32_t thc_scale_low_lane(struct thc_scale s);
/* The scale of lanes; @low_lane: 0 in fixed point, which needs only @top. */
struct thc_scale thc_scale_of_lanes(uint32_t top_lane, uint32_t low_lane);

/* Means of @limbs digits, @digit[0] the lowest one, each of @n coordinates. */
void thc_fixed_means(const struct thc_fixed_ops *ops, const int32_t *const *digit,
		     unsigned int limbs, size_t n, const struct thc_mean *m, float *out);

/**
 * struct thc_digits - how floats of a scale become digits, and sums of digits means
 * @exact: limbs, in lanes of 32 bits, else one digit of fixed point
 * @width: bits of a lane
 * @bits, @ranks, @odd: as in struct thc_mean
 */
struct thc_digits {
	const struct thc_fixed_ops *ops;
	bool		exact;
	unsigned int	width;
	unsigned int	bits;
	unsigned int	ranks;
	bool		odd;
};

/* Digits of each value, 0 if exact values are all zero. */
unsigned int thc_digits_count(const struct thc_digits *d, struct thc_scale s);
/* Digit number @index of @n values. */
void thc_digits_make(const struct thc_digits *d, const float *x, size_t n, struct thc_scale s,
		     unsigned int index, void *lanes);
/* Means of @n values, of which @digit has the thc_digits_count() digits, of zeros none. */
void thc_digits_means(const struct thc_digits *d, const int32_t *const *digit, size_t n,
		      struct thc_scale s, float *means);

#endif /* LIBTHC_FIXED_H */
