// SPDX-License-Identifier: GPL-2.0
/*
 * Birth and death: namespaces that end with traffic in flight; a module that can be removed only
 * when no socket is open; kill -9 in every call that sleeps; no memory left after many sockets;
 * and what shows all that: /proc/net/thc and tracepoints.
 */
#include "afthc.h"
#include "harness.h"
#include "knownjob.h"
#include "seals.h"

#include <glob.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define AT	"127.0.0.1"
#define CYCLES	400
#define ROUNDS	4
#define ATTEMPTS	3

AFTHC_FIXTURE(life)

static int write_to(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	int error = !f || fputs(text, f) < 0;

	if (f)
		error |= fclose(f);
	return error;
}

/* --- what the kernel holds ------------------------------------------------ */

/* The first number in a file, or -1. */
static long number_in(const char *path)
{
	FILE *f = fopen(path, "r");
	long n = -1;

	if (f && fscanf(f, "%ld", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

/* Lines of a file that contain @word. */
static int lines_with(const char *path, const char *word)
{
	FILE *f = fopen(path, "r");
	char line[1024];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += !!strstr(line, word);
	if (f)
		fclose(f);
	return f ? n : -1;
}

static long references(void)
{
	return number_in("/sys/module/thc/refcnt");
}

static long meminfo(const char *what)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, what, strlen(what)))
			kib = atol(line + strlen(what) + 1);
	if (f)
		fclose(f);
	return kib;
}

/* Shrinks the slab caches. Freed objects count as in use: while KASAN keeps them on the debug
 * kernel, and in each slab that a CPU allocates from. Shrinking takes both back. The file system
 * copies written data to memory of the data's size; a page comes from a cache with few objects per
 * slab, where "1" alone would make 512 objects of kmalloc-8 look used.
 */
static void shrink_slabs(void)
{
	static char page[4096];
	glob_t g;
	size_t i;

	if (glob("/sys/kernel/slab/*/shrink", 0, NULL, &g))
		return;
	memset(page, '\n', sizeof(page));
	page[0] = '1';
	for (i = 0; i < g.gl_pathc; i++) {
		int fd = open(g.gl_pathv[i], O_WRONLY | O_CLOEXEC);

		if (fd >= 0 && write(fd, page, sizeof(page)) < 0)
			printf("# %s: %s\n", g.gl_pathv[i], strerror(errno));
		close(fd);
	}
	globfree(&g);
}

#define CACHES_MAX	512

/* Objects in use, by slab cache; merged caches may share one name. */
struct caches {
	int	n;
	char	name[CACHES_MAX][40];
	long	active[CACHES_MAX];
};

/* Reads the objects in use. Objects that a CPU holds in reserve count: call shrink_slabs() before.
 */
static int read_caches(struct caches *c)
{
	FILE *f = fopen("/proc/slabinfo", "r");
	char line[512];

	c->n = 0;
	while (f && c->n < CACHES_MAX && fgets(line, sizeof(line), f))
		c->n += sscanf(line, "%39s %ld", c->name[c->n], &c->active[c->n]) == 2;
	if (f)
		fclose(f);
	return c->n ? 0 : -ENOENT;
}

/* Returns -1 if there is no such cache. */
static long objects_of(const struct caches *c, const char *name)
{
	int i;

	for (i = 0; i < c->n; i++)
		if (!strcmp(c->name[i], name))
			return c->active[i];
	return -1;
}

/* Waits for long until @holds(): RCU and deferred vfree() free late. */
static bool settles(bool (*holds)(void))
{
	uint64_t start = now_ms();

	while (!holds()) {
		if (now_ms() - start > PATIENCE_MS)
			return false;
		sleep_ms(100);
	}
	return true;
}

static int messages_in_vmalloc(void)
{
	return lines_with("/proc/vmallocinfo", "thc_message");
}

static bool nothing_in_vmalloc(void)
{
	return messages_in_vmalloc() == 0;
}

static bool no_references(void)
{
	return references() == 0;
}

/* Removes the module. Returns 0, or the errno that rmmod would get. */
static int remove_module(void)
{
	return syscall(SYS_delete_module, "thc", O_NONBLOCK) ? errno : 0;
}

TEST_F(life, sockets_hold_the_module)
{
	ASSERT_TRUE(settles(no_references));
	ASSERT_TRUE(settles(nothing_in_vmalloc));
	self->fd[0] = thc_open(0);
	self->fd[1] = thc_open(0);
	EXPECT_GE(references(), 2);
	EXPECT_EQ(remove_module(), EWOULDBLOCK) TH_LOG("removed under an open socket");
	close_all(self->fd, 2);
	/* a joined socket with a message that the other rank does not answer */
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 20, 8), 0);
	EXPECT_GT(messages_in_vmalloc(), 0);
	EXPECT_EQ(remove_module(), EWOULDBLOCK) TH_LOG("removed with a message in flight");
	EXPECT_EQ(access("/sys/module/thc", F_OK), 0);
	close_all(self->fd, 2);
	EXPECT_TRUE(settles(no_references));
	EXPECT_TRUE(settles(nothing_in_vmalloc));
}

TEST_F(life, module_goes_and_comes_twice)
{
	int i;

	if (!getenv("THC_VM_MODULE"))
		SKIP(return, "only in a test machine: it removes the module");
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
		EXPECT_EQ(all_reduce(self->fd, 2, &add8, 20), 0);
		close_all(self->fd, 2);
		stop_daemon(&self->daemon, SIGKILL);
		ASSERT_TRUE(settles(no_references));
		ASSERT_EQ(system("rmmod thc"), 0);
		EXPECT_NE(access("/sys/module/thc", F_OK), 0);
		EXPECT_NE(access("/proc/net/thc", F_OK), 0);
		ASSERT_EQ(system("modprobe thc"), 0);
		self->fd[0] = thc_open(0);
		EXPECT_GE(self->fd[0], 0) TH_LOG("no socket of the module that came: %d", errno);
		close_all(self->fd, 1);
	}
}

/* Packets in the queue of loopback, or -1. */
static int packets_waiting(void)
{
	FILE *f = popen("tc -s qdisc show dev lo", "r");
	char line[256];
	int n = -1;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, " backlog %*[0-9KMGb] %dp", &n);
	if (f)
		pclose(f);
	return n;
}

static bool nothing_waits(void)
{
	return packets_waiting() == 0;
}

static int let_through(const char *rate)
{
	char command[160];

	snprintf(command, sizeof(command),
		 "tc qdisc replace dev lo root tbf rate %s burst 3000 limit 10000000", rate);
	return system(command);
}

/* The kernel calls no code of the module for packets that closed sockets left in a queue. */
TEST_F(life, module_goes_while_its_packets_wait)
{
	if (!getenv("THC_VM_MODULE"))
		SKIP(return, "only in a test machine: it removes the module");
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(let_through("1kbit"), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 40, 8), 0);
	close_all(self->fd, 2);
	stop_daemon(&self->daemon, SIGKILL);
	ASSERT_TRUE(settles(no_references));
	ASSERT_EQ(remove_module(), 0);
	EXPECT_GT(packets_waiting(), 10) TH_LOG("this showed nothing");
	ASSERT_EQ(let_through("100mbit"), 0);
	EXPECT_TRUE(settles(nothing_waits));
	ASSERT_EQ(system("modprobe thc"), 0);
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 20), 0);
}

/* --- namespaces ----------------------------------------------------------- */

/* Network namespaces, dying ones included; -1: the kernel does not say. */
static long namespaces(void)
{
	static struct caches c;

	write_to("/sys/kernel/slab/net_namespace/shrink", "1");
	return read_caches(&c) ? -1 : objects_of(&c, "net_namespace");
}

/* The number of namespaces once it has not changed for 3 s: then those of earlier tests have died.
 */
static long namespaces_settled(void)
{
	long n = namespaces(), before;
	int same = 0, i;

	for (i = 0; i < 100 && same < 10; i++) {
		before = n;
		sleep_ms(300);
		n = namespaces();
		same = n == before ? same + 1 : 0;
	}
	return n;
}

static long namespaces_before;

static bool namespaces_died(void)
{
	return namespaces() <= namespaces_before;
}

static int namespace_with_traffic(const char *at)
{
	int fd[2] = { -1, -1 }, i, error;
	struct daemon d;

	error = enter_netns();
	if (!error)
		error = start_daemon(&d, at, PORT, JOB "2", NULL);
	if (!error)
		error = join_all(fd, 2, at, PORT, 1);
	/* complete messages, and some that the other rank will never answer */
	for (i = 0; i < 4 && !error; i++)
		error = send_part(fd[0], 0, &add8, 300, 8);
	if (!error)
		error = send_part(fd[1], 1, &add8, 300, 8);
	if (!error)
		error = namespaces() <= namespaces_before;
	return error;	/* exit closes all sockets at once, in the middle of messages */
}

TEST_F_TIMEOUT(life, namespaces_end_with_traffic_in_flight, 60)
{
	int i, status;
	pid_t child;

	namespaces_before = namespaces_settled();
	ASSERT_GE(namespaces_before, 0);
	for (i = 0; i < 6; i++) {
		child = fork();
		if (!child)
			_exit(namespace_with_traffic(i % 2 ? "::1" : AT) ? 1 : 0);
		ASSERT_EQ(waitpid(child, &status, 0), child);
		EXPECT_EQ(status, 0);
	}
	EXPECT_TRUE(settles(namespaces_died))
	TH_LOG("%ld, not %ld", namespaces(), namespaces_before);
	EXPECT_TRUE(settles(no_references));
	EXPECT_TRUE(settles(nothing_in_vmalloc));
}

/* --- kill -9 -------------------------------------------------------------- */

enum call {
	IN_CONNECT,
	IN_SENDMSG_JOINING,
	IN_SENDMSG,
	IN_SENDMSG_TURN,
	IN_RECVMSG,
	IN_RECVMSG_TURN,
	IN_RECVMMSG,
	IN_POLL,
	IN_EPOLL,
	CALLS
};

static const long number_of[CALLS] = {
	[IN_CONNECT] = SYS_connect,   [IN_SENDMSG_JOINING] = SYS_sendmsg,
	[IN_SENDMSG] = SYS_sendmsg,   [IN_SENDMSG_TURN] = SYS_sendmsg,
	[IN_RECVMSG] = SYS_recvmsg,   [IN_RECVMSG_TURN] = SYS_recvmsg,
	[IN_RECVMMSG] = SYS_recvmmsg, [IN_POLL] = SYS_poll,
	[IN_EPOLL] = SYS_epoll_wait,
};

/**
 * struct holder - a thread that keeps the turn of a call
 * @page: memory that never comes
 */
struct holder {
	int		fd;
	bool		sends;
	void		*page;
	pthread_t	thread;
};

static void *hold(void *arg)
{
	struct holder *h = arg;
	struct thc_received r;

	if (h->sends)
		send_message(h->fd, h->page, LANES, &add8, 0);
	else
		receive_message(h->fd, h->page, ANSWER, &r, 0, NULL);
	_exit(2);
}

/* Another thread of this process holds the turn to send or to receive from now on. */
static void hold_turn(int fd, bool sends)
{
	static struct holder h;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	h.fd = fd;
	h.sends = sends;
	h.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (uintptr_t)h.page;
	reg.range.len = 4096;
	if (ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &reg) ||
	    pthread_create(&h.thread, NULL, hold, &h) || wait_for(uffd, POLLIN, PATIENCE_MS))
		_exit(3);
}

static void sleep_in_send(enum call call, int fd)
{
	struct sockaddr_thc a = place(AT, PORT, 1, 0);
	uint64_t bound = 12 << 10;

	if (call == IN_SENDMSG_JOINING) {
		begin_join(fd, &a);
		set_nonblock(fd, false);
	} else if (call == IN_SENDMSG) {
		setsockopt(fd, SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound));
		send_part(fd, 0, &add8, 1, 8);
	} else {
		hold_turn(fd, true);
	}
	send_part(fd, 0, &add8, 1, 8);
}

static void sleep_in_receive(enum call call, const int *fd)
{
	struct mmsghdr m = { 0 };
	unsigned int i;

	if (call == IN_RECVMSG_TURN) {
		for (i = 0; i < 2; i++)
			send_part(fd[i], i, &add8, 1, 8);
		wait_for(fd[0], POLLIN, PATIENCE_MS);
		hold_turn(fd[0], false);
	}
	if (call == IN_RECVMMSG)
		recvmmsg(fd[0], &m, 1, 0, NULL);
	else
		receive(fd[0], 0);
}

static void sleep_in(enum call call, const int *fd)
{
	struct sockaddr_thc a = place(AT, PORT, 1, 0);
	struct pollfd p = { .fd = fd[0], .events = POLLIN };
	struct epoll_event e = { .events = EPOLLIN };
	int epoll = epoll_create1(0);

	switch (call) {
	case IN_CONNECT:
		connect(fd[0], (void *)&a, sizeof(a));
		break;
	case IN_SENDMSG_JOINING:
	case IN_SENDMSG:
	case IN_SENDMSG_TURN:
		sleep_in_send(call, fd[0]);
		break;
	case IN_RECVMSG:
	case IN_RECVMSG_TURN:
	case IN_RECVMMSG:
		sleep_in_receive(call, fd);
		break;
	case IN_POLL:
		syscall(SYS_poll, &p, 1, -1);
		break;
	default:
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd[0], &e);
		syscall(SYS_epoll_wait, epoll, &e, 1, -1);
	}
	_exit(1);
}

/* Is the process's first thread asleep in this system call? */
static bool sleeps_in(pid_t pid, long number)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	if (number_in(path) != number)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d %*s %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return state == 'S';
}

/* Waits until the first thread sleeps in @number, seen twice so that it is no short sleep. */
static bool falls_asleep_in(pid_t pid, long number)
{
	uint64_t start = now_ms();
	int seen = 0;

	while (seen < 2 && now_ms() - start < PATIENCE_MS) {
		sleep_ms(50);
		seen = sleeps_in(pid, number) ? seen + 1 : 0;
	}
	return seen == 2;
}

TEST_F_TIMEOUT(life, kill_in_every_call_that_sleeps, 120)
{
	int call, status;
	uint64_t start;
	pid_t child;

	ASSERT_EQ(start_daemon(&self->daemon, AT, PORT, JOB "2", NULL), 0);
	for (call = 0; call < CALLS; call++) {
		int fd[2] = { -1, -1 };

		if (call == IN_CONNECT || call == IN_SENDMSG_JOINING)
			fd[0] = thc_open(0);
		else
			ASSERT_EQ(join_all(fd, 2, AT, PORT, 1), 0);
		child = fork();
		if (!child)
			sleep_in(call, fd);
		close_all(fd, 2);	/* the child's are the last */
		EXPECT_TRUE(falls_asleep_in(child, number_of[call])) TH_LOG("call %d", call);
		start = now_ms();
		kill(child, SIGKILL);
		ASSERT_EQ(waitpid(child, &status, 0), child);
		EXPECT_TRUE(WIFSIGNALED(status))
		TH_LOG("call %d did not sleep: status %d", call, WEXITSTATUS(status));
		EXPECT_LT(now_ms() - start, PATIENCE_MS);
	}
	EXPECT_TRUE(settles(no_references));
	EXPECT_TRUE(settles(nothing_in_vmalloc));
}

/* --- leaks ---------------------------------------------------------------- */

static int cycle(void)
{
	struct sockaddr_thc a = place(AT, PORT, 1, 0);
	int fd = thc_open(0), error;

	error = connect(fd, (void *)&a, sizeof(a)) ? -errno : all_reduce(&fd, 1, &add8, 3);
	close(fd);
	return error;
}

/* Rounds in which a cache grew by at least an object in every second cycle. Objects of other users
 * come and go (up to 445 in a round have been seen); objects that a cycle leaks grow equally in
 * every round.
 */
static int rounds_grown(const struct caches *at, const char *name, int cycles)
{
	int round, n = 0;
	long before;

	for (round = 0; round < ROUNDS; round++) {
		before = objects_of(&at[round], name);
		n += objects_of(&at[round + 1], name) - (before < 0 ? 0 : before) > cycles / 2;
	}
	return n;
}

/* vfree() gives back addresses late, many at once. /proc/vmallocinfo showed that these were not
 * leaks.
 */
static bool is_lazy(const char *name)
{
	return !strcmp(name, "vmap_area");
}

/* Names a cache in which each cycle leaves an object of any size, or NULL. On the debug kernel
 * KASAN and kmemleak add an object for each, and kmemleak finds the leaks.
 */
static const char *grown_cache(const struct caches *at, int cycles)
{
	const struct caches *last = &at[ROUNDS];
	int i;

	if (on_debug_kernel()) {
		printf("# caches are not compared: this is the debug kernel\n");
		return NULL;
	}
	for (i = 0; i < last->n; i++) {
		if (is_lazy(last->name[i]) || rounds_grown(at, last->name[i], cycles) < ROUNDS - 1)
			continue;
		printf("# a cycle leaves objects in %s: %ld more\n", last->name[i],
		       last->active[i] - objects_of(&at[0], last->name[i]));
		return last->name[i];
	}
	return NULL;
}

/**
 * struct growth - memory that rounds of cycles have left
 * @slab: KiB of unreclaimable slab, in all rounds
 * @percpu: KiB, in the round in which it grew least
 * @at: caches before and after each round
 */
struct growth {
	long		slab, percpu;
	struct caches	at[ROUNDS + 1];
};

/* 0, or the error of a cycle. */
static int run_rounds(struct growth *g, int each)
{
	int round, i, error = 0;

	g->slab = 0;
	g->percpu = LONG_MAX;
	shrink_slabs();
	if (read_caches(&g->at[0]))
		return -ENOENT;
	for (round = 0; round < ROUNDS && !error; round++) {
		long slab = meminfo("SUnreclaim:"), percpu = meminfo("Percpu:");

		for (i = 0; i < each && !error; i++)
			error = cycle();
		if (!error && !settles(nothing_in_vmalloc))
			error = -EBUSY;
		shrink_slabs();
		read_caches(&g->at[round + 1]);
		slab = meminfo("SUnreclaim:") - slab;
		percpu = meminfo("Percpu:") - percpu;
		g->slab += slab;
		g->percpu = percpu < g->percpu ? percpu : g->percpu;
		printf("# %d cycles: unreclaimable slab %+ld KiB, percpu %+ld KiB\n", each, slab,
		       percpu);
	}
	return error;
}

/* Memory of other users may grow for some rounds; a leak of the cycles grows in every round. */
TEST_F_TIMEOUT(life, many_cycles_leave_nothing, 110)
{
	int cycles = atoi(getenv("THC_CYCLES") ?: "0"), i, most;
	const char *grown = "";
	static struct growth g;
	uint64_t start;

	/* on the debug kernel kmemleak finds leaks */
	if (!cycles)
		cycles = on_debug_kernel() ? CYCLES / 4 : CYCLES;
	most = cycles > CYCLES ? cycles : CYCLES;
	ASSERT_EQ(start_daemon(&self->daemon, AT, PORT, JOB "1", NULL), 0);
	for (i = 0; i < 50; i++)
		ASSERT_EQ(cycle(), 0);
	for (i = 0; i < ATTEMPTS && grown; i++) {
		start = now_ms();
		ASSERT_EQ(run_rounds(&g, cycles / ROUNDS), 0);
		printf("# %llu ms\n", (unsigned long long)(now_ms() - start));
		grown = g.slab < most ? grown_cache(g.at, cycles / ROUNDS) : "slab";
	}
	EXPECT_EQ(grown, NULL) TH_LOG("%s grew in each of %d attempts", grown, i);
	/* slab may have merged THC's cache with others */
	if (objects_of(&g.at[0], "THC") >= 0)
		EXPECT_LE(objects_of(&g.at[ROUNDS], "THC"), objects_of(&g.at[0], "THC") + 16);
	/* catches leaks that are large but not in every cycle */
	EXPECT_LT(g.slab, most);
	/* a leak grows in every round, other users' memory does not */
	EXPECT_LE(g.percpu, 0);
	EXPECT_TRUE(settles(no_references));
}

/* --- /proc and tracepoints ------------------------------------------------ */

/* In decimal or in hexadecimal digits. */
static bool proc_has(uint64_t number)
{
	char decimal[24], hexadecimal[24];

	snprintf(decimal, sizeof(decimal), "%llu", (unsigned long long)number);
	snprintf(hexadecimal, sizeof(hexadecimal), "%llx", (unsigned long long)number);
	return lines_with("/proc/net/thc", decimal) || lines_with("/proc/net/thc", hexadecimal);
}

TEST_F(life, proc_has_a_line_for_each_socket)
{
	struct job_seals seals;
	struct known_job j;

	EXPECT_EQ(lines_with("/proc/net/thc", ""), 1);
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	self->fd[2] = thc_open(0);
	EXPECT_EQ(lines_with("/proc/net/thc", ""), 4);
	EXPECT_EQ(lines_with("/proc/net/thc", "ready"), 2);
	EXPECT_EQ(lines_with("/proc/net/thc", "idle"), 1);
	EXPECT_EQ(lines_with("/proc/net/thc", "127.0.0.1:18500"), 2);
	/* shows neither the key nor keys derived from it */
	EXPECT_EQ(lines_with("/proc/net/thc", "5eed1234"), 0);
	ASSERT_EQ(know_job(self->fd[0], &j), 0);
	job_seals_set(&seals, job_key, 1, j.spec.salt);
	EXPECT_FALSE(proc_has(seals.join.sip[0]));
	EXPECT_FALSE(proc_has(seals.lost.sip[0]));
	EXPECT_FALSE(proc_has(seals.up.sip[0]));
	EXPECT_FALSE(proc_has(seals.down.sip[0]));
	close_all(self->fd, 3);
	EXPECT_EQ(lines_with("/proc/net/thc", ""), 1);
}

#define TRACING	"/sys/kernel/tracing"

TEST_F(life, tracepoints_fire)
{
	static const char *const points[] = { "thc_drop:", "thc_answer:", "thc_message:",
					      "thc_retransmit:", "thc_break:" };
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int udp = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_thc name;
	socklen_t len = sizeof(name);
	size_t i;

	if (access(TRACING "/trace", F_OK))
		mount("tracefs", TRACING, "tracefs", 0, NULL);
	ASSERT_EQ(write_to(TRACING "/events/thc/enable", "1"), 0);
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(all_reduce(self->fd, 2, &add8, 3), 0);
	ASSERT_EQ(getsockname(self->fd[0], (void *)&name, &len), 0);
	to.sin_port = name.sthc_port;
	ASSERT_EQ(sendto(udp, "short", 5, 0, (void *)&to, sizeof(to)), 5);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 300), 0);
	stop_daemon(&self->daemon, SIGKILL);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLERR, PATIENCE_MS), 0);
	write_to(TRACING "/events/thc/enable", "0");
	for (i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		EXPECT_GE(lines_with(TRACING "/trace", points[i]), 1) TH_LOG("point %zu", i);
	EXPECT_GE(lines_with(TRACING "/trace", "reason=address"), 1);
	write_to(TRACING "/trace", "");
	close(udp);
}

TEST_HARNESS_MAIN
