/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The values of a bucket as chunks of integers that are added (fixed.h), and sums as means.
 *
 * The values sent are those of all coordinates, in order, or those that an index has. A block of
 * which the index has more than seven tenths is sent whole. A block of zeros has no exact values. A
 * group is as many values as a chunk has lanes. In fixed point a group is one chunk. Exact values
 * of a group have as many chunks as its block with the most limbs, one behind the other, the lowest
 * digit first. So the number of chunks is known as far as scales and index are.
 *
 * Packets are in a ring. A sum stays in the place of its payload until its whole block is there:
 * blocks go into the caller's buffer in order.
 */
#ifndef LIBTHC_ADDENDS_H
#define LIBTHC_ADDENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "fixed.h"
#include "index.h"
#include "own.h"
#include "phase.h"
#include "scales.h"

/**
 * struct thc_group - as many values as a chunk has lanes, fewer in the last one
 * @block, @skip: block of its first value, and number of that block's values before it
 * @chunk: number of its first chunk
 * @limbs: number of its chunks
 * @summed: number of its chunks that have their sum
 */
struct thc_group {
	uint32_t	block;
	uint32_t	chunk;
	uint16_t	skip;
	uint8_t		limbs;
	uint8_t		summed;
};

/**
 * struct thc_addends - the values of a bucket in progress
 * @scales: scales of the bucket's blocks
 * @index: NULL: all coordinates have values
 * @phase: number of their phase
 * @digits: how values become lanes
 * @each: values of a group
 * @there: by block: number of its values
 * @group: @groups complete ones, and one with @filled values of blocks before @block
 * @chunks: number of chunks in complete groups
 * @found: number of coordinates that the index has
 * @ring: places of @packets; @group_of: by place: the group of its chunk
 * @making, @limb: group and limb of the next chunk to make
 * @landed: number of blocks whose means are in the caller's buffer; @before: old values of these
 *	blocks, and some more, @kept values: all of a block, or, of one that is not @whole, those
 *	that the index has, since its others are +0 and stay; NULL: of rows
 * @landing, @at: group, and value of it, with which the next block begins
 * @source: the values, as fp32, which are zeroed when they are sent; NULL: the caller's buffer. Set
 *	before memory is allocated
 * @own: this rank's values by themselves, if the pass over the bucket kept them
 * @loaded, @means: room for a block of values
 * @packed: values of groups from @making on: @packed_to values, of blocks before @packing; the
 *	group's begin at @packed_from. @set, @dense: room for a block. Used with an index alone
 */
struct thc_addends {
	const struct thc_sparse_ops *sparse;
	const struct thc_scales	*scales;
	const struct thc_index	*index;
	unsigned int		phase;
	struct thc_digits	digits;
	uint32_t		each;
	uint16_t		*there;
	struct thc_group	*group;
	uint32_t		groups;
	uint32_t		filled;
	uint32_t		block;
	uint32_t		chunks;
	uint32_t		found;
	uint32_t		ring;
	uint8_t			*packets;
	uint32_t		*group_of;
	uint32_t		making;
	uint32_t		limb;
	uint32_t		landed;
	uint8_t			*before;
	size_t			kept;
	uint8_t			*whole;
	uint32_t		landing;
	uint32_t		at;
	float			*source;
	struct thc_own		own;
	float			*loaded;
	float			*means;
	float			*packed;
	uint32_t		packed_from;
	uint32_t		packed_to;
	uint32_t		packing;
	float			*dense;
	uint32_t		*set;
};

/* How floats of @r are sent. */
struct thc_digits thc_addends_digits(const struct thc_request *r);
/* Begins with @r's buffer. @index: NULL, or an index with this rank's bits, which outlives @a. */
void thc_addends_init(struct thc_addends *a, const struct thc_request *r,
		      const struct thc_scales *scales, const struct thc_index *index);
void thc_addends_lay_out(struct thc_addends *a, const struct thc_request *r, struct thc_layout *l);
/* Allocates memory for @r to @taken, laid out by @lay_out, which lays out values, too. -ENOMEM. */
int thc_addends_allocate(struct thc_request *r, struct thc_addends *a, struct thc_taken *taken,
			 size_t growth,
			 void (*lay_out)(struct thc_request *r, struct thc_layout *l));
/* The phase of the values, number @phase of @r. */
struct thc_phase thc_addends_phase(struct thc_addends *a, struct thc_request *r,
				   unsigned int phase);
/* Coordinates of @block that the bucket has, and where they are in the caller's buffer. */
size_t thc_addends_count(const struct thc_request *r, uint32_t block);
uint8_t *thc_addends_of(const struct thc_request *r, uint32_t block);
/* @n values of @block in the caller's buffer, from its value @skip on, as fp32; good until the next
 * call.
 */
const float *thc_addends_load(const struct thc_addends *a, const struct thc_request *r,
			      uint32_t block, size_t skip, size_t n);
/* Finds all chunks that follow from the known scales and index. */
void thc_addends_size(struct thc_addends *a, struct thc_request *r);
/* Makes chunks, at most a slice; false: none can be made now. */
bool thc_addends_make(struct thc_addends *a, struct thc_request *r);
/* The sum of chunk @chunk. */
void thc_addends_answer(struct thc_addends *a, struct thc_request *r, uint32_t chunk,
			const uint8_t *lanes);
/* Restores the caller's buffer. */
void thc_addends_undo(const struct thc_addends *a, const struct thc_request *r);

#endif /* LIBTHC_ADDENDS_H */
