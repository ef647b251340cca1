/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The vector kernels, once. codec_avx2.c and codec_avx512.c define the primitives below and then
 * include this file. They know instructions; this file knows tiles and the order of stages.
 *
 *	VL			floats a vector, 8 or 16
 *	ROWS			vectors that one radix pass keeps in registers, 8
 *	vf, vi			vectors of floats and of 32-bit integers
 *	vf_stream		vf_store past the caches; a thread that takes a lock, or gives one
 *				back, waits until they are in memory
 *	vf_load, vf_store, vf_add, vf_sub, vf_mul, vf_set, vf_min, vf_max
 *	vf_from_fp16, vf_from_bf16	VL halves in memory -> floats
 *	vf_from_u4, vf_from_u8, vf_from_le16, vf_from_le32	VL lanes in memory -> floats
 *	vf_sign(v, signs, i)	signs of coordinates i..i+VL applied
 *	vf_lanes(v)		butterflies of strides 1..VL/2
 *	vf_sumsq(s)		s[0..64/VL) partial sums -> their sum, in the order of codec_ops.h
 *	vi_level(q, v, i, r)	VL level indices for coordinates from i on, in 32-bit lanes; with
 *				r != NULL the residual too
 *	pack_group(z, to)	THC_GROUP indices of 4 bits -> THC_GROUP / 2 bytes
 *	vi_bytes(z, to)		THC_GROUP indices -> a byte each
 *	pack_few(z, b, to)	THC_GROUP indices of b bits -> b THC_GROUP / 8 bytes, b up to 6
 *	to_fp16, to_bf16	a vector of floats -> VL halves in memory
 */
#ifndef LIBTHC_CODEC_VECTOR_H
#define LIBTHC_CODEC_VECTOR_H

#define GROUP_VECTORS	(THC_GROUP / VL)

FN vf vf_source(const void *x, enum thc_dtype dtype, const float *error, size_t i)
{
	vf v;

	if (dtype == THC_FP32)
		v = vf_load((const float *)x + i);
	else if (dtype == THC_FP16)
		v = vf_from_fp16((const uint16_t *)x + i);
	else
		v = vf_from_bf16((const uint16_t *)x + i);
	return error ? vf_add(v, vf_load(error + i)) : v;
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

FN void add_body(const void *x, enum thc_dtype dtype, const float *error, float *out)
{
	size_t i;

	for (i = 0; i < THC_TILE; i += VL)
		vf_store(out + i, vf_source(x, dtype, error, i));
}

static void vector_add(const void *x, enum thc_dtype dtype, const float *error, float *out)
{
	FOR_EACH_SOURCE(add_body, x, dtype, error, out);
}

FN void sumsq_body(const void *x, enum thc_dtype dtype, const float *error, float *kept, float *out)
{
	vf sum[THC_SUM_LANES / VL];
	size_t i;
	int k;

	for (k = 0; k < THC_SUM_LANES / VL; k++)
		sum[k] = vf_set(0.0f);
	for (i = 0; i < THC_TILE; i += THC_SUM_LANES)
		for (k = 0; k < THC_SUM_LANES / VL; k++) {
			vf v = vf_source(x, dtype, error, i + k * VL);

			if (kept)
				vf_stream(kept + i + k * VL, v);
			sum[k] = vf_add(sum[k], vf_mul(v, v));
		}
	*out = vf_sumsq(sum);
}

static float vector_sumsq(const void *x, enum thc_dtype dtype, const float *error, float *kept)
{
	float sum;

	if (kept)
		FOR_EACH_SOURCE(sumsq_body, x, dtype, error, kept, &sum);
	else
		FOR_EACH_SOURCE(sumsq_body, x, dtype, error, NULL, &sum);
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

				v[i] = vf_add(a, b);
				v[i + apart] = vf_sub(a, b);
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

static void vector_extent(const float *in, size_t n, float *least, float *most)
{
	size_t i = 0;

	*least = *most = in[0];
	if (n >= VL) {
		vf l = vf_load(in), h = l;

		for (i = VL; i + VL <= n; i += VL) {
			l = vf_min(l, vf_load(in + i));
			h = vf_max(h, vf_load(in + i));
		}
		*least = vf_least(l);
		*most = vf_most(h);
	}
	for (; i < n; i++) {
		*least = in[i] < *least ? in[i] : *least;
		*most = in[i] > *most ? in[i] : *most;
	}
}

/* Coordinates first..first+n of a tile, the first at in, and where their indices go. */
struct part {
	const float *in;
	unsigned int first;
	unsigned int n;
	uint8_t *packed;
};

FN void store_group(unsigned int bits, const vi *z, uint8_t *to)
{
	uint8_t index[THC_GROUP];

	if (bits == 4) {
		pack_group(z, to);
	} else if (bits <= PACK_BITS_MAX) {
		pack_few(z, bits, to);
	} else {
		vi_bytes(z, index);
		thc_pack_bits(index, bits, to);
	}
}

FN void quantise_body(const struct thc_quant *q, const struct levels *l, struct part p,
		      float *residual, unsigned int bits, enum thc_lookup lookup, int correlated)
{
	unsigned int done, k;

	for (done = 0; done < p.n; done += THC_GROUP) {
		vi z[GROUP_VECTORS];

#pragma GCC unroll 8
		for (k = 0; k < GROUP_VECTORS; k++) {
			unsigned int at = done + k * VL;

			z[k] = vi_level(q, l, vf_load(p.in + at), p.first + at,
					residual ? residual + at : NULL, lookup, correlated);
		}
		store_group(bits, z, p.packed + done / 8 * bits);
	}
}

/* The most frequent loops have a constant number of bits. */
FN void quantise_any(const struct thc_quant *q, const struct levels *l, struct part p,
		     float *residual)
{
	int correlated = q->n != 0;

	if (q->uniform && q->bits == 1)
		quantise_body(q, l, p, residual, 1, THC_LOOKUP_NONE, correlated);
	else if (q->uniform && q->bits == 2)
		quantise_body(q, l, p, residual, 2, THC_LOOKUP_NONE, correlated);
	else if (q->uniform && q->bits == 6)
		quantise_body(q, l, p, residual, 6, THC_LOOKUP_NONE, correlated);
	else if (q->uniform)
		quantise_body(q, l, p, residual, q->bits, THC_LOOKUP_NONE, correlated);
	else if (q->cell_level && q->bits == 5)
		quantise_body(q, l, p, residual, 5, THC_LOOKUP_TWO, correlated);
	else if (q->cell_level && q->bits == 3)
		quantise_body(q, l, p, residual, 3, THC_LOOKUP_NARROW, correlated);
	else if (q->cell_level)
		quantise_body(q, l, p, residual, q->bits, THC_LOOKUP_NARROW, correlated);
	else
		quantise_body(q, l, p, residual, q->bits, THC_LOOKUP_WIDE, correlated);
}

static void vector_quantise(const struct thc_quant *quant, const float *in, unsigned int first,
			    unsigned int n, uint8_t *packed, float *residual)
{
	const struct thc_quant own = *quant, *q = &own;	/* a copy, which packed cannot alias */
	const struct part p = { in, first, n, packed };
	struct levels l;

	levels_load(&l, q);
	if (!q->cell_level || q->uniform || q->bits != 4)
		quantise_any(q, &l, p, residual);
	else if (q->n && residual)
		quantise_body(q, &l, p, residual, 4, THC_LOOKUP_NARROW, 1);
	else if (q->n)
		quantise_body(q, &l, p, NULL, 4, THC_LOOKUP_NARROW, 1);
	else if (residual)
		quantise_body(q, &l, p, residual, 4, THC_LOOKUP_NARROW, 0);
	else
		quantise_body(q, &l, p, NULL, 4, THC_LOOKUP_NARROW, 0);
}

FN vf vf_lanes_at(const uint8_t *lanes, unsigned int width, size_t i)
{
	if (width == 4)
		return vf_from_u4(lanes + i / 2);
	if (width == 8)
		return vf_from_u8(lanes + i);
	return width == 16 ? vf_from_le16(lanes + 2 * i) : vf_from_le32(lanes + 4 * i);
}

/* Lanes may lie at the end of where their floats go: read a group before writing it. */
FN void dequant_body(const uint8_t *lanes, unsigned int width, size_t n, float centre, float scale,
		     float offset, float *out)
{
	vf c = vf_set(centre), s = vf_set(scale), o = vf_set(offset);
	unsigned int k;
	size_t i;

	for (i = 0; i < n; i += THC_GROUP) {
		vf v[GROUP_VECTORS];

#pragma GCC unroll 8
		for (k = 0; k < GROUP_VECTORS; k++)
			v[k] = vf_lanes_at(lanes, width, i + k * VL);
#pragma GCC unroll 8
		for (k = 0; k < GROUP_VECTORS; k++)
			vf_store(out + i + k * VL, vf_add(vf_mul(vf_sub(v[k], c), s), o));
	}
}

static void vector_dequant(const uint8_t *lanes, unsigned int width, size_t n, float centre,
			   float scale, float offset, float *out)
{
	if (width == 8)
		dequant_body(lanes, 8, n, centre, scale, offset, out);
	else if (width == 16)
		dequant_body(lanes, 16, n, centre, scale, offset, out);
	else if (width == 4)
		dequant_body(lanes, 4, n, centre, scale, offset, out);
	else
		dequant_body(lanes, 32, n, centre, scale, offset, out);
}

static void vector_save(void *dst, const void *src, size_t bytes)
{
	float *to = dst;
	const float *from = src;
	size_t i;

	for (i = 0; (i + VL) * sizeof(float) <= bytes; i += VL)
		vf_stream(to + i, vf_load(from + i));
	memcpy(to + i, from + i, bytes - i * sizeof(float));
}

static void vector_clear(void *dst, size_t bytes)
{
	size_t before = -(uintptr_t)dst % sizeof(vf), at;

	before = before < bytes ? before : bytes;
	memset(dst, 0, before);
	for (at = before; at + sizeof(vf) <= bytes; at += sizeof(vf))
		vf_stream((float *)((uint8_t *)dst + at), vf_set(0.0f));
	memset((uint8_t *)dst + at, 0, bytes - at);
}

static void vector_load(enum thc_dtype dtype, float *dst, const void *src, size_t count)
{
	size_t i;

	for (i = 0; i + VL <= count; i += VL)
		vf_store(dst + i, vf_source(src, dtype, NULL, i));
	for (; i < count; i++)
		dst[i] = thc_load_one(dtype, src, i);
}

static void vector_store(enum thc_dtype dtype, void *dst, const float *src, size_t count)
{
	size_t i;

	for (i = 0; i + VL <= count; i += VL) {
		vf v = vf_load(src + i);

		if (dtype == THC_FP32)
			vf_store((float *)dst + i, v);
		else if (dtype == THC_FP16)
			to_fp16(v, (uint16_t *)dst + i);
		else
			to_bf16(v, (uint16_t *)dst + i);
	}
	for (; i < count; i++)
		thc_store_one(dtype, dst, i, src[i]);
}

/* clang-format off */
#define VECTOR_OPS(label, loops) {		\
	.name = label,				\
	.fixed = &thc_fixed_##loops,		\
	.sparse = &thc_sparse_##loops,		\
	.add = vector_add,			\
	.sumsq = vector_sumsq,			\
	.forward = vector_forward,		\
	.inverse = vector_inverse,		\
	.high = vector_high,			\
	.flip = vector_flip,			\
	.extent = vector_extent,		\
	.quantise = vector_quantise,		\
	.dequant = vector_dequant,		\
	.save = vector_save,			\
	.clear = vector_clear,			\
	.load = vector_load,			\
	.store = vector_store,			\
	.nh = loops##_nh,			\
}
/* clang-format on */

#endif /* LIBTHC_CODEC_VECTOR_H */
