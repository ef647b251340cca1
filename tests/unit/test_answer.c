// SPDX-License-Identifier: GPL-2.0
/*
 * The headers of an aggregator's answers: every field, a seal that fits the answer, and no field
 * of the request that must not be there. Each under every type of seal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/answer.h>

#include "../lib/jobseals.h"

#define ALL	7ULL

static struct thc_job job;
static struct thc_seals seals;
static struct thc_slot slot;
static u64 lanes[THC_LANE_WORDS];

/* Every case three times, once for each seal. */
static u8 seal_types[] = { THC_SEAL_NONE, THC_SEAL_SUM, THC_SEAL_NH };

static int setup(void **state)
{
	const u8 *seal_type = *state;

	memset(&slot, 0, sizeof(slot));
	memset(&job, 0, sizeof(job));
	job.epoch = 9;
	job.all = ALL;
	job.joined = 5;
	job.ranks = 3;
	job.restarter = 1;
	job_seals(&seals, *seal_type, 4, 9);
	return 0;
}

static struct thc_hdr request(u8 rank, u32 generation)
{
	return (struct thc_hdr){
		.version = THC_VERSION, .op = THC_OP_ADD, .width = 16,
		.key_id = 0x55667788, .job = thc_be16(4), .rank = thc_be16(rank),
		.epoch = thc_be32(9), .round = thc_be32(100 + generation),
		.chunk = thc_be32(200 + generation), .slot = thc_be16(33),
		.generation = thc_be32(generation), .tag = 0x1122334455667788ULL,
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

/* Is @h sealed as an answer of @epoch with @words words of payload, and with no other? */
static void expect_seal_of(const struct thc_hdr *h, u32 epoch, const u64 *payload, int words)
{
	const struct thc_seal_key *key = thc_seals_down(&seals, epoch);
	u64 other[THC_LANE_WORDS];

	assert_int_equal(h->key_id, key->id);
	assert_true(thc_seal_ok(h, (u8)seals.seal, key, payload, words));
	assert_int_equal(!h->tag, seals.seal == THC_SEAL_NONE);
	if (!words || seals.seal == THC_SEAL_NONE)
		return;
	memcpy(other, payload, (size_t)words * sizeof(*other));
	other[words - 1] ^= 1;
	assert_false(thc_seal_ok(h, (u8)seals.seal, key, other, words));
}

static void expect_seal(const struct thc_hdr *h, const u64 *payload, int words)
{
	expect_seal_of(h, 9, payload, words);
}

static void expect_label(const struct thc_hdr *h, u8 op, u16 rank, u32 generation)
{
	assert_int_equal(h->version, THC_VERSION);
	assert_int_equal(h->op, op);
	assert_int_equal(thc_be16(h->job), 4);
	assert_int_equal(thc_be16(h->rank), rank);
	assert_int_equal(thc_be32(h->epoch), 9);
	assert_int_equal(thc_be32(h->round), 100 + generation);
	assert_int_equal(thc_be32(h->chunk), 200 + generation);
	assert_int_equal(thc_be16(h->slot), 33);
	assert_int_equal(thc_be32(h->generation), generation);
}

/* Makes a finished generation, whose lanes get the wire's byte order and a digest. */
static struct thc_generation *finish_lanes(u32 generation)
{
	struct thc_generation *g = &slot.generation[generation & 1];
	int i;

	for (i = 0; i < THC_LANE_WORDS; i++)
		lanes[i] = 0x0101010101010101ULL * i ^ (u64)i << 50;
	thc_answer_finish(g, lanes, &seals, slot.epoch);
	for (i = 0; i < THC_LANE_WORDS; i++)
		lanes[i] = thc_le64(lanes[i]);
	return g;
}

/* RFC 1071 as it is written: 16-bit words, carries added at the end. */
static u32 plain_checksum(const void *data, size_t bytes)
{
	const u8 *at = data;
	u32 sum = 0;
	u16 word;
	size_t i;

	for (i = 0; i < bytes; i += 2) {
		memcpy(&word, at + i, 2);
		sum += word;
	}
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Words of all ones have the largest sums. */
static void result__checksum_is_that_of_the_lanes(void **state)
{
	static const u64 words[] = { 0, 1, 1ULL << 32, 0xffffffff, ~0ULL << 32, ~0ULL };
	struct thc_generation g;
	size_t w, i;

	(void)state;
	g = *finish_lanes(0);
	assert_int_equal(g.checksum, plain_checksum(lanes, sizeof(lanes)));
	for (w = 0; w < sizeof(words) / sizeof(*words); w++) {
		for (i = 0; i < THC_LANE_WORDS; i++)
			lanes[i] = words[w];
		thc_answer_finish(&g, lanes, &seals, slot.epoch);
		assert_int_equal(g.checksum, plain_checksum(lanes, sizeof(lanes)));
	}
}

static void result__says_what_it_is(void **state)
{
	struct thc_generation *g;
	struct thc_hdr h;
	u8 r;

	(void)state;
	for (r = 0; r < 3; r++)
		assert_int_equal(add(r, 0, 0), THC_ADD);
	g = finish_lanes(0);
	memset(&h, 0xff, sizeof(h));
	thc_answer_result(&h, &seals, (struct thc_answer_at){ 4, 33, slot.epoch }, g, 0, 0);
	expect_label(&h, THC_OP_ADD, 0, 0);
	assert_int_equal(h.width, 16);
	assert_int_equal(h.flags, THC_F_ANSWER);
	assert_int_equal(thc_be16(h.count), 3);
	assert_true(thc_be64(h.bitmap) == ALL);
	expect_seal(&h, lanes, THC_LANE_WORDS);
	/* a repeated answer, to one rank */
	thc_answer_result(&h, &seals, (struct thc_answer_at){ 4, 33, slot.epoch }, g, 2, 1);
	expect_label(&h, THC_OP_ADD, 2, 0);
	assert_int_equal(h.flags, THC_F_ANSWER | THC_F_REPEAT);
	expect_seal(&h, lanes, THC_LANE_WORDS);
}

static void result__closed_and_congested(void **state)
{
	struct thc_hdr h;

	(void)state;
	add(0, 0, 0);
	add(2, 0, 1);
	assert_true(thc_slot_close(&slot, 9, 0, 2));
	thc_answer_result(&h, &seals, (struct thc_answer_at){ 4, 33, slot.epoch }, finish_lanes(0),
			  0, 0);
	assert_int_equal(h.flags, THC_F_ANSWER | THC_F_CLOSED | THC_F_CE);
	assert_int_equal(thc_be16(h.count), 2);
	assert_true(thc_be64(h.bitmap) == 5);
	expect_seal(&h, lanes, THC_LANE_WORDS);
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
	job_seals_epoch(&seals, 4, 10);
	thc_answer_result(&h, &seals, (struct thc_answer_at){ 4, 33, slot.epoch }, finish_lanes(0),
			  0, 0);
	assert_int_equal(thc_be32(h.epoch), 9);
	expect_seal(&h, lanes, THC_LANE_WORDS);
}

/* A header-only answer has the epoch of its request, even if that epoch ended after admission. */
static void wait__carries_the_epoch_of_its_request(void **state)
{
	struct thc_hdr h = request(2, 0);

	(void)state;
	add(0, 0, 0);
	add(2, 0, 0);
	job.epoch = 10;
	job_seals_epoch(&seals, 4, 10);
	thc_answer_wait(&h, &job, &seals, &slot.generation[0]);
	expect_label(&h, THC_OP_WAIT, 2, 0);
	expect_seal(&h, NULL, 0);
}

/* Lanes are digested once; the digest seals the answer to all ranks and each repeated answer. */
static void result__is_digested_once(void **state)
{
	struct thc_generation *g;
	struct thc_hdr all, one;
	u8 r;

	(void)state;
	for (r = 0; r < 3; r++)
		add(r, 0, 0);
	g = finish_lanes(0);
	thc_answer_result(&all, &seals, (struct thc_answer_at){ 4, 33, slot.epoch }, g, 0, 0);
	for (r = 0; r < 3; r++) {
		thc_answer_result(&one, &seals, (struct thc_answer_at){ 4, 33, slot.epoch }, g, r,
				  1);
		expect_seal(&one, lanes, THC_LANE_WORDS);
		assert_int_equal(one.tag == all.tag, seals.seal == THC_SEAL_NONE);
	}
}

static void result__says_what_the_slot_has(void **state)
{
	struct thc_hdr h;

	(void)state;
	add(0, 0, 0);
	assert_int_equal(slot.generation[0].width, 16);
	slot.generation[0].width = 32;
	slot.generation[0].op = THC_OP_OR;
	thc_answer_result(&h, &seals, (struct thc_answer_at){ 4, 33, slot.epoch },
			  &slot.generation[0], 0, 0);
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
	thc_answer_wait(&h, &job, &seals, &slot.generation[0]);
	expect_label(&h, THC_OP_WAIT, 2, 0);
	assert_int_equal(h.width, 0);
	assert_int_equal(h.flags, 0);
	assert_int_equal(thc_be16(h.count), 2);
	assert_true(thc_be64(h.bitmap) == 5);
	expect_seal(&h, NULL, 0);
}

static void wait__says_when_a_missing_rank_has_left(void **state)
{
	struct thc_hdr h = request(2, 0);

	(void)state;
	add(2, 0, 1);
	job.left = 2;
	thc_answer_wait(&h, &job, &seals, &slot.generation[0]);
	assert_int_equal(h.flags, THC_F_LEFT | THC_F_CE);
	expect_seal(&h, NULL, 0);
	/* one that left after it contributed is not missing */
	job.left = 4;
	h = request(2, 0);
	thc_answer_wait(&h, &job, &seals, &slot.generation[0]);
	assert_int_equal(h.flags, THC_F_CE);
}

/* A request with another op, width or round than the slot's, or a generation too early, is told
 * the contributors.
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
		assert_int_equal(thc_answer_differs(&h, &seals, &slot), 1);
		expect_label(&h, THC_OP_WAIT, 1, generation);
		assert_int_equal(h.width, 0);
		assert_int_equal(h.flags, THC_F_DIFFERS);
		assert_int_equal(thc_be16(h.count), 2);
		assert_int_equal(thc_be64(h.bitmap), 5);
		expect_seal(&h, NULL, 0);
	}
}

static void differs__is_silent_where_nobody_is(void **state)
{
	struct thc_hdr h = request(1, 1), before = h;

	(void)state;
	thc_slot_reset(&slot, 9);
	assert_int_equal(thc_answer_differs(&h, &seals, &slot), 0);
	add(2, 0, 0);
	/* the slot is of a newer epoch than the request */
	slot.epoch = 10;
	assert_int_equal(thc_answer_differs(&h, &seals, &slot), 0);
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
	thc_answer_stale(&h, &seals, &slot);
	expect_label(&h, THC_OP_STALE, 1, 0);
	assert_int_equal(h.width, 0);
	assert_int_equal(h.flags, THC_F_KNOWN);
	assert_int_equal(thc_be16(h.count), 2);
	assert_true(thc_be64(h.bitmap) == 5);
	expect_seal(&h, NULL, 0);
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
	thc_answer_stale(&h, &seals, &slot);
	assert_int_equal(h.flags, 0);
	assert_int_equal(h.count, 0);
	assert_int_equal(h.bitmap, 0);
	expect_seal(&h, NULL, 0);
	h = request(1, 1);
	thc_answer_stale(&h, &seals, &slot);
	assert_int_equal(h.flags, THC_F_KNOWN);
	assert_true(thc_be64(h.bitmap) == 2);
}

static const struct thc_path path = {
	.src.word = { 0, 0, 0x0000ffff, 0x0a000001 }, .src_port = 40001, .dst_port = 18500,
};

/* Is @h sealed as the end of an epoch, to @request from @addr and @port? */
static int ends_epoch(const struct thc_hdr *h, __be64 request, struct thc_addr addr, u16 port)
{
	const struct thc_end end = { .addr = addr, .port = thc_be16(port) };

	return h->key_id == seals.lost.id &&
	       h->tag == thc_member_tag(thc_seal_of_members((u8)seals.seal), &seals.lost, h, &end,
					&request, 1);
}

static void epoch__names_the_new_one_and_who_ended_the_old(void **state)
{
	struct thc_hdr h = request(2, 6);

	(void)state;
	h.epoch = thc_be32(8);
	thc_answer_epoch(&h, &job, &seals, &path);
	expect_label(&h, THC_OP_STALE, 1, 6);
	assert_int_equal(h.width, 0);
	assert_int_equal(h.flags, THC_F_EPOCH);
	assert_int_equal(h.count, 0);
	assert_true(thc_be64(h.bitmap) == 5);
	assert_true(ends_epoch(&h, request(2, 6).tag, path.src, path.src_port));
	/* no rank did, but the aggregator */
	job.restarter = THC_WORKER_NONE;
	h = request(2, 6);
	thc_answer_epoch(&h, &job, &seals, &path);
	expect_label(&h, THC_OP_STALE, THC_WORKER_NONE, 6);
	assert_true(ends_epoch(&h, request(2, 6).tag, path.src, path.src_port));
}

/* A STALE with EPOCH answers one request of one worker, under a key that outlives epochs. */
static void epoch__is_for_one_request(void **state)
{
	struct thc_hdr h = request(2, 6);
	struct thc_addr other = path.src;
	__be64 tag = h.tag;
	int bit;

	(void)state;
	thc_answer_epoch(&h, &job, &seals, &path);
	for (bit = 0; bit < 64; bit++)
		assert_false(ends_epoch(&h, tag ^ 1ULL << bit, path.src, path.src_port));
	job_seals_epoch(&seals, 4, 8);
	job_seals_epoch(&seals, 4, 9);
	assert_true(ends_epoch(&h, tag, path.src, path.src_port));
	if (seals.seal != THC_SEAL_NH)
		return;
	other.word[3] ^= 1;
	assert_false(ends_epoch(&h, tag, other, path.src_port));
	assert_false(ends_epoch(&h, tag, path.src, path.src_port ^ 1));
	seals.lost = seals.join;
	assert_false(ends_epoch(&h, tag, path.src, path.src_port));
}

/* clang-format off */
#define CASE_OF(name, type, at) \
	{ #name ", " type, name, setup, NULL, &seal_types[at] }
#define CASE(name) \
	CASE_OF(name, "none", 0), CASE_OF(name, "sum", 1), CASE_OF(name, "nh", 2)
/* clang-format on */

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(result__checksum_is_that_of_the_lanes),
		CASE(result__says_what_it_is),
		CASE(result__closed_and_congested),
		CASE(result__carries_the_epoch_of_its_slot),
		CASE(result__is_digested_once),
		CASE(result__says_what_the_slot_has),
		CASE(wait__names_who_is_in),
		CASE(wait__says_when_a_missing_rank_has_left),
		CASE(wait__carries_the_epoch_of_its_request),
		CASE(differs__names_who_is_in),
		CASE(differs__is_silent_where_nobody_is),
		CASE(stale__knows_who_was_in),
		CASE(stale__admits_what_it_does_not_know),
		CASE(epoch__names_the_new_one_and_who_ended_the_old),
		CASE(epoch__is_for_one_request),
	};

	return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
