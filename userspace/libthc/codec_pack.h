/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Packing of indices, common to AVX2 and AVX-512. */
#ifndef LIBTHC_CODEC_PACK_H
#define LIBTHC_CODEC_PACK_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Most bits of an index: a pair of indices, times a power of two, is a signed word. */
#define PACK_BITS_MAX	6

/* By bits of an index: the order of the bytes of eight indices in each 64-bit word, which is
 * reversed.
 */
static const uint8_t pack_order[PACK_BITS_MAX + 1][16] = {
	[1] = { 0, 8 },
	[2] = { 1, 0, 9, 8 },
	[3] = { 2, 1, 0, 10, 9, 8 },
	[4] = { 3, 2, 1, 0, 11, 10, 9, 8 },
	[5] = { 4, 3, 2, 1, 0, 12, 11, 10, 9, 8 },
	[6] = { 5, 4, 3, 2, 1, 0, 13, 12, 11, 10, 9, 8 },
};

/* Packs sixteen indices, a byte each, as thc_pack_bits() does. */
static inline __attribute__((always_inline)) void pack_sixteen(const uint8_t *index,
							       unsigned int bits, uint8_t *to)
{
	__m128i v = _mm_loadu_si128((const __m128i *)index);

	/* the first of each two, four, eight is above the others */
	v = _mm_maddubs_epi16(v, _mm_set1_epi16((short)(1 << 8 | 1 << bits)));
	v = _mm_madd_epi16(v, _mm_set1_epi32(1 << 16 | 1 << 2 * bits));
	v = _mm_or_si128(_mm_slli_epi64(v, (int)(4 * bits)), _mm_srli_epi64(v, 32));
	v = _mm_shuffle_epi8(v, _mm_loadu_si128((const __m128i *)pack_order[bits]));
	memcpy(to, &v, 2 * bits);
}

#endif /* LIBTHC_CODEC_PACK_H */
