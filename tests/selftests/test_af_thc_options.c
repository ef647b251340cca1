// SPDX-License-Identifier: GPL-2.0
/*
 * setsockopt() and getsockopt(): every option, its values and lengths (kmod/options.c).
 */
#include "fake.h"
#include "harness.h"
#include "knownjob.h"

#include <limits.h>

BARE_FIXTURE(bare)

TEST_F(bare, options_of_32_bits)
{
	static const struct {
		int option;
		uint32_t value, good, bad;
	} o[] = {
		{ THC_OPT_TIMEOUT, 60000, 1, 0 },
		{ THC_OPT_JOIN_TIMEOUT, 60000, UINT32_MAX, 0 },
		{ THC_OPT_WINDOW, 0, THC_SLOTS_MAX, THC_SLOTS_MAX + 1 },
		{ THC_OPT_PARTIAL, 0, 1, 2 },
	};
	size_t i;

	for (i = 0; i < sizeof(o) / sizeof(o[0]); i++) {
		uint32_t v[2] = { 0 };
		socklen_t len = sizeof(v);

		EXPECT_EQ(getsockopt(self->fd, SOL_THC, o[i].option, v, &len), 0);
		EXPECT_EQ(v[0], o[i].value);
		EXPECT_EQ(len, 4);
		EXPECT_EQ(set_u32(self->fd, o[i].option, o[i].bad), -EINVAL);
		EXPECT_EQ(set_u32(self->fd, o[i].option, o[i].good), 0);
		len = 4;
		EXPECT_EQ(getsockopt(self->fd, SOL_THC, o[i].option, v, &len), 0);
		EXPECT_EQ(v[0], o[i].good);
		EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, o[i].option, v, 3)), EINVAL);
		EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, o[i].option, v, 8)), EINVAL);
		EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, o[i].option, (void *)8, 4)),
			  EFAULT);
		len = 3;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, v, &len)), EINVAL);
		len = 4;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, (void *)8, &len)),
			  EFAULT);
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, v, (void *)8)),
			  EFAULT);
	}
}

static int set_u64(int fd, int option, uint64_t value)
{
	return ERRNO_OF(setsockopt(fd, SOL_THC, option, &value, sizeof(value)));
}

TEST_F(bare, option_memory)
{
	uint64_t v = 0;
	uint32_t half = 1;
	socklen_t len = sizeof(v);

	EXPECT_EQ(getsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, &v, &len), 0);
	EXPECT_EQ(v, 256ULL << 20);
	EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, &half, 4)), EINVAL);
	EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, (void *)8, 8)), EFAULT);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 0), EINVAL);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 4ULL << 30), 0);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, (4ULL << 30) + 1), EINVAL);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 1), 0);
	EXPECT_EQ(getsockopt(self->fd, SOL_THC, THC_OPT_MEMORY, &v, &len), 0);
	EXPECT_EQ(v, 1);
	ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, 256ULL << 20), 0);
	EXPECT_EQ(set_u64(self->fd, THC_OPT_MEMORY, (256ULL << 20) + 1), EPERM);
}

/* Does a JOIN of @fd name the key of its job? */
static bool shows_key(struct __test_metadata *_metadata, int fd, int udp)
{
	struct sockaddr_thc a = fake_place();
	struct sockaddr_in worker;
	struct join_packet p = { .h.key_id = 0 };

	fake_forget(udp);
	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), EHOSTUNREACH);
	EXPECT_EQ(fake_take_join_packet(udp, &worker, &p), 0);
	EXPECT_TRUE(!p.h.key_id || p.h.key_id == fake_seals()->join.id);
	return p.h.key_id;
}

/* getsockopt() never returns the key; only connect() shows whether a socket has one. */
TEST_F(bare, option_key)
{
	static const socklen_t wrong[] = { 1, 8, THC_KEY_BYTES - 1, THC_KEY_BYTES + 1, 64, 4096 };
	int keyless = thc_open_keyless(0), udp = fake_open();
	uint8_t room[4096];
	socklen_t len;
	size_t i;

	ASSERT_GE(udp, 0);
	ASSERT_EQ(set_u32(keyless, THC_OPT_JOIN_TIMEOUT, 150), 0);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		EXPECT_EQ(set_key(keyless, room, wrong[i]), -EINVAL) TH_LOG("%u bytes", wrong[i]);
	EXPECT_EQ(set_key(keyless, (void *)8, THC_KEY_BYTES), -EFAULT);
	EXPECT_EQ(set_key(keyless, NULL, THC_KEY_BYTES), -EFAULT);
	EXPECT_FALSE(shows_key(_metadata, keyless, udp));
	EXPECT_EQ(set_key(keyless, job_key, THC_KEY_BYTES), 0);
	EXPECT_TRUE(shows_key(_metadata, keyless, udp));
	/* a failed call leaves the key as it is */
	EXPECT_EQ(set_key(keyless, job_key, 8), -EINVAL);
	EXPECT_EQ(set_key(keyless, (void *)8, THC_KEY_BYTES), -EFAULT);
	EXPECT_TRUE(shows_key(_metadata, keyless, udp));
	for (i = 0; i < 2; i++) {
		len = sizeof(room);
		memset(room, 0xa5, sizeof(room));
		EXPECT_EQ(ERRNO_OF(getsockopt(keyless, SOL_THC, THC_OPT_KEY, room, &len)),
			  ENOPROTOOPT);
		EXPECT_EQ(memmem(room, sizeof(room), job_key, 4), NULL);
		/* removes the key again, with and without a pointer */
		EXPECT_EQ(set_key(keyless, i ? job_key : NULL, 0), 0);
		EXPECT_FALSE(shows_key(_metadata, keyless, udp));
	}
	close(keyless);
	close(udp);
}

/* Wrong lengths and bad pointers, for every option. */
TEST_F(bare, options_lengths_and_pointers)
{
	static const struct {
		int option;
		socklen_t bytes;
	} o[] = {
		{ THC_OPT_TIMEOUT, 4 },
		{ THC_OPT_JOIN_TIMEOUT, 4 },
		{ THC_OPT_WINDOW, 4 },
		{ THC_OPT_MEMORY, 8 },
		{ THC_OPT_PARTIAL, 4 },
		{ THC_OPT_STATS, sizeof(struct thc_socket_stats) },
		{ THC_OPT_FAILURE, sizeof(struct thc_failure) },
	};
	uint64_t room[64];
	socklen_t len;
	size_t i;

	for (i = 0; i < sizeof(o) / sizeof(o[0]); i++) {
		static const int wrong[] = { -1, INT_MIN, 0, 1 };
		size_t k;

		for (k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
			len = (socklen_t)wrong[k];
			EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, room, &len)),
				  EINVAL)
			TH_LOG("option %d, length %d", o[i].option, wrong[k]);
			EXPECT_EQ(len, (socklen_t)wrong[k]);
		}
		len = o[i].bytes - 1;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, room, &len)), EINVAL);
		len = o[i].bytes;
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, (void *)8, &len)),
			  EFAULT);
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, o[i].option, room, (void *)8)),
			  EFAULT);
		len = sizeof(room);
		EXPECT_EQ(getsockopt(self->fd, SOL_THC, o[i].option, room, &len), 0);
		EXPECT_EQ(len, o[i].bytes);
	}
}

TEST_F(bare, options_that_are_read_only_or_unknown)
{
	struct described_job job;
	socklen_t len = sizeof(job);
	struct thc_failure f = failure_of(self->fd), zero = { 0 };
	struct thc_socket_stats stats = stats_of(self->fd), none = { 0 };
	static const int unknown[] = { -1, 0, 10, 1000 };
	uint32_t v = 1;
	size_t i;
	int option;

	EXPECT_EQ(memcmp(&f, &zero, sizeof(f)), 0);
	EXPECT_EQ(memcmp(&stats, &none, sizeof(stats)), 0);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, THC_OPT_WELCOME, &job, &len)), ENOTCONN);
	len = 8;
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, THC_OPT_STATS, &job, &len)), EINVAL);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, THC_OPT_FAILURE, &job, &len)), EINVAL);
	for (option = THC_OPT_WELCOME; option <= THC_OPT_FAILURE; option++)
		EXPECT_EQ(set_u32(self->fd, option, 1), -ENOPROTOOPT);
	for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		len = sizeof(v);
		EXPECT_EQ(set_u32(self->fd, unknown[i], 1), -ENOPROTOOPT);
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, SOL_THC, unknown[i], &v, &len)),
			  ENOPROTOOPT);
	}
	EXPECT_EQ(ERRNO_OF(setsockopt(self->fd, IPPROTO_UDP, THC_OPT_TIMEOUT, &v, 4)), ENOPROTOOPT);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd, IPPROTO_UDP, THC_OPT_TIMEOUT, &v, &len)),
		  ENOPROTOOPT);
}

AFTHC_FIXTURE(job)

TEST_F(job, option_welcome_lengths_and_pointers)
{
	static const int wrong[] = { -1, 0, 1, sizeof(struct thc_job_info) - 1,
				     sizeof(struct thc_job_info) };
	struct described_job job;
	socklen_t len, whole;
	size_t i;

	ASSERT_EQ(begin(&self->daemon, self->fd, JOB "1", 1), 0);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		len = (socklen_t)wrong[i];
		EXPECT_EQ(ERRNO_OF(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &job, &len)),
			  EINVAL);
		EXPECT_EQ(len, (socklen_t)wrong[i]);
	}
	len = sizeof(job);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, (void *)8, &len)),
		  EFAULT);
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &job, (void *)8)),
		  EFAULT);
	ASSERT_EQ(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &job, &len), 0);
	whole = len;
	EXPECT_EQ(whole, sizeof(job.info) + job.info.bytes);
	EXPECT_EQ(job.info.reserved, 0);
	memset(&job, 0x5a, sizeof(job));
	len = whole - 1;
	EXPECT_EQ(ERRNO_OF(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &job, &len)), EINVAL);
	len = whole;
	EXPECT_EQ(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &job, &len), 0);
	EXPECT_EQ(len, whole);
	/* nothing behind the last record */
	EXPECT_EQ(((uint8_t *)&job)[whole], 0x5a);
}

AFTHC_FIXTURE(calls)

/* Anybody can be root of a user namespace of its own. */
TEST_F(calls, memory_beyond_the_default_needs_the_hosts_root)
{
	ASSERT_EQ(unshare(CLONE_NEWUSER | CLONE_NEWNET), 0);
	self->fd[0] = thc_open(0);
	ASSERT_GE(self->fd[0], 0);
	EXPECT_EQ(set_memory(self->fd[0], 256ULL << 20), 0);
	EXPECT_EQ(set_memory(self->fd[0], (256ULL << 20) + 1), -EPERM);
}

TEST_HARNESS_MAIN
