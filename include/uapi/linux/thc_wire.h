/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The wire format of THC: what a worker and an aggregator say to each other
 * over UDP, and the reasons for which either refuses a packet. The sockets of
 * family AF_THC are in <linux/thc.h>.
 *
 * One header for three compilers (kernel, BPF, user space), C90 and C++98
 * included; sizes are asserted by <thc/types.h>. State that never leaves a host
 * is not described here but in include/thc/.
 *
 * Byte order: every header field is big-endian. Payload lanes, and the words
 * the packet sum runs over, are little-endian, so that the common hosts add
 * them without swapping.
 */
#ifndef _UAPI_LINUX_THC_WIRE_H
#define _UAPI_LINUX_THC_WIRE_H

#include <linux/types.h>

#define THC_VERSION		2

/* Default of an aggregator's first UDP port. */
#define THC_PORT_DEFAULT	18500
/* TTL (hop limit) of requests and of answers to one rank. Each router takes one away, so a packet
 * that arrives with this TTL was sent in the receiver's subnet.
 */
#define THC_TTL			255
/* TTL (hop limit) of answers to the group, which no router forwards. */
#define THC_TTL_GROUP		1
/* Slots that share a UDP port: one GSO batch stays on one port. */
#define THC_SLOTS_PER_PORT	64
/* UDP ports an aggregator owns from its base port on. */
#define THC_PORT_SPAN		64
/* Slots of one job, data and control slots together. */
#define THC_SLOTS_MAX		(THC_SLOTS_PER_PORT * THC_PORT_SPAN)
/* Direct contributors of one aggregator: bits of thc_hdr.bitmap. */
#define THC_RANKS_MAX		64
/* Aggregators that share a job's chunks. */
#define THC_SHARDS_MAX		64
/* No worker, in the place of a worker's number. */
#define THC_WORKER_NONE		65535
/* A job's secret key, and the salt of an epoch's keys. */
#define THC_KEY_BYTES		32
#define THC_SALT_BYTES		16
/* Bytes of the number that names a joining, and of the number that a CHALLENGE asks to repeat. */
#define THC_NONCE_BYTES		16
#define THC_CHALLENGE_BYTES	16
/* Bytes of lanes in every answer, and in every request but those of LUT_ADD. */
#define THC_LANE_BYTES		1024
/* u32 lanes of a MAX packet, that is norms per packet. */
#define THC_NORMS		256

/**
 * enum thc_op - what a packet asks for, or answers
 * @THC_OP_LUT_ADD: payload holds table indices of thc_hdr.width bits, 1 to 8, a stream of bits with
 *	coordinate 0 in the most significant bits of byte 0; the aggregator adds T[index] per lane
 * @THC_OP_ADD: payload holds lanes of thc_hdr.width bits, added lane by lane
 *	modulo 2^width
 * @THC_OP_OR: payload is OR-ed bit by bit (sparse indices); width is 32
 * @THC_OP_MAX: maximum of u32 lanes (block scales); width is 32
 * @THC_OP_CLAIM: maximum of u32 lanes, but of a worker's packet only the lanes
 *	of its own claim count, struct thc_claim; of workers 0 to 31
 * @THC_OP_CLAIM_HIGH: claims of workers 32 to 63, in jobs that have them
 * @THC_OP_JOIN: worker to daemon, struct thc_join
 * @THC_OP_WELCOME: daemon to worker, struct thc_welcome
 * @THC_OP_WAIT: aggregator to worker, header only: the contribution is in, bitmap and count name
 *	the contributors so far. With THC_F_DIFFERS: it is not in, since op, width or round differ
 *	from those that bitmap's ranks have sent
 * @THC_OP_STALE: aggregator to worker, header only: this generation is gone; bitmap names its
 *	contributors. With THC_F_EPOCH: this epoch has ended, thc_hdr.epoch is the current one and
 *	rank names the worker that ended it, THC_WORKER_NONE: the aggregator, which started anew
 * @THC_OP_CLOSE: finish a generation with the contributors it has; never taken from the wire, only
 *	from the aggregator's own daemon
 * @THC_OP_LEAVE: worker to daemon, struct thc_leave: this rank leaves the job
 * @THC_OP_CHALLENGE: daemon to worker, struct thc_challenge: the JOIN has changed nothing yet; send
 *	it again, with this challenge
 */
enum thc_op {
	THC_OP_LUT_ADD	= 1,
	THC_OP_ADD	= 2,
	THC_OP_OR	= 3,
	THC_OP_MAX	= 4,
	/* 5 is reserved for a future op */
	THC_OP_CLAIM	= 6,
	THC_OP_CLAIM_HIGH = 7,
	THC_OP_DATA_MAX	= THC_OP_CLAIM_HIGH,

	THC_OP_JOIN	= 16,
	THC_OP_WELCOME	= 17,
	THC_OP_WAIT	= 18,
	THC_OP_STALE	= 19,
	THC_OP_CLOSE	= 20,
	THC_OP_LEAVE	= 21,
	THC_OP_CHALLENGE = 22,
};

/* thc_hdr.flags. Unknown bits are refused. */
#define THC_F_ANSWER	0x01	/* aggregator to worker: payload is a sum */
#define THC_F_REPEAT	0x02	/* an answer sent again, to one worker */
#define THC_F_CE	0x04	/* a contribution met congestion (ECN CE) */
#define THC_F_CLOSED	0x08	/* answers: finished by deadline, not by all ranks */
#define THC_F_DIFFERS	0x08	/* WAIT: not added, it differs from what bitmap's ranks sent */
#define THC_F_EPOCH	0x10	/* STALE because of the epoch */
#define THC_F_LEFT	0x20	/* WAIT: a missing rank has left the job */
#define THC_F_KNOWN	0x80	/* STALE: bitmap and count are known */

/* A request has no flags. */

/**
 * enum thc_seal_type - how a job's packets show that they belong to it and were not altered
 * @THC_SEAL_NONE: not at all: the tag is 0
 * @THC_SEAL_SUM: a sum that anybody can compute, against corruption
 * @THC_SEAL_NH: SipHash-2-4 of header and NH of the payload, under keys that come from the job's
 *	secret key
 */
enum thc_seal_type {
	THC_SEAL_NONE	= 0,
	THC_SEAL_SUM	= 1,
	THC_SEAL_NH	= 2,
};

/**
 * struct thc_hdr - in front of every THC payload, 48 bytes
 * @version: THC_VERSION
 * @op: enum thc_op
 * @width: bits of a payload lane: in LUT_ADD requests bits of an index, 1 to 8; in their answers
 *	bits of a sum, 4, 8, 16 or 32; else 8, 16 or 32; 0 in header-only packets, JOIN and WELCOME
 * @flags: THC_F_*
 * @key_id: names the key that made the tag; 0: none did
 * @tag: the packet's seal, over header (without this field) and payload
 * @job: job number, an index at the aggregator
 * @rank: the sender's rank; in WAIT and STALE the rank that the packet is for, with THC_F_EPOCH the
 *	worker that ended the epoch, or THC_WORKER_NONE
 * @epoch: incarnation of the job; any member's restart raises it
 * @round: the all-reduce that this packet belongs to, counted from the epoch's start; echoed
 * @chunk: sequence number of the chunk, counted from the epoch's start,
 *	separately for the data and the control stream; echoed
 * @slot: where the aggregator keeps the sum; data chunk q lives in slot
 *	q mod W, control chunk q in slot W + (q mod control slots)
 * @count: contributions in the sum (answers, WAIT, STALE), else 0; more than
 *	the bits of @bitmap only below a tree
 * @generation: use number of the slot, q div W; serial arithmetic
 * @bitmap: bit r: rank r is in the sum (answers, WAIT, STALE), or, with THC_F_EPOCH,
 *	has joined the epoch that @epoch names; else 0
 */
struct thc_hdr {
	__u8	version;
	__u8	op;
	__u8	width;
	__u8	flags;
	__be32	key_id;
	__be64	tag;
	__be16	job;
	__be16	rank;
	__be32	epoch;
	__be32	round;
	__be32	chunk;
	__be16	slot;
	__be16	count;
	__be32	generation;
	__be64	bitmap;
};

/* thc_join.flags */
#define THC_JOIN_F_HEARD	0x01	/* heard a WELCOME on the group address */
#define THC_JOIN_F_NODE		0x02	/* an aggregator with a parent; none exists yet */

/* Bit of thc_join.offers: the worker can do a seal, enum thc_seal_type. */
#define THC_OFFER_SEAL(seal)	(1U << (seal))

/**
 * struct thc_join - payload of JOIN, 64 bytes
 * @nonce: random, not zero; drawn once per joining: JOINs with the same nonce have no further
 *	effect, another nonce restarts the rank and the epoch
 * @challenge: of the last CHALLENGE, zero: none has come; with THC_JOIN_F_HEARD the salt of the
 *	epoch that the rank is in
 * @flags: THC_JOIN_F_*
 * @offers: bit s: the worker can use seal s; unknown bits are passed over
 * @workers: of a node: number of workers below it, else zero
 * @version_max: highest version that the worker knows
 * @reserved: zero
 * @restarted: of a node: the worker whose restart made it join anew, else
 *	THC_WORKER_NONE
 * @reserved2: zero
 *
 * Sent repeatedly until WELCOME says THC_WELCOME_F_READY. The worker's
 * address and port are those the packet came from. What would change the job
 * needs the right challenge.
 */
struct thc_join {
	__u8	nonce[THC_NONCE_BYTES];
	__u8	challenge[THC_CHALLENGE_BYTES];
	__be32	flags;
	__be32	offers;
	__be16	workers;
	__u8	version_max;
	__u8	reserved;
	__be16	restarted;
	__u8	reserved2[18];
};

/**
 * struct thc_challenge - payload of CHALLENGE, 32 bytes: shorter than the JOIN that it answers
 * @nonce: that of the JOIN
 * @challenge: for the next JOIN
 */
struct thc_challenge {
	__u8	nonce[THC_NONCE_BYTES];
	__u8	challenge[THC_CHALLENGE_BYTES];
};

/**
 * struct thc_leave - payload of LEAVE, 16 bytes
 * @nonce: of the joining that ends
 */
struct thc_leave {
	__u8	nonce[THC_NONCE_BYTES];
};

/* How answers travel. */
enum thc_reply {
	THC_REPLY_MULTICAST	= 1,	/* one frame to the group, the network copies */
	THC_REPLY_FANOUT	= 2,	/* one frame per rank, made by the aggregator */
};

/* thc_welcome.flags */
#define THC_WELCOME_F_READY	0x0001	/* all ranks are in: rounds may start */
#define THC_WELCOME_F_REFUSED	0x0002	/* not admitted, refusal says why */
#define THC_WELCOME_F_ONE_PORT	0x0004	/* all slots on the base port: software, generic XDP */
/* send packet by packet: generic XDP on a virtual link meets super-packets of GSO */
#define THC_WELCOME_F_NOGSO	0x0020

/* thc_welcome.features. A worker refuses unknown ones. */
#define THC_FEATURE_CORRELATED	0x0001	/* correlated stochastic rounding */

/* thc_welcome.refusal */
enum thc_refusal {
	THC_REFUSED_NOT		= 0,
	THC_REFUSED_JOB		= 1,	/* no such job, or another key */
	THC_REFUSED_RANK	= 2,	/* rank is not below n */
	THC_REFUSED_PREFIX	= 3,	/* address outside the job's prefix */
	THC_REFUSED_TAKEN	= 4,	/* another live worker holds the rank */
	THC_REFUSED_NO_XDP	= 5,	/* the aggregator's XDP program was taken away */
	THC_REFUSED_VERSION	= 6,	/* in a WELCOME of version 1: the version is obsolete */
	THC_REFUSED_SEAL	= 7,	/* the worker cannot do the job's seal */
};

/**
 * struct thc_welcome - begin of WELCOME's payload, 64 bytes; records follow
 * @nonce: that of the JOIN it answers; 0 on the group address
 * @joined: bit r: rank r has joined this epoch
 * @seed: shared by all ranks: rotation signs, rounding shifts
 * @deadline_ms: a generation older than this is closed with its quorum; 0: never
 * @features: THC_FEATURE_*
 * @constants: 32-bit FNV-1a of the records with THC_RECORD_F_CONSTANT, as sent, in the order of
 *	parts, then of @seed and @features
 * @ranks: n
 * @quorum: least contributions of a generation closed by deadline
 * @data_slots: W
 * @control_slots: slots after the data slots, for the control stream
 * @flags: THC_WELCOME_F_*
 * @refusal: enum thc_refusal
 * @reply: enum thc_reply
 * @part: from 0; each part has this begin and the record SEAL
 * @parts: 1 to THC_WELCOME_PARTS
 * @version_max: highest version that the aggregator knows
 * @reserved: zero
 * @shard: this aggregator's number
 * @shards: aggregators that share the chunks, 1 to THC_SHARDS_MAX
 */
struct thc_welcome {
	__u8	nonce[THC_NONCE_BYTES];
	__be64	joined;
	__be64	seed;
	__be32	deadline_ms;
	__be32	features;
	__be32	constants;
	__be16	ranks;
	__be16	quorum;
	__be16	data_slots;
	__be16	control_slots;
	__be16	flags;
	__u8	refusal;
	__u8	reply;
	__u8	part;
	__u8	parts;
	__u8	version_max;
	__u8	reserved;
	__be16	shard;
	__be16	shards;
};

/* Limits of WELCOME: bytes of a part, parts, and bytes of the records of all parts together. */
#define THC_WELCOME_BYTES	1024
#define THC_WELCOME_PARTS	16
#define THC_RECORDS_MAX		(THC_WELCOME_PARTS * 960)

/* thc_record.flags */
#define THC_RECORD_F_KNOW	0x01	/* who does not know the type refuses the job */
#define THC_RECORD_F_CONSTANT	0x02	/* hashed into thc_welcome.constants */

/* thc_record.type */
enum thc_record_type {
	THC_RECORD_SEAL		= 1,
	THC_RECORD_GROUP	= 2,
	THC_RECORD_ROW		= 3,
	THC_RECORD_SHARDS	= 4,
	THC_RECORD_SCHEME	= 5,
	/* 6 is reserved for a future record */
	THC_RECORD_RATE		= 7,
};

/**
 * struct thc_record - a record of WELCOME: this, data, zeros up to a multiple of 8 bytes
 * @type: enum thc_record_type
 * @flags: THC_RECORD_F_*
 * @bytes: of data; a reader passes over bytes beyond those that it knows of the type
 */
struct thc_record {
	__u8	type;
	__u8	flags;
	__be16	bytes;
};

/**
 * struct thc_record_seal - the seal of an epoch's packets
 * @head: THC_RECORD_SEAL
 * @seal: enum thc_seal_type of requests and answers
 * @reserved: zero
 * @salt: of this epoch's keys; in a job without a secret key it names the epoch
 */
struct thc_record_seal {
	struct thc_record head;
	__u8	seal;
	__u8	reserved[3];
	__u8	salt[THC_SALT_BYTES];
};

/**
 * struct thc_record_address - an address in a record
 * @family: 4 or 6
 * @reserved: zero
 * @port: UDP port
 * @addr: IPv4 in the first four bytes, zeros behind it
 */
struct thc_record_address {
	__u8	family;
	__u8	reserved;
	__be16	port;
	__u8	addr[16];
};

/**
 * struct thc_record_group - the multicast group of answers
 * @head: THC_RECORD_GROUP
 */
struct thc_record_group {
	struct thc_record head;
	struct thc_record_address at;
};

/**
 * struct thc_record_shards - addresses of the job's aggregators, in the order of their numbers;
 *	sent by number 0 of a job that has more than one, in as many records as needed
 * @head: THC_RECORD_SHARDS; @count times struct thc_record_address, with base ports, follow
 * @first: number of the first aggregator in this record
 * @count: number of addresses in this record, at least one
 */
struct thc_record_shards {
	struct thc_record head;
	__be16	first;
	__be16	count;
};

/**
 * struct thc_record_row - a table; its levels follow, T[0..2^b-1], __be16 each. A job has one for
 *	each b of its LUT_ADD requests, its own first
 * @head: THC_RECORD_ROW
 * @width: b, as in thc_hdr.width of a LUT_ADD request
 * @sum_width: bits of the sum of levels
 * @granularity: g, the largest level, which is the last one
 * @clamp: IEEE-754 bits of t_p, the clamp in units of the coordinates' standard deviation
 */
struct thc_record_row {
	struct thc_record head;
	__u8	width;
	__u8	sum_width;
	__be16	granularity;
	__be64	clamp;
};

/* thc_record_scheme.features. A worker refuses unknown ones of the job's own scheme. */
#define THC_SCHEME_F_UNROTATED	0x0001	/* thc, uthc: blocks are compressed without rotation */
#define THC_SCHEME_F_SKETCH	0x0002	/* lhc: buckets of known density are sent as sketches */
#define THC_SCHEME_F_COUPLED	0x0004	/* lhc, SKETCH: of four coupled hashes, not three */

/**
 * struct thc_record_scheme - a scheme that the job allows, its own first
 * @head: THC_RECORD_SCHEME
 * @scheme: number
 * @block_log2: log2 of the coordinates of a rotated block
 * @value_bits: none, lhc: bits of a float's fixed point, 8, 16 or 32; 0: exact. Others: zero
 * @grain: lhc: values in an item, a power of two up to 256; 0: 1. Others: zero
 * @features: THC_SCHEME_F_*
 * @levels, @scale_block, @capacity: the scheme defines their meaning; zero if it does not use them
 * @reserved: zero
 */
struct thc_record_scheme {
	struct thc_record head;
	__u8	scheme;
	__u8	block_log2;
	__u8	value_bits;
	__u8	levels;
	__be16	grain;
	__be16	scale_block;
	__be32	capacity;
	__be32	features;
	__be32	reserved;
};

/**
 * struct thc_record_rate - bits of an index follow the norms of blocks; rate or error is zero
 * @head: THC_RECORD_RATE
 * @rate: thousandths of a bit per coordinate, up and down together, that all-reduces aim at
 * @error: millionths of the gradient's squared norm: the error that all-reduces aim at
 * @flags: THC_RATE_F_*
 */
#define THC_RATE_F_TRY	0x1u	/* ranks find out whether it takes less time than fixed bits */
struct thc_record_rate {
	struct thc_record head;
	__be32	rate;
	__be32	error;
	__be32	flags;
};

/*
 * The first control chunks of every round are the agreement: CLAIM, and CLAIM_HIGH
 * in jobs of more than 32 workers. Their answers are everybody's claim side by
 * side, so each worker can tell which other one disagrees before data flows.
 * Worker w has the lanes from 8 (w mod 32) on, and nobody else can write there.
 */
#define THC_CLAIM_LANES		8
#define THC_CLAIM_WORKERS	32	/* of one packet */

/**
 * struct thc_claim - one worker's lanes of the agreement, little-endian
 * @count_lo: low half of the coordinates of the bucket
 * @form: bits 0..7 dtype + 1 (0: no claim), 8..15 scheme, 16..31 high bits of
 *	the coordinates
 * @constants: thc_welcome.constants
 * @tag: the caller's own mark of this all-reduce, folded to 32 bits
 * @call: the options of the call; 0: none
 * @digest: digest, as thc_received.digest, over the results of the round before the last one
 *	without its agreement; 0 before round 2, and from a worker that has missed a chunk
 * @missed: chunks of that round whose result this worker has missed
 * @status: bits 0..7 enum thc_claim_status; the others are the scheme's
 */
struct thc_claim {
	__le32	count_lo;
	__le32	form;
	__le32	constants;
	__le32	tag;
	__le32	call;
	__le32	digest;
	__le32	missed;
	__le32	status;
};

enum thc_claim_status {
	THC_CLAIM_OK		= 0,
	THC_CLAIM_NOT_FINITE	= 1,	/* this rank's gradient holds NaN or Inf */
};

/**
 * enum thc_drop_reason - why an aggregator did not count a packet, or thc.ko
 * could not use one
 *
 * Shared by BPF counters, the software aggregator, netlink, tracepoints and
 * tools. A packet that reaches a THC port is counted under exactly one
 * enum thc_event or enum thc_drop_reason.
 */
enum thc_drop_reason {
	THC_DROP_NONE = 0,
	THC_DROP_TRUNCATED,	/* shorter than its headers say */
	THC_DROP_IP_OPTIONS,	/* IPv4 options, IPv6 extension headers */
	THC_DROP_FRAGMENT,	/* IP fragment */
	THC_DROP_VERSION,	/* version is not THC_VERSION */
	THC_DROP_OP,		/* unknown op, or one not taken from the wire */
	THC_DROP_WIDTH,		/* lane width does not fit op or job */
	THC_DROP_FLAGS,		/* a flag a worker may not set */
	THC_DROP_RESERVED,	/* a reserved field is not zero */
	THC_DROP_LENGTH,	/* payload length does not fit op and width */
	THC_DROP_TAG,		/* wrong tag: forged, or corrupted on the way */
	THC_DROP_JOB,		/* no such job */
	THC_DROP_KEY,		/* sealed by a key that does not count here */
	THC_DROP_RANK,		/* rank not below n, or not joined */
	THC_DROP_ADDRESS,	/* not from the rank's, or aggregator's, address and port */
	THC_DROP_SLOT,		/* slot outside the job, on the wrong port, or not the chunk's */
	THC_DROP_MISMATCH,	/* op, width or round differ from the slot's */
	THC_DROP_BUSY,		/* generation too far ahead */
	THC_DROP_LOCK,		/* slot lock not got in time */
	THC_DROP_FLOOD,		/* too many JOINs or LEAVEs, of strangers or of one rank */
	THC_DROP_INTERNAL,	/* a map lookup failed: a bug */
	THC_DROP_HOPS,		/* came through more routers than the job allows */
	THC_DROP_REASONS,	/* of an aggregator */

	/* of a worker alone */
	THC_DROP_UNEXPECTED = THC_DROP_REASONS,	/* an answer nobody waits for */
	THC_WORKER_DROP_REASONS
};

#endif /* _UAPI_LINUX_THC_WIRE_H */
