/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The capabilities that thcd has, and the few it keeps while it serves.
 */
#ifndef THCD_PRIVILEGES_H
#define THCD_PRIVILEGES_H

#include "config.h"

/* May this process load the XDP programs, and attach and detach them? */
bool thcd_privileges_can_load(void);

/**
 * thcd_privileges_drop() - give up, for good, what serving does not need
 *
 * For the end of the start, once the program is attached. d->privileges names what is left.
 */
int thcd_privileges_drop(struct thcd *d, const struct thcd_config *c, struct thcd_error *e);

#endif /* THCD_PRIVILEGES_H */
