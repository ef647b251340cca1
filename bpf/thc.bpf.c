// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The XDP aggregator: its programs. thc_xdp takes contributions on the
 * interface, thc_egress (reply.bpf.h) completes its answers on their way out,
 * thc_close finishes a generation whose deadline has passed. The maps and how
 * a loader fills them are described in maps.bpf.h.
 */
#include "ingress.bpf.h"

SEC("xdp")
int thc_xdp(struct xdp_md *ctx)
{
	return thc_ingress(ctx);
}

/* Run by the daemon through BPF_PROG_TEST_RUN: see struct thc_close_request. User space never takes
 * a slot's lock, so no lock stays taken if the daemon is killed.
 */
SEC("xdp")
int thc_close(struct xdp_md *ctx)
{
	struct thc_close_request *r = (void *)(long)ctx->data;
	struct thc_stats *st = thc_stats_get();
	struct thc_lane_block *block;
	u32 index, generation, odd;
	struct thc_lanes *l;
	struct thc_slot *s;
	struct thc_seals *seals;
	struct thc_job *job;
	int closed;

	if (!st || (void *)(r + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	job = bpf_map_lookup_elem(&jobs, &r->job);
	if (!job || !job->active || r->slot >= job->slots)
		return XDP_DROP;
	index = job->slot_base + r->slot;
	generation = r->generation;
	odd = generation & 1;
	s = thc_slot_get(index);
	l = thc_lanes_get(index);
	seals = bpf_map_lookup_elem(&seals_of, &r->job);
	if (!s || !l || !seals)
		return XDP_DROP;
	block = (void *)l->word[odd];
	if (!thc_slot_trylock(s))
		return XDP_ABORTED;
	closed = thc_slot_close(s, job->epoch, generation, job->quorum);
	if (closed)
		thc_lanes_finish(&s->generation[odd], block, seals, s->epoch);
	thc_slot_unlock(s);
	if (!closed)
		return XDP_DROP;
	thc_count(st, THC_EVENT_CLOSED);
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
