// SPDX-License-Identifier: GPL-2.0
/*
 * The index of nonzero items, against a plain list of coordinates: all ranks send the same chunks,
 * whatever the order of answers, and end with the union, item by item.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "codec_ops.h"
#include "index.h"
#include "randomword.h"

enum { RANKS = 3 };
#define WORDS(count)	(((count) + 31) / 32)

struct rank {
	struct thc_index x;
	uint8_t *memory;
};

/* A bucket, its ranks, and a byte a coordinate: is it in the union? */
struct bed {
	size_t count;
	unsigned int grain_log2;
	unsigned int levels;
	struct rank rank[RANKS];
	uint8_t *in;
	uint32_t sent[THC_INDEX_LEVELS];
};

static enum thc_simd simd_of(unsigned int rank)
{
	enum thc_simd simd = (enum thc_simd)(THC_SIMD_SCALAR + rank);

	return thc_simd_ops(simd) ? simd : THC_SIMD_SCALAR;
}

static void put(struct bed *b, struct rank *r, double density)
{
	size_t words = WORDS(b->count), i;
	uint32_t *bits = calloc(words, sizeof(*bits));

	assert_non_null(bits);
	for (i = 0; i < b->count; i++) {
		/* half of them in bursts */
		bool set = random_word() % 1000000 < density * 1e6 ||
			   (i > 40 && random_word() % 8 == 0 &&
			    bits[(i - 1) / 32] >> (i - 1) % 32 & 1);

		bits[i / 32] |= (uint32_t)set << i % 32;
		if (set)
			b->in[i >> b->grain_log2] = 1;
	}
	/* in parts, as blocks come */
	for (i = 0; i < words; i += 128)
		thc_index_put(&r->x, i, bits + i, words - i < 128 ? words - i : 128);
	thc_index_rise(&r->x);
	free(bits);
}

static void make(struct bed *b, double density)
{
	unsigned int i;

	b->in = calloc(b->count, 1);
	assert_non_null(b->in);
	for (i = 0; i < RANKS; i++) {
		struct rank *r = &b->rank[i];
		struct thc_layout l = { .at = NULL };

		/* each by other loops, if this CPU has them */
		thc_index_init(&r->x, thc_simd_ops(simd_of(i))->sparse, b->count, b->grain_log2,
			       b->levels);
		thc_index_lay_out(&r->x, &l);
		r->memory = calloc(1, l.bytes);
		assert_non_null(r->memory);
		l = (struct thc_layout){ .at = r->memory };
		thc_index_lay_out(&r->x, &l);
		/* one rank has no item */
		put(b, r, i == 1 ? 0 : density);
	}
}

static void end(struct bed *b)
{
	unsigned int i;

	for (i = 0; i < RANKS; i++)
		free(b->rank[i].memory);
	free(b->in);
}

/* ORs all ranks' words of a chunk; the places are equal. */
static void unite(struct bed *b, unsigned int at, uint32_t chunk, uint32_t *lanes)
{
	uint32_t own[THC_INDEX_CHUNK];
	unsigned int i, k;

	memset(lanes, 0, sizeof(own));
	for (i = 0; i < RANKS; i++) {
		thc_index_fill(&b->rank[i].x, at, chunk, own);
		for (k = 0; k < THC_INDEX_CHUNK; k++)
			lanes[k] |= own[k];
	}
}

/* One rank gets answers in its own order. A level's answers come only when its size is known;
 * lower levels are sized meanwhile.
 */
static void exchange(struct bed *b, unsigned int at, bool ordered)
{
	uint32_t sized = 0, chunk, i, *order;
	uint32_t lanes[THC_INDEX_CHUNK];
	bool all = false;
	unsigned int k;

	for (k = 0; k < RANKS; k++) {
		uint32_t n = thc_index_size(&b->rank[k].x, at, &all);

		assert_true(all);
		assert_true(!k || n == sized);
		sized = n;
	}
	b->sent[at] = sized;
	order = malloc((sized + 1) * sizeof(*order));
	assert_non_null(order);
	for (i = 0; i < sized; i++)
		order[i] = i;
	for (i = sized; !ordered && i > 1; i--) {
		uint32_t other = (uint32_t)(random_word() % i), was = order[other];

		order[other] = order[i - 1];
		order[i - 1] = was;
	}
	for (k = 0; k < RANKS; k++) {
		for (i = 0; i < sized; i++) {
			chunk = order[i];
			/* other ranks may have this union already, which then does not change */
			unite(b, at, chunk, lanes);
			assert_true(thc_index_answer(&b->rank[k].x, at, chunk, lanes));
			if (at)
				thc_index_size(&b->rank[k].x, at - 1, &all);
		}
	}
	free(order);
}

static bool is_in(const struct bed *b, size_t coordinate)
{
	return coordinate < b->count && b->in[coordinate >> b->grain_log2];
}

static void check_union(struct bed *b)
{
	size_t words = WORDS(b->count), i, first, n;
	uint32_t *one = calloc(words, sizeof(*one)), *many = calloc(words, sizeof(*many)), bits;
	unsigned int k, bit;

	assert_true(one && many);

	for (k = 0; k < RANKS; k++) {
		assert_int_equal(thc_index_known(&b->rank[k].x), b->count);
		for (i = 0; i < words; i++) {
			thc_index_get(&b->rank[k].x, i, &bits, 1);
			for (bit = 0; bit < 32; bit++)
				assert_int_equal(bits >> bit & 1, is_in(b, 32 * i + bit));
			one[i] = bits;
		}
		/* ranges of many words, from any word to any other */
		for (i = 0; i < 8; i++) {
			first = random_word() % words;
			n = 1 + random_word() % (words - first);
			memset(many, 0xff, words * sizeof(*many));
			thc_index_get(&b->rank[k].x, first, many, n);
			assert_memory_equal(many, one + first, n * sizeof(*many));
		}
	}
	free(one);
	free(many);
}

/* Level @at has a bit per 32^at items. Words sent: those below a set bit of the union's level
 * above; in the top level all.
 */
static uint32_t words_sent(const struct bed *b, unsigned int at)
{
	size_t items = (b->count + (1U << b->grain_log2) - 1) >> b->grain_log2, i, step = 32;
	uint8_t *has;
	uint32_t n = 0;
	unsigned int k;

	for (k = 0; k < at; k++)
		step *= 32;
	if (at == b->levels - 1)
		return (uint32_t)((items + step - 1) / step);
	has = calloc(items / step + 1, 1);
	assert_non_null(has);
	for (i = 0; i < items; i++)
		has[i / step] |= b->in[i];
	for (i = 0; i <= items / step; i++)
		n += has[i];
	free(has);
	return n;
}

static void index__all_ranks_have_the_union(void **state)
{
	static const size_t counts[] = { 1, 31, 32, 33, 1023, 1025, 4097, 70000, 600001 };
	static const double densities[] = { 0, 0.0002, 0.01, 0.3, 1 };
	static const unsigned int grains[] = { 0, 1, 3, 4, 5, 6, 8 };
	unsigned int c, d, g, at;

	(void)state;
	for (c = 0; c < sizeof(counts) / sizeof(*counts); c++)
		for (d = 0; d < sizeof(densities) / sizeof(*densities); d++)
			for (g = 0; g < sizeof(grains) / sizeof(*grains); g++) {
				struct bed b = { .count = counts[c], .grain_log2 = grains[g],
						 .levels = 1 + (c + d + g) % 3 };

				make(&b, densities[d]);
				for (at = b.levels; at--;) {
					exchange(&b, at, (c + d) % 2);
					assert_int_equal(b.sent[at],
							 (words_sent(&b, at) + 255) / 256);
				}
				check_union(&b);
				end(&b);
			}
}

/* The aggregator's answer has bits behind the end, which are ignored. */
static void index__has_nothing_behind_its_end(void **state)
{
	static const size_t counts[] = { 1, 33, 1000, 1025, 70001 };
	uint32_t lanes[THC_INDEX_CHUNK];
	unsigned int c, at;
	bool all;

	(void)state;
	for (c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		struct bed b = { .count = counts[c], .levels = 1 + c % 3 };
		struct thc_index *x = &b.rank[c % RANKS].x;
		size_t words = WORDS(b.count);
		uint32_t chunk, chunks;

		make(&b, .5);
		memset(lanes, 0xff, sizeof(lanes));
		for (at = b.levels; at--;) {
			chunks = thc_index_size(x, at, &all);
			assert_true(all);
			assert_int_equal(chunks, (x->level[at].words + 255) / 256);
			if (at < b.levels - 1)
				assert_int_equal(x->level[at].found, x->level[at].words);
			for (chunk = 0; chunk < chunks; chunk++)
				assert_true(thc_index_answer(x, at, chunk, lanes));
		}
		assert_int_equal(thc_index_known(x), b.count);
		assert_int_equal(x->level[0].word[words - 1], UINT32_MAX >> (32 * words - b.count));
		end(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(index__has_nothing_behind_its_end),
		cmocka_unit_test(index__all_ranks_have_the_union),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
