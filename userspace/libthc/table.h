/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Functions of the table solver for libthc and tests; tables themselves are public, see libthc.h.
 */
#ifndef LIBTHC_TABLE_H
#define LIBTHC_TABLE_H

#include <stdbool.h>

#include "libthc.h"

/* Phi^-1(q), 0 < q < 1, absolute error below 1e-12 for min(q, 1 - q) > 1e-9; NaN outside. */
double thc_normal_quantile(double q);

/* A table's threshold t is above 0 and below this. */
#define THC_THRESHOLD_MAX	16

/* Has @t levels, granularity and threshold that a codec can serve? */
bool thc_table_valid(const struct thc_table *t);

/* thc_table_nmse() of ranks that round in a correlated way: a coordinate between two levels leaves
 * one rank's draw to chance, so their sum is as if rounded between levels @n times as dense.
 */
double thc_table_nmse_correlated(const struct thc_table *t, unsigned int n);
/* Fills in @t->cost of a table that is otherwise complete. */
void thc_table_price(struct thc_table *t);

/* thc_table_solve() but for the levels: what the best ones cost, in less than half the time. */
int thc_table_least(unsigned int bits, unsigned int granularity, double p, struct thc_table *out);

#endif /* LIBTHC_TABLE_H */
