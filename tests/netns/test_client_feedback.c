// SPDX-License-Identifier: GPL-2.0
/*
 * Error memories of a client: which rounds change them, and which jobs a client with error
 * feedback refuses.
 */
#include "ranks.h"

#define COUNT	5000

static int reduce_key(struct rank *r, float *g, size_t count, uint64_t key, const char *scheme)
{
	struct thc_call call = { .size = sizeof(call), .scheme = scheme, .key = key };
	struct thc_request *request;
	size_t i;
	int error;

	for (i = 0; i < count; i++)
		g[i] = gradient_at(r->rank, i);
	error = thc_allreduce_call_start(r->client, g, count, THC_FP32, &call, &request);
	return error ? error : thc_allreduce_wait(request);
}

/* Does undo leave the memory of @key as it is? */
static int keeps_its_memory(struct rank *r, uint64_t key)
{
	static __thread float was[COUNT], now[COUNT];

	if (thc_error_export(r->client, key, was, COUNT) != COUNT ||
	    thc_error_undo(r->client, key) || thc_error_export(r->client, key, now, COUNT) != COUNT)
		return -EIO;
	return memcmp(was, now, sizeof(was)) ? -EINVAL : 0;
}

/* The key's last all-reduce lost nothing, or was refused, so undo changes nothing. */
static void *undo_what_lost_nothing(void *arg)
{
	struct rank *r = arg;
	float *g = malloc(COUNT * sizeof(*g));
	int error;

	r->flags = THC_CLIENT_ERROR_FEEDBACK;
	error = open_client(r);
	if (!error)
		error = reduce_key(r, g, COUNT, 1, NULL);
	if (!error)
		error = reduce_key(r, g, COUNT, 2, NULL);
	if (!error)
		error = reduce_key(r, g, COUNT, 1, "none");
	if (!error)
		error = keeps_its_memory(r, 1);
	/* other ranks may still need the daemon, which rank 0 kills next */
	pthread_barrier_wait(r->barrier);
	if (!r->rank)
		kill(r->d.pid, SIGKILL);
	pthread_barrier_wait(r->barrier);
	if (!error &&
	    (!reduce_key(r, g, COUNT, 1, NULL) || reduce_key(r, g, COUNT, 2, NULL) != -ESTALE))
		error = -EBADE;
	keep_error(r, error ? error : keeps_its_memory(r, 2));
	return end_rank(r, g, NULL);
}

static void feedback__undo_is_of_the_last_call(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=2,reply=fanout");
	struct rank ranks[2];

	(void)state;
	set_up_ranks(ranks, 2, d);
	ranks[0].timeout_ms = ranks[1].timeout_ms = 3000;
	run_ranks(ranks, 2, undo_what_lost_nothing);
	waitpid(d.pid, NULL, 0);
	assert_int_equal(ranks[0].error, 0);
	assert_int_equal(ranks[1].error, 0);
}

/* Ranks disagree twice about the count for a new key, and then agree. */
static void *agree_at_last(void *arg)
{
	struct rank *r = arg;
	float *g = malloc(COUNT * sizeof(*g));
	int error;

	r->flags = THC_CLIENT_ERROR_FEEDBACK;
	error = open_client(r);
	if (!error && reduce_key(r, g, r->rank ? 100 : 200, 7, NULL) != -EBADMSG)
		error = -EBADE;
	if (!error && thc_error_export(r->client, 7, NULL, 0))
		error = -EEXIST;
	keep_error(r, error ? error : reduce_key(r, g, 200, 7, NULL));
	return end_rank(r, g, NULL);
}

static void feedback__of_a_first_round_that_failed_is_none(void **state)
{
	(void)state;
	run_well("job=1,ranks=2,reply=fanout", 2, agree_at_last);
}

static void *open_to_keep_a_memory(void *arg)
{
	struct rank *r = arg;

	r->flags = r->rank ? 0 : THC_CLIENT_ERROR_FEEDBACK;
	keep_error(r, open_client(r));
	return end_rank(r, NULL, NULL);
}

/* By these tables a rank loses more than it sends. */
static void feedback__that_would_grow_is_refused(void **state)
{
	static const char *const jobs[] = {
		"job=1,ranks=2,scheme=uthc,bits=2,reply=fanout",
		"job=1,ranks=2,bits=1,clamp=0.1,reply=fanout",
		"job=1,ranks=2,bits=2,clamp=1e-6,reply=fanout",
		"job=1,ranks=2,bits=2,table=0:1:2:3,clamp=0.0001,reply=fanout",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		struct daemon d = start_daemon(jobs[i]);
		struct rank ranks[2];

		set_up_ranks(ranks, 2, d);
		run_ranks(ranks, 2, open_to_keep_a_memory);
		stop_daemon(d);
		assert_int_equal(ranks[0].error, -EOPNOTSUPP);
		assert_non_null(strstr(ranks[0].sentence, "would grow without end"));
		assert_int_equal(ranks[1].error, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(feedback__undo_is_of_the_last_call),
		cmocka_unit_test(feedback__of_a_first_round_that_failed_is_none),
		cmocka_unit_test(feedback__that_would_grow_is_refused),
	};

	return cmocka_run_group_tests_name("client_feedback", tests, NULL, NULL);
}
