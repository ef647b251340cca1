// SPDX-License-Identifier: GPL-2.0
/*
 * How scheme lhc chooses its index: by the densities of rounds up to the one before the last, in
 * the order of rounds, whichever ended first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "client.h"
#include "history.h"

static unsigned int levels(struct thc_client *c, struct thc_history *h, uint64_t key,
			   uint64_t round, size_t items)
{
	const struct thc_habit *habit = thc_history_begin(c, h, key, round);

	assert_non_null(habit);
	return habit->rest ? 0 : thc_habit_levels(habit, items);
}

static void end(struct thc_client *c, struct thc_history *h)
{
	thc_buffer_drop(c, &h->habits);
	assert_int_equal(c->memory_now, 0);
}

static void levels__follow_density(void **state)
{
	static const struct {
		int32_t density;
		unsigned int levels;
	} rows[] = {
		{ 0, 3 }, { 2999, 3 }, { 3000, 2 }, { 249999, 2 }, { 250000, 1 }, { 690000, 1 },
	};
	struct thc_client c = { .counted_most = 1 << 20 };
	struct thc_history h = { .count = 0 };
	unsigned int i;

	(void)state;
	assert_int_equal(levels(&c, &h, 5, 0, 10000000), 2);
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		thc_history_note(&h, 5, 3 * i, rows[i].density);
		assert_int_equal(levels(&c, &h, 5, 3 * i + 2, 10000000), rows[i].levels);
		/* few items need few levels */
		assert_int_equal(levels(&c, &h, 5, 3 * i + 2, 8192), 1);
		assert_int_equal(levels(&c, &h, 5, 3 * i + 2, 8193), rows[i].levels == 1 ? 1 : 2);
		assert_int_equal(levels(&c, &h, 5, 3 * i + 2, 8193 * 32), rows[i].levels);
	}
	end(&c, &h);
}

static void rounds__up_to_the_one_before_the_last(void **state)
{
	struct thc_client c = { .counted_most = 1 << 20 };
	struct thc_history h = { .count = 0 };

	(void)state;
	levels(&c, &h, 1, 0, 10000000);
	thc_history_note(&h, 1, 0, 1);
	assert_int_equal(levels(&c, &h, 1, 1, 10000000), 2);
	assert_int_equal(levels(&c, &h, 1, 2, 10000000), 3);
	/* round 2 ends before round 1 does */
	thc_history_note(&h, 1, 2, 500000);
	thc_history_note(&h, 1, 1, 100000);
	assert_int_equal(levels(&c, &h, 1, 3, 10000000), 2);
	assert_int_equal(levels(&c, &h, 1, 4, 10000000), 1);
	/* both rounds at once; the other key has its own densities */
	levels(&c, &h, 2, 4, 10000000);
	thc_history_note(&h, 2, 4, 0);
	thc_history_note(&h, 1, 3, 0);
	assert_int_equal(levels(&c, &h, 1, 9, 10000000), 3);
	assert_int_equal(levels(&c, &h, 2, 9, 10000000), 3);
	end(&c, &h);
}

/* Notes in @full which of the key's 100 rounds have no index. */
static void run_rounds(struct thc_client *c, struct thc_history *h, int32_t density,
		       unsigned int from, unsigned int to, unsigned int *without,
		       unsigned int *first)
{
	unsigned int round;

	*without = 0;
	for (round = from; round < to; round++) {
		if (levels(c, h, 7, round, 10000000)) {
			thc_history_note(h, 7, round, density);
			continue;
		}
		if (!(*without)++)
			*first = round;
		thc_history_note(h, 7, round, THC_DENSITY_UNKNOWN);
	}
}

static void full__unions_are_looked_at_again(void **state)
{
	struct thc_client c = { .counted_most = 1 << 20 };
	struct thc_history h = { .count = 0 };
	unsigned int without, first = 0;

	(void)state;
	run_rounds(&c, &h, 700001, 0, 74, &without, &first);
	/* eight full ones, and one more until the eighth counts */
	assert_int_equal(first, 9);
	assert_int_equal(without, 65);
	/* after one round with an index, as many rounds again have none */
	run_rounds(&c, &h, 700001, 74, 74 + 66, &without, &first);
	assert_int_equal(without, 64);
	/* between the bounds nothing changes; below them the count begins anew */
	run_rounds(&c, &h, 650000, 140, 240, &without, &first);
	assert_in_range(without, 1, 66);
	run_rounds(&c, &h, 700000, 240, 340, &without, &first);
	assert_int_equal(without, 0);
	run_rounds(&c, &h, 599999, 340, 343, &without, &first);
	run_rounds(&c, &h, 800000, 343, 350, &without, &first);
	assert_int_equal(without, 0);
	end(&c, &h);
}

/* Rows have an index in every round, and each round notes a density. */
static void rows__have_levels_while_a_key_rests(void **state)
{
	struct thc_client c = { .counted_most = 1 << 20 };
	struct thc_history h = { .count = 0 };
	unsigned int round, rests = 0;

	(void)state;
	for (round = 0; round < 200; round++) {
		const struct thc_habit *habit = thc_history_begin(&c, &h, 7, round);

		assert_non_null(habit);
		rests += habit->rest > 0;
		if (round > 12)
			assert_int_equal(thc_habit_levels(habit, 10000000), 3);
		thc_history_note(&h, 7, round, round < 8 ? 900000 : 100);
	}
	assert_int_equal(rests, 64);
	end(&c, &h);
}

static void keys__as_many_as_there_are(void **state)
{
	struct thc_client c = { .counted_most = 1 << 20 };
	struct thc_history h = { .count = 0 };
	unsigned int key;

	(void)state;
	for (key = 0; key < 100; key++) {
		levels(&c, &h, key, 2 * key, 10000000);
		thc_history_note(&h, key, 2 * key, key % 2 ? 0 : 500000);
	}
	for (key = 0; key < 100; key++)
		assert_int_equal(levels(&c, &h, key, 1000, 10000000), key % 2 ? 3 : 1);
	end(&c, &h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(levels__follow_density),
		cmocka_unit_test(rounds__up_to_the_one_before_the_last),
		cmocka_unit_test(full__unions_are_looked_at_again),
		cmocka_unit_test(rows__have_levels_while_a_key_rests),
		cmocka_unit_test(keys__as_many_as_there_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
