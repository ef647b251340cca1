/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the benchmarks of libthc's loops share: buffers, the clock, the names of instruction sets, a
 * command line, and medians of runs in turns.
 */
#ifndef THC_BENCH_LOOPS_H
#define THC_BENCH_LOOPS_H

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec_ops.h"
#include "samples.h"

#define LOOPS_RUNS	31
#define LOOPS_RUNS_QUICK 15
#define LOOPS_WORKS_MAX	16
#define LOOPS_LINE	64

/* @size bytes, zeroed, in whole cache lines; never freed. */
static inline void *loops_buffer(size_t size)
{
	size_t whole = (size + LOOPS_LINE - 1) / LOOPS_LINE * LOOPS_LINE;
	void *p = aligned_alloc(LOOPS_LINE, whole);

	if (!p) {
		fprintf(stderr, "%s: out of memory\n", program_invocation_short_name);
		exit(1);
	}
	memset(p, 0, whole);
	return p;
}

static inline double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline int parse_simd(const char *text, enum thc_simd *simd)
{
	static const char *const names[] = { "auto", "scalar", "avx2", "avx512" };
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(text, names[i])) {
			*simd = (enum thc_simd)i;
			return 0;
		}
	return -EINVAL;
}

/* What a command line of [--simd SET] [--quick] says. */
struct loops_options {
	const struct thc_codec_ops *ops;
	int runs;
};

/* Exits if there is nothing to measure. */
static inline struct loops_options loops_parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "simd", required_argument, NULL, 's' },
		{ "quick", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct loops_options o = { .runs = LOOPS_RUNS };
	enum thc_simd simd = THC_SIMD_AUTO;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 's' && !parse_simd(optarg, &simd))
			continue;
		if (opt == 'q') {
			o.runs = LOOPS_RUNS_QUICK;
			continue;
		}
		fprintf(opt == 'h' ? stdout : stderr,
			"usage: %s [--simd auto|scalar|avx2|avx512] [--quick]\n",
			program_invocation_short_name);
		exit(opt == 'h' ? 0 : 2);
	}
	o.ops = thc_simd_ops(simd);
	if (!o.ops) {
		fprintf(stderr, "%s: this CPU has no such instruction set\n",
			program_invocation_short_name);
		exit(1);
	}
	return o;
}

/* Calls @once for each of @works in turns, @runs times after a first run that does not count; sets
 * @took to medians in ms. Returns 0, or @once's error.
 */
static inline int loops_measure(int (*once)(void *context, int work, int run), void *context,
				int works, int runs, double *took)
{
	static double ms[LOOPS_WORKS_MAX][LOOPS_RUNS];
	int work, run, error;
	double start;

	for (run = -1; run < runs; run++)
		for (work = 0; work < works; work++) {
			start = now_ms();
			error = once(context, work, run);
			if (error)
				return error;
			if (run >= 0)
				ms[work][run] = now_ms() - start;
		}
	for (work = 0; work < works; work++)
		took[work] = median(ms[work], runs);
	return 0;
}

#endif /* THC_BENCH_LOOPS_H */
