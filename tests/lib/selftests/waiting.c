// SPDX-License-Identifier: GPL-2.0
#include "waiting.h"

static void *run_waiting(void *arg)
{
	struct waiting *w = arg;

	__atomic_store_n(&w->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	w->result = w->call(w);
	return NULL;
}

/* Does the thread sleep in its system call? */
static bool sleeps(struct waiting *w)
{
	pid_t tid = __atomic_load_n(&w->tid, __ATOMIC_ACQUIRE);
	char path[64];
	long number = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	f = tid ? fopen(path, "r") : NULL;
	if (f && fscanf(f, "%ld", &number) != 1)
		number = -1;	/* it runs */
	if (f)
		fclose(f);
	return number == w->number;
}

int begin_waiting(struct waiting *w)
{
	uint64_t start = now_ms();

	w->tid = 0;
	if (pthread_create(&w->thread, NULL, run_waiting, w))
		return -EAGAIN;
	while (!sleeps(w)) {
		if (now_ms() - start > PATIENCE_MS)
			return -ETIMEDOUT;
		sleep_ms(5);
	}
	return 0;
}

/* A real-time signal, which carries the event and is queued. */
#define SIGNAL_IO	SIGRTMIN

int want_signals(int fd)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGNAL_IO);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return fcntl(fd, F_SETOWN, getpid()) || fcntl(fd, F_SETSIG, SIGNAL_IO) ||
			       fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) ?
		       -errno :
		       0;
}

int next_signal(int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGNAL_IO);
	return sigtimedwait(&set, &info, &t) < 0 ? 0 : info.si_code;
}
