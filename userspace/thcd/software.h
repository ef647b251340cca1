/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The software aggregator: what bpf/ does, in user space.
 */
#ifndef THCD_SOFTWARE_H
#define THCD_SOFTWARE_H

#include "thcd.h"

/* A data packet of good form and sum, from a rank of its job; its header is made into the answer.
 * Returns the drop reason, or THC_DROP_NONE when its fate was an event.
 */
enum thc_drop_reason thcd_software(struct thcd *d, struct thc_hdr *h, u32 length,
				   const struct thc_path *path, bool ce);

/* Closes a generation by deadline; true if it is closed now. */
bool thcd_software_close(struct thcd *d, u16 job_id, u32 slot, u32 generation);

/* Allocates what XDP mode has as maps. */
int thcd_software_init(struct thcd *d, u32 slots, struct thcd_error *e);
void thcd_software_exit(struct thcd *d);

#endif /* THCD_SOFTWARE_H */
