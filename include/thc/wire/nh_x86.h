/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * thc_nh() with the vector instructions that a file is compiled for: thc_nh_avx512() or
 * thc_nh_avx2(), which give the same bits. The caller owns the vector unit, and includes
 * <immintrin.h> before this file, since the kernel has a way of its own to include it.
 *
 * A product is of the lower halves of two 64-bit elements. Words that do not fill a vector go
 * through thc_nh().
 */
#ifndef THC_NH_X86_H
#define THC_NH_X86_H

#include <thc/wire/nh.h>

#ifdef __AVX2__
THC_INLINE u64 thc_nh_folded(__m256i sum)
{
	__m128i pair = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));

	return (u64)_mm_cvtsi128_si64(pair) + (u64)_mm_extract_epi64(pair, 1);
}

THC_INLINE u64 thc_nh_avx2(const u32 *key, const void *data, int words)
{
	__m256i sum = _mm256_setzero_si256();
	const u8 *in = data;
	int i;

	for (i = 0; i <= words - 4; i += 4) {
		__m256i m = _mm256_loadu_si256((const void *)(in + 8 * i));

		m = _mm256_add_epi32(m, _mm256_loadu_si256((const void *)(key + 2 * i)));
		sum = _mm256_add_epi64(sum, _mm256_mul_epu32(m, _mm256_srli_epi64(m, 32)));
	}
	return thc_nh_folded(sum) + thc_nh(key + 2 * i, in + 8 * i, words - i);
}
#endif

#ifdef __AVX512F__
THC_INLINE u64 thc_nh_avx512(const u32 *key, const void *data, int words)
{
	__m512i sum = _mm512_setzero_si512();
	const u8 *in = data;
	int i;

	for (i = 0; i <= words - 8; i += 8) {
		__m512i m = _mm512_loadu_si512(in + 8 * i);

		m = _mm512_add_epi32(m, _mm512_loadu_si512(key + 2 * i));
		sum = _mm512_add_epi64(sum, _mm512_mul_epu32(m, _mm512_srli_epi64(m, 32)));
	}
	/* _mm512_reduce_add_epi64() adds signed numbers, which may not overflow */
	return thc_nh_folded(_mm256_add_epi64(_mm512_castsi512_si256(sum),
					      _mm512_extracti64x4_epi64(sum, 1))) +
	       thc_nh(key + 2 * i, in + 8 * i, words - i);
}
#endif

#endif /* THC_NH_X86_H */
