// SPDX-License-Identifier: GPL-2.0
/*
 * Rounding to levels, packing, and their inverses: unbiasedness, clamping, correlated draws, order
 * of nibbles, in-place layouts, and values that are not numbers. test_codec_nmse.c tests the size
 * of the error.
 */
#include "codec_util.h"
#include "tries.h"

#define BLOCK	1024
#define Z_BOUND	5.0	/* standard deviations; fixed seeds, so a failure is a fault */

static void setup(struct thc_codec *c, unsigned int bits, unsigned int g, unsigned int block_log2)
{
	struct thc_table t;

	solve(bits, g, 1.0 / 32, &t);
	codec_setup(c, &t, block_log2, THC_SIMD_AUTO);
}

/* Unscaled rotated coordinate at grid position @a of a block of norm @norm. */
static float at_position(const struct thc_codec *c, double a, float norm)
{
	double g = c->table.granularity;

	return (float)((a - g / 2) * 2 * c->table.t * norm / g);
}

static unsigned int position(const struct thc_codec *c, const uint8_t *packed, size_t i)
{
	return c->table.value[index_of(packed, c->table.bits, i)];
}

static void quantise_same(const struct thc_codec *c, double a, size_t blocks, uint64_t round,
			  unsigned int rank, uint8_t *packed)
{
	float *rotated = test_buffer(blocks * BLOCK * sizeof(float));
	float *norms = test_buffer(blocks * sizeof(float));
	size_t i;

	for (i = 0; i < blocks; i++)
		norms[i] = 3.5f;
	for (i = 0; i < blocks * BLOCK; i++)
		rotated[i] = at_position(c, a, 3.5f);
	thc_codec_quantise(c, rotated, blocks, &(struct thc_blocks){ round, 0, norms, rank },
			   &(struct thc_chunks){ packed, BLOCK / 8 * c->table.bits, BLOCK },
			   &(struct thc_residual_at){ NULL, blocks * BLOCK, NULL });
	free(norms);
	free(rotated);
}

/* Mean and spread of the positions that many coordinates at @a are rounded to. */
static void assert_unbiased(const struct thc_codec *c, double a, uint64_t round)
{
	const struct thc_table *t = &c->table;
	size_t blocks = 32, n = blocks * BLOCK, i;
	uint8_t *packed = test_buffer(n * t->bits / 8);
	double sum = 0, p, deviation;
	unsigned int z = 0;

	while (z + 2 < t->levels && a >= t->value[z + 1])
		z++;
	p = (a - t->value[z]) / (t->value[z + 1] - t->value[z]);
	quantise_same(c, a, blocks, round, 0, packed);
	for (i = 0; i < n; i++) {
		unsigned int got = index_of(packed, t->bits, i);

		assert_true(got == z || got == z + 1);
		sum += got == z + 1;
	}
	deviation = sqrt(p * (1 - p) / (double)n);
	assert_true(fabs(sum / (double)n - p) <= Z_BOUND * deviation + 1e-6);
	free(packed);
}

static void round__unbiased_in_every_gap(void **state)
{
	static const unsigned int tables[][2] = {
		{ 4, 15 }, { 4, 30 }, { 4, 63 }, { 4, 100 }, { 4, 1000 }, { 3, 16 },
		{ 2, 34 }, { 1, 1 },  { 1, 40 }, { 5, 62 }, { 6, 100 }, { 7, 127 },
		{ 8, 255 }, { 8, 4095 },
	};
	static const double fraction[] = { 0.01, 0.3, 0.5, 0.97 };
	unsigned int i, z, k, correlated;

	(void)state;
	for (i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		for (correlated = 0; correlated <= 5; correlated += 5) {
			struct thc_codec c;

			setup(&c, tables[i][0], tables[i][1], 10);
			assert_int_equal(thc_codec_set_correlated(&c, correlated), 0);
			for (z = 0; z + 1 < c.table.levels; z += 1 + c.table.levels / 17)
				for (k = 0; k < 4; k++) {
					double lo = c.table.value[z], hi = c.table.value[z + 1];

					assert_unbiased(&c, lo + fraction[k] * (hi - lo),
							z * 4 + k);
				}
			thc_codec_exit(&c);
		}
}

/* Positions on a level stay there (to within the rounding of the float that carries them). */
static void round__levels_are_fixed_points(void **state)
{
	uint8_t packed[BLOCK / 2];
	struct thc_codec c;
	unsigned int z, i, strays;

	(void)state;
	setup(&c, 4, 30, 10);
	for (z = 0; z < 16; z++) {
		quantise_same(&c, c.table.value[z], 1, z, 0, packed);
		for (i = 0, strays = 0; i < BLOCK; i++)
			strays += index_of(packed, 4, i) != z;
		assert_int_equal(strays, 0);
	}
	thc_codec_exit(&c);
}

/* Beyond the clamp, values always round to the outermost level: the bias is their distance to it.
 */
static void assert_clamps(const struct thc_codec *c)
{
	static const double beyond[] = { 0, 1e-3, 0.5, 7, 1e6, 1e30 };
	uint8_t packed[BLOCK / 2];
	unsigned int i, k;

	for (k = 0; k < sizeof(beyond) / sizeof(*beyond); k++) {
		quantise_same(c, 30 + 1e-5 + beyond[k], 1, k, 0, packed);
		for (i = 0; i < BLOCK; i++)
			assert_int_equal(position(c, packed, i), 30);
		quantise_same(c, -1e-5 - beyond[k], 1, k, 0, packed);
		for (i = 0; i < BLOCK; i++)
			assert_int_equal(position(c, packed, i), 0);
	}
	quantise_same(c, INFINITY, 1, 0, 0, packed);
	assert_int_equal(packed[0], 0xff);
	quantise_same(c, NAN, 1, 0, 0, packed);
	assert_int_equal(packed[0], 0);
}

/*
 * A coordinate on a level stays there, even for a draw of zero, which about four of 2^26
 * coordinates get. With sanitizers fewer are tested.
 */
static void assert_zero_stays(const struct thc_codec *c)
{
	const size_t blocks = 256;
	uint8_t *packed = test_buffer(blocks * BLOCK / 2), *want = test_buffer(blocks * BLOCK / 2);
	uint64_t round;

	assert_int_equal(c->table.value[8], 15);
	memset(want, 0x88, blocks * BLOCK / 2);
	for (round = 0; round < tries(256); round++) {
		quantise_same(c, 15, blocks, round, 0, packed);
		assert_memory_equal(packed, want, blocks * BLOCK / 2);
	}
	free(want);
	free(packed);
}

static void every_simd(void (*check)(const struct thc_codec *))
{
	enum thc_simd simd;

	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++) {
		struct thc_table t;
		struct thc_codec c;

		solve(4, 30, 1.0 / 32, &t);
		if (thc_codec_init(&c, &t, 10, 1, simd) == -EOPNOTSUPP) {
			print_message("not on this CPU: instruction set %d\n", simd);
			continue;
		}
		check(&c);
		thc_codec_exit(&c);
	}
}

static void round__clamps(void **state)
{
	(void)state;
	every_simd(assert_clamps);
}

static void round__zero_stays_zero(void **state)
{
	(void)state;
	every_simd(assert_zero_stays);
}

static double correlation(const uint8_t *a, const uint8_t *b, size_t n, size_t shift)
{
	double sum = 0;
	size_t i;

	for (i = 0; i + shift < n; i++)
		sum += index_of(a, 4, i) == index_of(b, 4, i + shift) ? 1 : -1;
	return sum / sqrt((double)(n - shift));
}

/* Half-way positions: draws of other ranks, rounds and coordinates agree half of the time. */
static void round__draws_are_independent(void **state)
{
	size_t blocks = 64, n = blocks * BLOCK, shift;
	uint8_t *a = test_buffer(n / 2), *b = test_buffer(n / 2);
	struct thc_codec c;

	(void)state;
	setup(&c, 4, 15, 10);
	quantise_same(&c, 7.5, blocks, 1, 0, a);
	quantise_same(&c, 7.5, blocks, 1, 0, b);
	assert_memory_equal(a, b, n / 2);
	quantise_same(&c, 7.5, blocks, 1, 1, b);
	for (shift = 0; shift < 70; shift++)
		assert_true(fabs(correlation(a, b, n, shift)) < Z_BOUND);
	quantise_same(&c, 7.5, blocks, 2, 0, b);
	for (shift = 0; shift < 70; shift++)
		assert_true(fabs(correlation(a, b, n, shift)) < Z_BOUND);
	for (shift = 1; shift < 1100; shift++)
		assert_true(fabs(correlation(a, a, n, shift)) < Z_BOUND);
	thc_codec_exit(&c);
	free(b);
	free(a);
}

/* Each rank has an n-th of the unit interval, so nf of n equal inputs round up. */
static void correlated__counts_are_exact(void **state)
{
	static const unsigned int ranks[] = { 2, 3, 4, 8, 64 };
	unsigned int k, rank, n;
	struct thc_codec c;

	(void)state;
	setup(&c, 4, 15, 10);
	for (k = 0; k < sizeof(ranks) / sizeof(*ranks); k++) {
		unsigned int up[BLOCK] = { 0 }, floor_or_ceil = 0;
		uint8_t packed[BLOCK / 2];
		double f = 0.37;
		size_t i;

		n = ranks[k];
		assert_int_equal(thc_codec_set_correlated(&c, n), 0);
		for (rank = 0; rank < n; rank++) {
			quantise_same(&c, 6 + f, 1, 4, rank, packed);
			for (i = 0; i < BLOCK; i++)
				up[i] += index_of(packed, 4, i) == 7;
		}
		for (i = 0; i < BLOCK; i++)
			floor_or_ceil += up[i] == floor(n * f) || up[i] == ceil(n * f);
		assert_int_equal(floor_or_ceil, BLOCK);
	}
	thc_codec_exit(&c);
}

static void pack__even_coordinate_in_high_nibble(void **state)
{
	static const uint8_t want[] = { 0x01, 0x10, 0x7f, 0xf7, 0xff, 0x23, 0x9a, 0x00 };
	uint8_t packed[BLOCK / 2];
	float rotated[BLOCK], norm = 2;
	struct thc_codec c;
	size_t i;

	(void)state;
	setup(&c, 4, 30, 10);
	for (i = 0; i < BLOCK / 2; i++) {
		uint8_t pair = want[i * 7 % 8];

		rotated[2 * i] = at_position(&c, c.table.value[pair >> 4], norm);
		rotated[2 * i + 1] = at_position(&c, c.table.value[pair & 15], norm);
	}
	thc_codec_quantise(&c, rotated, 1, &(struct thc_blocks){ 1, 0, &norm, 0 },
			   &(struct thc_chunks){ packed, BLOCK / 2, BLOCK },
			   &(struct thc_residual_at){ NULL, BLOCK, NULL });
	for (i = 0; i < BLOCK / 2; i++)
		assert_int_equal(packed[i], want[i * 7 % 8]);
	thc_codec_exit(&c);
}

/* The indices 1 2 3 4 5 6 7 0 of three bits are known bytes; for every number of bits, packing
 * equals a loop over bits.
 */
static void pack__most_significant_bits_first(void **state)
{
	static const uint8_t known[] = { 0x29, 0xcb, 0xb8 };
	uint8_t packed[BLOCK], want[BLOCK];
	float rotated[BLOCK], norm = 2;
	unsigned int bits, k, z;
	struct thc_codec c;
	size_t i;

	(void)state;
	for (bits = 1; bits <= 8; bits++) {
		setup(&c, bits, (1U << bits) - 1, 10);
		memset(want, 0, sizeof(want));
		memset(packed, 0xa5, sizeof(packed));
		for (i = 0; i < BLOCK; i++) {
			z = (unsigned int)(i * (i / 8 + 1) + 1) & ((1U << bits) - 1);
			rotated[i] = at_position(&c, z, norm);
			for (k = 0; k < bits; k++)
				want[(i * bits + k) / 8] |= (uint8_t)((z >> (bits - 1 - k) & 1)
								      << (7 - (i * bits + k) % 8));
		}
		thc_codec_quantise(&c, rotated, 1, &(struct thc_blocks){ 1, 0, &norm, 0 },
				   &(struct thc_chunks){ packed, BLOCK * bits / 8, BLOCK },
				   &(struct thc_residual_at){ NULL, BLOCK, NULL });
		assert_memory_equal(packed, want, BLOCK * bits / 8);
		for (i = BLOCK * bits / 8; i < BLOCK; i++)
			assert_int_equal(packed[i], 0xa5);
		if (bits == 3)
			assert_memory_equal(packed, known, sizeof(known));
		thc_codec_exit(&c);
	}
}

static void assert_fused(unsigned int block_log2, unsigned int bits, unsigned int chunk,
			 bool feedback)
{
	size_t n = (size_t)3 << block_log2, count = n - 100, bytes = chunk * bits / 8;
	float *x = normal_vector(n, 1), *rotated = test_buffer(n * sizeof(float));
	float *scratch = test_buffer(sizeof(float) << block_log2);
	float *error[2] = { test_buffer(n * sizeof(float)), test_buffer(n * sizeof(float)) };
	uint8_t *packed = test_buffer(n * bits / 8), *fused = test_buffer(n * bits / 8);
	float norms[3];
	struct thc_codec c;

	setup(&c, bits, bits == 4 ? 30 : (1U << bits) - 1, block_log2);
	assert_int_equal(thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, count, NULL },
					 norms, NULL),
			 0);
	thc_codec_rotate(&c, &(struct thc_values){ x, THC_FP32, count, NULL },
			 &(struct thc_blocks){ 1, 0, NULL, 0 }, rotated);
	thc_codec_quantise(&c, rotated, 3, &(struct thc_blocks){ 1, 0, norms, 1 },
			   &(struct thc_chunks){ packed, bytes, chunk },
			   &(struct thc_residual_at){ feedback ? error[0] : NULL, count, scratch });
	/* one pass over the gradient gives the same */
	thc_codec_compress(&c,
			   &(struct thc_values){ x, THC_FP32, count, feedback ? error[1] : NULL },
			   &(struct thc_blocks){ 1, 0, norms, 1 },
			   &(struct thc_chunks){ fused, bytes, chunk },
			   &(struct thc_residual_at){ feedback ? error[1] : NULL, count, scratch });
	assert_memory_equal(packed, fused, n * bits / 8);
	assert_memory_equal(error[0], error[1], n * sizeof(float));
	/* nor does it matter if the input already lies in the error memory */
	memcpy(error[1], x, count * sizeof(float));
	memset(fused, 0, n * bits / 8);
	thc_codec_compress(&c, &(struct thc_values){ error[1], THC_FP32, count, NULL },
			   &(struct thc_blocks){ 1, 0, norms, 1 },
			   &(struct thc_chunks){ fused, bytes, chunk },
			   &(struct thc_residual_at){ error[1], count, scratch });
	assert_memory_equal(packed, fused, n * bits / 8);
	if (feedback)
		assert_memory_equal(error[0], error[1], n * sizeof(float));
	thc_codec_exit(&c);
	free(packed);
	free(fused);
	free(error[0]);
	free(error[1]);
	free(scratch);
	free(rotated);
	free(x);
}

static void pack__fused(void **state)
{
	unsigned int block_log2, bits, chunk;

	(void)state;
	for (block_log2 = 10; block_log2 <= 14; block_log2++) {
		for (bits = 1; bits <= 8; bits++)
			for (chunk = 256; chunk <= 2048 && chunk <= 1U << block_log2; chunk *= 2) {
				assert_fused(block_log2, bits, chunk, false);
				assert_fused(block_log2, bits, chunk, true);
			}
	}
}

/* Compressing block by block, as a client sends partitions, equals compressing the bucket at once.
 */
static void compress__range_by_range(void **state)
{
	size_t n = 4 * 2048, block;
	float *x = normal_vector(n, 2), *scratch = test_buffer(2048 * sizeof(float)), norms[4];
	uint8_t *whole = test_buffer(n / 2), *part = test_buffer(n / 2);
	struct thc_codec c;

	(void)state;
	setup(&c, 4, 30, 11);
	assert_int_equal(
		thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, n, NULL }, norms, NULL), 0);
	thc_codec_compress(&c, &(struct thc_values){ x, THC_FP32, n, NULL },
			   &(struct thc_blocks){ 1, 0, norms, 0 },
			   &(struct thc_chunks){ whole, 512, 1024 },
			   &(struct thc_residual_at){ NULL, n, scratch });
	for (block = 0; block < 4; block++)
		thc_codec_compress(&c,
				   &(struct thc_values){ x + block * 2048, THC_FP32, 2048, NULL },
				   &(struct thc_blocks){ 1, block, norms + block, 0 },
				   &(struct thc_chunks){ part + block * 1024, 512, 1024 },
				   &(struct thc_residual_at){ NULL, 2048, scratch });
	assert_memory_equal(whole, part, n / 2);
	thc_codec_exit(&c);
	free(part);
	free(whole);
	free(scratch);
	free(x);
}

static void assert_decode_from_apart(unsigned int block_log2, unsigned int chunk,
				     unsigned int width)
{
	size_t n = (size_t)2 << block_log2, lane_bytes = chunk * width / 8, i;
	uint8_t *lanes = test_buffer(n * width / 8);
	float *out = test_buffer(n * sizeof(float)), *same = test_buffer(n * sizeof(float));
	uint8_t *apart = test_buffer(n * sizeof(float));
	uint16_t *counts = test_buffer(n / chunk * sizeof(*counts));
	float norms[2] = { 3, 5 };
	struct rng r = rng_seeded(chunk + width);
	struct thc_codec c;

	setup(&c, 4, 30, block_log2);
	for (i = 0; i < n; i++)	/* use the upper bytes too */
		lane_add(lanes, width, i, (unsigned int)(rng_u64(&r) >> (65 - width)));
	for (i = 0; i < n / chunk; i++) {
		counts[i] = (uint16_t)(i % 3 == 2 ? 0 : (width == 8 ? 8 : 139) - i % 3);
		memcpy(apart + i * chunk * 4, lanes + i * lane_bytes, lane_bytes);
	}
	thc_codec_decode(&c, &(struct thc_sums){ lanes, lane_bytes, chunk, width, counts }, n,
			 &(struct thc_blocks){ 4, 1, norms, 0 }, out);
	thc_codec_decode(&c, &(struct thc_sums){ apart, (size_t)chunk * 4, chunk, width, counts },
			 n, &(struct thc_blocks){ 4, 1, norms, 0 }, same);
	assert_memory_equal(out, same, n * sizeof(float));
	assert_true(norm_of(out, n) > 0);
	thc_codec_exit(&c);
	free(counts);
	free(apart);
	free(same);
	free(out);
	free(lanes);
}

static void decode__from_lanes_apart(void **state)
{
	unsigned int block_log2, width, chunk;

	(void)state;
	for (block_log2 = 10; block_log2 <= 13; block_log2++)
		for (width = 4; width <= 32; width *= 2)
			for (chunk = 256; chunk <= 2048 && chunk <= 1U << block_log2; chunk *= 2)
				assert_decode_from_apart(block_log2, chunk, width);
}

#define FORMULA_COUNT	4096
#define FORMULA_NORM	7.25f

/* Layout of lanes; levels and ranks are scaled to the width of sums. */
struct layout {
	unsigned int width;
	unsigned int chunk;
	unsigned int times;
};

static void assert_equals_formula(const struct thc_codec *c, const struct layout *l)
{
	static const uint16_t counts[8] = { 4, 0, 3, 1, 4, 4, 0, 2 };
	double want[FORMULA_COUNT], m = c->table.t * FORMULA_NORM / sqrt(FORMULA_COUNT);
	double *signs = reference_signs(c, 2, 6);
	uint8_t lanes[FORMULA_COUNT * 4] = { 0 };
	float norm = FORMULA_NORM, out[FORMULA_COUNT];
	struct rng r = rng_seeded(3);
	uint16_t many[8];
	size_t i;

	for (i = 0; i < 8; i++)
		many[i] = (uint16_t)(counts[i] * l->times);
	for (i = 0; i < FORMULA_COUNT; i++) {
		unsigned int count = counts[i / l->chunk];
		unsigned int y = (unsigned int)(rng_u64(&r) % (30 * (count ? count : 1) + 1));

		if (l->width == 4)
			y %= 16;
		want[i] = count ? -m + (double)y / count * 2 * m / 30 : 0;
		lane_add(lanes, l->width, i, y * l->times);
	}
	reference_hadamard(want, FORMULA_COUNT);
	thc_codec_decode(c,
			 &(struct thc_sums){ lanes, (size_t)l->chunk * l->width / 8, l->chunk,
					     l->width, many },
			 FORMULA_COUNT, &(struct thc_blocks){ 2, 6, &norm, 0 }, out);
	for (i = 0; i < FORMULA_COUNT; i++)
		assert_true(fabs(want[i] / sqrt(FORMULA_COUNT) * signs[i] - out[i]) < 1e-6 * norm);
	free(signs);
}

/* Lanes -> mean against the formula in double, with a divisor per chunk and chunks missing, up to
 * the largest count of contributors.
 */
static void decode__equals_formula(void **state)
{
	static const struct layout layouts[] = {
		{ 4, 2048, 1 }, { 8, 512, 1 }, { 16, 512, 500 }, { 32, 512, 16000 },
	};
	unsigned int i;
	struct thc_codec c;

	(void)state;
	setup(&c, 4, 30, 12);
	for (i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		assert_equals_formula(&c, &layouts[i]);
	thc_codec_exit(&c);
}

/* A norm of zero or infinity decodes to zeros. */
static void decode__without_a_norm(void **state)
{
	static const float norms[] = { 0, INFINITY };
	static const uint16_t counts[8] = { 4, 0, 3, 1, 4, 4, 0, 2 };
	uint8_t lanes[FORMULA_COUNT];
	float out[FORMULA_COUNT];
	struct thc_codec c;
	unsigned int i;

	(void)state;
	setup(&c, 4, 30, 12);
	memset(lanes, 7, sizeof(lanes));
	for (i = 0; i < sizeof(norms) / sizeof(*norms); i++) {
		thc_codec_decode(&c, &(struct thc_sums){ lanes, 512, 512, 8, counts },
				 FORMULA_COUNT, &(struct thc_blocks){ 2, 6, &norms[i], 0 }, out);
		assert_true(norm_of(out, FORMULA_COUNT) == 0);
	}
	thc_codec_exit(&c);
}

static const struct {
	float value;
	uint16_t fp16, bf16;
} not_finite[] = {
	{ NAN, 0x7e00, 0x7fc0 },
	{ INFINITY, 0x7c00, 0x7f80 },
	{ -INFINITY, 0xfc00, 0xff80 },
};

static void norms__where_it_is_not_finite(void **state)
{
	static const size_t places[] = { 0, 15, 1023, 1024, 2047, 5000, 9998 };
	size_t n = 9999, i, k;
	float *x = normal_vector(n, 3), *error = normal_vector(n, 4), norms[16];
	uint16_t *half = test_buffer(n * sizeof(*half));
	enum thc_dtype dtype;
	struct thc_codec c;

	(void)state;
	setup(&c, 4, 30, 11);
	for (i = 0; i < 7; i++)
		for (k = 0; k < 3; k++) {
			float kept = x[places[i]];
			size_t bad = 12345;

			x[places[i]] = not_finite[k].value;
			x[n - 1] = NAN;		/* the first is reported */
			assert_int_equal(
				thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, n, NULL },
						norms, &bad),
				-EDOM);
			assert_int_equal(bad, places[i]);
			assert_int_equal(
				thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, n, error },
						norms, NULL),
				-EDOM);
			x[n - 1] = x[places[i]] = kept;
			for (dtype = THC_FP16; dtype <= THC_BF16; dtype++) {
				thc_store(dtype, half, x, n);
				half[places[i]] = dtype == THC_FP16 ? not_finite[k].fp16 :
								      not_finite[k].bf16;
				assert_int_equal(thc_codec_norms(&c,
								 &(struct thc_values){ half, dtype,
										       n, NULL },
								 norms, &bad),
						 -EDOM);
				assert_int_equal(bad, places[i]);
			}
			error[places[i]] = not_finite[k].value;
			assert_int_equal(
				thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, n, error },
						norms, &bad),
				-EDOM);
			assert_int_equal(bad, places[i]);
			error[places[i]] = 0;
		}
	assert_int_equal(
		thc_codec_norms(&c, &(struct thc_values){ x, THC_FP32, n, error }, norms, NULL), 0);
	thc_codec_exit(&c);
	free(half);
	free(error);
	free(x);
}

/* Norms are right over the whole range, also where squares leave that of a float. */
static void norms__any_magnitude(void **state)
{
	float *x = normal_vector(3000, 3), *scaled = test_buffer(3000 * sizeof(float)), norms[3];
	struct thc_codec c;
	size_t i, bad = 0;
	int e;

	(void)state;
	setup(&c, 4, 30, 10);
	for (e = -140; e <= 105; e += 5) {
		for (i = 0; i < 3000; i++)
			scaled[i] = ldexpf(x[i], e);
		assert_int_equal(
			thc_codec_norms(&c, &(struct thc_values){ scaled, THC_FP32, 3000, NULL },
					norms, NULL),
			0);
		for (i = 0; i < 3; i++) {
			double want = norm_of(scaled + i * 1024, i == 2 ? 3000 - 2048 : 1024);

			assert_true(fabs(norms[i] / want - 1) < 1e-6 ||
				    fabs(norms[i] - want) < 0x1p-149);
		}
	}
	memset(scaled, 0, 3000 * sizeof(float));
	assert_int_equal(thc_codec_norms(&c, &(struct thc_values){ scaled, THC_FP32, 3000, NULL },
					 norms, NULL),
			 0);
	assert_true(norms[0] == 0 && norms[1] == 0 && norms[2] == 0);
	scaled[1500] = 0x1.8p112f;
	assert_int_equal(thc_codec_norms(&c, &(struct thc_values){ scaled, THC_FP32, 3000, NULL },
					 norms, &bad),
			 -ERANGE);
	assert_int_equal(bad, 1024);
	scaled[1500] = 3e38f;
	assert_int_equal(thc_codec_norms(&c, &(struct thc_values){ scaled, THC_FP32, 3000, NULL },
					 norms, &bad),
			 -ERANGE);
	thc_codec_exit(&c);
	free(scaled);
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round__unbiased_in_every_gap),
		cmocka_unit_test(round__levels_are_fixed_points),
		cmocka_unit_test(round__clamps),
		cmocka_unit_test(round__zero_stays_zero),
		cmocka_unit_test(round__draws_are_independent),
		cmocka_unit_test(correlated__counts_are_exact),
		cmocka_unit_test(pack__even_coordinate_in_high_nibble),
		cmocka_unit_test(pack__most_significant_bits_first),
		cmocka_unit_test(pack__fused),
		cmocka_unit_test(compress__range_by_range),
		cmocka_unit_test(decode__from_lanes_apart),
		cmocka_unit_test(decode__equals_formula),
		cmocka_unit_test(decode__without_a_norm),
		cmocka_unit_test(norms__where_it_is_not_finite),
		cmocka_unit_test(norms__any_magnitude),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
