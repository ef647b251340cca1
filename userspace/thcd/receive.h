/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Packets that reach the daemon's sockets: everything in software mode,
 * JOIN and LEAVE when XDP takes the rest.
 */
#ifndef THCD_RECEIVE_H
#define THCD_RECEIVE_H

#include "thcd.h"

/* Takes what is waiting on socket @i, at most a few batches. */
void thcd_receive(struct thcd *d, int i);

/* One packet of @length bytes; changes it. @ce: its IP header said CE. */
void thcd_packet(struct thcd *d, void *packet, u32 length, const struct thc_path *path, bool ce);

#endif /* THCD_RECEIVE_H */
