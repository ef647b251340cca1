// SPDX-License-Identifier: GPL-2.0
/*
 * Rounds by tables: indices of b bits on their way up, sums of their levels on their way down.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "trial.h"

/* Coordinates of a chunk here, whatever the width of sums: those of the smallest block. */
#define CHUNK		(1U << THC_BLOCK_LOG2_MIN)

/* What a round by tables needs. */
struct memory {
	float *scales;
	float *own;
	float *scratch;
	float *mean;
	uint8_t *packed;
	uint32_t *sums;
	uint16_t *counts;
};

static void memory_free(struct memory *m)
{
	free(m->counts);
	free(m->sums);
	free(m->packed);
	free(m->mean);
	free(m->scratch);
	free(m->own);
	free(m->scales);
}

static int memory_alloc(struct memory *m, const struct thc_codec *c, size_t blocks)
{
	size_t padded = blocks << c->block_log2;

	m->scales = calloc(blocks * thc_codec_scales(c), sizeof(*m->scales));
	m->own = calloc(blocks * thc_codec_scales(c), sizeof(*m->own));
	m->scratch = calloc(1, sizeof(*m->scratch) << c->block_log2);
	m->mean = calloc(padded, sizeof(*m->mean));
	m->packed = calloc(padded, 1);
	m->sums = calloc(padded, sizeof(*m->sums));
	m->counts = calloc(padded / CHUNK, sizeof(*m->counts));
	if (m->scales && m->own && m->scratch && m->mean && m->packed && m->sums && m->counts)
		return 0;
	memory_free(m);
	return -ENOMEM;
}

static int agree(const struct thc_codec *c, const struct trial *t, const float *x, struct memory *m)
{
	size_t scales = thc_codec_blocks(c, t->count) * thc_codec_scales(c), i;
	uint32_t k;
	int ret;

	for (k = 0; k < t->ranks; k++) {
		struct thc_values v = { x + k * t->count, THC_FP32, t->count, NULL };

		ret = thc_codec_measure(c, &v, &(struct thc_blocks){ t->round, 0, NULL, k },
					&(struct thc_residual_at){ NULL, t->count, m->scratch },
					m->own, NULL);
		if (ret)
			return ret;
		for (i = 0; i < scales; i++)
			m->scales[i] = k ? fmaxf(m->scales[i], m->own[i]) : m->own[i];
	}
	return 0;
}

static void contribute(const struct thc_codec *c, const struct trial *t, const float *x,
		       uint32_t rank, struct memory *m)
{
	size_t padded = thc_codec_blocks(c, t->count) << c->block_log2, i;
	struct thc_values v = { x + rank * t->count, THC_FP32, t->count, NULL };
	unsigned int bits = c->table.bits;

	thc_codec_compress(c, &v, &(struct thc_blocks){ t->round, 0, m->scales, rank },
			   &(struct thc_chunks){ m->packed, CHUNK / 8 * bits, CHUNK },
			   &(struct thc_residual_at){ NULL, t->count, m->scratch });
	for (i = 0; i < padded; i++)
		m->sums[i] += c->table.value[index_at(m->packed, bits, i)];
}

/**
 * round_by_table() - schemes thc and, by ranges, uthc
 * @x: floats of all ranks
 * @out: the mean, @t->count floats
 *
 * 0, -EINVAL for a width that no job has, -ERANGE for sums that do not fit it, errors of the codec.
 */
CALL int round_by_table(const struct trial *t, const struct thc_table *table, const float *x,
			float *out)
{
	struct memory m = { 0 };
	struct thc_codec c;
	size_t blocks, i;
	uint32_t k;
	int ret;

	if (t->width != 4 && t->width != 8 && t->width != 16 && t->width != 32)
		return -EINVAL;
	ret = thc_table_check(table, t->ranks, t->width);
	if (!ret)
		ret = thc_codec_init(&c, table, t->block_log2, t->seed, THC_SIMD_AUTO);
	if (ret)
		return ret;
	blocks = thc_codec_blocks(&c, t->count);
	ret = thc_codec_set_correlated(&c, t->correlated ? t->ranks : 0);
	if (!ret)
		ret = thc_codec_set_form(&c, t->form);
	if (!ret)
		ret = memory_alloc(&m, &c, blocks);
	if (ret)
		goto exit;
	ret = agree(&c, t, x, &m);
	if (ret)
		goto free;
	for (k = 0; k < t->ranks; k++)
		contribute(&c, t, x, k, &m);
	for (i = 0; i < blocks << c.block_log2 >> THC_BLOCK_LOG2_MIN; i++)
		m.counts[i] = (uint16_t)t->ranks;
	to_lanes(m.sums, blocks << c.block_log2, t->width);
	thc_codec_decode(
		&c, &(struct thc_sums){ m.sums, CHUNK / 8 * t->width, CHUNK, t->width, m.counts },
		t->count, &(struct thc_blocks){ t->round, 0, m.scales, 0 }, m.mean);
	memcpy(out, m.mean, t->count * sizeof(*out));
free:
	memory_free(&m);
exit:
	thc_codec_exit(&c);
	return ret;
}
