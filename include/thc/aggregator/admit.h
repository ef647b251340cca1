/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Admission: whether a packet may touch a job. Each function is one question; react.h asks
 * them in order.
 */
#ifndef THC_ADMIT_H
#define THC_ADMIT_H

#include <thc/aggregator/bucket.h>
#include <thc/aggregator/job.h>
#include <thc/wire/format.h>
#include <thc/wire/route.h>
#include <thc/wire/seal.h>

/* Has the packet passed no more routers than its job allows? Asked before the seal:
 * it costs nothing, and ends what is sent from afar under a worker's address.
 */
THC_INLINE int thc_admit_near(const struct thc_job *job, const struct thc_path *path)
{
	return path->ttl >= job->ttl_min;
}

/**
 * thc_admit_form() - checks a header by itself
 *
 * The length is checked with the job, which knows the lane widths.
 */
THC_INLINE enum thc_drop_reason thc_admit_form(const struct thc_hdr *h)
{
	if (h->version != THC_VERSION)
		return THC_DROP_VERSION;
	if (!thc_op_is_data(h->op) && !thc_op_is_membership(h->op))
		return THC_DROP_OP;
	if (h->flags)
		return THC_DROP_FLAGS;
	if (h->count || h->bitmap)
		return THC_DROP_RESERVED;
	return THC_DROP_NONE;
}

/* Does the packet name a job that is there, and one of its ranks? */
THC_INLINE enum thc_drop_reason thc_admit_name(const struct thc_job *job, const struct thc_hdr *h)
{
	if (!job->active)
		return THC_DROP_JOB;
	return thc_be16(h->rank) < job->ranks ? THC_DROP_NONE : THC_DROP_RANK;
}

/**
 * thc_admit_rank() - may this packet, no JOIN, speak for its rank?
 * @job: found by thc_hdr.job
 *
 * Epoch is not looked at: a packet of another epoch is answered, not dropped.
 */
THC_INLINE enum thc_drop_reason thc_admit_rank(const struct thc_job *job, const struct thc_hdr *h,
					       const struct thc_path *path)
{
	const struct thc_member *m = &job->member[thc_be16(h->rank) & (THC_RANKS_MAX - 1)];
	enum thc_drop_reason why = thc_admit_name(job, h);

	if (why)
		return why;
	if (!m->port)
		return THC_DROP_RANK;
	if (m->port != thc_be16(path->src_port) || !thc_addr_equal(&m->addr, &path->src))
		return THC_DROP_ADDRESS;
	return THC_DROP_NONE;
}

/* Is a data packet that was refused for @why from before a restart of the aggregator? Then its
 * rank gets STALE, as for any other old epoch.
 */
THC_INLINE int thc_admit_lost(const struct thc_job *job, const struct thc_hdr *h,
			      enum thc_drop_reason why)
{
	return why == THC_DROP_RANK && thc_be16(h->rank) < job->ranks &&
	       (s32)(thc_be32(h->epoch) - job->epoch) < 0;
}

/* The lane kind of a request. */
THC_INLINE enum thc_lane_kind thc_admit_kind(const struct thc_job *job, const struct thc_hdr *h)
{
	return thc_lane_kind(h->op, h->width, thc_job_row(job, h->width));
}

/**
 * thc_admit_data() - does a data packet fit its job?
 * @payload_len: bytes behind the header
 */
THC_INLINE enum thc_drop_reason thc_admit_data(const struct thc_job *job, const struct thc_hdr *h,
					       const struct thc_path *path, u32 payload_len)
{
	enum thc_lane_kind kind = thc_admit_kind(job, h);
	u32 slot = thc_be16(h->slot);
	struct thc_place at = { slot, thc_be32(h->generation) };

	if (kind == THC_LANE_NONE || !thc_op_is_used(h->op, job->ranks))
		return THC_DROP_WIDTH;
	if (payload_len != thc_lane_payload(kind, h->width))
		return THC_DROP_LENGTH;
	if (slot >= job->slots)
		return THC_DROP_SLOT;
	if (path->dst_port != job->port_base &&
	    path->dst_port != thc_slot_port(job->port_base, slot))
		return THC_DROP_SLOT;
	/* a worker must not occupy a slot with a chunk of another slot */
	if (thc_be32(h->chunk) != thc_place_chunk(at, job->data_slots, job->slots))
		return THC_DROP_SLOT;
	return THC_DROP_NONE;
}

#endif /* THC_ADMIT_H */
