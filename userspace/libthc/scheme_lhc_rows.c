// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme lhc for rows of a tensor, as in embeddings. An index of rows comes first, so that only
 * rows of the union need memory. Then their values, row by row, are a bucket of scheme none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thc/wire/format.h>

#include "addends.h"
#include "client.h"
#include "codec.h"
#include "codec_ops.h"
#include "dtype.h"
#include "history.h"
#include "index_phases.h"
#include "request.h"
#include "rows.h"
#include "scales.h"
#include "scheme_lhc.h"
#include "sparse.h"

enum { TOP = THC_AGREEMENT_PHASES };

/**
 * struct thc_progress - rows in progress
 * @looked: number of given rows whose values were checked
 * @united: the union is known, and the request's buffer has its values
 * @measured: blocks of the union whose scale was found; @sent: scales are being sent
 */
struct thc_progress {
	struct thc_index	index;
	struct thc_scales	scales;
	struct thc_addends	addends;
	size_t			looked;
	bool			united;
	uint32_t		measured;
	bool			sent;
};

/* --- before the union is known ----------------------------------------------- */

static unsigned int scales_phase(const struct thc_progress *g)
{
	return TOP + g->index.levels;
}

static int prepare(struct thc_request *r, size_t growth)
{
	struct thc_history *h = r->client->context[THC_SCHEME_LHC];
	struct thc_progress *g = calloc(1, sizeof(*g));
	struct thc_layout l = { .at = NULL };
	size_t total = r->rows->given.total, i;
	const struct thc_habit *habit;
	unsigned int k;

	if (!g)
		return -ENOMEM;
	r->progress = g;
	habit = thc_history_begin(r->client, h, r->key, r->round);
	if (!habit)
		return -ENOMEM;
	r->levels = thc_habit_levels(habit, total);
	thc_index_init(&g->index, r->client->simd->sparse, total, 0, r->levels);
	thc_index_lay_out(&g->index, &l);
	if (thc_buffers_take(r->client, &r->taken, 0, l.bytes, growth))
		return -ENOMEM;
	l = (struct thc_layout){ .at = r->taken.arrays };
	thc_index_lay_out(&g->index, &l);
	for (i = 0; i < r->rows->given.count; i++)
		thc_index_set(&g->index, (size_t)r->rows->given.row[i]);
	thc_index_rise(&g->index);
	thc_index_phases_init(&g->index, r, TOP);
	/* the number of chunks is not known yet */
	for (k = scales_phase(g); k <= scales_phase(g) + 1; k++)
		r->phases.phase[k] =
			(struct thc_phase){ .request = r, .control = k == scales_phase(g) };
	r->phases.count = scales_phase(g) + 2;
	return 0;
}

/* The values of row number @at in array @k, behind @skip others; false: one is not finite. */
static bool look_at(struct thc_request *r, size_t at, uint32_t k, uint32_t skip)
{
	const struct thc_fixed_ops *ops = r->client->simd->fixed;
	size_t size = thc_dtype_size(r->dtype), first = at * r->rows->given.width[k], i, n, bad;
	const uint8_t *from = (const uint8_t *)r->rows->given.values[k] + first * size;
	struct thc_scale scale;
	float x[256];

	for (i = 0; i < r->rows->given.width[k]; i += n) {
		n = r->rows->given.width[k] - i < 256 ? r->rows->given.width[k] - i : 256;
		thc_load(r->dtype, x, from + i * size, n);
		if (thc_scale_measure(ops, x, n, false, &scale, &bad))
			continue;
		r->bad = (size_t)r->rows->given.row[at] * r->rows->width + skip + i + bad;
		r->claim_status = THC_CLAIM_NOT_FINITE;
		return false;
	}
	return true;
}

static void look_slice(struct thc_request *r)
{
	const struct thc_rows *given = &r->rows->given;
	struct thc_progress *g = r->progress;
	size_t end = g->looked + THC_SLICE / r->rows->width + 1;
	uint32_t k, skip;

	while (g->looked < given->count && g->looked < end) {
		for (k = 0, skip = 0; k < given->arrays && look_at(r, g->looked, k, skip); k++)
			skip += given->width[k];
		g->looked = k < given->arrays ? given->count : g->looked + 1;
	}
	r->claimed = g->looked == given->count;
}

/* --- the union --------------------------------------------------------------- */

static void lay_out_values(struct thc_request *r, struct thc_layout *l)
{
	struct thc_progress *g = r->progress;

	thc_scales_lay_out(&g->scales, l);
	thc_addends_lay_out(&g->addends, r, l);
}

/* Memory for the union's rows. */
static int take_rows(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;
	size_t words = (r->rows->given.total + 31) / 32, count = 0, word;
	uint32_t bits;

	for (word = 0; word < words; word++) {
		thc_index_get(&g->index, word, &bits, 1);
		count += thc_bits_count(&bits, 1);
	}
	return thc_row_call_take(r->rows, count, thc_dtype_size(r->dtype));
}

/* Fills in the numbers of the union's rows, and this rank's values, zeros in rows that it does not
 * have.
 */
static void fill_rows(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;
	struct thc_row_call *call = r->rows;
	size_t bytes = call->width * thc_dtype_size(r->dtype), words, own = 0, word, n = 0;
	uint32_t bits, left;

	words = (call->given.total + 31) / 32;
	for (word = 0; word < words; word++) {
		thc_index_get(&g->index, word, &bits, 1);
		for (left = bits; left; left &= left - 1, n++) {
			call->row[n] = (int64_t)(32 * word) + __builtin_ctz(left);
			if (own < call->given.count && call->given.row[own] == call->row[n])
				thc_rows_gather(call, r->dtype, own++,
						(uint8_t *)call->values + n * bytes);
		}
	}
}

/* Phases of values: none if there is no row. */
static int begin_values(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	unsigned int first = scales_phase(g);

	if (take_rows(r))
		return -ENOMEM;
	fill_rows(r);
	r->buf = r->rows->values;
	r->count = r->rows->count * r->rows->width;
	thc_history_note(r->client->context[THC_SCHEME_LHC], r->key, r->round,
			 (int32_t)(r->rows->count * THC_DENSITY_ONE / r->rows->given.total));
	r->phases.phase[first].closed = !r->count;
	r->phases.phase[first + 1].closed = !r->count;
	if (!r->count)
		return 0;
	thc_scales_init(&g->scales, r->count, r->precision == THC_EXACT);
	thc_addends_init(&g->addends, r, &g->scales, NULL);
	if (thc_addends_allocate(r, &g->addends, &r->late[0], 0, lay_out_values))
		return -ENOMEM;
	r->phases.phase[first] = thc_scales_phase(&g->scales, r);
	r->phases.phase[first + 1] = thc_addends_phase(&g->addends, r, first + 1);
	return 0;
}

static void unite(struct thc_request *r)
{
	struct thc_progress *g = r->progress;

	if (g->united || r->status < 0 || thc_index_known(&g->index) < r->rows->given.total ||
	    !r->phases.phase[scales_phase(g) - 1].closed)
		return;
	g->united = true;
	if (!begin_values(r))
		return;
	r->status = -ENOMEM;
	r->broken = true;
	snprintf(r->sentence, sizeof(r->sentence),
		 "out of memory for the %zu rows of %u values that the ranks have together",
		 r->rows->count, r->rows->width);
}

/* --- values ------------------------------------------------------------------ */

static void measure_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	uint32_t end = g->measured + THC_SLICE / THC_SCALE_BLOCK;
	size_t bad;

	for (; g->measured < g->scales.blocks && g->measured < end; g->measured++) {
		size_t n = thc_addends_count(r, g->measured);
		const float *x = thc_addends_load(&g->addends, r, g->measured, 0, n);

		/* look_at() has found all values finite */
		thc_scale_measure(g->addends.digits.ops, x, n, g->scales.exact,
				  &g->scales.of[g->measured], &bad);
	}
}

static bool make_values(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	struct thc_phase *scales = &r->phases.phase[scales_phase(g)];

	if (g->measured < g->scales.blocks) {
		measure_slice(r);
		return true;
	}
	if (!g->sent && scales->numbered) {
		g->sent = true;
		thc_scales_send(&g->scales, scales);
		return true;
	}
	return thc_addends_make(&g->addends, r);
}

static bool compute(struct thc_request *r)
{
	struct thc_progress *g = r->progress;

	if (!r->claimed) {
		look_slice(r);
		return true;
	}
	if (!r->phases.agreed)
		return false;
	return thc_index_phases_make(&g->index, r, TOP) || (g->united && make_values(r));
}

static void agreed(struct thc_request *r)
{
	(void)r;
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	uint32_t k;

	(void)counts;
	if (!lanes)
		return;
	if (phase < scales_phase(g)) {
		thc_index_phases_answer(&g->index, r, TOP, phase, first, chunks, lanes);
		unite(r);
		return;
	}
	for (k = 0; k < chunks; k++, lanes += THC_LANE_BYTES) {
		if (phase == scales_phase(g))
			thc_scales_answer(&g->scales, first + k, lanes);
		else
			thc_addends_answer(&g->addends, r, first + k, lanes);
	}
	if (phase == scales_phase(g))
		thc_addends_size(&g->addends, r);
}

/* The program's arrays are as they were. */
static void undo(struct thc_request *r)
{
	(void)r;
}

const struct thc_scheme thc_scheme_lhc_rows = {
	.id = THC_SCHEME_LHC,
	.prepare = prepare,
	.compute = compute,
	.agreed = agreed,
	.answer = answer,
	.undo = undo,
};
