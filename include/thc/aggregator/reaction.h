/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A packet at an aggregator, and the reaction to it. react.h decides; the homes that include
 * this file act on it.
 */
#ifndef THC_REACTION_H
#define THC_REACTION_H

#include <thc/aggregator/event.h>
#include <thc/aggregator/job.h>

/**
 * struct thc_packet - a packet at a port of the aggregator
 * @hdr: its header, in place: the answer overwrites it
 * @path: its source and destination
 * @payload_len: bytes behind @hdr
 * @ce: it met congestion on its way (ECN CE)
 */
struct thc_packet {
	struct thc_hdr	*hdr;
	struct thc_path	path;
	u32		payload_len;
	u8		ce;
};

/* Where a reaction sends a packet. */
enum thc_to {
	THC_TO_NOBODY,
	THC_TO_SENDER,		/* the answer whose header stands in the packet */
	THC_TO_ALL,		/* the answer, to all ranks: the generation is finished */
	THC_TO_DAEMON,		/* the packet itself: JOIN or LEAVE */
	THC_TO_SLOT,		/* the packet itself: thc_react_gate() has let it pass */
};

/**
 * struct thc_reaction - what becomes of a packet
 * @why: enum thc_drop_reason; THC_DROP_NONE: @event is its fate
 * @event: enum thc_event, below THC_EVENT_FATES
 * @to: enum thc_to; a packet that is dropped may have an answer, too
 */
struct thc_reaction {
	u8	why;
	u8	event;
	u8	to;
};

THC_INLINE struct thc_reaction thc_react_drop(enum thc_drop_reason why)
{
	struct thc_reaction r = { .why = why, .to = THC_TO_NOBODY };

	return r;
}

THC_INLINE struct thc_reaction thc_react_with(enum thc_event event, enum thc_to to)
{
	struct thc_reaction r = { .event = event, .to = to };

	return r;
}

/* Counts a packet under its reaction @r. */
THC_INLINE void thc_react_count(struct thc_stats *st, struct thc_reaction r)
{
	st->received++;
	if (!r.why && r.event < THC_EVENT_FATES)
		st->event[r.event]++;
	else if (r.why < THC_DROP_REASONS)
		st->drop[r.why]++;
	if (r.to == THC_TO_ALL)
		st->event[THC_EVENT_FINISHED]++;
}

#endif /* THC_REACTION_H */
