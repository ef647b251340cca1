// SPDX-License-Identifier: GPL-2.0
/*
 * The error of a whole round, measured through the codec by Monte Carlo, against the closed form
 * and numbers computed by other means. Seeds are fixed.
 */
#include "codec_util.h"

#define BLOCK_LOG2	14
#define COORDINATES	((size_t)1 << 19)

struct setup {
	struct thc_codec c;
	unsigned int n;
	bool independent;	/* gradients of the ranks differ */
	size_t count;
	uint64_t round;
};

static float heavy_tail(struct rng *r)
{
	return (float)(rng_normal(r) * exp(0.5 * rng_normal(r)));
}

/* One round of n ranks without error feedback: ||mean - result||^2 / ||mean||^2. */
static double measure(const struct setup *s, float *const *x, const float *const *norms_of_rank)
{
	size_t padded = padded_count(&s->c, s->count);
	size_t blocks = thc_codec_blocks(&s->c, s->count);
	float *scratch = test_buffer(sizeof(float) << s->c.block_log2);
	float *out = test_buffer(padded * sizeof(float));
	float *norms = test_buffer(blocks * sizeof(float));
	uint8_t *packed = test_buffer(padded), *lanes = test_buffer(2 * padded);
	uint16_t *counts = test_buffer(padded / 1024 * sizeof(*counts));
	float *own = test_buffer(blocks * sizeof(float));
	double error = 0, energy = 0;
	const unsigned int bits = s->c.table.bits;
	unsigned int k;
	size_t i;

	for (k = 0; k < s->n; k++) {
		const float *from = norms_of_rank ? norms_of_rank[k] : own;

		assert_int_equal(
			thc_codec_norms(&s->c,
					&(struct thc_values){ x[k], THC_FP32, s->count, NULL }, own,
					NULL),
			0);
		for (i = 0; i < blocks; i++)
			norms[i] = fmaxf(norms[i], from[i]);
	}
	for (k = 0; k < s->n; k++) {
		thc_codec_compress(&s->c, &(struct thc_values){ x[k], THC_FP32, s->count, NULL },
				   &(struct thc_blocks){ s->round, 0, norms, k },
				   &(struct thc_chunks){ packed, 128 * bits, 1024 },
				   &(struct thc_residual_at){ NULL, s->count, scratch });
		for (i = 0; i < padded; i++)
			lane_add(lanes, 16, i, s->c.table.value[index_of(packed, bits, i)]);
	}
	for (i = 0; i < padded / 1024; i++)
		counts[i] = (uint16_t)s->n;
	thc_codec_decode(&s->c, &(struct thc_sums){ lanes, 2048, 1024, 16, counts }, s->count,
			 &(struct thc_blocks){ s->round, 0, norms, 0 }, out);
	for (i = 0; i < s->count; i++) {
		double mean = 0;

		for (k = 0; k < s->n; k++)
			mean += (double)x[k][i] / s->n;
		error += (mean - out[i]) * (mean - out[i]);
		energy += mean * mean;
	}
	free(own);
	free(counts);
	free(lanes);
	free(packed);
	free(norms);
	free(out);
	free(scratch);
	return error / energy;
}

static double measure_normal(const struct setup *s)
{
	float *x[16];
	unsigned int k;
	double nmse;

	for (k = 0; k < s->n; k++)
		x[k] = k && !s->independent ? x[0] : normal_vector(s->count, 100 + k);
	nmse = measure(s, x, NULL);
	for (k = 0; k < s->n; k++)
		if (!k || s->independent)
			free(x[k]);
	return nmse;
}

static void assert_ratio(const char *what, double got, double want, double tolerance)
{
	if (!(fabs(got / want - 1) <= tolerance))
		fail_msg("%s: NMSE %.6f, expected %.6f within %g %%", what, got, want,
			 100 * tolerance);
}

static void setup(struct setup *s, const struct thc_table *t, unsigned int n, bool independent,
		  unsigned int correlated)
{
	codec_setup(&s->c, t, BLOCK_LOG2, THC_SIMD_AUTO);
	assert_int_equal(thc_codec_set_correlated(&s->c, correlated), 0);
	s->n = n;
	s->independent = independent;
	s->count = COORDINATES;
	s->round = 21;
}

static void nmse__closed_form(void **state)
{
	unsigned int i, k;

	(void)state;
	for (i = 0; i < sizeof(known_errors) / sizeof(*known_errors); i++)
		for (k = 0; k < 3; k++) {
			const struct known_error *e = &known_errors[i];
			struct thc_table t;
			struct setup s;
			double got;

			solve(e->bits, e->g, e->p, &t);
			setup(&s, &t, known_ranks[k], false, 0);
			got = measure_normal(&s);
			assert_ratio("known", got, e->nmse[k], 0.03);
			assert_ratio("closed form", got, thc_table_nmse(&t, known_ranks[k]), 0.03);
			thc_codec_exit(&s.c);
		}
}

/* All bits, 4 ranks: good tables for 8-bit sums, and uniform tables. */
static void nmse__every_number_of_bits(void **state)
{
	static const struct {
		unsigned int bits, g;
		double p, known;	/* 0: the closed form alone */
	} rows[] = {
		{ 1, 1, 0.35, .2716 },	    { 2, 63, 0.09, .0745 },
		{ 3, 63, 1.0 / 64, .0199 }, { 4, 63, 1.0 / 305, .00517 },
		{ 5, 63, 0x1p-10, .00149 }, { 6, 63, 0x1p-11, .00057 },
		{ 2, 3, 0.03, 0 },	    { 3, 7, 0x1p-7, 0 },
		{ 4, 15, 0x1p-9, 0 },	    { 5, 31, 0x1p-10, 0 },
		{ 6, 63, 1e-6, 0 },	    { 7, 127, 1e-7, 0 },
		{ 8, 255, 1e-7, 0 },	    { 7, 511, 1e-7, 0 },
		{ 8, 1023, 1e-7, 0 },
	};
	struct thc_table t;
	struct setup s;
	unsigned int i;
	double got;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		solve(rows[i].bits, rows[i].g, rows[i].p, &t);
		setup(&s, &t, 4, false, 0);
		got = measure_normal(&s);
		assert_ratio("closed form", got, thc_table_nmse(&t, 4), 0.03);
		if (rows[i].known)
			assert_ratio("known", got, rows[i].known, 0.03);
		thc_codec_exit(&s.c);
	}
}

static void nmse__chosen_tables(void **state)
{
	static const unsigned int n[] = { 2, 4, 8, 16 };
	static const double known[] = { .00956, .00517, .00310, .00205 };
	unsigned int i;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct thc_table t;
		struct setup s;
		double got;

		assert_int_equal(choose(4, n[i], 8, &t), 0);
		setup(&s, &t, n[i], false, 0);
		got = measure_normal(&s);
		assert_ratio("chosen", got, thc_table_nmse(&t, n[i]), 0.03);
		assert_true(got < known[i] * 1.03);
		thc_codec_exit(&s.c);
	}
}

/*
 * b = 4, g = 30, p = 1/512. On equal gradients the strata leave only one rank's draw to chance, so
 * the rounding error falls with n^2 instead of n.
 */
static void correlated__gain(void **state)
{
	static const struct {
		unsigned int n;
		bool independent;
		double plain, correlated;
	} rows[] = {
		{ 4, false, .00607, .00174 }, { 8, false, .00316, .00064 },
		{ 4, true, .0232, .0143 },
	};
	struct thc_table t;
	unsigned int i;

	(void)state;
	solve(4, 30, 1.0 / 512, &t);
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct setup s;

		setup(&s, &t, rows[i].n, rows[i].independent, 0);
		assert_ratio("plain", measure_normal(&s), rows[i].plain, 0.05);
		assert_int_equal(thc_codec_set_correlated(&s.c, rows[i].n), 0);
		assert_ratio("correlated", measure_normal(&s), rows[i].correlated, 0.05);
		if (!rows[i].independent)
			assert_ratio("n^2", measure_normal(&s),
				     thc_table_nmse(&t, rows[i].n * rows[i].n), 0.03);
		thc_codec_exit(&s.c);
	}
}

static void nmse__independent_gradients(void **state)
{
	struct thc_table t;
	struct setup s;

	(void)state;
	solve(4, 30, 1.0 / 32, &t);
	setup(&s, &t, 8, true, 0);
	assert_ratio("independent", measure_normal(&s), thc_table_nmse(&t, 1), 0.05);
	thc_codec_exit(&s.c);
}

/*
 * The scales of a model's layers differ by orders of magnitude. One norm per block keeps the error
 * in its block; one norm of the whole vector would spread it.
 */
static void norms__per_block_on_heavy_tails(void **state)
{
	float *x = test_buffer(COORDINATES * sizeof(float)), *shared;
	const float *shared_by_rank[4];
	struct rng r = rng_seeded(5);
	double per_block, one_norm;
	struct thc_table t;
	struct setup s;
	float *ranks[4] = { x, x, x, x };
	size_t i, blocks = COORDINATES / 1024;
	float layer = 1;

	(void)state;
	for (i = 0; i < COORDINATES; i++) {
		if (i % 8192 == 0)
			layer = (float)exp(2 * rng_normal(&r));
		x[i] = layer * heavy_tail(&r);
	}
	solve(4, 30, 1.0 / 32, &t);
	setup(&s, &t, 4, false, 0);
	thc_codec_exit(&s.c);
	codec_setup(&s.c, &t, 10, THC_SIMD_AUTO);
	per_block = measure(&s, ranks, NULL);
	shared = test_buffer(blocks * sizeof(float));
	for (i = 0; i < blocks; i++)
		shared[i] = (float)(norm_of(x, COORDINATES) / sqrt((double)blocks));
	for (i = 0; i < 4; i++)
		shared_by_rank[i] = shared;
	one_norm = measure(&s, ranks, shared_by_rank);
	assert_ratio("per block", per_block, thc_table_nmse(&t, 4), 0.1);
	assert_true(one_norm > 10 * per_block);
	thc_codec_exit(&s.c);
	free(shared);
	free(x);
}

/* Without rotation the padding of a block does not change the scale of its coordinates. */
static void nmse__of_a_block_that_is_not_full(void **state)
{
	static const size_t counts[] = { 17, 128, 1000 };
	struct thc_table t;
	unsigned int i;
	size_t trial;

	(void)state;
	solve(4, 20, 1.0 / 512, &t);
	for (i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		const size_t trials = 40000 / counts[i];
		double sum = 0;
		struct setup s;

		setup(&s, &t, 4, false, 0);
		assert_int_equal(thc_codec_set_form(&s.c, THC_CODEC_UNROTATED), 0);
		s.count = counts[i];
		for (trial = 0; trial < trials; trial++) {
			float *x = normal_vector(s.count, 500 + trial);
			float *all[] = { x, x, x, x };

			s.round = trial;
			sum += measure(&s, all, NULL);
			free(x);
		}
		assert_ratio("a part of a block", sum / (double)trials, thc_table_nmse(&t, 4), 0.1);
		thc_codec_exit(&s.c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nmse__closed_form),
		cmocka_unit_test(nmse__every_number_of_bits),
		cmocka_unit_test(nmse__chosen_tables),
		cmocka_unit_test(correlated__gain),
		cmocka_unit_test(nmse__independent_gradients),
		cmocka_unit_test(norms__per_block_on_heavy_tails),
		cmocka_unit_test(nmse__of_a_block_that_is_not_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
