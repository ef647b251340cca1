// SPDX-License-Identifier: GPL-2.0
/*
 * Uniform THC (NSDI'24, algorithm 1): levels that span a block's range. Its mean is exact for
 * values on levels, unbiased elsewhere, and its error is that of the places between levels. Ranks
 * have different ranges; blocks are rotated or not. Seeds are fixed.
 */
#include "codec_util.h"

#define BLOCK	1024
#define RANKS	8
#define Z_BOUND	5.0

struct group {
	struct thc_codec c;
	unsigned int n;
	size_t count, padded;
	float *x[RANKS];
	float *scales;		/* agreed */
	float *out;
	uint64_t round;
};

static void group_init(struct group *g, unsigned int bits, unsigned int form, unsigned int n,
		       size_t count)
{
	struct thc_table t;
	unsigned int k;

	memset(g, 0, sizeof(*g));
	solve(bits, (1U << bits) - 1, 1.0 / 32, &t);
	codec_setup(&g->c, &t, 10, THC_SIMD_AUTO);
	assert_int_equal(thc_codec_set_form(&g->c, THC_CODEC_RANGES | form), 0);
	g->n = n;
	g->count = count;
	g->padded = padded_count(&g->c, count);
	for (k = 0; k < n; k++)
		g->x[k] = test_buffer(count * sizeof(float));
	g->scales = test_buffer(2 * g->padded / BLOCK * sizeof(float));
	g->out = test_buffer(g->padded * sizeof(float));
}

static void group_free(struct group *g)
{
	unsigned int k;

	for (k = 0; k < g->n; k++)
		free(g->x[k]);
	free(g->scales);
	free(g->out);
	thc_codec_exit(&g->c);
}

static struct thc_values values_of(const struct group *g, unsigned int k)
{
	return (struct thc_values){ g->x[k], THC_FP32, g->count, NULL };
}

/* The largest scales of all ranks, like the aggregator's maximum. */
static void agree(struct group *g)
{
	size_t scales = 2 * g->padded / BLOCK, i;
	float *own = test_buffer(scales * sizeof(float));
	const struct thc_blocks b = { g->round, 0, NULL, 0 };
	unsigned int k;

	for (k = 0; k < g->n; k++) {
		const struct thc_values v = values_of(g, k);

		assert_int_equal(measure_scales(&g->c, &v, &b, k ? own : g->scales), 0);
		for (i = 0; k && i < scales; i++)
			g->scales[i] = fmaxf(g->scales[i], own[i]);
	}
	free(own);
}

static void reduce(struct group *g)
{
	const unsigned int bits = g->c.table.bits;
	uint8_t *packed = test_buffer(g->padded), *lanes = test_buffer(4 * g->padded);
	uint16_t *counts = test_buffer(g->padded / 256 * sizeof(*counts));
	float scratch[BLOCK];
	unsigned int k;
	size_t i;

	agree(g);
	for (k = 0; k < g->n; k++) {
		const struct thc_values v = values_of(g, k);

		thc_codec_compress(&g->c, &v, &(struct thc_blocks){ g->round, 0, g->scales, k },
				   &(struct thc_chunks){ packed, 32 * bits, 256 },
				   &(struct thc_residual_at){ NULL, g->count, scratch });
		for (i = 0; i < g->padded; i++)
			lane_add(lanes, 32, i, index_of(packed, bits, i));
	}
	for (i = 0; i < g->padded / 256; i++)
		counts[i] = (uint16_t)g->n;
	thc_codec_decode(&g->c, &(struct thc_sums){ lanes, 1024, 256, 32, counts }, g->count,
			 &(struct thc_blocks){ g->round, 0, g->scales, 0 }, g->out);
	free(counts);
	free(lanes);
	free(packed);
}

static double mean_of(const struct group *g, size_t i)
{
	double sum = 0;
	unsigned int k;

	for (k = 0; k < g->n; k++)
		sum += g->x[k][i];
	return sum / g->n;
}

/* Two workers, b = 2, m = -1 and M = 2: level z stands for m + z (M - m) / 3, so -1, 0, 1, 2. */
static void levels__divide_the_range(void **state)
{
	static const float one[] = { -1, 0, 2, 1, 0, 1 }, two[] = { 2, 2, -1, 0, 0, 1 };
	static const float mean[] = { .5f, 1, .5f, .5f, 0, 1 };
	struct group g;
	size_t i;

	(void)state;
	group_init(&g, 2, THC_CODEC_UNROTATED, 2, 6 * 170);
	for (i = 0; i < g.count; i++) {
		g.x[0][i] = one[i % 6];
		g.x[1][i] = two[i % 6];
	}
	reduce(&g);
	assert_true(g.scales[0] == 2 && g.scales[1] == 1);
	for (i = 0; i < g.count; i++)
		assert_true(g.out[i] == mean[i % 6]);
	group_free(&g);
}

/* b = 2, g = 4, T = 0 1 3 4: what THC's levels stand for is -M, -M/2, M/2 and M. */
static void levels__of_a_table_of_granularity_4(void **state)
{
	static const uint16_t values[] = { 0, 1, 3, 4 }, counts[] = { 2 };
	static const float at[] = { -1, -.5f, .5f, 1 };
	float x[BLOCK], scratch[BLOCK], out[BLOCK], norm;
	uint8_t packed[BLOCK / 4], lanes[BLOCK] = { 0 };
	struct thc_codec c;
	struct thc_table t;
	unsigned int k;
	size_t i;

	(void)state;
	assert_int_equal(thc_table_from_values(2, 4, 1.0 / 32, values, &t), 0);
	codec_setup(&c, &t, 10, THC_SIMD_AUTO);
	assert_int_equal(thc_codec_set_form(&c, THC_CODEC_RANGES), -EINVAL);
	assert_int_equal(thc_codec_set_form(&c, 4), -EINVAL);
	assert_int_equal(thc_codec_set_form(&c, THC_CODEC_UNROTATED), 0);
	/* M = t ||x|| / sqrt(B) = 1 */
	norm = (float)(32 / t.t);
	for (k = 0; k < 2; k++) {
		for (i = 0; i < BLOCK; i++)
			x[i] = 0.999999f * at[(i * (k + 1)) % 4];
		thc_codec_compress(&c, &(struct thc_values){ x, THC_FP32, BLOCK, NULL },
				   &(struct thc_blocks){ 1, 0, &norm, k },
				   &(struct thc_chunks){ packed, BLOCK / 4, BLOCK },
				   &(struct thc_residual_at){ NULL, BLOCK, scratch });
		for (i = 0; i < BLOCK; i++)
			lane_add(lanes, 8, i, values[index_of(packed, 2, i)]);
	}
	thc_codec_decode(&c, &(struct thc_sums){ lanes, BLOCK, BLOCK, 8, counts }, BLOCK,
			 &(struct thc_blocks){ 1, 0, &norm, 0 }, out);
	for (i = 0; i < BLOCK; i++)
		assert_true(fabsf(out[i] - (at[i % 4] + at[2 * i % 4]) / 2) < 1e-5f);
	thc_codec_exit(&c);
}

/* A constant block, a last one that is not full, and one of negative numbers on levels. */
static void blocks__constant_and_negative_are_exact(void **state)
{
	struct group g;
	unsigned int n, k;
	size_t i;

	(void)state;
	for (n = 1; n <= RANKS; n++) {
		group_init(&g, 3, THC_CODEC_UNROTATED, n, 2 * BLOCK + 100);
		for (k = 0; k < n; k++)
			for (i = 0; i < g.count; i++)
				g.x[k][i] = i / BLOCK == 1 ? -8 + (float)(i % 8) : -3.7f;
		reduce(&g);
		/* padding of the last block does not widen its range */
		assert_true(g.scales[4] == -3.7f && g.scales[5] == 3.7f);
		for (i = 0; i < g.count; i++)
			assert_true(i / BLOCK == 1 ? fabs(g.x[0][i] - g.out[i]) < 2e-6 :
						     g.x[0][i] == g.out[i]);
		group_free(&g);
	}
}

/* A range too small for a step decodes to its least value, +0 here; if rotated, to nearly zero. */
static void blocks__zero_and_tiny(void **state)
{
	struct group g;
	unsigned int form;
	size_t i;

	(void)state;
	for (form = 0; form <= THC_CODEC_UNROTATED; form++) {
		group_init(&g, 4, form, 2, 2 * BLOCK);
		for (i = 0; i < BLOCK; i++)
			g.x[1][i] = i % 2 ? 0x1p-100f : -0.0f;
		reduce(&g);
		for (i = 0; i < g.count; i++)
			assert_true(form ? g.out[i] == 0 && !signbit(g.out[i]) :
					   fabsf(g.out[i]) <= 0x1p-90f);
		group_free(&g);
	}
}

/* Ranks with different means and spreads: rank 0's range is within that of the last rank, but not
 * within all.
 */
static void fill(struct group *g, uint64_t seed)
{
	struct rng r = rng_seeded(seed);
	unsigned int k;
	size_t i;

	for (k = 0; k < g->n; k++)
		for (i = 0; i < g->count; i++)
			g->x[k][i] = (float)(rng_normal(&r) * (1 + k) + (k % 2 ? 0.5 : -0.5) * k);
}

/* The variance of the mean at each rounded coordinate: each rank adds p (1 - p) steps^2, p being
 * its place between two levels.
 */
static void expected_variance(struct group *g, double *variance)
{
	unsigned int levels = g->c.table.granularity, k;
	float *domain = test_buffer(g->padded * sizeof(float));
	double unit = g->c.form & THC_CODEC_UNROTATED ? 1 : sqrt(BLOCK);
	size_t i;

	memset(variance, 0, g->padded * sizeof(*variance));
	for (k = 0; k < g->n; k++) {
		const struct thc_values v = values_of(g, k);

		thc_codec_rotate(&g->c, &v, &(struct thc_blocks){ g->round, 0, NULL, 0 }, domain);
		for (i = 0; i < g->count; i++) {
			double most = g->scales[i / BLOCK * 2],
			       least = -g->scales[i / BLOCK * 2 + 1];
			double step = (most - least) / levels, a = (domain[i] - least) / step;

			a -= floor(a);
			variance[i] += a * (1 - a) * step * step / unit / unit / g->n / g->n;
		}
	}
	free(domain);
}

/* The mean is unbiased over all coordinates and over the large ones. */
static void mean__is_unbiased(void **state)
{
	const size_t rounds = 40;
	unsigned int n, bits;
	struct group g;
	size_t i;

	(void)state;
	for (n = 1; n <= RANKS; n++) {
		double *variance, *sum, bias[2] = { 0 }, spread[2] = { 0 };

		bits = n;
		group_init(&g, bits, THC_CODEC_UNROTATED, n, 4 * BLOCK);
		variance = test_buffer(g.padded * sizeof(*variance));
		sum = test_buffer(g.padded * sizeof(*sum));
		fill(&g, n);
		for (g.round = 0; g.round < rounds; g.round++) {
			reduce(&g);
			for (i = 0; i < g.count; i++)
				sum[i] += g.out[i] - mean_of(&g, i);
		}
		expected_variance(&g, variance);
		for (i = 0; i < g.count; i++) {
			double x = g.x[0][i];

			bias[0] += sum[i];
			bias[1] += sum[i] * x;
			spread[0] += variance[i] * (double)rounds;
			spread[1] += variance[i] * (double)rounds * x * x;
		}
		for (i = 0; i < 2; i++)
			assert_true(fabs(bias[i]) < Z_BOUND * sqrt(spread[i]));
		free(sum);
		free(variance);
		group_free(&g);
	}
}

static void mean__is_as_far_off_as_its_steps(void **state)
{
	unsigned int bits, form;
	struct group g;
	size_t i;

	(void)state;
	for (bits = 1; bits <= 8; bits++)
		for (form = 0; form <= THC_CODEC_UNROTATED; form++) {
			double *variance, got = 0, want = 0;

			group_init(&g, bits, form, 1 + bits % 4, 64 * BLOCK);
			variance = test_buffer(g.padded * sizeof(*variance));
			fill(&g, 100 + bits);
			g.round = bits;
			reduce(&g);
			expected_variance(&g, variance);
			for (i = 0; i < g.count; i++) {
				double off = g.out[i] - mean_of(&g, i);

				got += off * off;
				want += variance[i];
			}
			if (fabs(got / want - 1) > 0.03)
				fail_msg("%u bits, form %u: %g, expected %g", bits, form, got,
					 want);
			free(variance);
			group_free(&g);
		}
}

/* A narrow range far from zero: the error is less than a step, since values are not scaled. */
static void ranges__far_from_zero(void **state)
{
	struct group g;
	size_t i;

	(void)state;
	group_init(&g, 8, THC_CODEC_UNROTATED, 1, BLOCK);
	for (i = 0; i < BLOCK; i++)
		g.x[0][i] = -0x1p20f - (float)(i % 256);
	reduce(&g);
	for (i = 0; i < BLOCK; i++)
		assert_true(g.x[0][i] == g.out[i]);
	group_free(&g);
}

/* Invalid ranges from the network decode to zeros. */
static void ranges__that_are_none_are_zero(void **state)
{
	static const float wrong[][2] = {
		{ NAN, 1 }, { 1, NAN }, { INFINITY, 1 }, { 1, INFINITY }, { -2, 1 },
		{ 0x1p124f, 0 }, { 0, 0x1p124f }, { -INFINITY, -INFINITY },
	};
	static const uint16_t counts[] = { 1 };
	uint8_t lanes[BLOCK], packed[BLOCK / 8];
	float x[BLOCK], error[BLOCK], scratch[BLOCK], out[BLOCK];
	struct group g;
	size_t i, k;

	(void)state;
	group_init(&g, 1, 0, 1, BLOCK);
	memset(lanes, 1, sizeof(lanes));
	for (i = 0; i < BLOCK; i++)
		x[i] = (float)(i % 5);
	for (k = 0; k < sizeof(wrong) / sizeof(*wrong); k++) {
		const struct thc_blocks b = { 1, 0, wrong[k], 0 };

		thc_codec_decode(&g.c, &(struct thc_sums){ lanes, BLOCK, BLOCK, 8, counts }, BLOCK,
				 &b, out);
		for (i = 0; i < BLOCK; i++)
			assert_true(out[i] == 0);
		thc_codec_compress(&g.c, &(struct thc_values){ x, THC_FP32, BLOCK, NULL }, &b,
				   &(struct thc_chunks){ packed, BLOCK / 8, BLOCK },
				   &(struct thc_residual_at){ error, BLOCK, scratch });
		for (i = 0; i < BLOCK; i++)
			assert_true(fabsf(error[i] - x[i]) < 1e-5f);
	}
	group_free(&g);
}

static void measure__tells_what_is_not_finite(void **state)
{
	float x[3 * BLOCK] = { 0 }, scales[6], scratch[BLOCK];
	static const float wrong[] = { NAN, INFINITY, -INFINITY, 3e38f };
	struct group g;
	unsigned int k;
	size_t bad;

	(void)state;
	group_init(&g, 4, 0, 1, 1);
	for (k = 0; k < 4; k++) {
		x[2000] = wrong[k];
		bad = 0;
		assert_int_equal(thc_codec_measure(
					 &g.c, &(struct thc_values){ x, THC_FP32, 3 * BLOCK, NULL },
					 &(struct thc_blocks){ 0 },
					 &(struct thc_residual_at){ NULL, 3 * BLOCK, scratch },
					 scales, &bad),
				 k < 3 ? -EDOM : -ERANGE);
		assert_int_equal(bad, k < 3 ? 2000 : 1024);
	}
	group_free(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(levels__divide_the_range),
		cmocka_unit_test(levels__of_a_table_of_granularity_4),
		cmocka_unit_test(blocks__constant_and_negative_are_exact),
		cmocka_unit_test(blocks__zero_and_tiny),
		cmocka_unit_test(mean__is_unbiased),
		cmocka_unit_test(mean__is_as_far_off_as_its_steps),
		cmocka_unit_test(ranges__far_from_zero),
		cmocka_unit_test(ranges__that_are_none_are_zero),
		cmocka_unit_test(measure__tells_what_is_not_finite),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
