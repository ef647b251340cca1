// SPDX-License-Identifier: GPL-2.0
/*
 * Speed of scheme none's loops (userspace/libthc/fixed.h) and of memcpy of the same floats, on one
 * core: from values to lanes, with scales, and from lanes to means. All take turns, and medians
 * are compared. JSON on stdout.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixed.h"
#include "loops.h"

#define BUCKET_MIB	25
#define COUNT		((size_t)BUCKET_MIB * 1024 * 1024 / sizeof(float))
#define RANKS		4
#define GROUP		256

enum work { MEMCPY, FIXED8, FIXED16, FIXED32, EXACT, FROM8, FROM16, FROM32, FROM_EXACT, WORKS };

static const char *const name[WORKS] = { "memcpy",	 "fixed8",	 "fixed16",
					 "fixed32",	 "exact",	 "from_fixed8",
					 "from_fixed16", "from_fixed32", "from_exact" };

/* @limbs: of all blocks together, over blocks */
struct bench {
	const struct thc_fixed_ops *ops;
	float			*values;
	float			*out;
	int32_t			*lanes;		/* room for groups of THC_LIMBS_MAX digits */
	struct thc_scale	*scale;
	double			limbs;
};

static void bench_init(struct bench *b)
{
	size_t i;

	b->values = loops_buffer(COUNT * sizeof(float));
	b->out = loops_buffer(COUNT * sizeof(float));
	b->lanes = loops_buffer(3 * COUNT * sizeof(int32_t));
	b->scale = loops_buffer(COUNT / GROUP * sizeof(*b->scale));
	srand48(1);
	for (i = 0; i < COUNT; i++)
		b->values[i] = (float)(drand48() + drand48() + drand48() - 1.5);
}

static void measure_all(struct bench *b, bool exact)
{
	size_t i, bad;

	for (i = 0; i < COUNT / THC_SCALE_BLOCK; i++)
		thc_scale_measure(b->ops, b->values + i * THC_SCALE_BLOCK, THC_SCALE_BLOCK, exact,
				  &b->scale[i], &bad);
}

static void to_fixed(struct bench *b, unsigned int width)
{
	size_t i, each = THC_SCALE_BLOCK;

	measure_all(b, false);
	for (i = 0; i < COUNT / each; i++)
		b->ops->fixed(b->values + i * each, each, b->scale[i].top,
			      thc_fixed_bits(width, RANKS), width,
			      (uint8_t *)b->lanes + i * each * width / 8);
}

static void from_fixed(struct bench *b, unsigned int width)
{
	const struct thc_mean m = { 0x1p-29, RANKS, thc_fixed_bits(width, RANKS), false };

	b->ops->mean(b->lanes, width, COUNT, &m, b->out);
}

static void to_exact(struct bench *b)
{
	unsigned int bits = thc_fixed_bits(32, RANKS), limbs, k;
	int32_t *lanes = b->lanes;
	size_t i, total = 0;

	measure_all(b, true);
	for (i = 0; i < COUNT / GROUP; i++) {
		struct thc_scale s = b->scale[i * GROUP / THC_SCALE_BLOCK];

		limbs = thc_scale_limbs(s, bits);
		total += limbs;
		for (k = 0; k < limbs && total < 3 * COUNT / GROUP; k++, lanes += GROUP)
			b->ops->limb(b->values + i * GROUP, GROUP, s.low, bits, k, lanes);
	}
	b->limbs = (double)total / (double)(COUNT / GROUP);
}

/* Of two digits each. */
static void from_exact(struct bench *b)
{
	const struct thc_mean m = { 0x1p-50, RANKS, thc_fixed_bits(32, RANKS), false };
	size_t i;

	for (i = 0; i < COUNT / GROUP; i++) {
		const int32_t *lanes = b->lanes + 2 * i * GROUP;
		const int32_t *const digit[] = { lanes, lanes + GROUP };

		thc_fixed_means(b->ops, digit, 2, GROUP, &m, b->out + i * GROUP);
	}
}

static int run(void *context, int work, int number)
{
	struct bench *b = context;

	(void)number;
	if (work == MEMCPY)
		memcpy(b->out, b->values, COUNT * sizeof(float));
	else if (work <= FIXED32)
		to_fixed(b, 8U << (work - FIXED8));
	else if (work == EXACT)
		to_exact(b);
	else if (work <= FROM32)
		from_fixed(b, 8U << (work - FROM8));
	else
		from_exact(b);
	__asm__ volatile("" : : "r"(b->out), "r"(b->lanes) : "memory");
	return 0;
}

int main(int argc, char **argv)
{
	const struct loops_options o = loops_parse(argc, argv);
	struct bench b = { .ops = o.ops->fixed };
	double took[WORKS];
	int work;

	bench_init(&b);
	loops_measure(run, &b, WORKS, o.runs, took);
	printf("{\"mib\": %d, \"runs\": %d, \"limbs\": %.3f", BUCKET_MIB, o.runs, b.limbs);
	for (work = 0; work < WORKS; work++)
		printf(",\n \"%s_ms\": %.3f, \"%s_ratio\": %.3f", name[work], took[work],
		       name[work], took[work] / took[MEMCPY]);
	printf("}\n");
	return 0;
}
