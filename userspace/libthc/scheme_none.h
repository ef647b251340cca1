/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Scheme none has two halves: integers (scheme_none.c) and floats (scheme_none_floats.c). */
#ifndef LIBTHC_SCHEME_NONE_H
#define LIBTHC_SCHEME_NONE_H

#include "scheme.h"

/* Floats as fixed point or, losslessly, as limbs. */
extern const struct thc_scheme thc_scheme_none_floats;

#endif /* LIBTHC_SCHEME_NONE_H */
