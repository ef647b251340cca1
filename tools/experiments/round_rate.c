// SPDX-License-Identifier: GPL-2.0
/* Rounds with a rate: a block's norm says by which table it goes, or not at all. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "codec.h"
#include "rate.h"
#include "table.h"
#include "trial.h"

#define BLOCK	(1U << THC_RATE_BLOCK_LOG2)

/**
 * struct rate_trial - how bits are chosen; library.py has the same
 * @bits, @error: as in struct thc_rate_goal
 * @skips: blocks may be left out
 * @width: [b]: bits of a sum of indices of b bits
 */
struct rate_trial {
	uint32_t bits;
	uint32_t error;
	uint32_t turn;
	uint32_t skips;
	uint32_t width[THC_RATE_CLASSES];
};

/**
 * struct rate_outcome - what came of it
 * @blocks: by class
 * @expected: error of the mean, in parts of its square, were gradients equal
 * @sent, @skipped: squares of the agreed norms of blocks that were sent, and that were not
 * @lost: of the former, what is expected to be lost
 */
struct rate_outcome {
	uint32_t blocks[THC_RATE_CLASSES];
	double expected;
	double sent;
	double skipped;
	double lost;
};

/* A round: what all blocks have in common, and @norm, @exponent and @choice of each. */
struct rated {
	const struct trial *trial;
	const float *x;
	struct thc_codec codec[THC_RATE_CLASSES];
	struct thc_rate rate;
	float *norm;
	float *own;
	struct thc_rate_bins bins;
	int16_t *exponent;
	struct thc_rate_choice choice;
	uint32_t blocks;
};

static void rated_free(struct rated *r)
{
	unsigned int k;

	for (k = 0; k < THC_RATE_CLASSES; k++)
		thc_codec_exit(&r->codec[k]);
	free(r->choice.of);
	free(r->exponent);
	free(r->own);
	free(r->norm);
}

static int rated_init(struct rated *r, const struct rate_trial *how, const struct thc_table *table)
{
	const struct trial *t = r->trial;
	unsigned int k;
	int ret;

	r->rate.class[0].cost = THC_RATE_ONE;
	r->rate.class[0].error = THC_RATE_ONE;
	for (k = 1; k < THC_RATE_CLASSES; k++) {
		double cost = thc_table_nmse(&table[k], t->ranks);
		double error = t->correlated ? thc_table_nmse_correlated(&table[k], t->ranks) :
					       cost;

		ret = thc_table_check(&table[k], t->ranks, how->width[k]);
		if (!ret)
			ret = thc_codec_init(&r->codec[k], &table[k], THC_RATE_BLOCK_LOG2, t->seed,
					     THC_SIMD_AUTO);
		if (!ret)
			ret = thc_codec_set_correlated(&r->codec[k], t->correlated ? t->ranks : 0);
		if (ret)
			return ret;
		r->rate.class[k] = (struct thc_rate_class){ (uint8_t)k, (uint8_t)how->width[k],
							    (uint32_t)(cost * THC_RATE_ONE),
							    (uint32_t)(error * THC_RATE_ONE) };
	}
	thc_rate_init(&r->rate, how->skips);
	r->blocks = (uint32_t)thc_codec_blocks(&r->codec[1], t->count);
	r->norm = calloc(r->blocks, sizeof(*r->norm));
	r->own = calloc(r->blocks, sizeof(*r->own));
	r->exponent = calloc(r->blocks, sizeof(*r->exponent));
	r->choice.of = calloc(r->blocks, 1);
	return r->norm && r->own && r->exponent && r->choice.of ? 0 : -ENOMEM;
}

static int agree(struct rated *r)
{
	uint32_t k, i;
	int ret;

	for (k = 0; k < r->trial->ranks; k++) {
		struct thc_values v = { r->x + k * r->trial->count, THC_FP32, r->trial->count,
					NULL };

		ret = thc_codec_norms(&r->codec[1], &v, r->own, NULL);
		if (ret)
			return ret;
		for (i = 0; i < r->blocks; i++)
			r->norm[i] = fmaxf(r->norm[i], r->own[i]);
	}
	return 0;
}

/* The mean of a block of class @k, @count floats of which are the gradients'. */
static void reduce(const struct rated *r, uint32_t block, unsigned int k, size_t count, float *mean)
{
	const struct trial *t = r->trial;
	uint16_t ranks = (uint16_t)t->ranks;
	unsigned int width = r->rate.class[k].sum_width, i, rank;
	uint8_t packed[BLOCK];
	uint32_t sums[BLOCK] = { 0 };
	float scratch[BLOCK];

	for (rank = 0; rank < t->ranks; rank++) {
		struct thc_values v = { r->x + rank * t->count + (size_t)block * BLOCK, THC_FP32,
					count, NULL };

		thc_codec_compress(&r->codec[k], &v,
				   &(struct thc_blocks){ t->round, block, &r->norm[block], rank },
				   &(struct thc_chunks){ packed, BLOCK, BLOCK },
				   &(struct thc_residual_at){ NULL, count, scratch });
		for (i = 0; i < BLOCK; i++)
			sums[i] += r->codec[k].table.value[index_at(packed, k, i)];
	}
	to_lanes(sums, BLOCK, width);
	thc_codec_decode(&r->codec[k],
			 &(struct thc_sums){ sums, BLOCK * sizeof(*sums), BLOCK, width, &ranks },
			 count, &(struct thc_blocks){ t->round, block, &r->norm[block], 0 }, mean);
}

/**
 * round_by_rate() - scheme thc with a rate
 * @table: [b]: of b bits, 1 to 6
 * @x: floats of all ranks
 * @out: the mean, @t->count floats
 *
 * 0, errors of tables and codec.
 */
CALL int round_by_rate(const struct trial *t, const struct rate_trial *how,
		       const struct thc_table *table, const float *x, float *out,
		       struct rate_outcome *outcome)
{
	const struct thc_rate_goal goal = {
		.bits = how->bits, .error = how->error, .turn = how->turn,
	};
	struct rated r = { .trial = t, .x = x };
	int ret = rated_init(&r, how, table);
	uint32_t i;

	if (!ret)
		ret = agree(&r);
	if (!ret)
		thc_rate_choose(&r.rate, &goal, r.norm, r.blocks, &r.bins, r.exponent, &r.choice);
	for (i = 0; !ret && i < r.blocks; i++) {
		size_t left = t->count - (size_t)i * BLOCK, n = left < BLOCK ? left : BLOCK;
		float mean[BLOCK] = { 0 };

		if (r.choice.of[i])
			reduce(&r, i, r.choice.of[i], n, mean);
		memcpy(out + (size_t)i * BLOCK, mean, n * sizeof(*out));
	}
	*outcome = (struct rate_outcome){ 0 };
	if (r.choice.square > 0)
		outcome->expected = r.choice.lost / r.choice.square;
	memcpy(outcome->blocks, r.choice.blocks, sizeof(outcome->blocks));
	for (i = 0; !ret && i < r.blocks; i++) {
		double square = (double)r.norm[i] * r.norm[i];
		unsigned int k = r.choice.of[i];

		*(k ? &outcome->sent : &outcome->skipped) += square;
		outcome->lost += k ? square * r.rate.class[k].error / THC_RATE_ONE : 0;
	}
	rated_free(&r);
	return ret;
}
