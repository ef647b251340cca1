// SPDX-License-Identifier: GPL-2.0
/*
 * Every instruction set gives the bits of the portable kernels: norms, rotation, indices, error
 * memory and decoded floats, for all block sizes, element types and kinds of input.
 */
#include "codec_ops.h"
#include "codec_util.h"

enum kind { KIND_NORMAL, KIND_DENORMAL, KIND_HUGE, KIND_HEAVY_TAIL, KIND_SPARSE, KINDS };

static float sample(enum kind kind, struct rng *r)
{
	double v = rng_normal(r);

	switch (kind) {
	case KIND_DENORMAL:	/* and some that are not, in fp16 either */
		return (float)(v * (rng_u64(r) % 8 ? 1e-39 : 1e-6));
	case KIND_HUGE:
		return (float)(v * (rng_u64(r) % 64 ? 1e4 : 1e29));
	case KIND_HEAVY_TAIL:
		return (float)(v * exp(4 * rng_normal(r)));
	case KIND_SPARSE:
		return rng_u64(r) % 256 ? 0 : (float)v;
	default:
		return (float)v;
	}
}

enum { UNROTATED = THC_CODEC_UNROTATED, RANGES = THC_CODEC_RANGES, BOTH = UNROTATED | RANGES };

struct setting {
	unsigned int bits;
	unsigned int g;
	unsigned int chunk;
	unsigned int width;
	unsigned int correlated;
	unsigned int block_log2;
	unsigned int form;
};

/* All that a round computes, by one instruction set. */
struct result {
	float *scales, *error, *kept, *rotated, *out;
	uint8_t *packed, *lanes;
	int ret;
};

/* Sums of four bits are the lowest bits of @y; those of 32 may fill a lane. */
static unsigned int fill_lane(unsigned int y, unsigned int width)
{
	if (width == 4)
		return y % 16;
	return width == 32 ? INT32_MAX / 765 * y : y;
}

static void run(struct result *o, const struct setting *s, const struct thc_table *t,
		enum thc_simd simd, const struct thc_values *v)
{
	size_t count = v->count;
	struct thc_codec c;
	size_t padded, i, blocks;
	float *scratch, *error;
	uint16_t *counts;

	codec_setup(&c, t, s->block_log2, simd);
	assert_int_equal(thc_codec_set_correlated(&c, s->correlated), 0);
	assert_int_equal(thc_codec_set_form(&c, s->form), 0);
	padded = padded_count(&c, count);
	blocks = thc_codec_blocks(&c, count);
	o->scales = test_buffer(2 * blocks * sizeof(float));
	o->rotated = test_buffer(padded * sizeof(float));
	o->out = test_buffer(padded * sizeof(float));
	o->error = test_buffer(count * sizeof(float));
	o->kept = test_buffer(count * sizeof(float));
	o->packed = test_buffer(padded * s->bits / 8);
	o->lanes = test_buffer(padded * s->width / 8);
	scratch = test_buffer(sizeof(float) << s->block_log2);
	counts = test_buffer(padded / s->chunk * sizeof(*counts));
	if (v->error)
		memcpy(o->error, v->error, count * sizeof(float));
	error = v->error ? o->error : NULL;
	o->ret = thc_codec_measure(&c, v, &(struct thc_blocks){ 5, 3, NULL, 0 },
				   &(struct thc_residual_at){ o->kept, count, scratch }, o->scales,
				   NULL);
	thc_codec_rotate(&c, v, &(struct thc_blocks){ 5, 3, NULL, 0 }, o->rotated);
	thc_codec_compress(&c, &(struct thc_values){ v->x, v->dtype, count, error },
			   &(struct thc_blocks){ 5, 3, o->scales, 2 },
			   &(struct thc_chunks){ o->packed, s->chunk * s->bits / 8, s->chunk },
			   &(struct thc_residual_at){ error, count, scratch });
	for (i = 0; i < padded; i++) {
		unsigned int y = 3 * t->value[index_of(o->packed, s->bits, i)];

		lane_add(o->lanes, s->width, i, fill_lane(y, s->width));
	}
	for (i = 0; i < padded / s->chunk; i++)
		counts[i] = i % 5 == 4 ? 0 : 3;
	thc_codec_decode(&c,
			 &(struct thc_sums){ o->lanes, s->chunk * s->width / 8, s->chunk, s->width,
					     counts },
			 count, &(struct thc_blocks){ 5, 3, o->scales, 0 }, o->out);
	free(counts);
	free(scratch);
	thc_codec_exit(&c);
}

static void result_free(struct result *o)
{
	free(o->scales);
	free(o->rotated);
	free(o->out);
	free(o->error);
	free(o->kept);
	free(o->packed);
	free(o->lanes);
}

static void assert_same(const struct setting *s, const struct thc_table *t, enum thc_simd simd,
			enum kind kind, enum thc_dtype dtype, bool feedback)
{
	size_t block = (size_t)1 << s->block_log2, count = 2 * block + block / 3 + 7, i;
	float *x = test_buffer(count * sizeof(float)), *error = test_buffer(count * sizeof(float));
	void *typed = test_buffer(count * sizeof(float));
	struct thc_values v = { typed, dtype, count, feedback ? error : NULL };
	struct rng r = rng_seeded(kind + 1);
	struct result a, b;
	size_t padded = (count + block - 1) / block * block;

	for (i = 0; i < count; i++) {
		x[i] = sample(kind, &r);
		if (dtype == THC_FP16 && !(fabsf(x[i]) < 6e4f))
			x[i] = 6e4f;
		error[i] = 0.25f * sample(kind, &r);
	}
	thc_store(dtype, typed, x, count);
	run(&a, s, t, THC_SIMD_SCALAR, &v);
	run(&b, s, t, simd, &v);
	assert_int_equal(a.ret, 0);
	assert_int_equal(b.ret, 0);
	assert_memory_equal(a.scales, b.scales, 2 * padded / block * sizeof(float));
	assert_memory_equal(a.rotated, b.rotated, padded * sizeof(float));
	assert_memory_equal(a.packed, b.packed, padded * s->bits / 8);
	assert_memory_equal(a.error, b.error, count * sizeof(float));
	assert_memory_equal(a.kept, b.kept, count * sizeof(float));
	for (i = 0; i < count; i++) {
		float one = thc_load_one(dtype, typed, i);

		one = feedback ? one + error[i] : one;
		assert_memory_equal(&a.kept[i], &one, sizeof(one));
	}
	assert_memory_equal(a.out, b.out, padded * sizeof(float));
	result_free(&a);
	result_free(&b);
	free(typed);
	free(error);
	free(x);
}

/* Granularities small and large, odd and even, and 63 and 64 at the border of the register lookup.
 */
static const struct setting settings[] = {
	{ 4, 15, 1024, 8, 0, 10, 0 },	{ 4, 30, 1024, 8, 0, 10, 0 },
	{ 4, 31, 512, 8, 0, 11, 0 },	{ 4, 63, 1024, 8, 0, 12, 0 },
	{ 4, 64, 1024, 8, 0, 10, 0 },	{ 4, 85, 512, 8, 3, 10, 0 },
	{ 4, 1000, 512, 16, 0, 10, 0 }, { 4, 4095, 1024, 16, 5, 11, 0 },
	{ 3, 16, 1024, 8, 0, 10, 0 },	{ 2, 34, 1024, 8, 0, 10, 0 },
	{ 1, 1, 64, 8, 0, 10, 0 },	{ 4, 30, 1024, 8, 4, 10, 0 },
	{ 4, 30, 1024, 8, 64, 12, 0 },
};

static void every_dtype(const struct setting *s, enum thc_simd simd, enum kind kind)
{
	unsigned int dtype;
	struct thc_table t;

	solve(s->bits, s->g, 1.0 / 64, &t);
	for (dtype = THC_FP32; dtype <= THC_BF16; dtype++) {
		assert_same(s, &t, simd, kind, dtype, false);
		assert_same(s, &t, simd, kind, dtype, true);
	}
}

static void all_settings(enum thc_simd simd)
{
	unsigned int i, kind;

	need_simd(simd);
	for (i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		for (kind = 0; kind < KINDS; kind++)
			every_dtype(&settings[i], simd, kind);
}

/* Every number of bits with every width that takes it, in chunks as they are then, of norms and
 * ranges, rotated or not.
 */
static void all_forms(enum thc_simd simd)
{
	struct setting s = { .block_log2 = 11 };

	need_simd(simd);
	for (s.bits = 1; s.bits <= 8; s.bits++)
		for (s.width = 4; s.width <= 32; s.width *= 2)
			for (s.form = 0; s.form < 4 && s.bits <= s.width; s.form++) {
				s.g = (1U << s.bits) - 1;
				s.chunk = 8192 / s.width;
				s.correlated = s.form == 1 ? 3 : 0;
				every_dtype(&s, simd, (s.bits + s.form) % KINDS);
			}
}

static void all_block_sizes(enum thc_simd simd)
{
	struct setting s = { .bits = 4, .g = 30, .chunk = 1024, .width = 8 };
	struct thc_table t;

	need_simd(simd);
	solve(4, 30, 1.0 / 64, &t);
	for (s.block_log2 = 10; s.block_log2 <= 18; s.block_log2++)
		assert_same(&s, &t, simd, KIND_HEAVY_TAIL, THC_FP32, true);
	s.block_log2 = 20;
	assert_same(&s, &t, simd, KIND_NORMAL, THC_BF16, true);
}

static void avx2__all_settings(void **state)
{
	(void)state;
	all_settings(THC_SIMD_AVX2);
}

static void avx2__all_forms(void **state)
{
	(void)state;
	all_forms(THC_SIMD_AVX2);
}

static void avx2__all_block_sizes(void **state)
{
	(void)state;
	all_block_sizes(THC_SIMD_AVX2);
}

static void avx512__all_settings(void **state)
{
	(void)state;
	all_settings(THC_SIMD_AVX512);
}

static void avx512__all_forms(void **state)
{
	(void)state;
	all_forms(THC_SIMD_AVX512);
}

static void avx512__all_block_sizes(void **state)
{
	(void)state;
	all_block_sizes(THC_SIMD_AVX512);
}

static uint32_t fnv(uint32_t h, const void *data, size_t size)
{
	const uint8_t *p = data;

	while (size--)
		h = (h ^ *p++) * 16777619U;
	return h;
}

static uint32_t fnv_floats(uint32_t h, const float *x, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {	/* by value, whatever the byte order */
		uint32_t u;

		memcpy(&u, &x[i], sizeof(u));
		h = (h ^ u) * 16777619U;
	}
	return h;
}

/* Hashes packets, error memory and result of one round of 5000 coordinates. */
static void hash_round(const struct setting *s, enum thc_dtype dtype, bool feedback,
		       enum thc_simd simd, uint32_t *sent, uint32_t *kept)
{
	float x[5000], error[5000], typed[5000];
	const struct thc_values v = { typed, dtype, 5000, feedback ? error : NULL };
	struct rng r = rng_seeded(1);
	struct thc_table t;
	struct result o;
	size_t i;

	for (i = 0; i < 5000; i++) {	/* no math library here */
		x[i] = (float)(rng_unit(&r) + rng_unit(&r) + rng_unit(&r) - 1.5);
		error[i] = (float)(rng_unit(&r) - 0.5) * 0.25f;
	}
	thc_store(dtype, typed, x, 5000);
	solve(s->bits, s->g, 1.0 / 64, &t);
	run(&o, s, &t, simd, &v);
	*sent = fnv(2166136261U, o.packed, (size_t)3 * 2048 * s->bits / 8);
	*kept = fnv_floats(fnv_floats(2166136261U, o.error, 5000), o.out, 5000);
	result_free(&o);
}

/*
 * Ranks with different builds and machines work together, so the bits of packets and error memory
 * are fixed.
 */
static void all__bits_never_change(void **state)
{
	static const struct {
		struct setting s;
		enum thc_dtype dtype;
		bool feedback;
		uint32_t sent, kept;
	} rows[] = {
		{ { 4, 30, 1024, 8, 0, 11, 0 }, THC_FP32, true, 0x495c6556, 0x4f812066 },
		{ { 4, 30, 1024, 8, 4, 11, 0 }, THC_FP32, true, 0xf70cb29e, 0xcc8c053d },
		{ { 4, 30, 1024, 8, 0, 11, 0 }, THC_FP32, false, 0x6f90a384, 0xb41c8d80 },
		{ { 4, 30, 1024, 8, 0, 11, 0 }, THC_FP16, true, 0xf5a9cff5, 0xcfba2a09 },
		{ { 4, 30, 1024, 8, 4, 11, 0 }, THC_BF16, true, 0x2ef00e95, 0x913d16bc },
		{ { 4, 85, 512, 16, 0, 11, 0 }, THC_FP32, true, 0x7dceb336, 0x93421b6a },
		{ { 4, 1000, 512, 16, 5, 11, 0 }, THC_FP32, true, 0x60074d5f, 0x409b0c8c },
		{ { 4, 1000, 512, 16, 5, 11, 0 }, THC_FP16, false, 0x76471b82, 0x649f89ea },
		{ { 3, 7, 1024, 8, 0, 11, RANGES }, THC_FP32, true, 0x3892988c, 0xb4b75d84 },
		{ { 8, 255, 256, 32, 3, 11, 0 }, THC_BF16, true, 0x9820170f, 0x1494ce51 },
		{ { 2, 3, 2048, 4, 0, 11, UNROTATED }, THC_FP32, true, 0x3cf4b2ad, 0x0f9d100f },
		{ { 5, 31, 1024, 8, 0, 11, BOTH }, THC_FP16, true, 0xfbf0c6d7, 0xcaf27b6a },
	};
	uint32_t sent, kept;
	enum thc_simd simd;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++) {
			if (!thc_simd_ops(simd))
				continue;
			hash_round(&rows[i].s, rows[i].dtype, rows[i].feedback, simd, &sent, &kept);
			if (sent != rows[i].sent || kept != rows[i].kept)
				fail_msg("row %zu, instruction set %d: 0x%08x, 0x%08x", i, simd,
					 sent, kept);
		}
}

/* Clears exactly the given number of bytes, from any address. */
static void all__clear_zeroes_bytes(void **state)
{
	struct thc_codec c = { .ops = NULL };
	uint8_t to[512] __attribute__((aligned(64))), expected[512];
	enum thc_simd simd;
	size_t bytes, from;

	(void)state;
	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++) {
		c.ops = thc_simd_ops(simd);
		for (bytes = 0; c.ops && bytes <= 400; bytes++) {
			from = bytes % 67;
			memset(to, 0xa5, sizeof(to));
			memset(expected, 0xa5, sizeof(expected));
			memset(expected + from, 0, bytes);
			thc_codec_clear(&c, to + from, bytes);
			assert_memory_equal(to, expected, sizeof(to));
		}
	}
}

/* Copies exactly the given bytes, from the start of a cache line. */
static void all__save_copies_bytes(void **state)
{
	struct thc_codec c = { .ops = NULL };
	uint8_t from[512], to[512] __attribute__((aligned(64))), expected[512];
	enum thc_simd simd;
	size_t bytes, i;

	(void)state;
	for (i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 31 + 1);
	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++) {
		c.ops = thc_simd_ops(simd);
		for (bytes = 0; c.ops && bytes <= 400; bytes++) {
			memset(to, 0, sizeof(to));
			memset(expected, 0, sizeof(expected));
			memcpy(expected, from + bytes % 9, bytes);
			thc_codec_save(&c, to, from + bytes % 9, bytes);
			assert_memory_equal(to, expected, sizeof(to));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all__bits_never_change),
		cmocka_unit_test(all__save_copies_bytes),
		cmocka_unit_test(all__clear_zeroes_bytes),
		cmocka_unit_test(avx2__all_settings),
		cmocka_unit_test(avx2__all_forms),
		cmocka_unit_test(avx2__all_block_sizes),
		cmocka_unit_test(avx512__all_settings),
		cmocka_unit_test(avx512__all_forms),
		cmocka_unit_test(avx512__all_block_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
