/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The callers of a storm: threads that make random calls, valid and not, on the sockets of one
 * table, so that any call may meet any other, and close(), halfway. Two neighbours in the table
 * are the ranks of a job. Signals interrupt sleeping calls.
 */
#ifndef THC_SELFTESTS_STORM_CALLS_H
#define THC_SELFTESTS_STORM_CALLS_H

#include <linux/sockios.h>
#include <pthread.h>
#include <sys/epoll.h>

#include "storm.h"

#define PLACES		(RANKS * (JOBS - JOB_WILD))
/* Bytes of a caller's memory; the page behind it is missing. */
#define AREA		(64 << 10)

/**
 * struct caller - a thread
 * @area: its memory, AREA bytes; the page behind it cannot be used
 * @fd, @place: the socket of its next call, and its place in the table
 */
struct caller {
	struct storm	*storm;
	struct rng	rng;
	pthread_t	thread;
	uint8_t		*area;
	int		fd;
	unsigned int	place;
};

/* The table; -1: no socket. */
extern int places[PLACES];

static inline struct sockaddr_thc aggregator_of(unsigned int job, unsigned int rank)
{
	return place(job_is_v6(job) ? AGGREGATOR6 : AGGREGATOR4, PORT, (uint16_t)job,
		     (uint8_t)rank);
}

/* --- memory --------------------------------------------------------------- */

uint8_t *make_area(void);

/* --- sockets -------------------------------------------------------------- */

/* Updates the job's struct target. */
void tell_forgers(struct storm *s, unsigned int job, unsigned int rank, int fd);

/* --- the other calls ------------------------------------------------------ */

int valid_poll(struct caller *c);

int valid_epoll(struct caller *c);

int valid_getsockopt(struct caller *c);

int valid_getname(struct caller *c);

/* --- calls that are not valid, of a socket in any state ------------------- */

int bad_bind(struct caller *c);

int bad_connect(struct caller *c);

/* A call whose arguments make no message at all. */
int bad_sendmsg(struct caller *c);

int bad_recvmsg(struct caller *c);

int bad_getsockopt(struct caller *c);

int bad_setsockopt(struct caller *c);

int bad_ioctl(struct caller *c);

static inline int bad_shutdown(struct caller *c)
{
	return ERRNO_OF(shutdown(c->fd, one_in(&c->rng, 2) ? -1 : 3 + (int)below(&c->rng, 1000)));
}

/* Calls that the family does not have. */
int foreign_call(struct caller *c);

/* --- a caller ------------------------------------------------------------- */

/* @weight: relative frequency; @kind: KINDS if the call counts under several kinds. */
struct call {
	unsigned int	weight;
	enum kind	kind;
	int		(*make)(struct caller *c);
};

/* The process of all callers: ends by being killed. */
int run_callers(struct storm *s, struct rng r);

#endif /* THC_SELFTESTS_STORM_CALLS_H */
