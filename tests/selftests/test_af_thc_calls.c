// SPDX-License-Identifier: GPL-2.0
/*
 * What calls do to each other through what they share: the host's memory for
 * messages, a socket's, the turn to send, the message that is received next.
 */
#include "afthc.h"
#include "harness.h"

#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

#define ERRNO_OF(call)	((call) < 0 ? errno : 0)
/* A message of one chunk is charged with a little more than two pages. */
#define ONE_CHUNK	(12 << 10)

static int set_memory(int fd, uint64_t bytes)
{
	return setsockopt(fd, SOL_THC, THC_OPT_MEMORY, &bytes, sizeof(bytes)) ? -errno : 0;
}

AFTHC_FIXTURE(calls)

/* --- the host's memory ---------------------------------------------------- */

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
	/* what fails on the way does not stay charged */
	for (i = 0; i < 20; i++)
		EXPECT_EQ(send_message(self->fd[0], (void *)8, PART, &add8, 0), -EFAULT);
	while ((n = send_message(self->fd[0], lanes, PART, &add8, 0)) == PART && sent < 100)
		sent++;
	EXPECT_EQ(n, -ENOBUFS);
	/* packets and lanes: twice the payload and a little more */
	EXPECT_GE(sent, 4);
	EXPECT_LE(sent, 5);
	EXPECT_EQ(send_message(self->fd[1], lanes, PART, &add8, MSG_DONTWAIT), -ENOBUFS);
	EXPECT_LE(stats_of(self->fd[0]).memory, 1 << 20);
	EXPECT_EQ(stats_of(self->fd[1]).memory, 0);
	/* another bound holds at once */
	ASSERT_EQ(set_host_memory("2"), 0);
	while (sent--)
		EXPECT_EQ(send_message(self->fd[1], lanes, PART, &add8, 0), PART);
	ASSERT_EQ(set_host_memory("1"), 0);
	EXPECT_EQ(send_message(self->fd[1], lanes, PART, &add8, 0), -ENOBUFS);
	/* what is freed, by recvmsg() or by connect(), is free for all */
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_GT(receive(self->fd[0], 0), 0);
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 100), 0);
	free(lanes);
}

/* A call returns no more than an int: one chunk beyond that cannot be received, whatever
 * room there is.
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
	/* only the host has no room for one that is smaller */
	EXPECT_EQ(send_message(self->fd[0], zeros, most * LANES / 2, &s, 0), -ENOBUFS);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	munmap(zeros, bytes);
}

/* What connect() makes room for, packets in flight, is within the same bound. */
TEST_F(host, connect_without_room)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 2, 0);
	char lanes[LANES] = "";
	int fd = thc_open(0), i, error = 0;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2",
			       "2,ranks=1,cookie=0x5eed1234abcd,reply=fanout"),
		  0);
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	ASSERT_EQ(set_host_memory("1"), 0);
	for (i = 0; i < 1000 && !error; i++) {
		ssize_t sent = send_message(self->fd[0], lanes, LANES, &add8, 0);

		error = sent == LANES ? 0 : (int)sent;
	}
	EXPECT_EQ(error, -ENOBUFS);
	EXPECT_EQ(ERRNO_OF(connect(fd, (void *)&a, sizeof(a))), ENOBUFS);
	/* there is room again */
	close_all(self->fd, 2);
	EXPECT_EQ(ERRNO_OF(connect(fd, (void *)&a, sizeof(a))), 0);
	EXPECT_EQ(all_reduce(&fd, 1, &add8, 1), 0);
	close(fd);
}

/* --- a user's part of it -------------------------------------------------- */

#define ALICE	12345
#define BOB	12346
/* A number that root gave ALICE for her containers. */
#define HERS	100000
/* What is asked of a helper. */
#define FILL	'f'
#define END	'e'

/**
 * struct helper - a process of another user, with a socket in a job of its own
 * @ask, @told: commands to it, messages that it could send
 */
struct helper {
	pid_t	pid;
	int	ask, told;
};

/* Sends until there is no room: how many messages, or -1 for any other end. */
static int fill(int fd)
{
	static char lanes[PART];
	ssize_t sent;
	int n = 0;

	while ((sent = send_message(fd, lanes, PART, &add8, 0)) == PART)
		n++;
	return sent == -ENOBUFS ? n : -1;
}

/* Another user namespace, in which root is @inside. */
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
	char what;

	if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid) ||
	    (userns && enter_userns(ask, told)))
		_exit(1);
	fd = thc_open(0);
	if (fd < 0 || connect(fd, (void *)&a, sizeof(a)))
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

/* @userns: in a user namespace that @uid makes, in which its root is HERS. */
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
	return error;
}

/* Messages that it could send. */
static int let_fill(struct helper *h)
{
	char what = FILL;
	int n = -1;

	if (write(h->ask, &what, 1) != 1 || read(h->told, &n, sizeof(n)) != sizeof(n))
		return -1;
	return n;
}

/* With its socket goes what that holds. */
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

/* A user has as much as it leaves free: of nine messages Alice four, then Bob two. */
TEST_F(host, memory_of_one_user_leaves_some_for_others)
{
	struct helper alice, bob;
	int most, alices, bobs;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1",
			       "2,ranks=1,cookie=0x5eed1234abcd,reply=fanout"),
		  0);
	ASSERT_EQ(set_host_memory("2"), 0);
	/* who has the capability has all of it */
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
	/* what Alice gives back is Bob's */
	EXPECT_EQ(end_helper(&alice), 0);
	EXPECT_EQ(bobs + let_fill(&bob), alices);
	EXPECT_EQ(end_helper(&bob), 0);
}

/* A user's containers have numbers of their own, and are the user's. */
TEST_F(host, memory_of_a_users_containers_is_the_users)
{
	struct helper alice, container;
	int alices;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1",
			       "2,ranks=1,cookie=0x5eed1234abcd,reply=fanout"),
		  0);
	ASSERT_EQ(set_host_memory("2"), 0);
	ASSERT_EQ(begin_helper(&container, ALICE, 2, true), 0);
	ASSERT_EQ(begin_helper(&alice, ALICE, 1, false), 0);
	alices = let_fill(&alice);
	EXPECT_GE(alices, 3);
	EXPECT_EQ(let_fill(&container), 0);
	EXPECT_EQ(end_helper(&alice), 0);
	EXPECT_EQ(let_fill(&container), alices);
	EXPECT_EQ(end_helper(&container), 0);
}

/* Root of a user namespace of its own is anybody. */
TEST_F(calls, memory_beyond_the_default_needs_the_hosts_root)
{
	ASSERT_EQ(unshare(CLONE_NEWUSER | CLONE_NEWNET), 0);
	self->fd[0] = thc_open(0);
	ASSERT_GE(self->fd[0], 0);
	EXPECT_EQ(set_memory(self->fd[0], 256ULL << 20), 0);
	EXPECT_EQ(set_memory(self->fd[0], (256ULL << 20) + 1), -EPERM);
}

/* --- a socket's memory ---------------------------------------------------- */

TEST_F(calls, pollout_is_room_for_what_was_refused)
{
	char lanes[8 * LANES] = "";
	int fd;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	fd = self->fd[0];
	ASSERT_EQ(set_memory(fd, ONE_CHUNK), 0);
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, 0), LANES);
	ASSERT_EQ(wait_for(fd, POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(poll_now(fd), POLLIN | POLLOUT) TH_LOG("there is room, and none was refused");
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, MSG_DONTWAIT), -EAGAIN);
	EXPECT_EQ(poll_now(fd), POLLIN) TH_LOG("a sender would spin");
	EXPECT_EQ(receive(fd, 0), ANSWER);
	EXPECT_EQ(poll_now(fd), POLLOUT);
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, MSG_DONTWAIT), LANES);
	ASSERT_EQ(wait_for(fd, POLLIN, PATIENCE_MS), 0);

	/* a smaller one fits: what was refused before it is forgotten */
	ASSERT_EQ(set_memory(fd, 40 << 10), 0);
	ASSERT_EQ(send_message(fd, lanes, sizeof(lanes), &add8, 0), sizeof(lanes));
	ASSERT_EQ(send_message(fd, lanes, sizeof(lanes), &add8, MSG_DONTWAIT), -EAGAIN);
	EXPECT_EQ(poll_now(fd) & POLLOUT, 0);
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, MSG_DONTWAIT), LANES);
	EXPECT_EQ(poll_now(fd) & POLLOUT, POLLOUT);
	ASSERT_EQ(send_message(fd, lanes, sizeof(lanes), &add8, MSG_DONTWAIT), -EAGAIN);

	/* and what can never fit is not waited for */
	while (receive(fd, MSG_DONTWAIT) > 0 || stats_of(fd).memory)
		sleep_ms(1);
	ASSERT_EQ(set_memory(fd, ONE_CHUNK), 0);
	EXPECT_EQ(poll_now(fd), POLLOUT);
	EXPECT_EQ(send_message(fd, lanes, sizeof(lanes), &add8, MSG_DONTWAIT), -EMSGSIZE);
}

/* Ranks wait for each other's norms: they do not wait for data. */
TEST_F(calls, norms_pass_data_that_has_no_room)
{
	struct thc_send norm = describe(THC_OP_MAX, 32, 1, 6);
	char lanes[8 * LANES] = "";
	int status = -1;
	pid_t child;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(set_memory(self->fd[0], 2 * ONE_CHUNK), 0);
	ASSERT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), LANES);
	child = fork();
	if (!child)
		_exit(send_message(self->fd[0], lanes, sizeof(lanes), &add8, 0) != sizeof(lanes));
	sleep_ms(300);
	EXPECT_EQ(waitpid(child, NULL, WNOHANG), 0) TH_LOG("it did not wait");
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &norm, MSG_DONTWAIT), LANES);
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	if (waitpid(child, &status, WNOHANG) == 0)
		receive(self->fd[0], 0);
	if (status < 0)
		ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
}

/* --- many at once --------------------------------------------------------- */

#define BATCH	3

TEST_F(calls, sendmmsg_and_recvmmsg)
{
	struct mmsghdr out[BATCH] = { 0 }, in[BATCH] = { 0 };
	char lanes[BATCH][LANES] = { "" }, rooms[BATCH][ANSWER];
	char control[BATCH][CMSG_SPACE(sizeof(add8))] = { "" };
	struct iovec from[BATCH], to[BATCH];
	struct thc_send s = add8;
	int i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	for (i = 0; i < BATCH; i++, s.tag++) {
		struct cmsghdr *c = (void *)control[i];

		lanes[i][0] = (char)(i + 1);
		c->cmsg_level = SOL_THC;
		c->cmsg_type = THC_SEND;
		c->cmsg_len = CMSG_LEN(sizeof(s));
		memcpy(CMSG_DATA(c), &s, sizeof(s));
		from[i] = (struct iovec){ .iov_base = lanes[i], .iov_len = LANES };
		out[i].msg_hdr = (struct msghdr){ .msg_iov = &from[i], .msg_iovlen = 1,
						  .msg_control = control[i],
						  .msg_controllen = sizeof(control[i]) };
		to[i] = (struct iovec){ .iov_base = rooms[i], .iov_len = ANSWER };
		in[i].msg_hdr = (struct msghdr){ .msg_iov = &to[i], .msg_iovlen = 1 };
	}
	ASSERT_EQ(sendmmsg(self->fd[0], out, BATCH, 0), BATCH) TH_LOG("errno %d", errno);
	for (i = 0; i < BATCH; i++)
		EXPECT_EQ(out[i].msg_len, LANES);
	ASSERT_EQ(recvmmsg(self->fd[0], in, BATCH, 0, NULL), BATCH);
	for (i = 0; i < BATCH; i++) {
		EXPECT_EQ(in[i].msg_len, ANSWER);
		EXPECT_GE(rooms[i][0], 1);
		EXPECT_LE(rooms[i][0], BATCH);
	}
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), -EAGAIN);
}

/* --- many threads --------------------------------------------------------- */

#define THREADS		8
#define JOBS		2
#define JOB_RANKS	32	/* of each */
#define MANY_CHUNKS	12
#define MANY_ROUNDS	4

/**
 * struct driver - a thread with some ranks of each job
 * @fd: of all ranks, by job
 * @want: the sums, by job and round
 * @number: it has ranks @number, @number + THREADS, ...
 * @bad: what went wrong, 0: nothing
 */
struct driver {
	pthread_t	thread;
	int		*fd;
	uint8_t		(*want)[MANY_ROUNDS][MANY_CHUNKS * LANES];
	unsigned int	number;
	int		bad;
};

static struct thc_send many_send(int job, int round)
{
	return describe(THC_OP_ADD, 32, (uint32_t)round, (uint64_t)(100 * job + round));
}

/* Lanes of 32 bits, as they lie in a message. */
static void add_up(uint8_t *want, const struct thc_send *s)
{
	size_t i;

	for (i = 0; i < MANY_CHUNKS * LANES / 4; i++) {
		uint32_t sum = 0;
		unsigned int rank;

		for (rank = 0; rank < JOB_RANKS; rank++)
			sum += contribution(s, rank, i, NULL);
		sum = htole32(sum);
		memcpy(want + 4 * i, &sum, 4);
	}
}

static int take_sums(struct driver *d, int job, int round, unsigned int rank)
{
	uint8_t room[MANY_CHUNKS * ANSWER];
	struct thc_send s = many_send(job, round);
	struct thc_received r;
	ssize_t got = receive_message(d->fd[job * JOB_RANKS + (int)rank], room, sizeof(room), &r, 0,
				      NULL);

	if (got != sizeof(room))
		return got < 0 ? (int)got : 1;
	if (r.tag != s.tag || r.ranks != all_ranks(JOB_RANKS) || r.least != JOB_RANKS)
		return 2;
	return memcmp(room, d->want[job][round], MANY_CHUNKS * LANES) ? 3 : 0;
}

/* All of a round is sent before any of it is received, or threads would wait for each other. */
static void *drive(void *arg)
{
	struct driver *d = arg;
	unsigned int rank;
	int job, round;

	for (round = 0; round < MANY_ROUNDS && !d->bad; round++) {
		for (job = 0; job < JOBS; job++)
			for (rank = d->number; rank < JOB_RANKS && !d->bad; rank += THREADS) {
				struct thc_send s = many_send(job, round);

				d->bad = send_part(d->fd[job * JOB_RANKS + (int)rank], rank, &s,
						   MANY_CHUNKS, 8);
			}
		for (job = 0; job < JOBS; job++)
			for (rank = d->number; rank < JOB_RANKS && !d->bad; rank += THREADS)
				d->bad = take_sums(d, job, round, rank);
	}
	return NULL;
}

TEST_F_TIMEOUT(calls, sixty_four_sockets_by_eight_threads, 100)
{
	static uint8_t want[JOBS][MANY_ROUNDS][MANY_CHUNKS * LANES];
	struct driver d[THREADS] = { 0 };
	uint64_t messages = 0;
	int i, job, round;

	for (job = 0; job < JOBS; job++)
		for (round = 0; round < MANY_ROUNDS; round++) {
			struct thc_send s = many_send(job, round);

			add_up(want[job][round], &s);
		}
	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "32",
			       "2,cookie=0x5eed1234abcd,reply=fanout,ranks=32"),
		  0);
	/* the debug kernel of a busy host takes minutes for so many */
	for (i = 0; i < JOBS * JOB_RANKS; i++) {
		self->fd[i] = thc_open(0);
		ASSERT_EQ(set_u32(self->fd[i], THC_OPT_JOIN_TIMEOUT, 300000), 0);
	}
	for (job = 0; job < JOBS; job++)
		ASSERT_EQ(join_all(self->fd + job * JOB_RANKS, JOB_RANKS, "127.0.0.1", PORT,
				   (uint16_t)(job + 1)),
			  0);
	for (i = 0; i < JOBS * JOB_RANKS; i++)
		ASSERT_EQ(set_u32(self->fd[i], THC_OPT_TIMEOUT, 300000), 0);
	for (i = 0; i < THREADS; i++) {
		d[i].fd = self->fd;
		d[i].want = want;
		d[i].number = (unsigned int)i;
		ASSERT_EQ(pthread_create(&d[i].thread, NULL, drive, &d[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(d[i].thread, NULL);
		EXPECT_EQ(d[i].bad, 0) TH_LOG("thread %d", i);
	}
	for (i = 0; i < JOBS * JOB_RANKS; i++)
		messages += stats_of(self->fd[i]).messages;
	EXPECT_EQ(messages, JOBS * JOB_RANKS * MANY_ROUNDS);
}

/* --- ancillary data ------------------------------------------------------- */

static ssize_t receive_into(int fd, void *control, size_t bytes, int *flags)
{
	char room[ANSWER];
	struct iovec iov = { .iov_base = room, .iov_len = sizeof(room) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t got;

	msg.msg_control = control;
	msg.msg_controllen = bytes;
	got = recvmsg(fd, &msg, 0);
	*flags = msg.msg_flags;
	return got < 0 ? -errno : got;
}

TEST_F(calls, ancillary_data_that_cannot_be_written)
{
	char room[ANSWER], control[CMSG_SPACE(sizeof(struct thc_received))];
	struct thc_received r;
	int fd, flags;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	fd = self->fd[0];
	ASSERT_EQ(send_part(fd, 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(fd, POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(receive_into(fd, (void *)8, sizeof(control), &flags), -EFAULT);
	EXPECT_EQ(poll_now(fd) & POLLIN, POLLIN) TH_LOG("the message is lost");
	EXPECT_EQ(receive_message(fd, room, sizeof(room), &r, MSG_DONTWAIT, &flags), ANSWER);
	EXPECT_EQ(r.tag, add8.tag);
	EXPECT_EQ(flags & MSG_CTRUNC, 0);
	/* room that is too small, or none, is no error */
	ASSERT_EQ(send_part(fd, 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive_into(fd, control, CMSG_LEN(4), &flags), ANSWER);
	EXPECT_EQ(flags & MSG_CTRUNC, MSG_CTRUNC);
	ASSERT_EQ(send_part(fd, 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive_into(fd, NULL, 0, &flags), ANSWER);
	EXPECT_EQ(flags & MSG_CTRUNC, MSG_CTRUNC);
	EXPECT_EQ(receive(fd, MSG_DONTWAIT), -EAGAIN);
}

/* --- long calls ----------------------------------------------------------- */

#define LONG_CHUNKS	16384
#define TRIES		8

/* Somebody who ought to run every 0.1 ms on the caller's CPU, and when he did not. */
struct watch {
	pthread_t	thread;
	int		stop;
	uint64_t	gap_us;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void *watch_clock(void *arg)
{
	struct sched_param priority = { .sched_priority = 1 };
	struct watch *w = arg;
	uint64_t last, now;

	sched_setscheduler(0, SCHED_FIFO, &priority);
	for (last = now_us(); !__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE); last = now) {
		usleep(100);
		now = now_us();
		if (now - last > w->gap_us)
			w->gap_us = now - last;
	}
	return NULL;
}

/* Parts of a hundred of the call's time for which nobody else could run; negative errno. */
static int longest_hold(int fd, bool sends, void *room, size_t bytes)
{
	struct watch w = { 0 };
	struct thc_received r;
	uint64_t start;
	ssize_t n;

	pthread_create(&w.thread, NULL, watch_clock, &w);
	usleep(2000);
	start = now_us();
	n = sends ? send_message(fd, room, bytes, &add8, 0) :
		    receive_message(fd, room, bytes, &r, 0, NULL);
	start = now_us() - start;
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
	pthread_join(w.thread, NULL);
	if (n < 0)
		return (int)n;
	return (int)(100 * w.gap_us / (start + 1));
}

/* The host of a test machine has pauses of its own: the best of several counts. */
TEST_F_TIMEOUT(calls, long_calls_let_others_run, 60)
{
	size_t bytes = (size_t)LONG_CHUNKS * LANES, whole = (size_t)LONG_CHUNKS * ANSWER;
	int sending = 100, receiving = 100, i, n;
	char *lanes = malloc(whole);
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	memset(lanes, 1, whole);
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
	for (i = 0; i < TRIES && (sending > 30 || receiving > 30); i++) {
		n = longest_hold(self->fd[0], true, lanes, bytes);
		ASSERT_GE(n, 0);
		sending = n < sending ? n : sending;
		ASSERT_EQ(wait_for(self->fd[0], POLLIN, 5 * PATIENCE_MS), 0);
		n = longest_hold(self->fd[0], false, lanes, whole);
		ASSERT_GE(n, 0);
		receiving = n < receiving ? n : receiving;
	}
	printf("# longest hold: %d %% of sendmsg(), %d %% of recvmsg()\n", sending, receiving);
	EXPECT_LE(sending, 30);
	EXPECT_LE(receiving, 30);
	free(lanes);
}

TEST_HARNESS_MAIN
