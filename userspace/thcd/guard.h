/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ports beside the base port that XDP answers from: nobody else's.
 */
#ifndef THCD_GUARD_H
#define THCD_GUARD_H

#include "thcd.h"

/* Binds them on each address of d->socket; -1 and @e if one cannot be had. */
int thcd_guard_init(struct thcd *d, struct thcd_error *e);
void thcd_guard_exit(struct thcd *d);

#endif /* THCD_GUARD_H */
