/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The software aggregator: what bpf/ does, in user space.
 */
#ifndef THCD_SOFTWARE_H
#define THCD_SOFTWARE_H

#include <thc/aggregator/reaction.h>

#include "thcd.h"

/* Reacts to a packet, a header at least, and sends the answer if there is one. */
struct thc_reaction thcd_software(struct thcd *d, const struct thc_packet *p);

/* Reacts to a packet at a socket in XDP mode, where only JOIN and LEAVE are expected. */
struct thc_reaction thcd_gate(struct thcd *d, const struct thc_packet *p);

/* Closes a generation by deadline; true if it is closed now. */
bool thcd_software_close(struct thcd *d, u16 job_id, u32 slot, u32 generation);

/* Allocates what XDP mode has as maps. */
int thcd_software_init(struct thcd *d, u32 slots, struct thcd_error *e);
void thcd_software_exit(struct thcd *d);

#endif /* THCD_SOFTWARE_H */
