/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A packet's way through the aggregator: parse, admit, meet the slot, combine
 * the lanes, answer. Everything here is inlined into the program that
 * receives; what is rare or large is a subprogram elsewhere.
 */
#ifndef THC_INGRESS_BPF_H
#define THC_INGRESS_BPF_H

#include "admit.bpf.h"
#include "lanes.bpf.h"
#include "reply.bpf.h"
#include "slots.bpf.h"

/* Combines the payload at @h with lanes of the given kind. */
static __always_inline int thc_combine(enum thc_lane_kind kind, struct thc_lane_block *to,
				       struct thc_hdr *h, void *end, const struct thc_pairs *table,
				       u32 first)
{
	void *payload = h + 1;

#define THC_COMBINE(KIND, name, bytes, ...) \
	case THC_LANE_##KIND: \
		if (payload + (bytes) > end) \
			return -1; \
		return thc_lanes_bpf_##name(to, payload, ##__VA_ARGS__, first);

	switch (kind) {
		THC_COMBINE(LUT8, lut8, 512, table)
		THC_COMBINE(LINEAR8, linear8, 512)
		THC_COMBINE(LUT16, lut16, 256, table)
		THC_COMBINE(ADD8, add8, 1024)
		THC_COMBINE(ADD16, add16, 1024)
		THC_COMBINE(ADD32, add32, 1024)
		THC_COMBINE(OR, or, 1024)
		THC_COMBINE(MAX, max, 1024)
	default:
		return -1;
	}
#undef THC_COMBINE
}

/**
 * thc_answer_slot() - writes the answer to a contribution over its header
 * @h: the request's header, in its frame
 * @job: its job
 * @s: its slot, locked
 * @verdict: enum thc_verdict; THC_ADD: the generation is finished
 *
 * Returns 0, or -1: there is no answer.
 */
__noinline int thc_answer_slot(struct thc_hdr *h, struct thc_job *job, struct thc_slot *s,
			       u32 verdict)
{
	struct thc_version *v;

	if (!h || !job || !s)
		return -1;
	v = &s->version[thc_be32(h->generation) & 1];
	switch (verdict) {
	case THC_ADD:
		thc_answer_result(h, job, thc_be16(h->job), s->epoch, v, thc_be16(h->slot), 0, 0);
		break;
	case THC_REPEAT:
		thc_answer_result(h, job, thc_be16(h->job), s->epoch, v, thc_be16(h->slot), h->rank,
				  1);
		break;
	case THC_WAIT:
		thc_answer_wait(h, job, v);
		break;
	case THC_BUSY:
	case THC_MISMATCH:
		return thc_answer_differs(h, job, s) ? 0 : -1;
	default:
		thc_answer_stale(h, job, s);
	}
	return 0;
}

/* A data packet of the current epoch, admitted. Returns the frame's action. */
static __always_inline int thc_contribute(struct xdp_md *ctx, struct thc_stats *st,
					  const struct thc_packet *p, struct thc_job *job,
					  enum thc_lane_kind kind)
{
	u32 job_id = thc_be16(p->hdr->job), rank = p->hdr->rank;
	u32 index = job->slot_base + thc_be16(p->hdr->slot);
	struct thc_pairs *table = bpf_map_lookup_elem(&pairs, &job_id);
	void *end = (void *)(long)ctx->data_end;
	struct thc_slot *s = thc_slot_get(index);
	struct thc_lanes *l = thc_lanes_get(index);
	struct thc_arrival a = {
		/* the one admitted, though the job may have gone on to the next */
		.epoch = thc_be32(p->hdr->epoch),
		.generation = thc_be32(p->hdr->generation),
		.round = thc_be32(p->hdr->round),
		.chunk = thc_be32(p->hdr->chunk),
		.rank = rank,
		.op = p->hdr->op,
		.kind = kind,
		.ce = p->ce,
	};
	u32 v = a.generation & 1, mode = THC_MODE_ONE;
	struct thc_lane_block *block;
	struct thc_outcome o;
	int silent;

	if (!s || !l || !table)
		return thc_drop(st, THC_DROP_INTERNAL);
	block = (void *)l->word[v];
	if (!thc_slot_trylock(s))
		return thc_drop(st, THC_DROP_LOCK);

	o = thc_slot_arrive(s, &a, job->all);
	if (o.verdict == THC_ADD) {
		thc_combine(kind, block, p->hdr, end, table, o.first);
		if (!o.complete) {
			thc_slot_unlock(s);
			thc_count(st, THC_EVENT_ADDED);
			return XDP_DROP;
		}
		thc_lanes_finish(&s->version[v], block);
		thc_count(st, THC_EVENT_ADDED);
		thc_count(st, THC_EVENT_FINISHED);
		mode = job->reply == THC_REPLY_FANOUT ? THC_MODE_FANOUT : THC_MODE_GROUP;
	} else if (o.verdict == THC_BUSY || o.verdict == THC_MISMATCH) {
		thc_drop(st, o.verdict == THC_BUSY ? THC_DROP_BUSY : THC_DROP_MISMATCH);
	} else {
		thc_count(st, o.verdict == THC_WAIT   ? THC_EVENT_WAITED :
			      o.verdict == THC_REPEAT ? THC_EVENT_REPEATED :
							THC_EVENT_STALE);
	}
	silent = thc_answer_slot(p->hdr, job, s, o.verdict);
	thc_slot_unlock(s);
	return silent ? XDP_DROP : thc_reply(ctx, job_id, index, mode, rank);
}

/* JOIN and LEAVE go on to the daemon, unless there is a reason why not. */
static __always_inline int thc_control(struct thc_stats *st, enum thc_drop_reason why)
{
	if (why)
		return thc_drop(st, why);
	thc_count(st, THC_EVENT_CONTROL);
	return XDP_PASS;
}

static __always_inline int thc_ingress(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	enum thc_lane_kind kind;
	struct thc_stats *st;
	struct thc_packet p;
	struct thc_job *job;
	u32 job_id, rank;
	int why, refused;

	why = thc_parse(ctx, &p);
	if (why == THC_PARSE_FOREIGN)
		return XDP_PASS;
	st = thc_stats_get();
	if (!st)
		return XDP_ABORTED;
	st->received++;
	if (why)
		return thc_drop(st, why);
	if (p.hdr->version != THC_VERSION)
		return thc_drop(st, THC_DROP_VERSION);

	job_id = thc_be16(p.hdr->job);
	job = bpf_map_lookup_elem(&jobs, &job_id);
	if (job && !thc_admit_near(job, &p.path))
		return thc_drop(st, THC_DROP_HOPS);
	if (p.hdr->op == THC_OP_JOIN)
		return thc_control(st, thc_admit_joining(&p, job, end));
	if (!job)
		return thc_drop(st, THC_DROP_JOB);
	why = thc_admit_rank(job, p.hdr, &p.path);
	if (why && !thc_admit_lost(job, p.hdr, why))
		return thc_drop(st, why);
	refused = why;
	if (!thc_admit_nosum(job, p.hdr)) {
		why = thc_admit_sum(&p, end);
		if (why)
			return thc_drop(st, why);
	}
	why = thc_admit_form(p.hdr);
	if (why)
		return thc_drop(st, why);
	if (p.hdr->op == THC_OP_LEAVE)
		return thc_control(st, p.hdr->width  ? THC_DROP_WIDTH :
				       p.payload_len ? THC_DROP_LENGTH :
						       THC_DROP_NONE);

	rank = p.hdr->rank;
	if (!refused)
		thc_member_seen(&job->member[rank & (THC_RANKS_MAX - 1)], &p);
	if (refused || thc_be32(p.hdr->epoch) != job->epoch) {
		thc_count(st, THC_EVENT_EPOCH);
		thc_answer_epoch(p.hdr, job);
		return thc_reply(ctx, job_id, 0, THC_MODE_ONE, rank);
	}
	why = thc_admit_data(job, p.hdr, &p.path, p.payload_len, &kind);
	if (why)
		return thc_drop(st, why);
	return thc_contribute(ctx, st, &p, job, kind);
}

#endif /* THC_INGRESS_BPF_H */
