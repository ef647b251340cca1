/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Kernels for AVX-512 (F, BW, DQ, VL): primitives for vectors of 16 floats, from which
 * codec_vector.h builds the kernels.  The same bits as codec_scalar.c.  Empty on other
 * architectures.
 */
#include "codec_ops.h"

#ifdef THC_X86_KERNELS

#include <immintrin.h>

#include <thc/wire/nh_x86.h>

#include "codec_pack.h"

#define VL	16
#define ROWS	8

typedef __m512 vf;
typedef __m512i vi;

#define FN	static inline __attribute__((always_inline))

FN vf vf_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

FN void vf_store(float *p, vf v)
{
	_mm512_storeu_ps(p, v);
}

FN void vf_stream(float *p, vf v)
{
	_mm512_stream_ps(p, v);
}

FN vf vf_add(vf a, vf b)
{
	return _mm512_add_ps(a, b);
}

FN vf vf_sub(vf a, vf b)
{
	return _mm512_sub_ps(a, b);
}

FN vf vf_mul(vf a, vf b)
{
	return _mm512_mul_ps(a, b);
}

FN vf vf_min(vf a, vf b)
{
	return _mm512_min_ps(a, b);
}

FN vf vf_max(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

FN float vf_least(vf v)
{
	return _mm512_reduce_min_ps(v);
}

FN float vf_most(vf v)
{
	return _mm512_reduce_max_ps(v);
}

FN vf vf_set(float f)
{
	return _mm512_set1_ps(f);
}

FN vf vf_from_fp16(const uint16_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

FN vf vf_from_bf16(const uint16_t *p)
{
	vi h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));

	return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
}

FN vf vf_from_u4(const uint8_t *p)
{
	uint32_t word[2];
	vi both, lane;

	memcpy(word, p, sizeof(word));
	both = _mm512_inserti64x4(_mm512_set1_epi32((int)word[0]), _mm256_set1_epi32((int)word[1]),
				  1);
	lane = _mm512_srlv_epi32(both, _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12,
							 16, 20, 24, 28));
	return _mm512_cvtepi32_ps(_mm512_and_si512(lane, _mm512_set1_epi32(15)));
}

FN vf vf_from_u8(const uint8_t *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

FN vf vf_from_le16(const uint8_t *p)
{
	__m256i y = _mm256_loadu_si256((const __m256i *)p);

	return _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(y));
}

FN vf vf_from_le32(const uint8_t *p)
{
	return _mm512_cvtepi32_ps(_mm512_loadu_si512(p));
}

FN vf vf_sign(vf v, const uint64_t *signs, size_t i)
{
	__mmask16 negative = (__mmask16)(signs[i / 64] >> (i % 64));
	vf minus_zero = _mm512_set1_ps(-0.0f);

	return _mm512_mask_xor_ps(v, negative, v, minus_zero);
}

/*
 * One stage within a vector: partner + v in lower halves of pairs, partner - v in upper ones.  The
 * product by +-1 is exact, so the fused operation rounds as the separate ones do.
 */
#define LANE_STAGE(v, partner, signs) _mm512_fmadd_ps(v, signs, partner)

FN vf lane_signs(unsigned int upper)
{
	return _mm512_mask_blend_ps((__mmask16)upper, vf_set(1.0f), vf_set(-1.0f));
}

FN vf vf_lanes(vf v)
{
	v = LANE_STAGE(v, _mm512_permute_ps(v, 0xb1), lane_signs(0xaaaa));
	v = LANE_STAGE(v, _mm512_permute_ps(v, 0x4e), lane_signs(0xcccc));
	v = LANE_STAGE(v, _mm512_shuffle_f32x4(v, v, 0xb1), lane_signs(0xf0f0));
	return LANE_STAGE(v, _mm512_shuffle_f32x4(v, v, 0x4e), lane_signs(0xff00));
}

FN float vf_sumsq(const vf *s)
{
	vf sum = _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3]));
	__m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* The quantiser's tables in registers; tables that are not narrow are gathered. */
struct levels {
	vi cell_lo;
	vi cell_hi;
	vf value[2];
	vf gap[2];
};

FN void levels_load(struct levels *l, const struct thc_quant *q)
{
	unsigned int k;

	for (k = 0; k < 2; k++) {
		l->value[k] = vf_load(q->value + k * VL);
		l->gap[k] = vf_load(q->gap + k * VL);
	}
	l->cell_lo = l->cell_hi = _mm512_setzero_si512();
	if (q->cell_level) {
		l->cell_lo = _mm512_loadu_si512(q->cell_level);
		l->cell_hi = _mm512_loadu_si512(q->cell_level + 32);
	}
}

/* thc_draw32() of coordinates i..i+15. */
FN vi draw32(uint64_t key, unsigned int i)
{
	const vi step = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
							     12, 13, 14, 15),
					   _mm512_set1_epi32((int)THC_WEYL32));
	vi k1 = _mm512_set1_epi32((int)(key >> 32));
	vi z = _mm512_add_epi32(_mm512_set1_epi32((int)((uint32_t)key + i * THC_WEYL32)), step);

	z = _mm512_xor_si512(z, _mm512_srli_epi32(z, 16));
	z = _mm512_mullo_epi32(z, _mm512_set1_epi32((int)THC_DRAW_MUL0));
	z = _mm512_ternarylogic_epi32(z, _mm512_srli_epi32(z, 15), k1, 0x96);
	return _mm512_mullo_epi32(z, _mm512_set1_epi32((int)THC_DRAW_MUL1));
}

FN vf draw_correlated(const struct thc_quant *q, vi u, unsigned int i)
{
	vi n = _mm512_set1_epi32((int)q->n);
	/* a product of 16-bit words: the upper ones are zero in both */
	vi part = _mm512_mulhi_epu16(_mm512_srli_epi32(draw32(q->shift, i), 16), n);

	part = _mm512_add_epi32(part, _mm512_set1_epi32((int)q->rank));
	part = _mm512_mask_sub_epi32(part, _mm512_cmpge_epi32_mask(part, n), part, n);
	part = _mm512_or_si512(_mm512_slli_epi32(part, THC_CORRELATED_BITS),
			       _mm512_srli_epi32(u, 32 - THC_CORRELATED_BITS));
	return vf_mul(vf_add(_mm512_cvtepi32_ps(part), vf_set(0.5f)), vf_set(q->share));
}

FN vf of_level(const vf *of, vi z, enum thc_lookup lookup)
{
	return lookup == THC_LOOKUP_TWO ? _mm512_permutex2var_ps(of[0], z, of[1]) :
					  _mm512_permutexvar_ps(z, of[0]);
}

FN vi vi_level(const struct thc_quant *q, const struct levels *l, vf v, unsigned int i,
	       float *residual, enum thc_lookup lookup, int correlated)
{
	vf over = is_narrow(lookup) ? v : vf_sub(v, vf_set(q->offset)), value, gap,
	   step = _mm512_setzero_ps(), u;
	vf a = vf_add(vf_mul(over, vf_set(q->to_grid)), vf_set(q->half));
	vi cell, z, draw = draw32(q->draw, i);
	__mmask16 up;

	a = _mm512_min_ps(_mm512_max_ps(a, _mm512_setzero_ps()), vf_set(q->top));
	cell = _mm512_cvttps_epi32(a);
	/* the last position belongs to the interval below it */
	if (lookup == THC_LOOKUP_NONE) {
		z = _mm512_min_epi32(cell, _mm512_set1_epi32((int)q->top - 1));
		value = _mm512_cvtepi32_ps(z);
		step = vf_set(1);
		gap = vf_set(THC_DRAW_UNIT);
	} else if (is_narrow(lookup)) {
		/* by words; the upper word of each lane is zero and finds level 0 */
		z = _mm512_permutex2var_epi16(l->cell_lo, cell, l->cell_hi);
		value = of_level(l->value, z, lookup);
		gap = of_level(l->gap, z, lookup);
	} else {
		cell = _mm512_i32gather_epi32(cell, (const int *)q->cell, 4);
		z = _mm512_and_si512(cell, _mm512_set1_epi32(0xff));
		value = _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_slli_epi32(cell, 12), 20));
		step = _mm512_cvtepi32_ps(_mm512_srli_epi32(cell, 20));
		gap = vf_mul(step, vf_set(THC_DRAW_UNIT));
	}
	if (correlated && q->n)
		u = draw_correlated(q, draw, i);
	else
		u = _mm512_cvtepi32_ps(_mm512_srli_epi32(draw, 32 - THC_DRAW_BITS));
	up = _mm512_cmp_ps_mask(vf_mul(u, gap), vf_sub(a, value), _CMP_LT_OQ);
	z = _mm512_mask_add_epi32(z, up, z, _mm512_set1_epi32(1));
	if (residual) {
		value = is_narrow(lookup) ? of_level(l->value, z, lookup) :
					    _mm512_mask_add_ps(value, up, value, step);
		value = vf_mul(vf_sub(value, vf_set(q->half)), vf_set(q->from_grid));
		vf_store(residual, vf_mul(vf_sub(over, value), vf_set(q->unrotate)));
	}
	return z;
}

FN void vi_bytes(const vi *z, uint8_t *to)
{
	int k;

	for (k = 0; k < 4; k++)
		_mm_storeu_si128((__m128i *)(to + 16 * k), _mm512_cvtepi32_epi8(z[k]));
}

/* A byte each: quarters of four indices, taken from the four vectors in turn. */
FN vi vi_quarters(const vi *z)
{
	return _mm512_packus_epi16(_mm512_packs_epi32(z[0], z[1]), _mm512_packs_epi32(z[2], z[3]));
}

/* pack_sixteen(), of four times as many. */
FN void pack_few(const vi *z, unsigned int bits, uint8_t *to)
{
	const vi in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const __m128i bytes = _mm_loadu_si128((const __m128i *)pack_order[bits]);
	uint8_t packed[THC_GROUP];
	vi v = _mm512_permutexvar_epi32(in_order, vi_quarters(z));
	unsigned int k;

	v = _mm512_maddubs_epi16(v, _mm512_set1_epi16((short)(1 << 8 | 1 << bits)));
	v = _mm512_madd_epi16(v, _mm512_set1_epi32(1 << 16 | 1 << 2 * bits));
	v = _mm512_or_si512(_mm512_slli_epi64(v, 4 * bits), _mm512_srli_epi64(v, 32));
	_mm512_storeu_si512(packed, _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(bytes)));
	for (k = 0; k < THC_GROUP / 16; k++)
		memcpy(to + 2 * bits * k, packed + 16 * k, 2 * bits);
}

FN void pack_group(const vi *z, uint8_t *to)
{
	vi pairs = _mm512_maddubs_epi16(vi_quarters(z), _mm512_set1_epi16(0x0110));
	__m256i bytes = _mm512_cvtepi16_epi8(pairs);
	const __m256i order =
		_mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

	_mm256_storeu_si256((__m256i *)to, _mm256_permutexvar_epi16(order, bytes));
}

FN void to_fp16(vf v, uint16_t *to)
{
	/* of a NaN, min and max give the second operand */
	v = _mm512_max_ps(_mm512_set1_ps(-THC_FP16_MAX), v);
	v = _mm512_min_ps(_mm512_set1_ps(THC_FP16_MAX), v);
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

FN void to_bf16(vf v, uint16_t *to)
{
	__mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
	vi u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
	vi odd = _mm512_and_si512(high, _mm512_set1_epi32(1));

	u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
	u = _mm512_mask_or_epi32(_mm512_srli_epi32(u, 16), nan, high, _mm512_set1_epi32(0x40));
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(u));
}

#include "codec_vector.h"

static uint64_t avx512_nh(const uint32_t *key, const void *data, int words)
{
	return thc_nh_avx512(key, data, words);
}

const struct thc_codec_ops thc_ops_avx512 = VECTOR_OPS("avx512", avx512);

#else

typedef int thc_no_avx512;

#endif /* THC_X86_KERNELS */
