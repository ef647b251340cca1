/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Kernels in portable C.  They are the definition of the codec's bits: the SIMD files may differ in
 * speed only.
 */
#include <thc/wire/nh.h>

#include "codec_ops.h"

static float scalar_sumsq(const void *x, enum thc_dtype dtype, const float *error, float *kept)
{
	float sum[THC_SUM_LANES] = { 0 };
	unsigned int i, apart;

	for (i = 0; i < THC_TILE; i++) {
		float v = thc_load_one(dtype, x, i);

		if (error)
			v += error[i];
		if (kept)
			kept[i] = v;
		sum[i % THC_SUM_LANES] += v * v;
	}
	for (i = 0; i < 16; i++)
		sum[i] = (sum[i] + sum[i + 16]) + (sum[i + 32] + sum[i + 48]);
	for (apart = 8; apart; apart /= 2)
		for (i = 0; i < apart; i++)
			sum[i] += sum[i + apart];
	return sum[0];
}

static void butterflies(float *lo, float *hi, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		float a = lo[i], b = hi[i];

		lo[i] = a + b;
		hi[i] = a - b;
	}
}

static void hadamard_tile(float *tile)
{
	unsigned int stride, i;

	for (stride = 1; stride < THC_TILE; stride *= 2)
		for (i = 0; i < THC_TILE; i += 2 * stride)
			butterflies(tile + i, tile + i + stride, stride);
}

static void scalar_flip(const float *src, const uint64_t *signs, float *dst)
{
	unsigned int i;

	for (i = 0; i < THC_TILE; i++)
		dst[i] = thc_bits_float(thc_float_bits(src[i]) ^ thc_sign_bit(signs, i));
}

static void scalar_add(const void *x, enum thc_dtype dtype, const float *error, float *out)
{
	unsigned int i;

	for (i = 0; i < THC_TILE; i++) {
		float v = thc_load_one(dtype, x, i);

		out[i] = error ? v + error[i] : v;
	}
}

static void scalar_forward(const void *x, enum thc_dtype dtype, const float *error,
			   const uint64_t *signs, float *out)
{
	scalar_add(x, dtype, error, out);
	scalar_flip(out, signs, out);
	hadamard_tile(out);
}

static void scalar_inverse(const float *src, const uint64_t *signs, float *dst)
{
	memmove(dst, src, THC_TILE * sizeof(*dst));
	hadamard_tile(dst);
	if (signs)
		scalar_flip(dst, signs, dst);
}

static void scalar_high(float *buf, size_t stride, unsigned int radix)
{
	unsigned int apart, i;

	for (apart = 1; apart < radix; apart *= 2)
		for (i = 0; i < radix; i++)
			if (!(i & apart))
				butterflies(buf + i * stride, buf + (i + apart) * stride, stride);
}

/* A draw in units of THC_DRAW_UNIT: uniform, or, for correlated rounding, in this rank's n-th of
 * the interval.
 */
static float draw(const struct thc_quant *q, uint32_t i)
{
	uint32_t u = thc_draw32(q->draw, i), part;

	if (!q->n)
		return (float)(u >> (32 - THC_DRAW_BITS));
	part = q->rank + ((thc_draw32(q->shift, i) >> 16) * q->n >> 16);
	if (part >= q->n)
		part -= q->n;
	part = part << THC_CORRELATED_BITS | u >> (32 - THC_CORRELATED_BITS);
	return ((float)part + 0.5f) * q->share;
}

static uint8_t quantise_one(const struct thc_quant *q, float v, uint32_t i, float *residual)
{
	float over = v - q->offset, a = over * q->to_grid + q->half, value, gap;
	uint32_t cell;
	bool up;

	/* The order of comparisons sends NaN to level 0, as the vector maximum does. */
	a = a > 0.0f ? a : 0.0f;
	a = a < q->top ? a : q->top;
	cell = q->cell[(int)a];
	value = (float)THC_CELL_VALUE(cell);
	gap = (float)THC_CELL_GAP(cell);
	up = draw(q, i) * (gap * THC_DRAW_UNIT) < a - value;
	if (up)
		value += gap;
	if (residual)
		*residual = (over - (value - q->half) * q->from_grid) * q->unrotate;
	return (uint8_t)(THC_CELL_LEVEL(cell) + up);
}

static void scalar_quantise(const struct thc_quant *q, const float *in, unsigned int first,
			    unsigned int n, uint8_t *packed, float *residual)
{
	uint8_t index[THC_GROUP];
	unsigned int done, i;

	/* A group is read whole before its indices are stored: they may lie where it was. */
	for (done = 0; done < n; done += THC_GROUP) {
		for (i = 0; i < THC_GROUP; i++)
			index[i] = quantise_one(q, in[done + i], first + done + i,
						residual ? residual + done + i : NULL);
		thc_pack_bits(index, q->bits, packed + done / 8 * q->bits);
	}
}

static float lane_at(const uint8_t *lanes, unsigned int width, size_t i)
{
	const uint8_t *at = lanes + i * width / 8;
	uint32_t y = 0;
	unsigned int k;

	if (width == 4)
		return (float)(i % 2 ? *at >> 4 : *at & 15);
	for (k = 0; k < width / 8; k++)
		y |= (uint32_t)at[k] << 8 * k;
	return (float)(int32_t)y;
}

static void scalar_dequant(const uint8_t *lanes, unsigned int width, size_t n, float centre,
			   float scale, float offset, float *out)
{
	float group[THC_GROUP];
	size_t i, k;

	/* Lanes may lie at the end of where their floats go. */
	for (i = 0; i < n; i += THC_GROUP) {
		for (k = 0; k < THC_GROUP; k++)
			group[k] = (lane_at(lanes, width, i + k) - centre) * scale + offset;
		memcpy(out + i, group, sizeof(group));
	}
}

static void scalar_extent(const float *in, size_t n, float *least, float *most)
{
	size_t i;

	*least = *most = in[0];
	for (i = 1; i < n; i++) {
		*least = in[i] < *least ? in[i] : *least;
		*most = in[i] > *most ? in[i] : *most;
	}
}

static void scalar_save(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

static void scalar_clear(void *dst, size_t bytes)
{
	memset(dst, 0, bytes);
}

static void scalar_load(enum thc_dtype dtype, float *dst, const void *src, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		dst[i] = thc_load_one(dtype, src, i);
}

static void scalar_store(enum thc_dtype dtype, void *dst, const float *src, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		thc_store_one(dtype, dst, i, src[i]);
}

static uint64_t scalar_nh(const uint32_t *key, const void *data, int words)
{
	return thc_nh(key, data, words);
}

const struct thc_codec_ops thc_ops_scalar = {
	.name = "scalar",
	.fixed = &thc_fixed_scalar,
	.sparse = &thc_sparse_scalar,
	.add = scalar_add,
	.sumsq = scalar_sumsq,
	.forward = scalar_forward,
	.inverse = scalar_inverse,
	.high = scalar_high,
	.flip = scalar_flip,
	.extent = scalar_extent,
	.quantise = scalar_quantise,
	.dequant = scalar_dequant,
	.save = scalar_save,
	.clear = scalar_clear,
	.load = scalar_load,
	.store = scalar_store,
	.nh = scalar_nh,
};
