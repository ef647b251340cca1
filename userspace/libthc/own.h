/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * This rank's values of a sparse bucket, by themselves: the places and values that were not zero
 * when the bucket was looked at. The values to send, at the places of the ranks' union, are made
 * from these, since no cache holds the bucket itself.
 */
#ifndef LIBTHC_OWN_H
#define LIBTHC_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fixed.h"

struct thc_sparse_ops;

/* The room is the number of the bucket's coordinates divided by this. */
#define THC_OWN_SHARE	8

/**
 * struct thc_own - values of the first @blocks blocks, as many as there was room for
 * @bits: THC_SCALE_WORDS of each block: bits of the coordinates that have values
 * @values: @count values, block by block
 * @room: most values; 0: none is kept
 * @taken: values of the blocks that thc_own_pack() has read
 * @all: number of the bucket's blocks
 */
struct thc_own {
	const struct thc_sparse_ops	*sparse;
	uint32_t			*bits;
	float				*values;
	size_t				room;
	size_t				count;
	size_t				taken;
	uint32_t			blocks;
	uint32_t			all;
};

/* For a bucket of @count coordinates; keeps nothing if that needs more than @left bytes. */
void thc_own_init(struct thc_own *o, const struct thc_sparse_ops *sparse, size_t count,
		  size_t left);
size_t thc_own_bytes(const struct thc_own *o);
/* @at: thc_own_bytes() bytes of any content, aligned for floats; NULL: not allocated yet. */
void thc_own_place(struct thc_own *o, void *at);
/* Adds @block, if it is the next one: the values @x that have a bit in @words words of @bits. */
void thc_own_add(struct thc_own *o, uint32_t block, const float *x, const uint32_t *bits,
		 size_t words);
/* Are the values of @block here? */
bool thc_own_has(const struct thc_own *o, uint32_t block);
/* Writes the values of @block at the places @set, 0 where this rank has none, to @values;
 * THC_PACK_SLACK floats behind them may be written, too. @set has all of this rank's places: a
 * union that lacks some gives wrong values, and its answer is refused later. Calls are in the order
 * of blocks; a block that is left out has no values here.
 */
void thc_own_pack(struct thc_own *o, uint32_t block, const uint32_t *set, size_t words,
		  float *values);

#endif /* LIBTHC_OWN_H */
