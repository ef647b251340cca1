// SPDX-License-Identifier: GPL-2.0
/*
 * The client against a real daemon: several ranks, each a thread with its own
 * client, and `thcd --software` on loopback. Means, errors and who is named
 * in them, memory. Loss and XDP are tested in namespaces elsewhere.
 */
#include "ranks.h"

/* --- means ---------------------------------------------------------------- */

static void *reduce_once(void *arg)
{
	struct rank *r = arg;
	int error = open_client(r);

	if (!error)
		error = thc_allreduce(r->client, r->buf, r->count, r->dtype, 7);
	keep_error(r, error);
	pthread_barrier_wait(r->barrier);	/* nobody leaves early */
	thc_client_close(r->client);
	return NULL;
}

static void check_mean(unsigned int n, size_t count)
{
	struct rank ranks[RANKS_MAX];
	char job[128];
	struct daemon d;
	unsigned int i;

	snprintf(job, sizeof(job), "job=1,ranks=%u,cookie=%llu,reply=fanout", n,
		 (unsigned long long)COOKIE);
	d = start_daemon(job);
	set_up_ranks(ranks, n, d);
	for (i = 0; i < n; i++) {
		ranks[i].buf = make_gradient(i, count);
		ranks[i].count = count;
	}
	run_ranks(ranks, n, reduce_once);
	stop_daemon(d);
	for (i = 0; i < n; i++) {
		if (ranks[i].error)
			fail_msg("n=%u rank %u: %d: %s", n, i, ranks[i].error, ranks[i].sentence);
		assert_memory_equal(ranks[i].buf, ranks[0].buf, count * sizeof(float));
	}
	/* independent gradients: about the single-rank error over n, plus clamping */
	assert_true(nmse(ranks[0].buf, n, count) < 0.05 / n);
	assert_true(nmse(ranks[0].buf, n, count) > 0);
	for (i = 0; i < n; i++)
		free(ranks[i].buf);
}

static void mean__one_to_eight_ranks(void **state)
{
	unsigned int n;

	(void)state;
	for (n = 1; n <= 8; n++)
		check_mean(n, 50000 + 997 * n);
}

static void mean__sixty_four_ranks(void **state)
{
	(void)state;
	check_mean(64, 5000);
}

static void mean__tiny_and_odd_lengths(void **state)
{
	(void)state;
	check_mean(2, 1);
	check_mean(2, 1023);
	check_mean(3, 1025);
	check_mean(2, 262145);
}

/* --- dtypes --------------------------------------------------------------- */

static uint16_t to_bf16(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static float from_fp16(uint16_t h)
{
	int exponent = h >> 10 & 31;
	double m = exponent ? 1 + (h & 1023) / 1024.0 : (h & 1023) / 1024.0;

	return (float)(ldexp(m, exponent ? exponent - 15 : -14) * (h >> 15 ? -1 : 1));
}

static uint16_t to_fp16(float f)
{
	uint16_t best = 0, h;
	double error = 1e9;

	/* slow and plainly right: the nearest of the values nearby */
	for (h = 0; h < 0x4400; h++) {
		double e = fabs(from_fp16(h) - fabs(f));

		if (e < error) {
			error = e;
			best = h;
		}
	}
	return best | (f < 0 ? 0x8000 : 0);
}

static void check_half(enum thc_dtype dtype)
{
	enum { N = 2, COUNT = 3000 };
	struct rank ranks[N];
	struct daemon d = start_daemon("job=1,ranks=2,cookie=0x5eed1234abcd,reply=fanout");
	static float wide[COUNT];
	uint16_t *half[N];
	unsigned int i, k;

	set_up_ranks(ranks, N, d);
	for (k = 0; k < N; k++) {
		half[k] = malloc(COUNT * sizeof(uint16_t));
		for (i = 0; i < COUNT; i++)
			half[k][i] = dtype == THC_FP16 ? to_fp16(gradient_at(k, i)) :
							 to_bf16(gradient_at(k, i));
		ranks[k].buf = half[k];
		ranks[k].count = COUNT;
		ranks[k].dtype = dtype;
	}
	run_ranks(ranks, N, reduce_once);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, 0);
	assert_int_equal(ranks[1].error, 0);
	assert_memory_equal(half[0], half[1], COUNT * sizeof(uint16_t));
	for (i = 0; i < COUNT; i++)
		wide[i] = dtype == THC_FP16 ? from_fp16(half[0][i]) : from_bf16(half[0][i]);
	assert_true(nmse(wide, N, COUNT) < 0.03);
	for (k = 0; k < N; k++)
		free(half[k]);
}

static void mean__fp16(void **state)
{
	(void)state;
	check_half(THC_FP16);
}

static void mean__bf16(void **state)
{
	(void)state;
	check_half(THC_BF16);
}

/* 18 ranks do not fit 8-bit sums with 16 levels: 16-bit lanes, short chunks. */
static void mean__sixteen_bit_sums(void **state)
{
	enum { COUNT = 5000 };
	struct daemon d = start_daemon(
		"job=1,ranks=3,cookie=0x5eed1234abcd,reply=fanout,granularity=255,sum_width=16");
	struct rank ranks[3];
	unsigned int i;

	(void)state;
	set_up_ranks(ranks, 3, d);
	for (i = 0; i < 3; i++) {
		ranks[i].buf = make_gradient(i, COUNT);
		ranks[i].count = COUNT;
	}
	run_ranks(ranks, 3, reduce_once);
	stop_daemon(d);
	for (i = 0; i < 3; i++) {
		if (ranks[i].error)
			fail_msg("rank %u: %s", i, ranks[i].sentence);
		assert_memory_equal(ranks[i].buf, ranks[0].buf, COUNT * sizeof(float));
	}
	assert_true(nmse(ranks[0].buf, 3, COUNT) < 0.02);
	for (i = 0; i < 3; i++)
		free(ranks[i].buf);
}

/* --- several requests, error feedback ------------------------------------- */

#define ROUNDS	40

/* Error feedback: the means over many rounds add up to the exact mean. */
static void *reduce_rounds(void *arg)
{
	struct rank *r = arg;
	float *work = malloc(r->count * sizeof(float)), *sum = r->buf;
	int error = open_client(r), round;
	size_t i;

	for (round = 0; !error && round < ROUNDS; round++) {
		for (i = 0; i < r->count; i++)
			work[i] = gradient_at(r->rank, i);
		error = thc_allreduce(r->client, work, r->count, THC_FP32, 1);
		for (i = 0; i < r->count; i++)
			sum[i] += work[i] / ROUNDS;
	}
	keep_error(r, error);
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(work);
	return NULL;
}

static double nmse_of_rounds(uint32_t flags)
{
	enum { N = 2, COUNT = 20000 };
	struct daemon d = start_daemon("job=1,ranks=2,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[N];
	double result;
	unsigned int i;

	set_up_ranks(ranks, N, d);
	for (i = 0; i < N; i++) {
		ranks[i].buf = calloc(COUNT, sizeof(float));
		ranks[i].count = COUNT;
		ranks[i].flags = flags;
	}
	run_ranks(ranks, N, reduce_rounds);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, 0);
	assert_int_equal(ranks[1].error, 0);
	result = nmse(ranks[0].buf, N, COUNT);
	for (i = 0; i < N; i++)
		free(ranks[i].buf);
	return result;
}

static void feedback__mean_over_rounds_is_exact(void **state)
{
	double without = nmse_of_rounds(0);
	double with = nmse_of_rounds(THC_CLIENT_ERROR_FEEDBACK);

	(void)state;
	print_message("NMSE of the mean of %d rounds: %.2e without, %.2e with error feedback\n",
		      ROUNDS, without, with);
	/* with it the remaining error is one round's, divided by the rounds squared */
	assert_true(with < without / 4);
	assert_true(with < 0.03 / ROUNDS / ROUNDS * 4);
}

/* Many requests in flight, of several sizes, waited for in reverse. */
static void *reduce_overlapped(void *arg)
{
	enum { REQUESTS = 6 };
	struct rank *r = arg;
	struct thc_request *request[REQUESTS];
	float *buf[REQUESTS];
	int error = open_client(r), i, e, started = 0;

	for (i = 0; !error && i < REQUESTS; i++) {
		buf[i] = make_gradient(r->rank, r->count >> i);
		error = thc_allreduce_start(r->client, buf[i], r->count >> i, THC_FP32, (uint64_t)i,
					    &request[i]);
		started += !error;
	}
	for (i = started - 1; i >= 0; i--) {
		e = thc_allreduce_wait(request[i]);
		if (e)
			error = e;
		else if (nmse(buf[i], r->ranks, r->count >> i) > 0.03)
			error = -1000 - i;
		free(buf[i]);
	}
	keep_error(r, error);
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	return NULL;
}

static void requests__overlap(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[3];
	unsigned int i;

	(void)state;
	set_up_ranks(ranks, 3, d);
	for (i = 0; i < 3; i++)
		ranks[i].count = 300000;
	run_ranks(ranks, 3, reduce_overlapped);
	stop_daemon(d);
	for (i = 0; i < 3; i++)
		if (ranks[i].error)
			fail_msg("rank %u: %d: %s", i, ranks[i].error, ranks[i].sentence);
}

/* --- errors --------------------------------------------------------------- */

/* A bad round, then a good one without joining again. */
static void *disagree_then_agree(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, 4096), *copy = make_gradient(r->rank, 4096);
	int error = open_client(r), bad;

	bad = error ? error : thc_allreduce(r->client, g, r->rank == 1 ? 3000 : 4096, THC_FP32, 0);
	keep_error(r, bad);
	if (memcmp(g, copy, 4096 * sizeof(*g)))
		r->error = -1;
	if (!error && thc_allreduce(r->client, g, 4096, THC_FP32, 0))
		r->error = -2;
	else if (nmse(g, r->ranks, 4096) > 0.03)
		r->error = -3;
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(g);
	free(copy);
	return NULL;
}

static void errors__disagreement_names_the_rank(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[3];

	(void)state;
	set_up_ranks(ranks, 3, d);
	run_ranks(ranks, 3, disagree_then_agree);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, -EBADMSG);
	assert_int_equal(ranks[1].error, -EBADMSG);
	assert_int_equal(ranks[2].error, -EBADMSG);
	assert_non_null(strstr(ranks[0].sentence, "rank 1 disagrees"));
	assert_non_null(strstr(ranks[0].sentence, "3000 fp32"));
	assert_non_null(strstr(ranks[0].sentence, "4096 fp32"));
	assert_non_null(strstr(ranks[1].sentence, "ranks 0 and 2 disagree"));
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
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(g);
	free(copy);
	return NULL;
}

static void errors__nan_and_inf_name_the_rank(void **state)
{
	size_t inf;

	(void)state;
	for (inf = 0; inf < 2; inf++) {
		struct daemon d = start_daemon("job=1,ranks=3,cookie=0x5eed1234abcd,reply=fanout");
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

/* Rank 1 never calls. */
static void *one_stays_away(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, 5000), *copy = make_gradient(r->rank, 5000);
	int error = open_client(r);

	if (!error && r->rank != 1)
		error = thc_allreduce(r->client, g, 5000, THC_FP32, 0);
	keep_error(r, error);
	if (memcmp(g, copy, 5000 * sizeof(*g)))
		r->error = -1;
	if (error == -ETIMEDOUT && thc_allreduce(r->client, g, 5000, THC_FP32, 0) != -ESTALE)
		r->error = -2;
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(g);
	free(copy);
	return NULL;
}

static void errors__missing_rank_is_named_in_time(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[3];
	unsigned int i;

	(void)state;
	set_up_ranks(ranks, 3, d);
	for (i = 0; i < 3; i++)
		ranks[i].timeout_ms = 700;
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
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(g);
	return NULL;
}

static void errors__leaving_rank_is_named(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,cookie=0x5eed1234abcd,reply=fanout");
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

/* Rank 1 is replaced by a fresh one: the others are told, rejoin, go on. */
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
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(g);
	return NULL;
}

static void errors__restarted_rank_is_named_and_rejoined(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[3];
	unsigned int i;

	(void)state;
	set_up_ranks(ranks, 3, d);
	run_ranks(ranks, 3, one_restarts);
	stop_daemon(d);
	assert_int_equal(ranks[1].error, 0);
	/* it left before it came back, and who heard of that first may have
	 * joined again before the other heard of anything: all is the truth
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

static void errors__open_says_why_not(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=2,cookie=0x5eed1234abcd,reply=fanout");
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;

	(void)state;
	o.aggregator = "127.0.0.1";
	o.port = d.port;
	o.job = 1;
	o.cookie = COOKIE;
	o.join_timeout_ms = 300;
	expect_open(&o, -ETIMEDOUT, "rank 1 of job 1 did not join");
	o.rank = 2;
	expect_open(&o, -ERANGE, "rank 2 is too large for job 1");
	o.rank = 64;
	expect_open(&o, -EINVAL, "at most 64");
	o.rank = 0;
	o.cookie = 1;
	expect_open(&o, -ENOENT, "cookie");
	o.cookie = COOKIE;
	o.job = 9;
	expect_open(&o, -ENOENT, "no job 9");
	o.job = 1;
	o.flags = 0x80;
	expect_open(&o, -EINVAL, "unknown option flags 0x80");
	o.flags = 0;
	o.aggregator = "aggregator.example";
	expect_open(&o, -EINVAL, "not an IPv4 or IPv6 address");
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
	expect_open(&o, -EINVAL, "options.size");
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
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	return NULL;
}

static void errors__bad_arguments_change_nothing(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=2,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[2];

	(void)state;
	set_up_ranks(ranks, 2, d);
	run_ranks(ranks, 2, bad_arguments);
	stop_daemon(d);
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
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(g);
	return NULL;
}

static void errors__rejoin_cancels_what_is_in_flight(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=2,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[2];

	(void)state;
	set_up_ranks(ranks, 2, d);
	run_ranks(ranks, 2, close_in_flight);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, -ECANCELED);
	assert_int_equal(ranks[1].error, 0);
}

/* Waiting is right also after the client is gone. */
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
	struct daemon d = start_daemon("job=1,ranks=2,cookie=0x5eed1234abcd,reply=fanout");
	struct rank ranks[2];

	(void)state;
	set_up_ranks(ranks, 2, d);
	run_ranks(ranks, 2, close_then_wait);
	stop_daemon(d);
	assert_int_equal(ranks[0].error, -ECANCELED);
	assert_int_equal(ranks[1].error, 1);
	assert_non_null(strstr(ranks[0].sentence, "closed"));
}

/* --- memory --------------------------------------------------------------- */

/* Most memory this process ever had in RAM since forget_peak(), bytes. */
static size_t peak_in_ram(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	size_t kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %zu kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib << 10;
}

static size_t forget_peak(void)
{
	FILE *f = fopen("/proc/self/clear_refs", "w");

	if (!f || fputs("5", f) < 0 || fclose(f))
		return 0;
	return peak_in_ram();
}

/* A small bucket counts as much as a client needs for the smallest one. */
static size_t counted(size_t bucket, size_t block)
{
	size_t least = 3 * block * sizeof(float);

	if (least < 512 << 10)
		least = 512 << 10;
	return bucket > least ? bucket : least;
}

static size_t promised(size_t bucket, size_t block)
{
	return 2 * counted(bucket, block);
}

/* What is in flight is a large part of little memory. */
static size_t many_slots(size_t slots)
{
	return slots > 2048 ? 80 * (slots - 2048) : 0;
}

/* By the client's own account, and the kernel's. */
static void *measure_memory(void *arg)
{
	struct rank *r = arg;
	struct thc_client_info info = { .size = sizeof(info) };
	size_t bytes = r->count * (r->dtype == THC_FP32 ? 4 : 2), before, rise;
	void *buf = malloc(bytes);
	int error, i;

	memset(buf, 0x3c, bytes);	/* not zero: its pages are to be there from now on */
	before = forget_peak();
	error = open_client(r);
	for (i = 0; !error && i < 3; i++)
		error = thc_allreduce(r->client, buf, r->count, r->dtype, 3);
	if (!error) {
		rise = peak_in_ram() - before;
		thc_client_info(r->client, &info);
		print_message(
			"%s, blocks of %7u: %6zu KiB beside a bucket of %6zu KiB (%6zu in RAM)\n",
			r->dtype == THC_FP32 ? "fp32" : "fp16", info.block, info.memory_peak >> 10,
			bytes >> 10, rise >> 10);
		if (info.memory_peak > promised(bytes, info.block) + many_slots(info.data_slots) ||
		    info.memory_peak < bytes)
			error = -1;
		/* a thread, the C library's arenas and the kernel's batches of pages */
		if (!before || rise > info.memory_peak + (1 << 20))
			error = -2;
	}
	keep_error(r, error);
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(buf);
	return NULL;
}

static void check_memory(const char *job, enum thc_dtype dtype, size_t count)
{
	struct daemon d = start_daemon(job);
	struct rank rank;

	set_up_ranks(&rank, 1, d);
	rank.count = count;
	rank.dtype = dtype;
	run_ranks(&rank, 1, measure_memory);
	stop_daemon(d);
	if (rank.error)
		fail_msg("%d: %s", rank.error, rank.sentence);
}

static void memory__at_most_twice_the_bucket(void **state)
{
	static const size_t kib[] = { 0, 100, 512, 1000, 5000, 25600 };
	unsigned int i, dtype;

	(void)state;
	/* huge pages would round every arena up to 2 MiB */
	assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	for (dtype = THC_FP32; dtype <= THC_FP16; dtype++) {
		size_t each = dtype == THC_FP32 ? 4 : 2;

		for (i = 0; i < 6; i++)
			check_memory("job=1,ranks=1,cookie=0x5eed1234abcd,reply=fanout",
				     (enum thc_dtype)dtype, (kib[i] << 10) / each + 1);
		check_memory("job=1,ranks=1,cookie=0x5eed1234abcd,reply=fanout,sum_width=16",
			     (enum thc_dtype)dtype, (512 << 10) / each);
		check_memory("job=1,ranks=1,cookie=0x5eed1234abcd,reply=fanout,block=1048576",
			     (enum thc_dtype)dtype, 1);
		/* three blocks of floats, and a padded one */
		check_memory("job=1,ranks=1,cookie=0x5eed1234abcd,reply=fanout,block=1048576",
			     (enum thc_dtype)dtype, (12 << 20) / each + 1);
	}
	check_memory(
		"job=1,ranks=1,cookie=0x5eed1234abcd,reply=fanout,slots=4032,norm_slots=64,sum_width=16",
		THC_FP16, 256 << 10);
	/* a block of padding, and regions for sums of 16 bits */
	check_memory("job=1,ranks=1,cookie=0x5eed1234abcd,reply=fanout,block=1048576,sum_width=16",
		     THC_FP16, (8 << 20) + 1);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

#define SEQUENCE_MAX	24

/**
 * struct sequence - buckets that one client reduces
 * @n: so many
 * @in_flight: started before the first one is waited for
 * @dtype: THC_FP32 or THC_FP16
 * @kib: size
 */
struct sequence {
	unsigned int n;
	unsigned int in_flight;
	enum thc_dtype dtype[SEQUENCE_MAX];
	size_t kib[SEQUENCE_MAX];
};

/* Twice the most that is in progress at a time: one, or two that follow each other. */
static size_t promised_to(const struct sequence *s, size_t block)
{
	size_t most = 0;
	unsigned int i;

	for (i = 0; i < s->n; i++) {
		size_t sum = counted(s->kib[i] << 10, block);

		if (i && s->in_flight > 1)
			sum += counted(s->kib[i - 1] << 10, block);
		most = sum > most ? sum : most;
	}
	return 2 * most;
}

static void *reduce_sequence(void *arg)
{
	struct rank *r = arg;
	struct thc_client_info info = { .size = sizeof(info) };
	struct thc_request *request[SEQUENCE_MAX];
	const struct sequence *s = r->buf;
	void *buf[SEQUENCE_MAX];
	unsigned int i, begun = 0;
	int error = open_client(r);

	for (i = 0; !error && i < s->n; i++) {
		for (; !error && begun < s->n && begun < i + s->in_flight; begun++) {
			size_t bytes = s->kib[begun] << 10;

			buf[begun] = calloc(1, bytes);
			error = thc_allreduce_start(r->client, buf[begun],
						    bytes / (s->dtype[begun] == THC_FP32 ? 4 : 2),
						    s->dtype[begun], 0, &request[begun]);
		}
		if (!error)
			error = thc_allreduce_wait(request[i]);
		free(buf[i]);
	}
	keep_error(r, error);
	if (!error) {
		thc_client_info(r->client, &info);
		r->count = info.memory_peak;
		if (info.memory_peak > promised_to(s, info.block))
			snprintf(r->sentence, sizeof(r->sentence), "%.2f x the largest allowed",
				 2 * (double)info.memory_peak / promised_to(s, info.block));
		else
			r->sentence[0] = 0;
	}
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	return NULL;
}

static void check_sequence(const char *name, struct sequence s)
{
	struct daemon d = start_daemon("job=1,ranks=1,cookie=0x5eed1234abcd,reply=fanout");
	struct rank rank;

	set_up_ranks(&rank, 1, d);
	rank.buf = &s;
	run_ranks(&rank, 1, reduce_sequence);
	stop_daemon(d);
	if (rank.error || rank.sentence[0]) {
		unsigned int i;

		for (i = 0; i < s.n; i++)
			print_error("%s of %zu KiB\n", s.dtype[i] == THC_FP32 ? "fp32" : "fp16",
				    s.kib[i]);
		fail_msg("%s, %u in flight: %d: %s (%zu KiB held)", name, s.in_flight, rank.error,
			 rank.sentence, rank.count >> 10);
	}
}

/* Sizes that leave buffers behind which fit none, or only just, of what follows. */
static void memory__of_buckets_that_differ(void **state)
{
	static const struct sequence known[] = {
		{ 3, 1, { 1, 1, 1 }, { 2000, 3100, 4000 } },
		{ 3, 1, { 1, 1, 1 }, { 3000, 3800, 4800 } },
		{ 2, 1, { 1, 1 }, { 4096, 3000 } },
		{ 3, 1, { 0, 0, 0 }, { 2000, 3100, 4000 } },
		{ 4, 1, { 0, 0, 1, 1 }, { 4000, 3300, 4000, 3300 } },
		{ 4, 2, { 1, 1, 1, 1 }, { 4000, 4000, 3300, 5000 } },
		{ 6, 3, { 1, 1, 0, 1, 1, 0 }, { 2000, 3100, 4000, 2000, 3100, 4000 } },
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		check_sequence("a known sequence", known[i]);
}

static void memory__of_random_buckets(void **state)
{
	unsigned int seed = 20250, round, i;

	(void)state;
	for (round = 0; round < 12; round++) {
		struct sequence s = { .n = SEQUENCE_MAX, .in_flight = 1 + round % 3 };

		for (i = 0; i < s.n; i++) {
			s.dtype[i] = rand_r(&seed) % 2 ? THC_FP16 : THC_FP32;
			s.kib[i] = 1 + (size_t)rand_r(&seed) % (round < 6 ? 6000 : 1500);
		}
		check_sequence("a random sequence", s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mean__one_to_eight_ranks),
		cmocka_unit_test(mean__sixty_four_ranks),
		cmocka_unit_test(mean__tiny_and_odd_lengths),
		cmocka_unit_test(mean__fp16),
		cmocka_unit_test(mean__bf16),
		cmocka_unit_test(mean__sixteen_bit_sums),
		cmocka_unit_test(feedback__mean_over_rounds_is_exact),
		cmocka_unit_test(requests__overlap),
		cmocka_unit_test(errors__disagreement_names_the_rank),
		cmocka_unit_test(errors__nan_and_inf_name_the_rank),
		cmocka_unit_test(errors__missing_rank_is_named_in_time),
		cmocka_unit_test(errors__leaving_rank_is_named),
		cmocka_unit_test(errors__restarted_rank_is_named_and_rejoined),
		cmocka_unit_test(errors__open_says_why_not),
		cmocka_unit_test(errors__bad_arguments_change_nothing),
		cmocka_unit_test(errors__rejoin_cancels_what_is_in_flight),
		cmocka_unit_test(errors__close_cancels_what_is_in_flight),
		cmocka_unit_test(memory__at_most_twice_the_bucket),
		cmocka_unit_test(memory__of_buckets_that_differ),
		cmocka_unit_test(memory__of_random_buckets),
	};

	return cmocka_run_group_tests_name("client", tests, NULL, NULL);
}
