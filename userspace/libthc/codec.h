/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The THC codec: gradient -> norms -> rotated blocks -> packed indices, and lanes -> gradient, with
 * error feedback; also for uniform THC. Private to libthc. No I/O, no threads, no allocation after
 * init: a codec does not change once it is set up, and threads may share it. The client decides
 * about packets, and when a chunk is lost.
 *
 * Units. A block is B = 1 << block_log2 coordinates, rotated together under one norm. A bucket of
 * count coordinates counts as if zeros filled its last block. A chunk is the content of one packet,
 * a power of two of at least 64 coordinates that divides a block. Every function works on a range
 * of whole blocks: x, error, count and scales are those of the range. round must differ between the
 * buckets of a training step, too, since (seed, round, block) determines the signs of the rotation
 * and (seed, round, rank) the rounding.
 *
 * Every implementation (scalar, AVX2, AVX-512) gives the same bits for finite input.
 */
#ifndef LIBTHC_CODEC_H
#define LIBTHC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <thc/wire/spec.h>

#include "libthc.h"

#define THC_CORRELATE_MAX	64

/* Is @log2 the log2 of a block size that exists? */
static inline bool thc_block_valid(unsigned int log2)
{
	return log2 >= THC_BLOCK_LOG2_MIN && log2 <= THC_BLOCK_LOG2_MAX;
}

/* A block of smaller norm counts as zero, one of a smaller range as its least value; what that
 * misses stays in the error memory.
 */
#define THC_NORM_MIN		0x1p-80f
/* A larger norm is refused: sums inside the rotation could overflow. */
#define THC_NORM_MAX		0x1p112f

/* thc_codec_set_form() */
#define THC_CODEC_UNROTATED	0x1u	/* blocks are compressed as they are */
#define THC_CODEC_RANGES	0x2u	/* uniform THC: levels span a block's range, not its norm */

struct thc_codec_ops;

/**
 * struct thc_codec - everything derived from a job's constants
 * @table: the levels
 * @ops: kernels of the chosen instruction set
 * @block_log2: log2 of the coordinates of a block
 * @seed: shared by all ranks
 * @correlate_n: ranks that round in a correlated way, 0 for independent rounding
 * @form: THC_CODEC_*
 * @half: the grid position of a block's offset: g / 2, or 0 for ranges
 * @inverse_log2: log2 of the divisor of the inverse transform
 * @cell: by floor of the grid position: THC_CELL() of the level below
 * @cell_level: the level indices of @cell alone, for narrow tables
 * @value: level values, as floats
 */
struct thc_codec {
	struct thc_table table;
	const struct thc_codec_ops *ops;
	unsigned int block_log2;
	uint64_t seed;
	unsigned int correlate_n;
	unsigned int form;
	float half;
	int inverse_log2;
	uint32_t *cell;
	uint16_t cell_level[64];
	float value[THC_TABLE_LEVELS_MAX];
};

/*
 * -EINVAL for a bad table or block size, -EOPNOTSUPP for an instruction set this CPU lacks,
 * -ENOMEM.
 * @seed is the same on all ranks.
 */
int thc_codec_init(struct thc_codec *c, const struct thc_table *t, unsigned int block_log2,
		   uint64_t seed, enum thc_simd simd);
void thc_codec_exit(struct thc_codec *c);

/*
 * Correlated stochastic rounding among ranks 0..n-1 (all ranks alike, before first use): still
 * unbiased for each rank, and the ranks' errors partly cancel.  0 switches it off.  -EINVAL beyond
 * THC_CORRELATE_MAX.
 */
int thc_codec_set_correlated(struct thc_codec *c, unsigned int n);

/*
 * THC_CODEC_* (all ranks alike, before first use).  -EINVAL for unknown ones, or for ranges with a
 * table that is not uniform.
 */
int thc_codec_set_form(struct thc_codec *c, unsigned int form);

/* Are the levels 0, 1, .. g? */
bool thc_table_uniform(const struct thc_table *t);

/* Floats that scale a block: its norm, or the two of a range. */
static inline unsigned int thc_codec_scales(const struct thc_codec *c)
{
	return c->form & THC_CODEC_RANGES ? 2 : 1;
}

/* "scalar", "avx2" or "avx512". */
const char *thc_codec_simd_name(const struct thc_codec *c);

/* Blocks that @count coordinates take; the last one may be padded. */
static inline size_t thc_codec_blocks(const struct thc_codec *c, size_t count)
{
	size_t block = (size_t)1 << c->block_log2;

	return count / block + (count % block != 0);
}

/**
 * struct thc_values - the coordinates of a range, in the owner's form
 * @x: @count of type @dtype
 * @error: floats that are added to @x; NULL: none
 */
struct thc_values {
	const void *x;
	enum thc_dtype dtype;
	size_t count;
	const float *error;
};

/**
 * struct thc_blocks - a range of blocks of a round
 * @round: of the bucket
 * @first_block: number in the bucket of the range's first block
 * @scales: agreed maxima, thc_codec_scales() per block: the norm, or the largest coordinate and the
 *	largest negative of one; unused for rotating
 * @rank: of the worker that quantises; used for quantising alone
 */
struct thc_blocks {
	uint64_t round;
	size_t first_block;
	const float *scales;
	unsigned int rank;
};

/**
 * struct thc_chunks - memory of indices: a stream of bits, in which coordinate 0 comes first, in
 *	the most significant bits of byte 0
 * @at: chunk k of the range has its indices at @at + k * @stride
 * @chunk: coordinates of a chunk
 */
struct thc_chunks {
	uint8_t *at;
	size_t stride;
	unsigned int chunk;
};

/**
 * struct thc_sums - where lanes are
 * @at: chunk k of the range has its lanes at @at + k * @stride
 * @chunk: coordinates of one
 * @width: bits of a lane: 4, lanes of a byte in ascending order of significance, 8, or 16 or 32,
 *	which are little-endian; as signed numbers they are not negative
 * @counts: contributors of each chunk, 0 for a chunk that never came, which stands for zero
 */
struct thc_sums {
	const void *at;
	size_t stride;
	unsigned int chunk;
	unsigned int width;
	const uint16_t *counts;
};

/**
 * struct thc_residual_at - destination of losses
 * @error: @count floats, as many as the range has; NULL: losses are dropped, except in
 *	thc_codec_putback()
 * @scratch: B floats
 */
struct thc_residual_at {
	float *error;
	size_t count;
	float *scratch;
};

/*
 * L2 norm of each block of values + error.  -EDOM with the index of the first coordinate that is
 * not finite in *bad (if bad is not NULL), -ERANGE with the block's first coordinate there if a
 * norm exceeds THC_NORM_MAX.
 */
int thc_codec_norms(const struct thc_codec *c, const struct thc_values *v, float *norms,
		    size_t *bad);

/*
 * The scales of each block, in the form of struct thc_blocks: the norms of thc_codec_norms(), or
 * the range of the block's coordinates, after rotation, or, without rotation, of those that are not
 * padding. kept->error, if not NULL, receives values + error: the error memory of a block that is
 * not sent, and the input of compression for one that is. It begins at a cache line. Same errors.
 */
int thc_codec_measure(const struct thc_codec *c, const struct thc_values *v,
		      const struct thc_blocks *b, const struct thc_residual_at *kept, float *scales,
		      size_t *bad);

/* Unscaled H D (x + error) into the floats of thc_codec_blocks(count) blocks; x + error alone if
 * blocks are not rotated.
 */
void thc_codec_rotate(const struct thc_codec *c, const struct thc_values *v,
		      const struct thc_blocks *b, float *rotated);

/*
 * Rotated blocks -> indices.
 *
 * residual->error, if not NULL, receives (x + old error) - (what the indices stand for) for count
 * coordinates; scratch is needed then.
 */
void thc_codec_quantise(const struct thc_codec *c, const float *rotated, size_t nblocks,
			const struct thc_blocks *b, const struct thc_chunks *packed,
			const struct thc_residual_at *residual);

/*
 * thc_codec_rotate() and thc_codec_quantise() in one pass over the gradient, the same bits.
 * residual->error may be the same memory as v->error, or as v->x if that is fp32; scratch is always
 * needed, its count is that of the values.
 */
void thc_codec_compress(const struct thc_codec *c, const struct thc_values *v,
			const struct thc_blocks *b, const struct thc_chunks *packed,
			const struct thc_residual_at *residual);

/*
 * Summed lanes, of whole blocks -> mean gradient, @count floats; @out has room for whole blocks.
 */
void thc_codec_decode(const struct thc_codec *c, const struct thc_sums *sums, size_t count,
		      const struct thc_blocks *b, float *out);

/*
 * Adds what this rank's indices of every chunk k of the range with lost[k] != 0 stood for back to
 * the error memory, with one rotation a block however many of its chunks are lost.
 */
void thc_codec_putback(const struct thc_codec *c, const struct thc_chunks *packed,
		       const uint8_t *lost, size_t nblocks, const struct thc_blocks *b,
		       const struct thc_residual_at *residual);

/* @bytes to @dst, which begins with a cache line and will not be read for a while. */
void thc_codec_save(const struct thc_codec *c, void *dst, const void *src, size_t bytes);

/* @bytes zeros to @dst, which will not be read for a while. */
void thc_codec_clear(const struct thc_codec *c, void *dst, size_t bytes);

/*
 * Conversions, to nearest even; what is larger than 65504 becomes that in fp16, NaN stays NaN with
 * sign and leading payload.  dst and src must not overlap unless dtype is THC_FP32 and they are
 * equal.
 */
void thc_load(enum thc_dtype dtype, float *dst, const void *src, size_t count);
void thc_store(enum thc_dtype dtype, void *dst, const float *src, size_t count);

#endif /* LIBTHC_CODEC_H */
