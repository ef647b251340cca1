// SPDX-License-Identifier: GPL-2.0
/* The index of scheme lhc, as all ranks have it: how many words of it are sent. */
#include <errno.h>
#include <stdlib.h>

#include "codec_ops.h"
#include "index.h"
#include "trial.h"

/* Sends level @at of @x, whose own words are the union's. */
static void send_level(struct thc_index *x, unsigned int at)
{
	uint32_t lanes[THC_INDEX_CHUNK], chunks, k;
	bool all;

	chunks = thc_index_size(x, at, &all);
	for (k = 0; k < chunks; k++) {
		thc_index_fill(x, at, k, lanes);
		thc_index_answer(x, at, k, lanes);
	}
}

/**
 * round_by_index() - words of an index of a union
 * @count: coordinates; @bits: a bit each, those that the union has, in words of 32
 * @grain_log2: log2 of an item; @levels: 1 to 3
 * @words: how many are sent
 *
 * 0, -EINVAL, -ENOMEM.
 */
CALL int round_by_index(uint64_t count, uint32_t grain_log2, uint32_t levels, const uint32_t *bits,
			uint64_t *words)
{
	struct thc_layout l = { .at = NULL };
	struct thc_index x = { .levels = 0 };
	unsigned int at;
	void *memory;

	if (!count || count > UINT32_MAX || grain_log2 > 8 || !levels || levels > THC_INDEX_LEVELS)
		return -EINVAL;
	thc_index_init(&x, thc_simd_ops(THC_SIMD_AUTO)->sparse, count, grain_log2, levels);
	thc_index_lay_out(&x, &l);
	memory = calloc(1, l.bytes);
	if (!memory)
		return -ENOMEM;
	l = (struct thc_layout){ .at = memory };
	thc_index_lay_out(&x, &l);
	thc_index_put(&x, 0, bits, (count + 31) / 32);
	thc_index_rise(&x);
	*words = x.level[levels - 1].words;
	for (at = levels; at--;) {
		send_level(&x, at);
		*words += x.level[at].found;
	}
	free(memory);
	return 0;
}
