// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Scales of blocks on their way: measured, lanes of MAX, and back. */
#include <string.h>

#include <thc/types.h>
#include <thc/wire/format.h>

#include "block_scales.h"
#include "client.h"
#include "codec_ops.h"
#include "dtype.h"
#include "pipeline.h"
#include "request.h"

#define LANES32	(THC_LANE_BYTES / sizeof(uint32_t))

size_t thc_slice_blocks(const struct thc_block_scales *s, size_t first)
{
	return s->slice < s->blocks - first ? s->slice : s->blocks - first;
}

/* The caller's values, and the error memory for them. */
static struct thc_values given(const struct thc_request *r, size_t start, size_t count)
{
	return (struct thc_values){
		.x = (const uint8_t *)r->buf + start * thc_dtype_size(r->dtype),
		.dtype = r->dtype,
		.count = count,
		.error = r->error ? r->error->now + start : NULL,
	};
}

struct thc_slice thc_slice_of(const struct thc_request *r, const struct thc_codec *c, size_t first,
			      size_t blocks)
{
	size_t start = first << c->block_log2, count = blocks << c->block_log2;
	float *error = r->error ? r->error->next + start : NULL;

	if (count > r->count - start)
		count = r->count - start;
	return (struct thc_slice){
		.values = error ? (struct thc_values){ error, THC_FP32, count, NULL } :
				  given(r, start, count),
		.residual = { error, count, (void *)r->client->scratch.at },
	};
}

/* Floats that scale the first @blocks blocks. */
static size_t floats_of(const struct thc_block_scales *s, size_t blocks)
{
	return blocks * thc_codec_scales(s->codec);
}

/* Blocks of a slice. Each aggregator gets as much at a time as one alone would: many small batches
 * cost the kernels of all hosts more. A slice is at most a quarter of a bucket, so that some blocks
 * travel while the rest is computed.
 */
static size_t slice_of(const struct thc_request *r, const struct thc_codec *codec)
{
	size_t slices = r->count / (4 * THC_SLICE), shards = r->client->list.count, blocks;

	slices = slices < shards ? slices : shards;
	slices = slices < THC_SLICES ? slices : THC_SLICES;
	blocks = (slices ? slices : 1) * THC_SLICE >> codec->block_log2;
	return blocks ? blocks : 1;
}

void thc_block_scales_init(struct thc_block_scales *s, const struct thc_request *r,
			   const struct thc_codec *codec)
{
	s->codec = codec;
	s->blocks = thc_codec_blocks(codec, r->count);
	s->slice = slice_of(r, codec);
	s->chunks = (uint32_t)((floats_of(s, s->blocks) + LANES32 - 1) / LANES32);
}

void thc_block_scales_lay_out(struct thc_block_scales *s, struct thc_layout *l)
{
	s->of = thc_lay(l, floats_of(s, s->blocks) * sizeof(*s->of));
	s->packets = thc_lay(l, s->chunks * THC_ANSWER_BYTES);
	s->came = thc_lay(l, s->chunks);
}

struct thc_phase thc_block_scales_phase(const struct thc_block_scales *s, struct thc_request *r)
{
	return (struct thc_phase){
		.request = r, .packets = s->packets, .stride = THC_ANSWER_BYTES,
		.payload = THC_LANE_BYTES, .sized = s->chunks, .op = THC_OP_MAX, .width = 32,
		.control = true, .closed = true,
	};
}

struct thc_blocks thc_block_at(const struct thc_block_scales *s, const struct thc_request *r,
			       size_t block)
{
	return (struct thc_blocks){
		.round = r->round,
		.first_block = block,
		.scales = s->of + floats_of(s, block),
		.rank = r->client->options.rank,
	};
}

/* Nothing is sent of a bucket that is not finite; the agreement tells the other ranks. */
bool thc_block_scales_measure(struct thc_block_scales *s, struct thc_request *r)
{
	size_t first = s->measured, blocks = thc_slice_blocks(s, first), bad = 0;
	struct thc_residual_at kept;
	struct thc_values values;

	if (first == s->blocks)
		return false;
	s->measured += blocks;
	kept = thc_slice_of(r, s->codec, first, blocks).residual;
	values = given(r, first << s->codec->block_log2, kept.count);
	if (thc_codec_measure(s->codec, &values, &(struct thc_blocks){ r->round, first, NULL, 0 },
			      &kept, s->of + floats_of(s, first), &bad)) {
		r->bad = (first << s->codec->block_log2) + bad;
		r->claim_status = THC_CLAIM_NOT_FINITE;
		s->measured = s->blocks;
	}
	r->claimed = s->measured == s->blocks;
	return true;
}

/* A number that MAX orders like @scale: norms are not negative, so their bits do. */
static uint32_t lane_of(const struct thc_block_scales *s, float scale)
{
	uint32_t bits = thc_float_bits(scale);

	if (!(s->codec->form & THC_CODEC_RANGES))
		return bits;
	return bits ^ (bits >> 31 ? UINT32_MAX : 1U << 31);
}

static float scale_of(const struct thc_block_scales *s, uint32_t lane)
{
	if (!(s->codec->form & THC_CODEC_RANGES))
		return thc_bits_float(lane);
	return thc_bits_float(lane ^ (lane >> 31 ? 1U << 31 : UINT32_MAX));
}

void thc_block_scales_send(const struct thc_block_scales *s, struct thc_phase *p)
{
	size_t left = floats_of(s, s->blocks), n, i;
	const float *scale = s->of;
	uint32_t index;

	for (index = 0; index < s->chunks; index++, scale += n, left -= n) {
		uint32_t *lanes = (void *)(thc_phase_packet(p, index) + 1);

		n = left < LANES32 ? left : LANES32;
		for (i = 0; i < n; i++)
			lanes[i] = thc_le32(lane_of(s, scale[i]));
		thc_pipeline_ready(p, index);
	}
}

void thc_block_scales_answer(struct thc_block_scales *s, uint32_t index, const uint8_t *lanes)
{
	size_t at = (size_t)index * LANES32, i;
	uint32_t lane;

	for (i = 0; i < LANES32 && at + i < floats_of(s, s->blocks); i++) {
		memcpy(&lane, lanes + 4 * i, sizeof(lane));
		s->of[at + i] = scale_of(s, thc_le32(lane));
	}
	s->came[index] = 1;
}

bool thc_block_scales_known(const struct thc_block_scales *s, size_t first, size_t blocks)
{
	size_t i = floats_of(s, first) / LANES32, end = floats_of(s, first + blocks);

	for (; i * LANES32 < end; i++)
		if (!s->came[i])
			return false;
	return true;
}
