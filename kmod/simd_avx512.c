// SPDX-License-Identifier: GPL-2.0
/*
 * Lane loops for AVX-512 with VBMI: 64 bytes of lanes at a time.
 *
 * VBMI takes nibbles apart in one instruction, for which AVX2 needs five, and
 * looks bytes up in one more. CPUs with AVX-512 but without VBMI slow the
 * clocks of all cores down for 64-byte vectors; they get AVX2.
 *
 * LUT sums add 64-bit words, as lane.h does: no lane carries into the next
 * unless the table is too large, and then both are wrong in the same way.
 */
#if defined(__x86_64__) && !defined(__CHECKER__) /* sparse has no intrinsics */
#include "simd.h"
#include "simd_intrin.h"

#include <thc/wire/nh_x86.h>

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

/* The rows of THC_FORMATS_GROUP. A group here is one index, or two where sums have 4 bits. It has
 * @bits bits, 1 to 6, so that eight groups have @bits bytes.
 */

/* Eight words: @word, then each with its bytes greater by @step than those of the word before. */
THC_INLINE __m512i words(u64 word, u64 step)
{
	step *= 0x0101010101010101;
	return _mm512_setr_epi64(word, word + step, word + 2 * step, word + 3 * step,
				 word + 4 * step, word + 5 * step, word + 6 * step,
				 word + 7 * step);
}

#define UPWARDS		0x0706050403020100
#define DOWNWARDS	0x0001020304050607

/* 8 * @bits packed bytes -> their 64 groups as the low bits of bytes. @bits bytes are read as a
 * big-endian number into the low bytes of a word: its first group is on top. Indices of bytes count
 * modulo 64, so 56 stands for -8 and keeps them positive.
 */
THC_INLINE __m512i groups(const u8 *packed, int bits)
{
	__m512i bytes = _mm512_maskz_loadu_epi8((1ULL << 8 * bits) - 1, packed);
	__m512i order = words(DOWNWARDS + (u64)(56 + bits) * 0x0101010101010101, bits);

	return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(DOWNWARDS * bits),
					    _mm512_permutexvar_epi8(order, bytes));
}

/* The table of the levels' low bytes, repeated every 2^@bits entries, so that bits above an index
 * do not matter.
 */
THC_INLINE __m512i find_levels(const struct thc_pairs *p, int bits)
{
	__m512i levels =
		_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(load(p->level))),
				   _mm512_cvtepi16_epi8(load(p->level + 32)), 1);
	__m512i mask = _mm512_set1_epi8((1 << bits) - 1);

	return _mm512_permutexvar_epi8(_mm512_and_si512(words(UPWARDS, 8), mask), levels);
}

/* Two levels of 4 bits, by two indices of @bits bits. */
THC_INLINE __m512i find_pairs(const struct thc_pairs *p, int bits)
{
	__m512i levels = find_levels(p, bits), pair = words(UPWARDS, 8);
	__m512i low = _mm512_set1_epi8(0x0f);
	__m512i mask = _mm512_set1_epi8((1 << bits) - 1);
	__m512i first = _mm512_and_si512(_mm512_srli_epi16(pair, bits), mask);

	levels = _mm512_and_si512(levels, low);
	return _mm512_or_si512(_mm512_permutexvar_epi8(first, levels),
			       _mm512_slli_epi16(levels, 4));
}

THC_INLINE void add_row8(u64 *lanes, const u8 *in, __m512i table, int bits, int first)
{
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++)
		PUT(_mm512_add_epi64, i,
		    _mm512_permutexvar_epi8(groups(in + 8 * bits * i, bits), table));
}

THC_INLINE void add_row16(u64 *lanes, const u8 *in, const struct thc_pairs *p, int bits, int first)
{
	__m512i low = load(p->level), high = load(p->level + 32);
	__m512i mask = _mm512_set1_epi8((1 << bits) - 1);
	int i;

	for (i = 0; i < THC_LANE_BYTES / (2 * VECTOR); i++) {
		__m512i index = _mm512_and_si512(groups(in + 8 * bits * i, bits), mask);
		__m512i a = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(index));
		__m512i b = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(index, 1));

		PUT(_mm512_add_epi64, 2 * i, _mm512_permutex2var_epi16(low, a, high));
		PUT(_mm512_add_epi64, 2 * i + 1, _mm512_permutex2var_epi16(low, b, high));
	}
}

/* thc_lanes_group() */
THC_INLINE void add_row(u64 *lanes, const void *payload, const struct thc_pairs *p, int bits,
			int width, int first)
{
	if (width == 16)
		add_row16(lanes, payload, p, bits, first);
	else if (width == 8)
		add_row8(lanes, payload, find_levels(p, bits), bits, first);
	else
		add_row8(lanes, payload, find_pairs(p, bits), 2 * bits, first);
}

THC_SIMD_ADD(avx512, 8, _mm512_add_epi8)
THC_SIMD_ADD(avx512, 16, _mm512_add_epi16)
THC_SIMD_ADD(avx512, 32, _mm512_add_epi32)

static void avx512_nh(u64 *nh, const u32 *key, const void *data, int words)
{
	*nh = thc_nh_avx512(key, data, words);
}

THC_SIMD_OPS(avx512, "avx512");
#endif
