// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Digits into lanes, and back. */
#include <string.h>

#include <thc/types.h>
#include <thc/wire/format.h>

#include "pipeline.h"
#include "planes.h"
#include "request.h"

void thc_planes_init(struct thc_planes *p, size_t count, unsigned int planes, unsigned int width)
{
	p->count = count;
	p->planes = planes;
	p->width = width;
	p->each = THC_COORDINATES(width);
	p->chunks = (uint32_t)((count + p->each - 1) / p->each);
}

void thc_planes_lay_out(struct thc_planes *p, struct thc_layout *l)
{
	p->at = thc_lay(l, p->planes * p->count * sizeof(*p->at));
	p->packets = thc_lay(l, (size_t)p->planes * p->chunks * THC_ANSWER_BYTES);
}

struct thc_phase thc_planes_phase(const struct thc_planes *p, struct thc_request *r)
{
	return (struct thc_phase){
		.request = r, .packets = p->packets, .stride = THC_ANSWER_BYTES,
		.payload = THC_LANE_BYTES, .sized = p->planes * p->chunks, .op = THC_OP_ADD,
		.width = (uint8_t)p->width, .closed = true,
	};
}

/* The digits of @chunk; how many there are. */
static uint32_t *digits_of(const struct thc_planes *p, uint32_t chunk, size_t *n)
{
	size_t first = (size_t)(chunk % p->chunks) * p->each;

	*n = p->count - first < p->each ? p->count - first : p->each;
	return p->at + chunk / p->chunks * p->count + first;
}

static void fill(const struct thc_planes *p, uint32_t chunk, uint8_t *lanes)
{
	size_t n, i, bytes = p->width / 8, k;
	const uint32_t *digit = digits_of(p, chunk, &n);

	for (i = 0; i < n; i++)
		for (k = 0; k < bytes; k++)
			lanes[i * bytes + k] = (uint8_t)(digit[i] >> 8 * k);
	memset(lanes + n * bytes, 0, THC_LANE_BYTES - n * bytes);
}

bool thc_planes_make(const struct thc_planes *p, struct thc_phase *phase)
{
	uint32_t made = 0;

	for (; phase->ready < phase->numbered && made < THC_SLICE / p->each; made++) {
		fill(p, phase->ready, (uint8_t *)(thc_phase_packet(phase, phase->ready) + 1));
		thc_pipeline_ready(phase, phase->ready);
	}
	return made;
}

void thc_planes_answer(struct thc_planes *p, uint32_t chunk, const uint8_t *lanes)
{
	size_t n, i, bytes = p->width / 8, k;
	uint32_t *digit = digits_of(p, chunk, &n);

	for (i = 0; i < n; i++) {
		digit[i] = 0;
		for (k = 0; k < bytes; k++)
			digit[i] |= (uint32_t)lanes[i * bytes + k] << 8 * k;
	}
}
