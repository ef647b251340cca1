/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The granularity and the clamp fraction that suit a number of ranks.  A larger clamp fraction p
 * makes the steps between levels smaller, and clamps more: the rounding errors of the ranks cancel
 * in their mean, clamping does not, so many ranks want a small p.  Granularities are scanned at one
 * p, and the best of them get a p of their own.
 */
#include <errno.h>
#include <math.h>

#include "structs.h"
#include "table.h"

/*
 * Granularities up to here are chosen: beyond it the error hardly falls.  At 16-bit sums the step
 * from FEW_BITS_MOST to MOST lowers it by less than 0.6 % with up to 4 bits, where the solver and
 * the codec's cell table gain more from staying small, by 1 to 4 % with 5 and 6 bits, and by half
 * with 7.
 */
#define GRANULARITY_MOST		255
#define GRANULARITY_FEW_BITS_MOST	127
#define FEW_BITS			4

/* Range of clamp fractions; many levels may need smaller ones, two levels larger ones. */
#define P_MIN		1e-6
#define P_MIN_MANY_BITS	1e-10
#define P_MAX		0.25
#define P_MAX_ONE_BIT	0.75
#define STEPS		18

/* Granularities that get a clamp fraction of their own. */
#define CANDIDATES_MOST	4

/* Granularities times levels, a measure of the time that a table takes: that of a step between
 * granularities that are looked at, and the most that leaves time for several candidates.
 */
#define STEP_WORK	3072
#define CANDIDATES_WORK	8192

/*
 * Error feedback adds the loss of a gradient's compression to the next gradient. If compression
 * loses the share k of the squared length, its input is 1 / (1 - k) times as long, squared: at this
 * k the memory is as long as the gradient, and at 1 it grows without bound.
 */
#define FEEDBACK_LOSS_MOST	0.5
#define FEEDBACK_EXCESS_PRICE	1e3

static const struct thc_struct_layout layout = {
	.name = "thc_table_wish",
	.first = sizeof(struct thc_table_wish),
	.now = sizeof(struct thc_table_wish),
};

/* The price to minimise. */
static double price(const struct thc_table_wish *w, const struct thc_table *t)
{
	double excess = thc_table_nmse(t, 1) - FEEDBACK_LOSS_MOST, error;

	error = thc_table_nmse(t, w->ranks);
	if (w->flags & THC_TABLE_FEEDBACK && excess > 0)
		error += excess * FEEDBACK_EXCESS_PRICE;
	return error;
}

/* Golden-section search for the best clamp fraction of one granularity, in its logarithm. */
static int search(const struct thc_table_wish *w, unsigned int g, struct thc_table *out)
{
	const double ratio = 0.61803398874989484820;
	double lo = log(w->bits > FEW_BITS ? P_MIN_MANY_BITS : P_MIN);
	double hi = log(w->bits == 1 ? P_MAX_ONE_BIT : P_MAX);
	double c = hi - ratio * (hi - lo), d = lo + ratio * (hi - lo);
	struct thc_table at_c, at_d;
	int steps = STEPS, ret;

	ret = thc_table_least(w->bits, g, exp(c), &at_c);
	if (!ret)
		ret = thc_table_least(w->bits, g, exp(d), &at_d);
	while (!ret && steps--) {
		if (price(w, &at_c) < price(w, &at_d)) {
			hi = d;
			d = c;
			at_d = at_c;
			c = hi - ratio * (hi - lo);
			ret = thc_table_least(w->bits, g, exp(c), &at_c);
		} else {
			lo = c;
			c = d;
			at_c = at_d;
			d = lo + ratio * (hi - lo);
			ret = thc_table_least(w->bits, g, exp(d), &at_d);
		}
	}
	if (ret)
		return ret;
	return thc_table_solve(w->bits, g, price(w, &at_c) < price(w, &at_d) ? at_c.p : at_d.p,
			       out);
}

static int choose_fraction(const struct thc_table_wish *w, unsigned int g, struct thc_table *out)
{
	return w->p > 0 ? thc_table_solve(w->bits, g, w->p, out) : search(w, g, out);
}

/* Every how many granularities are looked at: with many levels the error varies little from one to
 * the next, and solving takes long.
 */
static unsigned int stride(const struct thc_table_wish *w, unsigned int least, unsigned int top)
{
	unsigned int step = ((top - least) << w->bits) / STEP_WORK;

	return step ? step : 1;
}

/* The granularities that do best at clamp fraction @p, best first; from @top down to @least. */
static int choose_candidates(const struct thc_table_wish *w, unsigned int least, unsigned int top,
			     double p, unsigned int *best)
{
	unsigned int most = top << w->bits > CANDIDATES_WORK ? 1 : CANDIDATES_MOST;
	unsigned int step = stride(w, least, top), found = 0, g, i;
	double error[CANDIDATES_MOST];

	for (g = top; g >= least && g <= top; g -= step) {
		struct thc_table t;
		double e;
		int ret = thc_table_least(w->bits, g, p, &t);

		if (ret)
			return ret;
		e = price(w, &t);
		for (i = found < most ? found++ : most; i > 0 && error[i - 1] > e; i--) {
			if (i < most) {
				error[i] = error[i - 1];
				best[i] = best[i - 1];
			}
		}
		if (i < most) {
			error[i] = e;
			best[i] = g;
		}
	}
	return (int)found;
}

static int choose(const struct thc_table_wish *w, unsigned int least, unsigned int top,
		  struct thc_table *out)
{
	unsigned int candidate[CANDIDATES_MOST] = { 0 };
	int ret = choose_fraction(w, top, out), found, i;

	if (ret || top == least)
		return ret;
	found = choose_candidates(w, least, top, out->p, candidate);
	if (found < 0)
		return found;
	for (i = 0; i < found; i++) {
		struct thc_table t;

		ret = choose_fraction(w, candidate[i], &t);
		if (ret)
			return ret;
		if (price(w, &t) < price(w, out))
			*out = t;
	}
	return 0;
}

int thc_table_choose(const struct thc_table_wish *wish, struct thc_table *out)
{
	unsigned int least, most, top;
	struct thc_table_wish w;
	int ret;

	if (!wish || !out)
		return -EINVAL;
	ret = thc_struct_in(&layout, &w, wish);
	if (ret)
		return ret;
	if (w.bits < 1 || w.bits > THC_TABLE_BITS_MAX || !w.ranks || w.flags & ~THC_TABLE_FEEDBACK)
		return -EINVAL;
	if ((w.width != 4 && w.width != 8 && w.width != 16 && w.width != 32) ||
	    !(w.p >= 0 && w.p < 1) || w.granularity > THC_TABLE_GRANULARITY_MAX)
		return -EINVAL;
	least = (1U << w.bits) - 1;
	top = (unsigned int)(((UINT64_C(1) << w.width) - 1) / w.ranks);
	if (top < least || top < w.granularity)
		return -ERANGE;
	if (w.granularity)
		return w.granularity < least ? -EINVAL : choose_fraction(&w, w.granularity, out);
	most = w.bits <= FEW_BITS ? GRANULARITY_FEW_BITS_MOST : GRANULARITY_MOST;
	/* two levels are 0 and g, whatever g is */
	if (w.bits == 1)
		most = 1;
	return choose(&w, least, top < most ? top : most, out);
}
