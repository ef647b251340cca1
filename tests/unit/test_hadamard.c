// SPDX-License-Identifier: GPL-2.0
/*
 * The rotation is H D, with H the Hadamard matrix in natural order; D is random, shared and fresh;
 * and the inverse restores the input. test_simd.c compares instruction sets.
 */
#include "codec_util.h"

static void setup(struct thc_codec *c, unsigned int block_log2)
{
	struct thc_table t;

	solve(4, 30, 1.0 / 32, &t);
	codec_setup(c, &t, block_log2, THC_SIMD_AUTO);
}

/* H[i][j] = (-1)^popcount(i & j), summed the slow way. */
static void assert_is_rotation(unsigned int block_log2, uint64_t round, size_t block)
{
	size_t n = (size_t)1 << block_log2, i, j;
	float *x = normal_vector(n, 11), *rotated = test_buffer(n * sizeof(*x));
	struct thc_codec c;
	double *signs, norm;

	setup(&c, block_log2);
	signs = reference_signs(&c, round, block);
	thc_codec_rotate(&c, &(struct thc_values){ x, THC_FP32, n, NULL },
			 &(struct thc_blocks){ round, block, NULL, 0 }, rotated);
	norm = norm_of(x, n);
	for (i = 0; i < n; i++) {
		double sum = 0;

		for (j = 0; j < n; j++)
			sum += __builtin_parityll(i & j) ? -signs[j] * x[j] : signs[j] * x[j];
		assert_true(fabs(sum - rotated[i]) < 1e-6 * norm);
	}
	thc_codec_exit(&c);
	free(signs);
	free(rotated);
	free(x);
}

static void rotate__equals_quadratic_reference(void **state)
{
	(void)state;
	assert_is_rotation(10, 1, 0);
	assert_is_rotation(10, 2, 77);
	assert_is_rotation(11, 3, 5);
	assert_is_rotation(12, 4, 0);
	assert_is_rotation(13, 5, 1);
}

static void rotate__every_block_size(void **state)
{
	unsigned int block_log2;

	(void)state;
	for (block_log2 = 10; block_log2 <= 20; block_log2++) {
		size_t n = (size_t)1 << block_log2, i;
		float *x = normal_vector(n, block_log2), *rotated = test_buffer(n * sizeof(*x));
		double *want = test_buffer(n * sizeof(*want)), *signs, norm = norm_of(x, n);
		struct thc_codec c;

		setup(&c, block_log2);
		signs = reference_signs(&c, 9, 2);
		for (i = 0; i < n; i++)
			want[i] = signs[i] * x[i];
		reference_hadamard(want, n);
		thc_codec_rotate(&c, &(struct thc_values){ x, THC_FP32, n, NULL },
				 &(struct thc_blocks){ 9, 2, NULL, 0 }, rotated);
		for (i = 0; i < n; i++)
			assert_true(fabs(want[i] - rotated[i]) < 1e-6 * norm);
		assert_true(fabs(norm_of(rotated, n) / (norm * sqrt((double)n)) - 1) < 1e-5);
		thc_codec_exit(&c);
		free(signs);
		free(want);
		free(rotated);
		free(x);
	}
}

/* With a norm of zero nothing is sent and the error memory gets everything back: the inverse. */
static void rotate__inverse_gives_input_back(void **state)
{
	unsigned int block_log2;

	(void)state;
	for (block_log2 = 10; block_log2 <= 17; block_log2++) {
		size_t n = (size_t)2 << block_log2;
		float *x = normal_vector(n, 5), *rotated = test_buffer(n * sizeof(*x));
		float *back = test_buffer(n * sizeof(*x)), *scratch = test_buffer(n * sizeof(*x));
		uint8_t *packed = test_buffer(n / 2);
		float norms[2] = { 0, 0 };
		struct thc_codec c;
		size_t i;

		setup(&c, block_log2);
		thc_codec_rotate(&c, &(struct thc_values){ x, THC_FP32, n, NULL },
				 &(struct thc_blocks){ 3, 8, NULL, 0 }, rotated);
		memset(packed, 0xff, n / 2);
		thc_codec_quantise(&c, rotated, 2, &(struct thc_blocks){ 3, 8, norms, 0 },
				   &(struct thc_chunks){ packed, 512, 1024 },
				   &(struct thc_residual_at){ back, n, scratch });
		assert_true(distance(back, x, n) < 1e-6 * norm_of(x, n));
		for (i = 0; i < n / 2; i++)
			assert_int_equal(packed[i], 0);
		thc_codec_exit(&c);
		free(packed);
		free(scratch);
		free(back);
		free(rotated);
		free(x);
	}
}

static size_t signs_that_differ(const double *a, const double *b, size_t n, size_t shift)
{
	size_t i, differ = 0;

	for (i = 0; i + shift < n; i++)
		differ += a[i] != b[i + shift];
	return differ;
}

/* Half of n, within five standard deviations. */
static void assert_about_half(size_t differ, size_t n)
{
	double deviation = ((double)differ - (double)n / 2) / (sqrt((double)n) / 2);

	assert_true(fabs(deviation) < 5);
}

static void signs__random_shared_and_fresh(void **state)
{
	size_t n = 4096, shift, i, negative = 0;
	double *a, *round, *block, *again;
	struct thc_codec c;

	(void)state;
	setup(&c, 12);
	a = reference_signs(&c, 1, 0);
	round = reference_signs(&c, 2, 0);
	block = reference_signs(&c, 1, 1);
	again = reference_signs(&c, 1, 0);
	for (i = 0; i < n; i++)
		negative += a[i] < 0;
	assert_about_half(negative, n);
	assert_memory_equal(a, again, n * sizeof(*a));
	assert_about_half(signs_that_differ(a, round, n, 0), n);
	assert_about_half(signs_that_differ(a, block, n, 0), n);
	for (shift = 1; shift <= 64; shift++)
		assert_about_half(signs_that_differ(a, a, n, shift), n - shift);
	c.seed++;
	free(again);
	again = reference_signs(&c, 1, 0);
	assert_about_half(signs_that_differ(a, again, n, 0), n);
	thc_codec_exit(&c);
	free(again);
	free(block);
	free(round);
	free(a);
}

static void rotate__pads_with_zeros(void **state)
{
	size_t counts[] = { 1, 777, 1023, 1025, 4096, 4097, 9000 }, i, k;
	struct thc_codec c;

	(void)state;
	setup(&c, 12);
	for (k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
		size_t count = counts[k], padded = padded_count(&c, count);
		float *x = normal_vector(padded, 3), *error = normal_vector(padded, 4);
		float *a = test_buffer(padded * sizeof(*x)), *b = test_buffer(padded * sizeof(*x));

		thc_codec_rotate(&c, &(struct thc_values){ x, THC_FP32, count, error },
				 &(struct thc_blocks){ 6, 2, NULL, 0 }, a);
		for (i = count; i < padded; i++)
			x[i] = error[i] = 0;
		thc_codec_rotate(&c, &(struct thc_values){ x, THC_FP32, padded, error },
				 &(struct thc_blocks){ 6, 2, NULL, 0 }, b);
		assert_memory_equal(a, b, padded * sizeof(*a));
		free(b);
		free(a);
		free(error);
		free(x);
	}
	assert_int_equal(thc_codec_blocks(&c, 0), 0);
	assert_int_equal(thc_codec_blocks(&c, 4097), 2);
	thc_codec_exit(&c);
}

static void rotate__range_by_range(void **state)
{
	size_t n = 8 * 2048, block;
	float *x = normal_vector(n, 3), *whole = test_buffer(n * sizeof(*x));
	float *part = test_buffer(n * sizeof(*x));
	struct thc_codec c;

	(void)state;
	setup(&c, 11);
	thc_codec_rotate(&c, &(struct thc_values){ x, THC_FP32, n, NULL },
			 &(struct thc_blocks){ 6, 0, NULL, 0 }, whole);
	for (block = 0; block < 8; block += 2)
		thc_codec_rotate(&c, &(struct thc_values){ x + block * 2048, THC_FP32, 4096, NULL },
				 &(struct thc_blocks){ 6, block, NULL, 0 }, part + block * 2048);
	assert_memory_equal(whole, part, n * sizeof(*x));
	thc_codec_exit(&c);
	free(part);
	free(whole);
	free(x);
}

static void init__bad_arguments(void **state)
{
	struct thc_table t, bad;
	struct thc_codec c;

	(void)state;
	solve(4, 30, 1.0 / 32, &t);
	assert_int_equal(thc_codec_init(&c, &t, 9, 0, THC_SIMD_AUTO), -EINVAL);
	assert_int_equal(thc_codec_init(&c, &t, 21, 0, THC_SIMD_AUTO), -EINVAL);
	assert_int_equal(thc_codec_init(&c, NULL, 10, 0, THC_SIMD_AUTO), -EINVAL);
	assert_int_equal(thc_codec_init(NULL, &t, 10, 0, THC_SIMD_AUTO), -EINVAL);
	bad = t;
	bad.value[3] = bad.value[4];
	assert_int_equal(thc_codec_init(&c, &bad, 10, 0, THC_SIMD_AUTO), -EINVAL);
	bad = t;
	bad.levels = 17;
	assert_int_equal(thc_codec_init(&c, &bad, 10, 0, THC_SIMD_AUTO), -EINVAL);
	bad = t;
	bad.t = NAN;
	assert_int_equal(thc_codec_init(&c, &bad, 10, 0, THC_SIMD_AUTO), -EINVAL);
	assert_int_equal(thc_codec_init(&c, &t, 10, 0, (enum thc_simd)9), -EOPNOTSUPP);
	setup(&c, 10);
	assert_int_equal(thc_codec_set_correlated(&c, THC_CORRELATE_MAX + 1), -EINVAL);
	assert_int_equal(thc_codec_set_correlated(&c, THC_CORRELATE_MAX), 0);
	thc_codec_exit(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rotate__equals_quadratic_reference),
		cmocka_unit_test(rotate__every_block_size),
		cmocka_unit_test(rotate__inverse_gives_input_back),
		cmocka_unit_test(signs__random_shared_and_fresh),
		cmocka_unit_test(rotate__pads_with_zeros),
		cmocka_unit_test(rotate__range_by_range),
		cmocka_unit_test(init__bad_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
