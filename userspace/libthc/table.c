/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Solver for quantisation tables and the closed forms of their error.  Runs once per job; the codec
 * only reads its result.  Which granularity and clamp a job gets is table_choose.c's.
 *
 * A rotated coordinate is close to a standard normal a.  It is clamped to [-t, t] and rounded
 * without bias to one of the levels 2 t T[z] / g - t.  Between neighbours l < h the rounding's
 * expected square is the integral of (h - a)(a - l) phi(a), so the total is a sum over neighbouring
 * pairs, and the best set of levels is a shortest path from grid position 0 to g.
 */
#include "table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <thc/fnv.h>

#define SQRT1_2		0.70710678118654752440
#define INV_SQRT_2PI	0.39894228040143267794
#define THRESHOLD_UNIT	0x1p-30

/* Paths whose costs differ by less are one path and its mirror image. */
#define COST_TIE	1e-13

static double normal_density(double a)
{
	return INV_SQRT_2PI * exp(-0.5 * a * a);
}

static double normal_upper(double a)
{
	return 0.5 * erfc(a * SQRT1_2);
}

/* The a >= 0 with upper tail @tail <= 1/2.  Its log is concave, so Newton cannot overshoot. */
static double normal_upper_inverse(double tail)
{
	double a = 0;
	int i;

	for (i = 0; i < 60; i++) {
		double q = normal_upper(a);
		double step = log(q / tail) * q / normal_density(a);

		a += step;
		if (fabs(step) < 1e-14 * (1 + a))
			break;
	}
	return a;
}

double thc_normal_quantile(double q)
{
	if (!(q > 0 && q < 1))
		return NAN;
	return q < 0.5 ? -normal_upper_inverse(q) : normal_upper_inverse(1 - q);
}

static double clamp_threshold(double p)
{
	return nearbyint(normal_upper_inverse(p / 2) / THRESHOLD_UNIT) * THRESHOLD_UNIT;
}

/* Is @t in range? False for NaN, too. */
static bool threshold_valid(double t)
{
	return t > 0 && t < THC_THRESHOLD_MAX;
}

/* One of the g + 1 grid positions, with the terms of the cost of an interval. */
struct grid {
	double a;
	double density;
	double below;
};

static struct grid grid_at(const struct thc_table *t, double i)
{
	double a = t->t * (2 * i - t->granularity) / t->granularity;

	return (struct grid){ a, normal_density(a), normal_upper(-a) };
}

/* All positions; the half on the right mirrors that on the left. */
static void fill_grid(struct grid *grid, const struct thc_table *t)
{
	unsigned int g = t->granularity, i;

	for (i = 0; i <= g / 2; i++) {
		grid[i] = grid_at(t, i);
		grid[g - i] = (struct grid){ -grid[i].a, grid[i].density, 1 - grid[i].below };
	}
}

static double interval_cost(const struct grid *lo, const struct grid *hi)
{
	double l = lo->a, h = hi->a;

	return h * lo->density - l * hi->density - (1 + l * h) * (hi->below - lo->below);
}

static int table_start(unsigned int bits, unsigned int g, double p, struct thc_table *out)
{
	if (!out || bits < 1 || bits > THC_TABLE_BITS_MAX || !(p > 0 && p < 1))
		return -EINVAL;
	if (g < (1U << bits) - 1 || g > THC_TABLE_GRANULARITY_MAX)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	out->bits = bits;
	out->granularity = g;
	out->levels = 1U << bits;
	out->p = p;
	out->t = clamp_threshold(p);
	return threshold_valid(out->t) ? 0 : -ERANGE;
}

/* Positions of a row still to be solved, and those of the next row where their best ones lie. */
struct solve_range {
	unsigned int from, to;
	unsigned int best_from, best_to;
};

/*
 * here[i] becomes the least cost of an interval from i to some j and of the way on from j. The cost
 * of an interval is a sum of products of two distances, so it obeys the quadrangle inequality: the
 * best j of a greater i is not smaller, and the result of one position halves the search of those
 * on either side.
 */
static void solve_row(const struct grid *grid, const double *next, struct solve_range r,
		      double *here)
{
	unsigned int i = r.from + (r.to - r.from) / 2, best = i + 1, j;

	here[i] = INFINITY;
	for (j = r.best_from > i ? r.best_from : i + 1; j <= r.best_to; j++) {
		double cost = next[j] + interval_cost(&grid[i], &grid[j]);

		if (cost < here[i]) {
			here[i] = cost;
			best = j;
		}
	}
	if (i > r.from)
		solve_row(grid, next, (struct solve_range){ r.from, i - 1, r.best_from, best },
			  here);
	if (i < r.to)
		solve_row(grid, next, (struct solve_range){ i + 1, r.to, best, r.best_to }, here);
}

/*
 * rest[k * (g + 1) + i] becomes the least cost of k more intervals that lead from position i to g,
 * infinite where there is no room for them.
 */
static void solve_costs(const struct grid *grid, unsigned int g, unsigned int intervals,
			double *rest)
{
	unsigned int k, i;

	for (i = 0; i <= g; i++)
		rest[i] = i == g ? 0 : INFINITY;
	for (k = 1; k <= intervals; k++) {
		const double *next = rest + (size_t)(k - 1) * (g + 1);
		double *here = rest + (size_t)k * (g + 1);

		for (i = g - k + 1; i <= g; i++)
			here[i] = INFINITY;
		solve_row(grid, next, (struct solve_range){ 0, g - k, 1, g - k + 1 }, here);
	}
}

/*
 * The cost of the best levels, from @rest for half of the intervals, rounded down, and one more.
 * Their number is odd and the density even: the way to the interval in the middle costs as much as
 * the way on from its mirror image.
 */
static double least_cost(const double *rest, unsigned int g, unsigned int intervals)
{
	const double *to = rest + (size_t)(intervals / 2) * (g + 1), *on = to + g + 1;
	double least = INFINITY;
	unsigned int i;

	for (i = 0; i <= g; i++)
		if (to[g - i] + on[i] < least)
			least = to[g - i] + on[i];
	return least;
}

static void solve_path(const struct grid *grid, const double *rest, struct thc_table *t)
{
	unsigned int g = t->granularity, k, i = 0, j;

	for (k = t->levels - 1; k >= 1; k--) {
		const double *next = rest + (size_t)(k - 1) * (g + 1);
		double best = rest[(size_t)k * (g + 1) + i] + COST_TIE;

		for (j = i + 1; j < g; j++)
			if (next[j] + interval_cost(&grid[i], &grid[j]) <= best)
				break;
		i = j;
		t->value[t->levels - k] = (uint16_t)i;
	}
}

void thc_table_price(struct thc_table *t)
{
	struct grid lo, hi = grid_at(t, t->value[0]);
	unsigned int z;

	t->cost = 0;
	for (z = 1; z < t->levels; z++) {
		lo = hi;
		hi = grid_at(t, t->value[z]);
		t->cost += interval_cost(&lo, &hi);
	}
}

/* The best levels and their cost, or their cost alone. */
static int solve(struct thc_table *t, bool levels)
{
	unsigned int g = t->granularity, intervals = t->levels - 1;
	unsigned int rows = levels ? intervals : intervals / 2 + 1;
	size_t points = (size_t)g + 1;
	struct grid *grid = calloc(points, sizeof(*grid));
	double *rest = calloc(points * (rows + 1), sizeof(*rest));

	if (grid && rest) {
		fill_grid(grid, t);
		solve_costs(grid, g, rows, rest);
		if (levels) {
			solve_path(grid, rest, t);
			thc_table_price(t);
		} else {
			t->cost = least_cost(rest, g, intervals);
		}
	}
	free(rest);
	free(grid);
	return grid && rest ? 0 : -ENOMEM;
}

int thc_table_solve(unsigned int bits, unsigned int granularity, double p, struct thc_table *out)
{
	int ret = table_start(bits, granularity, p, out);

	return ret ? ret : solve(out, true);
}

int thc_table_least(unsigned int bits, unsigned int granularity, double p, struct thc_table *out)
{
	int ret = table_start(bits, granularity, p, out);

	return ret ? ret : solve(out, false);
}

int thc_table_from_values(unsigned int bits, unsigned int granularity, double p,
			  const uint16_t *values, struct thc_table *out)
{
	int ret = table_start(bits, granularity, p, out);

	if (ret)
		return ret;
	if (!values)
		return -EINVAL;
	memcpy(out->value, values, out->levels * sizeof(*values));
	if (!thc_table_valid(out))
		return -EINVAL;
	thc_table_price(out);
	return 0;
}

bool thc_table_valid(const struct thc_table *t)
{
	unsigned int z;

	if (t->bits < 1 || t->bits > THC_TABLE_BITS_MAX || t->levels != 1U << t->bits ||
	    t->granularity > THC_TABLE_GRANULARITY_MAX || !threshold_valid(t->t))
		return false;
	if (t->value[0] || t->value[t->levels - 1] != t->granularity)
		return false;
	for (z = 0; z + 1 < t->levels; z++)
		if (t->value[z] >= t->value[z + 1])
			return false;
	return true;
}

int thc_table_check(const struct thc_table *t, unsigned int n, unsigned int width)
{
	if (!t || !thc_table_valid(t) || !width || width > 32)
		return -EINVAL;
	if ((uint64_t)t->value[t->levels - 1] * n > (UINT64_C(1) << width) - 1)
		return -ERANGE;
	return 0;
}

/* The error of clamping alone, for any number of ranks. */
static double truncated(const struct thc_table *t)
{
	return 2 * ((1 + t->t * t->t) * normal_upper(t->t) - t->t * normal_density(t->t));
}

double thc_table_nmse(const struct thc_table *t, unsigned int n)
{
	return t->cost / n + truncated(t);
}

double thc_table_nmse_correlated(const struct thc_table *t, unsigned int n)
{
	struct grid low, high = grid_at(t, 0);
	unsigned int z, k;
	double cost = 0;

	for (z = 1; z < t->levels; z++) {
		double from = t->value[z - 1], step = (t->value[z] - from) / n;

		for (k = 1; k <= n; k++) {
			low = high;
			high = grid_at(t, from + k * step);
			cost += interval_cost(&low, &high);
		}
	}
	return cost + truncated(t);
}

static uint32_t hash_u64(uint32_t h, uint64_t v)
{
	const uint64_t le = thc_le64(v);

	return thc_fnv(h, &le, sizeof(le));
}

uint32_t thc_table_hash(const struct thc_table *t)
{
	uint32_t h = THC_FNV_BEGIN;
	unsigned int z;

	h = hash_u64(h, t->bits);
	h = hash_u64(h, t->granularity);
	for (z = 0; z < t->levels; z++)
		h = hash_u64(h, t->value[z]);
	return hash_u64(h, (uint64_t)(t->t / THRESHOLD_UNIT));
}
