// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme none, floats: the ranks agree on the scale of each block (MAX), then send its values as
 * integers (ADD), fixed point or limbs (fixed.h). The result is the mean.
 */
#include <errno.h>
#include <stdlib.h>

#include "client.h"
#include "request.h"
#include "scales.h"
#include "scheme_none.h"
#include "addends.h"

enum { SCALES = THC_AGREEMENT_PHASES, SUMS };

/**
 * struct thc_progress - a bucket in progress
 * @measured: blocks whose scale was measured
 */
struct thc_progress {
	struct thc_scales	scales;
	struct thc_addends	addends;
	uint32_t		measured;
};

static void lay_out(struct thc_request *r, struct thc_layout *l)
{
	struct thc_progress *g = r->progress;

	thc_scales_lay_out(&g->scales, l);
	thc_addends_lay_out(&g->addends, r, l);
}

static int prepare(struct thc_request *r, size_t growth)
{
	struct thc_progress *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	r->progress = g;
	thc_scales_init(&g->scales, r->count, r->precision == THC_EXACT);
	thc_addends_init(&g->addends, r, &g->scales, NULL);
	if (thc_addends_allocate(r, &g->addends, &r->taken, growth, lay_out))
		return -ENOMEM;
	r->phases.phase[SCALES] = thc_scales_phase(&g->scales, r);
	r->phases.phase[SUMS] = thc_addends_phase(&g->addends, r, SUMS);
	r->phases.count = SUMS + 1;
	return 0;
}

static void measure_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	uint32_t end = g->measured + THC_SLICE / THC_SCALE_BLOCK, block = g->measured;
	size_t bad;

	for (end = end < g->scales.blocks ? end : g->scales.blocks; block < end; block++) {
		size_t n = thc_addends_count(r, block);
		const float *x = thc_addends_load(&g->addends, r, block, 0, n);

		if (!thc_scale_measure(g->addends.digits.ops, x, n, g->scales.exact,
				       &g->scales.of[block], &bad)) {
			r->bad = (size_t)block * THC_SCALE_BLOCK + bad;
			r->claim_status = THC_CLAIM_NOT_FINITE;
			end = block = g->scales.blocks;
		}
	}
	g->measured = end;
	r->claimed = end == g->scales.blocks;
}

static bool compute(struct thc_request *r)
{
	struct thc_progress *g = r->progress;

	if (g->measured < g->scales.blocks) {
		measure_slice(r);
		return true;
	}
	return r->phases.agreed && thc_addends_make(&g->addends, r);
}

static void send_scales(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	thc_scales_send(&g->scales, &r->phases.phase[SCALES]);
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	uint32_t k;

	(void)counts;
	for (k = 0; lanes && k < chunks; k++) {
		const uint8_t *at = lanes + (size_t)k * THC_LANE_BYTES;

		if (phase == SCALES)
			thc_scales_answer(&g->scales, first + k, at);
		else
			thc_addends_answer(&g->addends, r, first + k, at);
	}
	if (phase == SCALES)
		thc_addends_size(&g->addends, r);
}

static void undo(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	if (g)
		thc_addends_undo(&g->addends, r);
}

const struct thc_scheme thc_scheme_none_floats = {
	.id = THC_SCHEME_NONE,
	.prepare = prepare,
	.compute = compute,
	.agreed = send_scales,
	.answer = answer,
	.undo = undo,
};
