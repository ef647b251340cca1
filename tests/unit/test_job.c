// SPDX-License-Identifier: GPL-2.0
/*
 * What libthc checks in WELCOME before it computes: a known scheme, and constants that the scheme
 * can use. A table's hash converts the threshold to an integer, and a block is a shift.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "client.h"
#include "scheme.h"
#include "scheme_thc.h"

#define BLOCK_LOG2	10

/* A row of @bits, @g and sums of @width bits. */
static void set_row(struct thc_spec *s, unsigned int bits, unsigned int g, unsigned int width)
{
	struct thc_table t;
	unsigned int i;

	assert_int_equal(thc_table_solve(bits, g, 1.0 / 32, &t), 0);
	memcpy(&s->tables.clamp[bits - 1], &t.t, sizeof(t.t));
	s->tables.granularity[bits - 1] = (uint16_t)g;
	s->tables.widths.sum[bits - 1] = (uint8_t)width;
	for (i = 0; i < t.levels; i++)
		s->tables.level[(1U << bits) + i] = t.value[i];
}

static struct thc_spec good(void)
{
	struct thc_spec s = {
		.has = 1U << THC_RECORD_SEAL | 1U << THC_RECORD_ROW | 1U << THC_RECORD_SCHEME,
		.ranks = 4, .quorum = 4, .data_slots = 8, .control_slots = 2, .shards = 1,
		.flags = THC_WELCOME_F_READY, .reply = THC_REPLY_FANOUT,
		.bits = 4, .block_log2 = BLOCK_LOG2,
	};

	set_row(&s, 4, 30, 8);
	return s;
}

/* The levels 0, 1, .. g of @bits are the job's own row. */
static void make_uniform(struct thc_spec *w, unsigned int bits)
{
	uint16_t i;

	w->tables.clamp[bits - 1] = w->tables.clamp[w->bits - 1];
	w->tables.widths.sum[bits - 1] = thc_spec_sum_width(w);
	w->tables.granularity[bits - 1] = (uint16_t)((1U << bits) - 1);
	for (i = 0; i < 1U << bits; i++)
		w->tables.level[(1U << bits) + i] = i;
	w->bits = (uint8_t)bits;
}

static int take(const struct thc_spec *w)
{
	const struct thc_client_options o = { .rank = 0 };

	return thc_job_check(w, &o);
}

static void clamp__is_one_that_a_codec_serves(void **state)
{
	static const double wrong[] = { 2.8e286, 1e300, 1e3, 16, 0, -1, INFINITY, NAN };
	struct thc_spec w = good();
	size_t i;

	(void)state;
	assert_int_equal(take(&w), 0);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		memcpy(&w.tables.clamp[3], &wrong[i], sizeof(wrong[i]));
		if (take(&w) != -EPROTO)
			fail_msg("a threshold of %g is taken", wrong[i]);
	}
}

static void block__is_one_that_a_codec_serves(void **state)
{
	static const uint8_t wrong[] = { 64, 255, 63, 32, 31, 0 };
	struct thc_spec w = good();
	size_t i;

	(void)state;
	assert_int_equal(take(&w), 0);
	for (i = 0; i < sizeof(wrong); i++) {
		w.block_log2 = wrong[i];
		if (take(&w) != -EPROTO)
			fail_msg("a block of 2^%d is taken", wrong[i]);
	}
}

static void table__of_fewer_levels(void **state)
{
	struct thc_spec w = good();
	struct thc_table t;

	(void)state;
	set_row(&w, 2, 30, 8);
	w.bits = 2;
	assert_int_equal(take(&w), 0);
	assert_int_equal(thc_table_read(&w, &t), 0);
	assert_int_equal(t.bits, 2);
	assert_int_equal(t.levels, 4);
	/* three levels are no table of whole bits */
	w.tables.level[4 + 2] = 30;
	w.tables.level[4 + 3] = 0;
	assert_int_equal(take(&w), -EPROTO);
	/* no row of these bits */
	w = good();
	w.bits = 5;
	assert_int_equal(take(&w), -EPROTO);
}

/* Every row is a table whose sums fit, as the job's own row must be. */
static void rows__are_tables(void **state)
{
	struct thc_spec w = good();
	struct thc_table t;
	unsigned int bits;

	(void)state;
	for (bits = 1; bits <= 6; bits++)
		set_row(&w, bits, (1U << bits) - 1, 16);
	assert_int_equal(take(&w), 0);
	assert_int_equal(thc_table_read(&w, &t), 0);
	assert_int_equal(t.bits, 4);
	for (bits = 1; bits <= 6; bits++) {
		uint16_t *level = w.tables.level + (1U << bits), last = level[(1U << bits) - 1];

		level[0] = 1;
		assert_int_equal(take(&w), -EPROTO);
		level[0] = 0;
		level[(1U << bits) - 1]--;
		assert_int_equal(take(&w), -EPROTO);
		level[(1U << bits) - 1] = last;
		w.tables.clamp[bits - 1] = 0;
		assert_int_equal(take(&w), -EPROTO);
		set_row(&w, bits, (1U << bits) - 1, 16);
	}
	assert_int_equal(take(&w), 0);
	/* four ranks' sums reach 60, a fifth rank's would overflow */
	set_row(&w, 3, 15, 8);
	w.tables.widths.sum[2] = 4;
	w.ranks = 1;
	assert_int_equal(take(&w), 0);
	w.ranks = 2;
	assert_int_equal(take(&w), -EPROTO);
	/* a chunk of the job's own row is in one block; other rows' chunks may span two blocks */
	w.ranks = 4;
	set_row(&w, 3, 15, 8);
	set_row(&w, 1, 2, 4);
	assert_int_equal(take(&w), 0);
}

/* Bits follow norms in jobs of scheme thc with blocks of 1024. */
static void rate__is_of_thc_with_small_blocks(void **state)
{
	struct thc_spec w = good();

	(void)state;
	for (w.rate = 0; w.rate < 2; w.rate++)
		for (w.error = 0; w.error < 2; w.error++) {
			bool any = w.rate || w.error;

			w.has |= 1U << THC_RECORD_RATE;
			w.scheme = THC_SCHEME_THC;
			w.block_log2 = 10;
			assert_true(thc_spec_is_sound(&w, 0, 0));
			w.block_log2 = 11;
			assert_int_equal(thc_spec_is_sound(&w, 0, 0), !any);
			w.block_log2 = 10;
			w.scheme = THC_SCHEME_UTHC;
			assert_int_equal(thc_spec_is_sound(&w, 0, 0), !any);
		}
}

/* A chunk is in one block: that of 4-bit sums has 2048 coordinates. */
static void block__holds_a_chunk(void **state)
{
	struct thc_spec w = good();

	(void)state;
	w.tables.widths.sum[3] = 4;
	w.ranks = 1;
	make_uniform(&w, 2);
	w.tables.widths.sum[3] = 0;
	w.block_log2 = 11;
	assert_int_equal(take(&w), 0);
	w.block_log2 = 10;
	assert_int_equal(take(&w), -EPROTO);
	w.tables.widths.sum[1] = 8;
	assert_int_equal(take(&w), 0);
}

/* A client with a secret key joins no job without one, nor a client without a key a job with one.
 */
static void seal__is_that_of_the_options(void **state)
{
	static const uint8_t key[THC_KEY_BYTES];
	const struct thc_client_options keyed = { .key = key }, keyless = { .rank = 0 };
	struct thc_spec w = good();

	(void)state;
	for (w.seal = THC_SEAL_NONE; w.seal <= THC_SEAL_NH; w.seal++) {
		bool nh = w.seal == THC_SEAL_NH;

		assert_int_equal(thc_job_check(&w, &keyed), nh ? 0 : -EPROTO);
		assert_int_equal(thc_job_check(&w, &keyless), nh ? -EPROTO : 0);
	}
}

/* Every row of THC_SCHEMES has its functions, and no other number has any. */
static void scheme__is_one_that_there_is(void **state)
{
	struct thc_spec w = good();
	unsigned int id;

	(void)state;
	for (id = 0; id < 256; id++) {
		const struct thc_scheme *s = thc_scheme_of(id);

		w.scheme = (uint8_t)id;
		if (id >= THC_SCHEMES_COUNT) {
			assert_null(s);
			assert_int_equal(take(&w), -EPROTO);
			continue;
		}
		assert_non_null(s);
		assert_int_equal(s->id, id);
		assert_true(s->check && s->describe && s->prepare && s->compute && s->agreed &&
			    s->answer && s->undo);
	}
}

/* A job's own scheme may be none or lhc, with a precision whose sums fit all ranks. */
static void check_precision(enum thc_scheme_id scheme)
{
	struct thc_spec w = good();
	unsigned int bits;

	w.scheme = (u8)scheme;
	for (bits = 0; bits < 256; bits++) {
		w.value_bits = (uint8_t)bits;
		assert_int_equal(take(&w),
				 bits == 0 || bits == 8 || bits == 16 || bits == 32 ? 0 : -EPROTO);
	}
	w.value_bits = 8;
	w.ranks = 8;
	assert_int_equal(take(&w), 0);
	w.ranks = 9;
	assert_int_equal(take(&w), -EPROTO);
	w.value_bits = 0;
	assert_int_equal(take(&w), 0);
	w.deadline_ms = 5;
	assert_int_equal(take(&w), -EPROTO);
}

static void scheme__none_and_lhc_have_a_precision(void **state)
{
	(void)state;
	check_precision(THC_SCHEME_NONE);
	check_precision(THC_SCHEME_LHC);
}

static void scheme__lhc_has_a_grain(void **state)
{
	struct thc_spec w = good();
	unsigned int grain;

	(void)state;
	w.scheme = THC_SCHEME_LHC;
	for (grain = 0; grain < 1025; grain++) {
		w.grain = (u16)grain;
		assert_int_equal(take(&w), grain <= 256 && !(grain & (grain - 1)) ? 0 : -EPROTO);
	}
}

static void scheme__features_are_of_a_scheme(void **state)
{
	struct thc_spec w = good();
	unsigned int features;

	(void)state;
	for (features = 0; features < 16; features++) {
		w.scheme_features = features;
		w.scheme = THC_SCHEME_LHC;
		assert_int_equal(take(&w), features < 8 && (features & 6) != 4 ? 0 : -EPROTO);
		w.scheme = THC_SCHEME_NONE;
		assert_int_equal(take(&w), features < 2 ? 0 : -EPROTO);
	}
}

/* Scheme uthc needs the levels 0, 1, .. g. */
static void scheme__uthc_has_a_uniform_table(void **state)
{
	const struct thc_scheme *s = thc_scheme_of(THC_SCHEME_UTHC);
	struct thc_spec w = good();

	(void)state;
	assert_string_equal(s->check(&w), "the job's table is not uniform");
	w.scheme = THC_SCHEME_UTHC;
	assert_int_equal(take(&w), -EPROTO);
	make_uniform(&w, 4);
	assert_int_equal(take(&w), 0);
	w.scheme = THC_SCHEME_THC;
	assert_null(s->check(&w));
	w.block_log2 = 9;
	assert_non_null(s->check(&w));
}

/* A bucket counts as three blocks of floats at least, and what was opened can be closed. */
static void scheme__raises_what_a_bucket_counts_as(void **state)
{
	static const unsigned int log2[] = { 10, 16, 20 };
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(log2) / sizeof(*log2); i++) {
		struct thc_client c = { .spec = good(), .counted_least = THC_COUNTED_BYTES };
		const struct thc_scheme *s = thc_scheme_of(THC_SCHEME_THC);
		struct thc_client_info info = { 0 };
		size_t floats = (size_t)3 * 4 << log2[i];

		c.spec.block_log2 = (uint8_t)log2[i];
		s->close(&c);
		assert_int_equal(s->open(&c), 0);
		assert_int_equal(c.counted_least,
				 floats > THC_COUNTED_BYTES ? floats : THC_COUNTED_BYTES);
		s->describe(&c, &info);
		assert_int_equal(info.block, 1U << log2[i]);
		assert_int_equal(info.chunk, THC_COORDINATES(8));
		s->close(&c);
		s->close(&c);
		assert_null(c.context[THC_SCHEME_THC]);
		assert_int_equal(c.memory_now, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scheme__is_one_that_there_is),
		cmocka_unit_test(scheme__none_and_lhc_have_a_precision),
		cmocka_unit_test(scheme__lhc_has_a_grain),
		cmocka_unit_test(scheme__features_are_of_a_scheme),
		cmocka_unit_test(scheme__uthc_has_a_uniform_table),
		cmocka_unit_test(scheme__raises_what_a_bucket_counts_as),
		cmocka_unit_test(clamp__is_one_that_a_codec_serves),
		cmocka_unit_test(table__of_fewer_levels),
		cmocka_unit_test(rows__are_tables),
		cmocka_unit_test(rate__is_of_thc_with_small_blocks),
		cmocka_unit_test(block__is_one_that_a_codec_serves),
		cmocka_unit_test(block__holds_a_chunk),
		cmocka_unit_test(seal__is_that_of_the_options),
	};

	return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
