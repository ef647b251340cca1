// SPDX-License-Identifier: GPL-2.0
/*
 * Rounds by scheme none: floats as integers of one scale a block, whose sums are exact.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec_ops.h"
#include "fixed.h"
#include "trial.h"

/* Of a block: the sums of every digit, one rank's digit, and the loops. */
struct memory {
	int32_t sums[THC_LIMBS_MAX][THC_SCALE_BLOCK];
	int32_t own[THC_SCALE_BLOCK];
	const struct thc_fixed_ops *ops;
};

/* The scale that all ranks can use for @n values at @x, @t->count apart. */
static int agree(const struct memory *m, const struct trial *t, const float *x, size_t n,
		 struct thc_scale *out)
{
	uint32_t top = 0, low = 0, k;
	struct thc_scale own;
	size_t bad;

	for (k = 0; k < t->ranks; k++) {
		if (!thc_scale_measure(m->ops, x + k * t->count, n, true, &own, &bad))
			return -EDOM;
		top = top > thc_scale_top_lane(own) ? top : thc_scale_top_lane(own);
		low = low > thc_scale_low_lane(own) ? low : thc_scale_low_lane(own);
	}
	*out = thc_scale_of_lanes(top, low);
	return 0;
}

/* sums += lanes, modulo 2^width. */
static void add(void *sums, const void *lanes, unsigned int width, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		switch (width) {
		case 8:
			((uint8_t *)sums)[i] += ((const uint8_t *)lanes)[i];
			break;
		case 16:
			((uint16_t *)sums)[i] += ((const uint16_t *)lanes)[i];
			break;
		default:
			((uint32_t *)sums)[i] += ((const uint32_t *)lanes)[i];
		}
}

/* One block; what it returns are the lanes of a coordinate that were sent. */
static unsigned int block_round(struct memory *m, const struct trial *t, const float *x, size_t n,
				struct thc_scale scale, bool exact, float *out)
{
	unsigned int bits = thc_fixed_bits(t->width, t->ranks), limbs, limb;
	struct thc_mean mean = { .ranks = t->ranks, .bits = bits };
	const int32_t *digit[THC_LIMBS_MAX];
	uint32_t k;

	limbs = exact ? thc_scale_limbs(scale, bits) : 1;
	if (thc_scale_is_zero(scale)) {
		memset(out, 0, n * sizeof(*out));
		return limbs;
	}
	memset(m->sums, 0, sizeof(m->sums));
	for (limb = 0; limb < limbs; limb++) {
		digit[limb] = m->sums[limb];
		for (k = 0; k < t->ranks; k++) {
			const float *from = x + k * t->count;

			if (exact)
				m->ops->limb(from, n, scale.low, bits, limb, m->own);
			else
				m->ops->fixed(from, n, scale.top, bits, t->width, m->own);
			add(m->sums[limb], m->own, t->width, n);
		}
	}
	mean.unit = ldexp(1, exact ? scale.low : scale.top - (int)bits);
	if (exact)
		thc_fixed_means(m->ops, digit, limbs, n, &mean, out);
	else
		m->ops->mean(m->sums[0], t->width, n, &mean, out);
	return limbs;
}

/**
 * round_by_fixed() - scheme none
 * @exact: limbs of 32 bits instead of fixed point of @t->width bits
 * @x: floats of all ranks
 * @out: the mean, @t->count floats
 * @lanes: how many lanes one rank sends in all
 *
 * 0, -EINVAL for a width that scheme none does not have, -EDOM for what is not finite, -ENOMEM.
 */
CALL int round_by_fixed(const struct trial *t, uint32_t exact, const float *x, float *out,
			uint64_t *lanes)
{
	struct memory *m;
	size_t at, n;
	int ret = 0;

	if ((t->width != 8 && t->width != 16 && t->width != 32) || (exact && t->width != 32) ||
	    !t->ranks || t->ranks > 64)
		return -EINVAL;
	m = malloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->ops = thc_simd_ops(THC_SIMD_AUTO)->fixed;
	*lanes = 0;
	for (at = 0; !ret && at < t->count; at += n) {
		struct thc_scale scale;

		n = t->count - at < THC_SCALE_BLOCK ? t->count - at : THC_SCALE_BLOCK;
		ret = agree(m, t, x + at, n, &scale);
		if (!ret)
			*lanes += n * block_round(m, t, x + at, n, scale, exact, out + at);
	}
	free(m);
	return ret;
}
