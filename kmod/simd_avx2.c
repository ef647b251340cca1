// SPDX-License-Identifier: GPL-2.0
/*
 * Lane loops for AVX2: 32 bytes of lanes at a time, tables by byte shuffle.
 *
 * LUT sums add 64-bit words, as lane.h does: no lane carries into the next
 * unless the table is too large, and then both are wrong in the same way.
 */
#if defined(__x86_64__) && !defined(__CHECKER__) /* sparse has no intrinsics */
#include "simd.h"
#include "simd_intrin.h"

#define VECTOR 32

typedef __m256i vector;

THC_INLINE vector load(const void *p)
{
	return _mm256_loadu_si256(p);
}

THC_INLINE void store(vector *p, vector v)
{
	_mm256_storeu_si256(p, v);
}

/* 16 packed bytes -> their 32 indices as bytes, in coordinate order. */
THC_INLINE __m256i spread(const u8 *packed)
{
	__m256i byte = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)packed));
	__m256i both = _mm256_or_si256(_mm256_srli_epi16(byte, 4), _mm256_slli_epi16(byte, 8));

	return _mm256_and_si256(both, _mm256_set1_epi8(0x0f));
}

/* The low bytes of 16 words, in both halves. */
THC_INLINE __m256i bytes(__m256i words)
{
	words = _mm256_and_si256(words, _mm256_set1_epi16(0xff));
	return _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x88);
}

/* The table itself: T[z] is the odd half of the pair at packed byte z < 16. */
THC_INLINE __m256i table8(const struct thc_pairs *p)
{
	return bytes(_mm256_srli_epi16(load(p->w8), 8));
}

THC_INLINE __m256i table16(const struct thc_pairs *p)
{
	__m256i low = _mm256_srli_epi32(load(p->w16), 16);
	__m256i high = _mm256_srli_epi32(load(p->w16 + 8), 16);

	return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

THC_INLINE void avx2_lut8(u64 *lanes, const void *payload, const struct thc_pairs *p, int first)
{
	__m256i table = table8(p);
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++)
		PUT(_mm256_add_epi64, i, _mm256_shuffle_epi8(table, spread(in + 16 * i)));
}

THC_INLINE void avx2_linear8(u64 *lanes, const void *payload, int first)
{
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++)
		PUT(_mm256_add_epi64, i, spread(in + 16 * i));
}

/* Low and high bytes of the sums' terms are looked up apart. Unpacking works
 * in halves: 16 bytes' lanes 0..7 and 16..23, then 8..15 and 24..31.
 */
THC_INLINE void avx2_lut16(u64 *lanes, const void *payload, const struct thc_pairs *p, int first)
{
	__m256i table = table16(p), low = bytes(table), high = bytes(_mm256_srli_epi16(table, 8));
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / (2 * VECTOR); i++) {
		__m256i index = spread(in + 16 * i);
		__m256i l = _mm256_shuffle_epi8(low, index), h = _mm256_shuffle_epi8(high, index);
		__m256i a = _mm256_unpacklo_epi8(l, h), b = _mm256_unpackhi_epi8(l, h);

		PUT(_mm256_add_epi64, 2 * i, _mm256_permute2x128_si256(a, b, 0x20));
		PUT(_mm256_add_epi64, 2 * i + 1, _mm256_permute2x128_si256(a, b, 0x31));
	}
}

THC_SIMD_ADD(avx2, 8, _mm256_add_epi8)
THC_SIMD_ADD(avx2, 16, _mm256_add_epi16)
THC_SIMD_ADD(avx2, 32, _mm256_add_epi32)

/* A product is of the lower halves of two 64-bit elements. */
static void avx2_nh(u64 *nh, const u32 *key, const void *data, int words)
{
	__m256i sum = _mm256_setzero_si256();
	const u8 *in = data, *k = (const void *)key;
	__m128i half;
	int i;

	for (i = 0; i < words * 8; i += VECTOR) {
		__m256i m = _mm256_add_epi32(load(in + i), load(k + i));

		sum = _mm256_add_epi64(sum, _mm256_mul_epu32(m, _mm256_srli_epi64(m, 32)));
	}
	half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
	*nh = (u64)_mm_cvtsi128_si64(half) + (u64)_mm_extract_epi64(half, 1);
}

THC_SIMD_OPS(avx2, "avx2");
#endif
