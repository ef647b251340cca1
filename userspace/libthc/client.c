// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The public calls: open and close a client, start all-reduces and wait for
 * them. What happens in between is the engine's.
 */
#include <errno.h>
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
static const struct thc_struct_layout call_layout = { STRUCT_LAYOUT(thc_call, precision) };
static const struct thc_struct_layout info_layout = { STRUCT_LAYOUT(thc_client_info, transport) };
static const struct thc_struct_layout stats_layout = { STRUCT_LAYOUT(thc_client_stats,
								     rotated_ahead) };

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
	return 0;
}

static int start_thread(struct thc_client *c)
{
	sigset_t all, old;
	int error;

	c->stop = false;
	c->broken = false;
	thc_client_show(c);
	/* signals are the program's affair, and its threads' */
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
		return;		/* the counter is full: it is awake */
}

/* After this the caller owns what the I/O thread owned. */
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

/* Ends what is still queued; the thread has stopped. */
static void cancel_requests(struct thc_client *c)
{
	struct thc_request *r;

	pthread_mutex_lock(&c->lock);
	while ((r = c->queue)) {
		c->queue = r->next;
		r->status = -ECANCELED;
		thc_request_release(r);
		if (r->error)
			r->error->busy = false;
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

/* Those that the job's constants are good for: any call may choose one. */
static int open_schemes(struct thc_client *c)
{
	unsigned int id;
	int error = 0;

	for (id = 0; id < THC_SCHEMES_COUNT && !error; id++)
		if (!thc_scheme_of(id)->check(&c->spec))
			error = thc_scheme_of(id)->open(c);
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
	/* the other ranks must not start with a rank that has given up */
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
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->work, NULL);
	c->options = known;
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
		error = join_job(c);
	if (!error)
		error = start_thread(c);
	/* they may be gone after this call */
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
	if (!c)
		return;
	if (c->running) {
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
	pthread_cond_destroy(&c->work);
	pthread_mutex_destroy(&c->lock);
	explicit_bzero(c->key, sizeof(c->key));
	free(c);
}

int thc_client_rejoin(struct thc_client *c)
{
	int error;

	stop_thread(c);
	cancel_requests(c);
	tear_down(c);
	thc_buffer_free(c);
	error = join_job(c);
	if (!error)
		error = start_thread(c);
	if (error) {
		pthread_mutex_lock(&c->lock);
		c->broken = true;
		snprintf(c->sentence, sizeof(c->sentence), "%s", thc_last_error());
		pthread_mutex_unlock(&c->lock);
	}
	return error;
}

/* --- all-reduce ----------------------------------------------------------- */

static int check_buffer(const void *buf, size_t count, enum thc_dtype dtype)
{
	if (!buf || !count)
		return thc_fail(-EINVAL, "there is nothing to reduce: buffer %p with %zu values",
				buf, count);
	if ((unsigned int)dtype >= THC_DTYPES)
		return thc_fail(
			-EINVAL,
			"unknown dtype %d: use THC_FP32, THC_FP16 or THC_BF16, or THC_INT8, THC_INT16 or THC_INT32 with the scheme none",
			(int)dtype);
	if (count > UINT32_MAX)
		return thc_fail(-EINVAL, "%zu values are too many for one all-reduce: split it",
				count);
	return 0;
}

static int check_scheme(const struct thc_client *c, const struct thc_scheme *s,
			enum thc_dtype dtype)
{
	const char *reason;

	if (!(s->dtypes & 1U << dtype))
		return thc_fail(-EINVAL,
				"scheme %s takes no %s values: integers are for the scheme none",
				thc_scheme_name[s->id], thc_dtype_name(dtype));
	reason = s->check(&c->spec);
	if (reason)
		return thc_fail(-EOPNOTSUPP, "scheme %s is not for this job: %s",
				thc_scheme_name[s->id], reason);
	return 0;
}

/* Called with the lock held. */
static int enqueue(struct thc_client *c, struct thc_request *r)
{
	struct thc_request **p;
	int error;

	if (c->broken)
		return thc_fail(-ESTALE,
				"the client needs thc_client_rejoin() after this error: %s",
				c->sentence);
	if (c->options.flags & THC_CLIENT_ERROR_FEEDBACK && r->scheme->loses) {
		error = thc_residual_get(c, r->key, r->count, &r->error);
		if (error)
			return error;
	}
	for (p = &c->queue; *p; p = &(*p)->next)
		;
	*p = r;
	return 0;
}

static bool has_precision(const struct thc_scheme *s, enum thc_dtype dtype)
{
	return thc_scheme_is_precise(s->id) && THC_DTYPES_FLOAT & 1U << dtype;
}

static int check_grain(const struct thc_scheme *s, uint32_t grain)
{
	if (grain <= 1)
		return 0;
	if (s->id != THC_SCHEME_LHC)
		return thc_fail(-EINVAL, "a grain is for the scheme lhc: set it to 0");
	if (grain > THC_GRAIN_MAX || grain & (grain - 1))
		return thc_fail(-EINVAL, "the grain %u is no power of two up to %u", grain,
				THC_GRAIN_MAX);
	return 0;
}

static int check_precision(const struct thc_client *c, const struct thc_scheme *s,
			   enum thc_dtype dtype, unsigned int precision)
{
	if (!precision)
		return 0;
	if (!has_precision(s, dtype))
		return thc_fail(
			-EINVAL,
			"a precision is for floats by the schemes none and lhc: set it to 0");
	if (!thc_precision_known(precision))
		return thc_fail(
			-EINVAL,
			"unknown precision %u: use THC_EXACT, THC_FIXED_8, THC_FIXED_16 or THC_FIXED_32",
			precision);
	if (!thc_precision_fits(precision, c->spec.ranks))
		return thc_fail(-EOPNOTSUPP,
				"%u bits are too few for sums of %u ranks: use a larger precision",
				precision, c->spec.ranks);
	return 0;
}

int thc_allreduce_call_start(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
			     const struct thc_call *call, struct thc_request **out)
{
	const struct thc_scheme *scheme;
	struct thc_request *r;
	struct thc_call known;
	int error = check_buffer(buf, count, dtype);

	if (!error && !call)
		error = thc_fail(-EINVAL, "there is no thc_call: use THC_CALL_INIT");
	if (!error)
		error = thc_struct_in(&call_layout, &known, call);
	if (error)
		return error;
	scheme = known.scheme ? thc_scheme_named(known.scheme) : c->scheme;
	if (!scheme)
		return thc_fail(-EINVAL, "there is no scheme \"%s\": use one of thc_schemes()",
				known.scheme);
	error = check_scheme(c, scheme, dtype);
	if (!error)
		error = check_precision(c, scheme, dtype, known.precision);
	if (!error)
		error = check_grain(scheme, known.grain);
	if (error)
		return error;
	if (scheme->floats && THC_DTYPES_FLOAT & 1U << dtype)
		scheme = scheme->floats;
	r = thc_request_create(c, buf, count, dtype, scheme, known.key);
	if (!r)
		return thc_fail(-ENOMEM, "out of memory");
	r->precision = known.precision;
	/* the job's own scheme has the job's, unless the call says others */
	if (!known.scheme && !known.precision && has_precision(scheme, dtype))
		r->precision = c->spec.value_bits;
	if (!known.scheme && !known.grain && scheme->id == THC_SCHEME_LHC)
		known.grain = c->spec.grain;
	r->grain_log2 = known.grain ? (unsigned int)__builtin_ctz(known.grain) : 0;
	pthread_mutex_lock(&c->lock);
	error = enqueue(c, r);
	if (error) {
		pthread_mutex_unlock(&c->lock);
		thc_request_destroy(r);
		return error;
	}
	unlock_and_wake(c);
	*out = r;
	return 0;
}

int thc_allreduce_start(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
			uint64_t key, struct thc_request **out)
{
	const struct thc_call call = { .size = sizeof(call), .key = key };

	return thc_allreduce_call_start(c, buf, count, dtype, &call, out);
}

int thc_allreduce_wait(struct thc_request *r)
{
	int status;

	while (sem_wait(&r->ended))	/* a signal */
		;
	status = r->status;
	if (status < 0)
		thc_fail(status, "%s", r->sentence);
	thc_request_destroy(r);
	return status;
}

int thc_allreduce_test(struct thc_request *r)
{
	if (sem_trywait(&r->ended))
		return 0;
	sem_post(&r->ended);
	return 1;
}

int thc_allreduce(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype, uint64_t key)
{
	struct thc_request *r;
	int error = thc_allreduce_start(c, buf, count, dtype, key, &r);

	return error ? error : thc_allreduce_wait(r);
}

/* --- what it is, what it did ---------------------------------------------- */

/* Asking changes nothing that can be seen. */
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
		.simd = c->running ? thc_simd_ops(c->options.simd)->name : "none",
		.transport = c->transport->ops->name,
		.window = c->window,
		.window_limit = c->window_limit,
		.sum_width = c->spec.sum_width,
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
