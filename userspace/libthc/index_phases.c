// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Levels of an index as phases of a request. */
#include <errno.h>
#include <stdio.h>

#include <thc/wire/format.h>

#include "index_phases.h"
#include "pipeline.h"
#include "request.h"

/* The phase of level @at; phases begin with the top one. */
static struct thc_phase *phase_of(const struct thc_index *x, struct thc_request *r,
				  unsigned int first, unsigned int at)
{
	return &r->phases.phase[first + x->levels - 1 - at];
}

/* Sets the number of chunks that level @at is known to have. */
static void size_level(struct thc_index *x, struct thc_request *r, unsigned int first,
		       unsigned int at)
{
	struct thc_phase *p = phase_of(x, r, first, at);

	p->sized = thc_index_size(x, at, &p->closed);
}

void thc_index_phases_init(struct thc_index *x, struct thc_request *r, unsigned int first)
{
	unsigned int at;

	for (at = 0; at < x->levels; at++)
		*phase_of(x, r, first, at) = (struct thc_phase){
			.request = r, .packets = x->level[at].packets, .stride = THC_ANSWER_BYTES,
			.payload = THC_LANE_BYTES, .op = THC_OP_OR, .width = 32, .control = true,
		};
	if (x->levels)
		size_level(x, r, first, x->levels - 1);
}

bool thc_index_phases_make(struct thc_index *x, struct thc_request *r, unsigned int first)
{
	bool made = false;
	unsigned int at;

	for (at = x->levels; at--;) {
		struct thc_phase *p = phase_of(x, r, first, at);

		for (; p->ready < p->numbered; made = true) {
			thc_index_fill(x, at, p->ready, thc_phase_packet(p, p->ready) + 1);
			thc_pipeline_ready(p, p->ready);
		}
	}
	return made;
}

static void wrong_union(struct thc_request *r)
{
	r->status = -EPROTO;
	r->broken = true;
	snprintf(
		r->sentence, sizeof(r->sentence),
		"the index of all ranks lacks what this rank has: the aggregator has computed wrongly, or somebody has altered an answer");
}

void thc_index_phases_answer(struct thc_index *x, struct thc_request *r, unsigned int first,
			     unsigned int phase, uint32_t index, uint32_t chunks,
			     const uint8_t *lanes)
{
	unsigned int at = first + x->levels - 1 - phase;
	uint32_t k;

	for (k = 0; k < chunks; k++)
		if (!thc_index_answer(x, at, index + k, lanes + (size_t)k * THC_LANE_BYTES))
			wrong_union(r);
	/* a level without chunks is over as soon as the level above it */
	while (at--)
		size_level(x, r, first, at);
}
