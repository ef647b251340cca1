// SPDX-License-Identifier: GPL-2.0
/*
 * Every allocation, and every copy from or to the caller, inside every system
 * call fails once: the call then succeeds all the same or says so, and the
 * kernel's log and kmemleak (tests/vm/check) stay silent. Needs the debug
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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kselftest_harness.h>

#define PORT	18700
#define COOKIE	0x1234
#define JOB	1
#define CHUNKS	5
/* Allocations of one call, at most; a call with more is a mistake of the test. */
#define TRIES	400

/* --- fault injection ------------------------------------------------------ */

static int fail_nth = -1;

static void set_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

/* From now on the @n-th allocation of this task fails. */
static void arm(int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", n);
	if (pwrite(fail_nth, text, strlen(text), 0) < 0)
		perror("fail-nth");
}

/* Ends that; true if one has failed. Copies from and to users count as well: it
 * may be this one that fails, and then the call before had no fault to meet.
 */
static bool disarm(void)
{
	char text[16] = "";
	bool failed = pread(fail_nth, text, sizeof(text) - 1, 0) > 0 && !atoi(text);

	arm(0);
	return failed;
}

/* --- what is called ------------------------------------------------------- */

/* A call to be made with its @n-th allocation failing; returns -errno or more. */
struct call {
	const char	*name;
	int		(*prepare)(void);	/* a descriptor for @make */
	int		(*make)(int fd);
};

static struct sockaddr_thc aggregator(void)
{
	struct sockaddr_thc a = {
		.sthc_family = AF_THC, .sthc_inet = AF_INET, .sthc_port = htons(PORT),
		.sthc_job = JOB, .sthc_cookie = COOKIE,
	};

	inet_pton(AF_INET, "127.0.0.1", a.sthc_addr);
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
	return socket(AF_THC, SOCK_SEQPACKET, 0);
}

static int connected(void)
{
	struct sockaddr_thc a = aggregator();
	int fd = fresh();

	if (fd >= 0 && connect(fd, (void *)&a, sizeof(a))) {
		perror("connect without faults");
		exit(1);
	}
	return fd;
}

static int do_send(int fd)
{
	union {
		struct cmsghdr	align;
		char		room[CMSG_SPACE(sizeof(struct thc_send))];
	} control = { .room = { 0 } };
	static unsigned char payload[CHUNKS * 512];
	struct iovec all = { payload, sizeof(payload) };
	struct msghdr m = {
		.msg_iov = &all, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control.room),
	};
	struct thc_send send = { .op = THC_OP_LUT_ADD, .width = 4 };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_THC;
	c->cmsg_type = THC_SEND;
	c->cmsg_len = CMSG_LEN(sizeof(send));
	memcpy(CMSG_DATA(c), &send, sizeof(send));
	return result(sendmsg(fd, &m, MSG_NOSIGNAL));
}

static int do_receive(int fd)
{
	static unsigned char payload[CHUNKS * 1026];
	char control[CMSG_SPACE(sizeof(struct thc_received))];
	struct iovec all = { payload, sizeof(payload) };
	struct msghdr m = {
		.msg_iov = &all, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};

	return result(recvmsg(fd, &m, 0));
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

static int make_socket(int fd)
{
	int s = fresh();

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

static int make_connect(int fd)
{
	struct sockaddr_thc a = aggregator();

	return result(connect(fd, (void *)&a, sizeof(a)));
}

static int make_name(int fd)
{
	struct sockaddr_thc a;
	socklen_t len = sizeof(a);

	return result(getpeername(fd, (void *)&a, &len));
}

static int make_option(int fd)
{
	uint32_t ms = 30000;

	return result(setsockopt(fd, SOL_THC, THC_OPT_TIMEOUT, &ms, sizeof(ms)));
}

static int make_query(int fd)
{
	struct thc_socket_stats s;
	socklen_t len = sizeof(s);

	return result(getsockopt(fd, SOL_THC, THC_OPT_STATS, &s, &len));
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
	/* the name comes first, the id next */
	a = (void *)(answer + NLMSG_LENGTH(GENL_HDRLEN));
	a = (void *)((char *)a + NLA_ALIGN(a->nla_len));
	family = *(unsigned short *)((char *)a + NLA_HDRLEN);
	thc_family = family;
	return fd;
}

static int make_job(int fd)
{
	struct {
		struct nlattr	nest, ip;
		unsigned char	in[4];
	} aggregators = { { sizeof(aggregators), THC_ATTR_AGGREGATOR | NLA_F_NESTED },
			  { NLA_HDRLEN + 4, THC_AGGR_IPV4 },
			  { 127, 0, 0, 1 } };
	unsigned short job = 9;
	unsigned long long cookie = COOKIE;
	struct request r;
	int error, gone;

	begin(&r, thc_family, THC_CMD_JOB_NEW, NLM_F_ACK);
	put(&r, THC_ATTR_JOB, &job, sizeof(job));
	put(&r, THC_ATTR_COOKIE, &cookie, sizeof(cookie));
	memcpy((char *)&r + r.n.nlmsg_len, &aggregators, sizeof(aggregators));
	r.n.nlmsg_len += sizeof(aggregators);
	error = ask(fd, &r);
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
	{ "socket", none, make_socket },
	{ "bind", fresh, make_bind },
	{ "connect", fresh, make_connect },
	{ "connect again", connected, make_connect },
	{ "getpeername", connected, make_name },
	{ "setsockopt", fresh, make_option },
	{ "getsockopt", connected, make_query },
	{ "sendmsg", connected, do_send },
	{ "recvmsg", sent, do_receive },
	{ "poll", sent, make_poll },
	{ "shutdown", connected, make_shutdown },
	{ "close", sent, make_close },
	{ "/proc/net/thc", none, make_proc },
	{ "netlink job", netlink, make_job },
	{ "netlink dump", netlink, make_dump },
	{ "netlink stats", netlink, make_stats },
};

/* --- the test ------------------------------------------------------------- */

static pid_t start_daemon(void)
{
	pid_t pid = fork();
	char job[64], port[8], path[4096];

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(job, sizeof(job), "job=%d,ranks=1,cookie=%#x,reply=fanout", JOB, COOKIE);
	snprintf(port, sizeof(port), "%d", PORT);
	snprintf(path, sizeof(path), "%s/thcd", getenv("BUILD") ?: "build");
	execl(path, "thcd", "--software", "--listen", "127.0.0.1", "--port", port, "--control",
	      "/tmp/thc-failslab.sock", "--job", job, NULL);
	_exit(127);
}

FIXTURE(faults)
{
	pid_t daemon;
};

FIXTURE_SETUP(faults)
{
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fail_nth < 0)
		SKIP(return, "this kernel injects no faults: the debug kernel does");
	/* those that may wait, too; no word in the log for each */
	set_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	set_file("/sys/kernel/debug/failslab/verbose", "0");
	set_file("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	set_file("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	set_file("/sys/kernel/debug/fail_page_alloc/verbose", "0");
	self->daemon = start_daemon();
	sleep(3);
}

FIXTURE_TEARDOWN(faults)
{
	if (self->daemon > 0) {
		kill(self->daemon, SIGTERM);
		waitpid(self->daemon, NULL, 0);
	}
	if (fail_nth >= 0)
		close(fail_nth);
}

static bool is_honest(int r)
{
	return r >= 0 || r == -ENOMEM || r == -ENOBUFS || r == -EAGAIN || r == -EINTR ||
	       r == -EMSGSIZE || r == -EFAULT || r == -ENFILE;
}

TEST_F_TIMEOUT(faults, every_allocation_of_every_call, 800)
{
	unsigned int i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		const struct call *c = &calls[i];
		int n, failed = 0, refused = 0;

		for (n = 1; n <= TRIES; n++) {
			int fd = c->prepare(), r;
			bool met;

			arm(n);
			r = c->make(fd);
			met = disarm();
			EXPECT_TRUE(is_honest(r))
			{
				TH_LOG("%s, allocation %d: %s", c->name, n, strerror(-r));
			}
			if (fd >= 0)
				close(fd);
			if (!met) {
				/* the call has fewer allocations than that */
				EXPECT_GE(r, 0)
				{
					TH_LOG("%s without a fault: %s", c->name, strerror(-r));
				}
				break;
			}
			failed++;
			refused += r < 0;
		}
		EXPECT_LE(n, TRIES);
		TH_LOG("%-16s %3d allocations, %3d of them refused the call", c->name, failed,
		       refused);
	}
}

TEST_HARNESS_MAIN
