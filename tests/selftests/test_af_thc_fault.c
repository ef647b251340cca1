// SPDX-License-Identifier: GPL-2.0
/*
 * A caller's memory is missing: sendmsg(), recvmsg(), setsockopt() or getsockopt() is stuck in a
 * page fault (userfaultfd) for as long as the test wants. Meanwhile every other call on the socket
 * works, and closing the socket or killing the process is safe.
 */
#include "afthc.h"
#include "harness.h"
#include "waiting.h"

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* --- memory that does not come -------------------------------------------- */

/**
 * struct missing - two pages, the second of which is missing until supply()
 * @uffd: reports the page faults
 * @page: bytes of one page
 * @at: address of both pages
 * @whole: their final contents: rank 0's part of add8
 */
struct missing {
	int	uffd;
	size_t	page;
	uint8_t	*at;
	uint8_t	*whole;
};

static const char *why_no_userfaultfd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return errno == ENOSYS ? "this kernel has no CONFIG_USERFAULTFD" :
					 "userfaultfd() is refused";
	close(fd);
	return NULL;
}

static int make_missing(struct missing *m)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	m->page = (size_t)sysconf(_SC_PAGESIZE);
	m->at = mmap(NULL, 2 * m->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (m->at == MAP_FAILED || m->uffd < 0)
		return -errno;
	m->whole = make_payload(0, add8.tag, 2 * m->page);
	memcpy(m->at, m->whole, m->page);
	reg.range.start = (uintptr_t)m->at + m->page;
	reg.range.len = m->page;
	return ioctl(m->uffd, UFFDIO_API, &api) || ioctl(m->uffd, UFFDIO_REGISTER, &reg) ? -errno :
											   0;
}

/* Waits until a thread faults on the second page. */
static int wait_for_fault(const struct missing *m)
{
	struct uffd_msg event;

	if (wait_for(m->uffd, POLLIN, PATIENCE_MS))
		return -ETIMEDOUT;
	return read(m->uffd, &event, sizeof(event)) == sizeof(event) ? 0 : -errno;
}

static int supply(const struct missing *m)
{
	struct uffdio_copy copy = { .dst = (uintptr_t)m->at + m->page,
				    .src = (uintptr_t)m->whole + m->page,
				    .len = m->page };

	return ioctl(m->uffd, UFFDIO_COPY, &copy) ? -errno : 0;
}

static void end_missing(struct missing *m)
{
	if (m->uffd < 0)
		return;
	close(m->uffd);
	munmap(m->at, 2 * m->page);
	free(m->whole);
}

/* --- calls on threads of their own ---------------------------------------- */

/**
 * struct call - a call that may block for long
 * @make: the call; returns its result, or -errno
 * @done: set after @make has returned
 */
struct call {
	int		(*make)(struct call *c);
	int		fd;
	int		other;
	const void	*payload;
	size_t		bytes;
	int		flags;
	struct thc_send	send;
	pthread_t	thread;
	int		result;
	int		done;
	const char	*doing;
};

static void *run_call(void *arg)
{
	struct call *c = arg;

	c->result = c->make(c);
	__atomic_store_n(&c->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void begin_call(struct call *c)
{
	c->done = 0;
	pthread_create(&c->thread, NULL, run_call, c);
}

static bool ends_in(struct call *c, int ms)
{
	uint64_t start = now_ms();

	while (!__atomic_load_n(&c->done, __ATOMIC_ACQUIRE)) {
		if (now_ms() - start > (uint64_t)ms)
			return false;
		sleep_ms(5);
	}
	return true;
}

static int end_call(struct call *c)
{
	pthread_join(c->thread, NULL);
	return c->result;
}

static int do_send(struct call *c)
{
	return (int)send_message(c->fd, c->payload, c->bytes, &c->send, c->flags);
}

static int do_set(struct call *c)
{
	return setsockopt(c->fd, SOL_THC, THC_OPT_TIMEOUT, c->payload, 4) ? -errno : 0;
}

/* Rank 0's sendmsg() on @fd gets stuck. */
static int get_stuck(struct call *c, const struct missing *m, int fd)
{
	memset(c, 0, sizeof(*c));
	c->make = do_send;
	c->fd = fd;
	c->payload = m->at;
	c->bytes = 2 * m->page;
	c->send = add8;
	begin_call(c);
	return wait_for_fault(m);
}

FIXTURE(fault)
{
	struct daemon daemon;
	int fd[RANKS_MAX];
	struct missing m;
	struct call sender;
};

FIXTURE_SETUP(fault)
{
	const char *reason = why_not();

	memset(self, 0, sizeof(*self));
	memset(self->fd, 0xff, sizeof(self->fd));
	self->m.uffd = -1;
	if (!reason)
		reason = why_no_userfaultfd();
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(make_missing(&self->m), 0);
}

FIXTURE_TEARDOWN(fault)
{
	close_all(self->fd, RANKS_MAX);
	stop_daemon(&self->daemon, SIGKILL);
	end_missing(&self->m);
}

#define CHUNKS(m)	(2 * (m)->page / LANES)

/* --- sendmsg() is stuck --------------------------------------------------- */

/* Makes every other call while sendmsg() is stuck. @doing: the call that is or went wrong. */
static int everything_else(struct call *c)
{
	char line[4096];
	struct sockaddr_thc name;
	socklen_t len = sizeof(name);
	uint32_t value = 0;
	FILE *f;
	int copy;

	c->doing = "poll";
	if (!(poll_now(c->fd) & POLLIN))
		return 1;
	c->doing = "recvmsg";
	if (receive(c->fd, 0) != ANSWER)
		return 1;
	if (receive(c->fd, MSG_DONTWAIT) != -EAGAIN)
		return 2;
	c->doing = "getsockopt";
	if (stats_of(c->fd).messages != 1)
		return 1;
	c->doing = "setsockopt";
	if (set_u32(c->fd, THC_OPT_TIMEOUT, 30000))
		return 1;
	len = sizeof(value);
	if (getsockopt(c->fd, SOL_THC, THC_OPT_TIMEOUT, &value, &len) || value != 30000)
		return 2;
	c->doing = "getsockname";
	len = sizeof(name);
	if (getsockname(c->fd, (void *)&name, &len) || getpeername(c->fd, (void *)&name, &len))
		return 1;
	c->doing = "/proc/net/thc";
	f = fopen("/proc/net/thc", "r");
	if (!f || fread(line, 1, sizeof(line), f) == 0)
		return 1;
	fclose(f);
	c->doing = "another rank's messages";
	if (send_part(c->other, 1, &add8, 1, 8))
		return 1;
	c->doing = "sendmsg that may not wait";
	if (send_message(c->fd, line, LANES, &add8, MSG_DONTWAIT) != -EAGAIN)
		return 1;
	c->doing = "close of a copy";
	copy = dup(c->fd);
	if (copy < 0 || close(copy))
		return 1;
	c->doing = NULL;
	return 0;
}

TEST_F_TIMEOUT(fault, other_calls_go_on, 90)
{
	struct call others = { .make = everything_else };

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	/* rank 0 has one complete message, and one that is stuck */
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	others.fd = self->fd[0];
	others.other = self->fd[1];
	begin_call(&others);
	EXPECT_TRUE(ends_in(&others, PATIENCE_MS)) TH_LOG("%s waits for it", others.doing);
	EXPECT_FALSE(ends_in(&self->sender, 0));
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&others), 0) TH_LOG("%s", others.doing);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	/* of rank 1's two messages the second one is the first chunk of the stuck one */
	EXPECT_EQ(receive(self->fd[1], 0), ANSWER);
	EXPECT_EQ(receive(self->fd[1], 0), ANSWER);
}

/* The page comes late: the sums are right all the same, in the order of the calls. */
TEST_F_TIMEOUT(fault, late_memory_is_summed, 60)
{
	struct call second;
	struct thc_send s = add8;
	uint8_t lanes[LANES] = "";

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	second = self->sender;
	second.payload = lanes;
	second.bytes = LANES;
	second.send.tag++;
	begin_call(&second);
	EXPECT_FALSE(ends_in(&second, 200)) TH_LOG("it overtook");
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	EXPECT_EQ(end_call(&second), LANES);
	ASSERT_EQ(send_part(self->fd[1], 1, &s, CHUNKS(&self->m), 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &s, CHUNKS(&self->m), 8, 2, NULL), 0);
	EXPECT_EQ(check_answer(self->fd[1], &s, CHUNKS(&self->m), 8, 2, NULL), 0);
}

/* SO_SNDTIMEO limits the wait for the turn to send, though not the wait for memory. */
TEST_F_TIMEOUT(fault, waiting_for_the_turn_times_out, 60)
{
	struct call second;
	uint8_t lanes[LANES] = "";

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT), -EAGAIN);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLOUT, 0) TH_LOG("a sender would spin");
	second = self->sender;
	second.payload = lanes;
	second.bytes = LANES;
	set_timeo(self->fd[0], SO_SNDTIMEO, 200);
	begin_call(&second);
	EXPECT_TRUE(ends_in(&second, PATIENCE_MS)) TH_LOG("SO_SNDTIMEO is ignored");
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&second), -EAGAIN);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLOUT, POLLOUT);
}

/* Norms have an order of their own, and so they have their own turn. */
TEST_F_TIMEOUT(fault, norms_pass_data_that_is_stuck, 60)
{
	struct thc_send norm = describe(THC_OP_MAX, 32, 1, 6);
	uint8_t lanes[LANES] = "";

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &norm, MSG_DONTWAIT), LANES);
	EXPECT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), ANSWER);
	EXPECT_FALSE(ends_in(&self->sender, 0));
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
}

static int do_connect(struct call *c)
{
	return join_all(&c->fd, 1, "127.0.0.1", PORT, 1);
}

/* connect() begins a new connection, which has nothing of the stuck message. */
TEST_F_TIMEOUT(fault, connect_cancels_it, 90)
{
	struct call again = { .make = do_connect };

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	again.fd = self->fd[0];
	begin_call(&again);
	EXPECT_TRUE(ends_in(&again, PATIENCE_MS)) TH_LOG("connect() waits for it");
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&again), 0);
	EXPECT_EQ(end_call(&self->sender), -ECANCELED);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 3), 0);
}

static int do_shutdown(struct call *c)
{
	return shutdown(c->fd, SHUT_RDWR) ? -errno : 0;
}

TEST_F_TIMEOUT(fault, shutdown_ends_it, 60)
{
	struct call down = { .make = do_shutdown }, waits;
	char lanes[LANES] = "";

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT), -EAGAIN);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLOUT, 0);
	waits = self->sender;
	waits.payload = lanes;
	waits.bytes = LANES;
	begin_call(&waits);
	EXPECT_FALSE(ends_in(&waits, 200)) TH_LOG("it is not its turn");
	down.fd = self->fd[0];
	begin_call(&down);
	EXPECT_TRUE(ends_in(&down, PATIENCE_MS)) TH_LOG("shutdown() waits for it");
	EXPECT_TRUE(ends_in(&waits, PATIENCE_MS)) TH_LOG("it waits for a turn that is none");
	/* POLLOUT although the stuck call holds the turn: after shutdown() nobody needs the turn */
	EXPECT_EQ(poll_now(self->fd[0]) & POLLOUT, POLLOUT);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, MSG_DONTWAIT), -EPIPE);
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&down), 0);
	EXPECT_EQ(end_call(&waits), -EPIPE);
	EXPECT_EQ(end_call(&self->sender), -EPIPE);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
}

/* A sender that was refused for want of the turn gets SIGIO when the turn is free. */
TEST_F_TIMEOUT(fault, sigio_when_it_is_through, 60)
{
	char lanes[LANES] = "";

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(want_signals(self->fd[0]), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), -EAGAIN);
	EXPECT_EQ(next_signal(100), 0);
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	/* the answer's signal may have come before the call returned */
	EXPECT_TRUE(next_signal(PATIENCE_MS / 4) == POLL_OUT ||
		    next_signal(PATIENCE_MS / 4) == POLL_OUT);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
}

/* The stuck call holds the file: close() ends the socket only when the call ends. */
TEST_F_TIMEOUT(fault, close_leaves_it_to_the_call, 60)
{
	FILE *f;
	long held = -1;
	uint64_t start;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(get_stuck(&self->sender, &self->m, self->fd[0]), 0);
	close_all(self->fd, 1);
	EXPECT_FALSE(ends_in(&self->sender, 100));
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	for (start = now_ms(); held && now_ms() - start < PATIENCE_MS; sleep_ms(100)) {
		f = fopen("/sys/module/thc/refcnt", "r");
		ASSERT_NE(f, NULL);
		ASSERT_EQ(fscanf(f, "%ld", &held), 1);
		fclose(f);
	}
	EXPECT_EQ(held, 0);
}

/* kill -9 ends a process whose page nobody supplies; the parent's copy of the socket still works.
 */
TEST_F_TIMEOUT(fault, kill_ends_the_process, 60)
{
	struct missing m;
	int status, in[2];
	pid_t child;
	char byte;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(pipe(in), 0);
	child = fork();
	if (!child) {
		if (make_missing(&m))
			_exit(1);
		byte = (char)get_stuck(&self->sender, &m, self->fd[0]);
		if (write(in[1], &byte, 1) != 1)
			_exit(1);
		pause();
	}
	ASSERT_EQ(read(in[0], &byte, 1), 1);
	ASSERT_EQ(byte, 0);
	kill(child, SIGKILL);
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 3), 0);
}

/* --- recvmsg() is stuck --------------------------------------------------- */

static int do_receive(struct call *c)
{
	struct thc_received r;

	return (int)receive_message(c->fd, (void *)c->payload, c->bytes, &r, c->flags, NULL);
}

/* The only rank has two answers; @reader is stuck while it receives the first. */
static int stick_reader(struct missing *m, struct call *reader, int fd)
{
	int error = send_part(fd, 0, &add8, CHUNKS(m), 8);

	if (!error)
		error = wait_for(fd, POLLIN, PATIENCE_MS);
	if (!error)
		error = send_part(fd, 0, &add8, 1, 8);
	while (!error && stats_of(fd).chunks < CHUNKS(m) + 1)
		sleep_ms(1);
	reader->make = do_receive;
	reader->fd = fd;
	reader->payload = m->at;
	reader->bytes = 2 * m->page;
	if (error)
		return error;
	begin_call(reader);
	return wait_for_fault(m);
}

TEST_F_TIMEOUT(fault, readers_do_not_wait_for_a_stuck_one, 90)
{
	uint8_t room[ANSWER];
	struct call other;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(stick_reader(&self->m, &self->sender, self->fd[0]), 0);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLIN, 0) TH_LOG("a reader would spin");
	other = self->sender;
	other.payload = room;
	other.bytes = sizeof(room);
	other.flags = MSG_DONTWAIT;
	begin_call(&other);
	EXPECT_TRUE(ends_in(&other, PATIENCE_MS / 4)) TH_LOG("MSG_DONTWAIT waits");
	if (ends_in(&other, 0)) {
		EXPECT_EQ(end_call(&other), -EAGAIN);
		other.flags = 0;
		set_timeo(self->fd[0], SO_RCVTIMEO, 200);
		begin_call(&other);
		EXPECT_TRUE(ends_in(&other, PATIENCE_MS / 4)) TH_LOG("SO_RCVTIMEO is ignored");
	}
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	EXPECT_EQ(end_call(&other), -EAGAIN);
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), ANSWER);
}

/* Waiting readers go on when the stuck reader ends, and shutdown() loses no message. */
TEST_F_TIMEOUT(fault, readers_take_turns, 60)
{
	uint8_t room[ANSWER];
	struct call other;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(stick_reader(&self->m, &self->sender, self->fd[0]), 0);
	other = self->sender;
	other.payload = room;
	other.bytes = sizeof(room);
	begin_call(&other);
	EXPECT_FALSE(ends_in(&other, 200)) TH_LOG("it overtook");
	EXPECT_EQ(shutdown(self->fd[0], SHUT_RD), 0);
	EXPECT_FALSE(ends_in(&other, 200)) TH_LOG("there is a message for it");
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	EXPECT_EQ(end_call(&other), ANSWER);
	EXPECT_EQ(receive(self->fd[0], 0), 0);
}

/* Whoever did not see the message hears of it when a call that leaves it there is through. */
TEST_F_TIMEOUT(fault, sigio_when_a_look_is_through, 60)
{
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(want_signals(self->fd[0]), 0);
	self->sender.flags = MSG_PEEK;
	ASSERT_EQ(stick_reader(&self->m, &self->sender, self->fd[0]), 0);
	while (next_signal(100))
		;
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), -EAGAIN);
	EXPECT_EQ(next_signal(100), 0);
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&self->sender), 2 * (int)self->m.page);
	EXPECT_EQ(next_signal(PATIENCE_MS / 4), POLL_IN);
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), ANSWER);
}

/* --- setsockopt() or getsockopt() is stuck -------------------------------- */

static int do_getsockopt(struct call *c)
{
	return failure_of(c->fd).error;
}

TEST_F_TIMEOUT(fault, setsockopt_holds_nobody_up, 60)
{
	struct call setter = { .make = do_set }, getter = { .make = do_getsockopt };
	socklen_t len = 4;
	uint32_t value;

	self->fd[0] = thc_open(0);
	setter.fd = self->fd[0];
	setter.payload = self->m.at + self->m.page;
	begin_call(&setter);
	ASSERT_EQ(wait_for_fault(&self->m), 0);
	getter.fd = self->fd[0];
	begin_call(&getter);
	EXPECT_TRUE(ends_in(&getter, PATIENCE_MS)) TH_LOG("getsockopt() waits for it");
	ASSERT_EQ(supply(&self->m), 0);
	EXPECT_EQ(end_call(&getter), 0);
	EXPECT_EQ(end_call(&setter), 0);
	ASSERT_EQ(getsockopt(self->fd[0], SOL_THC, THC_OPT_TIMEOUT, &value, &len), 0);
	EXPECT_EQ(memcmp(&value, self->m.whole + self->m.page, len), 0);
}

/* getsockopt() of the option whose number is in @flags; returns bytes. */
static int do_get(struct call *c)
{
	socklen_t len = (socklen_t)c->bytes;

	return getsockopt(c->fd, SOL_THC, c->flags, (void *)c->payload, &len) ? -errno : (int)len;
}

TEST_F_TIMEOUT(fault, getsockopt_holds_nobody_up, 90)
{
	static const int options[] = { THC_OPT_WELCOME, THC_OPT_STATS, THC_OPT_TIMEOUT };
	struct call getter = { .make = do_get }, other = { .make = do_getsockopt };
	size_t i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	getter.fd = other.fd = self->fd[0];
	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		/* THC_OPT_WELCOME spans both pages, other options lie in the missing page */
		bool whole = options[i] == THC_OPT_WELCOME;

		getter.flags = options[i];
		getter.payload = self->m.at + self->m.page - (whole ? 8 : 0);
		getter.bytes = self->m.page;
		begin_call(&getter);
		ASSERT_EQ(wait_for_fault(&self->m), 0);
		begin_call(&other);
		EXPECT_TRUE(ends_in(&other, PATIENCE_MS / 4))
		TH_LOG("a call waits for option %d", options[i]);
		ASSERT_EQ(supply(&self->m), 0);
		EXPECT_EQ(end_call(&other), 0);
		EXPECT_GT(end_call(&getter), 0);
		/* the page is missing once more */
		ASSERT_EQ(madvise(self->m.at + self->m.page, self->m.page, MADV_DONTNEED), 0);
	}
}

TEST_HARNESS_MAIN
