// SPDX-License-Identifier: GPL-2.0
/*
 * When nothing moves (include/thc/worker/stall.h): the ranks that a worker misses, and how long it
 * waits. And the headers that it writes, against values written by hand.
 */
#include <stdbool.h>

#include "worker.h"

#include <thc/worker/stall.h>

#define TIMEOUT		(5000 * THC_NS_PER_MS)
#define ALL		0xfULL
/* A bit beside those of ranks: a rank has left. */
#define LEFT		(1ULL << 63)

static struct thc_flight *launch_one(struct worker *w, struct thc_stream *st, u32 round)
{
	st->reserved++;
	return launch_in(w, st, round);
}

/* A WAIT names the contributors @present, and perhaps says that another rank has left. */
static void wait_for(struct worker *w, struct thc_flight *f, u64 present, u8 flags)
{
	struct thc_hdr h = { .op = THC_OP_WAIT, .flags = flags, .bitmap = thc_be64(present) };

	thc_flight_wait(&w->s, f, &h);
}

static u64 missing(struct worker *w, u32 round)
{
	struct thc_absent a;

	w->s.all = ALL;
	a = thc_sender_absent(&w->s, round);
	return a.missing | (a.left ? LEFT : 0);
}

static void missing__nothing_in_flight_lacks_nobody(void **state)
{
	assert_int_equal(missing(*state, 0), 0);
}

static void missing__is_what_the_last_wait_said(void **state)
{
	struct worker *w = *state;
	struct thc_flight *f = launch_one(w, &w->s.data, 5);

	assert_int_equal(missing(w, 5), 0);
	wait_for(w, f, 0x3, 0);
	assert_int_equal(missing(w, 5), 0xc);
	wait_for(w, f, 0xb, THC_F_LEFT);
	assert_int_equal(missing(w, 5), 0x4 | LEFT);
}

static void missing__only_the_oldest_chunk_counts(void **state)
{
	struct worker *w = *state;
	struct thc_flight *first = launch_one(w, &w->s.data, 5);
	struct thc_flight *second = launch_one(w, &w->s.data, 5);

	wait_for(w, second, 0x1, THC_F_LEFT);
	assert_int_equal(missing(w, 5), 0);
	thc_flight_land(&w->s, &w->s.data, first, w->now);
	assert_int_equal(missing(w, 5), 0xe | LEFT);
}

/* Slots are used over and over: the oldest chunk is not the one in slot 0. */
static void missing__the_oldest_is_found_after_a_wrap(void **state)
{
	struct worker *w = *state;
	struct thc_flight *f[NORM_SLOTS + 3];
	u32 i;

	for (i = 0; i < NORM_SLOTS; i++)
		f[i] = launch_one(w, &w->s.control, 5);
	for (i = 0; i < 3; i++)
		thc_flight_land(&w->s, &w->s.control, f[i], w->now);
	for (i = NORM_SLOTS; i < NORM_SLOTS + 3; i++)
		f[i] = launch_one(w, &w->s.control, 5);
	assert_ptr_equal(thc_stream_oldest(&w->s.control), f[3]);
	wait_for(w, f[3], 0x7, 0);
	wait_for(w, f[NORM_SLOTS], 0x1, 0);
	assert_int_equal(missing(w, 5), 0x8);
}

/* Norms of the next round wait for ranks that still have this round's data. */
static void missing__later_rounds_do_not_count(void **state)
{
	struct worker *w = *state;
	struct thc_flight *data = launch_one(w, &w->s.data, UINT32_MAX);
	struct thc_flight *norm = launch_one(w, &w->s.control, 0);

	wait_for(w, norm, 0x1, THC_F_LEFT);
	wait_for(w, data, 0xd, 0);
	assert_int_equal(missing(w, UINT32_MAX), 0x2);
	assert_int_equal(missing(w, 0), 0xe | LEFT);
}

static void missing__norms_and_data_of_a_round_add_up(void **state)
{
	struct worker *w = *state;

	wait_for(w, launch_one(w, &w->s.data, 5), 0x7, THC_F_LEFT);
	wait_for(w, launch_one(w, &w->s.control, 5), 0xe, 0);
	assert_int_equal(missing(w, 5), 0x9 | LEFT);
}

/* --- who disagrees -------------------------------------------------------- */

static void differs__names_whose_contribution_is_there(void **state)
{
	struct worker *w = *state;
	struct thc_flight *f = launch_one(w, &w->s.data, 5);

	w->s.rank = 2;
	assert_int_equal(thc_sender_absent(&w->s, 5).differing, 0);
	wait_for(w, f, 0x1, THC_F_DIFFERS);
	/* other ranks join the first contributors, so the answers change; no rank is missing */
	wait_for(w, f, 0x9, THC_F_DIFFERS);
	assert_int_equal(thc_sender_absent(&w->s, 5).differing, 0x9);
	assert_int_equal(missing(w, 5), 0);
	/* the chunk has arrived: it cuts no window */
	assert_true(f->waiting);
	/* a generation that ran ahead may hold this rank's earlier chunk */
	wait_for(w, f, 0xd, THC_F_DIFFERS);
	assert_int_equal(thc_sender_absent(&w->s, 5).differing, 0x9);
	/* the next chunk in the slot begins anew */
	thc_flight_land(&w->s, &w->s.data, f, w->now);
	launch_one(w, &w->s.data, 5);
	assert_int_equal(thc_sender_absent(&w->s, 5).differing, 0);
}

static void differs__in_norms_and_data_of_the_oldest_round(void **state)
{
	struct worker *w = *state;

	w->s.rank = 0;
	wait_for(w, launch_one(w, &w->s.data, 5), 0x2, THC_F_DIFFERS);
	wait_for(w, launch_one(w, &w->s.control, 6), 0x8, THC_F_DIFFERS);
	assert_int_equal(thc_sender_absent(&w->s, 5).differing, 0x2);
	assert_int_equal(thc_sender_absent(&w->s, 6).differing, 0xa);
}

/* A chunk that is in does not differ, in whatever order both answers come. */
static void differs__not_once_it_is_in(void **state)
{
	struct worker *w = *state;
	struct thc_flight *f = launch_one(w, &w->s.data, 5);

	w->s.rank = 0;
	wait_for(w, f, 0x2, THC_F_DIFFERS);
	wait_for(w, f, 0x3, 0);
	assert_int_equal(thc_sender_absent(&w->s, 5).differing, 0);
	wait_for(w, f, 0x2, THC_F_DIFFERS);
	assert_int_equal(thc_sender_absent(&w->s, 5).differing, 0);
	assert_int_equal(missing(w, 5), 0xc);
}

/* --- how long ------------------------------------------------------------- */

static struct thc_failure failure(struct worker *w, u64 later, int needed)
{
	struct thc_failure f;
	int stalled;

	w->s.all = ALL;
	stalled = thc_sender_stalled(&w->s, 5, needed, TIMEOUT, w->now + later, &f);
	assert_int_equal(stalled, f.reason != THC_FAILED_NOT);
	return f;
}

static void stall__who_waits_for_nothing_never_does(void **state)
{
	struct worker *w = *state;

	thc_sender_unreachable(&w->s, EHOSTUNREACH, w->now);
	assert_int_equal(failure(w, 1000 * TIMEOUT, 1).reason, THC_FAILED_NOT);
	/* an earlier ICMP error is forgotten */
	assert_int_equal(w->s.unreachable_at, 0);
}

static void stall__after_the_timeout(void **state)
{
	struct worker *w = *state;

	launch_one(w, &w->s.control, 5);
	assert_int_equal(failure(w, TIMEOUT, 0).reason, THC_FAILED_NOT);
	assert_int_equal(failure(w, TIMEOUT + 1, 0).reason, THC_FAILED_SILENT);
	w->s.progress_at++;
	assert_int_equal(failure(w, TIMEOUT + 1, 0).reason, THC_FAILED_NOT);
}

static void stall__a_rank_that_left_is_not_waited_for(void **state)
{
	struct worker *w = *state;

	wait_for(w, launch_one(w, &w->s.data, 5), 0x7, THC_F_LEFT);
	assert_int_equal(failure(w, 0, 1).reason, THC_FAILED_LEFT);
}

static void stall__the_network_has_a_second(void **state)
{
	struct worker *w = *state;
	u64 second = THC_UNREACHABLE_MS * THC_NS_PER_MS;

	launch_one(w, &w->s.data, 5);
	/* after the caller read its clock */
	thc_sender_unreachable(&w->s, EHOSTUNREACH, w->now + 1);
	assert_int_equal(failure(w, 0, 0).reason, THC_FAILED_NOT);
	w->s.unreachable_at = w->now;
	/* the time counts from the first error */
	thc_sender_unreachable(&w->s, EHOSTUNREACH, w->now + second / 2);
	assert_int_equal(failure(w, second, 0).reason, THC_FAILED_NOT);
	assert_int_equal(failure(w, second + 1, 0).reason, THC_FAILED_UNREACHABLE);
}

/* In the order of the worker's knowledge. */
static void stall__says_why(void **state)
{
	struct worker *w = *state;
	struct thc_flight *data = launch_one(w, &w->s.data, 5);
	struct thc_flight *norm = launch_one(w, &w->s.control, 5);
	struct thc_failure f;

	assert_int_equal(failure(w, TIMEOUT, 1).reason, THC_FAILED_NOT);
	f = failure(w, TIMEOUT + 1, 1);
	assert_int_equal(f.reason, THC_FAILED_SILENT);
	assert_int_equal(f.error, ETIMEDOUT);
	assert_int_equal(f.ranks, 0);
	wait_for(w, data, 0x3, 0);
	f = failure(w, TIMEOUT + 1, 1);
	assert_int_equal(f.reason, THC_FAILED_MISSING);
	assert_int_equal(f.error, ETIMEDOUT);
	assert_int_equal(f.ranks, 0xc);
	wait_for(w, norm, 0x4, THC_F_DIFFERS);
	f = failure(w, TIMEOUT + 1, 1);
	assert_int_equal(f.reason, THC_FAILED_DIFFERS);
	assert_int_equal(f.ranks, 0x4);
	thc_sender_unreachable(&w->s, EHOSTUNREACH, w->now);
	thc_sender_unreachable(&w->s, ECONNREFUSED, w->now + 1);
	f = failure(w, THC_UNREACHABLE_MS * THC_NS_PER_MS + 1, 1);
	assert_int_equal(f.reason, THC_FAILED_UNREACHABLE);
	assert_int_equal(f.error, ECONNREFUSED);
	assert_int_equal(f.ranks, 0);
	wait_for(w, data, 0x7, THC_F_LEFT);
	/* a job with a deadline goes on without who left */
	assert_int_equal(failure(w, 0, 0).reason, THC_FAILED_NOT);
	f = failure(w, 0, 1);
	assert_int_equal(f.reason, THC_FAILED_LEFT);
	assert_int_equal(f.error, EPIPE);
	assert_int_equal(f.ranks, 0x8);
}

/* An ICMP error with nothing in flight, and then a long pause: the aggregator did not fail to
 * answer.
 */
static void stall__a_complaint_before_the_question_does_not_count(void **state)
{
	struct worker *w = *state;
	u64 second = THC_UNREACHABLE_MS * THC_NS_PER_MS;

	thc_sender_unreachable(&w->s, EHOSTUNREACH, w->now);
	w->now += 10 * second;
	w->s.progress_at = w->now;
	launch_one(w, &w->s.data, 5);
	assert_int_equal(failure(w, second, 0).reason, THC_FAILED_NOT);
	/* a later error does not take back one that came with chunks in flight */
	thc_sender_unreachable(&w->s, EHOSTUNREACH, w->now);
	launch_one(w, &w->s.control, 5);
	assert_int_equal(failure(w, second + 1, 0).reason, THC_FAILED_UNREACHABLE);
}

/* --- headers -------------------------------------------------------------- */

static void header__request_is_as_the_wire_says(void **state)
{
	struct worker *w = *state;
	struct {
		struct thc_hdr h;
		u64 payload[2];
	} p;
	const u8 *bytes = (const u8 *)&p.h;

	memset(&p, 0xff, sizeof(p));
	w->s.job = 0x0102;
	w->s.rank = 3;
	w->s.epoch = 0x0a0b0c0d;
	thc_sender_request(&w->s, &w->s.control, &p.h, THC_OP_MAX, 32, 0x01020304,
			   3 * NORM_SLOTS + 5);
	assert_memory_equal(bytes, "\x02\x04\x20\x00", 4);
	/* the seal's fields */
	assert_memory_equal(bytes + 4, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
	assert_memory_equal(bytes + offsetof(struct thc_hdr, job), "\x01\x02", 2);
	assert_memory_equal(bytes + offsetof(struct thc_hdr, rank), "\x00\x03", 2);
	assert_memory_equal(bytes + offsetof(struct thc_hdr, epoch), "\x0a\x0b\x0c\x0d", 4);
	assert_memory_equal(bytes + offsetof(struct thc_hdr, round), "\x01\x02\x03\x04", 4);
	assert_memory_equal(bytes + offsetof(struct thc_hdr, slot), "\x01\x05", 2);
	assert_memory_equal(bytes + offsetof(struct thc_hdr, generation), "\x00\x00\x00\x03", 4);
	assert_memory_equal(bytes + offsetof(struct thc_hdr, chunk), "\x00\x00\x00\x1d", 4);
	assert_int_equal(p.h.count, 0);
	assert_int_equal(p.h.bitmap, 0);
	thc_seal(&p.h, w->s.seal, &w->s.up, p.payload, 2);
	assert_int_equal(p.h.key_id, w->s.up.id);
	assert_true(thc_seal_ok(&p.h, w->s.seal, &w->s.up, p.payload, 2));
	p.payload[1] ^= 1;
	assert_false(thc_seal_ok(&p.h, w->s.seal, &w->s.up, p.payload, 2));
}

/* Requests have no flags, whatever the seal; nor have membership packets. */
static void header__has_no_flags(void **state)
{
	struct worker *w = *state;
	struct thc_hdr h;
	u8 seal;

	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		begin_epoch(&w->s, seal == THC_SEAL_NH ? test_key : NULL, seal, 1);
		thc_sender_request(&w->s, &w->s.data, &h, THC_OP_LUT_ADD, 4, 1, 0);
		thc_seal(&h, w->s.seal, &w->s.up, NULL, 0);
		assert_int_equal(h.flags, 0);
		assert_int_equal(!h.tag, seal == THC_SEAL_NONE);
		thc_sender_header(&w->s, &h, THC_OP_LEAVE);
		thc_sender_seal_membership(&w->s, &h, NULL, 0);
		assert_int_equal(h.flags, 0);
		assert_true(h.tag);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(missing__nothing_in_flight_lacks_nobody),
		CASE(missing__is_what_the_last_wait_said),
		CASE(missing__only_the_oldest_chunk_counts),
		CASE(missing__the_oldest_is_found_after_a_wrap),
		CASE(missing__later_rounds_do_not_count),
		CASE(missing__norms_and_data_of_a_round_add_up),
		CASE(differs__names_whose_contribution_is_there),
		CASE(differs__in_norms_and_data_of_the_oldest_round),
		CASE(differs__not_once_it_is_in),
		CASE(stall__who_waits_for_nothing_never_does),
		CASE(stall__after_the_timeout),
		CASE(stall__a_rank_that_left_is_not_waited_for),
		CASE(stall__the_network_has_a_second),
		CASE(stall__says_why),
		CASE(stall__a_complaint_before_the_question_does_not_count),
		CASE(header__request_is_as_the_wire_says),
		CASE(header__has_no_flags),
	};

	return cmocka_run_group_tests_name("flight_stall", tests, NULL, NULL);
}
