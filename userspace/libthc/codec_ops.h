/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The functions that the codec needs of an instruction set, and the arithmetic that all of them
 * share to the bit: tile size, sign and draw generators, conversions of single numbers. Private to
 * the codec_*.c files.
 */
#ifndef LIBTHC_CODEC_OPS_H
#define LIBTHC_CODEC_OPS_H

#include <endian.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <thc/mix.h>

#include "libthc.h"

#if defined(__x86_64__)
#define THC_X86_KERNELS
#endif

/* Kernels work on tiles: 4 KiB of floats, which stay in the first-level cache. */
#define THC_TILE		1024
#define THC_TILE_SIGN_WORDS	(THC_TILE / 64)
/* Coordinates the quantiser loads before it stores any of their indices. */
#define THC_GROUP		64
/* Most levels and positions of a narrow table, which vector permutes serve. Half as many levels fit
 * into one register.
 */
#define THC_NARROW_LEVELS	32
#define THC_NARROW_POSITIONS	64
/* Where a vector kernel finds the level below a grid position: nowhere, for levels are all
 * positions; in a register, or in two; by a gather.
 */
enum thc_lookup { THC_LOOKUP_NONE, THC_LOOKUP_NARROW, THC_LOOKUP_TWO, THC_LOOKUP_WIDE };

static inline bool is_narrow(enum thc_lookup lookup)
{
	return lookup == THC_LOOKUP_NARROW || lookup == THC_LOOKUP_TWO;
}

/* Butterflies of one high pass span at most this many rows. */
#define THC_RADIX_MAX		8

/**
 * struct thc_quant - constants of the quantiser for one block of one rank
 * @cell, @cell_level, @value: those of struct thc_codec; @cell_level not NULL: the table is narrow,
 *	@bits is at most 5, and @offset zero
 * @uniform: levels are all positions of the grid, and need no table
 * @gap: of a narrow table: the distance from each level to the next, times the unit of a draw
 * @bits: bits of an index
 * @top: granularity
 * @offset: the coordinate of grid position @half
 * @to_grid: unscaled rotated coordinate -> grid steps
 * @from_grid: grid steps -> unscaled rotated coordinate
 * @unrotate: 1 / B, or 1 without a rotation; factor of losses in the error memory
 * @draw: key of the rounding, from (seed, round, rank, tile)
 * @shift: key of the correlated shifts, from (seed, round, tile), the same on all ranks
 * @share: a rank's part of a draw in correlated rounding: 1 / n, times the unit of its part
 * @n: ranks of correlated rounding, 0 for none
 * @rank: below @n
 */
struct thc_quant {
	const uint32_t *cell;
	const uint16_t *cell_level;
	const float *value;
	float gap[THC_NARROW_LEVELS];
	bool uniform;
	unsigned int bits;
	float top;
	float offset;
	float half;
	float to_grid;
	float from_grid;
	float unrotate;
	float share;
	uint64_t draw;
	uint64_t shift;
	uint32_t n;
	uint32_t rank;
};

/**
 * struct thc_codec_ops - kernels of one instruction set
 * @fixed: integers of floats (fixed.h)
 * @sparse: floats that are not zero (sparse.h)
 * @add: a tile of x + error, as floats
 * @sumsq: sum of squares of a tile of x + error, in THC_SUM_LANES partial sums; @kept, unless NULL,
 *	receives x + error; it begins with a cache line, and is written past the caches
 * @forward: strides 1..512 of the transform of a tile of D (x + error)
 * @inverse: strides 1..512 of the transform of tile src, then signs unless NULL; dst may be src
 * @high: butterflies of @radix (2, 4, 8) rows, @stride floats apart
 * @flip: dst = signs applied to a tile; dst may be src
 * @extent: the least and the largest of @n floats, which are finite and at least one
 * @quantise: coordinates first..first+n of a tile; in points at the first; residual may be NULL
 * @dequant: out = (lane - centre) * scale + offset
 * @save: @bytes to @dst, which begins with a cache line, past the caches
 * @clear: @bytes zeros, past the caches
 * @load, @store: conversions of any number of elements
 * @nh: thc_nh() of @words 64-bit words, for the seal
 */
struct thc_codec_ops {
	const char *name;
	const struct thc_fixed_ops *fixed;
	const struct thc_sparse_ops *sparse;
	void (*add)(const void *x, enum thc_dtype dtype, const float *error, float *out);
	float (*sumsq)(const void *x, enum thc_dtype dtype, const float *error, float *kept);
	void (*forward)(const void *x, enum thc_dtype dtype, const float *error,
			const uint64_t *signs, float *out);
	void (*inverse)(const float *src, const uint64_t *signs, float *dst);
	void (*high)(float *buf, size_t stride, unsigned int radix);
	void (*flip)(const float *src, const uint64_t *signs, float *dst);
	void (*extent)(const float *in, size_t n, float *least, float *most);
	void (*quantise)(const struct thc_quant *q, const float *in, unsigned int first,
			 unsigned int n, uint8_t *packed, float *residual);
	void (*dequant)(const uint8_t *lanes, unsigned int width, size_t n, float centre,
			float scale, float offset, float *out);
	void (*save)(void *dst, const void *src, size_t bytes);
	void (*clear)(void *dst, size_t bytes);
	void (*load)(enum thc_dtype dtype, float *dst, const void *src, size_t count);
	void (*store)(enum thc_dtype dtype, void *dst, const float *src, size_t count);
	uint64_t (*nh)(const uint32_t *key, const void *data, int words);
};

/* The loops of @simd; NULL: this CPU lacks it. */
const struct thc_codec_ops *thc_simd_ops(enum thc_simd simd);
/* Returns -EOPNOTSUPP, with a sentence. */
int thc_simd_missing(void);

extern const struct thc_codec_ops thc_ops_scalar;
extern const struct thc_fixed_ops thc_fixed_scalar;
extern const struct thc_sparse_ops thc_sparse_scalar;
#ifdef THC_X86_KERNELS
extern const struct thc_codec_ops thc_ops_avx2;
extern const struct thc_codec_ops thc_ops_avx512;
extern const struct thc_fixed_ops thc_fixed_avx2;
extern const struct thc_fixed_ops thc_fixed_avx512;
extern const struct thc_sparse_ops thc_sparse_avx2;
extern const struct thc_sparse_ops thc_sparse_avx512;
#endif

/*
 * The sum of squares keeps 64 partial sums, one for each coordinate modulo 64; they are added in
 * the order (0 + 16) + (32 + 48), then 8, 4, 2 and 1 apart.
 */
#define THC_SUM_LANES	64

#define THC_WEYL64	UINT64_C(0x9e3779b97f4a7c15)
#define THC_WEYL32	UINT32_C(0x9e3779b9)
#define THC_DRAW_MUL0	UINT32_C(0x7feb352d)
#define THC_DRAW_MUL1	UINT32_C(0x846ca68b)

/* Draws have 24 bits; correlated ones 16, which leaves room for the rank's place in the float. */
#define THC_DRAW_BITS		24
#define THC_DRAW_UNIT		0x1p-24f
#define THC_CORRELATED_BITS	16

/* An entry of struct thc_codec.cell: level index, its value, and how far the next one is. */
#define THC_CELL(level, value, gap)	((level) | (uint32_t)(value) << 8 | (uint32_t)(gap) << 20)
#define THC_CELL_LEVEL(cell) ((cell)&0xff)
#define THC_CELL_VALUE(cell)		((cell) >> 8 & 0xfff)
#define THC_CELL_GAP(cell)		((cell) >> 20)

/* THC_GROUP indices of @bits bits, a byte each -> THC_GROUP * @bits / 8 bytes of the stream. */
static inline void thc_pack_bits(const uint8_t *index, unsigned int bits, uint8_t *to)
{
	uint8_t stream[THC_GROUP + sizeof(uint64_t)];
	unsigned int k;

	for (k = 0; k < THC_GROUP / 8; k++) {
		uint64_t v;

		memcpy(&v, index + 8 * k, sizeof(v));
		v = be64toh(v);
		/* pairs, then fours, then all eight close up */
		v = (v & 0x00ff00ff00ff00ff) | (v & 0xff00ff00ff00ff00) >> (8 - bits);
		v = (v & 0x0000ffff0000ffff) | (v & 0xffff0000ffff0000) >> (16 - 2 * bits);
		v = (v & 0x00000000ffffffff) | (v & 0xffffffff00000000) >> (32 - 4 * bits);
		v = htobe64(v << (64 - 8 * bits));
		memcpy(stream + k * bits, &v, sizeof(v));
	}
	memcpy(to, stream, THC_GROUP / 8 * bits);
}

/* Index @i of a stream. */
static inline unsigned int thc_index_at(const uint8_t *packed, unsigned int bits, size_t i)
{
	size_t at = i * bits;
	unsigned int within = at % 8, two = packed[at / 8] << 8;

	if (within + bits > 8)
		two |= packed[at / 8 + 1];
	return two >> (16 - within - bits) & ((1U << bits) - 1);
}

/* 32 mixed bits for coordinate @i of a tile, best at the top.  The SIMD kernels repeat this. */
static inline uint32_t thc_draw32(uint64_t key, uint32_t i)
{
	uint32_t z = (uint32_t)key + i * THC_WEYL32;

	z = (z ^ (z >> 16)) * THC_DRAW_MUL0;
	z = (z ^ (z >> 15) ^ (uint32_t)(key >> 32)) * THC_DRAW_MUL1;
	return z;
}

static inline uint32_t thc_float_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static inline float thc_bits_float(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/* The float nearest to @d; with @odd, if @d is no float, the neighbour whose last bit is set (round
 * to odd). It is rounded again later, and must not look like a tie, or like a value of fewer bits.
 */
static inline float thc_round_float(double d, bool odd)
{
	float near = (float)d;
	uint32_t bits = thc_float_bits(near);
	/* towards d: a smaller magnitude if d has one */
	uint32_t step = fabs((double)near) > fabs(d) ? UINT32_MAX : 1;

	return (uint32_t)(odd & ((double)near != d)) & ~bits ? thc_bits_float(bits + step) : near;
}

/* Sign bit of coordinate @i in place, ready to be xor-ed. */
static inline uint32_t thc_sign_bit(const uint64_t *signs, unsigned int i)
{
	return (uint32_t)(signs[i / 64] >> (i % 64) & 1) << 31;
}

static inline float thc_bf16_to_float(uint16_t h)
{
	return thc_bits_float((uint32_t)h << 16);
}

static inline uint16_t thc_float_to_bf16(float f)
{
	uint32_t u = thc_float_bits(f);

	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float thc_fp16_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;

	if (exponent == 31)
		return thc_bits_float(sign | 0x7f800000 | mantissa << 13 |
				      (mantissa ? 0x400000 : 0));
	if (exponent == 0)	/* subnormal: mantissa * 2^-24, exact in a float */
		return thc_bits_float(sign | thc_float_bits((float)mantissa * 0x1p-24f));
	return thc_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

#define THC_FP16_MAX	65504.0f

/* Saturates: a mean of halves is at most THC_FP16_MAX, so its estimate should not be larger. */
static inline uint16_t thc_float_to_fp16(float f)
{
	uint32_t u = thc_float_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;

	if (a > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
	if (a >= 0x477fe000)	/* 65504, THC_FP16_MAX, or beyond */
		return (uint16_t)(sign | 0x7bff);
	if (a >= 0x38800000)	/* normal: rebias, then round to even on 13 bits */
		return (uint16_t)(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
	/* Subnormal: 1/2 has an ulp of 2^-24, so this addition rounds to the unit of fp16. */
	return (uint16_t)(sign | (thc_float_bits(thc_bits_float(a) + 0.5f) - 0x3f000000));
}

static inline float thc_load_one(enum thc_dtype dtype, const void *src, size_t i)
{
	const uint8_t *p = (const uint8_t *)src + i * (dtype == THC_FP32 ? 4 : 2);
	uint16_t h;
	float f;

	if (dtype == THC_FP32) {
		memcpy(&f, p, sizeof(f));
		return f;
	}
	memcpy(&h, p, sizeof(h));
	return dtype == THC_FP16 ? thc_fp16_to_float(h) : thc_bf16_to_float(h);
}

static inline void thc_store_one(enum thc_dtype dtype, void *dst, size_t i, float f)
{
	uint8_t *p = (uint8_t *)dst + i * (dtype == THC_FP32 ? 4 : 2);
	uint16_t h;

	if (dtype == THC_FP32) {
		memcpy(p, &f, sizeof(f));
		return;
	}
	h = dtype == THC_FP16 ? thc_float_to_fp16(f) : thc_float_to_bf16(f);
	memcpy(p, &h, sizeof(h));
}

#endif /* LIBTHC_CODEC_OPS_H */
