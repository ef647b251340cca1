/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The instance's directory in bpffs: what makes an aggregator outlive its
 * daemon.
 */
#ifndef THCD_PINS_H
#define THCD_PINS_H

#include <sys/types.h>

#include "../aggregator/paths.h"
#include "thcd.h"

struct thcd_pins {
	char	dir[THC_PATH_BYTES];
	int	lock;	/* flock() on dir, ends with the process; -1: none */
	uid_t	owner;	/* user that dir was taken back from, 0: none */
};

/* @heir of thcd_pins_open(): root will remove the pins, whoever owns them. */
#define THCD_PINS_ANYBODYS	((uid_t)-1)

/* Mounts bpffs if need be, makes the directory and locks it. If @heir is not 0, the directory may
 * belong to @heir: thcd takes it back, and refuses anything in it but pins.
 */
int thcd_pins_open(struct thcd_pins *p, const char *instance, uid_t heir, struct thcd_error *e);

/* Gives the pins and their directory to user @heir, who can reach them then. */
int thcd_pins_give(struct thcd_pins *p, uid_t heir, struct thcd_error *e);

/* Pins @fd as @name, in the place of any pin of that name. */
int thcd_pins_put(const struct thcd_pins *p, const char *name, int fd, struct thcd_error *e);

/* Removes all pins; returns how many. */
int thcd_pins_remove(struct thcd_pins *p);

/* Unlocks the directory and gives it back to the user that it was taken from. Pins stay; an empty
 * directory is removed.
 */
void thcd_pins_close(struct thcd_pins *p);

/* 0 if pins of @was can serve @is; -1 with the sentence that says why not. */
int thcd_keep_meta(const struct thcd_meta *was, const struct thcd_meta *is, const char *instance,
		   struct thcd_error *e);

/* 0 if the jobs of @was are those asked for; their prefixes may differ. @plans: by job number,
 * .ranks 0: no such job
 */
int thcd_keep_jobs(const struct thcd_record *was, const struct thcd_plan *plans,
		   struct thcd_error *e);

/* Are the constants of two plans equal? Slots may lie elsewhere, for a reload takes those that are
 * free, and prefixes may differ: ranks that have joined stay. Without a job the plan is zeroed.
 */
bool thcd_keep_equal(const struct thcd_plan *was, const struct thcd_plan *is);

/* Names the first constant in which two plans differ; returns -1. */
int thcd_keep_difference(const struct thcd_plan *was, const struct thcd_plan *is,
			 struct thcd_error *e);

#endif /* THCD_PINS_H */
