// SPDX-License-Identifier: GPL-2.0
/*
 * A storm: everything that the other tests do one by one, at once. Threads make random calls
 * on sockets that others close meanwhile (storm_calls.h), forged packets arrive (storm_forge.h),
 * processes with joined sockets are killed, namespaces come and go, thcd is killed and
 * started again. Some ranks, which no other process disturbs, sum all the time, and each of
 * their sums is checked. At the end the module must unload within seconds.
 *
 *	aggregator's namespace      veth       workers' namespace
 *	thcd, forger  10.79.0.1, fd79::1 --- 10.79.0.2, fd79::2  all others
 *
 * Runs for 60 s on the debug kernel; elsewhere only if THC_STORM_SECONDS says how long.
 * THC_STORM_SEED repeats the random choices, though not the timing.
 */
#include "harness.h"
#include "storm_calls.h"
#include "storm_forge.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "netlink.h"

#define SECONDS		60
/* thcd is killed at this age, if by then all checked jobs have summed so often. */
#define LIFE_MS		3000
#define LIFE_SUMS	5
/* Longest time for these sums, since all other processes use the two processors, too. */
#define LIFE_PATIENCE_MS 120000
#define CHECKED_JOIN_MS	20000
/* Longest pause of the checked ranks, in which the storm has the processors. */
#define CHECKED_PAUSE_US 100000
/* Lives that a storm has at least. */
#define LIVES_LEAST	4
/* From the end of the last process to a module that has gone. */
#define REMOVE_MS	10000
#define CHECKED_CHUNKS	8

/* --- thcd ----------------------------------------------------------------- */

/* A child that does not outlive this process. */
static pid_t fork_child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

/* `thcd --software` with all jobs, at both addresses; a table that is not to be computed. */
static int start_all_jobs(struct daemon *d)
{
	static char job[JOBS][128];
	const char *argv[16 + 2 * JOBS] = { "thcd",	   "--software", "--listen", AGGREGATOR4,
					    "--listen",	   AGGREGATOR6,	 "--port",   NULL,
					    "--control",   NULL };
	char port[8], control[64];
	unsigned int i, n = 10;
	int out[2], error = write_key_file();

	if (error)
		return error;
	snprintf(port, sizeof(port), "%u", PORT);
	snprintf(control, sizeof(control), "/tmp/afthc-storm-%d.sock", getpid());
	argv[7] = port;
	argv[9] = control;
	for (i = 1; i < JOBS; i++) {
		snprintf(job[i], sizeof(job[i]),
			 "%u," JOB_KEY ",ranks=%u,slots=%u,table=uniform,reply=%s", i, RANKS,
			 JOB_SLOTS, job_is_v6(i) ? "fanout" : "multicast");
		argv[n++] = "--job";
		argv[n++] = job[i];
	}
	if (pipe2(out, O_CLOEXEC))
		return -errno;
	d->pid = fork_child();
	if (!d->pid) {
		dup2(out[1], 1);
		if (!getenv("THC_TEST_VERBOSE"))
			dup2(open("/dev/null", O_WRONLY), 2);
		execv(daemon_path(), (char **)argv);
		_exit(127);
	}
	close(out[1]);
	d->out = out[0];
	return is_ready(d->out) ? 0 : -ECHILD;
}

/* Least number of sums of a checked job since @before; *@job: which job. */
static uint32_t least_sums(const struct storm *s, const uint32_t *before, unsigned int *job)
{
	uint32_t least = UINT32_MAX, now;
	unsigned int i;

	for (i = JOB_V6; i < JOB_KILLED; i++) {
		now = __atomic_load_n(&s->sums[i], __ATOMIC_RELAXED) - before[i];
		if (now < least)
			*job = i;
		least = now < least ? now : least;
	}
	return least;
}

/* Starts thcd, and kills it after LIFE_MS and LIFE_SUMS sums of every checked job. */
static int run_aggregator(struct storm *s, struct rng r)
{
	struct daemon d = { 0 };
	uint32_t before[JOB_KILLED];
	unsigned int job = 0;
	uint64_t start;
	int error;

	for (;;) {
		memcpy(before, s->sums, sizeof(before));
		error = note(s, DAEMON, -start_all_jobs(&d));
		if (error)
			return 1;
		start = now_ms();
		while (now_ms() - start < LIFE_MS || least_sums(s, before, &job) < LIFE_SUMS) {
			sleep_ms(20);
			if (now_ms() - start < LIFE_PATIENCE_MS)
				continue;
			s->stalled = job;
			return 2;
		}
		stop_daemon(&d, SIGKILL);
		__atomic_fetch_add(&s->lives, 1, __ATOMIC_RELAXED);
		/* sometimes long enough for an ICMP error, sometimes not */
		sleep_ms(below(&r, 3) ? below(&r, 50) : below(&r, 2500));
	}
}

/* --- ranks whose sums are checked ----------------------------------------- */

/**
 * struct checked - both ranks of a job, of one process
 * @fd: their sockets
 * @chunk: the next one of the data stream
 */
struct checked {
	struct storm	*storm;
	struct rng	rng;
	unsigned int	job;
	int		fd[RANKS];
	uint32_t	chunk;
	uint64_t	tag;
};

static int join_checked(struct checked *c)
{
	unsigned int i;
	int error = 0;

	for (i = 0; i < RANKS && !error; i++) {
		struct sockaddr_thc a = aggregator_of(c->job, i);

		if (one_in(&c->rng, 4))
			close_all(&c->fd[i], 1);
		if (c->fd[i] < 0)
			c->fd[i] = thc_open(0);
		set_u32(c->fd[i], THC_OPT_JOIN_TIMEOUT, CHECKED_JOIN_MS);
		error = begin_join(c->fd[i], &a);
	}
	for (i = 0; i < RANKS && !error; i++) {
		error = note(c->storm, CHECKED_CONNECT, -end_join(c->fd[i]));
		tell_forgers(c->storm, c->job, i, c->fd[i]);
	}
	c->chunk = 0;
	return error;
}

static struct thc_send next_message(struct checked *c, size_t chunks)
{
	static const uint8_t ops[] = { THC_OP_LUT_ADD, THC_OP_ADD, THC_OP_OR, THC_OP_MAX,
				       THC_OP_CLAIM };
	struct target *t = &c->storm->target[c->job];
	struct thc_send s =
		describe(ops[below(&c->rng, sizeof(ops))], 32, (uint32_t)c->tag, c->tag);

	if (s.op == THC_OP_LUT_ADD)
		s.width = 4;
	if (s.op == THC_OP_ADD)
		s.width = (uint8_t)(8 << below(&c->rng, 3));
	c->tag++;
	t->op = s.op;
	t->width = s.op == THC_OP_LUT_ADD ? 8 : s.width;
	t->round = s.round;
	t->chunk = c->chunk;
	if (s.op == THC_OP_LUT_ADD || s.op == THC_OP_ADD)
		c->chunk += (uint32_t)chunks;
	return s;
}

/* Returns 0 if the sum was right; after any error all ranks have to join again. */
static int sum_checked(struct checked *c)
{
	size_t chunks = 1 + below(&c->rng, CHECKED_CHUNKS);
	struct thc_send s = next_message(c, chunks);
	uint16_t table[THC_LEVELS_MAX];
	uint8_t sum_width = job_table(c->fd[0], table);
	int bad = sum_width ? 0 : ENOTCONN;
	unsigned int i;

	for (i = 0; i < RANKS && !bad; i++)
		bad = note(c->storm, CHECKED_SEND, -send_part(c->fd[i], i, &s, chunks, sum_width));
	for (i = 0; i < RANKS && !bad; i++) {
		bad = check_answer(c->fd[i], &s, chunks, sum_width, RANKS, table);
		if (bad > 0) {
			printf("# job %u, op %u, width %u: rank %u has a wrong sum (%d)\n", c->job,
			       s.op, s.width, i, bad);
			fflush(stdout);
			__atomic_fetch_add(&c->storm->wrong, 1, __ATOMIC_RELAXED);
		}
		note(c->storm, CHECKED_RECEIVE, bad > 0 ? EBADMSG : -bad);
	}
	if (!bad)
		__atomic_fetch_add(&c->storm->sums[c->job], 1, __ATOMIC_RELAXED);
	return bad;
}

/* Calls on a checked socket that neither send nor receive a message. */
static void *disturb_checked(void *arg)
{
	static const struct call harmless[] = {
		{ 1, POLL, valid_poll },	       { 1, EPOLL, valid_epoll },
		{ 1, GETSOCKOPT, valid_getsockopt },   { 1, GETNAME, valid_getname },
		{ 1, BAD_BIND, bad_bind },	       { 1, BAD_CONNECT, bad_connect },
		{ 1, BAD_SENDMSG, bad_sendmsg },       { 1, BAD_RECVMSG, bad_recvmsg },
		{ 1, BAD_GETSOCKOPT, bad_getsockopt }, { 1, BAD_SETSOCKOPT, bad_setsockopt },
		{ 1, BAD_IOCTL, bad_ioctl },	       { 1, BAD_SHUTDOWN, bad_shutdown },
		{ 1, FOREIGN, foreign_call },
	};
	const unsigned int n = sizeof(harmless) / sizeof(harmless[0]);
	const struct checked *checked = arg;
	struct caller c = { .storm = checked->storm, .area = make_area() };
	struct thc_received r;
	unsigned int i;

	c.rng = rng_of(checked->rng.state, 99);
	for (;;) {
		i = below(&c.rng, n + 1);
		c.fd = __atomic_load_n(&checked->fd[below(&c.rng, RANKS)], __ATOMIC_RELAXED);
		if (i < n)
			note(c.storm, harmless[i].kind, harmless[i].make(&c));
		else
			receive_message(c.fd, c.area, AREA, &r, MSG_PEEK | MSG_DONTWAIT, NULL);
		usleep(1 + below(&c.rng, CHECKED_PAUSE_US));
	}
	return NULL;
}

static int run_checked(struct storm *s, struct rng r, unsigned int job)
{
	static struct checked c;
	bool joined = false;
	pthread_t thread;

	signal(SIGPIPE, SIG_IGN);
	memset(&c, 0, sizeof(c));
	memset(c.fd, 0xff, sizeof(c.fd));
	memset(places, 0xff, sizeof(places));
	c.storm = s;
	c.rng = r;
	c.job = job;
	c.tag = draw(&r);
	if (pthread_create(&thread, NULL, disturb_checked, &c))
		return 1;
	for (;;) {
		joined = joined ? !sum_checked(&c) : !join_checked(&c);
		usleep(1 + below(&c.rng, CHECKED_PAUSE_US));
	}
}

/* --- processes that are killed -------------------------------------------- */

static int join_prey(struct storm *s, int *fd)
{
	unsigned int i;
	int error = 0;

	for (i = 0; i < RANKS && !error; i++) {
		struct sockaddr_thc a = aggregator_of(JOB_KILLED, i);

		fd[i] = thc_open(0);
		error = begin_join(fd[i], &a);
	}
	for (i = 0; i < RANKS && !error; i++) {
		error = end_join(fd[i]);
		tell_forgers(s, JOB_KILLED, i, fd[i]);
	}
	return error;
}

/* Some messages, of which several are in flight. */
static int sum_prey(const int *fd, uint64_t tag)
{
	struct thc_send send = describe(THC_OP_ADD, 8, 1, tag);
	unsigned int i, messages = 3;
	int error = 0;

	for (i = 0; i < messages && !error; i++)
		error = send_part(fd[0], 0, &send, CHECKED_CHUNKS, 8);
	for (i = 0; i < messages && !error; i++)
		error = send_part(fd[1], 1, &send, CHECKED_CHUNKS, 8);
	for (i = 0; i < RANKS * messages && !error; i++) {
		char room[CHECKED_CHUNKS * ANSWER];
		struct thc_received r;

		error = receive_message(fd[i % RANKS], room, sizeof(room), &r, 0, NULL) < 0;
	}
	return error;
}

/* Sums until it is killed, and joins again when a forged packet has ended the epoch. */
static _Noreturn void run_prey(struct storm *s)
{
	int fd[RANKS] = { -1, -1 };
	uint64_t tag = 0;

	for (;;) {
		s->prey = !join_prey(s, fd);
		while (s->prey && !sum_prey(fd, tag++))
			;
		s->prey = false;
		close_all(fd, RANKS);
	}
}

/* Kills half of its processes after they have joined, the others at any time. */
static int run_hunter(struct storm *s, struct rng r)
{
	for (;;) {
		uint64_t patience = one_in(&r, 2) ? LIFE_PATIENCE_MS : below(&r, 1000);
		uint64_t start = now_ms();
		bool joined;
		int status;
		pid_t pid;

		s->prey = false;
		pid = fork_child();
		if (!pid)
			run_prey(s);
		while (!s->prey && now_ms() - start < patience)
			sleep_ms(5);
		sleep_ms(below(&r, 100));
		joined = s->prey;
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		note(s, KILL, !WIFSIGNALED(status) ? ECHILD : joined ? 0 : ENOTCONN);
	}
}

/* --- namespaces ----------------------------------------------------------- */

/* A socket of a namespace that has no process any more. */
static int use_from_elsewhere(void)
{
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), fd, udp, error;
	struct sockaddr_in worker;

	error = enter_netns();
	if (error)
		return error;
	fd = thc_open(0);
	udp = fake_open();
	if (setns(home, CLONE_NEWNET) || fd < 0 || udp < 0)
		return -EIO;
	error = fake_join(fd, udp, &worker);
	if (!error)
		error = send_part(fd, 1, &add8, CHECKED_CHUNKS, 8);
	close(udp);
	if (!error)
		error = send_part(fd, 1, &add8, CHECKED_CHUNKS, 8);
	return error;
}

/* A socket whose interface is deleted under it. */
static int lose_interface(struct rng *r)
{
	struct sockaddr_thc a = place("10.80.0.2", FAKE_PORT, 1, 1);
	int fd, error = enter_netns();

	if (!error &&
	    system("printf 'link add v0 type veth peer name v1\n"
		   "addr add 10.80.0.1/24 dev v0\nlink set v0 up\nlink set v1 up\n"
		   "neigh add 10.80.0.2 lladdr 02:00:00:00:00:01 dev v0\n' | ip -batch -"))
		error = -EIO;
	fd = thc_open(0);
	if (!error)
		error = begin_join(fd, &a);
	if (error)
		return error;
	usleep(1 + below(r, 100000));
	return system("ip link del v0") ? -EIO : 0;
}

/* A namespace ends while its socket has messages in flight. */
static int end_with_traffic(struct rng *r)
{
	int fd, udp, error = enter_netns();
	struct sockaddr_in worker;

	fd = thc_open(0);
	udp = fake_open();
	if (error || fd < 0 || udp < 0)
		return -EIO;
	error = fake_join(fd, udp, &worker);
	if (!error)
		error = send_part(fd, 1, &add8, 1 + below(r, 60), 8);
	usleep(1 + below(r, 30000));
	return error;
}

#define NAMESPACE_KINDS	3

static int use_namespace(unsigned int how, struct rng r)
{
	switch (how) {
	case 0:
		return use_from_elsewhere();
	case 1:
		return lose_interface(&r);
	}
	return end_with_traffic(&r);
}

/* Namespaces, one after another; the first of each kind is not killed early. */
static int run_namespaces(struct storm *s, struct rng r)
{
	unsigned int n;

	for (n = 0;; n++) {
		unsigned int how = n < NAMESPACE_KINDS ? n : below(&r, 4);
		int status;
		pid_t pid;

		draw(&r);
		pid = fork_child();
		if (!pid)
			_exit(-use_namespace(how, r));
		if (n >= NAMESPACE_KINDS && one_in(&r, 5)) {
			usleep(1 + below(&r, 300000));
			kill(pid, SIGKILL);
		}
		waitpid(pid, &status, 0);
		note(s, NAMESPACE, WIFSIGNALED(status) ? EINTR : WEXITSTATUS(status));
	}
}

/* --- who looks ------------------------------------------------------------ */

static int read_proc(void)
{
	char part[1000];
	int fd = open("/proc/net/thc", O_RDONLY | O_CLOEXEC), n = 1;

	if (fd < 0)
		return errno;
	while (n > 0)
		n = (int)read(fd, part, sizeof(part));
	close(fd);
	return n < 0 ? EIO : 0;
}

/* The administrator: host jobs that come and go, dumps. */
static int run_administrator(struct storm *s, struct rng r)
{
	struct reasons reasons;
	struct nl nl;

	if (nl_open(&nl))
		return 1;
	for (;;) {
		uint16_t job = (uint16_t)(JOB_WILD + below(&r, JOBS - JOB_WILD));

		switch (below(&r, 8)) {
		case 0:
			note(s, HOST_JOB, -nl_del_job(&nl, job));
			break;
		case 1:
			note(s, DUMP,
			     -nl_ask(&nl, nl_begin(&nl, nl.family, THC_CMD_SOCKET_GET, NLM_F_DUMP),
				     NULL, NULL));
			break;
		case 2:
			note(s, DUMP, -nl_reasons(&nl, &reasons));
			break;
		case 3:
		case 4:
			note(s, PROC, read_proc());
			break;
		default:
			note(s, HOST_JOB,
			     -nl_new_job(&nl, job, job_is_v6(job) ? AGGREGATOR6 : AGGREGATOR4, PORT,
					 0));
		}
		usleep(1 + below(&r, 50000));
	}
}

/* --- all of it ------------------------------------------------------------ */

enum role {
	AGGREGATOR,
	FORGER_DOWN,
	FORGER_UP,
	CHECKED_V6,
	CHECKED_GROUP,
	CALLERS_ALL,
	HUNTER,
	NAMESPACES,
	ADMINISTRATOR,
	ROLES
};

static const char *const role_name[ROLES + 1] = {
	"aggregator", "forger", "workers' forger", "checked ranks, IPv6", "checked ranks, group",
	"callers", "hunter", "namespaces", "administrator", "nobody",
};

static int play(enum role role, struct storm *s, struct rng r)
{
	switch (role) {
	case AGGREGATOR:
		return run_aggregator(s, r);
	case FORGER_DOWN:
		return run_forger(s, r, true);
	case FORGER_UP:
		return run_forger(s, r, false);
	case CHECKED_V6:
		return run_checked(s, r, JOB_V6);
	case CHECKED_GROUP:
		return run_checked(s, r, JOB_GROUP);
	case CALLERS_ALL:
		return run_callers(s, r);
	case HUNTER:
		return run_hunter(s, r);
	case NAMESPACES:
		return run_namespaces(s, r);
	default:
		return run_administrator(s, r);
	}
}

FIXTURE(storm)
{
	struct storm	*storm;
	int		aggregator;	/* its namespace */
	pid_t		role[ROLES];
	struct nl	nl;
};

/* The aggregator's namespace, and ours, which is the workers'. */
static int make_namespaces(int *aggregator)
{
	char command[800];
	int error = enter_netns();

	if (error)
		return error;
	*aggregator = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	error = enter_netns();
	if (error)
		return error;
	snprintf(command, sizeof(command),
		 "n=/proc/%d/fd/%d && ip link add w0 type veth peer name a0 netns $n && "
		 "ip addr add " WORKERS4 "/24 dev w0 && "
		 "ip addr add " WORKERS6 "/64 dev w0 nodad && "
		 "ip link set w0 up && nsenter --net=$n sh -c '"
		 "ip addr add " AGGREGATOR4 "/24 dev a0 && "
		 "ip addr add " AGGREGATOR6 "/64 dev a0 nodad && "
		 "ip link set a0 up && ip route add 239.0.0.0/8 dev a0'",
		 getpid(), *aggregator);
	return system(command) ? -EIO : 0;
}

static const char *why_no_storm(void)
{
	if (why_not())
		return why_not();
	if (!getenv("THC_STORM_SECONDS") && !on_debug_kernel())
		return "only on the debug kernel (make check-debug), or with THC_STORM_SECONDS";
	return NULL;
}

FIXTURE_SETUP(storm)
{
	memset(self, 0, sizeof(*self));
	self->aggregator = -1;
	if (why_no_storm())
		SKIP(return, "%s", why_no_storm());
	self->storm = mmap(NULL, sizeof(*self->storm), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(self->storm, MAP_FAILED);
	ASSERT_EQ(make_namespaces(&self->aggregator), 0);
	ASSERT_EQ(nl_open(&self->nl), 0);
	/* this process inherits, and waits for, orphans */
	ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

/* All processes, and theirs; true: all have ended. */
static bool end_roles(pid_t *role)
{
	uint64_t start = now_ms();
	int i;

	for (i = 0; i < ROLES; i++)
		if (role[i] > 0)
			kill(role[i], SIGKILL);
	memset(role, 0, ROLES * sizeof(*role));
	while (waitpid(-1, NULL, WNOHANG) >= 0) {
		if (now_ms() - start > PATIENCE_MS)
			return false;
		sleep_ms(10);
	}
	return errno == ECHILD;
}

FIXTURE_TEARDOWN(storm)
{
	end_roles(self->role);
	nl_close(&self->nl);
	close_all(&self->aggregator, 1);
}

static uint64_t seed_of_run(void)
{
	const char *text = getenv("THC_STORM_SEED");
	uint64_t seed;

	if (text)
		return strtoull(text, NULL, 0);
	return getrandom(&seed, sizeof(seed), 0) == sizeof(seed) ? seed : now_ms();
}

/* The storm's own processes leave the processors to the ranks whose sums are checked. */
#define STORM_NICE	10

static pid_t begin_role(enum role role, struct storm *s, int aggregator)
{
	bool sums = role == AGGREGATOR || role == CHECKED_V6 || role == CHECKED_GROUP;
	pid_t pid = fork_child();

	if (pid)
		return pid;
	if ((role == AGGREGATOR || role == FORGER_DOWN) && setns(aggregator, CLONE_NEWNET))
		_exit(100);
	if (!sums)
		setpriority(PRIO_PROCESS, 0, STORM_NICE);
	close_range(3, ~0U, 0);
	_exit(play(role, s, rng_of(s->seed, role)));
}

/* Which role has ended, though none may; ROLES: none. */
static enum role ended_role(const pid_t *role, int *status)
{
	int i;

	for (i = 0; i < ROLES; i++)
		if (waitpid(role[i], status, WNOHANG))
			return i;
	return ROLES;
}

/* A reason for which no forged packet has been refused yet, though packets are forged for
 * each of them; NULL: none is missing.
 */
static const char *missing_refusal(const struct reasons *r)
{
	static const char *const names[] = { "truncated", "version", "op",	   "length",
					     "tag",	  "key",     "unexpected", "address" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!reason_count(r, names[i]))
			return names[i];
	return NULL;
}

/* Everything random and rare has happened; a slow machine needs longer for it. */
static bool has_blown(const struct storm *s, struct nl *nl)
{
	struct reasons r;

	return s->lives >= LIVES_LEAST && !nl_reasons(nl, &r) && !missing_refusal(&r);
}

/* Waits until the time is over and has_blown(), or a role has ended. */
static void blow(struct __test_metadata *_metadata, struct storm *s, const pid_t *role,
		 struct nl *nl)
{
	uint64_t ms = 1000ULL * (unsigned int)atoi(getenv("THC_STORM_SECONDS") ?: "60");
	uint64_t most = ms + LIVES_LEAST * LIFE_PATIENCE_MS, start = now_ms(), past = 0;
	enum role ended = ROLES;
	int status = 0;

	while (ended == ROLES && !s->wrong && past < most && (past < ms || !has_blown(s, nl))) {
		sleep_ms(100);
		ended = ended_role(role, &status);
		past = now_ms() - start;
	}
	printf("# %.1f s, thcd was killed %u times\n", (double)past / 1000, s->lives);
	EXPECT_EQ(ended, ROLES)
	TH_LOG("%s: ended with status %#x%s", role_name[ended], status,
	       s->stalled ? ", a checked job does not sum any more" : "");
}

/* --- afterwards ----------------------------------------------------------- */

static void expect_calls(struct __test_metadata *_metadata, const struct storm *s)
{
	enum kind kind;
	int error;

	for (kind = 0; kind < KINDS; kind++) {
		const struct tally *t = &s->tally[kind];

		EXPECT_GT(t->called, 0) TH_LOG("%s: never called", kinds[kind].name);
		EXPECT_EQ(t->succeeded > 0, kinds[kind].expected == WORKS)
		TH_LOG("%s: %u have succeeded", kinds[kind].name, t->succeeded);
		/* errors such as ERESTARTSYS, and numbers without a name */
		for (error = 0; error < ERRNOS; error++)
			if (t->failed[error])
				EXPECT_NE(strerrorname_np(error), NULL)
		TH_LOG("%s: errno %d is not for users", kinds[kind].name, error);
	}
}

/* Each life of thcd but the last ended after LIFE_SUMS sums of each checked job, for each of which
 * every rank has sent and received.
 */
static void expect_sums(struct __test_metadata *_metadata, const struct storm *s)
{
	uint32_t least = s->lives * LIFE_SUMS, all = RANKS * JOBS_CHECKED * least;
	unsigned int job;

	EXPECT_EQ(s->wrong, 0);
	EXPECT_EQ(s->stalled, 0) TH_LOG("job %u did not sum in life %u", s->stalled, s->lives + 1);
	EXPECT_GE(s->lives, LIVES_LEAST);
	for (job = JOB_V6; job < JOB_KILLED; job++)
		EXPECT_GE(s->sums[job], least) TH_LOG("job %u", job);
	EXPECT_GE(s->tally[CHECKED_SEND].succeeded, all);
	EXPECT_GE(s->tally[CHECKED_RECEIVE].succeeded, all);
	printf("# sums checked: %u over IPv6, %u by the group; at least %u each\n", s->sums[JOB_V6],
	       s->sums[JOB_GROUP], least);
}

/* Forged packets have reached the sockets and were refused for many reasons. */
static void expect_refused(struct __test_metadata *_metadata, struct nl *nl)
{
	struct reasons r;
	size_t i;

	ASSERT_EQ(nl_reasons(nl, &r), 0);
	printf("# refused:");
	for (i = 0; i < (size_t)r.n; i++)
		if (r.packets[i])
			printf(" %s %llu", r.name[i], (unsigned long long)r.packets[i]);
	printf("\n");
	EXPECT_EQ(missing_refusal(&r), NULL) TH_LOG("none for %s", missing_refusal(&r));
}

/* 0 once the module has gone. */
static int remove_module(void)
{
	uint64_t start = now_ms();

	while (syscall(SYS_delete_module, "thc", O_NONBLOCK)) {
		if (errno != EWOULDBLOCK || now_ms() - start > REMOVE_MS)
			return -errno;
		sleep_ms(20);
	}
	printf("# the module has gone within %llu ms\n", (unsigned long long)(now_ms() - start));
	return 0;
}

/* Covers blow()'s longest time and the checks behind it. */
TEST_F_TIMEOUT(storm, calls_packets_kills_namespaces_and_restarts,
	       SECONDS + LIVES_LEAST * LIFE_PATIENCE_MS / 1000 + 100)
{
	struct daemon d = { 0 };
	int fd[2] = { -1, -1 };
	enum role role;

	self->storm->seed = seed_of_run();
	printf("# THC_STORM_SEED=%#llx\n", (unsigned long long)self->storm->seed);
	fflush(stdout);
	for (role = 0; role < ROLES; role++)
		self->role[role] = begin_role(role, self->storm, self->aggregator);
	blow(_metadata, self->storm, self->role, &self->nl);
	EXPECT_TRUE(end_roles(self->role)) TH_LOG("a process cannot be killed");
	print_table(self->storm);
	expect_calls(_metadata, self->storm);
	expect_sums(_metadata, self->storm);
	expect_refused(_metadata, &self->nl);
	if (!getenv("THC_VM_MODULE")) {
		printf("# the module is not removed: this is not tests/vm/check\n");
		return;
	}
	ASSERT_EQ(remove_module(), 0);
	ASSERT_NE(access("/sys/module/thc", F_OK), 0);
	ASSERT_EQ(system("modprobe thc"), 0);
	ASSERT_EQ(begin(&d, fd, JOB "2", 2), 0);
	EXPECT_EQ(all_reduce(fd, 2, &add8, 20), 0);
	close_all(fd, 2);
	stop_daemon(&d, SIGKILL);
}

TEST_HARNESS_MAIN
