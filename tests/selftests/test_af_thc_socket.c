// SPDX-License-Identifier: GPL-2.0
/*
 * Sockets of the family: what socket(), bind(), shutdown() and poll() promise, and
 * calls that the family does not have (kmod/socket.c).
 */
#include "afthc.h"
#include "harness.h"

#include <linux/sockios.h>
#include <sys/epoll.h>

BARE_FIXTURE(bare)

TEST_F(bare, socket)
{
	int type = 0, fd;
	socklen_t len = sizeof(type);

	EXPECT_EQ(ERRNO_OF(socket(AF_THC, SOCK_SEQPACKET, 1)), EPROTONOSUPPORT);
	EXPECT_EQ(ERRNO_OF(socket(AF_THC, SOCK_STREAM, 0)), ESOCKTNOSUPPORT);
	EXPECT_EQ(ERRNO_OF(socket(AF_THC, SOCK_DGRAM, 0)), ESOCKTNOSUPPORT);
	EXPECT_EQ(ERRNO_OF(socket(AF_THC, SOCK_RAW, 0)), ESOCKTNOSUPPORT);
	fd = socket(AF_THC, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
	EXPECT_GE(fd, 0);
	EXPECT_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	close(fd);
	EXPECT_EQ(getsockopt(self->fd, SOL_SOCKET, SO_DOMAIN, &type, &len), 0);
	EXPECT_EQ(type, AF_THC);
}

TEST_F(bare, calls_that_the_family_does_not_have)
{
	int pair[2];

	EXPECT_EQ(ERRNO_OF(listen(self->fd, 1)), EOPNOTSUPP);
	EXPECT_EQ(ERRNO_OF(accept(self->fd, NULL, NULL)), EOPNOTSUPP);
	EXPECT_EQ(ERRNO_OF(socketpair(AF_THC, SOCK_SEQPACKET, 0, pair)), EOPNOTSUPP);
	EXPECT_EQ(ERRNO_OF(ioctl(self->fd, 0x12345678, 0)), EOPNOTSUPP);
	EXPECT_EQ(ERRNO_OF(ioctl(self->fd, FIONREAD, pair)), EOPNOTSUPP);
	EXPECT_EQ(ERRNO_OF(ioctl(self->fd, SIOCOUTQ, pair)), EOPNOTSUPP);
}

TEST_F(bare, bind)
{
	struct sockaddr_thc good = place("127.0.0.1", 4000, 0, 0), a, name;
	socklen_t len = sizeof(name);
	int i;

	EXPECT_EQ(bind_errno(self->fd, &good, sizeof(good) - 1), EINVAL);
	EXPECT_EQ(bind_errno(self->fd, &good, 0), EINVAL);
	EXPECT_EQ(ERRNO_OF(bind(self->fd, (void *)8, sizeof(good))), EFAULT);
	a = good, a.sthc_family = AF_INET;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EAFNOSUPPORT);
	a = good, a.sthc_inet = AF_UNIX;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EAFNOSUPPORT);
	a = good, a.sthc_inet = 0;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EAFNOSUPPORT);
	for (i = 0; i < 3; i++) {
		a = good, a.sthc_reserved[i] = 1;
		EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	}
	for (i = 0; i < 8; i++) {
		a = good, a.sthc_reserved2[i] = 1;
		EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	}
	for (i = 4; i < 16; i++) {
		a = good, a.sthc_addr[i] = 1;
		EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	}
	a = good, a.sthc_job = 1;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	a = good, a.sthc_rank = 1;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	a = good, a.sthc_ifindex = 0x80000000;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);

	ASSERT_EQ(getsockname(self->fd, (void *)&name, &len), 0);
	EXPECT_EQ(name.sthc_inet, 0);
	EXPECT_EQ(bind_errno(self->fd, &good, sizeof(good)), 0);
	EXPECT_EQ(bind_errno(self->fd, &good, sizeof(good)), EINVAL);
	ASSERT_EQ(getsockname(self->fd, (void *)&name, &len), 0);
	EXPECT_EQ(len, sizeof(name));
	EXPECT_EQ(memcmp(&name, &good, sizeof(name)), 0);
	EXPECT_EQ(ERRNO_OF(getpeername(self->fd, (void *)&name, &len)), ENOTCONN);
}

TEST_F(bare, shutdown)
{
	struct thc_send s = describe(THC_OP_ADD, 8, 0, 0);
	struct thc_received r;
	char lanes[1024] = "";

	EXPECT_EQ(ERRNO_OF(shutdown(self->fd, -1)), EINVAL);
	EXPECT_EQ(ERRNO_OF(shutdown(self->fd, 3)), EINVAL);
	EXPECT_EQ(shutdown(self->fd, SHUT_WR), 0);
	EXPECT_EQ(send_message(self->fd, lanes, 1024, &s, 0), -EPIPE);
	EXPECT_EQ(receive_message(self->fd, lanes, 1024, &r, 0, NULL), -ENOTCONN);
	EXPECT_EQ(poll_now(self->fd) & POLLRDHUP, 0);
	EXPECT_EQ(shutdown(self->fd, SHUT_RD), 0);
	EXPECT_EQ(poll_now(self->fd) & (POLLRDHUP | POLLIN | POLLHUP),
		  POLLRDHUP | POLLIN | POLLHUP);
}

AFTHC_FIXTURE(job)

TEST_F(job, shutdown_ends_both_directions)
{
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(shutdown(self->fd[0], SHUT_RDWR), 0);
	EXPECT_EQ(poll_now(self->fd[0]) & (POLLHUP | POLLRDHUP), POLLHUP | POLLRDHUP);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -EPIPE);
	/* complete messages are received first, then EOF */
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(receive(self->fd[0], 0), 0);
	EXPECT_EQ(receive(self->fd[0], MSG_DONTWAIT), 0);
}

/* The next event of an edge-triggered epoll, or 0 after @ms without one. */
static uint32_t next_edge(int ep, int ms)
{
	struct epoll_event e = { 0 };

	return epoll_wait(ep, &e, 1, ms) == 1 ? e.events : 0;
}

/* Takes all pending events. */
static void quieten(int ep)
{
	do {
		sleep_ms(20);
	} while (next_edge(ep, 0));
}

/* An epoll that reports every change of @fd. */
static int watch_edges(int fd)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) ? -errno : ep;
}

TEST_F(job, epoll_says_what_changes)
{
	uint64_t bound = 12 << 10;	/* memory of one message */
	char lanes[LANES] = "";
	struct thc_received r;
	uint32_t events;
	int fd, ep;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	fd = self->fd[0];
	ASSERT_EQ(setsockopt(fd, SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	ep = watch_edges(fd);
	ASSERT_GE(ep, 0);
	EXPECT_EQ(next_edge(ep, PATIENCE_MS), EPOLLOUT);
	quieten(ep);
	/* a message can be received, and there is no memory for another */
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, 0), LANES);
	ASSERT_EQ(send_message(fd, lanes, LANES, &add8, MSG_DONTWAIT), -EAGAIN);
	do {
		events = next_edge(ep, PATIENCE_MS);
	} while (events && !(events & EPOLLIN));
	EXPECT_EQ(events, EPOLLIN);
	quieten(ep);
	EXPECT_EQ(next_edge(ep, 100), 0) TH_LOG("an edge without a change");
	EXPECT_EQ(receive_message(fd, lanes, LANES, &r, MSG_PEEK, NULL), LANES);
	EXPECT_EQ(next_edge(ep, 100), 0) TH_LOG("an edge of a look");
	/* memory is free again, and no message can be received */
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

TEST_HARNESS_MAIN
