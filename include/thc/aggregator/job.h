/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A job as an aggregator knows it. The daemon writes these records; the data path reads them, and
 * writes the fields of struct thc_member that maps.bpf.h names.
 */
#ifndef THC_JOB_H
#define THC_JOB_H

#include <thc/aggregator/bucket.h>
#include <thc/wire/address.h>
#include <thc/wire/rows.h>
#include <thc/wire/seal.h>

/* Jobs of one aggregator; thc_hdr.job is an index below it. */
#define THC_JOBS_MAX	16

/**
 * struct thc_member - one rank of a job
 * @addr: address that it joined from
 * @port: UDP port it joined from, network order
 * @joined: it has joined the current epoch
 * @left: it has left the current epoch
 * @mac: Ethernet source of its last contribution that was added, for fanout
 * @vlan: VLAN tag control of that contribution, network order
 * @tagged: its frames carry a VLAN tag, which may be a priority tag alone (@vlan 0)
 * @told_at: when this rank was last told that an epoch is over; ns of the aggregator's clock
 * @joins: limits the JOINs in this rank's name that XDP passes on
 * @leaves: limits the LEAVEs in this rank's name
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
	u64		told_at;
	struct thc_bucket joins;
	struct thc_bucket leaves;
};

/* thc_job.flags */
#define THC_JOB_F_LINEAR	0x01	/* T[z] = z in the row of 4 bits */

/**
 * struct thc_job - constants and state of a job
 * @all: bit r for r < ranks
 * @left: ranks that left this epoch
 * @joined: ranks that joined this epoch
 * @active: 0: no such job
 * @epoch: current incarnation
 * @slot_base: the job's first slot in the aggregator's slot arrays
 * @slots: data and control slots together
 * @data_slots: W, the slots of the data stream, which come first
 * @ranks: n
 * @quorum: least contributions of a generation closed by deadline
 * @restarter: worker that raised the epoch last by restarting, THC_WORKER_NONE: none did
 * @ttl_min: least TTL (hop limit) that a request arrives with, 0: any
 * @reply: enum thc_reply
 * @flags: THC_JOB_F_*
 * @widths: its rows, of LUT_ADD
 * @group_port: UDP port of @group, network order
 * @group: multicast group of answers
 * @deadline_ms: 0: never closed by deadline
 * @port_base: first UDP port of the aggregator, host order
 */
struct thc_job {
	u64		all;
	u64		left;
	u64		joined;
	u32		active;
	u32		epoch;
	u32		slot_base;
	u16		slots;
	u16		data_slots;
	u16		ranks;
	u16		restarter;
	u8		quorum;
	u8		ttl_min;
	u8		reply;
	u8		flags;
	struct thc_widths widths;
	u16		group_port;
	u16		port_base;
	u32		deadline_ms;
	struct thc_addr	group;
	struct thc_member member[THC_RANKS_MAX];
};

/* Rows of all jobs of an aggregator, each in its place: eight a job. */
#define THC_ROWS_MAX	(THC_JOBS_MAX * THC_BITS_MAX)

/* Index of the table of @width bits of job @job among the rows of all jobs. */
THC_INLINE u32 thc_row_of_all(u32 job, u32 width)
{
	return job * THC_BITS_MAX + thc_row_at(width);
}

/* LUT_ADD by the row that a request of @width names. */
THC_INLINE struct thc_row thc_job_row(const struct thc_job *job, u8 width)
{
	struct thc_row row = thc_widths_row(&job->widths, width);

	row.linear = !!(job->flags & THC_JOB_F_LINEAR);
	return row;
}

/**
 * struct thc_seals - the keys of a job's packets
 * @seal: enum thc_seal_type of requests and answers
 * @aggregator: number of this aggregator in the job, network order
 * @up: keys of requests, [epoch & 1], so that those of an epoch and the next one are there
 * @down: keys of answers, as @up
 * @join: key of JOIN and LEAVE
 * @lost: key of a STALE that ends an epoch, since the epoch's own keys may be gone
 */
struct thc_seals {
	u32			seal;
	__be16			aggregator;
	u16			reserved;
	struct thc_seal_key	up[2];
	struct thc_seal_key	down[2];
	struct thc_member_key	join;
	struct thc_member_key	lost;
};

THC_INLINE const struct thc_seal_key *thc_seals_up(const struct thc_seals *s, u32 epoch)
{
	return &s->up[epoch & 1];
}

THC_INLINE const struct thc_seal_key *thc_seals_down(const struct thc_seals *s, u32 epoch)
{
	return &s->down[epoch & 1];
}

/**
 * struct thc_path - source and destination of a packet
 * @src: its sender's address
 * @src_port: its sender's UDP port, host order
 * @dst_port: the aggregator's UDP port, host order
 * @ttl: TTL (hop limit) on arrival
 */
struct thc_path {
	struct thc_addr	src;
	u16		src_port;
	u16		dst_port;
	u8		ttl;
	u8		reserved[3];
};

/* The worker's end of @path, as it is sealed. */
THC_INLINE struct thc_end thc_path_end(const struct thc_path *path, const struct thc_seals *seals)
{
	struct thc_end end = {
		.addr = path->src,
		.port = thc_be16(path->src_port),
		.aggregator = seals->aggregator,
	};

	return end;
}

#endif /* THC_JOB_H */
