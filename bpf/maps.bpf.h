/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The maps of the XDP aggregator and its load-time constants. What their
 * values mean is in <thc/aggregator/maps.h>; here is which program fills them.
 *
 * What a loader does with the skeleton `thc_bpf` (thc_open.h):
 *
 *	open	skel->rodata->thc_config = { addresses, port_base, relay };
 *		bpf_map__set_max_entries(skel->maps.slots, n) and .lanes, same n:
 *		the sum of all jobs' slots
 *	load	nothing is pinned by the object; pin maps and links as you like
 *	fill	jobs[id], seals_of[id]: one per job; pairs[]: one per row of a job, at
 *		thc_row_of_all(). Write a job's `active` last.
 *		fan[k], k = 0..64: an inner devmap (below) whose entries 0..k are
 *		all struct bpf_devmap_val { ifindex, prog fd of thc_egress }, that
 *		is the interface k + 1 times. [0] carries WAIT and STALE, [1]
 *		multicast answers and repeats, [n] fanout to n ranks; others may
 *		stay empty. Make the inner maps with
 *		bpf_map_create(BPF_MAP_TYPE_DEVMAP, NULL, sizeof(u32),
 *			       sizeof(struct bpf_devmap_val), k + 1, NULL)
 *		and drop them after bpf_map_update_elem(fan, &k, &inner_fd, 0).
 *		With thc_config.relay, `fan` is not used.
 *	attach	skel->progs.thc_xdp to the interface; thc_egress only through
 *		`fan`; thc_close only by BPF_PROG_TEST_RUN, with repeat 0 or 1:
 *		more make the kernel patch its XDP dispatcher, which waits twice
 *		for all CPUs, some 20 ms each
 *
 * What else must hold: into a veth, redirected frames arrive only if its peer
 * has GRO on (or runs XDP itself). A VLAN tag is seen, and given to answers,
 * only inside the frame: veth carries it beside the frame unless the sending
 * end has `txvlan off`, and a NIC that strips tags must be told not to.
 *
 * A member's `mac`, `vlan`, `tagged`, `told_at`, `joins` and `leaves` are written by
 * thc_xdp, everything else in a job by the daemon. Slot numbers in struct thc_close_request and
 * struct thc_relay are those inside the job, as on the wire.
 */
#ifndef THC_MAPS_BPF_H
#define THC_MAPS_BPF_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <thc/aggregator/kfunc.h>
#include <thc/aggregator/maps.h>

const volatile struct thc_config thc_config = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, THC_JOBS_MAX);
	__type(key, u32);
	__type(value, struct thc_job);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, THC_JOBS_MAX);
	__type(key, u32);
	__type(value, struct thc_seals);
} seals_of SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THC_ROWS_MAX);
	__type(key, u32);
	__type(value, struct thc_pairs);
} pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, THC_SLOTS_MAX);
	__type(key, u32);
	__type(value, struct thc_slot);
} slots SEC(".maps");

/* Apart from `slots`: a struct thc_lanes fills whole cache lines, and begins one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, THC_SLOTS_MAX);
	__type(key, u32);
	__type(value, struct thc_lanes);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thc_stats);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thc_bucket);
} strangers SEC(".maps");

/**
 * struct thc_turn - numbers the clones of one answer, per CPU
 * @next: tag of the next answer
 * @tag: answer whose clones are passing thc_egress
 * @count: clones of it seen so far
 */
struct thc_turn {
	u32 next;
	u32 tag;
	u32 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thc_turn);
} turn SEC(".maps");

/* The payload of the packet at hand, of requests without a row in THC_FORMATS. No loop reads the
 * word behind the last one, which is for the verifier: it sees no closer bound of
 * aggregator/bits.h.
 */
struct thc_payload_copied {
	u64 word[THC_LANE_WORDS + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thc_payload_copied);
} copies SEC(".maps");

/* Indexed by rank: entries of requests, then those of answers. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * THC_RANKS_MAX);
	__type(key, u32);
	__type(value, struct thc_seal_begun);
} begun SEC(".maps");

THC_INLINE struct thc_seal_begun *thc_seal_begun_of(const struct thc_hdr *h)
{
	u32 at = (thc_be16(h->rank) & (THC_RANKS_MAX - 1)) +
		 (h->flags & THC_F_ANSWER ? THC_RANKS_MAX : 0);

	return bpf_map_lookup_elem(&begun, &at);
}

struct thc_fan_inner {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, THC_RANKS_MAX + 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
	__array(values, struct thc_fan_inner);
} fan SEC(".maps");

/* Room of the relay ring. */
#define THC_RELAY_BYTES		(256 * 1024)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, THC_RELAY_BYTES);
} relay SEC(".maps");

#endif /* THC_MAPS_BPF_H */
