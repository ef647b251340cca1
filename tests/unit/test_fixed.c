// SPDX-License-Identifier: GPL-2.0
/*
 * Floats as fixed point and as limbs (userspace/libthc/fixed.h), in every instruction set:
 * vectors computed by hand, fixed point by its definition, and exact means against big integers
 * (tests/lib/exactmean.h), of 10^6 values or THC_EXACT.
 */
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../lib/exactmean.h"
#include "codec.h"
#include "codec_ops.h"
#include "fixed.h"
#include "randomword.h"

#define RANKS	64
#define N	256

static const struct thc_fixed_ops *loops[3];
static unsigned int all_loops;

static int setup(void **state)
{
	enum thc_simd simd;

	(void)state;
	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++)
		if (thc_simd_ops(simd))
			loops[all_loops++] = thc_simd_ops(simd)->fixed;
	return 0;
}

static float float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* --- vectors -------------------------------------------------------------- */

static void fixed__vector(void **state)
{
	const float x[] = { 1.5f, -0.1f, 0x1p-20f };
	unsigned int k = thc_fixed_bits(32, 4), i;
	struct thc_scale s;
	int32_t lanes[3];
	size_t bad;

	(void)state;
	assert_int_equal(k, 29);
	for (i = 0; i < all_loops; i++) {
		assert_true(thc_scale_measure(loops[i], x, 3, true, &s, &bad));
		assert_int_equal(s.top, 1);
		assert_int_equal(s.low, -27);
		assert_int_equal(thc_scale_limbs(s, k), 1);
		loops[i]->fixed(x, 3, s.top, k, 32, lanes);
		assert_int_equal(lanes[0], 402653184);
		assert_int_equal(lanes[1], -26843546);
		assert_int_equal(lanes[2], 256);
		loops[i]->limb(x, 3, s.low, k, 0, lanes);
		assert_int_equal(lanes[0], 201326592);
		assert_int_equal(lanes[1], -13421773);
		assert_int_equal(lanes[2], 128);
		/* another rank has 2^-40 */
		s.low = -40;
		assert_int_equal(thc_scale_limbs(s, k), 2);
		loops[i]->limb(x, 2, s.low, k, 0, lanes);
		assert_int_equal(lanes[0], 0);
		assert_int_equal(lanes[1], -429498368);
		loops[i]->limb(x, 2, s.low, k, 1, lanes);
		assert_int_equal(lanes[0], 3072);
		assert_int_equal(lanes[1], -204);
	}
}

static void scale__of_lanes(void **state)
{
	static const uint32_t wild[] = { 1, 362, 363, 512, 640, 641, UINT32_MAX };
	static const struct thc_scale sound[] = {
		{ -148, -149 }, { 128, -149 }, { 128, 104 }, { 1, -27 }, { 0, -1 }
	};
	struct thc_scale s;
	unsigned int i, k;

	(void)state;
	for (i = 0; i < sizeof(sound) / sizeof(*sound); i++) {
		s = thc_scale_of_lanes(thc_scale_top_lane(sound[i]), thc_scale_low_lane(sound[i]));
		assert_int_equal(s.top, sound[i].top);
		assert_int_equal(s.low, sound[i].low);
	}
	s = thc_scale_of_lanes(thc_scale_top_lane(THC_SCALE_ZERO),
			       thc_scale_low_lane(THC_SCALE_ZERO));
	assert_true(thc_scale_is_zero(s));
	assert_int_equal(thc_scale_limbs(s, 25), 0);
	/* lanes that no rank sends */
	for (i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
		for (k = 0; k < sizeof(wild) / sizeof(*wild); k++) {
			s = thc_scale_of_lanes(wild[i], wild[k]);
			assert_in_range(thc_scale_limbs(s, 25), 1, THC_LIMBS_MAX);
			assert_in_range(thc_scale_limbs(s, 31), 1, THC_LIMBS_MAX);
		}
	}
}

static void measure__what_is_not_finite(void **state)
{
	float x[100] = { 1, 2, 3 };
	struct thc_scale s;
	bool exact = false;
	unsigned int k;
	size_t bad;

	(void)state;
	for (k = 0; k < 2 * all_loops; k++, exact = !exact) {
		const struct thc_fixed_ops *ops = loops[k / 2];

		x[71] = x[93] = NAN;
		assert_false(thc_scale_measure(ops, x, 100, exact, &s, &bad));
		assert_int_equal(bad, 71);
		x[5] = -INFINITY;
		assert_false(thc_scale_measure(ops, x, 100, exact, &s, &bad));
		assert_int_equal(bad, 5);
		x[5] = x[71] = x[93] = 0;
		assert_true(thc_scale_measure(ops, x, 100, exact, &s, &bad));
		assert_int_equal(s.top, 2);
		assert_int_equal(s.low, exact ? 0 : THC_SCALE_LOW_MIN);
	}
}

/* --- values ----------------------------------------------------------------- */

/* Kinds of buckets, described by their names. */
enum { NORMAL, MIDDLE, SUBNORMAL, EXTREME, OPPOSITE, SPARSE, ZERO, ONE_ZERO, WIDE, BUCKETS };

/* Such that the mean is the middle of two values of @dtype, m + 1/2 in units of the last bit, or a
 * tiny bit off. @seed: the coordinate's, for all ranks. @block: that of all coordinates, whose bits
 * lie close enough together for one or two digits, if they are of few binades.
 */
static float middle(unsigned int ranks, unsigned int rank, enum thc_dtype dtype, uint64_t seed,
		    uint64_t block)
{
	static const int digits[] = { 24, 11, 8 };
	unsigned int least = 1U << (digits[dtype] - 1), m = least + (unsigned int)(seed % least);
	int unit = dtype == THC_FP16 ? (int)(block % 3) - 2 : (int)(block % 100) - 60;
	int tiny =
		unit - 1 -
		(int)(dtype == THC_FP16 ? seed >> 48 & 15 : (block >> 32) % 60 + (seed >> 48 & 3));
	float sign = seed >> 63 ? -1 : 1;

	if (ranks == 1)
		return ldexpf(sign * (float)m, unit);
	if (!rank)	/* what decides, but for blocks of middles alone */
		return seed >> 40 & 3 && block >> 62 ? ldexpf(seed >> 42 & 1 ? -1 : 1, tiny) : 0;
	if (ranks == 2)
		return ldexpf(sign * (float)(2 * (m / 2) + 1), unit);
	if (rank == 1)
		return ldexpf(sign * (float)ranks / 2, unit);
	/* the others have ranks * m together */
	return ldexpf(sign * (float)(ranks * (m / (ranks - 2) / 4 * 4)), unit);
}

static float value(unsigned int bucket, unsigned int rank, unsigned int i)
{
	uint32_t r = (uint32_t)(random_word() >> 32), sign = r & 1U << 31, mantissa = r & 0x7fffff;

	switch (bucket) {
	case NORMAL:	/* exponents over 12 binades */
		return float_of(sign | (120 - (r >> 23) % 12) << 23 | mantissa);
	case SUBNORMAL:
		return float_of(sign | (mantissa >> r % 23));
	case EXTREME:
		return float_of(sign | (r >> 29 & 1 ? 0x7f7fffff : r >> 30 & 1 ? 1 : mantissa));
	case OPPOSITE:
		return float_of((rank & 1U) << 31 | (100 + i % 50) << 23 | i * 7919);
	case SPARSE:
		return r % 7 ? 0 : float_of(sign | 127U << 23 | mantissa);
	case ZERO:
		return float_of(sign);
	case ONE_ZERO:
		return rank ? float_of(sign | 130U << 23 | mantissa) : 0;
	default:
		return float_of(sign | ((r >> 8) % 254 + 1) << 23 | mantissa);
	}
}

/* A 16-bit type's values are floats with fewer bits. */
static void fill(float x[RANKS][N], unsigned int bucket, unsigned int ranks, enum thc_dtype dtype)
{
	unsigned int rank, i;
	uint64_t seed[N], block = random_word();
	uint16_t half[N];

	for (i = 0; i < N; i++)
		seed[i] = random_word();
	for (rank = 0; rank < ranks; rank++) {
		for (i = 0; i < N; i++)
			x[rank][i] = bucket == MIDDLE ? middle(ranks, rank, dtype, seed[i], block) :
							value(bucket, rank, i);
		if (dtype == THC_FP32)
			continue;
		for (i = 0; i < N; i++)
			thc_store_one(dtype, half, i, x[rank][i]);
		thc_load(dtype, x[rank], half, N);
		for (i = 0; i < N; i++)	/* rounded up to infinity: the largest bf16 */
			if (isinf(x[rank][i]))
				x[rank][i] = copysignf(0x1.fep127f, x[rank][i]);
	}
}

static struct thc_scale scale_of(const struct thc_fixed_ops *ops, float x[RANKS][N],
				 unsigned int ranks)
{
	uint32_t top = 0, low = 0, lane;
	struct thc_scale s;
	unsigned int rank;
	size_t bad;

	for (rank = 0; rank < ranks; rank++) {
		assert_true(thc_scale_measure(ops, x[rank], N, true, &s, &bad));
		lane = thc_scale_top_lane(s);
		top = lane > top ? lane : top;
		lane = thc_scale_low_lane(s);
		low = lane > low ? lane : low;
	}
	return thc_scale_of_lanes(top, low);
}

static void assert_mean(const struct exact_sum *sum, unsigned int ranks, enum thc_dtype dtype,
			float got, const char *what, unsigned int bucket, unsigned int i)
{
	uint32_t wanted = exact_bits(sum, ranks, dtype), bits = 0;

	/* a mean of zero has the sum's sign, which is + for +0 */
	thc_store_one(dtype, &bits, 0, got);
	if (bits != wanted)
		fail_msg("%s of %u ranks, bucket %u, value %u, dtype %d: %08x, not %08x", what,
			 ranks, bucket, i, dtype, bits, wanted);
}

/* --- exact -------------------------------------------------------------------- */

static void check_exact(const struct thc_fixed_ops *ops, float x[RANKS][N], unsigned int ranks,
			enum thc_dtype dtype, unsigned int bucket)
{
	static int32_t sums[THC_LIMBS_MAX][N], lanes[N];
	unsigned int bits = thc_fixed_bits(32, ranks), limbs, rank, k, i;
	struct thc_scale s = scale_of(ops, x, ranks);
	const int32_t *digit[THC_LIMBS_MAX];
	float out[N] = { 0 };

	limbs = thc_scale_limbs(s, bits);
	assert_in_range(limbs, 0, THC_LIMBS_MAX);
	memset(sums, 0, sizeof(sums));
	for (k = 0; k < limbs; k++) {
		digit[k] = sums[k];
		for (rank = 0; rank < ranks; rank++) {
			ops->limb(x[rank], N, s.low, bits, k, lanes);
			for (i = 0; i < N; i++) {
				int64_t sum = (int64_t)sums[k][i] + lanes[i];

				assert_true(sum == (int32_t)sum);
				sums[k][i] = (int32_t)sum;
			}
		}
	}
	if (limbs)
		thc_fixed_means(
			ops, digit, limbs, N,
			&(struct thc_mean){ ldexp(1, s.low), ranks, bits, dtype != THC_FP32 }, out);
	for (i = 0; i < N; i++) {
		struct exact_sum sum = { 0 };

		for (rank = 0; rank < ranks; rank++)
			exact_add(&sum, thc_float_bits(x[rank][i]), THC_FP32);
		assert_mean(&sum, ranks, dtype, out[i], "exact mean", bucket, i);
	}
}

static void exact__is_the_mean_rounded_once(void **state)
{
	static const unsigned int ranks[] = { 1, 2, 3, 4, 5, 7, 8, 10, 33, 64 };
	const char *text = getenv("THC_EXACT");
	uint64_t wanted = text ? strtoull(text, NULL, 10) : 1000000, done;
	static float x[RANKS][N];
	unsigned int turn = 0, n;

	(void)state;
	for (done = 0; done < wanted; done += N, turn++) {
		unsigned int bucket = turn % BUCKETS;
		enum thc_dtype dtype = turn / BUCKETS % 3;

		n = ranks[turn / BUCKETS / 3 % (sizeof(ranks) / sizeof(*ranks))];
		fill(x, bucket, n, dtype);
		check_exact(loops[random_word() % all_loops], x, n, dtype, bucket);
	}
}

/* --- fixed point ---------------------------------------------------------------- */

static int32_t lane_at(const void *lanes, unsigned int width, unsigned int i)
{
	return width == 8 ? ((const int8_t *)lanes)[i] :
	       width == 16 ? ((const int16_t *)lanes)[i] :
			     ((const int32_t *)lanes)[i];
}

static void put_lane(void *lanes, unsigned int width, unsigned int i, int64_t sum)
{
	if (width == 8) {
		assert_true(sum == (int8_t)sum);
		((int8_t *)lanes)[i] = (int8_t)sum;
	} else if (width == 16) {
		assert_true(sum == (int16_t)sum);
		((int16_t *)lanes)[i] = (int16_t)sum;
	} else {
		assert_true(sum == (int32_t)sum);
		((int32_t *)lanes)[i] = (int32_t)sum;
	}
}

static void check_fixed(const struct thc_fixed_ops *ops, float x[RANKS][N], unsigned int ranks,
			enum thc_dtype dtype, unsigned int bucket, unsigned int width)
{
	static int32_t lanes[N], sums[N];
	unsigned int bits = thc_fixed_bits(width, ranks), rank, i;
	struct thc_scale s = scale_of(ops, x, ranks);
	int64_t most = (1LL << bits) - 1;
	float out[N];

	if (thc_scale_is_zero(s))
		return;
	memset(sums, 0, sizeof(sums));
	for (rank = 0; rank < ranks; rank++) {
		ops->fixed(x[rank], N, s.top, bits, width, lanes);
		for (i = 0; i < N; i++) {
			double scaled = nearbyint(ldexp((double)x[rank][i], (int)bits - s.top));
			int32_t lane = lane_at(lanes, width, i);

			scaled = scaled > (double)most ? (double)most :
				 scaled < -(double)most ? -(double)most :
							  scaled;
			if (lane != (int32_t)scaled)
				fail_msg("bucket %u, %u bits, value %u: %d, not %.0f", bucket,
					 width, i, lane, scaled);
			put_lane(sums, width, i, (int64_t)lane_at(sums, width, i) + lane);
		}
	}
	ops->mean(sums, width, N,
		  &(struct thc_mean){ ldexp(1, s.top - (int)bits), ranks, bits, dtype != THC_FP32 },
		  out);
	for (i = 0; i < N; i++) {
		int32_t sum = lane_at(sums, width, i);
		struct exact_sum exact = { 0 };

		big_add(sum < 0 ? &exact.negative : &exact.positive,
			(uint32_t)(sum < 0 ? -(int64_t)sum : sum), s.top - (int)bits);
		assert_mean(&exact, ranks, dtype, out[i], "fixed mean", bucket, i);
	}
}

static void fixed__rounds_to_even_and_never_overflows(void **state)
{
	static const unsigned int ranks[] = { 1, 2, 3, 4, 8 }, widths[] = { 8, 16, 32 };
	static float x[RANKS][N];
	unsigned int turn, bucket, n;

	(void)state;
	for (turn = 0; turn < 3 * 3 * 5 * 2; turn++) {
		enum thc_dtype dtype = turn / 3 % 3;

		for (bucket = 0; bucket < BUCKETS; bucket++) {
			n = ranks[turn / 9 % 5];
			fill(x, bucket, n, dtype);
			check_fixed(loops[(turn + bucket) % all_loops], x, n, dtype, bucket,
				    widths[turn % 3]);
		}
	}
}

/* A contribution is off by at most half a unit of the lane, 2^(E-k-1); a value that would round up
 * to 2^k, too large for sums of n ranks, by less than a unit.
 */
static void fixed__is_off_by_half_a_unit(void **state)
{
	static const unsigned int widths[] = { 8, 16, 32 };
	unsigned int w, ranks, i, k, clamped = 0;
	int top, lanes[N];
	float x[N];

	(void)state;
	for (w = 0; w < 3 * 64; w++) {
		unsigned int width = widths[w % 3], bits;

		ranks = w / 3 + 1;
		bits = thc_fixed_bits(width, ranks);
		if (bits < THC_FIXED_BITS_MIN)
			continue;
		top = (int)(random_word() % 200) - 100;
		/* downwards from the largest possible magnitude, with both signs */
		for (i = 0, x[0] = nextafterf(ldexpf(1, top), 0); i < N - 1; i++)
			x[i + 1] = -(i % 2 == 0 ? x[i] :
				     i % 8 == 7 ? x[i] * 0.87f :
						  nextafterf(x[i], 0));
		for (k = 0; k < all_loops; k++) {
			loops[k]->fixed(x, N, top, bits, width, lanes);
			for (i = 0; i < N; i++) {
				int32_t lane = lane_at(lanes, width, i);
				bool most = abs(lane) == (1LL << bits) - 1;
				double off = fabs(ldexp(x[i], (int)bits - top) - lane);

				assert_true((int64_t)abs(lane) * ranks < 1LL << (width - 1));
				assert_true(off <= 0.5 || (most && off < 1));
				clamped += off > 0.5;
			}
		}
	}
	assert_true(clamped);
}

/* Sums whose mean lies in the middle of two values, for every number of ranks: a product with 1 /
 * ranks as a double would round some wrongly.
 */
static void mean__of_middles(void **state)
{
	static const unsigned int digits[] = { 25, 12, 9 };
	unsigned int ranks, i, k;
	enum thc_dtype dtype;
	int32_t lanes[N];
	float out[N];

	(void)state;
	for (ranks = 1; ranks <= RANKS; ranks++) {
		for (dtype = THC_FP32; dtype <= THC_BF16; dtype++) {
			uint32_t least = 1U << (digits[dtype] - 1), most = INT32_MAX / ranks;

			most = most < 2 * least - 1 ? most : 2 * least - 1;
			for (i = 0; i < N; i++)
				lanes[i] =
					(int32_t)(ranks *
						  ((least + random_word() % (most - least)) | 1));
			for (k = 0; k < all_loops; k++) {
				loops[k]->mean(
					lanes, 32, N,
					&(struct thc_mean){ 1, ranks, 31, dtype != THC_FP32 }, out);
				for (i = 0; i < N; i++) {
					struct exact_sum sum = { 0 };

					big_add(&sum.positive, (uint32_t)lanes[i], 0);
					if (dtype != THC_FP16 || out[i] <= 65504)
						assert_mean(&sum, ranks, dtype, out[i], "mean", 0,
							    i);
				}
			}
		}
	}
}

static void add_digit(struct exact_sum *sum, int32_t digit, int exponent)
{
	big_add(digit < 0 ? &sum->negative : &sum->positive, (uint32_t)abs(digit), exponent);
}

/* The middle of two floats, or a neighbour, as a sum of two digits. */
static void put_middle(int32_t *lower, int32_t *upper, unsigned int bits)
{
	uint64_t middle = (uint64_t)(1U << 24 | (random_word() & 0xffffff) | 1);
	int64_t sum = (int64_t)(middle << random_word() % (2 * bits - 25)) + random_word() % 3 - 1;

	*lower = (int32_t)(sum & ((1LL << bits) - 1));
	*upper = (int32_t)(sum >> bits);
}

/* Sums of two digits, of all sizes, whose mean is a normal value, a subnormal one or none. */
static void mean2__of_all_sizes(void **state)
{
	static const int low[] = { -149, -148, -130, -127, -126, -125, -120, -119, -60, 0, 60 };
	static int32_t lanes[2][N];
	unsigned int ranks, e, i, k;
	float out[N];

	(void)state;
	for (ranks = 1; ranks <= RANKS; ranks++) {
		const unsigned int bits = thc_fixed_bits(32, ranks);

		for (e = 0; e < sizeof(low) / sizeof(*low); e++) {
			random_bytes(lanes, sizeof(lanes));
			for (i = 0; i < N; i++) {
				lanes[0][i] >>= 1 + random_word() % 31;
				lanes[1][i] >>= 1 + random_word() % 31;
				lanes[1][i] *= (int32_t)(random_word() & 1);
				if (i % 3 == 0)
					put_middle(&lanes[0][i], &lanes[1][i], bits);
			}
			for (k = 0; k < all_loops; k++) {
				loops[k]->mean2(lanes[0], lanes[1], N,
						&(struct thc_mean){ ldexp(1, low[e]), ranks, bits,
								    false },
						out);
				for (i = 0; i < N; i++) {
					struct exact_sum sum = { 0 };

					add_digit(&sum, lanes[0][i], low[e]);
					add_digit(&sum, lanes[1][i], low[e] + (int)bits);
					assert_mean(&sum, ranks, THC_FP32, out[i], "mean2", e, i);
				}
			}
		}
	}
}

/* Every instruction set gives the scalar loops' bits for any lanes. */
static void loops__have_the_same_bits(void **state)
{
	static float x[RANKS][N], one[N], other[N];
	static int32_t lanes[2][N], again[N];
	unsigned int i, turn;

	(void)state;
	for (turn = 0; turn < 200; turn++) {
		const struct thc_mean m = { ldexp(1, -(int)(turn % 180)), turn % 64 + 1,
					    thc_fixed_bits(32, turn % 64 + 1), turn & 1 };
		unsigned int n = N - turn % 33;

		random_bytes(lanes, sizeof(lanes));
		fill(x, turn % BUCKETS, 1, THC_FP32);
		for (i = 1; i < all_loops; i++) {
			loops[0]->mean2(lanes[0], lanes[1], n, &m, one);
			loops[i]->mean2(lanes[0], lanes[1], n, &m, other);
			assert_memory_equal(one, other, n * sizeof(*one));
			loops[0]->mean(lanes[0], 8U << turn % 3, n, &m, one);
			loops[i]->mean(lanes[0], 8U << turn % 3, n, &m, other);
			assert_memory_equal(one, other, n * sizeof(*one));
			loops[0]->limb(x[0], n, -140, m.bits, turn % 3, again);
			loops[i]->limb(x[0], n, -140, m.bits, turn % 3, lanes[1]);
			assert_memory_equal(again, lanes[1], n * sizeof(*again));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fixed__vector),
		cmocka_unit_test(scale__of_lanes),
		cmocka_unit_test(measure__what_is_not_finite),
		cmocka_unit_test(exact__is_the_mean_rounded_once),
		cmocka_unit_test(fixed__rounds_to_even_and_never_overflows),
		cmocka_unit_test(fixed__is_off_by_half_a_unit),
		cmocka_unit_test(mean__of_middles),
		cmocka_unit_test(mean2__of_all_sizes),
		cmocka_unit_test(loops__have_the_same_bits),
	};

	return cmocka_run_group_tests_name("fixed", tests, setup, NULL);
}
