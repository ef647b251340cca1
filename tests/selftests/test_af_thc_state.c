// SPDX-License-Identifier: GPL-2.0
/*
 * What Documentation/man/af_thc.7 promises of a socket that has, or had, a
 * job: errnos, timeouts, signals, poll(), epoll, shutdown, flags of recvmsg(),
 * the bound on memory, calls that another connect() overtakes.
 */
#include "fake.h"
#include "harness.h"
#include "waiting.h"

#include <sys/epoll.h>

#define ERRNO_OF(call)	((call) < 0 ? errno : 0)

AFTHC_FIXTURE(job)

/* --- connect -------------------------------------------------------------- */

TEST_F(job, connect_non_blocking)
{
	struct sockaddr_thc a[2] = { place("127.0.0.1", PORT, 1, 0),
				     place("127.0.0.1", PORT, 1, 1) };
	struct sockaddr_thc name;
	socklen_t len = sizeof(name);
	int i;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	for (i = 0; i < 2; i++)
		self->fd[i] = thc_open(SOCK_NONBLOCK);
	EXPECT_EQ(poll_now(self->fd[0]), POLLHUP | POLLOUT);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a[0], sizeof(a[0]))), EINPROGRESS);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a[0], sizeof(a[0]))), EALREADY);
	EXPECT_EQ(poll_now(self->fd[0]), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -EAGAIN);
	EXPECT_EQ(send_message(self->fd[0], &a, 8, &add8, 0), -EAGAIN);
	/* the last one may be in before it asks */
	i = ERRNO_OF(connect(self->fd[1], (void *)&a[1], sizeof(a[1])));
	EXPECT_TRUE(!i || i == EINPROGRESS) TH_LOG("errno %d", i);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(end_join(self->fd[i]), 0);
		EXPECT_EQ(poll_now(self->fd[i]), POLLOUT);
		ASSERT_EQ(getpeername(self->fd[i], (void *)&name, &len), 0);
		EXPECT_EQ(name.sthc_rank, i);
		EXPECT_EQ(name.sthc_cookie, 0) TH_LOG("the secret came back");
		ASSERT_EQ(getsockname(self->fd[i], (void *)&name, &len), 0);
		EXPECT_NE(name.sthc_port, 0);
		EXPECT_EQ(memcmp(name.sthc_addr, a[i].sthc_addr, 16), 0);
		EXPECT_EQ(ERRNO_OF(bind(self->fd[i], (void *)&name, len)), EINVAL);
	}
}

TEST_F(job, connect_refused_by_the_job)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), wrong;
	static const struct {
		uint16_t job;
		uint8_t rank;
		uint64_t cookie;
		uint8_t refusal;
	} refused[] = {
		{ 2, 0, COOKIE, THC_REFUSED_JOB },
		{ 1, 0, 77, THC_REFUSED_JOB },
		{ 1, 1, COOKIE, THC_REFUSED_RANK },
	};
	struct thc_failure f;
	size_t i;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1", NULL), 0);
	self->fd[0] = thc_open(0);
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		wrong = a;
		wrong.sthc_job = refused[i].job;
		wrong.sthc_rank = refused[i].rank;
		wrong.sthc_cookie = refused[i].cookie;
		EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&wrong, sizeof(wrong))), EACCES);
		f = failure_of(self->fd[0]);
		EXPECT_EQ(f.reason, THC_FAILED_REFUSED);
		EXPECT_EQ(f.refusal, refused[i].refusal);
	}
	EXPECT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_NOT);
}

TEST_F(job, connect_when_not_all_ranks_come)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 1);
	struct thc_failure f;
	uint64_t start = now_ms();

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "3", NULL), 0);
	self->fd[0] = thc_open(0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 2000), 0);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), ETIMEDOUT);
	EXPECT_GE(now_ms() - start, 2000);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_JOIN);
	EXPECT_EQ(f.ranks, 1 << 0 | 1 << 2);
	/* SO_SNDTIMEO: the call ends, joining goes on */
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 10000), 0);
	set_timeo(self->fd[0], SO_SNDTIMEO, 100);
	start = now_ms();
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), EINPROGRESS);
	EXPECT_GE(now_ms() - start, 90);
	EXPECT_LT(now_ms() - start, 5000);
}

TEST_F(job, option_welcome_lengths_and_pointers)
{
	static const int wrong[] = { -1, 0, 1, sizeof(struct thc_joined) - 1 };
	struct thc_joined joined;
	socklen_t len;
	size_t i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		len = (socklen_t)wrong[i];
		EXPECT_EQ(
			ERRNO_OF(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &joined, &len)),
			EINVAL);
	}
	len = sizeof(joined);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, (void *)8, &len)),
		  EFAULT);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &joined, (void *)8)),
		  EFAULT);
	EXPECT_EQ(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &joined, &len), 0);
	EXPECT_EQ(len, sizeof(joined));
}

/* --- sendmsg -------------------------------------------------------------- */

TEST_F(job, sendmsg_what_it_refuses)
{
	static const struct {
		uint8_t op, width;
		size_t bytes;
	} bad[] = {
		{ THC_OP_ADD, 8, 0 }, { THC_OP_ADD, 8, 1023 }, { THC_OP_ADD, 8, 1025 },
		{ THC_OP_ADD, 4, 1024 }, { THC_OP_ADD, 0, 1024 }, { THC_OP_ADD, 64, 1024 },
		{ THC_OP_LUT_ADD, 8, 1024 }, { THC_OP_LUT_ADD, 4, 256 }, { THC_OP_OR, 8, 1024 },
		{ THC_OP_MAX, 16, 1024 }, { THC_OP_JOIN, 0, 1024 }, { THC_OP_CLOSE, 32, 1024 },
		{ 0, 8, 1024 }, { 255, 8, 1024 },
	};
	char lanes[2048] = "";
	size_t i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1,granularity=31", 1), 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct thc_send s = describe(bad[i].op, bad[i].width, 0, 0);

		EXPECT_EQ(send_message(self->fd[0], lanes, bad[i].bytes, &s, 0), -EINVAL)
		TH_LOG("op %u width %u, %zu bytes", s.op, s.width, bad[i].bytes);
	}
	EXPECT_EQ(send_message(self->fd[0], (void *)8, 1024, &add8, 0), -EFAULT);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	/* nothing of this was sent */
	EXPECT_EQ(stats_of(self->fd[0]).packets_up, 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 1), 0);
}

TEST_F(job, memory_is_bounded)
{
	uint64_t bound = 64 << 10;
	char *lanes = calloc(1, 1 << 20);
	struct thc_socket_stats stats;
	int sent = 0, error;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(setsockopt(self->fd[0], SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, 1 << 20, &add8, 0), -EMSGSIZE);
	do {
		error = (int)send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT);
	} while (error == LANES && ++sent < 100);
	ASSERT_EQ(error, -EAGAIN);
	EXPECT_GE(sent, 4);
	stats = stats_of(self->fd[0]);
	EXPECT_LE(stats.memory, bound);
	EXPECT_EQ(stats.memory, stats.memory_peak);
	set_timeo(self->fd[0], SO_SNDTIMEO, 100);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), -EAGAIN);
	/* room comes with recvmsg(), not with the answer */
	while (sent--)
		EXPECT_EQ(send_message(self->fd[1], lanes, LANES, &add8, 0), LANES);
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT), LANES);
	free(lanes);
}

/* The parent's sendmsg() sleeps until a child has received. */
TEST_F(job, sendmsg_wakes_up_when_there_is_room)
{
	uint64_t bound = 12 << 10;
	char lanes[LANES] = "";
	pid_t child;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(setsockopt(self->fd[0], SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
	ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT), -EAGAIN);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLERR, 0);
	child = fork();
	if (!child) {
		sleep_ms(200);
		_exit(receive(self->fd[0], 0) != ANSWER);
	}
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
	waitpid(child, NULL, 0);
}

/* --- recvmsg -------------------------------------------------------------- */

TEST_F(job, recvmsg_peeks_and_truncates)
{
	unsigned char room[3 * ANSWER], again[3 * ANSWER];
	struct thc_received r;
	int flags = 0;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 3, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLIN, POLLIN);
	EXPECT_EQ(receive_message(self->fd[0], (void *)8, sizeof(room), &r, 0, NULL), -EFAULT);
	EXPECT_EQ(receive_message(self->fd[0], room, 100, &r, MSG_PEEK, &flags), 100);
	EXPECT_EQ(flags & (MSG_TRUNC | MSG_EOR), MSG_TRUNC | MSG_EOR);
	EXPECT_EQ(receive_message(self->fd[0], room, 0, &r, MSG_PEEK | MSG_TRUNC, &flags),
		  3 * ANSWER);
	EXPECT_EQ(receive_message(self->fd[0], room, sizeof(room), &r, MSG_PEEK, &flags),
		  sizeof(room));
	EXPECT_EQ(flags & MSG_TRUNC, 0);
	EXPECT_EQ(r.tag, add8.tag);
	EXPECT_EQ(receive_message(self->fd[0], again, sizeof(again), &r, 0, &flags), sizeof(again));
	EXPECT_EQ(memcmp(room, again, sizeof(room)), 0);
	EXPECT_EQ(receive_message(self->fd[0], again, sizeof(again), &r, MSG_DONTWAIT, &flags),
		  -EAGAIN);
	/* taken whole: what did not fit is lost */
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 3, 8), 0);
	EXPECT_EQ(receive_message(self->fd[0], again, 7, &r, MSG_TRUNC, &flags), 3 * ANSWER);
	EXPECT_EQ(flags & MSG_TRUNC, MSG_TRUNC);
	EXPECT_EQ(receive_message(self->fd[0], again, 7, &r, MSG_DONTWAIT, &flags), -EAGAIN);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
}

TEST_F(job, timeouts_of_the_calls)
{
	uint64_t start = now_ms();

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	set_timeo(self->fd[0], SO_RCVTIMEO, 150);
	start = now_ms();
	EXPECT_EQ(receive(self->fd[0], 0), -EAGAIN);
	EXPECT_GE(now_ms() - start, 140);
	set_timeo(self->fd[0], SO_RCVTIMEO, PATIENCE_MS);
	start = now_ms();
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), -EAGAIN);
	EXPECT_LT(now_ms() - start, PATIENCE_MS);
}

/* --- signals -------------------------------------------------------------- */

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

/* And again and again, until alarm_off(): the call may begin late. */
static void alarm_in(int ms, int flags)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = flags };
	struct itimerval t = { .it_value.tv_usec = ms * 1000, .it_interval.tv_usec = ms * 1000 };

	signals = 0;
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

static void alarm_off(void)
{
	struct itimerval t = { 0 };

	setitimer(ITIMER_REAL, &t, NULL);
}

TEST_F(job, signals_interrupt)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	uint64_t bound = 12 << 10;
	char lanes[LANES] = "";

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	self->fd[0] = thc_open(0);
	alarm_in(100, 0);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), EINTR);
	alarm_off();
	EXPECT_GE(signals, 1);
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	alarm_in(100, 0);
	EXPECT_EQ(receive(self->fd[0], 0), -EINTR);
	alarm_off();
	EXPECT_GE(signals, 1);
	ASSERT_EQ(setsockopt(self->fd[0], SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
	alarm_in(100, 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), -EINTR);
	alarm_off();
	EXPECT_GE(signals, 1);
	/* with a timeout a call is not begun again (signal(7)), else SA_RESTART holds */
	set_timeo(self->fd[0], SO_RCVTIMEO, 5000);
	alarm_in(100, SA_RESTART);
	EXPECT_EQ(receive(self->fd[0], 0), -EINTR);
	alarm_off();
}

/* A signal ends the wait, not the join: the others do not have to join again. */
TEST_F(job, connect_after_a_signal_goes_on)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), b = place("127.0.0.1", PORT, 1, 1);

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	alarm_in(100, 0);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), EINTR);
	alarm_off();
	ASSERT_EQ(connect(self->fd[1], (void *)&b, sizeof(b)), 0);
	/* it ended well in between */
	ASSERT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
	/* and has been told: this is another one */
	ASSERT_EQ(begin_join(self->fd[0], &a), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[1], 0), -ESTALE);
}

/* Nor is it told twice: who has sent knows how it ended, and joins again. */
TEST_F(job, connect_after_messages_joins_again)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), b = place("127.0.0.1", PORT, 1, 1);
	struct thc_joined before, after;
	socklen_t len = sizeof(before);

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	set_timeo(self->fd[0], SO_SNDTIMEO, 100);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), EINPROGRESS);
	set_timeo(self->fd[0], SO_SNDTIMEO, 0);
	ASSERT_EQ(connect(self->fd[1], (void *)&b, sizeof(b)), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLOUT, PATIENCE_MS), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
	ASSERT_EQ(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &before, &len), 0);
	ASSERT_EQ(begin_join(self->fd[1], &b), 0);
	ASSERT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	ASSERT_EQ(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &after, &len), 0);
	EXPECT_GT(after.epoch, before.epoch);
	ASSERT_EQ(end_join(self->fd[1]), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
}

/* Of the join that was interrupted, not of another one since. */
TEST_F(job, connect_fails_as_often_as_it_is_tried)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0),
			    nowhere = place("203.0.113.1", 1, 1, 0);

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	self->fd[0] = thc_open(0);
	set_timeo(self->fd[0], SO_SNDTIMEO, 100);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), EINPROGRESS);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&nowhere, sizeof(nowhere))), ENETUNREACH);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&nowhere, sizeof(nowhere))), ENETUNREACH);
}

TEST_F(job, signals_with_sa_restart)
{
	pid_t child;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	/* a child has no timers */
	alarm_in(100, SA_RESTART);
	child = fork();
	if (!child) {
		sleep_ms(400);
		_exit(send_part(self->fd[0], 0, &add8, 1, 8));
	}
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	alarm_off();
	EXPECT_GE(signals, 1);
	waitpid(child, NULL, 0);
}

/* --- shutdown ------------------------------------------------------------- */

TEST_F(job, shutdown_ends_both_directions)
{
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(shutdown(self->fd[0], SHUT_RDWR), 0);
	EXPECT_EQ(poll_now(self->fd[0]) & (POLLHUP | POLLRDHUP), POLLHUP | POLLRDHUP);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -EPIPE);
	/* what is complete can be received, then it is the end */
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(receive(self->fd[0], 0), 0);
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), 0);
}

TEST_F(job, shutdown_wakes_up_a_reader)
{
	pid_t child;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	child = fork();
	if (!child) {
		sleep_ms(150);
		_exit(shutdown(self->fd[0], SHUT_RD));
	}
	EXPECT_EQ(receive(self->fd[0], 0), 0);
	waitpid(child, NULL, 0);
}

/* connect() joins, but what was shut down remains so. */
TEST_F(job, shutdown_outlasts_connect)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), b = place("127.0.0.1", PORT, 1, 1);

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(shutdown(self->fd[0], SHUT_WR), 0);
	ASSERT_EQ(begin_join(self->fd[1], &b), 0);
	ASSERT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	ASSERT_EQ(end_join(self->fd[1]), 0);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -EPIPE);
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), -EAGAIN);
	/* the others have it as a rank, and wait for it */
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, 1, 8), 0);
	set_timeo(self->fd[1], SO_RCVTIMEO, 300);
	EXPECT_EQ(receive(self->fd[1], 0), -EAGAIN);
	EXPECT_EQ(failure_of(self->fd[1]).reason, THC_FAILED_NOT);

	ASSERT_EQ(shutdown(self->fd[0], SHUT_RD), 0);
	ASSERT_EQ(begin_join(self->fd[1], &b), 0);
	ASSERT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	ASSERT_EQ(end_join(self->fd[1]), 0);
	EXPECT_EQ(receive(self->fd[0], 0), 0);
	EXPECT_EQ(poll_now(self->fd[0]) & (POLLHUP | POLLRDHUP), POLLHUP | POLLRDHUP);
}

/* --- failures ------------------------------------------------------------- */

TEST_F(job, fails_after_its_timeout_and_names_who_is_missing)
{
	struct thc_failure f;
	uint64_t start;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "3", 3), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 3000), 0);
	start = now_ms();
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[2], 2, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
	EXPECT_GE(now_ms() - start, 2980);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.error, ETIMEDOUT);
	EXPECT_EQ(f.reason, THC_FAILED_MISSING);
	EXPECT_EQ(f.ranks, 1 << 1);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -ETIMEDOUT);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLERR, POLLERR);
	EXPECT_EQ(stats_of(self->fd[0]).failures, 1);
	/* join_all() of the others makes it whole again, and that may take its time */
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 20000), 0);
	ASSERT_EQ(join_all(self->fd, 3, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 3, &add8, 2), 0);
	EXPECT_EQ(failure_of(self->fd[0]).reason, THC_FAILED_NOT);
}

/* Ranks 1 and 2 were first, with another round: it is they who are named, not the
 * aggregator.
 */
TEST_F(job, fails_after_its_timeout_and_names_who_sent_something_else)
{
	static const struct thc_send other = { .op = THC_OP_ADD, .width = 8, .round = 2, .tag = 5 };
	struct thc_failure f;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "3", 3), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 3000), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &other, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[2], 2, &other, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.error, ETIMEDOUT);
	EXPECT_EQ(f.reason, THC_FAILED_DIFFERS);
	EXPECT_EQ(f.ranks, 1 << 1 | 1 << 2);
	/* it had arrived, and was not taken for lost */
	EXPECT_GT(stats_of(self->fd[0]).waits, 0);
}

TEST_F(job, fails_when_a_missing_rank_has_left)
{
	struct thc_failure f;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	close(self->fd[1]);
	self->fd[1] = -1;
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -EPIPE);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_LEFT);
	EXPECT_EQ(f.ranks, 1 << 1);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -EPIPE);
}

TEST_F(job, fails_when_a_rank_restarts)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 1);
	int again = thc_open(0);
	struct thc_failure f;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(all_reduce(self->fd, 2, &add8, 1), 0);
	/* its address stays, so that the daemon sees the same worker anew */
	ASSERT_EQ(begin_join(self->fd[1], &a), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ESTALE);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_EPOCH);
	EXPECT_EQ(f.rank, 1);
	EXPECT_NE(f.epoch, 0);
	close(again);
}

/* Messages that are complete survive a failure. */
TEST_F(job, complete_messages_can_be_received_after_a_failure)
{
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	/* the first message must come in time, on a slow kernel, too */
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 1500), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLERR, PATIENCE_MS), 0);
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
}

/* A fake aggregator's word about a chunk in flight, header only. */
static int say(int fd, int udp, const struct sockaddr_in *worker, const struct thc_hdr *request,
	       uint8_t op, uint8_t flags)
{
	struct thc_hdr h = *request;

	h.op = op;
	h.flags = flags;
	h.count = htobe16(1);
	h.bitmap = htobe64(1 << 1);	/* our rank */
	set_sum(&h, sizeof(h));
	return deliver(fd, udp, worker, &h, sizeof(h));
}

/* The aggregator has closed a chunk, and nobody knows any more what was in it. */
TEST_F(job, fails_when_the_others_went_on)
{
	struct sockaddr_in worker;
	struct chunk_packet p;
	int udp = fake_open();

	self->fd[0] = thc_open(0);
	ASSERT_EQ(fake_join(self->fd[0], udp, &worker), 0);
	ASSERT_EQ(send_part(self->fd[0], 1, &add8, 1, 8), 0);
	ASSERT_EQ(fake_take(udp, &p, PATIENCE_MS), 0);
	ASSERT_EQ(say(self->fd[0], udp, &worker, &p.h, THC_OP_STALE, 0), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ESTALE);
	EXPECT_EQ(failure_of(self->fd[0]).reason, THC_FAILED_BEHIND);
	EXPECT_EQ(send_part(self->fd[0], 1, &add8, 1, 8), -ESTALE);
	close(udp);
}

/* Norms lack a rank that has left: not at once, for there may be data to send of the round
 * before.
 */
TEST_F(job, fails_a_little_later_when_norms_lack_who_has_left)
{
	struct thc_send norm = describe(THC_OP_MAX, 32, 1, 6);
	struct sockaddr_in worker;
	struct chunk_packet p;
	struct thc_failure f;
	int udp = fake_open();
	uint64_t start;

	self->fd[0] = thc_open(0);
	ASSERT_EQ(fake_join(self->fd[0], udp, &worker), 0);
	start = now_ms();
	ASSERT_EQ(send_part(self->fd[0], 1, &norm, 1, 8), 0);
	ASSERT_EQ(fake_take(udp, &p, PATIENCE_MS), 0);
	ASSERT_EQ(say(self->fd[0], udp, &worker, &p.h, THC_OP_WAIT, THC_F_LEFT), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -EPIPE);
	EXPECT_GE(now_ms() - start, 200);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_LEFT);
	EXPECT_EQ(f.ranks, 1 << 0);
	close(udp);
}

/* --- epoll ---------------------------------------------------------------- */

/* What an edge-triggered epoll says next, 0: nothing for so long. */
static uint32_t next_edge(int ep, int ms)
{
	struct epoll_event e = { 0 };

	return epoll_wait(ep, &e, 1, ms) == 1 ? e.events : 0;
}

/* All that is to be said at present has been said. */
static void quieten(int ep)
{
	do {
		sleep_ms(20);
	} while (next_edge(ep, 0));
}

/* @fd, each change of it. */
static int watch_edges(int fd)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) ? -errno : ep;
}

TEST_F(job, epoll_says_what_changes)
{
	uint64_t bound = 12 << 10;	/* of one chunk */
	char lanes[LANES] = "";
	uint32_t events;
	int fd, ep;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	fd = self->fd[0];
	ASSERT_EQ(setsockopt(fd, SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	ep = watch_edges(fd);
	ASSERT_GE(ep, 0);
	EXPECT_EQ(next_edge(ep, PATIENCE_MS), EPOLLOUT);
	quieten(ep);
	/* a message, and no room for another */
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, 0), LANES);
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, MSG_DONTWAIT), -EAGAIN);
	do {
		events = next_edge(ep, PATIENCE_MS);
	} while (events && !(events & EPOLLIN));
	EXPECT_EQ(events, EPOLLIN);
	quieten(ep);
	EXPECT_EQ(next_edge(ep, 100), 0) TH_LOG("an edge without a change");
	/* room, and no message */
	ASSERT_EQ(receive(fd, 0), ANSWER);
	EXPECT_EQ(next_edge(ep, PATIENCE_MS), EPOLLOUT);
	quieten(ep);
	ASSERT_EQ(shutdown(fd, SHUT_RD), 0);
	EXPECT_EQ(next_edge(ep, PATIENCE_MS), EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	quieten(ep);
	ASSERT_EQ(shutdown(fd, SHUT_WR), 0);
	EXPECT_EQ(next_edge(ep, PATIENCE_MS), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP);
	close(ep);
}

TEST_F(job, epoll_says_that_it_failed)
{
	uint32_t events;
	int ep;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 300), 0);
	ep = watch_edges(self->fd[0]);
	ASSERT_GE(ep, 0);
	EXPECT_EQ(next_edge(ep, PATIENCE_MS), EPOLLOUT);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	do {
		events = next_edge(ep, PATIENCE_MS);
	} while (events == EPOLLOUT);
	EXPECT_EQ(events, EPOLLERR | EPOLLIN | EPOLLOUT);
	close(ep);
}

/* --- overtaken ------------------------------------------------------------ */

static int wait_in_connect(struct waiting *w)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);

	return connect(w->fd, (void *)&a, sizeof(a)) ? -errno : 0;
}

static int wait_in_sendmsg(struct waiting *w)
{
	char lanes[LANES] = "";

	return (int)send_message(w->fd, lanes, sizeof(lanes), &add8, 0);
}

static int wait_in_recvmsg(struct waiting *w)
{
	return (int)receive(w->fd, 0);
}

/* A sender sleeps for want of room while its socket joins again under it. */
TEST_F(job, sendmsg_that_waits_for_room_is_canceled_by_connect)
{
	struct waiting w = { .call = wait_in_sendmsg, .number = SYS_sendmsg };
	uint64_t bound = 12 << 10;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(setsockopt(self->fd[0], SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	w.fd = self->fd[0];
	ASSERT_EQ(begin_waiting(&w), 0);
	ASSERT_EQ(join_all(self->fd, 1, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(end_waiting(&w), -ECANCELED);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 1), 0);
}

/* A reader, too: what it waits for is forgotten, or was never sent. */
TEST_F(job, recvmsg_is_canceled_by_connect)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	struct waiting w = { .call = wait_in_recvmsg, .number = SYS_recvmsg };
	int in_flight;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	for (in_flight = 0; in_flight < 2; in_flight++) {
		ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
		if (in_flight)
			ASSERT_EQ(send_part(self->fd[0], 0, &add8, 40, 8), 0);
		w.fd = self->fd[0];
		ASSERT_EQ(begin_waiting(&w), 0);
		/* not all of the job: it has not joined when the other call ends */
		ASSERT_EQ(begin_join(self->fd[0], &a), 0);
		EXPECT_EQ(end_waiting(&w), -ECANCELED);
	}
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
}

/* And who waits until all ranks are in, if another job is to be joined, whose other rank is
 * not there either.
 */
TEST_F(job, connect_and_sendmsg_are_canceled_while_joining)
{
	struct waiting join = { .call = wait_in_connect, .number = SYS_connect },
		       send = { .call = wait_in_sendmsg, .number = SYS_sendmsg };
	struct sockaddr_thc other = place("127.0.0.1", PORT, 2, 0);

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2",
			       "2,ranks=2,cookie=0x5eed1234abcd,reply=fanout"),
		  0);
	join.fd = send.fd = self->fd[0] = thc_open(0);
	ASSERT_EQ(begin_waiting(&join), 0);
	ASSERT_EQ(begin_waiting(&send), 0);
	ASSERT_EQ(begin_join(self->fd[0], &other), 0);
	EXPECT_EQ(end_waiting(&join), -ECANCELED);
	EXPECT_EQ(end_waiting(&send), -ECANCELED);
}

/* Who waits in order to send need not wait for what can no longer be sent. */
TEST_F(job, sendmsg_ends_with_shutdown_while_joining)
{
	struct waiting join = { .call = wait_in_connect, .number = SYS_connect },
		       send = { .call = wait_in_sendmsg, .number = SYS_sendmsg };
	struct sockaddr_thc b = place("127.0.0.1", PORT, 1, 1);

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	join.fd = send.fd = self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	ASSERT_EQ(begin_waiting(&join), 0);
	ASSERT_EQ(begin_waiting(&send), 0);
	ASSERT_EQ(shutdown(self->fd[0], SHUT_WR), 0);
	EXPECT_EQ(end_waiting(&send), -EPIPE);
	/* joining goes on: it may receive */
	ASSERT_EQ(connect(self->fd[1], (void *)&b, sizeof(b)), 0);
	EXPECT_EQ(end_waiting(&join), 0);
}

/* Not if it is the same: both wait for it. */
TEST_F(job, connect_to_the_same_job_waits_along)
{
	struct waiting join = { .call = wait_in_connect, .number = SYS_connect }, along = join;
	struct sockaddr_thc a[2] = { place("127.0.0.1", PORT, 1, 0),
				     place("127.0.0.1", PORT, 1, 1) };

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	join.fd = along.fd = self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	ASSERT_EQ(begin_waiting(&join), 0);
	ASSERT_EQ(begin_waiting(&along), 0);
	set_nonblock(self->fd[0], true);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a[0], sizeof(a[0]))), EALREADY);
	set_nonblock(self->fd[0], false);
	ASSERT_EQ(connect(self->fd[1], (void *)&a[1], sizeof(a[1])), 0);
	EXPECT_EQ(end_waiting(&join), 0);
	EXPECT_EQ(end_waiting(&along), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
}

TEST_HARNESS_MAIN
