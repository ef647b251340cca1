// SPDX-License-Identifier: GPL-2.0
/*
 * A client of libthc on a host whose AF_THC sockets may hold too little memory for its messages:
 * it waits, as long as it waits for answers, and goes on when there is memory.
 */
#include "afthc.h"
#include "harness.h"

#include <libthc.h>
#include <pthread.h>

/* A bucket of so many floats is handed over in messages of 1024 chunks, 1.6 MB each: more than the
 * least that all sockets may be told to hold, 1 MiB.
 */
#define COUNT		(2 << 20)
#define ALL_RANKS	2

/* One rank, a thread. */
struct starved {
	unsigned int	rank;
	uint32_t	timeout_ms;
	pthread_t	thread;
	float		*values;
	int		error;
	uint64_t	took_ms;
	char		sentence[512];
};

FIXTURE(starved)
{
	struct daemon daemon;
	struct starved ranks[ALL_RANKS];
};

FIXTURE_SETUP(starved)
{
	unsigned int r;
	size_t i;

	memset(self, 0, sizeof(*self));
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	for (r = 0; r < ALL_RANKS; r++) {
		self->ranks[r].rank = r;
		self->ranks[r].timeout_ms = PATIENCE_MS;
		self->ranks[r].values = malloc(COUNT * sizeof(float));
		for (i = 0; i < COUNT; i++)
			self->ranks[r].values[i] = 1;
	}
}

FIXTURE_TEARDOWN(starved)
{
	unsigned int r;

	set_host_memory("0");
	stop_daemon(&self->daemon, SIGKILL);
	for (r = 0; r < ALL_RANKS; r++)
		free(self->ranks[r].values);
}

static void *all_reduce_once(void *arg)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	struct starved *s = arg;
	struct thc_client *c;
	uint64_t start;

	o.aggregator = "127.0.0.1";
	o.port = PORT;
	o.job = 1;
	o.key = job_key;
	o.rank = s->rank;
	o.timeout_ms = s->timeout_ms;
	o.transport = THC_TRANSPORT_AF_THC;
	s->error = thc_client_open(&o, &c);
	start = now_ms();
	if (!s->error) {
		s->error = thc_allreduce(c, s->values, COUNT, THC_FP32, 0);
		if (s->error)
			snprintf(s->sentence, sizeof(s->sentence), "%s", thc_last_error());
		thc_client_close(c);
	}
	s->took_ms = now_ms() - start;
	return NULL;
}

static void begin_ranks(struct starved *ranks)
{
	unsigned int r;

	for (r = 0; r < ALL_RANKS; r++)
		pthread_create(&ranks[r].thread, NULL, all_reduce_once, &ranks[r]);
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

TEST_F_TIMEOUT(starved, a_client_waits_for_memory, 60)
{
	unsigned int r;

	ASSERT_EQ(set_host_memory("1"), 0);
	begin_ranks(self->ranks);
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
	begin_ranks(self->ranks);
	end_ranks(self->ranks);
	for (r = 0; r < ALL_RANKS; r++) {
		/* one that leaves first is what the other one misses */
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

TEST_HARNESS_MAIN
