// SPDX-License-Identifier: GPL-2.0
/*
 * The headers an aggregator answers with: every field, that the packet sum
 * fits what is sent, and that nothing of the request leaks where it must not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/answer.h>

#define COOKIE	0x0123456789abcdefULL
#define ALL	7ULL

static struct thc_job job;
static struct thc_slot slot;
static u64 lanes[THC_LANE_WORDS];

static int setup(void **state)
{
	(void)state;
	memset(&slot, 0, sizeof(slot));
	memset(&job, 0, sizeof(job));
	job.cookie = COOKIE;
	job.epoch = 9;
	job.all = ALL;
	job.joined = 5;
	job.ranks = 3;
	job.restarter = 1;
	return 0;
}

static struct thc_hdr request(u8 rank, u32 generation)
{
	return (struct thc_hdr){
		.version = THC_VERSION, .op = THC_OP_ADD, .width = 16,
		.cookie = thc_be64(COOKIE), .job = thc_be16(4), .rank = rank,
		.epoch = thc_be32(9), .round = thc_be32(100 + generation),
		.chunk = thc_be32(200 + generation), .slot = thc_be16(33),
		.generation = thc_be32(generation), .sum = 0x11223344,
	};
}

static u8 add(u8 rank, u32 generation, u8 ce)
{
	struct thc_arrival a = {
		.epoch = 9, .generation = generation, .round = 100 + generation,
		.chunk = 200 + generation, .rank = rank, .op = THC_OP_ADD,
		.width = 16, .ce = ce,
	};

	return thc_slot_arrive(&slot, &a, ALL).verdict;
}

static void expect_sum(const struct thc_hdr *h, const u64 *payload, int words)
{
	struct thc_hdr copy = *h;

	copy.sum = 0;
	assert_int_equal(thc_be32(h->sum), thc_sum_packet(&copy, payload, words));
}

static void expect_label(const struct thc_hdr *h, u8 op, u8 rank, u32 generation)
{
	assert_int_equal(h->version, THC_VERSION);
	assert_int_equal(h->op, op);
	assert_true(h->cookie == thc_be64(COOKIE));
	assert_int_equal(thc_be16(h->job), 4);
	assert_int_equal(h->rank, rank);
	assert_int_equal(h->reserved, 0);
	assert_int_equal(thc_be32(h->epoch), 9);
	assert_int_equal(thc_be32(h->round), 100 + generation);
	assert_int_equal(thc_be32(h->chunk), 200 + generation);
	assert_int_equal(thc_be16(h->slot), 33);
	assert_int_equal(thc_be32(h->generation), generation);
}

/* Lanes as a finished version has them, with their sum kept in it. */
static struct thc_version *finish_lanes(u32 generation)
{
	struct thc_version *v = &slot.version[generation & 1];
	struct thc_sum sum = { 0, 0 };
	u64 wire[THC_LANE_WORDS];
	int i;

	for (i = 0; i < THC_LANE_WORDS; i++) {
		lanes[i] = 0x0101010101010101ULL * i ^ (u64)i << 50;
		wire[i] = thc_le64(lanes[i]);
	}
	thc_sum_add(&sum, wire, THC_LANE_WORDS);
	v->sum_a = sum.a;
	v->sum_b = sum.b;
	memcpy(lanes, wire, sizeof(lanes));
	return v;
}

static void result__says_what_it_is(void **state)
{
	struct thc_version *v;
	struct thc_hdr h;
	u8 r;

	(void)state;
	for (r = 0; r < 3; r++)
		assert_int_equal(add(r, 0, 0), THC_ADD);
	v = finish_lanes(0);
	memset(&h, 0xff, sizeof(h));
	thc_answer_result(&h, &job, (struct thc_answer_at){ 4, 33, slot.epoch }, v, 0, 0);
	expect_label(&h, THC_OP_ADD, 0, 0);
	assert_int_equal(h.width, 16);
	assert_int_equal(h.flags, THC_F_ANSWER);
	assert_int_equal(thc_be16(h.count), 3);
	assert_true(thc_be64(h.bitmap) == ALL);
	expect_sum(&h, lanes, THC_LANE_WORDS);
	/* again, to one */
	thc_answer_result(&h, &job, (struct thc_answer_at){ 4, 33, slot.epoch }, v, 2, 1);
	expect_label(&h, THC_OP_ADD, 2, 0);
	assert_int_equal(h.flags, THC_F_ANSWER | THC_F_REPEAT);
	expect_sum(&h, lanes, THC_LANE_WORDS);
}

static void result__closed_and_congested(void **state)
{
	struct thc_hdr h;

	(void)state;
	add(0, 0, 0);
	add(2, 0, 1);
	assert_true(thc_slot_close(&slot, 9, 0, 2));
	thc_answer_result(&h, &job, (struct thc_answer_at){ 4, 33, slot.epoch }, finish_lanes(0), 0,
			  0);
	assert_int_equal(h.flags, THC_F_ANSWER | THC_F_CLOSED | THC_F_CE);
	assert_int_equal(thc_be16(h.count), 2);
	assert_true(thc_be64(h.bitmap) == 5);
	expect_sum(&h, lanes, THC_LANE_WORDS);
}

/* The job may be an epoch further than the slot: the answer is the slot's. */
static void result__carries_the_epoch_of_its_slot(void **state)
{
	struct thc_hdr h;

	(void)state;
	add(0, 0, 0);
	add(1, 0, 0);
	add(2, 0, 0);
	job.epoch = 10;
	thc_answer_result(&h, &job, (struct thc_answer_at){ 4, 33, slot.epoch }, finish_lanes(0), 0,
			  0);
	assert_int_equal(thc_be32(h.epoch), 9);
}

static void result__says_what_the_slot_has(void **state)
{
	struct thc_hdr h;

	(void)state;
	add(0, 0, 0);
	assert_int_equal(slot.version[0].width, 16);
	slot.version[0].width = 32;
	slot.version[0].op = THC_OP_OR;
	thc_answer_result(&h, &job, (struct thc_answer_at){ 4, 33, slot.epoch }, &slot.version[0],
			  0, 0);
	assert_int_equal(h.width, 32);
	assert_int_equal(h.op, THC_OP_OR);
}

static void wait__names_who_is_in(void **state)
{
	struct thc_hdr h = request(2, 0);

	(void)state;
	add(0, 0, 0);
	add(2, 0, 0);
	assert_int_equal(add(2, 0, 0), THC_WAIT);
	thc_answer_wait(&h, &job, &slot.version[0]);
	expect_label(&h, THC_OP_WAIT, 2, 0);
	assert_int_equal(h.width, 0);
	assert_int_equal(h.flags, 0);
	assert_int_equal(thc_be16(h.count), 2);
	assert_true(thc_be64(h.bitmap) == 5);
	expect_sum(&h, NULL, 0);
}

static void wait__says_when_a_missing_rank_has_left(void **state)
{
	struct thc_hdr h = request(2, 0);

	(void)state;
	add(2, 0, 1);
	job.left = 2;
	thc_answer_wait(&h, &job, &slot.version[0]);
	assert_int_equal(h.flags, THC_F_LEFT | THC_F_CE);
	expect_sum(&h, NULL, 0);
	/* one that left after it contributed is not missing */
	job.left = 4;
	h = request(2, 0);
	thc_answer_wait(&h, &job, &slot.version[0]);
	assert_int_equal(h.flags, THC_F_CE);
}

/* Another op, width or round than the first contribution's, or a generation that the
 * slot is not ready for: whose contributions are there.
 */
static void differs__names_who_is_in(void **state)
{
	struct thc_hdr h;
	u32 generation;

	(void)state;
	thc_slot_reset(&slot, 9);
	slot.top = 4;
	add(2, 5, 0);
	add(0, 5, 1);
	job.left = 2;
	for (generation = 5; generation < 8; generation++) {
		h = request(1, generation);
		assert_int_equal(thc_answer_differs(&h, &job, &slot), 1);
		expect_label(&h, THC_OP_WAIT, 1, generation);
		assert_int_equal(h.width, 0);
		assert_int_equal(h.flags, THC_F_DIFFERS);
		assert_int_equal(thc_be16(h.count), 2);
		assert_int_equal(thc_be64(h.bitmap), 5);
		expect_sum(&h, NULL, 0);
	}
}

static void differs__is_silent_where_nobody_is(void **state)
{
	struct thc_hdr h = request(1, 1), before = h;

	(void)state;
	thc_slot_reset(&slot, 9);
	assert_int_equal(thc_answer_differs(&h, &job, &slot), 0);
	add(2, 0, 0);
	/* the slot is of a newer epoch than the request */
	slot.epoch = 10;
	assert_int_equal(thc_answer_differs(&h, &job, &slot), 0);
	assert_memory_equal(&h, &before, sizeof(h));
}

static void stale__knows_who_was_in(void **state)
{
	struct thc_hdr h = request(1, 0);
	u32 g;

	(void)state;
	for (g = 0; g < 3; g++) {
		add(0, g, 0);
		add(2, g, 0);
		assert_true(thc_slot_close(&slot, 9, g, 2));
	}
	assert_int_equal(add(1, 0, 0), THC_STALE);
	thc_answer_stale(&h, &job, &slot);
	expect_label(&h, THC_OP_STALE, 1, 0);
	assert_int_equal(h.width, 0);
	assert_int_equal(h.flags, THC_F_KNOWN);
	assert_int_equal(thc_be16(h.count), 2);
	assert_true(thc_be64(h.bitmap) == 5);
	expect_sum(&h, NULL, 0);
}

static void stale__admits_what_it_does_not_know(void **state)
{
	struct thc_hdr h;
	u32 g;

	(void)state;
	for (g = 0; g < 3 + THC_PASTS; g++) {
		add(g % 3, g, 0);
		assert_true(thc_slot_close(&slot, 9, g, 1));
	}
	h = request(1, 0);
	thc_answer_stale(&h, &job, &slot);
	assert_int_equal(h.flags, 0);
	assert_int_equal(h.count, 0);
	assert_int_equal(h.bitmap, 0);
	expect_sum(&h, NULL, 0);
	h = request(1, 1);
	thc_answer_stale(&h, &job, &slot);
	assert_int_equal(h.flags, THC_F_KNOWN);
	assert_true(thc_be64(h.bitmap) == 2);
}

static void epoch__names_the_new_one_and_who_ended_the_old(void **state)
{
	struct thc_hdr h = request(2, 6);

	(void)state;
	h.epoch = thc_be32(8);
	thc_answer_epoch(&h, &job);
	expect_label(&h, THC_OP_STALE, 1, 6);
	assert_int_equal(h.width, 0);
	assert_int_equal(h.flags, THC_F_EPOCH);
	assert_int_equal(h.count, 0);
	assert_true(thc_be64(h.bitmap) == 5);
	expect_sum(&h, NULL, 0);
}

static void answers__carry_no_sum_where_the_job_has_none(void **state)
{
	struct thc_hdr h;

	(void)state;
	job.flags = THC_JOB_F_NOSUM;
	add(0, 0, 0);
	thc_answer_result(&h, &job, (struct thc_answer_at){ 4, 33, slot.epoch }, finish_lanes(0), 0,
			  0);
	assert_true(h.flags & THC_F_NOSUM && !h.sum);
	h = request(0, 0);
	thc_answer_wait(&h, &job, &slot.version[0]);
	assert_true(h.flags & THC_F_NOSUM && !h.sum);
	h = request(0, 0);
	thc_answer_stale(&h, &job, &slot);
	assert_true(h.flags & THC_F_NOSUM && !h.sum);
	h = request(0, 0);
	thc_answer_epoch(&h, &job);
	assert_true(h.flags & THC_F_NOSUM && !h.sum);
}

#define CASE(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(result__says_what_it_is),
		CASE(result__closed_and_congested),
		CASE(result__carries_the_epoch_of_its_slot),
		CASE(result__says_what_the_slot_has),
		CASE(wait__names_who_is_in),
		CASE(wait__says_when_a_missing_rank_has_left),
		CASE(differs__names_who_is_in),
		CASE(differs__is_silent_where_nobody_is),
		CASE(stale__knows_who_was_in),
		CASE(stale__admits_what_it_does_not_know),
		CASE(epoch__names_the_new_one_and_who_ended_the_old),
		CASE(answers__carry_no_sum_where_the_job_has_none),
	};

	return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
