// SPDX-License-Identifier: GPL-2.0
/*
 * UDP sockets and AF_THC sockets give the same bits for the same gradients and job, and error
 * memories that stay equal. And which transport a client chooses, with and without thc.ko.
 */
#include <sys/socket.h>

#include <linux/thc.h>

#include "ranks.h"

#define JOB	"job=1,ranks=4,reply=fanout"
#define RANKS	4
#define ROUNDS	4
#define KEY	3
#define PLACES	2	/* results, error memory */
#define FEWER	4	/* on all test machines but that of the newest kernel */

/* A rank's results and error memories after each round, and its transport. */
struct trace {
	float		*kept[ROUNDS][PLACES];
	const char	*transport;
};

static struct trace trace[RANKS];

static size_t bytes_of(const struct rank *r)
{
	return r->count * (r->dtype == THC_FP32 ? 4 : 2);
}

/* Half precision by its bits: the test is about identity, not about values. */
static void fill(void *to, const struct rank *r, unsigned int round)
{
	size_t i;

	for (i = 0; i < r->count; i++) {
		float value = gradient_at(r->rank + 16 * round, i);
		uint32_t bits;

		if (r->dtype == THC_FP32) {
			((float *)to)[i] = value;
			continue;
		}
		memcpy(&bits, &value, sizeof(bits));
		((uint16_t *)to)[i] = (uint16_t)(bits >> 16);	/* bf16; finite as fp16 */
	}
}

static int keep(struct rank *r, unsigned int round)
{
	struct trace *t = &trace[r->rank];
	int place;

	for (place = 0; place < PLACES; place++)
		t->kept[round][place] = calloc(r->count, sizeof(float));
	memcpy(t->kept[round][0], r->buf, bytes_of(r));
	return thc_error_export(r->client, KEY, t->kept[round][1], r->count) == r->count ? 0 : -EIO;
}

static void *train(void *arg)
{
	struct thc_client_info info = { .size = sizeof(info) };
	struct rank *r = arg;
	int error = open_client(r);
	unsigned int round;

	if (!error)
		error = thc_client_info(r->client, &info);
	trace[r->rank].transport = info.transport;
	for (round = 0; !error && round < ROUNDS; round++) {
		fill(r->buf, r, round);
		error = thc_allreduce(r->client, r->buf, r->count, r->dtype, KEY);
		if (!error)
			error = keep(r, round);
	}
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void train_through(const char *transport, const char *name, const char *job, size_t count,
			  enum thc_dtype dtype)
{
	struct daemon d = start_daemon(job);
	struct rank ranks[RANKS];
	unsigned int i;

	setenv("THC_TRANSPORT", transport, 1);
	memset(trace, 0, sizeof(trace));
	set_up_ranks(ranks, RANKS, d);
	for (i = 0; i < RANKS; i++) {
		ranks[i].flags = THC_CLIENT_ERROR_FEEDBACK;
		ranks[i].timeout_ms = 60000;
		ranks[i].count = count;
		ranks[i].dtype = dtype;
		ranks[i].buf = malloc(count * sizeof(float));
	}
	run_ranks(ranks, RANKS, train);
	stop_daemon(d);
	for (i = 0; i < RANKS; i++) {
		free(ranks[i].buf);
		if (ranks[i].error)
			fail_msg("%s, rank %u: %s", transport, i, ranks[i].sentence);
		assert_string_equal(trace[i].transport, name);
	}
}

static void release(struct trace *t)
{
	int round, place;

	for (round = 0; round < ROUNDS; round++)
		for (place = 0; place < PLACES; place++)
			free(t->kept[round][place]);
}

static int have_af_thc(void)
{
	int s = socket(AF_THC, SOCK_SEQPACKET, 0);

	if (s >= 0)
		close(s);
	return s >= 0;
}

static int takes_fewer(void)
{
	const char *kernel = getenv("THC_VM_KERNEL") ?: "";

	return !strcmp(kernel, "debug") || !strcmp(kernel, "6.1");
}

static void compare(const char *job, size_t count, enum thc_dtype dtype)
{
	static const char *const what[PLACES] = { "means", "error memories" };
	struct trace udp[RANKS];
	int i, round, place;

	if (!have_af_thc()) {
		print_message("# SKIP no AF_THC sockets here; a test machine has them\n");
		skip();
	}
	if (takes_fewer())
		count = count / FEWER + 1;
	train_through("udp", "UDP", job, count, dtype);
	memcpy(udp, trace, sizeof(udp));
	train_through("af_thc", "AF_THC", job, count, dtype);
	for (i = 0; i < RANKS; i++) {
		for (round = 0; round < ROUNDS; round++)
			for (place = 0; place < PLACES; place++)
				if (memcmp(udp[i].kept[round][place], trace[i].kept[round][place],
					   count * sizeof(float)))
					fail_msg("rank %d, round %d: other %s", i, round,
						 what[place]);
		release(&udp[i]);
		release(&trace[i]);
	}
}

static void same_bits__fp32(void **state)
{
	(void)state;
	compare(JOB, 150001, THC_FP32);
}

static void same_bits__fp16(void **state)
{
	(void)state;
	/* with tables for a rate in a test machine, too (tests/lib/netns/ranks.c) */
	compare(JOB ",rate=auto", 100003, THC_FP16);
}

static void same_bits__bf16(void **state)
{
	(void)state;
	compare(JOB, 50000, THC_BF16);
}

static void same_bits__sums_of_16_bits(void **state)
{
	(void)state;
	compare(JOB ",sum_width=16", 50001, THC_FP32);
}

static void same_bits__one_value(void **state)
{
	(void)state;
	compare(JOB, 1, THC_FP32);
}

static void same_bits__many_messages(void **state)
{
	(void)state;
	compare(JOB ",slots=32", 1 << 18, THC_FP32);
}

/* --- which of them -------------------------------------------------------- */

/* The transport of a client with these options and this environment (NULL: none); or why it was
 * refused.
 */
static const char *choice(uint16_t port, enum thc_transport_choice wanted, const char *environment,
			  int *error)
{
	struct thc_client_info info = { .size = sizeof(info) };
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	struct thc_client *c = NULL;

	if (environment)
		setenv("THC_TRANSPORT", environment, 1);
	else
		unsetenv("THC_TRANSPORT");
	o.aggregator = "127.0.0.1";
	o.port = port;
	o.job = 1;
	o.key = job_key;
	o.transport = wanted;
	*error = thc_client_open(&o, &c);
	if (*error)
		return thc_last_error();
	*error = thc_client_info(c, &info);
	thc_client_close(c);
	return info.transport;
}

/* Without a choice a client takes AF_THC where the kernel has it. */
static void choice__automatic(void **state)
{
	static const char *const none[] = { NULL, "", "auto" };
	struct daemon d = start_daemon("job=1,ranks=1,reply=fanout");
	size_t i;
	int error;

	(void)state;
	for (i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		const char *name = choice(d.port, THC_TRANSPORT_AUTO, none[i], &error);

		assert_string_equal(name, have_af_thc() ? "AF_THC" : "UDP");
		assert_int_equal(error, 0);
	}
	stop_daemon(d);
}

/* Options win over the environment, which counts where the options choose nothing. */
static void choice__forced(void **state)
{
	static const struct {
		enum thc_transport_choice wanted;
		const char *environment, *name;
	} forced[] = {
		{ THC_TRANSPORT_UDP, NULL, "UDP" },
		{ THC_TRANSPORT_UDP, "af_thc", "UDP" },
		{ THC_TRANSPORT_UDP, "nonsense", "UDP" },
		{ THC_TRANSPORT_AUTO, "udp", "UDP" },
		{ THC_TRANSPORT_AF_THC, NULL, "AF_THC" },
		{ THC_TRANSPORT_AF_THC, "udp", "AF_THC" },
		{ THC_TRANSPORT_AUTO, "af_thc", "AF_THC" },
	};
	struct daemon d = start_daemon("job=1,ranks=1,reply=fanout");
	size_t i;
	int error;

	(void)state;
	for (i = 0; i < sizeof(forced) / sizeof(forced[0]); i++) {
		const char *said = choice(d.port, forced[i].wanted, forced[i].environment, &error);

		if (have_af_thc() || !strcmp(forced[i].name, "UDP")) {
			assert_string_equal(said, forced[i].name);
			assert_int_equal(error, 0);
		} else {
			assert_int_equal(error, -EAFNOSUPPORT);
			assert_non_null(strstr(said, "thc.ko"));
		}
	}
	stop_daemon(d);
}

static void choice__unknown(void **state)
{
	static const char *const bad[] = { "tcp", "UDP", "af_thc ", "udp,af_thc" };
	const char *sentence;
	size_t i;
	int error;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sentence = choice(1, THC_TRANSPORT_AUTO, bad[i], &error);
		assert_int_equal(error, -EINVAL);
		assert_non_null(strstr(sentence, bad[i]));
		assert_non_null(strstr(sentence, "use auto, udp or af_thc"));
	}
	sentence = choice(1, (enum thc_transport_choice)3, NULL, &error);
	assert_int_equal(error, -EINVAL);
	assert_non_null(strstr(sentence, "unknown transport"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_bits__fp32),
		cmocka_unit_test(same_bits__fp16),
		cmocka_unit_test(same_bits__bf16),
		cmocka_unit_test(same_bits__sums_of_16_bits),
		cmocka_unit_test(same_bits__one_value),
		cmocka_unit_test(same_bits__many_messages),
		cmocka_unit_test(choice__automatic),
		cmocka_unit_test(choice__forced),
		cmocka_unit_test(choice__unknown),
	};

	if (takes_fewer())
		printf("# this is not the newest kernel: gradients of 1/%d of the usual size\n",
		       FEWER);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
