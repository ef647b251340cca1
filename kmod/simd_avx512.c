// SPDX-License-Identifier: GPL-2.0
/*
 * Lane loops for AVX-512 with VBMI: 64 bytes of lanes at a time.
 *
 * VBMI does in one instruction each what takes AVX2 five and one: taking
 * nibbles apart and looking bytes up. CPUs that have AVX-512 but not VBMI
 * slow all their cores' clocks down for 64-byte vectors; they get AVX2.
 *
 * LUT sums add 64-bit words, as lane.h does: no lane carries into the next
 * unless the table is too large, and then both are wrong in the same way.
 */
#if defined(__x86_64__) && !defined(__CHECKER__) /* sparse has no intrinsics */
#include "simd.h"
#include "simd_intrin.h"

#define VECTOR 64
/* Where in 32 packed bits each of the 8 nibbles begins, coordinate order. */
#define NIBBLES 0x181c1014080c0004

typedef __m512i vector;

THC_INLINE vector load(const void *p)
{
	return _mm512_loadu_si512(p);
}

THC_INLINE void store(vector *p, vector v)
{
	_mm512_storeu_si512(p, v);
}

/* 32 packed bytes -> their 64 indices as the low halves of bytes. */
THC_INLINE __m512i spread(const u8 *packed)
{
	__m512i words = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const void *)packed));

	return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(NIBBLES), words);
}

/* The table four times, so that bits above an index do not matter. T[z] is
 * the odd half of the pair at packed byte z < 16.
 */
THC_INLINE __m512i table8(const struct thc_pairs *p)
{
	__m256i pairs = _mm256_loadu_si256((const void *)p->w8);

	return _mm512_broadcast_i32x4(_mm256_cvtepi16_epi8(_mm256_srli_epi16(pairs, 8)));
}

/* The table with levels of 16 bits, twice. */
THC_INLINE __m512i table16(const struct thc_pairs *p)
{
	__m512i pairs = load(p->w16);

	return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)));
}

THC_INLINE void avx512_lut8(u64 *lanes, const void *payload, const struct thc_pairs *p, int first)
{
	__m512i table = table8(p);
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++)
		PUT(_mm512_add_epi64, i, _mm512_permutexvar_epi8(spread(in + 32 * i), table));
}

THC_INLINE void avx512_linear8(u64 *lanes, const void *payload, int first)
{
	__m512i mask = _mm512_set1_epi8(0x0f);
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++)
		PUT(_mm512_add_epi64, i, _mm512_and_si512(spread(in + 32 * i), mask));
}

THC_INLINE void avx512_lut16(u64 *lanes, const void *payload, const struct thc_pairs *p, int first)
{
	__m512i table = table16(p);
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++) {
		__m512i byte = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(in + 16 * i)));
		__m512i even = _mm512_srli_epi32(byte, 4), odd = _mm512_slli_epi32(byte, 16);

		PUT(_mm512_add_epi64, i,
		    _mm512_permutexvar_epi16(_mm512_or_si512(even, odd), table));
	}
}

THC_SIMD_ADD(avx512, 8, _mm512_add_epi8)
THC_SIMD_ADD(avx512, 16, _mm512_add_epi16)
THC_SIMD_ADD(avx512, 32, _mm512_add_epi32)

/* A product is of the lower halves of two 64-bit elements. */
static void avx512_nh(u64 *nh, const u32 *key, const void *data, int words)
{
	__m512i sum = _mm512_setzero_si512();
	const u8 *in = data, *k = (const void *)key;
	__m256i half;
	__m128i pair;
	int i;

	for (i = 0; i < words * 8; i += VECTOR) {
		__m512i m = _mm512_add_epi32(load(in + i), load(k + i));

		sum = _mm512_add_epi64(sum, _mm512_mul_epu32(m, _mm512_srli_epi64(m, 32)));
	}
	/* _mm512_reduce_add_epi64() adds signed numbers, which may not overflow */
	half = _mm256_add_epi64(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
	pair = _mm_add_epi64(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
	*nh = (u64)_mm_cvtsi128_si64(pair) + (u64)_mm_extract_epi64(pair, 1);
}

THC_SIMD_OPS(avx512, "avx512");
#endif
