// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The loops of sparse.h with AVX-512: registers are compressed and expanded by a mask. */
#include "codec_ops.h"
#include "sparse.h"

#ifdef THC_X86_KERNELS
#include <immintrin.h>

/* Marks 16 values; *@others: bits of the values without a mark. */
static uint32_t mark16(__m512 x, __m512i least, __m512i *others)
{
	__m512i v = _mm512_castps_si512(x);
	__mmask16 set =
		_mm512_cmpge_epi32_mask(_mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff)), least);

	*others = _mm512_mask_or_epi32(*others, _knot_mask16(set), *others, v);
	return set;
}

static bool mark(const float *x, size_t n, uint32_t least, uint32_t *bits)
{
	const __m512i bound = _mm512_set1_epi32((int)least);
	__m512i others = _mm512_setzero_si512();
	size_t i, left = n % 32;
	__mmask16 low, high;

	for (i = 0; i < n / 32; i++)
		bits[i] = mark16(_mm512_loadu_ps(x + 32 * i), bound, &others) |
			  mark16(_mm512_loadu_ps(x + 32 * i + 16), bound, &others) << 16;
	if (left) {
		low = (__mmask16)(left < 16 ? (1U << left) - 1 : 0xffff);
		high = (__mmask16)(left > 16 ? (1U << (left - 16)) - 1 : 0);
		bits[i] = mark16(_mm512_maskz_loadu_ps(low, x + 32 * i), bound, &others) |
			  mark16(_mm512_maskz_loadu_ps(high, x + 32 * i + 16), bound, &others)
				  << 16;
	}
	return _mm512_test_epi32_mask(others, others);
}

/* A compressed store is slow. This store writes floats behind the values, which the next values
 * overwrite.
 */
static size_t pack16(__m512 x, uint32_t bits, float *values)
{
	_mm512_storeu_ps(values, _mm512_maskz_compress_ps((__mmask16)bits, x));
	return (size_t)__builtin_popcount(bits);
}

static size_t pack32(const float *x, uint32_t bits, float *values)
{
	size_t n = pack16(_mm512_loadu_ps(x), bits & 0xffff, values);

	return n + pack16(_mm512_loadu_ps(x + 16), bits >> 16, values + n);
}

/* Reads no float but those whose bit is set. */
static size_t pack_last(const float *x, uint32_t bits, float *values)
{
	const __mmask16 low = (__mmask16)bits, high = (__mmask16)(bits >> 16);
	size_t n = pack16(_mm512_maskz_loadu_ps(low, x), low, values);

	return n + pack16(_mm512_maskz_loadu_ps(high, x + 16), high, values + n);
}

static size_t pack(const float *x, const uint32_t *bits, size_t words, float *values)
{
	return thc_pack_by_words(x, bits, words, values, pack32, pack_last);
}

static size_t unpack16(const float *values, uint32_t bits, float *x)
{
	const __mmask16 mask = (__mmask16)bits;
	unsigned int n = (unsigned int)__builtin_popcount(mask);
	__m512 packed = _mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1), values);

	_mm512_storeu_ps(x, _mm512_maskz_expand_ps(mask, packed));
	return n;
}

static size_t unpack(const float *values, const uint32_t *bits, size_t words, float *x)
{
	size_t n = 0, i;

	for (i = 0; i < words; i++) {
		if (!bits[i]) {
			_mm512_storeu_ps(x + 32 * i, _mm512_setzero_ps());
			_mm512_storeu_ps(x + 32 * i + 16, _mm512_setzero_ps());
			continue;
		}
		n += unpack16(values + n, bits[i] & 0xffff, x + 32 * i);
		n += unpack16(values + n, bits[i] >> 16, x + 32 * i + 16);
	}
	return n;
}

static size_t scatter16(const float *values, uint32_t bits, float *x)
{
	const __mmask16 mask = (__mmask16)bits;
	unsigned int n = (unsigned int)__builtin_popcount(mask);
	__m512 packed = _mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1), values);

	_mm512_mask_storeu_ps(x, mask, _mm512_maskz_expand_ps(mask, packed));
	return n;
}

static void scatter(const float *values, const uint32_t *bits, size_t words, float *x)
{
	size_t n = 0, i;

	for (i = 0; i < words; i++) {
		if (!bits[i])
			continue;
		n += scatter16(values + n, bits[i] & 0xffff, x + 32 * i);
		n += scatter16(values + n, bits[i] >> 16, x + 32 * i + 16);
	}
}

static size_t widen(const float *values, const uint32_t *own, const uint32_t *bits, size_t words,
		    float *wide)
{
	size_t n = 0, taken = 0, i, k;

	for (i = 0; i < words; i++) {
		for (k = 0; bits[i] && k < 32; k += 16) {
			const __mmask16 mine = (__mmask16)(own[i] >> k);
			__m512 x = _mm512_maskz_expand_ps(mine, _mm512_loadu_ps(values + taken));

			taken += (size_t)__builtin_popcount(mine);
			n += pack16(x, bits[i] >> k & 0xffff, wide + n);
		}
	}
	return taken;
}

const struct thc_sparse_ops thc_sparse_avx512 = { mark, pack, unpack, scatter, widen };
#endif
