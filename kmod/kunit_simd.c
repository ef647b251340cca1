// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suite of the lane loops and NH: those that the module has chosen, with the
 * kernel's vector unit around them, against the scalar ones, bit for bit.
 * tests/unit/test_kmod_simd.c has every instruction set and every corner; this
 * is where they run in a kernel. On User-mode Linux that can be AVX-512.
 */
#include <kunit/test.h>
#include <linux/random.h>

#include <thc/aggregator/kfunc.h>

#include "simd.h"

#define ROUNDS	200

struct loops {
	struct thc_pairs	pairs;
	u64			lanes[THC_LANE_WORDS];
	u64			expected[THC_LANE_WORDS];
	u32			key[THC_NH_WORDS];
	u8			packet[sizeof(struct thc_hdr) + THC_LANE_BYTES + 8];
};

/* A table of @bits bits. */
static struct loops *random_loops(struct kunit *test, u32 bits)
{
	struct loops *l = kunit_kzalloc(test, sizeof(*l), GFP_KERNEL);
	u16 table[64];

	KUNIT_ASSERT_NOT_NULL(test, l);
	get_random_bytes(table, sizeof(table));
	thc_pairs_init(&l->pairs, table, bits);
	return l;
}

/* Payloads have any alignment. */
static const u8 *payload_of(const struct loops *l, u32 i)
{
	return l->packet + sizeof(struct thc_hdr) + i % 8;
}

/* One call of loop @name, and of its twin. */
#define LOOP_AGREES(name, ...) \
	do { \
		get_random_bytes(l->lanes, sizeof(l->lanes)); \
		get_random_bytes(l->packet, sizeof(l->packet)); \
		memcpy(l->expected, l->lanes, sizeof(l->lanes)); \
		thc_simd_scalar.name(l->expected, __VA_ARGS__); \
		KUNIT_ASSERT_EQ(test, thc_simd_##name(l->lanes, __VA_ARGS__), 0); \
		KUNIT_ASSERT_MEMEQ(test, l->lanes, l->expected, sizeof(l->lanes)); \
	} while (0)

static void simd__loops_in_use_agree_with_scalar_ones(struct kunit *test)
{
	struct loops *l = random_loops(test, 4);
	u32 i;

	for (i = 0; i < ROUNDS; i++) {
		const u8 *payload = payload_of(l, i);
		int first = i / 8 % 2;

#define TABLE_AGREES(name, bytes) LOOP_AGREES(name, payload, &l->pairs, first);
#define PLAIN_AGREES(name, bytes) LOOP_AGREES(name, payload, first);
		THC_KFUNCS_TABLE(TABLE_AGREES)
		THC_KFUNCS_PLAIN(PLAIN_AGREES)
	}
	kunit_info(test, "lanes are summed by %s", thc_simd_name());
}

static void row_agrees(struct kunit *test, u32 bits, u32 width)
{
	struct loops *l = random_loops(test, bits);
	u32 i;

	for (i = 0; i < ROUNDS; i++)
		LOOP_AGREES(group, payload_of(l, i), &l->pairs, bits, width, i / 8 % 2);
}

static void simd__rows_in_use_agree_with_scalar_ones(struct kunit *test)
{
#define ROW_AGREES(kind, name, op, up, sum, ...) row_agrees(test, up, sum);
	THC_FORMATS_GROUP(ROW_AGREES)
}

static void simd__nh_in_use_agrees_with_the_scalar_one(struct kunit *test)
{
	struct loops *l = random_loops(test, 4);
	u64 nh = 0, expected;
	u32 i;

	for (i = 0; i < ROUNDS; i++) {
		const u8 *payload = payload_of(l, i);
		int words = THC_LANE_WORDS >> i % 3;

		get_random_bytes(l->key, sizeof(l->key));
		get_random_bytes(l->packet, sizeof(l->packet));
		thc_simd_scalar.nh(&expected, l->key, payload, words);
		KUNIT_ASSERT_EQ(test, thc_simd_nh(&nh, l->key, payload, words), 0);
		KUNIT_ASSERT_EQ(test, nh, expected);
	}
}

/* User-mode Linux never says that the unit is in use. */
#if defined(THC_HAVE_AVX) && !IS_ENABLED(CONFIG_UML)
#include <asm/fpu/api.h>

/* One call of loop @name while the kernel itself is using the unit. */
#define LOOP_KEEPS_OFF(name, ...) \
	do { \
		int error; \
\
		get_random_bytes(l->lanes, sizeof(l->lanes)); \
		memcpy(l->expected, l->lanes, sizeof(l->lanes)); \
		kernel_fpu_begin(); \
		error = thc_simd_##name(l->lanes, __VA_ARGS__); \
		kernel_fpu_end(); \
		KUNIT_EXPECT_EQ(test, error, -EBUSY); \
		KUNIT_EXPECT_MEMEQ(test, l->lanes, l->expected, sizeof(l->lanes)); \
	} while (0)

/* A loop says that the vector unit is in use, and changes nothing: its caller computes without. */
static void simd__a_unit_in_use_is_nobody_elses(struct kunit *test)
{
	struct loops *l = random_loops(test, 4);
	const u8 *payload = payload_of(l, 0);
	u64 nh = 1;
	int error;

	if (!strcmp(thc_simd_name(), thc_simd_scalar.name))
		kunit_skip(test, "this CPU's lanes are summed without a vector unit");
	get_random_bytes(l->packet, sizeof(l->packet));
	kernel_fpu_begin();
	error = thc_simd_nh(&nh, l->key, payload, THC_LANE_WORDS);
	kernel_fpu_end();
	KUNIT_EXPECT_EQ(test, error, -EBUSY);
	KUNIT_EXPECT_EQ(test, nh, 1);
#define TABLE_KEEPS_OFF(name, bytes) LOOP_KEEPS_OFF(name, payload, &l->pairs, 0);
#define PLAIN_KEEPS_OFF(name, bytes) LOOP_KEEPS_OFF(name, payload, 0);
	LOOP_KEEPS_OFF(group, payload, &l->pairs, 6, 8, 0);
	THC_KFUNCS_TABLE(TABLE_KEEPS_OFF)
	THC_KFUNCS_PLAIN(PLAIN_KEEPS_OFF)
}
#endif

static struct kunit_case simd_cases[] = { KUNIT_CASE(simd__loops_in_use_agree_with_scalar_ones),
					  KUNIT_CASE(simd__rows_in_use_agree_with_scalar_ones),
					  KUNIT_CASE(simd__nh_in_use_agrees_with_the_scalar_one),
#if defined(THC_HAVE_AVX) && !IS_ENABLED(CONFIG_UML)
	KUNIT_CASE(simd__a_unit_in_use_is_nobody_elses),
#endif
					  {} };

static struct kunit_suite simd_suite = {
	.name = "thc_simd",
	.test_cases = simd_cases,
};
kunit_test_suites(&simd_suite);
