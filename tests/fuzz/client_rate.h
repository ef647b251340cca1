/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fuzz_client: jobs with a rate, and all-reduces whose bits follow norms. What a round aims at
 * follows from the call and from norms of rounds up to two before it, and the claim says so; each
 * block's class follows from the norms that all ranks have. The mean is then what the codec makes
 * of exactly the lanes of these classes, and the error memory has what the mean lacks of this rank.
 */
#ifndef THC_FUZZ_CLIENT_RATE_H
#define THC_FUZZ_CLIENT_RATE_H

#include <math.h>

#include "client_aggregator.h"
#include "client_rounds.h"
#include "dtype.h"

#define BLOCK		1024U
#define BLOCKS_MAX	((VALUES_MAX + BLOCK - 1) / BLOCK)
/* Rounds of a trial that begin it, and have the rate. */
#define TRIAL_FIRST	4

/* --- the job ------------------------------------------------------------------------ */

/* What WELCOME says besides: more rows, whose levels are as far from each other, and the goal. */
static void rate_job(unsigned int which)
{
	static const uint64_t clamp[] = {
		0x3ff0000000000000, 0x3ff8000000000000, 0x4000000000000000,
		0,		    0x4008000000000000, 0x400c000000000000,
	};
	unsigned int ranks = thc_be16(w.welcome.w.ranks), bits, i;
	struct thc_spec s = { .rate_flags = which == 2 ? THC_RATE_F_TRY : 0 };
	struct thc_announcement *a = &w.more;
	uint16_t level[64];

	for (i = 0; i < 64; i++)
		level[i] = (uint16_t)i;
	for (bits = 1; bits <= 6; bits++) {
		unsigned int top = (1U << bits) - 1;
		const struct thc_table_row row = {
			.bits = (uint8_t)bits,
			.granularity = (uint16_t)top,
			.clamp = clamp[bits - 1],
			.level = level,
			.sum_width = top * ranks < 16 ? 4 : top * ranks < 256 ? 8 : 16,
		};

		if (bits != 4)
			thc_announce_row(a, &row);
	}
	*(which == 1 ? &s.error : &s.rate) = which == 1 ? 30000 : 5000;
	thc_announce_rate(a, &s);
	w.welcome.scheme.block_log2 = 10;
}

static bool has_rate(void)
{
	return w.rate.bits || w.rate.error;
}

/* --- the call ----------------------------------------------------------------------- */

/* Rounds of this session: which bucket, and whether it could have the job's rate on trial. */
static struct {
	uint64_t	group;
	uint64_t	key;
	bool		tried;
} begun[ROUNDS_MAX];

/* Of the scheme thc, with @how bits. */
static struct thc_call rated_call(uint8_t how)
{
	static const double rate[] = { 0.25, 1, 2, 4, 6, 9, 14, 24 };
	static const double error[] = { 1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5 };
	struct thc_call call = THC_CALL_INIT;

	call.group = how >> 6;
	switch (how & 7) {
	case 4:
	case 5:
		call.rate = rate[how >> 3 & 7];
		break;
	case 6:
		call.error = error[how >> 3 & 7];
		break;
	case 7:
		call.rate = THC_RATE_FIXED;
		break;
	}
	return call;
}

/* Buckets that share a goal come back, so they are of few lengths. */
static size_t rated_count(size_t count, const struct thc_call *call)
{
	static const size_t few[] = { 300, 1024, 1500, 2500 };

	return call->group ? few[count % 4] : count;
}

/* Blocks differ: two bits of @shape each. */
static float block_scale(uint8_t shape, size_t i)
{
	static const float scale[] = { 1, 0x1p-3f, 0x1p-7f, 0 };

	return scale[shape >> 2 * (i / BLOCK) & 3];
}

/* --- what it comes to ----------------------------------------------------------------- */

static bool is_tried(const struct thc_call *call)
{
	return w.rate.tried && call->rate == 0 && call->error == 0 &&
	       w.client->options.flags & THC_CLIENT_ERROR_FEEDBACK;
}

static void note_begun(const struct under_way *u)
{
	begun[u->round].group = u->call.group;
	begun[u->round].key = u->call.key;
	begun[u->round].tried = is_tried(&u->call);
}

/* In thousandths and millionths; 0, 0: the bits of the job's table. */
static struct thc_rate_goal goal_asked(const struct under_way *u)
{
	const struct thc_rate_goal fixed = { .bits = 0 };
	unsigned int before = 0, i;

	if (u->call.rate == THC_RATE_FIXED || !has_rate())
		return fixed;
	if (u->call.rate != 0 || u->call.error != 0)
		return (struct thc_rate_goal){
			.bits = (uint32_t)(u->call.rate * 1000 + 0.5),
			.error = (uint32_t)(u->call.error * 1e6 + 0.5),
		};
	if (w.rate.tried && !is_tried(&u->call))
		return fixed;
	for (i = 0; i < u->round; i++)
		before += begun[i].tried;
	if (w.rate.tried && before >= TRIAL_FIRST)
		return fixed;
	return (struct thc_rate_goal){ .bits = w.rate.bits, .error = w.rate.error };
}

/* The claims that all ranks have of a round: how often, at most, its key had a rate before. */
static uint32_t turn_of(const struct asked *claims)
{
	uint32_t turn = 0, r;

	for (r = 0; r < w.client->spec.ranks; r++) {
		uint32_t one = claims->lanes[CLAIM * r + 29] & 7;

		turn = one > turn ? one : turn;
	}
	return turn;
}

static uint32_t take_norms(const struct asked *a, uint32_t blocks, float *norm)
{
	uint32_t i;

	for (i = 0; i < blocks; i++)
		norm[i] = scale_from(a->lanes + 4 * i);
	return blocks;
}

static uint32_t blocks_of(size_t count)
{
	return (uint32_t)((count + BLOCK - 1) / BLOCK);
}

/* The last round up to @end that had a rate, of a group and a key; -1: there was none. */
static int last_of(uint64_t group, uint64_t key, int end)
{
	const struct asked *norms[ASKED_MAX];
	const uint8_t *claim;

	for (; end >= 0; end--) {
		if (begun[end].group != group || begun[end].key != key ||
		    chunks_of((unsigned int)end, true, norms) != 2 || !norms[1]->answered)
			continue;
		claim = norms[0]->at + sizeof(struct thc_hdr) + CLAIM * w.client->options.rank;
		/* of fixed bits: it says no rate */
		if (claim[17] >> 4 || claim[18] || claim[19])
			return end;
	}
	return -1;
}

static void add_round(struct thc_rate_bins *bins, int round)
{
	const struct asked *norms[ASKED_MAX];
	int16_t exponent[BLOCKS_MAX];
	float norm[BLOCKS_MAX];
	uint32_t blocks, i;

	chunks_of((unsigned int)round, true, norms);
	blocks = take_norms(norms[1], blocks_of(begun[round].key), norm);
	for (i = 0; i < blocks; i++)
		exponent[i] = thc_rate_exponent(norm[i]);
	thc_rate_add(bins, exponent, blocks, (turn_of(norms[0]) + 1) % 8);
}

/* What @u aims at, with the buckets of its group that the last step had. */
static struct thc_rate_goal goal_of(const struct under_way *u)
{
	static struct thc_rate_bins all, own;
	const struct thc_rate_goal asked_for = goal_asked(u);
	int end = (int)u->round - 2, last = last_of(u->call.group, u->call.key, end), i;

	if ((!asked_for.bits && !asked_for.error) || !u->call.group || last < 0)
		return asked_for;
	thc_rate_empty(&all);
	thc_rate_empty(&own);
	add_round(&own, last);
	/* those since then, and the one before: each with its last norms */
	for (i = last ? last - 1 : 0; i <= end; i++)
		if (last_of(u->call.group, begun[i].key, end) == i)
			add_round(&all, i);
	if (all.blocks == own.blocks)
		return asked_for;
	reached[SHARED].times++;
	return thc_rate_share(&compressor()->rate, &asked_for, &all, &own);
}

/* What this rank has claimed is what it had to aim at. */
static void check_claimed_rate(const struct under_way *u)
{
	const struct thc_rate_goal goal = goal_of(u);
	const struct asked *norms[ASKED_MAX];
	const uint8_t *call;

	if (!has_rate() || !chunks_of(u->round, true, norms))
		return;
	call = norms[0]->at + sizeof(struct thc_hdr) + CLAIM * w.client->options.rank + 16;
	require((call[1] >> 4 | call[2] << 4 | (uint32_t)call[3] << 12) ==
		thc_rate_chosen(w.client, &goal));
}

/**
 * struct rated - an all-reduce with a rate that has succeeded
 * @round: its answers
 * @mean, @own: out: what came back, and what this rank's part in it was
 */
struct rated {
	const struct asked	*data[ASKED_MAX];
	unsigned int		chunks;
	float			norm[BLOCKS_MAX];
	struct thc_rate_choice	choice;
	uint8_t			of[BLOCKS_MAX];
	float			mean[BLOCKS_MAX * BLOCK];
	float			own[BLOCKS_MAX * BLOCK];
};

/* Chunk @index of those of @bits bits. */
static const struct asked *chunk_of_class(const struct rated *d, unsigned int bits,
					  unsigned int index)
{
	unsigned int i;

	for (i = 0; i < d->chunks; i++)
		if (row_of(d->data[i]).bits == bits && !index--)
			return d->data[i];
	require(!"a class has its chunks");
	return NULL;
}

/* Block @block, number @at of its class, of @values values. */
static void take_block(struct rated *d, const struct under_way *u, uint32_t block, unsigned int at,
		       size_t values)
{
	unsigned int bits = d->of[block], width = thc_spec_row(&w.client->spec, bits).sum_width;
	unsigned int chunk = THC_COORDINATES(width), each = chunk < BLOCK ? chunk : BLOCK, k, i;
	static uint8_t lanes[2][THC_LANE_BYTES], own[2][THC_LANE_BYTES];
	const struct thc_blocks b = { u->round, block, &d->norm[block], 0 };
	struct thc_sums sums = { lanes, THC_LANE_BYTES, each, width, NULL };
	const struct thc_codec *codec = &compressor()->row[bits];
	uint16_t counts[2], with_us[2];

	memset(own, 0, sizeof(own));
	for (k = 0; k < BLOCK / each; k++) {
		unsigned int first = at * BLOCK + k * each;
		const struct asked *a = chunk_of_class(d, bits, first / chunk);

		require(a->answered);
		memcpy(lanes[k], a->lanes + first % chunk * width / 8, each * width / 8);
		counts[k] = a->count;
		with_us[k] = !a->without_us;
		for (i = 0; i < each; i++)
			put_lane(own[k], i, width,
				 row_of(a).level[own_level(a, first % chunk + i, bits)]);
	}
	sums.counts = counts;
	thc_codec_decode(codec, &sums, values, &b, d->mean + block * BLOCK);
	sums.at = own;
	sums.counts = with_us;
	thc_codec_decode(codec, &sums, values, &b, d->own + block * BLOCK);
}

/* What the rank had, and what it has lost before, is what it gave and what it has lost so far. */
static void check_memory(const struct rated *d, const struct under_way *u)
{
	static float was[VALUES_MAX], after[VALUES_MAX];
	size_t i;

	if (!(w.client->options.flags & THC_CLIENT_ERROR_FEEDBACK))
		return;
	thc_load(u->dtype, was, u->was, u->count);
	require(thc_error_export(w.client, u->call.key, after, u->count) == u->count);
	for (i = 0; i < u->count; i++) {
		float sum = was[i] + u->before[i];

		if (d->of[i / BLOCK])
			require(fabsf(after[i] + d->own[i] - sum) <= 2e-5f * d->norm[i / BLOCK]);
		else
			require(after[i] == sum);
	}
}

/* One whose norms and sums are all there, @norms: the answers of its agreement and its norms. */
static void check_rated(const struct under_way *u, const struct asked *const *norms)
{
	static struct thc_rate_bins bins;
	static struct rated d;
	uint32_t blocks = take_norms(norms[1], blocks_of(u->count), d.norm), i, k;
	unsigned int at[THC_RATE_CLASSES] = { 0 }, needed = 0;
	struct thc_rate_goal goal = goal_of(u);
	int16_t exponent[BLOCKS_MAX];
	uint8_t stored[VALUES_MAX * 4];

	goal.turn = turn_of(norms[0]);
	d.choice.of = d.of;
	thc_rate_choose(&compressor()->rate, &goal, d.norm, blocks, &bins, exponent, &d.choice);
	d.chunks = chunks_of(u->round, false, d.data);
	for (k = 1; k < THC_RATE_CLASSES; k++) {
		unsigned int width = thc_spec_row(&w.client->spec, k).sum_width, chunk;

		/* a class without a row has no blocks */
		if (!d.choice.blocks[k])
			continue;
		require(width);
		chunk = THC_COORDINATES(width);
		needed += (d.choice.blocks[k] * BLOCK + chunk - 1) / chunk;
	}
	require(d.chunks == needed);
	memset(d.mean, 0, sizeof(d.mean));
	memset(d.own, 0, sizeof(d.own));
	for (i = 0; i < blocks; i++) {
		size_t left = u->count - i * BLOCK;

		reached[LEFT_OUT].times += !d.of[i] && d.norm[i] > 0;
		if (d.of[i])
			take_block(&d, u, i, at[d.of[i]]++, left < BLOCK ? left : BLOCK);
	}
	thc_store(u->dtype, stored, d.mean, u->count);
	require(!memcmp(stored, u->buf, u->count * thc_dtype_size(u->dtype)));
	check_memory(&d, u);
	reached[RATED].times++;
	reached[TRIED].times += is_tried(&u->call);
}

#endif /* THC_FUZZ_CLIENT_RATE_H */
