/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The vector kernels, once.  codec_avx2.c and codec_avx512.c define the primitives below and then
 * include this file; what is here knows tiles and the order of stages, what is there knows
 * instructions.
 *
 *	VL			floats a vector, 8 or 16
 *	LANE_NUMBERS		0, 1 and so on, one a lane
 *	vf, vi			vectors of floats and of 32-bit integers
 *	vf_load, vf_store, vf_set, vf_min, vf_max	of a NaN the second operand
 *	vf_from_int		signed lanes -> floats
 *	vf_from_fp16, vf_to_fp16	VL halves in memory <-> floats
 *	vi_from_u8, vi_from_u16, vi_to_u16	VL numbers in memory <-> lanes
 *	vi_mulhi		upper halves of the products of 16-bit words
 *	vi_min			of unsigned lanes
 *	vi_add_less(z, a, b)	z, and one more where a < b
 *	vi_if_nan(v, a, b)	a where v is NaN, else b
 *	vf_sign(v, signs, i)	signs of coordinates i..i+VL applied
 *	vf_lanes(v)		butterflies of strides 1..VL/2
 *	vf_fold(s)		s[0..64/VL) partial sums -> eight, in the order of codec_ops.h
 *	struct levels		the quantiser's tables, in registers, from levels_load()
 *	level_find(q, l, a, ...)	the level below grid positions a, its value and its gap
 *	level_value(l, z)	values of levels
 *	pack_group(z, to)	THC_GROUP indices -> THC_GROUP / 2 bytes
 *
 * Sums and products are the compiler's own, which -ffp-contract=off keeps apart.
 */
#ifndef LIBTHC_CODEC_VECTOR_H
#define LIBTHC_CODEC_VECTOR_H

/* Vectors that one radix pass keeps in registers. */
#define ROWS		8
#define GROUP_VECTORS	(THC_GROUP / VL)

/* Unsigned lanes. */
typedef uint32_t vu __attribute__((vector_size(4 * VL)));

FN vf vf_source(const void *x, enum thc_dtype dtype, const float *error, size_t i)
{
	vf v;

	if (dtype == THC_FP32)
		v = vf_load((const float *)x + i);
	else if (dtype == THC_FP16)
		v = vf_from_fp16((const uint16_t *)x + i);
	else
		v = (vf)((vu)vi_from_u16((const uint16_t *)x + i) << 16);
	if (error)
		v += vf_load(error + i);
	return v;
}

/*
 * Calls body with dtype a constant and error known to be NULL or not, so that each of the six
 * combinations is compiled on its own.
 */
#define FOR_EACH_SOURCE(body, x, dtype, error, ...)					\
	do {										\
		if ((dtype) == THC_FP32 && !(error))					\
			body(x, THC_FP32, NULL, __VA_ARGS__);				\
		else if ((dtype) == THC_FP32)						\
			body(x, THC_FP32, error, __VA_ARGS__);				\
		else if ((dtype) == THC_FP16 && !(error))				\
			body(x, THC_FP16, NULL, __VA_ARGS__);				\
		else if ((dtype) == THC_FP16)						\
			body(x, THC_FP16, error, __VA_ARGS__);				\
		else if (!(error))							\
			body(x, THC_BF16, NULL, __VA_ARGS__);				\
		else									\
			body(x, THC_BF16, error, __VA_ARGS__);				\
	} while (0)

FN void sumsq_body(const void *x, enum thc_dtype dtype, const float *error, float *out)
{
	vf sum[THC_SUM_LANES / VL];
	__m256 eight;
	__m128 four, two;
	size_t i;
	int k;

	for (k = 0; k < THC_SUM_LANES / VL; k++)
		sum[k] = vf_set(0.0f);
	for (i = 0; i < THC_TILE; i += THC_SUM_LANES)
		for (k = 0; k < THC_SUM_LANES / VL; k++) {
			vf v = vf_source(x, dtype, error, i + k * VL);

			sum[k] += v * v;
		}
	eight = vf_fold(sum);
	four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	two = _mm_add_ps(four, _mm_movehl_ps(four, four));
	*out = _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static float vector_sumsq(const void *x, enum thc_dtype dtype, const float *error)
{
	float sum;

	FOR_EACH_SOURCE(sumsq_body, x, dtype, error, &sum);
	return sum;
}

/* Butterflies among radix registers, nearest pairs first. */
FN void vf_rows(vf *v, unsigned int radix)
{
	unsigned int apart, i;

#pragma GCC unroll 4
	for (apart = 1; apart < radix; apart *= 2)
#pragma GCC unroll 16
		for (i = 0; i < radix; i++)
			if (!(i & apart)) {
				vf a = v[i], b = v[i + apart];

				v[i] = a + b;
				v[i + apart] = a - b;
			}
}

FN void rows_pass(const float *src, float *dst, size_t stride, unsigned int radix,
		  const uint64_t *signs, size_t i)
{
	vf v[THC_RADIX_MAX];
	unsigned int k;

#pragma GCC unroll 8
	for (k = 0; k < radix; k++)
		v[k] = vf_load(src + i + k * stride);
	vf_rows(v, radix);
#pragma GCC unroll 8
	for (k = 0; k < radix; k++) {
		if (signs)
			v[k] = vf_sign(v[k], signs, i + k * stride);
		vf_store(dst + i + k * stride, v[k]);
	}
}

/* Strides beyond those of the first pass, in steps of one register pass. */
FN void tile_rows(float *tile, const uint64_t *signs, float *dst)
{
	size_t i;

#if VL == 16
	for (i = 0; i < 128; i += VL)
		rows_pass(tile, dst, 128, 8, signs, i);
#else
	size_t j;

	for (j = 0; j < THC_TILE; j += 256)
		for (i = 0; i < 64; i += VL)
			rows_pass(tile + j, tile + j, 64, 4, NULL, i);
	for (i = 0; i < 256; i += VL)
		rows_pass(tile, dst, 256, 4, signs, i);
#endif
}

/* First pass over ROWS adjacent vectors: all strides below ROWS * VL. */
FN void first_pass(vf *v, float *dst)
{
	unsigned int k;

#pragma GCC unroll 8
	for (k = 0; k < ROWS; k++)
		v[k] = vf_lanes(v[k]);
	vf_rows(v, ROWS);
#pragma GCC unroll 8
	for (k = 0; k < ROWS; k++)
		vf_store(dst + k * VL, v[k]);
}

FN void forward_body(const void *x, enum thc_dtype dtype, const float *error, const uint64_t *signs,
		     float *out)
{
	unsigned int k;
	size_t i;

	for (i = 0; i < THC_TILE; i += ROWS * VL) {
		vf v[ROWS];

#pragma GCC unroll 8
		for (k = 0; k < ROWS; k++)
			v[k] = vf_sign(vf_source(x, dtype, error, i + k * VL), signs, i + k * VL);
		first_pass(v, out + i);
	}
	tile_rows(out, NULL, out);
}

static void vector_forward(const void *x, enum thc_dtype dtype, const float *error,
			   const uint64_t *signs, float *out)
{
	FOR_EACH_SOURCE(forward_body, x, dtype, error, signs, out);
}

static void vector_inverse(const float *src, const uint64_t *signs, float *dst)
{
	unsigned int k;
	size_t i;

	for (i = 0; i < THC_TILE; i += ROWS * VL) {
		vf v[ROWS];

#pragma GCC unroll 8
		for (k = 0; k < ROWS; k++)
			v[k] = vf_load(src + i + k * VL);
		first_pass(v, dst + i);
	}
	if (signs)
		tile_rows(dst, signs, dst);
	else
		tile_rows(dst, NULL, dst);
}

static void vector_high(float *buf, size_t stride, unsigned int radix)
{
	size_t i;

	for (i = 0; i < stride; i += VL) {
		if (radix == 8)
			rows_pass(buf, buf, stride, 8, NULL, i);
		else if (radix == 4)
			rows_pass(buf, buf, stride, 4, NULL, i);
		else
			rows_pass(buf, buf, stride, 2, NULL, i);
	}
}

static void vector_flip(const float *src, const uint64_t *signs, float *dst)
{
	size_t i;

	for (i = 0; i < THC_TILE; i += VL)
		vf_store(dst + i, vf_sign(vf_load(src + i), signs, i));
}

/* thc_draw32() of coordinates i..i+VL-1. */
FN vu draw32(uint64_t key, unsigned int i)
{
	const vu lane = { LANE_NUMBERS };
	vu z = lane * THC_WEYL32 + ((uint32_t)key + i * THC_WEYL32);

	z = (z ^ z >> 16) * THC_DRAW_MUL0;
	return (z ^ z >> 15 ^ (uint32_t)(key >> 32)) * THC_DRAW_MUL1;
}

FN vf draw_correlated(const struct thc_quant *q, vu draw, unsigned int i)
{
	vu n = (vu){ 0 } + q->n;
	/* a product of 16-bit words: the upper ones are zero in both */
	vu part = (vu)vi_mulhi((vi)(draw32(q->shift, i) >> 16), (vi)n) + q->rank;

	/* below n the difference wraps around */
	part = (vu)vi_min((vi)part, (vi)(part - n));
	part = part << THC_CORRELATED_BITS | draw >> (32 - THC_CORRELATED_BITS);
	return (vf_from_int((vi)part) + 0.5f) * q->share;
}

/* VL level indices for coordinates from @i on; with @residual != NULL what they miss, too. */
FN vi quantise_vector(const struct thc_quant *q, const struct levels *l, vf v, unsigned int i,
		      float *residual, int narrow, int correlated)
{
	vf a = v * q->to_grid + q->half, value, gap, u;
	vu draw = draw32(q->draw, i);
	vi z;

	a = vf_min(vf_max(a, vf_set(0.0f)), vf_set(q->top));
	u = correlated && q->n ? draw_correlated(q, draw, i) :
				 vf_from_int((vi)(draw >> (32 - THC_DRAW_BITS)));
	z = level_find(q, l, a, narrow, &value, &gap);
	z = vi_add_less(z, u * gap, a - value);
	if (residual)
		vf_store(residual,
			 (v - (level_value(l, z) - q->half) * q->from_grid) * q->unrotate);
	return z;
}

/* Coordinates first..first+n of a tile, the first at in, and where their indices go. */
struct part {
	const float *in;
	unsigned int first;
	unsigned int n;
	uint8_t *packed;
};

/* A group is read whole before its indices are stored: they may lie where it was. */
FN void quantise_body(const struct thc_quant *q, const struct levels *l, struct part p,
		      float *residual, int narrow, int correlated)
{
	unsigned int done, k;

	for (done = 0; done < p.n; done += THC_GROUP) {
		vi z[GROUP_VECTORS];

#pragma GCC unroll 8
		for (k = 0; k < GROUP_VECTORS; k++) {
			unsigned int at = done + k * VL;

			z[k] = quantise_vector(q, l, vf_load(p.in + at), p.first + at,
					       residual ? residual + at : NULL, narrow, correlated);
		}
		pack_group(z, p.packed + done / 2);
	}
}

static void vector_quantise(const struct thc_quant *quant, const float *in, unsigned int first,
			    unsigned int n, uint8_t *packed, float *residual)
{
	const struct thc_quant own = *quant, *q = &own;	/* what packed cannot alias */
	const struct part p = { in, first, n, packed };
	struct levels l;

	levels_load(&l, q);
	if (!q->cell_level)
		quantise_body(q, &l, p, residual, 0, q->n != 0);
	else if (q->n && residual)
		quantise_body(q, &l, p, residual, 1, 1);
	else if (q->n)
		quantise_body(q, &l, p, NULL, 1, 1);
	else if (residual)
		quantise_body(q, &l, p, residual, 1, 0);
	else
		quantise_body(q, &l, p, NULL, 1, 0);
}

/* Lanes may lie at the end of where their floats go: read a group before writing it. */
FN void dequant_body(const uint8_t *lanes, unsigned int width, size_t n, float centre, float scale,
		     float *out)
{
	unsigned int k;
	size_t i;

	for (i = 0; i < n; i += THC_GROUP) {
		vf v[GROUP_VECTORS];

#pragma GCC unroll 8
		for (k = 0; k < GROUP_VECTORS; k++)
			v[k] = vf_from_int(width == 8 ? vi_from_u8(lanes + i + k * VL) :
							vi_from_u16(lanes + 2 * (i + k * VL)));
#pragma GCC unroll 8
		for (k = 0; k < GROUP_VECTORS; k++)
			vf_store(out + i + k * VL, (v[k] - centre) * scale);
	}
}

static void vector_dequant(const uint8_t *lanes, unsigned int width, size_t n, float centre,
			   float scale, float *out)
{
	if (width == 8)
		dequant_body(lanes, 8, n, centre, scale, out);
	else
		dequant_body(lanes, 16, n, centre, scale, out);
}

static void vector_load(enum thc_dtype dtype, float *dst, const void *src, size_t count)
{
	size_t i;

	for (i = 0; i + VL <= count; i += VL)
		vf_store(dst + i, vf_source(src, dtype, NULL, i));
	for (; i < count; i++)
		dst[i] = thc_load_one(dtype, src, i);
}

FN vi bf16_of(vf v)
{
	vu u = (vu)v, high = u >> 16;

	return vi_if_nan(v, (vi)(high | 0x40), (vi)((u + ((high & 1) + 0x7fff)) >> 16));
}

static void vector_store(enum thc_dtype dtype, void *dst, const float *src, size_t count)
{
	size_t i;

	for (i = 0; i + VL <= count; i += VL) {
		vf v = vf_load(src + i);

		if (dtype == THC_FP32)
			vf_store((float *)dst + i, v);
		else if (dtype == THC_FP16)
			/* of a NaN, min and max give the second operand */
			vf_to_fp16((uint16_t *)dst + i,
				   vf_min(vf_set(THC_FP16_MAX), vf_max(vf_set(-THC_FP16_MAX), v)));
		else
			vi_to_u16((uint16_t *)dst + i, bf16_of(v));
	}
	for (; i < count; i++)
		thc_store_one(dtype, dst, i, src[i]);
}

/* clang-format off */
#define VECTOR_OPS(label) {			\
	.name = label,				\
	.sumsq = vector_sumsq,			\
	.forward = vector_forward,		\
	.inverse = vector_inverse,		\
	.high = vector_high,			\
	.flip = vector_flip,			\
	.quantise = vector_quantise,		\
	.dequant = vector_dequant,		\
	.load = vector_load,			\
	.store = vector_store,			\
}
/* clang-format on */

#endif /* LIBTHC_CODEC_VECTOR_H */
