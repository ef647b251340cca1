// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that were built with an older or a newer libthc.h: their structs are
 * smaller or larger than the library's.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "client.h"
#include "scheme.h"
#include "structs.h"
#include "transport_udp.h"

/* Three versions of one struct; the library has the second one. */
struct first {
	size_t		size;
	uint64_t	a;
};

struct second {
	size_t		size;
	uint64_t	a;
	uint32_t	b;
	uint32_t	c;
};

struct third {
	size_t		size;
	uint64_t	a;
	uint32_t	b;
	uint32_t	c;
	uint64_t	d;
};

static const struct thc_struct_layout layout = {
	.name = "second",
	.first = THC_STRUCT_SIZE(struct second, a),
	.now = sizeof(struct second),
};

static void in__same_version(void **state)
{
	struct second theirs = { sizeof(theirs), 1, 2, 3 }, ours;

	(void)state;
	assert_int_equal(thc_struct_in(&layout, &ours, &theirs), 0);
	assert_memory_equal(&ours, &theirs, sizeof(ours));
}

/* Members that the older program lacks are zero, whatever lies behind its struct. */
static void in__older_program(void **state)
{
	struct second want = { sizeof(want), 1, 0, 0 }, ours;
	struct {
		struct first	theirs;
		uint8_t		behind[64];
	} program = { .theirs = { sizeof(struct first), 1 } };

	(void)state;
	assert_int_equal(layout.first, sizeof(struct first));
	memset(program.behind, 0xff, sizeof(program.behind));
	memset(&ours, 0xee, sizeof(ours));
	assert_int_equal(thc_struct_in(&layout, &ours, &program.theirs), 0);
	assert_memory_equal(&ours, &want, sizeof(ours));
}

static void in__newer_program_leaves_its_members_zero(void **state)
{
	struct second want = { sizeof(want), 1, 2, 3 };
	struct third theirs = { sizeof(theirs), 1, 2, 3, 0 };
	struct {
		struct second	ours;
		uint64_t	behind;
	} library = { .behind = 5 };

	(void)state;
	assert_int_equal(thc_struct_in(&layout, &library.ours, &theirs), 0);
	assert_memory_equal(&library.ours, &want, sizeof(want));
	assert_int_equal(library.behind, 5);
}

/* Every added byte is checked, and the sentence names it. */
static void in__newer_program_sets_its_members(void **state)
{
	struct second ours, before;
	struct third theirs;
	size_t i;

	(void)state;
	memset(&ours, 0xee, sizeof(ours));
	before = ours;
	for (i = sizeof(struct second); i < sizeof(theirs); i++) {
		char want[32];

		theirs = (struct third){ sizeof(theirs), 1, 2, 3, 0 };
		((uint8_t *)&theirs)[i] = 0x80;
		assert_int_equal(thc_struct_in(&layout, &ours, &theirs), -E2BIG);
		snprintf(want, sizeof(want), "byte %zu of second is set", i);
		assert_non_null(strstr(thc_last_error(), want));
		assert_non_null(strstr(thc_last_error(), "install"));
	}
	assert_memory_equal(&ours, &before, sizeof(ours));
}

/* Sizes that no version has are refused: nothing is read or written. */
static void sizes__that_no_version_has(void **state)
{
	static const struct {
		size_t		size;
		int		error;
	} cases[] = {
		{ 0, -EINVAL },
		{ sizeof(size_t), -EINVAL },
		{ sizeof(struct first) - 1, -EINVAL },
		{ THC_STRUCT_MOST + 1, -E2BIG },
		{ SIZE_MAX, -E2BIG },
	};
	struct second ours = { .a = 9 }, before = ours;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct second theirs = { cases[i].size, 1, 2, 3 }, copy = theirs;

		assert_int_equal(thc_struct_in(&layout, &ours, &theirs), cases[i].error);
		assert_non_null(strstr(thc_last_error(), "sizeof(struct second)"));
		assert_int_equal(thc_struct_out(&layout, &theirs, &ours), cases[i].error);
		assert_non_null(strstr(thc_last_error(), "sizeof(struct second)"));
		assert_memory_equal(&ours, &before, sizeof(ours));
		assert_memory_equal(&theirs, &copy, sizeof(theirs));
	}
}

static void out__older_program(void **state)
{
	struct second ours = { 0, 1, 2, 3 };
	struct {
		struct first	theirs;
		uint64_t	behind;
	} program = { .theirs = { sizeof(struct first), 7 }, .behind = 5 };

	(void)state;
	assert_int_equal(thc_struct_out(&layout, &program.theirs, &ours), 0);
	assert_int_equal(program.theirs.size, sizeof(struct first));
	assert_int_equal(program.theirs.a, 1);
	assert_int_equal(program.behind, 5);
}

static void out__newer_program(void **state)
{
	struct second ours = { 0, 1, 2, 3 };
	struct third want = { sizeof(want), 1, 2, 3, 0 };
	struct {
		struct third	theirs;
		uint64_t	behind;
	} program = { .theirs = { sizeof(struct third), 7, 7, 7, 7 }, .behind = 5 };

	(void)state;
	assert_int_equal(thc_struct_out(&layout, &program.theirs, &ours), 0);
	assert_memory_equal(&program.theirs, &want, sizeof(want));
	assert_int_equal(program.behind, 5);
}

/* --- the structs of libthc.h ---------------------------------------------- */

/* The options are refused for their aggregator, after their size. */
static void options__sizes(void **state)
{
	struct {
		struct thc_client_options o;
		uint64_t	newer[4];
	} program = { .o = THC_CLIENT_OPTIONS_INIT };
	struct thc_client *c;

	(void)state;
	assert_int_equal(thc_client_open(NULL, &c), -EINVAL);
	assert_int_equal(thc_client_open(&program.o, &c), -EINVAL);
	assert_non_null(strstr(thc_last_error(), "aggregator"));
	program.o.size = sizeof(program);
	assert_int_equal(thc_client_open(&program.o, &c), -EINVAL);
	assert_non_null(strstr(thc_last_error(), "aggregator"));
	program.newer[3] = 1ULL << 56;
	assert_int_equal(thc_client_open(&program.o, &c), -E2BIG);
	assert_non_null(strstr(thc_last_error(), "thc_client_options"));
	/* the first version of a 64-bit system had 88 bytes */
	if (sizeof(void *) == 8) {
		program.o.size = 88;
		assert_int_equal(thc_client_open(&program.o, &c), -EINVAL);
		assert_non_null(strstr(thc_last_error(), "aggregator"));
		program.o.size = 87;
		assert_int_equal(thc_client_open(&program.o, &c), -EINVAL);
		assert_non_null(strstr(thc_last_error(), "thc_client_options.size is 87"));
	}
}

/* A client with just the fields that are read. */
static void client_init(struct thc_client *c)
{
	static struct thc_udp udp = { .base.ops = &thc_udp_ops };

	memset(c, 0, sizeof(*c));
	pthread_mutex_init(&c->lock, NULL);
	c->transport = &udp.base;
	c->scheme = &thc_scheme_thc;
	c->spec.ranks = 3;
	c->spec.bits = 4;
	c->spec.tables.widths.sum[3] = 8;
	c->spec.seal = THC_SEAL_SUM;
	c->window = 92;
	c->window_limit = "the option window";
	c->stats.requests = 11;
	c->stats.reserved = 12;
	thc_client_show(c);
}

static void info_and_stats__older_program(void **state)
{
	union {
		struct thc_client_info	info;
		struct thc_client_stats	stats;
		uint8_t			bytes[1024];
	} u;
	struct thc_client c;

	(void)state;
	if (sizeof(void *) != 8)
		skip();		/* the sizes below are a 64-bit system's */
	client_init(&c);
	memset(&u, 0xee, sizeof(u));
	u.info.size = 616;
	assert_int_equal(thc_client_info(&c, &u.info), 0);
	assert_int_equal(u.info.size, 616);
	assert_int_equal(u.info.ranks, 3);
	assert_string_equal(u.info.transport, "UDP");
	assert_int_equal(u.bytes[616], 0xee);
	u.info.size = 615;
	assert_int_equal(thc_client_info(&c, &u.info), -EINVAL);

	memset(&u, 0xee, sizeof(u));
	u.stats.size = 176;
	assert_int_equal(thc_client_stats(&c, &u.stats), 0);
	assert_int_equal(u.stats.size, 176);
	assert_int_equal(u.stats.requests, 11);
	assert_int_equal(u.stats.reserved, 12);
	assert_int_equal(u.bytes[176], 0xee);
	u.stats.size = 175;
	assert_int_equal(thc_client_stats(&c, &u.stats), -EINVAL);
}

static void info_and_stats__newer_program(void **state)
{
	struct {
		struct thc_client_info	info;
		uint8_t			newer[16];
	} program_info;
	struct {
		struct thc_client_stats	stats;
		uint8_t			newer[16];
	} program_stats;
	const uint8_t zero[16] = { 0 };
	struct thc_client c;

	(void)state;
	client_init(&c);
	memset(&program_info, 0xee, sizeof(program_info));
	program_info.info.size = sizeof(program_info);
	assert_int_equal(thc_client_info(&c, &program_info.info), 0);
	assert_int_equal(program_info.info.size, sizeof(program_info));
	assert_int_equal(program_info.info.ranks, 3);
	assert_int_equal(program_info.info.window, 92);
	assert_string_equal(program_info.info.window_limit, "the option window");
	assert_string_equal(program_info.info.scheme, "thc");
	assert_int_equal(program_info.info.shards, 1);
	assert_string_equal(program_info.info.seal, "sum");
	assert_memory_equal(program_info.newer, zero, sizeof(zero));

	memset(&program_stats, 0xee, sizeof(program_stats));
	program_stats.stats.size = sizeof(program_stats);
	assert_int_equal(thc_client_stats(&c, &program_stats.stats), 0);
	assert_int_equal(program_stats.stats.size, sizeof(program_stats));
	assert_int_equal(program_stats.stats.requests, 11);
	assert_memory_equal(program_stats.newer, zero, sizeof(zero));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in__same_version),
		cmocka_unit_test(in__older_program),
		cmocka_unit_test(in__newer_program_leaves_its_members_zero),
		cmocka_unit_test(in__newer_program_sets_its_members),
		cmocka_unit_test(sizes__that_no_version_has),
		cmocka_unit_test(out__older_program),
		cmocka_unit_test(out__newer_program),
		cmocka_unit_test(options__sizes),
		cmocka_unit_test(info_and_stats__older_program),
		cmocka_unit_test(info_and_stats__newer_program),
	};

	return cmocka_run_group_tests_name("structs", tests, NULL, NULL);
}
