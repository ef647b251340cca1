/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What an aggregator counts. A packet that reaches a THC port is counted once
 * in `received` and once under its fate: one of the events up to
 * THC_EVENT_FATES or one enum thc_drop_reason. So
 *
 *	received = sum(fate events) + sum(drops)
 *
 * always holds, and tools check that it does.
 */
#ifndef THC_EVENT_H
#define THC_EVENT_H

#include <thc/types.h>

enum thc_event {
	/* fates of a received packet */
	THC_EVENT_ADDED,	/* a contribution, counted into a sum */
	THC_EVENT_WAITED,	/* a duplicate of an unfinished generation */
	THC_EVENT_REPEATED,	/* a duplicate of a finished generation */
	THC_EVENT_STALE,	/* a contribution to a generation that is gone */
	THC_EVENT_EPOCH,	/* a packet of an epoch that is gone */
	THC_EVENT_MEMBERSHIP,	/* JOIN and LEAVE, handed to the daemon */
	THC_EVENT_FATES,

	/* answers */
	THC_EVENT_FINISHED = THC_EVENT_FATES,	/* generations finished by all ranks */
	THC_EVENT_CLOSED,	/* generations closed by deadline */
	THC_EVENT_SENT,		/* answer frames sent */
	THC_EVENT_RELAYED,	/* answers handed to the daemon to send */
	THC_EVENT_LOST,		/* answers that could not be sent */
	THC_EVENTS
};

/**
 * struct thc_stats - one CPU's counters
 * @received: packets that reached a THC port
 * @event: by enum thc_event
 * @drop: by enum thc_drop_reason; @drop[THC_DROP_NONE] stays zero
 */
struct thc_stats {
	u64	received;
	u64	event[THC_EVENTS];
	u64	drop[THC_DROP_REASONS];
};

#endif /* THC_EVENT_H */
