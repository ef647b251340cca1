/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * An index: which items of a bucket have values, as bits that ranks OR. An item is @grain
 * coordinates in a row.
 *
 * The leaf has a bit for each item. Each level above has a bit for each word of 32 bits of the
 * level below. The top level is sent whole. Of each other level the words are sent whose bit the
 * ranks' union has (hierarchical bitmap). So all ranks send the same words, and a rank with no bits
 * there sends 0.
 *
 * Words hold this rank's bits until the answer comes, then the union's. Pure functions.
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
 * @word: @words words
 * @packets: packets of all chunks
 * @known: number of words, from the first one on, that are the union's
 * @start: by chunk: its first word, also for the chunk that is not complete
 * @came: by chunk: it has its answer; @prefix: all chunks before this one have
 * @found: number of words known to be sent; @searched: number of words of the level above that were
 *	searched
 * @last_bits: valid bits of the last word
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

/* For @count coordinates; @levels: 1 to 3. @sparse: any implementation, since results are equal. */
void thc_index_init(struct thc_index *x, const struct thc_sparse_ops *sparse, size_t count,
		    unsigned int grain_log2, unsigned int levels);
void thc_index_lay_out(struct thc_index *x, struct thc_layout *l);

/* Puts in this rank's coordinates that are not zero: words @first to @first + @words of 32
 * coordinates, a bit each. Calls for the words of an item come in ascending order.
 */
void thc_index_put(struct thc_index *x, size_t first, const uint32_t *bits, size_t words);
/* Puts in item @item. */
void thc_index_set(struct thc_index *x, size_t item);
/* Fills in the levels above the leaf, which has all of this rank's bits. */
void thc_index_rise(struct thc_index *x);

/* Number of chunks that level @at is known to send, by the known part of the level above; *@all:
 * the number is final.
 */
uint32_t thc_index_size(struct thc_index *x, unsigned int at, bool *all);
/* The words of chunk @chunk of level @at, little-endian, zeros behind the last one. */
void thc_index_fill(const struct thc_index *x, unsigned int at, uint32_t chunk, void *lanes);
/* Takes in the answer of a chunk. False: it lacks bits of this rank, so it is no union. */
bool thc_index_answer(struct thc_index *x, unsigned int at, uint32_t chunk, const void *lanes);

/* Number of coordinates, from the first one on, for which the union is known. */
size_t thc_index_known(const struct thc_index *x);
/* The union's coordinates of word @first of 32 coordinates and the following ones, a bit each; one
 * word at least, and the last one begins before the end.
 */
void thc_index_get(const struct thc_index *x, size_t first, uint32_t *bits, size_t words);

#endif /* LIBTHC_INDEX_H */
