// SPDX-License-Identifier: GPL-2.0
/*
 * Which VLAN device is above an interface, by the kernel's own list of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "../../userspace/common/device.h"

/* As the kernel prints it. */
static char config[] = "VLAN Dev name\t | VLAN ID\n"
		       "Name-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n"
		       "eth01.5        | 5  | eth01\n"
		       "eth0.5         | 5  | eth0\n"
		       "storage        | 40  | eth0\n"
		       "averylongname15| 4094  | eth1\n";

static bool above(const char *interface, char *name)
{
	FILE *file = fmemopen(config, strlen(config), "r");
	bool found;

	assert_non_null(file);
	found = thc_vlan_above(file, interface, name, 16);
	fclose(file);
	return found;
}

static void vlan__any_above_an_interface(void **state)
{
	char name[16] = "";

	(void)state;
	assert_true(above("eth0", name));
	assert_string_equal(name, "eth0.5");
	name[0] = '\0';
	assert_true(above("eth1", name));
	assert_string_equal(name, "averylongname15");
	name[0] = '\0';
	assert_false(above("eth", name));
	assert_false(above("eth2", name));
}

static void vlan__a_device_by_name(void **state)
{
	char name[16] = "storage";

	(void)state;
	assert_true(above("eth0", name));
	assert_string_equal(name, "storage");
	assert_false(above("eth1", name));
	strcpy(name, "eth01.5");
	assert_false(above("eth0", name));
	assert_true(above("eth01", name));
	strcpy(name, "eth0");
	assert_false(above("eth0", name));
}

static void vlan__none_without_a_list(void **state)
{
	char name[16] = "";

	(void)state;
	assert_false(thc_vlan_above(NULL, "eth0", name, sizeof(name)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vlan__any_above_an_interface),
		cmocka_unit_test(vlan__a_device_by_name),
		cmocka_unit_test(vlan__none_without_a_list),
	};

	return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
