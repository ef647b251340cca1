// SPDX-License-Identifier: GPL-2.0
/*
 * Speed of the scheme lhc's loops beside memcpy of the same floats, on one core, by how many of
 * them are not zero: scale and bits of each block (analyse); values that have a bit, to lanes of 32
 * bits (pack); sums to means in their places, zeros between them (unpack). A rank's own values are
 * put beside the bucket while it is analysed (analyse_own), and lanes are made of these (pack_own),
 * here of ranks that have the same places. The runs of all are interleaved, and medians are
 * compared. JSON on stdout.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec_ops.h"
#include "fixed.h"
#include "loops.h"
#include "own.h"
#include "samples.h"
#include "sparse.h"

#define BUCKET_MIB	25
#define COUNT		((size_t)BUCKET_MIB * 1024 * 1024 / sizeof(float))
#define BLOCKS		(COUNT / THC_SCALE_BLOCK)
#define RUNS		31
#define RUNS_QUICK	15
#define RANKS		4

enum work { MEMCPY, ANALYSE, ANALYSE_EXACT, PACK, UNPACK, ANALYSE_OWN, PACK_OWN, WORKS };

static const char *const name[WORKS] = { "memcpy", "analyse",	  "analyse_exact", "pack",
					 "unpack", "analyse_own", "pack_own" };

/* Of 10000 values so many are not zero. */
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

static void *buffer(size_t size)
{
	void *p = aligned_alloc(64, size);

	if (!p) {
		fprintf(stderr, "bench_sparse: out of memory\n");
		exit(1);
	}
	memset(p, 0, size);
	return p;
}

static void bench_init(struct bench *b)
{
	b->values = buffer(COUNT * sizeof(float));
	b->out = buffer(COUNT * sizeof(float));
	b->bits = buffer(COUNT / 8);
	b->lanes = buffer(COUNT * sizeof(int32_t));
	b->scale = buffer((BLOCKS * sizeof(*b->scale) + 63) & ~(size_t)63);
	thc_own_init(&b->own, b->sparse, COUNT, SIZE_MAX);
	thc_own_place(&b->own, buffer((thc_own_bytes(&b->own) + 63) & ~(size_t)63));
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

static void run(struct bench *b, enum work work)
{
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
}

static void measure(struct bench *b, unsigned int density, int runs)
{
	static double ms[WORKS][RUNS];
	double start, took[WORKS];
	unsigned int work;
	int i;

	for (i = -1; i < runs; i++)	/* the first warms up */
		for (work = 0; work < WORKS; work++) {
			start = now_ms();
			run(b, (enum work)work);
			if (i >= 0)
				ms[work][i] = now_ms() - start;
		}
	for (work = 0; work < WORKS; work++)
		took[work] = median(ms[work], runs);
	printf(",\n \"of_10000_%u\": {\"memcpy_ms\": %.3f", density, took[MEMCPY]);
	for (work = ANALYSE; work < WORKS; work++)
		printf(", \"%s_ms\": %.3f, \"%s_speed\": %.3f", name[work], took[work], name[work],
		       took[MEMCPY] / took[work]);
	printf("}");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "simd", required_argument, NULL, 's' },
		{ "quick", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	enum thc_simd simd = THC_SIMD_AUTO;
	int opt, runs = RUNS;
	unsigned int k;
	struct bench b;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 's' && !parse_simd(optarg, &simd))
			continue;
		if (opt == 'q') {
			runs = RUNS_QUICK;
			continue;
		}
		fprintf(opt == 'h' ? stdout : stderr,
			"usage: bench_sparse [--simd auto|scalar|avx2|avx512] [--quick]\n");
		return opt == 'h' ? 0 : 2;
	}
	if (!thc_simd_ops(simd)) {
		fprintf(stderr, "bench_sparse: this CPU has no such instruction set\n");
		return 1;
	}
	b.fixed = thc_simd_ops(simd)->fixed;
	b.sparse = thc_simd_ops(simd)->sparse;
	bench_init(&b);
	printf("{\"mib\": %d, \"runs\": %d, \"simd\": \"%s\"", BUCKET_MIB, runs,
	       thc_simd_ops(simd)->name);
	for (k = 0; k < DENSITIES; k++) {
		fill(&b, densities[k]);
		measure(&b, densities[k], runs);
	}
	printf("}\n");
	return 0;
}
