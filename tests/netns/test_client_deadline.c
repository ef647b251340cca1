// SPDX-License-Identifier: GPL-2.0
/*
 * The client in a job with quorum and deadline: three ranks, one of them late, against `thcd
 * --software`. Divisors, who gets which result, what returns to the error memory, and errors of a
 * rank after the others went on without it.
 */
#include "ranks.h"

#define N	3
#define LATE	2
#define COUNT	5000
#define CHUNK	1024
#define CHUNKS	((COUNT + CHUNK - 1) / CHUNK)
#define KEY	7
#define DEADLINE_MS	50

/* Factor for all times here: on the debug kernel everything is late. */
static unsigned int slowness(void)
{
	const char *slow = getenv("THC_TEST_SLOW");

	return slow ? (unsigned int)atoi(slow) : 1;
}

/* The job with a quorum of two, @more of its options; until the next call. */
static const char *job(unsigned int deadline_ms, const char *more)
{
	static char text[256];

	snprintf(text, sizeof(text),
		 "job=1,ranks=3,reply=fanout,rate=fixed,quorum=2,deadline_ms=%u%s",
		 deadline_ms * slowness(), more);
	return text;
}

static struct thc_client_stats stats_of(const struct rank *r)
{
	struct thc_client_stats s = { .size = sizeof(s) };

	thc_client_stats(r->client, &s);
	return s;
}

static void check_ranks(const struct rank *ranks)
{
	unsigned int i;

	for (i = 0; i < N; i++)
		if (ranks[i].error)
			fail_msg("rank %u: %d: %s", i, ranks[i].error, ranks[i].sentence);
}

/* Like nmse() of the ranks below @n, for part of a gradient. */
static double distance(const float *got, unsigned int n, size_t from, size_t to)
{
	double error = 0, power = 0;
	size_t i;

	for (i = from; i < to; i++) {
		double mean = exact_mean(n, i);

		error += (got[i] - mean) * (got[i] - mean);
		power += mean * mean;
	}
	return error / power;
}

/* --- one round, one rank late --------------------------------------------- */

struct outcome {
	float	got[N][COUNT];
	float	kept[N][COUNT];		/* error memories afterwards */
	struct thc_client_stats stats[N];
};

static struct outcome outcome;

/* The late one begins when the others have ended. */
static int reduce_in_turn(struct rank *r, float *g, size_t count, int error)
{
	if (r->rank == LATE)
		pthread_barrier_wait(r->barrier);
	if (!error)
		error = thc_allreduce(r->client, g, count, THC_FP32, KEY);
	if (r->rank != LATE)
		pthread_barrier_wait(r->barrier);
	return error;
}

static void *reduce_late(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, COUNT);
	int error = open_client(r);

	pthread_barrier_wait(r->barrier);
	error = reduce_in_turn(r, g, COUNT, error);
	keep_error(r, error);
	if (!error) {
		memcpy(outcome.got[r->rank], g, sizeof(outcome.got[0]));
		thc_error_export(r->client, KEY, outcome.kept[r->rank], COUNT);
		outcome.stats[r->rank] = stats_of(r);
	}
	return end_rank(r, g, NULL);
}

static void run_late(const char *more)
{
	struct daemon d = start_daemon(job(DEADLINE_MS, more));
	struct rank ranks[N];
	unsigned int i;

	memset(&outcome, 0, sizeof(outcome));
	set_up_ranks(ranks, N, d);
	for (i = 0; i < N; i++)
		ranks[i].flags = THC_CLIENT_ERROR_FEEDBACK;
	run_ranks(ranks, N, reduce_late);
	stop_daemon(d);
	check_ranks(ranks);
}

/* The late rank's error memory has its whole gradient again. */
static void check_kept(void)
{
	size_t i;

	for (i = 0; i < COUNT; i++)
		assert_true(fabs(outcome.kept[LATE][i] - gradient_at(LATE, i)) < 1e-4);
}

static void late__others_divide_by_two_and_the_late_one_agrees(void **state)
{
	(void)state;
	run_late("");
	/* the mean of the two that were in time, not two thirds of it */
	assert_true(distance(outcome.got[0], 2, 0, COUNT) < 0.03);
	assert_memory_equal(outcome.got[0], outcome.got[1], sizeof(outcome.got[0]));
	assert_memory_equal(outcome.got[0], outcome.got[LATE], sizeof(outcome.got[0]));
	check_kept();
	assert_int_equal(outcome.stats[0].partial, CHUNKS);
	assert_int_equal(outcome.stats[0].excluded, 0);
	assert_int_equal(outcome.stats[LATE].excluded, CHUNKS);
}

/* The same with one block of 2,048 chunks and 16-bit sums. */
static void late__large_block_and_wide_sums(void **state)
{
	(void)state;
	run_late(",block=1048576,sum_width=16,granularity=255,slots=2048");
	assert_true(distance(outcome.got[0], 2, 0, COUNT) < 0.03);
	assert_memory_equal(outcome.got[0], outcome.got[1], sizeof(outcome.got[0]));
	assert_memory_equal(outcome.got[0], outcome.got[LATE], sizeof(outcome.got[0]));
	check_kept();
	assert_int_equal(outcome.stats[LATE].excluded, 2048);
}

/* One slot, five chunks: when the late rank comes, the results of the first three are overwritten.
 * It gets zeros for them, and their gradient returns to its error memory.
 */
static void late__overwritten_results_are_zero_and_kept(void **state)
{
	enum { GONE = (CHUNKS - 2) * CHUNK };
	size_t i;

	(void)state;
	run_late(",slots=1");
	assert_true(distance(outcome.got[0], 2, 0, COUNT) < 0.03);
	assert_memory_equal(outcome.got[0], outcome.got[1], sizeof(outcome.got[0]));
	for (i = 0; i < GONE; i++)
		assert_true(outcome.got[LATE][i] == 0);
	assert_memory_equal(outcome.got[LATE] + GONE, outcome.got[0] + GONE,
			    (COUNT - GONE) * sizeof(float));
	check_kept();
	assert_int_equal(outcome.stats[LATE].excluded, CHUNKS);
}

/* --- many rounds ---------------------------------------------------------- */

#define ROUNDS	24

/* One chunk a round, so its count holds for all coordinates: delivered values (each round's mean
 * times its contributors) and the final error memories add up to all gradients. The late rank is
 * late in every fourth round; other ranks may be late on a busy machine, too.
 */
static double delivered[CHUNK];
static float remaining[N][CHUNK];
static uint64_t late_rounds[N];

static void *reduce_rounds_late(void *arg)
{
	struct rank *r = arg;
	int error = open_client(r), round;
	float *g = NULL;
	size_t i;

	for (round = 0; round < ROUNDS; round++) {
		uint64_t before = error ? 0 : stats_of(r).partial;

		free(g);
		g = make_gradient(r->rank, CHUNK);
		pthread_barrier_wait(r->barrier);
		if (round % 4 == 1)
			error = reduce_in_turn(r, g, CHUNK, error);
		else if (!error)
			error = thc_allreduce(r->client, g, CHUNK, THC_FP32, KEY);
		if (error)
			continue;
		for (i = 0; i < CHUNK && !r->rank; i++)
			delivered[i] += (stats_of(r).partial > before ? 2.0 : 3.0) * g[i];
	}
	keep_error(r, error);
	if (!error) {
		thc_error_export(r->client, KEY, remaining[r->rank], CHUNK);
		late_rounds[r->rank] = stats_of(r).excluded;
	}
	return end_rank(r, g, NULL);
}

static void rounds__what_was_left_out_is_delivered_later(void **state)
{
	struct daemon d = start_daemon(job(DEADLINE_MS, ""));
	struct rank ranks[N];
	unsigned int i, k;

	(void)state;
	set_up_ranks(ranks, N, d);
	for (i = 0; i < N; i++)
		ranks[i].flags = THC_CLIENT_ERROR_FEEDBACK;
	run_ranks(ranks, N, reduce_rounds_late);
	stop_daemon(d);
	check_ranks(ranks);
	assert_true(late_rounds[LATE] >= ROUNDS / 4);
	for (i = 0; i < CHUNK; i++) {
		double brought = 0, accounted = delivered[i];

		for (k = 0; k < N; k++) {
			brought += (double)ROUNDS * gradient_at(k, i);
			accounted += remaining[k][i];
		}
		if (fabs(accounted - brought) > 1e-3)
			fail_msg("coordinate %u: %f brought, %f accounted for", i, brought,
				 accounted);
	}
}

/* --- what the others do not learn of -------------------------------------- */

struct fault {
	void (*spoil)(float *g);
	size_t count;		/* the late rank's */
	int error;
	const char *words;
};

static const struct fault *fault;

static void spoil_nan(float *g)
{
	g[321] = NAN;
}

/* Only the late rank sees its error; then all ranks rejoin. */
static void *err_late(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, COUNT), *copy = make_gradient(r->rank, COUNT);
	int error = open_client(r), again;
	size_t count = COUNT;

	pthread_barrier_wait(r->barrier);
	if (r->rank == LATE) {
		if (fault->spoil) {
			fault->spoil(g);
			fault->spoil(copy);
		}
		count = fault->count;
	}
	error = reduce_in_turn(r, g, count, error);
	keep_error(r, error);
	if (r->rank == LATE && memcmp(g, copy, COUNT * sizeof(*g)))
		r->error = -1;
	if (r->rank != LATE && distance(g, 2, 0, COUNT) > 0.03)
		r->error = -2;
	/* the late rank is a round behind */
	if (r->rank == LATE && thc_allreduce(r->client, copy, COUNT, THC_FP32, 1) != -ESTALE)
		r->error = -3;
	pthread_barrier_wait(r->barrier);
	again = thc_client_rejoin(r->client);
	free(g);
	g = make_gradient(r->rank, COUNT);
	pthread_barrier_wait(r->barrier);
	if (!again)
		again = thc_allreduce(r->client, g, COUNT, THC_FP32, 1);
	if (again)
		keep_error(r, again);
	return end_rank(r, g, copy);
}

static void check_fault(const struct fault *f)
{
	struct daemon d = start_daemon(job(DEADLINE_MS, ""));
	struct rank ranks[N];

	fault = f;
	set_up_ranks(ranks, N, d);
	run_ranks(ranks, N, err_late);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, 0);
	assert_int_equal(ranks[1].error, 0);
	assert_int_equal(ranks[LATE].error, f->error);
	if (!strstr(ranks[LATE].sentence, f->words))
		fail_msg("\"%s\" does not say \"%s\"", ranks[LATE].sentence, f->words);
}

static void excluded__nan_is_not_sent(void **state)
{
	static const struct fault nan = { spoil_nan, COUNT, -EDOM, "index 321" };

	(void)state;
	check_fault(&nan);
}

static void excluded__disagreement_needs_a_rejoin(void **state)
{
	static const struct fault shorter = { NULL, COUNT - 1, -EBADMSG, "rejoin" };

	(void)state;
	check_fault(&shorter);
}

/* The late rank's norm slot has been used twice since, so nobody has the norms. The rank's buffer
 * and error memory are unchanged.
 */
static void *fall_behind(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, COUNT), *copy = make_gradient(r->rank, COUNT);
	static float kept[COUNT];
	int error = open_client(r), i;

	for (i = 0; i < COUNT && r->rank == LATE; i++)
		kept[i] = 0.001f * (float)i;
	if (!error && r->rank == LATE)
		error = thc_error_import(r->client, KEY, kept, COUNT);
	pthread_barrier_wait(r->barrier);
	for (i = 0; !error && r->rank != LATE && i < 2; i++)
		error = thc_allreduce(r->client, g, COUNT, THC_FP32, KEY);
	pthread_barrier_wait(r->barrier);
	if (!error && r->rank == LATE)
		error = thc_allreduce(r->client, g, COUNT, THC_FP32, KEY);
	keep_error(r, error);
	if (r->rank == LATE) {
		thc_error_export(r->client, KEY, outcome.kept[LATE], COUNT);
		if (memcmp(g, copy, COUNT * sizeof(*g)) ||
		    memcmp(kept, outcome.kept[LATE], sizeof(kept)))
			r->error = -1;
	}
	return end_rank(r, g, copy);
}

static void late__lost_norms_are_an_error_that_changes_nothing(void **state)
{
	struct daemon d = start_daemon(job(DEADLINE_MS, ",norm_slots=1"));
	struct rank ranks[N];
	unsigned int i;

	(void)state;
	set_up_ranks(ranks, N, d);
	for (i = 0; i < N; i++)
		ranks[i].flags = THC_CLIENT_ERROR_FEEDBACK;
	run_ranks(ranks, N, fall_behind);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, 0);
	assert_int_equal(ranks[1].error, 0);
	assert_int_equal(ranks[LATE].error, -ESTALE);
	assert_non_null(strstr(ranks[LATE].sentence, "fell so far behind"));
}

/* --- a rank that leaves --------------------------------------------------- */

static void *leave_early(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, COUNT);
	int error = open_client(r);

	pthread_barrier_wait(r->barrier);
	if (r->rank == LATE) {
		thc_client_close(r->client);
		r->client = NULL;
	}
	pthread_barrier_wait(r->barrier);
	if (!error && r->rank != LATE)
		error = thc_allreduce(r->client, g, COUNT, THC_FP32, KEY);
	keep_error(r, error);
	if (!error && r->rank != LATE && distance(g, 2, 0, COUNT) > 0.03)
		r->error = -1;
	return end_rank(r, g, NULL);
}

/* The deadline is longer than any timer: WAIT says that a rank has left. */
static void left__the_quorum_goes_on(void **state)
{
	struct daemon d = start_daemon(job(300, ""));
	struct rank ranks[N];

	(void)state;
	set_up_ranks(ranks, N, d);
	run_ranks(ranks, N, leave_early);
	stop_daemon(d);
	check_ranks(ranks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late__others_divide_by_two_and_the_late_one_agrees),
		cmocka_unit_test(late__large_block_and_wide_sums),
		cmocka_unit_test(late__overwritten_results_are_zero_and_kept),
		cmocka_unit_test(late__lost_norms_are_an_error_that_changes_nothing),
		cmocka_unit_test(rounds__what_was_left_out_is_delivered_later),
		cmocka_unit_test(excluded__nan_is_not_sent),
		cmocka_unit_test(excluded__disagreement_needs_a_rejoin),
		cmocka_unit_test(left__the_quorum_goes_on),
	};

	return cmocka_run_group_tests_name("client_deadline", tests, NULL, NULL);
}
