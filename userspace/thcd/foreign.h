/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Does another aggregator answer to the group of one of our jobs?
 */
#ifndef THCD_FOREIGN_H
#define THCD_FOREIGN_H

#include <poll.h>

#include "thcd.h"

/* Most entries of poll() that thcd_foreign_poll() fills. */
#define THCD_FOREIGN_POLLS	THC_JOBS_MAX

/* Begins to listen to the groups of all jobs; XDP modes only. */
int thcd_foreign_init(struct thcd *d, struct thcd_error *e);
void thcd_foreign_exit(struct thcd *d);

/* Job @id is there now, or is not any more. */
void thcd_foreign_job(struct thcd *d, u32 id);

/* Fills @p for poll() and returns how many entries; looks at them after. */
int thcd_foreign_poll(struct thcd *d, struct pollfd *p);
void thcd_foreign_look(struct thcd *d, const struct pollfd *p);

#endif /* THCD_FOREIGN_H */
