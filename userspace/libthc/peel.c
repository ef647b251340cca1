// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Peeling by a union that is known. */
#include <stdbool.h>
#include <string.h>

#include "peel.h"

/* Bits of an entry of the order that name the hash; the coordinate is above them. */
#define HASH_BITS	2

void thc_peel_lay_out(struct thc_peel *p, const struct thc_sketch *s, struct thc_layout *l)
{
	uint32_t cells = thc_sketch_part_cells(s), words = s->part / 32;

	p->cell = thc_lay(l, cells * sizeof(*p->cell));
	/* each entry has a cell of its own */
	p->order = thc_lay(l, cells * sizeof(*p->order));
	p->before = thc_lay(l, words * sizeof(*p->before));
	p->left = thc_lay(l, words * sizeof(*p->left));
}

_Static_assert(THC_SKETCH_PART_MAX <= 1U << THC_PEEL_COORDINATE, "a part's coordinates");

static uint32_t load_of(uint32_t cell)
{
	return cell >> THC_PEEL_COORDINATE;
}

/* Has the cell exactly one item? */
static bool is_single(uint32_t cell)
{
	return load_of(cell) == 1;
}

static uint32_t cell_of(const struct thc_sketch *s, uint32_t bucket, uint32_t coordinate)
{
	return bucket << s->lanes_log2 | (coordinate & ((1U << s->lanes_log2) - 1));
}

/* Puts the union's items into their cells. */
static void load(struct thc_peel *p, const struct thc_sketch *s, const uint32_t *bits,
		 uint32_t words)
{
	uint32_t i, bits_left, coordinate, row, hashed = UINT32_MAX, *cell;
	struct thc_places at = { { 0 }, { 0 } };
	unsigned int j;

	p->items = 0;
	for (i = 0; i < words; i++) {
		p->before[i] = p->items;
		p->items += (uint32_t)__builtin_popcount(bits[i]);
		for (bits_left = bits[i]; bits_left; bits_left &= bits_left - 1) {
			coordinate = 32 * i + (uint32_t)__builtin_ctz(bits_left);
			row = coordinate >> s->lanes_log2;
			if (row != hashed)
				thc_sketch_places(s, row, &at);
			hashed = row;
			for (j = 0; j < s->hashes; j++) {
				cell = &p->cell[cell_of(s, at.bucket[j], coordinate)];
				*cell ^= coordinate;
				if (load_of(*cell) < THC_PEEL_LOADED)
					*cell += 1U << THC_PEEL_COORDINATE;
			}
		}
	}
}

/* Takes the only item of @cell out of all its cells, and appends cells that have one item then to
 * the order, at @end. Returns the new end.
 */
static uint32_t take(struct thc_peel *p, const struct thc_sketch *s, uint32_t cell, uint32_t end)
{
	uint32_t coordinate = p->cell[cell] & ((1U << THC_PEEL_COORDINATE) - 1), which = 0, other;
	struct thc_places at = { { 0 }, { 0 } };
	unsigned int j;

	thc_sketch_places(s, coordinate >> s->lanes_log2, &at);
	for (j = 0; j < s->hashes; j++) {
		other = cell_of(s, at.bucket[j], coordinate);
		if (other == cell)
			which = j;
		p->cell[other] ^= coordinate;
		if (load_of(p->cell[other]) == THC_PEEL_LOADED)
			continue;
		p->cell[other] -= 1U << THC_PEEL_COORDINATE;
		if (is_single(p->cell[other]))
			p->order[end++] = other;
	}
	p->left[coordinate / 32] &= ~(1U << coordinate % 32);
	p->order[p->peeled++] = coordinate << HASH_BITS | which;
	return end;
}

uint32_t thc_peel_find(struct thc_peel *p, const struct thc_sketch *s, uint32_t part,
		       const uint32_t *bits)
{
	uint32_t cells = thc_sketch_part_cells(s), words = thc_sketch_part_words(s, part);
	uint32_t cell, begin, end = 0;

	memset(p->cell, 0, cells * sizeof(*p->cell));
	memcpy(p->left, bits, words * sizeof(*bits));
	load(p, s, bits, words);
	for (cell = 0; cell < cells; cell++)
		if (is_single(p->cell[cell]))
			p->order[end++] = cell;
	/* A cell comes to one item once, so all fit; peeled items go where cells have been read. */
	p->peeled = 0;
	for (begin = 0; begin < end; begin++)
		if (is_single(p->cell[p->order[begin]]))
			end = take(p, s, p->order[begin], end);
	return p->items - p->peeled;
}

void thc_peel_values(const struct thc_peel *p, const struct thc_sketch *s, const uint32_t *bits,
		     uint32_t *cells, int32_t *values)
{
	uint32_t i, coordinate, which, value, word, below;
	struct thc_places at = { { 0 }, { 0 } };
	unsigned int j;

	for (i = 0; i < p->peeled; i++) {
		coordinate = p->order[i] >> HASH_BITS;
		which = p->order[i] & ((1U << HASH_BITS) - 1);
		thc_sketch_places(s, coordinate >> s->lanes_log2, &at);
		value = cells[cell_of(s, at.bucket[which], coordinate)];
		value = (value ^ at.sign[which]) - at.sign[which];
		for (j = 0; j < s->hashes; j++)
			cells[cell_of(s, at.bucket[j], coordinate)] -=
				(value ^ at.sign[j]) - at.sign[j];
		word = coordinate / 32;
		below = bits[word] & ((1U << coordinate % 32) - 1);
		values[p->before[word] + (uint32_t)__builtin_popcount(below)] = (int32_t)value;
	}
}
