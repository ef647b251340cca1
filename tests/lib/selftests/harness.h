/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's harness, which defines functions and variables, so only the file with main() may
 * include it. And the fixtures of most tests.
 */
#ifndef THC_SELFTESTS_HARNESS_H
#define THC_SELFTESTS_HARNESS_H

#include <kselftest_harness.h>

#include "afthc.h"

/* Limits only end tests that hang: they fit a stock kernel emulated on an idle machine; the debug
 * kernel gets five times as much.
 */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	150
#undef TEST_F_TIMEOUT
#define TEST_F_TIMEOUT(fixture, name, seconds) __TEST_F_IMPL(fixture, name, -1, 5 * (seconds))

/* Fixture of most tests: a daemon and ranks, which begin() starts, in a namespace of their own. */
#define AFTHC_FIXTURE(name)                                                      \
	FIXTURE(name)                                                            \
	{                                                                        \
		struct daemon daemon;                                            \
		int fd[RANKS_MAX];                                               \
	};                                                                       \
	FIXTURE_SETUP(name)                                                      \
	{                                                                        \
		memset(self->fd, 0xff, sizeof(self->fd));                        \
		self->daemon.pid = 0;                                            \
		if (why_not())                                                   \
			SKIP(return, "%s", why_not());                           \
		ASSERT_EQ(enter_netns(), 0);                                     \
	}                                                                        \
	FIXTURE_TEARDOWN(name)                                                   \
	{                                                                        \
		close_all(self->fd, RANKS_MAX);                                  \
		stop_daemon(&self->daemon, SIGKILL);                             \
	}

/* A socket without a job, in a namespace of its own. */
#define BARE_FIXTURE(name) \
	FIXTURE(name) \
	{ \
		int fd; \
	}; \
	FIXTURE_SETUP(name) \
	{ \
		const char *reason = why_not(); \
\
		self->fd = -1; \
		if (reason) \
			SKIP(return, "%s", reason); \
		ASSERT_EQ(enter_netns(), 0); \
		self->fd = thc_open(0); \
		ASSERT_GE(self->fd, 0); \
	} \
	FIXTURE_TEARDOWN(name) \
	{ \
		if (self->fd >= 0) \
			close(self->fd); \
	}

#endif /* THC_SELFTESTS_HARNESS_H */
