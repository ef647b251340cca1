/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the XDP side share: predecessor.c (what is pinned, and whose), programs.c
 * (programs and maps) and xdp.c (attachment, and what XDP cannot do itself).
 */
#ifndef THCD_XDP_STATE_H
#define THCD_XDP_STATE_H

#include <sys/mman.h>
#include <unistd.h>

#include "attach.h"
#include "config.h"
#include "pins.h"

/* What loading BPF programs takes; for sentences. */
#define THCD_XDP_TAKES	"CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or --software"

struct thcd_xdp {
	struct thcd_pins	pins;
	struct thc_hook	hook;
	struct thcd_meta	meta;
	struct thc_bpf		*skel;
	unsigned int		ifindex;
	int			old_fd;		/* program of the predecessor, -1: none */
	int			state_fd;
	int			meta_fd;
	int			prog_fd;	/* our program, of skel unless adopted */
	int			close_fd;
	bool			handed_over;
	bool			generic;
	bool			fresh;		/* nothing was pinned before us */
	bool			attached;
	u64			fan;		/* bit k: fan[k] is filled */
	u64			watch_ms;	/* next look at the hook */
	u32			id;		/* of our program, 0: not asked yet */
	char			lanes_by[32];
};

static inline void *thcd_map_memory(int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static inline void thcd_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* d->xdp with nothing in it. */
int thcd_xdp_empty(struct thcd *d, struct thcd_error *e);

/* Finds out whose the hook and the pins are. Opens the maps state and meta, and sets d->record.
 * d->kept: the pins are a predecessor's, whose jobs go on.
 */
int thcd_predecessor_find(struct thcd *d, const struct thcd_config *c, u32 slots,
			  const struct thcd_plan *plans, struct thcd_error *e);

/* Writes to meta whether the pins can be trusted. */
int thcd_state_complete(struct thcd_xdp *x, bool complete);
void thcd_state_close(struct thcd *d);

/* Loads the programs for generic or native XDP, and maps d->job, d->seals, d->slot and d->lanes. */
int thcd_programs_load(struct thcd *d, bool generic, struct thcd_error *e);

/* Opens the programs and maps that root prepared; takes no privilege. */
int thcd_programs_adopt(struct thcd *d, const struct thcd_config *c, struct thcd_error *e);
void thcd_programs_unload(struct thcd *d);

#endif /* THCD_XDP_STATE_H */
