// SPDX-License-Identifier: GPL-2.0
/*
 * The error memory holds what the indices lose, against a reference in double precision, and takes
 * back contributions that did not arrive.
 */
#include "codec_util.h"

#define RANK	1
#define ROUND	6

struct round {
	struct thc_codec c;
	size_t count, padded, blocks, first_block;
	float *x, *error_before, *error, *scales, *scratch;
	void *typed;
	uint8_t *packed;
	struct thc_chunks chunks;
};

/* Parameters of a compression. */
struct way {
	unsigned int bits, g, chunk, form;
};

static const struct way plain = { 4, 30, 1024, 0 };

static void round_run(struct round *r, unsigned int block_log2, enum thc_dtype dtype, size_t count,
		      struct way w)
{
	struct thc_table t;
	size_t i;

	solve(w.bits, w.g, 1.0 / 32, &t);
	codec_setup(&r->c, &t, block_log2, THC_SIMD_AUTO);
	assert_int_equal(thc_codec_set_form(&r->c, w.form), 0);
	r->count = count;
	r->padded = padded_count(&r->c, count);
	r->blocks = thc_codec_blocks(&r->c, count);
	r->first_block = 3;
	r->x = normal_vector(count, 1);
	r->error_before = normal_vector(count, 2);
	r->error = test_buffer(r->padded * sizeof(float));
	r->scales = test_buffer(2 * r->blocks * sizeof(float));
	r->scratch = test_buffer(sizeof(float) << block_log2);
	r->typed = test_buffer(count * sizeof(float));
	r->packed = test_buffer(r->padded * w.bits / 8);
	r->chunks = (struct thc_chunks){ r->packed, w.chunk * w.bits / 8, w.chunk };
	thc_store(dtype, r->typed, r->x, count);
	thc_load(dtype, r->x, r->typed, count);
	memcpy(r->error, r->error_before, count * sizeof(float));
	assert_int_equal(
		measure_scales(&r->c, &(struct thc_values){ r->typed, dtype, count, r->error },
			       &(struct thc_blocks){ ROUND, r->first_block, NULL, 0 }, r->scales),
		0);
	/* another rank's were larger */
	for (i = 0; i < thc_codec_scales(&r->c) * r->blocks; i++)
		r->scales[i] *= r->scales[i] > 0 ? 1.25f : 0.75f;
	thc_codec_compress(&r->c, &(struct thc_values){ r->typed, dtype, count, r->error },
			   &(struct thc_blocks){ ROUND, r->first_block, r->scales, RANK },
			   &r->chunks, &(struct thc_residual_at){ r->error, count, r->scratch });
}

static void round_free(struct round *r)
{
	thc_codec_exit(&r->c);
	free(r->x);
	free(r->error_before);
	free(r->error);
	free(r->scales);
	free(r->scratch);
	free(r->typed);
	free(r->packed);
}

/* RHT^-1 of the values of indices in chunks from..to of the range, in double. */
static double *reference_sent(const struct round *r, size_t from, size_t to)
{
	size_t b = (size_t)1 << r->c.block_log2, block, i;
	double *sent = test_buffer(r->padded * sizeof(*sent));
	double g = r->c.table.granularity;

	for (block = 0; block < r->blocks; block++) {
		double *v = sent + block * b, *signs;
		size_t there = r->count - block * b < b ? r->count - block * b : b;
		double share = sqrt((double)(r->c.form & THC_CODEC_UNROTATED ? there : b));
		double m = r->c.table.t * r->scales[block] / share, least = -m, most = m;

		if (r->c.form & THC_CODEC_RANGES) {
			double unit = r->c.form & THC_CODEC_UNROTATED ? 1 : sqrt((double)b);

			most = r->scales[2 * block] / unit;
			least = -r->scales[2 * block + 1] / unit;
		}
		for (i = 0; i < b; i++) {
			size_t at = block * b + i;
			unsigned int z = index_of(r->packed, r->c.table.bits, at);

			if (at / r->chunks.chunk >= from && at / r->chunks.chunk < to)
				v[i] = least + r->c.table.value[z] * (most - least) / g;
		}
		if (r->c.form & THC_CODEC_UNROTATED)
			continue;
		reference_hadamard(v, b);
		signs = reference_signs(&r->c, ROUND, r->first_block + block);
		for (i = 0; i < b; i++)
			v[i] *= signs[i] / sqrt((double)b);
		free(signs);
	}
	return sent;
}

static void assert_identity(unsigned int block_log2, enum thc_dtype dtype, size_t count,
			    struct way w)
{
	double *sent, missed = 0, worst = 0;
	struct round r;
	size_t i;

	round_run(&r, block_log2, dtype, count, w);
	sent = reference_sent(&r, 0, SIZE_MAX);
	for (i = 0; i < count; i++) {
		double want = (double)r.x[i] + r.error_before[i] - sent[i];

		missed += want * want;
		worst = fmax(worst, fabs(want - r.error[i]));
	}
	/* The bound: single precision, relative to a typical or the largest coordinate; and there
	 * must be an error at all.
	 */
	assert_true(worst < (w.form ? 3e-5 : 1e-5));
	assert_true(missed > (count < 1000 ? 0 : (w.bits <= 4 ? 1e-3 : 1e-6) * (double)count));
	free(sent);
	round_free(&r);
}

static void error__is_what_was_not_sent(void **state)
{
	unsigned int block_log2, dtype;

	(void)state;
	for (block_log2 = 10; block_log2 <= 15; block_log2++)
		for (dtype = THC_FP32; dtype <= THC_BF16; dtype++) {
			size_t b = (size_t)1 << block_log2;

			assert_identity(block_log2, dtype, 2 * b, (struct way){ 4, 30, 1024, 0 });
			assert_identity(block_log2, dtype, b + b / 2 + 3,
					(struct way){ 4, 63, 1024, 0 });
			assert_identity(block_log2, dtype, 5, (struct way){ 4, 100, 1024, 0 });
		}
}

/* Of every number of bits, of norms and ranges, rotated or not; a chunk of two tiles, too. */
static void error__of_every_form(void **state)
{
	unsigned int bits, form;

	(void)state;
	for (bits = 1; bits <= 8; bits++)
		for (form = 0; form < 4; form++) {
			assert_identity(11, THC_FP32, 5000,
					(struct way){ bits, (1U << bits) - 1, 2048, form });
			assert_identity(12, THC_BF16, 5000,
					(struct way){ bits, (1U << bits) - 1, 256, form });
		}
}

/* Over many rounds on one gradient nothing is lost: the sum of sent values approaches rounds * x.
 */
static void error__accumulates_nothing(void **state)
{
	size_t n = 4096, i;
	float *x = normal_vector(n, 9), *error = test_buffer(n * sizeof(float)), norms[4];
	float *out = test_buffer(n * sizeof(float)), *scratch = test_buffer(1024 * sizeof(float));
	float *total = test_buffer(n * sizeof(float));
	uint8_t *packed = test_buffer(n / 2), *lanes = test_buffer(n);
	static const uint16_t counts[4] = { 1, 1, 1, 1 };
	const int rounds = 50;
	struct thc_codec c;
	struct thc_table t;
	int round;

	(void)state;
	solve(4, 30, 1.0 / 32, &t);
	codec_setup(&c, &t, 10, THC_SIMD_AUTO);
	for (round = 0; round < rounds; round++) {
		assert_int_equal(thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, n, error },
						 norms, NULL),
				 0);
		thc_codec_compress(&c, &(struct thc_values){ x, THC_FP32, n, error },
				   &(struct thc_blocks){ (uint64_t)round, 0, norms, 0 },
				   &(struct thc_chunks){ packed, 512, 1024 },
				   &(struct thc_residual_at){ error, n, scratch });
		for (i = 0; i < n; i++)
			lanes[i] = (uint8_t)t.value[index_of(packed, 4, i)];
		thc_codec_decode(&c, &(struct thc_sums){ lanes, 1024, 1024, 8, counts }, n,
				 &(struct thc_blocks){ (uint64_t)round, 0, norms, 0 }, out);
		for (i = 0; i < n; i++)
			total[i] += out[i];
	}
	for (i = 0; i < n; i++)
		total[i] = (total[i] + error[i]) / (float)rounds;
	assert_true(distance(total, x, n) < 1e-5 * norm_of(x, n));
	assert_true(norm_of(error, n) < 0.5 * norm_of(x, n));
	thc_codec_exit(&c);
	free(lanes);
	free(packed);
	free(total);
	free(scratch);
	free(out);
	free(error);
	free(x);
}

/* Puts chunk @lost of @r back into @error, and no other. */
static void putback_one(struct round *r, size_t lost, float *error)
{
	size_t chunks = r->padded / r->chunks.chunk;
	uint8_t *one = test_buffer(chunks);

	memset(one, 0, chunks);
	one[lost] = 1;
	thc_codec_putback(&r->c, &r->chunks, one, r->blocks,
			  &(struct thc_blocks){ ROUND, r->first_block, r->scales, 0 },
			  &(struct thc_residual_at){ error, r->count, r->scratch });
	free(one);
}

static void putback__one_chunk(void **state)
{
	static const size_t chunks[] = { 0, 3, 6 };
	double *sent;
	struct round r;
	size_t i, k;

	(void)state;
	round_run(&r, 12, THC_FP32, 2 * 4096 - 1000, plain);
	for (k = 0; k < 3; k++) {
		float *before = test_buffer(r.padded * sizeof(float));

		memcpy(before, r.error, r.count * sizeof(float));
		sent = reference_sent(&r, chunks[k], chunks[k] + 1);
		putback_one(&r, chunks[k], r.error);
		for (i = 0; i < r.count; i++)
			assert_true(fabs(before[i] + sent[i] - r.error[i]) < 1e-5);
		for (i = r.count; i < r.padded; i++)
			assert_true(r.error[i] == 0);
		free(sent);
		free(before);
	}
	round_free(&r);
}

/* All chunks lost: the error memory holds all there was to send. */
static void assert_everything_back(unsigned int block_log2, struct way w)
{
	size_t i, chunks;
	struct round r;
	float *one_by_one;
	uint8_t *lost;

	round_run(&r, block_log2, THC_FP32, 20000, w);
	chunks = r.padded / w.chunk;
	lost = test_buffer(chunks);
	memset(lost, 1, chunks);
	one_by_one = test_buffer(r.count * sizeof(float));
	memcpy(one_by_one, r.error, r.count * sizeof(float));
	for (i = 0; i < chunks; i++)
		putback_one(&r, i, one_by_one);
	thc_codec_putback(&r.c, &r.chunks, lost, r.blocks,
			  &(struct thc_blocks){ ROUND, r.first_block, r.scales, 0 },
			  &(struct thc_residual_at){ r.error, r.count, r.scratch });
	for (i = 0; i < r.count; i++) {
		double want = (double)r.x[i] + r.error_before[i];

		assert_true(fabs(r.error[i] - want) < 1e-5);
		assert_true(fabs(one_by_one[i] - want) < 1e-5);
	}
	free(one_by_one);
	free(lost);
	round_free(&r);
}

static void putback__everything(void **state)
{
	unsigned int block_log2, bits, form;

	(void)state;
	for (block_log2 = 10; block_log2 <= 13; block_log2++)
		assert_everything_back(block_log2, plain);
	for (bits = 1; bits <= 8; bits++)
		for (form = 0; form < 4; form++) {
			struct way w = { bits, (1U << bits) - 1, 2048, form };

			assert_everything_back(12, w);
			w.chunk = 256;
			assert_everything_back(10, w);
		}
}

/* Some chunks of a block, and a block without any. */
static void putback__some_chunks(void **state)
{
	static const uint8_t lost[12] = { 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1 };
	struct round r;
	float *want;
	size_t i;

	(void)state;
	round_run(&r, 12, THC_FP32, 12 * 1024 - 5, plain);
	want = test_buffer(r.count * sizeof(float));
	memcpy(want, r.error, r.count * sizeof(float));
	for (i = 0; i < 12; i++)
		if (lost[i])
			putback_one(&r, i, want);
	thc_codec_putback(&r.c, &r.chunks, lost, r.blocks,
			  &(struct thc_blocks){ ROUND, r.first_block, r.scales, 0 },
			  &(struct thc_residual_at){ r.error, r.count, r.scratch });
	for (i = 0; i < r.count; i++)
		assert_true(fabs((double)want[i] - r.error[i]) < 1e-5);
	free(want);
	round_free(&r);
}

static void putback__nothing_lost(void **state)
{
	uint8_t lost[5] = { 0 };
	struct round r;
	float *before;

	(void)state;
	round_run(&r, 10, THC_FP32, 5000, plain);
	before = test_buffer(r.count * sizeof(float));
	memcpy(before, r.error, r.count * sizeof(float));
	thc_codec_putback(&r.c, &r.chunks, lost, r.blocks,
			  &(struct thc_blocks){ ROUND, r.first_block, r.scales, 0 },
			  &(struct thc_residual_at){ r.error, r.count, r.scratch });
	assert_memory_equal(before, r.error, r.count * sizeof(float));
	free(before);
	round_free(&r);
}

static void zero_norm__keeps_the_input(void **state)
{
	float x[2048] = { 0 }, error[2048] = { 0 }, norms[2], scratch[1024];
	uint8_t packed[1024];
	struct thc_codec c;
	struct thc_table t;
	size_t i;

	(void)state;
	solve(4, 30, 1.0 / 32, &t);
	codec_setup(&c, &t, 10, THC_SIMD_AUTO);
	x[1500] = 0x1p-90f;	/* too small to be sent, but large enough for the error memory */
	assert_int_equal(thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, 2048, error },
					 norms, NULL),
			 0);
	assert_true(norms[0] == 0 && norms[1] == 0x1p-90f);
	memset(packed, 0xff, sizeof(packed));
	thc_codec_compress(&c, &(struct thc_values){ x, THC_FP32, 2048, error },
			   &(struct thc_blocks){ 1, 0, norms, 0 },
			   &(struct thc_chunks){ packed, 256, 512 },
			   &(struct thc_residual_at){ error, 2048, scratch });
	for (i = 0; i < 1024; i++)
		assert_int_equal(packed[i], 0);
	for (i = 0; i < 2048; i++)
		assert_true(error[i] == x[i]);
	thc_codec_exit(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(error__is_what_was_not_sent),
		cmocka_unit_test(error__of_every_form),
		cmocka_unit_test(error__accumulates_nothing),
		cmocka_unit_test(putback__one_chunk),
		cmocka_unit_test(putback__everything),
		cmocka_unit_test(putback__some_chunks),
		cmocka_unit_test(putback__nothing_lost),
		cmocka_unit_test(zero_norm__keeps_the_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
