// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The layout of a sketch, and the addition of values to it. */
#include "sketch.h"

/* Least items of a lane, if there are several lanes. Rows are hashed once for all their lanes,
 * which saves at most a tenth of the time where a row has many items. But few items need more
 * buckets each, and lanes differ in their number of items.
 */
#define LANE_ITEMS	32768
#define LANES_LOG2_MAX	4

/* --- layout ----------------------------------------------------------------- */

/**
 * struct rule - buckets for 2^i items of a lane
 * @three, @coupled: buckets, in thousandths of items
 * @windows: with @coupled
 *
 * Measured, so that nothing is left in nine of ten draws; tools/experiments/lhc_peel.py measures
 * what the rule gives. Ever more items need 1.2218 buckets each with three hashes. With few windows
 * coupled ones need more for the segments at the ends, with many windows segments are so short that
 * chance stops the peeling. Windows are also good for the items of up to the next row.
 */
struct rule {
	uint16_t three;
	uint16_t coupled;
	uint16_t windows;
};

static const struct rule rules[] = {
	{ 3000, 4000, 1 },   { 3500, 3000, 1 },	  { 3250, 2250, 1 },   { 2750, 2125, 1 },
	{ 2313, 1813, 1 },   { 1907, 1532, 1 },	  { 1563, 1454, 1 },   { 1391, 1415, 1 },
	{ 1317, 1380, 1 },   { 1286, 1347, 1 },	  { 1268, 1335, 28 },  { 1254, 1275, 28 },
	{ 1245, 1236, 36 },  { 1238, 1202, 48 },  { 1232, 1166, 48 },  { 1229, 1146, 64 },
	{ 1228, 1121, 64 },  { 1227, 1107, 90 },  { 1226, 1089, 90 },  { 1225, 1083, 128 },
	{ 1224, 1078, 128 },
};
#define RULES	(sizeof(rules) / sizeof(*rules))

uint32_t thc_sketch_buckets(enum thc_sketch_hashes hashes, uint32_t items, uint32_t *windows)
{
	const struct rule *low = rules, *high;
	uint32_t from, to, way;
	unsigned int i;

	for (i = 0; i + 1 < RULES && items >> (i + 1); i++)
		low++;
	high = i + 1 < RULES ? low + 1 : low;
	from = hashes == THC_SKETCH_THREE ? low->three : low->coupled;
	to = hashes == THC_SKETCH_THREE ? high->three : high->coupled;
	way = items - (1U << i);
	/* interpolate between two powers of two */
	from -= (uint32_t)((uint64_t)(from - to) * way >> i);
	*windows = hashes == THC_SKETCH_THREE ? 1 : low->windows;
	return (uint32_t)(((uint64_t)items * from + 999) / 1000);
}

void thc_sketch_shape(struct thc_sketch *s, unsigned int lanes_log2, uint32_t windows,
		      uint32_t buckets)
{
	uint32_t segments = windows + s->hashes - 1;

	s->lanes_log2 = lanes_log2;
	s->windows = windows;
	s->range = (buckets + segments - 1) / segments;
	s->buckets = s->range * segments;
}

static uint32_t root(uint32_t x)
{
	uint32_t r = 0, bit;

	for (bit = 1U << 15; bit; bit >>= 1)
		if ((uint64_t)(r | bit) * (r | bit) <= x)
			r |= bit;
	return r;
}

void thc_sketch_init(struct thc_sketch *s, size_t count, size_t capacity,
		     enum thc_sketch_hashes hashes)
{
	size_t parts = (count + THC_SKETCH_PART_MAX - 1) / THC_SKETCH_PART_MAX;
	size_t part = (count + parts - 1) / parts;
	uint32_t items, windows, buckets;
	unsigned int lanes_log2 = 0;

	part = (part + THC_SKETCH_PART_STEP - 1) / THC_SKETCH_PART_STEP * THC_SKETCH_PART_STEP;
	*s = (struct thc_sketch){
		.count = count, .part = (uint32_t)part, .hashes = hashes,
		.parts = (uint32_t)((count + part - 1) / part),
	};
	if (capacity > count)
		capacity = count;
	/* expected items of a part, in proportion to its coordinates */
	items = (uint32_t)((uint64_t)capacity * part / count);
	while (lanes_log2 < LANES_LOG2_MAX && items >> (lanes_log2 + 1) >= LANE_ITEMS)
		lanes_log2++;
	/* the fullest of some lanes has so many standard deviations more */
	items = (items >> lanes_log2) + 1;
	items += 3 * root(items);
	buckets = thc_sketch_buckets(hashes, items, &windows);
	thc_sketch_shape(s, lanes_log2, windows, buckets);
}

/* --- values ----------------------------------------------------------------- */

/* Adds the values of @words words of one part, which begin with row @row; returns their number. */
static size_t add_to_part(const struct thc_sketch *s, uint32_t row, const uint32_t *bits,
			  size_t words, const int32_t *values, uint32_t *cells)
{
	const uint32_t lanes = 1U << s->lanes_log2;
	struct thc_places p = { { 0 }, { 0 } };
	uint32_t left, hashed = UINT32_MAX, at, bit, *cell;
	unsigned int j;
	size_t n = 0, i;

	for (i = 0; i < words; i++) {
		for (left = bits[i]; left; left &= left - 1) {
			bit = (uint32_t)__builtin_ctz(left);
			at = row + (uint32_t)((32 * i + bit) >> s->lanes_log2);
			if (at != hashed)
				thc_sketch_places(s, at, &p);
			hashed = at;
			cell = cells + (bit & (lanes - 1));
			for (j = 0; j < s->hashes; j++)
				cell[(size_t)p.bucket[j] << s->lanes_log2] +=
					((uint32_t)values[n] ^ p.sign[j]) - p.sign[j];
			n++;
		}
	}
	return n;
}

void thc_sketch_add(const struct thc_sketch *s, size_t first_word, const uint32_t *bits,
		    size_t words, const int32_t *values, uint32_t *cells)
{
	const size_t part_words = s->part / 32;
	size_t part, skip, n;

	for (; words; words -= n) {
		part = first_word / part_words;
		skip = first_word % part_words;
		n = part_words - skip < words ? part_words - skip : words;
		values += add_to_part(s, (uint32_t)(32 * skip >> s->lanes_log2), bits, n, values,
				      cells + part * thc_sketch_part_cells(s));
		bits += n;
		first_word += n;
	}
}
