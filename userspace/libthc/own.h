/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * What this rank has of a bucket of which few values are not zero: where they are, and they alone,
 * as they were when the bucket was looked at. The values of the ranks' union are made of these: no
 * cache holds the bucket itself.
 */
#ifndef LIBTHC_OWN_H
#define LIBTHC_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fixed.h"

struct thc_sparse_ops;

/* There is room for one in so many of the bucket's coordinates. */
#define THC_OWN_SHARE	8

/**
 * struct thc_own - values of the first @blocks blocks, those that have had room
 * @bits: THC_SCALE_WORDS of each block: which coordinates they are of
 * @values: @count of them, block by block
 * @room: for so many; 0: none is kept
 * @taken: values of the blocks that thc_own_pack() was asked for
 * @all: blocks of the bucket
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

/* Of @count coordinates, if it needs no more than @left bytes: else none is kept. */
void thc_own_init(struct thc_own *o, const struct thc_sparse_ops *sparse, size_t count,
		  size_t left);
size_t thc_own_bytes(const struct thc_own *o);
/* @at: as many bytes, of any content, aligned as floats are; NULL: there are none yet. */
void thc_own_place(struct thc_own *o, void *at);
/* The next block, if it is @block: of its values @x all but those of @words words of bits count as
 * zero.
 */
void thc_own_add(struct thc_own *o, uint32_t block, const float *x, const uint32_t *bits,
		 size_t words);
/* Are the values of @block here? */
bool thc_own_has(const struct thc_own *o, uint32_t block);
/* The values of @block at the places @set, 0 where none is here; to @values, and THC_PACK_SLACK
 * behind them may be written. @set has all of the block's: of a union that lacks some, which is
 * found when it comes, values are wrong. Blocks are asked for in their order; of one that is left
 * out, none is here.
 */
void thc_own_pack(struct thc_own *o, uint32_t block, const uint32_t *set, size_t words,
		  float *values);

#endif /* LIBTHC_OWN_H */
