/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Job records as the data path sees them, and the order they are written in.
 */
#ifndef THCD_JOBS_H
#define THCD_JOBS_H

#include "thcd.h"

/* Draws the secret that salts come from, before the first job is created. 0, or a negative errno:
 * the kernel has no random numbers.
 */
int thcd_salts_begin(void);

/* Draws the secret that challenges come from. 0, or a negative errno: the kernel has no random
 * numbers.
 */
int thcd_secret_draw(struct thcd_secret *secret);

/* Creates job plan->job in d, in its first epoch without members. */
void thcd_job_create(struct thcd *d, const struct thcd_plan *plan);

/* Shows job @id to the data path, or hides it: its packets are dropped. */
void thcd_job_show(struct thcd *d, u32 id, bool shown);

/* Removes job @id and the content of its slots. The job has no ranks in it; the caller has hidden
 * it and waited for the packets that still found it.
 */
void thcd_job_forget(struct thcd *d, u32 id);

/* Rank @rank joins from @path; it is not yet in the epoch. */
void thcd_job_enter(struct thc_job *job, u8 rank, const struct thc_path *path);

/* Begins a new epoch with rank @rank alone in it. The epoch's number is newer than the job's, and
 * newer than @last if the job is behind @last.
 */
void thcd_job_restart(struct thc_job *job, struct thc_seals *seals, struct thcd_record *r, u8 rank,
		      u32 last, const struct thc_path *path);

/* May @id name the keys of @epoch? Packets name their keys by it, so @id must not be 0 (no key),
 * nor the id of the membership key or of the other epoch that has keys.
 */
bool thcd_key_id_is_new(__be32 id, const struct thc_seals *s, u32 epoch);

/* The job's secret key; NULL: it has none. */
const u8 *thcd_plan_key(const struct thcd_plan *plan);

/* A rank's last epoch counts if it is less than this ahead of the job's: 65536 / 16 s, so a clock
 * may have been set back by an hour. A rank that lies only makes epochs advance faster.
 */
#define THCD_AHEAD_MAX	0x10000

/* Is @last, a rank's last epoch (0: it knows none), the job's epoch or a newer one? */
bool thcd_job_is_behind(const struct thc_job *job, u32 last);

/* Are there ranks that have joined over IPv4, and ranks that have over IPv6? */
bool thcd_job_is_mixed(const struct thc_job *job);

/* Describes a job in one line. */
void thcd_job_describe(const struct thcd_plan *plan, char *text, size_t size);

int thcd_deadline_init(const struct thcd *d, struct thcd_error *e);
void thcd_deadline_exit(void);

/* Closes generations that are due; returns ms until the next scan, -1: no job has a deadline. */
int thcd_deadline_scan(struct thcd *d);

#endif /* THCD_JOBS_H */
