/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Kernels for AVX-512 (F, BW, DQ, VL): primitives for vectors of 16 floats, from which
 * codec_vector.h builds the kernels.  The same bits as codec_scalar.c.  Empty on other
 * architectures.
 */
#include "codec_ops.h"

#ifdef THC_X86_KERNELS

#include <immintrin.h>

#define VL		16
#define LANE_NUMBERS	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15

typedef __m512 vf;
typedef __m512i vi;

#define FN	static inline __attribute__((always_inline))

#define vf_load			_mm512_loadu_ps
#define vf_store		_mm512_storeu_ps
#define vf_set			_mm512_set1_ps
#define vf_min			_mm512_min_ps
#define vf_max			_mm512_max_ps
#define vf_from_int		_mm512_cvtepi32_ps
#define vf_from_fp16(p)		_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define vi_from_u8(p)		_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p)))
#define vi_from_u16(p)		_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p)))
#define vi_mulhi		_mm512_mulhi_epu16
#define vi_min			_mm512_min_epu32

FN void vf_to_fp16(uint16_t *to, vf v)
{
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

FN void vi_to_u16(uint16_t *to, vi u)
{
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(u));
}

FN vi vi_add_less(vi z, vf a, vf b)
{
	return _mm512_mask_add_epi32(z, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), z,
				     _mm512_set1_epi32(1));
}

FN vi vi_if_nan(vf v, vi a, vi b)
{
	return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), b, a);
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

FN __m256 vf_fold(const vf *s)
{
	vf sum = (s[0] + s[1]) + (s[2] + s[3]);

	return _mm512_castps512_ps256(sum) + _mm512_extractf32x8_ps(sum, 1);
}

struct levels {
	vi cell_lo;
	vi cell_hi;
	vf value;
	vf gap;
};

FN void levels_load(struct levels *l, const struct thc_quant *q)
{
	l->value = vf_load(q->value);
	l->gap = vf_load(q->gap);
	l->cell_lo = l->cell_hi = _mm512_setzero_si512();
	if (q->cell_level) {
		l->cell_lo = _mm512_loadu_si512(q->cell_level);
		l->cell_hi = _mm512_loadu_si512(q->cell_level + 32);
	}
}

FN vf level_value(const struct levels *l, vi z)
{
	return _mm512_permutexvar_ps(z, l->value);
}

FN vi level_find(const struct thc_quant *q, const struct levels *l, vf a, int narrow, vf *value,
		 vf *gap)
{
	vi cell = _mm512_cvttps_epi32(a), z;

	if (narrow)	/* by words; the upper word of each lane is zero and finds level 0 */
		z = _mm512_permutex2var_epi16(l->cell_lo, cell, l->cell_hi);
	else
		z = _mm512_and_si512(_mm512_i32gather_epi32(cell, (const int *)q->cell, 4),
				     _mm512_set1_epi32(15));
	*value = level_value(l, z);
	*gap = _mm512_permutexvar_ps(z, l->gap);
	return z;
}

FN void pack_group(const vi *z, uint8_t *to)
{
	/* Quarters of four dwords each, taken from the four vectors in turn. */
	vi words_lo = _mm512_packs_epi32(z[0], z[1]), words_hi = _mm512_packs_epi32(z[2], z[3]);
	vi pairs = _mm512_maddubs_epi16(_mm512_packus_epi16(words_lo, words_hi),
					_mm512_set1_epi16(0x0110));
	__m256i bytes = _mm512_cvtepi16_epi8(pairs);
	const __m256i order =
		_mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

	_mm256_storeu_si256((__m256i *)to, _mm256_permutexvar_epi16(order, bytes));
}

#include "codec_vector.h"

const struct thc_codec_ops thc_ops_avx512 = VECTOR_OPS("avx512");

#else

typedef int thc_no_avx512;

#endif /* THC_X86_KERNELS */
