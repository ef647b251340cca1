/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Recovers the sums of a bucket's values from the sum of its sketches (sketch.h) and the known
 * union of items. A cell with one item of the union holds that item's value. Subtracting the value
 * from the item's other cells turns cells of two items into cells of one (peeling). Items all of
 * whose cells keep other items (the 2-core) are left. They follow from the union alone, so all
 * ranks are left with the same items.
 *
 * Each part is peeled by itself: first its order is found, then its values by that order, plane by
 * plane where a value has several. The time of both is linear in items and cells.
 */
#ifndef LIBTHC_PEEL_H
#define LIBTHC_PEEL_H

#include <stdint.h>

#include "buffers.h"
#include "sketch.h"

/**
 * struct thc_peel - the peeling of one part
 * @cell: by cell: XOR of the coordinates, in the part, of its items that are not peeled; above
 *	THC_PEEL_COORDINATE bits, their number. THC_PEEL_LOADED stands for at least that many, and
 *	stays: such a cell never has a single item
 * @order: @peeled entries: an item's coordinate in the part, and the hash whose cell has its value;
 *	while the order is being found, also cells of one item, behind these
 * @before: by word: items in the words before
 * @left: the union's bits without the peeled items
 * @items: number of items of the union
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

/* Finds the order of part @part, whose union is @bits, a bit a coordinate, in
 * thc_sketch_part_words() words; no bit is behind the bucket's end. Returns the number of items
 * that are left, which are in p->left.
 */
uint32_t thc_peel_find(struct thc_peel *p, const struct thc_sketch *s, uint32_t part,
		       const uint32_t *bits);
/* Takes values of the part out of its @cells, by the order found with these @bits: the value of the
 * union's item number r goes to @values[r]. Items that are left stay in the cells, and their
 * @values are not written. Cells of 8 or 16 bits: the sum is the lower 8 or 16 bits of a value.
 */
void thc_peel_values(const struct thc_peel *p, const struct thc_sketch *s, const uint32_t *bits,
		     uint32_t *cells, int32_t *values);

#endif /* LIBTHC_PEEL_H */
