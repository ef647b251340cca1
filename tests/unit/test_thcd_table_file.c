// SPDX-License-Identifier: GPL-2.0
/*
 * Tables as files, in the form of the published ones: written here as numpy.savetxt() and str()
 * of a dictionary write them. What was cut off or changed is refused by a sentence that names its
 * line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <sys/stat.h>

#include "plan.h"

#define NAME	"1001_tablesize_30_maxval_16_qlevels_32_ofreq_"

static const unsigned int published[16] = { 0,	3,  5,	7,  9,	11, 13, 14,
					    16, 17, 19, 21, 23, 25, 27, 30 };
static const char data[] =
	"{'delta': 0.00430774938812295, 'T': 2.1538746940614564, 'inc': 0.14359164627076377}";

static char folder[] = "/tmp/thc-tables-XXXXXX";
static struct thcd_error error;
static struct thcd_job_wish wish;

static const char *path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void write_bytes(const char *name, const char *text, size_t bytes)
{
	FILE *f = fopen(path_of(name), "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, bytes, f), bytes);
	assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text)
{
	write_bytes(name, text, strlen(text));
}

/* As numpy.savetxt() writes whole numbers. */
static char *levels_text(const unsigned int *levels, unsigned int count)
{
	static char text[8192];
	unsigned int i;

	for (*text = '\0', i = 0; i < count; i++)
		sprintf(text + strlen(text), "%.18e\n", (double)levels[i]);
	return text;
}

static int set(const char *key, const char *value)
{
	return thcd_job_wish_set(&wish, key, value, &error);
}

/* Reads the table @name as table=@ does. */
static int take(const char *name)
{
	char value[300];

	thcd_job_wish_init(&wish);
	error.text[0] = '\0';
	snprintf(value, sizeof(value), "@%s", path_of(name));
	return set("table", value);
}

static void refused(const char *name, const char *words)
{
	assert_int_equal(take(name), -1);
	if (!strstr(error.text, words))
		fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static int make(struct thcd_plan *plan)
{
	const struct thc_addr at = thc_addr_v4(thc_be32(0x0a000064));
	struct thcd_error note;

	assert_int_equal(set("job", "1"), 0);
	assert_int_equal(set("ranks", "8"), 0);
	assert_int_equal(set("seal", "sum"), 0);
	return thcd_plan_make(plan, &wish, &at, 18500, &note, &error);
}

static void file__is_the_table_that_it_holds(void **state)
{
	struct thcd_plan plan, listed;
	unsigned int z;

	(void)state;
	write_text(NAME "recv_table.txt", levels_text(published, 16));
	write_text(NAME "data.txt", data);
	if (take(NAME "recv_table.txt"))
		fail_msg("%s", error.text);
	assert_int_equal(wish.bits, 4);
	assert_int_equal(wish.values, 16);
	if (make(&plan))
		fail_msg("%s", error.text);
	for (z = 0; z < 16; z++)
		assert_int_equal(plan.tables.level[16 + z], published[z]);
	assert_int_equal(plan.tables.granularity[3], 30);
	assert_int_equal(plan.tables.widths.sum[3], 8);
	/* the same constants as those of a list, to the last bit of the clamp */
	thcd_job_wish_init(&wish);
	assert_int_equal(set("table", "0:3:5:7:9:11:13:14:16:17:19:21:23:25:27:30"), 0);
	assert_int_equal(set("clamp", "1/32"), 0);
	assert_int_equal(make(&listed), 0);
	assert_int_equal(plan.table_hash, listed.table_hash);
	assert_true(plan.tables.clamp[3] == listed.tables.clamp[3]);
}

/* Other keys must agree with the file. */
static void file__settles_bits_and_clamp(void **state)
{
	static const unsigned int eight[8] = { 0, 3, 5, 7, 9, 11, 13, 16 };
	struct thcd_plan plan;
	double t;

	(void)state;
	write_text("t_recv_table.txt", levels_text(eight, 8));
	write_text("t_data.txt", "{'T': 2.4175590162365053}");
	assert_int_equal(take("t_recv_table.txt"), 0);
	assert_int_equal(wish.bits, 3);
	assert_int_equal(make(&plan), 0);
	assert_int_equal(plan.bits, 3);
	memcpy(&t, &plan.tables.clamp[2], sizeof(t));
	assert_true(t > 2.417559015 && t < 2.417559017);
	assert_int_equal(take("t_recv_table.txt"), 0);
	assert_int_equal(set("bits", "4"), 0);
	assert_int_equal(make(&plan), -1);
	assert_non_null(strstr(error.text, "table: 8 levels given, bits=4 needs 16"));
	assert_int_equal(take("t_recv_table.txt"), 0);
	assert_int_equal(set("granularity", "17"), 0);
	assert_int_equal(make(&plan), -1);
	assert_non_null(strstr(error.text, "but the table ends with 16"));
	assert_int_equal(take("t_recv_table.txt"), 0);
	assert_int_equal(set("clamp", "1/32"), 0);
	assert_int_equal(make(&plan), -1);
	assert_non_null(strstr(error.text, "the table's file has its own"));
}

/* No truncated file of levels is accepted, neither as its table nor as another. A truncated
 * data.txt is, if all digits of T are there.
 */
static void file__that_was_cut_off(void **state)
{
	const char *text = levels_text(published, 16);
	size_t bytes;

	(void)state;
	write_text(NAME "data.txt", data);
	for (bytes = 0; bytes < strlen(text); bytes++) {
		write_bytes(NAME "recv_table.txt", text, bytes);
		assert_int_equal(take(NAME "recv_table.txt"), -1);
		assert_non_null(strstr(error.text, NAME));
	}
	write_bytes(NAME "recv_table.txt", text, 25 * 5 + 7);
	refused(NAME "recv_table.txt", "recv_table.txt:6: the line has no end");
	write_bytes(NAME "recv_table.txt", text, 25 * 5);
	refused(NAME "recv_table.txt", "recv_table.txt:6: the file ends after 5 levels");
	/* a table of 3 bits, if the name did not know better */
	write_bytes(NAME "recv_table.txt", text, 25 * 8);
	refused(NAME "recv_table.txt", "has 8 levels, and its name says 16");
	write_text(NAME "recv_table.txt", text);
	for (bytes = 0; bytes < sizeof(data) - 1; bytes++) {
		write_bytes(NAME "data.txt", data, bytes);
		assert_int_equal(take(NAME "recv_table.txt") == 0,
				 bytes > strlen("{'delta': 0.00430774938812295, "
						"'T': 2.1538746940614564"));
	}
}

static void file__with_lines_that_are_no_levels(void **state)
{
	static const struct {
		const char *text;
		const char *words;
	} wrong[] = {
		{ "", "_recv_table.txt:1: the file ends after 0 levels" },
		{ "0.0\n", ":2: the file ends after 1 level," },
		{ "0.0\n3.0\n5.0\n", ":4: the file ends after 3 levels" },
		{ "0.0\r\n3.0\r\n", ":1: the line ends with a carriage return" },
		{ "0.0\n3.0\r\n", ":2: the line ends with a carriage return" },
		{ "0.0\n\n3.0\n", ":2: \"\" is not a level" },
		{ "0.0\n3.5\n", ":2: \"3.5\" is not a level, a whole number from 0 to 4095" },
		{ "0.0\n4096\n", ":2: \"4096\" is not a level" },
		{ "0.0\n-3\n", ":2: \"-3\" is not a level" },
		{ "0.0\n 3\n", ":2: \" 3\" is not a level" },
		{ "0.0\n3 \n", ":2: \"3 \" is not a level" },
		{ "0.0\n3e\n", ":2: \"3e\" is not a level" },
		{ "0.0\n0x3\n", ":2: \"0x3\" is not a level" },
		{ "0.0\nnan\n", ":2: \"nan\" is not a level" },
		{ "0.0\ninf\n", ":2: \"inf\" is not a level" },
		{ "0.0\n1e999\n", ":2: \"1e999\" is not a level" },
		{ "0.0\n__import__('os')\n", ":2: \"__import__('os')\" is not a level" },
		{ "1.0\n3.0\n", ":1: the first level is 1, and has to be 0" },
		{ "0.0\n8.0\n8.0\n9.0\n", ":3: level 8 is there twice" },
		{ "0.0\n8.0\n7.0\n9.0\n", ":3: level 7 follows 8: levels have to rise" },
	};
	unsigned int i, many[257];

	(void)state;
	write_text("t_data.txt", "{'T': 2.1538746940614564}");
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		write_text("t_recv_table.txt", wrong[i].text);
		refused("t_recv_table.txt", wrong[i].words);
	}
	for (i = 0; i < 257; i++)
		many[i] = i;
	write_text("t_recv_table.txt", levels_text(many, 256));
	assert_int_equal(take("t_recv_table.txt"), 0);
	assert_int_equal(wish.bits, 8);
	write_text("t_recv_table.txt", levels_text(many, 257));
	refused("t_recv_table.txt", ":257: more than 256 levels");
}

static void file__with_a_wrong_clamp(void **state)
{
	static const char *const wrong[] = {
		"",
		"{'T: 2.15}",
		"{'delta': 2.15}",
		"{'T': }",
		"{'T': two}",
		"{'T': 0}",
		"{'T': 1e-10}",
		"{'T': 1e-17}",
		"{'T': 16}",
		"{'T': -2.15}",
		"{'T': nan}",
		"{'T': 2.15",
		"{'T': 2.15; 'inc': 1}",
		"{'T': __import__('os').system('reboot')}",
		"{'T': 2.15, 'T': 2.16}",
	};
	unsigned int i;

	(void)state;
	write_text("t_recv_table.txt", "0\n3\n");
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		write_text("t_data.txt", wrong[i]);
		refused("t_recv_table.txt", "/t_data.txt");
	}
	unlink(path_of("t_data.txt"));
	refused("t_recv_table.txt", "/t_data.txt: No such file");
	write_text(NAME "recv_table.txt", levels_text(published, 16));
	write_text(NAME "data.txt", "{'T': 2.4175590162365053}");
	refused(NAME "recv_table.txt", "clamps 1 in 64, and the file's name says 1 in 32");
	write_text(NAME "data.txt", data);
	write_text("1001_tablesize_31_maxval_16_qlevels_32_ofreq_recv_table.txt",
		   levels_text(published, 16));
	write_text("1001_tablesize_31_maxval_16_qlevels_32_ofreq_data.txt", data);
	refused("1001_tablesize_31_maxval_16_qlevels_32_ofreq_recv_table.txt",
		"ends with level 30, and its name says 31");
}

static void file__that_is_none(void **state)
{
	static char big[20000];

	(void)state;
	memset(big, '1', sizeof(big) - 1);
	write_text("t_data.txt", "{'T': 2.15}");
	refused("t.txt", "the name of a file of levels ends in _recv_table.txt");
	refused("none_recv_table.txt", "cannot read");
	unlink(path_of("t_recv_table.txt"));
	assert_int_equal(mkdir(path_of("t_recv_table.txt"), 0700), 0);
	refused("t_recv_table.txt", "is no regular file");
	assert_int_equal(rmdir(path_of("t_recv_table.txt")), 0);
	assert_int_equal(mkfifo(path_of("t_recv_table.txt"), 0600), 0);
	refused("t_recv_table.txt", "is no regular file");
	unlink(path_of("t_recv_table.txt"));
	write_text("t_recv_table.txt", big);
	refused("t_recv_table.txt", "has more than 16384 bytes");
	write_bytes("t_recv_table.txt", "0\n3\0\n", 5);
	refused("t_recv_table.txt", "has zero bytes in it");
}

/* A reload compares the contents of files: renaming a table changes nothing. */
static void file__its_name_is_no_constant(void **state)
{
	struct thcd_plan a, b;

	(void)state;
	write_text("t_data.txt", "{'T': 2.1538746940614564}");
	write_text("t_recv_table.txt", "0\n3\n5\n7\n");
	assert_int_equal(take("t_recv_table.txt"), 0);
	assert_int_equal(make(&a), 0);
	write_text("u_data.txt", "{'T': 2.1538746940614564}");
	write_text("u_recv_table.txt", "0.0\n3.0\n5.0\n7.0\n");
	assert_int_equal(take("u_recv_table.txt"), 0);
	assert_int_equal(make(&b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	write_text("t_recv_table.txt", "0\n3\n6\n7\n");
	assert_int_equal(take("t_recv_table.txt"), 0);
	assert_int_equal(make(&b), 0);
	assert_memory_not_equal(&a, &b, sizeof(a));
}

static int begin(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
	static const char *const names[] = {
		NAME "recv_table.txt",
		NAME "data.txt",
		"t_recv_table.txt",
		"t_data.txt",
		"u_recv_table.txt",
		"u_data.txt",
		"1001_tablesize_31_maxval_16_qlevels_32_ofreq_recv_table.txt",
		"1001_tablesize_31_maxval_16_qlevels_32_ofreq_data.txt"
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(path_of(names[i]));
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file__is_the_table_that_it_holds),
		cmocka_unit_test(file__settles_bits_and_clamp),
		cmocka_unit_test(file__that_was_cut_off),
		cmocka_unit_test(file__with_lines_that_are_no_levels),
		cmocka_unit_test(file__with_a_wrong_clamp),
		cmocka_unit_test(file__that_is_none),
		cmocka_unit_test(file__its_name_is_no_constant),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
