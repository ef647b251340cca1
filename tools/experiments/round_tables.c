// SPDX-License-Identifier: GPL-2.0
/*
 * Rounds by tables: indices of b bits on their way up, sums of their levels on their way down.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <thc/types.h>

#include "codec.h"
#include "trial.h"

/* Coordinates of a chunk here; a chunk of b bits has 128 b bytes. */
#define CHUNK		1024

/* What a round by tables needs. */
struct memory {
	float *norms;
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
	free(m->norms);
}

static int memory_alloc(struct memory *m, const struct thc_codec *c, size_t blocks)
{
	size_t padded = blocks << c->block_log2;

	m->norms = calloc(blocks, sizeof(*m->norms));
	m->own = calloc(blocks, sizeof(*m->own));
	m->scratch = calloc(1, sizeof(*m->scratch) << c->block_log2);
	m->mean = calloc(padded, sizeof(*m->mean));
	m->packed = calloc(padded, 1);
	m->sums = calloc(padded, sizeof(*m->sums));
	m->counts = calloc(padded / CHUNK, sizeof(*m->counts));
	if (m->norms && m->own && m->scratch && m->mean && m->packed && m->sums && m->counts)
		return 0;
	memory_free(m);
	return -ENOMEM;
}

/* Bits that an index takes in a packet. */
static unsigned int field(const struct thc_codec *c)
{
	return c->table.bits < 4 ? 4 : c->table.bits;
}

/* Index @i of a stream of bits, coordinate 0 in the most significant bits of byte 0. */
static unsigned int index_at(const uint8_t *packed, unsigned int bits, size_t i)
{
	unsigned int index = 0, k;

	for (k = 0; k < bits; k++) {
		size_t bit = i * bits + k;

		index = index << 1 | (packed[bit / 8] >> (7 - bit % 8) & 1);
	}
	return index;
}

static int agree(const struct thc_codec *c, const struct trial *t, const float *x, struct memory *m)
{
	size_t blocks = thc_codec_blocks(c, t->count), i;
	uint32_t k;
	int ret;

	for (k = 0; k < t->ranks; k++) {
		struct thc_values v = { x + k * t->count, THC_FP32, t->count, NULL };

		ret = thc_codec_norms(c, &v, m->own, NULL);
		if (ret)
			return ret;
		for (i = 0; i < blocks; i++)
			m->norms[i] = fmaxf(m->norms[i], m->own[i]);
	}
	return 0;
}

static void contribute(const struct thc_codec *c, const struct trial *t, const float *x,
		       uint32_t rank, struct memory *m)
{
	size_t padded = thc_codec_blocks(c, t->count) << c->block_log2, i;
	struct thc_values v = { x + rank * t->count, THC_FP32, t->count, NULL };
	unsigned int bits = field(c);

	thc_codec_compress(c, &v, &(struct thc_blocks){ t->round, 0, m->norms, rank },
			   &(struct thc_chunks){ m->packed, CHUNK / 8 * bits, CHUNK },
			   &(struct thc_residual_at){ NULL, t->count, m->scratch });
	for (i = 0; i < padded; i++)
		m->sums[i] += c->table.value[index_at(m->packed, bits, i)];
}

/* Sums -> lanes of @width bits in the same memory. */
static void to_lanes(uint32_t *sums, size_t n, unsigned int width)
{
	uint8_t *lane = (uint8_t *)sums;
	size_t i;

	for (i = 0; i < n; i++) {
		uint32_t le = thc_le32(sums[i]);

		memmove(lane + i * width / 8, &le, width / 8);
	}
}

/**
 * round_by_table() - scheme thc
 * @x: floats of all ranks
 * @out: the mean, @t->count floats
 *
 * 0, -EINVAL for sums that do not fit lanes of @t->width bits, and errors of the codec.
 */
CALL int round_by_table(const struct trial *t, const struct thc_table *table, const float *x,
			float *out)
{
	struct memory m = { 0 };
	struct thc_codec c;
	size_t blocks, i;
	uint32_t k;
	int ret;

	if (t->width != 8 && t->width != 16)
		return -EINVAL;
	ret = thc_table_check(table, t->ranks, t->width);
	if (!ret)
		ret = thc_codec_init(&c, table, t->block_log2, t->seed, THC_SIMD_AUTO);
	if (ret)
		return ret;
	blocks = thc_codec_blocks(&c, t->count);
	ret = thc_codec_set_correlated(&c, t->correlated ? t->ranks : 0);
	if (!ret)
		ret = memory_alloc(&m, &c, blocks);
	if (ret)
		goto exit;
	ret = agree(&c, t, x, &m);
	if (ret)
		goto free;
	for (k = 0; k < t->ranks; k++)
		contribute(&c, t, x, k, &m);
	for (i = 0; i < blocks << c.block_log2 >> 10; i++)
		m.counts[i] = (uint16_t)t->ranks;
	to_lanes(m.sums, blocks << c.block_log2, t->width);
	thc_codec_decode(
		&c, &(struct thc_sums){ m.sums, CHUNK / 8 * t->width, CHUNK, t->width, m.counts },
		blocks, &(struct thc_blocks){ t->round, 0, m.norms, 0 }, m.mean);
	memcpy(out, m.mean, t->count * sizeof(*out));
free:
	memory_free(&m);
exit:
	thc_codec_exit(&c);
	return ret;
}
