// SPDX-License-Identifier: GPL-2.0
/*
 * recvmsg(): flags, buffers that are too small, and messages left after a failure
 * (kmod/recvmsg.c).
 */
#include "afthc.h"
#include "fake.h"
#include "harness.h"
#include "waiting.h"

#include <netpacket/packet.h>

BARE_FIXTURE(bare)

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

AFTHC_FIXTURE(job)

TEST_F(job, recvmsg_peeks_and_truncates)
{
	unsigned char room[3 * ANSWER], again[3 * ANSWER];
	struct thc_received r;
	int flags = 0;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 3, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(poll_now(self->fd[0]) & POLLIN, POLLIN);
	EXPECT_EQ(receive_message(self->fd[0], (void *)8, sizeof(room), &r, 0, NULL), -EFAULT);
	EXPECT_EQ(receive_message(self->fd[0], room, 100, &r, MSG_PEEK, &flags), 100);
	EXPECT_EQ(flags & (MSG_TRUNC | MSG_EOR), MSG_TRUNC | MSG_EOR);
	EXPECT_EQ(receive_message(self->fd[0], room, 0, &r, MSG_PEEK | MSG_TRUNC, &flags),
		  3 * ANSWER);
	EXPECT_EQ(receive_message(self->fd[0], room, sizeof(room), &r, MSG_PEEK, &flags),
		  sizeof(room));
	EXPECT_EQ(flags & MSG_TRUNC, 0);
	EXPECT_EQ(r.tag, add8.tag);
	EXPECT_EQ(receive_message(self->fd[0], again, sizeof(again), &r, 0, &flags), sizeof(again));
	EXPECT_EQ(memcmp(room, again, sizeof(room)), 0);
	EXPECT_EQ(receive_message(self->fd[0], again, sizeof(again), &r, MSG_DONTWAIT, &flags),
		  -EAGAIN);
	/* recvmsg() takes the whole message: lanes that did not fit are lost */
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 3, 8), 0);
	EXPECT_EQ(receive_message(self->fd[0], again, 7, &r, MSG_TRUNC, &flags), 3 * ANSWER);
	EXPECT_EQ(flags & MSG_TRUNC, MSG_TRUNC);
	EXPECT_EQ(receive_message(self->fd[0], again, 7, &r, MSG_DONTWAIT, &flags), -EAGAIN);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
}

/* Messages that are complete survive a failure. */
TEST_F(job, complete_messages_can_be_received_after_a_failure)
{
	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	/* slow kernels, too, must complete the first message in time */
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 1500), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLERR, PATIENCE_MS), 0);
	EXPECT_EQ(receive(self->fd[0], 0), ANSWER);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
}

/* What the kernel keeps for SO_ERROR recvmmsg() tells before it looks for a message. */
TEST_F(job, recvmmsg_tells_a_failure_first)
{
	char room[ANSWER];
	struct iovec iov = { .iov_base = room, .iov_len = sizeof(room) };
	struct mmsghdr in = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };
	socklen_t len = sizeof(int);
	int error = -1;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "2", 2), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 1500), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, 1, 8), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(self->fd[0], POLLERR, PATIENCE_MS), 0);
	EXPECT_EQ(recvmmsg(self->fd[0], &in, 1, 0, NULL), -1);
	EXPECT_EQ(errno, ETIMEDOUT);
	ASSERT_EQ(getsockopt(self->fd[0], SOL_SOCKET, SO_ERROR, &error, &len), 0);
	EXPECT_EQ(error, 0);
	EXPECT_EQ(recvmmsg(self->fd[0], &in, 1, 0, NULL), 1);
	EXPECT_EQ(in.msg_len, ANSWER);
	EXPECT_EQ(receive(self->fd[0], 0), -ETIMEDOUT);
}

AFTHC_FIXTURE(calls)

static ssize_t receive_into(int fd, void *control, size_t bytes, int *flags)
{
	char room[ANSWER];
	struct iovec iov = { .iov_base = room, .iov_len = sizeof(room) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t got;

	msg.msg_control = control;
	msg.msg_controllen = bytes;
	got = recvmsg(fd, &msg, 0);
	*flags = msg.msg_flags;
	return got < 0 ? -errno : got;
}

TEST_F(calls, ancillary_data_that_cannot_be_written)
{
	char room[ANSWER], control[CMSG_SPACE(sizeof(struct thc_received))];
	struct thc_received r;
	int fd, flags;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	fd = self->fd[0];
	ASSERT_EQ(send_part(fd, 0, &add8, 1, 8), 0);
	ASSERT_EQ(wait_for(fd, POLLIN, PATIENCE_MS), 0);
	EXPECT_EQ(receive_into(fd, (void *)8, sizeof(control), &flags), -EFAULT);
	EXPECT_EQ(poll_now(fd) & POLLIN, POLLIN) TH_LOG("the message is lost");
	EXPECT_EQ(receive_message(fd, room, sizeof(room), &r, MSG_DONTWAIT, &flags), ANSWER);
	EXPECT_EQ(r.tag, add8.tag);
	EXPECT_EQ(flags & MSG_CTRUNC, 0);
	/* a buffer that is too small, or NULL, is no error */
	ASSERT_EQ(send_part(fd, 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive_into(fd, control, CMSG_LEN(4), &flags), ANSWER);
	EXPECT_EQ(flags & MSG_CTRUNC, MSG_CTRUNC);
	ASSERT_EQ(send_part(fd, 0, &add8, 1, 8), 0);
	EXPECT_EQ(receive_into(fd, NULL, 0, &flags), ANSWER);
	EXPECT_EQ(flags & MSG_CTRUNC, MSG_CTRUNC);
	EXPECT_EQ(receive(fd, MSG_DONTWAIT), -EAGAIN);
}

FAKE_FIXTURE(path)

static int wait_in_recvmsg(struct waiting *w)
{
	static uint8_t room[THC_LANE_BYTES];
	struct thc_received r;

	return (int)receive_message(w->fd, room, sizeof(room), &r, 0, NULL);
}

/* A waiting recvmsg() returns when its connection fails. */
TEST_F(path, recvmsg_ends_with_its_connection)
{
	struct sockaddr_thc nowhere = place("203.0.113.1", 1, 1, 1);
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct waiting w = { .call = wait_in_recvmsg, .number = SYS_recvmsg, .fd = self->fd };
	struct sockaddr_in worker;
	uint64_t start;

	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	ASSERT_EQ(setsockopt(self->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	ASSERT_EQ(begin_waiting(&w), 0);
	start = now_ms();
	EXPECT_EQ(connect(self->fd, (void *)&nowhere, sizeof(nowhere)), -1);
	EXPECT_EQ(errno, ENETUNREACH);
	EXPECT_EQ(end_waiting(&w), -ECANCELED);
	/* recvmsg() returns at once, not after its timeout */
	EXPECT_LT(now_ms() - start, PATIENCE_MS / 2);
}

TEST_HARNESS_MAIN
