/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * A client. A request goes from client.c through engine.c, pipeline.c and its scheme to a
 * transport, which hands answers back to pipeline.c. A failure goes from the transport through
 * failure.c to queue.c, which ends all requests and makes the transport forget what is in
 * flight.
 *
 *	client.c    the public calls about clients; allreduce.c: about all-reduces
 *	engine.c    the I/O thread: receive, send, compute, sleep
 *	queue.c     requests in order, and how they end
 *	pipeline.c  requests on their way through agreement and phases
 *	phase.c     the numbers of chunks, which all ranks give alike
 *	agree.c     that all ranks mean the same all-reduce
 *	scheme.c    the job's scheme; scheme_thc.c: norms, compress, decode (codec.c);
 *	            scheme_none.c, scheme_lhc.c: integers (scales.c, addends.c, index.c)
 *	request.c   one all-reduce: its memory, its result
 *	transport_udp.c    over UDP sockets (join.c: JOIN and WELCOME; shards.c: the
 *	            aggregators; udp.c: batches of packets out and in)
 *	transport_afthc.c  over an AF_THC socket of thc.ko
 *	way.c       addresses and interfaces towards aggregators; resolve.c: out of text
 *	job.c       what a job may be, and the window
 *	failure.c   what went wrong, in sentences
 *	buffers.c   recycled buffers, the budget of bytes
 *	residual.c  error memory by key
 *	structs.c   options, info and stats of older and newer programs
 *
 * What may be sent, what an answer means, what is sent again and how a worker joins is in
 * <thc/worker/>, which the kernel module shares.
 *
 * Locking: client.lock guards the queue, the error memories' list and what it
 * takes to wake the I/O thread. As soon as a request has ended, it belongs to the
 * thread that waits for it, and may outlive the client. All else belongs to the I/O thread
 * while it runs, and to the caller of open, rejoin and close while it does not.
 */
#ifndef LIBTHC_CLIENT_H
#define LIBTHC_CLIENT_H

#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <thc/types.h>
#include <thc/wire/shards.h>
#include <thc/wire/spec.h>

#include "buffers.h"
#include "error.h"
#include "libthc.h"
#include "residual.h"

struct thc_request;
struct thc_scheme;
struct thc_transport;

/* The results of a round that this rank holds: thc_claim.digest, and chunks that it has missed. */
struct thc_results {
	uint64_t	round;
	uint32_t	digest;
	uint32_t	missed;
};

/* The state of the I/O thread, and how it is woken. */
enum thc_thread_state {
	THC_AWAKE,	/* not at all: it looks at client.news before it sleeps */
	THC_IDLE,	/* by client.work */
	THC_POLLING,	/* by a write to client.wake */
};

struct thc_client {
	pthread_mutex_t		lock;
	pthread_cond_t		work;		/* lock: wakes an idle I/O thread */
	enum thc_thread_state	state;		/* lock */
	bool			news;		/* lock: a request or an order to stop */
	struct thc_request	*queue;		/* lock: in order, active ones included */
	struct thc_residual	*residuals;	/* lock */
	bool			stop;		/* lock */
	bool			broken;		/* lock: rejoin needed */
	struct thc_client_stats	shown;		/* lock: stats, copied for thc_client_stats() */
	size_t			memory_shown;	/* lock: memory_peak, for thc_client_info() */
	char			sentence[THC_SENTENCE_MAX];	/* lock: why broken */

	struct thc_client_options options;
	const struct thc_codec_ops *simd;	/* of the instruction set in use */
	char			aggregator[NI_MAXHOST];
	uint8_t			key[THC_KEY_BYTES];	/* the job's secret, to join again */
	pthread_t		thread;
	bool			running;
	pid_t			pid;		/* of the process that opened it */
	int			wake;		/* eventfd */

	const struct thc_scheme	*scheme;	/* the job's; NULL before the first join */
	void			*context[THC_SCHEMES_COUNT];	/* by scheme; NULL between jobs */
	struct thc_transport	*transport;
	struct thc_spec		spec;		/* of the job, from WELCOME */
	uint32_t		epoch;
	struct thc_shards	list;		/* the job's aggregators; .count 0: one */
	uint32_t		window;		/* most data chunks in flight per aggregator */
	const char		*window_limit;	/* what bounds it */
	u64			numbered[2];	/* chunks with numbers: data, control stream */
	uint64_t		round;		/* rounds begun this epoch */
	struct thc_results	results[2];	/* of even and odd rounds, the newest ones */

	struct thc_spare	spare[THC_SPARES];
	uint64_t		takes;		/* buffers asked for */
	size_t			counted_least;	/* bytes that a small bucket counts as */
	size_t			counted_value;	/* bytes that a value counts as, at least */
	struct thc_buffer	scratch;	/* a block of floats, for computation */
	size_t			counted;	/* bytes of buckets now, see thc_budget_begin() */
	size_t			counted_most;	/* largest @counted so far */
	size_t			memory_now;
	size_t			memory_peak;
	struct thc_client_stats	stats;
};

uint64_t thc_now(void);
/* 0, or -EPROTO: a job that a client with @o cannot serve. */
int thc_job_check(const struct thc_spec *s, const struct thc_client_options *o);
/* -EOPNOTSUPP, with a sentence: error memories of @s would grow without end. */
int thc_feedback_check(const struct thc_client *c, const struct thc_scheme *s);
/* Sets client.window and client.window_limit. @answers: answers that the sockets have room for */
void thc_window_choose(struct thc_client *c, uint32_t answers);
/* Called with the lock held, or while there is no thread. */
void thc_client_show(struct thc_client *c);
/* Hands @r to the I/O thread. -EINVAL, -ESTALE, -EBUSY, -ENOMEM, with a sentence: it is the
 * caller's.
 */
int thc_client_submit(struct thc_client *c, struct thc_request *r);
/* Checks @rate and @error, of a call or of options: 0, or -EINVAL with a sentence. */
int thc_rate_check(double rate, double error);
/* The I/O thread. */
void *thc_engine_thread(void *client);

#endif /* LIBTHC_CLIENT_H */
