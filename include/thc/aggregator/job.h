/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A job as an aggregator knows it, and admission: whether a packet may touch
 * one. The daemon writes these records, the data path reads them.
 *
 * The first question is who sends (thc_admit_join(), thc_admit_rank()): a few
 * compares refuse what is not of the job, and a flood of it costs little. Then
 * the packet sum, since a corrupted packet's other fields mean nothing, then
 * what the header says (thc_admit_form(), thc_admit_data()).
 */
#ifndef THC_JOB_H
#define THC_JOB_H

#include <thc/aggregator/bucket.h>
#include <thc/aggregator/event.h>
#include <thc/aggregator/lane.h>
#include <thc/wire/sum.h>

/* Jobs of one aggregator; thc_hdr.job is an index below it. */
#define THC_JOBS_MAX	16

/* An IPv4 address is kept IPv4-mapped (::ffff:a.b.c.d), network order. */
struct thc_addr {
	u32	word[4];
};

#define THC_ADDR_MAPPED	0xffffU

THC_INLINE struct thc_addr thc_addr_v4(u32 be32_addr)
{
	struct thc_addr a = { { 0, 0, thc_be32(THC_ADDR_MAPPED), be32_addr } };

	return a;
}

/* Is it an IPv4 address? */
THC_INLINE int thc_addr_is_v4(const struct thc_addr *a)
{
	return !a->word[0] && !a->word[1] && a->word[2] == thc_be32(THC_ADDR_MAPPED);
}

THC_INLINE int thc_addr_equal(const struct thc_addr *a, const struct thc_addr *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

/**
 * struct thc_member - one rank of a job
 * @addr: where it joined from
 * @port: UDP port it joined from, network order
 * @joined: it is a member of the current epoch
 * @left: it has left the current epoch
 * @mac: last seen Ethernet source, for fanout
 * @vlan: last seen VLAN tag control, network order
 * @tagged: its frames carry a VLAN tag, if only one of priority (@vlan 0)
 */
struct thc_member {
	struct thc_addr	addr;
	__be16		port;
	u8		joined;
	u8		left;
	u8		mac[6];
	u16		vlan;
	u8		tagged;
	u8		reserved[3];
};

/* thc_job.flags */
#define THC_JOB_F_LINEAR	0x01	/* T[z] = z */
#define THC_JOB_F_NOSUM		0x02	/* packets carry no sum */

/**
 * struct thc_job - constants and state of a job
 * @cookie: secret of the job
 * @all: bit r for r < ranks
 * @left: ranks that left this epoch
 * @joined: ranks that joined this epoch
 * @active: 0: no such job
 * @epoch: current incarnation
 * @slot_base: the job's first slot in the aggregator's slot arrays
 * @slots: data and norm slots together
 * @data_slots: W, the first of them
 * @ranks: n
 * @quorum: least contributions of a generation closed by deadline
 * @culprit: rank that raised the epoch last by restarting, THC_RANK_NONE: none did
 * @ttl_min: least TTL (hop limit) that a request arrives with, 0: any
 * @sum_width: bits of a LUT_ADD sum, 8 or 16
 * @reply: enum thc_reply
 * @flags: THC_JOB_F_*
 * @group_port: UDP port of @group, network order
 * @group: multicast group of answers
 * @deadline_ms: 0: never closed by deadline
 * @port_base: first UDP port of the aggregator, host order
 */
struct thc_job {
	u64		cookie;
	u64		all;
	u64		left;
	u64		joined;
	u32		active;
	u32		epoch;
	u32		slot_base;
	u16		slots;
	u16		data_slots;
	u16		ranks;
	u8		quorum;
	u8		ttl_min;
	u8		culprit;
	u8		sum_width;
	u8		reply;
	u8		flags;
	u16		group_port;
	u16		port_base;
	u32		deadline_ms;
	struct thc_addr	group;
	struct thc_member member[THC_RANKS_MAX];
};

/* Bit r for every r < @ranks; @ranks is 1 .. THC_RANKS_MAX. */
THC_INLINE u64 thc_ranks_mask(u32 ranks)
{
	return ~0ULL >> (THC_RANKS_MAX - ranks);
}

/* How many ranks are in @mask. */
THC_INLINE u32 thc_ranks_count(u64 mask)
{
	mask -= mask >> 1 & 0x5555555555555555ULL;
	mask = (mask & 0x3333333333333333ULL) + (mask >> 2 & 0x3333333333333333ULL);
	mask = (mask + (mask >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (u32)(mask * 0x0101010101010101ULL >> 56);
}

/**
 * struct thc_path - where a packet came from and went to
 * @src: its sender
 * @src_port: its sender's UDP port, host order
 * @dst_port: the aggregator's UDP port, host order
 * @ttl: TTL (hop limit) that was left of THC_TTL
 */
struct thc_path {
	struct thc_addr	src;
	u16		src_port;
	u16		dst_port;
	u8		ttl;
	u8		reserved[3];
};

/* Is @op one that a worker may send? Data first: it is the common case. */
THC_INLINE int thc_op_is_data(u8 op)
{
	return op >= THC_OP_LUT_ADD && op <= THC_OP_DATA_MAX;
}

THC_INLINE int thc_op_is_control(u8 op)
{
	return op == THC_OP_JOIN || op == THC_OP_LEAVE;
}

/* Has the packet passed no more routers than its job allows? Asked before the packet sum:
 * it costs nothing, and ends what is sent from afar under a worker's address.
 */
THC_INLINE int thc_admit_near(const struct thc_job *job, const struct thc_path *path)
{
	return path->ttl >= job->ttl_min;
}

/**
 * thc_admit_form() - what a header says about itself
 * @h: the header; @payload_len bytes follow it
 *
 * Returns THC_DROP_NONE or why not. Length against op is checked with the
 * job, which knows the lane widths.
 */
THC_INLINE enum thc_drop_reason thc_admit_form(const struct thc_hdr *h)
{
	if (h->version != THC_VERSION)
		return THC_DROP_VERSION;
	if (!thc_op_is_data(h->op) && !thc_op_is_control(h->op))
		return THC_DROP_OP;
	if (h->flags & ~THC_F_REQUEST)
		return THC_DROP_FLAGS;
	if (h->reserved || h->count || h->bitmap)
		return THC_DROP_RESERVED;
	return THC_DROP_NONE;
}

/* May this packet go without a packet sum? Data may where its job says so; JOIN and LEAVE
 * never.
 */
THC_INLINE int thc_admit_nosum(const struct thc_job *job, const struct thc_hdr *h)
{
	return h->flags & THC_F_NOSUM && thc_op_is_data(h->op) && job->active &&
	       job->flags & THC_JOB_F_NOSUM;
}

/* Does the packet name a job that is there, its cookie, and one of its ranks? */
THC_INLINE enum thc_drop_reason thc_admit_name(const struct thc_job *job, const struct thc_hdr *h)
{
	if (!job->active)
		return THC_DROP_JOB;
	if (h->cookie != thc_be64(job->cookie))
		return THC_DROP_COOKIE;
	return h->rank < job->ranks ? THC_DROP_NONE : THC_DROP_RANK;
}

/**
 * thc_admit_join() - may this JOIN go on to the daemon?
 * @job: found by thc_hdr.job; NULL: no job can have that number
 * @strangers: what JOINs that no job admits are counted against; NULL: nothing
 * @now: ns, of a clock that does not go back
 *
 * The daemon tells a stranger why it is refused, and looks at the address.
 */
THC_INLINE enum thc_drop_reason thc_admit_join(const struct thc_job *job, const struct thc_hdr *h,
					       struct thc_bucket *strangers, u64 now)
{
	if (job && !thc_admit_name(job, h))
		return THC_DROP_NONE;
	return !strangers || thc_bucket_take(strangers, now) ? THC_DROP_NONE : THC_DROP_FLOOD;
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
	const struct thc_member *m = &job->member[h->rank & (THC_RANKS_MAX - 1)];
	enum thc_drop_reason why = thc_admit_name(job, h);

	if (why)
		return why;
	if (!m->port)
		return THC_DROP_RANK;
	if (m->port != thc_be16(path->src_port) || !thc_addr_equal(&m->addr, &path->src))
		return THC_DROP_ADDRESS;
	return THC_DROP_NONE;
}

/* The data packet, refused with @why, is of an epoch that ended because the
 * aggregator started anew: its rank is told so, like one of any other old epoch.
 */
THC_INLINE int thc_admit_lost(const struct thc_job *job, const struct thc_hdr *h,
			      enum thc_drop_reason why)
{
	return why == THC_DROP_RANK && h->rank < job->ranks && thc_op_is_data(h->op) &&
	       (s32)(thc_be32(h->epoch) - job->epoch) < 0;
}

/* The UDP port slot @slot is reached on. */
THC_INLINE u16 thc_slot_port(u16 port_base, u32 slot)
{
	return port_base + slot / THC_SLOTS_PER_PORT;
}

/* The chunk that generation @generation of slot @slot is for, modulo 2^32. */
THC_INLINE u32 thc_slot_chunk(const struct thc_job *job, u32 slot, u32 generation)
{
	u32 data = job->data_slots, norms = job->slots - data;

	return slot < data ? generation * data + slot : generation * norms + slot - data;
}

/**
 * thc_admit_data() - does a data packet fit its job?
 * @payload_len: bytes behind the header
 * @kind: out: how its payload becomes lanes
 */
THC_INLINE enum thc_drop_reason thc_admit_data(const struct thc_job *job, const struct thc_hdr *h,
					       const struct thc_path *path, u32 payload_len,
					       enum thc_lane_kind *kind)
{
	u32 slot = thc_be16(h->slot);

	*kind = thc_lane_kind(h->op, h->width, job->sum_width, job->flags & THC_JOB_F_LINEAR);
	if (*kind == THC_LANE_NONE)
		return THC_DROP_WIDTH;
	if (payload_len != thc_lane_payload(*kind))
		return THC_DROP_LENGTH;
	if (slot >= job->slots)
		return THC_DROP_SLOT;
	if (path->dst_port != job->port_base &&
	    path->dst_port != thc_slot_port(job->port_base, slot))
		return THC_DROP_SLOT;
	/* nobody holds a slot against the others with a chunk that is not the slot's */
	if (thc_be32(h->chunk) != thc_slot_chunk(job, slot, thc_be32(h->generation)))
		return THC_DROP_SLOT;
	return THC_DROP_NONE;
}

#endif /* THC_JOB_H */
