// SPDX-License-Identifier: GPL-2.0
/*
 * A worker joins a job of several aggregators (include/thc/worker/shards.h): when it is in, which
 * aggregators belong together, and which aggregator a failure names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <thc/worker/shards.h>

#define RANK	2
#define SHARDS	3

/* Three aggregators, of which all know all, and all ranks are in. */
struct home {
	struct thc_joining j[SHARDS];
	struct thc_sender s[SHARDS];
};

static struct thc_joiner joiner_at(const void *home, u32 shard)
{
	const struct home *h = home;

	/* an unknown aggregator is never asked for */
	assert_in_range(shard, 0, SHARDS - 1);
	return (struct thc_joiner){ &h->j[shard], &h->s[shard] };
}

static struct home everybody(void)
{
	static struct home h;
	u32 i;

	for (i = 0; i < SHARDS; i++) {
		h.s[i] = (struct thc_sender){ .rank = RANK };
		h.j[i] = (struct thc_joining){
			.spec = { .ranks = 4,
				  .quorum = 4,
				  .shards = SHARDS,
				  .shard = (u16)i,
				  .joined = 0xf,
				  .constants = 77 },
			.welcomed = 1,
			.ready = 1,
		};
	}
	return h;
}

static struct thc_joiners of(const struct home *h, u32 known)
{
	return (struct thc_joiners){ h, joiner_at, known, known > 1 };
}

static void ready__when_all_have_said_so(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, SHARDS);
	u32 i;

	(void)state;
	assert_true(thc_joiners_ready(&all));
	assert_int_equal(thc_joiners_unready(&all), SHARDS);
	for (i = SHARDS; i--;) {
		h.j[i].ready = 0;
		assert_false(thc_joiners_ready(&all));
		assert_int_equal(thc_joiners_unready(&all), i);
	}
}

/* Number 0 lists more aggregators than the worker knows. */
static void ready__not_before_all_are_known(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, 1);

	(void)state;
	assert_true(thc_joiners_lack(&all));
	assert_int_equal(thc_joiners_unready(&all), 1);
	assert_false(thc_joiners_ready(&all));
	h.j[0].spec.shards = 1;
	assert_false(thc_joiners_lack(&all));
	assert_true(thc_joiners_ready(&all));
	/* no aggregator has answered yet */
	h = everybody();
	h.j[0].welcomed = h.j[0].ready = 0;
	assert_false(thc_joiners_lack(&all));
	assert_false(thc_joiners_ready(&all));
}

static void agree__each_has_its_own_number(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, SHARDS);
	u32 i;

	(void)state;
	for (i = 0; i < SHARDS; i++)
		assert_true(thc_joiners_agree(&all, i));
	h.j[1].spec.shard = 2;
	assert_false(thc_joiners_agree(&all, 1));
	assert_true(thc_joiners_agree(&all, 2));
}

/* An aggregator without WELCOME does not count. */
static void agree__all_mean_one_job(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, SHARDS);

	(void)state;
	h.j[2].spec.constants = 78;
	assert_false(thc_joiners_agree(&all, 0));
	assert_false(thc_joiners_agree(&all, 2));
	h.j[2].welcomed = 0;
	assert_true(thc_joiners_agree(&all, 0));
	assert_true(thc_joiners_agree(&all, 1));
}

/* Number 0 tells the number of aggregators once; for a host job it is known before. */
static void agree__their_count_is_said_once(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, 1);
	u32 i;

	(void)state;
	assert_true(thc_joiners_agree(&all, 0));
	all.listed = 1;
	assert_false(thc_joiners_agree(&all, 0));
	all = of(&h, SHARDS);
	for (i = 0; i < SHARDS; i++)
		h.j[i].spec.shards = SHARDS + 1;
	assert_false(thc_joiners_agree(&all, 0));
}

/* Giving up now, with @error, is laid to aggregator @shard, which misses @ranks. */
static void gives_up(const struct thc_joiners *all, int error, u16 reason, u8 shard, u64 ranks)
{
	struct thc_failure f;

	thc_joiners_failure(all, &f);
	assert_int_equal(f.error, error);
	assert_int_equal(f.reason, reason);
	assert_int_equal(f.shard, shard);
	assert_int_equal(f.ranks, ranks);
}

static void failure__names_the_first_that_is_not_ready(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, SHARDS);

	(void)state;
	h.j[1].ready = h.j[2].ready = 0;
	h.j[1].spec.joined = 0x5;
	gives_up(&all, ETIMEDOUT, THC_FAILED_JOIN, 1, 0xa);
	h.j[1].welcomed = 0;
	h.s[1].unreachable = ECONNREFUSED;
	gives_up(&all, ECONNREFUSED, THC_FAILED_UNREACHABLE, 1, 0);
}

/* An aggregator that the worker has never sent to misses this rank. */
static void failure__is_ours_where_we_never_asked(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, 2);

	(void)state;
	gives_up(&all, ETIMEDOUT, THC_FAILED_JOIN, 2, 1 << RANK);
	/* a known aggregator is named first */
	h.j[1].ready = 0;
	h.j[1].spec.joined = 0x7;
	gives_up(&all, ETIMEDOUT, THC_FAILED_JOIN, 1, 0x8);
}

/* All are ready, but the worker itself did not get ready in time. */
static void failure__without_anybody_missing(void **state)
{
	struct home h = everybody();
	struct thc_joiners all = of(&h, SHARDS);

	(void)state;
	gives_up(&all, ETIMEDOUT, THC_FAILED_JOIN, 0, 0);
}

/* LEAVE goes to aggregators at which the worker has joined. */
static void leave__whoever_has_let_us_in(void **state)
{
	struct home h = everybody();

	(void)state;
	assert_true(thc_joining_is_in(&h.j[0]));
	h.j[0].ready = 0;
	assert_true(thc_joining_is_in(&h.j[0]));
	h.j[0].spec.flags = THC_WELCOME_F_REFUSED;
	assert_false(thc_joining_is_in(&h.j[0]));
	h.j[0].spec.flags = 0;
	h.j[0].welcomed = 0;
	assert_false(thc_joining_is_in(&h.j[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ready__when_all_have_said_so),
		cmocka_unit_test(ready__not_before_all_are_known),
		cmocka_unit_test(agree__each_has_its_own_number),
		cmocka_unit_test(agree__all_mean_one_job),
		cmocka_unit_test(agree__their_count_is_said_once),
		cmocka_unit_test(failure__names_the_first_that_is_not_ready),
		cmocka_unit_test(failure__is_ours_where_we_never_asked),
		cmocka_unit_test(failure__without_anybody_missing),
		cmocka_unit_test(leave__whoever_has_let_us_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
