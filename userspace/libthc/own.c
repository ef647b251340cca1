// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* This rank's values of a sparse bucket. */
#include <string.h>

#include "own.h"
#include "sparse.h"

static size_t bytes_of_bits(const struct thc_own *o)
{
	return (size_t)o->all * THC_SCALE_WORDS * sizeof(*o->bits);
}

void thc_own_init(struct thc_own *o, const struct thc_sparse_ops *sparse, size_t count, size_t left)
{
	*o = (struct thc_own){
		.sparse = sparse, .room = count / THC_OWN_SHARE,
		.all = (uint32_t)((count + THC_SCALE_BLOCK - 1) / THC_SCALE_BLOCK),
	};
	if (thc_own_bytes(o) > left)
		o->room = 0;
}

size_t thc_own_bytes(const struct thc_own *o)
{
	return o->room ? bytes_of_bits(o) + (o->room + THC_PACK_SLACK) * sizeof(*o->values) : 0;
}

void thc_own_place(struct thc_own *o, void *at)
{
	o->bits = at;
	o->values = at ? (void *)((uint8_t *)at + bytes_of_bits(o)) : NULL;
}

void thc_own_add(struct thc_own *o, uint32_t block, const float *x, const uint32_t *bits,
		 size_t words)
{
	size_t n;

	if (!o->room || block != o->blocks)
		return;
	n = thc_bits_count(bits, words);
	if (n > o->room - o->count)
		return;
	memcpy(o->bits + (size_t)block * THC_SCALE_WORDS, bits, words * sizeof(*bits));
	o->sparse->pack(x, bits, words, o->values + o->count);
	o->count += n;
	o->blocks++;
}

bool thc_own_has(const struct thc_own *o, uint32_t block)
{
	return block < o->blocks;
}

static size_t copy(float *to, const float *from, size_t n)
{
	memcpy(to, from, n * sizeof(*to));
	return n;
}

void thc_own_pack(struct thc_own *o, uint32_t block, const uint32_t *set, size_t words,
		  float *values)
{
	const uint32_t *bits = o->bits + (size_t)block * THC_SCALE_WORDS;
	const float *own = o->values + o->taken;

	if (memcmp(bits, set, words * sizeof(*bits)))
		o->taken += o->sparse->widen(own, bits, set, words, values);
	else
		o->taken += copy(values, own, thc_bits_count(bits, words));
}
