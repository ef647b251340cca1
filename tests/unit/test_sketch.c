// SPDX-License-Identifier: GPL-2.0
/*
 * Sketches of several ranks, summed and peeled, against plain sums: every value that is peeled is
 * the sum, and every other item is reported as left. All hosts compute equal places for a row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "peel.h"
#include "randomword.h"
#include "sketch.h"

enum { RANKS = 3, PLANES = 2, STEP = 100 };
#define UNWRITTEN	0x5a5a5a5a

/**
 * struct bed - a bucket of RANKS ranks
 * @bits: of each rank; @all: the union's
 * @value: of each rank and plane, by coordinate; @sum: of all ranks
 * @cells: of each plane, summed over ranks
 */
struct bed {
	struct thc_sketch s;
	struct thc_peel peel;
	uint32_t *bits[RANKS];
	uint32_t *all;
	uint32_t *value[RANKS][PLANES];
	uint32_t *sum[PLANES];
	uint32_t *cells[PLANES];
	int32_t *packed;
	int32_t *out;
	uint8_t *memory;
};

static size_t words_of(const struct bed *b)
{
	return (b->s.count + 31) / 32;
}

static bool is_set(const uint32_t *bits, size_t coordinate)
{
	return bits[coordinate / 32] >> coordinate % 32 & 1;
}

static void lay_out(struct bed *b, struct thc_layout *l)
{
	size_t words = words_of(b), count = b->s.count;
	unsigned int rank, plane;

	for (rank = 0; rank < RANKS; rank++) {
		b->bits[rank] = thc_lay(l, words * sizeof(uint32_t));
		for (plane = 0; plane < PLANES; plane++)
			b->value[rank][plane] = thc_lay(l, count * sizeof(uint32_t));
	}
	b->all = thc_lay(l, words * sizeof(uint32_t));
	for (plane = 0; plane < PLANES; plane++) {
		b->sum[plane] = thc_lay(l, count * sizeof(uint32_t));
		b->cells[plane] = thc_lay(l, thc_sketch_cells(&b->s) * sizeof(uint32_t));
	}
	b->packed = thc_lay(l, count * sizeof(int32_t));
	b->out = thc_lay(l, count * sizeof(int32_t));
}

/* Begins with b->s; the peel's memory is allocated alone, so that a sanitizer sees overruns. */
static void begin(struct bed *b)
{
	struct thc_layout l = { .at = NULL }, peel = { .at = NULL };

	lay_out(b, &l);
	thc_peel_lay_out(&b->peel, &b->s, &peel);
	b->memory = calloc(1, l.bytes + peel.bytes);
	assert_non_null(b->memory);
	l = (struct thc_layout){ .at = b->memory };
	lay_out(b, &l);
	thc_peel_lay_out(&b->peel, &b->s, &l);
	/* leftovers of another part */
	random_bytes(b->peel.cell, thc_sketch_part_cells(&b->s) * sizeof(uint32_t));
}

static void end(struct bed *b)
{
	free(b->memory);
}

/* Rank @rank has a value at @coordinate, in all planes. */
static void give(struct bed *b, unsigned int rank, size_t coordinate)
{
	unsigned int plane;

	b->bits[rank][coordinate / 32] |= 1U << coordinate % 32;
	b->all[coordinate / 32] |= 1U << coordinate % 32;
	for (plane = 0; plane < PLANES; plane++) {
		uint32_t value = (uint32_t)random_word();

		b->sum[plane][coordinate] += value - b->value[rank][plane][coordinate];
		b->value[rank][plane][coordinate] = value;
	}
}

/* Packs values of @rank from word @first on; returns the number of words. */
static size_t pack(struct bed *b, unsigned int rank, unsigned int plane, size_t first)
{
	size_t words = words_of(b) - first, i, n = 0;

	if (words > STEP)
		words = STEP;
	for (i = 32 * first; i < 32 * (first + words); i++)
		if (is_set(b->bits[rank], i))
			b->packed[n++] = (int32_t)b->value[rank][plane][i];
	return words;
}

/* All ranks' values, in pieces, ranks in turns. */
static void add_all(struct bed *b, unsigned int first_rank)
{
	unsigned int turn, rank, plane;
	size_t first, words;

	for (plane = 0; plane < PLANES; plane++) {
		memset(b->cells[plane], 0, thc_sketch_cells(&b->s) * sizeof(uint32_t));
		for (first = 0; first < words_of(b); first += STEP) {
			for (turn = 0; turn < RANKS; turn++) {
				rank = (first_rank + turn) % RANKS;
				words = pack(b, rank, plane, first);
				thc_sketch_add(&b->s, first, b->bits[rank] + first, words,
					       b->packed, b->cells[plane]);
			}
		}
	}
}

/* Peeled values of the part are sums of their lower @width bits; other values are unchanged. */
static void check_values(struct bed *b, uint32_t part, unsigned int plane, unsigned int width)
{
	const uint32_t mask = UINT32_MAX >> (32 - width);
	const size_t first = (size_t)part * b->s.part;
	const size_t last = first + 32 * thc_sketch_part_words(&b->s, part);
	uint32_t *cells = b->cells[plane] + (size_t)part * thc_sketch_part_cells(&b->s);
	size_t i, n = 0, left = 0;

	for (i = 0; i < b->peel.items; i++)
		b->out[i] = UNWRITTEN;
	thc_peel_values(&b->peel, &b->s, b->all + first / 32, cells, b->out);
	for (i = first; i < last; i++) {
		bool is_left = is_set(b->peel.left, i - first);

		assert_true(!is_left || is_set(b->all, i));
		left += is_left;
		if (!is_set(b->all, i))
			continue;
		if (is_left)
			assert_int_equal(b->out[n], UNWRITTEN);
		else
			assert_int_equal((uint32_t)b->out[n] & mask, b->sum[plane][i] & mask);
		n++;
	}
	assert_int_equal(n, b->peel.items);
	assert_int_equal(left, b->peel.items - b->peel.peeled);
	/* peeled values have been subtracted from all their cells */
	for (i = 0; !left && width == 32 && i < thc_sketch_part_cells(&b->s); i++)
		assert_int_equal(cells[i], 0);
}

/* Peels sums of @width bits. Returns how many items are left. */
static size_t check_all(struct bed *b, unsigned int width)
{
	size_t left = 0, i;
	unsigned int plane;
	uint32_t part;

	for (plane = 0; width < 32 && plane < PLANES; plane++)
		for (i = 0; i < thc_sketch_cells(&b->s); i++)
			b->cells[plane][i] = width == 8 ? (uint32_t)(int8_t)b->cells[plane][i] :
							  (uint32_t)(int16_t)b->cells[plane][i];
	for (part = 0; part < b->s.parts; part++) {
		left += thc_peel_find(&b->peel, &b->s, part,
				      b->all + (size_t)part * b->s.part / 32);
		for (plane = 0; plane < PLANES; plane++)
			check_values(b, part, plane, width);
	}
	return left;
}

/* Gives the sketch at least as many cells, in 2^@lanes_log2 lanes. */
static void spread(struct thc_sketch *s, unsigned int lanes_log2)
{
	thc_sketch_shape(s, lanes_log2, s->windows, (thc_sketch_part_cells(s) >> lanes_log2) + 1);
}

/* Each rank gets @items random coordinates; every second one goes to the next rank, too. */
static void give_random(struct bed *b, size_t items)
{
	unsigned int rank;
	size_t i, at;

	for (rank = 0; rank < RANKS; rank++) {
		for (i = 0; i < items; i++) {
			at = random_word() % b->s.count;
			give(b, rank, at);
			if (i % 2)
				give(b, (rank + 1) % RANKS, at);
		}
	}
}

static size_t items_of(const struct bed *b)
{
	size_t n = 0, i;

	for (i = 0; i < words_of(b); i++)
		n += (size_t)__builtin_popcount(b->all[i]);
	return n;
}

/* --- hashes ----------------------------------------------------------------- */

static void murmur3__vectors(void **state)
{
	(void)state;
	assert_int_equal(thc_murmur3(0, 0), 0x2362f9de);
	assert_int_equal(thc_murmur3(0, 1), 0x78ed212d);
	assert_int_equal(thc_murmur3(0, 2), 0x06dfadfc);
	assert_int_equal(thc_murmur3(1, 0), 0xfbf1402a);
}

static const enum thc_sketch_hashes kinds[] = { THC_SKETCH_THREE, THC_SKETCH_COUPLED };

/* Places equal the formulas of sketch.h, with divisions. */
static void places__are_of_the_hashes(void **state)
{
	unsigned int k, j;
	uint32_t row;

	(void)state;
	for (k = 0; k < 2; k++) {
		struct thc_sketch s = { .hashes = kinds[k] };
		struct thc_places p;

		thc_sketch_shape(&s, 2, k ? 13 : 1, 3001);
		assert_int_equal(s.buckets % (k ? 16 : 3), 0);
		assert_in_range(s.buckets, 3001, 3016);
		for (row = 0; row < 20000; row++) {
			uint64_t h = thc_murmur3(row, 0) % 0x80000000;
			uint64_t window = h * s.windows / 0x80000000;
			uint64_t within = h * s.windows % 0x80000000;

			thc_sketch_places(&s, row, &p);
			for (j = 0; j < s.hashes; j++) {
				uint64_t x = thc_murmur3(row, j);

				within = j ? x % 0x80000000 : within;
				assert_int_equal(p.bucket[j],
						 (window + j) * s.range +
							 within * s.range / 0x80000000);
				assert_int_equal(p.sign[j], x >> 31 ? UINT32_MAX : 0);
			}
		}
	}
}

/* All buckets of a segment are used equally, with either sign. */
static void places__are_even(void **state)
{
	enum { ROWS = 1 << 19 };
	static uint32_t hits[64][2];
	unsigned int k, j, sign, i;
	uint32_t row;

	(void)state;
	for (k = 0; k < 2; k++) {
		struct thc_sketch s = { .hashes = kinds[k] };
		struct thc_places p;

		thc_sketch_shape(&s, 0, k ? 5 : 1, k ? 64 : 63);
		memset(hits, 0, sizeof(hits));
		for (row = 0; row < ROWS; row++) {
			thc_sketch_places(&s, row, &p);
			for (j = 0; j < s.hashes; j++)
				hits[p.bucket[j]][!!p.sign[j]]++;
		}
		for (i = 0; i < s.buckets; i++) {
			/* segments at the ends belong to fewer windows */
			uint32_t segment = i / s.range, of = s.hashes;

			if (segment + 1 < of)
				of = segment + 1;
			if (k && 8 - segment < of)
				of = 8 - segment;
			if (!k)
				of = 1;
			for (sign = 0; sign < 2; sign++)
				assert_in_range(hits[i][sign],
						.95 * ROWS * of / s.windows / s.range / 2,
						1.05 * ROWS * of / s.windows / s.range / 2);
		}
	}
}

/* --- layout ----------------------------------------------------------------- */

static void init__cuts_buckets(void **state)
{
	static const size_t counts[] = { 1,	  31,	    4096,	   4097,
					 100000,  1 << 20,  (1 << 20) + 1, (1 << 20) + 5,
					 6553600, 200000001 };
	unsigned int c, k, d;
	uint32_t windows;

	(void)state;
	for (c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		for (k = 0; k < 2; k++) {
			for (d = 0; d < 5; d++) {
				size_t capacity = counts[c] / (1U << 3 * d), before;
				struct thc_sketch s;

				thc_sketch_init(&s, counts[c], capacity, kinds[k]);
				assert_int_equal(s.part % THC_SKETCH_PART_STEP, 0);
				assert_in_range(s.part, 1, THC_SKETCH_PART_MAX);
				assert_true((size_t)s.parts * s.part >= counts[c]);
				assert_true((size_t)(s.parts - 1) * s.part < counts[c]);
				before = (size_t)(s.parts - 1) * s.part / 32;
				assert_int_equal(before + thc_sketch_part_words(&s, s.parts - 1),
						 (counts[c] + 31) / 32);
				assert_in_range(s.lanes_log2, 0, 4);
				assert_true(thc_sketch_cells(&s) > capacity);
				/* a larger capacity gives room for all items */
				if (!d)
					thc_sketch_init(&s, counts[c], 2 * capacity, kinds[k]);
				assert_true(thc_sketch_cells(&s) > capacity);
			}
		}
	}
	/* the number of lanes grows with the items */
	for (c = 0; c < 6; c++) {
		struct thc_sketch s;

		thc_sketch_init(&s, 1 << 20, 40000U << c, THC_SKETCH_THREE);
		assert_int_equal(s.lanes_log2, c < 5 ? c : 4);
	}
	/* far from 0 items a lane goes the factor of the published designs */
	assert_in_range(thc_sketch_buckets(THC_SKETCH_THREE, 1000000, &windows), 1222000, 1240000);
	assert_int_equal(windows, 1);
	assert_in_range(thc_sketch_buckets(THC_SKETCH_COUPLED, 1000000, &windows), 1050000,
			1130000);
}

/* Exactly as many items as buckets are for: nine of ten draws leave nothing. */
static void buckets__are_enough(void **state)
{
	static const uint32_t items[] = { 1, 2, 5, 12, 31, 100, 250, 777, 2000, 5000, 14000 };
	unsigned int c, k, i, draws, whole;
	uint32_t windows, buckets;
	size_t n;

	(void)state;
	for (c = 0; c < sizeof(items) / sizeof(*items); c++) {
		for (k = 0; k < 2; k++) {
			struct bed b = { .s.count = 32 * (size_t)items[c] + 1,
					 .s.hashes = kinds[k] };

			thc_sketch_init(&b.s, b.s.count, items[c], kinds[k]);
			buckets = thc_sketch_buckets(kinds[k], items[c], &windows);
			thc_sketch_shape(&b.s, 0, windows, buckets);
			begin(&b);
			draws = items[c] < 1000 ? 400 : 60;
			for (i = whole = 0; i < draws; i++) {
				memset(b.all, 0, words_of(&b) * sizeof(*b.all));
				for (n = 0; n < items[c]; n = items_of(&b))
					for (; n < items[c]; n++)
						give(&b, 0, random_word() % b.s.count);
				whole += !thc_peel_find(&b.peel, &b.s, 0, b.all);
			}
			assert_in_range(whole, draws * 85 / 100, draws);
			end(&b);
		}
	}
}

/* --- peeling ---------------------------------------------------------------- */

static void peel__sums_of_ranks(void **state)
{
	static const size_t counts[] = { 1, 2, 31, 33, 4095, 4097, 70001, (1 << 20) + 5 };
	static const unsigned int widths[] = { 32, 16, 8 };
	unsigned int c, k, d, turn = 0;

	(void)state;
	for (c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		for (k = 0; k < 2; k++) {
			for (d = 0; d < 4; d++) {
				size_t items = counts[c] >> 2 * d, n;
				struct bed b;

				/* made for all items; in the last case, for their number */
				thc_sketch_init(&b.s, counts[c], d == 3 ? items : 4 * items,
						kinds[k]);
				spread(&b.s, turn % 5);
				begin(&b);
				give_random(&b, items);
				add_all(&b, 0);
				n = check_all(&b, widths[turn++ % 3]);
				/* no core is left, but some rows may have equal buckets */
				if (counts[c] > 4097 && d < 3)
					assert_in_range(n, 0, 8);
				end(&b);
			}
		}
	}
}

static void peel__of_nothing_and_of_all(void **state)
{
	static const size_t counts[] = { 1, 33, 5000, 40000 };
	unsigned int c, k, d;
	size_t i, n;

	(void)state;
	for (c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		for (k = 0; k < 2; k++) {
			for (d = 0; d < 3; d++) {
				struct bed b;

				/* made for no item, for half of all, for all */
				thc_sketch_init(&b.s, counts[c], d * counts[c] / 2, kinds[k]);
				begin(&b);
				add_all(&b, 0);
				assert_int_equal(check_all(&b, 32), 0);
				assert_int_equal(b.peel.items, 0);
				for (i = 0; i < counts[c]; i++)
					give(&b, i % RANKS, i);
				add_all(&b, 0);
				n = check_all(&b, 32);
				assert_true(d == 2 ? counts[c] < 5000 || !n :
						     n || counts[c] < 5000);
				end(&b);
			}
		}
	}
}

static void peel__core_is_left(void **state)
{
	unsigned int k, lanes_log2;
	size_t items, left;

	(void)state;
	for (k = 0; k < 2; k++) {
		for (lanes_log2 = 0; lanes_log2 <= 4; lanes_log2 += 2) {
			struct bed b;

			thc_sketch_init(&b.s, 200000, 1, kinds[k]);
			thc_sketch_shape(&b.s, lanes_log2, k ? 10 : 1, 20000 >> lanes_log2);
			begin(&b);
			while (items_of(&b) < 20000 / 9 * 10)
				give(&b, random_word() % RANKS, random_word() % b.s.count);
			items = items_of(&b);
			add_all(&b, 0);
			left = check_all(&b, 32);
			/* nearly all of so many items are in the core, but not all */
			assert_in_range(left, items / 2, items - 1);
			end(&b);
		}
	}
}

/* A row with the same buckets as @row. */
static uint32_t twin_of(const struct thc_sketch *s, uint32_t row)
{
	struct thc_places p, q;
	uint32_t other = row;

	memset(&p, 0, sizeof(p));
	memset(&q, 0, sizeof(q));
	thc_sketch_places(s, row, &p);
	do
		thc_sketch_places(s, ++other, &q);
	while (memcmp(p.bucket, q.bucket, sizeof(p.bucket)));
	return other;
}

static void peel__twins_are_left(void **state)
{
	unsigned int k, row;

	(void)state;
	for (k = 0; k < 2; k++) {
		for (row = 0; row < 20; row++) {
			struct bed b;
			uint32_t twin;

			thc_sketch_init(&b.s, 1 << 19, 1, kinds[k]);
			thc_sketch_shape(&b.s, 2, k ? 2 : 1, 30);
			begin(&b);
			twin = twin_of(&b.s, row);
			assert_true(4 * twin + 4 < b.s.count);
			/* lane 1 gets both rows, lane 2 only the twin */
			give(&b, 0, 4 * row + 1);
			give(&b, 1, 4 * twin + 1);
			give(&b, 2, 4 * twin + 2);
			add_all(&b, 0);
			assert_int_equal(check_all(&b, 32), 2);
			assert_true(is_set(b.peel.left, 4 * row + 1));
			assert_true(is_set(b.peel.left, 4 * twin + 1));
			end(&b);
		}
	}
}

/* A cell with very many items does not pass for a cell with one. */
static void peel__many_items_a_cell(void **state)
{
	static const unsigned int items[] = { 255,
					      257,
					      THC_PEEL_LOADED - 1,
					      THC_PEEL_LOADED,
					      THC_PEEL_LOADED + 1,
					      THC_PEEL_LOADED + 2,
					      THC_PEEL_LOADED + 3,
					      2 * THC_PEEL_LOADED + 2,
					      2 * THC_PEEL_LOADED + 3 };
	unsigned int k, c;

	(void)state;
	for (k = 0; k < 2; k++) {
		for (c = 0; c < sizeof(items) / sizeof(*items); c++) {
			struct bed b;
			size_t i;

			thc_sketch_init(&b.s, 60000, 1, kinds[k]);
			/* a bucket for each hash */
			thc_sketch_shape(&b.s, 0, 1, 1);
			begin(&b);
			for (i = 0; i < items[c]; i++)
				give(&b, i % RANKS, 7 * i);
			add_all(&b, 0);
			assert_int_equal(check_all(&b, 32), items[c]);
			end(&b);
		}
	}
}

static void sketch__order_of_ranks(void **state)
{
	unsigned int plane;
	uint32_t *before;
	struct bed b;
	size_t bytes;

	(void)state;
	thc_sketch_init(&b.s, 70001, 16000, THC_SKETCH_THREE);
	spread(&b.s, 2);
	begin(&b);
	bytes = PLANES * thc_sketch_cells(&b.s) * sizeof(*before);
	before = malloc(bytes);
	assert_non_null(before);
	give_random(&b, 3000);
	add_all(&b, 0);
	for (plane = 0; plane < PLANES; plane++)
		memcpy(before + plane * thc_sketch_cells(&b.s), b.cells[plane], bytes / PLANES);
	add_all(&b, 2);
	for (plane = 0; plane < PLANES; plane++)
		assert_memory_equal(before + plane * thc_sketch_cells(&b.s), b.cells[plane],
				    bytes / PLANES);
	assert_int_equal(check_all(&b, 32), 0);
	free(before);
	end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(murmur3__vectors),
		cmocka_unit_test(places__are_of_the_hashes),
		cmocka_unit_test(places__are_even),
		cmocka_unit_test(init__cuts_buckets),
		cmocka_unit_test(buckets__are_enough),
		cmocka_unit_test(peel__sums_of_ranks),
		cmocka_unit_test(peel__of_nothing_and_of_all),
		cmocka_unit_test(peel__core_is_left),
		cmocka_unit_test(peel__twins_are_left),
		cmocka_unit_test(peel__many_items_a_cell),
		cmocka_unit_test(sketch__order_of_ranks),
	};

	return cmocka_run_group_tests_name("sketch", tests, NULL, NULL);
}
