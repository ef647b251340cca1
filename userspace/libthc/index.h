/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Which items of a bucket have values: bits that ranks OR. An item is @grain coordinates in a row.
 *
 * The leaf has a bit an item. Each level above has a bit for each word of 32 bits of the level
 * below. The top level is sent whole, of the others the words whose bit the ranks' union has
 * (hierarchical bitmap): so all ranks send the same words, and one that has nothing there sends 0.
 *
 * Words are this rank's until the answer comes, then the union's. Pure functions.
 */
#ifndef LIBTHC_INDEX_H
#define LIBTHC_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"

struct thc_sparse_ops;

#define THC_INDEX_LEVELS	3
/* Words of a chunk. */
#define THC_INDEX_CHUNK		256

/**
 * struct thc_level - one level
 * @word: @words of them
 * @packets: of all chunks
 * @known: words, from the first one on, that are the union's
 * @start: by chunk: the word that it begins with, also of the one that is not whole
 * @came: by chunk: it has its answer; @prefix: all before this one have
 * @found: words that are known to be sent; @searched: words of the level above that were looked at
 * @last_bits: those of the last word that there are
 */
struct thc_level {
	uint32_t	*word;
	uint8_t		*packets;
	uint32_t	*start;
	uint8_t		*came;
	uint32_t	words;
	uint32_t	known;
	uint32_t	prefix;
	uint32_t	found;
	uint32_t	searched;
	uint32_t	last_bits;
};

/* @level[0] is the leaf, @level[levels - 1] the top. */
struct thc_index {
	const struct thc_sparse_ops *sparse;
	struct thc_level	level[THC_INDEX_LEVELS];
	unsigned int		levels;
	unsigned int		grain_log2;
	size_t			count;
};

/* Of @count coordinates; @levels: 1 to 3. @sparse: loops, any of them: results are the same. */
void thc_index_init(struct thc_index *x, const struct thc_sparse_ops *sparse, size_t count,
		    unsigned int grain_log2, unsigned int levels);
void thc_index_lay_out(struct thc_index *x, struct thc_layout *l);

/* This rank's coordinates of words @first to @first + @words of 32 coordinates, a bit each, are
 * those that are not zero. Words of an item come in ascending order.
 */
void thc_index_put(struct thc_index *x, size_t first, const uint32_t *bits, size_t words);
/* Item @item is not zero. */
void thc_index_set(struct thc_index *x, size_t item);
/* The leaf has all of this rank's bits: fills in the levels above. */
void thc_index_rise(struct thc_index *x);

/* What level @at is known to send, by what is known of the level above: how many chunks; *@all:
 * there will be no more.
 */
uint32_t thc_index_size(struct thc_index *x, unsigned int at, bool *all);
/* The words of chunk @chunk of level @at, little-endian, zeros behind the last one. */
void thc_index_fill(const struct thc_index *x, unsigned int at, uint32_t chunk, void *lanes);
/* Its answer. False: it lacks bits of this rank's, so it is no union. */
bool thc_index_answer(struct thc_index *x, unsigned int at, uint32_t chunk, const void *lanes);

/* Coordinates, from the first one on, of which it is known whether the union has them. */
size_t thc_index_known(const struct thc_index *x);
/* The union's coordinates of word @first of 32 coordinates and the following ones, a bit each; one
 * word at least, and the last one begins before the end.
 */
void thc_index_get(const struct thc_index *x, size_t first, uint32_t *bits, size_t words);

#endif /* LIBTHC_INDEX_H */
