// SPDX-License-Identifier: GPL-2.0
/*
 * Which instances thcctl finds in a folder of control sockets and one of pins:
 * each once, whatever other names it is part of.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "thcctl.h"

/* A folder for each: entries are made by name, and all removed at the end. */
struct places {
	char	root[32];
	char	sockets[48];
	char	pins[48];
};

static struct places places;
static struct thcctl_instances found;

static int setup(void **state)
{
	(void)state;
	strcpy(places.root, "/tmp/thcctl-ask-XXXXXX");
	if (!mkdtemp(places.root))
		return -1;
	snprintf(places.sockets, sizeof(places.sockets), "%s/run", places.root);
	snprintf(places.pins, sizeof(places.pins), "%s/bpf", places.root);
	return mkdir(places.sockets, 0700) || mkdir(places.pins, 0700);
}

static int teardown(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", places.root);
	return system(command);
}

static void add(const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void expect(const char *names)
{
	char text[THCCTL_INSTANCES_MAX * (THCCTL_NAME_BYTES + 1)] = "";
	int i;

	thcctl_find_instances(places.sockets, places.pins, &found);
	for (i = 0; i < found.count; i++) {
		strcat(text, i ? "|" : "");
		strcat(text, found.name[i]);
	}
	assert_string_equal(text, names);
}

static void instances__none(void **state)
{
	(void)state;
	expect("");
	thcctl_find_instances("/nonexistent", "/nonexistent", &found);
	assert_int_equal(found.count, 0);
}

/* In both orders of making, since the order of reading is the file system's. */
static void instances__one_name_is_part_of_another(void **state)
{
	(void)state;
	add(places.sockets, "eth01.sock");
	add(places.sockets, "eth0.sock");
	add(places.sockets, "eth.sock");
	add(places.sockets, "a eth.sock");
	expect("a eth|eth|eth0|eth01");
}

static void instances__a_part_is_pinned_only(void **state)
{
	(void)state;
	add(places.sockets, "eth01.sock");
	add(places.pins, "eth01");
	add(places.pins, "eth0");
	expect("eth0|eth01");
}

static void instances__socket_and_pins_are_one(void **state)
{
	(void)state;
	add(places.sockets, "eth0.5.sock");
	add(places.pins, "eth0_5");
	add(places.pins, "eth0_6");
	expect("eth0.5|eth0_6");
}

static void instances__only_sockets_by_their_suffix(void **state)
{
	(void)state;
	add(places.sockets, "a.sockets.sock");
	add(places.sockets, "b.sock.old");
	add(places.sockets, "thcd.pid");
	add(places.sockets, ".sock");
	expect("a.sockets");
}

static void instances__more_than_fit_are_said(void **state)
{
	char name[32];
	int i;

	(void)state;
	for (i = 0; i <= THCCTL_INSTANCES_MAX; i++) {
		snprintf(name, sizeof(name), "i%d.sock", i);
		add(places.sockets, name);
	}
	thcctl_find_instances(places.sockets, places.pins, &found);
	assert_int_equal(found.count, THCCTL_INSTANCES_MAX);
	assert_true(found.more);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(instances__none, setup, teardown),
		cmocka_unit_test_setup_teardown(instances__one_name_is_part_of_another, setup,
						teardown),
		cmocka_unit_test_setup_teardown(instances__a_part_is_pinned_only, setup, teardown),
		cmocka_unit_test_setup_teardown(instances__socket_and_pins_are_one, setup,
						teardown),
		cmocka_unit_test_setup_teardown(instances__only_sockets_by_their_suffix, setup,
						teardown),
		cmocka_unit_test_setup_teardown(instances__more_than_fit_are_said, setup, teardown),
	};

	return cmocka_run_group_tests_name("thcctl ask", tests, NULL, NULL);
}
