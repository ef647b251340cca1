// SPDX-License-Identifier: GPL-2.0
/*
 * A client of libthc on a host whose AF_THC sockets may hold too little memory for its messages,
 * or for its job's slots. The client waits until its timeout for answers or for joining, and goes
 * on when there is memory.
 */
#include "afthc.h"
#include "harness.h"

#include <libthc.h>
#include <pthread.h>

/* Floats of a bucket, which libthc sends in messages of 1024 chunks, 1.6 MB each: more than 1 MiB,
 * the least limit for all sockets.
 */
#define COUNT		(2 << 20)
#define ALL_RANKS	2

/* How long memory is missing, ms. */
#define WITHOUT_MS	3000

/**
 * struct starved - one rank, a thread
 * @joined_ms: duration of the last join
 * @full: barrier of the joined ranks and the main thread, which then takes all memory
 */
struct starved {
	unsigned int		rank;
	uint32_t		timeout_ms;
	uint32_t		join_timeout_ms;
	pthread_t		thread;
	float			*values;
	int			error;
	uint64_t		took_ms;
	uint64_t		joined_ms;
	char			sentence[512];
	pthread_barrier_t	*full;
};

FIXTURE(starved)
{
	struct daemon daemon;
	struct starved ranks[ALL_RANKS];
	int others[ALL_RANKS];
	pthread_barrier_t full;
};

FIXTURE_SETUP(starved)
{
	unsigned int r;
	size_t i;

	memset(self, 0, sizeof(*self));
	for (r = 0; r < ALL_RANKS; r++)
		self->others[r] = -1;
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", "2,ranks=2," JOB_OF_TEST),
		  0);
	for (r = 0; r < ALL_RANKS; r++) {
		self->ranks[r].rank = r;
		self->ranks[r].timeout_ms = PATIENCE_MS;
		self->ranks[r].join_timeout_ms = PATIENCE_MS;
		self->ranks[r].full = &self->full;
		self->ranks[r].values = malloc(COUNT * sizeof(float));
		for (i = 0; i < COUNT; i++)
			self->ranks[r].values[i] = 1;
	}
}

FIXTURE_TEARDOWN(starved)
{
	unsigned int r;

	set_host_memory("0");
	close_all(self->others, ALL_RANKS);
	stop_daemon(&self->daemon, SIGKILL);
	for (r = 0; r < ALL_RANKS; r++)
		free(self->ranks[r].values);
}

static int join(const struct starved *s, struct thc_client **c)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;

	o.aggregator = "127.0.0.1";
	o.port = PORT;
	o.job = 1;
	o.key = job_key;
	o.rank = s->rank;
	o.timeout_ms = s->timeout_ms;
	o.join_timeout_ms = s->join_timeout_ms;
	o.transport = THC_TRANSPORT_AF_THC;
	return thc_client_open(&o, c);
}

static void *all_reduce_once(void *arg)
{
	uint64_t start = now_ms();
	struct starved *s = arg;
	struct thc_client *c = NULL;

	s->error = join(s, &c);
	s->joined_ms = now_ms() - start;
	if (!s->error)
		s->error = thc_allreduce(c, s->values, COUNT, THC_FP32, 0);
	s->took_ms = now_ms() - start - s->joined_ms;
	if (s->error)
		snprintf(s->sentence, sizeof(s->sentence), "%s", thc_last_error());
	thc_client_close(c);
	return NULL;
}

static void *rejoin_once(void *arg)
{
	struct starved *s = arg;
	struct thc_client *c = NULL;
	uint64_t start;

	s->error = join(s, &c);
	pthread_barrier_wait(s->full);
	pthread_barrier_wait(s->full);
	start = now_ms();
	if (!s->error)
		s->error = thc_client_rejoin(c);
	s->joined_ms = now_ms() - start;
	snprintf(s->sentence, sizeof(s->sentence), "%s", thc_last_error());
	thc_client_close(c);
	return NULL;
}

static void begin_ranks(struct starved *ranks, void *(*run)(void *))
{
	unsigned int r;

	for (r = 0; r < ALL_RANKS; r++)
		pthread_create(&ranks[r].thread, NULL, run, &ranks[r]);
}

static void end_ranks(struct starved *ranks)
{
	unsigned int r;

	for (r = 0; r < ALL_RANKS; r++)
		pthread_join(ranks[r].thread, NULL);
}

static size_t values_off(const float *x)
{
	size_t i, off = 0;

	for (i = 0; i < COUNT; i++)
		off += x[i] < 0.5F || x[i] > 1.5F;
	return off;
}

/* Another job's sockets hold more than the host's limit from now on, since one of its ranks sends
 * and the other does not. Returns 0, or a negative errno.
 */
static int hold_all_memory(int *others)
{
	static const char lanes[LANES];
	int error = join_all(others, ALL_RANKS, "127.0.0.1", PORT, 2);
	ssize_t sent = LANES;

	if (!error)
		error = set_u32(others[0], THC_OPT_TIMEOUT, 2 * PATIENCE_MS);
	if (!error)
		error = set_host_memory("2");
	while (!error && sent == LANES)
		sent = send_message(others[0], lanes, LANES, &add8, 0);
	if (!error && sent != -ENOBUFS)
		error = (int)sent;
	return error ? error : set_host_memory("1");
}

TEST_F_TIMEOUT(starved, a_client_waits_for_memory, 60)
{
	unsigned int r;

	ASSERT_EQ(set_host_memory("1"), 0);
	begin_ranks(self->ranks, all_reduce_once);
	sleep_ms(5000);
	ASSERT_EQ(set_host_memory("0"), 0);
	end_ranks(self->ranks);
	for (r = 0; r < ALL_RANKS; r++) {
		EXPECT_EQ(self->ranks[r].error, 0) TH_LOG("%s", self->ranks[r].sentence);
		EXPECT_EQ(values_off(self->ranks[r].values), 0);
	}
}

TEST_F_TIMEOUT(starved, a_client_does_not_wait_for_ever, 60)
{
	unsigned int r, starved = 0;

	ASSERT_EQ(set_host_memory("1"), 0);
	for (r = 0; r < ALL_RANKS; r++)
		self->ranks[r].timeout_ms = 3000;
	begin_ranks(self->ranks, all_reduce_once);
	end_ranks(self->ranks);
	for (r = 0; r < ALL_RANKS; r++) {
		/* a rank that gives up first is missing for the other */
		EXPECT_TRUE(self->ranks[r].error == -ENOBUFS || self->ranks[r].error == -EPIPE ||
			    self->ranks[r].error == -ETIMEDOUT)
		TH_LOG("%d: %s", self->ranks[r].error, self->ranks[r].sentence);
		EXPECT_GE(self->ranks[r].took_ms, 3000);
		if (self->ranks[r].error != -ENOBUFS)
			continue;
		starved++;
		EXPECT_NE(strstr(self->ranks[r].sentence, "for 3000 ms"), NULL);
		EXPECT_NE(strstr(self->ranks[r].sentence, "memory_mib"), NULL);
		EXPECT_EQ(self->ranks[r].values[COUNT - 1], 1) TH_LOG("the bucket has changed");
	}
	EXPECT_GE(starved, 1);
}

TEST_F_TIMEOUT(starved, a_client_waits_for_memory_to_join, 120)
{
	unsigned int r;

	ASSERT_EQ(hold_all_memory(self->others), 0);
	begin_ranks(self->ranks, all_reduce_once);
	sleep_ms(WITHOUT_MS);
	ASSERT_EQ(set_host_memory("0"), 0);
	end_ranks(self->ranks);
	for (r = 0; r < ALL_RANKS; r++) {
		EXPECT_EQ(self->ranks[r].error, 0) TH_LOG("%s", self->ranks[r].sentence);
		/* the client begins to count a little later */
		EXPECT_GE(self->ranks[r].joined_ms + 50, WITHOUT_MS);
		EXPECT_EQ(values_off(self->ranks[r].values), 0);
	}
}

TEST_F_TIMEOUT(starved, a_client_does_not_wait_for_ever_to_join_again, 120)
{
	unsigned int r;

	ASSERT_EQ(pthread_barrier_init(&self->full, NULL, ALL_RANKS + 1), 0);
	for (r = 0; r < ALL_RANKS; r++)
		self->ranks[r].join_timeout_ms = 10000;
	begin_ranks(self->ranks, rejoin_once);
	pthread_barrier_wait(&self->full);
	EXPECT_EQ(hold_all_memory(self->others), 0);
	pthread_barrier_wait(&self->full);
	end_ranks(self->ranks);
	pthread_barrier_destroy(&self->full);
	for (r = 0; r < ALL_RANKS; r++) {
		EXPECT_EQ(self->ranks[r].error, -ENOBUFS) TH_LOG("%s", self->ranks[r].sentence);
		EXPECT_GE(self->ranks[r].joined_ms, 10000);
		EXPECT_NE(strstr(self->ranks[r].sentence, "within 10000 ms"), NULL);
		EXPECT_NE(strstr(self->ranks[r].sentence, "memory_mib"), NULL);
	}
}

TEST_HARNESS_MAIN
