// SPDX-License-Identifier: GPL-2.0
/*
 * A worker's way into a job (include/thc/worker/join.h), and what a job may be
 * (include/thc/wire/spec.h).
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/wire/announce.h>
#include <thc/worker/join.h>

#include "testkey.h"

#define JOB	7
#define PORT	1000
#define RANK	2
#define EPOCH	40
#define NOW	(1000 * THC_NS_PER_MS)

static const u8 random_bytes[THC_NONCE_BYTES] = { 0x80, 1, 2, 3, [14] = 9, [15] = 0x10 };
/* A nonce of zero is the group's. */
static const u8 our_nonce[THC_NONCE_BYTES] = { 0x80, 1, 2, 3, [14] = 9, [15] = 0x11 };
static const u8 none[THC_NONCE_BYTES];

struct joiner {
	struct thc_sender	s;
	struct thc_joining	j;
	u64			now;
};

/* @key: the job's secret key, or NULL */
static struct joiner joiner_with(const u8 *key)
{
	struct joiner w = { .s = {
				    .job = JOB,
				    .port = PORT,
				    .rank = RANK,
				    .epoch = EPOCH - 1,
				    .end = { .addr = thc_addr_v4(thc_be32(0x0a000007)),
					     .port = thc_be16(40000) },
			    },
			    .now = NOW };

	thc_sender_set_key(&w.s, key);
	thc_joining_begin(&w.j, &w.s, random_bytes, NOW);
	return w;
}

static struct joiner new_joiner(void)
{
	return joiner_with(test_key);
}

/* A WELCOME to @w, or with a nonce of zero to the group. */
struct welcome {
	struct thc_hdr		h;
	struct thc_spec		w;
	u8			nonce[THC_NONCE_BYTES];
	u8			payload[THC_WELCOME_BYTES] __attribute__((aligned(8)));
	u32			bytes;	/* of @payload; sealing writes both */
};

static struct welcome good(void)
{
	struct welcome p = {
		.h = {
			.version = THC_VERSION, .op = THC_OP_WELCOME, .job = thc_be16(JOB),
			.rank = thc_be16(RANK), .epoch = thc_be32(EPOCH),
		},
		.w = {
			.ranks = 4, .quorum = 4, .data_slots = 8, .control_slots = 2, .shards = 1,
			.joined = 0x7, .reply = THC_REPLY_MULTICAST, .seal = THC_SEAL_NH,
			.bits = 4, .block_log2 = 12,
			.tables = {
				.widths.sum = { [1] = 4, [3] = 8 },
				.granularity = { [1] = 3, [3] = 2 },
				.level = { [6] = 3, [17] = 2 },
			},
			.group = {
				.addr = thc_addr_v4(thc_be32(0xef010203)),
				.port = thc_be16(20000),
			},
			.salt = { 0x5a, 1, 2, 3 },
		},
	};

	thc_nonce_copy(p.nonce, our_nonce);
	return p;
}

/* Writes the payload as an aggregator does. */
static void put(struct welcome *p)
{
	static struct thc_announcement a;
	u32 at = 0;

	if (p->w.flags & THC_WELCOME_F_REFUSED) {
		thc_announce_refusal((void *)p->payload, p->nonce, p->w.refusal);
		p->bytes = sizeof(struct thc_welcome);
		return;
	}
	if (thc_nonce_is_none(p->nonce))
		thc_announce_to_group(&a, &p->w);
	else
		thc_announce(&a, &p->w, NULL, p->nonce);
	p->bytes = thc_announce_part(&a, p->payload, &at);
	assert_int_equal(at, a.bytes);
}

/* Seals like thcd: for the group in @p, or for @w alone. */
static void seal(const struct joiner *w, struct welcome *p)
{
	const struct thc_end *end = thc_nonce_is_none(p->nonce) ? &p->w.group : &w->s.end;

	put(p);
	thc_member_seal(&p->h, w->s.member_seal, &w->s.welcome, end, p->payload,
			(int)(p->bytes / 8));
}

/* Seals without a key, as anybody can. */
static void seal_without_key(struct welcome *p)
{
	const struct thc_member_key no_key = { .id = 0 };

	put(p);
	thc_member_seal(&p->h, THC_SEAL_SUM, &no_key, NULL, p->payload, (int)(p->bytes / 8));
}

static enum thc_drop_reason take_from(struct joiner *w, const struct welcome *p,
				      struct thc_origin from)
{
	const struct thc_welcome *in = (const void *)p->payload;
	enum thc_drop_reason why = thc_joining_admit(&w->j, &w->s, &p->h, in, p->bytes, from);

	return why ? why : thc_joining_apply(&w->j, &w->s, &p->h, in, p->bytes, w->now);
}

/* Delivers the sealed WELCOME to its destination, the group or @w. */
static enum thc_drop_reason take_sealed(struct joiner *w, const struct welcome *p, u16 port)
{
	const struct thc_welcome *in = (const void *)p->payload;

	return take_from(
		w, p, (struct thc_origin){ .port = port, .group = thc_nonce_is_none(in->nonce) });
}

/* Seals @p and delivers it to @w. */
static enum thc_drop_reason take(struct joiner *w, struct welcome p)
{
	seal(w, &p);
	return take_sealed(w, &p, PORT);
}

/* Delivers @p to @w with a seal that anybody can make. */
static enum thc_drop_reason take_anybodys(struct joiner *w, struct welcome p)
{
	seal_without_key(&p);
	return take_sealed(w, &p, PORT);
}

/* Within a second a rank sends so many JOINs that losses do not matter; 64 ranks that wait for
 * minutes send 200 a second together.
 */
static void join__is_asked_soon_then_seldom(void **state)
{
	u32 sent, ms = 0, before = 0, in_second = 0;

	(void)state;
	for (sent = 1; ms < 60000; sent++) {
		u32 interval = thc_join_interval(sent);

		in_second += ms < 1000;
		assert_true(interval >= before && interval <= 2 * (before ?: interval));
		assert_true(sent > 9 || interval == 20);
		before = interval;
		ms += interval;
	}
	assert_in_range(in_second, 12, 16);
	assert_in_range(sent, 180, 200);
	assert_int_equal(thc_join_interval(~0U), 320);
}

static void join__says_who_asks(void **state)
{
	struct joiner w = new_joiner();
	struct thc_join join;
	struct thc_hdr h;

	(void)state;
	assert_int_equal(w.j.at, NOW);
	thc_joining_request(&w.j, &w.s, &h, &join, NOW);
	assert_int_equal(h.op, THC_OP_JOIN);
	assert_int_equal(thc_be16(h.rank), RANK);
	/* the next epoch is to be newer */
	assert_int_equal(thc_be32(h.epoch), EPOCH - 1);
	assert_memory_equal(join.nonce, our_nonce, sizeof(our_nonce));
	assert_memory_equal(join.challenge, none, sizeof(none));
	assert_int_equal(join.flags, 0);
	assert_int_equal(join.offers, thc_be32(1 << THC_SEAL_NH));
	assert_int_equal(join.version_max, 2);
	assert_int_equal(join.restarted, 0xffff);
	assert_int_equal(join.workers, 0);
	assert_int_equal(join.reserved, 0);
	assert_memory_equal(join.reserved2, (u8[18]){ 0 }, 18);
	assert_int_equal(w.j.at, NOW + 20 * THC_NS_PER_MS);
	assert_int_equal(thc_joining_at(&w.j), w.j.at);
	thc_joining_request(&w.j, &w.s, &h, &join, w.j.at);
	assert_int_equal(w.j.sent, 2);
	/* a worker without a key offers the seals without one */
	w = joiner_with(NULL);
	thc_joining_request(&w.j, &w.s, &h, &join, NOW);
	assert_int_equal(join.offers, thc_be32(1 << THC_SEAL_NONE | 1 << THC_SEAL_SUM));
}

/* thcd derives its own for the same purposes. */
static void join__keys_are_for_their_purposes(void **state)
{
	struct joiner w = new_joiner();
	struct thc_member_key key;

	(void)state;
	thc_member_key_derive(&key, test_key, THC_KEY_JOIN, JOB);
	assert_memory_equal(&w.s.join, &key, sizeof(key));
	thc_member_key_derive(&key, test_key, THC_KEY_WELCOME, JOB);
	assert_memory_equal(&w.s.welcome, &key, sizeof(key));
	thc_member_key_derive(&key, test_key, THC_KEY_LOST, JOB);
	assert_memory_equal(&w.s.lost, &key, sizeof(key));
	assert_int_equal(w.s.member_seal, THC_SEAL_NH);
	thc_sender_set_key(&w.s, NULL);
	key = (struct thc_member_key){ .id = 0 };
	assert_memory_equal(&w.s.join, &key, sizeof(key));
	assert_memory_equal(&w.s.welcome, &key, sizeof(key));
	assert_memory_equal(&w.s.lost, &key, sizeof(key));
	assert_int_equal(w.s.member_seal, THC_SEAL_SUM);
}

/* The seal of JOIN covers its sender's end, under the job's key. */
static void join__is_sealed(void **state)
{
	const struct thc_member_key no_key = { .id = 0 };
	struct joiner w = new_joiner();
	struct thc_member_key key;
	struct thc_join join;
	struct thc_hdr h;

	(void)state;
	thc_member_key_derive(&key, test_key, THC_KEY_JOIN, JOB);
	thc_joining_request(&w.j, &w.s, &h, &join, NOW);
	thc_sender_seal_membership(&w.s, &h, &join, sizeof(join) / 8);
	assert_int_equal(h.key_id, key.id);
	assert_true(h.tag == thc_member_tag(THC_SEAL_NH, &key, &h, &w.s.end, &join, 8));
	w = joiner_with(NULL);
	thc_joining_request(&w.j, &w.s, &h, &join, NOW);
	thc_sender_seal_membership(&w.s, &h, &join, sizeof(join) / 8);
	assert_int_equal(h.key_id, 0);
	assert_true(h.tag == thc_member_tag(THC_SEAL_SUM, &no_key, &h, NULL, &join, 8));
	assert_true(thc_be64(h.tag) >> 32 == 0);
}

/* Zero is the group's nonce: no rank has it. */
static void join__nonce_is_never_zero(void **state)
{
	struct joiner w = new_joiner();

	(void)state;
	thc_joining_begin(&w.j, &w.s, none, NOW);
	assert_false(thc_nonce_is_none(w.s.nonce));
}

/* LEAVE names the nonce of its join, so a late LEAVE does not end the next join. */
static void leave__says_which_joining(void **state)
{
	struct joiner w = new_joiner();
	struct thc_leave leave;
	struct thc_hdr h;

	(void)state;
	thc_sender_leave(&w.s, &h, &leave);
	assert_int_equal(h.op, THC_OP_LEAVE);
	assert_int_equal(thc_be16(h.rank), RANK);
	assert_memory_equal(leave.nonce, our_nonce, sizeof(our_nonce));
}

/* --- CHALLENGE ---------------------------------------------------------------- */

/* A CHALLENGE to @w. */
struct challenge {
	struct thc_hdr		h;
	struct thc_challenge	c;
};

/* The @n-th of several challenges, which differ in their last byte; sealed. */
static struct challenge challenge(const struct joiner *w, u8 n)
{
	struct challenge p = {
		.h = {
			.version = THC_VERSION, .op = THC_OP_CHALLENGE, .job = thc_be16(JOB),
			.rank = thc_be16(RANK),
		},
		.c = { .challenge = { 0xc4, [15] = n } },
	};

	thc_nonce_copy(p.c.nonce, our_nonce);
	thc_member_seal(&p.h, w->s.member_seal, &w->s.welcome, &w->s.end, &p.c, sizeof(p.c) / 8);
	return p;
}

static enum thc_drop_reason meet(struct joiner *w, const struct challenge *p)
{
	return thc_joining_challenge(&w->j, &w->s, &p->h, &p->c, PORT);
}

/* Seals the changed @p anew and delivers it. */
static enum thc_drop_reason meet_sealed(struct joiner *w, struct challenge p)
{
	thc_member_seal(&p.h, w->s.member_seal, &w->s.welcome, &w->s.end, &p.c, sizeof(p.c) / 8);
	return meet(w, &p);
}

static enum thc_drop_reason meet_new(struct joiner *w, u8 n)
{
	struct challenge p = challenge(w, n);

	return meet(w, &p);
}

static struct thc_join ask(struct joiner *w)
{
	struct thc_join join;
	struct thc_hdr h;

	thc_joining_request(&w->j, &w->s, &h, &join, w->now);
	return join;
}

static void challenge__is_answered_at_once(void **state)
{
	const u8 *keys[] = { test_key, NULL };
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct joiner w = joiner_with(keys[i]);
		struct challenge p = challenge(&w, 1);
		struct thc_join join;
		u64 at;

		ask(&w);
		at = w.j.at;
		w.now += THC_NS_PER_MS;
		assert_int_equal(meet(&w, &p), THC_DROP_NONE);
		assert_int_equal(thc_joining_at(&w.j), 0);
		join = ask(&w);
		assert_memory_equal(join.challenge, p.c.challenge, sizeof(join.challenge));
		assert_memory_equal(join.nonce, our_nonce, sizeof(our_nonce));
		/* the timer's JOINs are not affected */
		assert_int_equal(w.j.sent, 1);
		assert_int_equal(w.j.at, at);
		assert_int_equal(thc_joining_at(&w.j), at);
		/* this JOIN may be lost, so the timer's next JOIN has the challenge, too */
		w.now = at;
		join = ask(&w);
		assert_memory_equal(join.challenge, p.c.challenge, sizeof(join.challenge));
		assert_int_equal(w.j.sent, 2);
		assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_ASK);
	}
}

/* A late CHALLENGE comes when the timer is due: one JOIN serves both. */
static void challenge__and_timer_make_one_join(void **state)
{
	struct joiner w = new_joiner();

	(void)state;
	ask(&w);
	w.now = w.j.at;
	assert_int_equal(meet_new(&w, 1), THC_DROP_NONE);
	ask(&w);
	assert_int_equal(w.j.sent, 2);
	assert_int_equal(thc_joining_at(&w.j), w.now + 20 * THC_NS_PER_MS);
}

/* Each change makes the CHALLENGE invalid. */
static void challenge__of_others_changes_nothing(void **state)
{
	struct joiner w = new_joiner(), other = new_joiner();
	struct challenge p = challenge(&w, 1);
	struct joiner before;
	unsigned int bit;

	(void)state;
	ask(&w);
	before = w;
	assert_int_equal(thc_joining_challenge(&w.j, &w.s, &p.h, &p.c, PORT + 1), THC_DROP_ADDRESS);
	for (bit = 0; bit < 8 * sizeof(p.c); bit++) {
		p = challenge(&w, 1);
		((u8 *)&p.c)[bit / 8] ^= 1 << bit % 8;
		assert_int_equal(meet(&w, &p), THC_DROP_TAG);
	}
	p = challenge(&w, 1);
	p.h.job ^= thc_be16(1);
	assert_int_equal(meet_sealed(&w, p), THC_DROP_JOB);
	p = challenge(&w, 1);
	p.h.rank ^= thc_be16(1);
	assert_int_equal(meet_sealed(&w, p), THC_DROP_UNEXPECTED);
	p = challenge(&w, 1);
	p.c.nonce[0] ^= 1;
	assert_int_equal(meet_sealed(&w, p), THC_DROP_UNEXPECTED);
	other.s.end.port ^= thc_be16(1);
	p = challenge(&other, 1);
	assert_int_equal(meet(&w, &p), THC_DROP_TAG);
	other = joiner_with(NULL);
	p = challenge(&other, 1);
	assert_int_equal(meet(&w, &p), THC_DROP_KEY);
	other = new_joiner();
	other.s.welcome = w.s.join;
	p = challenge(&other, 1);
	assert_int_equal(meet(&w, &p), THC_DROP_TAG);
	/* a challenge of zero, which thcd never makes */
	p = challenge(&w, 1);
	thc_nonce_copy(p.c.challenge, none);
	assert_int_equal(meet_sealed(&w, p), THC_DROP_UNEXPECTED);
	assert_memory_equal(&w, &before, sizeof(w));
	assert_int_equal(meet_new(&w, 1), THC_DROP_NONE);
}

/* Recorded CHALLENGEs cause at most four JOINs between two of the timer, and none if the last JOIN
 * had that challenge.
 */
static void challenge__is_answered_four_times_at_most(void **state)
{
	struct joiner w = new_joiner();
	u8 n;

	(void)state;
	ask(&w);
	for (n = 1; n <= 4; n++) {
		assert_int_equal(meet_new(&w, n), THC_DROP_NONE);
		ask(&w);
		assert_int_equal(meet_new(&w, n), THC_DROP_UNEXPECTED);
		assert_int_equal(thc_joining_at(&w.j), w.j.at);
	}
	assert_int_equal(meet_new(&w, 5), THC_DROP_UNEXPECTED);
	w.now = w.j.at;
	ask(&w);
	assert_int_equal(meet_new(&w, 4), THC_DROP_UNEXPECTED);
	assert_int_equal(meet_new(&w, 5), THC_DROP_NONE);
}

/* One of several aggregators begins a new epoch while the worker waits for another aggregator. */
static void challenge__after_ready_begins_anew(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good();

	(void)state;
	p.w.flags = THC_WELCOME_F_READY;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_true(w.j.ready);
	assert_int_equal(meet_new(&w, 1), THC_DROP_NONE);
	assert_false(w.j.ready);
	assert_int_equal(thc_joining_at(&w.j), 0);
	ask(&w);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_true(w.j.ready);
}

/* A worker that hears the group says so with the epoch's salt while it is in that epoch. Once it
 * is out, it answers the challenge first: thcd ignores HEARD of a rank that is not in.
 */
static void heard__is_said_of_an_epoch(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good(), to_group = good();
	struct challenge c = challenge(&w, 1);
	struct thc_join join;

	(void)state;
	ask(&w);
	thc_nonce_copy(to_group.nonce, none);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(take(&w, to_group), THC_DROP_NONE);
	w.now = w.j.at;
	join = ask(&w);
	assert_int_equal(join.flags, thc_be32(THC_JOIN_F_HEARD));
	assert_memory_equal(join.challenge, p.w.salt, sizeof(p.w.salt));
	/* another rank has restarted */
	assert_int_equal(meet(&w, &c), THC_DROP_NONE);
	join = ask(&w);
	assert_int_equal(join.flags, 0);
	assert_memory_equal(join.challenge, c.c.challenge, sizeof(join.challenge));
	/* that was lost */
	w.now = w.j.at;
	join = ask(&w);
	assert_int_equal(join.flags, 0);
	assert_memory_equal(join.challenge, c.c.challenge, sizeof(join.challenge));
	/* an earlier WELCOME comes late: the worker is challenged, and answers, again */
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	w.now = w.j.at;
	join = ask(&w);
	assert_int_equal(join.flags, thc_be32(THC_JOIN_F_HEARD));
	assert_int_equal(meet(&w, &c), THC_DROP_NONE);
	join = ask(&w);
	assert_memory_equal(join.challenge, c.c.challenge, sizeof(join.challenge));
	/* it is in the next epoch, and still hears the group */
	p.w.salt[0] ^= 1;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	w.now = w.j.at;
	join = ask(&w);
	assert_int_equal(join.flags, thc_be32(THC_JOIN_F_HEARD));
	assert_memory_equal(join.challenge, p.w.salt, sizeof(p.w.salt));
}

/* --- WELCOME ---------------------------------------------------------------- */

static void welcome__until_all_are_in(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good();

	(void)state;
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_ASK);
	w.s.unreachable = ECONNREFUSED;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_WAIT);
	assert_int_equal(w.j.epoch, EPOCH);
	p.w.has = w.j.spec.has;
	p.w.constants = w.j.spec.constants;
	assert_memory_equal(&w.j.spec, &p.w, sizeof(p.w));
	/* an ICMP error from before WELCOME no longer counts */
	assert_int_equal(w.s.unreachable, 0);
	p.w.flags = THC_WELCOME_F_READY;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_READY);
	/* until all aggregators are ready, one may take READY back */
	p.w.flags = 0;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_WAIT);
}

static void welcome__of_others_changes_nothing(void **state)
{
	struct joiner w = new_joiner();
	const struct joiner before = w;
	struct welcome p = good();

	(void)state;
	seal(&w, &p);
	assert_int_equal(take_sealed(&w, &p, PORT + 1), THC_DROP_ADDRESS);
	/* the seed */
	p.payload[24] ^= 1;
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	p = good();
	p.h.job = thc_be16(JOB + 1);
	assert_int_equal(take(&w, p), THC_DROP_JOB);
	p = good();
	p.nonce[0] ^= 1;
	assert_int_equal(take(&w, p), THC_DROP_UNEXPECTED);
	/* to another rank on this host */
	p = good();
	p.h.rank ^= thc_be16(1);
	assert_int_equal(take(&w, p), THC_DROP_UNEXPECTED);
	assert_memory_equal(&w, &before, sizeof(w));
}

/* Each change makes a WELCOME under the job's key invalid. */
static void welcome__is_under_the_key_and_to_this_end(void **state)
{
	struct joiner w = new_joiner(), other = new_joiner();
	struct welcome p = good();
	u8 key[THC_KEY_BYTES];

	(void)state;
	other.s.welcome = w.s.join;
	seal(&other, &p);
	assert_int_equal(p.h.key_id, w.s.welcome.id);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	memcpy(key, test_key, sizeof(key));
	key[31] ^= 0x80;
	other = joiner_with(key);
	seal(&other, &p);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_KEY);
	p.h.key_id = w.s.welcome.id;
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	/* sealed for another address or port, or by another aggregator of the job */
	other = new_joiner();
	other.s.end.addr.word[3] ^= thc_be32(1);
	seal(&other, &p);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	other = new_joiner();
	other.s.end.port ^= thc_be16(1);
	seal(&other, &p);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	other = new_joiner();
	other.s.end.aggregator = thc_be16(1);
	seal(&other, &p);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	/* anybody can offer a job without a key: a worker with a key does not join it */
	p.w.seal = THC_SEAL_SUM;
	assert_int_equal(take_anybodys(&w, p), THC_DROP_KEY);
	assert_false(w.j.welcomed);
	seal(&w, &p);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_UNSOUND);
}

/* A worker without a key joins jobs without a key only. */
static void welcome__without_a_key(void **state)
{
	struct joiner w = joiner_with(NULL), keyed = new_joiner();
	struct welcome p = good();

	(void)state;
	seal(&keyed, &p);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_KEY);
	p.w.seal = THC_SEAL_SUM;
	seal(&w, &p);
	assert_int_equal(p.h.key_id, 0);
	p.h.tag ^= thc_be64(1ULL << 63);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	p.h.tag ^= thc_be64(1ULL << 63 | 1);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_WAIT);
	p.w.seal = THC_SEAL_NONE;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_WAIT);
	p.w.seal = THC_SEAL_NH;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_UNSOUND);
}

static struct welcome refusal(void)
{
	struct welcome p = good();

	p.w.flags = THC_WELCOME_F_REFUSED;
	p.w.refusal = THC_REFUSED_JOB;
	return p;
}

/* An aggregator without the job's key refuses without a seal. The worker believes it if two
 * seconds after the first refusal nothing else has come.
 */
static void refusal__without_a_seal_is_believed_late(void **state)
{
	struct joiner w = new_joiner();

	(void)state;
	w.now += 5000 * THC_NS_PER_MS;
	assert_int_equal(take_anybodys(&w, refusal()), THC_DROP_UNEXPECTED);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_ASK);
	w.now += 2000 * THC_NS_PER_MS - 1;
	assert_int_equal(take_anybodys(&w, refusal()), THC_DROP_UNEXPECTED);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_ASK);
	w.now++;
	assert_int_equal(take_anybodys(&w, refusal()), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_REFUSED);
	assert_int_equal(w.j.spec.refusal, THC_REFUSED_JOB);
}

/* Anybody who sees a JOIN can send a refusal: it ends no join that the aggregator answers. */
static void refusal__without_a_seal_yields_to_a_sealed_word(void **state)
{
	struct joiner w = new_joiner();

	(void)state;
	assert_int_equal(take_anybodys(&w, refusal()), THC_DROP_UNEXPECTED);
	assert_int_equal(take(&w, good()), THC_DROP_NONE);
	w.now += 60000 * THC_NS_PER_MS;
	assert_int_equal(take_anybodys(&w, refusal()), THC_DROP_UNEXPECTED);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_WAIT);
	assert_int_equal(take(&w, refusal()), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_REFUSED);
	/* a worker without a key believes a refusal at once */
	w = joiner_with(NULL);
	assert_int_equal(take(&w, refusal()), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_REFUSED);
}

/* Each change makes the refusal invalid. */
static void refusal__without_a_seal_is_whole_and_ours(void **state)
{
	const struct thc_member_key other = { .id = 1 };
	struct joiner w = new_joiner();
	struct welcome p = refusal();

	(void)state;
	p.nonce[0] ^= 1;
	assert_int_equal(take_anybodys(&w, p), THC_DROP_KEY);
	thc_nonce_copy(p.nonce, none);
	assert_int_equal(take_anybodys(&w, p), THC_DROP_KEY);
	p = refusal();
	p.w.flags = 0;
	assert_int_equal(take_anybodys(&w, p), THC_DROP_KEY);
	p = refusal();
	seal_without_key(&p);
	p.payload[54] = THC_REFUSED_RANK;
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_KEY);
	p = refusal();
	/* key id 0 says that no key made it */
	put(&p);
	thc_member_seal(&p.h, THC_SEAL_SUM, &other, NULL, p.payload, (int)(p.bytes / 8));
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_KEY);
	assert_int_equal(w.j.doubt_at, 0);
	seal_without_key(&p);
	assert_int_equal(take_sealed(&w, &p, PORT + 1), THC_DROP_ADDRESS);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_UNEXPECTED);
	assert_true(w.j.doubt_at);
}

static void welcome__what_cannot_be_served(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good();

	(void)state;
	p.w.ranks = RANK;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_UNSOUND);
	/* a refusal has no constants */
	p.w.flags = THC_WELCOME_F_REFUSED;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_REFUSED);
}

/* A worker that joins again may get the group's WELCOME first, whose group may have changed. */
static void welcome__to_the_group_before_its_own_says_nothing(void **state)
{
	const u8 *keys[] = { test_key, NULL };
	struct welcome p = good(), to_group = good();
	size_t i;

	(void)state;
	thc_nonce_copy(to_group.nonce, none);
	for (i = 0; i < 2; i++) {
		struct joiner w = joiner_with(keys[i]);

		assert_int_equal(take(&w, to_group), THC_DROP_UNEXPECTED);
		assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_ASK);
		assert_int_equal(take(&w, p), THC_DROP_NONE);
		assert_false(w.j.heard);
		assert_int_equal(take(&w, to_group), THC_DROP_NONE);
		assert_true(w.j.heard);
	}
}

/* JOIN says HEARD after a WELCOME to the group, and for that group only. */
static void welcome__is_heard_on_the_group(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good(), to_group = good();

	(void)state;
	thc_nonce_copy(to_group.nonce, none);
	assert_false(thc_joining_wants_group(&w.j, NOW));
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_true(thc_joining_wants_group(&w.j, NOW));
	w.j.group_at = NOW + 1;
	assert_false(thc_joining_wants_group(&w.j, NOW));
	assert_int_equal(take(&w, to_group), THC_DROP_NONE);
	assert_true(w.j.heard);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_true(w.j.heard);
	assert_false(thc_joining_wants_group(&w.j, NOW));
	p.w.group.addr.word[3] ^= thc_be32(1);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_false(w.j.heard);
	assert_true(thc_joining_wants_group(&w.j, NOW));
	p.w.reply = THC_REPLY_FANOUT;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_false(thc_joining_wants_group(&w.j, NOW));
}

/* A WELCOME to the group in another epoch, to another group, or to this worker alone does not show
 * that the group reaches the worker.
 */
static void welcome__to_the_group_is_of_this_epoch_and_group(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p;

	(void)state;
	assert_int_equal(take(&w, good()), THC_DROP_NONE);
	p = good();
	thc_nonce_copy(p.nonce, none);
	p.w.salt[15] = 1;
	assert_int_equal(take(&w, p), THC_DROP_UNEXPECTED);
	p = good();
	thc_nonce_copy(p.nonce, none);
	p.w.group.addr.word[3] ^= thc_be32(1);
	assert_int_equal(take(&w, p), THC_DROP_TAG);
	p = good();
	thc_nonce_copy(p.nonce, none);
	p.w.group.port = thc_be16(20001);
	assert_int_equal(take(&w, p), THC_DROP_TAG);
	p = good();
	seal(&w, &p);
	memset(p.payload, 0, THC_NONCE_BYTES);
	assert_int_equal(take_sealed(&w, &p, PORT), THC_DROP_TAG);
	p = good();
	thc_nonce_copy(p.nonce, none);
	assert_int_equal(take_anybodys(&w, p), THC_DROP_KEY);
	assert_false(w.j.heard);
	/* another host received it there, and sends it on */
	seal(&w, &p);
	assert_int_equal(take_from(&w, &p, (struct thc_origin){ .port = PORT }), THC_DROP_ADDRESS);
	assert_false(w.j.heard);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_true(w.j.heard);
}

/* Is it sound for a worker without a key? */
static int is_sound(const struct thc_spec *s, u32 rank)
{
	return thc_spec_is_sound(s, rank, 0);
}

/* The least sound WELCOME, for a worker without a key. */
static struct thc_spec sound(void)
{
	return (struct thc_spec){
		.has = 1U << THC_RECORD_SEAL | 1U << THC_RECORD_ROW | 1U << THC_RECORD_SCHEME,
		.ranks = 4, .data_slots = THC_SLOTS_MAX - 8, .control_slots = 8, .shards = 1,
		.bits = 4, .tables.widths.sum[3] = 8, .reply = THC_REPLY_FANOUT,
	};
}

static void welcome__only_what_can_be_served_is_sound(void **state)
{
	struct thc_spec w = sound();
	u32 type;

	(void)state;
	assert_true(is_sound(&w, 3));
	assert_false(is_sound(&w, 4));
	w.ranks = THC_RANKS_MAX;
	assert_true(is_sound(&w, THC_RANKS_MAX - 1));
	w.ranks = THC_RANKS_MAX + 1;
	assert_false(is_sound(&w, 0));
	w = sound();
	w.control_slots = 9;
	assert_false(is_sound(&w, 0));
	w.control_slots = 0;
	assert_false(is_sound(&w, 0));
	w = sound();
	w.data_slots = 0;
	assert_false(is_sound(&w, 0));
	w = sound();
	w.tables.widths.sum[3] = 16;
	assert_true(is_sound(&w, 0));
	w.tables.widths.sum[3] = 12;
	assert_false(is_sound(&w, 0));
	w = sound();
	for (w.scheme = 0; w.scheme < THC_SCHEMES_COUNT; w.scheme++)
		assert_true(is_sound(&w, 0));
	w = sound();
	w.scheme = THC_SCHEMES_COUNT;
	assert_false(is_sound(&w, 0));
	w = sound();
	w.reply = 3;
	assert_false(is_sound(&w, 0));
	w = sound();
	w.shards = 2;
	assert_false(is_sound(&w, 0));
	for (type = THC_RECORD_SEAL; type <= THC_RECORD_SCHEME; type++) {
		w = sound();
		if (!(w.has & 1U << type))
			continue;
		w.has &= ~(1U << type);
		assert_false(is_sound(&w, 0));
	}
	/* a later version's meaning is unknown */
	w = sound();
	w.flags = THC_WELCOME_FLAGS;
	assert_true(is_sound(&w, 0));
	w.flags = 0x10;
	assert_false(is_sound(&w, 0));
	w.flags = 0x8000;
	assert_false(is_sound(&w, 0));
	w = sound();
	w.features = THC_FEATURE_CORRELATED;
	assert_true(is_sound(&w, 0));
	w.features = 2;
	assert_false(is_sound(&w, 0));
}

/* Every row's indices fit its sums, and the job's own row exists. */
static void welcome__rows_are_sound(void **state)
{
	struct thc_spec w = sound();
	unsigned int width, bits, own;

	(void)state;
	for (own = 1; own <= THC_BITS_MAX; own++)
		for (bits = 0; bits <= THC_BITS_MAX; bits++)
			for (width = 4; width <= 32; width *= 2) {
				w.bits = (u8)own;
				memset(&w.tables.widths, 0, sizeof(w.tables.widths));
				w.tables.widths.sum[own - 1] = 32;
				if (bits)
					w.tables.widths.sum[bits - 1] = (u8)width;
				assert_int_equal(is_sound(&w, 0), bits <= width);
				if (!bits)
					continue;
				w.tables.widths.sum[bits - 1] = 12;
				assert_false(is_sound(&w, 0));
			}
	memset(&w.tables.widths, 8, sizeof(w.tables.widths));
	for (bits = 0; bits < 256; bits++) {
		w.bits = (u8)bits;
		assert_int_equal(is_sound(&w, 0), bits && bits <= THC_BITS_MAX);
	}
	w.bits = 5;
	w.tables.widths.sum[4] = 0;
	assert_false(is_sound(&w, 0));
}

/* For a worker with the key, and for one without. */
static void welcome__seal_fits_the_key(void **state)
{
	struct thc_spec w = sound();

	(void)state;
	w.seal = THC_SEAL_NH;
	assert_true(thc_spec_is_sound(&w, 0, 1));
	assert_false(thc_spec_is_sound(&w, 0, 0));
	for (w.seal = 0; w.seal < THC_SEAL_NH; w.seal++) {
		assert_false(thc_spec_is_sound(&w, 0, 1));
		assert_true(thc_spec_is_sound(&w, 0, 0));
	}
	w.seal = THC_SEAL_NH + 1;
	assert_false(thc_spec_is_sound(&w, 0, 1));
	assert_false(thc_spec_is_sound(&w, 0, 0));
}

/* Each case differs from a sound WELCOME in its group alone. */
static void welcome__group_is_multicast_on_an_unprivileged_port(void **state)
{
	static const struct {
		const char	*group;
		u16		port;
		bool		sound;
	} cases[] = {
		{ "239.1.2.3", 20000, true },	{ "224.0.0.0", 20000, true },
		{ "239.255.255.255", 20000, true }, { "223.255.255.255", 20000, false },
		{ "240.0.0.0", 20000, false },	{ "127.0.0.1", 20000, false },
		{ "0.0.0.0", 20000, false },	{ "255.255.255.255", 20000, false },
		{ "239.1.2.3", 1024, true },	{ "239.1.2.3", 1023, false },
		{ "239.1.2.3", 0, false },	{ "ff15::77", 20000, true },
		{ "ff02::1", 20000, true },	{ "ff15::77", 1023, false },
		{ "fe80::1", 20000, false },	{ "::1", 20000, false },
	};
	struct thc_spec w = sound();
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strchr(cases[i].group, ':'))
			inet_pton(AF_INET6, cases[i].group, &w.group.addr);
		else
			w.group.addr = thc_addr_v4(inet_addr(cases[i].group));
		w.group.port = thc_be16(cases[i].port);
		w.has |= 1U << THC_RECORD_GROUP;
		w.reply = THC_REPLY_MULTICAST;
		if (is_sound(&w, 0) != cases[i].sound)
			fail_msg("case %zu: %s port %u", i, cases[i].group, cases[i].port);
		w.has &= ~(1U << THC_RECORD_GROUP);
		assert_false(is_sound(&w, 0));
		/* without multicast the group is not checked */
		w.reply = THC_REPLY_FANOUT;
		assert_true(is_sound(&w, 0));
	}
}

/* --- the end ---------------------------------------------------------------- */

static void end__why_time_ran_out(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good();
	struct thc_failure f;

	(void)state;
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.reason, THC_FAILED_SILENT);
	assert_int_equal(f.error, EHOSTUNREACH);
	w.s.unreachable = ECONNREFUSED;
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.reason, THC_FAILED_UNREACHABLE);
	assert_int_equal(f.error, ECONNREFUSED);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.reason, THC_FAILED_JOIN);
	assert_int_equal(f.error, ETIMEDOUT);
	assert_int_equal(f.ranks, 0x8);
	/* the aggregator has answered, and no rank is missing */
	p.w.joined = 0xf;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.reason, THC_FAILED_JOIN);
	assert_int_equal(f.error, ETIMEDOUT);
	assert_int_equal(f.ranks, 0);
}

/* If time runs out before a refusal is believed, it is reported as the only known cause. */
static void end__a_refusal_in_doubt_is_told_of(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = refusal();
	struct thc_failure f;

	(void)state;
	w.s.unreachable = ECONNREFUSED;
	assert_int_equal(take_anybodys(&w, p), THC_DROP_UNEXPECTED);
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.reason, THC_FAILED_REFUSED);
	assert_int_equal(f.error, EACCES);
	assert_int_equal(f.refusal, THC_REFUSED_JOB);
	/* the last refusal counts */
	p.w.refusal = THC_REFUSED_RANK;
	assert_int_equal(take_anybodys(&w, p), THC_DROP_UNEXPECTED);
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.refusal, THC_REFUSED_RANK);
	/* a sealed WELCOME counts for more */
	assert_int_equal(take(&w, good()), THC_DROP_NONE);
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.reason, THC_FAILED_JOIN);
	assert_int_equal(f.error, ETIMEDOUT);
}

static void end__sender_is_ready(void **state)
{
	struct thc_flight flight[10] = { 0 };
	struct joiner w = new_joiner();
	struct welcome p = good();
	u32 i;

	(void)state;
	p.w.flags = THC_WELCOME_F_READY | THC_WELCOME_F_ONE_PORT;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	thc_sender_set_epoch(&w.s, &w.j.spec, test_key);
	thc_joining_end(&w.j, &w.s, flight, 5);
	assert_int_equal(w.s.epoch, EPOCH);
	assert_int_equal(w.s.all, 0xf);
	for (i = 0; i < THC_BITS_MAX; i++)
		assert_int_equal(w.s.widths.sum[i], i == 3 ? 8 : i == 1 ? 4 : 0);
	assert_true(w.s.one_port);
	assert_int_equal(w.s.seal, THC_SEAL_NH);
	assert_int_equal(w.s.data.slots, 8);
	assert_int_equal(w.s.control.slots, 2);
	assert_int_equal(w.s.control.slot_base, 8);
	assert_ptr_equal(w.s.control.flight, flight + 8);
	assert_int_equal(thc_window_size(&w.s.window), 5);
}

/* Keys are derived from WELCOME's salt; without a secret key the salt itself tells epochs apart. */
static void end__keys_are_the_epochs(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good();
	struct thc_seal_key key;

	(void)state;
	thc_sender_set_epoch(&w.s, &p.w, test_key);
	thc_seal_key_set(&key, test_key, THC_KEY_UP, JOB, p.w.salt);
	assert_memory_equal(&w.s.up, &key, sizeof(key));
	thc_seal_key_set(&key, test_key, THC_KEY_DOWN, JOB, p.w.salt);
	assert_memory_equal(&w.s.down, &key, sizeof(key));
	assert_memory_not_equal(&w.s.up, &key, sizeof(key));
	p.w.seal = THC_SEAL_SUM;
	thc_sender_set_epoch(&w.s, &p.w, NULL);
	assert_int_equal(w.s.seal, THC_SEAL_SUM);
	assert_memory_equal(&w.s.up.id, p.w.salt, 4);
	assert_memory_equal(&w.s.down.id, p.w.salt, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(join__is_asked_soon_then_seldom),
		cmocka_unit_test(join__says_who_asks),
		cmocka_unit_test(join__keys_are_for_their_purposes),
		cmocka_unit_test(join__is_sealed),
		cmocka_unit_test(join__nonce_is_never_zero),
		cmocka_unit_test(leave__says_which_joining),
		cmocka_unit_test(challenge__is_answered_at_once),
		cmocka_unit_test(challenge__and_timer_make_one_join),
		cmocka_unit_test(challenge__of_others_changes_nothing),
		cmocka_unit_test(challenge__is_answered_four_times_at_most),
		cmocka_unit_test(challenge__after_ready_begins_anew),
		cmocka_unit_test(heard__is_said_of_an_epoch),
		cmocka_unit_test(welcome__until_all_are_in),
		cmocka_unit_test(welcome__of_others_changes_nothing),
		cmocka_unit_test(welcome__is_under_the_key_and_to_this_end),
		cmocka_unit_test(welcome__without_a_key),
		cmocka_unit_test(refusal__without_a_seal_is_believed_late),
		cmocka_unit_test(refusal__without_a_seal_yields_to_a_sealed_word),
		cmocka_unit_test(refusal__without_a_seal_is_whole_and_ours),
		cmocka_unit_test(welcome__what_cannot_be_served),
		cmocka_unit_test(welcome__to_the_group_before_its_own_says_nothing),
		cmocka_unit_test(welcome__is_heard_on_the_group),
		cmocka_unit_test(welcome__to_the_group_is_of_this_epoch_and_group),
		cmocka_unit_test(welcome__only_what_can_be_served_is_sound),
		cmocka_unit_test(welcome__rows_are_sound),
		cmocka_unit_test(welcome__seal_fits_the_key),
		cmocka_unit_test(welcome__group_is_multicast_on_an_unprivileged_port),
		cmocka_unit_test(end__why_time_ran_out),
		cmocka_unit_test(end__a_refusal_in_doubt_is_told_of),
		cmocka_unit_test(end__sender_is_ready),
		cmocka_unit_test(end__keys_are_the_epochs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
