// SPDX-License-Identifier: GPL-2.0
/*
 * What an aggregator asks of a packet (include/thc/aggregator/react.h, admit.h): one that is right
 * in everything is added, each single thing wrong with it is refused under its own reason, and
 * of two the one that is asked first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/react.h>

#define COOKIE	0x0123456789abcdefULL
#define BASE	18500
#define RANKS	3
#define RANK	2
#define SLOT	130	/* on the third port */
#define SLOTS	200
#define DATA	150	/* of them; the others are for norms */

struct packet {
	struct thc_job job;
	struct thc_hdr hdr;
	struct thc_path path;
	u32 payload;
};

static struct packet good(void)
{
	struct packet p = {
		.job = {
			.cookie = COOKIE, .all = (1 << RANKS) - 1, .active = 1, .epoch = 5,
			.slots = SLOTS, .data_slots = DATA, .ranks = RANKS, .quorum = 2,
			.sum_width = 8, .port_base = BASE, .reply = THC_REPLY_FANOUT,
		},
		.hdr = {
			.version = THC_VERSION, .op = THC_OP_LUT_ADD, .width = 4,
			.cookie = thc_be64(COOKIE), .rank = RANK, .epoch = thc_be32(5),
			.slot = thc_be16(SLOT), .chunk = thc_be32(SLOT),
		},
		.path = {
			.src = thc_addr_v4(thc_be32(0x0a000003)), .src_port = 40003,
			.dst_port = BASE + 2,
		},
		.payload = 512,
	};
	int r;

	for (r = 0; r < RANKS; r++) {
		p.job.member[r].addr = thc_addr_v4(thc_be32(0x0a000001 + r));
		p.job.member[r].port = thc_be16(40001 + r);
		p.job.member[r].joined = 1;
	}
	return p;
}

/* Home of one slot, which says what it was asked for. @seal, @lock: what it answers. */
struct thc_home {
	struct thc_slot slot;
	struct thc_bucket *strangers;
	u64 now;
	enum thc_drop_reason seal;
	enum thc_drop_reason lock;
	int sealed;
	int locked;
	int heard;
	int combined;
	enum thc_lane_kind kind;
};

THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home, u64 *now)
{
	*now = home->now;
	return home->strangers;
}

THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p)
{
	if (p->hdr->op != THC_OP_JOIN && !thc_payload_is_known(p->payload_len))
		return THC_DROP_LENGTH;
	home->sealed++;
	return home->seal;
}

THC_INLINE void thc_home_heard(struct thc_home *home, struct thc_member *m)
{
	(void)m;
	home->heard++;
}

THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 job,
					      struct thc_slot **slot)
{
	(void)index;
	(void)job;
	if (home->lock)
		return home->lock;
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
				 const struct thc_packet *p, u32 v, u32 first)
{
	(void)p;
	(void)v;
	(void)first;
	home->combined++;
	home->kind = kind;
}

THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 v)
{
	(void)home;
	(void)slot;
	(void)v;
}

THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       struct thc_slot *slot, u32 verdict)
{
	(void)home;
	return thc_react_answer(h, job, slot, verdict);
}

static struct thc_bucket bucket;

/* @home: its slot as it has become; @answer, or NULL: the header as it has become */
static struct thc_reaction react(const struct packet *p, struct thc_home *home,
				 struct thc_hdr *answer)
{
	struct thc_hdr h = p->hdr;
	struct thc_job job = p->job;
	const struct thc_packet q = { .hdr = &h, .path = p->path, .payload_len = p->payload };
	struct thc_reaction r = thc_react(home, &job, &q);

	assert_int_equal(home->locked, 0);
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
	p.hdr.flags = THC_F_NOSUM;
	expect(&p, THC_DROP_NONE);
	/* another epoch is answered, not refused */
	p.hdr.epoch = 0;
	expect(&p, THC_DROP_NONE);
}

static void admission__every_op(void **state)
{
	static const struct {
		u8 op, width;
		u32 payload;
		enum thc_lane_kind kind;
	} row[] = {
		{ THC_OP_LUT_ADD, 4, 512, THC_LANE_LUT8 },
		{ THC_OP_ADD, 8, 1024, THC_LANE_ADD8 },
		{ THC_OP_ADD, 16, 1024, THC_LANE_ADD16 },
		{ THC_OP_ADD, 32, 1024, THC_LANE_ADD32 },
		{ THC_OP_OR, 32, 1024, THC_LANE_OR },
		{ THC_OP_MAX, 32, 1024, THC_LANE_MAX },
	};
	struct packet p = good();
	enum thc_lane_kind kind;
	unsigned int i;
	u32 payload;

	(void)state;
	for (i = 0; i < sizeof(row) / sizeof(*row); i++) {
		p.hdr.op = row[i].op;
		p.hdr.width = row[i].width;
		for (payload = 0; payload <= 1472; payload++) {
			p.payload = payload;
			assert_int_equal(admit(&p, &kind), payload == row[i].payload ?
								   THC_DROP_NONE :
								   THC_DROP_LENGTH);
			assert_int_equal(kind,
					 payload == row[i].payload ? row[i].kind : THC_LANE_NONE);
		}
	}
	p.hdr.op = THC_OP_LUT_ADD;
	p.hdr.width = 4;
	p.job.sum_width = 16;
	p.payload = 256;
	assert_int_equal(admit(&p, &kind), THC_DROP_NONE);
	assert_int_equal(kind, THC_LANE_LUT16);
	p.payload = 512;
	expect(&p, THC_DROP_LENGTH);
	p.job.sum_width = 8;
	p.job.flags = THC_JOB_F_LINEAR;
	assert_int_equal(admit(&p, &kind), THC_DROP_NONE);
	assert_int_equal(kind, THC_LANE_LINEAR8);
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

/* A worker may send four data ops, JOIN and LEAVE; all else is not for it. */
static void admission__op(void **state)
{
	struct packet p = good();
	int op;

	(void)state;
	for (op = 0; op < 256; op++) {
		p.hdr.op = op;
		if (op == THC_OP_JOIN || op == THC_OP_LEAVE)
			assert_true(thc_op_is_control(op) && !thc_op_is_data(op));
		else if (op >= THC_OP_LUT_ADD && op <= THC_OP_MAX)
			assert_true(thc_op_is_data(op) && !thc_op_is_control(op));
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
		expect(&p, f & ~THC_F_NOSUM ? THC_DROP_FLAGS : THC_DROP_NONE);
	}
}

static void admission__reserved(void **state)
{
	struct packet p;
	int bit;

	(void)state;
	for (bit = 0; bit < 8; bit++) {
		p = good();
		p.hdr.reserved = 1 << bit;
		expect(&p, THC_DROP_RESERVED);
	}
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
	p.hdr.cookie = 0;
	expect(&p, THC_DROP_JOB);
}

static void admission__cookie(void **state)
{
	struct packet p;
	int bit;

	(void)state;
	for (bit = 0; bit < 64; bit++) {
		p = good();
		p.hdr.cookie ^= thc_be64(1ULL << bit);
		expect(&p, THC_DROP_COOKIE);
	}
}

static void admission__rank(void **state)
{
	struct packet p = good();
	int rank;

	(void)state;
	for (rank = 0; rank < 256; rank++) {
		p.hdr.rank = rank;
		expect(&p, rank == RANK ? THC_DROP_NONE :
			   rank < RANKS ? THC_DROP_ADDRESS :
					  THC_DROP_RANK);
	}
	/* a record of a larger job may be left behind n */
	p.job.member[RANKS] = p.job.member[RANK];
	p.hdr.rank = RANKS;
	expect(&p, THC_DROP_RANK);
	/* below n, but it has never joined: there is no address to compare with */
	p.hdr.rank = RANK;
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

/* --- joining -------------------------------------------------------------- */

#define SECOND	1000000000ULL

/* How many of @n JOINs like @p go on to the daemon at time @now. */
static int joins(const struct packet *p, struct thc_bucket *b, u64 now, int n)
{
	int on = 0;

	while (n--) {
		enum thc_drop_reason reason = thc_admit_join(&p->job, &p->hdr, b, now);

		assert_true(reason == THC_DROP_NONE || reason == THC_DROP_FLOOD);
		on += !reason;
	}
	return on;
}

static struct packet stranger(int how)
{
	struct packet p = good();

	p.hdr.op = THC_OP_JOIN;
	if (how == 0)
		p.hdr.cookie ^= thc_be64(1);
	else if (how == 1)
		p.hdr.rank = RANKS;
	else
		p.job.active = 0;
	return p;
}

/* A whole job with a wrong cookie is told so at once, and then 200 a second. */
static void join__strangers_are_few(void **state)
{
	int how, s;

	(void)state;
	for (how = 0; how < 3; how++) {
		struct packet p = stranger(how);
		struct thc_bucket b = { 0 };
		u64 now = 5 * SECOND;

		assert_int_equal(joins(&p, &b, now, 1000), THC_STRANGERS_BURST);
		assert_int_equal(joins(&p, &b, now + THC_STRANGERS_NS - 1, 10), 0);
		assert_int_equal(joins(&p, &b, now + THC_STRANGERS_NS, 10), 1);
		now += SECOND;
		for (s = 0; s < 200; s++)
			joins(&p, &b, now + s * THC_STRANGERS_NS, 1000);
		assert_int_equal(joins(&p, &b, now + SECOND, 1000), 1);
		/* who was silent for a while may ask at once again, but not more than that */
		assert_int_equal(joins(&p, &b, now + 1000 * SECOND, 1000), THC_STRANGERS_BURST);
	}
}

static void join__a_number_that_no_job_has(void **state)
{
	struct packet p = stranger(0);
	struct thc_bucket b = { 0 };
	int n = 0;

	(void)state;
	while (n < 1000 && !thc_admit_join(NULL, &p.hdr, &b, SECOND))
		n++;
	assert_int_equal(n, THC_STRANGERS_BURST);
	/* the daemon behind XDP has no bucket */
	assert_int_equal(thc_admit_join(NULL, &p.hdr, NULL, SECOND), THC_DROP_NONE);
}

/* Ranks of the job take no tokens and need none, from whatever address. */
static void join__ranks_are_never_refused(void **state)
{
	struct packet p = stranger(0), q = good();
	struct thc_bucket b = { 0 };

	(void)state;
	assert_int_equal(joins(&p, &b, SECOND, 1000), THC_STRANGERS_BURST);
	q.hdr.op = THC_OP_JOIN;
	q.path.src_port = 1;
	for (q.hdr.rank = 0; q.hdr.rank < RANKS; q.hdr.rank++)
		assert_int_equal(joins(&q, &b, SECOND, 100000), 100000);
	assert_int_equal(joins(&p, &b, SECOND + THC_STRANGERS_NS, 10), 1);
}

/* An aggregator that started anew answers data of an older epoch, nothing else. */
static void lost__only_data(void **state)
{
	struct thc_home home = { .strangers = &bucket };
	struct packet p = good();
	struct thc_reaction r;
	struct thc_hdr h;

	(void)state;
	p.job.member[RANK].port = 0;
	expect(&p, THC_DROP_RANK);
	p.hdr.epoch = thc_be32(4);
	r = react(&p, &home, &h);
	assert_int_equal(r.why, THC_DROP_NONE);
	assert_int_equal(r.event, THC_EVENT_EPOCH);
	assert_int_equal(r.to, THC_TO_SENDER);
	assert_int_equal(h.op, THC_OP_STALE);
	assert_int_equal(thc_be32(h.epoch), 5);
	/* nobody believes where it comes from */
	assert_int_equal(home.heard, 0);
	p.hdr.op = THC_OP_LEAVE;
	p.hdr.width = 0;
	p.payload = 0;
	expect(&p, THC_DROP_RANK);
	p.hdr.op = 77;
	expect(&p, THC_DROP_RANK);
}

/* --- the order of the questions ------------------------------------------- */

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

static void fault_cookie(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.cookie ^= 1;
}

static void fault_rank(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.rank = RANKS;
}

static void fault_address(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->path.src_port++;
}

static void fault_no_length(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->payload = 24;
}

static void fault_seal(struct packet *p, struct thc_home *home)
{
	(void)p;
	home->seal = THC_DROP_SUM;
}

static void fault_op(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.op = 99;
}

static void fault_flags(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.flags = 1;
}

static void fault_reserved(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.reserved = 1;
}

static void fault_width(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->hdr.width = 5;
}

static void fault_length(struct packet *p, struct thc_home *home)
{
	(void)home;
	p->payload = 1024;
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

/* In the order in which they are asked: Documentation/protocol.md. */
static const struct {
	void (*make)(struct packet *p, struct thc_home *home);
	enum thc_drop_reason why;
} faults[] = {
	{ fault_version, THC_DROP_VERSION },
	{ fault_hops, THC_DROP_HOPS },
	{ fault_job, THC_DROP_JOB },
	{ fault_cookie, THC_DROP_COOKIE },
	{ fault_rank, THC_DROP_RANK },
	{ fault_address, THC_DROP_ADDRESS },
	{ fault_no_length, THC_DROP_LENGTH },
	{ fault_seal, THC_DROP_SUM },
	{ fault_op, THC_DROP_OP },
	{ fault_flags, THC_DROP_FLAGS },
	{ fault_reserved, THC_DROP_RESERVED },
	{ fault_width, THC_DROP_WIDTH },
	{ fault_length, THC_DROP_LENGTH },
	{ fault_slot, THC_DROP_SLOT },
	{ fault_lock, THC_DROP_LOCK },
	{ fault_busy, THC_DROP_BUSY },
};

#define FAULTS	(sizeof(faults) / sizeof(faults[0]))
/* The last that is asked before the seal. */
#define BEFORE_SEAL	6
/* The last that is asked before the rank is listened to: what the header says of itself. */
#define BEFORE_HEARD	10

/* Whatever else is wrong with a packet, the first question that it fails has the say. */
static void order__the_first_fault_counts(void **state)
{
	struct thc_stats st = { 0 };
	unsigned long set;
	size_t i;

	(void)state;
	for (set = 0; set < 1UL << FAULTS; set++) {
		struct thc_home home = { .strangers = &bucket };
		enum thc_drop_reason want = THC_DROP_NONE;
		bool sealed = true, listened = true;
		struct packet p = good();
		struct thc_reaction r;

		for (i = FAULTS; i-- > 0;) {
			if (!(set >> i & 1))
				continue;
			faults[i].make(&p, &home);
			want = faults[i].why;
			sealed = i > BEFORE_SEAL;
			listened = i > BEFORE_HEARD;
		}
		r = react(&p, &home, NULL);
		thc_react_count(&st, r);
		assert_int_equal(r.why, want);
		assert_int_equal(r.to, THC_TO_NOBODY);
		assert_int_equal(home.combined, !want);
		/* for fanout: where data came from */
		assert_int_equal(home.heard, listened);
		/* who is not of the job costs no sum, and is not listened to */
		assert_int_equal(home.sealed, sealed);
	}
	assert_int_equal(st.received, 1UL << FAULTS);
	assert_int_equal(st.event[THC_EVENT_ADDED], 1);
	for (i = 0; i < FAULTS; i++)
		if (faults[i].why != THC_DROP_LENGTH)
			assert_int_equal(st.drop[faults[i].why], 1UL << (FAULTS - 1 - i));
}

/* JOIN and LEAVE go on to the daemon, and to it alone. */
static void order__control(void **state)
{
	static const struct {
		u8 op;
		u8 width;
		u32 payload;
		enum thc_drop_reason why;
	} row[] = {
		{ THC_OP_JOIN, 0, 16, THC_DROP_NONE },	  { THC_OP_JOIN, 0, 0, THC_DROP_LENGTH },
		{ THC_OP_JOIN, 0, 512, THC_DROP_LENGTH }, { THC_OP_JOIN, 8, 16, THC_DROP_WIDTH },
		{ THC_OP_JOIN, 8, 24, THC_DROP_LENGTH },  { THC_OP_LEAVE, 0, 0, THC_DROP_NONE },
		{ THC_OP_LEAVE, 8, 0, THC_DROP_WIDTH },	  { THC_OP_LEAVE, 0, 512, THC_DROP_LENGTH },
		{ THC_OP_LEAVE, 8, 512, THC_DROP_WIDTH },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct thc_home home = { .strangers = &bucket };
		struct packet p = good();
		struct thc_reaction r;

		p.hdr.op = row[i].op;
		p.hdr.width = row[i].width;
		p.payload = row[i].payload;
		/* of any epoch */
		p.hdr.epoch = thc_be32(77);
		r = react(&p, &home, NULL);
		assert_int_equal(r.why, row[i].why);
		assert_int_equal(r.to, row[i].why ? THC_TO_NOBODY : THC_TO_DAEMON);
		assert_int_equal(r.event, row[i].why ? 0 : THC_EVENT_CONTROL);
		assert_int_equal(home.heard, 0);
		home.seal = THC_DROP_SUM;
		r = react(&p, &home, NULL);
		assert_int_equal(r.why, row[i].op == THC_OP_JOIN && row[i].payload != 16 ?
						THC_DROP_LENGTH :
						THC_DROP_SUM);
	}
}

/* A job may do without sums, but only its data. */
static void order__a_sum_may_be_missing(void **state)
{
	struct thc_home home = { .strangers = &bucket, .seal = THC_DROP_SUM };
	struct packet p = good();

	(void)state;
	p.hdr.flags = THC_F_NOSUM;
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_SUM);
	p.job.flags = THC_JOB_F_NOSUM;
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_NONE);
	p.hdr.flags = 0;
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_SUM);
	/* the length is asked for all the same, before the epoch */
	p.hdr.flags = THC_F_NOSUM;
	p.payload = 24;
	p.hdr.epoch = thc_be32(4);
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_LENGTH);
	p.payload = 512;
	assert_int_equal(react(&p, &home, NULL).event, THC_EVENT_EPOCH);
	p.hdr.width = 0;
	p.hdr.op = THC_OP_LEAVE;
	p.payload = 0;
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_SUM);
	p.hdr.op = THC_OP_JOIN;
	p.payload = 16;
	assert_int_equal(react(&p, &home, NULL).why, THC_DROP_SUM);
}

/* --- from the first contribution to the last ------------------------------- */

static void slot__who_hears_what(void **state)
{
	struct thc_home home = { .strangers = &bucket };
	struct packet p = good();
	struct thc_reaction r;
	struct thc_hdr h;
	u8 rank;

	(void)state;
	for (rank = 0; rank < RANKS; rank++) {
		p.hdr.rank = rank;
		p.path.src = p.job.member[rank].addr;
		p.path.src_port = 40001 + rank;
		r = react(&p, &home, &h);
		assert_int_equal(r.event, THC_EVENT_ADDED);
		assert_int_equal(r.to, rank < RANKS - 1 ? THC_TO_NOBODY : THC_TO_ALL);
		if (rank < RANKS - 1) {
			r = react(&p, &home, &h);
			assert_int_equal(r.event, THC_EVENT_WAITED);
			assert_int_equal(r.to, THC_TO_SENDER);
			assert_int_equal(h.op, THC_OP_WAIT);
		}
	}
	assert_int_equal(h.flags, THC_F_ANSWER);
	assert_int_equal(thc_be64(h.bitmap), p.job.all);
	r = react(&p, &home, &h);
	assert_int_equal(r.event, THC_EVENT_REPEATED);
	assert_int_equal(r.to, THC_TO_SENDER);
	assert_int_equal(h.flags, THC_F_ANSWER | THC_F_REPEAT);
	p.hdr.round = thc_be32(9);
	r = react(&p, &home, &h);
	assert_int_equal(r.why, THC_DROP_MISMATCH);
	assert_int_equal(r.to, THC_TO_SENDER);
	assert_int_equal(h.flags, THC_F_DIFFERS);
	p.hdr.generation = thc_be32(-5);
	p.hdr.chunk = thc_be32(-5 * DATA + SLOT);
	r = react(&p, &home, &h);
	assert_int_equal(r.event, THC_EVENT_STALE);
	assert_int_equal(r.to, THC_TO_SENDER);
	assert_int_equal(h.op, THC_OP_STALE);
	assert_int_equal(home.combined, RANKS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(admission__a_good_packet_passes),
		cmocka_unit_test(admission__every_op),
		cmocka_unit_test(admission__version),
		cmocka_unit_test(admission__op),
		cmocka_unit_test(admission__width),
		cmocka_unit_test(admission__flags),
		cmocka_unit_test(admission__reserved),
		cmocka_unit_test(admission__job),
		cmocka_unit_test(admission__cookie),
		cmocka_unit_test(admission__rank),
		cmocka_unit_test(admission__address),
		cmocka_unit_test(admission__distance),
		cmocka_unit_test(admission__slot_and_port),
		cmocka_unit_test(admission__chunk),
		cmocka_unit_test(join__strangers_are_few),
		cmocka_unit_test(join__a_number_that_no_job_has),
		cmocka_unit_test(join__ranks_are_never_refused),
		cmocka_unit_test(lost__only_data),
		cmocka_unit_test(order__the_first_fault_counts),
		cmocka_unit_test(order__control),
		cmocka_unit_test(order__a_sum_may_be_missing),
		cmocka_unit_test(slot__who_hears_what),
	};

	return cmocka_run_group_tests_name("reactions", tests, NULL, NULL);
}
