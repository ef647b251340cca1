// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that sleep: timeouts, signals, what wakes them up and what cancels them
 * (kmod/wait.c).
 */
#include "harness.h"
#include "waiting.h"

AFTHC_FIXTURE(job)

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

/* The parent's sendmsg() waits for room; then a child lowers the limit below the message's size. */
TEST_F(job, sendmsg_wakes_up_when_it_will_never_fit)
{
	uint64_t bound = 12 << 10, less = 1 << 10;
	char lanes[LANES] = "";
	pid_t child;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(setsockopt(self->fd[0], SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
	set_timeo(self->fd[0], SO_SNDTIMEO, PATIENCE_MS);
	child = fork();
	if (!child) {
		sleep_ms(200);
		_exit(setsockopt(self->fd[0], SOL_THC, THC_OPT_MEMORY, &less, sizeof(less)) != 0);
	}
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), -EMSGSIZE);
	waitpid(child, NULL, 0);
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLOUT, POLLOUT);
}

TEST_F(job, timeouts_of_the_calls)
{
	uint64_t start;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	set_timeo(self->fd[0], SO_RCVTIMEO, 150);
	start = tick_ms();
	EXPECT_EQ(receive(self->fd[0], 0), -EAGAIN);
	EXPECT_GE(tick_ms() - start, 140);
	set_timeo(self->fd[0], SO_RCVTIMEO, PATIENCE_MS);
	start = now_ms();
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), -EAGAIN);
	EXPECT_LT(now_ms() - start, PATIENCE_MS);
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

/* The alarm repeats until alarm_off(), for the call may begin late. */
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
	/* a timeout turns SA_RESTART off (signal(7)); without one the call is restarted */
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
	/* the join has succeeded meanwhile */
	ASSERT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
	/* connect() has reported that success, so this begins another join */
	ASSERT_EQ(begin_join(self->fd[0], &a), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[1], 0), -ESTALE);
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

static int wait_in_poll(struct waiting *w)
{
	struct timespec patience = { .tv_sec = PATIENCE_MS / 4000 };
	struct pollfd p = { .fd = w->fd, .events = POLLOUT };

	return ppoll(&p, 1, &patience, NULL) > 0 ? p.revents : -ETIMEDOUT;
}

/* A poll() that waits for room returns when the socket may no longer send. */
TEST_F(job, shutdown_ends_a_poll_for_room)
{
	struct waiting w = { .call = wait_in_poll, .number = SYS_ppoll };
	char lanes[LANES] = "";

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(set_memory(self->fd[0], 12 << 10), 0);
	ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
	ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT), -EAGAIN);
	ASSERT_EQ(poll_now(self->fd[0]) & POLLOUT, 0);
	w.fd = self->fd[0];
	ASSERT_EQ(begin_waiting(&w), 0);
	ASSERT_EQ(shutdown(self->fd[0], SHUT_WR), 0);
	EXPECT_EQ(end_waiting(&w), POLLOUT);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT), -EPIPE);
	/* the answer to the sent message is still received */
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(poll_now(self->fd[0]), POLLOUT);
}

/* --- SIGIO ---------------------------------------------------------------- */

TEST_F(job, sigio_when_the_join_has_ended)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), b = place("127.0.0.1", PORT, 1, 1);

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	ASSERT_EQ(want_signals(self->fd[0]), 0);
	ASSERT_EQ(connect_errno(self->fd[0], &a, sizeof(a)), EINPROGRESS);
	EXPECT_EQ(next_signal(200), 0);
	ASSERT_EQ(connect_errno(self->fd[1], &b, sizeof(b)), 0);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_OUT);
	EXPECT_EQ(poll_now(self->fd[0]), POLLOUT);
	EXPECT_EQ(next_signal(0), 0);
	/* and when the join fails */
	close_all(&self->fd[1], 1);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 300), 0);
	ASSERT_EQ(connect_errno(self->fd[0], &a, sizeof(a)), EINPROGRESS);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_ERR);
}

/* SIGIO reports no room while messages fit, nor to a sender that was just refused. */
TEST_F(job, sigio_when_there_is_room)
{
	char lanes[LANES] = "";
	int i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(want_signals(self->fd[0]), 0);
	/* for two */
	ASSERT_EQ(set_memory(self->fd[0], 20 << 10), 0);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
		ASSERT_EQ(next_signal(PATIENCE_MS / 4), POLL_IN);
	}
	EXPECT_EQ(next_signal(0), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), -EAGAIN);
	EXPECT_EQ(next_signal(200), 0) TH_LOG("a program would spin");
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_OUT);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_IN);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_IN);
	/* only poll() has found that there is no room */
	ASSERT_EQ(set_memory(self->fd[0], 8 << 10), 0);
	EXPECT_EQ(poll_now(self->fd[0]), POLLIN);
	EXPECT_EQ(next_signal(0), 0);
	ASSERT_EQ(set_memory(self->fd[0], 20 << 10), 0);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_OUT);
	/* there will be no room: shutdown() reports that */
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), -EAGAIN);
	ASSERT_EQ(shutdown(self->fd[0], SHUT_WR), 0);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_OUT);
	EXPECT_EQ(next_signal(0), 0);
}

/* A message is news once: whoever peeks at each signal, or cannot take it, would spin. */
TEST_F(job, sigio_of_a_message_that_stays)
{
	char room[ANSWER];
	struct thc_received r;
	int fd, i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	fd = self->fd[0];
	ASSERT_EQ(want_signals(fd), 0);
	ASSERT_EQ(send_part(fd, 0, &add8, 1, 8), 0);
	ASSERT_EQ(next_signal(PATIENCE_MS / 4), POLL_IN);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(receive_message(fd, room, ANSWER, &r, MSG_PEEK, NULL), ANSWER);
		EXPECT_EQ(next_signal(100), 0) TH_LOG("of a look");
		EXPECT_EQ(receive_message(fd, (void *)8, ANSWER, &r, 0, NULL), -EFAULT);
		EXPECT_EQ(next_signal(100), 0) TH_LOG("of a failure");
	}
	EXPECT_EQ(receive(fd, 0), ANSWER);
	EXPECT_EQ(next_signal(100), 0);
}

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

/* connect() cancels a sendmsg() that waits for room. */
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

/* connect() cancels a waiting recvmsg(), whether or not the socket has sent a message. */
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
		/* only one rank joins, so the socket has not joined when recvmsg() ends */
		ASSERT_EQ(begin_join(self->fd[0], &a), 0);
		EXPECT_EQ(end_waiting(&w), -ECANCELED);
	}
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
}

/* connect() to another job, whose other rank is missing as well, cancels calls that wait for the
 * first job's ranks.
 */
TEST_F(job, connect_and_sendmsg_are_canceled_while_joining)
{
	struct waiting join = { .call = wait_in_connect, .number = SYS_connect },
		       send = { .call = wait_in_sendmsg, .number = SYS_sendmsg };
	struct sockaddr_thc other = place("127.0.0.1", PORT, 2, 0);

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", "2,ranks=2," JOB_OF_TEST),
		  0);
	join.fd = send.fd = self->fd[0] = thc_open(0);
	ASSERT_EQ(begin_waiting(&join), 0);
	ASSERT_EQ(begin_waiting(&send), 0);
	ASSERT_EQ(begin_join(self->fd[0], &other), 0);
	EXPECT_EQ(end_waiting(&join), -ECANCELED);
	EXPECT_EQ(end_waiting(&send), -ECANCELED);
}

/* shutdown() ends a sendmsg() that waits for the join. */
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
	/* the join goes on, for the socket may still receive */
	ASSERT_EQ(connect(self->fd[1], (void *)&b, sizeof(b)), 0);
	EXPECT_EQ(end_waiting(&join), 0);
}

/* A second connect() to the same job waits for the same join. */
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
