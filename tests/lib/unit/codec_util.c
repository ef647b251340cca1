// SPDX-License-Identifier: GPL-2.0
#include "codec_util.h"

uint64_t rng_u64(struct rng *r)
{
	r->state ^= r->state << 13;
	r->state ^= r->state >> 7;
	r->state ^= r->state << 17;
	return r->state * UINT64_C(0x2545f4914f6cdd1d);
}

struct rng rng_seeded(uint64_t seed)
{
	struct rng r = { seed * UINT64_C(0x9e3779b97f4a7c15) + 1 };
	int i;

	for (i = 0; i < 8; i++)
		rng_u64(&r);
	return r;
}

void *test_buffer(size_t size)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, 64, size ? size : 1), 0);
	memset(p, 0, size);
	return p;
}

float *normal_vector(size_t count, uint64_t seed)
{
	float *x = test_buffer(count * sizeof(*x));
	struct rng r = rng_seeded(seed);
	size_t i;

	for (i = 0; i < count; i++)
		x[i] = (float)rng_normal(&r);
	return x;
}

void reference_hadamard(double *v, size_t n)
{
	size_t half = n / 2, i;

	if (n == 1)
		return;
	reference_hadamard(v, half);
	reference_hadamard(v + half, half);
	for (i = 0; i < half; i++) {
		double a = v[i], b = v[i + half];

		v[i] = a + b;
		v[i + half] = a - b;
	}
}

double *reference_signs(const struct thc_codec *c, uint64_t round, size_t block)
{
	size_t n = (size_t)1 << c->block_log2, i;
	float *ones = test_buffer(n * sizeof(*ones)), *rotated = test_buffer(n * sizeof(*ones));
	double *signs = test_buffer(n * sizeof(*signs));

	for (i = 0; i < n; i++)
		ones[i] = 1;
	thc_codec_rotate(c, &(struct thc_values){ ones, THC_FP32, n, NULL },
			 &(struct thc_blocks){ round, block, NULL, 0 }, rotated);
	for (i = 0; i < n; i++)
		signs[i] = rotated[i];
	reference_hadamard(signs, n);
	for (i = 0; i < n; i++) {
		signs[i] /= (double)n;
		assert_true(signs[i] == 1 || signs[i] == -1);
	}
	free(ones);
	free(rotated);
	return signs;
}

void need_simd(enum thc_simd simd)
{
	struct thc_table t;
	struct thc_codec c;

	solve(4, 30, 1.0 / 32, &t);
	if (thc_codec_init(&c, &t, 10, 0, simd) == -EOPNOTSUPP) {
		print_message("SKIP: this CPU has no %s\n",
			      simd == THC_SIMD_AVX2 ? "AVX2 with F16C" : "AVX-512 F, BW, DQ, VL");
		skip();
	}
	thc_codec_exit(&c);
}

double norm_of(const float *x, size_t n)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	return sqrt(sum);
}

double distance(const float *x, const float *y, size_t n)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
	return sqrt(sum);
}

int measure_scales(const struct thc_codec *c, const struct thc_values *v,
		   const struct thc_blocks *b, float *scales)
{
	float *scratch = test_buffer(sizeof(float) << c->block_log2);
	int ret = thc_codec_measure(c, v, b, &(struct thc_residual_at){ NULL, v->count, scratch },
				    scales, NULL);

	free(scratch);
	return ret;
}
