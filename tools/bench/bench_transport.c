// SPDX-License-Identifier: GPL-2.0
/*
 * One rank in the comparison of libthc's transports, in its own namespace until transport.py ends
 * it. Two clients in two jobs of one aggregator: one over UDP sockets, one over an AF_THC socket.
 * Each line on stdin names one ("udp", "af_thc"): it reduces a bucket, and a JSON object on stdout
 * tells the costs. "udp calls" also counts all system calls of the process, by the kernel's
 * tracepoint; the time of such a round is not valid. User-mode Linux lacks the tracepoint.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libthc.h"

#define TRACEPOINT	"/sys/kernel/tracing/events/raw_syscalls/sys_enter/id"
#define CLIENTS		2

static const struct {
	const char *name;
	enum thc_transport_choice choice;
} transport[CLIENTS] = {
	{ "udp", THC_TRANSPORT_UDP },
	{ "af_thc", THC_TRANSPORT_AF_THC },
};

struct rank {
	struct thc_client	*client[CLIENTS];
	float			*gradient;
	float			*buffer;
	size_t			count;
	int			calls;		/* counter of system calls, -1: none */
};

struct cost {
	double		seconds, user, system;
	uint64_t	calls;
};

/* --- measuring ------------------------------------------------------------ */

/* Seconds that a system call takes which does nothing. */
static double null_call(void)
{
	enum { CALLS = 2000 };
	struct timespec a, b;
	int i;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	for (i = 0; i < CALLS; i++)
		syscall(SYS_getppid);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	return ((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9) / CALLS;
}

/* Counts system calls of this process, threads that come later included. */
static int open_counter(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr), .disabled = 1, .inherit = 1,
	};
	unsigned long long id;
	FILE *f = fopen(TRACEPOINT, "r");

	if (!f)
		return -1;
	if (fscanf(f, "%llu", &id) != 1)
		id = 0;
	fclose(f);
	attr.config = id;
	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static struct cost now(void)
{
	struct rusage u;
	struct timespec t;

	getrusage(RUSAGE_SELF, &u);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (struct cost){
		.seconds = (double)t.tv_sec + (double)t.tv_nsec / 1e9,
		.user = seconds_of(u.ru_utime),
		.system = seconds_of(u.ru_stime),
	};
}

/* The ioctl() that stops the counter is counted last. */
static uint64_t calls_counted(int counter)
{
	uint64_t calls = 0;

	ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
	if (read(counter, &calls, sizeof(calls)) != sizeof(calls))
		err(1, "cannot read the counter of system calls");
	ioctl(counter, PERF_EVENT_IOC_RESET, 0);
	return calls - 1;
}

static int reduce(struct rank *r, struct thc_client *c, int count_calls, struct cost *cost)
{
	struct cost before = now(), after;
	int error;

	if (count_calls)
		ioctl(r->calls, PERF_EVENT_IOC_ENABLE, 0);
	error = thc_allreduce(c, r->buffer, r->count, THC_FP32, 0);
	if (count_calls)
		before.calls = calls_counted(r->calls);
	after = now();
	*cost = (struct cost){
		.seconds = after.seconds - before.seconds,
		.user = after.user - before.user,
		.system = after.system - before.system,
		.calls = before.calls,
	};
	return error;
}

static struct thc_client_stats stats_of(const struct thc_client *c)
{
	struct thc_client_stats s = { .size = sizeof(s) };

	thc_client_stats(c, &s);
	return s;
}

/* --- one round ------------------------------------------------------------ */

static void report(const struct cost *cost, const struct thc_client_stats *a,
		   const struct thc_client_stats *b)
{
	printf("{\"seconds\": %.6f, \"user\": %.6f, \"system\": %.6f, \"calls\": %llu, ",
	       cost->seconds, cost->user, cost->system, (unsigned long long)cost->calls);
	printf("\"send_calls\": %llu, \"receive_calls\": %llu, \"packets_up\": %llu, "
	       "\"packets_down\": %llu, \"retransmits\": %llu, \"window_cuts\": %llu}\n",
	       (unsigned long long)(b->send_calls - a->send_calls),
	       (unsigned long long)(b->receive_calls - a->receive_calls),
	       (unsigned long long)(b->packets_up - a->packets_up),
	       (unsigned long long)(b->packets_down - a->packets_down),
	       (unsigned long long)(b->retransmits - a->retransmits),
	       (unsigned long long)(b->window_cuts - a->window_cuts));
	fflush(stdout);
}

static void round_of(struct rank *r, const char *name, int count_calls)
{
	struct thc_client_stats before, after;
	struct cost cost;
	int i;

	for (i = 0; i < CLIENTS && strcmp(name, transport[i].name); i++)
		;
	if (i == CLIENTS)
		errx(2, "no transport '%s'", name);
	if (count_calls && r->calls < 0)
		errx(1, "system calls cannot be counted: no " TRACEPOINT);
	memcpy(r->buffer, r->gradient, r->count * sizeof(*r->buffer));
	before = stats_of(r->client[i]);
	if (reduce(r, r->client[i], count_calls, &cost))
		errx(1, "%s: %s", name, thc_last_error());
	after = stats_of(r->client[i]);
	report(&cost, &before, &after);
}

static void serve(struct rank *r)
{
	char line[64], name[32], what[32];
	int words;

	while (fgets(line, sizeof(line), stdin)) {
		words = sscanf(line, "%31s %31s", name, what);
		if (words >= 1)
			round_of(r, name, words == 2 && !strcmp(what, "calls"));
	}
}

/* --- start ---------------------------------------------------------------- */

static void fill(float *g, size_t count, unsigned int seed)
{
	struct drand48_data state;
	double a, b, c;
	size_t i;

	srand48_r(seed, &state);
	for (i = 0; i < count; i++) {
		drand48_r(&state, &a);
		drand48_r(&state, &b);
		drand48_r(&state, &c);
		g[i] = (float)(a + b + c - 1.5);
	}
}

static void join(struct rank *r, struct thc_client_options *o, unsigned int job,
		 const char *key_file)
{
	struct thc_client_info info = { .size = sizeof(info) };
	uint8_t key[THC_KEY_BYTES];
	int i;

	if (thc_key_read(key_file, key))
		errx(1, "%s", thc_last_error());
	o->key = key;
	for (i = 0; i < CLIENTS; i++) {
		o->job = (uint16_t)(job + (unsigned int)i);
		o->transport = transport[i].choice;
		if (thc_client_open(o, &r->client[i]))
			errx(1, "%s: %s", transport[i].name, thc_last_error());
		thc_client_info(r->client[i], &info);
		printf("%s\"%s\": \"%s\"", i ? ", " : "{", transport[i].name, info.transport);
	}
	printf(", \"simd\": \"%s\", \"multicast\": %u, \"slots\": %u, \"chunk\": %u", info.simd,
	       info.multicast, info.data_slots, info.chunk);
	printf(", \"counts_calls\": %s, \"null_call\": %.9f}\n", r->calls < 0 ? "false" : "true",
	       null_call());
	fflush(stdout);
}

static void usage(FILE *to)
{
	fprintf(to, "usage: bench_transport --aggregator ADDRESS --job N --key-file FILE --rank R\n"
		    "                       [--mib M]\n"
		    "Joins job N over UDP and job N + 1 over AF_THC; then reads stdin.\n");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "aggregator", required_argument, NULL, 'a' },
		{ "job", required_argument, NULL, 'j' },
		{ "key-file", required_argument, NULL, 'k' },
		{ "rank", required_argument, NULL, 'r' },
		{ "mib", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	const char *key_file = NULL;
	unsigned int job = 1, i;
	struct rank r = { 0 };
	size_t mib = 25;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'a')
			o.aggregator = optarg;
		else if (opt == 'j')
			job = (unsigned int)strtoul(optarg, NULL, 0);
		else if (opt == 'k')
			key_file = optarg;
		else if (opt == 'r')
			o.rank = (uint16_t)strtoul(optarg, NULL, 0);
		else if (opt == 'm')
			mib = strtoul(optarg, NULL, 0);
		else {
			usage(opt == 'h' ? stdout : stderr);
			return opt == 'h' ? 0 : 2;
		}
	}
	if (!o.aggregator || !key_file || !mib) {
		usage(stderr);
		return 2;
	}
	r.count = (mib << 20) / sizeof(float);
	r.gradient = malloc(r.count * sizeof(float));
	r.buffer = malloc(r.count * sizeof(float));
	if (!r.gradient || !r.buffer)
		errx(1, "out of memory");
	fill(r.gradient, r.count, 1U + o.rank);
	r.calls = open_counter();
	join(&r, &o, job, key_file);
	serve(&r);
	for (i = 0; i < CLIENTS; i++)
		thc_client_close(r.client[i]);
	return 0;
}
