/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * What the solver of tables shares with its tests; tables themselves are
 * public, see libthc.h.
 */
#ifndef LIBTHC_TABLE_H
#define LIBTHC_TABLE_H

#include "libthc.h"

/* Phi^-1(q), 0 < q < 1, absolute error below 1e-12 for min(q, 1 - q) > 1e-9; NaN outside. */
double thc_normal_quantile(double q);

#endif /* LIBTHC_TABLE_H */
