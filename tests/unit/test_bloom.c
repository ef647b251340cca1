// SPDX-License-Identifier: GPL-2.0
/* A filter finds all items that were put in, and about one more for sixteen of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bloom.h"
#include "codec_ops.h"
#include "randomword.h"
#include "sparse.h"

struct bed {
	struct thc_bloom bloom;
	struct thc_index index;
	uint8_t *room;
	uint32_t *put;
	uint32_t *got;
	size_t words;
};

static void set_up(struct bed *b, size_t items, size_t capacity)
{
	struct thc_layout l = { .at = NULL };

	thc_bloom_init(&b->bloom, items, capacity);
	b->words = (items + 31) / 32;
	b->put = calloc(b->words, sizeof(*b->put));
	b->got = calloc(b->words, sizeof(*b->got));
	thc_index_init(&b->index, thc_simd_ops(THC_SIMD_AUTO)->sparse, b->bloom.bits, 0, 1);
	thc_index_lay_out(&b->index, &l);
	b->room = calloc(1, l.bytes);
	assert_true(b->put && b->got && b->room);
	l = (struct thc_layout){ .at = b->room };
	thc_index_lay_out(&b->index, &l);
}

static void tear_down(struct bed *b)
{
	free(b->put);
	free(b->got);
	free(b->room);
}

/* Items are found, also if their words are put in piece by piece. */
static void filter__finds_what_is_there(void **state)
{
	static const size_t counts[] = { 4097, 65536, 1000001 };
	static const unsigned int each[] = { 20, 100, 250 };
	unsigned int c, e;
	size_t i, n, half;

	(void)state;
	for (c = 0; c < 3; c++)
		for (e = 0; e < 3; e++) {
			struct bed b;

			set_up(&b, counts[c], counts[c] / each[e]);
			assert_true(b.bloom.bits > 0 && b.bloom.bits < counts[c]);
			for (n = 0; n < counts[c] / each[e]; n++) {
				i = random_word() % counts[c];
				b.put[i / 32] |= 1U << i % 32;
			}
			half = b.words / 2;
			thc_bloom_put(&b.bloom, &b.index, half, b.put + half, b.words - half);
			thc_bloom_put(&b.bloom, &b.index, 0, b.put, half);
			thc_bloom_get(&b.bloom, &b.index, 0, b.got, b.words);
			for (i = 0; i < b.words; i++)
				assert_int_equal(b.put[i] & ~b.got[i], 0);
			for (n = 0, i = 0; i < b.words; i++)
				n += (size_t)__builtin_popcount(b.got[i] & ~b.put[i]);
			/* one in sixteen; small counts vary */
			assert_true(n <= counts[c] / each[e] / 8 + 8);
			tear_down(&b);
		}
}

/* An empty filter has nothing, and the last word ends with the bucket. */
static void filter__of_nothing_and_of_all(void **state)
{
	struct bed b;

	(void)state;
	set_up(&b, 70001, 100);
	thc_bloom_get(&b.bloom, &b.index, 0, b.got, b.words);
	assert_int_equal(thc_bits_count(b.got, b.words), 0);
	memset(b.index.level[0].word, 0xff, b.index.level[0].words * sizeof(uint32_t));
	thc_bloom_get(&b.bloom, &b.index, 0, b.got, b.words);
	assert_int_equal(thc_bits_count(b.got, b.words), 70001);
	assert_int_equal(b.got[b.words - 1], (1U << 70001 % 32) - 1);
	tear_down(&b);
}

static void filter__none_where_a_bitmap_is_shorter(void **state)
{
	struct thc_bloom b;

	(void)state;
	thc_bloom_init(&b, 10000, 2000);
	assert_int_equal(b.bits, 0);
	thc_bloom_init(&b, THC_BLOOM_ITEMS_MAX, 100);
	assert_true(b.bits);
	thc_bloom_init(&b, THC_BLOOM_ITEMS_MAX + 1, 100);
	assert_int_equal(b.bits, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filter__finds_what_is_there),
		cmocka_unit_test(filter__of_nothing_and_of_all),
		cmocka_unit_test(filter__none_where_a_bitmap_is_shorter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
