/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The loops of fixed.h, which compilers vectorise: fixed_scalar.c, fixed_avx2.c and fixed_avx512.c
 * include this file, each with its own flags. It defines thc_fixed_loops, which the including file
 * renames and exports.
 */
#ifndef LIBTHC_FIXED_LOOPS_H
#define LIBTHC_FIXED_LOOPS_H

#include <math.h>
#include <string.h>

#include "codec_ops.h"
#include "fixed.h"

/* x = +-mantissa 2^(exponent - 150); 0 has a mantissa of 0 */
static inline uint32_t mantissa_of(uint32_t bits)
{
	return (bits & 0x7fffff) | (bits & 0x7f800000 ? 0x800000 : 0);
}

static inline int32_t exponent_of(uint32_t bits)
{
	int32_t exponent = (int32_t)(bits >> 23 & 0xff);

	return exponent ? exponent : 1;
}

/* The exponent of the lowest bit set, from the float that has only this bit. */
static inline int32_t lowest_bit(uint32_t bits)
{
	uint32_t mantissa = mantissa_of(bits);
	float lowest = (float)(int32_t)(mantissa & -mantissa);
	int32_t at = exponent_of(bits) - 150 + (int32_t)(thc_float_bits(lowest) >> 23) - 127;

	/* 0 has none: far above all others */
	return at + (mantissa ? 0 : THC_SCALE_NONE);
}

static void measure(const float *x, size_t n, uint32_t *most, int32_t *low)
{
	uint32_t largest = 0;
	int32_t lowest = THC_SCALE_NONE;
	size_t i;

	for (i = 0; i < n; i++) {
		uint32_t bits = thc_float_bits(x[i]), magnitude = bits & 0x7fffffff;
		int32_t at = lowest_bit(bits);

		largest = magnitude > largest ? magnitude : largest;
		lowest = at < lowest ? at : lowest;
	}
	*most = largest;
	*low = lowest;
}

static void largest(const float *x, size_t n, uint32_t *most)
{
	uint32_t found = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		uint32_t magnitude = thc_float_bits(x[i]) & 0x7fffffff;

		found = magnitude > found ? magnitude : found;
	}
	*most = found;
}

/* 2^@exponent as two factors, since one float may not reach it. */
static inline void power_of(int exponent, float power[2])
{
	int half = exponent / 2;

	power[0] = thc_bits_float((uint32_t)(127 + half) << 23);
	power[1] = thc_bits_float((uint32_t)(127 + exponent - half) << 23);
}

/* The largest value of k bits that a float can be. */
static inline float most_of(unsigned int bits)
{
	return (float)((1ULL << bits) - (bits <= 24 ? 1 : 1ULL << (bits - 24)));
}

static inline int32_t fixed_of(float x, const float power[2], float most)
{
	float v = x * power[0] * power[1];

	v = v > most ? most : v;
	v = v < -most ? -most : v;
	return (int32_t)rintf(v);
}

static void fixed(const float *x, size_t n, int top, unsigned int bits, unsigned int width,
		  void *lanes)
{
	float power[2], most = most_of(bits);
	int32_t *lanes32 = lanes;
	int16_t *lanes16 = lanes;
	int8_t *lanes8 = lanes;
	size_t i;

	power_of((int)bits - top, power);
	if (width == 8)
		for (i = 0; i < n; i++)
			lanes8[i] = (int8_t)fixed_of(x[i], power, most);
	else if (width == 16)
		for (i = 0; i < n; i++)
			lanes16[i] = (int16_t)fixed_of(x[i], power, most);
	else
		for (i = 0; i < n; i++)
			lanes32[i] = fixed_of(x[i], power, most);
}

/* A shift by more than a word's bits leaves nothing. */
static inline uint32_t shifted(uint32_t x, int32_t left)
{
	uint32_t up = x << (left & 31), down = x >> (-left & 31);

	up = left < 32 ? up : 0;
	down = left > -32 ? down : 0;
	return left >= 0 ? up : down;
}

static void limb(const float *x, size_t n, int low, unsigned int bits, unsigned int index,
		 int32_t *lanes)
{
	int32_t from = 150 + low + (int32_t)(bits * index);
	uint32_t mask = (1U << bits) - 1;
	size_t i;

	for (i = 0; i < n; i++) {
		uint32_t b = thc_float_bits(x[i]);
		uint32_t digit = shifted(mantissa_of(b), exponent_of(b) - from) & mask;
		uint32_t sign = 0U - (b >> 31);

		lanes[i] = (int32_t)((digit ^ sign) - sign);
	}
}

/* The divisor of a sum: the ranks, their inverse, and the error of the inverse. A quotient that is
 * a float, or the middle of two, is exact. Any other one is off by at most the last bit of a
 * double, which does not change its rounding: of 31 bits, divided by at most 64, it is 2^-14 of the
 * distance of two floats away from their middle.
 */
struct divisor {
	double ranks, inverse, rest;
};

static inline struct divisor divisor_of(unsigned int ranks)
{
	const double n = ranks, inverse = 1.0 / n;

	return (struct divisor){ n, inverse, fma(-inverse, n, 1.0) / n };
}

static inline double divided(double sum, const struct divisor *d)
{
#ifdef __FMA__
	return fma(sum, d->inverse, sum * d->rest);
#else
	return sum / d->ranks;
#endif
}

#define MEAN_OF(lane)	(out[i] = thc_round_float(divided((lane), &by) * unit, odd))

/* @odd is a constant where it is called: each value has a loop of its own. */
static inline void mean_loop(const void *lanes, unsigned int width, size_t n,
			     const struct thc_mean *m, const bool odd, float *out)
{
	const struct divisor by = divisor_of(m->ranks);
	const double unit = m->unit;
	const int32_t *lanes32 = lanes;
	const int16_t *lanes16 = lanes;
	const int8_t *lanes8 = lanes;
	size_t i;

	if (width == 8)
		for (i = 0; i < n; i++)
			MEAN_OF(lanes8[i]);
	else if (width == 16)
		for (i = 0; i < n; i++)
			MEAN_OF(lanes16[i]);
	else
		for (i = 0; i < n; i++)
			MEAN_OF(lanes32[i]);
}

static void mean(const void *lanes, unsigned int width, size_t n, const struct thc_mean *m,
		 float *out)
{
	if (m->odd)
		mean_loop(lanes, width, n, m, true, out);
	else
		mean_loop(lanes, width, n, m, false, out);
}

static inline int64_t sum_of(int32_t digit0, int32_t digit1, unsigned int bits)
{
	return (int64_t)digit1 * (1LL << bits) + digit0;
}

#ifdef __FMA__
/* (@sum + @rest) / ranks, rounded to odd. |@rest| is at most half of the last bit of @sum. @halves:
 * the ranks are a power of two
 */
static inline double divided_to_odd(double sum, double rest, double ranks, double inverse,
				    const bool halves)
{
	double q = sum * inverse, off = halves ? rest : fma(-q, ranks, sum) + rest;
	uint64_t bits, move, further;

	/* off is exact: what q lacks, then what it lacks still, less than its last bit */
	if (!halves) {
		q = fma(off, inverse, q);
		off = fma(-q, ranks, sum) + rest;
	}
	memcpy(&bits, &q, sizeof(bits));
	move = (off != 0) & ~bits & 1;
	further = off * q > 0 ? 0 : UINT64_MAX;
	bits += (move ^ further) - further;
	memcpy(&q, &bits, sizeof(q));
	return q;
}

static inline void mean2_loop(const int32_t *digit0, const int32_t *digit1, size_t n,
			      const struct thc_mean *m, const bool odd, const bool halves,
			      float *out)
{
	const double ranks = m->ranks, inverse = 1.0 / ranks, unit = m->unit;
	const double base = (double)(1ULL << m->bits);
	size_t i;

	for (i = 0; i < n; i++) {
		double high = digit1[i] * base, lower = digit0[i], sum = high + lower;
		/* exact: a sum below 2^53 loses no bits, and in a larger one high has the larger
		 * magnitude
		 */
		double rest = lower - (sum - high);

		out[i] = thc_round_float(divided_to_odd(sum, rest, ranks, inverse, halves) * unit,
					 odd);
	}
}

static void mean2_any(const int32_t *digit0, const int32_t *digit1, size_t n,
		      const struct thc_mean *m, float *out)
{
	if (m->ranks & (m->ranks - 1))
		mean2_loop(digit0, digit1, n, m, m->odd, false, out);
	else if (m->odd)
		mean2_loop(digit0, digit1, n, m, true, true, out);
	else
		mean2_loop(digit0, digit1, n, m, false, true, out);
}
#else
/* @sum / @ranks, rounded to odd. */
static inline double divided_to_odd(int64_t sum, unsigned int ranks)
{
	uint64_t magnitude = sum < 0 ? -(uint64_t)sum : (uint64_t)sum, q, low;
	int shift, drop;

	if (!sum)
		return 0;
	shift = __builtin_clzll(magnitude);
	magnitude <<= shift;
	q = magnitude / ranks;
	/* 57 bits at least: what is behind the 53 of a double is one bit at most */
	drop = 64 - __builtin_clzll(q) - 53;
	low = (q & ((1ULL << drop) - 1)) | magnitude % ranks;
	q = q >> drop | (low ? 1 : 0);
	return (sum < 0 ? -1.0 : 1.0) * (double)q *
	       thc_bits_float((uint32_t)(127 + drop - shift) << 23);
}

static void mean2_any(const int32_t *digit0, const int32_t *digit1, size_t n,
		      const struct thc_mean *m, float *out)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int64_t sum = sum_of(digit0[i], digit1[i], m->bits);

		out[i] = thc_round_float(divided_to_odd(sum, m->ranks) * m->unit, m->odd);
	}
}
#endif

#if !defined(__FMA__) || defined(__AVX512DQ__)
/* Is the conversion of a 64-bit integer to a float the only rounding? It is if the power of two
 * that multiplies it is a float: a result that becomes subnormal then has fewer than 24 bits, and
 * was not rounded. AVX2 has no such conversion.
 */
static inline bool rounds_once(const struct thc_mean *m)
{
	double unit = m->unit / m->ranks;

	return !m->odd && !(m->ranks & (m->ranks - 1)) && unit >= 0x1p-149 && unit <= 0x1p127;
}
#else
static inline bool rounds_once(const struct thc_mean *m)
{
	(void)m;
	return false;
}
#endif

static void mean2(const int32_t *digit0, const int32_t *digit1, size_t n, const struct thc_mean *m,
		  float *out)
{
	const unsigned int bits = m->bits;
	float unit;
	size_t i;

	if (!rounds_once(m)) {
		mean2_any(digit0, digit1, n, m, out);
		return;
	}
	unit = (float)(m->unit / m->ranks);
	for (i = 0; i < n; i++)
		out[i] = (float)sum_of(digit0[i], digit1[i], bits) * unit;
}

#define THC_FIXED_LOOPS \
	{ \
		.measure = measure, .largest = largest, .fixed = fixed, .limb = limb, \
		.mean = mean, .mean2 = mean2 \
	}

#endif /* LIBTHC_FIXED_LOOPS_H */
