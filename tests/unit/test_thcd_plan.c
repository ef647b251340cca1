// SPDX-License-Identifier: GPL-2.0
/*
 * From wishes to constants: a job's table and width, wishes that do not fit and their errors,
 * group, prefix; and whether a restarted daemon may go on with the jobs that it finds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "../../userspace/aggregator/report.h"
#include "credentials.h"
#include "jobs.h"
#include "join.h"
#include "pins.h"
#include "plan.h"

#define PORT 18500

static struct thcd_error error, note;

/* Keys of a job of the aggregator at @address. */
static int make_at(struct thcd_plan *plan, const char *keys, const char *address)
{
	struct thc_addr at;
	struct thcd_config c;
	int err;

	thcd_config_init(&c);
	if (thcd_config_job(&c, keys, &error))
		fail_msg("%s: %s", keys, error.text);
	assert_true(thcd_addr_parse(address, &at) >= 0);
	err = thcd_plan_make(plan, &c.job[0], &at, PORT, &note, &error);
	return err;
}

static int make(struct thcd_plan *plan, const char *keys)
{
	return make_at(plan, keys, "10.0.0.100");
}

static struct thcd_plan good(const char *keys)
{
	struct thcd_plan plan;

	if (make(&plan, keys))
		fail_msg("%s: %s", keys, error.text);
	return plan;
}

/* The job's own row, without levels. */
static struct thc_table_row row_of(struct thcd_plan plan)
{
	struct thc_table_row row = thcd_plan_row(&plan);

	row.level = NULL;
	return row;
}

static bool is_linear(struct thcd_plan plan)
{
	return thc_tables_linear(&plan.tables);
}

static void refused(const char *keys, const char *words)
{
	struct thcd_plan plan;

	assert_int_equal(make(&plan, keys), -1);
	if (!strstr(error.text, words))
		fail_msg("%s: \"%s\" does not say \"%s\"", keys, error.text, words);
}

/* max(T) n against the lane, for every n: sums always fit, and are 16 bits wide only if needed. */
static void table__auto_always_fits(void **state)
{
	unsigned int n;
	char keys[64];

	(void)state;
	for (n = 1; n <= THC_RANKS_MAX; n++) {
		struct thcd_plan p;

		snprintf(keys, sizeof(keys), "1,ranks=%u,key=@one", n);
		p = good(keys);
		assert_int_equal(row_of(p).sum_width, n <= 17 ? 8 : 16);
		assert_int_equal(p.chunk, n <= 17 ? THC_COORDINATES(8) : THC_COORDINATES(16));
		assert_true(row_of(p).granularity * n < 1u << row_of(p).sum_width);
		assert_int_equal(thcd_plan_row(&p).level[0], 0);
		assert_int_equal(thcd_plan_row(&p).level[15], row_of(p).granularity);
		assert_int_equal(!!*note.text, n > 17);
	}
}

/* The narrowest of 8 and 16 bits in which no sum overflows, or 32 if the job's granularity needs
 * them.
 */
static void table__bits_and_widths(void **state)
{
	unsigned int bits, n, width;
	char keys[64];

	(void)state;
	for (bits = 1; bits <= 8; bits++) {
		for (n = 1; n <= THC_RANKS_MAX; n += 9) {
			u32 least = (1u << bits) - 1;
			struct thcd_plan p;

			snprintf(keys, sizeof(keys), "1,ranks=%u,key=@one,bits=%u", n, bits);
			p = good(keys);
			width = least * n <= 255 ? 8 : 16;
			assert_int_equal(p.bits, bits);
			assert_int_equal(row_of(p).sum_width, width);
			assert_int_equal(p.chunk, 8192 / width);
			assert_true(row_of(p).granularity * n < 1u << width);
			assert_int_equal(thcd_plan_row(&p).level[least], row_of(p).granularity);
		}
	}
	assert_int_equal(row_of(good("1,ranks=16,key=@one,granularity=4095")).sum_width, 16);
	assert_int_equal(row_of(good("1,ranks=17,key=@one,granularity=4095")).sum_width, 32);
	assert_string_equal(note.text, "sums of 17 ranks need 32 bits (17 x 4095 > 65535): chunks "
				       "of 256 coordinates");
	assert_int_equal(good("1,ranks=2,key=@one,sum_width=32").chunk, 256);
	assert_string_equal(note.text, "");
}

/* Sums have 4 bits only if the job asks for them, and lie in blocks of 2048 coordinates. */
static void table__four_bit_sums(void **state)
{
	struct thcd_plan p = good("1,ranks=5,key=@one,bits=2,sum_width=4");

	(void)state;
	assert_int_equal(row_of(p).sum_width, 4);
	assert_int_equal(p.chunk, 2048);
	assert_int_equal(row_of(p).granularity, 3);
	assert_int_equal(p.block_log2, 11);
	assert_int_equal(row_of(good("1,ranks=15,key=@one,bits=1,sum_width=4")).granularity, 1);
	assert_int_equal(row_of(good("1,ranks=1,key=@one,bits=4,sum_width=4")).granularity, 15);
	assert_int_equal(row_of(good("1,ranks=1,key=@one,bits=1")).sum_width, 8);
	assert_int_equal(good("1,ranks=1,key=@one,bits=1").block_log2, 10);
	assert_int_equal(good("1,ranks=2,key=@one,bits=2,sum_width=4,block=4096").block_log2, 12);
	refused("1,ranks=2,key=@one,bits=2,sum_width=4,block=1024",
		"block=1024: sums of 4 bits have chunks of 2048 coordinates: give block=2048 or "
		"more");
	refused("1,ranks=6,key=@one,bits=2,sum_width=4",
		"no table of 2 bits fits 6 ranks, up to 5 ranks fit this table; or set "
		"sum_width=8");
	refused("1,ranks=1,key=@one,bits=5,sum_width=4", "no table of 5 bits fits 1 ranks");
	/* the advice of an error is not refused next */
	refused("1,ranks=20,key=@one,bits=4,sum_width=4", "or set sum_width=16");
	refused("1,ranks=17,key=@one,bits=4,granularity=4095,sum_width=8", "or set sum_width=32");
	refused("1,ranks=2,key=@one,bits=4,sum_width=4", "more than the 15 of 4-bit sums");
}

/* Given values are kept, and the others chosen best for them. */
static void table__is_the_best_one(void **state)
{
	const struct thc_table_wish wish = { sizeof(wish), 3, 8, 8, 0, 0, THC_TABLE_FEEDBACK };
	struct thcd_plan p = good("1,ranks=8,key=@one,bits=3");
	struct thc_table t;
	double clamp;

	(void)state;
	assert_int_equal(thc_table_choose(&wish, &t), 0);
	assert_int_equal(p.table_hash, thc_table_hash(&t));
	p = good("1,ranks=8,key=@one,clamp=1/32");
	memcpy(&clamp, &p.p[3], sizeof(clamp));
	assert_true(clamp == 1.0 / 32);
	p = good("1,ranks=8,key=@one,granularity=30");
	assert_int_equal(row_of(p).granularity, 30);
	memcpy(&clamp, &p.p[3], sizeof(clamp));
	assert_true(clamp < 1.0 / 400);
	/* with one bit the error memory would grow */
	assert_true(row_of(good("1,ranks=16,key=@one,bits=1")).clamp !=
		    row_of(good("1,ranks=16,key=@one,bits=1,feedback=off")).clamp);
	assert_true(row_of(good("1,ranks=16,key=@one,bits=2")).clamp ==
		    row_of(good("1,ranks=16,key=@one,bits=2,feedback=off")).clamp);
}

static void scheme__none(void **state)
{
	struct thcd_plan p = good("1,ranks=8,key=@one,scheme=none");

	(void)state;
	assert_int_equal(p.scheme, THC_SCHEME_NONE);
	assert_int_equal(p.value_bits, 0);
	/* for calls that choose scheme thc */
	assert_int_equal(row_of(p).granularity, 21);
	assert_int_equal(good("1,ranks=8,key=@one,scheme=none,precision=exact").value_bits, 0);
	assert_int_equal(good("1,ranks=8,key=@one,scheme=none,precision=fixed8").value_bits, 8);
	assert_int_equal(good("1,ranks=64,key=@one,scheme=none,precision=fixed16").value_bits, 16);
	assert_int_equal(good("1,ranks=64,key=@one,scheme=none,precision=fixed32").value_bits, 32);
	refused("1,ranks=9,key=@one,scheme=none,precision=fixed8",
		"precision=fixed8 leaves 9 ranks less than 4 bits: give a wider one, or exact");
	refused("1,ranks=9,key=@one,precision=exact",
		"precision: only scheme=none and scheme=lhc have one");
	refused("1,ranks=2,key=@one,scheme=uthc,precision=fixed8",
		"only scheme=none and scheme=lhc have one");
	refused("1,ranks=2,key=@one,scheme=none,deadline_ms=5,quorum=1", "leave deadline_ms out");
	refused("1,ranks=2,key=@one,scheme=none,rotate=off", "leave rotate out");
}

static void scheme__lhc(void **state)
{
	struct thcd_plan p = good("1,ranks=8,key=@one,scheme=lhc,precision=fixed16,grain=64");

	(void)state;
	assert_int_equal(p.scheme, THC_SCHEME_LHC);
	assert_int_equal(p.value_bits, 16);
	assert_int_equal(p.grain_log2, 6);
	assert_int_equal(p.control_slots, 256);
	assert_int_equal(good("1,ranks=8,key=@one,scheme=lhc,norm_slots=64").control_slots, 64);
	assert_int_equal(good("1,ranks=8,key=@one,scheme=lhc").grain_log2, 0);
	refused("1,ranks=8,key=@one,scheme=lhc,grain=48", "grain=48: give a power of two");
	refused("1,ranks=8,key=@one,scheme=none,grain=2", "grain: only scheme=lhc has one");
	assert_int_equal(p.sketch, 0);
	assert_int_equal(good("1,ranks=8,key=@one,scheme=lhc,sketch=three").sketch, 2);
	assert_int_equal(good("1,ranks=8,key=@one,scheme=lhc,sketch=coupled").sketch, 6);
	refused("1,ranks=8,key=@one,scheme=none,sketch=off", "sketch: only scheme=lhc has one");
	refused("1,ranks=9,key=@one,scheme=lhc,precision=fixed8", "give a wider one, or exact");
	refused("1,ranks=2,key=@one,scheme=lhc,deadline_ms=5,quorum=1",
		"scheme=lhc sums what all ranks have: leave deadline_ms out");
}

static void scheme__uthc(void **state)
{
	struct thcd_plan p = good("1,ranks=8,key=@one,scheme=uthc");
	unsigned int z;

	(void)state;
	assert_int_equal(p.scheme, THC_SCHEME_UTHC);
	assert_true(is_linear(p));
	p = good("1,ranks=8,key=@one,scheme=uthc,bits=5,table=uniform,granularity=31");
	for (z = 0; z < 32; z++)
		assert_int_equal(thcd_plan_row(&p).level[z], z);
	assert_int_equal(row_of(p).sum_width, 8);
	refused("1,ranks=8,key=@one,scheme=uthc,granularity=30", "granularity 15, not 30");
	refused("1,ranks=8,key=@one,scheme=uthc,bits=1,table=0:1", "leave table out");
	refused("1,ranks=8,key=@one,scheme=uthc,clamp=1/32", "leave clamp out");
}

static void scheme__rotation(void **state)
{
	(void)state;
	assert_int_equal(good("1,ranks=8,key=@one").rotate, 1);
	assert_int_equal(good("1,ranks=8,key=@one,rotate=off").rotate, 0);
	assert_int_equal(good("1,ranks=8,key=@one,rotate=off,scheme=uthc").rotate, 0);
}

/* What a worker is told. */
static void scheme__is_announced(void **state)
{
	static struct thcd_record r;
	static struct thc_job job;
	struct thc_spec s;

	(void)state;
	r.plan = good("1,ranks=8,key=@one,scheme=none,precision=fixed16");
	thcd_spec_fill(&s, &job, &r, 0);
	assert_int_equal(s.scheme, THC_SCHEME_NONE);
	assert_int_equal(s.value_bits, 16);
	assert_int_equal(s.scheme_features, 0);
	r.plan = good("1,ranks=8,key=@one,scheme=lhc,grain=64,sketch=coupled");
	thcd_spec_fill(&s, &job, &r, 0);
	assert_int_equal(s.scheme, THC_SCHEME_LHC);
	assert_int_equal(s.grain, 64);
	assert_int_equal(s.scheme_features, THC_SCHEME_F_SKETCH | THC_SCHEME_F_COUPLED);
	r.plan = good("1,ranks=8,key=@one,scheme=uthc,rotate=off");
	thcd_spec_fill(&s, &job, &r, 0);
	assert_int_equal(s.scheme, THC_SCHEME_UTHC);
	assert_int_equal(s.value_bits, 0);
	assert_int_equal(s.scheme_features, THC_SCHEME_F_UNROTATED);
	assert_int_equal(s.rate, 0);
	r.plan = good("1,ranks=8,key=@one,rate=3.25");
	thcd_spec_fill(&s, &job, &r, 0);
	assert_int_equal(s.rate, 3250);
	assert_int_equal(s.error, 0);
	assert_memory_equal(&s.tables, &r.plan.tables, sizeof(s.tables));
	r.plan = good("1,ranks=8,key=@one,error=0.25");
	thcd_spec_fill(&s, &job, &r, 0);
	assert_int_equal(s.rate, 0);
	assert_int_equal(s.error, 250000);
	r.plan = good("1,ranks=8,key=@one,rotate=on");
	thcd_spec_fill(&s, &job, &r, 0);
	assert_int_equal(s.scheme_features, 0);
}

static void table__overflow_says_what_fits(void **state)
{
	(void)state;
	refused("1,ranks=8,key=@one,granularity=32,sum_width=8",
		"granularity up to 31 fits 8 ranks, up to 7 ranks fit this table; or set "
		"sum_width=16");
	refused("1,ranks=18,key=@one,table=uniform,sum_width=8",
		"no table of 4 bits fits 18 ranks");
	refused("1,ranks=64,key=@one,granularity=1024,sum_width=16",
		"granularity up to 1023 fits 64 ranks, up to 63 ranks fit this table; or set "
		"sum_width=32");
	refused("1,ranks=9,key=@one,sum_width=8,table=0:1:2:3:4:5:6:7:8:9:10:11:12:13:14:30",
		"the table reaches 30, and 9 ranks make 270, more than the 255 of 8-bit sums");
	/* exactly at the edge */
	assert_int_equal(row_of(good("1,ranks=8,key=@one,granularity=31,sum_width=8")).granularity,
			 31);
	assert_int_equal(row_of(good("1,ranks=17,key=@one,table=uniform,sum_width=8")).sum_width,
			 8);
	assert_int_equal(row_of(good("1,ranks=64,key=@one,granularity=1023")).sum_width, 16);
}

static void table__width_is_chosen_and_said(void **state)
{
	struct thcd_plan p = good("1,ranks=8,key=@one,granularity=32");

	(void)state;
	assert_int_equal(row_of(p).sum_width, 16);
	assert_non_null(strstr(note.text, "need 16 bits"));
	p = good("1,ranks=8,key=@one,granularity=31");
	assert_int_equal(row_of(p).sum_width, 8);
	assert_string_equal(note.text, "");
}

static void table__published_one(void **state)
{
	static const uint16_t exact[16] = { 0,  3,  5,  7,  9,  11, 13, 14,
					    15, 17, 19, 21, 23, 25, 27, 30 };
	struct thcd_plan p = good("1,ranks=8,key=@one,granularity=30,clamp=1/32");
	double t;

	(void)state;
	assert_memory_equal(thcd_plan_row(&p).level, exact, sizeof(exact));
	memcpy(&t, &p.tables.clamp[3], sizeof(t));
	/* t_p is rounded to 2^-30 */
	assert_true(t > 2.15387469 && t < 2.15387470);
	assert_false(is_linear(p));
}

/* Each of these once made a job that no worker could join. */
static void table__clamp_gives_a_threshold(void **state)
{
	(void)state;
	refused("1,ranks=4,key=@one,granularity=30,clamp=1e-20", "give a fraction from 1e-12");
	refused("1,ranks=4,key=@one,granularity=30,clamp=1e-300", "give a fraction from 1e-12");
	refused("1,ranks=4,key=@one,granularity=30,clamp=0.999999999999", "give a fraction from");
	refused("1,ranks=4,key=@one,bits=1,table=0:7,clamp=1e-100", "give a fraction from 1e-12");
	good("1,ranks=4,key=@one,granularity=30,clamp=1e-12");
	good("1,ranks=4,key=@one,granularity=30,clamp=0.99");
}

/* By Python's hashlib: see the recipe at thc_key_derive(). */
static void key__makes_the_seed(void **state)
{
	struct thcd_plan a = good("1,ranks=4,key=@one"), b = good("2,ranks=4,key=@one");
	struct thcd_plan c = good("1,ranks=4,key=@two");
	u8 key[THC_KEY_BYTES];

	(void)state;
	credential_key("one", key);
	assert_memory_equal(a.key, key, sizeof(key));
	assert_true(a.seed == 0x85a4013d5530313ULL);
	assert_true(b.seed != a.seed && c.seed != a.seed);
	/* a seed of the operator's own */
	b = good("1,ranks=4,key=@one,seed=7");
	assert_true(b.seed == 7);
	assert_memory_equal(b.key, key, sizeof(key));
}

/* Only seal nh has a key, and needs one. */
static void key__belongs_to_its_seal(void **state)
{
	static const u8 nothing[THC_KEY_BYTES];
	struct thcd_plan p = good("1,ranks=4,key=@one");

	(void)state;
	assert_int_equal(p.seal, THC_SEAL_NH);
	assert_ptr_equal(thcd_plan_key(&p), p.key);
	p = good("1,ranks=4,key=@one,seal=nh");
	assert_int_equal(p.seal, THC_SEAL_NH);
	p = good("1,ranks=4,seal=sum");
	assert_int_equal(p.seal, THC_SEAL_SUM);
	assert_null(thcd_plan_key(&p));
	assert_memory_equal(p.key, nothing, sizeof(nothing));
	p = good("1,ranks=4,seal=none");
	assert_int_equal(p.seal, THC_SEAL_NONE);
	assert_null(thcd_plan_key(&p));
	/* without a key the seed is no secret, and differs from job to job */
	assert_true(p.seed && p.seed != good("2,ranks=4,seal=none").seed);
	refused("1,ranks=4,seal=nh", "key is missing: give key=@FILE, which thcctl genkey FILE "
				     "makes, or seal=sum");
	refused("1,ranks=4,key=@one,seal=sum", "key: only seal=nh has one");
	refused("1,ranks=4,key=@one,seal=none", "key: only seal=nh has one");
}

static void table__linear_is_seen(void **state)
{
	struct thcd_plan p = good("1,ranks=3,key=@one,table=uniform");

	(void)state;
	assert_true(is_linear(p));
	assert_int_equal(row_of(p).granularity, 15);
	p = good("1,ranks=3,key=@one,table=0:1:2:3:4:5:6:7:8:9:10:11:12:13:14:15");
	assert_true(is_linear(p));
	p = good("1,ranks=3,key=@one,table=uniform,bits=3");
	assert_int_equal(thcd_plan_row(&p).level[7], 7);
	/* with other bits the table has no linear loop */
	assert_false(is_linear(p));
	assert_false(is_linear(good("1,ranks=3,key=@one,bits=8,scheme=uthc")));
	assert_false(is_linear(good("1,ranks=3,key=@one")));
}

static void table__bad_ones(void **state)
{
	(void)state;
	refused("1,ranks=2,key=@one,table=0:1:2", "3 levels given, bits=4 needs 16");
	refused("1,ranks=2,key=@one,bits=2,table=0:2:2:3", "rise strictly");
	refused("1,ranks=2,key=@one,bits=2,table=1:2:3:4", "begin with 0");
	refused("1,ranks=2,key=@one,bits=2,table=0:1:2:4,granularity=5",
		"but the table ends with 4");
	refused("1,ranks=2,key=@one,granularity=14", "too small for the 16 levels");
	refused("1,ranks=2,key=@one,table=uniform,granularity=30", "has granularity 15, not 30");
}

/* Rows of 1 to 6 bits besides the job's own: the narrowest sums for all ranks, and tables. */
static void check_rows(unsigned int own, unsigned int ranks, bool feedback)
{
	struct thc_table_wish wish = {
		.size = sizeof(wish), .ranks = ranks, .flags = feedback ? THC_TABLE_FEEDBACK : 0,
	};
	struct thc_table_row row;
	struct thcd_plan p, plain;
	struct thc_table t;
	unsigned int z;
	char keys[96];

	snprintf(keys, sizeof(keys), "1,ranks=%u,key=@one,bits=%u,feedback=%s", ranks, own,
		 feedback ? "on" : "off");
	plain = good(keys);
	strcat(keys, ",rate=4.5");
	p = good(keys);
	assert_int_equal(p.rate, 4500);
	/* the job's own row does not change */
	row = thcd_plan_row(&p);
	assert_int_equal(row.sum_width, row_of(plain).sum_width);
	assert_int_equal(p.table_hash, plain.table_hash);
	assert_memory_equal(row.level, thcd_plan_row(&plain).level, sizeof(u16) << own);
	for (wish.bits = 1; wish.bits <= THC_BITS_MAX; wish.bits++) {
		row = thc_tables_row(&p.tables, wish.bits);
		if (wish.bits == own)
			continue;
		if (wish.bits > 6) {
			assert_int_equal(row.sum_width, 0);
			continue;
		}
		wish.width = row.sum_width;
		assert_true(((1U << wish.bits) - 1) * ranks < 1U << wish.width);
		assert_true(wish.width == 4 ||
			    ((1U << wish.bits) - 1) * ranks >= 1U << wish.width / 2);
		assert_int_equal(thc_table_choose(&wish, &t), 0);
		assert_int_equal(row.granularity, t.granularity);
		assert_memory_equal(&row.clamp, &t.t, sizeof(t.t));
		assert_memory_equal(&p.p[wish.bits - 1], &t.p, sizeof(t.p));
		for (z = 0; z < t.levels; z++)
			assert_int_equal(row.level[z], t.value[z]);
	}
}

static void rate__brings_rows(void **state)
{
	struct thcd_plan plain;
	u32 bits;

	(void)state;
	check_rows(4, 4, true);
	check_rows(4, 4, false);
	check_rows(8, 64, true);
	check_rows(1, 1, true);
	check_rows(6, 5, true);
	assert_int_equal(good("1,ranks=2,key=@one,error=0.001").error, 1000);
	assert_int_equal(good("1,ranks=2,key=@one,rate=24").rate, 24000);
	assert_int_equal(good("1,ranks=2,key=@one,rate=0.25,block=1024").rate, 250);
	assert_int_equal(good("1,ranks=2,key=@one,error=1e-6").error, 1);
	assert_int_equal(good("1,ranks=2,key=@one,error=0.5").error, 500000);
	/* without a rate the job has one row */
	plain = good("1,ranks=2,key=@one,rate=fixed");
	for (bits = 1; bits <= THC_BITS_MAX; bits++)
		assert_int_equal(thc_widths_sum(&plain.tables.widths, bits), bits == 4 ? 8 : 0);
}

/* The default of a job of two ranks with the keys @said: try a rate of 4 bits, or fixed bits. */
static void check_default(const char *said, bool tried)
{
	struct thcd_plan p;
	char keys[96];

	snprintf(keys, sizeof(keys), "1,ranks=2,key=@one,%s", said);
	p = good(keys);
	assert_int_equal(p.rate_tried, tried);
	assert_int_equal(p.rate, tried ? 4000 : 0);
	assert_int_equal(p.error, strcmp(said, "error=0.1") ? 0 : 100000);
}

static void rate__is_tried_where_none_is_asked_for(void **state)
{
	static const char *const by_norms[] = {
		"seal=nh", "block=1024", "correlated=off", "rotate=on",	  "quorum=1,deadline_ms=9",
		"seed=7",  "slots=64",	 "scheme=thc",	   "feedback=on", "reply=fanout",
		"table=auto", "sum_width=auto",
	};
	static const char *const fixed[] = {
		"rate=fixed",
		"bits=4",
		"granularity=31",
		"clamp=1/64",
		"table=uniform",
		"sum_width=8",
		"feedback=off",
		"rotate=off",
		"block=2048",
		"scheme=none",
		"scheme=uthc",
		"scheme=lhc",
		"error=0.1",
		"rate=fixed,sum_width=4,bits=2,block=2048",
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(by_norms) / sizeof(by_norms[0]); i++)
		check_default(by_norms[i], true);
	for (i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		check_default(fixed[i], false);
	/* the ranks need sums of 16 bits */
	assert_int_equal(good("1,ranks=64,key=@one").rate, 6666);
}

static void rate__needs_norms_of_small_rotated_blocks(void **state)
{
	(void)state;
	refused("1,ranks=2,key=@one,rate=4,error=0.1", "a job aims at one of them: leave one out");
	refused("1,ranks=2,key=@one,rate=fixed,error=0.1", "leave one out");
	refused("1,ranks=2,key=@one,rate=4,scheme=uthc", "rate: only scheme=thc has one");
	refused("1,ranks=2,key=@one,error=.1,scheme=lhc", "error: only scheme=thc has one");
	refused("1,ranks=2,key=@one,rate=4,block=2048",
		"rate needs blocks of 1024 coordinates: leave block out");
	refused("1,ranks=2,key=@one,rate=4,rotate=off", "leave rotate=off or rate out");
	refused("1,ranks=2,key=@one,error=.1,rotate=off", "leave rotate=off or error out");
	refused("1,ranks=2,key=@one,rate=auto,rotate=off", "leave rotate=off or rate out");
	good("1,ranks=2,key=@one,rate=fixed,rotate=off");
	refused("1,ranks=2,key=@one,error=.1,bits=2,sum_width=4",
		"chunks of 4-bit sums have 2048: leave sum_width out");
}

static void job__contradictions(void **state)
{
	(void)state;
	refused("1,ranks=2", "key is missing: give key=@FILE");
	refused("1,key=@two", "ranks is missing: give ranks=NUMBER");
	refused("ranks=2,key=@two", "job is missing");
	refused("1,ranks=4,key=@one,deadline_ms=5", "deadline_ms needs quorum, from 1 to 4");
	refused("1,ranks=4,key=@one,quorum=3", "no effect without deadline_ms");
	refused("1,ranks=4,key=@one,quorum=5,deadline_ms=5", "quorum=5 of 4 ranks");
	refused("1,ranks=4,key=@one,block=3000", "not a power of two");
	refused("1,ranks=4,key=@one,slots=4095,norm_slots=2", "at most 4096");
	refused("1,ranks=4,key=@one,reply=fanout,group=239.1.1.1", "no meaning with reply=fanout");
	refused("1,ranks=4,key=@one,group=10.0.0.1", "not a multicast address");
	refused("1,ranks=4,key=@one,group=fe80::1", "not a multicast address");
	refused("1,ranks=4,key=@one,group_port=18563", "one of the aggregator's own ports");
	refused("1,ranks=4,key=@one,prefix=10.0.0.0/33", "from 0 to 32");
	refused("1,ranks=4,key=@one,prefix=10.0.0/8", "is not an address");
	refused("1,ranks=4,key=@one,prefix=any,prefix=10.0.0.0/8", "any is everybody");
	refused("1,ranks=4,key=@one,prefix=10.0.0.0/8,prefix=any", "any is everybody");
	refused("1,ranks=4,key=@one,prefix=all", "nor any");
}

static const char *group_of(const char *address, unsigned int job)
{
	static char text[2][INET6_ADDRSTRLEN];
	static unsigned int next;
	struct thcd_plan p;
	char keys[64];

	snprintf(keys, sizeof(keys), "%u,ranks=2,key=@one,table=uniform", job);
	if (make_at(&p, keys, address))
		fail_msg("%s", error.text);
	assert_int_equal(p.family, strchr(address, ':') ? 6 : 4);
	return thc_addr_text(&p.group, text[next++ % 2]);
}

static void job__group_by_family(void **state)
{
	struct thcd_plan p = good("5,ranks=2,key=@one");

	(void)state;
	assert_int_equal(p.group_port, PORT + 64);
	/* by another program; running jobs use these groups, so they must stay */
	assert_string_equal(group_of("10.0.0.100", 5), "239.84.102.133");
	assert_string_equal(group_of("10.0.0.101", 5), "239.84.102.149");
	assert_string_equal(group_of("10.0.0.100", 1), "239.84.102.129");
	assert_string_equal(group_of("fd77::100", 15), "ff15::7468:29bb:ccbf");
	assert_string_equal(group_of("fd77::101", 15), "ff15::7468:29bb:ccaf");
	p = good("5,ranks=2,key=@one,reply=fanout");
	assert_int_equal(p.group_port, 0);
}

static void job__group_given(void **state)
{
	struct thcd_plan p = good("5,ranks=2,key=@one,group=239.1.2.3");
	char text[INET6_ADDRSTRLEN];

	(void)state;
	assert_string_equal(thc_addr_text(&p.group, text), "239.1.2.3");
	assert_int_equal(make_at(&p, "5,ranks=2,key=@one,group=ff15::1:2", "fd77::100"), 0);
	assert_string_equal(thc_addr_text(&p.group, text), "ff15::1:2");
	assert_int_equal(p.family, 6);
}

/* Is the job refused with @words by an aggregator of base port 900? */
static bool is_low_refused(const char *keys, const char *words)
{
	const struct thc_addr at = thc_addr_v4(thc_be32(0x0a000064));
	struct thcd_config c;
	struct thcd_plan plan;
	int err;

	thcd_config_init(&c);
	err = thcd_config_job(&c, keys, &error);
	if (!err)
		err = thcd_plan_make(&plan, &c.job[0], &at, 900, &note, &error);
	return err && strstr(error.text, words);
}

/* Workers bind no privileged port. */
static void job__group_port_of_plain_programs(void **state)
{
	(void)state;
	assert_true(is_low_refused("1,ranks=2,key=@one", "group_port, 964 by default"));
	assert_true(is_low_refused("1,ranks=2,key=@one,group_port=1023", "1024 to 65535"));
	assert_false(is_low_refused("1,ranks=2,key=@one,group_port=1024", ""));
	assert_false(is_low_refused("1,ranks=2,key=@one,reply=fanout", ""));
}

/* Different jobs, and different aggregators of a /20, have different groups. */
static void job__groups_of_neighbours_differ(void **state)
{
	static bool seen[1 << 16];
	char address[32];
	unsigned int i;

	(void)state;
	for (i = 0; i < 1 << 12; i++) {
		unsigned int a, b, c, d;

		snprintf(address, sizeof(address), "192.168.%u.%u", 16 + i / 256, i % 256);
		assert_int_equal(sscanf(group_of(address, i % 16), "%u.%u.%u.%u", &a, &b, &c, &d),
				 4);
		assert_int_equal(a, 239);
		assert_int_equal(b, 84);
		assert_int_equal(d % 16, i % 16);
		/* the lowest digit is the job's, the digits above are the aggregator's */
		assert_false(seen[(c * 256 + d) / 16]);
		seen[(c * 256 + d) / 16] = true;
	}
	/* equal low bits in another subnet of the LAN */
	assert_string_not_equal(group_of("10.1.0.100", 1), group_of("10.2.0.100", 1));
	assert_string_not_equal(group_of("fd77::100", 1), group_of("fd78::100", 1));
	assert_string_not_equal(group_of("fd77::100", 1), group_of("fd77::100", 2));
}

/* @prefix may go on with further keys. */
static bool admits(const char *prefix, const char *address)
{
	struct thc_addr a;
	char keys[160];
	struct thcd_plan p;

	snprintf(keys, sizeof(keys), "1,ranks=2,key=@one%s%s", *prefix ? ",prefix=" : "", prefix);
	p = good(keys);
	assert_true(thcd_addr_parse(address, &a) > 0);
	return thcd_plan_admits(&p, &a);
}

static void job__shards(void **state)
{
	struct thcd_plan p = good("1,ranks=4,key=@one,shards=10.0.0.1,10.0.0.2:9100,shard=1");
	char many[64 * 16] = "1,ranks=4,key=@one,shard=63,shards=10.0.0.0";
	unsigned int i;

	(void)state;
	assert_int_equal(p.shards.count, 2);
	assert_int_equal(p.shards.own, 1);
	assert_int_equal(p.shards.at[0].addr.word[3], thc_be32(0x0a000001));
	assert_int_equal(thc_be16(p.shards.at[0].port), PORT);
	assert_int_equal(thc_be16(p.shards.at[0].aggregator), 0);
	assert_int_equal(p.shards.at[1].addr.word[3], thc_be32(0x0a000002));
	assert_int_equal(thc_be16(p.shards.at[1].port), 9100);
	assert_int_equal(thc_be16(p.shards.at[1].aggregator), 1);
	p = good("1,ranks=4,key=@one,shard=0,shards=fd00::1,[fd00::1]:9100,[fd00::2]");
	assert_int_equal(p.shards.count, 3);
	assert_int_equal(thc_be16(p.shards.at[0].port), PORT);
	assert_int_equal(thc_be16(p.shards.at[1].port), 9100);
	assert_int_equal(thc_be16(p.shards.at[2].port), PORT);
	assert_int_equal(p.shards.at[2].addr.word[3], thc_be32(2));
	p = good("1,ranks=4,key=@one");
	assert_int_equal(p.shards.count, 0);
	for (i = 1; i < 64; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), ",10.0.0.%u", i);
	assert_int_equal(good(many).shards.count, 64);
}

static void job__shards_that_are_none(void **state)
{
	(void)state;
	refused("1,ranks=4,key=@one,shards=10.0.0.1,10.0.0.2", "shard is missing");
	refused("1,ranks=4,key=@one,shard=0", "give the list shards");
	refused("1,ranks=4,key=@one,shards=10.0.0.1,10.0.0.2,shard=2", "0 to 1");
	refused("1,ranks=4,key=@one,shards=10.0.0.1,10.0.0.1,shard=0", "is there twice");
	refused("1,ranks=4,key=@one,shards=10.0.0.1,fd00::1,shard=0", "IP version");
	refused("1,ranks=4,key=@one,shards=10.0.0,10.0.0.1,shard=0", "is not an address");
	refused("1,ranks=4,key=@one,shards=10.0.0.1,239.1.2.3,shard=0", "is not an address");
	refused("1,ranks=4,key=@one,shards=fd00::1,ff15::1,shard=0", "is not an address");
	refused("1,ranks=4,key=@one,shards=10.0.0.1:0,10.0.0.2,shard=0", "is not an address");
	refused("1,ranks=4,key=@one,shards=10.0.0.1:65500,10.0.0.2,shard=0", "is not an address");
	refused("1,ranks=4,key=@one,shards=10.0.0.1:x,10.0.0.2,shard=0", "is not an address");
	refused("1,ranks=4,key=@one,shards=[fd00::1]x,fd00::2,shard=0", "is not an address");
	refused("1,ranks=4,key=@one,shards=[fd00::1,fd00::2,shard=0", "is not an address");
}

static void job__prefix(void **state)
{
	(void)state;
	/* no address, until the interface's subnets are added */
	assert_false(admits("", "192.0.2.1"));
	assert_false(admits("", "2001:db8::1"));
	assert_true(admits("any", "192.0.2.1"));
	assert_true(admits("any", "2001:db8::1"));
	assert_true(admits("any", "::"));
	assert_true(admits("10.1.0.0/16", "10.1.255.255"));
	assert_false(admits("10.1.0.0/16", "10.2.0.0"));
	assert_true(admits("10.1.2.128/25", "10.1.2.200"));
	assert_false(admits("10.1.2.128/25", "10.1.2.127"));
	assert_true(admits("10.1.2.3", "10.1.2.3"));
	assert_false(admits("10.1.2.3", "10.1.2.2"));
	assert_true(admits("0.0.0.0/0", "10.1.2.3"));
	assert_false(admits("0.0.0.0/0", "2001:db8::1"));
	assert_true(admits("2001:db8::/33", "2001:db8:7fff::1"));
	assert_false(admits("2001:db8::/33", "2001:db8:8000::1"));
	assert_false(admits("2001:db8::/33", "10.0.0.1"));
	assert_true(admits("::/0", "2001:db8::1"));
	assert_false(admits("::/0", "10.0.0.1"));
	assert_true(admits("10.1.0.0/16,prefix=10.3.0.0/16,prefix=fd00::/64", "10.1.0.1"));
	assert_false(admits("10.1.0.0/16,prefix=10.3.0.0/16,prefix=fd00::/64", "10.2.0.1"));
	assert_true(admits("10.1.0.0/16,prefix=10.3.0.0/16,prefix=fd00::/64", "10.3.0.1"));
	assert_true(admits("10.1.0.0/16,prefix=10.3.0.0/16,prefix=fd00::/64", "fd00::9"));
	/* bits behind the length do not count */
	assert_true(admits("10.1.2.3/16", "10.1.255.255"));
}

static void job__hops(void **state)
{
	(void)state;
	assert_int_equal(good("1,ranks=2,key=@one").ttl_min, 0);
	assert_int_equal(good("1,ranks=2,key=@one,hops=0").ttl_min, 255);
	assert_int_equal(good("1,ranks=2,key=@one,hops=1").ttl_min, 254);
	assert_int_equal(good("1,ranks=2,key=@one,hops=254").ttl_min, 1);
}

static void keep__same_jobs_only(void **state)
{
	static const struct {
		const char *keys;
		const char *words;
	} other[] = {
		{ "1,ranks=5,key=@one,granularity=31", "ranks is 4" },
		{ "1,ranks=4,key=@two,granularity=31", "key differs" },
		{ "1,ranks=4,key=@one,granularity=30", "granularity is 31" },
		{ "1,ranks=4,key=@one,granularity=31,bits=5", "bits is 4" },
		{ "1,ranks=4,key=@one,granularity=31,scheme=none", "scheme is thc, and none" },
		{ "1,ranks=4,key=@one,granularity=31,rotate=off", "rotate is 1" },
		{ "1,ranks=4,key=@one,granularity=31,clamp=1/64", "clamp" },
		{ "1,ranks=4,key=@one,granularity=31,slots=64", "slots is 512" },
		{ "1,ranks=4,key=@one,granularity=31,norm_slots=65", "norm_slots is 64" },
		{ "1,ranks=4,key=@one,granularity=31,block=2048", "block is 10" },
		{ "1,ranks=4,key=@one,granularity=31,sum_width=16", "sum_width is 8" },
		{ "1,ranks=4,key=@one,granularity=31,seed=1", "seed" },
		{ "1,ranks=4,seal=sum,granularity=31", "seal differs" },
		{ "1,ranks=4,key=@one,granularity=31,correlated=off", "correlated" },
		{ "1,ranks=4,key=@one,granularity=31,rate=4", "rate in thousandths is 0" },
		{ "1,ranks=4,key=@one,granularity=31,error=.1", "error in millionths is 0" },
		{ "1,ranks=4,key=@one,granularity=31,hops=0", "hops" },
		{ "1,ranks=4,key=@one,granularity=31,group=239.1.1.1", "group" },
		{ "1,ranks=4,key=@one,granularity=31,group_port=7000", "group_port is 18564" },
		{ "1,ranks=4,key=@one,granularity=31,reply=fanout", "group_port" },
		{ "1,ranks=4,key=@one,granularity=31,quorum=2,deadline_ms=9", "quorum is 4" },
		{ "1,ranks=4,key=@one,granularity=31,shards=10.0.0.1,10.0.0.2,shard=1", "shards" },
	};
	struct thcd_record was[THC_JOBS_MAX] = { 0 };
	struct thcd_plan plans[THC_JOBS_MAX] = { 0 };
	unsigned int i;

	(void)state;
	was[1].used = 1;
	was[1].plan = plans[1] = good("1,ranks=4,key=@one,granularity=31");
	assert_int_equal(thcd_keep_jobs(was, plans, &error), 0);
	/* a reload may move a job's slots */
	was[1].plan.slot_base = 576;
	assert_int_equal(thcd_keep_jobs(was, plans, &error), 0);
	for (i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		plans[1] = good(other[i].keys);
		assert_int_equal(thcd_keep_jobs(was, plans, &error), -1);
		if (!strstr(error.text, other[i].words) || !strstr(error.text, "--fresh"))
			fail_msg("%s: \"%s\"", other[i].keys, error.text);
	}
	/* neither has a key */
	plans[1] = good("1,ranks=4,seal=none");
	plans[2] = good("1,ranks=4,seal=sum");
	assert_int_equal(thcd_keep_difference(&plans[1], &plans[2], &error), -1);
	assert_string_equal(error.text, "seal differs");
	memset(&plans[2], 0, sizeof(plans[2]));
	/* a job's prefix is no constant of its rounds */
	plans[1] = good("1,ranks=4,key=@one,granularity=31,prefix=10.0.0.0/8");
	assert_int_equal(thcd_keep_jobs(was, plans, &error), 0);
	plans[1] = was[1].plan;
	plans[2] = good("2,ranks=4,key=@one");
	assert_int_equal(thcd_keep_jobs(was, plans, &error), -1);
	memset(&plans[2], 0, sizeof(plans[2]));
	memset(&plans[1], 0, sizeof(plans[1]));
	assert_int_equal(thcd_keep_jobs(was, plans, &error), -1);
}

static void keep__same_place_only(void **state)
{
	const struct thcd_meta was = {
		.netns = 4026531840, .layout = THCD_LAYOUT, .ifindex = 3, .slots = 576, .port = PORT
	};
	struct thcd_meta is = was;

	(void)state;
	assert_int_equal(thcd_keep_meta(&was, &is, "eth0", &error), 0);
	is.netns++;
	assert_int_equal(thcd_keep_meta(&was, &is, "eth0", &error), -1);
	assert_non_null(strstr(error.text, "another network namespace"));
	is = was;
	is.ifindex = 4;
	assert_int_equal(thcd_keep_meta(&was, &is, "eth0", &error), -1);
	assert_non_null(strstr(error.text, "--instance"));
	is = was;
	is.addr6 = thc_addr_v4(1);
	assert_int_equal(thcd_keep_meta(&was, &is, "eth0", &error), -1);
	assert_non_null(strstr(error.text, "other addresses"));
	is = was;
	is.port = 1;
	assert_int_equal(thcd_keep_meta(&was, &is, "eth0", &error), -1);
	is = was;
	is.layout++;
	assert_int_equal(thcd_keep_meta(&was, &is, "eth0", &error), -1);
	assert_non_null(strstr(error.text, "another version"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table__auto_always_fits),
		cmocka_unit_test(table__bits_and_widths),
		cmocka_unit_test(table__four_bit_sums),
		cmocka_unit_test(table__is_the_best_one),
		cmocka_unit_test(scheme__none),
		cmocka_unit_test(scheme__lhc),
		cmocka_unit_test(scheme__uthc),
		cmocka_unit_test(scheme__rotation),
		cmocka_unit_test(scheme__is_announced),
		cmocka_unit_test(table__overflow_says_what_fits),
		cmocka_unit_test(table__width_is_chosen_and_said),
		cmocka_unit_test(table__published_one),
		cmocka_unit_test(table__clamp_gives_a_threshold),
		cmocka_unit_test(table__linear_is_seen),
		cmocka_unit_test(key__makes_the_seed),
		cmocka_unit_test(key__belongs_to_its_seal),
		cmocka_unit_test(table__bad_ones),
		cmocka_unit_test(rate__brings_rows),
		cmocka_unit_test(rate__is_tried_where_none_is_asked_for),
		cmocka_unit_test(rate__needs_norms_of_small_rotated_blocks),
		cmocka_unit_test(job__contradictions),
		cmocka_unit_test(job__group_by_family),
		cmocka_unit_test(job__group_given),
		cmocka_unit_test(job__group_port_of_plain_programs),
		cmocka_unit_test(job__groups_of_neighbours_differ),
		cmocka_unit_test(job__prefix),
		cmocka_unit_test(job__shards),
		cmocka_unit_test(job__shards_that_are_none),
		cmocka_unit_test(job__hops),
		cmocka_unit_test(keep__same_jobs_only),
		cmocka_unit_test(keep__same_place_only),
	};

	return cmocka_run_group_tests_name("thcd plan", tests, credentials_make,
					   credentials_remove);
}
