// SPDX-License-Identifier: GPL-2.0
/*
 * How a JOIN ends: nobody answers, the job refuses, ranks are missing (kmod/join.c).
 */
#include "afthc.h"
#include "harness.h"

BARE_FIXTURE(bare)

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
	EXPECT_EQ(f.shard, 0);
	/* every call fails again, but SO_ERROR reports the error once */
	EXPECT_EQ(receive_message(self->fd, &a, sizeof(a), &(struct thc_received){ 0 }, 0, NULL),
		  -EHOSTUNREACH);
	EXPECT_EQ(receive_message(self->fd, &a, sizeof(a), &(struct thc_received){ 0 }, 0, NULL),
		  -EHOSTUNREACH);
	EXPECT_EQ(getsockopt(self->fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	EXPECT_EQ(error, EHOSTUNREACH);
	EXPECT_EQ(getsockopt(self->fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	EXPECT_EQ(error, 0);
	EXPECT_EQ(stats_of(self->fd).failures, 0) TH_LOG("no message has failed");
	close(udp);
}

/* An ICMPv6 error, too, says that nobody listens. */
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

AFTHC_FIXTURE(job)

TEST_F(job, connect_refused_by_the_job)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0), wrong;
	static const struct {
		uint16_t job;
		uint8_t rank;
		uint8_t spoilt;		/* bits of the key's last byte */
		uint8_t refusal;
	} refused[] = {
		{ 2, 0, 0, THC_REFUSED_JOB },
		{ 1, 0, 1, THC_REFUSED_JOB },
		{ 1, 1, 0, THC_REFUSED_RANK },
	};
	uint8_t key[THC_KEY_BYTES];
	struct thc_failure f;
	uint64_t start;
	size_t i;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1", NULL), 0);
	self->fd[0] = thc_open(0);
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		wrong = a;
		wrong.sthc_job = refused[i].job;
		wrong.sthc_rank = refused[i].rank;
		memcpy(key, job_key, sizeof(key));
		key[THC_KEY_BYTES - 1] ^= refused[i].spoilt;
		ASSERT_EQ(set_key(self->fd[0], key, sizeof(key)), 0);
		start = now_ms();
		EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&wrong, sizeof(wrong))), EACCES);
		f = failure_of(self->fd[0]);
		EXPECT_EQ(f.reason, THC_FAILED_REFUSED);
		EXPECT_EQ(f.refusal, refused[i].refusal);
		/* without the key the refusal might be forged */
		if (f.refusal == THC_REFUSED_JOB)
			EXPECT_GE(now_ms() - start, 2000);
	}
	EXPECT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_NOT);
}

TEST_F(job, connect_when_not_all_ranks_come)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 1);
	struct thc_failure f;
	uint64_t start = now_ms();

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "3", NULL), 0);
	self->fd[0] = thc_open(0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 2000), 0);
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), ETIMEDOUT);
	EXPECT_GE(now_ms() - start, 2000);
	f = failure_of(self->fd[0]);
	EXPECT_EQ(f.reason, THC_FAILED_JOIN);
	EXPECT_EQ(f.ranks, 1 << 0 | 1 << 2);
	/* SO_SNDTIMEO: the call ends, joining goes on */
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 10000), 0);
	set_timeo(self->fd[0], SO_SNDTIMEO, 100);
	start = tick_ms();
	EXPECT_EQ(ERRNO_OF(connect(self->fd[0], (void *)&a, sizeof(a))), EINPROGRESS);
	EXPECT_GE(tick_ms() - start, 90);
	EXPECT_LT(tick_ms() - start, 5000);
}

TEST_HARNESS_MAIN
