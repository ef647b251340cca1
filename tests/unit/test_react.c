// SPDX-License-Identifier: GPL-2.0
/*
 * An aggregator's checks of a packet (include/thc/aggregator/react.h, admit.h): a right packet is
 * added, each single mistake is refused under its own reason, and of two mistakes the one that is
 * checked first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/react.h>

#include "../lib/jobseals.h"

#define JOB	4
#define EPOCH	5
#define BASE	18500
#define RANKS	3
#define RANK	2
#define SLOT	130	/* a slot on the third port */
#define SLOTS	200
#define DATA	150	/* data slots; the others are for norms */
#define SECOND	1000000000ULL

/* By enum thc_seal_type. */
static struct thc_seals seals[THC_SEAL_NH + 1];
static u8 payload[1472];

/**
 * struct packet - a packet, and the aggregator that it meets
 * @end: end in the seal of JOIN and LEAVE
 * @bytes: of payload behind @hdr
 * @sealed_in: epoch whose keys seal data
 * @other_key: flips bits of key_id
 * @forged: flips bits of the tag
 */
struct packet {
	struct thc_job job;
	const struct thc_seals *seals;
	struct thc_hdr hdr;
	struct thc_path path;
	struct thc_end end;
	u32 bytes;
	u32 sealed_in;
	u32 other_key;
	u64 forged;
};

static int setup(void **state)
{
	u32 i;

	(void)state;
	for (i = THC_SEAL_NONE; i <= THC_SEAL_NH; i++)
		job_seals(&seals[i], (u8)i, JOB, EPOCH);
	for (i = 0; i < sizeof(payload); i++)
		payload[i] = (u8)(i * i >> 3);
	return 0;
}

static struct packet good(void)
{
	struct packet p = {
		.job = {
			.all = (1 << RANKS) - 1, .active = 1, .epoch = EPOCH,
			.slots = SLOTS, .data_slots = DATA, .ranks = RANKS, .quorum = 2,
			.restarter = THC_WORKER_NONE,
			.widths.sum[3] = 8, .port_base = BASE, .reply = THC_REPLY_FANOUT,
		},
		.seals = &seals[THC_SEAL_NH],
		.hdr = {
			.version = THC_VERSION, .op = THC_OP_LUT_ADD, .width = 4,
			.job = thc_be16(JOB), .rank = thc_be16(RANK), .epoch = thc_be32(EPOCH),
			.slot = thc_be16(SLOT), .chunk = thc_be32(SLOT),
		},
		.path = {
			.src = thc_addr_v4(thc_be32(0x0a000003)), .src_port = 40003,
			.dst_port = BASE + 2,
		},
		.end = { .addr = thc_addr_v4(thc_be32(0x0a000003)), .port = thc_be16(40003) },
		.bytes = 512,
		.sealed_in = EPOCH,
	};
	int r;

	for (r = 0; r < RANKS; r++) {
		p.job.member[r].addr = thc_addr_v4(thc_be32(0x0a000001 + r));
		p.job.member[r].port = thc_be16(40001 + r);
		p.job.member[r].joined = 1;
	}
	return p;
}

static void sender(struct packet *p, u8 rank)
{
	p->hdr.rank = thc_be16(rank);
	p->path.src = p->job.member[rank].addr;
	p->path.src_port = 40001 + rank;
}

static struct packet control(u8 op)
{
	struct packet p = good();

	p.hdr.op = op;
	p.hdr.width = 0;
	p.path.dst_port = BASE;
	p.bytes = op == THC_OP_JOIN ? sizeof(struct thc_join) : sizeof(struct thc_leave);
	return p;
}

/* The header, sealed by the packet's sender. */
static struct thc_hdr sealed(const struct packet *p)
{
	const struct thc_seals *s = p->seals;
	int words = (int)(p->bytes / 8);
	struct thc_hdr h = p->hdr;

	if (thc_op_is_membership(h.op))
		thc_member_seal(&h, thc_seal_of_members((u8)s->seal), &s->join, &p->end, payload,
				words);
	else
		thc_seal(&h, (u8)s->seal, thc_seals_up(s, p->sealed_in), payload, words);
	h.key_id ^= p->other_key;
	h.tag ^= p->forged;
	return h;
}

/* A home with one slot, which counts what thc_react() asks for. @lock: result of taking the lock;
 * @next: the epoch that begins before the lock is taken, 0: none.
 */
struct thc_home {
	struct thc_slot slot;
	u64 lanes[THC_LANE_WORDS];
	struct thc_bucket *strangers;
	struct thc_job *job;
	u64 now;
	enum thc_drop_reason lock;
	u32 next;
	int sealed;
	int locked;
	int heard;
	int combined;
	u32 row;
	enum thc_lane_kind kind;
};

THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home)
{
	return home->strangers;
}

THC_INLINE struct thc_bucket *thc_home_joins(struct thc_home *home, struct thc_job *job, u32 rank)
{
	(void)home;
	return &job->member[rank].joins;
}

THC_INLINE struct thc_bucket *thc_home_leaves(struct thc_home *home, struct thc_job *job, u32 rank)
{
	(void)home;
	return &job->member[rank].leaves;
}

THC_INLINE u64 *thc_home_told(struct thc_home *home, struct thc_member *m)
{
	(void)home;
	return &m->told_at;
}

THC_INLINE int thc_home_hears(struct thc_home *home, const struct thc_packet *p)
{
	(void)home;
	return p->path.dst_port == BASE;
}

THC_INLINE u64 thc_home_clock(struct thc_home *home)
{
	return home->now;
}

THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p,
					      u8 seal, const struct thc_seal_key *key)
{
	if (!thc_payload_is_known(p->payload_len))
		return THC_DROP_LENGTH;
	home->sealed++;
	return thc_seal_ok(p->hdr, seal, key, payload, (int)(p->payload_len / 8)) ? THC_DROP_NONE :
										    THC_DROP_TAG;
}

THC_INLINE enum thc_drop_reason thc_home_membership(struct thc_home *home,
						    const struct thc_packet *p,
						    const struct thc_seals *s)
{
	const struct thc_end end = { .addr = p->path.src, .port = thc_be16(p->path.src_port) };

	home->sealed++;
	return p->hdr->tag == thc_member_tag(thc_seal_of_members((u8)s->seal), &s->join, p->hdr,
					     &end, payload, (int)(p->payload_len / 8)) ?
		       THC_DROP_NONE :
		       THC_DROP_TAG;
}

THC_INLINE void thc_home_heard(struct thc_home *home, struct thc_member *m)
{
	(void)m;
	home->heard++;
}

THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 row,
					      struct thc_slot **slot)
{
	(void)index;
	home->row = row;
	if (home->lock)
		return home->lock;
	if (home->next)
		home->job->epoch = home->next;
	home->locked++;
	*slot = &home->slot;
	return THC_DROP_NONE;
}

THC_INLINE void thc_home_unlock(struct thc_home *home, struct thc_slot *slot)
{
	(void)slot;
	home->locked--;
}

THC_INLINE void thc_home_combine(struct thc_home *home, enum thc_lane_kind kind,
				 const struct thc_packet *p, u32 odd, u32 first)
{
	(void)p;
	(void)odd;
	(void)first;
	home->lanes[home->combined++] += 0x0123456789abcdefULL;
	home->kind = kind;
}

THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 odd,
				const struct thc_seals *s)
{
	thc_answer_finish(&slot->generation[odd], home->lanes, s, slot->epoch);
}

THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       const struct thc_seals *s, struct thc_slot *slot, u32 verdict)
{
	(void)home;
	return thc_react_answer(h, job, s, slot, verdict);
}

static struct thc_bucket bucket;

/* Reacts to @p with @job, which may change; @h: the packet's header afterwards. */
static struct thc_reaction meet(const struct packet *p, struct thc_home *home, struct thc_job *job,
				struct thc_hdr *h)
{
	const struct thc_packet q = { .hdr = h, .path = p->path, .payload_len = p->bytes };
	struct thc_reaction r;

	*h = sealed(p);
	home->job = job;
	r = thc_react(home, job, job ? p->seals : NULL, &q);
	assert_int_equal(home->locked, 0);
	return r;
}

/* @home: its slot changes; @answer: the header afterwards, or NULL */
static struct thc_reaction react(const struct packet *p, struct thc_home *home,
				 struct thc_hdr *answer)
{
	struct thc_job job = p->job;
	struct thc_hdr h;
	struct thc_reaction r = meet(p, home, &job, &h);

	if (answer)
		*answer = h;
	return r;
}

static enum thc_drop_reason admit(const struct packet *p, enum thc_lane_kind *kind)
{
	struct thc_home home = {
		.slot = { .epoch = p->job.epoch, .top = thc_be32(p->hdr.generation) - 1 },
	};
	struct thc_reaction r = react(p, &home, NULL);

	*kind = home.kind;
	assert_int_equal(home.combined, !r.why && r.event == THC_EVENT_ADDED);
	return r.why;
}

static void expect(const struct packet *p, enum thc_drop_reason reason)
{
	enum thc_lane_kind kind;

	assert_int_equal(admit(p, &kind), reason);
}

static void admission__a_good_packet_passes(void **state)
{
	struct packet p = good();
	enum thc_lane_kind kind;

	(void)state;
	assert_int_equal(admit(&p, &kind), THC_DROP_NONE);
	assert_int_equal(kind, THC_LANE_LUT8);
	p.path.dst_port = BASE;		/* all slots are reached on the base port, too */
	expect(&p, THC_DROP_NONE);
	/* another epoch is answered, not refused */
	p.hdr.epoch = 0;
	expect(&p, THC_DROP_NONE);
}

static void admission__every_op(void **state)
{
	static const struct {
		u8 op, width;
		u32 bytes;
		enum thc_lane_kind kind;
	} row[] = {
		{ THC_OP_LUT_ADD, 4, 512, THC_LANE_LUT8 },
		{ THC_OP_ADD, 8, 1024, THC_LANE_ADD8 },
		{ THC_OP_ADD, 16, 1024, THC_LANE_ADD16 },
		{ THC_OP_ADD, 32, 1024, THC_LANE_ADD32 },
		{ THC_OP_OR, 32, 1024, THC_LANE_OR },
		{ THC_OP_MAX, 32, 1024, THC_LANE_MAX },
		{ THC_OP_CLAIM, 32, 1024, THC_LANE_CLAIM },
		{ THC_OP_CLAIM_HIGH, 32, 1024, THC_LANE_CLAIM_HIGH },
	};
	struct packet p = good();
	enum thc_lane_kind kind;
	unsigned int i;

	(void)state;
	p.job.ranks = THC_RANKS_MAX;
	for (i = 0; i < sizeof(row) / sizeof(*row); i++) {
		p.hdr.op = row[i].op;
		p.hdr.width = row[i].width;
		for (p.bytes = 0; p.bytes <= sizeof(payload); p.bytes++) {
			assert_int_equal(admit(&p, &kind),
					 p.bytes == row[i].bytes ? THC_DROP_NONE : THC_DROP_LENGTH);
			assert_int_equal(kind,
					 p.bytes == row[i].bytes ? row[i].kind : THC_LANE_NONE);
		}
	}
	p.hdr.op = THC_OP_LUT_ADD;
	p.hdr.width = 4;
	p.job.widths.sum[3] = 16;
	p.bytes = 256;
	assert_int_equal(admit(&p, &kind), THC_DROP_NONE);
	assert_int_equal(kind, THC_LANE_LUT16);
	p.bytes = 512;
	expect(&p, THC_DROP_LENGTH);
	p.job.widths.sum[3] = 8;
	p.job.flags = THC_JOB_F_LINEAR;
	assert_int_equal(admit(&p, &kind), THC_DROP_NONE);
	assert_int_equal(kind, THC_LANE_LINEAR8);
}

/* The width of LUT_ADD names a row, which sets the length of the payload. */
static void admission__rows(void **state)
{
	static const u8 sum[THC_BITS_MAX] = { 4, 4, 0, 8, 8, 16, 16, 32 };
	static const enum thc_lane_kind kinds[THC_BITS_MAX] = {
		THC_LANE_B1S4,	THC_LANE_B2S4,	 THC_LANE_NONE,	  THC_LANE_LINEAR8,
		THC_LANE_B5S8,	THC_LANE_B6S16, THC_LANE_BITS16, THC_LANE_BITS32,
	};
	struct packet p = good();
	enum thc_lane_kind kind;
	u32 bits, b;

	(void)state;
	memcpy(p.job.widths.sum, sum, sizeof(sum));
	p.job.flags = THC_JOB_F_LINEAR;
	for (bits = 0; bits < 256; bits++) {
		u32 width = bits && bits <= THC_BITS_MAX ? sum[bits - 1] : 0;

		p.hdr.width = (u8)bits;
		/* the width is checked before the length */
		p.bytes = width ? 1024 * bits / width : 512;
		assert_int_equal(admit(&p, &kind), width ? THC_DROP_NONE : THC_DROP_WIDTH);
		assert_int_equal(kind, width ? kinds[bits - 1] : THC_LANE_NONE);
		/* another row's length is refused */
		for (b = 1; width && b <= THC_BITS_MAX; b++) {
			if (!sum[b - 1])
				continue;
			p.bytes = 1024 * b / sum[b - 1];
			assert_int_equal(admit(&p, &kind), p.bytes == 1024 * bits / width ?
								   THC_DROP_NONE :
								   THC_DROP_LENGTH);
		}
	}
}

static void admission__version(void **state)
{
	struct packet p = good();
	int v;

	(void)state;
	for (v = 0; v < 256; v++) {
		p.hdr.version = v;
		expect(&p, v == THC_VERSION ? THC_DROP_NONE : THC_DROP_VERSION);
	}
}

/* A JOIN of version 1 goes to the daemon, as a stranger's; nothing else of version 1 does. */
static void admission__joins_of_version_1(void **state)
{
	struct thc_bucket bucket = { 0 };
	struct thc_home home = { .strangers = &bucket, .now = SECOND };
	struct packet p = good();
	enum thc_drop_reason why;
	int op, i;

	(void)state;
	p.hdr.version = 1;
	p.path.dst_port = BASE;
	for (op = 0; op < 256; op++) {
		for (p.bytes = 0; p.bytes <= 64; p.bytes += 8) {
			struct thc_reaction r;

			p.hdr.op = (u8)op;
			home.now += SECOND;
			r = react(&p, &home, NULL);
			why = op == THC_OP_JOIN && p.bytes == 16 ? THC_DROP_NONE : THC_DROP_VERSION;
			assert_int_equal(r.why, why);
			assert_int_equal(r.to, why ? THC_TO_NOBODY : THC_TO_DAEMON);
		}
	}
	p.hdr.op = THC_OP_JOIN;
	p.bytes = 16;
	/* the daemon listens on no other port */
	p.path.dst_port = BASE + 1;
	expect(&p, THC_DROP_VERSION);
	p.path.dst_port = BASE;
	for (i = 0; i < 200 && !react(&p, &home, NULL).why; i++)
		;
	assert_true(i < 200);
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_FLOOD);
}

/* Claims of workers that the job does not have are refused. */
static void admission__claims_of_workers_that_are_there(void **state)
{
	struct packet p = good();
	unsigned int ranks;

	(void)state;
	p.hdr.width = 32;
	p.bytes = THC_LANE_BYTES;
	for (ranks = thc_be16(p.hdr.rank) + 1; ranks <= THC_RANKS_MAX; ranks++) {
		p.job.ranks = (u16)ranks;
		p.hdr.op = THC_OP_CLAIM;
		expect(&p, THC_DROP_NONE);
		p.hdr.op = THC_OP_CLAIM_HIGH;
		expect(&p, ranks > 32 ? THC_DROP_NONE : THC_DROP_WIDTH);
	}
}

/* A worker may send six data ops, JOIN and LEAVE; other ops are refused. */
static void admission__op(void **state)
{
	struct packet p = good();
	int op;

	(void)state;
	for (op = 0; op < 256; op++) {
		p.hdr.op = op;
		if (op == THC_OP_JOIN || op == THC_OP_LEAVE)
			assert_true(thc_op_is_membership(op) && !thc_op_is_data(op));
		else if (op >= 1 && op <= 7 && op != 5)
			assert_true(thc_op_is_data(op) && !thc_op_is_membership(op));
		else
			expect(&p, THC_DROP_OP);
	}
	p.hdr.op = THC_OP_CLOSE;
	expect(&p, THC_DROP_OP);
}

static void admission__width(void **state)
{
	struct packet p = good();
	int w;

	(void)state;
	for (w = 0; w < 256; w++) {
		p.hdr.width = w;
		expect(&p, w == 4 ? THC_DROP_NONE : THC_DROP_WIDTH);
	}
}

static void admission__flags(void **state)
{
	struct packet p = good();
	int f;

	(void)state;
	for (f = 0; f < 256; f++) {
		p.hdr.flags = f;
		expect(&p, f ? THC_DROP_FLAGS : THC_DROP_NONE);
	}
}

static void admission__reserved(void **state)
{
	struct packet p;
	int bit;

	(void)state;
	for (bit = 0; bit < 16; bit++) {
		p = good();
		p.hdr.count = thc_be16(1 << bit);
		expect(&p, THC_DROP_RESERVED);
	}
	for (bit = 0; bit < 64; bit++) {
		p = good();
		p.hdr.bitmap = thc_be64(1ULL << bit);
		expect(&p, THC_DROP_RESERVED);
	}
}

static void admission__job(void **state)
{
	struct packet p = good();

	(void)state;
	p.job.active = 0;
	expect(&p, THC_DROP_JOB);
	/* an empty record refuses everything */
	memset(&p.job, 0, sizeof(p.job));
	expect(&p, THC_DROP_JOB);
}

static void admission__rank(void **state)
{
	struct packet p = good();
	int rank;

	(void)state;
	for (rank = 0; rank < 65536; rank += rank < 600 ? 1 : 63) {
		p.hdr.rank = thc_be16(rank);
		expect(&p, rank == RANK ? THC_DROP_NONE :
			   rank < RANKS ? THC_DROP_ADDRESS :
					  THC_DROP_RANK);
	}
	/* member[n] may be left over from a larger job */
	p.job.member[RANKS] = p.job.member[RANK];
	p.hdr.rank = thc_be16(RANKS);
	expect(&p, THC_DROP_RANK);
	/* a rank below n that has never joined has no address to compare */
	p.hdr.rank = thc_be16(RANK);
	p.job.member[RANK].port = 0;
	p.path.src_port = 0;
	expect(&p, THC_DROP_RANK);
}

static void admission__address(void **state)
{
	struct packet p;
	int bit;

	(void)state;
	for (bit = 0; bit < 128; bit++) {
		p = good();
		p.path.src.word[bit / 32] ^= 1U << bit % 32;
		expect(&p, THC_DROP_ADDRESS);
	}
	for (bit = 0; bit < 16; bit++) {
		p = good();
		p.path.src_port ^= 1 << bit;
		expect(&p, THC_DROP_ADDRESS);
	}
	/* an IPv6 address that ends like the IPv4 one */
	p = good();
	p.path.src.word[2] = 0;
	expect(&p, THC_DROP_ADDRESS);
}

static void admission__distance(void **state)
{
	struct packet p = good();
	u32 least, left;

	(void)state;
	for (least = 0; least < 256; least++) {
		p.job.ttl_min = least;
		for (left = 0; left < 256; left++) {
			p.path.ttl = left;
			assert_int_equal(!!thc_admit_near(&p.job, &p.path), left >= least);
		}
	}
}

static void admission__slot_and_port(void **state)
{
	struct packet p;
	u32 slot, port;

	(void)state;
	for (slot = 0; slot < 65536; slot += slot < 300 ? 1 : 977) {
		for (port = BASE - 1; port < BASE + THC_PORT_SPAN; port++) {
			p = good();
			p.hdr.slot = thc_be16(slot);
			p.hdr.chunk = thc_be32(slot < DATA ? slot : slot - DATA);
			p.path.dst_port = port;
			expect(&p, slot < SLOTS && (port == BASE || port == BASE + slot / 64) ?
					   THC_DROP_NONE :
					   THC_DROP_SLOT);
		}
	}
	assert_int_equal(thc_slot_port(BASE, 63), BASE);
	assert_int_equal(thc_slot_port(BASE, 64), BASE + 1);
	assert_int_equal(thc_slot_port(BASE, THC_SLOTS_MAX - 1), BASE + THC_PORT_SPAN - 1);
}

/* Chunk q of data is in slot q mod W as its generation q div W; norms have slots and
 * numbers of their own. Every other chunk number is refused, also where 32 bits wrap.
 */
static void admission__chunk(void **state)
{
	static const u64 sequence[] = { 0,	    1,		DATA - 1,    DATA,	  12345,
					0x7fffffff, 0xffffffff, 0x100000000, 0x123456789a };
	struct packet p = good();
	unsigned int i;
	int norms, bit;

	(void)state;
	p.path.dst_port = BASE;
	for (i = 0; i < sizeof(sequence) / sizeof(*sequence); i++) {
		for (norms = 0; norms < 2; norms++) {
			u32 slots = norms ? SLOTS - DATA : DATA;

			p.hdr.slot = thc_be16(norms * DATA + sequence[i] % slots);
			p.hdr.generation = thc_be32((u32)(sequence[i] / slots));
			p.hdr.chunk = thc_be32((u32)sequence[i]);
			expect(&p, THC_DROP_NONE);
			for (bit = 0; bit < 32; bit++) {
				p.hdr.chunk ^= thc_be32(1U << bit);
				expect(&p, THC_DROP_SLOT);
				p.hdr.chunk ^= thc_be32(1U << bit);
			}
			p.hdr.generation ^= thc_be32(1);
			expect(&p, THC_DROP_SLOT);
		}
	}
}

/* --- seals ------------------------------------------------------------------ */

/* A packet that is not as it was sealed changes nothing, under any seal. */
static void seal__is_asked_for(void **state)
{
	struct thc_home home = { .strangers = &bucket, .now = SECOND }, before;
	u32 seal, bit;

	(void)state;
	home.slot = (struct thc_slot){ .epoch = EPOCH, .top = -1 };
	before = home;
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		for (bit = 0; bit < 64; bit++) {
			struct packet p = good();
			struct thc_job job = p.job;
			struct thc_reaction r;
			struct thc_hdr h;

			p.seals = &seals[seal];
			expect(&p, THC_DROP_NONE);
			p.forged = 1ULL << bit;
			r = meet(&p, &home, &job, &h);
			assert_int_equal(r.why, THC_DROP_TAG);
			assert_int_equal(r.to, THC_TO_NOBODY);
			assert_int_equal(home.heard, 0);
			assert_memory_equal(&home.slot, &before.slot, sizeof(home.slot));
			assert_memory_equal(&job, &p.job, sizeof(job));
		}
	}
}

/* The job has one seal, and packets with another are forged. */
static void seal__is_the_jobs(void **state)
{
	u32 jobs, packets;

	(void)state;
	for (jobs = THC_SEAL_NONE; jobs <= THC_SEAL_NH; jobs++) {
		for (packets = THC_SEAL_NONE; packets <= THC_SEAL_NH; packets++) {
			struct thc_home home = { .strangers = &bucket, .now = SECOND };
			struct thc_seals mixed = seals[jobs];
			struct packet p = good();
			struct thc_job job = p.job;
			struct thc_hdr h;
			const struct thc_packet q = {
				.hdr = &h, .path = p.path, .payload_len = p.bytes,
			};

			/* sealed by the job's key, but in another way */
			p.seals = &mixed;
			mixed.seal = packets;
			h = sealed(&p);
			assert_int_equal(thc_react(&home, &job, &seals[jobs], &q).why,
					 jobs == packets ? THC_DROP_NONE : THC_DROP_TAG);
		}
	}
}

/* Answers are sealed by another key than requests, so an answer is no request. */
static void seal__has_a_key_for_each_direction(void **state)
{
	struct thc_home home = { .strangers = &bucket, .now = SECOND };
	struct thc_seals turned = seals[THC_SEAL_NH];
	struct packet p = good();
	struct thc_job job = p.job;
	struct thc_hdr h;
	const struct thc_packet q = { .hdr = &h, .path = p.path, .payload_len = p.bytes };

	(void)state;
	turned.up[EPOCH & 1] = turned.down[EPOCH & 1];
	p.seals = &turned;
	h = sealed(&p);
	/* both keys have the epoch's name */
	assert_int_equal(h.key_id, thc_seals_up(&seals[THC_SEAL_NH], EPOCH)->id);
	assert_int_equal(thc_react(&home, &job, &seals[THC_SEAL_NH], &q).why, THC_DROP_TAG);
}

/* --- the end of an epoch ------------------------------------------------------ */

/* The answer @h to @p names @job's epoch, and counts for @p's sender and for @p alone. */
static void expect_epoch(const struct packet *p, const struct thc_job *job, const struct thc_hdr *h)
{
	u8 seal = thc_seal_of_members((u8)p->seals->seal);
	struct thc_hdr request = sealed(p);

	assert_int_equal(h->op, THC_OP_STALE);
	assert_int_equal(h->flags, THC_F_EPOCH);
	assert_int_equal(h->width, 0);
	assert_int_equal(thc_be32(h->epoch), job->epoch);
	assert_int_equal(thc_be16(h->rank), job->restarter);
	assert_true(thc_be64(h->bitmap) == job->joined);
	assert_int_equal(h->count, 0);
	/* job, round, chunk, slot and generation are the request's */
	assert_int_equal(h->job, request.job);
	assert_int_equal(h->round, request.round);
	assert_int_equal(h->chunk, request.chunk);
	assert_int_equal(h->slot, request.slot);
	assert_int_equal(h->generation, request.generation);
	assert_int_equal(h->key_id, p->seals->lost.id);
	assert_true(h->tag == thc_member_tag(seal, &p->seals->lost, h, &p->end, &request.tag, 1));
	request.tag ^= 1;
	assert_true(h->tag != thc_member_tag(seal, &p->seals->lost, h, &p->end, &request.tag, 1));
}

/* Data under the key of another epoch, or of none: the answer names the current epoch. */
static void epoch__another_key_is_told(void **state)
{
	u32 seal, bit;

	(void)state;
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		for (bit = 0; bit < 33; bit++) {
			struct thc_home home = { .strangers = &bucket, .now = SECOND };
			struct packet p = good();
			struct thc_reaction r;
			struct thc_job job;
			struct thc_hdr h;

			p.seals = &seals[seal];
			if (bit == 32)
				p.sealed_in = EPOCH - 1;	/* its keys are still there */
			else
				p.other_key = 1U << bit;
			/* whatever epoch the header names: the key decides */
			p.hdr.epoch = thc_be32(bit & 1 ? EPOCH : EPOCH - 1);
			p.bytes = bit & 2 ? 512 : 24;
			p.hdr.flags = bit & 4;
			p.job.restarter = bit & 8 ? 1 : THC_WORKER_NONE;
			p.job.joined = 5;
			job = p.job;
			r = meet(&p, &home, &job, &h);
			assert_int_equal(r.why, THC_DROP_NONE);
			assert_int_equal(r.event, THC_EVENT_EPOCH);
			assert_int_equal(r.to, THC_TO_SENDER);
			expect_epoch(&p, &job, &h);
			/* the tag was not checked, and the sender's address not remembered */
			assert_int_equal(home.sealed + home.heard + home.combined, 0);
		}
	}
}

static enum thc_drop_reason tell(struct thc_home *home, struct thc_job *job, u8 rank)
{
	struct packet p = good();
	struct thc_reaction r;
	struct thc_hdr h;

	sender(&p, rank);
	p.other_key = 1;
	r = meet(&p, home, job, &h);
	if (r.why) {
		struct thc_hdr same = sealed(&p);

		assert_int_equal(r.to, THC_TO_NOBODY);
		assert_memory_equal(&h, &same, sizeof(h));
	} else {
		assert_int_equal(r.event, THC_EVENT_EPOCH);
	}
	return r.why;
}

/* A rank gets at most ten such answers a second; other ranks get their own. */
static void epoch__is_told_once_in_100_ms_and_rank(void **state)
{
	struct thc_home home = { .strangers = &bucket, .now = SECOND };
	struct thc_job job = good().job;
	int i;

	(void)state;
	assert_int_equal(tell(&home, &job, RANK), THC_DROP_NONE);
	for (i = 0; i < 100; i++) {
		assert_int_equal(tell(&home, &job, RANK), THC_DROP_KEY);
		home.now += SECOND / 1000 - 1;
	}
	assert_int_equal(tell(&home, &job, 0), THC_DROP_NONE);
	assert_int_equal(tell(&home, &job, RANK), THC_DROP_KEY);
	home.now += 100;
	assert_int_equal(tell(&home, &job, RANK), THC_DROP_NONE);
	assert_int_equal(tell(&home, &job, 0), THC_DROP_KEY);
	assert_int_equal(tell(&home, &job, 1), THC_DROP_NONE);
	home.now += 1000 * SECOND;
	for (i = 0; i < RANKS; i++)
		assert_int_equal(tell(&home, &job, i), THC_DROP_NONE);
}

/* A rank that has not joined has no address to check: a forger of its packets does not use up the
 * rank's answers, and gets only a header.
 */
static void lost__is_told_each_time(void **state)
{
	struct thc_home home = { .strangers = &bucket, .now = SECOND };
	struct thc_job job = good().job;
	struct packet p = good();
	struct thc_reaction r;
	struct thc_hdr h;
	int i;

	(void)state;
	job.member[RANK].port = 0;
	p.hdr.epoch = thc_be32(EPOCH - 1);
	p.other_key = 1;
	for (i = 0; i < 1000; i++) {
		/* from another address each time, from the rank's own at last */
		p.path.src.word[3] = thc_be32(0x0a000003 + 999 - i);
		p.end.addr = p.path.src;
		p.bytes = i & 1 ? 512 : 0;
		r = meet(&p, &home, &job, &h);
		assert_int_equal(r.event, THC_EVENT_EPOCH);
		assert_int_equal(r.to, THC_TO_SENDER);
		assert_false(h.flags & THC_F_ANSWER);
		expect_epoch(&p, &job, &h);
	}
	/* after the join only packets from the rank's address count against its answers */
	job.member[RANK].port = thc_be16(40003);
	p.path.src_port++;
	assert_int_equal(meet(&p, &home, &job, &h).why, THC_DROP_ADDRESS);
	assert_int_equal(tell(&home, &job, RANK), THC_DROP_NONE);
	assert_int_equal(tell(&home, &job, RANK), THC_DROP_KEY);
}

/* A restarted aggregator tells unknown ranks its epoch if theirs is older. */
static void lost__only_data(void **state)
{
	struct packet p = good();
	struct thc_reaction r;
	struct thc_hdr h;
	u32 seal;

	(void)state;
	p.job.member[RANK].port = 0;
	expect(&p, THC_DROP_RANK);
	p.hdr.epoch = thc_be32(EPOCH - 1);
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		struct thc_home home = { .strangers = &bucket, .now = SECOND };

		p.seals = &seals[seal];
		p.other_key = 1;
		r = react(&p, &home, &h);
		assert_int_equal(r.event, THC_EVENT_EPOCH);
		assert_int_equal(r.to, THC_TO_SENDER);
		expect_epoch(&p, &p.job, &h);
		assert_int_equal(home.heard, 0);
		/* under this epoch's key the tag must be right, and then the answer is the same */
		p.other_key = 0;
		r = react(&p, &home, &h);
		assert_int_equal(r.event, THC_EVENT_EPOCH);
		expect_epoch(&p, &p.job, &h);
		assert_int_equal(home.heard + home.combined, 0);
		p.forged = 1;
		expect(&p, THC_DROP_TAG);
		p.forged = 0;
	}
	p.hdr.op = 77;
	expect(&p, THC_DROP_OP);
	/* a rank that the job does not have */
	p = good();
	p.hdr.epoch = thc_be32(EPOCH - 1);
	p.hdr.rank = thc_be16(RANKS);
	expect(&p, THC_DROP_RANK);
	p = control(THC_OP_LEAVE);
	p.hdr.epoch = thc_be32(EPOCH - 1);
	p.job.member[RANK].port = 0;
	expect(&p, THC_DROP_RANK);
}

/* --- joining and leaving ------------------------------------------------------ */

/* How many of @n JOINs, or LEAVEs, like @p go on to the daemon at time @now. */
static int joins_of(const struct packet *p, struct thc_job *job, struct thc_bucket *b, u64 now,
		    int n)
{
	struct thc_home home = { .strangers = b, .now = now };
	int on = 0;

	while (n--) {
		struct thc_hdr h;
		struct thc_reaction r = meet(p, &home, job, &h);

		assert_true(!r.why || r.why == THC_DROP_FLOOD);
		assert_int_equal(r.to, r.why ? THC_TO_NOBODY : THC_TO_DAEMON);
		on += !r.why;
	}
	return on;
}

static int joins(const struct packet *p, struct thc_bucket *b, u64 now, int n)
{
	struct thc_job job = p->job;

	return joins_of(p, &job, b, now, n);
}

/* JOINs that no job admits, each for another reason. */
static struct packet stranger(int how)
{
	struct packet p = control(THC_OP_JOIN);

	switch (how) {
	case 0: /* the tag cannot be checked */
		p.other_key = 1;
		p.forged = 1;
		break;
	case 1: /* the tag is not checked */
		p.hdr.rank = thc_be16(RANKS);
		p.forged = 1;
		break;
	case 2: /* the rank's low byte is that of a rank */
		p.hdr.rank = thc_be16(256);
		break;
	case 3:
		p.job.active = 0;
		p.forged = 1;
		break;
	default: /* a job without a key, and a worker with one */
		p.seals = &seals[THC_SEAL_SUM];
		p.other_key = seals[THC_SEAL_NH].join.id;
	}
	return p;
}

#define STRANGERS	5

/* A whole job with a wrong key is told so at once, and then 200 a second. */
static void join__strangers_are_few(void **state)
{
	int how, s;

	(void)state;
	for (how = 0; how < STRANGERS; how++) {
		struct packet p = stranger(how);
		struct thc_bucket b = { 0 };
		u64 now = 5 * SECOND;

		assert_int_equal(joins(&p, &b, now, 1000), THC_JOINS_BURST);
		assert_int_equal(joins(&p, &b, now + THC_JOINS_NS - 1, 10), 0);
		assert_int_equal(joins(&p, &b, now + THC_JOINS_NS, 10), 1);
		now += SECOND;
		for (s = 0; s < 200; s++)
			joins(&p, &b, now + s * THC_JOINS_NS, 100);
		assert_int_equal(joins(&p, &b, now + SECOND, 1000), 1);
		/* after a pause a burst passes, and no more */
		assert_int_equal(joins(&p, &b, now + 1000 * SECOND, 1000), THC_JOINS_BURST);
	}
}

static void join__a_number_that_no_job_has(void **state)
{
	struct thc_bucket b = { 0 };
	struct thc_home home = { .strangers = &b, .now = SECOND };
	struct packet p = control(THC_OP_JOIN);
	struct thc_hdr h;
	int n = 0;

	(void)state;
	while (n < 1000 && !meet(&p, &home, NULL, &h).why)
		n++;
	assert_int_equal(n, THC_JOINS_BURST);
	/* a home that cannot find its bucket */
	home.strangers = NULL;
	assert_int_equal(meet(&p, &home, NULL, &h).why, THC_DROP_INTERNAL);
	/* nothing else of such a job */
	p = control(THC_OP_LEAVE);
	assert_int_equal(meet(&p, &home, NULL, &h).why, THC_DROP_JOB);
	p = good();
	assert_int_equal(meet(&p, &home, NULL, &h).why, THC_DROP_JOB);
}

static struct thc_reaction react_to(const struct packet *p, struct thc_job *job, u64 now)
{
	struct thc_home home = { .now = now };
	struct thc_hdr h;

	return meet(p, &home, job, &h);
}

/* Ranks with the job's key take no token of the strangers, from any address. Each rank has its own
 * bucket, since its JOINs can be recorded: others are not affected, nor is the rank itself, which
 * sends at most five JOINs in 20 ms.
 */
static void join__ranks_have_their_own_tokens(void **state)
{
	struct packet p = stranger(0), q;
	struct thc_bucket b = { 0 };
	u32 seal, rank, ms;

	(void)state;
	assert_int_equal(joins(&p, &b, SECOND, 1000), THC_JOINS_BURST);
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		struct thc_job job;

		q = control(THC_OP_JOIN);
		q.seals = &seals[seal];
		q.path.src_port = 1;
		q.end.port = thc_be16(1);
		job = q.job;
		for (rank = 0; rank < RANKS; rank++) {
			q.hdr.rank = thc_be16(rank);
			assert_int_equal(joins_of(&q, &job, &b, SECOND, 1000), THC_JOINS_BURST);
			assert_int_equal(joins_of(&q, &job, &b, SECOND + THC_JOINS_NS, 9), 1);
		}
		job = q.job;
		for (ms = 0; ms < 200; ms += 20)
			assert_int_equal(joins_of(&q, &job, &b, SECOND * (1000 + ms) / 1000, 5), 5);
		/* a wrong tag takes no token */
		job = q.job;
		q.forged = 1;
		for (ms = 0; ms < 1000; ms++)
			assert_int_equal(react_to(&q, &job, SECOND).why, THC_DROP_TAG);
		q.forged = 0;
		assert_int_equal(joins_of(&q, &job, &b, SECOND, 1000), THC_JOINS_BURST);
	}
	assert_int_equal(joins(&p, &b, SECOND + THC_JOINS_NS, 10), 1);
}

/* LEAVEs that a full bucket lets through. */
#define LEAVES	(THC_JOINS_BURST * THC_JOINS_NS / THC_LEAVES_NS)

/* A rank that has left keeps address and port, and so may send LEAVE again. Each rank has tokens
 * for LEAVE, which neither other ranks' LEAVEs nor its own JOINs take.
 */
static void leave__ranks_have_tokens(void **state)
{
	struct packet p = control(THC_OP_LEAVE), q = control(THC_OP_JOIN);
	struct thc_job job = p.job;
	u8 rank;

	(void)state;
	q.path = p.path;
	for (rank = 0; rank < RANKS; rank++) {
		sender(&p, rank);
		sender(&q, rank);
		p.end = q.end =
			(struct thc_end){ .addr = p.path.src, .port = thc_be16(p.path.src_port) };
		p.forged = 1;
		assert_int_equal(react_to(&p, &job, SECOND).why, THC_DROP_TAG);
		p.forged = 0;
		assert_int_equal(joins_of(&q, &job, NULL, SECOND, 1000), THC_JOINS_BURST);
		assert_int_equal(joins_of(&p, &job, NULL, SECOND, 1000), LEAVES);
		assert_int_equal(joins_of(&p, &job, NULL, SECOND + THC_LEAVES_NS - 1, 10), 0);
		assert_int_equal(joins_of(&p, &job, NULL, SECOND + THC_LEAVES_NS, 10), 1);
		/* LEAVEs do not take tokens of JOINs either */
		assert_int_equal(joins_of(&q, &job, NULL, SECOND + THC_JOINS_NS, 10), 1);
	}
}

/* A rank joins and leaves at the highest rate, by a JOIN, a JOIN with the challenge, and three
 * LEAVEs: no LEAVE is refused.
 */
static void leave__of_a_rank_is_never_refused(void **state)
{
	struct packet p = control(THC_OP_LEAVE), q = control(THC_OP_JOIN);
	struct thc_job job = p.job;
	u64 now = SECOND;
	int i, n;

	(void)state;
	for (i = 0; i < 1000; i++) {
		for (n = 0; n < 2; now += THC_NS_PER_MS / 10)
			n += joins_of(&q, &job, NULL, now, 1);
		assert_int_equal(joins_of(&p, &job, NULL, now, 3), 3);
	}
	/* the tokens were few */
	assert_true(now > SECOND + 9 * SECOND);
}

/* @p with a tag that is not right is dropped for that, and takes no token. */
static void expect_forged(const struct packet *p)
{
	struct thc_bucket b = { .full_at = 7 };
	struct thc_home home = { .strangers = &b, .now = SECOND };
	struct thc_reaction r = react(p, &home, NULL);

	assert_int_equal(r.why, THC_DROP_TAG);
	assert_int_equal(r.to, THC_TO_NOBODY);
	assert_int_equal(home.sealed, 1);
	assert_int_equal(b.full_at, 7);
}

/* The seal of JOIN and LEAVE covers the sender's end: from another sender they are refused. */
static void membership__is_of_its_sender(void **state)
{
	static const u8 ops[] = { THC_OP_JOIN, THC_OP_LEAVE };
	struct packet p;
	unsigned int i, bit;

	(void)state;
	for (i = 0; i < 2; i++) {
		for (bit = 0; bit < 64; bit++) {
			p = control(ops[i]);
			p.forged = 1ULL << bit;
			expect_forged(&p);
		}
		for (bit = 0; bit < 128; bit++) {
			p = control(ops[i]);
			p.end.addr.word[bit / 32] ^= 1U << bit % 32;
			expect_forged(&p);
		}
		for (bit = 0; bit < 16; bit++) {
			p = control(ops[i]);
			p.end.port ^= 1 << bit;
			expect_forged(&p);
			/* to another aggregator of the job */
			p = control(ops[i]);
			p.end.aggregator ^= 1 << bit;
			expect_forged(&p);
		}
	}
	/* in a job without a key a JOIN shows no identity */
	p = control(THC_OP_JOIN);
	p.seals = &seals[THC_SEAL_SUM];
	p.end.port ^= 1;
	expect(&p, THC_DROP_NONE);
}

/* Another key than the job's: JOIN is a stranger's, LEAVE is dropped. */
static void membership__another_key(void **state)
{
	struct thc_home home = { .strangers = &bucket, .now = SECOND };
	struct packet p = control(THC_OP_LEAVE);
	unsigned int bit;

	(void)state;
	for (bit = 0; bit < 32; bit++) {
		p.other_key = 1U << bit;
		assert_int_equal(react(&p, &home, NULL).why, THC_DROP_KEY);
	}
	/* the name of data's keys is another one, too */
	p.other_key = seals[THC_SEAL_NH].join.id ^ thc_seals_up(&seals[THC_SEAL_NH], EPOCH)->id;
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_KEY);
	assert_int_equal(home.sealed, 0);
}

/* --- the order of the questions --------------------------------------------- */

static void fault_version(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.version++;
}

static void fault_hops(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->job.ttl_min = 64;
	p->path.ttl = 63;
}

static void fault_job(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->job.active = 0;
}

static void fault_rank(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.rank = thc_be16(RANKS);
}

/* It is sealed with the end that it comes from. */
static void fault_address(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->path.src_port++;
	p->end.port = thc_be16(p->path.src_port);
}

static void fault_op(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.op = 99;
}

static void fault_key(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->other_key = 1;
}

static void fault_no_length(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->bytes = 24;
}

static void fault_tag(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->forged = 1;
}

static void fault_flags(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.flags = 1;
}

static void fault_reserved(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.count = thc_be16(1);
}

static void fault_port(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->path.dst_port++;
}

static void fault_epoch(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.epoch = thc_be32(EPOCH - 1);
}

static void fault_width(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.width = 5;
}

static void fault_length(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->bytes = 1024;
}

static void fault_slot(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.slot = thc_be16(SLOTS);
}

static void fault_lock(struct packet *p, struct thc_home *home)
{
	(void)p;
	home->lock = THC_DROP_LOCK;
}

static void fault_busy(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.generation = thc_be32(2);
	p->hdr.chunk = thc_be32(2 * DATA + SLOT);
}

/* The rank has used up its tokens. */
static void fault_joins(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->job.member[RANK].joins.full_at = 2000 * SECOND;
}

static void fault_leaves(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->job.member[RANK].leaves.full_at = 2000 * SECOND;
}

/* A check, named by a fault that fails it. */
struct fault {
	void (*make)(struct packet *p, struct thc_home *home);
	enum thc_drop_reason why;
};

/* In the order of the checks. A rank with another key or epoch has just been told so. */
static const struct fault of_data[] = {
	{ fault_version, THC_DROP_VERSION },
	{ fault_hops, THC_DROP_HOPS },
	{ fault_job, THC_DROP_JOB },
	{ fault_rank, THC_DROP_RANK },
	{ fault_address, THC_DROP_ADDRESS },
	{ fault_op, THC_DROP_OP },
	{ fault_key, THC_DROP_KEY },
	{ fault_no_length, THC_DROP_LENGTH },
	{ fault_tag, THC_DROP_TAG },
	{ fault_flags, THC_DROP_FLAGS },
	{ fault_reserved, THC_DROP_RESERVED },
	{ fault_epoch, THC_DROP_KEY },
	{ fault_width, THC_DROP_WIDTH },
	{ fault_length, THC_DROP_LENGTH },
	{ fault_slot, THC_DROP_SLOT },
	{ fault_lock, THC_DROP_LOCK },
	{ fault_busy, THC_DROP_BUSY },
};

static const struct fault of_leave[] = {
	{ fault_version, THC_DROP_VERSION },
	{ fault_hops, THC_DROP_HOPS },
	{ fault_job, THC_DROP_JOB },
	{ fault_rank, THC_DROP_RANK },
	{ fault_address, THC_DROP_ADDRESS },
	{ fault_flags, THC_DROP_FLAGS },
	{ fault_reserved, THC_DROP_RESERVED },
	{ fault_width, THC_DROP_WIDTH },
	{ fault_length, THC_DROP_LENGTH },
	{ fault_port, THC_DROP_SLOT },
	{ fault_key, THC_DROP_KEY },
	{ fault_tag, THC_DROP_TAG },
	{ fault_leaves, THC_DROP_FLOOD },
};

/* The strangers' bucket is empty. */
static const struct fault of_join[] = {
	{ fault_version, THC_DROP_VERSION },
	{ fault_hops, THC_DROP_HOPS },
	{ fault_flags, THC_DROP_FLAGS },
	{ fault_reserved, THC_DROP_RESERVED },
	{ fault_width, THC_DROP_WIDTH },
	{ fault_length, THC_DROP_LENGTH },
	{ fault_port, THC_DROP_SLOT },
	{ fault_job, THC_DROP_FLOOD },
	{ fault_key, THC_DROP_FLOOD },
	{ fault_rank, THC_DROP_FLOOD },
	{ fault_tag, THC_DROP_TAG },
	{ fault_joins, THC_DROP_FLOOD },
};

/**
 * order() - tries each set of @n faults: the first fault gives the reason
 * @plain: the packet without faults
 * @sealed: the first fault that is checked after the tag
 */
static void order(struct packet plain, const struct fault *faults, size_t n, size_t sealed)
{
	struct thc_bucket empty = { .full_at = 2000 * SECOND };
	u64 want_of[THC_DROP_REASONS] = { 0 };
	struct thc_stats st = { 0 };
	unsigned long set;
	size_t i;

	for (set = 0; set < 1UL << n; set++) {
		struct thc_home home = { .strangers = &empty, .now = SECOND };
		enum thc_drop_reason want = THC_DROP_NONE;
		struct packet p = plain;
		struct thc_reaction r;
		size_t first = n;

		for (i = 0; i < THC_RANKS_MAX; i++)
			p.job.member[i].told_at = SECOND;
		for (i = n; i-- > 0;) {
			if (!(set >> i & 1))
				continue;
			faults[i].make(&p, &home);
			want = faults[i].why;
			first = i;
		}
		want_of[want]++;
		r = react(&p, &home, NULL);
		thc_react_count(&st, r);
		assert_int_equal(r.why, want);
		if (want)
			assert_int_equal(r.to, THC_TO_NOBODY);
		assert_int_equal(home.combined, !want && thc_op_is_data(plain.hdr.op));
		/* an address is remembered only for packets whose data is added */
		assert_int_equal(home.heard, home.combined);
		/* packets of strangers cost no check of a tag */
		assert_int_equal(home.sealed, first >= sealed);
	}
	assert_int_equal(st.received, 1UL << n);
	for (i = 1; i < THC_DROP_REASONS; i++)
		assert_int_equal(st.drop[i], want_of[i]);
}

#define ORDER(plain, faults, sealed) \
	order(plain, faults, sizeof(faults) / sizeof((faults)[0]), sealed)

static void order__data(void **state)
{
	(void)state;
	ORDER(good(), of_data, 8);
}

static void order__leave(void **state)
{
	(void)state;
	ORDER(control(THC_OP_LEAVE), of_leave, 11);
}

static void order__join(void **state)
{
	(void)state;
	ORDER(control(THC_OP_JOIN), of_join, 10);
}

/* JOIN and LEAVE of any epoch go to the daemon alone. */
static void order__membership(void **state)
{
	static const struct {
		u8 op;
		u8 width;
		u32 bytes;
		enum thc_drop_reason why;
	} row[] = {
		{ THC_OP_JOIN, 0, 64, THC_DROP_NONE },	  { THC_OP_JOIN, 0, 0, THC_DROP_LENGTH },
		{ THC_OP_JOIN, 0, 16, THC_DROP_LENGTH },  { THC_OP_JOIN, 0, 72, THC_DROP_LENGTH },
		{ THC_OP_JOIN, 0, 512, THC_DROP_LENGTH }, { THC_OP_JOIN, 8, 64, THC_DROP_WIDTH },
		{ THC_OP_JOIN, 8, 24, THC_DROP_WIDTH },	  { THC_OP_LEAVE, 0, 16, THC_DROP_NONE },
		{ THC_OP_LEAVE, 0, 0, THC_DROP_LENGTH },  { THC_OP_LEAVE, 0, 24, THC_DROP_LENGTH },
		{ THC_OP_LEAVE, 8, 16, THC_DROP_WIDTH },  { THC_OP_LEAVE, 0, 512, THC_DROP_LENGTH },
		{ THC_OP_LEAVE, 8, 512, THC_DROP_WIDTH },
	};
	size_t i;
	u32 seal;

	(void)state;
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
			struct thc_home home = { .strangers = &bucket, .now = SECOND };
			struct packet p = control(row[i].op);
			struct thc_reaction r;

			p.seals = &seals[seal];
			p.hdr.width = row[i].width;
			p.bytes = row[i].bytes;
			p.hdr.epoch = thc_be32(77);
			r = react(&p, &home, NULL);
			assert_int_equal(r.why, row[i].why);
			assert_int_equal(r.to, row[i].why ? THC_TO_NOBODY : THC_TO_DAEMON);
			assert_int_equal(r.event, row[i].why ? 0 : THC_EVENT_MEMBERSHIP);
			assert_int_equal(home.heard, 0);
			/* JOIN and LEAVE are sealed in every job */
			p.forged = 1;
			r = react(&p, &home, NULL);
			assert_int_equal(r.why, row[i].why ? row[i].why : THC_DROP_TAG);
		}
	}
}

/* --- from the first contribution to the last ------------------------------- */

/* Is @h sealed as an answer of @epoch? @lanes: its lanes, or NULL */
static void expect_down(const struct thc_hdr *h, const struct thc_seals *s, u32 epoch,
			const u64 *lanes)
{
	const struct thc_seal_key *key = thc_seals_down(s, epoch);
	u64 wire[THC_LANE_WORDS];
	int i;

	for (i = 0; lanes && i < THC_LANE_WORDS; i++)
		wire[i] = thc_le64(lanes[i]);
	assert_int_equal(thc_be32(h->epoch), epoch);
	assert_int_equal(h->key_id, key->id);
	assert_true(thc_seal_ok(h, (u8)s->seal, key, wire, lanes ? THC_LANE_WORDS : 0));
}

static void who_hears_what(const struct thc_seals *s)
{
	struct thc_home home = { .strangers = &bucket, .now = SECOND };
	struct packet p = good();
	struct thc_reaction r;
	struct thc_hdr h;
	u8 rank;

	p.seals = s;
	for (rank = 0; rank < RANKS; rank++) {
		sender(&p, rank);
		r = react(&p, &home, &h);
		assert_int_equal(r.event, THC_EVENT_ADDED);
		assert_int_equal(r.to, rank < RANKS - 1 ? THC_TO_NOBODY : THC_TO_ALL);
		if (rank < RANKS - 1) {
			r = react(&p, &home, &h);
			assert_int_equal(r.event, THC_EVENT_WAITED);
			assert_int_equal(r.to, THC_TO_SENDER);
			assert_int_equal(h.op, THC_OP_WAIT);
			assert_int_equal(h.rank, thc_be16(rank));
			expect_down(&h, s, EPOCH, NULL);
		}
	}
	assert_int_equal(h.flags, THC_F_ANSWER);
	assert_int_equal(h.rank, 0);
	assert_int_equal(thc_be64(h.bitmap), p.job.all);
	expect_down(&h, s, EPOCH, home.lanes);
	r = react(&p, &home, &h);
	assert_int_equal(r.event, THC_EVENT_REPEATED);
	assert_int_equal(r.to, THC_TO_SENDER);
	assert_int_equal(h.flags, THC_F_ANSWER | THC_F_REPEAT);
	assert_int_equal(h.rank, thc_be16(RANKS - 1));
	expect_down(&h, s, EPOCH, home.lanes);
	p.hdr.round = thc_be32(9);
	r = react(&p, &home, &h);
	assert_int_equal(r.why, THC_DROP_MISMATCH);
	assert_int_equal(r.to, THC_TO_SENDER);
	assert_int_equal(h.flags, THC_F_DIFFERS);
	expect_down(&h, s, EPOCH, NULL);
	p.hdr.generation = thc_be32(-5);
	p.hdr.chunk = thc_be32(-5 * DATA + SLOT);
	r = react(&p, &home, &h);
	assert_int_equal(r.event, THC_EVENT_STALE);
	assert_int_equal(r.to, THC_TO_SENDER);
	assert_int_equal(h.op, THC_OP_STALE);
	expect_down(&h, s, EPOCH, NULL);
	assert_int_equal(home.combined, RANKS);
	/* a copy of an added packet, late or from another address, does not change the rank's
	 * address
	 */
	assert_int_equal(home.heard, RANKS);
}

static void slot__who_hears_what(void **state)
{
	u32 seal;

	(void)state;
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++)
		who_hears_what(&seals[seal]);
}

/* Workers' indices and a node's sums meet in a slot, each by its own loop. The answer has the
 * first packet's op, for every rank.
 */
static void slot__indices_and_sums_meet(void **state)
{
	struct thc_home home = { .now = SECOND };
	struct packet p = good(), sums;
	struct thc_hdr h;
	u8 rank;

	(void)state;
	for (rank = 0; rank < RANKS; rank++) {
		p = good();
		if (rank == 1) {
			p.hdr.op = THC_OP_ADD;
			p.hdr.width = 8;
			p.bytes = THC_LANE_BYTES;
			sums = p;
			sender(&sums, 1);
		}
		sender(&p, rank);
		assert_int_equal(react(&p, &home, &h).event, THC_EVENT_ADDED);
		assert_int_equal(home.kind, rank == 1 ? THC_LANE_ADD8 : THC_LANE_LUT8);
	}
	assert_int_equal(h.op, THC_OP_LUT_ADD);
	assert_int_equal(h.width, 8);
	assert_int_equal(react(&sums, &home, &h).event, THC_EVENT_REPEATED);
	assert_int_equal(h.op, THC_OP_LUT_ADD);
	assert_int_equal(h.width, 8);
	sums.hdr.width = 16;
	assert_int_equal(react(&sums, &home, &h).why, THC_DROP_MISMATCH);
	assert_int_equal(h.flags, THC_F_DIFFERS);
}

/* A request's width names its row, and the first row is that of the generation, even if another
 * row's sums have the same width.
 */
static void slot__rows_do_not_meet(void **state)
{
	struct thc_home home = { .now = SECOND };
	struct packet p = good();
	struct thc_hdr h;

	(void)state;
	p.job.widths.sum[4] = 8;
	p.job.widths.sum[1] = 4;
	sender(&p, 0);
	assert_int_equal(react(&p, &home, &h).event, THC_EVENT_ADDED);
	assert_int_equal(home.row, JOB * 8 + 3);
	assert_int_equal(home.kind, THC_LANE_LUT8);
	sender(&p, 1);
	p.hdr.width = 5;
	p.bytes = 640;
	assert_int_equal(react(&p, &home, &h).why, THC_DROP_MISMATCH);
	assert_int_equal(home.row, JOB * 8 + 4);
	assert_int_equal(h.op, THC_OP_WAIT);
	assert_int_equal(h.flags, THC_F_DIFFERS);
	assert_int_equal(thc_be64(h.bitmap), 1);
	p.hdr.width = 2;
	p.bytes = 512;
	assert_int_equal(react(&p, &home, &h).why, THC_DROP_MISMATCH);
	assert_int_equal(home.combined, 1);
	p.hdr.width = 4;
	assert_int_equal(react(&p, &home, &h).event, THC_EVENT_ADDED);
	assert_int_equal(home.combined, 2);
}

/* The job's next epoch begins between admission and the slot: a request of the old epoch is
 * answered under the old keys, which are kept.
 */
static void slot__an_answer_is_of_its_epoch(void **state)
{
	struct thc_home home = { .strangers = &bucket, .now = SECOND };
	struct packet p = good();
	struct thc_seals both;
	struct thc_reaction r;
	struct thc_hdr h;
	u8 rank;

	(void)state;
	both = seals[THC_SEAL_NH];
	job_seals_epoch(&both, JOB, EPOCH + 1);
	p.seals = &both;
	for (rank = 0; rank < RANKS; rank++) {
		home.next = EPOCH + 1;
		sender(&p, rank);
		r = react(&p, &home, &h);
		assert_int_equal(r.event, THC_EVENT_ADDED);
		if (rank == RANKS - 1)
			break;
		r = react(&p, &home, &h);
		assert_int_equal(h.op, THC_OP_WAIT);
		expect_down(&h, &both, EPOCH, NULL);
	}
	assert_int_equal(r.to, THC_TO_ALL);
	expect_down(&h, &both, EPOCH, home.lanes);
	react(&p, &home, &h);
	expect_down(&h, &both, EPOCH, home.lanes);
	/* the next request is answered with the new epoch */
	home.next = 0;
	p.job.epoch = EPOCH + 1;
	r = react(&p, &home, &h);
	assert_int_equal(r.event, THC_EVENT_EPOCH);
	expect_epoch(&p, &p.job, &h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(admission__a_good_packet_passes),
		cmocka_unit_test(admission__every_op),
		cmocka_unit_test(admission__rows),
		cmocka_unit_test(admission__version),
		cmocka_unit_test(admission__joins_of_version_1),
		cmocka_unit_test(admission__claims_of_workers_that_are_there),
		cmocka_unit_test(admission__op),
		cmocka_unit_test(admission__width),
		cmocka_unit_test(admission__flags),
		cmocka_unit_test(admission__reserved),
		cmocka_unit_test(admission__job),
		cmocka_unit_test(admission__rank),
		cmocka_unit_test(admission__address),
		cmocka_unit_test(admission__distance),
		cmocka_unit_test(admission__slot_and_port),
		cmocka_unit_test(admission__chunk),
		cmocka_unit_test(seal__is_asked_for),
		cmocka_unit_test(seal__is_the_jobs),
		cmocka_unit_test(seal__has_a_key_for_each_direction),
		cmocka_unit_test(epoch__another_key_is_told),
		cmocka_unit_test(epoch__is_told_once_in_100_ms_and_rank),
		cmocka_unit_test(lost__is_told_each_time),
		cmocka_unit_test(lost__only_data),
		cmocka_unit_test(join__strangers_are_few),
		cmocka_unit_test(join__a_number_that_no_job_has),
		cmocka_unit_test(join__ranks_have_their_own_tokens),
		cmocka_unit_test(leave__ranks_have_tokens),
		cmocka_unit_test(leave__of_a_rank_is_never_refused),
		cmocka_unit_test(membership__is_of_its_sender),
		cmocka_unit_test(membership__another_key),
		cmocka_unit_test(order__data),
		cmocka_unit_test(order__leave),
		cmocka_unit_test(order__join),
		cmocka_unit_test(order__membership),
		cmocka_unit_test(slot__who_hears_what),
		cmocka_unit_test(slot__indices_and_sums_meet),
		cmocka_unit_test(slot__rows_do_not_meet),
		cmocka_unit_test(slot__an_answer_is_of_its_epoch),
	};

	return cmocka_run_group_tests_name("reactions", tests, setup, NULL);
}
