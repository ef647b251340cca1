/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The values of a bucket as chunks of integers that are added (fixed.h), and sums as means.
 *
 * Values are those of all coordinates, in order, or of those that an index has: a block of which it
 * has more than seven tenths has all of them. Blocks of zeros have none if they are exact. A
 * group is as many values as a chunk has lanes. Fixed point has a chunk a group; exact values have
 * as many as the block of the group that has the most limbs, one behind the other, lowest digit
 * first. So how many chunks there are is known as far as scales and index are.
 *
 * Packets are in a ring. A sum waits where the payload was until its whole block can be had: blocks
 * go into the caller's buffer one after the other.
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
 * @block, @skip: whose its first value is, and how many of that block are before it
 * @chunk: its first one
 * @limbs: its chunks
 * @summed: how many of them have their sum
 */
struct thc_group {
	uint32_t	block;
	uint32_t	chunk;
	uint16_t	skip;
	uint8_t		limbs;
	uint8_t		summed;
};

/**
 * struct thc_addends - the values of a bucket on their way
 * @scales: of their blocks
 * @index: NULL: values are those of all coordinates
 * @phase: number of theirs
 * @digits: how values are lanes
 * @each: values of a group
 * @there: by block: its values
 * @group: @groups of them are whole, the next one has @filled values of blocks before @block
 * @chunks: of the whole groups
 * @found: coordinates that the index has
 * @ring: places of @packets; @group_of: by place: whose the chunk there is
 * @making, @limb: chunk that is made next
 * @landed: blocks whose means are in the caller's buffer; @before: what those had, and some more,
 *	@kept values: all of a block, or of one that is not @whole those that it has, since its
 *	others are +0 and stay; NULL: of rows
 * @landing, @at: group and value of it that the next block begins with
 * @source: the values, as fp32, and what was sent of them is zero then; NULL: the caller's buffer.
 *	It is set before memory is allocated
 * @own: this rank's values by themselves, if whoever looked at the bucket kept them
 * @loaded, @means: room for a block of values
 * @packed: values of groups from @making on: @packed_to of them, of blocks before @packing; the
 *	group's are @packed_from there. @set, @dense: room for a block. All with an index alone
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
/* Of @r's buffer, as it is. @index: NULL, or it has this rank's bits, and stays. */
void thc_addends_init(struct thc_addends *a, const struct thc_request *r,
		      const struct thc_scales *scales, const struct thc_index *index);
void thc_addends_lay_out(struct thc_addends *a, const struct thc_request *r, struct thc_layout *l);
/* Memory for @r, @taken of it, by @lay_out, which lays out values, too. -ENOMEM. */
int thc_addends_allocate(struct thc_request *r, struct thc_addends *a, struct thc_taken *taken,
			 size_t growth,
			 void (*lay_out)(struct thc_request *r, struct thc_layout *l));
/* Their phase, number @phase of @r. */
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
/* What is known of scales and index says which chunks there are. */
void thc_addends_size(struct thc_addends *a, struct thc_request *r);
/* Makes chunks, a slice of them at most; false: none can be made now. */
bool thc_addends_make(struct thc_addends *a, struct thc_request *r);
/* The sum of chunk @chunk. */
void thc_addends_answer(struct thc_addends *a, struct thc_request *r, uint32_t chunk,
			const uint8_t *lanes);
/* The caller's buffer is what it was. */
void thc_addends_undo(const struct thc_addends *a, const struct thc_request *r);

#endif /* LIBTHC_ADDENDS_H */
