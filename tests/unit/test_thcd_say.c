// SPDX-License-Identifier: GPL-2.0
/* Lines that remote hosts can cause: each place that says one has a limit of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "thcd.h"

/* More than a place may say in two seconds. */
#define MANY	1000

static bool say_one(const char *what)
{
	return thcd_say_limited("a test says %s", what);
}

static bool say_another(const char *what)
{
	return thcd_say_limited("a test says %s, too", what);
}

static void say__nobody_silences_another(void **state)
{
	unsigned int i, said = 0;

	(void)state;
	for (i = 0; i < MANY; i++)
		said += say_one("much");
	assert_in_range(said, 1, MANY / 2);
	assert_true(say_another("little"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(say__nobody_silences_another),
	};

	return cmocka_run_group_tests_name("thcd_say", tests, NULL, NULL);
}
