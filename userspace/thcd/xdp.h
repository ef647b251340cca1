/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The XDP side of the daemon: maps, programs, attachment, and the privileges it takes.
 */
#ifndef THCD_XDP_H
#define THCD_XDP_H

#include "config.h"

/**
 * thcd_xdp_init() - load the program, with the maps of a predecessor if any
 * @slots: of all jobs together
 * @plans: by job number, what is asked for; .ranks 0: no such job
 *
 * d->kept and d->adopted say what was found.
 */
int thcd_xdp_init(struct thcd *d, const struct thcd_config *c, u32 slots,
		  const struct thcd_plan *plans, struct thcd_error *e);

/* Takes the hook, once all jobs are there; what is pinned is complete then. Where
 * every round would time out it refuses, unless the operator insists.
 */
int thcd_xdp_attach(struct thcd *d, const struct thcd_config *c, struct thcd_error *e);

/* Leaves what was loaded and attached to c->heir, once it is complete: thcd_xdp_exit() takes
 * nothing away then.
 */
int thcd_xdp_hand_over(struct thcd *d, const struct thcd_config *c, struct thcd_error *e);

/* Detaches and unpins what an instance that does not run has left; returns how many pins these
 * were, 0: none.
 */
int thcd_xdp_discard(struct thcd *d, struct thcd_error *e);

/* Waits until no program runs any more that has seen the maps as they were. */
int thcd_xdp_wait(struct thcd *d, struct thcd_error *e);

/* Detaches and unpins; not so if a start @failed and a predecessor's
 * aggregator is still there, nor what root prepared.
 */
void thcd_xdp_exit(struct thcd *d, bool failed);

/* Makes a created job known to maps that are not mmapped. */
int thcd_xdp_job(struct thcd *d, u16 job_id, struct thcd_error *e);

/* Looks whether the program is still attached, every so often, and says so; false: the
 * interface is gone, and so is what there was to do.
 */
#define THCD_WATCH_MS	1000
bool thcd_xdp_watch(struct thcd *d);

/* Closes a generation by deadline; true if it is closed now. */
bool thcd_xdp_close(struct thcd *d, u16 job_id, u32 slot, u32 generation);

/* The data path's counters, all CPUs together. */
void thcd_xdp_stats(const struct thcd *d, struct thc_stats *out);

/* May this process load the XDP programs, and attach and detach them? */
bool thcd_privileges_can_load(void);

/**
 * thcd_privileges_drop() - give up, for good, what serving does not need
 *
 * For the end of the start, once the program is attached. d->privileges names what is left.
 */
int thcd_privileges_drop(struct thcd *d, const struct thcd_config *c, struct thcd_error *e);

#endif /* THCD_XDP_H */
