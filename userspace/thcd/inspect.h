/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Can rounds end on this interface?
 */
#ifndef THCD_INSPECT_H
#define THCD_INSPECT_H

#include "thcd.h"

/**
 * thcd_inspect() - look at the interface as `thcctl check` does
 * @native: native XDP is attached, or generic XDP
 * @force: say what is wrong, and go on
 *
 * Returns 0, or -1 with a sentence if every round would time out. What may be
 * right, or may get right without a restart, is said on stderr.
 */
int thcd_inspect(const struct thcd *d, bool native, bool force, struct thcd_error *e);

#endif /* THCD_INSPECT_H */
