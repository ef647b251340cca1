// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * One all-reduce, from the caller's buffer to the mean in it: measure the
 * norms, agree, compress what has its agreed norms, decode what has all its
 * answers (THC, NSDI'24, algorithm 3). Computation comes in slices, so that
 * the engine can look at the sockets in between. The caller's buffer is
 * written only when everything has succeeded.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "client.h"
#include "request.h"
#include "transport.h"

/* --- memory layout -------------------------------------------------------- */

static size_t block_size(const struct thc_request *r)
{
	return (size_t)1 << r->client->codec.block_log2;
}

static uint32_t chunks_per_block(const struct thc_request *r)
{
	return (uint32_t)(block_size(r) / r->client->params.chunk);
}

static uint32_t packed_bytes(const struct thc_request *r)
{
	return r->client->params.chunk / 2;
}

static uint8_t *region(const struct thc_request *r, size_t chunk)
{
	return r->regions + chunk * r->region_bytes;
}

/* An answer's lanes wait at the end of their region, behind the packet. */
static uint8_t *region_lanes(const struct thc_request *r, size_t chunk)
{
	return region(r, chunk) + r->region_bytes - THC_LANE_BYTES;
}

struct thc_hdr *thc_request_data_packet(const struct thc_request *r, uint32_t index)
{
	return (void *)region(r, index);
}

struct thc_hdr *thc_request_norm_packet(const struct thc_request *r, uint32_t index)
{
	return (void *)(r->norm_packets + (size_t)index * THC_ANSWER_BYTES);
}

static size_t region_bytes(const struct thc_request *r)
{
	size_t chunk = r->client->params.chunk;
	size_t traffic = sizeof(struct thc_hdr) + chunk / 2 + THC_LANE_BYTES;
	size_t floats = chunk * thc_dtype_size(r->dtype);

	traffic = (traffic + 63) & ~(size_t)63;
	return floats > traffic ? floats : traffic;
}

struct thc_request *thc_request_create(struct thc_client *c, void *buf, size_t count,
				       enum thc_dtype dtype, uint64_t key)
{
	struct thc_request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	sem_init(&r->ended, 0, 0);
	r->client = c;
	r->buf = buf;
	r->count = count;
	r->dtype = dtype;
	r->key = key;
	return r;
}

void thc_request_destroy(struct thc_request *r)
{
	sem_destroy(&r->ended);
	free(r);
}

void thc_request_end(struct thc_request *r)
{
	sem_post(&r->ended);
}

/* fp32: blocks are rotated, and decoded, where their regions lie. */
static bool in_place(const struct thc_request *r)
{
	return r->region_bytes == r->client->params.chunk * sizeof(float);
}

/* Blocks the ring of rotated ones has room for. */
static size_t ahead_blocks(const struct thc_request *r)
{
	size_t count = r->count / THC_AHEAD_SHARE;

	return (count < THC_AHEAD ? count : THC_AHEAD) / block_size(r);
}

/* Takes @bytes at the end of an allocation of @total; where they begin. */
static size_t carve(size_t *total, size_t bytes)
{
	size_t at = *total;

	*total = (at + bytes + 63) & ~(size_t)63;
	return at;
}

/* All arrays beside the regions, which take @regions, and room to receive,
 * which grows by @growth. The ring gets what is left of what may be held: it
 * only saves time.
 */
static int allocate_arrays(struct thc_request *r, size_t regions, size_t growth)
{
	size_t left = thc_budget_left(r->client), ring = block_size(r) * sizeof(float), total = 0;
	size_t norms = carve(&total, r->blocks * sizeof(*r->norms));
	size_t norm_packets = carve(&total, (r->norm_chunks + 1) * THC_ANSWER_BYTES);
	size_t norm_done = carve(&total, r->norm_chunks + 1);
	size_t counts = carve(&total, r->data_chunks * sizeof(*r->counts));
	size_t lost = carve(&total, r->data_chunks);
	size_t missing = carve(&total, r->blocks * sizeof(*r->missing));

	r->ahead_blocks = in_place(r) ? 0 : ahead_blocks(r);
	while (r->ahead_blocks && regions + growth + total + r->ahead_blocks * ring > left)
		r->ahead_blocks--;
	r->arrays_bytes = total + r->ahead_blocks * ring;

	r->regions = thc_buffer_get(r->client, regions, growth + r->arrays_bytes, &r->regions_room);
	r->arrays = calloc(1, r->arrays_bytes);
	thc_account(r->client, (ssize_t)r->arrays_bytes);
	if (!r->regions || !r->arrays)
		return -ENOMEM;
	r->norms = (void *)(r->arrays + norms);
	r->norm_packets = r->arrays + norm_packets;
	r->norm_done = r->arrays + norm_done;
	r->counts = (void *)(r->arrays + counts);
	r->lost = r->arrays + lost;
	r->missing = (void *)(r->arrays + missing);
	r->ahead = (void *)(r->arrays + total);
	return 0;
}

int thc_request_prepare(struct thc_request *r)
{
	size_t bytes = r->count * thc_dtype_size(r->dtype), growth;
	struct thc_client *c = r->client;

	r->blocks = thc_codec_blocks(&c->codec, r->count);
	r->data_chunks = (uint32_t)(r->blocks * chunks_per_block(r));
	r->norm_chunks = (uint32_t)((r->blocks + THC_NORMS - 1) / THC_NORMS);
	r->region_bytes = region_bytes(r);
	r->counted = thc_budget_begin(c, bytes);
	growth = c->transport->growth(c, bytes);

	if (allocate_arrays(r, r->data_chunks * r->region_bytes, growth) ||
	    c->transport->room(c, bytes)) {
		snprintf(r->sentence, sizeof(r->sentence),
			 "out of memory for an all-reduce of %zu values", r->count);
		return -ENOMEM;
	}
	return 0;
}

void thc_request_release(struct thc_request *r)
{
	struct thc_client *c = r->client;

	thc_buffer_put(c, r->regions, r->regions_room);
	free(r->arrays);
	thc_account(c, -(ssize_t)r->arrays_bytes);
	thc_budget_end(c, r->counted);
	r->arrays_bytes = 0;
	r->counted = 0;
	r->arrays = NULL;
	r->regions = NULL;
	r->norms = NULL;
	r->norm_packets = NULL;
	r->norm_done = NULL;
	r->counts = NULL;
	r->lost = NULL;
	r->missing = NULL;
	r->ahead = NULL;
}

/* --- ranges of blocks ----------------------------------------------------- */

/* What a slice of blocks covers of the caller's buffer. */
struct range {
	size_t		first;
	size_t		blocks;
	size_t		count;
	const uint8_t	*x;
	const float	*error;
	float		*error_next;
};

static struct range range_of(const struct thc_request *r, size_t first, size_t blocks)
{
	size_t start = first * block_size(r), end = (first + blocks) * block_size(r);

	if (end > r->count)
		end = r->count;
	return (struct range){
		.first = first,
		.blocks = blocks,
		.count = end - start,
		.x = (const uint8_t *)r->buf + start * thc_dtype_size(r->dtype),
		.error = r->error ? r->error->now + start : NULL,
		.error_next = r->error ? r->error->next + start : NULL,
	};
}

static size_t slice_from(const struct thc_request *r, size_t first)
{
	size_t blocks = THC_SLICE >> r->client->codec.block_log2;

	if (!blocks)
		blocks = 1;
	return blocks < r->blocks - first ? blocks : r->blocks - first;
}

/* --- norms ---------------------------------------------------------------- */

/* Only where headers are ours: thc.ko writes its own. */
static bool headers_are_ours(const struct thc_client *c)
{
	return c->flights;
}

static void seal(const struct thc_client *c, struct thc_hdr *h, unsigned int payload)
{
	if (headers_are_ours(c))
		thc_seal(h, h + 1, (int)(payload / 8));
}

static void fill_norm_packet(struct thc_request *r, uint32_t index)
{
	const struct thc_sender *s = &r->client->sender;

	if (headers_are_ours(r->client))
		thc_sender_request(s, &s->norms, thc_request_norm_packet(r, index), THC_OP_MAX, 32,
				   (uint32_t)r->round, r->norm_first + index);
}

void thc_request_agree_packet(struct thc_request *r)
{
	struct thc_hdr *h = thc_request_norm_packet(r, 0);

	fill_norm_packet(r, 0);
	thc_agree_claim(r, h + 1);
	seal(r->client, h, THC_LANE_BYTES);
	r->norms_sendable = 1;
}

/* Norm packets 1.. carry 256 norms each, as the bits of non-negative floats. */
static void fill_norm_packets(struct thc_request *r)
{
	uint32_t index, lane;

	for (index = 1; index <= r->norm_chunks; index++) {
		struct thc_hdr *h = thc_request_norm_packet(r, index);
		uint32_t *lanes = (void *)(h + 1);

		fill_norm_packet(r, index);
		for (lane = 0; lane < THC_NORMS; lane++) {
			size_t block = (size_t)(index - 1) * THC_NORMS + lane;
			uint32_t bits = 0;

			if (block < r->blocks)
				memcpy(&bits, &r->norms[block], sizeof(bits));
			lanes[lane] = thc_le32(bits);
		}
		seal(r->client, h, THC_LANE_BYTES);
	}
	r->norms_sendable = r->norm_chunks + 1;
}

static void norms_agreed(struct thc_request *r, uint32_t index, const void *lanes)
{
	size_t block = (size_t)(index - 1) * THC_NORMS;
	uint32_t lane, bits;

	for (lane = 0; lane < THC_NORMS && block + lane < r->blocks; lane++) {
		memcpy(&bits, (const uint8_t *)lanes + 4 * lane, sizeof(bits));
		bits = thc_le32(bits);
		memcpy(&r->norms[block + lane], &bits, sizeof(bits));
	}
	r->norm_done[index] = 1;
}

/* A claim that nothing can be sent for; the others learn of it. */
static void refuse(struct thc_request *r, size_t first, size_t bad)
{
	r->claim_status = THC_CLAIM_NOT_FINITE;
	r->bad = first * block_size(r) + bad;
	r->measured = r->blocks;
}

static void measure_slice(struct thc_request *r)
{
	size_t blocks = slice_from(r, r->measured), bad = 0;
	struct range g = range_of(r, r->measured, blocks);

	if (thc_codec_norms(&r->client->codec, g.x, r->dtype, g.count, g.error, r->norms + g.first,
			    &bad))
		refuse(r, g.first, bad);
	else
		r->measured += blocks;
	if (r->measured == r->blocks)
		r->stage = THC_STAGE_AGREE;
}

/* The caller takes NaN for a result, and all ranks that took part have seen it. */
static bool may_be_nonfinite(const struct thc_request *r)
{
	return r->client->options.flags & THC_CLIENT_NONFINITE && !r->adrift;
}

void thc_request_norm_answer(struct thc_request *r, uint32_t index, const void *lanes)
{
	if (index) {
		norms_agreed(r, index, lanes);
		return;
	}
	r->status = thc_agree_check(r, lanes);
	if (r->status == -EDOM && may_be_nonfinite(r))
		r->status = THC_NONFINITE;
	if (r->status) {
		r->stage = THC_STAGE_DONE;
		return;
	}
	fill_norm_packets(r);
	r->stage = THC_STAGE_DATA;
}

/* --- compress ------------------------------------------------------------- */

static bool norms_known(const struct thc_request *r, size_t first, size_t blocks)
{
	size_t i = first / THC_NORMS, last = (first + blocks - 1) / THC_NORMS;

	for (; i <= last; i++)
		if (!r->norm_done[i + 1])
			return false;
	return true;
}

/* Where block @block is kept from its rotation to its compression. */
static float *rotated_at(const struct thc_request *r, size_t block)
{
	if (in_place(r))
		return (float *)region(r, block * chunks_per_block(r));
	return r->ahead + block % r->ahead_blocks * block_size(r);
}

/* Blocks from @first on that rotated_at() has room for, one behind the other. */
static size_t room_at(const struct thc_request *r, size_t first)
{
	size_t blocks = slice_from(r, first), room, turn;

	if (in_place(r))
		return blocks;
	if (!r->ahead_blocks)
		return 0;
	room = r->packed + r->ahead_blocks - first;
	turn = r->ahead_blocks - first % r->ahead_blocks;
	room = room < turn ? room : turn;
	return blocks < room ? blocks : room;
}

/* Rotates what comes next while its norms are on their way; false: no more can be. */
static bool rotate_slice(struct thc_request *r)
{
	struct range g;
	size_t blocks;

	if (r->rotated < r->packed)
		r->rotated = r->packed;
	blocks = room_at(r, r->rotated);
	if (!blocks)
		return false;
	g = range_of(r, r->rotated, blocks);
	thc_codec_rotate(&r->client->codec, &(struct thc_values){ g.x, r->dtype, g.count, g.error },
			 &(struct thc_blocks){ r->round, g.first, NULL, 0 },
			 rotated_at(r, g.first));
	r->rotated += blocks;
	r->client->stats.rotated_ahead += blocks;
	return true;
}

/* Block @block alone. */
static struct thc_blocks block_of(const struct thc_request *r, size_t block)
{
	return (struct thc_blocks){
		.round = r->round,
		.first_block = block,
		.norms = r->norms + block,
		.rank = r->client->options.rank,
	};
}

static struct thc_chunks indices_of(const struct thc_request *r, size_t block)
{
	return (struct thc_chunks){
		.at = region(r, block * chunks_per_block(r)) + sizeof(struct thc_hdr),
		.stride = r->region_bytes,
		.chunk = r->client->params.chunk,
	};
}

static void compress_block(struct thc_request *r, size_t block)
{
	const struct thc_client *c = r->client;
	const struct thc_chunks packed = indices_of(r, block);
	const struct thc_blocks b = block_of(r, block);
	struct range g = range_of(r, block, 1);
	const struct thc_residual_at residual = { g.error_next, g.count, c->scratch };

	if (block < r->rotated)
		thc_codec_quantise(&c->codec, rotated_at(r, block), 1, &b, &packed, &residual);
	else
		thc_codec_compress(&c->codec,
				   &(struct thc_values){ g.x, r->dtype, g.count, g.error }, &b,
				   &packed, &residual);
}

static void fill_data_packet(struct thc_request *r, uint32_t index)
{
	const struct thc_sender *s = &r->client->sender;
	struct thc_hdr *h = thc_request_data_packet(r, index);

	if (!headers_are_ours(r->client))
		return;
	thc_sender_request(s, &s->data, h, THC_OP_LUT_ADD, 4, (uint32_t)r->round,
			   r->data_first + index);
	thc_seal(h, h + 1, (int)(packed_bytes(r) / 8));
}

static void compress_slice(struct thc_request *r)
{
	size_t blocks = slice_from(r, r->packed), block;
	uint32_t per_block = chunks_per_block(r), k;

	for (block = r->packed; block < r->packed + blocks; block++) {
		compress_block(r, block);
		r->missing[block] = (uint16_t)per_block;
		for (k = 0; k < per_block; k++)
			fill_data_packet(r, (uint32_t)block * per_block + k);
	}
	r->packed += blocks;
}

bool thc_request_compute(struct thc_request *r)
{
	if (r->stage == THC_STAGE_MEASURE) {
		measure_slice(r);
		return true;
	}
	if (r->stage == THC_STAGE_AGREE || r->stage == THC_STAGE_DATA) {
		if (r->stage == THC_STAGE_DATA && r->packed < r->blocks &&
		    norms_known(r, r->packed, slice_from(r, r->packed))) {
			compress_slice(r);
			return true;
		}
		/* the norms are on their way: use the time */
		if (!r->claim_status && r->packed < r->blocks)
			return rotate_slice(r);
	}
	return false;
}

/* --- decode --------------------------------------------------------------- */

/* Chunks whose sum lacks this rank go back to the error memory. */
static void put_back(struct thc_request *r, size_t block)
{
	const struct thc_client *c = r->client;
	size_t chunk = block * chunks_per_block(r);
	const struct thc_chunks packed = indices_of(r, block);
	const struct thc_blocks b = block_of(r, block);
	struct range g = range_of(r, block, 1);
	uint32_t k, any = 0;

	for (k = 0; k < chunks_per_block(r); k++)
		any |= r->lost[chunk + k];
	if (any && g.error_next)
		thc_codec_putback_lost(&c->codec, &packed, r->lost + chunk, 1, &b,
				       &(struct thc_residual_at){ g.error_next, g.count,
								  c->scratch });
}

/* From lanes @stride bytes apart. */
static void decode_block(struct thc_request *r, size_t block, const uint8_t *lanes, size_t stride)
{
	const struct thc_client *c = r->client;
	size_t chunk = block * chunks_per_block(r), k;
	float *out = in_place(r) ? (float *)region(r, chunk) : c->scratch;
	const struct thc_blocks b = block_of(r, block);
	const struct thc_sums sums = {
		.at = lanes,
		.stride = stride,
		.chunk = c->params.chunk,
		.width = c->params.sum_width,
		.counts = r->counts + chunk,
	};

	put_back(r, block);
	thc_codec_decode(&c->codec, &sums, 1, &b, out);
	if (in_place(r))
		return;
	for (k = 0; k < chunks_per_block(r); k++)
		thc_store(r->dtype, region(r, chunk + k), out + k * c->params.chunk,
			  c->params.chunk);
}

static void decode_region(struct thc_request *r, size_t block)
{
	decode_block(r, block, region_lanes(r, block * chunks_per_block(r)), r->region_bytes);
}

/* Chunks of one block; decoded from where they lie if they are all of it. */
static void block_answers(struct thc_request *r, uint32_t first, uint32_t chunks,
			  const uint8_t *lanes)
{
	size_t block = first / chunks_per_block(r);
	uint32_t k;

	r->missing[block] -= (uint16_t)chunks;
	if (chunks == chunks_per_block(r)) {
		decode_block(r, block, lanes, THC_LANE_BYTES);
		return;
	}
	for (k = 0; k < chunks; k++)
		memcpy(region_lanes(r, first + k), lanes + (size_t)k * THC_LANE_BYTES,
		       THC_LANE_BYTES);
	if (!r->missing[block])
		decode_region(r, block);
}

void thc_request_data_answers(struct thc_request *r, uint32_t first, uint32_t chunks,
			      const uint16_t *counts, const uint8_t *lanes)
{
	uint32_t per_block = chunks_per_block(r), k, n;
	struct thc_client *c = r->client;

	for (k = 0; k < chunks; k++) {
		r->counts[first + k] = counts[k] & ~THC_COUNT_EXCLUDED;
		r->lost[first + k] = !!(counts[k] & THC_COUNT_EXCLUDED);
		c->stats.excluded += r->lost[first + k];
		c->stats.partial += r->counts[first + k] < c->params.ranks;
	}
	for (k = 0; k < chunks; k += n) {
		n = per_block - (first + k) % per_block;
		n = n < chunks - k ? n : chunks - k;
		block_answers(r, first + k, n, lanes + (size_t)k * THC_LANE_BYTES);
	}
	r->answered += chunks;
	if (r->answered == r->data_chunks)
		r->stage = THC_STAGE_DONE;
}

void thc_request_data_answer(struct thc_request *r, uint32_t index, const struct thc_hdr *h,
			     const void *lanes)
{
	struct thc_client *c = r->client;
	uint64_t bitmap = thc_be64(h->bitmap), all = thc_ranks_mask(c->params.ranks);
	size_t block = index / chunks_per_block(r);

	if (lanes)
		memcpy(region_lanes(r, index), lanes, THC_LANE_BYTES);
	r->counts[index] = lanes ? thc_be16(h->count) : 0;
	r->lost[index] = !(bitmap >> c->options.rank & 1);
	c->stats.excluded += r->lost[index];
	c->stats.partial += bitmap != all;
	r->answered++;
	if (!--r->missing[block])
		decode_region(r, block);
	if (r->answered == r->data_chunks)
		r->stage = THC_STAGE_DONE;
}

/* NaN in every value of the caller's buffer. */
static void fill_nonfinite(struct thc_request *r)
{
	static const uint16_t nan16[] = { [THC_FP16] = 0x7e00, [THC_BF16] = 0x7fc0 };
	static const uint32_t nan32 = 0x7fc00000;
	size_t size = thc_dtype_size(r->dtype), i;
	const void *nan = r->dtype == THC_FP32 ? (const void *)&nan32 : &nan16[r->dtype];

	for (i = 0; i < r->count; i++)
		memcpy((uint8_t *)r->buf + i * size, nan, size);
}

void thc_request_finish(struct thc_request *r)
{
	size_t chunk = r->client->params.chunk, size = thc_dtype_size(r->dtype), i, done = 0;
	float *swap;

	if (r->status == THC_NONFINITE) {
		fill_nonfinite(r);
		return;
	}
	for (i = 0; done < r->count; i++, done += chunk) {
		size_t n = r->count - done < chunk ? r->count - done : chunk;

		memcpy((uint8_t *)r->buf + done * size, region(r, i), n * size);
	}
	if (!r->error)
		return;
	pthread_mutex_lock(&r->client->lock);	/* it may be exported just now */
	swap = r->error->now;
	r->error->now = r->error->next;
	r->error->next = swap;
	r->error->undoable = true;
	pthread_mutex_unlock(&r->client->lock);
}
