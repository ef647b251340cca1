// SPDX-License-Identifier: GPL-2.0
/*
 * How messages end: complete, in parts after the timeout (THC_OPT_PARTIAL) or a job's
 * deadline, or with a failure that names who is missing (kmod/engine.c).
 */
#include "afthc.h"
#include "fake.h"
#include "harness.h"

AFTHC_FIXTURE(job)

TEST_F(job, fails_after_its_timeout_and_names_who_is_missing)
{
	struct thc_failure f;
	uint64_t start;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "3", 3), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 3000), 0);
	start = now_ms();
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[2], 2, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
	EXPECT_GE(now_ms() - start, 2980);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.error, ETIMEDOUT);
	EXPECT_EQ(f.reason, THC_FAILED_MISSING);
	EXPECT_EQ(f.ranks, 1 << 1);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -ETIMEDOUT);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLERR, POLLERR);
	EXPECT_EQ(stats_of(self->fd[0]).failures, 1);
	/* the second join_all() needs the other ranks to answer, which may take long */
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 20000), 0);
	ASSERT_EQ(join_all(self->fd, 3, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 3, &add8, 2), 0);
	EXPECT_EQ(failure_of(self->fd[0]).reason, THC_FAILED_NOT);
}

/* Ranks 1 and 2 sent another round first: the failure names these ranks, not the aggregator. */
TEST_F(job, fails_after_its_timeout_and_names_who_sent_something_else)
{
	static const struct thc_send other = { .op = THC_OP_ADD, .width = 8, .round = 2, .tag = 5 };
	struct thc_failure f;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "3", 3), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 3000), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &other, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[2], 2, &other, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.error, ETIMEDOUT);
	EXPECT_EQ(f.reason, THC_FAILED_DIFFERS);
	EXPECT_EQ(f.ranks, 1 << 1 | 1 << 2);
	/* the packet had arrived, and the socket did not take it for lost */
	EXPECT_GT(stats_of(self->fd[0]).waits, 0);
}

TEST_F(job, fails_when_a_missing_rank_has_left)
{
	struct thc_failure f;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	close(self->fd[1]);
	self->fd[1] = -1;
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -EPIPE);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_LEFT);
	EXPECT_EQ(f.ranks, 1 << 1);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), -EPIPE);
}

TEST_F(job, fails_when_a_rank_restarts)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 1);
	int again = thc_open(0);
	struct thc_failure f;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(all_reduce(self->fd, 2, &add8, 1), 0);
	/* the address stays, so the daemon sees the worker that it knows */
	ASSERT_EQ(begin_join(self->fd[1], &a), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ESTALE);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_EPOCH);
	EXPECT_EQ(f.worker, 1);
	EXPECT_NE(f.epoch, 0);
	close(again);
}

/* A fake aggregator's word about a chunk in flight, header only. */
static int say(int fd, int udp, const struct sockaddr_in *worker, const struct thc_hdr *request,
	       uint8_t op, uint8_t flags)
{
	struct thc_hdr h = *request;

	h.op = op;
	h.flags = flags;
	h.count = htobe16(1);
	h.bitmap = htobe64(1 << 1);	/* our rank */
	seal_answer(fake_seals(), &h, sizeof(h));
	return deliver(fd, udp, worker, &h, sizeof(h));
}

/* The aggregator has closed a chunk, and no longer knows which ranks are in its sum. */
TEST_F(job, fails_when_the_others_went_on)
{
	struct sockaddr_in worker;
	struct chunk_packet p;
	int udp = fake_open();

	self->fd[0] = thc_open(0);
	ASSERT_EQ(fake_join(self->fd[0], udp, &worker), 0);
	ASSERT_EQ(send_part(self->fd[0], 1, &add8, 1, 8), 0);
	ASSERT_EQ(fake_take(udp, &p, PATIENCE_MS), 0);
	ASSERT_EQ(say(self->fd[0], udp, &worker, &p.h, THC_OP_STALE, 0), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -ESTALE);
	EXPECT_EQ(failure_of(self->fd[0]).reason, THC_FAILED_BEHIND);
	EXPECT_EQ(send_part(self->fd[0], 1, &add8, 1, 8), -ESTALE);
	close(udp);
}

/* Norms lack a rank that has left: not at once, for there may be data to send of the round
 * before.
 */
TEST_F(job, fails_a_little_later_when_norms_lack_who_has_left)
{
	struct thc_send norm = describe(THC_OP_MAX, 32, 1, 6);
	struct sockaddr_in worker;
	struct chunk_packet p;
	struct thc_failure f;
	int udp = fake_open();
	uint64_t start;

	self->fd[0] = thc_open(0);
	ASSERT_EQ(fake_join(self->fd[0], udp, &worker), 0);
	start = now_ms();
	ASSERT_EQ(send_part(self->fd[0], 1, &norm, 1, 8), 0);
	ASSERT_EQ(fake_take(udp, &p, PATIENCE_MS), 0);
	ASSERT_EQ(say(self->fd[0], udp, &worker, &p.h, THC_OP_WAIT, THC_F_LEFT), 0);
	EXPECT_EQ(receive(self->fd[0], 0), -EPIPE);
	EXPECT_GE(now_ms() - start, 200);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_LEFT);
	EXPECT_EQ(f.ranks, 1 << 0);
	close(udp);
}

#define CHUNKS	40

AFTHC_FIXTURE(partial)

static bool is_zero(const unsigned char *p, size_t bytes)
{
	while (bytes--)
		if (*p++)
			return false;
	return true;
}

/* Two ranks; the first has used its memory before, and its timeout is short. */
static int begin_impatient(struct daemon *d, int *fd, uint32_t timeout_ms)
{
	int i, error = begin(d, fd, JOB "2", 2);

	/* leaves dirty pages, which the next message finds */
	for (i = 0; i < 4 && !error; i++)
		error = all_reduce(fd, 2, &add8, CHUNKS);
	if (!error)
		error = set_u32(fd[0], THC_OPT_TIMEOUT, timeout_ms);
	return error ? error : set_u32(fd[0], THC_OPT_PARTIAL, 1);
}

/* No other rank sends: all chunks and counts are zero, whatever the memory held. */
TEST_F(partial, nothing_has_come)
{
	unsigned char *room = malloc(CHUNKS * ANSWER);
	struct thc_received r;
	uint64_t start;
	int i;

	ASSERT_EQ(begin_impatient(&self->daemon, self->fd, 300), 0);
	start = now_ms();
	memset(room, 0xa5, CHUNKS * ANSWER);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, CHUNKS, 8), 0);
	EXPECT_EQ(receive_message(self->fd[0], room, CHUNKS * ANSWER, &r, 0, NULL),
		  CHUNKS * ANSWER);
	EXPECT_EQ(r.flags, THC_RECV_TIMEOUT);
	EXPECT_EQ(r.least, 0);
	EXPECT_EQ(r.ranks, 0);
	EXPECT_EQ(r.chunks, CHUNKS);
	EXPECT_TRUE(is_zero(room, CHUNKS * ANSWER)) TH_LOG("stale memory came back");
	/* the next message gets the whole timeout again */
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, CHUNKS, 8), 0);
	EXPECT_EQ(receive_message(self->fd[0], room, CHUNKS * ANSWER, &r, 0, NULL),
		  CHUNKS * ANSWER);
	EXPECT_EQ(r.flags, THC_RECV_TIMEOUT);
	EXPECT_GE(now_ms() - start, 2 * 300 - 20);
	/* the other rank sends too late for both messages; then both ranks go on together */
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 20000), 0);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(send_part(self->fd[1], 1, &add8, CHUNKS, 8), 0);
		EXPECT_EQ(receive_message(self->fd[1], room, CHUNKS * ANSWER, &r, 0, NULL),
			  CHUNKS * ANSWER);
	}
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 5), 0);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	free(room);
}

/* The other rank has sent half of its chunks: that half is summed, the rest is zero. */
TEST_F(partial, half_has_come)
{
	enum { HALF = 6 };
	struct thc_send s = describe(THC_OP_ADD, 32, 3, 77);
	unsigned char *room = malloc(CHUNKS * ANSWER);
	struct thc_received r;
	int i;

	ASSERT_EQ(begin_impatient(&self->daemon, self->fd, 2000), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &s, CHUNKS, 8), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &s, HALF, 8), 0);
	EXPECT_EQ(receive_message(self->fd[0], room, CHUNKS * ANSWER, &r, 0, NULL),
		  CHUNKS * ANSWER);
	EXPECT_EQ(r.flags, THC_RECV_TIMEOUT);
	EXPECT_EQ(r.least, 0);
	EXPECT_EQ(r.ranks, 0);
	EXPECT_EQ(r.missed, CHUNKS - HALF);
	EXPECT_EQ(wrong_lanes(room, &s, 32, HALF, 3, NULL), 0);
	EXPECT_TRUE(is_zero(room + HALF * LANES, (CHUNKS - HALF) * LANES));
	for (i = 0; i < CHUNKS; i++)
		EXPECT_EQ(lane_of(room + CHUNKS * LANES + 2 * i, 2), i < HALF ? 2 : 0);
	free(room);
}

/* The aggregator falls silent. Messages delivered after the timeout keep their memory charged;
 * without memory left, sendmsg() fails.
 */
TEST_F(partial, dead_aggregator_does_not_hold_senders)
{
	uint64_t bound = 260 << 10;	/* bytes of three messages, but not of four */
	unsigned char *room = malloc(CHUNKS * ANSWER);
	struct thc_received r;
	int i;

	ASSERT_EQ(begin_impatient(&self->daemon, self->fd, 300), 0);
	ASSERT_EQ(setsockopt(self->fd[0], SOL_THC, THC_OPT_MEMORY, &bound, sizeof(bound)), 0);
	kill(self->daemon.pid, SIGSTOP);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(send_part(self->fd[0], 0, &add8, CHUNKS, 8), 0);
		ASSERT_EQ(receive_message(self->fd[0], room, CHUNKS * ANSWER, &r, 0, NULL),
			  CHUNKS * ANSWER);
		EXPECT_EQ(r.flags, THC_RECV_TIMEOUT);
	}
	/* an idle socket does not fail, even for longer than its timeout */
	sleep_ms(1000);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLERR, 0);
	EXPECT_EQ(send_part(self->fd[0], 0, &add8, CHUNKS, 8), -ETIMEDOUT);
	EXPECT_EQ(failure_of(self->fd[0]).reason, THC_FAILED_SILENT);
	kill(self->daemon.pid, SIGCONT);
	free(room);
}

/* A job with a deadline closes chunks without the third rank, and tells that rank so. */
TEST_F(partial, quorum_leaves_out_who_is_late)
{
	struct thc_send s = describe(THC_OP_ADD, 16, 1, 9);
	unsigned char room[2 * ANSWER];
	struct thc_received r;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "3,quorum=2,deadline_ms=100", 3), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &s, 2, 8), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &s, 2, 8), 0);
	ASSERT_EQ(receive_message(self->fd[0], room, sizeof(room), &r, 0, NULL), sizeof(room));
	EXPECT_EQ(r.flags, THC_RECV_PARTIAL);
	EXPECT_EQ(r.least, 2);
	EXPECT_EQ(r.ranks, 3);
	EXPECT_EQ(wrong_lanes(room, &s, 16, 2, 3, NULL), 0);
	EXPECT_EQ(lane_of(room + 2 * LANES, 2), 2);
	EXPECT_EQ(stats_of(self->fd[0]).partial, 2);
	EXPECT_EQ(stats_of(self->fd[0]).excluded, 0);
	ASSERT_EQ(send_part(self->fd[2], 2, &s, 2, 8), 0);
	ASSERT_EQ(receive_message(self->fd[2], room, sizeof(room), &r, 0, NULL), sizeof(room));
	EXPECT_EQ(r.flags, THC_RECV_PARTIAL | THC_RECV_EXCLUDED);
	EXPECT_EQ(wrong_lanes(room, &s, 16, 2, 3, NULL), 0);
	EXPECT_EQ(lane_of(room + 2 * LANES, 2), 2 | THC_COUNT_EXCLUDED);
	EXPECT_EQ(stats_of(self->fd[2]).excluded, 2);
}

TEST_HARNESS_MAIN
