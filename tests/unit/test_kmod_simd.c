// SPDX-License-Identifier: GPL-2.0
/*
 * The vector loops of thc.ko against include/thc/aggregator/lane.h, and NH against
 * include/thc/wire/nh.h, bit for bit: every kind, random and extreme lanes, payloads, keys and
 * tables (also too large ones), payloads of every alignment, at either end of readable memory. An
 * instruction set that this CPU lacks is skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "simd.h"

#define ROUNDS 400

static u64 random_state;

static u64 random_word(void)
{
	u64 z = random_state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

enum fill { ZEROS, ONES, RANDOM, CORNERS, FILLS };

static u8 random_byte(enum fill how)
{
	static const u8 corner[] = { 0x00, 0x0f, 0xf0, 0xff, 0x7f, 0x80, 0x01, 0xfe };

	switch (how) {
	case ZEROS:
		return 0;
	case ONES:
		return 0xff;
	case RANDOM:
		return random_word() >> 32;
	default:
		return corner[random_word() >> 32 & 7];
	}
}

static void fill(void *to, size_t bytes, enum fill how)
{
	u8 *p = to;

	while (bytes--)
		*p++ = random_byte(how);
}

/* The middle page of three; the other two cannot be accessed. */
static u8 *guarded_page(size_t page)
{
	u8 *p = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p + page, page, PROT_READ | PROT_WRITE), 0);
	return p + page;
}

/* Properties of a loop beside its arithmetic. */
struct shape {
	enum thc_lane_kind	kind;
	u32			bits;	/* of an index, if the loop looks up */
	size_t			before;	/* bytes that it may read in front of a payload */
};

#define SHAPE_OF_ROW(kind, name, op, up, ...) { THC_LANE_##kind, up, sizeof(struct thc_hdr) },

static const struct shape shapes[] = { { THC_LANE_LUT8, 4, 0 },	       { THC_LANE_LUT16, 4, 0 },
				       { THC_LANE_LINEAR8, 4, 0 },     { THC_LANE_ADD8, 4, 0 },
				       { THC_LANE_ADD16, 4, 0 },       { THC_LANE_ADD32, 4, 0 },
				       THC_FORMATS_GROUP(SHAPE_OF_ROW) };

/* Which loop of @ops adds a payload, and which lanes it meets. */
struct way {
	const struct thc_simd_ops	*ops;
	enum thc_lane_kind		kind;
	int				first;
	enum fill			how;
};

static void run(const struct thc_simd_ops *ops, enum thc_lane_kind kind, u64 *lanes,
		const void *payload, const struct thc_pairs *p, int first)
{
	switch (kind) {
	case THC_LANE_LUT8:
		ops->lut8(lanes, payload, p, first);
		break;
	case THC_LANE_LUT16:
		ops->lut16(lanes, payload, p, first);
		break;
	case THC_LANE_LINEAR8:
		ops->linear8(lanes, payload, first);
		break;
	case THC_LANE_ADD8:
		ops->add8(lanes, payload, first);
		break;
	case THC_LANE_ADD16:
		ops->add16(lanes, payload, first);
		break;
	case THC_LANE_ADD32:
		ops->add32(lanes, payload, first);
		break;
#define RUN_ROW(kind, name, op, up, sum, ...) \
	case THC_LANE_##kind: \
		ops->group(lanes, payload, p, up, sum, first); \
		break;
		THC_FORMATS_GROUP(RUN_ROW)
	default:
		fail_msg("no such loop");
	}
}

/* Adds @payload by @way and by lane.h to @lanes, which are aligned. */
static void assert_same(struct way way, u8 *at, const u8 *payload, const struct thc_pairs *pairs)
{
	u64 expected[THC_LANE_WORDS], *lanes = (u64 *)at;
	struct thc_pairs before = *pairs;

	fill(lanes, THC_LANE_BYTES, way.how);
	memcpy(expected, lanes, sizeof(expected));
	thc_lanes_add(way.kind, expected, payload, pairs, 0, way.first);
	run(way.ops, way.kind, lanes, payload, pairs, way.first);
	if (memcmp(expected, lanes, sizeof(expected))) {
		size_t i = 0;

		while (expected[i] == lanes[i])
			i++;
		fail_msg("%s, kind %d, first %d: word %zu is %016llx, lane.h has %016llx",
			 way.ops->name, way.kind, way.first, i, (unsigned long long)lanes[i],
			 (unsigned long long)expected[i]);
	}
	assert_memory_equal(pairs, &before, sizeof(before));
}

/* Lanes and payload (with the readable bytes in front of it) end or begin where the page does. */
static void same_bits(const struct thc_simd_ops *ops, const struct shape *s)
{
	size_t page = sysconf(_SC_PAGESIZE), length = thc_lane_payload(s->kind, 4);
	u8 *to = guarded_page(page), *from = guarded_page(page);
	u32 levels = 1U << s->bits, round;
	u16 table[THC_LEVELS_MAX];
	struct thc_pairs pairs;

	random_state = s->kind;
	for (round = 0; round < ROUNDS; round++) {
		size_t skew = random_word() % 65;
		u8 *payload = round & 1 ? from + s->before + skew : from + page - length - skew;

		fill(table, sizeof(table), round % 7 ? RANDOM : round % FILLS);
		thc_pairs_init(&pairs, table, s->bits);
		fill(from, page, random_word() % FILLS);
		fill(payload, length, random_word() % FILLS);
		assert_same((struct way){ ops, s->kind, round >> 2 & 1, random_word() % FILLS },
			    to + (round & 2 ? 0 : page - THC_LANE_BYTES), payload, &pairs);
	}
	/* one index at a time differs from the others */
	for (round = 0; round < 256; round++) {
		memset(table, 0, sizeof(table));
		table[round % levels] = round / levels * 0x1111;
		thc_pairs_init(&pairs, table, s->bits);
		fill(from + s->before, length, RANDOM);
		assert_same((struct way){ ops, s->kind, round & 1, RANDOM }, to, from + s->before,
			    &pairs);
	}
	munmap(to - page, 3 * page);
	munmap(from - page, 3 * page);
}

/* Nothing around the lanes is written: the pages' ends do not see the middle. */
static void stays_inside(const struct thc_simd_ops *ops, const struct shape *s)
{
	u8 block[3 * THC_LANE_BYTES], before[sizeof(block)];
	u8 packet[sizeof(struct thc_hdr) + THC_LANE_BYTES];
	struct thc_pairs pairs;

	fill(block, sizeof(block), RANDOM);
	fill(packet, sizeof(packet), RANDOM);
	memcpy(before, block, sizeof(block));
	memset(&pairs, 0, sizeof(pairs));
	run(ops, s->kind, (u64 *)(block + THC_LANE_BYTES), packet + sizeof(struct thc_hdr), &pairs,
	    1);
	assert_memory_equal(block, before, THC_LANE_BYTES);
	assert_memory_equal(block + 2 * THC_LANE_BYTES, before + 2 * THC_LANE_BYTES,
			    THC_LANE_BYTES);
}

/* A row that is none of THC_FORMATS_GROUP changes no lane. */
static void nothing_for_other_rows(const struct thc_simd_ops *ops)
{
	u64 lanes[THC_LANE_WORDS] = { 0 }, before[THC_LANE_WORDS] = { 0 };
	u8 packet[sizeof(struct thc_hdr) + THC_LANE_BYTES];
	struct thc_pairs pairs;
	u32 bits, width;

	fill(packet, sizeof(packet), ONES);
	memset(&pairs, 0xff, sizeof(pairs));
	for (bits = 0; bits < 16; bits++)
		for (width = 0; width < 64; width++) {
#define SKIP_ROW(kind, name, op, up, sum, ...) \
	if (bits == (up) && width == (sum)) \
		continue;
			THC_FORMATS_GROUP(SKIP_ROW)
			ops->group(lanes, packet + sizeof(struct thc_hdr), &pairs, bits, width, 1);
			assert_memory_equal(lanes, before, sizeof(lanes));
		}
}

/* NH of each length, of any alignment; key and payload end, or begin, where their page does. */
static void same_nh(const struct thc_simd_ops *ops)
{
	static const int words[] = { 32, 64, THC_LANE_WORDS, 3, 13, 127 };
	const unsigned int lengths = sizeof(words) / sizeof(*words);
	size_t page = sysconf(_SC_PAGESIZE);
	u8 *keys = guarded_page(page), *from = guarded_page(page);
	int round;

	random_state = 0;
	for (round = 0; round < ROUNDS; round++) {
		int length = words[random_word() % lengths];
		size_t bytes = 8 * length, skew = random_word() % 65;
		u8 *payload = round & 1 ? from + skew : from + page - bytes - skew;
		u32 *key = (u32 *)(round & 2 ? keys : keys + page - bytes);
		u64 nh = random_word();

		fill(payload, bytes, random_word() % FILLS);
		fill(key, bytes, random_word() % FILLS);
		ops->nh(&nh, key, payload, length);
		assert_true(nh == thc_nh(key, payload, length));
	}
	munmap(keys - page, 3 * page);
	munmap(from - page, 3 * page);
}

static void all_kinds(const struct thc_simd_ops *ops)
{
	size_t i;

	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		same_bits(ops, &shapes[i]);
		stays_inside(ops, &shapes[i]);
	}
	nothing_for_other_rows(ops);
	same_nh(ops);
}

static void simd__scalar_is_lane_h(void **state)
{
	(void)state;
	all_kinds(&thc_simd_scalar);
}

static void simd__avx2_same_bits(void **state)
{
	(void)state;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2")) {
		all_kinds(&thc_simd_avx2);
		return;
	}
#endif
	print_message("# SKIP this CPU has no AVX2\n");
	skip();
}

static void simd__avx512_same_bits(void **state)
{
	(void)state;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vbmi")) {
		all_kinds(&thc_simd_avx512);
		return;
	}
#endif
	print_message("# SKIP this CPU has no AVX-512 with VBMI\n");
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(simd__scalar_is_lane_h),
		cmocka_unit_test(simd__avx2_same_bits),
		cmocka_unit_test(simd__avx512_same_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
