// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme lhc as published, for small buckets: index and values travel at the same time, so an
 * all-reduce takes one round trip after its agreement. The values are a count sketch (sketch.h),
 * the index is a bitmap or a Bloom filter (bloom.h). Values that peeling (peel.h) leaves are sent
 * again, by themselves: nothing is estimated. All values have one scale, which the claims bring.
 *
 * The number of cells follows from the unions of earlier rounds. A larger union leaves more values,
 * which costs only time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thc/wire/format.h>

#include "addends.h"
#include "bloom.h"
#include "client.h"
#include "codec.h"
#include "codec_ops.h"
#include "dtype.h"
#include "history.h"
#include "index_phases.h"
#include "peel.h"
#include "planes.h"
#include "request.h"
#include "scheme_lhc.h"
#include "sketch.h"
#include "sparse.h"

enum { INDEX = THC_AGREEMENT_PHASES, CELLS, REST, PHASES };

/**
 * struct thc_progress - a bucket in progress
 * @digits: how values become digits, in words of 32 bits; @width: bits of their lanes
 * @looked, @sketched: of @blocks: blocks whose scale and index are known, blocks whose values are
 *	in cells
 * @loaded, @packed, @number: room for a block
 * @cells: cells of the sketch; @rest: values that peeling leaves
 * @there, @left: a bit a coordinate: of the union, of the values that peeling leaves
 * @sums: sums of the union's @items, a plane per digit
 * @landed: the caller's buffer has the means, and thc_request.taken its old values
 */
struct thc_progress {
	struct thc_index	index;
	struct thc_bloom	bloom;
	struct thc_sketch	sketch;
	struct thc_peel		peel;
	const struct thc_sparse_ops *sparse;
	struct thc_digits	digits;
	unsigned int		width;
	uint32_t		blocks;
	uint32_t		looked;
	uint32_t		sketched;
	float			*loaded;
	float			*packed;
	int32_t			*number;
	struct thc_planes	cells;
	struct thc_planes	rest;
	uint32_t		*there;
	uint32_t		*left;
	int32_t			*sums;
	size_t			items;
	bool			landed;
};

/* --- blocks ------------------------------------------------------------------- */

static const float *load(const struct thc_request *r, uint32_t block)
{
	const struct thc_progress *g = r->progress;
	const void *from = thc_addends_of(r, block);

	if (r->dtype == THC_FP32)
		return from;
	thc_load(r->dtype, g->loaded, from, thc_addends_count(r, block));
	return g->loaded;
}

static size_t words_of(const struct thc_request *r, uint32_t block)
{
	return (thc_addends_count(r, block) + 31) / 32;
}

/* --- memory and phases -------------------------------------------------------- */

bool thc_sketch_pays(const struct thc_request *r, const struct thc_habit *habit)
{
	const struct thc_spec *s = &r->client->spec;

	return s->scheme == THC_SCHEME_LHC && s->scheme_features & THC_SCHEME_F_SKETCH &&
	       habit->known && !habit->rest && !r->keep && habit->density < THC_SKETCH_DENSEST;
}

/* Expected items: those of the last union, and an eighth more. */
static size_t capacity_of(const struct thc_request *r, const struct thc_habit *habit)
{
	uint64_t items = (uint64_t)r->count * (uint32_t)habit->density / THC_DENSITY_ONE;

	return (size_t)(items + items / 8 + 16);
}

static void lay_out(struct thc_progress *g, struct thc_layout *l)
{
	thc_index_lay_out(&g->index, l);
	g->loaded = thc_lay(l, THC_SCALE_BLOCK * sizeof(*g->loaded));
	g->packed = thc_lay(l, (THC_SCALE_BLOCK + THC_PACK_SLACK) * sizeof(*g->packed));
	g->number = thc_lay(l, THC_SCALE_BLOCK * sizeof(*g->number));
}

static void choose(struct thc_request *r, size_t capacity)
{
	bool coupled = r->client->spec.scheme_features & THC_SCHEME_F_COUPLED;
	struct thc_progress *g = r->progress;

	g->digits = thc_addends_digits(r);
	g->width = g->digits.width;
	g->digits.width = 32;
	g->sparse = r->client->simd->sparse;
	g->blocks = (uint32_t)((r->count + THC_SCALE_BLOCK - 1) / THC_SCALE_BLOCK);
	thc_sketch_init(&g->sketch, r->count, capacity,
			coupled ? THC_SKETCH_COUPLED : THC_SKETCH_THREE);
	if (!r->grain_log2)
		thc_bloom_init(&g->bloom, r->count, capacity);
	if (g->bloom.bits)
		thc_index_init(&g->index, g->sparse, g->bloom.bits, 0, 1);
	else
		thc_index_init(&g->index, g->sparse, r->count, r->grain_log2, 1);
}

static int prepare(struct thc_request *r, size_t growth)
{
	struct thc_progress *g = calloc(1, sizeof(*g));
	struct thc_layout l = { .at = NULL };
	const struct thc_habit *habit;
	unsigned int k;

	if (!g)
		return -ENOMEM;
	r->progress = g;
	habit = thc_history_begin(r->client, r->client->context[THC_SCHEME_LHC], r->key, r->round);
	if (!habit)
		return -ENOMEM;
	choose(r, capacity_of(r, habit));
	lay_out(g, &l);
	if (thc_buffers_take(r->client, &r->taken, r->count * thc_dtype_size(r->dtype), l.bytes,
			     growth))
		return -ENOMEM;
	l = (struct thc_layout){ .at = r->taken.arrays };
	lay_out(g, &l);
	r->levels = 1;
	r->sketched = true;
	r->scale = THC_SCALE_ZERO;
	thc_index_phases_init(&g->index, r, INDEX);
	/* the number of chunks is not known yet */
	for (k = CELLS; k < PHASES; k++)
		r->phases.phase[k] = (struct thc_phase){ .request = r };
	r->phases.count = PHASES;
	return 0;
}

/* Allocates arrays to @taken, laid out by @lay. */
static int take_arrays(struct thc_request *r, struct thc_taken *taken,
		       void (*lay)(struct thc_request *r, struct thc_layout *l))
{
	struct thc_layout l = { .at = NULL };

	lay(r, &l);
	if (!thc_buffers_take(r->client, taken, 0, l.bytes, 0)) {
		l = (struct thc_layout){ .at = taken->arrays };
		lay(r, &l);
		return 0;
	}
	r->status = -ENOMEM;
	r->broken = true;
	snprintf(r->sentence, sizeof(r->sentence), "out of memory for a sketch of %zu values",
		 r->count);
	return -ENOMEM;
}

/* --- what this rank has --------------------------------------------------------- */

static void widen(struct thc_scale *s, struct thc_scale by)
{
	if (thc_scale_is_zero(by))
		return;
	if (thc_scale_is_zero(*s))
		*s = by;
	s->top = by.top > s->top ? by.top : s->top;
	s->low = by.low < s->low ? by.low : s->low;
}

/* Marks the values of @block that are not zero; returns the values. */
static const float *mark(const struct thc_request *r, uint32_t block, uint32_t *bits)
{
	const struct thc_progress *g = r->progress;
	const float *x = load(r, block);

	g->sparse->mark(x, thc_addends_count(r, block), 1, bits);
	return x;
}

/* False: a value is not finite. */
static bool look_at(struct thc_request *r, uint32_t block)
{
	size_t first = (size_t)block * THC_SCALE_WORDS, words = words_of(r, block), bad;
	struct thc_progress *g = r->progress;
	uint32_t bits[THC_SCALE_WORDS];
	struct thc_scale scale;
	const float *x = mark(r, block, bits);

	if (!thc_scale_measure(g->digits.ops, x, thc_addends_count(r, block), g->digits.exact,
			       &scale, &bad)) {
		r->bad = (size_t)block * THC_SCALE_BLOCK + bad;
		r->claim_status = THC_CLAIM_NOT_FINITE;
		return false;
	}
	widen(&r->scale, scale);
	if (g->bloom.bits)
		thc_bloom_put(&g->bloom, &g->index, first, bits, words);
	else
		thc_index_put(&g->index, first, bits, words);
	return true;
}

static void look_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	uint32_t end = g->looked + THC_SLICE / THC_SCALE_BLOCK;

	while (g->looked < g->blocks && g->looked < end)
		g->looked = look_at(r, g->looked) ? g->looked + 1 : g->blocks;
	r->claimed = g->looked == g->blocks;
}

/* --- out ------------------------------------------------------------------------ */

static void lay_out_cells(struct thc_request *r, struct thc_layout *l)
{
	thc_planes_lay_out(&((struct thc_progress *)r->progress)->cells, l);
}

static void agreed(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	unsigned int planes;

	r->scale = thc_agree_scale(r);
	planes = thc_scale_is_zero(r->scale) ? 0 : thc_digits_count(&g->digits, r->scale);
	thc_planes_init(&g->cells, thc_sketch_cells(&g->sketch), planes, g->width);
	if (!take_arrays(r, &r->late[0], lay_out_cells))
		r->phases.phase[CELLS] = thc_planes_phase(&g->cells, r);
}

static void sketch_block(struct thc_request *r, uint32_t block)
{
	struct thc_progress *g = r->progress;
	uint32_t bits[THC_SCALE_WORDS], plane;
	const float *x = mark(r, block, bits);
	size_t words = words_of(r, block), n;

	n = g->sparse->pack(x, bits, words, g->packed);
	for (plane = 0; plane < g->cells.planes; plane++) {
		thc_digits_make(&g->digits, g->packed, n, r->scale, plane, g->number);
		thc_sketch_add(&g->sketch, (size_t)block * THC_SCALE_WORDS, bits, words, g->number,
			       g->cells.at + plane * g->cells.count);
	}
}

static bool make(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	uint32_t end = g->sketched + THC_SLICE / THC_SCALE_BLOCK;

	if (g->sketched < g->blocks) {
		for (; g->sketched < g->blocks && g->sketched < end; g->sketched++)
			sketch_block(r, g->sketched);
		return true;
	}
	return thc_planes_make(&g->cells, &r->phases.phase[CELLS]) ||
	       thc_planes_make(&g->rest, &r->phases.phase[REST]);
}

static bool compute(struct thc_request *r)
{
	struct thc_progress *g = r->progress;

	if (!r->claimed) {
		look_slice(r);
		return true;
	}
	if (!r->phases.agreed || !r->going)
		return false;
	return thc_index_phases_make(&g->index, r, INDEX) || make(r);
}

/* --- the union -------------------------------------------------------------------- */

static void lay_out_union(struct thc_request *r, struct thc_layout *l)
{
	struct thc_progress *g = r->progress;
	size_t words = (r->count + 31) / 32;

	g->there = thc_lay(l, words * sizeof(*g->there));
	g->left = thc_lay(l, words * sizeof(*g->left));
	thc_peel_lay_out(&g->peel, &g->sketch, l);
}

static void lay_out_sums(struct thc_request *r, struct thc_layout *l)
{
	struct thc_progress *g = r->progress;

	g->sums = thc_lay(l, (size_t)g->cells.planes * g->items * sizeof(*g->sums));
	/* room for the most items that can be left */
	thc_planes_init(&g->rest, g->items, g->cells.planes, g->width);
	thc_planes_lay_out(&g->rest, l);
}

static void find_union(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	size_t words = (r->count + 31) / 32;

	if (g->bloom.bits)
		thc_bloom_get(&g->bloom, &g->index, 0, g->there, words);
	else
		thc_index_get(&g->index, 0, g->there, words);
	g->items = thc_bits_count(g->there, words);
	thc_history_note(r->client->context[THC_SCHEME_LHC], r->key, r->round,
			 (int32_t)((uint64_t)g->items * THC_DENSITY_ONE / r->count));
}

/* Peels the cells; returns the number of items that are left. */
static size_t peel(struct thc_progress *g)
{
	size_t first = 0, left = 0, part_cells = thc_sketch_part_cells(&g->sketch);
	uint32_t part, plane;

	for (part = 0; part < g->sketch.parts; part++) {
		size_t word = (size_t)part * g->sketch.part / 32;

		left += thc_peel_find(&g->peel, &g->sketch, part, g->there + word);
		memcpy(g->left + word, g->peel.left,
		       thc_sketch_part_words(&g->sketch, part) * sizeof(*g->left));
		for (plane = 0; plane < g->cells.planes; plane++)
			thc_peel_values(&g->peel, &g->sketch, g->there + word,
					g->cells.at + plane * g->cells.count + part * part_cells,
					g->sums + plane * g->items + first);
		first += g->peel.items;
	}
	return left;
}

/* This rank's digits of the @left items that are left. */
static void fill_rest(struct thc_request *r, size_t left)
{
	struct thc_progress *g = r->progress;
	uint32_t block, plane;
	size_t at = 0, n;

	thc_planes_init(&g->rest, left, g->cells.planes, g->width);
	for (block = 0; block < g->blocks; block++, at += n) {
		const uint32_t *bits = g->left + (size_t)block * THC_SCALE_WORDS;

		n = g->sparse->pack(load(r, block), bits, words_of(r, block), g->packed);
		for (plane = 0; plane < g->rest.planes; plane++) {
			thc_digits_make(&g->digits, g->packed, n, r->scale, plane, g->number);
			memcpy(g->rest.at + plane * left + at, g->number, n * sizeof(*g->number));
		}
	}
}

/* --- means ------------------------------------------------------------------------ */

/* Merges the sums of items that were left into those of the union. */
static void merge_rest(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	size_t words = (r->count + 31) / 32, item = 0, at = 0, i;
	uint32_t bits, plane;

	for (i = 0; i < words; i++)
		for (bits = g->there[i]; bits; bits &= bits - 1, item++) {
			if (!(g->left[i] & bits & -bits))
				continue;
			for (plane = 0; plane < g->rest.planes; plane++)
				g->sums[plane * g->items + item] =
					(int32_t)g->rest.at[plane * g->rest.count + at];
			at++;
		}
}

/* Subtracts the sums of items that were left from the cells, too. All cells are zero then, or some
 * sum is not that of its values.
 */
static bool is_empty(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	uint32_t block, plane, stays = 0;
	size_t at = 0, i, n;

	for (block = 0; block < g->blocks && g->rest.count; block++, at += n) {
		size_t word = (size_t)block * THC_SCALE_WORDS, words = words_of(r, block);

		n = thc_bits_count(g->left + word, words);
		for (plane = 0; plane < g->rest.planes; plane++) {
			for (i = 0; i < n; i++)
				g->number[i] = (int32_t)-g->rest.at[plane * g->rest.count + at + i];
			thc_sketch_add(&g->sketch, word, g->left + word, words, g->number,
				       g->cells.at + plane * g->cells.count);
		}
	}
	for (i = 0; i < g->cells.planes * g->cells.count; i++)
		stays |= g->cells.at[i];
	/* ignore bits above a lane */
	return !(stays << (32 - g->width));
}

/* Restores the signs of sums, which narrow lanes have lost. */
static void extend_signs(struct thc_progress *g)
{
	size_t n = g->cells.planes * g->items, i;
	unsigned int above = 32 - g->width;

	for (i = 0; above && i < n; i++)
		g->sums[i] = (int32_t)((uint32_t)g->sums[i] << above) >> above;
}

/* Writes the means of @block, whose first item is number @item; returns its number of items. */
static uint32_t land_block(struct thc_request *r, uint32_t block, size_t item)
{
	struct thc_progress *g = r->progress;
	const uint32_t *bits = g->there + (size_t)block * THC_SCALE_WORDS;
	size_t words = words_of(r, block), count = thc_addends_count(r, block);
	uint32_t n = thc_bits_count(bits, words), plane;
	const int32_t *digit[THC_LIMBS_MAX];
	float dense[THC_SCALE_BLOCK];

	for (plane = 0; plane < g->cells.planes; plane++)
		digit[plane] = g->sums + plane * g->items + item;
	thc_digits_means(&g->digits, digit, n, r->scale, g->packed);
	g->sparse->unpack(g->packed, bits, words, dense);
	thc_store(r->dtype, thc_addends_of(r, block), dense, count);
	return n;
}

static void land(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	size_t item = 0;
	uint32_t block;

	if (!is_empty(r)) {
		r->status = -EPROTO;
		r->broken = true;
		snprintf(
			r->sentence, sizeof(r->sentence),
			"the sketch of all ranks is not that of their values: the aggregator has computed wrongly, or somebody has altered an answer");
		return;
	}
	merge_rest(r);
	extend_signs(g);
	memcpy(r->taken.buffer, r->buf, r->count * thc_dtype_size(r->dtype));
	g->landed = true;
	for (block = 0; block < g->blocks; block++)
		item += land_block(r, block, item);
}

/* --- answers ------------------------------------------------------------------------ */

static bool is_over(const struct thc_request *r, unsigned int phase)
{
	const struct thc_phase *p = &r->phases.phase[phase];

	return p->closed && p->answered == p->sized;
}

/* Finds the union and peels, once index and cells have come. */
static void unite(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	size_t left;

	if (take_arrays(r, &r->late[1], lay_out_union))
		return;
	find_union(r);
	if (take_arrays(r, &r->late[2], lay_out_sums))
		return;
	left = peel(g);
	fill_rest(r, left);
	r->phases.phase[REST] = thc_planes_phase(&g->rest, r);
	if (!left)
		land(r);
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	uint32_t k;

	(void)counts;
	if (!lanes)
		return;
	if (phase == INDEX)
		thc_index_phases_answer(&g->index, r, INDEX, phase, first, chunks, lanes);
	for (k = 0; k < chunks && phase != INDEX; k++, lanes += THC_LANE_BYTES)
		thc_planes_answer(phase == CELLS ? &g->cells : &g->rest, first + k, lanes);
	if (r->status < 0)
		return;
	if (phase != REST && is_over(r, INDEX) && is_over(r, CELLS))
		unite(r);
	else if (is_over(r, REST))
		land(r);
}

static void undo(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	if (g && g->landed)
		memcpy(r->buf, r->taken.buffer, r->count * thc_dtype_size(r->dtype));
}

const struct thc_scheme thc_scheme_lhc_sketch = {
	.id = THC_SCHEME_LHC,
	.prepare = prepare,
	.compute = compute,
	.agreed = agreed,
	.answer = answer,
	.undo = undo,
};
