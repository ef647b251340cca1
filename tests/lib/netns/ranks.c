// SPDX-License-Identifier: GPL-2.0
#include "ranks.h"

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

struct daemon start_daemon_on(uint16_t at, const char *job)
{
	struct daemon d = { .port = at };
	char port[8], line[256], control[64];
	int out[2];
	FILE *f;

	assert_int_equal(pipe(out), 0);
	snprintf(port, sizeof(port), "%u", d.port);
	snprintf(control, sizeof(control), "/tmp/thc-test-%d-%u.sock", getpid(), d.port);
	d.pid = fork();
	assert_true(d.pid >= 0);
	if (!d.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		close(out[0]);
		execl(daemon_path(), "thcd", "--software", "--listen", "127.0.0.1", "--port", port,
		      "--control", control, "--job", job, NULL);
		perror(daemon_path());
		_exit(127);
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "ready", 5)) {
			/* keep the pipe open: the daemon may go on to print */
			return d;
		}
	}
	fail_msg("thcd did not get ready (job %s)", job);
	return d;
}

int open_client(struct rank *r)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;

	o.aggregator = "127.0.0.1";
	o.port = r->d.port;
	o.job = 1;
	o.cookie = COOKIE;
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

	snprintf(job, sizeof(job), "job=1,ranks=%u,cookie=0x5eed1234abcd,reply=fanout", n);
	d = start_daemon(job);
	set_up_ranks(ranks, n, d);
	run_ranks(ranks, n, run);
	stop_daemon(d);
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
