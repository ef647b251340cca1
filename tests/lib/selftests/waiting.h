/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A call in a thread of its own, which is known to sleep before the test goes on.
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

/* 0 once it sleeps. */
int begin_waiting(struct waiting *w);

static inline int end_waiting(struct waiting *w)
{
	pthread_join(w->thread, NULL);
	return w->result;
}

#endif
