/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the XDP programs and the daemon share besides include/thc/: the layout
 * of map values that only these two know. Map definitions are in maps.bpf.h.
 *
 *	jobs	array, THC_JOBS_MAX	struct thc_job, mmapped by the daemon
 *	seals_of	array, THC_JOBS_MAX	struct thc_seals, mmapped by the daemon
 *	pairs	array, THC_ROWS_MAX	struct thc_pairs, at thc_row_of_all()
 *	slots	array, set at load	struct thc_slot, mmapped by the daemon
 *	lanes	array, as slots		struct thc_lanes, mmapped by the daemon
 *	stats	per-CPU array, 1	struct thc_stats
 *	strangers	per-CPU array, 1	struct thc_bucket
 *	copies	per-CPU array, 1	a payload
 *	fan	array of devmaps	[n]: the interface n + 1 times
 *	relay	ring buffer		struct thc_relay
 */
#ifndef THC_MAPS_H
#define THC_MAPS_H

#include <thc/aggregator/bucket.h>
#include <thc/aggregator/event.h>
#include <thc/aggregator/job.h>
#include <thc/aggregator/nibble.h>
#include <thc/aggregator/slot.h>

/* Lanes of both generations of a slot, little-endian words. */
struct thc_lanes {
	u64 word[2][THC_LANE_WORDS];
};

/**
 * struct thc_config - constants of one aggregator, fixed at load time
 * @addr4: the interface's IPv4 address, mapped; all zero: none
 * @addr6: the interface's IPv6 address; all zero: none
 * @port_base: first UDP port, host order
 * @relay: 1: answers go through the relay ring, the daemon sends them
 *	(generic XDP cannot grow frames)
 *
 * A packet whose destination is neither address, or whose UDP port is not in
 * [port_base, port_base + THC_PORT_SPAN), is not THC and passes untouched.
 */
struct thc_config {
	struct thc_addr addr4;
	struct thc_addr addr6;
	u16 port_base;
	u16 relay;
};

/* Answers that XDP hands to the daemon to send. */
enum thc_relay_type {
	THC_RELAY_ALL = 1, /* a finished generation, to all ranks */
	THC_RELAY_ONE, /* a finished generation, once more, to one rank */
	THC_RELAY_HEADER, /* @hdr as it is, to where the request came from */
};

/* struct thc_relay - one answer for the daemon to send */
struct thc_relay {
	u32 type;
	u16 job;
	u16 rank;
	u32 slot;
	u32 generation;
	struct thc_hdr hdr; /* THC_RELAY_HEADER: sealed */
	struct thc_path path; /* of the request */
};

/* Input packet of the program thc_close (BPF_PROG_TEST_RUN only), which the daemon pads to an
 * Ethernet minimum. The return value is XDP_TX if the generation is now closed, XDP_DROP if there
 * was nothing to close, and XDP_ABORTED if the slot's lock was not free: try again.
 */
struct thc_close_request {
	u32 job;
	u32 slot;
	u32 generation;
	u32 reserved;
};

#endif /* THC_MAPS_H */
