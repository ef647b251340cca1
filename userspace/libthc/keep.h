/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Selection of the values of a gradient that are sent: a fraction of them, those of the largest
 * magnitude, after the error memory is added. The rest stays in the error memory (residual.h).
 *
 * The bound is a quantile of a sample, or of all values if there are at most THC_KEEP_SAMPLE. It is
 * a float of eight significant bits; values equal to it are sent.
 */
#ifndef LIBTHC_KEEP_H
#define LIBTHC_KEEP_H

#include <stddef.h>
#include <stdint.h>

#include "buffers.h"

struct thc_residual;

#define THC_KEEP_SAMPLE		65536

/**
 * struct thc_keep - a gradient of which a fraction is sent
 * @memory: the error memory before this round
 * @values: @memory plus the gradient, zero where it was sent: the error memory after this round
 * @bin: number of sampled values by the upper bits of their magnitude
 * @sampled: number of all sampled values; @each: of those in a block
 */
struct thc_keep {
	const float	*memory;
	float		*values;
	uint32_t	*bin;
	uint32_t	sampled;
	uint32_t	each;
};

/* Of a gradient of @blocks blocks of THC_SCALE_BLOCK values, with error memory @m. */
void thc_keep_init(struct thc_keep *k, const struct thc_residual *m, uint32_t blocks);
void thc_keep_lay_out(struct thc_keep *k, struct thc_layout *l);
/* Adds the error memory to the @n values @x of @block; returns the sums, which stay. */
const float *thc_keep_add(struct thc_keep *k, uint32_t block, const float *x, size_t n);
/* Takes some of the @n values @x of @block into the sample, all of which are finite. */
void thc_keep_sample(struct thc_keep *k, uint32_t block, const float *x, size_t n);
/* The least magnitude of a value that is kept, as the bits of a float: at least 1, so no zero is.
 * About @fraction of the values have it.
 */
uint32_t thc_keep_least(const struct thc_keep *k, double fraction);

#endif /* LIBTHC_KEEP_H */
