// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme none, floats: the ranks agree on the scale of each block (MAX), then send its values as
 * integers (ADD), fixed point or limbs (fixed.h). The result is the mean.
 *
 * A group is the coordinates of a chunk. Fixed point has a chunk a group. Exact values have as many
 * as their block has limbs, one behind the other, lowest digit first, and none in a block of zeros:
 * so how many there are is known as far as scales are.
 *
 * Packets are in a ring. Once a chunk has its sum its packet gives up its place, unless other
 * digits of its group lack theirs: then the sum waits where the payload was.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <thc/types.h>
#include <thc/wire/format.h>

#include "buffers.h"
#include "client.h"
#include "codec.h"
#include "codec_ops.h"
#include "dtype.h"
#include "fixed.h"
#include "pipeline.h"
#include "request.h"
#include "scheme_none.h"

enum { SCALES = THC_AGREEMENT_PHASES, SUMS };

/* Places of a ring, if the budget has no room for more: some groups of the most limbs. */
#define RING_LEAST	64
#define LANES32		(THC_LANE_BYTES / sizeof(uint32_t))

/* Of a client: room for a block of values, and for its means. */
struct exchange {
	const struct thc_fixed_ops *ops;
	float	values[THC_SCALE_BLOCK];
	float	means[THC_SCALE_BLOCK];
};

/* A place in the ring: what its chunk is. */
struct place {
	uint32_t	group;
	uint8_t		limb;
	uint8_t		taken;
	uint8_t		summed;		/* the sum waits where the payload was */
};

/**
 * struct thc_progress - a bucket on its way
 * @values: what the caller's buffer had, of groups that are @landed
 * @packets: the ring, of @ring places
 * @scale: by block: this rank's, then the one that all agree on
 * @known: by chunk of scales: agreed on; all before chunk @prefix are
 * @landed: by group: the means are in the caller's buffer
 * @coordinates: of a group
 * @bits: of a lane that are a rank's own
 * @measured: blocks whose scale was measured
 * @group, @limb: of the chunk that is made next
 */
struct thc_progress {
	uint8_t			*values;
	uint8_t			*packets;
	struct place		*place;
	uint32_t		ring;
	struct thc_scale	*scale;
	uint8_t			*scale_packets;
	uint8_t			*known;
	uint8_t			*landed;
	uint32_t		blocks;
	uint32_t		groups;
	uint32_t		scale_chunks;
	uint32_t		coordinates;
	unsigned int		width;
	unsigned int		bits;
	bool			exact;
	uint32_t		measured;
	uint32_t		prefix;
	uint32_t		group;
	uint32_t		limb;
};

static struct exchange *exchange(const struct thc_request *r)
{
	return r->client->context[THC_SCHEME_NONE];
}

/* --- layout --------------------------------------------------------------- */

/* Blocks that a chunk of scales is of: exact values have two lanes a block, top and low. */
static uint32_t blocks_a_chunk(const struct thc_progress *g)
{
	return LANES32 / (g->exact ? 2 : 1);
}

static uint32_t block_of(const struct thc_progress *g, uint32_t group)
{
	return (uint32_t)((size_t)group * g->coordinates / THC_SCALE_BLOCK);
}

static uint32_t groups_a_block(const struct thc_progress *g)
{
	return THC_SCALE_BLOCK / g->coordinates;
}

/* The first group behind those of @block. */
static uint32_t end_of_block(const struct thc_progress *g, uint32_t block)
{
	uint32_t end = (block + 1) * groups_a_block(g);

	return end < g->groups ? end : g->groups;
}

static unsigned int limbs_of(const struct thc_progress *g, uint32_t block)
{
	return g->exact ? thc_scale_limbs(g->scale[block], g->bits) : 1;
}

/* Coordinates of @each from number @index on that the bucket has. */
static size_t part(const struct thc_request *r, uint32_t index, size_t each)
{
	size_t left = r->count - index * each;

	return left < each ? left : each;
}

static uint8_t *values_at(const struct thc_request *r, uint32_t group)
{
	const struct thc_progress *g = r->progress;

	return (uint8_t *)r->buf + (size_t)group * g->coordinates * thc_dtype_size(r->dtype);
}

/* --- memory --------------------------------------------------------------- */

/* Room for what is in flight to all aggregators and as much again, but no more than the bucket can
 * have, nor than @left bytes.
 */
static uint32_t ring_of(const struct thc_request *r, size_t left)
{
	const struct thc_progress *g = r->progress;
	uint64_t most = (uint64_t)g->groups * (g->exact ? THC_LIMBS_MAX : 1) + 1;
	uint64_t shards = r->client->list.count ? r->client->list.count : 1;
	uint64_t places = 2 * (shards * r->client->window + THC_LIMBS_MAX);
	size_t each = THC_ANSWER_BYTES + sizeof(struct place);

	if (places > left / each)
		places = left / each;
	if (places < RING_LEAST)
		places = RING_LEAST;
	return (uint32_t)(places < most ? places : most) & ~1U;
}

static int allocate(struct thc_request *r, size_t growth)
{
	struct thc_progress *g = r->progress;
	size_t bytes = r->count * thc_dtype_size(r->dtype), total = 0, left;
	size_t scale = thc_carve(&total, g->blocks * sizeof(*g->scale));
	size_t scale_packets = thc_carve(&total, g->scale_chunks * THC_ANSWER_BYTES);
	size_t known = thc_carve(&total, g->scale_chunks);
	size_t landed = thc_carve(&total, g->groups);
	size_t packets, place, taken;

	left = thc_budget_left(r->client);
	/* and what rounding to cache lines adds twice */
	taken = bytes + total + growth + 2 * 64;
	left = left > taken ? left - taken : 0;
	g->ring = ring_of(r, left);
	packets = thc_carve(&total, g->ring * THC_ANSWER_BYTES);
	place = thc_carve(&total, g->ring * sizeof(*g->place));
	if (thc_buffers_take(r->client, &r->taken, bytes, total, growth))
		return -ENOMEM;
	g->values = r->taken.buffer;
	g->scale = (void *)(r->taken.arrays + scale);
	g->scale_packets = r->taken.arrays + scale_packets;
	g->known = r->taken.arrays + known;
	g->landed = r->taken.arrays + landed;
	g->packets = r->taken.arrays + packets;
	g->place = (void *)(r->taken.arrays + place);
	return 0;
}

/* Only a client that reduces floats so has it. */
static int open_exchange(struct thc_client *c)
{
	struct exchange *x;

	if (c->context[THC_SCHEME_NONE])
		return 0;
	x = malloc(sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->ops = thc_simd_ops(c->options.simd)->fixed;
	c->context[THC_SCHEME_NONE] = x;
	thc_account(c, sizeof(*x));
	return 0;
}

void thc_none_close(struct thc_client *c)
{
	if (!c->context[THC_SCHEME_NONE])
		return;
	free(c->context[THC_SCHEME_NONE]);
	thc_account(c, -(ssize_t)sizeof(struct exchange));
	c->context[THC_SCHEME_NONE] = NULL;
}

static int prepare(struct thc_request *r, size_t growth)
{
	struct thc_progress *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	r->progress = g;
	g->exact = r->precision == THC_EXACT;
	g->width = g->exact ? 32 : r->precision;
	g->bits = thc_fixed_bits(g->width, r->client->spec.ranks);
	g->coordinates = THC_COORDINATES(g->width);
	g->blocks = (uint32_t)((r->count + THC_SCALE_BLOCK - 1) / THC_SCALE_BLOCK);
	g->groups = (uint32_t)((r->count + g->coordinates - 1) / g->coordinates);
	g->scale_chunks = (g->blocks + blocks_a_chunk(g) - 1) / blocks_a_chunk(g);
	if (open_exchange(r->client) || allocate(r, growth))
		return -ENOMEM;
	r->phases.phase[SCALES] = (struct thc_phase){
		.request = r, .packets = g->scale_packets, .stride = THC_ANSWER_BYTES,
		.payload = THC_LANE_BYTES, .sized = g->scale_chunks, .op = THC_OP_MAX, .width = 32,
		.control = true, .closed = true,
	};
	r->phases.phase[SUMS] = (struct thc_phase){
		.request = r, .packets = g->packets, .stride = THC_ANSWER_BYTES, .ring = g->ring,
		.payload = THC_LANE_BYTES, .sized = g->exact ? 0 : g->groups, .op = THC_OP_ADD,
		.width = (uint8_t)g->width, .closed = !g->exact,
	};
	r->phases.count = SUMS + 1;
	return 0;
}

/* --- scales --------------------------------------------------------------- */

/* @n values of the caller's, from @from on, as fp32. */
static const float *load(const struct thc_request *r, const uint8_t *from, size_t n)
{
	if (r->dtype == THC_FP32)
		return (const float *)from;
	thc_load(r->dtype, exchange(r)->values, from, n);
	return exchange(r)->values;
}

static void measure_slice(struct thc_request *r)
{
	const struct thc_fixed_ops *ops = exchange(r)->ops;
	struct thc_progress *g = r->progress;
	uint32_t end = g->measured + THC_SLICE / THC_SCALE_BLOCK, block = g->measured;
	size_t bad;

	for (end = end < g->blocks ? end : g->blocks; block < end; block++) {
		const uint8_t *from = values_at(r, block * groups_a_block(g));
		size_t n = part(r, block, THC_SCALE_BLOCK);

		if (!thc_scale_measure(ops, load(r, from, n), n, &g->scale[block], &bad)) {
			r->bad = (size_t)block * THC_SCALE_BLOCK + bad;
			r->claim_status = THC_CLAIM_NOT_FINITE;
			end = block = g->blocks;
		}
	}
	g->measured = end;
	r->claimed = end == g->blocks;
}

static void send_scales(struct thc_request *r)
{
	struct thc_phase *p = &r->phases.phase[SCALES];
	const struct thc_progress *g = r->progress;
	uint32_t index, k;

	for (index = 0; index < g->scale_chunks; index++) {
		__le32 *lanes = (void *)(thc_phase_packet(p, index) + 1);

		for (k = 0; k < blocks_a_chunk(g); k++) {
			uint32_t block = index * blocks_a_chunk(g) + k;

			if (block >= g->blocks)
				break;
			*lanes++ = thc_le32(thc_scale_top_lane(g->scale[block]));
			if (g->exact)
				*lanes++ = thc_le32(thc_scale_low_lane(g->scale[block]));
		}
		thc_pipeline_ready(p, index);
	}
}

static void keep_values(struct thc_request *r, uint32_t group)
{
	struct thc_progress *g = r->progress;
	size_t size = thc_dtype_size(r->dtype), at = (size_t)group * g->coordinates * size;

	memcpy(g->values + at, values_at(r, group), part(r, group, g->coordinates) * size);
	g->landed[group] = 1;
}

/* A block that is zero on every rank: there is nothing to send. */
static void land_zeros(struct thc_request *r, uint32_t block)
{
	struct thc_progress *g = r->progress;
	uint32_t group = block * groups_a_block(g);

	for (; group < end_of_block(g, block); group++) {
		keep_values(r, group);
		memset(values_at(r, group), 0,
		       part(r, group, g->coordinates) * thc_dtype_size(r->dtype));
	}
}

/* Chunks of exact values follow from scales, as far as those are known. */
static void size_sums(struct thc_request *r)
{
	struct thc_phase *p = &r->phases.phase[SUMS];
	struct thc_progress *g = r->progress;
	uint32_t block, end;

	for (; g->prefix < g->scale_chunks && g->known[g->prefix]; g->prefix++) {
		block = g->prefix * blocks_a_chunk(g);
		end = block + blocks_a_chunk(g);
		for (end = end < g->blocks ? end : g->blocks; g->exact && block < end; block++) {
			if (!limbs_of(g, block))
				land_zeros(r, block);
			p->sized += limbs_of(g, block) *
				    (end_of_block(g, block) - block * groups_a_block(g));
		}
	}
	p->closed = !g->exact || g->prefix == g->scale_chunks;
}

static void scales_came(struct thc_request *r, uint32_t index, const uint8_t *lanes)
{
	const __le32 *lane = (const void *)lanes;
	struct thc_progress *g = r->progress;
	uint32_t block = index * blocks_a_chunk(g), k;

	for (k = 0; k < blocks_a_chunk(g) && block < g->blocks; k++, block++) {
		uint32_t top = thc_le32(*lane++), low = g->exact ? thc_le32(*lane++) : 0;

		g->scale[block] = thc_scale_of_lanes(top, low);
	}
	g->known[index] = 1;
}

/* --- values --------------------------------------------------------------- */

/* Lanes are little-endian. */
static void swap_lanes(void *lanes, unsigned int width)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	uint8_t *at = lanes, *end = at + THC_LANE_BYTES, one;
	unsigned int k, bytes = width / 8;

	for (; at < end; at += bytes)
		for (k = 0; k < bytes / 2; k++) {
			one = at[k];
			at[k] = at[bytes - 1 - k];
			at[bytes - 1 - k] = one;
		}
#else
	(void)lanes;
	(void)width;
#endif
}

static void make_chunk(struct thc_request *r)
{
	const struct thc_fixed_ops *ops = exchange(r)->ops;
	struct thc_phase *p = &r->phases.phase[SUMS];
	const struct thc_progress *g = r->progress;
	struct thc_scale scale = g->scale[block_of(g, g->group)];
	void *lanes = thc_phase_packet(p, p->ready) + 1;
	size_t n = part(r, g->group, g->coordinates);
	const float *x = load(r, values_at(r, g->group), n);

	if (n < g->coordinates)
		memset(lanes, 0, THC_LANE_BYTES);
	/* a block of zeros has no scale, and fixed point sends it all the same */
	if (thc_scale_is_zero(scale))
		memset(lanes, 0, THC_LANE_BYTES);
	else if (g->exact)
		ops->limb(x, n, scale.low, g->bits, g->limb, lanes);
	else
		ops->fixed(x, n, scale.top, g->bits, g->width, lanes);
	swap_lanes(lanes, g->width);
	g->place[p->ready % g->ring] = (struct place){
		.group = g->group, .limb = (uint8_t)g->limb, .taken = 1,
	};
	thc_pipeline_ready(p, p->ready);
}

/* The next chunk to be made is of a group that has some, or there is none. */
static void skip_zeros(struct thc_progress *g)
{
	while (g->group < g->groups && !limbs_of(g, block_of(g, g->group)))
		g->group = end_of_block(g, block_of(g, g->group));
}

static bool make_slice(struct thc_request *r)
{
	const struct thc_phase *p = &r->phases.phase[SUMS];
	struct thc_progress *g = r->progress;
	uint32_t made = 0;

	while (p->ready < p->numbered && made < THC_SLICE / g->coordinates &&
	       !g->place[p->ready % g->ring].taken &&
	       g->known[block_of(g, g->group) / blocks_a_chunk(g)]) {
		skip_zeros(g);
		make_chunk(r);
		made++;
		if (++g->limb < limbs_of(g, block_of(g, g->group)))
			continue;
		g->limb = 0;
		g->group++;
	}
	return made;
}

static bool compute(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	if (g->measured < g->blocks) {
		measure_slice(r);
		return true;
	}
	return r->phases.agreed && make_slice(r);
}

/* --- means ---------------------------------------------------------------- */

/* The sums of the group's digits are in the ring, from @chunk on. */
static void land_group(struct thc_request *r, uint32_t group, uint32_t chunk)
{
	const struct thc_phase *p = &r->phases.phase[SUMS];
	const struct thc_progress *g = r->progress;
	struct thc_scale scale = g->scale[block_of(g, group)];
	const struct thc_mean m = {
		.unit = ldexp(1, g->exact ? scale.low : scale.top - (int)g->bits),
		.ranks = r->client->spec.ranks,
		.bits = g->bits,
		.odd = r->dtype != THC_FP32,
	};
	unsigned int limbs = limbs_of(g, block_of(g, group)), k;
	const int32_t *digit[THC_LIMBS_MAX];
	size_t n = part(r, group, g->coordinates);
	float *means = exchange(r)->means;

	for (k = 0; k < limbs; k++)
		digit[k] = (const void *)(thc_phase_packet(p, chunk + k) + 1);
	keep_values(r, group);
	if (thc_scale_is_zero(scale))
		memset(means, 0, n * sizeof(*means));
	else if (g->exact)
		thc_fixed_means(exchange(r)->ops, digit, limbs, n, &m, means);
	else
		exchange(r)->ops->mean(digit[0], g->width, n, &m, means);
	thc_store(r->dtype, values_at(r, group), means, n);
}

/* Do all digits of @group, from @chunk on, have their sum? One that is not made yet has not, but in
 * its place there may be another group's that has.
 */
static bool all_summed(const struct thc_progress *g, uint32_t group, uint32_t chunk,
		       unsigned int limbs)
{
	unsigned int k;

	for (k = 0; k < limbs; k++) {
		const struct place *at = &g->place[(chunk + k) % g->ring];

		if (!at->summed || at->group != group)
			return false;
	}
	return true;
}

static void sum_came(struct thc_request *r, uint32_t chunk, const uint8_t *lanes)
{
	const struct thc_phase *p = &r->phases.phase[SUMS];
	const struct thc_progress *g = r->progress;
	struct place *at = &g->place[chunk % g->ring];
	unsigned int limbs = limbs_of(g, block_of(g, at->group)), k;
	uint32_t first = chunk - at->limb;
	/* as the loops want them, whatever lies before them in the answer */
	void *own = thc_phase_packet(p, chunk) + 1;

	memcpy(own, lanes, THC_LANE_BYTES);
	swap_lanes(own, g->width);
	at->summed = 1;
	if (!all_summed(g, at->group, first, limbs))
		return;
	land_group(r, at->group, first);
	for (k = 0; k < limbs; k++)
		g->place[(first + k) % g->ring] = (struct place){ .taken = 0 };
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	uint32_t k;

	(void)counts;
	for (k = 0; lanes && k < chunks; k++) {
		const uint8_t *at = lanes + (size_t)k * THC_LANE_BYTES;

		if (phase == SCALES)
			scales_came(r, first + k, at);
		else
			sum_came(r, first + k, at);
	}
	if (phase == SCALES)
		size_sums(r);
}

static void undo(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;
	size_t size = thc_dtype_size(r->dtype);
	uint32_t group;

	for (group = 0; g && g->landed && group < g->groups; group++)
		if (g->landed[group])
			memcpy(values_at(r, group),
			       g->values + (size_t)group * g->coordinates * size,
			       part(r, group, g->coordinates) * size);
}

const struct thc_scheme thc_scheme_none_floats = {
	.id = THC_SCHEME_NONE,
	.prepare = prepare,
	.compute = compute,
	.agreed = send_scales,
	.answer = answer,
	.undo = undo,
};
