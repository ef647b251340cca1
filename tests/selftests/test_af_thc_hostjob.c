// SPDX-License-Identifier: GPL-2.0
/*
 * Which processes may join a job that the host's administrator has described: those that call
 * connect() with a user or group in the job's ranges, or with CAP_NET_ADMIN. test_af_thc_netlink
 * tests how netlink shows the ranges.
 */
#include "harness.h"
#include "netlink.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/syscall.h>

#define AT		"127.0.0.1"
#define NONE		UINT32_MAX
/* Statuses of a child that are no errno. */
#define NOT_SET_UP	200

FIXTURE(access)
{
	struct nl nl;
};

FIXTURE_SETUP(access)
{
	memset(self, 0, sizeof(*self));
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&self->nl), 0);
}

FIXTURE_TEARDOWN(access)
{
	nl_close(&self->nl);
}

/* Ranges as first and last number; NONE: no range. */
struct ranges {
	uint32_t users[2], groups[2];
};

/* Describes job 1 anew. No aggregator answers there. */
static int describe_job(struct nl *nl, const struct ranges *r)
{
	struct nlmsghdr *h;
	int error = nl_del_job(nl, 1);

	if (error && error != -ENOENT)
		return error;
	h = nl_begin_job(nl, 1, AT, PORT);
	if (r->users[0] != NONE)
		nl_put_ids(h, THC_ATTR_USERS, r->users[0], r->users[1]);
	if (r->groups[0] != NONE)
		nl_put_ids(h, THC_ATTR_GROUPS, r->groups[0], r->groups[1]);
	return nl_ask(nl, h, NULL, NULL);
}

/* A process's real and effective user, its group, and a supplementary group (0: none). */
struct who {
	uid_t	real, effective;
	gid_t	group, more;
};

static int become(const struct who *who)
{
	return setgroups(!!who->more, &who->more) ||
	       setresgid(who->group, who->group, who->group) ||
	       setresuid(who->real, who->effective, who->real);
}

/* @fd: an open socket, or -1. Returns 0 if the socket has begun to join. */
static int join_now(int fd)
{
	struct sockaddr_thc a = place(NULL, 0, 1, 0);

	if (fd < 0)
		fd = thc_open_keyless(0);
	return fd < 0 ? -NOT_SET_UP : begin_join(fd, &a);
}

static int status_of(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -NOT_SET_UP;
	return -WEXITSTATUS(status);
}

/* The result of connect() in a process of @who. */
static int join_as(const struct who *who, int fd)
{
	pid_t pid = fork();

	if (!pid)
		_exit(become(who) ? NOT_SET_UP : -join_now(fd));
	return status_of(pid);
}

#define USER(u)		u, u, 5, 0
#define MEMBER(g)	7, 7, g, 0
#define ALSO_OF(g)	7, 7, 5, g

TEST_F(access, users_and_groups)
{
	static const struct ranges users = { { 1000, 1999 }, { NONE } };
	static const struct ranges groups = { { NONE }, { 100, 200 } };
	static const struct ranges both = { { 1000, 1000 }, { 100, 100 } };
	static const struct ranges everybody = { { 0, 4294967294 }, { NONE } };
	static const struct {
		const struct ranges *ranges;
		struct who who;
		int error;
	} c[] = {
		{ &users, { USER(1000) }, 0 },
		{ &users, { USER(1500) }, 0 },
		{ &users, { USER(1999) }, 0 },
		{ &users, { USER(999) }, -EPERM },
		{ &users, { USER(2000) }, -EPERM },
		{ &users, { MEMBER(1500) }, -EPERM },
		/* the effective one */
		{ &users, { 999, 1500, 5, 0 }, 0 },
		{ &users, { 1500, 999, 5, 0 }, -EPERM },
		{ &groups, { MEMBER(100) }, 0 },
		{ &groups, { MEMBER(200) }, 0 },
		{ &groups, { MEMBER(99) }, -EPERM },
		{ &groups, { MEMBER(201) }, -EPERM },
		{ &groups, { ALSO_OF(150) }, 0 },
		{ &groups, { ALSO_OF(99) }, -EPERM },
		{ &groups, { USER(150) }, -EPERM },
		{ &both, { USER(1000) }, 0 },
		{ &both, { MEMBER(100) }, 0 },
		{ &both, { ALSO_OF(100) }, 0 },
		{ &both, { USER(100) }, -EPERM },
		{ &both, { MEMBER(1000) }, -EPERM },
		{ &everybody, { USER(65534) }, 0 },
		{ &everybody, { USER(4294967294) }, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		ASSERT_EQ(describe_job(&self->nl, c[i].ranges), 0);
		EXPECT_EQ(join_as(&c[i].who, -1), c[i].error) TH_LOG("case %zu", i);
	}
}

/* Keeps only the capabilities in @keep; even root may have none. */
static int keep_capability(uint32_t keep)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { .effective = keep, .permitted = keep } };

	return syscall(SYS_capset, &h, d) ? -errno : 0;
}

static int join_with_capability(uid_t uid, uint32_t keep)
{
	pid_t pid = fork();

	if (!pid) {
		if (prctl(PR_SET_KEEPCAPS, 1) || setresuid(uid, uid, uid) || keep_capability(keep))
			_exit(NOT_SET_UP);
		_exit(-join_now(-1));
	}
	return status_of(pid);
}

TEST_F(access, who_administrates_the_network_may_always)
{
	static const struct ranges without = { { NONE }, { NONE } };
	static const struct ranges others = { { 3, 3 }, { 3, 3 } };
	static const struct who stranger = { USER(1000) };
	int i;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(describe_job(&self->nl, i ? &others : &without), 0);
		EXPECT_EQ(join_now(-1), 0);
		EXPECT_EQ(join_with_capability(1000, 1 << CAP_NET_ADMIN), 0);
		/* root without capabilities is an ordinary user */
		EXPECT_EQ(join_with_capability(0, 0), -EPERM);
		EXPECT_EQ(join_with_capability(1000, 1 << CAP_NET_RAW), -EPERM);
		EXPECT_EQ(join_as(&stranger, -1), -EPERM);
	}
}

static int open_as(uid_t uid)
{
	int fd;

	if (seteuid(uid))
		return -errno;
	fd = thc_open_keyless(0);
	return seteuid(0) ? -errno : fd;
}

/* The process that calls connect() counts, not the one that opened the socket. */
TEST_F(access, it_is_the_caller_that_counts)
{
	static const struct ranges users = { { 1000, 1000 }, { NONE } };
	static const struct who member = { USER(1000) }, stranger = { USER(999) };
	int of_member = open_as(1000), of_stranger = open_as(999);

	ASSERT_GE(of_member, 0);
	ASSERT_GE(of_stranger, 0);
	ASSERT_EQ(describe_job(&self->nl, &users), 0);
	EXPECT_EQ(join_as(&stranger, of_member), -EPERM);
	EXPECT_EQ(join_as(&member, of_stranger), 0);
	close(of_member);
	close(of_stranger);
}

/* A refused process does not end the connection that the socket has. */
TEST_F(access, a_refusal_changes_nothing)
{
	static const struct ranges users = { { 1000, 1000 }, { NONE } };
	static const struct who stranger = { USER(999) };
	struct sockaddr_thc a = place(NULL, 0, 1, 0);
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int udp = socket(AF_INET, SOCK_DGRAM, 0), fd = thc_open_keyless(0);
	char packet[200], again[200];

	ASSERT_EQ(bind(udp, (void *)&at, sizeof(at)), 0);
	setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	ASSERT_EQ(describe_job(&self->nl, &users), 0);
	ASSERT_EQ(begin_join(fd, &a), 0);
	ASSERT_GT(recv(udp, packet, sizeof(packet), 0), 0);
	EXPECT_EQ(join_as(&stranger, fd), -EPERM);
	/* reads all packets sent until now, and then one more */
	while (recv(udp, again, sizeof(again), MSG_DONTWAIT) > 0)
		;
	ASSERT_EQ(recv(udp, again, sizeof(again), 0),
		  sizeof(struct thc_hdr) + sizeof(struct thc_join));
	/* a new connection would send another nonce */
	EXPECT_EQ(memcmp(packet, again, sizeof(struct thc_hdr) + sizeof(struct thc_join)), 0);
	close(fd);
	close(udp);
}

/* connect() refuses a socket's own key for a described job, which has its key already. */
TEST_F(access, a_host_job_has_its_own_key)
{
	static const struct ranges without = { { NONE }, { NONE } };
	struct sockaddr_thc a = place(NULL, 0, 1, 0);
	int fd = thc_open(0);

	ASSERT_EQ(describe_job(&self->nl, &without), 0);
	ASSERT_EQ(set_nonblock(fd, true), 0);
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), EINVAL);
	EXPECT_EQ(poll_now(fd) & POLLHUP, POLLHUP);
	ASSERT_EQ(set_key(fd, NULL, 0), 0);
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), EINPROGRESS);
	ASSERT_EQ(set_key(fd, job_key, sizeof(job_key)), 0);
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), EINVAL);
	/* joining goes on */
	ASSERT_EQ(set_key(fd, NULL, 0), 0);
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), EALREADY);
	close(fd);
}

/* --- user namespaces ------------------------------------------------------ */

static int write_map(pid_t pid, const char *file)
{
	static const char map[] = "0 100000 65536";
	char path[64];
	int fd, error;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	error = fd < 0 || write(fd, map, sizeof(map) - 1) < 0 ? -errno : 0;
	close(fd);
	return error;
}

/* Acts as root of a user namespace and of its network. Returns 0, or the number of the failed
 * step.
 */
static int administrate_inside(void)
{
	static const struct ranges users = { { 7, 7 }, { NONE } };
	static const struct who member = { USER(7) }, stranger = { USER(8) };
	struct nl nl;

	if (setresgid(0, 0, 0) || setresuid(0, 0, 0) || enter_netns() || nl_open(&nl))
		return 1;
	if (describe_job(&nl, &users))
		return 2;
	if (join_as(&member, -1))
		return 3;
	return join_as(&stranger, -1) == -EPERM ? 0 : 4;
}

/* The ranges count in the user namespace that owns the network namespace. */
TEST_F(access, numbers_are_those_inside)
{
	int unshared[2], mapped[2];
	char byte = 0;
	pid_t pid;

	ASSERT_EQ(pipe2(unshared, O_CLOEXEC), 0);
	ASSERT_EQ(pipe2(mapped, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		byte = unshare(CLONE_NEWUSER) ? 'n' : 'y';
		if (write(unshared[1], &byte, 1) != 1 || read(mapped[0], &byte, 1) != 1)
			_exit(NOT_SET_UP);
		_exit(administrate_inside());
	}
	ASSERT_EQ(read(unshared[0], &byte, 1), 1);
	if (byte == 'y') {
		EXPECT_EQ(write_map(pid, "uid_map"), 0);
		EXPECT_EQ(write_map(pid, "gid_map"), 0);
		EXPECT_EQ(write(mapped[1], &byte, 1), 1);
		EXPECT_EQ(status_of(pid), 0);
	} else {
		close(mapped[1]);
		close(mapped[0]);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		SKIP(return, "this kernel has no user namespaces");
	}
}

TEST_HARNESS_MAIN
