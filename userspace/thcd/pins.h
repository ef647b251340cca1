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
	uid_t	owner;	/* of dir, before it was taken back; 0: it was not, or has been given */
};

/* For thcd_pins_open(): root is about to remove them, whoever has them. */
#define THCD_PINS_ANYBODYS	((uid_t)-1)

/* Mounts bpffs if need be, makes the directory and locks it. It may belong to @heir, too, if
 * that is not 0: it is taken back then, and anything but pins in it refused.
 */
int thcd_pins_open(struct thcd_pins *p, const char *instance, uid_t heir, struct thcd_error *e);

/* Gives the pins and their directory to user @heir, who can reach them then. */
int thcd_pins_give(struct thcd_pins *p, uid_t heir, struct thcd_error *e);

/* Pins @fd under a name that may be taken. */
int thcd_pins_put(const struct thcd_pins *p, const char *name, int fd, struct thcd_error *e);

/* Removes every pin; how many these were. */
int thcd_pins_remove(struct thcd_pins *p);

/* Gives up the lock, and gives back what was taken; the pins stay, an empty directory does not. */
void thcd_pins_close(struct thcd_pins *p);

/* 0 if pins of @was can serve @is; -1 with the sentence that says why not. */
int thcd_keep_meta(const struct thcd_meta *was, const struct thcd_meta *is, const char *instance,
		   struct thcd_error *e);

/* 0 if the jobs of @was are those asked for; their prefixes may differ. @plans: by job,
 * ranks 0: none.
 */
int thcd_keep_jobs(const struct thcd_record *was, const struct thcd_plan *plans,
		   struct thcd_error *e);

/* Equal constants, wherever their slots lie (a reload gives slots as they are free), and whoever
 * may join from now on: who is in stays in. Where there is no job, the plan is zeroed.
 */
bool thcd_keep_equal(const struct thcd_plan *was, const struct thcd_plan *is);

/* Names the first constant in which two plans differ; returns -1. */
int thcd_keep_difference(const struct thcd_plan *was, const struct thcd_plan *is,
			 struct thcd_error *e);

#endif /* THCD_PINS_H */
