/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The THC codec's drivers: from ranges of blocks to tiles, keys and constants per block. All loops
 * over coordinates are in the kernels (codec_scalar.c, codec_avx2.c, codec_avx512.c), except loops
 * for rare cases.
 *
 * With R the unscaled transform of a block, the paper clamps R / sqrt(B) to +-M, M = t l / sqrt(B).
 * In grid steps that is a = R g / (2 t l) + g / 2: sqrt(B) cancels. The inverse has a factor of
 * 1 / B, a power of two, which is folded into its input. A block that is not rotated has the same
 * M, but R is the block itself: a is larger by the square root of the block's coordinates.
 *
 * Uniform THC (algorithm 1) puts its levels from the least to the largest coordinate of a block,
 * which thc_codec_measure() finds: a = (R - least) g / (largest - least).
 */
#include "codec.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "codec_ops.h"
#include "dtype.h"
#include "table.h"

/* Uses of derived keys. */
enum { KEY_SIGNS = 1, KEY_DRAW, KEY_SHIFT };

/* Bounds within which a tile's sum of squares in float is as good as one in double. */
#define SUMSQ_MIN	0x1p-80f
#define SUMSQ_MAX	0x1p120f

/* No coordinate of a block of norm THC_NORM_MAX is larger once it is rotated. */
#define RANGE_MAX	(THC_NORM_MAX * 0x1p10f)

_Static_assert(THC_BLOCK_LOG2_MAX / 2 <= 10, "what a rotation can make of a norm");

static void fill_cells(struct thc_codec *c)
{
	const struct thc_table *t = &c->table;
	unsigned int i, z = 0;

	for (z = 0; z < THC_TABLE_LEVELS_MAX; z++)
		c->value[z] = z < t->levels ? t->value[z] : t->granularity;
	/* Position g itself belongs to the last interval, from which it always rounds up. */
	for (i = 0, z = 0; i <= t->granularity; i++) {
		if (z + 2 < t->levels && i >= t->value[z + 1])
			z++;
		c->cell[i] = THC_CELL(z, t->value[z], t->value[z + 1] - t->value[z]);
		if (i < THC_NARROW_POSITIONS)
			c->cell_level[i] = (uint16_t)z;
	}
}

int thc_codec_init(struct thc_codec *c, const struct thc_table *t, unsigned int block_log2,
		   uint64_t seed, enum thc_simd simd)
{
	const struct thc_codec_ops *ops = thc_simd_ops(simd);

	if (!c || !t || !thc_table_valid(t) || !thc_block_valid(block_log2))
		return -EINVAL;
	if (!ops)
		return -EOPNOTSUPP;
	memset(c, 0, sizeof(*c));
	c->cell = calloc((size_t)t->granularity + 1, sizeof(*c->cell));
	if (!c->cell)
		return -ENOMEM;
	c->table = *t;
	c->ops = ops;
	c->block_log2 = block_log2;
	c->seed = seed;
	fill_cells(c);
	return thc_codec_set_form(c, 0);
}

void thc_codec_exit(struct thc_codec *c)
{
	free(c->cell);
	memset(c, 0, sizeof(*c));
}

int thc_codec_set_correlated(struct thc_codec *c, unsigned int n)
{
	if (n > THC_CORRELATE_MAX)
		return -EINVAL;
	c->correlate_n = n;
	return 0;
}

bool thc_table_uniform(const struct thc_table *t)
{
	return t->granularity == t->levels - 1;
}

int thc_codec_set_form(struct thc_codec *c, unsigned int form)
{
	bool rotated = !(form & THC_CODEC_UNROTATED), ranges = form & THC_CODEC_RANGES;

	if (form & ~(THC_CODEC_UNROTATED | THC_CODEC_RANGES) ||
	    (ranges && !thc_table_uniform(&c->table)))
		return -EINVAL;
	c->form = form;
	c->half = ranges ? 0 : (float)c->table.granularity * 0.5f;
	c->inverse_log2 = rotated ? (int)c->block_log2 : 0;
	return 0;
}

static bool is_rotated(const struct thc_codec *c)
{
	return !(c->form & THC_CODEC_UNROTATED);
}

const char *thc_codec_simd_name(const struct thc_codec *c)
{
	return c->ops->name;
}

static uint64_t derive_key(const struct thc_codec *c, unsigned int purpose, uint64_t round,
			   uint64_t rank)
{
	uint64_t key = thc_mix64(c->seed + purpose * THC_WEYL64);

	key = thc_mix64(key ^ round);
	return thc_mix64(key + rank * THC_WEYL64);
}

/* A range of coordinates as the caller holds it, and the keys of this round. */
struct range {
	const struct thc_codec *c;
	struct thc_values v;
	size_t first_tile;	/* of the range, within the bucket */
	uint64_t signs;		/* key */
};

static struct range range_of(const struct thc_codec *c, const struct thc_values *v,
			     const struct thc_blocks *b)
{
	return (struct range){
		.c = c,
		.v = *v,
		.first_tile = b->first_block << (c->block_log2 - THC_BLOCK_LOG2_MIN),
		.signs = derive_key(c, KEY_SIGNS, b->round, 0),
	};
}

/* Without a rotation no coordinate changes its sign. */
static void tile_signs(const struct range *r, size_t tile, uint64_t *signs)
{
	uint64_t word = (uint64_t)(r->first_tile + tile) * THC_TILE_SIGN_WORDS;
	unsigned int i;

	for (i = 0; i < THC_TILE_SIGN_WORDS; i++)
		signs[i] = is_rotated(r->c) ? thc_mix64(r->signs + (word + i) * THC_WEYL64) : 0;
}

/* A range of @count coordinates whose values are not read. */
static struct range range_of_count(const struct thc_codec *c, size_t count,
				   const struct thc_blocks *b)
{
	return range_of(c, &(struct thc_values){ .count = count }, b);
}

static size_t block_tiles(const struct thc_codec *c)
{
	return (size_t)1 << (c->block_log2 - THC_BLOCK_LOG2_MIN);
}

/* Number of coordinates of a block of the range, without padding. */
static size_t coordinates_of(const struct range *r, size_t block)
{
	size_t first = block << r->c->block_log2, full = (size_t)1 << r->c->block_log2;

	return r->v.count - first < full ? r->v.count - first : full;
}

/* The memory of a tile of the range, for a kernel; pad completes a partial last tile. */
struct tile_source {
	const void *x;
	enum thc_dtype dtype;
	const float *error;
	float pad[THC_TILE];
};

static void tile_source_get(const struct range *r, size_t tile, struct tile_source *s)
{
	size_t first = tile * THC_TILE, n, i;

	s->x = (const uint8_t *)r->v.x + first * thc_dtype_size(r->v.dtype);
	s->dtype = r->v.dtype;
	s->error = r->v.error ? r->v.error + first : NULL;
	if (first + THC_TILE <= r->v.count)
		return;
	n = first < r->v.count ? r->v.count - first : 0;
	for (i = 0; i < n; i++) {
		s->pad[i] = thc_load_one(s->dtype, s->x, i);
		if (s->error)
			s->pad[i] += s->error[i];
	}
	memset(s->pad + n, 0, (THC_TILE - n) * sizeof(*s->pad));
	s->x = s->pad;
	s->dtype = THC_FP32;
	s->error = NULL;
}

/* Squares that a float cannot hold, and the search for what is not finite. */
static int tile_sumsq_slowly(const struct tile_source *s, double *sum, size_t *bad)
{
	size_t i;

	*sum = 0;
	for (i = 0; i < THC_TILE; i++) {
		float v = thc_load_one(s->dtype, s->x, i);

		if (s->error)
			v += s->error[i];
		if (!isfinite(v)) {
			*bad = i;
			return -EDOM;
		}
		*sum += (double)v * (double)v;
	}
	return 0;
}

/* The sum of squares of tile @tile; @kept, unless NULL, receives the tile. */
static float tile_sumsq(const struct range *r, size_t tile, struct tile_source *s, float *kept)
{
	size_t first = tile * THC_TILE, left = r->v.count - first;

	tile_source_get(r, tile, s);
	if (left >= THC_TILE)
		return r->c->ops->sumsq(s->x, s->dtype, s->error, kept ? kept + first : NULL);
	if (kept)
		memcpy(kept + first, s->pad, left * sizeof(*kept));
	return r->c->ops->sumsq(s->pad, THC_FP32, NULL, NULL);
}

static int block_norm(const struct range *r, size_t block, float *kept, float *norm, size_t *bad)
{
	size_t tile = block * block_tiles(r->c), last = tile + block_tiles(r->c);
	struct tile_source s;
	double total = 0;

	for (; tile < last && tile * THC_TILE < r->v.count; tile++) {
		double sum;
		int ret;

		sum = (double)tile_sumsq(r, tile, &s, kept);
		if (!(sum >= SUMSQ_MIN && sum <= SUMSQ_MAX)) {
			ret = tile_sumsq_slowly(&s, &sum, bad);
			if (ret) {
				*bad += tile * THC_TILE;
				return ret;
			}
		}
		total += sum;
	}
	total = sqrt(total);
	if (total > THC_NORM_MAX) {
		*bad = block << r->c->block_log2;
		return -ERANGE;
	}
	*norm = (float)total;
	return 0;
}

/* @kept, unless NULL, receives the values + error. */
static int norms_of(const struct range *r, float *kept, float *norms, size_t *bad)
{
	size_t block, where;
	int ret;

	for (block = 0; block < thc_codec_blocks(r->c, r->v.count); block++) {
		ret = block_norm(r, block, kept, &norms[block], &where);
		if (ret) {
			if (bad)
				*bad = where;
			return ret;
		}
	}
	return 0;
}

int thc_codec_norms(const struct thc_codec *c, const struct thc_values *v, float *norms,
		    size_t *bad)
{
	struct range r = range_of(c, v, &(struct thc_blocks){ .round = 0 });

	return norms_of(&r, NULL, norms, bad);
}

/*
 * The transform of a block: fill() puts each tile into place (NULL if it is there), in ascending
 * order; strides 1..512 follow unless fill() does them itself; then rows of tiles are combined
 * while they are still in some cache. The order of tiles is free, the order of the stages of a
 * coordinate is not. Without a rotation there is only fill().
 */
struct transform {
	const struct thc_codec *c;
	void (*fill)(void *ctx, size_t tile, float *buf);
	bool fill_transforms;
	void *ctx;
};

static void transform_rows(const struct transform *t, size_t tile, size_t tiles, float *buf)
{
	unsigned int radix = tiles < THC_RADIX_MAX ? (unsigned int)tiles : THC_RADIX_MAX, i;
	size_t row = tiles / radix;

	if (tiles == 1) {
		if (t->fill)
			t->fill(t->ctx, tile, buf);
		if (!t->fill_transforms && is_rotated(t->c))
			t->c->ops->inverse(buf, NULL, buf);
		return;
	}
	for (i = 0; i < radix; i++)
		transform_rows(t, tile + i * row, row, buf + i * row * THC_TILE);
	if (is_rotated(t->c))
		t->c->ops->high(buf, row * THC_TILE, radix);
}

static void forward_fill(void *ctx, size_t tile, float *buf)
{
	uint64_t signs[THC_TILE_SIGN_WORDS];
	const struct range *r = ctx;
	struct tile_source s;

	tile_source_get(r, tile, &s);
	if (is_rotated(r->c)) {
		tile_signs(r, tile, signs);
		r->c->ops->forward(s.x, s.dtype, s.error, signs, buf);
		return;
	}
	r->c->ops->add(s.x, s.dtype, s.error, buf);
}

static void rotate_block(struct range *r, size_t block, float *rotated)
{
	struct transform t = {
		.c = r->c, .fill = forward_fill, .fill_transforms = true, .ctx = r,
	};
	size_t tiles = block_tiles(r->c);

	transform_rows(&t, block * tiles, tiles, rotated);
}

void thc_codec_rotate(const struct thc_codec *c, const struct thc_values *v,
		      const struct thc_blocks *b, float *rotated)
{
	struct range r = range_of(c, v, b);
	size_t block;

	for (block = 0; block < thc_codec_blocks(c, v->count); block++)
		rotate_block(&r, block, rotated + (block << c->block_log2));
}

/* The range of a block, whose norm is not too large. */
static void block_range(struct range *r, size_t block, float *scratch, float *range)
{
	size_t n = is_rotated(r->c) ? (size_t)1 << r->c->block_log2 : coordinates_of(r, block);
	float least, most;

	rotate_block(r, block, scratch);
	r->c->ops->extent(scratch, n, &least, &most);
	/* makes zeros positive, whichever of several the loop has found */
	range[0] = most + 0.0f;
	range[1] = 0.0f - least;
}

int thc_codec_measure(const struct thc_codec *c, const struct thc_values *v,
		      const struct thc_blocks *b, const struct thc_residual_at *kept, float *scales,
		      size_t *bad)
{
	size_t block, blocks = thc_codec_blocks(c, v->count);
	struct range r = range_of(c, v, b);
	int ret = norms_of(&r, kept->error, scales, bad);

	if (ret || !(c->form & THC_CODEC_RANGES))
		return ret;
	if (kept->error)
		r.v = (struct thc_values){ kept->error, THC_FP32, v->count, NULL };
	for (block = 0; block < blocks; block++)
		block_range(&r, block, kept->scratch, scales + 2 * block);
	return 0;
}

/**
 * struct span - the values of a block's levels, as coordinates that enter the quantiser
 * @offset: the coordinate of grid position codec.half
 * @step: of the grid; 0: all coordinates of the block are @offset
 */
struct span {
	float offset;
	double step;
};

/* Standard deviation of a block's coordinates that enter the quantiser, in units of its norm. A
 * rotation makes coordinates larger by sqrt(B), and spreads them over the padding.
 */
static double spread_of(const struct range *r, size_t block)
{
	return is_rotated(r->c) ? 1 : sqrt(1 / (double)coordinates_of(r, block));
}

/*
 * Scales of other ranks come from the network: those that are no number, or out of bounds, count as
 * zero.
 */
static struct span span_of(const struct range *r, const float *scales, size_t block)
{
	const struct thc_codec *c = r->c;
	float most, least, norm;
	double width;

	if (!(c->form & THC_CODEC_RANGES)) {
		norm = scales[block];
		if (!(norm >= THC_NORM_MIN && norm <= THC_NORM_MAX))
			return (struct span){ 0 };
		return (struct span){
			.step = 2 * c->table.t * (double)norm / c->table.granularity *
				spread_of(r, block),
		};
	}
	most = scales[2 * block];
	least = 0.0f - scales[2 * block + 1];
	width = (double)most - (double)least;
	if (!(width >= 0 && most <= RANGE_MAX && least >= -RANGE_MAX))
		return (struct span){ 0 };
	return (struct span){
		.offset = least,
		.step = width >= (double)THC_NORM_MIN ? width / c->table.granularity : 0,
	};
}

/* State of quantising: constants of the round here, constants of the block in q. */
struct quantiser {
	struct range *r;
	struct thc_quant q;
	uint64_t draw;
	uint64_t shift;
	struct thc_chunks packed;
	const float *rotated;	/* block being quantised */
	size_t block;
	bool flat;		/* the block has one level */
};

/* Is this the most common case: norms, and a small table of up to five bits? */
static bool has_narrow_table(const struct thc_codec *c)
{
	return c->table.levels <= THC_NARROW_LEVELS &&
	       c->table.granularity < THC_NARROW_POSITIONS && !(c->form & THC_CODEC_RANGES);
}

static void quantiser_init(struct quantiser *z, struct range *r, const struct thc_blocks *b,
			   const struct thc_chunks *packed)
{
	const struct thc_codec *c = r->c;
	unsigned int i;

	memset(z, 0, sizeof(*z));
	z->r = r;
	z->draw = derive_key(c, KEY_DRAW, b->round, b->rank);
	z->shift = derive_key(c, KEY_SHIFT, b->round, 0);
	z->packed = *packed;
	z->q.cell = c->cell;
	z->q.value = c->value;
	z->q.bits = c->table.bits;
	z->q.uniform = thc_table_uniform(&c->table);
	z->q.top = (float)c->table.granularity;
	z->q.half = c->half;
	z->q.unrotate = ldexpf(1, -c->inverse_log2);
	z->q.n = c->correlate_n;
	z->q.share = c->correlate_n ? 0x1p8f / (float)c->correlate_n : 0;
	z->q.rank = c->correlate_n ? b->rank % c->correlate_n : 0;
	if (!has_narrow_table(c))
		return;
	z->q.cell_level = c->cell_level;
	for (i = 0; i + 1 < c->table.levels; i++)
		z->q.gap[i] = (c->value[i + 1] - c->value[i]) * THC_DRAW_UNIT;
}

static void quantiser_block(struct quantiser *z, size_t block, const float *scales,
			    const float *rotated)
{
	struct span span = span_of(z->r, scales, block);

	z->block = block;
	z->rotated = rotated;
	z->flat = span.step == 0;
	z->q.offset = span.offset;
	z->q.to_grid = z->flat ? 0 : (float)(1 / span.step);
	z->q.from_grid = (float)span.step;
}

/* Quantises one tile of the current block to indices; @residual, unless NULL, receives losses. */
static void quantise_tile(struct quantiser *z, size_t tile, float *residual)
{
	const float *in = z->rotated + (tile - z->block * block_tiles(z->r->c)) * THC_TILE;
	uint64_t global = z->r->first_tile + tile;
	unsigned int chunk = z->packed.chunk, n = chunk < THC_TILE ? chunk : THC_TILE, first, i;

	z->q.draw = thc_mix64(z->draw + global * THC_WEYL64);
	z->q.shift = thc_mix64(z->shift + global * THC_WEYL64);
	for (first = 0; first < THC_TILE; first += n) {
		size_t at = tile * THC_TILE + first;
		uint8_t *to =
			z->packed.at + at / chunk * z->packed.stride + at % chunk / 8 * z->q.bits;
		float *res = residual ? residual + first : NULL;

		if (!z->flat) {
			z->r->c->ops->quantise(&z->q, in + first, first, n, to, res);
			continue;
		}
		for (i = 0; res && i < n; i++)
			res[i] = (in[first + i] - z->q.offset) * z->q.unrotate;
		memset(to, 0, n / 8 * z->q.bits);
	}
}

static void residual_fill(void *ctx, size_t tile, float *buf)
{
	quantise_tile(ctx, tile, buf);
}

/* Applies D to a block rotated back, into the existing part of the caller's memory. */
static void unflip_block(const struct range *r, size_t block, const float *from, float *to,
			 bool add)
{
	size_t tiles = block_tiles(r->c), tile, n, i;
	uint64_t signs[THC_TILE_SIGN_WORDS];
	float pad[THC_TILE];

	for (tile = block * tiles; tile < (block + 1) * tiles; tile++, from += THC_TILE) {
		size_t first = tile * THC_TILE;

		if (first >= r->v.count)
			return;
		n = r->v.count - first < THC_TILE ? r->v.count - first : THC_TILE;
		tile_signs(r, tile, signs);
		if (!add && n == THC_TILE) {
			r->c->ops->flip(from, signs, to + first);
			continue;
		}
		r->c->ops->flip(from, signs, pad);
		for (i = 0; i < n; i++)
			to[first + i] = add ? to[first + i] + pad[i] : pad[i];
	}
}

/* Fills block @block in buf, transforms it back and puts, or adds, the result to the caller's. */
static void unrotate_block(const struct range *r, const struct transform *t, size_t block,
			   float *buf, float *to, bool add)
{
	size_t tiles = block_tiles(r->c), first = block << r->c->block_log2;
	uint64_t signs[THC_TILE_SIGN_WORDS];

	if (tiles > 1 || add || r->v.count < first + THC_TILE || !is_rotated(r->c)) {
		transform_rows(t, block * tiles, tiles, buf);
		unflip_block(r, block, buf, to, add);
		return;
	}
	/* The common case without a pass for D alone. */
	t->fill(t->ctx, block, buf);
	tile_signs(r, block, signs);
	r->c->ops->inverse(buf, signs, to + first);
}

static void quantise_block(struct quantiser *z, float *error, float *scratch)
{
	struct transform t = { .c = z->r->c, .fill = residual_fill, .ctx = z };
	size_t tiles = block_tiles(z->r->c), tile;

	if (error) {
		unrotate_block(z->r, &t, z->block, scratch, error, false);
		return;
	}
	for (tile = z->block * tiles; tile < (z->block + 1) * tiles; tile++)
		quantise_tile(z, tile, NULL);
}

void thc_codec_quantise(const struct thc_codec *c, const float *rotated, size_t nblocks,
			const struct thc_blocks *b, const struct thc_chunks *packed,
			const struct thc_residual_at *residual)
{
	struct range r = range_of_count(c, residual->count, b);
	struct quantiser z;
	size_t block;

	quantiser_init(&z, &r, b, packed);
	for (block = 0; block < nblocks; block++) {
		quantiser_block(&z, block, b->scales, rotated + (block << c->block_log2));
		quantise_block(&z, residual->error, residual->scratch);
	}
}

void thc_codec_compress(const struct thc_codec *c, const struct thc_values *v,
			const struct thc_blocks *b, const struct thc_chunks *packed,
			const struct thc_residual_at *residual)
{
	struct range r = range_of(c, v, b);
	struct quantiser z;
	size_t block;

	quantiser_init(&z, &r, b, packed);
	for (block = 0; block < thc_codec_blocks(c, v->count); block++) {
		rotate_block(&r, block, residual->scratch);
		quantiser_block(&z, block, b->scales, residual->scratch);
		quantise_block(&z, residual->error, residual->scratch);
	}
}

/* The arguments of thc_codec_decode(), for the tiles of its transform. */
struct decoder {
	const struct thc_codec *c;
	const struct thc_sums *sums;
	double scale;		/* of the current block: grid step / B, 0: it is flat */
	float offset;		/* / B */
};

static void decode_fill(void *ctx, size_t tile, float *buf)
{
	struct decoder *d = ctx;
	const struct thc_sums *s = d->sums;
	unsigned int each = s->chunk < THC_TILE ? s->chunk : THC_TILE, first, i;

	for (first = 0; first < THC_TILE; first += each) {
		size_t at = tile * THC_TILE + first, chunk = at / s->chunk;
		unsigned int n = s->counts[chunk];

		if (n && d->scale != 0) {
			d->c->ops->dequant((const uint8_t *)s->at + chunk * s->stride +
						   at % s->chunk / 8 * s->width,
					   s->width, each, (float)n * d->c->half,
					   (float)(d->scale / n), d->offset, buf + first);
			continue;
		}
		/* all ranks know the values of a flat block, whatever the contributors */
		for (i = 0; i < each; i++)
			buf[first + i] = d->scale == 0 ? d->offset : 0;
	}
}

void thc_codec_decode(const struct thc_codec *c, const struct thc_sums *sums, size_t count,
		      const struct thc_blocks *b, float *out)
{
	struct range r = range_of_count(c, count, b);
	struct decoder d = { .c = c, .sums = sums };
	struct transform t = { .c = c, .fill = decode_fill, .ctx = &d };
	size_t block;

	for (block = 0; block < thc_codec_blocks(c, count); block++) {
		struct span span = span_of(&r, b->scales, block);

		d.scale = ldexp(span.step, -c->inverse_log2);
		d.offset = ldexpf(span.offset, -c->inverse_log2);
		unrotate_block(&r, &t, block, out + (block << c->block_log2), out, false);
	}
}

/* Rotated values, 1 / B included, that the indices of one chunk stand for. */
static void chunk_values(const struct thc_codec *c, const uint8_t *packed, unsigned int chunk,
			 struct span span, float *buf)
{
	float scale = (float)ldexp(span.step, -c->inverse_log2);
	float offset = ldexpf(span.offset, -c->inverse_log2);
	unsigned int i;

	for (i = 0; i < chunk; i++)
		buf[i] = (c->value[thc_index_at(packed, c->table.bits, i)] - c->half) * scale +
			 offset;
}

void thc_codec_putback(const struct thc_codec *c, const struct thc_chunks *packed,
		       const uint8_t *lost, size_t nblocks, const struct thc_blocks *b,
		       const struct thc_residual_at *residual)
{
	struct range r = range_of_count(c, residual->count, b);
	struct transform t = { .c = c };
	size_t chunks = ((size_t)1 << c->block_log2) / packed->chunk, block, k;
	const uint8_t *at = packed->at;
	float *scratch = residual->scratch;

	for (block = 0; block < nblocks; block++, lost += chunks, at += chunks * packed->stride) {
		struct span span = span_of(&r, b->scales, block);
		bool any = false;

		if (span.step == 0)
			continue;
		for (k = 0; k < chunks; k++) {
			if (!lost[k])
				continue;
			if (!any)
				memset(scratch, 0, sizeof(*scratch) << c->block_log2);
			any = true;
			chunk_values(c, at + k * packed->stride, packed->chunk, span,
				     scratch + k * packed->chunk);
		}
		if (any)
			unrotate_block(&r, &t, block, scratch, residual->error, true);
	}
}

void thc_codec_save(const struct thc_codec *c, void *dst, const void *src, size_t bytes)
{
	c->ops->save(dst, src, bytes);
}

void thc_codec_clear(const struct thc_codec *c, void *dst, size_t bytes)
{
	c->ops->clear(dst, bytes);
}

void thc_load(enum thc_dtype dtype, float *dst, const void *src, size_t count)
{
	if (dtype == THC_FP32)
		memmove(dst, src, count * sizeof(*dst));
	else
		thc_simd_ops(THC_SIMD_AUTO)->load(dtype, dst, src, count);
}

void thc_store(enum thc_dtype dtype, void *dst, const float *src, size_t count)
{
	if (dtype == THC_FP32)
		memmove(dst, src, count * sizeof(*src));
	else
		thc_simd_ops(THC_SIMD_AUTO)->store(dtype, dst, src, count);
}
