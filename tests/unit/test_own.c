// SPDX-License-Identifier: GPL-2.0
/* A rank's own values, block by block, against the values of its bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "codec_ops.h"
#include "own.h"
#include "randomword.h"
#include "sparse.h"

enum { BLOCKS = 9, COUNT = 8 * THC_SCALE_BLOCK + 1000, WORDS = BLOCKS * THC_SCALE_WORDS };

/* A bucket, its bits, the bits of a union, and the kept values. */
struct bed {
	struct thc_own own;
	float x[BLOCKS * THC_SCALE_BLOCK];
	uint32_t bits[WORDS];
	uint32_t set[WORDS];
	void *memory;
};

/* @share of 256 coordinates are not zero; @others of 256 are not zero on other ranks. */
static struct bed *make(enum thc_simd simd, unsigned int share, unsigned int others, size_t left)
{
	struct bed *b = calloc(1, sizeof(*b));
	uint32_t i;

	assert_non_null(b);
	for (i = 0; i < COUNT; i++) {
		uint32_t mine = random_word() % 256 < share;
		uint32_t any = mine || random_word() % 256 < others;

		if (mine)
			b->x[i] = (float)(1 + random_word() % 1000);
		b->bits[i / 32] |= mine << i % 32;
		b->set[i / 32] |= any << i % 32;
	}
	thc_own_init(&b->own, thc_simd_ops(simd)->sparse, COUNT, left);
	/* sized to the byte, so that a sanitizer notices overruns */
	if (b->own.room) {
		b->memory = malloc(thc_own_bytes(&b->own));
		assert_non_null(b->memory);
		thc_own_place(&b->own, b->memory);
	}
	return b;
}

static void end(struct bed *b)
{
	free(b->memory);
	free(b);
}

static size_t words_of(uint32_t block)
{
	return block < BLOCKS - 1 ? THC_SCALE_WORDS : (1000 + 31) / 32;
}

static void add(struct bed *b, uint32_t block)
{
	thc_own_add(&b->own, block, b->x + block * THC_SCALE_BLOCK,
		    b->bits + block * THC_SCALE_WORDS, words_of(block));
}

/* The block's values of the union are the bucket's. */
static void check(struct bed *b, uint32_t block)
{
	const uint32_t *set = b->set + block * THC_SCALE_WORDS;
	float values[THC_SCALE_BLOCK + THC_PACK_SLACK];
	uint32_t i, n = 0;

	thc_own_pack(&b->own, block, set, words_of(block), values);
	for (i = 0; i < 32 * words_of(block); i++)
		if (set[i / 32] >> i % 32 & 1)
			assert_true(values[n++] == b->x[block * THC_SCALE_BLOCK + i]);
}

static void own__has_the_values_of_the_union(void **state)
{
	unsigned int others;
	enum thc_simd simd;
	uint32_t k;

	(void)state;
	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++)
		for (others = 0; others <= 256 && thc_simd_ops(simd); others += 32) {
			struct bed *b = make(simd, 16, others, SIZE_MAX);

			for (k = 0; k < BLOCKS; k++)
				add(b, k);
			for (k = 0; k < BLOCKS; k++) {
				assert_true(thc_own_has(&b->own, k));
				check(b, k);
			}
			end(b);
		}
}

/* A quarter is not zero, with room for an eighth: the first values are kept. */
static void own__keeps_what_has_room(void **state)
{
	struct bed *b = make(THC_SIMD_AUTO, 64, 10, SIZE_MAX);
	uint32_t k, kept = 0;

	(void)state;
	for (k = 0; k < BLOCKS; k++)
		add(b, k);
	for (k = 0; k < BLOCKS; k++)
		kept += thc_own_has(&b->own, k);
	assert_in_range(kept, 3, 5);
	assert_true(b->own.count <= COUNT / THC_OWN_SHARE);
	for (k = 0; k < kept; k++) {
		assert_true(thc_own_has(&b->own, k));
		check(b, k);
	}
	end(b);
}

/* The room is full to the last value, and in its last word all values are own ones. */
static void own__is_full_to_the_last_value(void **state)
{
	const size_t room = COUNT / THC_OWN_SHARE;
	enum thc_simd simd;
	size_t i;

	(void)state;
	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++) {
		struct bed *b = thc_simd_ops(simd) ? make(simd, 0, 40, SIZE_MAX) : NULL;

		for (i = 0; b && i < room; i++) {
			b->x[i] = (float)(1 + i);
			b->bits[i / 32] |= 1U << i % 32;
			b->set[i / 32] |= 1U << i % 32;
		}
		for (i = 0; b && i < BLOCKS; i++)
			add(b, (uint32_t)i);
		for (i = 0; b && i < BLOCKS; i++) {
			assert_true(thc_own_has(&b->own, (uint32_t)i));
			check(b, (uint32_t)i);
		}
		if (b) {
			assert_int_equal(b->own.count, room);
			end(b);
		}
	}
}

static void own__keeps_nothing_without_memory(void **state)
{
	struct bed *b = make(THC_SIMD_AUTO, 16, 0, SIZE_MAX);
	size_t bytes = thc_own_bytes(&b->own);
	uint32_t k;

	(void)state;
	assert_int_equal(bytes, 4 * (WORDS + COUNT / THC_OWN_SHARE + THC_PACK_SLACK));
	end(b);
	b = make(THC_SIMD_AUTO, 16, 0, bytes);
	assert_int_equal(thc_own_bytes(&b->own), bytes);
	end(b);
	b = make(THC_SIMD_AUTO, 0, 0, bytes - 1);
	assert_int_equal(thc_own_bytes(&b->own), 0);
	for (k = 0; k < BLOCKS; k++) {
		add(b, k);
		assert_false(thc_own_has(&b->own, k));
	}
	end(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own__has_the_values_of_the_union),
		cmocka_unit_test(own__keeps_what_has_room),
		cmocka_unit_test(own__is_full_to_the_last_value),
		cmocka_unit_test(own__keeps_nothing_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
