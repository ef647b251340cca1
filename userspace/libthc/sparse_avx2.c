// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The loops of sparse.h with AVX2: tables indexed by the bits permute eight floats. */
#include "codec_ops.h"
#include "sparse.h"

#ifdef THC_X86_KERNELS
#include <immintrin.h>
#include <string.h>

/* Bits of @b below bit @i. */
#define BELOW(b, i)	((uint64_t)__builtin_popcount((b) & ((1U << (i)) - 1)))
/* A byte for each of eight places: which float goes there. */
#define PACKED(b, i)	((b) >> (i)&1 ? (uint64_t)(i) << 8 * BELOW(b, i) : 0)
#define UNPACKED(b, i)	(BELOW(b, i) << 8 * (i))

#define EIGHT(one, b) \
	(one(b, 0) | one(b, 1) | one(b, 2) | one(b, 3) | one(b, 4) | one(b, 5) | one(b, 6) | \
	 one(b, 7))
#define BY_4(one, b)	EIGHT(one, b), EIGHT(one, b + 1), EIGHT(one, b + 2), EIGHT(one, b + 3)
#define BY_16(one, b)	BY_4(one, b), BY_4(one, b + 4), BY_4(one, b + 8), BY_4(one, b + 12)
#define BY_64(one, b)	BY_16(one, b), BY_16(one, b + 16), BY_16(one, b + 32), BY_16(one, b + 48)
#define BY_256(one)	BY_64(one, 0), BY_64(one, 64), BY_64(one, 128), BY_64(one, 192)

static const uint64_t packed_places[256] = { BY_256(PACKED) };
static const uint64_t unpacked_places[256] = { BY_256(UNPACKED) };

static __m256i places(const uint64_t *table, uint32_t bits)
{
	return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)table[bits]));
}

/* All ones where a bit is set. */
static __m256i lanes_of(uint32_t bits)
{
	const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);

	return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), each), each);
}

static bool mark(const float *x, size_t n, uint32_t least, uint32_t *bits)
{
	const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
	const __m256i below = _mm256_set1_epi32((int)least - 1);
	__m256i others = _mm256_setzero_si256();
	size_t i, k;

	for (i = 0; i < n / 32; i++) {
		uint32_t word = 0;

		for (k = 0; k < 4; k++) {
			__m256i v = _mm256_loadu_si256((const void *)(x + 32 * i + 8 * k));
			__m256i set = _mm256_cmpgt_epi32(_mm256_and_si256(v, magnitude), below);

			word |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(set)) << 8 * k;
			others = _mm256_or_si256(others, _mm256_andnot_si256(set, v));
		}
		bits[i] = word;
	}
	if (n % 32)
		bits[i] = 0;
	return thc_mark_singly(x, 32 * i, n, least, bits) || !_mm256_testz_si256(others, others);
}

static size_t pack8(__m256 x, uint32_t bits, float *values)
{
	_mm256_storeu_ps(values, _mm256_permutevar8x32_ps(x, places(packed_places, bits)));
	return (size_t)__builtin_popcount(bits);
}

static size_t pack32(const float *x, uint32_t bits, float *values)
{
	size_t n = 0, k;

	for (k = 0; k < 4; k++)
		n += pack8(_mm256_loadu_ps(x + 8 * k), bits >> 8 * k & 0xff, values + n);
	return n;
}

/* Reads no float but those whose bit is set. */
static size_t pack_last(const float *x, uint32_t bits, float *values)
{
	size_t n = 0, k;

	for (k = 0; k < 4; k++)
		n += pack8(_mm256_maskload_ps(x + 8 * k, lanes_of(bits >> 8 * k & 0xff)),
			   bits >> 8 * k & 0xff, values + n);
	return n;
}

static size_t pack(const float *x, const uint32_t *bits, size_t words, float *values)
{
	return thc_pack_by_words(x, bits, words, values, pack32, pack_last);
}

/* The first floats of @v at the places that have a bit, 0 at others. */
static __m256 expanded8(__m256 v, uint32_t bits)
{
	v = _mm256_permutevar8x32_ps(v, places(unpacked_places, bits));
	return _mm256_and_ps(v, _mm256_castsi256_ps(lanes_of(bits)));
}

static size_t unpack8(const float *values, uint32_t bits, float *x)
{
	const unsigned int n = (unsigned int)__builtin_popcount(bits);
	__m256 v = _mm256_maskload_ps(values, lanes_of((1U << n) - 1));

	_mm256_storeu_ps(x, expanded8(v, bits));
	return n;
}

static size_t unpack(const float *values, const uint32_t *bits, size_t words, float *x)
{
	size_t n = 0, i, k;

	for (i = 0; i < words; i++) {
		if (!bits[i])
			memset(x + 32 * i, 0, 32 * sizeof(*x));
		for (k = 0; bits[i] && k < 4; k++)
			n += unpack8(values + n, bits[i] >> 8 * k & 0xff, x + 32 * i + 8 * k);
	}
	return n;
}

/* Few values of a word as a rule: one after the other is no slower than by registers. */
static void scatter(const float *values, const uint32_t *bits, size_t words, float *x)
{
	thc_scatter_singly(values, bits, words, x);
}

static size_t widen(const float *values, const uint32_t *own, const uint32_t *bits, size_t words,
		    float *wide)
{
	size_t n = 0, taken = 0, i, k;

	for (i = 0; i < words; i++) {
		for (k = 0; bits[i] && k < 32; k += 8) {
			uint32_t mine = own[i] >> k & 0xff;
			__m256 x = expanded8(_mm256_loadu_ps(values + taken), mine);

			taken += (size_t)__builtin_popcount(mine);
			n += pack8(x, bits[i] >> k & 0xff, wide + n);
		}
	}
	return taken;
}

const struct thc_sparse_ops thc_sparse_avx2 = { mark, pack, unpack, scatter, widen };
#endif
