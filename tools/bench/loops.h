/* SPDX-License-Identifier: GPL-2.0 */
/* What the benchmarks of libthc's loops share: the clock, and the names of instruction sets. */
#ifndef THC_BENCH_LOOPS_H
#define THC_BENCH_LOOPS_H

#include <errno.h>
#include <string.h>
#include <time.h>

#include "libthc.h"

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

#endif /* THC_BENCH_LOOPS_H */
