/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A packet's way through the aggregator: this file parses it, calls include/thc/aggregator/react.h,
 * counts it and answers it. All of that is inlined into the receiving program; rare or large parts
 * are subprograms elsewhere.
 */
#ifndef THC_INGRESS_BPF_H
#define THC_INGRESS_BPF_H

#include "home.bpf.h"
#include "reply.bpf.h"
#include "stats.bpf.h"

/* The action for a frame with IPv6 extension headers. */
__noinline int thc_ingress_extended(struct xdp_md *ctx)
{
	struct thc_stats *st = thc_stats_get();
	int why = thc_parse_extensions(ctx);

	if (why < 0)
		return XDP_PASS;
	if (!st)
		return XDP_ABORTED;
	thc_react_count(st, thc_react_drop(why));
	return XDP_DROP;
}

/* Returns the XDP action for a frame. */
static __always_inline int thc_ingress(struct xdp_md *ctx)
{
	struct thc_parsed in;
	struct thc_home home = { .ctx = ctx, .in = &in, .end = (void *)(long)ctx->data_end };
	u32 job_id, rank, mode = THC_MODE_ONE;
	struct thc_seals *seals;
	struct thc_job *job;
	struct thc_reaction r;
	struct thc_stats *st;
	int why;

	why = thc_parse(ctx, &in);
	if (why < 0)
		return why == THC_PARSE_EXTENDED ? thc_ingress_extended(ctx) : XDP_PASS;
	st = thc_stats_get();
	if (!st)
		return XDP_ABORTED;
	if (why) {
		thc_react_count(st, thc_react_drop(why));
		return XDP_DROP;
	}

	job_id = thc_be16(in.packet.hdr->job);
	rank = thc_be16(in.packet.hdr->rank);
	job = bpf_map_lookup_elem(&jobs, &job_id);
	seals = bpf_map_lookup_elem(&seals_of, &job_id);
	/* both arrays have an entry for each job */
	if (!seals)
		job = NULL;
	r = thc_react(&home, job, seals, &in.packet);
	thc_react_count(st, r);
	if (r.to == THC_TO_DAEMON)
		return XDP_PASS;
	if (r.to == THC_TO_NOBODY || !job)
		return XDP_DROP;
	if (r.to == THC_TO_ALL)
		mode = job->reply == THC_REPLY_FANOUT ? THC_MODE_FANOUT : THC_MODE_GROUP;
	return thc_reply(ctx, job_id, home.index, mode, rank);
}

#endif /* THC_INGRESS_BPF_H */
