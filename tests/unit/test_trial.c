// SPDX-License-Identifier: GPL-2.0
/*
 * Ranks that try whether a rate saves time: whatever each rank measures, and whenever it learns of
 * others' votes, all ranks decide equally in each round.
 */
#include "codec_util.h"
#include "randomword.h"
#include "trial.h"

enum { RANKS = 5, MOST = 3 * THC_TRIAL_EVERY };

/**
 * struct rank - a rank, and the times that it measures
 * @ns: ns for 1024 values, by kind
 * @kind: of each round; @timed: its time counts
 * @ended: number of rounds that it has ended
 */
struct rank {
	struct thc_trial	trial;
	uint64_t		ns[2];
	bool			kind[MOST];
	bool			timed[MOST];
	uint64_t		ended;
};

struct bed {
	struct rank	rank[RANKS];
	unsigned int	of[MOST][THC_VOTE_RATE + 1];
	uint64_t	rounds;
};

/* Ends rounds up to @round for @r: it learns their claims and times. */
static void end(struct bed *b, struct rank *r, uint64_t round)
{
	for (; r->ended <= round && r->ended < b->rounds; r->ended++) {
		bool kind = r->kind[r->ended];

		thc_trial_note(&r->trial, r->ended, b->of[r->ended]);
		if (r->timed[r->ended])
			thc_trial_took(&r->trial, r->ended, kind,
				       r->ns[kind] * 100 + random_word() % 100, 100 * 1024);
	}
}

/* Runs a round; a rank may begin it before the last one has ended. */
static void run(struct bed *b)
{
	uint64_t round = b->rounds;
	unsigned int i;

	for (i = 0; i < RANKS; i++) {
		struct rank *r = &b->rank[i];

		if (round >= 2)
			end(b, r, round - 2);
		if (round && random_word() % 2)
			end(b, r, round - 1);
		r->kind[round] = thc_trial_begin(&r->trial, round, RANKS, &r->timed[round]);
		assert_int_equal(r->kind[round], b->rank[0].kind[round]);
		assert_true(r->timed[round] == (round % THC_TRIAL_EVERY >= THC_TRIAL_FIRST));
		b->of[round][thc_trial_vote(&r->trial)]++;
	}
	b->rounds++;
}

static void draw(struct bed *b, unsigned int faster_with_rate)
{
	unsigned int i;

	for (i = 0; i < RANKS; i++) {
		b->rank[i].ns[false] = 1000 + 10 * i;
		b->rank[i].ns[true] = i < faster_with_rate ? 700 : 1300;
	}
}

static void most__ranks_decide(void **state)
{
	static struct bed b;
	unsigned int faster, i;

	(void)state;
	for (faster = 0; faster <= RANKS; faster++) {
		bool rate = 2 * faster > RANKS;

		memset(&b, 0, sizeof(b));
		draw(&b, faster);
		for (i = 0; i < THC_TRIAL_EVERY; i++)
			run(&b);
		/* first rounds, then both kinds, then the faster kind */
		for (i = 0; i < THC_TRIAL_FIRST + 2 * THC_TRIAL_ROUNDS; i++)
			assert_int_equal(b.rank[0].kind[i],
					 i < THC_TRIAL_FIRST ||
						 i >= THC_TRIAL_FIRST + THC_TRIAL_ROUNDS);
		for (i += 8; i < THC_TRIAL_EVERY; i++)
			assert_int_equal(b.rank[0].kind[i], rate);
		assert_int_equal(b.rank[0].trial.state,
				 rate ? THC_TRIAL_FOR_RATE : THC_TRIAL_FOR_FIXED);
	}
}

/* A rate that is not faster is not worth its error: ranks stay with fixed bits. */
static void equal__times_are_for_fixed_bits(void **state)
{
	static struct bed b;
	unsigned int i;

	(void)state;
	draw(&b, 0);
	for (i = 0; i < RANKS; i++)
		b.rank[i].ns[true] = b.rank[i].ns[false] * 98 / 100;
	for (i = 0; i < 4 * THC_TRIAL_ROUNDS; i++)
		run(&b);
	assert_int_equal(b.rank[0].trial.state, THC_TRIAL_FOR_FIXED);
	/* up to 1 ns more, by the remainder in end() */
	assert_in_range(thc_trial_median(&b.rank[0].trial, false), 1000, 1001);
	assert_in_range(thc_trial_median(&b.rank[0].trial, true), 980, 981);
}

/* Networks change: after a while there is another trial. */
static void later__there_is_another_trial(void **state)
{
	static struct bed b;
	uint64_t i;

	(void)state;
	draw(&b, RANKS);
	for (i = 0; i < THC_TRIAL_EVERY; i++)
		run(&b);
	assert_int_equal(b.rank[0].trial.state, THC_TRIAL_FOR_RATE);
	draw(&b, 0);
	for (; i < 2 * THC_TRIAL_EVERY; i++)
		run(&b);
	assert_int_equal(b.rank[0].trial.state, THC_TRIAL_FOR_FIXED);
	/* until votes of the second one were there, those of the first did not count */
	for (i = 0; i < THC_TRIAL_FIRST + 2 * THC_TRIAL_ROUNDS; i++)
		assert_int_equal(b.rank[0].kind[THC_TRIAL_EVERY + i], b.rank[0].kind[i]);
	assert_false(b.rank[0].kind[2 * THC_TRIAL_EVERY - 1]);
}

/* A rank that has measured nothing is waited for, and meanwhile both are tried. */
static void silent__ranks_are_waited_for(void **state)
{
	struct thc_trial t = { .rounds = 0 };
	unsigned int of[THC_VOTE_RATE + 1] = { 1, 0, RANKS - 1 }, i, rated = 0;
	bool timed;

	(void)state;
	for (i = 0; i < 20 * THC_TRIAL_ROUNDS; i++) {
		rated += thc_trial_begin(&t, i, RANKS, &timed);
		thc_trial_note(&t, i, of);
	}
	assert_int_equal(t.state, THC_TRIAL_RUNS);
	assert_in_range(rated, 10 * THC_TRIAL_ROUNDS, 10 * THC_TRIAL_ROUNDS + THC_TRIAL_FIRST);
	of[THC_VOTE_NONE] = 0;
	of[THC_VOTE_FIXED] = 1;
	thc_trial_note(&t, i, of);
	thc_trial_begin(&t, i + 1, RANKS, &timed);
	assert_int_equal(t.state, THC_TRIAL_RUNS);
	assert_true(thc_trial_begin(&t, i + 2, RANKS, &timed));
	assert_int_equal(t.state, THC_TRIAL_FOR_RATE);
}

/* A rank that a deadline left out is not waited for, as long as a quorum votes. */
static void left_out__ranks_are_not(void **state)
{
	unsigned int of[THC_VOTE_RATE + 1] = { 0, 3, 1 };
	struct thc_trial t = { .rounds = 0 };
	bool timed;

	(void)state;
	thc_trial_begin(&t, 0, RANKS, &timed);
	thc_trial_note(&t, 0, of);
	thc_trial_begin(&t, 2, RANKS, &timed);
	assert_int_equal(t.state, THC_TRIAL_RUNS);
	assert_false(thc_trial_begin(&t, 3, RANKS - 1, &timed));
	assert_int_equal(t.state, THC_TRIAL_FOR_FIXED);
}

/* Rounds without a trial come between its rounds. */
static void other__rounds_come_between(void **state)
{
	unsigned int of[THC_VOTE_RATE + 1] = { 0, 0, 3 };
	struct thc_trial t = { .rounds = 0 };
	bool timed;

	(void)state;
	thc_trial_begin(&t, 100, 3, &timed);
	thc_trial_note(&t, 100, of);
	thc_trial_begin(&t, 101, 3, &timed);
	assert_int_equal(t.state, THC_TRIAL_RUNS);
	/* this round's agreement has failed */
	assert_true(thc_trial_begin(&t, 500, 3, &timed));
	assert_int_equal(t.state, THC_TRIAL_FOR_RATE);
	assert_int_equal(t.rounds, 3);
}

/* The claims of round OFF differ, and one rank alone has counted it. From two rounds later on both
 * ranks choose alike, whether they learn of the claims before or after the next round begins.
 */
static void differing__ranks_begin_another_trial(void **state)
{
	enum { OFF = 17, ENDS = 100 };
	unsigned int early, round, k;
	bool timed, kind[2];

	(void)state;
	for (early = 0; early < 4; early++) {
		struct thc_trial t[2] = { { .rounds = 0 }, { .rounds = 0 } };

		for (round = 0; round < ENDS; round++) {
			for (k = 0; k < 2; k++) {
				if (round == OFF + 1 && early & 1U << k)
					thc_trial_differ(&t[k], OFF);
				if (round != OFF || !k)
					kind[k] = thc_trial_begin(&t[k], round, RANKS, &timed);
				if (round == OFF + 1 && !(early & 1U << k))
					thc_trial_differ(&t[k], OFF);
			}
			if (round >= OFF + 2)
				assert_int_equal(kind[0], kind[1]);
		}
		assert_int_equal(t[0].first, OFF + 2);
		assert_int_equal(t[1].first, OFF + 2);
	}
}

/* Small buckets count as 1024 values, since they take as long. */
static void times__are_of_1024_values(void **state)
{
	static const struct {
		uint64_t ns, count, each;
	} took[] = {
		{ 700, 1, 700 },	{ 700, 1023, 700 },   { 700, 1024, 700 },
		{ 1400, 1025, 700 },	{ 1400, 2048, 700 },  { 2800, 4096, 700 },
		{ 1ULL << 40, 1024, UINT32_MAX },
	};
	unsigned int i;
	bool timed;

	(void)state;
	for (i = 0; i < sizeof(took) / sizeof(took[0]); i++) {
		struct thc_trial t = { .rounds = 0 };

		thc_trial_begin(&t, 0, 1, &timed);
		thc_trial_took(&t, 0, true, took[i].ns, took[i].count);
		assert_int_equal(thc_trial_median(&t, true), took[i].each);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(most__ranks_decide),
		cmocka_unit_test(equal__times_are_for_fixed_bits),
		cmocka_unit_test(later__there_is_another_trial),
		cmocka_unit_test(silent__ranks_are_waited_for),
		cmocka_unit_test(left_out__ranks_are_not),
		cmocka_unit_test(other__rounds_come_between),
		cmocka_unit_test(differing__ranks_begin_another_trial),
		cmocka_unit_test(times__are_of_1024_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
