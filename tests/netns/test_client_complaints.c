// SPDX-License-Identifier: GPL-2.0
/*
 * ICMP errors to a client, which anybody may forge: which of them the client believes, and that
 * none of them stays queued. Over UDP, against `thcd --software`.
 */
#include <poll.h>
#include <time.h>

#include <linux/thc_wire.h>

#include "../lib/complaint.h"
#include "ranks.h"

#define COUNT		256
#define STEP_MS		20
/* Longer than errors must continue until the client believes them. */
#define LATE_MS		2000
#define TIMEOUT_MS	2500
#define TRIES		1000

/* Two ranks in a job of their own, of which rank 0 has begun a round. */
struct bed {
	struct daemon	d;
	struct rank	rank[2];
	float		bucket[2][COUNT];
	struct thc_request *request;
	int		fd[2];		/* the sockets of both */
	struct sockaddr_in at[2];
	int		raw;
};

/* UDP sockets that have a port: the clients', in any order. */
static unsigned int find_sockets(struct bed *b)
{
	unsigned int n = 0;
	int fd, type;

	for (fd = 3; fd < 1024 && n < 2; fd++) {
		socklen_t len = sizeof(b->at[n]), size = sizeof(type);

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_DGRAM ||
		    getsockname(fd, (void *)&b->at[n], &len) || !b->at[n].sin_port)
			continue;
		b->fd[n++] = fd;
	}
	return n;
}

static void *join_as(void *rank)
{
	struct rank *r = rank;

	keep_error(r, open_client(r));
	return NULL;
}

static void set_up(struct bed *b)
{
	unsigned int i;

	*b = (struct bed){ .d = start_daemon("job=1,ranks=2,reply=fanout,scheme=none") };
	b->raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	assert_true(b->raw >= 0);
	set_up_ranks(b->rank, 2, b->d);
	for (i = 0; i < 2; i++) {
		b->rank[i].timeout_ms = TIMEOUT_MS;
		assert_int_equal(pthread_create(&b->rank[i].thread, NULL, join_as, &b->rank[i]), 0);
	}
	for (i = 0; i < 2; i++)
		pthread_join(b->rank[i].thread, NULL);
	if (b->rank[0].error || b->rank[1].error)
		fail_msg("%s%s", b->rank[0].sentence, b->rank[1].sentence);
	for (i = 0; i < COUNT; i++)
		b->bucket[0][i] = b->bucket[1][i] = (float)i;
	assert_int_equal(find_sockets(b), 2);
	assert_int_equal(thc_allreduce_start(b->rank[0].client, b->bucket[0], COUNT, THC_FP32, 1,
					     &b->request),
			 0);
}

static void tear_down(struct bed *b)
{
	thc_client_close(b->rank[0].client);
	thc_client_close(b->rank[1].client);
	stop_daemon(b->d);
	close(b->raw);
}

/* Sends both ranks an ICMP error about packets to @at:@port. */
static void complain(const struct bed *b, const char *at, int port)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct complaint c = complaint_about(&b->at[i], at, port);

		assert_int_equal(sendto(b->raw, &c, sizeof(c), 0, (const void *)&b->at[i],
					sizeof(b->at[i])),
				 sizeof(c));
	}
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Complains until rank 0's round is over, or for @ms at most. */
static void go_on_complaining(const struct bed *b, const char *at, int port, uint64_t ms)
{
	uint64_t until = now_ms() + ms;

	while (now_ms() < until && !thc_allreduce_test(b->request)) {
		complain(b, at, port);
		usleep(STEP_MS * 1000);
	}
}

/* The aggregator's packets come meanwhile, so errors end no wait. unit/test_worker_overdue tests
 * that the client asks the aggregator in time, whatever its timers are.
 */
static void complaint__about_who_answers_ends_no_wait(void **state)
{
	struct bed b;

	(void)state;
	set_up(&b);
	go_on_complaining(&b, "127.0.0.1", b.d.port, LATE_MS);
	assert_false(thc_allreduce_test(b.request));
	assert_int_equal(thc_allreduce(b.rank[1].client, b.bucket[1], COUNT, THC_FP32, 1), 0);
	assert_int_equal(thc_allreduce_wait(b.request), 0);
	assert_memory_equal(b.bucket[0], b.bucket[1], sizeof(b.bucket[0]));
	tear_down(&b);
}

/* The error of rank 0's round if the aggregator is silent and ICMP errors name @at and its port
 * @above the base.
 */
static int end_of_silence(const char *at, int above)
{
	struct bed b;
	int error;

	set_up(&b);
	kill(b.d.pid, SIGSTOP);
	go_on_complaining(&b, at, b.d.port + above, 2 * TIMEOUT_MS);
	error = thc_allreduce_wait(b.request);
	kill(b.d.pid, SIGCONT);
	tear_down(&b);
	return error;
}

static void complaint__about_who_is_silent_is_believed(void **state)
{
	(void)state;
	assert_int_equal(end_of_silence("127.0.0.1", 0), -ECONNREFUSED);
	assert_int_equal(end_of_silence("127.0.0.1", THC_PORT_SPAN - 1), -ECONNREFUSED);
}

/* Errors about another address or port than the aggregator's are not believed. */
static void complaint__about_others_is_not_believed(void **state)
{
	(void)state;
	assert_int_equal(end_of_silence("127.0.0.2", 0), -ETIMEDOUT);
	assert_int_equal(end_of_silence("127.0.0.1", -1), -ETIMEDOUT);
	assert_int_equal(end_of_silence("127.0.0.1", THC_PORT_SPAN), -ETIMEDOUT);
}

/* A call that sends many packets may get an error and not return it: here the test takes the
 * error. The rest stays in the error queue and wakes the client's thread until it is read.
 */
static void complaint__that_nobody_was_told_of_does_not_stay(void **state)
{
	unsigned int i, taken = 0;
	struct pollfd fds[2];
	uint64_t until;
	struct bed b;

	(void)state;
	set_up(&b);
	for (i = 0; i < TRIES && taken < 10; i++) {
		int error[2] = { 0, 0 };
		socklen_t len = sizeof(error[0]);
		unsigned int k;

		complain(&b, "127.0.0.2", b.d.port);
		for (k = 0; k < 2; k++) {
			assert_int_equal(getsockopt(b.fd[k], SOL_SOCKET, SO_ERROR, &error[k], &len),
					 0);
			taken += error[k] != 0;
			fds[k] = (struct pollfd){ .fd = b.fd[k] };
		}
		for (until = now_ms() + 1000; poll(fds, 2, 0) && now_ms() < until;)
			usleep(1000);
		assert_int_equal(poll(fds, 2, 0), 0);
	}
	assert_true(taken >= 10);
	tear_down(&b);
	assert_int_equal(thc_allreduce_wait(b.request), -ECANCELED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(complaint__about_who_answers_ends_no_wait),
		cmocka_unit_test(complaint__about_who_is_silent_is_believed),
		cmocka_unit_test(complaint__about_others_is_not_believed),
		cmocka_unit_test(complaint__that_nobody_was_told_of_does_not_stay),
	};

	/* the kernel's own sockets have a test of theirs: selftests/test_af_thc_peer */
	setenv("THC_TRANSPORT", "udp", 1);
	return cmocka_run_group_tests_name("client_complaints", tests, NULL, NULL);
}
