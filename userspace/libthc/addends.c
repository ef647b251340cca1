// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Values to lanes of ADD, and back: groups, and a ring of packets. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include <thc/types.h>
#include <thc/wire/format.h>

#include "client.h"
#include "codec.h"
#include "codec_ops.h"
#include "dtype.h"
#include "pipeline.h"
#include "request.h"
#include "sparse.h"
#include "addends.h"

/* Least places of a ring: a block of the most limbs, with the other blocks' values in its first and
 * its last group. Even.
 */
#define RING_LEAST(a)	((THC_SCALE_BLOCK / (a)->each + 2) * (is_exact(a) ? THC_LIMBS_MAX : 1))

/* Room for a block behind the rest of the one before. */
#define PACKED(a)	((a)->each + THC_SCALE_BLOCK + THC_PACK_SLACK)

static bool is_exact(const struct thc_addends *a)
{
	return a->digits.exact;
}

/* Does the number of chunks follow from answers? */
static bool is_open(const struct thc_addends *a)
{
	return is_exact(a) || a->index;
}

/* --- layout --------------------------------------------------------------- */

size_t thc_addends_count(const struct thc_request *r, uint32_t block)
{
	size_t left = r->count - (size_t)block * THC_SCALE_BLOCK;

	return left < THC_SCALE_BLOCK ? left : THC_SCALE_BLOCK;
}

uint8_t *thc_addends_of(const struct thc_request *r, uint32_t block)
{
	return (uint8_t *)r->buf + (size_t)block * THC_SCALE_BLOCK * thc_dtype_size(r->dtype);
}

const float *thc_addends_load(const struct thc_addends *a, const struct thc_request *r,
			      uint32_t block, size_t skip, size_t n)
{
	const uint8_t *from = thc_addends_of(r, block) + skip * thc_dtype_size(r->dtype);

	if (r->dtype == THC_FP32)
		return (const float *)from;
	thc_load(r->dtype, a->loaded, from, n);
	return a->loaded;
}

/* The values that are sent, of those that thc_addends_load() would load. */
static const float *source_of(const struct thc_addends *a, const struct thc_request *r,
			      uint32_t block, size_t skip, size_t n)
{
	if (a->source)
		return a->source + (size_t)block * THC_SCALE_BLOCK + skip;
	return thc_addends_load(a, r, block, skip, n);
}

static unsigned int limbs_of(const struct thc_addends *a, uint32_t block)
{
	unsigned int limbs = thc_digits_count(&a->digits, a->scales->of[block]);

	/* honest ranks have no union with coordinates of a block of zeros */
	return !limbs && a->index ? 1 : limbs;
}

/* Most groups of @r. */
static uint32_t most_groups(const struct thc_addends *a, const struct thc_request *r)
{
	return (uint32_t)((r->count + a->each - 1) / a->each);
}

/* --- memory --------------------------------------------------------------- */

struct thc_digits thc_addends_digits(const struct thc_request *r)
{
	const struct thc_client *c = r->client;
	const bool exact = r->precision == THC_EXACT;
	const unsigned int width = exact ? 32 : r->precision;

	return (struct thc_digits){
		.ops = c->simd->fixed, .exact = exact, .width = width,
		.bits = thc_fixed_bits(width, c->spec.ranks), .ranks = c->spec.ranks,
		.odd = r->dtype != THC_FP32,
	};
}

void thc_addends_init(struct thc_addends *a, const struct thc_request *r,
		      const struct thc_scales *scales, const struct thc_index *index)
{
	a->sparse = r->client->simd->sparse;
	a->scales = scales;
	a->index = index;
	a->digits = thc_addends_digits(r);
	a->each = THC_COORDINATES(a->digits.width);
}

void thc_addends_lay_out(struct thc_addends *a, const struct thc_request *r, struct thc_layout *l)
{
	a->there = thc_lay(l, a->scales->blocks * sizeof(*a->there));
	a->group = thc_lay(l, most_groups(a, r) * sizeof(*a->group));
	a->loaded = thc_lay(l, THC_SCALE_BLOCK * sizeof(*a->loaded));
	a->means = thc_lay(l, THC_SCALE_BLOCK * sizeof(*a->means));
	if (a->index) {
		a->packed = thc_lay(l, PACKED(a) * sizeof(*a->packed));
		a->dense = thc_lay(l, THC_SCALE_BLOCK * sizeof(*a->dense));
		a->set = thc_lay(l, THC_SCALE_WORDS * sizeof(*a->set));
		a->whole = thc_lay(l, a->scales->blocks);
	}
	a->group_of = thc_lay(l, a->ring * sizeof(*a->group_of));
	/* a union of rows has another size each time: no buffer that was used fits */
	if (r->rows)
		a->packets = thc_lay(l, a->ring * THC_ANSWER_BYTES);
}

/* Lays out the recycled buffer. */
static void lay_out_buffer(struct thc_addends *a, const struct thc_request *r, struct thc_layout *l)
{
	/* the program's arrays of rows do not change */
	if (r->rows)
		return;
	a->before = thc_lay(l, r->count * thc_dtype_size(r->dtype));
	a->packets = thc_lay(l, a->ring * THC_ANSWER_BYTES);
	thc_own_place(&a->own, thc_lay(l, thc_own_bytes(&a->own)));
}

/* Bytes of buffer and arrays. */
static size_t bytes_of(struct thc_addends *a, struct thc_request *r, struct thc_layout *buffer,
		       struct thc_layout *arrays,
		       void (*lay_out)(struct thc_request *r, struct thc_layout *l))
{
	*buffer = *arrays = (struct thc_layout){ .at = NULL };
	lay_out_buffer(a, r, buffer);
	lay_out(r, arrays);
	return buffer->bytes + arrays->bytes;
}

static size_t rest_of(size_t bytes, size_t used)
{
	return bytes > used ? bytes - used : 0;
}

/* Places of a ring: twice the chunks in flight to all aggregators, but no more than the bucket can
 * have, nor than fit into @left bytes.
 */
static uint32_t ring_of(const struct thc_addends *a, const struct thc_request *r, size_t left)
{
	uint64_t most = (uint64_t)most_groups(a, r) * (is_exact(a) ? THC_LIMBS_MAX : 1) + 1;
	uint64_t shards = r->client->list.count ? r->client->list.count : 1;
	uint64_t places = 2 * shards * r->client->window + RING_LEAST(a);
	size_t each = THC_ANSWER_BYTES + sizeof(*a->group_of);

	if (places > left / each)
		places = left / each;
	if (places < RING_LEAST(a))
		places = RING_LEAST(a);
	return (uint32_t)(places < most ? places : most) & ~1U;
}

int thc_addends_allocate(struct thc_request *r, struct thc_addends *a, struct thc_taken *taken,
			 size_t growth,
			 void (*lay_out)(struct thc_request *r, struct thc_layout *l))
{
	size_t left = thc_budget_left(r->client), used;
	struct thc_layout buffer, arrays;

	/* including what rounding to cache lines adds to a ring */
	used = bytes_of(a, r, &buffer, &arrays, lay_out) + growth + 2 * 64;
	a->ring = ring_of(a, r, rest_of(left, used));
	/* Own values cannot serve a bucket of which a fraction is sent: its bits lack values that
	 * are sent because other ranks have some. Own values get no more than the bucket's part of
	 * the budget, since other buckets may be in progress.
	 */
	if (a->index && !a->source) {
		used = bytes_of(a, r, &buffer, &arrays, lay_out) + growth;
		left = left < 2 * r->counted ? left : 2 * r->counted;
		thc_own_init(&a->own, a->sparse, r->count, rest_of(left, used));
	}
	bytes_of(a, r, &buffer, &arrays, lay_out);
	if (thc_buffers_take(r->client, taken, buffer.bytes, arrays.bytes, growth))
		return -ENOMEM;
	buffer = (struct thc_layout){ .at = taken->buffer };
	lay_out_buffer(a, r, &buffer);
	arrays = (struct thc_layout){ .at = taken->arrays };
	lay_out(r, &arrays);
	return 0;
}

struct thc_phase thc_addends_phase(struct thc_addends *a, struct thc_request *r, unsigned int phase)
{
	a->phase = phase;
	return (struct thc_phase){
		.request = r, .packets = a->packets, .stride = THC_ANSWER_BYTES, .ring = a->ring,
		.payload = THC_LANE_BYTES, .sized = is_open(a) ? 0 : most_groups(a, r),
		.op = THC_OP_ADD, .width = (uint8_t)a->digits.width, .closed = !is_open(a),
	};
}

/* --- groups --------------------------------------------------------------- */

/* Values of one block in one group: @n of them, after @skip others of the block and @at of the
 * group.
 */
struct piece {
	uint32_t block;
	uint32_t skip;
	uint32_t at;
	uint32_t n;
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static struct piece first_piece(const struct thc_addends *a, const struct thc_group *group)
{
	struct piece p = { .block = group->block, .skip = group->skip };

	p.n = least(a->there[p.block] - p.skip, a->each);
	return p;
}

/* Advances @p; false: it was the group's last piece. */
static bool next_piece(const struct thc_addends *a, struct piece *p)
{
	p->at += p->n;
	p->skip = 0;
	do
		p->block++;
	while (p->block < a->block && !a->there[p->block]);
	if (p->at == a->each || p->block == a->block)
		return false;
	p->n = least(a->there[p->block], a->each - p->at);
	return true;
}

static void close_group(struct thc_addends *a)
{
	a->chunks += a->group[a->groups++].limbs;
	a->filled = 0;
}

static void add_block(struct thc_addends *a, uint32_t block, uint32_t values)
{
	unsigned int limbs = limbs_of(a, block);
	uint32_t added = 0, n;

	a->there[block] = limbs ? (uint16_t)values : 0;
	for (; added < a->there[block]; added += n) {
		struct thc_group *group = &a->group[a->groups];

		if (!a->filled)
			*group = (struct thc_group){
				.block = block, .chunk = a->chunks, .skip = (uint16_t)added,
			};
		if (limbs > group->limbs)
			group->limbs = (uint8_t)limbs;
		n = least(a->there[block] - added, a->each - a->filled);
		a->filled += n;
		if (a->filled == a->each)
			close_group(a);
	}
}

/* --- lanes ---------------------------------------------------------------- */

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

/* Writes the bits of @block's coordinates with values to a->set; returns the number of words. */
static size_t bits_of(const struct thc_addends *a, const struct thc_request *r, uint32_t block)
{
	size_t count = thc_addends_count(r, block), words = (count + 31) / 32;

	if (a->there[block] < count) {
		thc_index_get(a->index, (size_t)block * THC_SCALE_WORDS, a->set, words);
		return words;
	}
	memset(a->set, 0xff, words * sizeof(*a->set));
	if (count % 32)
		a->set[words - 1] >>= 32 - count % 32;
	return words;
}

/* Do only the index's values of @block change in the caller's buffer? */
static bool is_scattered(const struct thc_addends *a, const struct thc_request *r, uint32_t block)
{
	return a->index && r->dtype == THC_FP32 && !a->whole[block] &&
	       a->there[block] < thc_addends_count(r, block);
}

/* Keeps the values of @block for undo; @packed: the index's values, where they alone change. */
static void keep_block(struct thc_addends *a, const struct thc_request *r, uint32_t block,
		       const float *packed)
{
	size_t count = thc_addends_count(r, block), size = thc_dtype_size(r->dtype);
	const void *from = thc_addends_of(r, block);

	if (is_scattered(a, r, block)) {
		from = packed;
		count = a->there[block];
	}
	if (a->before)
		memcpy(a->before + a->kept * size, from, count * size);
	a->kept += count;
}

/* The values of the next block, behind those of the one before. */
static void pack_block(struct thc_addends *a, const struct thc_request *r)
{
	uint32_t block = a->packing++;
	float *to = a->packed + a->packed_to;
	size_t words;

	if (a->there[block]) {
		words = bits_of(a, r, block);
		if (thc_own_has(&a->own, block))
			thc_own_pack(&a->own, block, a->set, words, to);
		else
			a->sparse->pack(source_of(a, r, block, 0, thc_addends_count(r, block)),
					a->set, words, to);
		a->packed_to += a->there[block];
	}
	keep_block(a, r, block, to);
}

/* Packs blocks until the group being made has all its values. */
static void pack_group(struct thc_addends *a, const struct thc_request *r)
{
	uint32_t left = a->packed_to - a->packed_from;

	if (left >= a->each)
		return;
	memmove(a->packed, a->packed + a->packed_from, left * sizeof(*a->packed));
	a->packed_from = 0;
	a->packed_to = left;
	while (a->packed_to < a->each && a->packing < a->block)
		pack_block(a, r);
}

/* @p's values, as fp32. */
static const float *values_of(const struct thc_addends *a, const struct thc_request *r,
			      struct piece p)
{
	if (a->index)
		return a->packed + a->packed_from + p.at;
	return source_of(a, r, p.block, p.skip, p.n);
}

static void make_chunk(struct thc_addends *a, struct thc_request *r)
{
	struct thc_phase *p = &r->phases.phase[a->phase];
	struct piece piece = first_piece(a, &a->group[a->making]);
	uint8_t *lanes = (uint8_t *)(thc_phase_packet(p, p->ready) + 1);
	unsigned int width = a->digits.width;

	do
		thc_digits_make(&a->digits, values_of(a, r, piece), piece.n,
				a->scales->of[piece.block], a->limb, lanes + piece.at * width / 8);
	while (next_piece(a, &piece));
	memset(lanes + piece.at * width / 8, 0, THC_LANE_BYTES - piece.at * width / 8);
	swap_lanes(lanes, width);
	a->group_of[p->ready % a->ring] = a->making;
	thc_pipeline_ready(p, p->ready);
}

/* The first chunk that is still needed: earlier ones have landed. */
static uint32_t done_with(const struct thc_addends *a)
{
	return a->landing < a->groups ? a->group[a->landing].chunk : a->chunks;
}

bool thc_addends_make(struct thc_addends *a, struct thc_request *r)
{
	const struct thc_phase *p = &r->phases.phase[a->phase];
	uint32_t made = 0;

	while (p->ready < p->numbered && a->making < a->groups && made < THC_SLICE / a->each &&
	       p->ready - done_with(a) < a->ring) {
		if (a->index && !a->limb)
			pack_group(a, r);
		make_chunk(a, r);
		made++;
		if (++a->limb < a->group[a->making].limbs)
			continue;
		a->limb = 0;
		a->making++;
		a->packed_from += a->each;
	}
	return made;
}

/* --- means ---------------------------------------------------------------- */

/* The means of @n values of a group, from value @at of it on; all of them are of @block. */
static void means_of(const struct thc_addends *a, const struct thc_request *r, uint32_t block,
		     const struct thc_group *group, uint32_t at, uint32_t n, float *means)
{
	const struct thc_phase *p = &r->phases.phase[a->phase];
	unsigned int limbs = limbs_of(a, block), k;
	const int32_t *digit[THC_LIMBS_MAX];
	const uint8_t *lanes;

	for (k = 0; k < limbs; k++) {
		lanes = (const uint8_t *)(thc_phase_packet(p, group->chunk + k) + 1);
		digit[k] = (const void *)(lanes + at * a->digits.width / 8);
	}
	thc_digits_means(&a->digits, digit, n, a->scales->of[block], means);
}

/* Have all groups of the next block to land their sums? */
static bool may_land(const struct thc_addends *a)
{
	uint32_t end = a->at + a->there[a->landed], group;

	for (group = a->landing; end; group++) {
		if (group >= a->groups || a->group[group].summed < a->group[group].limbs)
			return false;
		end -= least(end, a->each);
	}
	return true;
}

/* The means of @block's values into the caller's buffer, and zeros between them. */
static void store_block(const struct thc_addends *a, const struct thc_request *r, uint32_t block,
			size_t words)
{
	size_t count = thc_addends_count(r, block);
	uint8_t *to = thc_addends_of(r, block);

	if (!a->there[block]) {
		memset(to, 0, count * thc_dtype_size(r->dtype));
	} else if (a->there[block] == count) {
		thc_store(r->dtype, to, a->means, count);
	} else {
		a->sparse->unpack(a->means, a->set, words, a->dense);
		thc_store(r->dtype, to, a->dense, count);
	}
}

/* Zeroes the values of @block that were sent, which are no longer lost. */
static void clear_source(const struct thc_addends *a, const struct thc_request *r, uint32_t block,
			 size_t words)
{
	static const float zeros[THC_SCALE_BLOCK];
	size_t count = thc_addends_count(r, block);
	float *at = a->source + (size_t)block * THC_SCALE_BLOCK;

	if (a->there[block] == count)
		memset(at, 0, count * sizeof(*at));
	else if (a->there[block])
		a->sparse->scatter(zeros, a->set, words, at);
}

static void land_block(struct thc_addends *a, struct thc_request *r)
{
	uint32_t block = a->landed++, landed = 0, n;
	/* number of words in a->set, which holds the block's bits from here on */
	size_t words = a->index && a->there[block] ? bits_of(a, r, block) : 0;

	if (!a->index)
		keep_block(a, r, block, NULL);
	else if (a->packing == block)	/* a block without values is in no group */
		pack_block(a, r);
	for (; landed < a->there[block]; landed += n) {
		n = least(a->there[block] - landed, a->each - a->at);
		means_of(a, r, block, &a->group[a->landing], a->at, n, a->means + landed);
		a->at += n;
		if (a->at == a->each) {
			a->at = 0;
			a->landing++;
		}
	}
	if (!is_scattered(a, r, block))
		store_block(a, r, block, words);
	else if (landed)
		a->sparse->scatter(a->means, a->set, words, (float *)thc_addends_of(r, block));
	if (a->source)
		clear_source(a, r, block, words);
}

static void land_blocks(struct thc_addends *a, struct thc_request *r)
{
	while (a->landed < a->block && may_land(a))
		land_block(a, r);
}

/* Does the known part of the index cover the next block? */
static bool is_indexed(const struct thc_addends *a, const struct thc_request *r)
{
	return !a->index || thc_index_known(a->index) >= (size_t)a->block * THC_SCALE_BLOCK +
								 thc_addends_count(r, a->block);
}

/* Number of values of the next block. */
static uint32_t how_many(struct thc_addends *a, const struct thc_request *r)
{
	size_t count = thc_addends_count(r, a->block);
	uint32_t n;

	if (!a->index)
		return (uint32_t)count;
	thc_index_get(a->index, (size_t)a->block * THC_SCALE_WORDS, a->set, (count + 31) / 32);
	n = thc_bits_count(a->set, (count + 31) / 32);
	a->found += n;
	return 10 * n > 7 * count ? (uint32_t)count : n;
}

void thc_addends_size(struct thc_addends *a, struct thc_request *r)
{
	struct thc_phase *p = &r->phases.phase[a->phase];

	for (; a->block < a->scales->known && is_indexed(a, r); a->block++)
		add_block(a, a->block, how_many(a, r));
	if (a->block == a->scales->blocks && a->filled)
		close_group(a);
	if (!p->closed) {
		p->sized = a->chunks;
		p->closed = a->block == a->scales->blocks;
	}
	land_blocks(a, r);
}

void thc_addends_answer(struct thc_addends *a, struct thc_request *r, uint32_t chunk,
			const uint8_t *lanes)
{
	/* aligned for the loops, whatever precedes them in the answer */
	void *own = thc_phase_packet(&r->phases.phase[a->phase], chunk) + 1;

	memcpy(own, lanes, THC_LANE_BYTES);
	swap_lanes(own, a->digits.width);
	a->group[a->group_of[chunk % a->ring]].summed++;
	land_blocks(a, r);
}

void thc_addends_undo(const struct thc_addends *a, const struct thc_request *r)
{
	size_t size = thc_dtype_size(r->dtype), at = 0;
	uint32_t block;

	for (block = 0; block < a->landed; block++) {
		size_t count = thc_addends_count(r, block), words;
		uint8_t *to = thc_addends_of(r, block);

		if (!is_scattered(a, r, block)) {
			memcpy(to, a->before + at * size, count * size);
			at += count;
		} else if (a->there[block]) {
			words = bits_of(a, r, block);
			a->sparse->scatter((const float *)a->before + at, a->set, words,
					   (float *)to);
			at += a->there[block];
		}
	}
}
