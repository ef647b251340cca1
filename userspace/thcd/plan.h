/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Derives the constants of a job from what the operator asks for.
 */
#ifndef THCD_PLAN_H
#define THCD_PLAN_H

#include "config.h"

/**
 * thcd_plan_make() - the constants that follow from a wish
 * @address: the aggregator's first address; the default group follows from it
 * @port: base port
 * @note: out: a sentence about a choice made, or empty
 *
 * Returns 0, or -1 with a sentence that says what would fit. A wish without a prefix makes a plan
 * that admits nobody: the caller adds the interface's subnets (thcd_net_subnets()).
 */
int thcd_plan_make(struct thcd_plan *plan, const struct thcd_job_wish *w,
		   const struct thc_addr *address, u16 port, struct thcd_error *note,
		   struct thcd_error *e);

/**
 * thcd_plan_jobs() - the plans of all jobs of @c, by their numbers
 * @d: its sockets are open
 * @plans: zeroed; .ranks stays 0 where there is no job
 * @slots: out: slots of all jobs; each plan's .slot_base is set
 */
int thcd_plan_jobs(const struct thcd *d, const struct thcd_config *c, struct thcd_plan *plans,
		   u32 *slots, struct thcd_error *e);

/* The job's table and the width of its sums, and a note if that is wider than 8 bits
 * (plan_table.c). Returns 0, or -1 with a sentence.
 */
int thcd_table_choose(struct thc_table *t, u32 *width, const struct thcd_job_wish *w,
		      struct thcd_error *note, struct thcd_error *e);

/* Chooses a table of @bits bits, with sums of the least width that fits all ranks: 4, 8 or 16 bits
 * (plan_table.c). Returns 0, or -1 with a sentence.
 */
int thcd_table_of(struct thc_table *t, u32 *width, const struct thcd_job_wish *w, u32 bits,
		  struct thcd_error *e);

/* The aggregators that share the job's chunks; @port: of those that name none (shards.c). */
int thcd_shards_choose(struct thc_shards *out, const struct thcd_job_wish *w, u16 port,
		       struct thcd_error *e);

/* Is @addr in one of the plan's prefixes? */
bool thcd_plan_admits(const struct thcd_plan *plan, const struct thc_addr *addr);

#endif /* THCD_PLAN_H */
