// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Scheme thc, tensor homomorphic compression (THC, NSDI'24, algorithm 3): measure the norms,
 * compress what has its agreed norms, decode what has all its answers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "codec_ops.h"
#include "dtype.h"
#include "pipeline.h"
#include "request.h"
#include "scheme.h"
#include "scheme_thc.h"

/* The scheme's phases, behind those of the agreement. */
enum { NORMS = THC_AGREEMENT_PHASES, SUMS };

/* --- the job -------------------------------------------------------------- */

static double clamp_of(uint64_t bits)
{
	double t;

	memcpy(&t, &bits, sizeof(t));
	return t;
}

/* As the daemon solved it. Levels rise to g: what is behind it is not used. */
int thc_table_read(const struct thc_spec *s, struct thc_table *t)
{
	unsigned int i, used = 1;

	if (!thc_block_valid(s->block_log2))
		return -EPROTO;
	while (used < sizeof(s->level) / sizeof(s->level[0]) && s->level[used - 1] < s->granularity)
		used++;
	*t = (struct thc_table){ .granularity = s->granularity, .t = clamp_of(s->clamp) };
	while (1U << t->bits < used)
		t->bits++;
	t->levels = 1U << t->bits;
	if (t->bits < 1 || t->levels != used)
		return -EPROTO;
	for (i = used; i < sizeof(s->level) / sizeof(s->level[0]); i++)
		if (s->level[i])
			return -EPROTO;
	for (i = 0; i < used; i++)
		t->value[i] = s->level[i];
	return thc_table_check(t, s->ranks, s->sum_width) ? -EPROTO : 0;
}

static const char *check_job(const struct thc_spec *s)
{
	struct thc_table t;

	return thc_table_read(s, &t) ? "its table is none that a codec can serve" : NULL;
}

static const char *check_uniform(const struct thc_spec *s)
{
	(void)s;
	return "the library does not have it yet";
}

static const struct thc_compressor *compressor(const struct thc_request *r)
{
	return r->client->context[THC_SCHEME_THC];
}

/* --- memory layout -------------------------------------------------------- */

static size_t block_size(const struct thc_request *r)
{
	return (size_t)1 << compressor(r)->codec.block_log2;
}

static uint32_t chunks_per_block(const struct thc_request *r)
{
	return (uint32_t)(block_size(r) / compressor(r)->chunk);
}

static uint8_t *region(const struct thc_request *r, size_t chunk)
{
	const struct thc_progress *g = r->progress;

	return g->regions + chunk * g->region_bytes;
}

/* An answer's lanes wait at the end of their region, behind the packet. */
static uint8_t *region_lanes(const struct thc_request *r, size_t chunk)
{
	return region(r, chunk + 1) - THC_LANE_BYTES;
}

static size_t region_bytes(const struct thc_request *r)
{
	size_t chunk = compressor(r)->chunk;
	size_t traffic = sizeof(struct thc_hdr) + THC_BYTES(chunk, 4) + THC_LANE_BYTES;
	size_t floats = chunk * thc_dtype_size(r->dtype);

	traffic = (traffic + 63) & ~(size_t)63;
	return floats > traffic ? floats : traffic;
}

/* fp32: blocks are rotated where their regions lie. */
static bool in_place(const struct thc_request *r)
{
	return r->dtype == THC_FP32;
}

/* Blocks the ring of rotated ones has room for. */
static size_t ahead_blocks(const struct thc_request *r)
{
	size_t count = r->count / THC_AHEAD_SHARE;

	return (count < THC_AHEAD ? count : THC_AHEAD) / block_size(r);
}

/* All arrays beside the regions, which take @regions, and room to receive,
 * which grows by @growth. The ring gets what is left of what may be held: it
 * only saves time.
 */
static int allocate_arrays(struct thc_request *r, size_t regions, size_t growth)
{
	struct thc_progress *g = r->progress;
	size_t left = thc_budget_left(r->client), ring = block_size(r) * sizeof(float), total = 0;
	size_t norms = thc_carve(&total, g->blocks * sizeof(*g->norms));
	size_t norm_packets = thc_carve(&total, g->norm_chunks * THC_ANSWER_BYTES);
	size_t norm_done = thc_carve(&total, g->norm_chunks);
	size_t counts = thc_carve(&total, g->data_chunks * sizeof(*g->counts));
	size_t lost = thc_carve(&total, g->data_chunks);
	size_t missing = thc_carve(&total, g->blocks * sizeof(*g->missing));

	g->ahead_blocks = in_place(r) ? 0 : ahead_blocks(r);
	while (g->ahead_blocks && regions + growth + total + g->ahead_blocks * ring > left)
		g->ahead_blocks--;
	g->arrays_bytes = total + g->ahead_blocks * ring;

	g->regions = thc_buffer_get(r->client, regions, growth + g->arrays_bytes, &g->regions_size);
	g->arrays = calloc(1, g->arrays_bytes);
	thc_account(r->client, (ssize_t)g->arrays_bytes);
	if (!g->regions || !g->arrays)
		return -ENOMEM;
	g->norms = (void *)(g->arrays + norms);
	g->norm_packets = g->arrays + norm_packets;
	g->norm_done = g->arrays + norm_done;
	g->counts = (void *)(g->arrays + counts);
	g->lost = g->arrays + lost;
	g->missing = (void *)(g->arrays + missing);
	g->ahead = (void *)(g->arrays + total);
	return 0;
}

static int prepare(struct thc_request *r, size_t growth)
{
	const struct thc_compressor *z = compressor(r);
	struct thc_progress *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	r->progress = g;
	g->blocks = thc_codec_blocks(&z->codec, r->count);
	g->data_chunks = (uint32_t)(g->blocks * chunks_per_block(r));
	g->norm_chunks = (uint32_t)((g->blocks + THC_NORMS - 1) / THC_NORMS);
	g->region_bytes = region_bytes(r);
	if (allocate_arrays(r, g->data_chunks * g->region_bytes, growth))
		return -ENOMEM;
	r->phases.phase[NORMS] = (struct thc_phase){
		.request = r, .packets = g->norm_packets, .stride = THC_ANSWER_BYTES,
		.payload = THC_LANE_BYTES, .sized = g->norm_chunks, .op = THC_OP_MAX, .width = 32,
		.control = true, .closed = true,
	};
	r->phases.phase[SUMS] = (struct thc_phase){
		.request = r, .packets = g->regions, .stride = g->region_bytes,
		.payload = THC_BYTES(z->chunk, 4), .sized = g->data_chunks,
		.op = THC_OP_LUT_ADD, .width = 4, .closed = true,
	};
	r->phases.count = SUMS + 1;
	return 0;
}

static void release(struct thc_request *r)
{
	struct thc_progress *g = r->progress;

	if (!g)
		return;
	thc_buffer_put(r->client, g->regions, g->regions_size);
	free(g->arrays);
	thc_account(r->client, -(ssize_t)g->arrays_bytes);
	free(g);
	r->progress = NULL;
}

/* --- slices of blocks ----------------------------------------------------- */

/* The part of the caller's buffer that a slice of blocks covers. */
struct slice {
	struct thc_values	values;
	struct thc_residual_at	residual;
};

static struct slice slice_of(const struct thc_request *r, size_t first, size_t blocks)
{
	size_t start = first * block_size(r), end = (first + blocks) * block_size(r);

	if (end > r->count)
		end = r->count;
	return (struct slice){
		.values = {
			.x = (const uint8_t *)r->buf + start * thc_dtype_size(r->dtype),
			.dtype = r->dtype,
			.count = end - start,
			.error = r->error ? r->error->now + start : NULL,
		},
		.residual = {
			.error = r->error ? r->error->next + start : NULL,
			.count = end - start,
			.scratch = compressor(r)->scratch,
		},
	};
}

static size_t slice_from(const struct thc_request *r, size_t first)
{
	const struct thc_progress *g = r->progress;
	size_t blocks = THC_SLICE >> compressor(r)->codec.block_log2;

	if (!blocks)
		blocks = 1;
	return blocks < g->blocks - first ? blocks : g->blocks - first;
}

/* --- norms ---------------------------------------------------------------- */

/* A packet carries THC_NORMS norms, as the bits of floats that are not negative. */
static void fill_norm_packets(struct thc_request *r)
{
	struct thc_phase *p = &r->phases.phase[NORMS];
	const struct thc_progress *g = r->progress;
	uint32_t index, lane;

	for (index = 0; index < g->norm_chunks; index++) {
		uint32_t *lanes = (void *)(p->packets + index * p->stride + sizeof(struct thc_hdr));

		for (lane = 0; lane < THC_NORMS; lane++) {
			size_t block = (size_t)index * THC_NORMS + lane;
			uint32_t bits = 0;

			if (block < g->blocks)
				memcpy(&bits, &g->norms[block], sizeof(bits));
			lanes[lane] = thc_le32(bits);
		}
		thc_pipeline_ready(p, index);
	}
}

static void norms_agreed(struct thc_request *r, uint32_t index, const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	size_t block = (size_t)index * THC_NORMS;
	uint32_t lane, bits;

	for (lane = 0; lane < THC_NORMS && block + lane < g->blocks; lane++) {
		memcpy(&bits, lanes + 4 * lane, sizeof(bits));
		bits = thc_le32(bits);
		memcpy(&g->norms[block + lane], &bits, sizeof(bits));
	}
	g->norm_done[index] = 1;
}

/* For a bucket that is not finite nothing is sent, and the agreement tells the others. */
static void measure_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	size_t first = g->measured, blocks = slice_from(r, first), bad = 0;
	struct slice slice = slice_of(r, first, blocks);

	g->measured += blocks;
	if (thc_codec_norms(&compressor(r)->codec, &slice.values, g->norms + first, &bad)) {
		r->bad = first * block_size(r) + bad;
		r->claim_status = THC_CLAIM_NOT_FINITE;
		g->measured = g->blocks;
	}
	r->claimed = g->measured == g->blocks;
}

/* --- compress ------------------------------------------------------------- */

static bool norms_known(const struct thc_request *r, size_t first, size_t blocks)
{
	const struct thc_progress *g = r->progress;
	size_t i = first / THC_NORMS, last = (first + blocks - 1) / THC_NORMS;

	for (; i <= last; i++)
		if (!g->norm_done[i])
			return false;
	return true;
}

/* Where block @block is kept from its rotation to its compression. */
static float *rotated_at(const struct thc_request *r, size_t block)
{
	const struct thc_progress *g = r->progress;

	if (in_place(r))
		return (float *)region(r, block * chunks_per_block(r));
	return g->ahead + block % g->ahead_blocks * block_size(r);
}

/* Blocks from @first on that rotated_at() has room for, one behind the other. */
static size_t room_at(const struct thc_request *r, size_t first)
{
	const struct thc_progress *g = r->progress;
	size_t blocks = slice_from(r, first), free, turn;

	if (in_place(r))
		return blocks;
	if (!g->ahead_blocks)
		return 0;
	free = g->packed + g->ahead_blocks - first;
	turn = g->ahead_blocks - first % g->ahead_blocks;
	free = free < turn ? free : turn;
	return blocks < free ? blocks : free;
}

/* Rotates what comes next while its norms are on their way; false: no more can be. */
static bool rotate_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	struct slice slice;
	size_t blocks;

	if (g->rotated < g->packed)
		g->rotated = g->packed;
	blocks = room_at(r, g->rotated);
	if (!blocks)
		return false;
	slice = slice_of(r, g->rotated, blocks);
	thc_codec_rotate(&compressor(r)->codec, &slice.values,
			 &(struct thc_blocks){ r->round, g->rotated, NULL, 0 },
			 rotated_at(r, g->rotated));
	g->rotated += blocks;
	r->client->stats.rotated_ahead += blocks;
	return true;
}

/* Block @block alone. */
static struct thc_blocks block_of(const struct thc_request *r, size_t block)
{
	const struct thc_progress *g = r->progress;

	return (struct thc_blocks){
		.round = r->round,
		.first_block = block,
		.norms = g->norms + block,
		.rank = r->client->options.rank,
	};
}

static struct thc_chunks indices_of(const struct thc_request *r, size_t block)
{
	const struct thc_progress *g = r->progress;

	_Static_assert(sizeof(struct thc_hdr) <= THC_IN_PLACE_MAX, "indices follow their header");
	return (struct thc_chunks){
		.at = region(r, block * chunks_per_block(r)) + sizeof(struct thc_hdr),
		.stride = g->region_bytes,
		.chunk = compressor(r)->chunk,
	};
}

static void compress_block(struct thc_request *r, size_t block)
{
	const struct thc_progress *g = r->progress;
	const struct thc_compressor *z = compressor(r);
	const struct thc_chunks packed = indices_of(r, block);
	const struct thc_blocks b = block_of(r, block);
	const struct slice slice = slice_of(r, block, 1);

	if (block < g->rotated)
		thc_codec_quantise(&z->codec, rotated_at(r, block), 1, &b, &packed,
				   &slice.residual);
	else
		thc_codec_compress(&z->codec, &slice.values, &b, &packed, &slice.residual);
}

static void compress_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	size_t blocks = slice_from(r, g->packed), block;
	uint32_t per_block = chunks_per_block(r), k;

	for (block = g->packed; block < g->packed + blocks; block++) {
		compress_block(r, block);
		g->missing[block] = (uint16_t)per_block;
		for (k = 0; k < per_block; k++)
			thc_pipeline_ready(&r->phases.phase[SUMS], (uint32_t)block * per_block + k);
	}
	g->packed += blocks;
}

static bool compute(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	if (g->measured < g->blocks) {
		measure_slice(r);
		return true;
	}
	if (r->phases.phase[SUMS].numbered && g->packed < g->blocks &&
	    norms_known(r, g->packed, slice_from(r, g->packed))) {
		compress_slice(r);
		return true;
	}
	/* the norms are on their way: use the time */
	return !r->claim_status && g->packed < g->blocks && rotate_slice(r);
}

/* --- decode --------------------------------------------------------------- */

/* Chunks whose sum lacks this rank go back to the error memory. */
static void put_back(struct thc_request *r, size_t block)
{
	const struct thc_progress *g = r->progress;
	const struct thc_compressor *z = compressor(r);
	size_t chunk = block * chunks_per_block(r);
	const struct thc_chunks packed = indices_of(r, block);
	const struct thc_blocks b = block_of(r, block);
	struct slice slice = slice_of(r, block, 1);

	if (slice.residual.error)
		thc_codec_putback(&z->codec, &packed, g->lost + chunk, 1, &b, &slice.residual);
}

/* What of the block is the caller's: behind the last value there are zeros. */
static size_t values_of(const struct thc_request *r, size_t block)
{
	size_t begin = block * block_size(r), left = r->count - begin;

	return left < block_size(r) ? left : block_size(r);
}

/* Copies the values of a block that is decoded: from the caller's buffer to its regions, so that
 * there is something to go back to, or back.
 */
static void copy_block(struct thc_request *r, size_t block, bool back)
{
	size_t size = thc_dtype_size(r->dtype), each = compressor(r)->chunk * size, n;
	size_t left = values_of(r, block) * size, k = block * chunks_per_block(r);
	uint8_t *buf = (uint8_t *)r->buf + k * each;

	for (; left; left -= n, buf += n, k++) {
		n = left < each ? left : each;
		if (back)
			memcpy(buf, region(r, k), n);
		else
			memcpy(region(r, k), buf, n);
	}
}

/* The lanes of a block's chunks, one behind the other; they make room in their regions for what
 * copy_block() puts there.
 */
static const uint8_t *move_lanes(struct thc_request *r, size_t block)
{
	size_t chunk = block * chunks_per_block(r);
	uint8_t *to = (uint8_t *)compressor(r)->scratch;
	uint32_t k;

	for (k = 0; k < chunks_per_block(r); k++)
		memcpy(to + (size_t)k * THC_LANE_BYTES, region_lanes(r, chunk + k), THC_LANE_BYTES);
	return to;
}

/* From @lanes, one behind the other, NULL: they wait in their regions. Straight to the caller's
 * buffer if it has the form.
 */
static void decode_block(struct thc_request *r, size_t block, const uint8_t *lanes)
{
	const struct thc_progress *g = r->progress;
	const struct thc_compressor *z = compressor(r);
	size_t chunk = block * chunks_per_block(r), values = values_of(r, block);
	uint8_t *buf = (uint8_t *)r->buf + block * block_size(r) * thc_dtype_size(r->dtype);
	const struct thc_blocks b = block_of(r, block);
	struct thc_sums sums = {
		.at = lanes ? lanes : region_lanes(r, chunk),
		.stride = lanes ? THC_LANE_BYTES : g->region_bytes,
		.chunk = z->chunk,
		.width = r->client->spec.sum_width,
		.counts = g->counts + chunk,
	};

	put_back(r, block);
	if (r->dtype == THC_FP32 && values == block_size(r)) {
		if (!lanes) {
			sums.at = move_lanes(r, block);
			sums.stride = THC_LANE_BYTES;
		}
		copy_block(r, block, false);
		thc_codec_decode(&z->codec, &sums, 1, &b, (float *)buf);
		return;
	}
	thc_codec_decode(&z->codec, &sums, 1, &b, z->scratch);
	copy_block(r, block, false);
	thc_store(r->dtype, buf, z->scratch, values);
}

/* Chunks of one block; decoded from where they lie if they are all of it. */
static void block_answers(struct thc_request *r, uint32_t first, uint32_t chunks,
			  const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	size_t block = first / chunks_per_block(r);
	uint32_t k;

	g->missing[block] -= (uint16_t)chunks;
	if (lanes && chunks == chunks_per_block(r)) {
		decode_block(r, block, lanes);
		return;
	}
	for (k = 0; lanes && k < chunks; k++)
		memcpy(region_lanes(r, first + k), lanes + (size_t)k * THC_LANE_BYTES,
		       THC_LANE_BYTES);
	if (!g->missing[block])
		decode_block(r, block, NULL);
}

/* Sums of chunks from @first on. */
static void sums_came(struct thc_request *r, uint32_t first, uint32_t chunks,
		      const uint16_t *counts, const uint8_t *lanes)
{
	struct thc_progress *g = r->progress;
	uint32_t per_block = chunks_per_block(r), k, n;

	for (k = 0; k < chunks; k++) {
		g->counts[first + k] = counts[k] & ~THC_COUNT_EXCLUDED;
		g->lost[first + k] = !!(counts[k] & THC_COUNT_EXCLUDED);
	}
	for (k = 0; k < chunks; k += n) {
		n = per_block - (first + k) % per_block;
		n = n < chunks - k ? n : chunks - k;
		block_answers(r, first + k, n, lanes ? lanes + (size_t)k * THC_LANE_BYTES : NULL);
	}
}

static void answer(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		   const uint16_t *counts, const uint8_t *lanes)
{
	uint32_t k;

	if (phase == SUMS)
		sums_came(r, first, chunks, counts, lanes);
	else
		for (k = 0; k < chunks; k++)
			norms_agreed(r, first + k, lanes + (size_t)k * THC_LANE_BYTES);
}

/* Decoded is what was sent and misses no answer. */
static void undo(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;
	size_t block;

	for (block = 0; g && block < g->packed; block++)
		if (!g->missing[block])
			copy_block(r, block, true);
}

/* --- of a client -------------------------------------------------------------- */

static size_t scratch_bytes(const struct thc_compressor *z)
{
	return sizeof(float) << z->codec.block_log2;
}

static int open_codec(struct thc_compressor *z, const struct thc_client *c)
{
	const struct thc_spec *s = &c->spec;
	struct thc_table table;
	int error = thc_table_read(s, &table);

	if (!error)
		error = thc_codec_init(&z->codec, &table, s->block_log2, s->seed, c->options.simd);
	if (error == -ENOTSUP)
		return thc_simd_missing();
	if (error)
		return thc_fail(error, "cannot set up the codec: %s", strerror(-error));
	if (s->features & THC_FEATURE_CORRELATED)
		thc_codec_set_correlated(&z->codec, s->ranks);
	return 0;
}

static int open_compressor(struct thc_client *c)
{
	struct thc_compressor *z = calloc(1, sizeof(*z));
	size_t bytes;
	int error;

	if (!z)
		return thc_fail(-ENOMEM, "out of memory");
	c->context[THC_SCHEME_THC] = z;
	z->chunk = THC_COORDINATES(c->spec.sum_width);
	error = open_codec(z, c);
	if (error)
		return error;
	bytes = scratch_bytes(z);
	z->scratch = malloc(bytes);
	if (!z->scratch)
		return thc_fail(-ENOMEM, "out of memory for a block of %u values",
				1U << c->spec.block_log2);
	thc_account(c, (ssize_t)bytes);
	if (c->counted_least < THC_COUNTED_BLOCKS * bytes)
		c->counted_least = THC_COUNTED_BLOCKS * bytes;
	return 0;
}

static void close_compressor(struct thc_client *c)
{
	struct thc_compressor *z = c->context[THC_SCHEME_THC];

	if (!z)
		return;
	if (z->scratch)
		thc_account(c, -(ssize_t)scratch_bytes(z));
	free(z->scratch);
	thc_codec_exit(&z->codec);
	free(z);
	c->context[THC_SCHEME_THC] = NULL;
}

static void describe(const struct thc_client *c, struct thc_client_info *info)
{
	const struct thc_compressor *z = c->context[THC_SCHEME_THC];

	info->chunk = THC_COORDINATES(c->spec.sum_width);
	info->block = 1U << c->spec.block_log2;
	info->sum_width = c->spec.sum_width;
	thc_table_read(&c->spec, &info->table);
	if (z)
		info->simd = thc_codec_simd_name(&z->codec);
}

const struct thc_scheme thc_scheme_thc = {
	.id = THC_SCHEME_THC,
	.dtypes = THC_DTYPES_FLOAT,
	.loses = true,
	.check = check_job,
	.open = open_compressor,
	.close = close_compressor,
	.describe = describe,
	.prepare = prepare,
	.compute = compute,
	.agreed = fill_norm_packets,
	.answer = answer,
	.undo = undo,
	.release = release,
};

const struct thc_scheme thc_scheme_uthc = {
	.id = THC_SCHEME_UTHC,
	.dtypes = THC_DTYPES_FLOAT,
	.loses = true,
	.check = check_uniform,
	.open = open_compressor,
	.close = close_compressor,
	.describe = describe,
	.prepare = prepare,
	.compute = compute,
	.agreed = fill_norm_packets,
	.answer = answer,
	.undo = undo,
	.release = release,
};
