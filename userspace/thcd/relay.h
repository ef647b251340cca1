/* SPDX-License-Identifier: GPL-2.0 */
/* Answers that generic XDP leaves to the daemon: the ring in which they come. */
#ifndef THCD_RELAY_H
#define THCD_RELAY_H

#include "thcd.h"

/* d->relay: the ring of map @fd. */
int thcd_relay_open(struct thcd *d, int fd, struct thcd_error *e);
void thcd_relay_close(struct thcd *d);

/* File descriptor that is readable when answers wait to be sent; -1: none come this way. */
int thcd_relay_fd(const struct thcd *d);

/* Sends those that wait, a limited number at a time. */
void thcd_relay_serve(struct thcd *d);

#endif /* THCD_RELAY_H */
