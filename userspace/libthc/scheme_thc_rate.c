// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme thc with a rate: the agreed norms choose the bits of each block (rate.h), and the blocks
 * of a class are a phase. So all packets of a phase have one length, and a message of AF_THC holds
 * a run of one class. Blocks that are not sent stay in the error memory as a whole.
 *
 * A chunk has two blocks with sums of 4 bits, one with 8, half of one with 16.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "dtype.h"
#include "pipeline.h"
#include "request.h"
#include "scheme.h"
#include "scheme_thc.h"

#define BLOCK	(1U << THC_RATE_BLOCK_LOG2)

/* Phases: blocks of b bits are in phase SUMS + b. */
enum { SCALES = THC_AGREEMENT_PHASES, SUMS = SCALES };

_Static_assert(SUMS + THC_RATE_BITS_MAX < THC_PHASES_MAX, "a phase for each class");

/* Bytes that the packets of a block take, at most: two chunks of six bits. A chunk of two blocks
 * takes more where it has one, the last of a class with sums of 4 bits, of which there are up to
 * four.
 */
#define PACKETS_MOST	(2 * (sizeof(struct thc_hdr) + BLOCK / 2 * THC_RATE_BITS_MAX / 8))
#define PACKETS_MORE	(4 * (sizeof(struct thc_hdr) + THC_LANE_BYTES - PACKETS_MOST))

/**
 * struct thc_rated - a bucket in progress
 */
struct thc_rated {
	struct thc_block_scales	scales;
	struct thc_rate_choice	choice;
	bool			chosen;
	uint8_t			*saved;
	uint8_t			*packets;
	int16_t			*exponent;
	uint32_t		*order;
	uint32_t		begin[THC_RATE_CLASSES];
	uint16_t		(*counts)[2];
	uint8_t			(*lost)[2];
	uint8_t			*missing;
	uint8_t			*landed;
	size_t			packed;
};

static const struct thc_compressor *compressor(const struct thc_request *r)
{
	return r->client->context[THC_SCHEME_THC];
}

static struct thc_shares *shares(const struct thc_request *r)
{
	return &((struct thc_compressor *)r->client->context[THC_SCHEME_THC])->shares;
}

static const struct thc_rate_class *class_of(const struct thc_request *r, unsigned int k)
{
	return &compressor(r)->rate.class[k];
}

/* --- memory ----------------------------------------------------------------- */

static void lay_out(struct thc_request *r, struct thc_layout *l)
{
	struct thc_rated *g = r->progress;
	size_t blocks = g->scales.blocks;

	thc_block_scales_lay_out(&g->scales, l);
	g->choice.of = thc_lay(l, blocks);
	g->exponent = thc_lay(l, blocks * sizeof(*g->exponent));
	g->order = thc_lay(l, blocks * sizeof(*g->order));
	g->counts = thc_lay(l, blocks * sizeof(*g->counts));
	g->lost = thc_lay(l, blocks * sizeof(*g->lost));
	g->missing = thc_lay(l, blocks);
	g->landed = thc_lay(l, blocks);
}

static struct thc_share_id id_of(const struct thc_request *r)
{
	const struct thc_rated *g = r->progress;

	return (struct thc_share_id){ r->group, r->key, (uint32_t)g->scales.blocks };
}

/* Sets the bucket's goal, if it shares the group's. */
static int take_share(struct thc_request *r)
{
	const struct thc_share_id id = id_of(r);

	if (!r->group)
		return 0;
	if (thc_shares_begin(r->client, shares(r), &id, r->round))
		return -ENOMEM;
	r->goal = thc_shares_goal(shares(r), &id, &compressor(r)->rate, &r->goal, r->round);
	r->chosen = thc_rate_chosen(r->client, &r->goal);
	return 0;
}

static int prepare(struct thc_request *r, size_t growth)
{
	struct thc_rated *g = calloc(1, sizeof(*g));
	struct thc_layout l = { .at = NULL };
	size_t values;
	unsigned int k;

	if (!g)
		return -ENOMEM;
	r->progress = g;
	thc_block_scales_init(&g->scales, r, &compressor(r)->codec);
	if (take_share(r))
		return -ENOMEM;
	lay_out(r, &l);
	values = g->scales.blocks * BLOCK * thc_dtype_size(r->dtype);
	if (thc_buffers_take(r->client, &r->taken,
			     values + g->scales.blocks * PACKETS_MOST + PACKETS_MORE, l.bytes,
			     growth))
		return -ENOMEM;
	g->saved = r->taken.buffer;
	g->packets = g->saved + values;
	l = (struct thc_layout){ .at = r->taken.arrays };
	lay_out(r, &l);
	r->phases.phase[SCALES] = thc_block_scales_phase(&g->scales, r);
	for (k = 1; k <= THC_RATE_BITS_MAX; k++)
		r->phases.phase[SUMS + k] =
			(struct thc_phase){ .request = r, .op = THC_OP_LUT_ADD };
	r->phases.count = SUMS + THC_RATE_BITS_MAX + 1;
	return 0;
}

static uint8_t *saved_at(const struct thc_request *r, size_t block)
{
	const struct thc_rated *g = r->progress;

	return g->saved + block * BLOCK * thc_dtype_size(r->dtype);
}

static uint8_t *values_at(const struct thc_request *r, size_t block)
{
	return (uint8_t *)r->buf + block * BLOCK * thc_dtype_size(r->dtype);
}

/* Values of a block that are the caller's: behind the last one there are zeros. */
static size_t values_of(const struct thc_request *r, size_t block)
{
	size_t left = r->count - block * BLOCK;

	return left < BLOCK ? left : BLOCK;
}

/* Keeps the caller's values of a block for undo(), before its result overwrites them. */
static void save(struct thc_request *r, size_t block)
{
	struct thc_rated *g = r->progress;

	thc_codec_save(g->scales.codec, saved_at(r, block), values_at(r, block),
		       values_of(r, block) * thc_dtype_size(r->dtype));
	g->landed[block] = 1;
}

static void undo(struct thc_request *r)
{
	const struct thc_rated *g = r->progress;
	size_t block;

	for (block = 0; g && block < g->scales.blocks; block++)
		if (g->landed && g->landed[block])
			memcpy(values_at(r, block), saved_at(r, block),
			       values_of(r, block) * thc_dtype_size(r->dtype));
}

/* --- classes ---------------------------------------------------------------- */

/* Chunks of @blocks blocks of class @c. */
static uint32_t chunks_of(const struct thc_rate_class *c, uint32_t blocks)
{
	uint32_t chunk = THC_COORDINATES(c->sum_width);

	return chunk > BLOCK ? (blocks + 1) / 2 : blocks * (BLOCK / chunk);
}

/* Sorts the blocks by class, and within a class by number. */
static void sort(struct thc_rated *g)
{
	uint32_t at[THC_RATE_CLASSES], next = 0, block, k;

	for (k = 1; k < THC_RATE_CLASSES; k++) {
		g->begin[k] = at[k] = next;
		next += g->choice.blocks[k];
	}
	g->begin[0] = at[0] = next;
	for (block = 0; block < g->scales.blocks; block++)
		g->order[at[g->choice.of[block]]++] = block;
}

static void count(struct thc_request *r)
{
	const struct thc_rated *g = r->progress;
	struct thc_client_stats *stats = &r->client->stats;
	unsigned int k;

	stats->rate_requests++;
	stats->rate_blocks += g->scales.blocks;
	stats->rate_skipped += g->choice.blocks[0];
	stats->rate_square += g->choice.square;
	stats->rate_lost += g->choice.lost;
	for (k = 1; k < THC_RATE_CLASSES; k++) {
		stats->rate_bits_up += (uint64_t)g->choice.blocks[k] * class_of(r, k)->bits * BLOCK;
		stats->rate_bits_down +=
			(uint64_t)g->choice.blocks[k] * class_of(r, k)->sum_width * BLOCK;
	}
}

/* Chooses the bits of all blocks, whose norms are known, and sizes the phases. */
static void choose(struct thc_request *r)
{
	const struct thc_share_id id = id_of(r);
	struct thc_rated *g = r->progress;
	uint8_t *packets = g->packets;
	unsigned int k, turn;

	r->goal.turn = thc_agree_turn(r);
	turn = (r->goal.turn + 1) % THC_RATE_ROUNDS;
	if (r->error)
		r->error->next_turn = (uint8_t)turn;
	thc_rate_choose(&compressor(r)->rate, &r->goal, g->scales.of, (uint32_t)g->scales.blocks,
			thc_shares_bins(shares(r)), g->exponent, &g->choice);
	if (r->group)
		thc_shares_note(shares(r), &id, r->round, turn, g->exponent);
	sort(g);
	count(r);
	for (k = 1; k <= THC_RATE_BITS_MAX; k++) {
		struct thc_phase *p = &r->phases.phase[SUMS + k];
		const struct thc_rate_class *c = class_of(r, k);

		p->closed = true;
		if (!g->choice.blocks[k])
			continue;
		p->sized = chunks_of(c, g->choice.blocks[k]);
		p->width = c->bits;
		p->payload = THC_BYTES(THC_COORDINATES(c->sum_width), c->bits);
		p->stride = sizeof(struct thc_hdr) + p->payload;
		p->packets = packets;
		packets += p->sized * p->stride;
	}
	g->chosen = true;
}

/* --- compress --------------------------------------------------------------- */

/* Writes the mean of blocks that were not sent, which is 0, once all other blocks have landed and
 * nothing can fail any more; their error memory was set when they were measured. In one piece, at
 * the speed of memory.
 */
static void ended(struct thc_request *r)
{
	struct thc_rated *g = r->progress;
	size_t at;

	for (at = g->begin[0]; at < g->scales.blocks; at++)
		thc_codec_clear(g->scales.codec, values_at(r, g->order[at]),
				values_of(r, g->order[at]) * thc_dtype_size(r->dtype));
	thc_rate_ended(r);
}

/* The place of the indices of a block, number @at of its class. */
static struct thc_chunks indices_of(const struct thc_request *r, unsigned int k, uint32_t at)
{
	const struct thc_phase *p = &r->phases.phase[SUMS + k];
	uint32_t chunk = THC_COORDINATES(class_of(r, k)->sum_width);
	uint32_t index = chunk > BLOCK ? at / 2 : at * (BLOCK / chunk);
	uint8_t *payload = (uint8_t *)(thc_phase_packet(p, index) + 1);

	if (chunk > BLOCK)
		payload += at % 2 * THC_BYTES(BLOCK, k);
	return (struct thc_chunks){
		.at = payload, .stride = p->stride, .chunk = chunk < BLOCK ? chunk : BLOCK,
	};
}

static void compress_block(struct thc_request *r, unsigned int k, size_t block, uint32_t at)
{
	const struct thc_rated *g = r->progress;
	const struct thc_codec *c = &compressor(r)->row[k];
	const struct thc_chunks packed = indices_of(r, k, at);
	const struct thc_blocks b = thc_block_at(&g->scales, r, block);
	const struct thc_slice slice = thc_slice_of(r, c, block, 1);

	thc_codec_compress(c, &slice.values, &b, &packed, &slice.residual);
}

/* The chunks that block @at of its class completes. */
static void ready(struct thc_request *r, unsigned int k, uint32_t at)
{
	struct thc_rated *g = r->progress;
	struct thc_phase *p = &r->phases.phase[SUMS + k];
	uint32_t chunk = THC_COORDINATES(class_of(r, k)->sum_width), i;
	size_t half = THC_BYTES(BLOCK, k);

	if (chunk <= BLOCK) {
		g->missing[g->order[g->begin[k] + at]] = (uint8_t)(BLOCK / chunk);
		for (i = 0; i < BLOCK / chunk; i++)
			thc_pipeline_ready(p, p->ready);
		return;
	}
	/* the chunk of an odd last block has zeros in its other half */
	if (at % 2 == 0 && at + 1 == g->choice.blocks[k])
		memset((uint8_t *)(thc_phase_packet(p, p->ready) + 1) + half, 0, half);
	else if (at % 2 == 0)
		return;
	thc_pipeline_ready(p, p->ready);
}

/* The next blocks in the order of classes; false: there are none, or they have no numbers. */
static bool compress_slice(struct thc_request *r)
{
	struct thc_rated *g = r->progress;
	size_t end = g->packed + thc_slice_blocks(&g->scales, g->packed);
	size_t was = g->packed;

	if (end > g->begin[0])
		end = g->begin[0];
	for (; g->packed < end; g->packed++) {
		uint32_t block = g->order[g->packed], k = g->choice.of[block];
		uint32_t at = (uint32_t)g->packed - g->begin[k];

		if (!r->phases.phase[SUMS + k].numbered)
			break;
		compress_block(r, k, block, at);
		ready(r, k, at);
	}
	return g->packed > was;
}

static bool compute(struct thc_request *r)
{
	struct thc_rated *g = r->progress;

	if (thc_block_scales_measure(&g->scales, r))
		return true;
	return g->chosen && compress_slice(r);
}

static void agreed(struct thc_request *r)
{
	const struct thc_rated *g = r->progress;

	thc_rate_agreed(r);
	thc_block_scales_send(&g->scales, &r->phases.phase[SCALES]);
}

/* --- decode ----------------------------------------------------------------- */

/* Block @at of class @k has all its sums, of chunks of @stride bytes from @lanes on. */
static void decode_block(struct thc_request *r, unsigned int k, uint32_t at, const uint8_t *lanes)
{
	const struct thc_rated *g = r->progress;
	const struct thc_codec *c = &compressor(r)->row[k];
	const struct thc_chunks packed = indices_of(r, k, at);
	size_t block = g->order[g->begin[k] + at], values = values_of(r, block);
	const struct thc_blocks b = thc_block_at(&g->scales, r, block);
	const struct thc_slice slice = thc_slice_of(r, c, block, 1);
	const struct thc_sums sums = {
		.at = lanes, .stride = THC_LANE_BYTES, .chunk = packed.chunk,
		.width = class_of(r, k)->sum_width, .counts = g->counts[block],
	};

	if (r->error)
		thc_codec_putback(c, &packed, g->lost[block], 1, &b, &slice.residual);
	if (r->dtype == THC_FP32 && values == BLOCK && lanes != saved_at(r, block)) {
		save(r, block);
		thc_codec_decode(c, &sums, values, &b, (float *)values_at(r, block));
		return;
	}
	thc_codec_decode(c, &sums, values, &b, slice.residual.scratch);
	save(r, block);
	thc_store(r->dtype, values_at(r, block), slice.residual.scratch, values);
}

static void note(struct thc_request *r, size_t block, unsigned int half, uint16_t count)
{
	struct thc_rated *g = r->progress;

	g->counts[block][half] = count & ~THC_COUNT_EXCLUDED;
	g->lost[block][half] = !!(count & THC_COUNT_EXCLUDED);
}

/* The sum of chunk @index of class @k, NULL: it is gone. */
static void sum_came(struct thc_request *r, unsigned int k, uint32_t index, uint16_t count,
		     const uint8_t *lanes)
{
	static const uint8_t nothing[THC_LANE_BYTES];
	uint32_t chunk = THC_COORDINATES(class_of(r, k)->sum_width), at, half;
	struct thc_rated *g = r->progress;
	size_t block;

	lanes = lanes ? lanes : nothing;
	if (chunk >= BLOCK) {
		for (half = 0; half < chunk / BLOCK; half++) {
			at = index * (chunk / BLOCK) + half;
			if (at == g->choice.blocks[k])
				return;
			note(r, g->order[g->begin[k] + at], 0, count);
			decode_block(r, k, at, lanes + half * (THC_LANE_BYTES / 2));
		}
		return;
	}
	at = index / 2;
	half = index % 2;
	block = g->order[g->begin[k] + at];
	note(r, block, half, count);
	memcpy(saved_at(r, block) + half * THC_LANE_BYTES, lanes, THC_LANE_BYTES);
	if (!--g->missing[block])
		decode_block(r, k, at, saved_at(r, block));
}

static void norms_came(struct thc_request *r, uint32_t first, uint32_t chunks, const uint8_t *lanes)
{
	struct thc_rated *g = r->progress;
	uint32_t k;

	for (k = 0; k < chunks; k++)
		thc_block_scales_answer(&g->scales, first + k, lanes + (size_t)k * THC_LANE_BYTES);
	if (thc_block_scales_known(&g->scales, 0, g->scales.blocks))
		choose(r);
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	uint32_t k;

	if (phase == SCALES)
		norms_came(r, first, chunks, lanes);
	else
		for (k = 0; k < chunks; k++)
			sum_came(r, phase - SUMS, first + k, counts[k],
				 lanes ? lanes + (size_t)k * THC_LANE_BYTES : NULL);
}

const struct thc_scheme thc_scheme_thc_rate = {
	.id = THC_SCHEME_THC,
	.dtypes = THC_DTYPES_FLOAT,
	.loses = true,
	.prepare = prepare,
	.compute = compute,
	.agreed = agreed,
	.answer = answer,
	.ended = ended,
	.undo = undo,
};
