/* SPDX-License-Identifier: GPL-2.0 */
/*
 * State of an aggregator and its jobs that outlives the daemon, in pinned maps: thcd writes it, a
 * later thcd and thcctl read it.
 */
#ifndef THC_RECORD_H
#define THC_RECORD_H

#include <thc/aggregator/job.h>
#include <thc/wire/rows.h>
#include <thc/wire/shards.h>

/* Prefixes that a job admits workers from, at most. */
#define THCD_PREFIXES_MAX	16

/**
 * struct thcd_prefix - addresses of one family that begin with the same bits
 * @addr: the bits; those behind @len are zero
 * @len: length in bits; an IPv4 address counts as IPv4-mapped, 96 bits longer
 */
struct thcd_prefix {
	struct thc_addr	addr;
	u32		len;
};

/* The prefix of @len bits that @addr is in; in bits of the mapped address. */
static inline struct thcd_prefix thcd_prefix_of(const struct thc_addr *addr, u32 len)
{
	struct thcd_prefix p = { .addr = *addr, .len = len };
	u8 *bytes = (u8 *)&p.addr;
	u32 bit;

	for (bit = len; bit < 128; bit++)
		bytes[bit / 8] &= ~(0x80 >> bit % 8);
	return p;
}

/* Is @addr in @p, and of its family? */
static inline bool thcd_prefix_has(const struct thcd_prefix *p, const struct thc_addr *addr)
{
	struct thcd_prefix of_addr = thcd_prefix_of(addr, p->len);

	return thc_addr_is_v4(addr) == thc_addr_is_v4(&p->addr) &&
	       thc_addr_equal(&of_addr.addr, &p->addr);
}

struct thcd_prefixes {
	u32			count;
	struct thcd_prefix	at[THCD_PREFIXES_MAX];
};

/**
 * struct thcd_plan - the constants of a job, complete
 * @key: the job's secret
 * @p: IEEE-754 bits of the clamp fraction of each row, for display
 * @tables: the job's rows
 * @bits: of an index into the job's own row; @chunk: coordinates of a chunk of its sums
 * @rate, @error: as in struct thc_spec
 * @value_bits: bits of fixed-point floats with schemes none and lhc, 0: exact floats
 * @grain_log2: of scheme lhc; @sketch: THC_SCHEME_F_SKETCH, _COUPLED
 * @admits: only addresses in one of these prefixes may join
 * @ttl_min: least TTL (hop limit) of a request on arrival, 0: any
 * @shards: all aggregators of the job; none: this is the only one
 *
 * The struct has neither pointers nor padding, so that it can lie in a pinned map and be compared
 * byte by byte with the plan of a restarted daemon.
 */
struct thcd_plan {
	u8		key[THC_KEY_BYTES];
	u64		seed;
	u64		p[THC_BITS_MAX];
	struct thc_tables tables;
	struct thc_addr	group;
	struct thcd_prefixes admits;
	struct thc_shards shards;
	u32		job;
	u32		table_hash;
	u32		deadline_ms;
	u32		slot_base;
	u32		rate;
	u32		error;
	u16		ranks;
	u16		quorum;
	u16		data_slots;
	u16		control_slots;
	u16		chunk;
	u16		group_port;
	u8		reply;
	u8		bits;
	u8		block_log2;
	u8		family;
	u8		seal;
	u8		correlated;
	u8		ttl_min;
	u8		scheme;
	u8		value_bits;
	u8		rotate;
	u8		grain_log2;
	u8		sketch;
	u8		rate_tried;
	u8		reserved[3];
};

/* The job's own row. */
static inline struct thc_table_row thcd_plan_row(const struct thcd_plan *plan)
{
	return thc_tables_row(&plan->tables, plan->bits);
}

/**
 * struct thcd_record - a job as the daemon remembers it across its own death
 * @used: the record is of a job
 * @plan: its constants
 * @nonce: of each rank's newest joining
 * @previous: of the joining before; a worker that still uses it has lost the rank
 * @answered_ms: when each rank's JOIN was last answered by WELCOME (monotonic)
 * @entered: ranks that have joined this epoch, though they may have left again
 * @heard: ranks that hear the group, this epoch
 * @salt: of this epoch's keys
 * @full_since_ms: when the last rank joined this epoch (monotonic), 0: not yet
 * @ready: rounds of this epoch may run
 * @fallback: multicast was given up for fanout
 */
struct thcd_record {
	u32			used;
	u32			reserved;
	struct thcd_plan	plan;
	u8			nonce[THC_RANKS_MAX][THC_NONCE_BYTES];
	u8			previous[THC_RANKS_MAX][THC_NONCE_BYTES];
	u64			answered_ms[THC_RANKS_MAX];
	u64			entered;
	u64			heard;
	u64			full_since_ms;
	u8			salt[THC_SALT_BYTES];
	u8			ready;
	u8			fallback;
	u8			reserved2[6];
};

/* Raised when struct thcd_record or the meaning of a map changes. */
#define THCD_LAYOUT	15

/* Pins of the daemon's own maps: struct thcd_meta, and a struct thcd_record per job. */
#define THC_PIN_META	"meta"
#define THC_PIN_STATE	"state"

/* The aggregator that the pins of an instance belong to. */
struct thcd_meta {
	struct thc_addr	addr4;		/* that workers send to; zero: none */
	struct thc_addr	addr6;
	u64	netns;		/* inode of the network namespace */
	u32	layout;
	u32	ifindex;
	u32	slots;
	u32	port;
	u32	complete;	/* jobs were created, the program was attached */
	u32	reserved;
};

#endif /* THC_RECORD_H */
