// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Schemes thc, tensor homomorphic compression (THC, NSDI'24, algorithm 3), and uthc, uniform THC
 * (algorithm 1). They measure the scales of blocks, compress blocks with agreed scales, and decode
 * blocks that have all answers. The scale of a block is its norm for thc, the range of its
 * coordinates for uthc; that is the only difference.
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
enum { SCALES = THC_AGREEMENT_PHASES, SUMS };

/* --- the job -------------------------------------------------------------- */

static double clamp_of(uint64_t bits)
{
	double t;

	memcpy(&t, &bits, sizeof(t));
	return t;
}

int thc_row_read(const struct thc_table_row *row, unsigned int ranks, struct thc_table *t)
{
	unsigned int i;

	*t = (struct thc_table){
		.bits = row->bits, .levels = 1U << row->bits, .granularity = row->granularity,
		.t = clamp_of(row->clamp),
	};
	for (i = 0; i < t->levels; i++)
		t->value[i] = row->level[i];
	return thc_table_check(t, ranks, row->sum_width) ? -EPROTO : 0;
}

int thc_table_read(const struct thc_spec *s, struct thc_table *t)
{
	const struct thc_table_row row = thc_spec_row(s, s->bits);

	if (!row.sum_width || !thc_block_valid(s->block_log2) ||
	    THC_COORDINATES(row.sum_width) > 1U << s->block_log2)
		return -EPROTO;
	return thc_row_read(&row, s->ranks, t);
}

static const char *check_norms(const struct thc_spec *s)
{
	struct thc_table t;
	unsigned int bits;

	if (thc_table_read(s, &t))
		return "its table and blocks are not for a codec";
	for (bits = 1; bits <= THC_BITS_MAX; bits++) {
		const struct thc_table_row row = thc_spec_row(s, bits);

		if (row.sum_width && thc_row_read(&row, s->ranks, &t))
			return "a table of its rows is not for a codec";
	}
	return NULL;
}

static const char *check_ranges(const struct thc_spec *s)
{
	const char *why = check_norms(s);
	struct thc_table t;

	if (why)
		return why;
	return !thc_table_read(s, &t) && thc_table_uniform(&t) ? NULL :
								 "the job's table is not uniform";
}

/* Coordinates of a chunk by the job's own row, which check() has seen; 0: it has none. */
static uint32_t chunk_of(const struct thc_spec *s)
{
	u8 width = thc_spec_sum_width(s);

	return width ? THC_COORDINATES(width) : 0;
}

static const struct thc_compressor *compressor(const struct thc_request *r)
{
	return r->client->context[r->scheme->id];
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

/* A block of floats. */
static float *scratch(const struct thc_request *r)
{
	return (void *)r->client->scratch.at;
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
	size_t bytes = THC_BYTES(chunk, compressor(r)->codec.table.bits);
	size_t traffic = sizeof(struct thc_hdr) + bytes + THC_LANE_BYTES;
	size_t floats = chunk * thc_dtype_size(r->dtype);

	traffic = (traffic + 63) & ~(size_t)63;
	return floats > traffic ? floats : traffic;
}

static void lay_out(struct thc_request *r, struct thc_layout *l)
{
	struct thc_progress *g = r->progress;

	thc_block_scales_lay_out(&g->scales, l);
	g->counts = thc_lay(l, g->data_chunks * sizeof(*g->counts));
	g->lost = thc_lay(l, g->data_chunks);
	g->missing = thc_lay(l, g->scales.blocks * sizeof(*g->missing));
}

/* All arrays beside the regions, and room to receive, which grows by @growth. */
static int allocate(struct thc_request *r, size_t growth)
{
	struct thc_progress *g = r->progress;
	struct thc_layout l = { .at = NULL };

	lay_out(r, &l);
	if (thc_buffers_take(r->client, &r->taken, g->data_chunks * g->region_bytes, l.bytes,
			     growth))
		return -ENOMEM;
	g->regions = r->taken.buffer;
	l = (struct thc_layout){ .at = r->taken.arrays };
	lay_out(r, &l);
	return 0;
}

static int prepare(struct thc_request *r, size_t growth)
{
	const struct thc_compressor *z = compressor(r);
	struct thc_progress *g;

	thc_rate_begin(r);
	if (r->chosen) {
		r->scheme = &thc_scheme_thc_rate;
		return r->scheme->prepare(r, growth);
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	r->progress = g;
	thc_block_scales_init(&g->scales, r, &z->codec);
	g->data_chunks = (uint32_t)(g->scales.blocks * chunks_per_block(r));
	g->region_bytes = region_bytes(r);
	if (allocate(r, growth))
		return -ENOMEM;
	r->phases.phase[SCALES] = thc_block_scales_phase(&g->scales, r);
	r->phases.phase[SUMS] = (struct thc_phase){
		.request = r, .packets = g->regions, .stride = g->region_bytes,
		.payload = THC_BYTES(z->chunk, z->codec.table.bits), .sized = g->data_chunks,
		.op = THC_OP_LUT_ADD, .width = (uint8_t)z->codec.table.bits, .closed = true,
	};
	r->phases.count = SUMS + 1;
	return 0;
}

/* --- compress ------------------------------------------------------------- */

static struct thc_chunks indices_of(const struct thc_request *r, size_t block)
{
	const struct thc_progress *g = r->progress;

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
	const struct thc_blocks b = thc_block_at(&g->scales, r, block);
	const struct thc_slice slice = thc_slice_of(r, &z->codec, block, 1);

	thc_codec_compress(&z->codec, &slice.values, &b, &packed, &slice.residual);
}

static void compress_slice(struct thc_request *r)
{
	struct thc_progress *g = r->progress;
	size_t blocks = thc_slice_blocks(&g->scales, g->packed), block;
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
	struct thc_progress *g = r->progress;

	if (thc_block_scales_measure(&g->scales, r))
		return true;
	if (!r->phases.phase[SUMS].numbered || g->packed == g->scales.blocks ||
	    !thc_block_scales_known(&g->scales, g->packed, thc_slice_blocks(&g->scales, g->packed)))
		return false;
	compress_slice(r);
	return true;
}

/* --- decode --------------------------------------------------------------- */

/* Chunks whose sum lacks this rank go back to the error memory. */
static void put_back(struct thc_request *r, size_t block)
{
	const struct thc_progress *g = r->progress;
	const struct thc_compressor *z = compressor(r);
	size_t chunk = block * chunks_per_block(r);
	const struct thc_chunks packed = indices_of(r, block);
	const struct thc_blocks b = thc_block_at(&g->scales, r, block);
	struct thc_slice slice = thc_slice_of(r, &z->codec, block, 1);

	if (slice.residual.error)
		thc_codec_putback(&z->codec, &packed, g->lost + chunk, 1, &b, &slice.residual);
}

/* Number of the block's values that are the caller's: zeros follow the last one. */
static size_t values_of(const struct thc_request *r, size_t block)
{
	size_t begin = block * block_size(r), left = r->count - begin;

	return left < block_size(r) ? left : block_size(r);
}

/* Copies the values of a decoded block from the caller's buffer to its regions, so that undo() can
 * restore them, or @back.
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
			thc_codec_save(&compressor(r)->codec, region(r, k), buf, n);
	}
}

/* Moves the lanes of a block's chunks to scratch, one behind the other, since copy_block()
 * overwrites their regions.
 */
static const uint8_t *move_lanes(struct thc_request *r, size_t block)
{
	size_t chunk = block * chunks_per_block(r);
	uint8_t *to = (void *)scratch(r);
	uint32_t k;

	for (k = 0; k < chunks_per_block(r); k++)
		memcpy(to + (size_t)k * THC_LANE_BYTES, region_lanes(r, chunk + k), THC_LANE_BYTES);
	return to;
}

/* Decodes a block from @lanes, one behind the other; NULL: they are in their regions. Decodes
 * straight to the caller's buffer if that has floats.
 */
static void decode_block(struct thc_request *r, size_t block, const uint8_t *lanes)
{
	const struct thc_progress *g = r->progress;
	const struct thc_compressor *z = compressor(r);
	size_t chunk = block * chunks_per_block(r), values = values_of(r, block);
	uint8_t *buf = (uint8_t *)r->buf + block * block_size(r) * thc_dtype_size(r->dtype);
	const struct thc_blocks b = thc_block_at(&g->scales, r, block);
	struct thc_sums sums = {
		.at = lanes ? lanes : region_lanes(r, chunk),
		.stride = lanes ? THC_LANE_BYTES : g->region_bytes,
		.chunk = z->chunk,
		.width = thc_spec_sum_width(&r->client->spec),
		.counts = g->counts + chunk,
	};

	put_back(r, block);
	if (r->dtype == THC_FP32 && values == block_size(r)) {
		if (!lanes) {
			sums.at = move_lanes(r, block);
			sums.stride = THC_LANE_BYTES;
		}
		copy_block(r, block, false);
		thc_codec_decode(&z->codec, &sums, values, &b, (float *)buf);
		return;
	}
	thc_codec_decode(&z->codec, &sums, values, &b, scratch(r));
	copy_block(r, block, false);
	thc_store(r->dtype, buf, scratch(r), values);
}

/* Takes in sums of chunks of one block; decodes them in place if they are the whole block. */
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
	struct thc_progress *g = r->progress;
	uint32_t k;

	if (phase == SUMS)
		sums_came(r, first, chunks, counts, lanes);
	else
		for (k = 0; k < chunks; k++)
			thc_block_scales_answer(&g->scales, first + k,
						lanes + (size_t)k * THC_LANE_BYTES);
}

static void send_scales(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;

	thc_rate_agreed(r);
	thc_block_scales_send(&g->scales, &r->phases.phase[SCALES]);
}

/* Restores all decoded blocks: those that were sent and miss no answer. */
static void undo(struct thc_request *r)
{
	const struct thc_progress *g = r->progress;
	size_t block;

	for (block = 0; g && block < g->packed; block++)
		if (!g->missing[block])
			copy_block(r, block, true);
}

/* --- of a client -------------------------------------------------------------- */

int thc_compressor_codec(const struct thc_client *c, const struct thc_table *table,
			 unsigned int form, struct thc_codec *out)
{
	const struct thc_spec *s = &c->spec;
	int error = thc_codec_init(out, table, s->block_log2, s->seed, c->options.simd);

	if (s->scheme_features & THC_SCHEME_F_UNROTATED)
		form |= THC_CODEC_UNROTATED;
	if (!error)
		error = thc_codec_set_form(out, form);
	if (error)
		return thc_fail(error, "cannot set up the codec: %s", strerror(-error));
	if (s->features & THC_FEATURE_CORRELATED)
		thc_codec_set_correlated(out, s->ranks);
	return 0;
}

static int open_compressor(struct thc_client *c, enum thc_scheme_id id, unsigned int form)
{
	struct thc_compressor *z = calloc(1, sizeof(*z));
	size_t bytes = sizeof(float) << c->spec.block_log2;
	struct thc_table table;
	int error;

	if (!z)
		return thc_fail(-ENOMEM, "out of memory");
	c->context[id] = z;
	z->chunk = chunk_of(&c->spec);
	/* check() has read it already */
	(void)!thc_table_read(&c->spec, &table);
	error = thc_compressor_codec(c, &table, form, &z->codec);
	if (!error && id == THC_SCHEME_THC)
		error = thc_rate_open(z, c);
	if (error)
		return error;
	if (thc_buffer_grow(c, &c->scratch, bytes))
		return thc_fail(-ENOMEM, "out of memory for a block of %u values",
				1U << c->spec.block_log2);
	if (c->counted_least < THC_COUNTED_BLOCKS * bytes)
		c->counted_least = THC_COUNTED_BLOCKS * bytes;
	/* of each value an answer has a lane, which may be longer than the value */
	c->counted_value = thc_spec_sum_width(&c->spec) == 32 ? sizeof(float) : 0;
	return 0;
}

static void close_compressor(struct thc_client *c, enum thc_scheme_id id)
{
	struct thc_compressor *z = c->context[id];

	if (!z)
		return;
	thc_buffer_drop(c, &c->scratch);
	thc_codec_exit(&z->codec);
	thc_rate_close(z, c);
	free(z);
	c->context[id] = NULL;
}

static void describe(const struct thc_client *c, struct thc_client_info *info)
{
	info->chunk = chunk_of(&c->spec);
	info->block = 1U << c->spec.block_log2;
	if (c->spec.scheme == THC_SCHEME_THC) {
		info->rate_goal = thc_rate_default(c).bits * 1e-3;
		info->error_goal = thc_rate_default(c).error * 1e-6;
		info->rate_tried = thc_rate_is_tried(c);
		info->table_error = thc_rate_table_error(c);
	}
}

static int open_norms(struct thc_client *c)
{
	return open_compressor(c, THC_SCHEME_THC, 0);
}

static void close_norms(struct thc_client *c)
{
	close_compressor(c, THC_SCHEME_THC);
}

static int open_ranges(struct thc_client *c)
{
	return open_compressor(c, THC_SCHEME_UTHC, THC_CODEC_RANGES);
}

static void close_ranges(struct thc_client *c)
{
	close_compressor(c, THC_SCHEME_UTHC);
}

/* clang-format off */
#define SCHEME(number, scale) {			\
	.id = number,				\
	.dtypes = THC_DTYPES_FLOAT,		\
	.loses = true,				\
	.check = check_##scale,			\
	.open = open_##scale,			\
	.close = close_##scale,			\
	.describe = describe,			\
	.prepare = prepare,			\
	.compute = compute,			\
	.agreed = send_scales,			\
	.answer = answer,			\
	.ended = thc_rate_ended,		\
	.undo = undo,				\
}
/* clang-format on */

const struct thc_scheme thc_scheme_thc = SCHEME(THC_SCHEME_THC, norms);
const struct thc_scheme thc_scheme_uthc = SCHEME(THC_SCHEME_UTHC, ranges);
