// SPDX-License-Identifier: GPL-2.0
/* Which values of a gradient are kept: as many as asked for, and at least one unless all are zero.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "codec_ops.h"
#include "fixed.h"
#include "keep.h"
#include "randomword.h"
#include "residual.h"

/* The bound for @fraction of the @count values @x. */
static uint32_t least_of(const float *x, size_t count, double fraction)
{
	uint32_t blocks = (uint32_t)((count + THC_SCALE_BLOCK - 1) / THC_SCALE_BLOCK), block;
	const struct thc_residual none = { .count = count };
	struct thc_layout l = { .at = NULL };
	struct thc_keep k = { .sampled = 0 };
	uint8_t *room;
	uint32_t least;

	thc_keep_lay_out(&k, &l);
	room = calloc(1, l.bytes);
	assert_non_null(room);
	l = (struct thc_layout){ .at = room };
	thc_keep_init(&k, &none, blocks);
	thc_keep_lay_out(&k, &l);
	for (block = 0; block < blocks; block++) {
		size_t first = (size_t)block * THC_SCALE_BLOCK, left = count - first;

		thc_keep_sample(&k, block, x + first,
				left < THC_SCALE_BLOCK ? left : THC_SCALE_BLOCK);
	}
	assert_true(k.sampled <= (count < THC_KEEP_SAMPLE ? count : THC_KEEP_SAMPLE));
	least = thc_keep_least(&k, fraction);
	free(room);
	return least;
}

static size_t kept(const float *x, size_t count, uint32_t least)
{
	size_t i, n = 0;

	for (i = 0; i < count; i++)
		n += thc_float_bits(fabsf(x[i])) >= least;
	return n;
}

/* Heavy tails; every @period-th value is larger, as a column of a matrix may be. */
static float *gradient(size_t count, size_t period)
{
	float *x = malloc(count * sizeof(*x));
	size_t i;

	assert_non_null(x);
	for (i = 0; i < count; i++) {
		double u = (double)(random_word() >> 11) / 9007199254740992.0;

		x[i] = (float)((random_word() % 2 ? 1 : -1) * exp(6 * u) *
			       (period && i % period == 0 ? 100 : 1));
	}
	return x;
}

/* With all values counted, at most the last bin's are too many, and none are missing. */
static void share__of_few_values(void **state)
{
	static const double fractions[] = { .0001, .001, .01, .1, .5, .99 };
	unsigned int f;
	size_t count;

	(void)state;
	for (count = 1; count <= THC_KEEP_SAMPLE; count = 3 * count + 5) {
		float *x = gradient(count, 0);

		for (f = 0; f < sizeof(fractions) / sizeof(*fractions); f++) {
			uint32_t least = least_of(x, count, fractions[f]);
			size_t n = kept(x, count, least);

			assert_true((double)n >= fractions[f] * (double)count);
			/* one bin higher are too few */
			n = kept(x, count, least + (1U << 16));
			assert_true(!n || (double)n < fractions[f] * (double)count);
		}
		free(x);
	}
}

static void share__of_many_values(void **state)
{
	static const size_t counts[] = { 65537, 300000, 2000003 }, periods[] = { 0, 41, 64, 1024 };
	unsigned int c, p;

	(void)state;
	for (c = 0; c < sizeof(counts) / sizeof(*counts); c++)
		for (p = 0; p < sizeof(periods) / sizeof(*periods); p++) {
			float *x = gradient(counts[c], periods[p]);
			double wanted = .02 * (double)counts[c], n;

			n = (double)kept(x, counts[c], least_of(x, counts[c], .02));
			/* 1300 are sampled: three standard errors, and a bin */
			assert_true(n > .9 * wanted && n < 1.1 * wanted);
			free(x);
		}
}

/* Zeros are never sent, and equal values are sent together. */
static void share__of_equal_values(void **state)
{
	static float x[50000];
	size_t i;

	(void)state;
	assert_int_equal(least_of(x, 50000, .1), 1);
	x[7] = -0x1p-149f;
	assert_int_equal(kept(x, 50000, least_of(x, 50000, .1)), 1);
	for (i = 0; i < 50000; i++)
		x[i] = i % 2 ? 3 : -3;
	assert_int_equal(kept(x, 50000, least_of(x, 50000, .001)), 50000);
	x[5] = 1000;
	assert_int_equal(kept(x, 50000, least_of(x, 50000, .00001)), 1);
	x[6] = -3.4e38f;
	assert_int_equal(kept(x, 50000, least_of(x, 50000, .00001)), 1);
}

static void sums__with_what_was_not_sent(void **state)
{
	float now[5000], next[5000], x[5000];
	struct thc_residual m = { .count = 5000, .now = now, .next = next };
	struct thc_keep k = { .sampled = 0 };
	size_t i;

	(void)state;
	for (i = 0; i < 5000; i++) {
		now[i] = (float)i;
		x[i] = -2 * (float)i;
	}
	thc_keep_init(&k, &m, 2);
	assert_ptr_equal(thc_keep_add(&k, 1, x + 4096, 904), next + 4096);
	assert_ptr_equal(thc_keep_add(&k, 0, x, 4096), next);
	for (i = 0; i < 5000; i++)
		assert_true(next[i] == -(float)i && now[i] == (float)i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(share__of_few_values),
		cmocka_unit_test(share__of_many_values),
		cmocka_unit_test(share__of_equal_values),
		cmocka_unit_test(sums__with_what_was_not_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
