// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The loops of sparse.h for any CPU. */
#include <string.h>

#include "codec_ops.h"
#include "sparse.h"

static bool mark(const float *x, size_t n, uint32_t least, uint32_t *bits)
{
	memset(bits, 0, (n + 31) / 32 * sizeof(*bits));
	return thc_mark_singly(x, 0, n, least, bits);
}

static size_t pack(const float *x, const uint32_t *bits, size_t words, float *values)
{
	size_t n = 0, i;
	uint32_t left;

	for (i = 0; i < words; i++)
		for (left = bits[i]; left; left &= left - 1)
			memcpy(values + n++, x + 32 * i + (size_t)__builtin_ctz(left), sizeof(*x));
	return n;
}

static void scatter(const float *values, const uint32_t *bits, size_t words, float *x)
{
	thc_scatter_singly(values, bits, words, x);
}

static size_t unpack(const float *values, const uint32_t *bits, size_t words, float *x)
{
	memset(x, 0, 32 * words * sizeof(*x));
	scatter(values, bits, words, x);
	return thc_bits_count(bits, words);
}

static size_t widen(const float *values, const uint32_t *own, const uint32_t *bits, size_t words,
		    float *wide)
{
	size_t n = 0, taken = 0, i;
	uint32_t left;

	for (i = 0; i < words; i++)
		for (left = bits[i]; left; left &= left - 1)
			wide[n++] = own[i] & left & -left ? values[taken++] : 0;
	return taken;
}

const struct thc_sparse_ops thc_sparse_scalar = { mark, pack, unpack, scatter, widen };
