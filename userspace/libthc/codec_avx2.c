/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Kernels for AVX2 with F16C: primitives for vectors of 8 floats, from which codec_vector.h builds
 * the kernels.  The same bits as codec_scalar.c.  Empty on other architectures.
 */
#include "codec_ops.h"

#ifdef THC_X86_KERNELS

#include <immintrin.h>

#include <thc/wire/nh_x86.h>

#include "codec_pack.h"

#define VL	8
#define ROWS	8

typedef __m256 vf;
typedef __m256i vi;

#define FN	static inline __attribute__((always_inline))

FN vf vf_load(const float *p)
{
	return _mm256_loadu_ps(p);
}

FN void vf_store(float *p, vf v)
{
	_mm256_storeu_ps(p, v);
}

FN void vf_stream(float *p, vf v)
{
	_mm256_stream_ps(p, v);
}

FN vf vf_add(vf a, vf b)
{
	return _mm256_add_ps(a, b);
}

FN vf vf_sub(vf a, vf b)
{
	return _mm256_sub_ps(a, b);
}

FN vf vf_mul(vf a, vf b)
{
	return _mm256_mul_ps(a, b);
}

FN vf vf_min(vf a, vf b)
{
	return _mm256_min_ps(a, b);
}

FN vf vf_max(vf a, vf b)
{
	return _mm256_max_ps(a, b);
}

FN float vf_least(vf v)
{
	__m128 m = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	m = _mm_min_ps(m, _mm_movehl_ps(m, m));
	return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
}

FN float vf_most(vf v)
{
	__m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

FN vf vf_set(float f)
{
	return _mm256_set1_ps(f);
}

FN vf vf_from_fp16(const uint16_t *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

FN vf vf_from_bf16(const uint16_t *p)
{
	vi h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));

	return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
}

FN vf vf_from_u4(const uint8_t *p)
{
	uint32_t word;
	vi lane;

	memcpy(&word, p, sizeof(word));
	lane = _mm256_srlv_epi32(_mm256_set1_epi32((int)word),
				 _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
	return _mm256_cvtepi32_ps(_mm256_and_si256(lane, _mm256_set1_epi32(15)));
}

FN vf vf_from_u8(const uint8_t *p)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

FN vf vf_from_le16(const uint8_t *p)
{
	__m128i y = _mm_loadu_si128((const __m128i *)p);

	return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(y));
}

FN vf vf_from_le32(const uint8_t *p)
{
	return _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)p));
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
	return vf_add(partner, _mm256_xor_ps(v, upper));
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

FN float vf_sumsq(const vf *s)
{
	vf lo = vf_add(vf_add(s[0], s[2]), vf_add(s[4], s[6]));
	vf hi = vf_add(vf_add(s[1], s[3]), vf_add(s[5], s[7]));
	vf eight = vf_add(lo, hi);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
	__m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

	return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* The quantiser's tables in registers: none, since one gather fetches level, value and gap. */
struct levels {
	char none;
};

FN void levels_load(struct levels *l, const struct thc_quant *q)
{
	(void)q;
	l->none = 0;
}

/* thc_draw32() of coordinates i..i+7. */
FN vi draw32(uint64_t key, unsigned int i)
{
	const vi step = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
					   _mm256_set1_epi32((int)THC_WEYL32));
	vi k1 = _mm256_set1_epi32((int)(key >> 32));
	vi z = _mm256_add_epi32(_mm256_set1_epi32((int)((uint32_t)key + i * THC_WEYL32)), step);

	z = _mm256_xor_si256(z, _mm256_srli_epi32(z, 16));
	z = _mm256_mullo_epi32(z, _mm256_set1_epi32((int)THC_DRAW_MUL0));
	z = _mm256_xor_si256(_mm256_xor_si256(z, _mm256_srli_epi32(z, 15)), k1);
	return _mm256_mullo_epi32(z, _mm256_set1_epi32((int)THC_DRAW_MUL1));
}

FN vf draw_correlated(const struct thc_quant *q, vi u, unsigned int i)
{
	vi n = _mm256_set1_epi32((int)q->n);
	/* a product of 16-bit words: the upper ones are zero in both */
	vi part = _mm256_mulhi_epu16(_mm256_srli_epi32(draw32(q->shift, i), 16), n);

	part = _mm256_add_epi32(part, _mm256_set1_epi32((int)q->rank));
	part = _mm256_sub_epi32(part, _mm256_andnot_si256(_mm256_cmpgt_epi32(n, part), n));
	part = _mm256_or_si256(_mm256_slli_epi32(part, THC_CORRELATED_BITS),
			       _mm256_srli_epi32(u, 32 - THC_CORRELATED_BITS));
	return vf_mul(vf_add(_mm256_cvtepi32_ps(part), vf_set(0.5f)), vf_set(q->share));
}

/* The narrow case has no offset; the gather serves it, too. */
FN vi vi_level(const struct thc_quant *q, const struct levels *l, vf v, unsigned int i,
	       float *residual, enum thc_lookup lookup, int correlated)
{
	vf over = is_narrow(lookup) ? v : vf_sub(v, vf_set(q->offset)), value, gap, u, up;
	vf a = vf_add(vf_mul(over, vf_set(q->to_grid)), vf_set(q->half));
	vi cell, z, draw = draw32(q->draw, i);

	(void)l;
	a = _mm256_min_ps(_mm256_max_ps(a, _mm256_setzero_ps()), vf_set(q->top));
	cell = _mm256_cvttps_epi32(a);
	/* the last position belongs to the interval below it */
	if (lookup == THC_LOOKUP_NONE) {
		z = _mm256_min_epi32(cell, _mm256_set1_epi32((int)q->top - 1));
		value = _mm256_cvtepi32_ps(z);
		gap = vf_set(1);
	} else {
		cell = _mm256_i32gather_epi32((const int *)q->cell, cell, 4);
		z = _mm256_and_si256(cell, _mm256_set1_epi32(0xff));
		value = _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_slli_epi32(cell, 12), 20));
		gap = _mm256_cvtepi32_ps(_mm256_srli_epi32(cell, 20));
	}
	if (correlated && q->n)
		u = draw_correlated(q, draw, i);
	else
		u = _mm256_cvtepi32_ps(_mm256_srli_epi32(draw, 32 - THC_DRAW_BITS));
	up = _mm256_cmp_ps(vf_mul(u, vf_mul(gap, vf_set(THC_DRAW_UNIT))), vf_sub(a, value),
			   _CMP_LT_OQ);
	z = _mm256_sub_epi32(z, _mm256_castps_si256(up));
	if (residual) {
		value = vf_add(value, _mm256_and_ps(up, gap));
		value = vf_mul(vf_sub(value, vf_set(q->half)), vf_set(q->from_grid));
		vf_store(residual, vf_mul(vf_sub(over, value), vf_set(q->unrotate)));
	}
	return z;
}

/* 32 indices -> 32 bytes, in quarters of four taken from the four vectors in turn. */
FN vi byte_half(const vi *z)
{
	return _mm256_packus_epi16(_mm256_packs_epi32(z[0], z[1]), _mm256_packs_epi32(z[2], z[3]));
}

FN void vi_bytes(const vi *z, uint8_t *to)
{
	const vi order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	int k;

	for (k = 0; k < 2; k++)
		_mm256_storeu_si256((__m256i *)(to + 32 * k),
				    _mm256_permutevar8x32_epi32(byte_half(z + 4 * k), order));
}

FN void pack_few(const vi *z, unsigned int bits, uint8_t *to)
{
	uint8_t index[THC_GROUP];
	unsigned int k;

	vi_bytes(z, index);
	for (k = 0; k < THC_GROUP / 16; k++)
		pack_sixteen(index + 16 * k, bits, to + 2 * bits * k);
}

FN __m128i pack_half(const vi *z)
{
	vi bytes = byte_half(z);
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

FN void to_fp16(vf v, uint16_t *to)
{
	/* of a NaN, min and max give the second operand */
	v = _mm256_max_ps(_mm256_set1_ps(-THC_FP16_MAX), v);
	v = _mm256_min_ps(_mm256_set1_ps(THC_FP16_MAX), v);
	_mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

FN void to_bf16(vf v, uint16_t *to)
{
	vi nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
	vi u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
	vi odd = _mm256_and_si256(high, _mm256_set1_epi32(1));

	u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
	u = _mm256_blendv_epi8(_mm256_srli_epi32(u, 16),
			       _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
	u = _mm256_permute4x64_epi64(_mm256_packus_epi32(u, u), 0x08);
	_mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(u));
}

#include "codec_vector.h"

static uint64_t avx2_nh(const uint32_t *key, const void *data, int words)
{
	return thc_nh_avx2(key, data, words);
}

const struct thc_codec_ops thc_ops_avx2 = VECTOR_OPS("avx2", avx2);

#else

typedef int thc_no_avx2;

#endif /* THC_X86_KERNELS */
