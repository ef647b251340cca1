// SPDX-License-Identifier: GPL-2.0
/*
 * Speed of the codec and of memcpy of the same floats, on one core. The four take turns, so that a
 * busy neighbour slows them alike, and medians are compared. JSON on stdout; a round over the
 * network is measured elsewhere.
 */
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "loops.h"
#include "rate.h"

#define BUCKET_MIB	25
#define RANKS		4

/* Bits up and down with a rate, as many as without; and the range of the blocks' norms in octaves.
 */
#define RATE		12000
#define OCTAVES		4

enum work {
	WORK_MEMCPY,
	WORK_COMPRESS,
	WORK_COMPRESS_EF,
	WORK_BLOCKS,
	WORK_BLOCKS_EF,
	WORK_RATED,
	WORK_RATED_EF,
	WORK_DECOMPRESS,
	WORKS
};

/* Error memory before and after a round. */
struct memory {
	float *now;
	float *next;
};

struct bench {
	struct thc_codec codec;
	size_t count;
	size_t blocks;
	size_t rate_blocks;
	unsigned int width;		/* of sums */
	unsigned int chunk;
	float *gradient, *copy, *out, *scratch, *norms;
	struct memory memory, rated_memory;
	uint8_t *packed, *lanes;
	uint16_t *counts;
	struct thc_codec row[THC_RATE_CLASSES];
	struct thc_rate rate;
	struct thc_rate_choice choice;
	struct thc_rate_bins bins;
	int16_t *exponent;
};

static void bench_init(struct bench *b)
{
	size_t padded, i;

	b->count = (size_t)BUCKET_MIB * 1024 * 1024 / sizeof(float);
	b->blocks = thc_codec_blocks(&b->codec, b->count);
	padded = b->blocks << b->codec.block_log2;
	b->gradient = loops_buffer(b->count * sizeof(float));
	b->copy = loops_buffer(b->count * sizeof(float));
	b->memory.now = loops_buffer(b->count * sizeof(float));
	b->memory.next = loops_buffer(b->count * sizeof(float));
	b->rated_memory.now = loops_buffer(b->count * sizeof(float));
	b->rated_memory.next = loops_buffer(b->count * sizeof(float));
	b->out = loops_buffer(padded * sizeof(float));
	b->scratch = loops_buffer(sizeof(float) << b->codec.block_log2);
	b->rate_blocks = (b->count >> THC_RATE_BLOCK_LOG2) + 1;
	b->norms = loops_buffer(b->rate_blocks * sizeof(float));
	b->width = thc_table_check(&b->codec.table, RANKS, 8) ? 16 : 8;
	b->chunk = THC_COORDINATES(b->width);
	b->packed = loops_buffer((padded + (1U << THC_RATE_BLOCK_LOG2)) / 8 * THC_TABLE_BITS_MAX);
	b->lanes = loops_buffer(padded / 8 * b->width);
	b->counts = loops_buffer(padded / b->chunk * sizeof(*b->counts));
	srand48(1);
	for (i = 0; i < b->count; i++)
		b->gradient[i] = ldexpf((float)(drand48() + drand48() + drand48() - 1.5),
					(int)((i >> b->codec.block_log2 >> 6) % (OCTAVES + 1)));
	for (i = 0; i < padded; i++) {
		long sum = lrand48() % (RANKS * b->codec.table.granularity + 1);

		b->lanes[i * b->width / 8] = (uint8_t)sum;
		if (b->width == 16)
			b->lanes[2 * i + 1] = (uint8_t)(sum >> 8);
	}
	for (i = 0; i < padded / b->chunk; i++)
		b->counts[i] = RANKS;
}

/* Norms of gradient + memory. The sum is stored where the new memory will be, and @v names it;
 * without a memory @v names the gradient.
 */
static int begin(struct bench *b, const struct thc_codec *c, struct memory *m, struct thc_values *v)
{
	float *next = m ? m->next : NULL;
	int ret;

	*v = (struct thc_values){ b->gradient, THC_FP32, b->count, m ? m->now : NULL };
	ret = thc_codec_measure(c, v, &(struct thc_blocks){ .round = 0 },
				&(struct thc_residual_at){ next, b->count, b->scratch }, b->norms,
				NULL);
	if (!m)
		return ret;
	*v = (struct thc_values){ next, THC_FP32, b->count, NULL };
	m->next = m->now;
	m->now = next;
	return ret;
}

static int compress(struct bench *b, struct memory *m, uint64_t round)
{
	struct thc_values v;
	int ret = begin(b, &b->codec, m, &v);

	if (!ret)
		thc_codec_compress(
			&b->codec, &v, &(struct thc_blocks){ round, 0, b->norms, 0 },
			&(struct thc_chunks){ b->packed, b->chunk / 8 * b->codec.table.bits,
					      b->chunk },
			&(struct thc_residual_at){ m ? m->now : NULL, b->count, b->scratch });
	return ret;
}

/* The rows that thcd makes for a rate, and their classes. */
static int rate_init(struct bench *b, unsigned int correlated, enum thc_simd simd)
{
	struct thc_table_wish wish = { .size = sizeof(wish), .ranks = RANKS };
	struct thc_table table;
	unsigned int k;
	int ret = 0;

	b->rate.class[0] = (struct thc_rate_class){ 0, 0, THC_RATE_ONE, THC_RATE_ONE };
	for (k = 1; k < THC_RATE_CLASSES && !ret; k++) {
		wish.bits = k;
		wish.width = k < 3 ? 4 : 8;
		ret = thc_table_choose(&wish, &table);
		if (!ret)
			ret = thc_codec_init(&b->row[k], &table, THC_RATE_BLOCK_LOG2, 1, simd);
		if (!ret)
			ret = thc_codec_set_correlated(&b->row[k], correlated);
		b->rate.class[k] = (struct thc_rate_class){
			(uint8_t)k, (uint8_t)wish.width,
			(uint32_t)(thc_table_nmse(&table, RANKS) * THC_RATE_ONE), 0,
		};
	}
	thc_rate_init(&b->rate, true);
	b->rate_blocks = thc_codec_blocks(&b->row[1], b->count);
	b->exponent = loops_buffer(b->rate_blocks * sizeof(*b->exponent));
	b->choice.of = loops_buffer(b->rate_blocks);
	return ret;
}

/* Compresses block @i to @to; returns the place of the next block. */
static uint8_t *compress_block(struct bench *b, const struct thc_codec *codec,
			       const struct thc_values *v, const struct memory *m, uint64_t round,
			       size_t i, uint8_t *to)
{
	size_t block = (size_t)1 << codec->block_log2, at = i * block, left = b->count - at;
	size_t n = left < block ? left : block, bytes = block / 8 * codec->table.bits;

	thc_codec_compress(codec,
			   &(struct thc_values){ (const float *)v->x + at, THC_FP32, n, NULL },
			   &(struct thc_blocks){ round, i, &b->norms[i], 0 },
			   &(struct thc_chunks){ to, bytes, (unsigned int)block },
			   &(struct thc_residual_at){ m ? m->now + at : NULL, n, b->scratch });
	return to + bytes;
}

/* Norms and compression block by block, as in libthc: with a rate class by class. */
static int compress_blocks(struct bench *b, struct memory *m, uint64_t round, bool rated)
{
	const struct thc_rate_goal goal = {
		.bits = RATE, .turn = (uint32_t)round % THC_RATE_ROUNDS,
	};
	struct thc_values v;
	int ret = begin(b, &b->row[1], m, &v);
	uint8_t *to = b->packed;
	unsigned int k;
	size_t i;

	if (ret)
		return ret;
	for (i = 0; !rated && i < b->rate_blocks; i++)
		to = compress_block(b, &b->row[4], &v, m, round, i, to);
	if (!rated)
		return 0;
	thc_rate_choose(&b->rate, &goal, b->norms, (uint32_t)b->rate_blocks, &b->bins, b->exponent,
			&b->choice);
	for (k = 1; k < THC_RATE_CLASSES; k++)
		for (i = 0; i < b->rate_blocks; i++)
			if (b->choice.of[i] == k)
				to = compress_block(b, &b->row[k], &v, m, round, i, to);
	return 0;
}

static int bench_run(struct bench *b, enum work work, uint64_t round)
{
	switch (work) {
	case WORK_MEMCPY:
		memcpy(b->copy, b->gradient, b->count * sizeof(float));
		__asm__ volatile("" : : "r"(b->copy) : "memory");
		return 0;
	case WORK_COMPRESS:
		return compress(b, NULL, round);
	case WORK_COMPRESS_EF:
		return compress(b, &b->memory, round);
	case WORK_BLOCKS:
		return compress_blocks(b, NULL, round, false);
	case WORK_BLOCKS_EF:
		return compress_blocks(b, &b->memory, round, false);
	case WORK_RATED:
		return compress_blocks(b, NULL, round, true);
	case WORK_RATED_EF:
		return compress_blocks(b, &b->rated_memory, round, true);
	default:
		thc_codec_decode(&b->codec,
				 &(struct thc_sums){ b->lanes, THC_LANE_BYTES, b->chunk, b->width,
						     b->counts },
				 b->count, &(struct thc_blocks){ round, 0, b->norms, 0 }, b->out);
		return 0;
	}
}

static void report(const struct bench *b, double took[WORKS], int runs)
{
	double gib = (double)b->count * sizeof(float) / (1 << 30);

	printf("{\"simd\": \"%s\", \"block_log2\": %u, \"bits\": %u, \"granularity\": %u, "
	       "\"mib\": %d, \"runs\": %d,\n",
	       thc_codec_simd_name(&b->codec), b->codec.block_log2, b->codec.table.bits,
	       b->codec.table.granularity, BUCKET_MIB, runs);
	printf(" \"memcpy_gib_s\": %.3f, \"compress_ratio\": %.4f, \"compress_ef_ratio\": %.4f, "
	       "\"decompress_ratio\": %.4f,\n", gib / (took[WORK_MEMCPY] * 1e-3),
	       took[WORK_MEMCPY] / took[WORK_COMPRESS],
	       took[WORK_MEMCPY] / took[WORK_COMPRESS_EF],
	       took[WORK_MEMCPY] / took[WORK_DECOMPRESS]);
	printf(" \"rated_ratio\": %.4f, \"rated_ef_ratio\": %.4f, \"rated_ms\": %.3f, "
	       "\"rated_ef_ms\": %.3f,\n",
	       took[WORK_RATED] / took[WORK_BLOCKS], took[WORK_RATED_EF] / took[WORK_BLOCKS_EF],
	       took[WORK_RATED], took[WORK_RATED_EF]);
	printf(" \"memcpy_ms\": %.3f, \"compress_ms\": %.3f, \"compress_ef_ms\": %.3f, "
	       "\"decompress_ms\": %.3f}\n",
	       took[WORK_MEMCPY], took[WORK_COMPRESS], took[WORK_COMPRESS_EF],
	       took[WORK_DECOMPRESS]);
}

static int once(void *context, int work, int run)
{
	return bench_run(context, work, (uint64_t)run);
}

static int measure(struct bench *b, int runs)
{
	double took[WORKS];
	int ret = loops_measure(once, b, WORKS, runs, took);

	if (!ret)
		report(b, took, runs);
	return ret;
}

static void bench_exit(struct bench *b)
{
	unsigned int k;

	for (k = 0; k < THC_RATE_CLASSES; k++)
		thc_codec_exit(&b->row[k]);
	thc_codec_exit(&b->codec);
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: bench_codec [--simd auto|scalar|avx2|avx512] [--block LOG2] "
		"[--bits B]\n                   [--granularity G] [--independent] [--quick] [--runs N]\n"
		"As thcd sets up a job of %d ranks, unless told otherwise.\n",
		RANKS);
}

/* Bits other than 4: uniform, unless @granularity says otherwise. */
static int make_table(unsigned int bits, unsigned int granularity, struct thc_table *out)
{
	const struct thc_table_wish wish = {
		.size = sizeof(wish), .bits = 4, .ranks = RANKS, .width = 8,
	};

	if (bits == 4 && !granularity)
		return thc_table_choose(&wish, out);
	return thc_table_solve(bits, granularity ? granularity : (1U << bits) - 1, 1.0 / 32, out);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "simd", required_argument, NULL, 's' },
		{ "block", required_argument, NULL, 'b' },
		{ "bits", required_argument, NULL, 'w' },
		{ "granularity", required_argument, NULL, 'g' },
		{ "independent", no_argument, NULL, 'i' },
		{ "quick", no_argument, NULL, 'q' },
		{ "runs", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	unsigned int block_log2 = 10, bits = 4, granularity = 0, correlated = RANKS;
	enum thc_simd simd = THC_SIMD_AUTO;
	int opt, ret, runs = LOOPS_RUNS;
	struct thc_table table;
	struct bench b = { .count = 0 };

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 's' && !parse_simd(optarg, &simd))
			continue;
		if (opt == 'h') {
			usage(stdout);
			return 0;
		}
		if (opt == 'b')
			block_log2 = (unsigned int)strtoul(optarg, NULL, 10);
		else if (opt == 'w')
			bits = (unsigned int)strtoul(optarg, NULL, 10);
		else if (opt == 'g')
			granularity = (unsigned int)strtoul(optarg, NULL, 10);
		else if (opt == 'i')
			correlated = 0;
		else if (opt == 'q')
			runs = LOOPS_RUNS_QUICK;
		else if (opt == 'r' && atoi(optarg) > 0 && atoi(optarg) <= LOOPS_RUNS)
			runs = atoi(optarg);
		else {
			usage(stderr);
			return 2;
		}
	}
	ret = make_table(bits, granularity, &table);
	if (!ret)
		ret = thc_table_check(&table, RANKS, 16);
	if (!ret)
		ret = thc_codec_init(&b.codec, &table, block_log2, 1, simd);
	if (!ret)
		ret = thc_codec_set_correlated(&b.codec, correlated);
	if (ret) {
		fprintf(stderr, "bench_codec: %s\n", strerror(-ret));
		return 1;
	}
	bench_init(&b);
	ret = rate_init(&b, correlated, simd);
	if (!ret)
		ret = measure(&b, runs);
	bench_exit(&b);
	return ret ? 1 : 0;
}
