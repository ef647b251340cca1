// SPDX-License-Identifier: GPL-2.0
/*
 * Speed of the scheme lhc's loops beside memcpy of the same floats, on one core, by how many of
 * them are not zero: scale and bits of each block (analyse); values that have a bit, to lanes of 32
 * bits (pack); sums to means in their places, zeros between them (unpack). A rank's own values are
 * put beside the bucket while it is analysed (analyse_own), and lanes are made of these (pack_own),
 * here of ranks that have the same places. The runs of all are interleaved, and medians are
 * compared. JSON on stdout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixed.h"
#include "loops.h"
#include "own.h"
#include "sparse.h"

#define BUCKET_MIB	25
#define COUNT		((size_t)BUCKET_MIB * 1024 * 1024 / sizeof(float))
#define BLOCKS		(COUNT / THC_SCALE_BLOCK)
#define RANKS		4

enum work { MEMCPY, ANALYSE, ANALYSE_EXACT, PACK, UNPACK, ANALYSE_OWN, PACK_OWN, WORKS };

static const char *const name[WORKS] = { "memcpy", "analyse",	  "analyse_exact", "pack",
					 "unpack", "analyse_own", "pack_own" };

/* Nonzero values in 10000. */
static const unsigned int densities[] = { 1000, 100, 10 };
enum { DENSITIES = sizeof(densities) / sizeof(*densities) };

struct bench {
	const struct thc_fixed_ops *fixed;
	const struct thc_sparse_ops *sparse;
	float			*values;
	float			*out;
	uint32_t		*bits;
	int32_t			*lanes;
	struct thc_scale	*scale;
	struct thc_own		own;
};

static void bench_init(struct bench *b)
{
	b->values = loops_buffer(COUNT * sizeof(float));
	b->out = loops_buffer(COUNT * sizeof(float));
	b->bits = loops_buffer(COUNT / 8);
	b->lanes = loops_buffer(COUNT * sizeof(int32_t));
	b->scale = loops_buffer(BLOCKS * sizeof(*b->scale));
	thc_own_init(&b->own, b->sparse, COUNT, SIZE_MAX);
	thc_own_place(&b->own, loops_buffer(thc_own_bytes(&b->own)));
}

static void fill(struct bench *b, unsigned int density)
{
	size_t i;

	srand48(1);
	for (i = 0; i < COUNT; i++)
		b->values[i] = lrand48() % 10000 < density ? (float)(drand48() - 0.5) : 0;
}

static void analyse(struct bench *b, bool exact)
{
	size_t i, bad;

	for (i = 0; i < BLOCKS; i++) {
		const float *x = b->values + i * THC_SCALE_BLOCK;

		thc_scale_measure(b->fixed, x, THC_SCALE_BLOCK, exact, &b->scale[i], &bad);
		b->sparse->mark(x, THC_SCALE_BLOCK, 1, b->bits + i * THC_SCALE_WORDS);
	}
}

static void pack(struct bench *b)
{
	float packed[THC_SCALE_BLOCK + THC_PACK_SLACK];
	int32_t *lanes = b->lanes;
	size_t i, n;

	for (i = 0; i < BLOCKS; i++) {
		n = b->sparse->pack(b->values + i * THC_SCALE_BLOCK, b->bits + i * THC_SCALE_WORDS,
				    THC_SCALE_WORDS, packed);
		b->fixed->fixed(packed, n, b->scale[i].top, thc_fixed_bits(32, RANKS), 32, lanes);
		lanes += n;
	}
}

static void analyse_own(struct bench *b)
{
	size_t i, bad;

	b->own.count = b->own.blocks = 0;
	for (i = 0; i < BLOCKS; i++) {
		const float *x = b->values + i * THC_SCALE_BLOCK;
		uint32_t *bits = b->bits + i * THC_SCALE_WORDS;

		thc_scale_measure(b->fixed, x, THC_SCALE_BLOCK, false, &b->scale[i], &bad);
		b->sparse->mark(x, THC_SCALE_BLOCK, 1, bits);
		thc_own_add(&b->own, (uint32_t)i, x, bits, THC_SCALE_WORDS);
	}
}

static void pack_own(struct bench *b)
{
	float packed[THC_SCALE_BLOCK + THC_PACK_SLACK];
	int32_t *lanes = b->lanes;
	size_t i, n;

	b->own.taken = 0;
	for (i = 0; i < BLOCKS; i++) {
		n = b->own.taken;
		thc_own_pack(&b->own, (uint32_t)i, b->bits + i * THC_SCALE_WORDS, THC_SCALE_WORDS,
			     packed);
		n = b->own.taken - n;
		b->fixed->fixed(packed, n, b->scale[i].top, thc_fixed_bits(32, RANKS), 32, lanes);
		lanes += n;
	}
}

static void unpack(struct bench *b)
{
	const struct thc_mean m = { 0x1p-29, RANKS, thc_fixed_bits(32, RANKS), false };
	const int32_t *lanes = b->lanes;
	float means[THC_SCALE_BLOCK];
	size_t i, n;

	for (i = 0; i < BLOCKS; i++) {
		n = thc_bits_count(b->bits + i * THC_SCALE_WORDS, THC_SCALE_WORDS);
		b->fixed->mean(lanes, 32, n, &m, means);
		b->sparse->unpack(means, b->bits + i * THC_SCALE_WORDS, THC_SCALE_WORDS,
				  b->out + i * THC_SCALE_BLOCK);
		lanes += n;
	}
}

static int run(void *context, int work, int number)
{
	struct bench *b = context;

	(void)number;
	if (work == MEMCPY)
		memcpy(b->out, b->values, COUNT * sizeof(float));
	else if (work == PACK)
		pack(b);
	else if (work == UNPACK)
		unpack(b);
	else if (work == ANALYSE_OWN)
		analyse_own(b);
	else if (work == PACK_OWN)
		pack_own(b);
	else
		analyse(b, work == ANALYSE_EXACT);
	__asm__ volatile("" : : "r"(b->out), "r"(b->lanes), "r"(b->bits) : "memory");
	return 0;
}

static void measure(struct bench *b, unsigned int density, int runs)
{
	double took[WORKS];
	int work;

	loops_measure(run, b, WORKS, runs, took);
	printf(",\n \"of_10000_%u\": {\"memcpy_ms\": %.3f", density, took[MEMCPY]);
	for (work = ANALYSE; work < WORKS; work++)
		printf(", \"%s_ms\": %.3f, \"%s_speed\": %.3f", name[work], took[work], name[work],
		       took[MEMCPY] / took[work]);
	printf("}");
}

int main(int argc, char **argv)
{
	const struct loops_options o = loops_parse(argc, argv);
	struct bench b = { .fixed = o.ops->fixed, .sparse = o.ops->sparse };
	unsigned int k;

	bench_init(&b);
	printf("{\"mib\": %d, \"runs\": %d, \"simd\": \"%s\"", BUCKET_MIB, o.runs, o.ops->name);
	for (k = 0; k < DENSITIES; k++) {
		fill(&b, densities[k]);
		measure(&b, densities[k], o.runs);
	}
	printf("}\n");
	return 0;
}
