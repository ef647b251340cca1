// SPDX-License-Identifier: GPL-2.0
#include <stdbool.h>
#include <sys/stat.h>

#include "keyfile.h"
#include "ranks.h"

const uint8_t job_key[THC_KEY_BYTES] = "thirty-two bytes that all know.";

uint16_t next_port(void)
{
	static uint16_t port;

	/* 64 ports each, apart from other runs of this test */
	if (!port)
		port = (uint16_t)(20000 + (getpid() % 150) * 64);
	port += 64;
	return port;
}

static const char *daemon_path(void)
{
	const char *path = getenv("THCD");

	return path ? path : THCD_PATH;
}

/* A file that holds the key, until thcd has read it. */
static void write_key(const char *path)
{
	char digits[THC_KEY_DIGITS + 1];
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fchmod(fileno(f), 0600), 0);
	thc_key_print(digits, job_key);
	assert_true(fprintf(f, "%s\n", digits) > 0);
	assert_int_equal(fclose(f), 0);
}

/* Waits until thcd has said that it serves, or ends. */
static bool gets_ready(int out)
{
	FILE *f = fdopen(out, "r");
	char line[256];

	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "ready", 5))
			/* the pipe stays open: the daemon may go on to print */
			return true;
	return false;
}

/* In a test machine tables for a rate take thcd and each client a large part of a second, which
 * says nothing about the kernel: a job has them there if it asks for them.
 */
static const char *without_rates(const char *job)
{
	return getenv("THC_VM_KERNEL") && !strstr(job, "rate=") ? ",rate=fixed" : "";
}

struct daemon start_daemon_on(uint16_t at, const char *job)
{
	struct daemon d = { .port = at };
	char port[8], control[64], key[64], keyed[384];
	const char *rates = without_rates(job);
	bool ready;
	int out[2];

	assert_int_equal(pipe(out), 0);
	snprintf(port, sizeof(port), "%u", d.port);
	snprintf(control, sizeof(control), "/tmp/thc-test-%d-%u.sock", getpid(), d.port);
	snprintf(key, sizeof(key), "/tmp/thc-test-%d-%u.key", getpid(), d.port);
	if (strstr(job, "seal="))
		snprintf(keyed, sizeof(keyed), "%s%s", job, rates);
	else
		snprintf(keyed, sizeof(keyed), "%s%s,key=@%s", job, rates, key);
	write_key(key);
	d.pid = fork();
	assert_true(d.pid >= 0);
	if (!d.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		close(out[0]);
		execl(daemon_path(), "thcd", "--software", "--listen", "127.0.0.1", "--port", port,
		      "--control", control, "--job", keyed, NULL);
		perror(daemon_path());
		_exit(127);
	}
	close(out[1]);
	ready = gets_ready(out[0]);
	unlink(key);
	if (!ready)
		fail_msg("thcd did not get ready (job %s)", job);
	return d;
}

int open_client(struct rank *r)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;

	o.aggregator = "127.0.0.1";
	o.port = r->d.port;
	o.job = 1;
	o.key = r->keyless ? NULL : job_key;
	o.rank = (uint16_t)r->rank;
	o.flags = r->flags;
	/* for the debug kernel, where 64 ranks need more than ten seconds to join */
	o.timeout_ms = r->timeout_ms ? r->timeout_ms : 20000;
	o.join_timeout_ms = 60000;
	return thc_client_open(&o, &r->client);
}

void *end_rank(struct rank *r, void *g, void *copy)
{
	pthread_barrier_wait(r->barrier);
	thc_client_close(r->client);
	free(g);
	free(copy);
	return NULL;
}

void run_ranks(struct rank *ranks, unsigned int n, void *(*run)(void *))
{
	pthread_barrier_t barrier;
	unsigned int i;

	pthread_barrier_init(&barrier, NULL, n);
	for (i = 0; i < n; i++) {
		ranks[i].barrier = &barrier;
		assert_int_equal(pthread_create(&ranks[i].thread, NULL, run, &ranks[i]), 0);
	}
	for (i = 0; i < n; i++)
		pthread_join(ranks[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
}

void set_up_ranks(struct rank *ranks, unsigned int n, struct daemon d)
{
	unsigned int i;

	memset(ranks, 0, n * sizeof(*ranks));
	for (i = 0; i < n; i++) {
		ranks[i].d = d;
		ranks[i].rank = i;
		ranks[i].ranks = n;
	}
}

void run_job(struct rank *ranks, unsigned int n, void *(*run)(void *))
{
	char job[96];
	struct daemon d;

	snprintf(job, sizeof(job), "job=1,ranks=%u,reply=fanout", n);
	d = start_daemon(job);
	set_up_ranks(ranks, n, d);
	run_ranks(ranks, n, run);
	stop_daemon(d);
}

void run_well(const char *job, unsigned int n, void *(*run)(void *))
{
	struct daemon d = start_daemon(job);
	struct rank ranks[RANKS_MAX];
	unsigned int i;

	set_up_ranks(ranks, n, d);
	run_ranks(ranks, n, run);
	stop_daemon(d);
	for (i = 0; i < n; i++)
		if (ranks[i].error)
			fail_msg("n=%u rank %u: %d: %s", n, i, ranks[i].error, ranks[i].sentence);
}

float gradient_at(unsigned int rank, size_t i)
{
	uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15ULL + rank * 0xd1342543de82ef95ULL + 1;
	double sum = 0;
	int k;

	for (k = 0; k < 4; k++) {
		x ^= x >> 31;
		x *= 0xbf58476d1ce4e5b9ULL;
		x ^= x >> 29;
		sum += (double)(x >> 11) / 9007199254740992.0 - 0.5;
	}
	return (float)(sum * (i % 1000 < 20 ? 5.0 : 1.0));
}

double exact_mean(unsigned int n, size_t i)
{
	double sum = 0;
	unsigned int k;

	for (k = 0; k < n; k++)
		sum += gradient_at(k, i);
	return sum / n;
}

double nmse(const float *got, unsigned int n, size_t count)
{
	double error = 0, power = 0;
	size_t i;
	unsigned int k;

	for (i = 0; i < count; i++) {
		double d = got[i] - exact_mean(n, i);

		error += d * d;
		for (k = 0; k < n; k++)
			power += (double)gradient_at(k, i) * gradient_at(k, i) / n;
	}
	return error / power;
}

float *make_gradient(unsigned int rank, size_t count)
{
	float *g = malloc(count * sizeof(*g));
	size_t i;

	for (i = 0; i < count; i++)
		g[i] = gradient_at(rank, i);
	return g;
}
