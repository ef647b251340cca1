// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Items of a bucket in a Bloom filter (Bloom, CACM 1970). Two hashes make all of an item's (Kirsch
 * and Mitzenmacher, ESA 2006).
 */
#include <thc/mix.h>

#include "bloom.h"

/* log2 of the number of true items per false one. */
#define RARE_LOG2	4

void thc_bloom_init(struct thc_bloom *b, size_t items, size_t capacity)
{
	uint64_t bits;

	*b = (struct thc_bloom){ .items = items, .hashes = RARE_LOG2 };
	while (capacity << (b->hashes - RARE_LOG2) < items)
		b->hashes++;
	/* a filter half of whose bits are set: hashes / ln 2 for an item */
	bits = (uint64_t)capacity * b->hashes * 185 / 128;
	if (bits < items && items <= THC_BLOOM_ITEMS_MAX)
		b->bits = (uint32_t)bits;
}

/* The bit of an item's hash number @k. */
static uint32_t place_of(const struct thc_bloom *b, uint64_t mixed, unsigned int k)
{
	uint32_t at = (uint32_t)mixed + k * ((uint32_t)(mixed >> 32) | 1);

	return (uint32_t)((uint64_t)at * b->bits >> 32);
}

static void put(const struct thc_bloom *b, struct thc_index *x, size_t item)
{
	uint64_t mixed = thc_mix64(item + 1);
	unsigned int k;

	for (k = 0; k < b->hashes; k++)
		thc_index_set(x, place_of(b, mixed, k));
}

static bool has(const struct thc_bloom *b, const struct thc_index *x, size_t item)
{
	uint64_t mixed = thc_mix64(item + 1);
	unsigned int k;
	uint32_t at;

	for (k = 0; k < b->hashes; k++) {
		at = place_of(b, mixed, k);
		if (!(x->level[0].word[at / 32] >> at % 32 & 1))
			return false;
	}
	return true;
}

void thc_bloom_put(const struct thc_bloom *b, struct thc_index *x, size_t first,
		   const uint32_t *bits, size_t words)
{
	uint32_t left;
	size_t i;

	for (i = 0; i < words; i++)
		for (left = bits[i]; left; left &= left - 1)
			put(b, x, 32 * (first + i) + (size_t)__builtin_ctz(left));
}

void thc_bloom_get(const struct thc_bloom *b, const struct thc_index *x, size_t first,
		   uint32_t *bits, size_t words)
{
	size_t i, item;

	for (i = 0; i < words; i++) {
		bits[i] = 0;
		for (item = 32 * (first + i); item < 32 * (first + i + 1) && item < b->items;
		     item++)
			bits[i] |= (uint32_t)has(b, x, item) << item % 32;
	}
}
