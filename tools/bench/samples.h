/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the C benchmarks share: an order of slots that is random but the same in
 * every run, and the median of what was measured.
 */
#ifndef THC_BENCH_SAMPLES_H
#define THC_BENCH_SAMPLES_H

#include <stdint.h>
#include <stdlib.h>

/* xorshift64* */
static inline uint64_t draw(void)
{
	static uint64_t x = 88172645463325252ULL;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	return x * 0x2545f4914f6cdd1dULL;
}

/* @order becomes a permutation of 0 .. @n - 1. */
static inline void draw_order(uint16_t *order, int n)
{
	int i;

	for (i = 0; i < n; i++)
		order[i] = (uint16_t)i;
	for (i = n - 1; i > 0; i--) {
		int j = (int)(draw() % (uint64_t)(i + 1));
		uint16_t t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
}

static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts @v. */
static inline double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return n & 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

#endif /* THC_BENCH_SAMPLES_H */
