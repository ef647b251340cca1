// SPDX-License-Identifier: GPL-2.0
/*
 * Buckets of a step that share a goal, against shares computed from the norms that the rule names,
 * of rounds up to r - 2. Norms of round r - 1, which some ranks have noted before round r and
 * others not, change nothing.
 */
#include "codec_util.h"
#include "client.h"
#include "randomword.h"
#include "shares.h"

enum { KEYS = 4, STEPS = 12, BLOCKS = 200, GROUP = 1 };

static const struct thc_rate_goal asked = { .bits = 3000 };

static void assert_same_goal(const struct thc_rate_goal *a, const struct thc_rate_goal *b)
{
	assert_int_equal(a->bits, b->bits);
	assert_int_equal(a->error, b->error);
	assert_int_equal(a->turn, b->turn);
	assert_int_equal(a->shared, b->shared);
	assert_int_equal(a->asked, b->asked);
	assert_int_equal(a->lambda, b->lambda);
}

static struct thc_rate job(void)
{
	struct thc_rate rate = {
		.class = {
			{ 0, 0, THC_RATE_ONE, THC_RATE_ONE }, { 1, 4, THC_RATE_ONE / 5, 0 },
			{ 2, 4, THC_RATE_ONE / 19, 0 }, { 3, 8, THC_RATE_ONE / 100, 0 },
			{ 4, 8, THC_RATE_ONE / 195, 0 },
		},
	};

	thc_rate_init(&rate, true);
	return rate;
}

static struct thc_share_id id_of(uint64_t group, uint64_t key)
{
	return (struct thc_share_id){ group, key, BLOCKS + (uint32_t)key };
}

/* Exponents of @key's norms in @step, by nothing but these. */
static void norms_of(uint64_t key, unsigned int step, int16_t *exponent)
{
	struct rng dice = rng_seeded(1000 * step + key);
	uint32_t i;

	for (i = 0; i < BLOCKS + key; i++)
		exponent[i] = (int16_t)(40 * key + rng_u64(&dice) % 100);
}

static void note(struct thc_shares *s, uint64_t group, uint64_t key, unsigned int step,
		 uint64_t round)
{
	const struct thc_share_id id = id_of(group, key);
	int16_t exponent[BLOCKS + KEYS];

	norms_of(key, step, exponent);
	thc_shares_note(s, &id, round, step % THC_RATE_ROUNDS, exponent);
}

static struct thc_rate_goal begin(struct thc_client *c, struct thc_shares *s,
				  const struct thc_rate *rate, uint64_t group, uint64_t key,
				  uint64_t round)
{
	const struct thc_share_id id = id_of(group, key);

	assert_int_equal(thc_shares_begin(c, s, &id, round), 0);
	return thc_shares_goal(s, &id, rate, &asked, round);
}

/* The goal of @key if each of @keys counts with its norms of step @of[key]; below 0: it does not
 * count.
 */
static struct thc_rate_goal expected(const struct thc_rate *rate, uint64_t key, uint64_t keys,
				     const int *of)
{
	static struct thc_rate_bins all, own;
	int16_t exponent[BLOCKS + KEYS];
	uint64_t k;

	thc_rate_empty(&all);
	thc_rate_empty(&own);
	for (k = 0; k < keys; k++) {
		if (of[k] < 0)
			continue;
		norms_of(k, (unsigned int)of[k], exponent);
		thc_rate_add(&all, exponent, BLOCKS + (uint32_t)k,
			     (uint32_t)of[k] % THC_RATE_ROUNDS);
		if (k == key)
			thc_rate_add(&own, exponent, BLOCKS + (uint32_t)k,
				     (uint32_t)of[k] % THC_RATE_ROUNDS);
	}
	return all.blocks > own.blocks ? thc_rate_share(rate, &asked, &all, &own) : asked;
}

/* Steps of @keys buckets. @late: a round's norms are known only after the next round has begun. */
static void check_steps(uint64_t keys, bool late)
{
	const struct thc_rate rate = job();
	struct thc_client c = { .counted_least = THC_COUNTED_BYTES };
	struct thc_shares s = { .count = 0 };
	uint64_t key, round = 0, k;
	unsigned int step;

	assert_int_equal(thc_shares_open(&c, &s), 0);
	for (step = 0; step < STEPS; step++)
		for (key = 0; key < keys; key++, round++) {
			struct thc_rate_goal goal = begin(&c, &s, &rate, GROUP, key, round), want;
			int of[KEYS];

			/* this step's buckets up to the one before the last; else those of the
			 * last step
			 */
			for (k = 0; k < keys; k++)
				of[k] = (int)step - (k + 1 < key ? 0 : 1);
			of[(key + keys - 1) % keys] = (int)step - (key ? 1 : 2);
			want = step ? expected(&rate, key, keys, of) : asked;
			assert_same_goal(&goal, &want);
			if (late && round)
				note(&s, GROUP, (round - 1) % keys,
				     (unsigned int)((round - 1) / keys), round - 1);
			if (!late)
				note(&s, GROUP, key, step, round);
		}
	thc_shares_close(&c, &s);
	assert_int_equal(c.memory_now, 0);
}

static void steps__of_several_buckets(void **state)
{
	uint64_t keys;

	(void)state;
	for (keys = 2; keys <= KEYS; keys++) {
		check_steps(keys, false);
		check_steps(keys, true);
	}
}

/* The goal of a round by the rule: from the keys of all earlier rounds and their norms. */
static struct thc_rate_goal by_rule(const struct thc_rate *rate, const uint64_t *keys, int round)
{
	int of[KEYS] = { -1, -1, -1, -1 }, k;

	for (k = 0; k <= round - 2; k++)
		of[keys[k]] = k;
	if (of[keys[round]] < 0)
		return asked;
	for (k = 0; k < KEYS; k++)
		if (of[k] < of[keys[round]] - 1)
			of[k] = -1;
	return expected(rate, keys[round], KEYS, of);
}

static void rounds__of_any_keys(void **state)
{
	const struct thc_rate rate = job();
	struct thc_client c = { .counted_least = THC_COUNTED_BYTES };
	struct thc_shares s = { .count = 0 };
	static uint64_t keys[2000];
	int round, noted = 0;

	(void)state;
	assert_int_equal(thc_shares_open(&c, &s), 0);
	for (round = 0; round < 2000; round++) {
		struct thc_rate_goal goal, want;

		/* one key for long, or many */
		keys[round] = round / 50 % 2 && random_word() % 8 ? 0 : random_word() % KEYS;
		for (; noted < round - (int)(random_word() % 2); noted++)
			note(&s, GROUP, keys[noted], (unsigned int)noted, (uint64_t)noted);
		goal = begin(&c, &s, &rate, GROUP, keys[round], (uint64_t)round);
		want = by_rule(&rate, keys, round);
		assert_same_goal(&goal, &want);
	}
	thc_shares_close(&c, &s);
}

/* A single bucket always gets the whole goal, as every bucket does in the first step. */
static void alone__a_goal_is_what_is_asked(void **state)
{
	const struct thc_rate rate = job();
	struct thc_client c = { .counted_least = THC_COUNTED_BYTES };
	struct thc_shares s = { .count = 0 };
	struct thc_rate_goal goal;
	unsigned int step;

	(void)state;
	assert_int_equal(thc_shares_open(&c, &s), 0);
	for (step = 0; step < STEPS; step++) {
		/* one of another group, and one of another size, between */
		begin(&c, &s, &rate, GROUP + 1, 2, 3 * step);
		note(&s, GROUP + 1, 2, step, 3 * step);
		goal = begin(&c, &s, &rate, GROUP, 1, 3 * step + 1);
		assert_same_goal(&goal, &asked);
		note(&s, GROUP, 1, step, 3 * step + 1);
	}
	thc_shares_close(&c, &s);
}

/* A bucket without rounds is forgotten after a step, and returns as a new one. */
static void gone__buckets_count_no_more(void **state)
{
	const struct thc_rate rate = job();
	struct thc_client c = { .counted_least = THC_COUNTED_BYTES };
	struct thc_shares s = { .count = 0 };
	uint64_t round = 0, key;
	unsigned int step;
	struct thc_rate_goal goal = asked, want;

	(void)state;
	assert_int_equal(thc_shares_open(&c, &s), 0);
	for (step = 0; step < 6; step++)
		for (key = 0; key < (step < 3 ? 3 : 2); key++, round++) {
			goal = begin(&c, &s, &rate, GROUP, key, round);
			note(&s, GROUP, key, step, round);
		}
	want = expected(&rate, 1, 2, (const int[]){ 4, 4 });
	assert_same_goal(&goal, &want);
	thc_shares_close(&c, &s);
}

/* Norms of rounds that were not begun do not count, and a bucket of another size is another
 * bucket.
 */
static void others__are_not_noted(void **state)
{
	const struct thc_rate rate = job();
	struct thc_client c = { .counted_least = THC_COUNTED_BYTES };
	struct thc_shares s = { .count = 0 };
	const struct thc_share_id larger = { GROUP, 0, BLOCKS + 1 };
	struct thc_rate_goal goal;
	int16_t exponent[BLOCKS + KEYS];

	(void)state;
	assert_int_equal(thc_shares_open(&c, &s), 0);
	norms_of(0, 0, exponent);
	thc_shares_note(&s, &larger, 0, 0, exponent);
	assert_int_equal(s.count, 0);
	begin(&c, &s, &rate, GROUP, 0, 0);
	note(&s, GROUP, 0, 0, 0);
	thc_shares_note(&s, &larger, 1, 0, exponent);
	assert_int_equal(s.count, 1);
	assert_int_equal(thc_shares_begin(&c, &s, &larger, 3), 0);
	goal = thc_shares_goal(&s, &larger, &rate, &asked, 3);
	assert_same_goal(&goal, &asked);
	thc_shares_close(&c, &s);
	assert_int_equal(c.memory_now, 0);
}

/* Keys and groups that never return do not accumulate. */
static void gone__buckets_leave_their_memory(void **state)
{
	const struct thc_rate rate = job();
	struct thc_client c = { .counted_least = THC_COUNTED_BYTES };
	struct thc_shares s = { .count = 0 };
	uint64_t round;
	size_t most = 0;

	(void)state;
	assert_int_equal(thc_shares_open(&c, &s), 0);
	for (round = 0; round < 3 * THC_SHARE_ROUNDS; round += 16) {
		const struct thc_share_id id = { round % 32 ? GROUP : round, round, BLOCKS };
		int16_t exponent[BLOCKS] = { 0 };

		assert_int_equal(thc_shares_begin(&c, &s, &id, round), 0);
		(void)thc_shares_goal(&s, &id, &rate, &asked, round);
		thc_shares_note(&s, &id, round, 0, exponent);
		/* one that stays, and sees them */
		begin(&c, &s, &rate, GROUP, 1, round + 1);
		note(&s, GROUP, 1, 0, round + 1);
		most = s.count > most ? s.count : most;
	}
	assert_in_range(most, THC_SHARE_ROUNDS / 16, THC_SHARE_ROUNDS / 16 + 3);
	assert_in_range(s.group_count, THC_SHARE_ROUNDS / 32, THC_SHARE_ROUNDS / 32 + 3);
	thc_shares_close(&c, &s);
	assert_int_equal(c.memory_now, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps__of_several_buckets),
		cmocka_unit_test(rounds__of_any_keys),
		cmocka_unit_test(alone__a_goal_is_what_is_asked),
		cmocka_unit_test(gone__buckets_count_no_more),
		cmocka_unit_test(others__are_not_noted),
		cmocka_unit_test(gone__buckets_leave_their_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
