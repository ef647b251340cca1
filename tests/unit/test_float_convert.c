// SPDX-License-Identifier: GPL-2.0
/*
 * fp16 and bf16 conversions: against definitions by ldexp and nearest-even search, exhaustively
 * where that is possible, and the same bits from every instruction set.
 */
#include "codec_util.h"
#include "dtype.h"

#include "codec_ops.h"

#define ALL	65536

static float from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static uint32_t to_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

/* Value of a finite half with @e exponent bits; 10 or 7 bits of mantissa follow from it. */
static double half_value(uint16_t h, int e)
{
	int m = 15 - e, bias = (1 << (e - 1)) - 1;
	int exponent = h >> m & ((1 << e) - 1), mantissa = h & ((1 << m) - 1);
	double v = exponent ? ldexp(mantissa + (1 << m), exponent - bias - m) :
			      ldexp(mantissa, 1 - bias - m);

	return h & 0x8000 ? -v : v;
}

static bool half_is_nan(uint16_t h, int e)
{
	int m = 15 - e;

	return (h >> m & ((1 << e) - 1)) == (1 << e) - 1 && (h & ((1 << m) - 1));
}

static int exponent_bits(enum thc_dtype dtype)
{
	return dtype == THC_FP16 ? 5 : 8;
}

static uint16_t half_infinity(enum thc_dtype dtype)
{
	return dtype == THC_FP16 ? 0x7c00 : 0x7f80;
}

/* The kernels under test; NULL where this CPU has none. */
static const struct thc_codec_ops *ops_of(enum thc_simd simd)
{
	const struct thc_codec_ops *ops = NULL;
	struct thc_table t;
	struct thc_codec c;

	solve(4, 30, 1.0 / 32, &t);
	if (!thc_codec_init(&c, &t, 10, 0, simd)) {
		ops = c.ops;
		thc_codec_exit(&c);
	}
	return ops;
}

static void assert_load(const struct thc_codec_ops *ops, enum thc_dtype dtype)
{
	uint16_t *halves = test_buffer(ALL * sizeof(*halves)), *back = test_buffer(ALL * 2);
	float *floats = test_buffer(ALL * sizeof(*floats));
	int e = exponent_bits(dtype);
	unsigned int i;

	for (i = 0; i < ALL; i++)
		halves[i] = (uint16_t)i;
	ops->load(dtype, floats, halves, ALL);
	ops->store(dtype, back, floats, ALL);
	for (i = 0; i < ALL; i++) {
		if (half_is_nan(halves[i], e)) {
			assert_true(isnan(floats[i]) && half_is_nan(back[i], e));
			assert_int_equal(back[i] & 0x8000, i & 0x8000);
			continue;
		}
		assert_int_equal(to_bits(floats[i]) >> 31, i >> 15);
		if ((i & 0x7fff) == half_infinity(dtype)) {
			assert_true(isinf(floats[i]));
			/* the largest half stands for larger values */
			assert_int_equal(back[i], dtype == THC_FP16 ? i - 1 : i);
			continue;
		}
		assert_true((double)floats[i] == half_value(halves[i], e));
		assert_int_equal(back[i], i);
	}
	free(floats);
	free(back);
	free(halves);
}

/* Between neighbours the middle rounds to even, other values to the nearer one. */
static void assert_store_rounds(const struct thc_codec_ops *ops, enum thc_dtype dtype)
{
	uint32_t infinity = half_infinity(dtype), i;
	float in[16];
	uint16_t out[16];
	int e = exponent_bits(dtype), k;

	for (i = 0; i < infinity; i++) {
		/* Above the largest half the next value is infinity, or does not exist. */
		uint32_t next = dtype == THC_FP16 && i + 1 == infinity ? i : i + 1;
		double lo = half_value((uint16_t)i, e);
		double hi = i + 1 < infinity ? half_value((uint16_t)(i + 1), e) :
					       lo + (lo - half_value((uint16_t)(i - 1), e));
		float middle = (float)((lo + hi) / 2);

		for (k = 0; k < 16; k++)
			in[k] = middle;
		in[1] = nextafterf(middle, 0);
		in[2] = nextafterf(middle, INFINITY);
		in[3] = -middle;
		in[4] = -in[1];
		in[5] = -in[2];
		ops->store(dtype, out, in, 16);
		if ((double)middle != (lo + hi) / 2)
			continue;	/* a subnormal bf16 midpoint that no float has */
		assert_int_equal(out[0], i & 1 ? next : i);
		assert_int_equal(out[1], i);
		assert_int_equal(out[2], next);
		assert_int_equal(out[3], out[0] | 0x8000);
		assert_int_equal(out[4], out[1] | 0x8000);
		assert_int_equal(out[5], out[2] | 0x8000);
	}
}

static void all_kernels(void (*check)(const struct thc_codec_ops *, enum thc_dtype))
{
	enum thc_simd simd;

	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++) {
		const struct thc_codec_ops *ops = ops_of(simd);

		if (!ops)
			continue;	/* reported by same_bits */
		check(ops, THC_FP16);
		check(ops, THC_BF16);
	}
}

static void load__every_half(void **state)
{
	(void)state;
	all_kernels(assert_load);
}

static void store__nearest_even(void **state)
{
	(void)state;
	all_kernels(assert_store_rounds);
}

static void store__special_values(void **state)
{
	static const struct {
		uint32_t in;
		uint16_t fp16, bf16;
	} want[] = {
		{ 0x00000000, 0x0000, 0x0000 }, { 0x80000000, 0x8000, 0x8000 },
		{ 0x7f800000, 0x7bff, 0x7f80 }, { 0xff800000, 0xfbff, 0xff80 },
		{ 0x7f7fffff, 0x7bff, 0x7f80 },	/* largest float */
		{ 0x477fe000, 0x7bff, 0x4780 },	/* 65504 */
		{ 0x477fefff, 0x7bff, 0x4780 }, { 0x477ff000, 0x7bff, 0x4780 },
		{ 0x00000001, 0x0000, 0x0000 }, { 0x00008001, 0x0000, 0x0001 },
		{ 0x33000000, 0x0000, 0x3300 },	/* 2^-25, half of the least half */
		{ 0x33000001, 0x0001, 0x3300 },
		{ 0x7f800001, 0x7e00, 0x7fc0 },	/* signalling NaN */
		{ 0xffd55555, 0xfeaa, 0xffd5 },	/* payload */
		{ 0x3f800000, 0x3c00, 0x3f80 },
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(want) / sizeof(*want); i++) {
		float f = from_bits(want[i].in);
		uint16_t h;

		thc_store(THC_FP16, &h, &f, 1);
		assert_int_equal(h, want[i].fp16);
		thc_store(THC_BF16, &h, &f, 1);
		assert_int_equal(h, want[i].bf16);
	}
}

static void same_bits(enum thc_simd simd)
{
	const struct thc_codec_ops *ops;
	uint32_t in[1024];
	uint16_t a[1024], b[1024];
	float fa[1024], fb[1024];
	struct rng r = rng_seeded(8);
	enum thc_dtype dtype;
	unsigned int i, run;

	need_simd(simd);
	ops = ops_of(simd);
	for (run = 0; run < 2000; run++) {
		size_t n = 1 + rng_u64(&r) % 1024;

		for (i = 0; i < n; i++)
			in[i] = (uint32_t)rng_u64(&r);
		for (dtype = THC_FP16; dtype <= THC_BF16; dtype++) {
			thc_ops_scalar.store(dtype, a, (const float *)(const void *)in, n);
			ops->store(dtype, b, (const float *)(const void *)in, n);
			assert_memory_equal(a, b, n * sizeof(*a));
			thc_ops_scalar.load(dtype, fa, in, n / 2);
			ops->load(dtype, fb, in, n / 2);
			assert_memory_equal(fa, fb, n / 2 * sizeof(*fa));
		}
	}
}

static void avx2__same_bits(void **state)
{
	(void)state;
	same_bits(THC_SIMD_AVX2);
}

static void avx512__same_bits(void **state)
{
	(void)state;
	same_bits(THC_SIMD_AVX512);
}

static void load_store__fp32_copies(void **state)
{
	float in[3] = { 1, -2.5f, NAN }, out[3];

	(void)state;
	thc_load(THC_FP32, out, in, 3);
	assert_memory_equal(in, out, sizeof(in));
	thc_store(THC_FP32, in, in, 3);
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(thc_dtype_size(THC_FP32), 4);
	assert_int_equal(thc_dtype_size(THC_FP16), 2);
	assert_int_equal(thc_dtype_size(THC_BF16), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(load__every_half),
		cmocka_unit_test(store__nearest_even),
		cmocka_unit_test(store__special_values),
		cmocka_unit_test(avx2__same_bits),
		cmocka_unit_test(avx512__same_bits),
		cmocka_unit_test(load_store__fp32_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
