/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the codec's unit tests share: reproducible inputs, an independent transform in double
 * precision, and the choice of instruction sets.  No assertions about the codec are made here.
 */
#ifndef TESTS_UNIT_CODEC_UTIL_H
#define TESTS_UNIT_CODEC_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"

struct rng {
	uint64_t state;
};

uint64_t rng_u64(struct rng *r);

struct rng rng_seeded(uint64_t seed);

/* Uniform in (0, 1). */
static inline double rng_unit(struct rng *r)
{
	return ((double)(rng_u64(r) >> 12) + 0.5) * 0x1p-52;
}

static inline double rng_normal(struct rng *r)
{
	double radius = sqrt(-2 * log(rng_unit(r)));

	return radius * cos(6.283185307179586 * rng_unit(r));
}

void *test_buffer(size_t size);

float *normal_vector(size_t count, uint64_t seed);

/* The transform by its recurrence, in double: H of order n, unscaled, in natural order. */
void reference_hadamard(double *v, size_t n);

/* The signs D of block block: from the rotation of a block of ones, since H H D 1 = B D 1. */
double *reference_signs(const struct thc_codec *c, uint64_t round, size_t block);

static inline void solve(unsigned int bits, unsigned int g, double p, struct thc_table *t)
{
	assert_int_equal(thc_table_solve(bits, g, p, t), 0);
}

/* The table that a job gets, of any granularity and clamp. */
static inline int choose(unsigned int bits, unsigned int ranks, unsigned int width,
			 struct thc_table *t)
{
	struct thc_table_wish w = THC_TABLE_WISH_INIT;

	w.bits = bits;
	w.ranks = ranks;
	w.width = width;
	return thc_table_choose(&w, t);
}

static inline void codec_setup(struct thc_codec *c, const struct thc_table *t,
			       unsigned int block_log2, enum thc_simd simd)
{
	assert_int_equal(thc_codec_init(c, t, block_log2, 0x7468632d74657374, simd), 0);
}

/* Floats, those of padding included, that @count coordinates take. */
static inline size_t padded_count(const struct thc_codec *c, size_t count)
{
	return thc_codec_blocks(c, count) << c->block_log2;
}

/* Errors of a round of known_ranks ranks with equal gradients, by optimal tables: NMSE, worked out
 * independently.
 */
struct known_error {
	unsigned int bits, g;
	double p, nmse[3];
};

static const unsigned int known_ranks[3] __attribute__((unused)) = { 1, 4, 8 };
static const struct known_error known_errors[] __attribute__((unused)) = {
	{ 4, 15, 1.0 / 32, { .02059, .01060, .00893 } },
	{ 4, 30, 1.0 / 32, { .02033, .01053, .00890 } },
	{ 4, 36, 1.0 / 32, { .01941, .01030, .00879 } },
	{ 4, 20, 1.0 / 512, { .02147, .00558, .00293 } },
	{ 3, 16, 1.0 / 32, { .06274, .02113, .01420 } },
	{ 2, 34, 1.0 / 1024, { .62444, .15621, .07817 } },
};

/* Skips the running test, with the reason, where the CPU lacks an instruction set. */
void need_simd(enum thc_simd simd);

/* The scales of a range's blocks: norms, or ranges, as @c wants them. */
int measure_scales(const struct thc_codec *c, const struct thc_values *v,
		   const struct thc_blocks *b, float *scales);

/* Index @i of a stream of @bits-bit ones, bit by bit. */
static inline unsigned int index_of(const uint8_t *packed, unsigned int bits, size_t i)
{
	unsigned int index = 0, k;
	size_t at = i * bits;

	for (k = 0; k < bits; k++, at++)
		index = index << 1 | (packed[at / 8] >> (7 - at % 8) & 1);
	return index;
}

/* Adds @v to lane @i, of @width bits. */
static inline void lane_add(uint8_t *lanes, unsigned int width, size_t i, unsigned int v)
{
	uint8_t *at = lanes + i * width / 8;
	unsigned int k;

	if (width == 4) {
		*at = (uint8_t)(*at + (i % 2 ? v << 4 : v));
		return;
	}
	for (k = 0; k < width / 8; k++, v >>= 8) {
		v += at[k];
		at[k] = (uint8_t)v;
	}
}

double norm_of(const float *x, size_t n);

double distance(const float *x, const float *y, size_t n);

#endif /* TESTS_UNIT_CODEC_UTIL_H */
