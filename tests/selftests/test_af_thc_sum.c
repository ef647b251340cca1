// SPDX-License-Identifier: GPL-2.0
/*
 * Sums of AF_THC, bit for bit against plain integers: every op and width, 1
 * to 8 ranks and 64, 8- and 16-bit jobs, both families, several messages in
 * flight, two jobs at once, odd sizes.
 */
#include "afthc.h"
#include "harness.h"
#include "knownjob.h"

static const struct {
	uint8_t op, width;
} kinds[] = {
	{ THC_OP_LUT_ADD, 4 }, { THC_OP_ADD, 8 }, { THC_OP_ADD, 16 },
	{ THC_OP_ADD, 32 },    { THC_OP_OR, 32 }, { THC_OP_MAX, 32 },
	{ THC_OP_CLAIM, 32 },
};

#define KINDS	(sizeof(kinds) / sizeof(kinds[0]))

AFTHC_FIXTURE(sum)

/* Every op and width by @n ranks of a job with @width-bit sums. */
static int every_op(int *fd, unsigned int n, int width, const char *at)
{
	struct daemon d;
	char job[96];
	size_t k;
	int bad;

	snprintf(job, sizeof(job),
		 "1,ranks=%u," JOB_KEY ",rate=fixed,reply=fanout,sum_width=%d,granularity=%d", n,
		 width, width == 8 ? 31 : 40);
	bad = start_daemon(&d, at, PORT, job, NULL);
	if (!bad)
		bad = join_all(fd, n, at, PORT, 1);
	for (k = 0; k < KINDS && !bad; k++) {
		struct thc_send s = describe(kinds[k].op, kinds[k].width, (uint32_t)k, 100 * n + k);

		bad = all_reduce(fd, n, &s, 3 + k);
		if (bad)
			fprintf(stderr, "# op %u width %u: %d\n", s.op, s.width, bad);
	}
	close_all(fd, n);
	stop_daemon(&d, SIGKILL);
	return bad;
}

TEST_F_TIMEOUT(sum, every_op_and_width_by_1_to_8_ranks, 120)
{
	unsigned int n;

	for (n = 1; n <= 8; n++)
		EXPECT_EQ(every_op(self->fd, n, 8, "127.0.0.1"), 0) TH_LOG("%u ranks", n);
}

TEST_F_TIMEOUT(sum, every_op_and_width_of_16_bit_jobs, 60)
{
	EXPECT_EQ(every_op(self->fd, 1, 16, "127.0.0.1"), 0);
	EXPECT_EQ(every_op(self->fd, 3, 16, "127.0.0.1"), 0);
	EXPECT_EQ(every_op(self->fd, 8, 16, "127.0.0.1"), 0);
}

TEST_F_TIMEOUT(sum, every_op_and_width_over_ipv6, 60)
{
	EXPECT_EQ(every_op(self->fd, 2, 8, "::1"), 0);
	EXPECT_EQ(every_op(self->fd, 5, 16, "::1"), 0);
}

#define MEET	5

/* Rank 1 sends as lanes the levels of its indices, all other ranks send indices. Each rank gets
 * the sums under its own op, whichever rank was first.
 */
TEST_F_TIMEOUT(sum, indices_and_sums_meet, 60)
{
	static uint8_t lanes[MEET * THC_LANE_BYTES], room[MEET * ANSWER];
	struct thc_send lut = describe(THC_OP_LUT_ADD, 4, 0, 7);
	struct thc_send add = describe(THC_OP_ADD, 8, 0, 7);
	struct thc_received r;
	uint16_t table[THC_LEVELS_MAX];
	size_t i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "3", 3), 0);
	ASSERT_EQ(job_table(self->fd[0], table), 8);
	for (i = 0; i < sizeof(lanes); i++)
		lanes[i] = (uint8_t)contribution(&lut, 1, i, table);
	for (; lut.round < 2; add.round = ++lut.round) {
		for (i = 0; i < 3; i++) {
			unsigned int rank = (unsigned int)(i + lut.round) % 3;

			if (rank == 1) {
				EXPECT_EQ(send_message(self->fd[1], lanes, sizeof(lanes), &add, 0),
					  (ssize_t)sizeof(lanes));
			} else {
				EXPECT_EQ(send_part(self->fd[rank], rank, &lut, MEET, 8), 0);
			}
		}
		EXPECT_EQ(check_answer(self->fd[0], &lut, MEET, 8, 3, table), 0);
		EXPECT_EQ(check_answer(self->fd[2], &lut, MEET, 8, 3, table), 0);
		EXPECT_EQ(receive_message(self->fd[1], room, sizeof(room), &r, 0, NULL),
			  (ssize_t)sizeof(room));
		EXPECT_EQ(r.op, THC_OP_ADD);
		EXPECT_EQ(r.width, 8);
		EXPECT_EQ(r.least, 3);
		EXPECT_EQ(wrong_lanes(room, &lut, 8, MEET, all_ranks(3), table), 0u);
	}
}

/* One chunk, primes, more chunks than slots, more than a super-packet. */
TEST_F_TIMEOUT(sum, messages_of_odd_sizes, 60)
{
	static const size_t sizes[] = { 1, 2, 7, 61, 64, 65, 131, 401 };
	size_t i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2,slots=100,norm_slots=9", 2), 0);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct thc_send add = describe(THC_OP_LUT_ADD, 4, (uint32_t)i, i);
		struct thc_send max = describe(THC_OP_MAX, 32, (uint32_t)i, 50 + i);

		EXPECT_EQ(all_reduce(self->fd, 2, &add, sizes[i]), 0);
		EXPECT_EQ(all_reduce(self->fd, 2, &max, sizes[i]), 0);
	}
}

TEST_F_TIMEOUT(sum, chunks_that_lie_apart, 60)
{
	struct thc_send add = describe(THC_OP_LUT_ADD, 4, 0, 0);
	struct thc_send max = describe(THC_OP_MAX, 32, 0, 1);
	char lanes[4096] = "";

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	max.stride = 1023;
	EXPECT_EQ(send_message(self->fd[0], lanes, 1024, &max, 0), -EINVAL);
	max.stride = 1072;
	EXPECT_EQ(send_message(self->fd[0], lanes, 1072, &max, 0), -EINVAL);
	EXPECT_EQ(send_message(self->fd[0], lanes, 2048, &max, 0), -EINVAL);
	EXPECT_EQ(all_reduce(self->fd, 2, &max, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &max, 37), 0);
	add.stride = 512;
	EXPECT_EQ(all_reduce(self->fd, 2, &add, 130), 0);
	add.stride = 4096;
	EXPECT_EQ(all_reduce(self->fd, 2, &add, 130), 0);
	add.stride = UINT16_MAX;
	EXPECT_EQ(all_reduce(self->fd, 2, &add, 3), 0);
}

#define IN_FLIGHT	24

/* Receives each message once; messages complete out of order after a retransmission. */
static int take_all(int fd, const struct thc_send *s, const size_t *chunks, unsigned int ranks,
		    uint8_t sum_width, const uint16_t *table)
{
	size_t bytes = 20 * (THC_LANE_BYTES + 2);
	bool taken[IN_FLIGHT] = { false };
	uint8_t *room = malloc(bytes);
	int i, bad = 0;

	for (i = 0; i < IN_FLIGHT && !bad; i++) {
		struct thc_received r;
		ssize_t got = receive_message(fd, room, bytes, &r, 0, NULL);
		size_t at;

		if (got < 0)
			return (int)got;
		at = r.tag - s[0].tag;
		if (at >= IN_FLIGHT || taken[at] || r.op != s[at].op || r.chunks != chunks[at])
			bad = 1;
		else if (wrong_lanes(room, &s[at], r.width, r.chunks, all_ranks(ranks), table))
			bad = 2;
		if (r.op == THC_OP_LUT_ADD && r.width != sum_width)
			bad = 3;
		if (!bad)
			taken[at] = true;
	}
	free(room);
	return bad;
}

TEST_F_TIMEOUT(sum, several_messages_in_flight, 60)
{
	struct thc_send s[IN_FLIGHT];
	size_t chunks[IN_FLIGHT];
	uint16_t table[THC_LEVELS_MAX];
	uint8_t width;
	unsigned int rank;
	int i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "3,slots=64,norm_slots=8", 3), 0);
	width = job_table(self->fd[0], table);
	for (rank = 0; rank < 3; rank++) {
		for (i = 0; i < IN_FLIGHT; i++) {
			s[i] = describe(i % 2 ? THC_OP_MAX : i % 4 ? THC_OP_ADD : THC_OP_LUT_ADD,
					i % 4 ? 32 : 4, (uint32_t)i, 1000u + (uint64_t)i);
			chunks[i] = 1 + (size_t)i % 19;
			ASSERT_EQ(send_part(self->fd[rank], rank, &s[i], chunks[i], width), 0);
		}
	}
	for (rank = 0; rank < 3; rank++)
		EXPECT_EQ(take_all(self->fd[rank], s, chunks, 3, width, table), 0);
}

TEST_F_TIMEOUT(sum, sixty_four_sockets_at_once, 100)
{
	struct thc_send s = describe(THC_OP_ADD, 16, 1, 7);
	int i;

	if (on_debug_kernel())
		SKIP(return, "on the debug kernel test_af_thc_sendmsg has as many");
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "64", 64), 0);
	/* the first one waits until all have sent, each a slice of two slow CPUs */
	for (i = 0; i < 64; i++)
		ASSERT_EQ(set_u32(self->fd[i], THC_OPT_TIMEOUT, 300000), 0);
	EXPECT_EQ(all_reduce(self->fd, 64, &s, 5), 0);
	s.tag++;
	EXPECT_EQ(all_reduce(self->fd, 64, &s, 1), 0);
	s = describe(THC_OP_CLAIM, 32, 1, 9);
	EXPECT_EQ(all_reduce(self->fd, 64, &s, 1), 0);
	s = describe(THC_OP_CLAIM_HIGH, 32, 1, 10);
	EXPECT_EQ(all_reduce(self->fd, 64, &s, 1), 0);
}

/* Two jobs use equal slots, rounds and ranks: no packet of one job reaches the other. */
TEST_F_TIMEOUT(sum, two_jobs_at_once, 60)
{
	struct thc_send a = describe(THC_OP_ADD, 32, 5, 11), b = describe(THC_OP_ADD, 32, 5, 22);
	uint16_t table[THC_LEVELS_MAX];
	int i;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "3",
			       "2,ranks=3," JOB_KEY ",rate=fixed,reply=fanout"),
		  0);
	ASSERT_EQ(join_all(self->fd, 3, "127.0.0.1", PORT, 1), 0);
	ASSERT_EQ(join_all(self->fd + 8, 3, "127.0.0.1", PORT, 2), 0);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(send_part(self->fd[i], (unsigned int)i, &a, 150, 8), 0);
		ASSERT_EQ(send_part(self->fd[8 + i], (unsigned int)i, &b, 150, 8), 0);
	}
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(check_answer(self->fd[i], &a, 150, 8, 3, table), 0);
		EXPECT_EQ(check_answer(self->fd[8 + i], &b, 150, 8, 3, table), 0);
	}
}

/* connect() again: a new epoch, the same bits; what was in flight is gone. */
TEST_F_TIMEOUT(sum, joining_again_starts_a_new_epoch, 60)
{
	struct thc_send s = describe(THC_OP_ADD, 8, 1, 1);
	uint32_t before;
	int i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	before = epoch_of(self->fd[0]);
	ASSERT_NE(before, 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &s, 10), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &s, 10, 8), 0);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
		s.tag++;
		EXPECT_EQ(all_reduce(self->fd, 2, &s, 10), 0);
	}
	EXPECT_GT(epoch_of(self->fd[0]), before);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	EXPECT_EQ(stats_of(self->fd[0]).messages, 4);
}

TEST_HARNESS_MAIN
