/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Deadlines: generations that stay open too long are closed with their quorum.
 */
#ifndef THCD_DEADLINE_H
#define THCD_DEADLINE_H

#include "thcd.h"

int thcd_deadline_init(struct thcd *d, struct thcd_error *e);
void thcd_deadline_exit(struct thcd *d);

/* Closes what is due; returns ms until the next look, -1: no job has a deadline. */
int thcd_deadline_scan(struct thcd *d);

#endif /* THCD_DEADLINE_H */
