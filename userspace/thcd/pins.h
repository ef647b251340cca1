/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The instance's directory in bpffs: what makes an aggregator outlive its
 * daemon.
 */
#ifndef THCD_PINS_H
#define THCD_PINS_H

#include <sys/types.h>

#include "thcd.h"

struct thcd_pins {
	char	dir[128];
	int	lock;	/* flock() on dir, ends with the process; -1: none */
	uid_t	owner;	/* whom it was taken back from and not given to yet; 0: nobody */
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

#endif /* THCD_PINS_H */
