// SPDX-License-Identifier: GPL-2.0
/*
 * What libthc takes from WELCOME before anything is computed from it: constants
 * that a codec cannot serve are refused here, since a table's hash converts the
 * threshold to an integer and a block is a shift.
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

#define BLOCK_LOG2	10

static struct thc_welcome good(void)
{
	struct thc_welcome w = {
		.nonce = { 1 }, .ranks = thc_be16(4), .quorum = thc_be16(4),
		.data_slots = thc_be16(8), .norm_slots = thc_be16(2),
		.chunk = thc_be16(THC_CHUNK_8), .granularity = thc_be16(30), .shards = thc_be16(1),
		.flags = THC_WELCOME_F_READY, .reply = THC_REPLY_FANOUT, .bits = 4,
		.sum_width = 8, .block_log2 = BLOCK_LOG2, .family = 4,
	};
	struct thc_table t;
	uint64_t bits;
	int i;

	assert_int_equal(thc_table_solve(4, 30, 1.0 / 32, &t), 0);
	memcpy(&bits, &t.t, sizeof(bits));
	w.clamp = thc_be64(bits);
	w.table_hash = thc_be32(thc_table_hash(&t));
	for (i = 0; i < 16; i++)
		w.table[i] = thc_be16(t.value[i]);
	return w;
}

static int take(const struct thc_welcome *w)
{
	struct thc_params p;
	const struct thc_client_options o = { .rank = 0 };
	int error = thc_params_take(&p, w, 1, &o);

	/* a rejoin that failed leaves it to those who ask how large a block is */
	assert_true(p.block_log2 < 32);
	return error;
}

static void clamp__is_one_that_a_codec_serves(void **state)
{
	static const double wrong[] = { 2.8e286, 1e300, 1e3, 16, 0, -1, INFINITY, NAN };
	struct thc_welcome w = good();
	uint64_t bits;
	size_t i;

	(void)state;
	assert_int_equal(take(&w), 0);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		memcpy(&bits, &wrong[i], sizeof(bits));
		w.clamp = thc_be64(bits);
		if (take(&w) != -EPROTO)
			fail_msg("a threshold of %g is taken", wrong[i]);
	}
}

static void block__is_one_that_a_codec_serves(void **state)
{
	static const uint8_t wrong[] = { 64, 255, 63, 32, 31, 0 };
	struct thc_welcome w = good();
	size_t i;

	(void)state;
	assert_int_equal(take(&w), 0);
	for (i = 0; i < sizeof(wrong); i++) {
		w.block_log2 = wrong[i];
		if (take(&w) != -EPROTO)
			fail_msg("a block of 2^%d is taken", wrong[i]);
	}
}

/* Who has the job's secret key takes part in no job without one, nor the other way round. */
static void seal__is_that_of_the_options(void **state)
{
	static const uint8_t key[THC_KEY_BYTES];
	const struct thc_client_options keyed = { .key = key }, keyless = { .rank = 0 };
	struct thc_welcome w = good();
	struct thc_params p;

	(void)state;
	for (w.seal = THC_SEAL_NONE; w.seal <= THC_SEAL_NH; w.seal++) {
		bool nh = w.seal == THC_SEAL_NH;

		assert_int_equal(thc_params_take(&p, &w, 1, &keyed), nh ? 0 : -EPROTO);
		assert_int_equal(thc_params_take(&p, &w, 1, &keyless), nh ? -EPROTO : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clamp__is_one_that_a_codec_serves),
		cmocka_unit_test(block__is_one_that_a_codec_serves),
		cmocka_unit_test(seal__is_that_of_the_options),
	};

	return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
