// SPDX-License-Identifier: GPL-2.0
/*
 * What Documentation/man/af_thc.7 promises of each call: good input works,
 * bad input gives the errno of the page. No network beyond loopback; what a
 * daemon has to be there for is in test_af_thc_state.
 */
#include "afthc.h"
#include "harness.h"

#include <limits.h>
#include <linux/sockios.h>

/* What a call returned, as 0 or the errno. */
#define ERRNO_OF(call)	((call) < 0 ? errno : 0)

FIXTURE(bare)
{
	int fd;
};

FIXTURE_SETUP(bare)
{
	const char *reason = why_not();

	self->fd = -1;
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_EQ(enter_netns(), 0);
	self->fd = thc_open(0);
	ASSERT_GE(self->fd, 0);
}

FIXTURE_TEARDOWN(bare)
{
	if (self->fd >= 0)
		close(self->fd);
}

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

static int bind_errno(int fd, const struct sockaddr_thc *a, socklen_t len)
{
	return ERRNO_OF(bind(fd, (const void *)a, len));
}

TEST_F(bare, bind)
{
	struct sockaddr_thc good = place("127.0.0.1", 4000, 0, 0), a, name;
	socklen_t len = sizeof(name);
	int i;

	good.sthc_cookie = 0;
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
	for (i = 4; i < 16; i++) {
		a = good, a.sthc_addr[i] = 1;
		EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	}
	a = good, a.sthc_job = 1;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	a = good, a.sthc_rank = 1;
	EXPECT_EQ(bind_errno(self->fd, &a, sizeof(a)), EINVAL);
	a = good, a.sthc_cookie = 1;
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

static int connect_errno(int fd, const struct sockaddr_thc *a, socklen_t len)
{
	return ERRNO_OF(connect(fd, (const void *)a, len));
}

TEST_F(bare, connect_addresses)
{
	static const char *const none[] = { "0.0.0.0", "255.255.255.255", "224.0.0.1",
					    "::",      "ff02::1",	  "::ffff:127.0.0.1" };
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
	/* the host's administrator has described no job, and nothing else may be said */
	a = place(NULL, 0, 1, 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), ENOENT);
	a.sthc_port = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a.sthc_port = 0, a.sthc_cookie = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a.sthc_cookie = 0, a.sthc_addr[0] = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	a.sthc_addr[0] = 0, a.sthc_ifindex = 1;
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EINVAL);
	/* none of this connected it */
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

	local = place("192.0.2.7", 0, 0, 0), local.sthc_cookie = 0;
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EADDRNOTAVAIL);
	close(fd);

	fd = thc_open(0);
	local = place("::1", 0, 0, 0), local.sthc_cookie = 0;
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EAFNOSUPPORT);
	close(fd);

	fd = thc_open(0);
	local = place("127.0.0.1", 4001, 0, 0), local.sthc_cookie = 0;
	ASSERT_EQ(bind(udp, (void *)&taken, sizeof(taken)), 0);
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EADDRINUSE);
	close(udp);
	close(fd);
}

/* bind() remembers the address, connect() takes it. */
TEST_F(bare, port_that_is_privileged)
{
	struct sockaddr_thc here = place("127.0.0.1", PORT, 1, 0), local;
	int fd = thc_open(0);

	local = place("127.0.0.1", 1000, 0, 0), local.sthc_cookie = 0;
	ASSERT_EQ(bind_errno(fd, &local, sizeof(local)), 0);
	ASSERT_EQ(set_u32(fd, THC_OPT_JOIN_TIMEOUT, 150), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), ECONNREFUSED);
	ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
	EXPECT_EQ(connect_errno(fd, &here, sizeof(here)), EACCES);
	EXPECT_EQ(poll_now(fd) & (POLLERR | POLLHUP), POLLHUP);
	close(fd);
}

TEST_F(bare, connect_without_a_daemon)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	struct thc_failure f;
	int udp = socket(AF_INET, SOCK_DGRAM, 0), error = 0;
	struct sockaddr_in silent = { .sin_family = AF_INET, .sin_port = htons(PORT),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(error);

	ASSERT_EQ(set_u32(self->fd, THC_OPT_JOIN_TIMEOUT, 150), 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), ECONNREFUSED);
	f = failure_of(self->fd);
	EXPECT_EQ(f.error, ECONNREFUSED);
	EXPECT_EQ(f.reason, THC_FAILED_UNREACHABLE);
	EXPECT_EQ(poll_now(self->fd) & (POLLERR | POLLIN | POLLOUT), POLLERR | POLLIN | POLLOUT);

	ASSERT_EQ(bind(udp, (void *)&silent, sizeof(silent)), 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), EHOSTUNREACH);
	f = failure_of(self->fd);
	EXPECT_EQ(f.error, EHOSTUNREACH);
	EXPECT_EQ(f.reason, THC_FAILED_SILENT);
	EXPECT_EQ(f.ranks, 0);
	EXPECT_EQ(f.reserved, 0);
	/* again and again, SO_ERROR once */
	EXPECT_EQ(receive_message(self->fd, &a, sizeof(a), (struct thc_received *)&(char[32]){ 0 },
				  0, NULL),
		  -EHOSTUNREACH);
	EXPECT_EQ(receive_message(self->fd, &a, sizeof(a), (struct thc_received *)&(char[32]){ 0 },
				  0, NULL),
		  -EHOSTUNREACH);
	EXPECT_EQ(getsockopt(self->fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	EXPECT_EQ(error, EHOSTUNREACH);
	EXPECT_EQ(getsockopt(self->fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	EXPECT_EQ(error, 0);
	EXPECT_EQ(stats_of(self->fd).failures, 0) TH_LOG("no message has failed");
	close(udp);
}

/* The network says so by ICMPv6, too. */
TEST_F(bare, connect_without_a_daemon_ipv6)
{
	struct sockaddr_thc a = place("::1", PORT, 1, 0);
	struct thc_failure f;

	ASSERT_EQ(set_u32(self->fd, THC_OPT_JOIN_TIMEOUT, 500), 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), ECONNREFUSED);
	f = failure_of(self->fd);
	EXPECT_EQ(f.error, ECONNREFUSED);
	EXPECT_EQ(f.reason, THC_FAILED_UNREACHABLE);
}

/* What sendmsg() refuses before it asks whether the socket is connected. */
TEST_F(bare, sendmsg_descriptions)
{
	struct thc_send good = describe(THC_OP_ADD, 8, 0, 0);
	static const int flags[] = { MSG_OOB,	    MSG_MORE,	  MSG_CONFIRM,
				     MSG_DONTROUTE, MSG_ZEROCOPY, MSG_FASTOPEN };
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	char lanes[1024] = "", control[2 * CMSG_SPACE(sizeof(good))] = "";
	struct cmsghdr *c = (void *)control;
	struct msghdr msg = { .msg_control = control, .msg_controllen = sizeof(control) };
	size_t i;

	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		EXPECT_EQ(send_message(self->fd, lanes, 1024, &good, flags[i]), -EOPNOTSUPP)
	TH_LOG("flag %#x", flags[i]);
	EXPECT_EQ(send_with(self->fd, lanes, 1024, NULL, 0, 0, 0), -EINVAL);
	EXPECT_EQ(send_with(self->fd, lanes, 1024, &good, sizeof(good) - 1, THC_SEND, 0), -EINVAL);
	EXPECT_EQ(send_with(self->fd, lanes, 1024, control, sizeof(good) + 1, THC_SEND, 0),
		  -EINVAL);
	EXPECT_EQ(send_with(self->fd, lanes, 1024, &good, sizeof(good), THC_RECEIVED, 0), -EINVAL);
	EXPECT_EQ(ERRNO_OF(sendto(self->fd, lanes, 1024, 0, (void *)&a, sizeof(a))), EISCONN);
	EXPECT_EQ(ERRNO_OF(write(self->fd, lanes, 1024)), EINVAL);
	/* twice, and of a level that is not ours */
	for (i = 0; i < 2; i++, c = (void *)(control + CMSG_SPACE(sizeof(good)))) {
		c->cmsg_level = SOL_THC;
		c->cmsg_type = THC_SEND;
		c->cmsg_len = CMSG_LEN(sizeof(good));
		memcpy(CMSG_DATA(c), &good, sizeof(good));
	}
	EXPECT_EQ(ERRNO_OF(sendmsg(self->fd, &msg, 0)), EINVAL);
	((struct cmsghdr *)control)->cmsg_level = SOL_SOCKET;
	msg.msg_controllen = CMSG_SPACE(sizeof(good));
	EXPECT_EQ(ERRNO_OF(sendmsg(self->fd, &msg, 0)), EINVAL);
	EXPECT_EQ(send_message(self->fd, lanes, 1024, &good, 0), -ENOTCONN);
	EXPECT_EQ(send_message(self->fd, lanes, 1024, &good, MSG_EOR | MSG_DONTWAIT), -ENOTCONN);
}

TEST_F(bare, recvmsg)
{
	static const int flags[] = { MSG_OOB, MSG_WAITALL, MSG_ERRQUEUE };
	struct thc_received r;
	char room[8];
	size_t i;

	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		EXPECT_EQ(receive_message(self->fd, room, 8, &r, flags[i], NULL), -EOPNOTSUPP)
	TH_LOG("flag %#x", flags[i]);
	EXPECT_EQ(receive_message(self->fd, room, 8, &r, 0, NULL), -ENOTCONN);
	EXPECT_EQ(receive_message(self->fd, room, 8, &r, MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC, NULL),
		  -ENOTCONN);
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

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

TEST_F(bare, sigpipe)
{
	struct thc_send s = describe(THC_OP_ADD, 8, 0, 0);
	char lanes[1024] = "";

	signal(SIGPIPE, on_signal);
	EXPECT_EQ(shutdown(self->fd, SHUT_WR), 0);
	EXPECT_EQ(send_with(self->fd, lanes, 1024, &s, sizeof(s), THC_SEND, MSG_NOSIGNAL), -EPIPE);
	EXPECT_EQ(signals, 0);
	EXPECT_EQ(send_with(self->fd, lanes, 1024, &s, sizeof(s), THC_SEND, 0), -EPIPE);
	EXPECT_EQ(signals, 1);
}

/* --- options -------------------------------------------------------------- */

TEST_F(bare, options_of_32_bits)
{
	static const struct {
		int option;
		uint32_t value, good, bad;
	} o[] = {
		{ THC_OPT_TIMEOUT, 60000, 1, 0 },
		{ THC_OPT_JOIN_TIMEOUT, 60000, UINT32_MAX, 0 },
		{ THC_OPT_WINDOW, 0, THC_SLOTS_MAX, THC_SLOTS_MAX + 1 },
		{ THC_OPT_PARTIAL, 0, 1, 2 },
	};
	size_t i;

	for (i = 0; i < sizeof(o) / sizeof(o[0]); i++) {
		uint32_t v[2] = { 0 };
		socklen_t len = sizeof(v);

		EXPECT_EQ(getsockopt(self->fd, SOL_THC, o[i].option, v, &len), 0);
		EXPECT_EQ(v[0], o[i].value);
		EXPECT_EQ(len, 4);
		EXPECT_EQ(set_u32(self->fd, o[i].option, o[i].bad), -EINVAL);
		EXPECT_EQ(set_u32(self->fd, o[i].option, o[i].good), 0);
		len = 4;
		EXPECT_EQ(getsockopt(self->fd, SOL_THC, o[i].option, v, &len), 0);
		EXPECT_EQ(v[0], o[i].good);
		EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, o[i].option, v, 3)), EINVAL);
		EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, o[i].option, v, 8)), EINVAL);
		EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, o[i].option, (void *)8, 4)),
			  EFAULT);
		len = 3;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, v, &len)), EINVAL);
		len = 4;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, (void *)8, &len)),
			  EFAULT);
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, v, (void *)8)),
			  EFAULT);
	}
}

static int set_u64(int fd, int option, uint64_t value)
{
	return ERRNO_OF(setsockopt(fd, SOL_THC, option, &value, sizeof(value)));
}

TEST_F(bare, option_memory)
{
	uint64_t v = 0;
	uint32_t half = 1;
	socklen_t len = sizeof(v);

	EXPECT_EQ(getsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, &v, &len), 0);
	EXPECT_EQ(v, 256ULL << 20);
	EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, &half, 4)), EINVAL);
	EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, (void *)8, 8)), EFAULT);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 0), EINVAL);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 4ULL << 30), 0);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, (4ULL << 30) + 1), EINVAL);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 1), 0);
	EXPECT_EQ(getsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, &v, &len), 0);
	EXPECT_EQ(v, 1);
	ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 256ULL << 20), 0);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, (256ULL << 20) + 1), EPERM);
}

/* Of every option alike: lengths, and pointers to nothing. */
TEST_F(bare, options_lengths_and_pointers)
{
	static const struct {
		int option;
		socklen_t bytes;
	} o[] = {
		{ THC_OPT_TIMEOUT, 4 },
		{ THC_OPT_JOIN_TIMEOUT, 4 },
		{ THC_OPT_WINDOW, 4 },
		{ THC_OPT_MEMORY, 8 },
		{ THC_OPT_PARTIAL, 4 },
		{ THC_OPT_STATS, sizeof(struct thc_socket_stats) },
		{ THC_OPT_FAILURE, sizeof(struct thc_failure) },
	};
	uint64_t room[64];
	socklen_t len;
	size_t i;

	for (i = 0; i < sizeof(o) / sizeof(o[0]); i++) {
		static const int wrong[] = { -1, INT_MIN, 0, 1 };
		size_t k;

		for (k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
			len = (socklen_t)wrong[k];
			EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, room, &len)),
				  EINVAL)
			TH_LOG("option %d, length %d", o[i].option, wrong[k]);
			EXPECT_EQ(len, (socklen_t)wrong[k]);
		}
		len = o[i].bytes - 1;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, room, &len)), EINVAL);
		len = o[i].bytes;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, (void *)8, &len)),
			  EFAULT);
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, room, (void *)8)),
			  EFAULT);
		len = sizeof(room);
		EXPECT_EQ(getsockopt(self->fd, SOL_THC, o[i].option, room, &len), 0);
		EXPECT_EQ(len, o[i].bytes);
	}
}

TEST_F(bare, options_that_are_read_only_or_unknown)
{
	struct thc_joined joined;
	socklen_t len = sizeof(joined);
	struct thc_failure f = failure_of(self->fd), zero = { 0 };
	struct thc_socket_stats stats = stats_of(self->fd), none = { 0 };
	static const int unknown[] = { -1, 0, 9, 1000 };
	uint32_t v = 1;
	size_t i;
	int option;

	EXPECT_EQ(memcmp(&f, &zero, sizeof(f)), 0);
	EXPECT_EQ(memcmp(&stats, &none, sizeof(stats)), 0);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, THC_OPT_WELCOME, &joined, &len)),
		  ENOTCONN);
	len = 8;
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, THC_OPT_STATS, &joined, &len)), EINVAL);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, THC_OPT_FAILURE, &joined, &len)), EINVAL);
	for (option = THC_OPT_WELCOME; option <= THC_OPT_FAILURE; option++)
		EXPECT_EQ(set_u32(self->fd, option, 1), -ENOPROTOOPT);
	for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		len = sizeof(v);
		EXPECT_EQ(set_u32(self->fd, unknown[i], 1), -ENOPROTOOPT);
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, unknown[i], &v, &len)),
			  ENOPROTOOPT);
	}
	EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, IPPROTO_UDP, THC_OPT_TIMEOUT, &v, 4)), ENOPROTOOPT);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, IPPROTO_UDP, THC_OPT_TIMEOUT, &v, &len)),
		  ENOPROTOOPT);
}

TEST_HARNESS_MAIN
