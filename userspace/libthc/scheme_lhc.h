/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Scheme lhc has three forms: buckets, by an index and then the values (scheme_lhc.c), or both at
 * once (scheme_lhc_sketch.c), and rows (scheme_lhc_rows.c).
 */
#ifndef LIBTHC_SCHEME_LHC_H
#define LIBTHC_SCHEME_LHC_H

#include "scheme.h"

struct thc_habit;

/* Of thc_allreduce_rows_start(): its functions from prepare on. */
extern const struct thc_scheme thc_scheme_lhc_rows;

/* Buckets for which thc_sketch_pays(): functions from @prepare on. */
extern const struct thc_scheme thc_scheme_lhc_sketch;

/* Least density of unions, in parts of THC_DENSITY_ONE, that have no sketch: it would be no smaller
 * than an index and its values, and take more memory than the bound.
 */
#define THC_SKETCH_DENSEST	62500
/* Bytes that a value counts as where buckets may be sketches (libthc.h, memory_peak): for the most
 * digits and that density.
 */
#define THC_SKETCH_COUNTED	12

/* Is @r, of the job's scheme, sent as a sketch, by the history of its key? */
bool thc_sketch_pays(const struct thc_request *r, const struct thc_habit *habit);

#endif /* LIBTHC_SCHEME_LHC_H */
