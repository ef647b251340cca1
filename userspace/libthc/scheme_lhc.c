// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme lhc: the mean of floats of which few are not zero (LHC, arXiv 2402.07529). The ranks agree
 * on the scale of each block (MAX) and on an index of the items that are not zero on any of them
 * (OR, level by level). Then they send the values of these items, as integers (ADD), fixed point or
 * limbs. With an index first, and values by their place in it, a lossless result needs no sketch
 * and no peeling.
 *
 * A key whose unions were nearly full goes without an index for a while (history.h). A rank may
 * send a fraction of a gradient that is not sparse (keep.h), and all its values in the union's
 * items, which cost nothing more.
 */
#include <errno.h>
#include <stdlib.h>

#include <thc/wire/format.h>

#include "client.h"
#include "codec_ops.h"
#include "dtype.h"
#include "error.h"
#include "history.h"
#include "index_phases.h"
#include "keep.h"
#include "pipeline.h"
#include "request.h"
#include "scales.h"
#include "scheme_lhc.h"
#include "sparse.h"
#include "addends.h"

/* Phases; those of levels, the top one first, are followed by that of values. */
enum { SCALES = THC_AGREEMENT_PHASES, TOP };

/**
 * struct thc_progress - a bucket in progress
 * @index: no levels: the bucket has no index
 * @keep: of a bucket of which a fraction is sent
 * @looked: blocks whose scale was found, and their bits, too, unless a fraction is sent: then
 *	@marked blocks have bits, by the magnitude @least
 * @noted: the history knows the union
 */
struct thc_progress {
	struct thc_scales	scales;
	struct thc_index	index;
	struct thc_addends	addends;
	struct thc_keep		keep;
	uint32_t		looked;
	uint32_t		marked;
	uint32_t		least;
	bool			noted;
};

/* --- the job ---------------------------------------------------------------- */

static const char *check_job(const struct thc_spec *s)
{
	if (s->deadline_ms)
		return "it has a deadline, and a sum that lacks ranks would be wrong";
	if (s->scheme != THC_SCHEME_LHC)
		return NULL;
	if (s->grain > THC_GRAIN_MAX || s->grain & (s->grain - 1))
		return "its grain is no power of two up to 256";
	return thc_precision_check(s->value_bits, s->ranks);
}

static int open_lhc(struct thc_client *c)
{
	struct thc_history *h = calloc(1, sizeof(*h));

	if (!h)
		return thc_fail(-ENOMEM, "out of memory");
	c->context[THC_SCHEME_LHC] = h;
	thc_account(c, sizeof(*h));
	if (c->spec.scheme_features & THC_SCHEME_F_SKETCH && c->counted_value < THC_SKETCH_COUNTED)
		c->counted_value = THC_SKETCH_COUNTED;
	return 0;
}

static void close_lhc(struct thc_client *c)
{
	struct thc_history *h = c->context[THC_SCHEME_LHC];

	if (!h)
		return;
	thc_buffer_drop(c, &h->habits);
	free(h);
	thc_account(c, -(ssize_t)sizeof(*h));
	c->context[THC_SCHEME_LHC] = NULL;
}

static void describe(const struct thc_client *c, struct thc_client_info *info)
{
	info->chunk = THC_COORDINATES(c->spec.value_bits ? c->spec.value_bits : 32);
	info->block = THC_SCALE_BLOCK;
}

/* --- memory and phases ------------------------------------------------------ */

static void lay_out(struct thc_request *r, struct thc_layout *l)
{
	struct thc_progress *g = r->progress;

	thc_scales_lay_out(&g->scales, l);
	thc_index_lay_out(&g->index, l);
	thc_addends_lay_out(&g->addends, r, l);
	if (r->keep)
		thc_keep_lay_out(&g->keep, l);
}

static int prepare(struct thc_request *r, size_t growth)
{
	struct thc_history *h = r->client->context[THC_SCHEME_LHC];
	const struct thc_habit *habit = thc_history_begin(r->client, h, r->key, r->round);
	size_t items = (r->count + (1U << r->grain_log2) - 1) >> r->grain_log2;
	struct thc_progress *g;
	unsigned int levels;

	if (!habit)
		return -ENOMEM;
	if (thc_sketch_pays(r, habit)) {
		r->scheme = &thc_scheme_lhc_sketch;
		return r->scheme->prepare(r, growth);
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	r->progress = g;
	levels = habit->rest ? 0 : thc_habit_levels(habit, items);
	r->levels = levels;
	thc_scales_init(&g->scales, r->count, r->precision == THC_EXACT);
	thc_index_init(&g->index, r->client->simd->sparse, r->count, r->grain_log2, levels);
	thc_addends_init(&g->addends, r, &g->scales, levels ? &g->index : NULL);
	if (r->keep) {
		thc_keep_init(&g->keep, r->error, g->scales.blocks);
		g->addends.source = g->keep.values;
	}
	if (thc_addends_allocate(r, &g->addends, &r->taken, growth, lay_out))
		return -ENOMEM;
	r->phases.phase[SCALES] = thc_scales_phase(&g->scales, r);
	thc_index_phases_init(&g->index, r, TOP);
	r->phases.phase[TOP + levels] = thc_addends_phase(&g->addends, r, TOP + levels);
	r->phases.count = TOP + levels + 1;
	return 0;
}

/* --- what this rank has ------------------------------------------------------- */

/* Marks the @n values @x of @block whose magnitude is at least @least. */
static void mark(struct thc_progress *g, uint32_t block, const float *x, size_t n, uint32_t least)
{
	uint32_t bits[THC_SCALE_WORDS];

	g->addends.whole[block] = g->addends.sparse->mark(x, n, least, bits);
	thc_own_add(&g->addends.own, block, x, bits, (n + 31) / 32);
	thc_index_put(&g->index, (size_t)block * THC_SCALE_WORDS, bits, (n + 31) / 32);
}

/* False: a value is not finite. */
static bool look_at(struct thc_request *r, uint32_t block)
{
	struct thc_progress *g = r->progress;
	size_t n = thc_addends_count(r, block), bad;
	const float *x = thc_addends_load(&g->addends, r, block, 0, n);

	if (r->keep)
		x = thc_keep_add(&g->keep, block, x, n);
	if (!thc_scale_measure(g->addends.digits.ops, x, n, g->scales.exact, &g->scales.of[block],
			       &bad)) {
		r->bad = (size_t)block * THC_SCALE_BLOCK + bad;
		r->claim_status = THC_CLAIM_NOT_FINITE;
		return false;
	}
	if (r->keep)
		thc_keep_sample(&g->keep, block, x, n);
	else if (g->index.levels)
		mark(g, block, x, n, 1);
	return true;
}

/* Marks the values to send of @block, in a bucket of which a fraction is sent. */
static void choose_from(struct thc_request *r, uint32_t block)
{
	struct thc_progress *g = r->progress;
	size_t n = thc_addends_count(r, block);

	mark(g, block, g->keep.values + (size_t)block * THC_SCALE_BLOCK, n, g->least);
	/* values outside the union have to be cleared in the caller's buffer */
	g->addends.whole[block] = true;
}

/* Does each block need a second pass, to mark its values? */
static bool has_to_choose(const struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	return r->keep && g->index.levels && !r->claim_status;
}

static void look_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	uint32_t blocks = g->scales.blocks, done;

	for (done = 0; g->looked < blocks && done < THC_SLICE / THC_SCALE_BLOCK; done++) {
		if (look_at(r, g->looked))
			g->looked++;
		else
			g->looked = blocks;
	}
	if (g->looked < blocks)
		return;
	if (has_to_choose(r) && !g->least)
		g->least = thc_keep_least(&g->keep, r->keep);
	for (; has_to_choose(r) && g->marked < blocks && done < THC_SLICE / THC_SCALE_BLOCK; done++)
		choose_from(r, g->marked++);
	r->claimed = !has_to_choose(r) || g->marked == blocks;
	if (r->claimed)
		thc_index_rise(&g->index);
}

/* --- out -------------------------------------------------------------------- */

static bool compute(struct thc_request *r)
{
	struct thc_progress *g = r->progress;

	if (!r->claimed) {
		look_slice(r);
		return true;
	}
	if (!r->phases.agreed)
		return false;
	return thc_index_phases_make(&g->index, r, TOP) || thc_addends_make(&g->addends, r);
}

static void agreed(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	thc_scales_send(&g->scales, &r->phases.phase[SCALES]);
}

/* --- answers ---------------------------------------------------------------- */

static void note_union(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	int32_t density = THC_DENSITY_UNKNOWN;

	if (g->noted || g->addends.block < g->scales.blocks)
		return;
	g->noted = true;
	if (g->index.levels)
		density = (int32_t)((uint64_t)g->addends.found * THC_DENSITY_ONE / r->count);
	thc_history_note(r->client->context[THC_SCHEME_LHC], r->key, r->round, density);
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	unsigned int addends = TOP + g->index.levels;
	uint32_t k;

	(void)counts;
	if (!lanes)
		return;
	if (phase != SCALES && phase != addends)
		thc_index_phases_answer(&g->index, r, TOP, phase, first, chunks, lanes);
	for (k = 0; k < chunks; k++, lanes += THC_LANE_BYTES) {
		if (phase == SCALES)
			thc_scales_answer(&g->scales, first + k, lanes);
		else if (phase == addends)
			thc_addends_answer(&g->addends, r, first + k, lanes);
	}
	if (r->status < 0 || phase == addends)
		return;
	thc_addends_size(&g->addends, r);
	note_union(r);
}

static void undo(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	if (g)
		thc_addends_undo(&g->addends, r);
}

const struct thc_scheme thc_scheme_lhc = {
	.id = THC_SCHEME_LHC,
	.dtypes = THC_DTYPES_FLOAT,
	.check = check_job,
	.open = open_lhc,
	.close = close_lhc,
	.describe = describe,
	.prepare = prepare,
	.compute = compute,
	.agreed = agreed,
	.answer = answer,
	.undo = undo,
};
