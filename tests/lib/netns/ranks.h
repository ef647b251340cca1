/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of the client share: `thcd --software` on loopback, ranks
 * that are threads with a client each, and gradients.
 */
#ifndef THC_TEST_RANKS_H
#define THC_TEST_RANKS_H

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "libthc.h"

#define RANKS_MAX	64

/* --- the daemon ----------------------------------------------------------- */

/* Of the job that a daemon has. */
extern const uint8_t job_key[THC_KEY_BYTES];

struct daemon {
	pid_t		pid;
	uint16_t	port;
};

uint16_t next_port(void);

/* Starts thcd with one job, @job and, unless it names a seal, the key, on @at and waits for its
 * "ready".
 */
struct daemon start_daemon_on(uint16_t at, const char *job);

static inline struct daemon start_daemon(const char *job)
{
	return start_daemon_on(next_port(), job);
}

static inline void stop_daemon(struct daemon d)
{
	kill(d.pid, SIGTERM);
	waitpid(d.pid, NULL, 0);
}

/* --- ranks as threads ----------------------------------------------------- */

struct rank {
	struct daemon	d;
	unsigned int	rank;
	unsigned int	ranks;
	uint32_t	flags;
	uint32_t	timeout_ms;
	bool		keyless;
	pthread_t	thread;
	pthread_barrier_t *barrier;
	void		*buf;
	size_t		count;
	enum thc_dtype	dtype;
	struct thc_client *client;
	int		error;
	char		sentence[512];
};

int open_client(struct rank *r);

static inline void keep_error(struct rank *r, int error)
{
	r->error = error;
	snprintf(r->sentence, sizeof(r->sentence), "%s", thc_last_error());
}

/* The end of a rank's thread: not before all others', since a rank that leaves is missed.
 * Frees @g and @copy.
 */
void *end_rank(struct rank *r, void *g, void *copy);

void run_ranks(struct rank *ranks, unsigned int n, void *(*run)(void *));

void set_up_ranks(struct rank *ranks, unsigned int n, struct daemon d);

/* @n ranks in a job of their own, each a thread that does @run, until all have ended. */
void run_job(struct rank *ranks, unsigned int n, void *(*run)(void *));

/* As run_job(), in the job that thcd's option @job describes, and none of the ranks may fail. */
void run_well(const char *job, unsigned int n, void *(*run)(void *));

/* --- gradients ------------------------------------------------------------ */

/* Roughly normal, heavy in places; by rank and index, not by call order. */
float gradient_at(unsigned int rank, size_t i);

double exact_mean(unsigned int n, size_t i);

/* ||got - mean||^2 / mean over ranks of ||gradient||^2. */
double nmse(const float *got, unsigned int n, size_t count);

float *make_gradient(unsigned int rank, size_t count);

#endif /* THC_TEST_RANKS_H */
