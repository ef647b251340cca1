// SPDX-License-Identifier: GPL-2.0
/*
 * Errors of the client against a real daemon, and whom they name: ranks are threads with their own
 * clients, `thcd --software` is on loopback.
 */
#include <netinet/in.h>
#include <stdbool.h>
#include <time.h>

#include <linux/thc.h>

#include "ranks.h"

/* The last of many ranks differs: its claim is in the second packet. */
static unsigned int odd_rank(unsigned int ranks)
{
	return ranks > THC_CLAIM_WORKERS ? ranks - 1 : 1;
}

/* A round that fails, then a good one without rejoining. */
static void *disagree_then_agree(void *arg)
{
	struct rank *r = arg;
	size_t count = r->rank == odd_rank(r->ranks) ? 3000 : 4096;
	float *g = make_gradient(r->rank, 4096), *copy = make_gradient(r->rank, 4096);
	int error = open_client(r), bad;

	bad = error ? error : thc_allreduce(r->client, g, count, THC_FP32, 0);
	keep_error(r, bad);
	if (memcmp(g, copy, 4096 * sizeof(*g)))
		r->error = -1;
	if (!error && thc_allreduce(r->client, g, 4096, THC_FP32, 0))
		r->error = -2;
	else if (nmse(g, r->ranks, 4096) > 0.03)
		r->error = -3;
	return end_rank(r, g, copy);
}

static void errors__disagreement_names_the_rank(void **state)
{
	struct rank ranks[3];

	(void)state;
	run_job(ranks, 3, disagree_then_agree);
	assert_int_equal(ranks[0].error, -EBADMSG);
	assert_int_equal(ranks[1].error, -EBADMSG);
	assert_int_equal(ranks[2].error, -EBADMSG);
	assert_non_null(strstr(ranks[0].sentence, "rank 1 disagrees"));
	assert_non_null(strstr(ranks[0].sentence, "3000 fp32"));
	assert_non_null(strstr(ranks[0].sentence, "4096 fp32"));
	assert_non_null(strstr(ranks[1].sentence, "ranks 0 and 2 disagree"));
}

static void errors__disagreement_names_a_rank_above_31(void **state)
{
	struct rank ranks[34];
	unsigned int i;

	(void)state;
	run_job(ranks, 34, disagree_then_agree);
	for (i = 0; i < 34; i++)
		assert_int_equal(ranks[i].error, -EBADMSG);
	assert_non_null(strstr(ranks[0].sentence, "rank 33 disagrees"));
	assert_non_null(strstr(ranks[32].sentence, "rank 33 disagrees"));
	assert_non_null(strstr(ranks[33].sentence, "31 and 32 disagree"));
}

static void *nan_then_good(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, 5000), *copy;
	int error = open_client(r), bad;

	if (r->rank == 2)
		g[4321] = r->count ? INFINITY : NAN;
	copy = malloc(5000 * sizeof(*g));
	memcpy(copy, g, 5000 * sizeof(*g));
	bad = error ? error : thc_allreduce(r->client, g, 5000, THC_FP32, 0);
	keep_error(r, bad);
	if (memcmp(g, copy, 5000 * sizeof(*g)))
		r->error = -1;
	g[4321] = gradient_at(r->rank, 4321);
	if (!error && thc_allreduce(r->client, g, 5000, THC_FP32, 0))
		r->error = -2;
	return end_rank(r, g, copy);
}

static void errors__nan_and_inf_name_the_rank(void **state)
{
	size_t inf;

	(void)state;
	for (inf = 0; inf < 2; inf++) {
		struct daemon d = start_daemon("job=1,ranks=3,reply=fanout");
		struct rank ranks[3];
		unsigned int i;

		set_up_ranks(ranks, 3, d);
		for (i = 0; i < 3; i++)
			ranks[i].count = inf;
		run_ranks(ranks, 3, nan_then_good);
		stop_daemon(d);
		for (i = 0; i < 3; i++)
			assert_int_equal(ranks[i].error, -EDOM);
		assert_non_null(strstr(ranks[0].sentence, "rank 2"));
		assert_non_null(strstr(ranks[2].sentence, "index 4321 of 5000"));
	}
}

/* --- NaN and Inf as results, steps that are skipped ----------------------- */

#define STEP_COUNT	5000
#define FINE_KEY	1	/* a bucket that is finite on all ranks */
#define BAD_KEY		2	/* a bucket with Inf from one rank */

/* A rank's two buckets; what their memories held before a step. */
struct step {
	float	*fine, *bad;
	float	before[2][STEP_COUNT];
};

/* One step with both buckets in flight; returns the second bucket's result. */
static int do_step(struct rank *r, struct step *s, float scale, float worst)
{
	struct thc_request *fine, *bad;
	size_t i;

	for (i = 0; i < STEP_COUNT; i++)
		s->fine[i] = s->bad[i] = scale * gradient_at(r->rank, i);
	if (worst != 0 && r->rank == 2)
		s->bad[4321] = worst;
	if (thc_allreduce_start(r->client, s->fine, STEP_COUNT, THC_FP32, FINE_KEY, &fine) ||
	    thc_allreduce_start(r->client, s->bad, STEP_COUNT, THC_FP32, BAD_KEY, &bad))
		return -1;
	return thc_allreduce_wait(fine) ? -2 : thc_allreduce_wait(bad);
}

static bool memory_is(struct rank *r, uint64_t key, const float *expected)
{
	static __thread float now[STEP_COUNT];

	return thc_error_export(r->client, key, now, STEP_COUNT) == STEP_COUNT &&
	       !memcmp(now, expected, sizeof(now));
}

static bool all_nan(const float *x)
{
	size_t i;

	for (i = 0; i < STEP_COUNT; i++)
		if (!isnan(x[i]))
			return false;
	return true;
}

/* Returns the line of a failed check, or 0. */
static int skip_a_step(struct rank *r, struct step *s, float worst)
{
	struct thc_client_stats stats = { .size = sizeof(stats) };

	if (do_step(r, s, 1, 0))
		return __LINE__;
	thc_error_export(r->client, FINE_KEY, s->before[0], STEP_COUNT);
	thc_error_export(r->client, BAD_KEY, s->before[1], STEP_COUNT);

	/* an overflow: all other values of the step are 10^5 times too large */
	if (do_step(r, s, 1e5F, worst) != THC_NONFINITE)
		return __LINE__;
	if (!all_nan(s->bad) || all_nan(s->fine))
		return __LINE__;
	if (!memory_is(r, BAD_KEY, s->before[1]) || memory_is(r, FINE_KEY, s->before[0]))
		return __LINE__;
	if (thc_error_undo(r->client, FINE_KEY) || thc_error_undo(r->client, BAD_KEY) ||
	    !memory_is(r, FINE_KEY, s->before[0]) || !memory_is(r, BAD_KEY, s->before[1]))
		return __LINE__;
	/* a second undo has no effect, and an unknown key is no error */
	if (thc_error_undo(r->client, FINE_KEY) || thc_error_undo(r->client, 77) ||
	    !memory_is(r, FINE_KEY, s->before[0]))
		return __LINE__;
	if (do_step(r, s, 1, 0) || nmse(s->fine, r->ranks, STEP_COUNT) > 0.06)
		return __LINE__;
	if (thc_client_stats(r->client, &stats) || stats.nonfinite != 1 || stats.requests != 6 ||
	    stats.failures)
		return __LINE__;
	return 0;
}

static void *nonfinite_step(void *arg)
{
	struct rank *r = arg;
	struct step *s = calloc(1, sizeof(*s));

	s->fine = malloc(STEP_COUNT * sizeof(float));
	s->bad = malloc(STEP_COUNT * sizeof(float));
	r->error = open_client(r);
	if (!r->error)
		r->error = skip_a_step(r, s, r->count ? INFINITY : NAN);
	end_rank(r, s->fine, s->bad);
	free(s);
	return NULL;
}

static void nonfinite__is_a_result_if_wanted_and_leaves_nothing(void **state)
{
	size_t inf;

	(void)state;
	for (inf = 0; inf < 2; inf++) {
		struct daemon d = start_daemon("job=1,ranks=3,reply=fanout,rate=fixed");
		struct rank ranks[3];
		unsigned int i;

		set_up_ranks(ranks, 3, d);
		for (i = 0; i < 3; i++) {
			ranks[i].count = inf;
			ranks[i].flags = THC_CLIENT_ERROR_FEEDBACK | THC_CLIENT_NONFINITE;
		}
		run_ranks(ranks, 3, nonfinite_step);
		stop_daemon(d);
		for (i = 0; i < 3; i++)
			assert_int_equal(ranks[i].error, 0);
	}
}

/* NaN as the element type has it, on all ranks, in every dtype. */
static void *nonfinite_half(void *arg)
{
	struct rank *r = arg;
	uint16_t inf = r->dtype == THC_FP16 ? 0x7c00 : 0x7f80;
	uint16_t nan = r->dtype == THC_FP16 ? 0x7e00 : 0x7fc0;
	uint16_t *g = calloc(STEP_COUNT, sizeof(*g));
	size_t i;

	if (!r->rank)
		g[0] = inf;
	r->error = open_client(r);
	if (!r->error)
		r->error = thc_allreduce(r->client, g, STEP_COUNT, r->dtype, 0);
	for (i = 0; i < STEP_COUNT; i++)
		if (g[i] != nan)
			r->error = -1;
	return end_rank(r, g, NULL);
}

static void nonfinite__half_precision(void **state)
{
	static const enum thc_dtype dtypes[] = { THC_FP16, THC_BF16 };
	unsigned int i, k;

	(void)state;
	for (k = 0; k < 2; k++) {
		struct daemon d = start_daemon("job=1,ranks=2,reply=fanout");
		struct rank ranks[2];

		set_up_ranks(ranks, 2, d);
		for (i = 0; i < 2; i++) {
			ranks[i].flags = THC_CLIENT_NONFINITE;
			ranks[i].dtype = dtypes[k];
		}
		run_ranks(ranks, 2, nonfinite_half);
		stop_daemon(d);
		for (i = 0; i < 2; i++)
			assert_int_equal(ranks[i].error, THC_NONFINITE);
	}
}

/* --- missing ranks -------------------------------------------------------- */

/* Rank 1 never calls. */
static void *one_stays_away(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, 5000), *copy = make_gradient(r->rank, 5000);
	int error = open_client(r);

	/* so that ranks wait for rank 1, not for each other */
	pthread_barrier_wait(r->barrier);
	if (!error && r->rank != 1)
		error = thc_allreduce(r->client, g, 5000, THC_FP32, 0);
	keep_error(r, error);
	if (memcmp(g, copy, 5000 * sizeof(*g)))
		r->error = -1;
	if (error == -ETIMEDOUT && thc_allreduce(r->client, g, 5000, THC_FP32, 0) != -ESTALE)
		r->error = -2;
	return end_rank(r, g, copy);
}

static void errors__missing_rank_is_named_in_time(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,reply=fanout");
	struct rank ranks[3];
	unsigned int i;

	(void)state;
	set_up_ranks(ranks, 3, d);
	for (i = 0; i < 3; i++)
		ranks[i].timeout_ms = 3000;
	run_ranks(ranks, 3, one_stays_away);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, -ETIMEDOUT);
	assert_int_equal(ranks[2].error, -ETIMEDOUT);
	assert_non_null(strstr(ranks[0].sentence, "rank 1 did not contribute"));
	assert_non_null(strstr(ranks[2].sentence, "rank 1 did not contribute"));
}

/* Rank 1 leaves while the others wait for it. */
static void *one_leaves(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, 5000);
	int error = open_client(r);

	if (r->rank == 1) {
		usleep(200000);
		thc_client_close(r->client);
		r->client = NULL;
	} else if (!error) {
		error = thc_allreduce(r->client, g, 5000, THC_FP32, 0);
	}
	keep_error(r, error);
	return end_rank(r, g, NULL);
}

static void errors__leaving_rank_is_named(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,reply=fanout");
	struct rank ranks[3];

	(void)state;
	set_up_ranks(ranks, 3, d);
	run_ranks(ranks, 3, one_leaves);
	stop_daemon(d);
	assert_int_equal(ranks[1].error, 0);
	assert_int_equal(ranks[0].error, -EPIPE);
	assert_int_equal(ranks[2].error, -EPIPE);
	assert_non_null(strstr(ranks[0].sentence, "rank 1"));
}

/* A fresh client replaces rank 1: the others get an error, rejoin and go on. */
static void *one_restarts(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, 5000);
	int error = open_client(r), first = 0;

	if (!error && r->rank == 1) {
		usleep(200000);
		thc_client_close(r->client);
		error = open_client(r);		/* a restarted process */
	} else if (!error) {
		first = thc_allreduce(r->client, g, 5000, THC_FP32, 0);
		keep_error(r, first);
		error = thc_client_rejoin(r->client);
	}
	if (!error)
		error = thc_allreduce(r->client, g, 5000, THC_FP32, 0);
	if (!error && nmse(g, r->ranks, 5000) > 0.03)
		error = -1;
	if (error || r->rank == 1)
		keep_error(r, error);
	return end_rank(r, g, NULL);
}

static void errors__restarted_rank_is_named_and_rejoined(void **state)
{
	struct rank ranks[3];
	unsigned int i;

	(void)state;
	run_job(ranks, 3, one_restarts);
	assert_int_equal(ranks[1].error, 0);
	/* Rank 1 left before it came back, and a rank that hears of it first may have joined again
	 * before the other hears: both sentences are true.
	 */
	for (i = 0; i < 3; i += 2) {
		assert_true(ranks[i].error == -ESTALE || ranks[i].error == -EPIPE);
		assert_non_null(strstr(ranks[i].sentence,
				       ranks[i].error == -EPIPE ? "rank 1" : "joined again"));
	}
}

static void expect_open(struct thc_client_options *o, int error, const char *words)
{
	struct thc_client *c = NULL;

	assert_int_equal(thc_client_open(o, &c), error);
	if (!strstr(thc_last_error(), words))
		fail_msg("\"%s\" does not say \"%s\"", thc_last_error(), words);
	assert_null(c);
}

/* Time in ns until thc_client_open() fails with @error and @words. */
static uint64_t fails_after(struct thc_client_options o, int error, const char *words)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	expect_open(&o, error, words);
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec);
}

/* An aggregator's refusal of an unknown job or key can be forged: a client with a key waits two
 * seconds for a better answer, one without a key believes it at once.
 */
static void errors__strangers_are_told(void **state)
{
	struct daemon keyed = start_daemon("job=1,ranks=2,reply=fanout");
	struct daemon open = start_daemon("job=1,ranks=2,reply=fanout,seal=sum");
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	const uint64_t doubt = 2000000000;
	uint8_t other_key[THC_KEY_BYTES];

	(void)state;
	memcpy(other_key, job_key, sizeof(other_key));
	other_key[THC_KEY_BYTES - 1] ^= 1;
	o.aggregator = "127.0.0.1";
	o.port = keyed.port;
	o.job = 1;
	o.join_timeout_ms = 30000;
	o.key = other_key;
	assert_true(fails_after(o, -ENOENT, "no job 1 with this key") >= doubt);
	o.key = NULL;
	assert_true(fails_after(o, -ENOENT, "no job 1 for workers without a key") < doubt);
	o.port = open.port;
	o.job = 9;
	assert_true(fails_after(o, -ENOENT, "no job 9 for workers without a key") < doubt);
	o.job = 1;
	o.key = job_key;
	assert_true(fails_after(o, -ENOENT, "no job 1 with this key") >= doubt);
	stop_daemon(keyed);
	stop_daemon(open);
}

/* An aggregator of version 1 silently drops packets of other versions. */
static void errors__older_aggregator_may_be_why(void **state)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	socklen_t length = sizeof(at);
	int silent = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_int_equal(bind(silent, (struct sockaddr *)&at, length), 0);
	assert_int_equal(getsockname(silent, (struct sockaddr *)&at, &length), 0);
	o.aggregator = "127.0.0.1";
	o.port = ntohs(at.sin_port);
	o.job = 1;
	o.key = job_key;
	o.join_timeout_ms = 1000;
	expect_open(&o, -EHOSTUNREACH, "A thcd older than this library does not answer it");
	close(silent);
}

static void errors__open_says_why_not(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=2,reply=fanout");
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;

	(void)state;
	o.aggregator = "127.0.0.1";
	o.port = d.port;
	o.job = 1;
	o.key = job_key;
	o.join_timeout_ms = 2000;
	expect_open(&o, -ETIMEDOUT, "rank 1 of job 1 did not join");
	o.rank = 2;
	expect_open(&o, -ERANGE, "rank 2 is too large for job 1");
	o.rank = 64;
	expect_open(&o, -EINVAL, "at most 64");
	o.rank = 0;
	o.flags = 0x80;
	expect_open(&o, -EINVAL, "unknown option flags 0x80");
	o.flags = 0;
	/* a label longer than DNS allows: no server is asked */
	o.aggregator = "aggregator-aggregator-aggregator-aggregator-aggregator-aggregator";
	expect_open(&o, -EHOSTUNREACH, "has no address");
	o.aggregator = "fe80::1";
	expect_open(&o, -EINVAL, "fe80::1%eth0");
	o.aggregator = "fe80::1%nosuch0";
	expect_open(&o, -EINVAL, "no interface \"nosuch0\"");
	o.aggregator = "fe80::1::2";
	expect_open(&o, -EINVAL, "not an IPv6 address");
	o.aggregator = "";
	expect_open(&o, -EINVAL, "set the aggregator");
	o.aggregator = "127.0.0.1";
	o.bind = "::1";
	expect_open(&o, -EINVAL, "family");
	o.bind = "192.0.2.1";
	expect_open(&o, -EADDRNOTAVAIL, "192.0.2.1");
	o.bind = NULL;
	o.interface = "nosuch0";
	expect_open(&o, -EINVAL, "nosuch0");
	o.interface = NULL;
	o.size = 8;
	expect_open(&o, -EINVAL, "thc_client_options.size is 8");
	o.size = sizeof(o);
	stop_daemon(d);
	expect_open(&o, -ECONNREFUSED, "start thcd");
}

static void *bad_arguments(void *arg)
{
	struct rank *r = arg;
	float g[4] = { 1, 2, 3, 4 };
	int error = open_client(r);

	if (!error && (thc_allreduce(r->client, g, 0, THC_FP32, 0) != -EINVAL ||
		       thc_allreduce(r->client, NULL, 4, THC_FP32, 0) != -EINVAL ||
		       thc_allreduce(r->client, g, 4, (enum thc_dtype)9, 0) != -EINVAL))
		error = -1;
	if (!error)
		error = thc_allreduce(r->client, g, 4, THC_FP32, 0);
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void errors__bad_arguments_change_nothing(void **state)
{
	struct rank ranks[2];

	(void)state;
	run_job(ranks, 2, bad_arguments);
	assert_int_equal(ranks[0].error, 0);
	assert_int_equal(ranks[1].error, 0);
}

/* A request that nobody answers ends when the client is closed. */
static void *close_in_flight(void *arg)
{
	struct rank *r = arg;
	struct thc_request *request = NULL;
	float *g = make_gradient(r->rank, 5000);
	int error = open_client(r);

	if (!error && !r->rank)
		error = thc_allreduce_start(r->client, g, 5000, THC_FP32, 0, &request);
	usleep(100000);
	pthread_barrier_wait(r->barrier);
	thc_client_rejoin(r->client);
	keep_error(r, request ? thc_allreduce_wait(request) : error);
	return end_rank(r, g, NULL);
}

static void errors__rejoin_cancels_what_is_in_flight(void **state)
{
	struct rank ranks[2];

	(void)state;
	run_job(ranks, 2, close_in_flight);
	assert_int_equal(ranks[0].error, -ECANCELED);
	assert_int_equal(ranks[1].error, 0);
}

/* Waiting for a request is allowed even after its client was closed. */
static void *close_then_wait(void *arg)
{
	struct rank *r = arg;
	struct thc_request *request = NULL;
	float *g = make_gradient(r->rank, 5000);
	int error = open_client(r);

	if (!error && !r->rank)
		error = thc_allreduce_start(r->client, g, 5000, THC_FP32, 0, &request);
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	r->error = request ? thc_allreduce_test(request) : 1;
	if (r->error == 1 && request)
		keep_error(r, thc_allreduce_wait(request));
	free(g);
	return NULL;
}

static void errors__close_cancels_what_is_in_flight(void **state)
{
	struct rank ranks[2];

	(void)state;
	run_job(ranks, 2, close_then_wait);
	assert_int_equal(ranks[0].error, -ECANCELED);
	assert_int_equal(ranks[1].error, 1);
	assert_non_null(strstr(ranks[0].sentence, "closed"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors__disagreement_names_the_rank),
		cmocka_unit_test(errors__disagreement_names_a_rank_above_31),
		cmocka_unit_test(errors__nan_and_inf_name_the_rank),
		cmocka_unit_test(nonfinite__is_a_result_if_wanted_and_leaves_nothing),
		cmocka_unit_test(nonfinite__half_precision),
		cmocka_unit_test(errors__missing_rank_is_named_in_time),
		cmocka_unit_test(errors__leaving_rank_is_named),
		cmocka_unit_test(errors__restarted_rank_is_named_and_rejoined),
		cmocka_unit_test(errors__strangers_are_told),
		cmocka_unit_test(errors__older_aggregator_may_be_why),
		cmocka_unit_test(errors__open_says_why_not),
		cmocka_unit_test(errors__bad_arguments_change_nothing),
		cmocka_unit_test(errors__rejoin_cancels_what_is_in_flight),
		cmocka_unit_test(errors__close_cancels_what_is_in_flight),
	};

	return cmocka_run_group_tests_name("client_errors", tests, NULL, NULL);
}
