/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Sockets of family AF_THC, which thc.ko has; man 7 af_thc. Structures are in host order, but for
 * those of <linux/thc_wire.h>, the packets' own. C90 and C++98 included.
 */
#ifndef _UAPI_LINUX_THC_H
#define _UAPI_LINUX_THC_H

#include <linux/thc_wire.h>
#include <linux/types.h>

/*
 * A dynamic module cannot add a family beyond AF_MAX; 18 was set aside for an
 * AF_ASH that was never written.
 */
#ifndef AF_THC
#define AF_THC		18
#define PF_THC		AF_THC
#endif

/* Level of socket options and ancillary data. */
#define SOL_THC		0x5448

/**
 * struct sockaddr_thc - a local address (bind) or a rank's place in a job (connect)
 * @sthc_family: AF_THC
 * @sthc_inet: AF_INET or AF_INET6, the family of @sthc_addr; connect: 0 stands for the aggregators
 *	and the key that the host's administrator gave the job, otherwise the key is that of
 *	THC_OPT_KEY
 * @sthc_port: connect: first UDP port of the aggregator, 0: THC_PORT_DEFAULT;
 *	bind: local UDP port, 0: any
 * @sthc_job: connect: job; bind: 0
 * @sthc_rank: connect: rank, below THC_RANKS_MAX; bind: 0
 * @sthc_reserved: zero
 * @sthc_ifindex: interface of answers to the group and of an IPv6 scope, 0: any
 * @sthc_addr: network order, IPv4 in the first four bytes, the rest zero
 * @sthc_reserved2: zero
 */
struct sockaddr_thc {
	__u16	sthc_family;
	__u16	sthc_inet;
	__be16	sthc_port;
	__u16	sthc_job;
	__u8	sthc_rank;
	__u8	sthc_reserved[3];
	__u32	sthc_ifindex;
	__u8	sthc_addr[16];
	__u8	sthc_reserved2[8];
};

/* Ancillary data of SOL_THC. */
enum thc_cmsg {
	THC_SEND	= 1,	/* sendmsg: struct thc_send, needed */
	THC_RECEIVED	= 2,	/* recvmsg: struct thc_received */
};

/**
 * struct thc_send - describes a message, whose payload is whole chunks
 * @op: THC_OP_LUT_ADD, with THC_LANE_BYTES * b / w bytes per chunk: 8192 / w indices of b bits,
 *	where w is the bits of a sum in the row of b; or one with THC_LANE_BYTES per chunk:
 *	THC_OP_ADD, THC_OP_OR, THC_OP_MAX, THC_OP_CLAIM or, in jobs of more than THC_CLAIM_WORKERS,
 *	THC_OP_CLAIM_HIGH
 * @width: bits of a lane: for LUT_ADD b of one of the job's rows, 1 to 8; 8, 16 or 32 for ADD; 32
 *	for the others
 * @stride: bytes from the beginning of a chunk to that of the next, 0: side by side. Bytes between
 *	chunks are not read
 * @round: thc_hdr.round
 * @tag: comes back with the answer
 *
 * All ranks send the same messages in the same order. Messages of LUT_ADD and ADD have one order,
 * those of all other ops another. A sum of the other ops cannot be missed: a rank that lost one
 * cannot go on (THC_FAILED_BEHIND).
 */
struct thc_send {
	__u8	op;
	__u8	width;
	__u16	stride;
	__u32	round;
	__u64	tag;
};

/* thc_received.flags */
#define THC_RECV_PARTIAL	0x0001	/* some chunk lacks some rank */
#define THC_RECV_EXCLUDED	0x0002	/* some chunk lacks this rank */
#define THC_RECV_TIMEOUT	0x0004	/* some chunk has no answer yet (THC_OPT_PARTIAL) */

/**
 * struct thc_received - describes the result of a message
 * @op: as sent
 * @width: bits of a lane of the sum
 * @flags: THC_RECV_*
 * @round: as sent
 * @tag: as sent
 * @chunks: number of chunks
 * @least: contributors of the chunk that has the fewest
 * @reserved: zero
 * @ranks: bit r: rank r is in every chunk
 * @digest: of the sums that are here. It differs between two ranks that miss no sum only if their
 *	sums differ. Digests of several messages may be added, modulo 2^32
 * @missed: chunks whose sum is not here: it was gone, or has not come yet
 *
 * The payload is THC_LANE_BYTES of lanes for each chunk and then, for each chunk, a __u16 in host
 * order: the number of its contributors, and THC_COUNT_EXCLUDED if this rank is none.
 */
struct thc_received {
	__u8	op;
	__u8	width;
	__u16	flags;
	__u32	round;
	__u64	tag;
	__u32	chunks;
	__u16	least;
	__u16	reserved;
	__u64	ranks;
	__u32	digest;
	__u32	missed;
};

#define THC_COUNT_EXCLUDED	0x8000

/* Socket options of SOL_THC. */
enum thc_option {
	THC_OPT_TIMEOUT		= 1,	/* __u32, ms without progress; 60000 */
	THC_OPT_JOIN_TIMEOUT	= 2,	/* __u32, ms; 60000 */
	THC_OPT_WINDOW		= 3,	/* __u32, most chunks in flight per aggregator; 0: slots */
	THC_OPT_MEMORY		= 4,	/* __u64, bytes of messages in the kernel; 256 MiB */
	THC_OPT_PARTIAL		= 5,	/* __u32, 0 or 1: after the timeout deliver what is here */
	THC_OPT_WELCOME		= 6,	/* read only: struct thc_job_info and records */
	THC_OPT_STATS		= 7,	/* read only: struct thc_socket_stats */
	THC_OPT_FAILURE		= 8,	/* read only: struct thc_failure */
	THC_OPT_KEY		= 9,	/* write only: THC_KEY_BYTES bytes, 0: forget the key */
};

/**
 * struct thc_job_info - the job as the aggregator described it; @bytes of records follow, at most
 *	THC_RECORDS_MAX
 * @epoch: the job's incarnation
 * @shards: aggregators that share the job's chunks
 * @bytes: of WELCOME's records, from all parts in their order, as received
 * @reserved: zero
 * @welcome: as received, big-endian
 */
struct thc_job_info {
	__u32			epoch;
	__u32			shards;
	__u32			bytes;
	__u32			reserved;
	struct thc_welcome	welcome;
};

/* Counters of a socket since it was opened. */
struct thc_socket_stats {
	__u64	messages;	/* delivered */
	__u64	failures;	/* messages that failed */
	__u64	packets_up;	/* requests sent, retransmits included */
	__u64	bytes_up;	/* on the wire, Ethernet, IP and UDP headers included */
	__u64	packets_down;	/* received from the aggregator, of use or not */
	__u64	bytes_down;	/* on the wire, of packets received */
	__u64	chunks;		/* completed */
	__u64	retransmits;
	__u64	repeats;	/* answers that came again, by unicast */
	__u64	waits;		/* WAIT received */
	__u64	excluded;	/* chunks whose sum lacks this rank */
	__u64	partial;	/* chunks whose sum lacks some rank */
	__u64	bad_tag;	/* packets whose tag was wrong */
	__u64	unexpected;	/* answers without a request: duplicates, old ones */
	__u64	foreign;	/* packets from elsewhere, or that answer no request */
	__u64	window_cuts;	/* multiplicative decreases */
	__u64	send_errors;	/* packets that the network layer refused */
	__u64	rtt_us;		/* smoothed round trip now */
	__u64	window;		/* congestion window now, chunks */
	__u64	memory;		/* bytes of messages held now */
	__u64	memory_peak;
};

/* thc_failure.reason: why a socket needs connect() again. */
enum thc_failure_reason {
	THC_FAILED_NOT		= 0,
	THC_FAILED_REFUSED	= 1,	/* the job refused this rank: @refusal */
	THC_FAILED_JOIN		= 2,	/* @ranks did not join in time */
	THC_FAILED_SILENT	= 3,	/* no answer at all from the aggregator */
	THC_FAILED_UNREACHABLE	= 4,	/* the network reports @error */
	THC_FAILED_MISSING	= 5,	/* no progress: @ranks did not contribute */
	THC_FAILED_LEFT		= 6,	/* @ranks did not contribute, and one of them has left */
	THC_FAILED_EPOCH	= 7,	/* @worker restarted, the job is in @epoch now */
	THC_FAILED_BEHIND	= 8,	/* the others went on without this rank */
	THC_FAILED_VERSION	= 9,	/* the job's constants are not understood */
	THC_FAILED_SHARDS	= 10,	/* the aggregators serve different jobs */
	THC_FAILED_DIFFERS	= 11,	/* no progress: @ranks sent another op, width or round */
};

/**
 * struct thc_failure - why a socket has failed
 * @error: errno, as sendmsg, recvmsg and SO_ERROR report it
 * @reason: enum thc_failure_reason
 * @refusal: enum thc_refusal
 * @shard: number of the aggregator that failed, where there are several
 * @ranks: bit r: rank r
 * @epoch: the job's current one, with THC_FAILED_EPOCH
 * @worker: the one that restarted, with THC_FAILED_EPOCH; THC_WORKER_NONE: the aggregator
 */
struct thc_failure {
	__s32	error;
	__u16	reason;
	__u8	refusal;
	__u8	shard;
	__u64	ranks;
	__u32	epoch;
	__u32	worker;
};

#endif /* _UAPI_LINUX_THC_H */
