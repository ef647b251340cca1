/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Kernels for AVX2 with F16C: primitives for vectors of 8 floats, from which codec_vector.h builds
 * the kernels.  The same bits as codec_scalar.c.  Empty on other architectures.
 */
#include "codec_ops.h"

#ifdef THC_X86_KERNELS

#include <immintrin.h>

#define VL		8
#define LANE_NUMBERS	0, 1, 2, 3, 4, 5, 6, 7

typedef __m256 vf;
typedef __m256i vi;

#define FN	static inline __attribute__((always_inline))

#define vf_load			_mm256_loadu_ps
#define vf_store		_mm256_storeu_ps
#define vf_set			_mm256_set1_ps
#define vf_min			_mm256_min_ps
#define vf_max			_mm256_max_ps
#define vf_from_int		_mm256_cvtepi32_ps
#define vf_from_fp16(p)		_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define vi_from_u8(p)		_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p)))
#define vi_from_u16(p)		_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p)))
#define vi_mulhi		_mm256_mulhi_epu16
#define vi_min			_mm256_min_epu32

FN void vf_to_fp16(uint16_t *to, vf v)
{
	_mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

FN void vi_to_u16(uint16_t *to, vi u)
{
	u = _mm256_permute4x64_epi64(_mm256_packus_epi32(u, u), 0x08);
	_mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(u));
}

FN vi vi_add_less(vi z, vf a, vf b)
{
	return _mm256_sub_epi32(z, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)));
}

FN vi vi_if_nan(vf v, vi a, vi b)
{
	return _mm256_blendv_epi8(b, a, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

FN vf vf_sign(vf v, const uint64_t *signs, size_t i)
{
	/* Bit k of the byte moves to the top of lane k. */
	vi bits = _mm256_sllv_epi32(_mm256_set1_epi32((int)(signs[i / 64] >> (i % 64))),
				    _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
	vf top = _mm256_and_ps(_mm256_castsi256_ps(bits), vf_set(-0.0f));

	return _mm256_xor_ps(v, top);
}

/* One stage within a vector: partner + v in lower halves of pairs, partner - v in upper ones. */
FN vf lane_stage(vf v, vf partner, vf upper)
{
	return partner + _mm256_xor_ps(v, upper);
}

FN vf vf_lanes(vf v)
{
	v = lane_stage(v, _mm256_permute_ps(v, 0xb1),
		       _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f));
	v = lane_stage(v, _mm256_permute_ps(v, 0x4e),
		       _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f));
	return lane_stage(v, _mm256_permute2f128_ps(v, v, 1),
			  _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f));
}

FN __m256 vf_fold(const vf *s)
{
	return ((s[0] + s[2]) + (s[4] + s[6])) + ((s[1] + s[3]) + (s[5] + s[7]));
}

struct levels {
	vf value_lo;
	vf value_hi;
};

FN void levels_load(struct levels *l, const struct thc_quant *q)
{
	l->value_lo = vf_load(q->value);
	l->value_hi = vf_load(q->value + 8);
}

FN vf level_value(const struct levels *l, vi z)
{
	vf upper = _mm256_castsi256_ps(_mm256_slli_epi32(z, 28));

	return _mm256_blendv_ps(_mm256_permutevar8x32_ps(l->value_lo, z),
				_mm256_permutevar8x32_ps(l->value_hi, z), upper);
}

/* One gather fetches level, value and gap; so there is no narrow case. */
FN vi level_find(const struct thc_quant *q, const struct levels *l, vf a, int narrow, vf *value,
		 vf *gap)
{
	vi cell = _mm256_i32gather_epi32((const int *)q->cell, _mm256_cvttps_epi32(a), 4);
	vi z = _mm256_and_si256(cell, _mm256_set1_epi32(15));

	(void)l;
	(void)narrow;
	*value = vf_from_int(_mm256_srli_epi32(_mm256_slli_epi32(cell, 16), 20));
	*gap = vf_from_int(_mm256_srli_epi32(cell, 16)) * THC_DRAW_UNIT;
	return z;
}

/* 32 indices -> 32 bytes, in quarters of four taken from the four vectors in turn; then pairs. */
FN __m128i pack_half(const vi *z)
{
	vi bytes =
		_mm256_packus_epi16(_mm256_packs_epi32(z[0], z[1]), _mm256_packs_epi32(z[2], z[3]));
	vi pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x0110));
	vi packed = _mm256_packus_epi16(pairs, pairs);
	__m128i lo = _mm256_castsi256_si128(packed), hi = _mm256_extracti128_si256(packed, 1);

	return _mm_unpacklo_epi16(lo, hi);
}

FN void pack_group(const vi *z, uint8_t *to)
{
	_mm_storeu_si128((__m128i *)to, pack_half(z));
	_mm_storeu_si128((__m128i *)(to + 16), pack_half(z + 4));
}

#include "codec_vector.h"

const struct thc_codec_ops thc_ops_avx2 = VECTOR_OPS("avx2");

#else

typedef int thc_no_avx2;

#endif /* THC_X86_KERNELS */
