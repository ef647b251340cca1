// SPDX-License-Identifier: GPL-2.0
/*
 * The instances that thcctl finds in a folder of control sockets and one of pins: each once, even
 * if its name is part of another name.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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
static int listener[THCCTL_INSTANCES_MAX + 1], listening;

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
	for (; listening; listening--)
		close(listener[listening - 1]);
	snprintf(command, sizeof(command), "rm -r %s", places.root);
	return system(command);
}

static void add(const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* Makes a control socket; returns its descriptor, whose close() makes the daemon dead. */
static int serve(const char *name)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s/%s", places.sockets, name);
	assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_true(listening < THCCTL_INSTANCES_MAX + 1);
	listener[listening++] = fd;
	return fd;
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

/* Entries are made in both orders, since the file system orders a listing. */
static void instances__one_name_is_part_of_another(void **state)
{
	(void)state;
	serve("eth01.sock");
	serve("eth0.sock");
	serve("eth.sock");
	serve("a eth.sock");
	expect("a eth|eth|eth0|eth01");
}

static void instances__a_part_is_pinned_only(void **state)
{
	(void)state;
	serve("eth01.sock");
	add(places.pins, "eth01");
	add(places.pins, "eth0");
	expect("eth0|eth01");
}

static void instances__socket_and_pins_are_one(void **state)
{
	(void)state;
	serve("eth0.5.sock");
	add(places.pins, "eth0_5");
	add(places.pins, "eth0_6");
	expect("eth0.5|eth0_6");
}

/* What was killed leaves its socket, and pins unless they were discarded. */
static void instances__the_dead_are_told_by_pins(void **state)
{
	(void)state;
	close(serve("eth0.sock"));
	close(serve("eth1.sock"));
	listening = 0;
	serve("eth2.sock");
	add(places.sockets, "eth3.sock");	/* no socket at all */
	add(places.pins, "eth1");
	add(places.pins, "eth2");
	expect("eth1|eth2");
}

/* A daemon that accepts no connection now still counts. */
static void instances__who_has_no_time_is_there(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int i, busy = 0, fd[4];

	(void)state;
	serve("eth0.sock");
	snprintf(un.sun_path, sizeof(un.sun_path), "%s/eth0.sock", places.sockets);
	for (i = 0; i < 4; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		busy += connect(fd[i], (struct sockaddr *)&un, sizeof(un)) && errno == EAGAIN;
	}
	assert_true(busy > 0);
	expect("eth0");
	for (i = 0; i < 4; i++)
		close(fd[i]);
}

static void instances__only_sockets_by_their_suffix(void **state)
{
	(void)state;
	serve("a.sockets.sock");
	serve("b.sock.old");
	serve("thcd.pid");
	serve(".sock");
	expect("a.sockets");
}

static void instances__more_than_fit_are_said(void **state)
{
	char name[32];
	int i;

	(void)state;
	for (i = 0; i <= THCCTL_INSTANCES_MAX; i++) {
		snprintf(name, sizeof(name), "i%d.sock", i);
		serve(name);
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
		cmocka_unit_test_setup_teardown(instances__the_dead_are_told_by_pins, setup,
						teardown),
		cmocka_unit_test_setup_teardown(instances__who_has_no_time_is_there, setup,
						teardown),
		cmocka_unit_test_setup_teardown(instances__only_sockets_by_their_suffix, setup,
						teardown),
		cmocka_unit_test_setup_teardown(instances__more_than_fit_are_said, setup, teardown),
	};

	return cmocka_run_group_tests_name("thcctl ask", tests, NULL, NULL);
}
