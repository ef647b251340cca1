// SPDX-License-Identifier: GPL-2.0
/* Log lines that remote hosts can cause: each call site has a limit of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "thcd.h"

/* More lines than a call site may print in two seconds. */
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
	char what[32];

	(void)state;
	for (i = 0; i < MANY; i++) {
		snprintf(what, sizeof(what), "much, %u", i);
		said += say_one(what);
	}
	assert_in_range(said, 2, MANY / 2);
	assert_true(say_another("little"));
}

/* Checks stderr after @say, which prints several lines. */
static void expect(void (*say)(void), const char *lines)
{
	FILE *file = tmpfile();
	int was = dup(STDERR_FILENO);
	char text[4096];

	assert_non_null(file);
	assert_true(was >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
	say();
	fflush(stderr);
	dup2(was, STDERR_FILENO);
	close(was);
	rewind(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(text, lines);
}

static struct thcd_limit limit;

/* Two kinds of lines in turn, as of two workers with a wrong key. */
static void say_in_turns(void)
{
	int i;

	for (i = 0; i < 18; i++)
		thcd_say_within(&limit, "refused rank %d", i % 2);
}

static void say_later(void)
{
	int i;

	for (i = 0; i < THCD_SAID; i++)
		limit.said[i].at_ms -= limit.said[i].at_ms ? THCD_SAY_AGAIN_MS : 0;
	thcd_say_within(&limit, "refused rank 1");
	thcd_say_within(&limit, "refused rank 1");
	thcd_say_within(&limit, "refused rank 2");
}

static void say__the_same_is_said_once_and_how_often(void **state)
{
	(void)state;
	expect(say_in_turns, "thcd: refused rank 0\nthcd: refused rank 1\n");
	expect(say_later, "thcd: refused rank 1 (and 8 times before)\nthcd: refused rank 2\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(say__nobody_silences_another),
		cmocka_unit_test(say__the_same_is_said_once_and_how_often),
	};

	return cmocka_run_group_tests_name("thcd_say", tests, NULL, NULL);
}
