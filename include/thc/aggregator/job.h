/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A job as an aggregator knows it. The daemon writes these records, the data path
 * reads them.
 */
#ifndef THC_JOB_H
#define THC_JOB_H

#include <thc/types.h>

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
 * @data_slots: W, the slots of the data stream, which come first
 * @ranks: n
 * @quorum: least contributions of a generation closed by deadline
 * @restarter: rank that raised the epoch last by restarting, THC_RANK_NONE: none did
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
	u8		restarter;
	u8		sum_width;
	u8		reply;
	u8		flags;
	u16		group_port;
	u16		port_base;
	u32		deadline_ms;
	struct thc_addr	group;
	struct thc_member member[THC_RANKS_MAX];
};

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

#endif /* THC_JOB_H */
