// SPDX-License-Identifier: GPL-2.0
/*
 * The client against a real daemon: several ranks, each a thread with its own
 * client, and `thcd --software` on loopback. Means of all dtypes, rounds,
 * requests in flight. Loss and XDP are tested in namespaces elsewhere.
 */
#include <fenv.h>
#include <stdbool.h>

#include "ranks.h"

/* --- means ---------------------------------------------------------------- */

static void *reduce_once(void *arg)
{
	struct rank *r = arg;
	int error = open_client(r);

	if (!error)
		error = thc_allreduce(r->client, r->buf, r->count, r->dtype, 7);
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

/* @seal: of a job without a key, as ",seal=sum"; "": the job has one */
static void check_sealed_mean(unsigned int n, size_t count, const char *seal)
{
	struct rank ranks[RANKS_MAX];
	char job[128];
	struct daemon d;
	unsigned int i;

	snprintf(job, sizeof(job), "job=1,ranks=%u,reply=fanout%s", n, seal);
	d = start_daemon(job);
	set_up_ranks(ranks, n, d);
	for (i = 0; i < n; i++) {
		ranks[i].keyless = *seal;
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

static void check_mean(unsigned int n, size_t count)
{
	check_sealed_mean(n, count, "");
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

static void mean__without_a_key(void **state)
{
	(void)state;
	check_sealed_mean(3, 50000, ",seal=sum");
	check_sealed_mean(3, 50000, ",seal=none");
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

/* Rounds to the nearest fp16 value up to 4; these are in order. */
static uint16_t to_fp16(float f)
{
	uint16_t low = 0, high = 0x43ff;

	while (low < high) {
		uint16_t h = (low + high) / 2;

		if (from_fp16(h) < fabsf(f))
			low = h + 1;
		else
			high = h;
	}
	if (low && fabsf(f) - from_fp16(low - 1) <= from_fp16(low) - fabsf(f))
		low--;
	return low | (f < 0 ? 0x8000 : 0);
}

static void check_half(enum thc_dtype dtype)
{
	enum { N = 2, COUNT = 3000 };
	struct rank ranks[N];
	struct daemon d = start_daemon("job=1,ranks=2,reply=fanout");
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

/* Estimates of the largest values exceed fp16, but none comes back as Inf. */
static void mean__fp16_does_not_overflow(void **state)
{
	enum { N = 2, COUNT = 4096, LARGEST = 0x7bff };
	struct rank ranks[N];
	struct daemon d = start_daemon("job=1,ranks=2,reply=fanout");
	static uint16_t half[N][COUNT];
	unsigned int i, k, largest = 0;

	(void)state;
	set_up_ranks(ranks, N, d);
	for (k = 0; k < N; k++) {
		for (i = 0; i < COUNT; i++)
			half[k][i] = LARGEST | (gradient_at(0, i) < 0 ? 0x8000 : 0);
		ranks[k].buf = half[k];
		ranks[k].count = COUNT;
		ranks[k].dtype = THC_FP16;
	}
	run_ranks(ranks, N, reduce_once);
	stop_daemon(d);
	for (k = 0; k < N; k++)
		assert_int_equal(ranks[k].error, 0);
	for (i = 0; i < COUNT; i++) {
		assert_true((half[0][i] & 0x7fff) <= LARGEST);
		largest += (half[0][i] & 0x7fff) == LARGEST;
	}
	/* and many estimates were larger */
	assert_in_range(largest, COUNT / 10, COUNT - 1);
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
	struct daemon d = start_daemon("job=1,ranks=3,reply=fanout,granularity=255,sum_width=16");
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
	return end_rank(r, work, NULL);
}

static double nmse_of_rounds(uint32_t flags)
{
	enum { N = 2, COUNT = 20000 };
	struct daemon d = start_daemon("job=1,ranks=2,reply=fanout,rate=fixed");
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
	/* what remains is one round's error, divided by the rounds squared */
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
	return end_rank(r, NULL, NULL);
}

static void requests__overlap(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=3,reply=fanout");
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

/* --- the key -------------------------------------------------------------- */

/* True if job_key is on the heap, where clients are; job_key itself is elsewhere. */
static bool key_is_on_heap(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	bool found = false;
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "[heap]") && sscanf(line, "%lx-%lx", &from, &to) == 2)
			found = memmem((void *)from, to - from, job_key, THC_KEY_BYTES);
	fclose(f);
	return found;
}

static void key__is_copied_and_wiped(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=1,reply=fanout");
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	uint8_t key[THC_KEY_BYTES];
	struct thc_client *c;
	bool held;

	(void)state;
	memcpy(key, job_key, sizeof(key));
	o.aggregator = "127.0.0.1";
	o.port = d.port;
	o.job = 1;
	o.key = key;
	assert_int_equal(thc_client_open(&o, &c), 0);
	memset(key, 0xff, sizeof(key));
	assert_int_equal(thc_client_rejoin(c), 0);
	held = key_is_on_heap();
	thc_client_close(c);
	stop_daemon(d);
	assert_false(key_is_on_heap());
	if (!held) {
		print_message("# SKIP a sanitizer has its heap elsewhere\n");
		skip();
	}
}

/* A client computes the classes of blocks when it joins. */
static void *reduce_as_rounded(void *arg)
{
	struct rank *r = arg;

	fesetround(r->rank ? FE_UPWARD : FE_TONEAREST);
	reduce_once(r);
	if (!r->error && fegetround() != (r->rank ? FE_UPWARD : FE_TONEAREST))
		r->error = -1;
	return NULL;
}

static void rate__however_callers_round(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=2,reply=fanout,rate=4");
	float gradient[2][5000];
	struct rank ranks[2];
	unsigned int i;

	(void)state;
	set_up_ranks(ranks, 2, d);
	for (i = 0; i < 2; i++) {
		float *g = make_gradient(i, 5000);

		memcpy(gradient[i], g, sizeof(gradient[i]));
		free(g);
		ranks[i].buf = gradient[i];
		ranks[i].count = 5000;
	}
	run_ranks(ranks, 2, reduce_as_rounded);
	stop_daemon(d);
	for (i = 0; i < 2; i++)
		if (ranks[i].error)
			fail_msg("rank %u: %d: %s", i, ranks[i].error, ranks[i].sentence);
	assert_memory_equal(gradient[0], gradient[1], sizeof(gradient[0]));
}

/* An import without error memory leaves it; an import with the right number of values overwrites
 * it.
 */
static void feedback__import_without_memory_changes_nothing(void **state)
{
	static const float one[] = { 1, 2, 3 }, other[] = { 4, 5, 6 };
	struct daemon d = start_daemon("job=1,ranks=1,reply=fanout");
	struct rank r;
	float got[3];

	(void)state;
	set_up_ranks(&r, 1, d);
	assert_int_equal(open_client(&r), 0);
	assert_int_equal(thc_error_import(r.client, 7, one, 3), 0);
	assert_int_equal(thc_error_import(r.client, 7, one, (size_t)1 << 50), -ENOMEM);
	assert_int_equal(thc_error_export(r.client, 7, got, 3), 3);
	assert_memory_equal(got, one, sizeof(one));
	assert_int_equal(thc_error_import(r.client, 7, other, 3), 0);
	assert_int_equal(thc_error_export(r.client, 7, got, 3), 3);
	assert_memory_equal(got, other, sizeof(other));
	assert_int_equal(thc_error_import(r.client, 7, one, 2), 0);
	assert_int_equal(thc_error_export(r.client, 7, got, 3), 2);
	assert_int_equal(thc_error_import(r.client, 7, NULL, 0), 0);
	assert_int_equal(thc_error_export(r.client, 7, got, 3), 0);
	thc_client_close(r.client);
	stop_daemon(d);
}

/* --- the window ----------------------------------------------------------- */

#define SLOTS_JOB	"job=1,ranks=1,reply=fanout,slots=4000"
#define DATA_SLOTS	4000	/* more than a plain user's receive buffer mostly has room for */
#define TRUESIZE	4608	/* bytes that an answer takes in a receive buffer */

struct window {
	uint32_t	chunks;
	char		limit[64];
};

/* Of a client that joins @d with the option @window. */
static int ask_window(struct daemon d, uint32_t window, struct window *out)
{
	struct thc_client_info info = { .size = sizeof(info) };
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	struct thc_client *c;
	int error;

	o.aggregator = "127.0.0.1";
	o.port = d.port;
	o.job = 1;
	o.key = job_key;
	o.window = window;
	error = thc_client_open(&o, &c);
	if (error)
		return error;
	error = thc_client_info(c, &info);
	out->chunks = info.window;
	snprintf(out->limit, sizeof(out->limit), "%s", info.window_limit);
	if (!error && !strcmp(info.transport, "AF_THC"))
		error = 1;
	thc_client_close(c);
	return error;
}

static void window__says_what_bounds_it(void **state)
{
	struct daemon d = start_daemon(SLOTS_JOB);
	struct window w;

	(void)state;
	if (geteuid()) {
		print_message("# SKIP only root has a receive buffer as large as it wants\n");
		stop_daemon(d);
		skip();
	}
	if (ask_window(d, 0, &w) < 0)
		fail_msg("%s", thc_last_error());
	assert_int_equal(w.chunks, DATA_SLOTS);
	assert_string_equal(w.limit, "the job's slots");
	assert_true(ask_window(d, 7, &w) >= 0);
	assert_int_equal(w.chunks, 7);
	assert_string_equal(w.limit, "the option window");
	assert_true(ask_window(d, DATA_SLOTS, &w) >= 0);
	assert_string_equal(w.limit, "the job's slots");
	stop_daemon(d);
}

/* Answers in a user's largest buffer: the kernel doubles the sysctl's bytes. */
static uint32_t answers_of_a_user(void)
{
	FILE *f = fopen("/proc/sys/net/core/rmem_max", "r");
	unsigned long bytes = 0;

	if (f && fscanf(f, "%lu", &bytes) != 1)
		bytes = 0;
	if (f)
		fclose(f);
	return (uint32_t)(2 * bytes / TRUESIZE);
}

/* A child without CAP_NET_ADMIN reports its window. */
static void window__of_a_plain_user(void **state)
{
	struct daemon d = start_daemon(SLOTS_JOB);
	uint32_t answers = answers_of_a_user();
	struct window w = { .chunks = 0 };
	int result[2], kind = 0;
	pid_t child;

	(void)state;
	if (geteuid() || !answers) {
		print_message("# SKIP who is not root, or has no net.core.rmem_max, cannot tell\n");
		stop_daemon(d);
		skip();
	}
	assert_int_equal(pipe(result), 0);
	child = fork();
	if (!child) {
		kind = setresuid(65534, 65534, 65534) ? -errno : ask_window(d, 0, &w);
		kind = write(result[1], &kind, sizeof(kind)) == sizeof(kind) &&
		       write(result[1], &w, sizeof(w)) == sizeof(w);
		_exit(!kind);
	}
	assert_int_equal(read(result[0], &kind, sizeof(kind)), sizeof(kind));
	assert_int_equal(read(result[0], &w, sizeof(w)), sizeof(w));
	waitpid(child, NULL, 0);
	close(result[0]);
	close(result[1]);
	stop_daemon(d);
	assert_true(kind >= 0);
	/* sockets of thc.ko do not count as the user's */
	if (kind || answers >= DATA_SLOTS) {
		assert_int_equal(w.chunks, DATA_SLOTS);
		assert_string_equal(w.limit, "the job's slots");
	} else {
		assert_int_equal(w.chunks, answers);
		assert_string_equal(w.limit, "the receive buffer (net.core.rmem_max)");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mean__one_to_eight_ranks),
		cmocka_unit_test(mean__sixty_four_ranks),
		cmocka_unit_test(mean__without_a_key),
		cmocka_unit_test(mean__tiny_and_odd_lengths),
		cmocka_unit_test(mean__fp16),
		cmocka_unit_test(mean__fp16_does_not_overflow),
		cmocka_unit_test(mean__bf16),
		cmocka_unit_test(mean__sixteen_bit_sums),
		cmocka_unit_test(feedback__mean_over_rounds_is_exact),
		cmocka_unit_test(feedback__import_without_memory_changes_nothing),
		cmocka_unit_test(rate__however_callers_round),
		cmocka_unit_test(requests__overlap),
		cmocka_unit_test(key__is_copied_and_wiped),
		cmocka_unit_test(window__says_what_bounds_it),
		cmocka_unit_test(window__of_a_plain_user),
	};

	return cmocka_run_group_tests_name("client", tests, NULL, NULL);
}
