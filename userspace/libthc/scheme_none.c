// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme none, integers: they are sent as they are, and summed modulo 2^width. The result is the
 * same in every order of the ranks, and on every rank.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <thc/wire/format.h>

#include "buffers.h"
#include "client.h"
#include "dtype.h"
#include "fixed.h"
#include "pipeline.h"
#include "request.h"
#include "scheme_none.h"

enum { SUMS = THC_AGREEMENT_PHASES };

/**
 * struct thc_progress - a bucket in progress
 * @packets: packets of all chunks; a packet keeps this rank's values after its chunk has landed
 * @landed: by chunk, 1: the sum is in the caller's buffer
 */
struct thc_progress {
	uint8_t		*packets;
	uint8_t		*landed;
	uint32_t	chunks;
};

static const char *check_job(const struct thc_spec *s)
{
	if (s->deadline_ms)
		return "it has a deadline, and a sum that lacks ranks would be wrong";
	return s->scheme == THC_SCHEME_NONE ? thc_precision_check(s->value_bits, s->ranks) : NULL;
}

static void describe(const struct thc_client *c, struct thc_client_info *info)
{
	info->chunk = THC_COORDINATES(c->spec.value_bits ? c->spec.value_bits : 32);
	info->block = THC_SCALE_BLOCK;
}

/* The chunk's bytes of the caller's buffer: all but the last one have THC_LANE_BYTES. */
static size_t bytes_of(const struct thc_request *r, uint32_t chunk)
{
	size_t left = r->count * thc_dtype_size(r->dtype) - (size_t)chunk * THC_LANE_BYTES;

	return left < THC_LANE_BYTES ? left : THC_LANE_BYTES;
}

static uint8_t *values(const struct thc_request *r, uint32_t chunk)
{
	return (uint8_t *)r->buf + (size_t)chunk * THC_LANE_BYTES;
}

static uint8_t *payload(const struct thc_request *r, uint32_t chunk)
{
	const struct thc_phase *p = &r->phases.phase[SUMS];

	return p->packets + chunk * p->stride + sizeof(struct thc_hdr);
}

/* Lanes are little-endian. Copies @bytes of lanes, each of @size bytes. */
static void copy_lanes(uint8_t *to, const uint8_t *from, size_t bytes, size_t size)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	(void)size;
	memcpy(to, from, bytes);
#else
	size_t i, k;

	for (i = 0; i < bytes; i += size)
		for (k = 0; k < size; k++)
			to[i + k] = from[i + size - 1 - k];
#endif
}

static int prepare(struct thc_request *r, size_t growth)
{
	const size_t stride = sizeof(struct thc_hdr) + THC_LANE_BYTES;
	size_t size = thc_dtype_size(r->dtype);
	struct thc_progress *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	r->progress = g;
	g->chunks = (uint32_t)((r->count * size + THC_LANE_BYTES - 1) / THC_LANE_BYTES);
	if (thc_buffers_take(r->client, &r->taken, g->chunks * stride, g->chunks, growth))
		return -ENOMEM;
	g->packets = r->taken.buffer;
	g->landed = r->taken.arrays;
	r->phases.phase[SUMS] = (struct thc_phase){
		.request = r, .packets = g->packets, .stride = stride, .payload = THC_LANE_BYTES,
		.sized = g->chunks, .op = THC_OP_ADD, .width = (uint8_t)(8 * size), .closed = true,
	};
	r->phases.count = SUMS + 1;
	return 0;
}

static bool compute(struct thc_request *r)
{
	size_t size = thc_dtype_size(r->dtype), most = THC_SLICE * size / THC_LANE_BYTES;
	const struct thc_progress *g = r->progress;
	struct thc_phase *p = &r->phases.phase[SUMS];
	uint32_t chunk = p->ready, end = chunk;

	if (!r->claimed) {
		r->claimed = true;
		return true;
	}
	if (!p->numbered || chunk == g->chunks)
		return false;
	end += most < g->chunks - chunk ? (uint32_t)most : g->chunks - chunk;
	for (; chunk < end; chunk++) {
		size_t bytes = bytes_of(r, chunk);
		uint8_t *lanes = payload(r, chunk);

		copy_lanes(lanes, values(r, chunk), bytes, size);
		memset(lanes + bytes, 0, THC_LANE_BYTES - bytes);
		thc_pipeline_ready(p, chunk);
	}
	return true;
}

static void agreed(struct thc_request *r)
{
	(void)r;
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	size_t size = thc_dtype_size(r->dtype);
	uint32_t k;

	(void)phase;
	(void)counts;
	for (k = 0; lanes && k < chunks; k++) {
		copy_lanes(values(r, first + k), lanes + (size_t)k * THC_LANE_BYTES,
			   bytes_of(r, first + k), size);
		g->landed[first + k] = 1;
	}
}

/* Restores the caller's buffer from the packets, which still hold this rank's values. */
static void undo(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;
	uint32_t chunk;

	for (chunk = 0; g && g->landed && chunk < g->chunks; chunk++)
		if (g->landed[chunk])
			copy_lanes(values(r, chunk), payload(r, chunk), bytes_of(r, chunk),
				   thc_dtype_size(r->dtype));
}

const struct thc_scheme thc_scheme_none = {
	.id = THC_SCHEME_NONE,
	.dtypes = THC_DTYPES_INTEGER | THC_DTYPES_FLOAT,
	.check = check_job,
	.floats = &thc_scheme_none_floats,
	.describe = describe,
	.prepare = prepare,
	.compute = compute,
	.agreed = agreed,
	.answer = answer,
	.undo = undo,
};
