/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A call in a thread of its own, which sleeps for certain before the test goes on; and sockets
 * that do not block, with signals for events.
 */
#ifndef THC_SELFTESTS_WAITING_H
#define THC_SELFTESTS_WAITING_H

#include <pthread.h>
#include <sys/syscall.h>

#include "afthc.h"

/**
 * struct waiting - a call in a thread of its own, which sleeps
 * @call: returns its result, or -errno
 * @number: of the system call
 * @tid: of the thread
 */
struct waiting {
	int		(*call)(struct waiting *w);
	long		number;
	int		fd;
	pthread_t	thread;
	pid_t		tid;
	int		result;
};

/* Returns 0 once the call sleeps. */
int begin_waiting(struct waiting *w);

static inline int end_waiting(struct waiting *w)
{
	pthread_join(w->thread, NULL);
	return w->result;
}

/* The socket no longer waits, and sends a signal for each event, which threads of the process that
 * are begun from now on do not get.
 */
int want_signals(int fd);

/* Returns POLL_IN, POLL_OUT or the like; 0 after @ms without a signal. */
int next_signal(int ms);

#endif
