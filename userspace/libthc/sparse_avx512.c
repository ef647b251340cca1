// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The loops of sparse.h with AVX-512: registers are compressed and expanded by a mask. */
#include "codec_ops.h"
#include "sparse.h"

#ifdef THC_X86_KERNELS
#include <immintrin.h>

static uint32_t nonzero16(__m512 x)
{
	return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ);
}

static uint32_t negative16(__m512 x)
{
	return _mm512_movepi32_mask(_mm512_castps_si512(x));
}

/* The bits of 32 values; *@minus: of those that are -0. */
static uint32_t nonzero32(__m512 low, __m512 high, uint32_t *minus)
{
	uint32_t bits = nonzero16(low) | nonzero16(high) << 16;

	*minus |= (negative16(low) | negative16(high) << 16) & ~bits;
	return bits;
}

static bool nonzero(const float *x, size_t n, uint32_t *bits)
{
	size_t i, left = n % 32;
	uint32_t minus = 0;
	__mmask16 low, high;

	for (i = 0; i < n / 32; i++)
		bits[i] = nonzero32(_mm512_loadu_ps(x + 32 * i), _mm512_loadu_ps(x + 32 * i + 16),
				    &minus);
	if (!left)
		return minus;
	low = (__mmask16)(left < 16 ? (1U << left) - 1 : 0xffff);
	high = (__mmask16)(left > 16 ? (1U << (left - 16)) - 1 : 0);
	bits[i] = nonzero32(_mm512_maskz_loadu_ps(low, x + 32 * i),
			    _mm512_maskz_loadu_ps(high, x + 32 * i + 16), &minus);
	return minus;
}

/* A compressed store is slow: what is behind the values is overwritten by the next ones. */
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

const struct thc_sparse_ops thc_sparse_avx512 = { nonzero, pack, unpack, scatter };
#endif
