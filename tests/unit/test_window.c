// SPDX-License-Identifier: GPL-2.0
/*
 * Congestion window and retransmission timeout of a worker, rule by rule, without sockets and
 * clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <thc/worker/window.h>

static void window__slow_start_doubles_per_round_trip(void **state)
{
	struct thc_window w = { 0 };
	uint32_t i, before;

	(void)state;
	thc_window_init(&w, 4096);
	before = thc_window_size(&w);
	for (i = 0; i < before; i++)
		thc_window_answer(&w, 1000);
	assert_int_equal(thc_window_size(&w), 2 * before);
}

static void window__never_exceeds_the_slots(void **state)
{
	struct thc_window w = { 0 };
	int i;

	(void)state;
	thc_window_init(&w, 100);
	for (i = 0; i < 10000; i++)
		thc_window_answer(&w, 1000);
	assert_int_equal(thc_window_size(&w), 100);
	thc_window_init(&w, 3);
	assert_int_equal(thc_window_size(&w), 3);
}

static void window__halves_once_a_round_trip(void **state)
{
	struct thc_window w = { 0 };

	(void)state;
	thc_window_init(&w, 4096);
	w.size = 512 * THC_WINDOW_ONE;
	assert_true(thc_window_loss(&w, 1000, 1512));
	assert_int_equal(thc_window_size(&w), 256);
	/* packets sent before the cut do not cut again */
	assert_false(thc_window_loss(&w, 1001, 1513));
	assert_false(thc_window_loss(&w, 1511, 1520));
	assert_int_equal(thc_window_size(&w), 256);
	assert_true(thc_window_loss(&w, 1512, 2000));
	assert_int_equal(thc_window_size(&w), 128);
	assert_int_equal(w.cuts, 2);
}

static void window__grows_by_a_segment_a_round_trip_after_a_cut(void **state)
{
	struct thc_window w = { 0 };
	int i;

	(void)state;
	thc_window_init(&w, 4096);
	w.size = 256 * THC_WINDOW_ONE;
	thc_window_loss(&w, 1, 300);
	assert_int_equal(thc_window_size(&w), 128);
	for (i = 0; i < 128; i++)
		thc_window_answer(&w, 0);
	assert_int_equal(thc_window_size(&w), 128 + THC_WINDOW_GROWTH - 1);
	for (i = 0; i < THC_WINDOW_GROWTH; i++)
		thc_window_answer(&w, 0);
	assert_int_equal(thc_window_size(&w), 128 + THC_WINDOW_GROWTH);
}

/* The window also grows when an answer's share is less than a unit of its size. */
static void window__grows_where_it_is_large(void **state)
{
	struct thc_window w = { 0 };
	int i;

	(void)state;
	thc_window_init(&w, THC_SLOTS_MAX);
	w.size = (THC_SLOTS_MAX - 2) * THC_WINDOW_ONE;
	w.threshold = w.size;
	for (i = 0; i < THC_SLOTS_MAX / THC_WINDOW_GROWTH - 3; i++)
		thc_window_answer(&w, 0);
	assert_int_equal(thc_window_size(&w), THC_SLOTS_MAX - 2);
	for (i = 0; i < 10; i++)
		thc_window_answer(&w, 0);
	assert_int_equal(thc_window_size(&w), THC_SLOTS_MAX - 1);
	for (i = 0; i < 2 * THC_SLOTS_MAX; i++)
		thc_window_answer(&w, 0);
	assert_int_equal(w.size, THC_SLOTS_MAX * THC_WINDOW_ONE);
}

static void window__keeps_a_floor(void **state)
{
	struct thc_window w = { 0 };
	uint64_t order = 0;
	int i;

	(void)state;
	thc_window_init(&w, 4096);
	for (i = 0; i < 50; i++, order += 10)
		thc_window_loss(&w, order, order + 1);
	assert_int_equal(thc_window_size(&w), THC_WINDOW_MIN);
	thc_window_init(&w, 2);
	thc_window_loss(&w, 0, 1);
	assert_int_equal(thc_window_size(&w), 2);
}

static void window__undoes_a_spurious_cut(void **state)
{
	struct thc_window w = { 0 };

	(void)state;
	thc_window_init(&w, 4096);
	w.size = 400 * THC_WINDOW_ONE;
	thc_window_loss(&w, 1, 2);
	assert_int_equal(thc_window_size(&w), 200);
	thc_window_spurious(&w);
	assert_int_equal(thc_window_size(&w), 400);
	/* and ends slow start */
	thc_window_answer(&w, 0);
	assert_int_equal(thc_window_size(&w), 401);
	/* only once */
	w.size = 100 * THC_WINDOW_ONE;
	thc_window_spurious(&w);
	assert_int_equal(thc_window_size(&w), 100);
}

static void window__keeps_the_cut_of_a_mark(void **state)
{
	struct thc_window w = { 0 };

	(void)state;
	thc_window_init(&w, 4096);
	w.size = 400 * THC_WINDOW_ONE;
	thc_window_mark(&w, 1, 2);
	assert_int_equal(thc_window_size(&w), 200);
	assert_int_equal(w.threshold, w.size);
	/* once a round trip, as with losses */
	thc_window_mark(&w, 1, 3);
	assert_int_equal(w.cuts, 1);
	thc_window_spurious(&w);
	assert_int_equal(thc_window_size(&w), 200);
	/* the timer's cut is undone, as if only the mark had cut */
	thc_window_stall(&w, 2, 10);
	assert_int_equal(thc_window_size(&w), 100);
	w.size = 120 * THC_WINDOW_ONE;
	thc_window_mark(&w, 10, 20);
	assert_int_equal(thc_window_size(&w), 60);
	thc_window_spurious(&w);
	assert_int_equal(thc_window_size(&w), 100);
	assert_int_equal(w.threshold / THC_WINDOW_ONE, 100);
}

static void rto__follows_the_round_trip(void **state)
{
	struct thc_window w = { 0 };
	int i;

	(void)state;
	thc_window_init(&w, 64);
	assert_int_equal(thc_window_rto(&w), THC_RTO_FIRST);
	for (i = 0; i < 100; i++)
		thc_window_answer(&w, 30 * THC_NS_PER_MS);
	assert_in_range(w.srtt, 30 * THC_NS_PER_MS - 1000, 30 * THC_NS_PER_MS + 1000);
	assert_in_range(thc_window_rto(&w), 30 * THC_NS_PER_MS - 1000, 34 * THC_NS_PER_MS);
	for (i = 0; i < 200; i++)
		thc_window_answer(&w, 10 * THC_NS_PER_US);
	assert_int_equal(thc_window_rto(&w), THC_RTO_MIN);
}

static void rto__ignores_retransmitted_packets(void **state)
{
	struct thc_window w = { 0 };

	(void)state;
	thc_window_init(&w, 64);
	thc_window_answer(&w, 5 * THC_NS_PER_MS);
	thc_window_answer(&w, 0);
	assert_int_equal(w.srtt, 5 * THC_NS_PER_MS);
}

static void rto__varies_with_the_deviation(void **state)
{
	struct thc_window w = { 0 };
	int i;

	(void)state;
	thc_window_init(&w, 64);
	for (i = 0; i < 400; i++)
		thc_window_answer(&w, (i & 1 ? 10 : 30) * THC_NS_PER_MS);
	/* mean 20 ms, deviation about 10 ms */
	assert_in_range(thc_window_rto(&w), 50 * THC_NS_PER_MS, 75 * THC_NS_PER_MS);
}

static void rto__does_not_grow_with_late_ranks(void **state)
{
	struct thc_window w = { 0 };
	int i;

	(void)state;
	thc_window_init(&w, 64);
	for (i = 0; i < 100; i++)
		thc_window_answer(&w, i % 10 ? 200 * THC_NS_PER_MS : 500 * THC_NS_PER_US);
	assert_in_range(w.srtt, 500 * THC_NS_PER_US, 3 * THC_NS_PER_MS);
	assert_in_range(thc_window_rto(&w), THC_RTO_MIN, 10 * THC_NS_PER_MS);
}

/* A queue grows on the way: two lots later timers know of it, and at once when it is gone. */
static void rto__follows_a_queue_on_the_way(void **state)
{
	struct thc_window w = { 0 };
	int i;

	(void)state;
	thc_window_init(&w, 64);
	thc_window_answer(&w, THC_NS_PER_MS);
	for (i = 0; i < 3 * THC_RTT_LOT; i++)
		thc_window_answer(&w, 40 * THC_NS_PER_MS);
	assert_in_range(w.srtt, 39 * THC_NS_PER_MS, 41 * THC_NS_PER_MS);
	for (i = 0; i < 60; i++)
		thc_window_answer(&w, THC_NS_PER_MS);
	assert_in_range(w.srtt, THC_NS_PER_MS - 1000, 2 * THC_NS_PER_MS);
	thc_window_answer(&w, 40 * THC_NS_PER_MS);
	assert_in_range(w.srtt, THC_NS_PER_MS - 1000, 3 * THC_NS_PER_MS);
}

static void backoff__doubles_and_is_bounded(void **state)
{
	struct thc_window w = { 0 };
	uint64_t rto;

	(void)state;
	thc_window_init(&w, 64);
	thc_window_answer(&w, 2 * THC_NS_PER_MS);
	rto = thc_window_rto(&w);
	assert_int_equal(thc_window_backoff(&w, 0), rto);
	assert_int_equal(thc_window_backoff(&w, 1), 2 * rto);
	assert_int_equal(thc_window_backoff(&w, 3), 8 * rto);
	assert_int_equal(thc_window_backoff(&w, 200), THC_BACKOFF_MAX);
}

static void reorder__follows_the_window(void **state)
{
	struct thc_window w = { 0 };

	(void)state;
	thc_window_init(&w, 4096);
	w.size = 1 * THC_WINDOW_ONE;
	assert_int_equal(thc_window_reorder(&w), THC_REORDER_MIN);
	w.size = 40 * THC_WINDOW_ONE;
	assert_int_equal(thc_window_reorder(&w), 10);
	w.size = 4096 * THC_WINDOW_ONE;
	assert_int_equal(thc_window_reorder(&w), THC_REORDER_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(window__slow_start_doubles_per_round_trip),
		cmocka_unit_test(window__never_exceeds_the_slots),
		cmocka_unit_test(window__halves_once_a_round_trip),
		cmocka_unit_test(window__grows_by_a_segment_a_round_trip_after_a_cut),
		cmocka_unit_test(window__grows_where_it_is_large),
		cmocka_unit_test(window__keeps_a_floor),
		cmocka_unit_test(window__undoes_a_spurious_cut),
		cmocka_unit_test(window__keeps_the_cut_of_a_mark),
		cmocka_unit_test(rto__follows_the_round_trip),
		cmocka_unit_test(rto__ignores_retransmitted_packets),
		cmocka_unit_test(rto__varies_with_the_deviation),
		cmocka_unit_test(rto__does_not_grow_with_late_ranks),
		cmocka_unit_test(rto__follows_a_queue_on_the_way),
		cmocka_unit_test(reorder__follows_the_window),
		cmocka_unit_test(backoff__doubles_and_is_bounded),
	};

	return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
