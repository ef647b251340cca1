// SPDX-License-Identifier: GPL-2.0
/*
 * Lane arithmetic against plain integers, one coordinate at a time: every
 * operation, any number of contributions, values that wrap, and the published
 * vectors of the pair table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/lane.h>

#define CONTRIBUTORS	8

/* The published 4-bit table of granularity 30, and one for 16-bit sums. */
static const u16 table30[16] = { 0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30 };
static const u16 table4095[16] = { 0,	1,    2,    300,  301,	302,  511,  512,
				   513, 1000, 2000, 3000, 4000, 4001, 4094, 4095 };
static const u16 identity[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

static u64 random_state;

static u64 random_word(void)
{
	u64 z = random_state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static void random_payload(u8 *p, u32 size)
{
	u32 i;

	for (i = 0; i < size; i++)
		/* corners are common: all ones and zeros among random bytes */
		p[i] = random_word() % 4 ? random_word() : random_word() & 1 ? 0xff : 0;
}

/* Lane @i of @width bits, read byte by byte: little-endian whatever the host is. */
static u32 lane(const u64 *lanes, int width, int i)
{
	u32 v = 0;
	int b;

	for (b = width / 8 - 1; b >= 0; b--) {
		int byte = i * width / 8 + b;

		v = v << 8 | (lanes[byte / 8] >> 8 * (byte % 8) & 0xff);
	}
	return v;
}

static u32 payload_lane(const u8 *p, int width, int i)
{
	u32 v = 0;
	int b;

	for (b = width / 8 - 1; b >= 0; b--)
		v = v << 8 | p[i * width / 8 + b];
	return v;
}

/* Index of coordinate @i: even ones in the high nibble. */
static u8 payload_index(const u8 *p, int i)
{
	return i % 2 ? p[i / 2] % 16 : p[i / 2] / 16;
}

struct op {
	enum thc_lane_kind kind;
	int width;
	const u16 *table;	/* LUT kinds */
};

/* Contributions come from ranks of both halves of the claims. */
static u32 rank_of(int contribution)
{
	return (u32)contribution * 9 % THC_RANKS_MAX;
}

/* Rank r's claim is in the lanes from 8 (r mod 32) on, of the packet of its half. */
static int is_claimed(enum thc_lane_kind kind, int i, u32 rank)
{
	return (kind == THC_LANE_CLAIM_HIGH) == (rank >= 32) && i / 8 == (int)rank % 32;
}

static u32 expected(const struct op *op, u32 sum, const u8 *payload, int i, int first, u32 rank)
{
	u64 mask = (1ULL << op->width) - 1;
	u32 v;

	if (op->table)
		return (sum * !first + op->table[payload_index(payload, i)]) & mask;
	v = payload_lane(payload, op->width, i);
	if ((op->kind == THC_LANE_CLAIM || op->kind == THC_LANE_CLAIM_HIGH) &&
	    !is_claimed(op->kind, i, rank))
		v = 0;
	if (first)
		return v;
	if (op->kind == THC_LANE_OR)
		return sum | v;
	if (op->kind >= THC_LANE_MAX)
		return sum > v ? sum : v;
	return (sum + (u64)v) & mask;
}

/* @payload starts at an odd address: packets promise no alignment. */
static void check_op(const struct op *op, int contributors)
{
	u8 buffer[THC_LANE_BYTES + 1], *payload = buffer + 1;
	u32 want[THC_CHUNK_8];
	u64 lanes[THC_LANE_WORDS];
	struct thc_pairs pairs;
	int lanes_n = THC_LANE_BYTES * 8 / op->width;
	int c, i;

	memset(&pairs, 0, sizeof(pairs));
	if (op->table)
		thc_pairs_init(&pairs, op->table);
	/* what an earlier generation left behind must not show */
	memset(lanes, 0xa5, sizeof(lanes));
	for (c = 0; c < contributors; c++) {
		random_payload(payload, thc_lane_payload(op->kind));
		thc_lanes_add(op->kind, lanes, payload, &pairs, rank_of(c), c == 0);
		for (i = 0; i < lanes_n; i++) {
			want[i] = expected(op, want[i], payload, i, c == 0, rank_of(c));
			if (lane(lanes, op->width, i) != want[i])
				fail_msg("kind %d, contribution %d, lane %d: %u, not %u", op->kind,
					 c, i, lane(lanes, op->width, i), want[i]);
		}
	}
}

static void check_ops(enum thc_lane_kind kind, int width, const u16 *table)
{
	struct op op = { kind, width, table };
	int n, round;

	for (n = 1; n <= CONTRIBUTORS; n++)
		for (round = 0; round < 20; round++)
			check_op(&op, n);
}

static void lanes__lut8(void **state)
{
	(void)state;
	check_ops(THC_LANE_LUT8, 8, table30);
}

static void lanes__linear8(void **state)
{
	(void)state;
	check_ops(THC_LANE_LINEAR8, 8, identity);
}

static void lanes__lut16(void **state)
{
	(void)state;
	check_ops(THC_LANE_LUT16, 16, table4095);
}

static void lanes__add8(void **state)
{
	(void)state;
	check_ops(THC_LANE_ADD8, 8, NULL);
}

static void lanes__add16(void **state)
{
	(void)state;
	check_ops(THC_LANE_ADD16, 16, NULL);
}

static void lanes__add32(void **state)
{
	(void)state;
	check_ops(THC_LANE_ADD32, 32, NULL);
}

static void lanes__or(void **state)
{
	(void)state;
	check_ops(THC_LANE_OR, 32, NULL);
}

static void lanes__max(void **state)
{
	(void)state;
	check_ops(THC_LANE_MAX, 32, NULL);
}

static void lanes__claims(void **state)
{
	(void)state;
	check_ops(THC_LANE_CLAIM, 32, NULL);
	check_ops(THC_LANE_CLAIM_HIGH, 32, NULL);
}

/* Every rank claims all lanes, and gets its own: 8 of one packet, none of the other. */
static void lanes__nobody_claims_for_another_rank(void **state)
{
	static const enum thc_lane_kind half[] = { THC_LANE_CLAIM, THC_LANE_CLAIM_HIGH };
	u64 lanes[2][THC_LANE_WORDS];
	u8 payload[THC_LANE_BYTES];
	u32 rank, i, k;

	(void)state;
	for (rank = 0; rank < THC_RANKS_MAX; rank++) {
		memset(payload, (int)rank + 1, sizeof(payload));
		for (k = 0; k < 2; k++)
			thc_lanes_add(half[k], lanes[k], payload, NULL, rank, rank == 0);
	}
	for (rank = 0; rank < THC_RANKS_MAX; rank++)
		for (i = 0; i < 8; i++)
			assert_int_equal(lane(lanes[rank / 32], 32, rank % 32 * 8 + i),
					 (rank + 1) * 0x01010101);
}

/* Every pair of 8-bit values beside extreme neighbours. */
static void lanes__carry_stays_inside_the_lane(void **state)
{
	static const u64 around[] = { 0,
				      ~0ULL,
				      0x7f7f7f7f7f7f7f7fULL,
				      0x8080808080808080ULL,
				      0x0001000100010001ULL,
				      0xfffefffefffefffeULL };
	u32 x, y, i, j, at;

	(void)state;
	for (x = 0; x < 256; x++) {
		for (y = 0; y < 256; y++) {
			for (at = 0; at < 8; at++) {
				u64 hole = ~(0xffULL << 8 * at);
				u64 a = (u64)x << 8 * at, b = (u64)y << 8 * at;

				i = (x + at) % 6;
				j = (y + at) % 6;
				assert_int_equal(thc_add8((around[i] & hole) | a,
							  (around[j] & hole) | b) >> 8 * at & 0xff,
						 (x + y) & 0xff);
				assert_int_equal(
					thc_add8(around[i] & hole, around[j] & hole) & ~hole, 0);
			}
		}
	}
	assert_true(thc_add16(0xffffffffffffffffULL, 0x0001000100010001ULL) == 0);
	assert_true(thc_add32(0xffffffffffffffffULL, 0x0000000100000001ULL) == 0);
	assert_true(thc_add16(0x0000ffff00000000ULL, 0x0000000100000000ULL) == 0);
	assert_true(thc_add32(0x00000000ffffffffULL, 0x0000000000000001ULL) == 0);
}

/* Sums as large as the overflow rule admits: plain additions must not carry. */
static void lanes__lut_at_the_overflow_rule(void **state)
{
	u16 steep[16];
	u8 payload[THC_CHUNK_8 / 2];
	u64 lanes[THC_LANE_WORDS];
	struct thc_pairs pairs;
	int c, i;

	(void)state;
	memcpy(steep, identity, sizeof(steep));
	steep[15] = 255 / 5;
	thc_pairs_init(&pairs, steep);
	memset(payload, 0xff, sizeof(payload));
	for (c = 0; c < 5; c++)
		thc_lanes_lut8(lanes, payload, &pairs, c == 0);
	for (i = 0; i < THC_CHUNK_8; i++)
		assert_int_equal(lane(lanes, 8, i), 255);
	steep[15] = 65535 / 3;
	thc_pairs_init(&pairs, steep);
	for (c = 0; c < 3; c++)
		thc_lanes_lut16(lanes, payload, &pairs, c == 0);
	for (i = 0; i < THC_CHUNK_16; i++)
		assert_int_equal(lane(lanes, 16, i), 65535);
}

static void lanes__linear_is_lut_of_identity(void **state)
{
	u64 a[THC_LANE_WORDS], b[THC_LANE_WORDS];
	u8 payload[THC_CHUNK_8 / 2];
	struct thc_pairs pairs;
	int c;

	(void)state;
	thc_pairs_init(&pairs, identity);
	for (c = 0; c < 17; c++) {
		random_payload(payload, sizeof(payload));
		thc_lanes_lut8(a, payload, &pairs, c == 0);
		thc_lanes_linear8(b, payload, c == 0);
		assert_memory_equal(a, b, sizeof(a));
	}
}

static void lanes__published_pairs(void **state)
{
	struct thc_pairs pairs;
	int byte;

	(void)state;
	thc_pairs_init(&pairs, table30);
	assert_int_equal(pairs.w8[0x01], 768);
	assert_int_equal(pairs.w8[0x10], 3);
	assert_int_equal(pairs.w8[0x7f], 7694);
	assert_int_equal(pairs.w8[0xf7], 3614);
	assert_int_equal(pairs.w8[0xff], 7710);
	for (byte = 0; byte < 256; byte++)
		assert_int_equal(pairs.w16[byte], table30[byte / 16] + 65536 * table30[byte % 16]);
}

static void lanes__nibbles(void **state)
{
	int even, odd;

	(void)state;
	for (even = 0; even < 16; even++) {
		for (odd = 0; odd < 16; odd++) {
			u8 byte = (u8)(even * 16 + odd);

			assert_int_equal(thc_nibble_even(byte), even);
			assert_int_equal(thc_nibble_odd(byte), odd);
		}
	}
	/* bytes 0x01 0x23 0x45 0x67 are the indices 0 1 2 3 4 5 6 7, the first lowest */
	assert_true(thc_nibble_spread(0x67452301) == 0x0706050403020100ULL);
	assert_true(thc_nibble_spread(0xefcdab89) == 0x0f0e0d0c0b0a0908ULL);
}

/* Any order of arrival gives the same bits. */
static void lanes__order_does_not_matter(void **state)
{
	static const enum thc_lane_kind kinds[] = {
		THC_LANE_LUT8, THC_LANE_LINEAR8, THC_LANE_LUT16, THC_LANE_ADD8, THC_LANE_ADD16,
		THC_LANE_ADD32, THC_LANE_OR, THC_LANE_MAX, THC_LANE_CLAIM, THC_LANE_CLAIM_HIGH,
	};
	u8 payload[4][THC_LANE_BYTES];
	u64 a[THC_LANE_WORDS], b[THC_LANE_WORDS];
	struct thc_pairs pairs;
	unsigned int k;
	int c, order;

	(void)state;
	thc_pairs_init(&pairs, table30);
	for (k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		for (c = 0; c < 4; c++)
			random_payload(payload[c], THC_LANE_BYTES);
		for (c = 0; c < 4; c++)
			thc_lanes_add(kinds[k], a, payload[c], &pairs, rank_of(c), c == 0);
		for (order = 1; order < 4; order++) {
			for (c = 0; c < 4; c++)
				thc_lanes_add(kinds[k], b, payload[c ^ order], &pairs,
					      rank_of(c ^ order), c == 0);
			assert_memory_equal(a, b, sizeof(a));
		}
	}
}

static void kind__of_op_and_width(void **state)
{
	static const struct {
		u8 op, width, sum_width, linear;
		enum thc_lane_kind kind;
		u32 payload;
		u8 answer_width;
	} row[] = {
		{ THC_OP_LUT_ADD, 4, 8, 0, THC_LANE_LUT8, 512, 8 },
		{ THC_OP_LUT_ADD, 4, 8, 1, THC_LANE_LINEAR8, 512, 8 },
		{ THC_OP_LUT_ADD, 4, 16, 0, THC_LANE_LUT16, 256, 16 },
		{ THC_OP_LUT_ADD, 4, 16, 1, THC_LANE_LUT16, 256, 16 },
		{ THC_OP_ADD, 8, 8, 0, THC_LANE_ADD8, 1024, 8 },
		{ THC_OP_ADD, 16, 8, 0, THC_LANE_ADD16, 1024, 16 },
		{ THC_OP_ADD, 32, 8, 0, THC_LANE_ADD32, 1024, 32 },
		{ THC_OP_OR, 32, 8, 0, THC_LANE_OR, 1024, 32 },
		{ THC_OP_MAX, 32, 8, 0, THC_LANE_MAX, 1024, 32 },
		{ THC_OP_CLAIM, 32, 8, 0, THC_LANE_CLAIM, 1024, 32 },
		{ THC_OP_CLAIM_HIGH, 32, 8, 0, THC_LANE_CLAIM_HIGH, 1024, 32 },
	};
	int op, width, sum_width, linear;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(row) / sizeof(*row); i++) {
		assert_int_equal(thc_lane_kind(row[i].op, row[i].width, row[i].sum_width,
					       row[i].linear),
				 row[i].kind);
		assert_int_equal(thc_lane_payload(row[i].kind), row[i].payload);
		assert_int_equal(thc_sum_bits(row[i].op, row[i].width, row[i].sum_width),
				 row[i].answer_width);
	}
	/* nothing else is a kind */
	for (op = 0; op < 256; op++) {
		for (width = 0; width < 256; width++) {
			for (sum_width = 0; sum_width <= 32; sum_width += 4) {
				for (linear = 0; linear < 2; linear++) {
					int known = op == THC_OP_LUT_ADD ?
							    width == 4 && (sum_width == 8 ||
									   sum_width == 16) :
						    op == THC_OP_ADD ? width == 8 || width == 16 ||
									       width == 32 :
								       (op == 3 || op == 4 ||
									op == 6 || op == 7) &&
									       width == 32;

					assert_int_equal(thc_lane_kind(op, width, sum_width,
								       linear) != THC_LANE_NONE,
							 known);
				}
			}
		}
	}
	assert_int_equal(thc_lane_payload(THC_LANE_NONE), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lanes__lut8),
		cmocka_unit_test(lanes__linear8),
		cmocka_unit_test(lanes__lut16),
		cmocka_unit_test(lanes__add8),
		cmocka_unit_test(lanes__add16),
		cmocka_unit_test(lanes__add32),
		cmocka_unit_test(lanes__or),
		cmocka_unit_test(lanes__max),
		cmocka_unit_test(lanes__claims),
		cmocka_unit_test(lanes__nobody_claims_for_another_rank),
		cmocka_unit_test(lanes__carry_stays_inside_the_lane),
		cmocka_unit_test(lanes__lut_at_the_overflow_rule),
		cmocka_unit_test(lanes__linear_is_lut_of_identity),
		cmocka_unit_test(lanes__published_pairs),
		cmocka_unit_test(lanes__nibbles),
		cmocka_unit_test(lanes__order_does_not_matter),
		cmocka_unit_test(kind__of_op_and_width),
	};

	return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
