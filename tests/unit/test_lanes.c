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
#include <sys/mman.h>
#include <unistd.h>
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

	if (width == 4)
		return lanes[i / 16] >> 4 * (i % 16) & 15;
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

/* Index of coordinate @i, of @bits bits: bit by bit, the most significant one of a byte first. */
static u8 payload_index(const u8 *p, int bits, int i)
{
	int index = 0, at;

	for (at = i * bits; at < (i + 1) * bits; at++)
		index = 2 * index + (p[at / 8] >> (7 - at % 8)) % 2;
	return (u8)index;
}

struct op {
	enum thc_lane_kind kind;
	int width;
	const u16 *table;	/* LUT kinds */
	int bits;
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
		return (sum * !first + op->table[payload_index(payload, op->bits, i)]) & mask;
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

/* Two pages, of which the second one cannot be read. */
static u8 *guarded;

static u8 *guard(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	u8 *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p + page, page, PROT_NONE), 0);
	return p + page;
}

/* Behind @payload nothing is readable, and every second payload has an odd address: packets
 * promise no alignment.
 */
static void check_op(const struct op *op, int contributors, int odd)
{
	u32 bytes = thc_lane_payload(op->kind, (u8)op->bits);
	u8 *payload = guarded - bytes - odd;
	u32 want[THC_COORDINATES(4)];
	u64 lanes[THC_LANE_WORDS];
	struct thc_pairs pairs;
	int lanes_n = THC_LANE_BYTES * 8 / op->width;
	int c, i;

	memset(&pairs, 0, sizeof(pairs));
	if (op->table)
		thc_pairs_init(&pairs, op->table, op->bits);
	/* the contents of an earlier generation must not count */
	memset(lanes, 0xa5, sizeof(lanes));
	for (c = 0; c < contributors; c++) {
		random_payload(payload, bytes);
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
	struct op op = { kind, width, table, 4 };
	int n, round;

	for (n = 1; n <= CONTRIBUTORS; n++)
		for (round = 0; round < 20; round++)
			check_op(&op, n, round & 1);
}

/* Random levels; the sum of @n of the largest one just fits into @width bits. */
static void make_table(u16 *table, int bits, int width, int n)
{
	u64 most = ((1ULL << width) - 1) / n;
	int i, z = 1 << bits;

	most = most < 65535 ? most : 65535;
	for (i = 0; i < z; i++)
		table[i] = random_word() % (most + 1);
	table[random_word() % z] = most;
}

static void check_bits(enum thc_lane_kind kind, int bits, int width)
{
	u16 table[THC_LEVELS_MAX];
	struct op op = { kind, width, table, bits };
	int n, round;

	assert_int_equal(thc_lane_payload(kind, (u8)bits), 1024 * bits / width);
	for (n = 1; n <= CONTRIBUTORS; n++) {
		for (round = 0; round < 4; round++) {
			make_table(table, bits, width, n);
			check_op(&op, n, round & 1);
		}
	}
}

static struct thc_row row_of(int bits, int width)
{
	return (struct thc_row){ .bits = (u8)bits, .sum_width = (u8)width };
}

/* Every number of bits with every width of sums that has room. */
static void lanes__bits_of_every_row(void **state)
{
	int bits, width, rows = 0;

	(void)state;
	for (width = 4; width <= 32; width *= 2) {
		for (bits = 1; bits <= 8 && bits <= width; bits++, rows++)
			check_bits(thc_lane_kind(THC_OP_LUT_ADD, (u8)bits, row_of(bits, width)),
				   bits, width);
	}
	assert_int_equal(rows, 28);
}

/* The general loops can also do the rows that have loops of their own. */
static void lanes__bits_of_special_rows(void **state)
{
	(void)state;
	check_bits(THC_LANE_BITS8, 4, 8);
	check_bits(THC_LANE_BITS16, 4, 16);
#define CHECK_BITS(kind, name, op, up, sum, ...) check_bits(THC_LANE_BITS##sum, up, sum);
	THC_FORMATS_GROUP(CHECK_BITS)
#undef CHECK_BITS
}

/* Groups are read with bytes in front of them, which must not matter: XDP's loops find the payload
 * behind its header, without a copy.
 */
static void lanes__groups_behind_a_header(void **state)
{
	u64 lanes[THC_LANE_WORDS], before[THC_LANE_WORDS];
	u16 table[THC_LEVELS_MAX];
	struct thc_pairs pairs;
	u8 *packet, header;
	int first;

	(void)state;
#define CHECK_GROUP(kind, name, op, up, sum, bytes, loop) \
	make_table(table, up, sum, 2); \
	thc_pairs_init(&pairs, table, up); \
	packet = guarded - (bytes) - sizeof(struct thc_hdr); \
	random_payload(packet + sizeof(struct thc_hdr), bytes); \
	for (header = 0; header < 3; header++) { \
		memset(packet, 0x7f * header, sizeof(struct thc_hdr)); \
		for (first = 1; first >= 0; first--) \
			thc_lanes_##name(lanes, packet + sizeof(struct thc_hdr), &pairs, first); \
		if (header) \
			assert_memory_equal(lanes, before, sizeof(lanes)); \
		memcpy(before, lanes, sizeof(lanes)); \
	} \
	for (first = 1; first >= 0; first--) \
		thc_lanes_add(THC_LANE_BITS##sum, lanes, packet + sizeof(struct thc_hdr), &pairs, \
			      0, first); \
	assert_memory_equal(lanes, before, sizeof(lanes));
	THC_FORMATS_GROUP(CHECK_GROUP)
#undef CHECK_GROUP
}

/* All lanes at the largest sum: no carry, whatever the neighbours are. */
static void lanes__bits_at_the_overflow_rule(void **state)
{
	u8 payload[THC_LANE_BYTES];
	u64 lanes[THC_LANE_WORDS];
	struct thc_pairs pairs;
	u16 table[THC_LEVELS_MAX];
	int bits, width, c, i;

	(void)state;
	memset(payload, 0xff, sizeof(payload));
	for (width = 4; width <= 16; width *= 2) {
		for (bits = 1; bits <= 8 && bits <= width; bits++) {
			memset(table, 0, sizeof(table));
			table[(1 << bits) - 1] = ((1 << width) - 1) / 5;
			thc_pairs_init(&pairs, table, bits);
			for (c = 0; c < 5; c++)
				thc_lanes_add(thc_lane_kind(THC_OP_LUT_ADD, (u8)bits,
							    row_of(bits, width)),
					      lanes, payload, &pairs, 0, c == 0);
			for (i = 0; i < 8192 / width; i++)
				assert_int_equal(lane(lanes, width, i), (1 << width) - 1);
		}
	}
}

/* A table that is not the loop's leaves the lanes alone. */
static void lanes__bits_of_another_width(void **state)
{
	u64 lanes[THC_LANE_WORDS], before[THC_LANE_WORDS];
	u16 table[THC_LEVELS_MAX] = { 0 };
	/* nothing behind it can be read */
	u8 *payload = guarded - THC_LANE_BYTES;
	struct thc_pairs pairs;

	(void)state;
	memset(payload, 0, THC_LANE_BYTES);
	memset(lanes, 0x5a, sizeof(lanes));
	memcpy(before, lanes, sizeof(lanes));
	thc_pairs_init(&pairs, table, 5);
	thc_lanes_add(THC_LANE_BITS4, lanes, payload, &pairs, 0, 1);
	thc_lanes_bits4(lanes, payload, &pairs, 1);
	memset(&pairs, 0, sizeof(pairs));
	thc_lanes_add(THC_LANE_BITS32, lanes, payload, &pairs, 0, 1);
	thc_lanes_bits32(lanes, payload, &pairs, 1);
	pairs.bits = 9;
	thc_lanes_add(THC_LANE_BITS16, lanes, payload, &pairs, 0, 1);
	thc_lanes_bits16(lanes, payload, &pairs, 1);
	assert_memory_equal(lanes, before, sizeof(lanes));
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

/* Every rank fills all lanes; only its own count: 8 in one packet, none in the other. */
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
	assert_true(thc_add16(0x0000ffff00000000ULL, 0x0000000100000000ULL) == 0);
}

/* Sums as large as the overflow rule admits: plain additions must not carry. */
static void lanes__lut_at_the_overflow_rule(void **state)
{
	u16 steep[16];
	u8 payload[THC_COORDINATES(8) / 2];
	u64 lanes[THC_LANE_WORDS];
	struct thc_pairs pairs;
	int c, i;

	(void)state;
	memcpy(steep, identity, sizeof(steep));
	steep[15] = 255 / 5;
	thc_pairs_init(&pairs, steep, 4);
	memset(payload, 0xff, sizeof(payload));
	for (c = 0; c < 5; c++)
		thc_lanes_lut8(lanes, payload, &pairs, c == 0);
	for (i = 0; i < THC_COORDINATES(8); i++)
		assert_int_equal(lane(lanes, 8, i), 255);
	steep[15] = 65535 / 3;
	thc_pairs_init(&pairs, steep, 4);
	for (c = 0; c < 3; c++)
		thc_lanes_lut16(lanes, payload, &pairs, c == 0);
	for (i = 0; i < THC_COORDINATES(16); i++)
		assert_int_equal(lane(lanes, 16, i), 65535);
}

static void lanes__linear_is_lut_of_identity(void **state)
{
	u64 a[THC_LANE_WORDS], b[THC_LANE_WORDS];
	u8 payload[THC_COORDINATES(8) / 2];
	struct thc_pairs pairs;
	int c;

	(void)state;
	thc_pairs_init(&pairs, identity, 4);
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
	thc_pairs_init(&pairs, table30, 4);
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
		THC_LANE_BITS4, THC_LANE_BITS8, THC_LANE_BITS16, THC_LANE_BITS32,
	};
	u8 payload[4][THC_LANE_BYTES];
	u64 a[THC_LANE_WORDS], b[THC_LANE_WORDS];
	struct thc_pairs pairs;
	unsigned int k;
	int c, order;

	(void)state;
	thc_pairs_init(&pairs, table30, 4);
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
		{ THC_OP_LUT_ADD, 4, 4, 0, THC_LANE_BITS4, 1024, 4 },
		{ THC_OP_LUT_ADD, 4, 32, 1, THC_LANE_BITS32, 128, 32 },
		{ THC_OP_LUT_ADD, 1, 4, 0, THC_LANE_B1S4, 256, 4 },
		{ THC_OP_LUT_ADD, 2, 8, 1, THC_LANE_B2S8, 256, 8 },
		{ THC_OP_LUT_ADD, 6, 16, 0, THC_LANE_B6S16, 384, 16 },
		{ THC_OP_LUT_ADD, 6, 32, 0, THC_LANE_BITS32, 192, 32 },
		{ THC_OP_LUT_ADD, 7, 8, 0, THC_LANE_BITS8, 896, 8 },
		{ THC_OP_LUT_ADD, 2, 16, 0, THC_LANE_BITS16, 128, 16 },
		{ THC_OP_LUT_ADD, 8, 8, 0, THC_LANE_BITS8, 1024, 8 },
		{ THC_OP_LUT_ADD, 8, 16, 0, THC_LANE_BITS16, 512, 16 },
		{ THC_OP_LUT_ADD, 7, 32, 0, THC_LANE_BITS32, 224, 32 },
		{ THC_OP_ADD, 8, 8, 0, THC_LANE_ADD8, 1024, 8 },
		{ THC_OP_ADD, 16, 8, 0, THC_LANE_ADD16, 1024, 16 },
		{ THC_OP_ADD, 32, 8, 0, THC_LANE_ADD32, 1024, 32 },
		{ THC_OP_OR, 32, 8, 0, THC_LANE_OR, 1024, 32 },
		{ THC_OP_MAX, 32, 8, 0, THC_LANE_MAX, 1024, 32 },
		{ THC_OP_CLAIM, 32, 8, 0, THC_LANE_CLAIM, 1024, 32 },
		{ THC_OP_CLAIM_HIGH, 32, 8, 0, THC_LANE_CLAIM_HIGH, 1024, 32 },
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct thc_row of = { row[i].op == THC_OP_LUT_ADD ? row[i].width : 4,
				      row[i].sum_width, row[i].linear };

		assert_int_equal(thc_lane_kind(row[i].op, row[i].width, of), row[i].kind);
		assert_int_equal(thc_lane_payload(row[i].kind, row[i].width), row[i].payload);
		assert_int_equal(thc_sum_bits(row[i].op, row[i].width, row[i].sum_width),
				 row[i].answer_width);
	}
	assert_int_equal(thc_lane_payload(THC_LANE_NONE, 4), 0);
}

static int is_kind(u8 op, int width, struct thc_row row)
{
	int sum = row.sum_width;

	switch (op) {
	case THC_OP_LUT_ADD:
		return width == row.bits && width >= 1 && width <= 8 && width <= sum &&
		       (sum == 4 || sum == 8 || sum == 16 || sum == 32);
	case THC_OP_ADD:
		return width == 8 || width == 16 || width == 32;
	case THC_OP_OR:
	case THC_OP_MAX:
	case THC_OP_CLAIM:
	case THC_OP_CLAIM_HIGH:
		return width == 32;
	}
	return 0;
}

/* A LUT_ADD of other bits than the job's is as invalid as an unknown op. */
static void kind__of_nothing_else(void **state)
{
	struct thc_row row = { 0, 0, 0 };
	int op, width, bits, sum;

	(void)state;
	for (bits = 0; bits <= 12; bits++) {
		for (sum = 0; sum <= 64; sum++) {
			row.bits = (u8)bits;
			row.sum_width = (u8)sum;
			row.linear = (u8)(bits + sum) % 2;
			for (op = 0; op < 20; op++)
				for (width = 0; width <= 64; width++)
					assert_int_equal(thc_lane_kind((u8)op, (u8)width, row) !=
								 THC_LANE_NONE,
							 is_kind((u8)op, width, row));
		}
	}
}

/* Exactly the 16 lengths of protocol.md. */
static void kind__payload_lengths(void **state)
{
	static const u32 known[] = { 32,  64,  96,  128, 160, 192, 224, 256,
				     320, 384, 448, 512, 640, 768, 896, 1024 };
	u32 length, i = 0;

	(void)state;
	for (length = 0; length <= 70000; length++) {
		assert_int_equal(thc_payload_is_known(length), i < 16 && length == known[i]);
		i += thc_payload_is_known(length);
	}
	assert_int_equal(i, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lanes__lut8),
		cmocka_unit_test(lanes__linear8),
		cmocka_unit_test(lanes__lut16),
		cmocka_unit_test(lanes__bits_of_every_row),
		cmocka_unit_test(lanes__bits_of_special_rows),
		cmocka_unit_test(lanes__groups_behind_a_header),
		cmocka_unit_test(lanes__bits_at_the_overflow_rule),
		cmocka_unit_test(lanes__bits_of_another_width),
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
		cmocka_unit_test(kind__of_nothing_else),
		cmocka_unit_test(kind__payload_lengths),
	};

	guarded = guard();
	return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
