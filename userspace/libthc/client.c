// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The public calls about a client: open, close, join again, ask. allreduce.c has the others. */
#include <errno.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thc/names.h>
#include <thc/worker/sender.h>

#include "client.h"
#include "codec_ops.h"
#include "dtype.h"
#include "fixed.h"
#include "pipeline.h"
#include "request.h"
#include "scheme.h"
#include "scheme_thc.h"
#include "structs.h"
#include "transport.h"

/* .first never changes: programs built with the first libthc.h run with this library. */
#define STRUCT_LAYOUT(type, last) #type, THC_STRUCT_SIZE(struct type, last), sizeof(struct type)

static const struct thc_struct_layout options_layout = { STRUCT_LAYOUT(thc_client_options,
								       transport) };
static const struct thc_struct_layout info_layout = { STRUCT_LAYOUT(thc_client_info, transport) };
static const struct thc_struct_layout stats_layout = { STRUCT_LAYOUT(thc_client_stats, reserved) };

#define CLIENT_FLAGS	(THC_CLIENT_ERROR_FEEDBACK | THC_CLIENT_NONFINITE)

/* --- open, close, rejoin -------------------------------------------------- */

static int check_options(const struct thc_client_options *o)
{
	if (o->flags & ~CLIENT_FLAGS)
		return thc_fail(-EINVAL, "unknown option flags %#x", o->flags & ~CLIENT_FLAGS);
	if (!o->aggregator || !*o->aggregator ||
	    strlen(o->aggregator) >= sizeof(((struct thc_client *)0)->aggregator))
		return thc_fail(-EINVAL,
				"set the aggregator to an IPv4 or IPv6 address, or a name");
	if (o->rank >= THC_RANKS_MAX)
		return thc_fail(-EINVAL, "rank %u is too large: a job has at most %u ranks",
				o->rank, THC_RANKS_MAX);
	if ((unsigned int)o->transport > THC_TRANSPORT_AF_THC)
		return thc_fail(-EINVAL, "unknown transport %d", (int)o->transport);
	if ((unsigned int)o->simd > THC_SIMD_AVX512)
		return thc_fail(-EINVAL, "unknown instruction set %d", (int)o->simd);
	if (!thc_simd_ops(o->simd))
		return thc_simd_missing();
	return thc_rate_check(o->rate, o->error);
}

static int start_thread(struct thc_client *c)
{
	sigset_t all, old;
	int error;

	c->stop = false;
	c->broken = false;
	thc_client_show(c);
	/* the program's own threads handle signals */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = -pthread_create(&c->thread, NULL, thc_engine_thread, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		return thc_fail(error, "cannot start a thread: %s", strerror(-error));
	c->running = true;
	return 0;
}

/* Unlocks the client, with news for the I/O thread; after that, or it would wake
 * up only to wait for the lock.
 */
static void unlock_and_wake(struct thc_client *c)
{
	enum thc_thread_state state = c->state;
	uint64_t one = 1;

	c->news = true;
	pthread_mutex_unlock(&c->lock);
	if (state == THC_IDLE)
		pthread_cond_signal(&c->work);
	else if (state == THC_POLLING && write(c->wake, &one, sizeof(one)) < 0)
		return;		/* the counter is full: the thread is being woken */
}

/* Stops the I/O thread, whose state then belongs to the caller. */
static void stop_thread(struct thc_client *c)
{
	if (!c->running)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	unlock_and_wake(c);
	pthread_join(c->thread, NULL);
	c->running = false;
}

/* Ends all queued requests with -ECANCELED; the I/O thread has stopped. */
static void cancel_requests(struct thc_client *c)
{
	struct thc_request *r;

	pthread_mutex_lock(&c->lock);
	while ((r = c->queue)) {
		c->queue = r->next;
		c->stats.failures++;
		r->status = -ECANCELED;
		thc_request_release(r);
		if (r->error)
			thc_residual_put(c, r->error, true);
		snprintf(r->sentence, sizeof(r->sentence), "the client was closed or joined again");
		sem_post(&r->ended);
	}
	pthread_mutex_unlock(&c->lock);
}

static void close_schemes(struct thc_client *c)
{
	unsigned int id;

	for (id = 0; id < THC_SCHEMES_COUNT; id++)
		if (thc_scheme_of(id)->close)
			thc_scheme_of(id)->close(c);
}

/* Opens all schemes that the job's constants allow, since any call may choose one. The rounding
 * mode is the default one, whatever the caller's, so that all ranks compute the same.
 */
static int open_schemes(struct thc_client *c)
{
	unsigned int id;
	fenv_t callers;
	int error = 0;

	fegetenv(&callers);
	fesetenv(FE_DFL_ENV);
	for (id = 0; id < THC_SCHEMES_COUNT && !error; id++)
		if (!thc_scheme_of(id)->check(&c->spec) && thc_scheme_of(id)->open)
			error = thc_scheme_of(id)->open(c);
	fesetenv(&callers);
	return error;
}

static void tear_down(struct thc_client *c)
{
	memset(c->numbered, 0, sizeof(c->numbered));
	if (c->scheme)
		close_schemes(c);
}

/* The transport that the program asks for, or else the environment. */
static int wanted_transport(const struct thc_client_options *o, enum thc_transport_choice *out)
{
	const char *text = getenv("THC_TRANSPORT");

	*out = o->transport;
	if (o->transport != THC_TRANSPORT_AUTO || !text || !*text || !strcmp(text, "auto"))
		return 0;
	if (!strcmp(text, "udp"))
		*out = THC_TRANSPORT_UDP;
	else if (!strcmp(text, "af_thc"))
		*out = THC_TRANSPORT_AF_THC;
	else
		return thc_fail(-EINVAL, "THC_TRANSPORT=%s: use auto, udp or af_thc", text);
	return 0;
}

static int open_transport(struct thc_client *c)
{
	enum thc_transport_choice wanted;
	int error = wanted_transport(&c->options, &wanted);

	if (error)
		return error;
	if (wanted != THC_TRANSPORT_UDP) {
		error = thc_afthc_open(c, &c->transport);
		/* a kernel without the family is an error only if AF_THC was asked for */
		if (error != -EAFNOSUPPORT || wanted == THC_TRANSPORT_AF_THC)
			return error;
	}
	return thc_udp_open(c, &c->transport);
}

static void leave_job(struct thc_client *c)
{
	if (c->transport->ops->leave)
		c->transport->ops->leave(c->transport);
}

static int join_job(struct thc_client *c)
{
	int error = c->transport->ops->join(c->transport);

	if (error)
		return error;
	c->round = 0;
	memset(c->results, 0, sizeof(c->results));
	c->scheme = thc_scheme_of(c->spec.scheme);
	c->counted_least = THC_COUNTED_BYTES;
	c->counted_value = 0;
	error = open_schemes(c);
	if (!error)
		error = thc_feedback_check(c, c->scheme);
	/* the other ranks must not start with a rank that has given up */
	if (error)
		leave_job(c);
	return error;
}

static int enter_job(struct thc_client *c)
{
	int error = join_job(c);

	if (error)
		return error;
	error = start_thread(c);
	/* a rank that cannot go on has to leave: the others wait for it */
	if (error)
		leave_job(c);
	return error;
}

int thc_client_open(const struct thc_client_options *options, struct thc_client **out)
{
	struct thc_client_options known;
	struct thc_client *c;
	int error;

	if (!options)
		return thc_fail(-EINVAL, "there are no options: use THC_CLIENT_OPTIONS_INIT");
	error = thc_struct_in(&options_layout, &known, options);
	if (!error)
		error = check_options(&known);
	if (error)
		return error;
	c = calloc(1, sizeof(*c));
	if (!c)
		return thc_fail(-ENOMEM, "out of memory");
	c->pid = getpid();
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->work, NULL);
	c->options = known;
	c->simd = thc_simd_ops(known.simd);
	snprintf(c->aggregator, sizeof(c->aggregator), "%s", known.aggregator);
	c->options.aggregator = c->aggregator;
	if (known.key) {
		memcpy(c->key, known.key, sizeof(c->key));
		c->options.key = c->key;
	}
	if (!c->options.port)
		c->options.port = THC_PORT_DEFAULT;
	if (!c->options.timeout_ms)
		c->options.timeout_ms = THC_TIMEOUT_MS;
	if (!c->options.join_timeout_ms)
		c->options.join_timeout_ms = THC_JOIN_TIMEOUT_MS;
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake < 0)
		error = thc_fail(-errno, "cannot make an eventfd: %s", strerror(errno));
	if (!error)
		error = open_transport(c);
	if (!error)
		error = enter_job(c);
	/* the caller may free these strings after this call */
	c->options.bind = NULL;
	c->options.interface = NULL;
	if (error) {
		thc_client_close(c);
		return error;
	}
	*out = c;
	return 0;
}

void thc_client_close(struct thc_client *c)
{
	bool own;

	if (!c)
		return;
	/* a process that was forked has the memory, but neither the rank nor the thread */
	own = c->pid == getpid();
	if (c->running && own) {
		stop_thread(c);
		cancel_requests(c);
		leave_job(c);
	}
	tear_down(c);
	thc_buffer_free(c);
	thc_residual_free(c);
	if (c->transport)
		c->transport->ops->close(c->transport);
	if (c->wake >= 0)
		close(c->wake);
	if (own) {
		pthread_cond_destroy(&c->work);
		pthread_mutex_destroy(&c->lock);
	}
	explicit_bzero(c->key, sizeof(c->key));
	free(c);
}

/* Nobody would end what a forked child starts, and the rank is its parent's. */
static int check_process(const struct thc_client *c)
{
	if (c->pid == getpid())
		return 0;
	return thc_fail(
		-EINVAL,
		"process %d has opened this client, whose thread a forked child does not have: open a client of the child's own, or call from that process",
		(int)c->pid);
}

int thc_client_rejoin(struct thc_client *c)
{
	int error = check_process(c);

	if (error)
		return error;
	stop_thread(c);
	cancel_requests(c);
	tear_down(c);
	thc_buffer_free(c);
	error = enter_job(c);
	if (error) {
		pthread_mutex_lock(&c->lock);
		c->broken = true;
		snprintf(c->sentence, sizeof(c->sentence), "%s", thc_last_error());
		pthread_mutex_unlock(&c->lock);
	}
	return error;
}

/* Called with the lock held. */
static int enqueue(struct thc_client *c, struct thc_request *r)
{
	struct thc_request **p;
	int error;

	thc_residual_asked(c, r->key);
	if (c->broken)
		return thc_fail(-ESTALE,
				"the client needs thc_client_rejoin() after this error: %s",
				c->sentence);
	if (c->options.flags & THC_CLIENT_ERROR_FEEDBACK && (r->scheme->loses || r->keep)) {
		error = thc_residual_get(c, r->key, r->count, &r->error);
		if (error)
			return error;
	}
	for (p = &c->queue; *p; p = &(*p)->next)
		;
	*p = r;
	return 0;
}

int thc_client_submit(struct thc_client *c, struct thc_request *r)
{
	int error = check_process(c);

	/* the lock may have been held when the child was forked off */
	if (error)
		return error;
	pthread_mutex_lock(&c->lock);
	error = enqueue(c, r);
	if (error)
		pthread_mutex_unlock(&c->lock);
	else
		unlock_and_wake(c);
	return error;
}

/* --- info and stats ---------------------------------------------------------- */

/* The lock of a constant client: locking it changes nothing that a caller can see. */
static pthread_mutex_t *lock_of(const struct thc_client *c)
{
	return (pthread_mutex_t *)&c->lock;
}

int thc_client_info(const struct thc_client *c, struct thc_client_info *info)
{
	struct thc_client_info now = {
		.ranks = c->spec.ranks,
		.epoch = c->epoch,
		.data_slots = c->spec.data_slots,
		.multicast = c->spec.reply == THC_REPLY_MULTICAST,
		.simd = c->running ? c->simd->name : "none",
		.transport = c->transport->ops->name,
		.window = c->window,
		.window_limit = c->window_limit,
		.sum_width = thc_spec_sum_width(&c->spec),
		.scheme = thc_scheme_name[c->scheme->id],
		.precision = thc_scheme_is_precise(c->scheme->id) ? c->spec.value_bits : 0,
		.shards = c->list.count ? c->list.count : 1,
		.seal = thc_seal_name[c->spec.seal],
	};

	c->scheme->describe(c, &now);
	/* by the scheme none, a job may have none that is of use */
	if (thc_table_read(&c->spec, &now.table))
		now.table = (struct thc_table){ .bits = 0 };
	pthread_mutex_lock(lock_of(c));
	now.memory_peak = c->memory_shown;
	pthread_mutex_unlock(lock_of(c));
	return thc_struct_out(&info_layout, info, &now);
}

int thc_client_stats(const struct thc_client *c, struct thc_client_stats *stats)
{
	struct thc_client_stats now;

	pthread_mutex_lock(lock_of(c));
	now = c->shown;
	pthread_mutex_unlock(lock_of(c));
	if (c->transport->ops->ask)
		c->transport->ops->ask(c->transport, &now);
	return thc_struct_out(&stats_layout, stats, &now);
}
