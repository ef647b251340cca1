// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of a client beside the caller's buffers and error memory: by the client's account and by
 * the kernel's, against README.md's promise.
 */
#include <sys/resource.h>

#include "ranks.h"

#define PAGE	4096

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

/* A small bucket counts as much as the client needs for the smallest one. @bucket: bytes, or those
 * of its 32-bit sums if these are more.
 */
static size_t counted(size_t bucket, size_t block)
{
	size_t least = 3 * block * sizeof(float);

	if (least < 512 << 10)
		least = 512 << 10;
	return bucket > least ? bucket : least;
}

/* Pages that this process has got so far. */
static long page_faults(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return use.ru_minflt;
}

static size_t promised(size_t bucket, size_t block)
{
	return 2 * counted(bucket, block);
}

/* Chunks in flight take a large part of little memory. */
static size_t many_slots(size_t slots)
{
	return slots > 2048 ? 88 * (slots - 2048) : 0;
}

static int reduce(struct rank *r, void *buf, const char *scheme)
{
	struct thc_call call = THC_CALL_INIT;
	struct thc_request *request;
	int error;

	call.scheme = scheme;
	call.key = 3;
	error = thc_allreduce_call_start(r->client, buf, r->count, r->dtype, &call, &request);
	return error ? error : thc_allreduce_wait(request);
}

/* Measures by the client's own account and by the kernel's. */
static void *measure(struct rank *r, const char *scheme)
{
	struct thc_client_info info = { .size = sizeof(info) };
	size_t bytes = r->count * (r->dtype == THC_FP32 ? 4 : 2), before, rise, most;
	void *buf = malloc(bytes);
	long faults = 0;
	int error, i;

	memset(buf, 0x3c, bytes);	/* not zero, so that its pages are allocated now */
	before = forget_peak();
	error = open_client(r);
	for (i = 0; !error && i < 3; i++) {
		faults = page_faults();
		error = reduce(r, buf, scheme);
		faults = page_faults() - faults;
	}
	if (!error) {
		rise = peak_in_ram() - before;
		thc_client_info(r->client, &info);
		print_message(
			"%s, blocks of %7u: %6zu KiB beside a bucket of %6zu KiB (%6zu in RAM)\n",
			r->dtype == THC_FP32 ? "fp32" : "fp16", info.block, info.memory_peak >> 10,
			bytes >> 10, rise >> 10);
		most = promised(info.sum_width == 32 ? 4 * r->count : bytes, info.block);
		if (info.memory_peak > most + many_slots(info.data_slots) ||
		    info.memory_peak < bytes)
			error = -1;
		/* memory for a step's answers is kept for the next step */
		if (info.sum_width == 32 && faults > (long)(bytes / PAGE / 2))
			error = -3;
		/* a thread, the C library's arenas and the kernel's batches of pages */
		if (!before || rise > info.memory_peak + (1 << 20))
			error = -2;
	}
	keep_error(r, error);
	return end_rank(r, buf, NULL);
}

static void *measure_thc(void *rank)
{
	return measure(rank, "thc");
}

static void *measure_none(void *rank)
{
	return measure(rank, "none");
}

static void check_memory(const char *job, enum thc_dtype dtype, size_t count,
			 void *(*measured)(void *))
{
	struct daemon d = start_daemon(job);
	struct rank rank;

	set_up_ranks(&rank, 1, d);
	rank.count = count;
	rank.dtype = dtype;
	run_ranks(&rank, 1, measured);
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
			check_memory("job=1,ranks=1,reply=fanout", (enum thc_dtype)dtype,
				     (kib[i] << 10) / each + 1, measure_thc);
		for (i = 0; i < 6; i++)
			check_memory("job=1,ranks=1,reply=fanout", (enum thc_dtype)dtype,
				     (kib[i] << 10) / each + 1, measure_none);
		check_memory("job=1,ranks=1,reply=fanout,sum_width=16", (enum thc_dtype)dtype,
			     (512 << 10) / each, measure_thc);
		check_memory("job=1,ranks=1,reply=fanout,bits=8,sum_width=32",
			     (enum thc_dtype)dtype, (4096 << 10) / each, measure_thc);
		check_memory("job=1,ranks=1,reply=fanout,block=1048576", (enum thc_dtype)dtype, 1,
			     measure_thc);
		/* three blocks of floats, and a padded one */
		check_memory("job=1,ranks=1,reply=fanout,block=1048576", (enum thc_dtype)dtype,
			     (12 << 20) / each + 1, measure_thc);
	}
	check_memory("job=1,ranks=1,reply=fanout,slots=4032,norm_slots=64,sum_width=16", THC_FP16,
		     256 << 10, measure_thc);
	check_memory("job=1,ranks=1,reply=fanout,bits=8,sum_width=16", THC_FP16, 2048 << 10,
		     measure_thc);
	/* a block of padding, and regions for sums of 16 bits */
	check_memory("job=1,ranks=1,reply=fanout,block=1048576,sum_width=16", THC_FP16,
		     (8 << 20) + 1, measure_thc);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

#define SEQUENCE_MAX	24

/**
 * struct sequence - buckets that one client reduces
 * @n: so many
 * @in_flight: started before the first one is waited for
 * @dtype: THC_FP32 or THC_FP16
 * @kib: size
 * @none: bit i: bucket i goes by the scheme none, and not by thc
 */
struct sequence {
	unsigned int n;
	unsigned int in_flight;
	enum thc_dtype dtype[SEQUENCE_MAX];
	size_t kib[SEQUENCE_MAX];
	unsigned int none;
};

/* Twice the largest amount in progress: of one bucket, or of two in a row. */
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

/* Values that are not zero and have more than one digit, so that scheme none sends them. */
static void *make_values(size_t bytes)
{
	uint8_t *values = malloc(bytes);
	size_t i;

	memset(values, 0x3c, bytes);
	for (i = 0; i + 4 <= bytes; i += 4096)
		memset(values + i, 1, 4);
	return values;
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
			struct thc_call call = THC_CALL_INIT;

			buf[begun] = make_values(bytes);
			call.scheme = s->none >> begun & 1 ? "none" : "thc";
			error = thc_allreduce_call_start(r->client, buf[begun],
							 bytes / (s->dtype[begun] == THC_FP32 ? 4 :
												2),
							 s->dtype[begun], &call, &request[begun]);
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
	return end_rank(r, NULL, NULL);
}

static void check_sequence(const char *name, struct sequence s)
{
	struct daemon d = start_daemon("job=1,ranks=1,reply=fanout");
	struct rank rank;

	set_up_ranks(&rank, 1, d);
	rank.buf = &s;
	run_ranks(&rank, 1, reduce_sequence);
	stop_daemon(d);
	if (rank.error || rank.sentence[0]) {
		unsigned int i;

		for (i = 0; i < s.n; i++)
			print_error("%s of %zu KiB by %s\n",
				    s.dtype[i] == THC_FP32 ? "fp32" : "fp16", s.kib[i],
				    s.none >> i & 1 ? "none" : "thc");
		fail_msg("%s, %u in flight: %d: %s (%zu KiB held)", name, s.in_flight, rank.error,
			 rank.sentence, rank.count >> 10);
	}
}

/* Sizes after which a left buffer does not fit the next bucket, or only just; of both schemes. A
 * test machine adds AF_THC sockets, which treat both schemes alike.
 */
static void memory__of_buckets_that_differ(void **state)
{
	static const struct sequence known[] = {
		{ 3, 1, { 1, 1, 1 }, { 2000, 3100, 4000 }, 0 },
		{ 3, 1, { 1, 1, 1 }, { 3000, 3800, 4800 }, 0 },
		{ 2, 1, { 1, 1 }, { 4096, 3000 }, 0 },
		{ 3, 1, { 0, 0, 0 }, { 2000, 3100, 4000 }, 0 },
		{ 4, 1, { 0, 0, 1, 1 }, { 4000, 3300, 4000, 3300 }, 0 },
		{ 4, 2, { 1, 1, 1, 1 }, { 4000, 4000, 3300, 5000 }, 0 },
		{ 6, 3, { 1, 1, 0, 1, 1, 0 }, { 2000, 3100, 4000, 2000, 3100, 4000 }, 0 },
	};
	static const unsigned int none[] = { 0, ~0U };
	const char *transport = getenv("THC_TRANSPORT");
	unsigned int schemes = transport && !strcmp(transport, "af_thc") ? 1 : 2;
	unsigned int i, k;

	(void)state;
	for (i = 0; i < sizeof(known) / sizeof(*known); i++) {
		for (k = 0; k < schemes; k++) {
			struct sequence s = known[i];

			s.none = none[k];
			check_sequence("a known sequence", s);
		}
	}
}

static void memory__of_random_buckets(void **state)
{
	unsigned int seed = 20250, round, i;

	(void)state;
	for (round = 0; round < 12; round++) {
		struct sequence s = { .n = SEQUENCE_MAX, .in_flight = 1 + round % 3,
				      .none = round % 2 ? (unsigned int)rand_r(&seed) : 0 };

		for (i = 0; i < s.n; i++) {
			s.dtype[i] = rand_r(&seed) % 2 ? THC_FP16 : THC_FP32;
			s.kib[i] = 1 + (size_t)rand_r(&seed) % (round < 6 ? 6000 : 1500);
		}
		check_sequence("a random sequence", s);
	}
}

#define GROUPS		2
#define KEYS		3
#define STEPS		3
#define GROUPED		(GROUPS * KEYS)

/* Two gradients of a few buckets each, a key and a length of its own for each, step by step. */
static int reduce_groups(struct rank *r, size_t *most)
{
	static const size_t kib[GROUPED] = { 1200, 2000, 500, 1700, 900, 2300 };
	struct thc_request *request;
	unsigned int step, i;
	int error = 0;

	*most = 0;
	for (step = 0; !error && step < STEPS; step++)
		for (i = 0; !error && i < GROUPED; i++) {
			size_t bytes = kib[i] << 10;
			void *buf = make_values(bytes);
			struct thc_call call = THC_CALL_INIT;

			call.key = i;
			call.group = 1 + i / KEYS;
			*most = bytes > *most ? bytes : *most;
			error = thc_allreduce_call_start(r->client, buf,
							 bytes / (r->dtype == THC_FP32 ? 4 : 2),
							 r->dtype, &call, &request);
			if (!error)
				error = thc_allreduce_wait(request);
			free(buf);
		}
	return error;
}

/* r->buf: room for its statistics */
static void *measure_groups(void *arg)
{
	struct rank *r = arg;
	struct thc_client_info info = { .size = sizeof(info) };
	struct thc_client_stats *stats = r->buf;
	int error = open_client(r);
	size_t most;

	if (!error)
		error = reduce_groups(r, &most);
	keep_error(r, error);
	if (!error) {
		thc_client_info(r->client, &info);
		stats->size = sizeof(*stats);
		thc_client_stats(r->client, stats);
		r->count = info.memory_peak;
		print_message("%s, groups: %6zu KiB beside buckets of up to %6zu KiB\n",
			      r->dtype == THC_FP32 ? "fp32" : "fp16", info.memory_peak >> 10,
			      most >> 10);
		if (info.memory_peak > promised(most, info.block))
			r->error = -1;
	}
	return end_rank(r, NULL, NULL);
}

/* Norms that are kept for keys that share a goal count, too. */
static void memory__of_groups_with_a_rate(void **state)
{
	static const char *const job[] = { "job=1,ranks=1,reply=fanout,rate=4",
					   "job=1,ranks=1,reply=fanout,error=0.01" };
	struct thc_client_stats stats;
	struct rank rank;
	unsigned int i;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct daemon d = start_daemon(job[i / 2]);

		set_up_ranks(&rank, 1, d);
		rank.dtype = i % 2 ? THC_FP16 : THC_FP32;
		rank.flags = THC_CLIENT_ERROR_FEEDBACK;
		rank.buf = &stats;
		run_ranks(&rank, 1, measure_groups);
		stop_daemon(d);
		if (rank.error)
			fail_msg("%s: %d: %s (%zu KiB held)", job[i / 2], rank.error, rank.sentence,
				 rank.count >> 10);
		assert_int_equal(stats.rate_requests, STEPS * GROUPED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory__at_most_twice_the_bucket),
		cmocka_unit_test(memory__of_buckets_that_differ),
		cmocka_unit_test(memory__of_random_buckets),
		cmocka_unit_test(memory__of_groups_with_a_rate),
	};

	/* runs only tests whose names match the pattern */
	cmocka_set_test_filter(getenv("THC_TEST_FILTER"));
	return cmocka_run_group_tests_name("client_memory", tests, NULL, NULL);
}
