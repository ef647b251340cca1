/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Scheme lhc has two forms: buckets (scheme_lhc.c) and rows (scheme_lhc_rows.c). */
#ifndef LIBTHC_SCHEME_LHC_H
#define LIBTHC_SCHEME_LHC_H

#include "scheme.h"

/* Of thc_allreduce_rows_start(): its functions from prepare on. */
extern const struct thc_scheme thc_scheme_lhc_rows;

#endif /* LIBTHC_SCHEME_LHC_H */
