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

static void nonzero(const float *x, size_t n, uint32_t *bits)
{
	size_t i, left = n % 32;
	__mmask16 low, high;

	for (i = 0; i < n / 32; i++)
		bits[i] = nonzero16(_mm512_loadu_ps(x + 32 * i)) |
			  nonzero16(_mm512_loadu_ps(x + 32 * i + 16)) << 16;
	if (!left)
		return;
	low = (__mmask16)(left < 16 ? (1U << left) - 1 : 0xffff);
	high = (__mmask16)(left > 16 ? (1U << (left - 16)) - 1 : 0);
	bits[i] = nonzero16(_mm512_maskz_loadu_ps(low, x + 32 * i));
	if (high)
		bits[i] |= nonzero16(_mm512_maskz_loadu_ps(high, x + 32 * i + 16)) << 16;
}

/* To memory, a compressed store is slow: what is behind the values is overwritten by the next. */
static size_t pack16(const float *x, uint32_t bits, float *values)
{
	const __mmask16 mask = (__mmask16)bits;
	unsigned int n = (unsigned int)__builtin_popcount(mask);
	__m512 packed = _mm512_maskz_compress_ps(mask, _mm512_maskz_loadu_ps(mask, x));

	_mm512_mask_storeu_ps(values, (__mmask16)((1U << n) - 1), packed);
	return n;
}

static size_t pack(const float *x, const uint32_t *bits, size_t words, float *values)
{
	size_t n = 0, i;

	for (i = 0; i < words; i++) {
		if (!bits[i])
			continue;
		n += pack16(x + 32 * i, bits[i] & 0xffff, values + n);
		n += pack16(x + 32 * i + 16, bits[i] >> 16, values + n);
	}
	return n;
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

const struct thc_sparse_ops thc_sparse_avx512 = { nonzero, pack, unpack };
#endif
