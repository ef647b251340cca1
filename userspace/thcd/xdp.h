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

/* Attaches the program once all jobs exist, then marks the pins as complete. Refuses if every round
 * would time out, unless --force is given.
 */
int thcd_xdp_attach(struct thcd *d, const struct thcd_config *c, struct thcd_error *e);

/* Gives the pins to c->heir; the program stays attached. thcd_xdp_exit() removes nothing then. */
int thcd_xdp_hand_over(struct thcd *d, const struct thcd_config *c, struct thcd_error *e);

/* Detaches and unpins what an instance that does not run has left; returns how many pins these
 * were, 0: none.
 */
int thcd_xdp_discard(struct thcd *d, struct thcd_error *e);

/* Waits until no program runs any more that has seen the maps as they were. */
int thcd_xdp_wait(struct thcd *d, struct thcd_error *e);

/* Detaches and unpins, except what root prepared, and a predecessor's aggregator if the start
 * @failed.
 */
void thcd_xdp_exit(struct thcd *d, bool failed);

/* Fills the maps that are not mmapped for a created job. */
int thcd_xdp_job(struct thcd *d, u16 job_id, struct thcd_error *e);

/* Checks every THCD_WATCH_MS whether the program is still attached, and tells changes; false: the
 * interface is gone, so thcd has to end.
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
