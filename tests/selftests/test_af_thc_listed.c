// SPDX-License-Identifier: GPL-2.0
/*
 * A job with several aggregators, at the address of aggregator 0, whose list opens the others, for
 * blocking and non-blocking calls (kmod/listed.c). Wrong lists, and lists that change. Sums over
 * many aggregators, and which aggregator a failure names.
 */
#include "cgroup.h"
#include "fake.h"
#include "harness.h"
#include "knownjob.h"
#include "waiting.h"

#define AT		"127.0.0.1"
#define DAEMONS_MAX	16
/* A job's description without ranks and shards. */
#define SHARDED		"1," JOB_OF_TEST ",seed=9,slots=32,ranks="

FIXTURE(listed)
{
	struct daemon daemon[DAEMONS_MAX];
	int fd[RANKS_MAX];
};

FIXTURE_SETUP(listed)
{
	memset(self->daemon, 0, sizeof(self->daemon));
	memset(self->fd, 0xff, sizeof(self->fd));
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	self->fd[0] = thc_open(0);
	ASSERT_GE(self->fd[0], 0);
}

FIXTURE_TEARDOWN(listed)
{
	unsigned int i;

	close_all(self->fd, RANKS_MAX);
	for (i = 0; i < DAEMONS_MAX; i++)
		stop_daemon(&self->daemon[i], SIGKILL);
}

static int start_shards(struct daemon *d, const char *job, unsigned int n)
{
	unsigned int i;
	int error = 0;

	for (i = 0; i < n && !error; i++)
		error = start_shard(&d[i], job, i, n);
	return error;
}

static unsigned int shards_of(int fd)
{
	struct known_job known;

	return know_job(fd, &known) ? 0 : known.shards;
}

/* --- sums ----------------------------------------------------------------- */

static const size_t sizes[] = { 1, 2, 3, 15, 17, 64, 129, 1, 200 };

/* Every lane is in its place, for any number of chunks and of earlier chunks. */
static int sum_all(int *fd, unsigned int ranks)
{
	size_t i, chunks = 0;
	int bad = 0;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !bad; i++) {
		struct thc_send add = describe(THC_OP_ADD, 32, (uint32_t)i, 10 + i);
		struct thc_send lut = describe(THC_OP_LUT_ADD, 4, (uint32_t)i, 30 + i);
		struct thc_send max = describe(THC_OP_MAX, 32, (uint32_t)i, 50 + i);

		bad = all_reduce(fd, ranks, &add, sizes[i]);
		if (!bad)
			bad = all_reduce(fd, ranks, &lut, sizes[i]);
		if (!bad)
			bad = all_reduce(fd, ranks, &max, sizes[i]);
		chunks += 3 * sizes[i];
	}
	return bad ? bad : stats_of(fd[0]).chunks == chunks ? 0 : 1;
}

/* @killed: which of the @n aggregators is killed, and named by the failure. */
static void sum_over(struct __test_metadata *_metadata, struct daemon *d, int *fd, unsigned int n,
		     unsigned int killed)
{
	struct thc_send or = describe(THC_OP_OR, 32, 99, 99);
	struct thc_failure f;

	ASSERT_EQ(start_shards(d, SHARDED "2", n), 0);
	ASSERT_EQ(join_all(fd, 2, AT, shard_port(0), 1), 0);
	EXPECT_EQ(shards_of(fd[0]), n);
	EXPECT_EQ(shards_of(fd[1]), n);
	EXPECT_EQ(sum_all(fd, 2), 0);
	EXPECT_EQ(stats_of(fd[0]).memory, 0);
	stop_daemon(&d[killed], SIGKILL);
	/* long enough for a slow machine: an ICMP error tells at once that nobody listens */
	ASSERT_EQ(set_u32(fd[0], THC_OPT_TIMEOUT, 30000), 0);
	/* the other aggregators have the data of all ranks */
	ASSERT_EQ(send_part(fd[0], 0, & or, 2 * n, 8), 0);
	ASSERT_EQ(send_part(fd[1], 1, & or, 2 * n, 8), 0);
	ASSERT_EQ(wait_for(fd[0], POLLERR, PATIENCE_MS), 0);
	f = failure_of(fd[0]);
	EXPECT_NE(f.error, 0);
	EXPECT_EQ(f.shard, killed);
}

TEST_F_TIMEOUT(listed, sums_over_3_aggregators, 60)
{
	sum_over(_metadata, self->daemon, self->fd, 3, 1);
}

/* Sixteen daemons take the debug kernel a minute: there it is five. */
TEST_F_TIMEOUT(listed, sums_over_16_aggregators, 120)
{
	unsigned int n = on_debug_kernel() ? 5 : 16;

	if (n < 16)
		printf("# %u aggregators on this kernel\n", n);
	sum_over(_metadata, self->daemon, self->fd, n, n - 2);
}

/* --- connect() ------------------------------------------------------------ */

TEST_F(listed, connect_that_waits_opens_the_others)
{
	struct sockaddr_thc a = place(AT, shard_port(0), 1, 0), name;
	socklen_t len = sizeof(name);

	ASSERT_EQ(start_shards(self->daemon, SHARDED "1", 3), 0);
	ASSERT_EQ(connect_errno(self->fd[0], &a, sizeof(a)), 0);
	EXPECT_EQ(shards_of(self->fd[0]), 3);
	EXPECT_EQ(sum_all(self->fd, 1), 0);
	/* getpeername() returns the address that connect() was given */
	ASSERT_EQ(getpeername(self->fd[0], (void *)&name, &len), 0);
	EXPECT_EQ(memcmp(&name, &a, sizeof(a)), 0);
	/* joins once more */
	ASSERT_EQ(connect_errno(self->fd[0], &a, sizeof(a)), 0);
	EXPECT_EQ(shards_of(self->fd[0]), 3);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 7), 0);
}

/* Two blocking calls: one opens the other aggregators, and both return. */
TEST_F(listed, connect_that_waits_goes_on_after_another_process)
{
	struct sockaddr_thc a = place(AT, shard_port(0), 1, 0);
	pid_t pid;
	int status;

	ASSERT_EQ(start_shards(self->daemon, SHARDED "1", 3), 0);
	pid = fork();
	if (!pid)
		_exit(connect_errno(self->fd[0], &a, sizeof(a)));
	EXPECT_EQ(connect_errno(self->fd[0], &a, sizeof(a)), 0);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(shards_of(self->fd[0]), 3);
}

static int connect_again(int fd, const struct sockaddr_thc *a)
{
	return connect_errno(fd, a, sizeof(*a));
}

TEST_F(listed, connect_that_does_not_wait)
{
	struct sockaddr_thc a = place(AT, shard_port(0), 1, 0);
	uint32_t epoch;

	ASSERT_EQ(start_shards(self->daemon, SHARDED "1", 3), 0);
	ASSERT_EQ(set_nonblock(self->fd[0], true), 0);
	EXPECT_EQ(connect_again(self->fd[0], &a), EINPROGRESS);
	ASSERT_EQ(wait_for(self->fd[0], POLLOUT, PATIENCE_MS), 0);
	EXPECT_EQ(poll_now(self->fd[0]), POLLPRI | POLLOUT);
	EXPECT_EQ(shards_of(self->fd[0]), 1);
	sleep_ms(300);
	EXPECT_EQ(poll_now(self->fd[0]), POLLPRI | POLLOUT) TH_LOG("nobody has opened them");
	EXPECT_EQ(connect_again(self->fd[0], &a), EALREADY);
	ASSERT_EQ(wait_for(self->fd[0], POLLOUT, PATIENCE_MS), 0);
	EXPECT_EQ(poll_now(self->fd[0]), POLLOUT);
	epoch = epoch_of(self->fd[0]);
	EXPECT_EQ(connect_again(self->fd[0], &a), 0) TH_LOG("it does not tell the end");
	EXPECT_EQ(shards_of(self->fd[0]), 3);
	EXPECT_EQ(epoch_of(self->fd[0]), epoch);
	ASSERT_EQ(set_nonblock(self->fd[0], false), 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 7), 0);
	/* a connection whose result has been told begins anew */
	ASSERT_EQ(set_nonblock(self->fd[0], true), 0);
	EXPECT_EQ(connect_again(self->fd[0], &a), EINPROGRESS);
	EXPECT_EQ(end_join(self->fd[0]), 0);
	EXPECT_GT(epoch_of(self->fd[0]), epoch);
}

/* A call after the end tells how the join has ended, if that was badly, too. */
TEST_F(listed, connect_that_does_not_wait_tells_a_failure)
{
	struct sockaddr_thc a = place(AT, shard_port(0), 1, 0);

	ASSERT_EQ(start_shard(&self->daemon[0], SHARDED "1", 0, 2), 0);
	ASSERT_EQ(set_nonblock(self->fd[0], true), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 1500), 0);
	ASSERT_EQ(connect_again(self->fd[0], &a), EINPROGRESS);
	ASSERT_EQ(wait_for(self->fd[0], POLLPRI, PATIENCE_MS), 0);
	ASSERT_EQ(connect_again(self->fd[0], &a), EALREADY);
	ASSERT_EQ(wait_for(self->fd[0], POLLERR, PATIENCE_MS), 0);
	EXPECT_EQ(connect_again(self->fd[0], &a), ECONNREFUSED) TH_LOG("it began anew");
	/* what has been told begins anew */
	EXPECT_EQ(connect_again(self->fd[0], &a), EINPROGRESS);
	/* sendmsg() tells it, too */
	ASSERT_EQ(wait_for(self->fd[0], POLLPRI, PATIENCE_MS), 0);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -EAGAIN);
	ASSERT_EQ(wait_for(self->fd[0], POLLERR, PATIENCE_MS), 0);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -ECONNREFUSED);
	EXPECT_EQ(connect_again(self->fd[0], &a), EINPROGRESS);
}

/* A program that knows nothing of several aggregators sends, and that is enough. */
TEST_F(listed, sendmsg_opens_the_others)
{
	struct sockaddr_thc a = place(AT, shard_port(0), 1, 0);
	uint8_t lanes[LANES] = { 1 };
	uint16_t table[THC_LEVELS_MAX];

	ASSERT_EQ(start_shards(self->daemon, SHARDED "1", 3), 0);
	ASSERT_EQ(begin_join(self->fd[0], &a), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLPRI, PATIENCE_MS), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, LANES, &add8, 0), -EAGAIN);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLPRI, 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLOUT, PATIENCE_MS), 0);
	ASSERT_EQ(set_nonblock(self->fd[0], false), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 5, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &add8, 5, 8, 1, table), 0);
	EXPECT_EQ(shards_of(self->fd[0]), 3);

	/* a blocking sendmsg() opens the others and sends */
	ASSERT_EQ(begin_join(self->fd[0], &a), 0);
	ASSERT_EQ(set_nonblock(self->fd[0], false), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 5, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &add8, 5, 8, 1, table), 0);
}

/* --- what does not fit ---------------------------------------------------- */

static void refused(struct __test_metadata *_metadata, int fd, uint16_t port, int error,
		    uint16_t reason, uint8_t shard)
{
	struct sockaddr_thc a = place(AT, port, 1, 0);
	struct thc_failure f;

	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), error);
	f = failure_of(fd);
	EXPECT_EQ(f.error, error);
	EXPECT_EQ(f.reason, reason);
	EXPECT_EQ(f.shard, shard);
}

/* An aggregator does not answer a JOIN that is sealed for another number. */
TEST_F(listed, an_address_is_that_of_number_0)
{
	ASSERT_EQ(start_shards(self->daemon, SHARDED "1", 2), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 1500), 0);
	refused(_metadata, self->fd[0], shard_port(1), EHOSTUNREACH, THC_FAILED_SILENT, 0);
}

TEST_F(listed, aggregators_that_do_not_agree)
{
	ASSERT_EQ(start_shard(&self->daemon[0], SHARDED "1", 0, 2), 0);
	ASSERT_EQ(start_shard(&self->daemon[1], "1," JOB_OF_TEST ",seed=8,slots=32,ranks=1", 1, 2),
		  0);
	refused(_metadata, self->fd[0], shard_port(0), EPROTO, THC_FAILED_SHARDS, 1);
}

TEST_F(listed, an_aggregator_that_has_another_number)
{
	static const char job[] = SHARDED "1,shard=2,shards=127.0.0.1:18500,127.0.0.1:18600,"
					  "127.0.0.1:18700";

	ASSERT_EQ(start_shard(&self->daemon[0], SHARDED "1", 0, 3), 0);
	ASSERT_EQ(start_daemon(&self->daemon[1], AT, shard_port(1), job, NULL), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 1500), 0);
	refused(_metadata, self->fd[0], shard_port(0), EHOSTUNREACH, THC_FAILED_SILENT, 1);
}

TEST_F(listed, an_aggregator_that_is_not_there)
{
	ASSERT_EQ(start_shard(&self->daemon[0], SHARDED "1", 0, 2), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 1500), 0);
	refused(_metadata, self->fd[0], shard_port(0), ECONNREFUSED, THC_FAILED_UNREACHABLE, 1);
}

/* An aggregator falls silent, without an ICMP error. */
TEST_F(listed, an_aggregator_that_falls_silent)
{
	struct thc_failure f;

	ASSERT_EQ(start_shards(self->daemon, SHARDED "1", 3), 0);
	ASSERT_EQ(join_all(self->fd, 1, AT, shard_port(0), 1), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 1500), 0);
	ASSERT_EQ(kill(self->daemon[2].pid, SIGSTOP), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 6, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLERR, PATIENCE_MS), 0);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.error, ETIMEDOUT);
	EXPECT_EQ(f.reason, THC_FAILED_SILENT);
	EXPECT_EQ(f.shard, 2);
}

/* BPF programs of the caller's cgroup judge the address of each aggregator. */
TEST_F(listed, programs_of_the_cgroup_refuse_another_one)
{
	struct sockaddr_thc a = place(AT, shard_port(0), 1, 0);
	int cgroup = enter_cgroup(), program;

	if (cgroup < 0)
		SKIP(return, "no cgroups here: %s", strerror(-cgroup));
	program = load_refusal(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT);
	EXPECT_GE(program, 0);
	EXPECT_EQ(start_shards(self->daemon, SHARDED "1", 2), 0);
	EXPECT_EQ(begin_join(self->fd[0], &a), 0);
	EXPECT_EQ(wait_for(self->fd[0], POLLPRI, PATIENCE_MS), 0);
	EXPECT_EQ(bpf_prog_attach(program, cgroup, BPF_CGROUP_INET4_CONNECT, 0), 0);
	EXPECT_EQ(connect_errno(self->fd[0], &a, sizeof(a)), EPERM);
	EXPECT_EQ(failure_of(self->fd[0]).error, EPERM);
	EXPECT_EQ(failure_of(self->fd[0]).shard, 1);
	EXPECT_EQ(bpf_prog_detach2(program, cgroup, BPF_CGROUP_INET4_CONNECT), 0);
	EXPECT_EQ(join_all(self->fd, 1, AT, shard_port(0), 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, 5), 0);
	close(program);
	leave_cgroup(cgroup);
}

TEST_F(listed, a_port_of_ones_own_is_for_one_aggregator)
{
	struct sockaddr_thc local = place(AT, 20000, 0, 0);

	ASSERT_EQ(start_shards(self->daemon, SHARDED "1", 2), 0);
	ASSERT_EQ(bind_errno(self->fd[0], &local, sizeof(local)), 0);
	refused(_metadata, self->fd[0], shard_port(0), EINVAL, THC_FAILED_NOT, 1);
	close(self->fd[0]);
	/* bind() to an address without a port holds for all aggregators */
	local.sthc_port = 0;
	self->fd[0] = thc_open(0);
	ASSERT_EQ(bind_errno(self->fd[0], &local, sizeof(local)), 0);
	ASSERT_EQ(join_all(self->fd, 1, AT, shard_port(0), 1), 0);
	EXPECT_EQ(shards_of(self->fd[0]), 2);
}

/* --- lists that the test makes --------------------------------------------- */

FAKE_FIXTURE(list)

/* A WELCOME that lists @at, in one part. */
struct listing_packet {
	struct thc_hdr			h;
	struct thc_welcome		w;
	struct thc_record_seal		seal;
	struct thc_record_row		row;
	__be16				level[16];
	struct thc_record_scheme	scheme;
	struct thc_record_shards	list;
	struct thc_record_address	at[2];
};

/* Lists an aggregator at our own port and another at the next port. */
static void make_listing(struct listing_packet *p, fake_nonce nonce)
{
	struct welcome_packet good;
	unsigned int i;

	good_welcome(&good, nonce);
	*p = (struct listing_packet){
		.h = good.h, .w = good.all.w, .seal = good.all.seal, .row = good.all.row,
		.scheme = good.all.scheme,
		.list = { .head = { THC_RECORD_SHARDS, THC_RECORD_F_KNOW, htobe16(44) },
			  .count = htobe16(2) },
	};
	memcpy(p->level, good.all.level, sizeof(p->level));
	p->w.shards = htobe16(2);
	for (i = 0; i < 2; i++)
		p->at[i] = (struct thc_record_address){
			.family = 4, .port = htobe16((uint16_t)(FAKE_PORT + 100 * i)),
			.addr = { 127, 0, 0, 1 },
		};
}

static int tell(int fd, int udp, const struct sockaddr_in *worker, struct listing_packet *p)
{
	seal_welcome(fake_seals(), &p->h, sizeof(*p), worker);
	return deliver(fd, udp, worker, p, sizeof(*p));
}

/* Begins a JOIN of @fd, and makes the WELCOME that answers it. */
static int begin_list(int fd, int udp, struct sockaddr_in *worker, struct listing_packet *p)
{
	struct sockaddr_thc a = fake_place();
	fake_nonce nonce;
	int error;

	error = begin_join(fd, &a);
	/* drops the packets of an earlier attempt */
	fake_forget(udp);
	if (!error)
		error = fake_take_join(udp, worker, &nonce);
	if (!error)
		make_listing(p, nonce);
	return error;
}

/* Turns the list into a record that a worker need not know. */
static void hide_list(struct listing_packet *p)
{
	p->list.head.type = 99;
	p->list.head.flags = 0;
}

/* The socket takes the list once: a later WELCOME of number 0 has to agree with it. */
TEST_F(list, number_0_may_not_say_another_number_then)
{
	struct listing_packet p;
	struct sockaddr_in worker;

	ASSERT_EQ(begin_list(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(wait_for(self->fd, POLLPRI, PATIENCE_MS), 0);
	EXPECT_EQ(begin_join(self->fd, &(struct sockaddr_thc){ 0 }), -EAFNOSUPPORT);
	EXPECT_EQ(poll_now(self->fd), POLLPRI | POLLOUT);
	ASSERT_EQ(begin_join(self->fd, (struct sockaddr_thc[]){ fake_place() }), 0);
	EXPECT_EQ(poll_now(self->fd), 0);
	/* the same list again changes nothing */
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	EXPECT_EQ(poll_now(self->fd), 0);
	p.w.shards = htobe16(1);
	/* the record is optional now, so there is no list */
	hide_list(&p);
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	EXPECT_EQ(end_join(self->fd), -EPROTO);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_SHARDS);
}

TEST_F(list, number_0_is_not_another_number)
{
	struct listing_packet p;
	struct sockaddr_in worker;

	ASSERT_EQ(begin_list(self->fd, self->udp, &worker, &p), 0);
	p.w.shard = htobe16(1);
	hide_list(&p);
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	EXPECT_EQ(end_join(self->fd), -EPROTO);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_SHARDS);
}

/* No route to one aggregator: the join ends at once, and closes those opened before it. */
TEST_F(list, one_cannot_be_opened)
{
	struct sockaddr_thc a = fake_place();
	struct listing_packet p;
	struct sockaddr_in worker;

	ASSERT_EQ(begin_list(self->fd, self->udp, &worker, &p), 0);
	p.at[1].addr[0] = 198;
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(wait_for(self->fd, POLLPRI, PATIENCE_MS), 0);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), ENETUNREACH);
	EXPECT_EQ(failure_of(self->fd).error, ENETUNREACH);
	EXPECT_EQ(failure_of(self->fd).shard, 1);
	EXPECT_EQ(shards_of(self->fd), 1);
}

/* Other sockets hold all memory: the socket fails, since it has joined number 0 already. */
TEST_F(list, one_has_no_room)
{
	struct sockaddr_thc a = fake_place(), other = place("127.0.0.1", FAKE_PORT + 300, 1, 0);
	int fd[64], n, error = EINPROGRESS;
	struct listing_packet p;
	struct sockaddr_in worker;

	ASSERT_EQ(begin_list(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(wait_for(self->fd, POLLPRI, PATIENCE_MS), 0);
	EXPECT_EQ(set_host_memory("1"), 0);
	for (n = 0; n < 64 && error == EINPROGRESS; n++) {
		fd[n] = thc_open(SOCK_NONBLOCK);
		error = connect_errno(fd[n], &other, sizeof(other));
	}
	EXPECT_EQ(error, ENOBUFS);
	EXPECT_EQ(connect_errno(self->fd, &a, sizeof(a)), ENOBUFS);
	EXPECT_EQ(failure_of(self->fd).error, ENOBUFS);
	EXPECT_EQ(failure_of(self->fd).shard, 1);
	EXPECT_EQ(shards_of(self->fd), 1);
	while (n--)
		close(fd[n]);
	EXPECT_EQ(set_host_memory("0"), 0);
}

/* Until the others are opened, the last WELCOME counts. */
TEST_F(list, number_0_may_take_it_back)
{
	struct listing_packet p;
	struct sockaddr_in worker;

	ASSERT_EQ(begin_list(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(wait_for(self->fd, POLLPRI, PATIENCE_MS), 0);
	p.w.shards = htobe16(1);
	hide_list(&p);
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	EXPECT_EQ(end_join(self->fd), 0);
	EXPECT_EQ(shards_of(self->fd), 1);
}

#define MANY	32	/* in one part */

/* As above, of many. */
struct long_list {
	struct listing_packet		p;
	struct thc_record_address	more[MANY - 2];
};

/* Lists @count of them, or hides the list; all ranks are not in. */
static void make_long_list(struct long_list *l, fake_nonce nonce, uint16_t count,
			   const struct sockaddr_in *worker)
{
	unsigned int i;

	memset(l, 0, sizeof(*l));
	make_listing(&l->p, nonce);
	l->p.w.flags = htobe16(THC_WELCOME_F_ONE_PORT);
	l->p.w.shards = htobe16(count);
	l->p.list.count = htobe16(MANY);
	l->p.list.head.bytes = htobe16(4 + MANY * sizeof(l->more[0]));
	for (i = 2; i < MANY; i++) {
		l->more[i - 2] = l->p.at[0];
		l->more[i - 2].port = htobe16((uint16_t)(FAKE_PORT + 100 * i));
	}
	if (count == 1)
		hide_list(&l->p);
	seal_welcome(fake_seals(), &l->p.h, sizeof(*l), worker);
}

/* Of this namespace, the kernel's own, too. */
static long sockets_used(void)
{
	FILE *f = fopen("/proc/net/sockstat", "r");
	long used = -1;

	if (!f || fscanf(f, "sockets: used %ld", &used) != 1)
		used = -1;
	if (f)
		fclose(f);
	return used;
}

static int wait_in_connect(struct waiting *w)
{
	struct sockaddr_thc a = fake_place();

	return connect(w->fd, (void *)&a, sizeof(a)) ? -errno : 0;
}

/* Not while a call opens them: it would open others, for ever, and what it has opened before ends
 * with the call alone.
 */
TEST_F(list, number_0_may_not_take_it_back_meanwhile)
{
	struct waiting w = { .call = wait_in_connect, .number = SYS_connect, .fd = self->fd };
	struct sockaddr_in worker;
	struct long_list l[2];
	fake_nonce nonce;
	unsigned int i;
	uint64_t start;
	long used;

	ASSERT_EQ(set_u32(self->fd, THC_OPT_JOIN_TIMEOUT, 8000), 0);
	ASSERT_EQ(begin_waiting(&w), 0);
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	make_long_list(&l[0], nonce, MANY, &worker);
	make_long_list(&l[1], nonce, 1, &worker);
	used = sockets_used();
	ASSERT_GT(used, 0);
	start = now_ms();
	for (i = 0; !(poll_now(self->fd) & POLLERR) && now_ms() - start < 6000; i++) {
		ASSERT_EQ(send_one(self->udp, &worker, &l[i % 2], sizeof(l[0])), 0);
		/* the call has begun to open them, sooner or later; then it has closed them */
		usleep(i % 2 ? 20000 : 200U << (i / 32 < 7 ? i / 32 : 7));
	}
	used = sockets_used() - used;
	EXPECT_LT(used, 3 * MANY) TH_LOG("%ld more are open", used);
	EXPECT_EQ(end_waiting(&w), -EPROTO);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_SHARDS);
}

TEST_F(list, nobody_opens_them)
{
	struct listing_packet p;
	struct sockaddr_in worker;
	struct thc_failure f;

	ASSERT_EQ(set_u32(self->fd, THC_OPT_JOIN_TIMEOUT, 2000), 0);
	ASSERT_EQ(begin_list(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
	ASSERT_EQ(wait_for(self->fd, POLLERR, PATIENCE_MS), 0);
	f = failure_of(self->fd);
	EXPECT_EQ(f.error, ETIMEDOUT);
	EXPECT_EQ(f.reason, THC_FAILED_JOIN);
	EXPECT_EQ(f.shard, 1);
	EXPECT_EQ(f.ranks, 1U << 1);
}

#define AT_LIST(f)	offsetof(struct listing_packet, f), sizeof(((struct listing_packet *)0)->f)

#define AT_HOST		offsetof(struct listing_packet, at[1].addr), 4

/* Values that a list may not have. A broadcast or zero address is found only when the aggregator
 * is opened.
 */
TEST_F_TIMEOUT(list, lists_that_are_wrong, 60)
{
	static const struct {
		size_t offset, bytes;
		uint64_t value;
		bool waits;
	} bad[] = {
		{ AT_LIST(w.shards), 3, false },	{ AT_LIST(w.shards), 65, false },
		{ AT_LIST(list.first), 1, false },	{ AT_LIST(list.count), 1, false },
		{ AT_LIST(list.count), 3, false },	{ AT_LIST(list.count), 0, false },
		{ AT_LIST(at[1].port), 0, false },	{ AT_LIST(at[1].family), 5, false },
		{ AT_LIST(at[1].reserved), 1, false },	{ AT_LIST(at[1].addr[15]), 1, false },
		{ AT_HOST, 0xef000001, false },
		{ AT_HOST, 0, true },			{ AT_HOST, 0xffffffff, true },
	};
	struct listing_packet p;
	struct sockaddr_in worker;
	struct thc_failure f;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ASSERT_EQ(begin_list(self->fd, self->udp, &worker, &p), 0);
		put_field(&p, bad[i].offset, bad[i].bytes, bad[i].value);
		ASSERT_EQ(tell(self->fd, self->udp, &worker, &p), 0);
		EXPECT_EQ(!!(poll_now(self->fd) & POLLPRI), bad[i].waits) TH_LOG("case %zu", i);
		EXPECT_EQ(end_join(self->fd), -EPROTO) TH_LOG("case %zu", i);
		f = failure_of(self->fd);
		EXPECT_EQ(f.reason, bad[i].waits ? THC_FAILED_SHARDS : THC_FAILED_VERSION);
		EXPECT_EQ(f.shard, bad[i].waits);
	}
}

TEST_HARNESS_MAIN
