/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The sums of a bucket's values out of the sum of its sketches (sketch.h), by the union of what has
 * values: a cell that one item of the union is in has that item's value, which is taken out of the
 * item's other cells, so that cells of two become cells of one (peeling). Items all of whose cells
 * have others that stay, too (the 2-core), are left. Which are follows from the union alone, so all
 * ranks have the same left.
 *
 * A part at a time, first its order, then values by that order, plane by plane where a value has
 * several. Both take a time that is linear in items and cells.
 */
#ifndef LIBTHC_PEEL_H
#define LIBTHC_PEEL_H

#include <stdint.h>

#include "buffers.h"
#include "sketch.h"

/**
 * struct thc_peel - how one part is taken apart
 * @cell: by cell: XOR of the coordinates, in the part, of its items that are not peeled; above
 *	THC_PEEL_COORDINATE bits, how many these are. THC_PEEL_LOADED: at least so many, which it
 *	stays: such a cell is never one of a single item
 * @order: @peeled of them: an item's coordinate in the part, and which hash's cell has its value;
 *	while the order is found also cells, behind these, of one item
 * @before: by word: items in the words before
 * @left: the union's bits without what is peeled
 * @items: of the union
 *
 * 8 bytes a cell of a part, and 8 for 32 coordinates.
 */
struct thc_peel {
	uint32_t	*cell;
	uint32_t	*order;
	uint32_t	*before;
	uint32_t	*left;
	uint32_t	items;
	uint32_t	peeled;
};

#define THC_PEEL_COORDINATE	20
#define THC_PEEL_LOADED		(UINT32_MAX >> THC_PEEL_COORDINATE)

/* Room for any part of @s. */
void thc_peel_lay_out(struct thc_peel *p, const struct thc_sketch *s, struct thc_layout *l);

/* The order of part @part, of whose union @bits has a bit a coordinate, in
 * thc_sketch_part_words() words; no bit is behind the bucket's end. Returns how many items are
 * left; p->left says which.
 */
uint32_t thc_peel_find(struct thc_peel *p, const struct thc_sketch *s, uint32_t part,
		       const uint32_t *bits);
/* By the order that was found with these @bits: takes values of the part out of its @cells, to
 * @values[r] that of the union's item number r. What is left stays in cells, and as it is in
 * @values. Cells of 8 or 16 bits: the sum is the lower 8 or 16 bits of a value.
 */
void thc_peel_values(const struct thc_peel *p, const struct thc_sketch *s, const uint32_t *bits,
		     uint32_t *cells, int32_t *values);

#endif /* LIBTHC_PEEL_H */
