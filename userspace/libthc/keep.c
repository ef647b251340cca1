// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The largest values of a gradient, by a quantile of a sample. */
#include <thc/mix.h>

#include "codec_ops.h"
#include "fixed.h"
#include "keep.h"
#include "residual.h"

/* Exponent and seven bits behind it, without the sign. */
#define BIN_SHIFT	16
#define BINS		(1U << (31 - BIN_SHIFT))

void thc_keep_init(struct thc_keep *k, const struct thc_residual *m, uint32_t blocks)
{
	k->memory = m->now;
	k->values = m->next;
	k->each = THC_KEEP_SAMPLE / blocks;
	if (!k->each)
		k->each = 1;
}

void thc_keep_lay_out(struct thc_keep *k, struct thc_layout *l)
{
	k->bin = thc_lay(l, BINS * sizeof(*k->bin));
}

const float *thc_keep_add(struct thc_keep *k, uint32_t block, const float *x, size_t n)
{
	size_t first = (size_t)block * THC_SCALE_BLOCK, i;
	const float *memory = k->memory + first;
	float *sum = k->values + first;

	for (i = 0; i < n; i++)
		sum[i] = x[i] + memory[i];
	return sum;
}

static void take(struct thc_keep *k, float x)
{
	k->bin[(thc_float_bits(x) & 0x7fffffff) >> BIN_SHIFT]++;
	k->sampled++;
}

/* One of each of @each parts of the block, at a place that has nothing to do with rows. */
void thc_keep_sample(struct thc_keep *k, uint32_t block, const float *x, size_t n)
{
	size_t each = n < k->each ? n : k->each, i;

	for (i = 0; i < each; i++) {
		size_t first = i * n / each, end = (i + 1) * n / each;

		take(k, x[first + thc_mix64((uint64_t)block << 32 | i) % (end - first)]);
	}
}

uint32_t thc_keep_least(const struct thc_keep *k, double fraction)
{
	double wanted = fraction * k->sampled;
	uint32_t bin = BINS, found = 0;

	while (bin > 0 && (!found || found < wanted))
		found += k->bin[--bin];
	return bin ? bin << BIN_SHIFT : 1;
}
