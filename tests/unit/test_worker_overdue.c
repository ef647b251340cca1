// SPDX-License-Identifier: GPL-2.0
/*
 * Retransmissions of overdue chunks (include/thc/worker/overdue.h): when, how many at once, and
 * what changes that.
 */
#include "worker.h"

static void timers__ask_for_the_oldest_and_back_off(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u64 begin = w->now, rto = THC_RTO_FIRST, sent[8], due;

	launch_data(w, 20);
	assert_int_equal(again(w, st, sent, 8, &due), 0);
	assert_int_equal(due, begin + rto);
	w->now = begin + rto - 1;
	assert_int_equal(again(w, st, sent, 8, &due), 0);
	w->now = begin + rto;
	assert_int_equal(again(w, st, sent, 8, &due), THC_PROBES);
	assert_int_equal(sent[0], 0);
	assert_int_equal(sent[1], 1);
	/* eighteen more are due, but the network is silent */
	assert_int_equal(due, w->now + rto);
	assert_int_equal(w->s.stalls, 1);
	w->now = due - 1;
	assert_int_equal(again(w, st, sent, 8, &due), 0);
	assert_int_equal(due, w->now + 1);
	w->now = due;
	assert_int_equal(again(w, st, sent, 8, &due), THC_PROBES);
	/* chunks that were sent again come after those that were not */
	assert_int_equal(sent[0], 2);
	assert_int_equal(sent[1], 3);
	assert_int_equal(due, w->now + 2 * rto);
	w->now = due;
	assert_int_equal(again(w, st, sent, 8, &due), THC_PROBES);
	assert_int_equal(due, w->now + 4 * rto);
	w->now = due;
	assert_int_equal(again(w, st, sent, 8, &due), THC_PROBES);
	assert_int_equal(due, w->now + THC_BACKOFF_MAX);
}

/* Slots are used over and over: the oldest chunk is not the one in slot 0. */
static void timers__ask_for_the_oldest_after_a_wrap(void **state)
{
	struct worker *w = *state;

	launch_data(w, DATA_SLOTS);
	answer_data(w, 0, 10);
	launch_data(w, 10);
	w->now += THC_RTO_MAX;
	assert_again(w, &w->s.data, 10, THC_PROBES);
}

static void timers__of_one_packet_grow_and_do_not_wrap(void **state)
{
	struct worker *w = *state;
	u64 sent[4];
	u32 i;

	launch_data(w, 1);
	for (i = 1; i <= THC_TRIES_MAX + 10; i++) {
		u32 tries = i < THC_TRIES_MAX ? i : THC_TRIES_MAX;

		w->now = data(w, 0)->due + THC_RTO_MAX;
		assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 1);
		assert_int_equal(data(w, 0)->tries, tries);
		assert_int_equal(data(w, 0)->due, w->now + THC_RTO_FIRST * (1 + tries));
	}
}

/* Time passes while norms wait for a rank. Returns the number of data chunks that were sent again.
 */
static u32 norms_wait(struct worker *w)
{
	u64 sent[NORM_SLOTS];
	u32 i, n;

	w->now += THC_RTO_MIN;
	n = again(w, &w->s.control, sent, NORM_SLOTS, NULL);
	for (i = 0; i < n; i++)
		assert_int_equal(take_wait(w, &w->s.control, sent[i], 0, 1), THC_GOT_WAIT);
	return again(w, &w->s.data, sent, NORM_SLOTS, NULL);
}

/* Norms wait for a rank, which waits for lost data. Both streams share the timers, norms first:
 * the norms' pauses grow until data gets a turn.
 */
static void timers__leave_turns_to_others(void **state)
{
	struct worker *w = *state;
	u64 begin = w->now;
	u32 n = 0;

	w->s.control.reserved = THC_PROBES;
	assert_int_equal(launch_all(w, &w->s.control, NORM_SLOTS, ~0U), THC_PROBES);
	while (w->now < begin + 20 * THC_BACKOFF_MAX)
		assert_int_equal(norms_wait(w), 0);
	launch_data(w, 1);
	while (!n && w->now < begin + 100 * THC_BACKOFF_MAX)
		n = norms_wait(w);
	assert_int_equal(n, 1);
	assert_true(w->now < begin + 25 * THC_BACKOFF_MAX);
}

static void timers__double_the_probes_while_these_were_lost(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u32 probes, next = 1;
	u64 due;

	launch_data(w, 1);
	w->now += RTT;
	answer_data(w, 0, 1);
	launch_data(w, DATA_SLOTS);
	w->now += THC_RTO_MIN;
	for (probes = THC_PROBES; probes <= THC_PROBES_MAX; probes *= 2) {
		assert_again(w, st, next, probes);
		/* a retransmitted chunk is answered: send more, unless other answers come first */
		answer_data(w, next, next + 1);
		assert_int_equal(w->s.stalls, 0);
		assert_int_equal(w->s.timers_at, w->now + RTT / 4);
		w->now = w->s.timers_at;
		next += probes;
	}
	assert_int_equal(w->s.probes, THC_PROBES_MAX);
	assert_int_equal(w->s.window.cuts, 1);
	assert_again(w, st, next, THC_PROBES_MAX);
	/* an answer to a first transmission: nothing is lost any more */
	answer_data(w, DATA_SLOTS, DATA_SLOTS + 1);
	assert_int_equal(w->s.probes, THC_PROBES);
	assert_int_equal(w->s.timers_at, w->now + thc_window_rto(&w->s.window));
	again(w, st, (u64[DATA_SLOTS]){ 0 }, DATA_SLOTS, &due);
	assert_true(due >= w->now + thc_window_rto(&w->s.window));
}

static void timers__wait_ends_the_doubling(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;

	launch_data(w, 32);
	w->now += THC_RTO_FIRST;
	assert_again(w, st, 0, THC_PROBES);
	answer_data(w, 0, 1);
	assert_int_equal(w->s.probes, 2 * THC_PROBES);
	assert_int_equal(take_wait(w, st, 1, 0, 1), THC_GOT_WAIT);
	assert_int_equal(w->s.probes, THC_PROBES);
	/* the chunk was sent again after a WAIT, so it was not lost either */
	answer_data(w, 1, 2);
	assert_int_equal(w->s.probes, THC_PROBES);
	assert_int_equal(w->s.timers_at, w->now + thc_window_rto(&w->s.window));
}

/* ICMP errors end nothing while the aggregator answers. The worker asks it at once, however late
 * the timer of a waiting chunk is.
 */
static void complaint__is_asked_about(void **state)
{
	struct worker *w = *state;
	u64 sent[4];
	u32 i;

	launch_data(w, 1);
	for (i = 0; i < 100; i++) {
		w->now = data(w, 0)->due + THC_RTO_MAX;
		assert_true(again(w, &w->s.data, sent, 4, NULL) > 0);
		assert_int_equal(take_wait(w, &w->s.data, 0, 0, 1), THC_GOT_WAIT);
	}
	assert_true(data(w, 0)->due > w->now + 5 * THC_ASK);
	w->now += THC_ASK;
	assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 0);
	thc_sender_unreachable(&w->s, ECONNREFUSED, w->now);
	for (i = 0; i < 3; i++) {
		assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 1);
		assert_int_equal(sent[0], 0);
		w->now += THC_ASK - 1;
		assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 0);
		w->now++;
	}
	/* receive.h does so for a valid packet */
	w->s.unreachable_at = 0;
	assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 0);
}

static void timers__are_none_where_nothing_is_in_flight(void **state)
{
	struct worker *w = *state;
	u64 due;

	assert_int_equal(again(w, &w->s.data, NULL, 1, &due), 0);
	assert_true(due == ~0ULL);
	launch_data(w, 1);
	answer_data(w, 0, 1);
	w->now += 1000 * THC_NS_PER_MS;
	assert_int_equal(again(w, &w->s.data, NULL, 1, &due), 0);
	assert_true(due == ~0ULL);
}

static void timers__resume_where_the_batch_was_full(void **state)
{
	struct worker *w = *state;
	u64 sent[3];

	launch_data(w, 64);
	answer_data(w, 63, 64);
	assert_int_equal(again(w, &w->s.data, sent, 3, NULL), 3);
	assert_int_equal(sent[2], 2);
	assert_int_equal(again(w, &w->s.data, sent, 3, NULL), 3);
	assert_int_equal(sent[0], 3);
	assert_int_equal(sent[2], 5);
}

/* All timers of one stall cut the window once. */
static void stall__cuts_the_window_once(void **state)
{
	struct worker *w = *state;
	u64 due, sent[8];
	u32 i;

	launch_data(w, THC_PROBES);
	w->now += THC_RTO_FIRST;
	for (i = 0; i < 6; i++) {
		assert_true(again(w, &w->s.data, sent, 8, &due));
		assert_int_equal(w->s.window.cuts, 1);
		assert_int_equal(thc_window_size(&w->s.window), THC_WINDOW_FIRST / 2);
		w->now = due;
	}
}

/* All answers were late, and timers too early. */
static void stall__of_late_answers_keeps_the_window(void **state)
{
	struct worker *w = *state;

	launch_data(w, 20);
	w->now += THC_RTO_FIRST;
	assert_again(w, &w->s.data, 0, THC_PROBES);
	/* an answer to either of the chunk's two packets */
	answer_data(w, 0, 1);
	assert_int_equal(thc_window_size(&w->s.window), THC_WINDOW_FIRST / 2);
	/* this one was sent once */
	answer_data(w, THC_PROBES, THC_PROBES + 1);
	assert_true(thc_window_size(&w->s.window) >= THC_WINDOW_FIRST);
	assert_int_equal(w->s.probes, THC_PROBES);
	assert_int_equal(w->s.timers_at, w->now + thc_window_rto(&w->s.window));
}

/* Packets of the stall were lost after all: that cut stays. */
static void stall__with_losses_keeps_the_cut(void **state)
{
	struct worker *w = *state;
	u32 last = DATA_SLOTS - 1;
	u64 sent[DATA_SLOTS];

	launch_data(w, DATA_SLOTS);
	w->now += THC_RTO_FIRST;
	assert_again(w, &w->s.data, 0, THC_PROBES);
	/* the answer undoes the timer's cut, and shows losses before it */
	answer_data(w, last, last + 1);
	assert_true(thc_window_size(&w->s.window) >= THC_WINDOW_FIRST);
	assert_true(again(w, &w->s.data, sent, DATA_SLOTS, NULL) > THC_PROBES);
	assert_int_equal(w->s.window.cuts, 2);
	assert_int_equal(thc_window_size(&w->s.window), THC_WINDOW_FIRST / 2);
	answer_data(w, last - 1, last);
	assert_int_equal(thc_window_size(&w->s.window), THC_WINDOW_FIRST / 2);
}

/* Packets are sent again before their answers can come, until an answer has shown the path's
 * delay.
 */
static void timers__learn_that_the_path_is_slow(void **state)
{
	struct worker *w = *state;
	u64 slow = 3 * THC_RTO_FIRST, sent[DATA_SLOTS], chunk, start;
	u32 wasted = 0;

	for (chunk = 0; chunk < 20; chunk++) {
		launch_data(w, 1);
		start = w->now;
		for (; w->now < start + slow; w->now += RTT)
			wasted += again(w, &w->s.data, sent, DATA_SLOTS, NULL);
		answer_data(w, chunk, chunk + 1);
	}
	assert_true(thc_window_rto(&w->s.window) > slow);
	assert_true(wasted > 0 && wasted <= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(timers__ask_for_the_oldest_and_back_off),
		CASE(timers__ask_for_the_oldest_after_a_wrap),
		CASE(timers__of_one_packet_grow_and_do_not_wrap),
		CASE(timers__leave_turns_to_others),
		CASE(timers__double_the_probes_while_these_were_lost),
		CASE(timers__wait_ends_the_doubling),
		CASE(complaint__is_asked_about),
		CASE(timers__are_none_where_nothing_is_in_flight),
		CASE(timers__resume_where_the_batch_was_full),
		CASE(timers__learn_that_the_path_is_slow),
		CASE(stall__cuts_the_window_once),
		CASE(stall__of_late_answers_keeps_the_window),
		CASE(stall__with_losses_keeps_the_cut),
	};

	return cmocka_run_group_tests_name("flight_timers", tests, NULL, NULL);
}
