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

#include <thc/worker/join.h>

#define COOKIE	0x1122334455667788ULL
#define JOB	7
#define PORT	1000
#define RANK	2
#define EPOCH	40
#define RANDOM	0x8000000000000010ULL
#define NONCE	(RANDOM | 1)
#define NOW	(1000 * THC_NS_PER_MS)

struct joiner {
	struct thc_sender	s;
	struct thc_joining	j;
};

static struct joiner new_joiner(void)
{
	struct joiner w = { .s = {
				    .cookie = COOKIE,
				    .job = JOB,
				    .port = PORT,
				    .rank = RANK,
				    .epoch = EPOCH - 1,
			    } };

	thc_joining_begin(&w.j, RANDOM, NOW);
	return w;
}

/* A WELCOME as it comes to @w alone. */
struct welcome {
	struct thc_hdr		h;
	struct thc_welcome	w;
};

static struct welcome good(void)
{
	struct welcome p = {
		.h = {
			.version = THC_VERSION, .op = THC_OP_WELCOME, .job = thc_be16(JOB),
			.rank = RANK, .epoch = thc_be32(EPOCH),
		},
		.w = {
			.nonce = thc_be64(NONCE), .ranks = thc_be16(4), .data_slots = thc_be16(8),
			.norm_slots = thc_be16(2), .chunk = thc_be16(THC_CHUNK_8), .sum_width = 8,
			.joined = thc_be64(0x7), .reply = THC_REPLY_MULTICAST, .family = 4,
			.group = { 239, 1, 2, 3 }, .group_port = thc_be16(20000),
		},
	};

	return p;
}

/* Seals @p, and lets @w have it. */
static enum thc_drop_reason take_from(struct joiner *w, struct welcome *p, u16 port)
{
	enum thc_drop_reason why;

	thc_seal(&p->h, &p->w, sizeof(p->w) / 8);
	why = thc_joining_admit(&w->s, &p->h, &p->w, port);
	return why ? why : thc_joining_take(&w->j, &w->s, &p->h, &p->w);
}

static enum thc_drop_reason take(struct joiner *w, struct welcome p)
{
	return take_from(w, &p, PORT);
}

/* Within a second a rank has asked often enough for packets to be lost; 64 that wait for
 * another one for minutes ask 200 times a second in all.
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
	assert_int_equal(h.rank, RANK);
	assert_true(h.cookie == thc_be64(COOKIE));
	/* the next epoch is to be newer */
	assert_int_equal(thc_be32(h.epoch), EPOCH - 1);
	assert_true(join.nonce == thc_be64(NONCE));
	assert_int_equal(join.flags, 0);
	assert_int_equal(w.j.at, NOW + 20 * THC_NS_PER_MS);
	w.j.heard = 1;
	thc_joining_request(&w.j, &w.s, &h, &join, w.j.at);
	assert_int_equal(join.flags, thc_be32(THC_JOIN_F_HEARD));
	assert_int_equal(w.j.sent, 2);
}

/* Zero is the group's nonce: no rank has it. */
static void join__nonce_is_never_zero(void **state)
{
	struct thc_joining j;

	(void)state;
	thc_joining_begin(&j, 0, NOW);
	assert_true(j.nonce);
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
	assert_int_equal(w.j.joined.epoch, EPOCH);
	assert_memory_equal(&w.j.joined.welcome, &p.w, sizeof(p.w));
	/* what the network said before it came is no reason any more */
	assert_int_equal(w.s.unreachable, 0);
	p.w.flags = THC_WELCOME_F_READY;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_READY);
	/* that is final */
	p.w.flags = 0;
	assert_int_equal(take(&w, p), THC_DROP_UNEXPECTED);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_READY);
}

static void welcome__of_others_changes_nothing(void **state)
{
	struct joiner w = new_joiner();
	const struct joiner before = w;
	struct welcome p = good();

	(void)state;
	assert_int_equal(take_from(&w, &p, PORT + 1), THC_DROP_ADDRESS);
	thc_seal(&p.h, &p.w, sizeof(p.w) / 8);
	p.w.seed ^= thc_be64(1);
	assert_int_equal(thc_joining_admit(&w.s, &p.h, &p.w, PORT), THC_DROP_SUM);
	p = good();
	p.h.job = thc_be16(JOB + 1);
	assert_int_equal(take(&w, p), THC_DROP_JOB);
	p = good();
	p.h.reserved = 1;
	assert_int_equal(take(&w, p), THC_DROP_RESERVED);
	p = good();
	p.w.nonce = thc_be64(NONCE + 1);
	assert_int_equal(take(&w, p), THC_DROP_UNEXPECTED);
	/* to the group: it has to show the cookie */
	p.w.nonce = 0;
	assert_int_equal(take(&w, p), THC_DROP_COOKIE);
	assert_memory_equal(&w, &before, sizeof(w));
}

static void welcome__what_cannot_be_served(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good();

	(void)state;
	p.w.ranks = thc_be16(RANK);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_UNSOUND);
	/* a refusal has no constants */
	p.w.flags = THC_WELCOME_F_REFUSED;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_REFUSED);
}

/* Of a job that it was in before, it may hear the group first. */
static void welcome__is_heard_before_its_own(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good(), to_group = good();

	(void)state;
	to_group.w.nonce = 0;
	to_group.h.cookie = thc_be64(COOKIE);
	assert_int_equal(take(&w, to_group), THC_DROP_NONE);
	assert_int_equal(thc_joining_step(&w.j, &w.s), THC_JOIN_ASK);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_true(w.j.heard);
}

/* JOIN says HEARD once the group's WELCOME has come, and of that group alone. */
static void welcome__is_heard_on_the_group(void **state)
{
	struct joiner w = new_joiner();
	struct welcome p = good(), to_group = good();

	(void)state;
	to_group.w.nonce = 0;
	to_group.h.cookie = thc_be64(COOKIE);
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
	p.w.group[3]++;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_false(w.j.heard);
	assert_true(thc_joining_wants_group(&w.j, NOW));
	p.w.reply = THC_REPLY_FANOUT;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	assert_false(thc_joining_wants_group(&w.j, NOW));
}

static void welcome__only_what_can_be_served_is_sound(void **state)
{
	const struct thc_welcome good = {
		.ranks = thc_be16(4),
		.data_slots = thc_be16(THC_SLOTS_MAX - 8),
		.norm_slots = thc_be16(8),
		.chunk = thc_be16(THC_CHUNK_8),
		.sum_width = 8,
	};
	struct thc_welcome w = good;

	(void)state;
	assert_true(thc_welcome_is_sound(&w, 3));
	assert_false(thc_welcome_is_sound(&w, 4));
	w.ranks = thc_be16(THC_RANKS_MAX);
	assert_true(thc_welcome_is_sound(&w, THC_RANKS_MAX - 1));
	w.ranks = thc_be16(THC_RANKS_MAX + 1);
	assert_false(thc_welcome_is_sound(&w, 0));
	w = good;
	w.norm_slots = thc_be16(9);
	assert_false(thc_welcome_is_sound(&w, 0));
	w.norm_slots = 0;
	assert_false(thc_welcome_is_sound(&w, 0));
	w = good;
	w.data_slots = 0;
	assert_false(thc_welcome_is_sound(&w, 0));
	w = good;
	w.sum_width = 16;
	assert_false(thc_welcome_is_sound(&w, 0));
	w.chunk = thc_be16(THC_CHUNK_16);
	assert_true(thc_welcome_is_sound(&w, 0));
	w.sum_width = 12;
	assert_false(thc_welcome_is_sound(&w, 0));
	/* what a later version may mean by it is not known here */
	w = good;
	w.flags = THC_WELCOME_FLAGS;
	assert_true(thc_welcome_is_sound(&w, 0));
	w.flags = 0x80;
	assert_false(thc_welcome_is_sound(&w, 0));
	w = good;
	w.reserved = 1;
	assert_false(thc_welcome_is_sound(&w, 0));
	w = good;
	w.reserved2[sizeof(w.reserved2) - 1] = 1;
	assert_false(thc_welcome_is_sound(&w, 0));
}

/* Each is all that differs from a WELCOME that is sound. */
static void welcome__group_is_multicast_on_an_unprivileged_port(void **state)
{
	static const struct {
		const char	*group;
		u16		port;
		u8		family;
		bool		sound;
	} cases[] = {
		{ "239.1.2.3", 20000, 4, true },	{ "224.0.0.0", 20000, 4, true },
		{ "239.255.255.255", 20000, 4, true },	{ "223.255.255.255", 20000, 4, false },
		{ "240.0.0.0", 20000, 4, false },	{ "127.0.0.1", 20000, 4, false },
		{ "0.0.0.0", 20000, 4, false },		{ "255.255.255.255", 20000, 4, false },
		{ "239.1.2.3", 1024, 4, true },		{ "239.1.2.3", 1023, 4, false },
		{ "239.1.2.3", 0, 4, false },		{ "239.1.2.3", 20000, 6, false },
		{ "239.1.2.3", 20000, 0, false },	{ "ff15::77", 20000, 6, true },
		{ "ff02::1", 20000, 6, true },		{ "ff15::77", 1023, 6, false },
		{ "fe80::1", 20000, 6, false },		{ "::1", 20000, 6, false },
		{ "::ffff:239.1.2.3", 20000, 6, false }, { "ff15::77", 20000, 4, false },
	};
	struct thc_welcome w = {
		.ranks = thc_be16(4), .data_slots = thc_be16(8), .norm_slots = thc_be16(8),
		.chunk = thc_be16(THC_CHUNK_8), .sum_width = 8,
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int v6 = !!strchr(cases[i].group, ':');

		memset(w.group, 0, sizeof(w.group));
		assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, cases[i].group, w.group), 1);
		w.group_port = thc_be16(cases[i].port);
		w.family = cases[i].family;
		w.reply = THC_REPLY_MULTICAST;
		if (thc_welcome_is_sound(&w, 0) != cases[i].sound)
			fail_msg("case %zu: %s port %u", i, cases[i].group, cases[i].port);
		/* without multicast nobody looks at it */
		w.reply = THC_REPLY_FANOUT;
		assert_true(thc_welcome_is_sound(&w, 0));
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
	/* it is not silent, though nobody is missing */
	p.w.joined = thc_be64(0xf);
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	thc_joining_failure(&w.j, &w.s, &f);
	assert_int_equal(f.reason, THC_FAILED_JOIN);
	assert_int_equal(f.error, ETIMEDOUT);
	assert_int_equal(f.ranks, 0);
}

static void end__sender_is_ready(void **state)
{
	struct thc_flight flight[10] = { 0 };
	struct joiner w = new_joiner();
	struct welcome p = good();

	(void)state;
	p.w.flags = THC_WELCOME_F_READY | THC_WELCOME_F_NOSUM | THC_WELCOME_F_ONE_PORT;
	assert_int_equal(take(&w, p), THC_DROP_NONE);
	thc_joining_end(&w.j, &w.s, flight, 5);
	assert_int_equal(w.s.epoch, EPOCH);
	assert_int_equal(w.s.all, 0xf);
	assert_int_equal(w.s.sum_width, 8);
	assert_true(w.s.nosum && w.s.one_port);
	assert_int_equal(w.s.data.slots, 8);
	assert_int_equal(w.s.control.slots, 2);
	assert_int_equal(w.s.control.slot_base, 8);
	assert_ptr_equal(w.s.control.flight, flight + 8);
	assert_int_equal(thc_window_size(&w.s.window), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(join__is_asked_soon_then_seldom),
		cmocka_unit_test(join__says_who_asks),
		cmocka_unit_test(join__nonce_is_never_zero),
		cmocka_unit_test(welcome__until_all_are_in),
		cmocka_unit_test(welcome__of_others_changes_nothing),
		cmocka_unit_test(welcome__what_cannot_be_served),
		cmocka_unit_test(welcome__is_heard_before_its_own),
		cmocka_unit_test(welcome__is_heard_on_the_group),
		cmocka_unit_test(welcome__only_what_can_be_served_is_sound),
		cmocka_unit_test(welcome__group_is_multicast_on_an_unprivileged_port),
		cmocka_unit_test(end__why_time_ran_out),
		cmocka_unit_test(end__sender_is_ready),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
