/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Quantisation tables: the levels a clamped, normally distributed coordinate is rounded to, how
 * they are found, and what error they cost.  Plain arithmetic without I/O; nothing here knows about
 * gradients, SIMD or the wire.
 */
#ifndef LIBTHC_TABLE_H
#define LIBTHC_TABLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef THC_API
#define THC_API __attribute__((visibility("default")))
#endif

/* Element type of a caller's gradient. */
enum thc_dtype { THC_FP32 = 0, THC_FP16 = 1, THC_BF16 = 2 };

/* Which implementation of the codec's kernels runs; all of them give the same bits. */
enum thc_simd { THC_SIMD_AUTO, THC_SIMD_SCALAR, THC_SIMD_AVX2, THC_SIMD_AVX512 };

#define THC_TABLE_BITS_MAX		4
#define THC_TABLE_LEVELS_MAX		16
#define THC_TABLE_GRANULARITY_MAX	4095

/**
 * struct thc_table - non-uniform levels (THC, NSDI'24, section 5.3)
 * @bits: bits of a level index, 1..4
 * @granularity: g, the number of steps of the fine grid
 * @levels: 1 << @bits
 * @p: expected fraction of coordinates that are clamped
 * @t: clamp threshold in standard deviations, the normal quantile at 1 - p/2, rounded to a multiple
 *     of 2^-30 so that it does not depend on the math library
 * @cost: expected squared rounding error of one coordinate of unit variance
 * @value: grid position of each level; 0 first, @granularity last, strictly increasing
 */
struct thc_table {
	uint32_t bits;
	uint32_t granularity;
	uint32_t levels;
	double p;
	double t;
	double cost;
	uint16_t value[THC_TABLE_LEVELS_MAX];
};

/*
 * The optimal table, exactly: a shortest path over (levels used, grid position), O(2^bits g^2).  Of
 * a mirrored pair of equal cost the one that begins with the smaller values is taken.
 * Returns 0, -EINVAL for arguments out of range, -ENOMEM.
 */
THC_API int thc_table_solve(unsigned int bits, unsigned int granularity, double p,
			    struct thc_table *out);

/* A table with given values (1 << bits of them).  Returns 0 or -EINVAL. */
THC_API int thc_table_from_values(unsigned int bits, unsigned int granularity, double p,
				  const uint16_t *values, struct thc_table *out);

/* 0 if sums of @n contributors fit lanes of @width bits, -ERANGE if not, -EINVAL for no table. */
THC_API int thc_table_check(const struct thc_table *t, unsigned int n, unsigned int width);

/*
 * Expected ||x - xhat||^2 / ||x||^2 of the mean over @n ranks that hold the same gradient, rounded
 * independently, without error feedback.
 */
THC_API double thc_table_nmse(const struct thc_table *t, unsigned int n);

/*
 * The 4-bit table of least thc_table_nmse() for @n ranks whose sums fit lanes of @width bits (8 or
 * 16), over granularity and clamp fraction together.  Returns 0, -EINVAL, -ENOMEM, or -ERANGE if no
 * 4-bit table fits.
 */
THC_API int thc_table_choose(unsigned int n, unsigned int width, struct thc_table *out);

/* Agreement between ranks: equal for equal bits, granularity, values and threshold. */
THC_API uint32_t thc_table_hash(const struct thc_table *t);

/* Phi^-1(q), 0 < q < 1, absolute error below 1e-12 for min(q, 1 - q) > 1e-9; NaN outside. */
THC_API double thc_normal_quantile(double q);

#ifdef __cplusplus
}
#endif

#endif /* LIBTHC_TABLE_H */
