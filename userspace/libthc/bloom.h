/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * A Bloom filter of a bucket's items: fewer bits than there are items, and some items that the
 * bucket does not have. Ranks OR its bits as an index of one level (index.h), which holds them.
 * Pure functions of integers: all ranks choose and find the same.
 */
#ifndef LIBTHC_BLOOM_H
#define LIBTHC_BLOOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index.h"

/* More items are found by a bitmap sooner than by their hashes. */
#define THC_BLOOM_ITEMS_MAX	(1U << 20)

/**
 * struct thc_bloom - the layout of a filter
 * @items: of the bucket
 * @bits: bits of the filter; 0: a filter would be no shorter than a bitmap, so there is none
 * @hashes: bits set per item
 */
struct thc_bloom {
	size_t		items;
	uint32_t	bits;
	unsigned int	hashes;
};

/* For @capacity of @items items: about one false item per 16 true ones. */
void thc_bloom_init(struct thc_bloom *b, size_t items, size_t capacity);
/* Items that have a bit in @words words of @bits, of which bit 0 is item 32 @first. */
void thc_bloom_put(const struct thc_bloom *b, struct thc_index *x, size_t first,
		   const uint32_t *bits, size_t words);
/* Gets the items of these words that were put in, and some false ones. */
void thc_bloom_get(const struct thc_bloom *b, const struct thc_index *x, size_t first,
		   uint32_t *bits, size_t words);

#endif /* LIBTHC_BLOOM_H */
