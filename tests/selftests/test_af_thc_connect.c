// SPDX-License-Identifier: GPL-2.0
/*
 * connect(): addresses that are refused, calls that do not wait, that go on after a
 * signal, that come again (kmod/connect.c).
 */
#include "afthc.h"
#include "fake.h"
#include "harness.h"
#include "knownjob.h"

#include <pthread.h>

BARE_FIXTURE(bare)

TEST_F(bare, connect_addresses)
{
	static const char *const none[] = {
		"0.0.0.0", "255.255.255.255", "127.255.255.255", "224.0.0.1",
		"::",	   "ff02::1",	      "::ffff:127.0.0.1"
	};
	struct sockaddr_thc good = place("127.0.0.1", PORT, 1, 0), a;
	size_t i;

	ASSERT_EQ(set_u32(self->fd, THC_OPT_JOIN_TIMEOUT, 50), 0);
	EXPECT_EQ(connect_errno(self->fd, &good, sizeof(good) - 1), EINVAL);
	EXPECT_EQ(ERRNO_OF(connect(self->fd, (void *)8, sizeof(good))), EFAULT);
	a = good, a.sthc_family = AF_UNSPEC;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EAFNOSUPPORT);
	a = good, a.sthc_inet = AF_UNIX;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EAFNOSUPPORT);
	a = good, a.sthc_rank = THC_RANKS_MAX;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a = good, a.sthc_reserved[2] = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	for (i = 0; i < sizeof(a.sthc_reserved2); i++) {
		a = good, a.sthc_reserved2[i] = 1;
		EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	}
	a = good, a.sthc_addr[15] = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a = good, a.sthc_ifindex = 0xffffffff;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a = good, a.sthc_ifindex = 4711;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), ENODEV);
	for (i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		a = place(none[i], PORT, 1, 0);
		EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL) TH_LOG("%s", none[i]);
	}
	/* refused: the host's administrator has described no job, and any other field has to be
	 * zero
	 */
	a = place(NULL, 0, 1, 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), ENOENT);
	a.sthc_port = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a.sthc_port = 0, a.sthc_addr[0] = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a.sthc_addr[0] = 0, a.sthc_ifindex = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	/* no refused address has connected the socket */
	EXPECT_EQ(poll_now(self->fd) & (POLLERR | POLLHUP), POLLHUP);
}

/* The local side and the network: no route, not our address, a port in use. */
TEST_F(bare, connect_to_where_the_network_does_not_go)
{
	struct sockaddr_thc there = place("192.0.2.1", PORT, 1, 0), local;
	struct sockaddr_thc here = place("127.0.0.1", PORT, 1, 0);
	struct sockaddr_in taken = { .sin_family = AF_INET, .sin_port = htons(4001),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = thc_open(0), udp = socket(AF_INET, SOCK_DGRAM, 0);

	EXPECT_EQ(connect_errno(self->fd, &there, sizeof(there)), ENETUNREACH);
	there = place("2001:db8::1", PORT, 1, 0);
	EXPECT_EQ(connect_errno(self->fd, &there, sizeof(there)), ENETUNREACH);

	local = place("192.0.2.7", 0, 0, 0);
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EADDRNOTAVAIL);
	close(fd);

	fd = thc_open(0);
	local = place("::1", 0, 0, 0);
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EAFNOSUPPORT);
	close(fd);

	fd = thc_open(0);
	local = place("127.0.0.1", 4001, 0, 0);
	ASSERT_EQ(bind(udp, (void *)&taken, sizeof(taken)), 0);
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EADDRINUSE);
	close(udp);
	close(fd);
}

/* bind() only remembers the address; connect() uses it and reports a privileged port. */
TEST_F(bare, port_that_is_privileged)
{
	struct sockaddr_thc here = place("127.0.0.1", PORT, 1, 0), local;
	int fd = thc_open(0);

	local = place("127.0.0.1", 1000, 0, 0);
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	ASSERT_EQ(set_u32(fd, THC_OPT_JOIN_TIMEOUT, 150), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), ECONNREFUSED);
	ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EACCES);
	EXPECT_EQ(poll_now(fd) & (POLLERR | POLLHUP), POLLHUP);
	close(fd);
}

AFTHC_FIXTURE(job)

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
	/* EINPROGRESS even if the last rank joins before connect() returns */
	EXPECT_EQ(ERRNO_OF(connect(self->fd[1], (void *)&a[1], sizeof(a[1]))), EINPROGRESS);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(end_join(self->fd[i]), 0);
		EXPECT_EQ(poll_now(self->fd[i]), POLLOUT);
		ASSERT_EQ(getpeername(self->fd[i], (void *)&name, &len), 0);
		EXPECT_EQ(name.sthc_rank, i);
		EXPECT_EQ(memcmp(&name, &a[i], sizeof(name)), 0);
		ASSERT_EQ(getsockname(self->fd[i], (void *)&name, &len), 0);
		EXPECT_NE(name.sthc_port, 0);
		EXPECT_EQ(memcmp(name.sthc_addr, a[i].sthc_addr, 16), 0);
		EXPECT_EQ(ERRNO_OF(bind(self->fd[i], (void *)&name, len)), EINVAL);
	}
}

/* connect() reports a join's success only once: after a message was sent, the next connect() joins
 * again.
 */
TEST_F(job, connect_after_messages_joins_again)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), b = place("127.0.0.1", PORT, 1, 1);
	uint32_t before;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "2", NULL), 0);
	self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	set_timeo(self->fd[0], SO_SNDTIMEO, 100);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), EINPROGRESS);
	set_timeo(self->fd[0], SO_SNDTIMEO, 0);
	ASSERT_EQ(connect(self->fd[1], (void *)&b, sizeof(b)), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLOUT, PATIENCE_MS), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
	before = epoch_of(self->fd[0]);
	ASSERT_NE(before, 0);
	ASSERT_EQ(begin_join(self->fd[1], &b), 0);
	ASSERT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	EXPECT_GT(epoch_of(self->fd[0]), before);
	ASSERT_EQ(end_join(self->fd[1]), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
}

/* connect() returns the error of its own join, not that of the join that was interrupted before. */
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

/* connect() joins after shutdown(), but the direction that was shut down stays so. */
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
	/* the other ranks count this socket as a rank, and wait for its data */
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

FAKE_FIXTURE(path)

/* Takes the next JOIN of job 1: its nonce, and whether @key seals it (NULL: no key does). */
static int take_join(int udp, const uint8_t *key, fake_nonce *nonce)
{
	static const uint8_t salt[THC_SALT_BYTES];
	struct join_packet p, right;
	struct sockaddr_in worker;
	struct job_seals s;
	int error;

	/* drops the packets sent until now */
	fake_forget(udp);
	error = fake_take_join_packet(udp, &worker, &p);
	if (error)
		return error;
	*nonce = nonce_of(&p);
	job_seals_set(&s, key, 1, salt);
	right = p;
	seal_join(&s, &right.h, sizeof(right), &worker);
	return !memcmp(&p, &right, sizeof(p)) ? 0 : -EKEYREJECTED;
}

/* A change of the key is a change of the job, even at the same address. */
TEST_F(path, connect_with_another_key_begins_anew)
{
	struct sockaddr_thc a = fake_place();
	uint8_t other[THC_KEY_BYTES] = { 1 };
	fake_nonce nonce, now;

	ASSERT_EQ(set_nonblock(self->fd, true), 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINPROGRESS);
	ASSERT_EQ(take_join(self->udp, job_key, &nonce), 0);
	/* the key that the socket has already */
	ASSERT_EQ(set_key(self->fd, job_key, sizeof(job_key)), 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EALREADY);
	/* one for the next connect() */
	ASSERT_EQ(set_key(self->fd, other, sizeof(other)), 0);
	ASSERT_EQ(take_join(self->udp, job_key, &now), 0);
	EXPECT_EQ(now, nonce);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINPROGRESS);
	ASSERT_EQ(take_join(self->udp, other, &now), 0);
	EXPECT_NE(now, nonce);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EALREADY);
	/* a job without a key also counts as another job */
	ASSERT_EQ(set_key(self->fd, NULL, 0), 0);
	nonce = now;
	ASSERT_EQ(take_join(self->udp, other, &now), 0);
	EXPECT_EQ(now, nonce);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINPROGRESS);
	ASSERT_EQ(take_join(self->udp, NULL, &now), 0);
	EXPECT_NE(now, nonce);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EALREADY);
	/* a key of zeros is a key */
	memset(other, 0, sizeof(other));
	ASSERT_EQ(set_key(self->fd, other, sizeof(other)), 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINPROGRESS);
	ASSERT_EQ(take_join(self->udp, other, &now), 0);
}

/* Every connection of a socket uses the key that the socket was given. */
TEST_F(path, connect_again_has_the_key)
{
	struct sockaddr_thc a = fake_place();
	uint8_t other[THC_KEY_BYTES] = { 1 };
	struct sockaddr_in worker;
	struct chunk_packet p;
	fake_nonce nonce, now;

	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	/* a joined job keeps the keys derived from its own key */
	ASSERT_EQ(set_key(self->fd, other, sizeof(other)), 0);
	ASSERT_EQ(send_part(self->fd, 1, &add8, 1, 8), 0);
	ASSERT_EQ(fake_take(self->udp, &p, PATIENCE_MS), 0);
	EXPECT_EQ(p.h.key_id, fake_seals()->up.id);
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	ASSERT_EQ(take_join(self->udp, other, &nonce), 0);
	a.sthc_rank++;
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	ASSERT_EQ(take_join(self->udp, other, &now), 0);
	EXPECT_NE(now, nonce);
}

static void *connect_to_silence(void *arg)
{
	struct sockaddr_thc a = place("127.0.0.1", FAKE_PORT + 1, 1, 1);

	return (void *)(intptr_t)(connect(*(int *)arg, (void *)&a, sizeof(a)) ? -errno : 0);
}

/* connect() of a connection that another one replaces returns ECANCELED, not the new result. */
TEST_F(path, connect_ends_with_its_connection)
{
	int silent = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at, worker;
	pthread_t thread;
	void *error;

	loopback(&at, FAKE_PORT + 1);
	ASSERT_EQ(bind(silent, (void *)&at, sizeof(at)), 0);
	ASSERT_EQ(pthread_create(&thread, NULL, connect_to_silence, &self->fd), 0);
	ASSERT_EQ(wait_for(silent, POLLIN, PATIENCE_MS), 0);
	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	pthread_join(thread, &error);
	EXPECT_EQ((intptr_t)error, -ECANCELED);
	EXPECT_EQ(epoch_of(self->fd), FAKE_EPOCH);
	close(silent);
}

TEST_HARNESS_MAIN
