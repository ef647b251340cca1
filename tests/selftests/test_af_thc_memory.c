// SPDX-License-Identifier: GPL-2.0
/*
 * The host's memory for messages, and each user's part of it (kmod/memory.c).
 */
#include "cgroup.h"
#include "fake.h"
#include "harness.h"
#include "netlink.h"

#include <limits.h>
#include <sys/mman.h>

FIXTURE(host)
{
	struct daemon daemon;
	int fd[2];
	char before[16];
};

FIXTURE_SETUP(host)
{
	int fd;

	self->daemon.pid = 0;
	self->fd[0] = self->fd[1] = -1;
	memset(self->before, 0, sizeof(self->before));
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	fd = open(HOST_MEMORY, O_RDONLY);
	ASSERT_GE(fd, 0);
	ASSERT_GT(read(fd, self->before, sizeof(self->before) - 1), 0);
	close(fd);
}

FIXTURE_TEARDOWN(host)
{
	if (self->before[0])
		set_host_memory(self->before);
	close_all(self->fd, 2);
	stop_daemon(&self->daemon, SIGKILL);
}

#define PART	(100 * LANES)

TEST_F(host, memory_is_bounded_over_all_sockets)
{
	char *lanes = calloc(1, PART);
	int sent = 0, i;
	ssize_t n;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(set_host_memory("1"), 0);
	/* calls that fail do not leave memory charged */
	for (i = 0; i < 20; i++)
		EXPECT_EQ(send_message(self->fd[0], (void *)8, PART, &add8, 0), -EFAULT);
	while ((n = send_message(self->fd[0], lanes, PART, &add8, 0)) == PART && sent < 100)
		sent++;
	EXPECT_EQ(n, -ENOBUFS);
	/* each message takes twice its payload for packets and lanes, and two connections take a
	 * part
	 */
	EXPECT_GE(sent, 3);
	EXPECT_LE(sent, 4);
	EXPECT_EQ(send_message(self->fd[1], lanes, PART, &add8, MSG_DONTWAIT), -ENOBUFS);
	EXPECT_LE(stats_of(self->fd[0]).memory, 1 << 20);
	EXPECT_EQ(stats_of(self->fd[1]).memory, 0);
	/* another bound holds at once */
	ASSERT_EQ(set_host_memory("2"), 0);
	while (sent--)
		EXPECT_EQ(send_message(self->fd[1], lanes, PART, &add8, 0), PART);
	ASSERT_EQ(set_host_memory("1"), 0);
	EXPECT_EQ(send_message(self->fd[1], lanes, PART, &add8, 0), -ENOBUFS);
	/* all sockets may use the memory that recvmsg() and connect() free */
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_GT(receive(self->fd[0], 0), 0);
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 100), 0);
	free(lanes);
}

/* recvmsg() returns an int: sums of one chunk beyond INT_MAX are refused, however much memory
 * there is.
 */
TEST_F(host, sums_that_a_call_cannot_return)
{
	size_t most = INT_MAX / ANSWER, bytes = (most + 1) * LANES / 2;
	struct thc_send s = describe(THC_OP_LUT_ADD, 4, 1, 1);
	void *zeros;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(set_memory(self->fd[0], 4ULL << 30), 0);
	ASSERT_EQ(set_host_memory("16"), 0);
	zeros = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_NE(zeros, MAP_FAILED);
	EXPECT_EQ(send_message(self->fd[0], zeros, bytes, &s, 0), -EMSGSIZE);
	/* one chunk less is refused only for want of the host's memory */
	EXPECT_EQ(send_message(self->fd[0], zeros, most * LANES / 2, &s, 0), -ENOBUFS);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	munmap(zeros, bytes);
}

/* Joins sockets at a port without an aggregator until ENOBUFS. Returns how many joined, or -1
 * after any other error. @fd: room for SOCKETS
 */
#define SOCKETS	100
static int begin_joins(int *fd)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	int n, error = EINPROGRESS;

	for (n = 0; n < SOCKETS && error == EINPROGRESS; n++) {
		fd[n] = thc_open(SOCK_NONBLOCK);
		error = connect_errno(fd[n], &a, sizeof(a));
	}
	return error == ENOBUFS ? n - 1 : -1;
}

/* A job of the host with 64 aggregators. */
static int make_wide_job(struct nl *nl, uint16_t job)
{
	struct nlmsghdr *h = nl_begin_job(nl, job, "127.0.0.1", PORT);
	uint16_t i;

	for (i = 1; i < 64; i++)
		nl_put_aggregator(h, "127.0.0.1", (uint16_t)(PORT + 100 * i));
	return nl_ask(nl, h, NULL, NULL);
}

/* A peer and its UDP sockets are some 40 KiB, which no limit on file descriptors counts. */
TEST_F(host, connections_are_bounded_over_all_sockets)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), wide = place(NULL, 0, 7, 0);
	int fd[SOCKETS], n;
	struct nl nl;

	memset(fd, 0xff, sizeof(fd));
	ASSERT_EQ(nl_open(&nl), 0);
	ASSERT_EQ(make_wide_job(&nl, 7), 0);
	nl_close(&nl);
	ASSERT_EQ(set_host_memory("1"), 0);
	n = begin_joins(fd);
	ASSERT_GE(n, 8);
	EXPECT_LE(n, 32);
	/* a refused socket stays as it was; one that joins again gives its old memory back */
	EXPECT_EQ(poll_now(fd[n]) & (POLLHUP | POLLERR), POLLHUP);
	EXPECT_EQ(connect_errno(fd[n], &a, sizeof(a)), ENOBUFS);
	a.sthc_rank = 1;
	EXPECT_EQ(connect_errno(fd[0], &a, sizeof(a)), EINPROGRESS);
	close_all(fd, 1);
	EXPECT_EQ(connect_errno(fd[n], &a, sizeof(a)), EINPROGRESS);
	close_all(fd, SOCKETS);
	/* 64 aggregators do not fit: connect() opens none, and nothing stays charged */
	self->fd[0] = thc_open_keyless(SOCK_NONBLOCK);
	EXPECT_EQ(connect_errno(self->fd[0], &wide, sizeof(wide)), ENOBUFS);
	EXPECT_EQ(begin_joins(fd), n);
	close_all(fd, SOCKETS);
	/* by default there is room for all */
	ASSERT_EQ(set_host_memory(self->before), 0);
	EXPECT_EQ(connect_errno(self->fd[0], &wide, sizeof(wide)), EINPROGRESS);
}

/* connect() allocates memory for packets in flight, which the host's bound includes. */
TEST_F(host, connect_without_room)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 2, 0);
	char lanes[LANES] = "";
	int fd = thc_open(0), i, error = 0;
	int holder = thc_open(0);
	uint64_t start;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", "2,ranks=1," JOB_OF_TEST),
		  0);
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	/* @holder occupies memory for a connection, more than a message takes, until close() */
	a.sthc_job = 3;
	ASSERT_EQ(begin_join(holder, &a), 0);
	a.sthc_job = 2;
	ASSERT_EQ(set_host_memory("1"), 0);
	for (i = 0; i < 1000 && !error; i++) {
		ssize_t sent = send_message(self->fd[0], lanes, LANES, &add8, 0);

		error = sent == LANES ? 0 : (int)sent;
	}
	EXPECT_EQ(error, -ENOBUFS);
	ASSERT_EQ(set_u32(fd, THC_OPT_JOIN_TIMEOUT, 1000), 0);
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), ENOBUFS);
	/* before it joins: a socket that has joined would have failed */
	EXPECT_EQ(failure_of(fd).error, 0);
	EXPECT_EQ(poll_now(fd) & (POLLHUP | POLLERR), POLLHUP);
	close(holder);
	start = now_ms();
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), ENOBUFS);
	EXPECT_GE(now_ms() - start, 1000);
	EXPECT_EQ(failure_of(fd).error, ENOBUFS);
	/* room comes while it waits */
	ASSERT_EQ(set_u32(fd, THC_OPT_JOIN_TIMEOUT, PATIENCE_MS), 0);
	ASSERT_EQ(begin_join(fd, &a), 0);
	EXPECT_EQ(wait_for(fd, POLLOUT | POLLERR, 500), -ETIMEDOUT);
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), EALREADY);
	close_all(self->fd, 2);
	EXPECT_EQ(end_join(fd), 0);
	EXPECT_EQ(all_reduce(&fd, 1, &add8, 1), 0);
	close(fd);
}

/* A job's slots of 340 KiB take 512 KiB, so the slots of two jobs do not fit in one MiB. */
TEST_F(host, flights_are_charged_with_what_they_take)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	int i;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1,slots=3600",
			       "2,ranks=1," JOB_OF_TEST ",slots=3600"),
		  0);
	ASSERT_EQ(set_host_memory("1"), 0);
	for (i = 0; i < 2; i++) {
		self->fd[i] = thc_open(0);
		ASSERT_EQ(set_u32(self->fd[i], THC_OPT_JOIN_TIMEOUT, i ? 1000 : PATIENCE_MS), 0);
		a.sthc_job = (uint16_t)(i + 1);
		EXPECT_EQ(connect_errno(self->fd[i], &a, sizeof(a)), i ? ENOBUFS : 0);
	}
	/* closing a socket frees its slots */
	close_all(self->fd, 1);
	ASSERT_EQ(set_u32(self->fd[1], THC_OPT_JOIN_TIMEOUT, PATIENCE_MS), 0);
	EXPECT_EQ(connect_errno(self->fd[1], &a, sizeof(a)), 0);
}

/* While a socket waits for memory for the slots of four aggregators, 512 KiB each, it holds none
 * of it: there is enough for another job's slots.
 */
TEST_F(host, connect_without_room_holds_none)
{
	struct sockaddr_thc all = place("127.0.0.1", shard_port(0), 1, 0),
			    one = place("127.0.0.1", shard_port(4), 2, 0);
	struct daemon shard[4] = { 0 };
	unsigned int i;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(start_shard(&shard[i], "1," JOB_OF_TEST ",slots=3600,ranks=1", i, 4), 0);
	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", shard_port(4),
			       "2,ranks=1," JOB_OF_TEST ",slots=3600", NULL),
		  0);
	ASSERT_EQ(set_host_memory("1"), 0);
	self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	ASSERT_EQ(begin_join(self->fd[0], &all), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLPRI, PATIENCE_MS), 0);
	EXPECT_EQ(connect_errno(self->fd[0], &all, sizeof(all)), EALREADY);
	EXPECT_EQ(wait_for(self->fd[0], POLLOUT | POLLERR, 1000), -ETIMEDOUT);
	EXPECT_EQ(connect_errno(self->fd[1], &one, sizeof(one)), 0);
	EXPECT_EQ(all_reduce(&self->fd[1], 1, &add8, 1), 0);
	ASSERT_EQ(set_host_memory("8"), 0);
	EXPECT_EQ(end_join(self->fd[0]), 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 5), 0);
	for (i = 0; i < 4; i++)
		stop_daemon(&shard[i], SIGKILL);
}

#define ALICE	12345
#define BOB	12346
/* A number that root gave ALICE for her containers. */
#define HERS	100000
/* Commands to a helper. */
#define FILL	'f'
#define END	'e'

/**
 * struct helper - a process of another user, with a socket in a job of its own
 * @ask, @told: pipes: commands to it, its replies
 */
struct helper {
	pid_t	pid;
	int	ask, told;
};

/* Sends until ENOBUFS. Returns the number of messages, or -1 after any other error. */
static int fill(int fd)
{
	static char lanes[PART];
	ssize_t sent;
	int n = 0;

	while ((sent = send_message(fd, lanes, PART, &add8, 0)) == PART)
		n++;
	return sent == -ENOBUFS ? n : -1;
}

/* Enters a new user namespace, whose root the parent maps to another user. */
static int enter_userns(int ask, int told)
{
	char ready = 'u', mapped;

	if (unshare(CLONE_NEWUSER) || write(told, &ready, 1) != 1 || read(ask, &mapped, 1) != 1)
		return -errno;
	return setresuid(0, 0, 0) ? -errno : 0;
}

static void help(uid_t uid, uint16_t job, bool userns, int ask, int told)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, job, 0);
	int fd, n;
	char what = 'j';

	if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid) ||
	    (userns && enter_userns(ask, told)))
		_exit(1);
	fd = thc_open(0);
	if (fd < 0 || connect(fd, (void *)&a, sizeof(a)) || write(told, &what, 1) != 1)
		_exit(2);
	while (read(ask, &what, 1) == 1 && what == FILL) {
		n = fill(fd);
		if (write(told, &n, sizeof(n)) != sizeof(n))
			_exit(3);
	}
	_exit(0);
}

static int map_root_to(pid_t pid, unsigned int uid)
{
	char path[64], line[64];
	int fd, error;

	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return -errno;
	snprintf(line, sizeof(line), "0 %u 1", uid);
	error = write(fd, line, strlen(line)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

/* Returns when the helper has joined. @userns: in a user namespace that @uid makes, in which root
 * is HERS.
 */
static int begin_helper(struct helper *h, uid_t uid, uint16_t job, bool userns)
{
	int ask[2], told[2], error = 0;
	char ready;

	if (pipe2(ask, O_CLOEXEC) || pipe2(told, O_CLOEXEC))
		return -errno;
	h->pid = fork();
	if (!h->pid) {
		close(ask[1]);
		close(told[0]);
		help(uid, job, userns, ask[0], told[1]);
	}
	close(ask[0]);
	close(told[1]);
	h->ask = ask[1];
	h->told = told[0];
	if (userns && read(h->told, &ready, 1) != 1)
		return -ECHILD;
	if (userns)
		error = map_root_to(h->pid, HERS);
	if (userns && !error && write(h->ask, "m", 1) != 1)
		error = -errno;
	if (!error && read(h->told, &ready, 1) != 1)
		error = -ECHILD;
	return error;
}

/* How many messages the helper could send. */
static int let_fill(struct helper *h)
{
	char what = FILL;
	int n = -1;

	if (write(h->ask, &what, 1) != 1 || read(h->told, &n, sizeof(n)) != sizeof(n))
		return -1;
	return n;
}

/* Ends the helper, and so frees the memory of its socket. */
static int end_helper(struct helper *h)
{
	char what = END;
	int status;

	(void)!write(h->ask, &what, 1);
	close(h->ask);
	close(h->told);
	return waitpid(h->pid, &status, 0) == h->pid && WIFEXITED(status) ? WEXITSTATUS(status) :
									    -1;
}

/* A user gets half of the memory that is free: of nine messages Alice sends four, then Bob two. */
TEST_F(host, memory_of_one_user_leaves_some_for_others)
{
	struct helper alice, bob;
	int most, alices, bobs;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1", "2,ranks=1," JOB_OF_TEST),
		  0);
	ASSERT_EQ(set_host_memory("2"), 0);
	/* a socket with the capability may use all memory */
	self->fd[0] = thc_open(0);
	ASSERT_EQ(join_all(self->fd, 1, "127.0.0.1", PORT, 1), 0);
	most = fill(self->fd[0]);
	EXPECT_GE(most, 8);
	close_all(self->fd, 1);

	ASSERT_EQ(begin_helper(&alice, ALICE, 1, false), 0);
	ASSERT_EQ(begin_helper(&bob, BOB, 2, false), 0);
	alices = let_fill(&alice);
	EXPECT_GE(alices, most / 2 - 1);
	EXPECT_LE(alices, most / 2);
	bobs = let_fill(&bob);
	EXPECT_GE(bobs, 1) TH_LOG("Alice leaves Bob nothing");
	EXPECT_LE(bobs, most / 4 + 1);
	EXPECT_EQ(let_fill(&alice), 0);
	/* Bob may use what Alice gives back */
	EXPECT_EQ(end_helper(&alice), 0);
	EXPECT_EQ(bobs + let_fill(&bob), alices);
	EXPECT_EQ(end_helper(&bob), 0);
}

/* One user's sockets can join in half the number that all of the memory would allow. */
TEST_F(host, connections_of_one_user_leave_some_for_others)
{
	int fd[SOCKETS], all, status;
	pid_t child;

	memset(fd, 0xff, sizeof(fd));
	ASSERT_EQ(set_host_memory("1"), 0);
	all = begin_joins(fd);
	close_all(fd, SOCKETS);
	child = fork();
	if (!child) {
		if (setresgid(ALICE, ALICE, ALICE) || setresuid(ALICE, ALICE, ALICE))
			_exit(255);
		_exit(begin_joins(fd) & 0xff);
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	ASSERT_TRUE(WIFEXITED(status));
	EXPECT_GE(WEXITSTATUS(status), all / 2 - 1);
	EXPECT_LE(WEXITSTATUS(status), all / 2 + 1);
}

/* More waiting jobs than QUEUE, the most that a kernel workqueue runs at once. */
#define SLEEPERS	300
#define QUEUE		256
/* Of 512 KiB, for which a cgroup above its memory.high has to wait at once. */
#define MANY_SLOTS	4000

/* A socket of @uid begins to join; @worker, @nonce: by its first JOIN. */
static int begin_join_of(uid_t uid, int *fd, int udp, struct sockaddr_in *worker, fake_nonce *nonce)
{
	struct sockaddr_thc a = fake_place(), me;
	socklen_t len = sizeof(me);
	int error;

	if (seteuid(uid))
		return -errno;
	*fd = thc_open(0);
	if (seteuid(0))
		return -errno;
	error = begin_join(*fd, &a);
	if (error || getsockname(*fd, (void *)&me, &len))
		return error ? error : -errno;
	/* JOINs of other sockets are repeated meanwhile */
	do {
		error = fake_take_join(udp, worker, nonce);
	} while (!error && worker->sin_port != me.sthc_port);
	return error;
}

static int welcome(int udp, const struct sockaddr_in *worker, fake_nonce nonce, uint16_t slots)
{
	struct welcome_packet p;

	good_welcome(&p, nonce);
	p.all.w.data_slots = htobe16(slots);
	fake_seal_welcome(&p, worker);
	return send_one(udp, worker, &p, sizeof(p));
}

static int set_cgroup(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error;

	error = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

static int how_many_joined(const int *fd)
{
	int i, joined = 0;

	for (i = 0; i < SLEEPERS; i++)
		joined += poll_now(fd[i]) == POLLOUT;
	return joined;
}

/* A cgroup may delay whoever allocates for it: Alice's cgroup delays Alice, not Bob. */
TEST_F(host, users_do_not_wait_for_the_cgroup_of_another_one)
{
	static struct sockaddr_in worker[SLEEPERS];
	static fake_nonce nonce[SLEEPERS];
	int fd[SLEEPERS], udp = fake_open(), cgroup, i, before;
	struct sockaddr_in bob;
	fake_nonce his;

	memset(fd, 0xff, sizeof(fd));
	ASSERT_EQ(set_host_memory("1000"), 0);
	cgroup = enter_cgroup();
	ASSERT_GE(cgroup, 0);
	ASSERT_EQ(set_cgroup(CGROUPS "/cgroup.subtree_control", "+memory"), 0);
	for (i = 0; i < SLEEPERS; i++)
		ASSERT_EQ(begin_join_of(ALICE, &fd[i], udp, &worker[i], &nonce[i]), 0);
	ASSERT_EQ(set_cgroup(CGROUPS "/cgroup.procs", "0"), 0);
	ASSERT_EQ(begin_join_of(BOB, &self->fd[0], udp, &bob, &his), 0);
	ASSERT_EQ(set_cgroup(CGROUP "/memory.high", "0"), 0);
	for (i = 0; i < SLEEPERS; i++)
		ASSERT_EQ(welcome(udp, &worker[i], nonce[i], MANY_SLOTS), 0);
	before = how_many_joined(fd);
	ASSERT_EQ(welcome(udp, &bob, his, FAKE_SLOTS), 0);
	EXPECT_EQ(end_join(self->fd[0]), 0);
	/* so many of Alice's sockets wait that Bob would wait in a queue for all users; on a slow
	 * machine some of hers have joined before
	 */
	if (before < (SLEEPERS - QUEUE) / 2) {
		EXPECT_LT(how_many_joined(fd), SLEEPERS - QUEUE)
		TH_LOG("Bob had to wait for Alice");
	}
	/* closes first the sockets whose wait has not begun */
	for (i = SLEEPERS; i--;)
		close(fd[i]);
	close(udp);
	leave_cgroup(cgroup);
}

/* User numbers of a user's containers count as that user. */
TEST_F(host, memory_of_a_users_containers_is_the_users)
{
	struct helper alice, container;
	int alices, again;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1", "2,ranks=1," JOB_OF_TEST),
		  0);
	ASSERT_EQ(set_host_memory("2"), 0);
	ASSERT_EQ(begin_helper(&container, ALICE, 2, true), 0);
	ASSERT_EQ(begin_helper(&alice, ALICE, 1, false), 0);
	alices = let_fill(&alice);
	EXPECT_GE(alices, 3);
	EXPECT_EQ(let_fill(&container), 0);
	EXPECT_EQ(end_helper(&alice), 0);
	/* and the memory of her connection */
	again = let_fill(&container);
	EXPECT_GE(again, alices);
	EXPECT_LE(again, alices + 1);
	EXPECT_EQ(end_helper(&container), 0);
}

TEST_HARNESS_MAIN
