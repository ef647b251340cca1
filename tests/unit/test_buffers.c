// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers that are used again, and when they are freed so that memory_now stays within twice the
 * bytes that count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "client.h"

#define MIB	((size_t)1 << 20)

/* A client without buffers; one bucket of @counted bytes is in progress. */
static struct thc_client client_with(size_t counted)
{
	struct thc_client c = { .counted_least = MIB / 2 };

	assert_int_equal(thc_budget_begin(&c, counted), counted);
	return c;
}

/* Takes a buffer and gives it back. */
static void *use(struct thc_client *c, size_t bytes)
{
	size_t room;
	void *buffer = thc_buffer_get(c, bytes, 0, &room);

	assert_non_null(buffer);
	assert_true(room >= bytes);
	memset(buffer, 1, room);
	thc_buffer_put(c, buffer, room);
	return buffer;
}

static void spare__is_used_again(void **state)
{
	struct thc_client c = client_with(100 * MIB);
	void *first = use(&c, 5 * MIB);

	(void)state;
	assert_ptr_equal(use(&c, 5 * MIB), first);
	assert_ptr_equal(use(&c, 4 * MIB), first);
	assert_int_equal(c.memory_now, 5 * MIB);
	/* more than a quarter larger than needed */
	use(&c, 4 * MIB - 1);
	assert_int_equal(c.memory_now, 9 * MIB - 1);
	thc_buffer_free(&c);
	assert_int_equal(c.memory_now, 0);
}

static void spare__that_nobody_uses_is_freed(void **state)
{
	struct thc_client c = client_with(100 * MIB);
	int i;

	(void)state;
	use(&c, 5 * MIB);
	for (i = 0; i < THC_SPARE_AGE + 1; i++)
		use(&c, MIB);
	assert_int_equal(c.memory_now, MIB);
	thc_buffer_free(&c);
}

/* The oldest first, and only as many as must. */
static void spare__gives_way(void **state)
{
	struct thc_client c = client_with(10 * MIB);
	size_t room;
	void *buffer;

	(void)state;
	use(&c, 8 * MIB);
	use(&c, 6 * MIB);
	use(&c, 4 * MIB);
	assert_int_equal(c.memory_now, 18 * MIB);
	buffer = thc_buffer_get(&c, 4 * MIB, 3 * MIB, &room);
	assert_int_equal(c.memory_now, 10 * MIB);
	thc_buffer_put(&c, buffer, room);
	buffer = thc_buffer_get(&c, 10 * MIB, MIB, &room);
	assert_int_equal(c.memory_now, 14 * MIB);
	assert_int_equal(room, 10 * MIB);
	thc_buffer_put(&c, buffer, room);
	thc_buffer_free(&c);
	assert_int_equal(c.memory_peak, 18 * MIB);
}

/* A buffer that fits is freed if the memory needed beside it would exceed the bound. */
static void spare__is_not_used_at_any_price(void **state)
{
	struct thc_client c = client_with(4 * MIB);
	size_t room;
	void *buffer;

	(void)state;
	use(&c, 5 * MIB);
	assert_int_equal(thc_budget_left(&c), 8 * MIB);
	buffer = thc_buffer_get(&c, 4 * MIB, 4 * MIB, &room);
	assert_int_equal(room, 4 * MIB);
	assert_int_equal(c.memory_now, 4 * MIB);
	assert_int_equal(thc_budget_left(&c), 4 * MIB);
	thc_buffer_put(&c, buffer, room);
	thc_buffer_free(&c);
}

/* Buffers are also freed for arrays without a buffer. */
static void spare__gives_way_to_arrays(void **state)
{
	struct thc_client c = client_with(4 * MIB);
	struct thc_taken taken = { 0 };

	(void)state;
	use(&c, 5 * MIB);
	assert_int_equal(thc_buffers_take(&c, &taken, 0, 3 * MIB, 0), 0);
	assert_int_equal(c.memory_now, 8 * MIB);
	thc_buffers_give(&c, &taken);
	assert_int_equal(thc_buffers_take(&c, &taken, 0, 3 * MIB, 1), 0);
	assert_int_equal(c.memory_now, 3 * MIB);
	thc_buffers_give(&c, &taken);
	assert_int_equal(c.memory_now, 0);
	thc_buffer_free(&c);
}

/* Two in progress count both, and the most there were at a time stays. */
static void counted__is_the_most_in_progress(void **state)
{
	struct thc_client c = client_with(4 * MIB);

	(void)state;
	assert_int_equal(thc_budget_left(&c), 8 * MIB);
	assert_int_equal(thc_budget_begin(&c, 3 * MIB), 3 * MIB);
	assert_int_equal(thc_budget_left(&c), 14 * MIB);
	thc_budget_end(&c, 4 * MIB);
	assert_int_equal(thc_budget_begin(&c, 2 * MIB), 2 * MIB);
	assert_int_equal(thc_budget_left(&c), 14 * MIB);
	/* at least the smallest count */
	assert_int_equal(thc_budget_begin(&c, 1), MIB / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spare__is_used_again),
		cmocka_unit_test(spare__that_nobody_uses_is_freed),
		cmocka_unit_test(spare__gives_way),
		cmocka_unit_test(spare__is_not_used_at_any_price),
		cmocka_unit_test(spare__gives_way_to_arrays),
		cmocka_unit_test(counted__is_the_most_in_progress),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
