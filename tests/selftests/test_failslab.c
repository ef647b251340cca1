// SPDX-License-Identifier: GPL-2.0
/*
 * Every allocation, and every copy from or to the caller, fails once in every system call: the
 * call then succeeds all the same or reports the error, the socket still sums right, its memory is
 * freed, and the kernel's log and kmemleak (tests/vm/check) report nothing. Needs the debug
 * kernel's fault injection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/thc.h>
#include <linux/thc_netlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest_harness.h>

#include "jobkey.h"
#include "knownjob.h"

#define PORT	18700
#define PORT6	18800
#define JOB	1
#define CHUNKS	5
/* Allocations of one call, at most; a call with more is a mistake of the test. */
#define TRIES	400
/* Only the last allocations of a new network namespace are tried: the module's are the last. */
#define TRIES_NETNS	24
/* A fault beyond the allocations of any call. */
#define TOO_MANY	(1 << 16)

/* --- fault injection ------------------------------------------------------ */

static int fail_nth = -1;

static int set_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int error = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (error)
		perror(path);
	if (fd >= 0)
		close(fd);
	return error;
}

/* Lets the @n-th allocation of this task from now on fail; true if one is due. */
static bool arm(int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", n);
	return pwrite(fail_nth, text, strlen(text), 0) > 0;
}

/* Switches the fault off; true if it has been met. Copies from and to the caller count, too: this
 * pread() itself may fail, and then the tested call has met no fault.
 */
static bool disarm(void)
{
	char text[16] = "";
	bool failed = pread(fail_nth, text, sizeof(text) - 1, 0) > 0 && !atoi(text);

	/* the first write may meet the fault */
	if (!arm(0) && !arm(0)) {
		perror("fail-nth");
		exit(1);
	}
	return failed;
}

/* --- what is called ------------------------------------------------------- */

/* What a call must do beside returning an honest result. */
enum {
	REFUSES = 1,	/* some fault makes it fail */
	SUMS = 2,	/* its socket can be used afterwards */
	SUMS6 = 4,	/* the socket can be used afterwards, over IPv6 */
};

/* A call to be made with its n-th allocation failing; returns -errno or more. */
struct call {
	const char	*name;
	int		(*prepare)(void);	/* a descriptor for @make */
	int		(*make)(int fd);
	int		asks;
};

static struct sockaddr_thc aggregator(int inet)
{
	struct sockaddr_thc a = {
		.sthc_family = AF_THC, .sthc_inet = (unsigned short)inet,
		.sthc_port = htons(inet == AF_INET ? PORT : PORT6),
		.sthc_job = JOB,
	};

	inet_pton(inet, inet == AF_INET ? "127.0.0.1" : "::1", a.sthc_addr);
	return a;
}

static int result(long r)
{
	return r < 0 ? -errno : (int)r;
}

static int none(void)
{
	return -1;
}

static int fresh(void)
{
	int fd = socket(AF_THC, SOCK_SEQPACKET, 0);

	if (fd < 0 || set_key(fd, job_key, sizeof(job_key))) {
		perror("a socket without faults");
		exit(1);
	}
	return fd;
}

static int connected(void)
{
	struct sockaddr_thc a = aggregator(AF_INET);
	int fd = fresh();

	if (fd >= 0 && connect(fd, (void *)&a, sizeof(a))) {
		perror("connect without faults");
		exit(1);
	}
	return fd;
}

/* A message with all that it refers to, for either direction. */
struct parcel {
	union {
		struct cmsghdr	align;
		char		room[CMSG_SPACE(64)];
	} control;
	unsigned char	payload[CHUNKS * (THC_LANE_BYTES + 2)];
	struct iovec	all;
	struct msghdr	m;
};

static struct msghdr *parcel(struct parcel *p, size_t bytes, size_t control)
{
	memset(&p->m, 0, sizeof(p->m));
	p->all.iov_base = p->payload;
	p->all.iov_len = bytes;
	p->m.msg_iov = &p->all;
	p->m.msg_iovlen = 1;
	p->m.msg_control = &p->control;
	p->m.msg_controllen = CMSG_SPACE(control);
	return &p->m;
}

static struct msghdr *outgoing(struct parcel *p, const struct thc_send *send)
{
	size_t each = send->op == THC_OP_LUT_ADD ? 512 : THC_LANE_BYTES;
	struct msghdr *m = parcel(p, CHUNKS * each, sizeof(*send));
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	c->cmsg_level = SOL_THC;
	c->cmsg_type = THC_SEND;
	c->cmsg_len = CMSG_LEN(sizeof(*send));
	memcpy(CMSG_DATA(c), send, sizeof(*send));
	return m;
}

static struct msghdr *incoming(struct parcel *p)
{
	return parcel(p, sizeof(p->payload), sizeof(struct thc_received));
}

static const struct thc_send lut = { .op = THC_OP_LUT_ADD, .width = 4 };
static struct parcel parcels[2];

static int do_send(int fd)
{
	return result(sendmsg(fd, outgoing(parcels, &lut), MSG_NOSIGNAL));
}

static int do_receive(int fd)
{
	return result(recvmsg(fd, incoming(parcels), 0));
}

static int make_sendmmsg(int fd)
{
	struct mmsghdr all[2];
	int i;

	for (i = 0; i < 2; i++)
		all[i].msg_hdr = *outgoing(&parcels[i], &lut);
	return result(sendmmsg(fd, all, 2, MSG_NOSIGNAL));
}

static int make_recvmmsg(int fd)
{
	struct mmsghdr all[2];
	int i;

	for (i = 0; i < 2; i++)
		all[i].msg_hdr = *incoming(&parcels[i]);
	return result(recvmmsg(fd, all, 2, 0, NULL));
}

/* An all-reduce of the only rank, behind its earlier messages. Returns 0, or what is wrong. */
static int sums_wrong(int fd, int inet)
{
	struct thc_send add = { .op = THC_OP_ADD, .width = 8, .tag = 77 };
	struct sockaddr_thc a = aggregator(inet);
	struct thc_received r = { 0 };
	struct timeval patience = { .tv_sec = 20 };
	struct thc_socket_stats s;
	struct described_job job;
	socklen_t len = sizeof(job);
	struct parcel *p = parcels;
	unsigned int i, wrong = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (getsockopt(fd, SOL_THC, THC_OPT_WELCOME, &job, &len) &&
	    connect(fd, (void *)&a, sizeof(a)))
		return -errno;
	for (i = 0; i < CHUNKS * THC_LANE_BYTES; i++)
		p->payload[i] = (unsigned char)(i * 7 + 1);
	if (sendmsg(fd, outgoing(p, &add), MSG_NOSIGNAL) < 0)
		return -errno;
	do {
		if (recvmsg(fd, incoming(p), 0) < 0)
			return -errno;
		memcpy(&r, CMSG_DATA(CMSG_FIRSTHDR(&p->m)), sizeof(r));
	} while (r.tag != add.tag);
	for (i = 0; i < CHUNKS * THC_LANE_BYTES; i++)
		wrong += p->payload[i] != (unsigned char)(i * 7 + 1);
	/* a message that lost packets to a fault completes later */
	for (;;) {
		len = sizeof(s);
		if (getsockopt(fd, SOL_THC, THC_OPT_STATS, &s, &len))
			return -errno;
		if (!s.memory)
			break;
		if (do_receive(fd) < 0)
			return -errno;
	}
	return wrong || r.ranks != 1 || r.chunks != CHUNKS;
}

static int sent(void)
{
	int fd = connected();

	if (do_send(fd) < 0) {
		perror("sendmsg without faults");
		exit(1);
	}
	return fd;
}

static int sent_twice(void)
{
	int fd = sent();

	if (do_send(fd) < 0) {
		perror("sendmsg without faults");
		exit(1);
	}
	return fd;
}

static int make_socket(int fd)
{
	int s = socket(AF_THC, SOCK_SEQPACKET, 0);

	(void)fd;
	if (s >= 0)
		close(s);
	return result(s);
}

static int make_bind(int fd)
{
	struct sockaddr_thc a = { .sthc_family = AF_THC, .sthc_inet = AF_INET };

	inet_pton(AF_INET, "127.0.0.1", a.sthc_addr);
	return result(bind(fd, (void *)&a, sizeof(a)));
}

static int connect_by(int inet, int fd)
{
	struct sockaddr_thc a = aggregator(inet);

	return result(connect(fd, (void *)&a, sizeof(a)));
}

static int make_connect(int fd)
{
	return connect_by(AF_INET, fd);
}

static int make_connect6(int fd)
{
	return connect_by(AF_INET6, fd);
}

static int make_peer_name(int fd)
{
	struct sockaddr_thc a;
	socklen_t len = sizeof(a);

	return result(getpeername(fd, (void *)&a, &len));
}

static int make_name(int fd)
{
	struct sockaddr_thc a;
	socklen_t len = sizeof(a);

	return result(getsockname(fd, (void *)&a, &len));
}

/* Sets each of the module's options to its present value; stops at the first error. */
static int make_options(int fd)
{
	uint64_t value[] = { 0, 30000, 30000, 0, 1 << 20, 0 };
	int option, r = 0;

	for (option = THC_OPT_TIMEOUT; option <= THC_OPT_PARTIAL && r >= 0; option++)
		r = result(setsockopt(fd, SOL_THC, option, &value[option],
				      option == THC_OPT_MEMORY ? 8 : 4));
	if (r >= 0)
		r = set_key(fd, job_key, sizeof(job_key));
	return r;
}

static int make_queries(int fd)
{
	static struct described_job largest;
	int option, r = 0;
	socklen_t len;

	for (option = THC_OPT_TIMEOUT; option <= THC_OPT_FAILURE && r >= 0; option++) {
		len = sizeof(largest);
		r = result(getsockopt(fd, SOL_THC, option, &largest, &len));
	}
	return r;
}

static int make_epoll(int fd)
{
	struct epoll_event e = { .events = EPOLLIN };
	int epoll = epoll_create1(0), r;

	if (epoll < 0)
		return -errno;
	r = result(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e));
	if (r >= 0)
		r = result(epoll_wait(epoll, &e, 1, 2000));
	close(epoll);
	return r;
}

static int make_poll(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return result(poll(&p, 1, 2000));
}

static int make_shutdown(int fd)
{
	return result(shutdown(fd, SHUT_RDWR));
}

static int make_close(int fd)
{
	int copy = dup(fd);

	close(fd);
	return result(close(copy));
}

static int make_proc(int fd)
{
	char text[4096];
	int f = open("/proc/net/thc", O_RDONLY), n;

	(void)fd;
	if (f < 0)
		return -errno;
	n = result(read(f, text, sizeof(text)));
	close(f);
	return n;
}

/* --- netlink -------------------------------------------------------------- */

struct request {
	struct nlmsghdr		n;
	struct genlmsghdr	g;
	char			attrs[256];
};

static void put(struct request *r, int type, const void *data, int bytes)
{
	struct nlattr *a = (void *)((char *)r + NLMSG_ALIGN(r->n.nlmsg_len));

	a->nla_type = (unsigned short)type;
	a->nla_len = (unsigned short)(NLA_HDRLEN + bytes);
	memcpy((char *)a + NLA_HDRLEN, data, bytes);
	r->n.nlmsg_len = NLMSG_ALIGN(r->n.nlmsg_len) + NLA_ALIGN(a->nla_len);
}

static void begin(struct request *r, int family, int cmd, int flags)
{
	memset(r, 0, sizeof(*r));
	r->n.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	r->n.nlmsg_type = (unsigned short)family;
	r->n.nlmsg_flags = (unsigned short)(NLM_F_REQUEST | flags);
	r->g.cmd = (unsigned char)cmd;
	r->g.version = THC_GENL_VERSION;
}

/* -errno of the first answer, or 0. */
static int ask(int fd, struct request *r)
{
	char answer[8192];
	struct nlmsghdr *n = (void *)answer;
	long got;

	if (send(fd, r, r->n.nlmsg_len, 0) < 0)
		return -errno;
	got = recv(fd, answer, sizeof(answer), 0);
	if (got < 0)
		return -errno;
	if (n->nlmsg_type == NLMSG_ERROR)
		return ((struct nlmsgerr *)NLMSG_DATA(n))->error;
	return 0;
}

static int thc_family;

static int netlink(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC), family;
	char answer[4096];
	struct request r;
	struct nlattr *a;
	struct timeval patience = { .tv_sec = 2 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (thc_family)
		return fd;
	begin(&r, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
	put(&r, CTRL_ATTR_FAMILY_NAME, THC_GENL_NAME, sizeof(THC_GENL_NAME));
	if (send(fd, &r, r.n.nlmsg_len, 0) < 0 || recv(fd, answer, sizeof(answer), 0) < 0)
		return -1;
	/* an answer has the family's name first, and its id next */
	a = (void *)(answer + NLMSG_LENGTH(GENL_HDRLEN));
	a = (void *)((char *)a + NLA_ALIGN(a->nla_len));
	family = *(unsigned short *)((char *)a + NLA_HDRLEN);
	thc_family = family;
	return fd;
}

/* A job that stays, unlike make_job()'s. */
#define LASTING_JOB	10

static int new_job(int fd, unsigned short job)
{
	struct {
		struct nlattr	nest, ip;
		unsigned char	in[4];
	} aggregators = { { sizeof(aggregators), THC_ATTR_AGGREGATOR | NLA_F_NESTED },
			  { NLA_HDRLEN + 4, THC_AGGR_IPV4 },
			  { 127, 0, 0, 1 } };
	struct request r;

	begin(&r, thc_family, THC_CMD_JOB_NEW, NLM_F_ACK);
	put(&r, THC_ATTR_JOB, &job, sizeof(job));
	put(&r, THC_ATTR_KEY, job_key, sizeof(job_key));
	memcpy((char *)&r + r.n.nlmsg_len, &aggregators, sizeof(aggregators));
	r.n.nlmsg_len += sizeof(aggregators);
	return ask(fd, &r);
}

/* For calls that show a job. */
static int netlink_with_job(void)
{
	int fd = netlink(), error = new_job(fd, LASTING_JOB);

	if (error && error != -EEXIST) {
		fprintf(stderr, "a job without faults: %s\n", strerror(-error));
		exit(1);
	}
	return fd;
}

static int make_job(int fd)
{
	unsigned short job = 9;
	struct request r;
	int error = new_job(fd, job), gone;

	begin(&r, thc_family, THC_CMD_JOB_DEL, NLM_F_ACK);
	put(&r, THC_ATTR_JOB, &job, sizeof(job));
	gone = ask(fd, &r);
	/* it may be this call that meets the fault, before or after its work */
	if (gone == -ENOMEM || gone == -ENOBUFS || gone == -EFAULT)
		gone = ask(fd, &r);
	if (gone == -ENOENT)
		gone = 0;
	return error ? error : gone;
}

static int make_job_dump(int fd)
{
	struct request r;

	begin(&r, thc_family, THC_CMD_JOB_GET, NLM_F_DUMP);
	return ask(fd, &r);
}

static int make_job_get(int fd)
{
	unsigned short job = LASTING_JOB;
	struct request r;

	begin(&r, thc_family, THC_CMD_JOB_GET, 0);
	put(&r, THC_ATTR_JOB, &job, sizeof(job));
	return ask(fd, &r);
}

static int make_dump(int fd)
{
	struct request r;

	begin(&r, thc_family, THC_CMD_SOCKET_GET, NLM_F_DUMP);
	return ask(fd, &r);
}

static int make_stats(int fd)
{
	struct request r;

	begin(&r, thc_family, THC_CMD_STATS_GET, 0);
	return ask(fd, &r);
}

static const struct call calls[] = {
	{ "socket", none, make_socket, REFUSES },
	{ "bind", fresh, make_bind, REFUSES | SUMS },
	{ "connect", fresh, make_connect, REFUSES | SUMS },
	{ "connect, IPv6", fresh, make_connect6, REFUSES | SUMS6 },
	{ "connect again", connected, make_connect, REFUSES | SUMS },
	{ "getpeername", connected, make_peer_name, REFUSES | SUMS },
	{ "getsockname", connected, make_name, REFUSES | SUMS },
	{ "setsockopt", fresh, make_options, REFUSES | SUMS },
	{ "getsockopt", connected, make_queries, REFUSES | SUMS },
	{ "sendmsg", connected, do_send, REFUSES | SUMS },
	{ "sendmmsg", connected, make_sendmmsg, REFUSES | SUMS },
	{ "recvmsg", sent, do_receive, REFUSES | SUMS },
	{ "recvmmsg", sent_twice, make_recvmmsg, REFUSES | SUMS },
	{ "poll", sent, make_poll, REFUSES | SUMS },
	{ "epoll", sent, make_epoll, REFUSES | SUMS },
	{ "shutdown", connected, make_shutdown, 0 },
	{ "close", sent, make_close, 0 },
	{ "/proc/net/thc", none, make_proc, REFUSES },
	{ "netlink job", netlink, make_job, REFUSES },
	{ "netlink job get", netlink_with_job, make_job_get, REFUSES },
	{ "netlink jobs", netlink_with_job, make_job_dump, REFUSES },
	{ "netlink dump", netlink, make_dump, REFUSES },
	{ "netlink stats", netlink, make_stats, REFUSES },
};

/* --- the test ------------------------------------------------------------- */

static pid_t start_daemon(const char *at, int number)
{
	char job[96], port[8], path[4096], control[64];
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (write_key_file())
		_exit(126);
	snprintf(job, sizeof(job), "job=%d,ranks=1," JOB_KEY ",reply=fanout,rate=fixed", JOB);
	snprintf(port, sizeof(port), "%d", number);
	snprintf(control, sizeof(control), "/tmp/thc-failslab-%d.sock", number);
	snprintf(path, sizeof(path), "%s/thcd", getenv("BUILD") ?: "build");
	execl(path, "thcd", "--software", "--listen", at, "--port", port, "--control", control,
	      "--job", job, NULL);
	_exit(127);
}

FIXTURE(faults)
{
	pid_t	daemons[2];
	bool	seen[256];	/* errors that calls returned */
};

FIXTURE_SETUP(faults)
{
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fail_nth < 0) {
		ASSERT_STRNE(getenv("THC_VM_KERNEL") ?: "", "debug")
		TH_LOG("the debug kernel does not inject faults: %s", strerror(errno));
		SKIP(return, "this kernel injects no faults: the debug kernel does");
	}
	/* also fail allocations that may wait; do not log each failure */
	ASSERT_EQ(set_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N"), 0);
	ASSERT_EQ(set_file("/sys/kernel/debug/failslab/verbose", "0"), 0);
	ASSERT_EQ(set_file("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N"), 0);
	ASSERT_EQ(set_file("/sys/kernel/debug/fail_page_alloc/min-order", "0"), 0);
	ASSERT_EQ(set_file("/sys/kernel/debug/fail_page_alloc/verbose", "0"), 0);
	self->daemons[0] = start_daemon("127.0.0.1", PORT);
	self->daemons[1] = start_daemon("::1", PORT6);
	sleep(3);
}

FIXTURE_TEARDOWN(faults)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (self->daemons[i] > 0) {
			kill(self->daemons[i], SIGTERM);
			waitpid(self->daemons[i], NULL, 0);
		}
	}
	if (fail_nth >= 0)
		close(fail_nth);
}

static bool is_honest(int r)
{
	return r >= 0 || r == -ENOMEM || r == -ENOBUFS || r == -EAGAIN || r == -EINTR ||
	       r == -EMSGSIZE || r == -EFAULT || r == -ENFILE;
}

/* Makes one call with fault @n; true if the call met it. */
static bool try_one(struct __test_metadata *_metadata, const struct call *c, int n, int *r)
{
	int fd = c->prepare(), wrong = 0;
	bool met;

	ASSERT_TRUE(arm(n));
	*r = c->make(fd);
	met = disarm();
	EXPECT_TRUE(is_honest(*r))
	{
		TH_LOG("%s, allocation %d: %s", c->name, n, strerror(-*r));
	}
	if (c->asks & (SUMS | SUMS6))
		wrong = sums_wrong(fd, c->asks & SUMS ? AF_INET : AF_INET6);
	EXPECT_EQ(wrong, 0)
	{
		TH_LOG("%s, allocation %d: no sums afterwards, or memory is held: %d", c->name, n,
		       wrong);
	}
	if (fd >= 0)
		close(fd);
	return met;
}

TEST_F_TIMEOUT(faults, every_allocation_of_every_call, 800)
{
	unsigned int i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		const struct call *c = &calls[i];
		int n, r, refused = 0;

		for (n = 1; n <= TRIES && try_one(_metadata, c, n, &r); n++) {
			refused += r < 0;
			if (r < 0 && -r < 256)
				self->seen[-r] = true;
		}
		EXPECT_LE(n, TRIES);
		/* the call has fewer allocations than that */
		EXPECT_GE(r, 0)
		{
			TH_LOG("%s without a fault: %s", c->name, strerror(-r));
		}
		if (c->asks & REFUSES)
			EXPECT_GT(refused, 0)
			{
				TH_LOG("no fault was met in %s", c->name);
			}
		TH_LOG("%-16s %3d allocations, %3d of them refused the call", c->name, n - 1,
		       refused);
	}
	/* the calls' errors show that allocations and copies have failed */
	EXPECT_TRUE(self->seen[ENOMEM]);
	EXPECT_TRUE(self->seen[ENOBUFS]);
	EXPECT_TRUE(self->seen[ENFILE]);
	EXPECT_TRUE(self->seen[EFAULT]);
}

static bool new_namespace_meets(struct __test_metadata *_metadata, int home, int n)
{
	bool met;
	int r;

	ASSERT_TRUE(arm(n));
	r = result(unshare(CLONE_NEWNET));
	met = disarm();
	EXPECT_TRUE(is_honest(r))
	{
		TH_LOG("allocation %d: %s", n, strerror(-r));
	}
	ASSERT_EQ(setns(home, CLONE_NEWNET), 0);
	return met;
}

TEST_F_TIMEOUT(faults, last_allocations_of_a_namespace, 400)
{
	int home = open("/proc/thread-self/ns/net", O_RDONLY), least = 0, most = TOO_MANY;
	int n, met = 0, tried = 0;

	ASSERT_GE(home, 0);
	/* finds about how many allocations there are: the first fault that is not met */
	while (most - least > 1) {
		n = (least + most) / 2;
		if (new_namespace_meets(_metadata, home, n))
			least = n;
		else
			most = n;
	}
	/* the number varies: goes down from there until TRIES_NETNS faults have been met */
	for (n = least; n > 0 && met < TRIES_NETNS && tried < 10 * TRIES_NETNS; n--, tried++)
		met += new_namespace_meets(_metadata, home, n);
	TH_LOG("a namespace is made by about %d allocations, %d of the last %d failed", least, met,
	       tried);
	EXPECT_EQ(met, TRIES_NETNS);
	close(home);
}

TEST_HARNESS_MAIN
