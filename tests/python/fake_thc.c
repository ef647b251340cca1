// SPDX-License-Identifier: GPL-2.0
/*
 * A test double of libthc for the logic of the DDP hook alone: no network, no
 * rounding, the same bits in every run. "Compression" keeps a quarter of
 * (gradient + error memory) back, so that an error memory that is lost,
 * misplaced or of another step shows as a wrong sum.
 *
 * With one rank a request ends when it is waited for. With FAKE_EXCHANGE, a
 * folder, FAKE_RANKS processes give each other what they contribute in files
 * there, and add it up in the order of their ranks:
 *	SESSION-REQUEST-RANK	a contribution: the values
 *	SESSION-REQUEST.key-RANK	its key, of which all ranks must have the same
 *	SESSION-joined-RANK	a rank that has joined
 *	SESSION-broken-RANK	a rank that has failed: the others need not wait
 *
 *	FAKE_FAIL_AT=N[,N...]	these requests fail here, counted from 0 since
 *				the client was opened; they reach the others
 *	FAKE_DELAY_MS=N		a request takes so long
 *	FAKE_BROKEN=1		joining again fails
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "libthc_rows.h"

#define MEMORIES	256
#define PATH_ROOM	512

static __thread char sentence[THC_SENTENCE_MAX];

/* What the last client was opened with, for the tests. */
uint8_t fake_key[THC_KEY_BYTES];
int fake_closed;

struct memory {
	uint64_t key;
	size_t count;
	float *error;
	float *before;	/* what @error was before the last request of the key, if */
	int undoable;	/* that one succeeded */
};

struct thc_client {
	struct memory memory[MEMORIES];
	struct thc_client_stats stats;
	const char *exchange;
	unsigned int flags;
	double rate;
	double error;
	unsigned int rank;
	unsigned int ranks;
	unsigned int session;
	long timeout_ms;
	long requests;		/* begun since the client was opened */
	long in_session;	/* begun since it joined the last time */
	int broken;
};

struct thc_request {
	struct thc_client *c;
	float *buf;
	float *gives;		/* what this rank contributes */
	size_t count;
	uint64_t key;
	int exact;		/* by none, or by lhc without a fraction: no error memory */
	struct thc_rows rows;	/* of an all-reduce of rows */
	unsigned int session;
	long number;
	long in_session;
};

/* Also for thc_key_read(), which is libthc's own. */
int thc_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return error;
}

static long number_from(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

/* Whether @number is in the list that the environment's FAKE_FAIL_AT has. */
static int fails(long number)
{
	const char *text = getenv("FAKE_FAIL_AT");
	char *end;

	while (text && *text) {
		if (strtol(text, &end, 10) == number)
			return 1;
		text = *end ? end + 1 : end;
	}
	return 0;
}

static void pause_ms(long ms)
{
	struct timespec pause = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&pause, NULL);
}

/* --- the exchange --------------------------------------------------------- */

static void path_of(char *path, const struct thc_client *c, unsigned int session, const char *what,
		    unsigned int rank)
{
	snprintf(path, PATH_ROOM, "%s/%u-%s-%u", c->exchange, session, what, rank);
}

/* A file that appears whole. */
static void publish(const struct thc_client *c, unsigned int session, const char *what,
		    const void *data, size_t bytes)
{
	char path[PATH_ROOM], part[PATH_ROOM + 8];
	FILE *f;

	path_of(path, c, session, what, c->rank);
	snprintf(part, sizeof(part), "%s.part", path);
	f = fopen(part, "w");
	if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) || rename(part, path))
		abort();
}

static int is_broken(const struct thc_client *c, unsigned int session, unsigned int rank)
{
	char path[PATH_ROOM];

	path_of(path, c, session, "broken", rank);
	return !access(path, R_OK);
}

/* Waits for what @rank has published; 0 or -ETIMEDOUT. */
static int await(const struct thc_client *c, unsigned int session, const char *what,
		 unsigned int rank, void *data, size_t bytes)
{
	char path[PATH_ROOM];
	long waited;
	FILE *f;

	path_of(path, c, session, what, rank);
	for (waited = 0; access(path, R_OK); waited++) {
		if (waited > c->timeout_ms || (is_broken(c, session, rank) && access(path, R_OK)))
			return thc_fail(-ETIMEDOUT, "a rank did not contribute");
		pause_ms(1);
	}
	f = fopen(path, "r");
	if (!f || fread(data, 1, bytes, f) != bytes || fclose(f))
		abort();
	return 0;
}

static int join(struct thc_client *c)
{
	unsigned int i;
	char byte = 0;

	c->session++;
	c->in_session = 0;
	if (!c->exchange)
		return 0;
	publish(c, c->session, "joined", &byte, 1);
	for (i = 0; i < c->ranks; i++)
		if (await(c, c->session, "joined", i, &byte, 1))
			return thc_fail(-ETIMEDOUT, "a rank did not join");
	return 0;
}

/* Whether @rank's request of this number is the same one; an error if not. */
static int agree(const struct thc_request *r, unsigned int rank)
{
	uint64_t key = 0;
	char what[32];
	int error;

	snprintf(what, sizeof(what), "%ld.key", r->in_session);
	error = await(r->c, r->session, what, rank, &key, sizeof(key));
	if (!error && key != r->key)
		error = thc_fail(-EBADMSG, "rank %u reduces another bucket", rank);
	return error;
}

/* The mean of all ranks' contributions into @sum. */
static int add_up(struct thc_request *r, float *sum)
{
	float *other = malloc(r->count * sizeof(float));
	struct thc_client *c = r->c;
	int error = 0;
	unsigned int i;
	char what[32];
	size_t k;

	memset(sum, 0, r->count * sizeof(float));
	snprintf(what, sizeof(what), "%ld", r->in_session);
	for (i = 0; !error && i < c->ranks; i++) {
		error = agree(r, i);
		if (!error)
			error = await(c, r->session, what, i, other, r->count * sizeof(float));
		for (k = 0; !error && k < r->count; k++)
			sum[k] += other[k];
	}
	for (k = 0; k < r->count; k++)
		sum[k] /= (float)c->ranks;
	free(other);
	return error;
}

/* --- the client ----------------------------------------------------------- */

/* The memory of @key, made if @make; an empty one has no key. */
static struct memory *find(struct thc_client *c, uint64_t key, int make)
{
	int i;

	for (i = 0; i < MEMORIES; i++)
		if (c->memory[i].error && c->memory[i].key == key)
			return &c->memory[i];
	for (i = 0; make && i < MEMORIES; i++)
		if (!c->memory[i].error) {
			c->memory[i].key = key;
			return &c->memory[i];
		}
	return NULL;
}

const char *thc_version(void)
{
	return "fake";
}

const char *thc_last_error(void)
{
	return sentence;
}

int thc_client_open(const struct thc_client_options *options, struct thc_client **out)
{
	struct thc_client *c;

	if (options->size != sizeof(*options) || !options->aggregator || !options->key)
		return thc_fail(-EINVAL, "options do not fit: is this the right libthc?");
	if (!strcmp(options->aggregator, "192.0.2.1"))
		return thc_fail(-EHOSTUNREACH, "no aggregator at 192.0.2.1: start thcd there");
	memcpy(fake_key, options->key, sizeof(fake_key));
	c = calloc(1, sizeof(*c));
	c->flags = options->flags;
	c->rate = options->rate;
	c->error = options->error;
	c->rank = options->rank;
	c->ranks = (unsigned int)number_from("FAKE_RANKS", 1);
	c->exchange = getenv("FAKE_EXCHANGE");
	c->timeout_ms = options->timeout_ms ? options->timeout_ms : 60000;
	*out = c;
	return join(c);
}

void thc_client_close(struct thc_client *c)
{
	int i;

	fake_closed++;
	for (i = 0; c && i < MEMORIES; i++) {
		free(c->memory[i].error);
		free(c->memory[i].before);
	}
	free(c);
}

int thc_client_rejoin(struct thc_client *c)
{
	if (number_from("FAKE_BROKEN", 0))
		return thc_fail(-ECONNREFUSED, "nobody serves at 192.0.2.9: start thcd there");
	c->broken = 0;
	c->ranks = (unsigned int)number_from("FAKE_RANKS", 1);
	return join(c);
}

/* What of a gradient is contributed; the memory changes when the request succeeds. */
static void compress(struct thc_request *r)
{
	struct memory *m = find(r->c, r->key, 1);
	size_t i;

	if (!m->error) {
		m->error = calloc(r->count, sizeof(float));
		m->before = calloc(r->count, sizeof(float));
		m->count = r->count;
	}
	if (m->count != r->count)
		abort();
	m->undoable = 0;
	for (i = 0; i < r->count; i++)
		r->gives[i] = 0.75f * (r->buf[i] + m->error[i]);
}

static void remember(struct thc_request *r)
{
	struct memory *m = find(r->c, r->key, 0);
	size_t i;

	memcpy(m->before, m->error, r->count * sizeof(float));
	for (i = 0; i < r->count; i++)
		m->error[i] = r->gives[i] / 3;
	m->undoable = 1;
}

/* With a rate all buckets have four blocks of 64, one of them skipped, 1.5 bits up, 3 down. With
 * FAKE_TRIED from the third bucket on it is known what is faster: that enum thc_trial_state.
 */
static void choose_bits(struct thc_client *c)
{
	const long found = number_from("FAKE_TRIED", 0);

	if (c->rate <= 0 && c->error <= 0 && !found)
		return;
	c->stats.rate_requests++;
	c->stats.rate_blocks += 4;
	c->stats.rate_skipped++;
	c->stats.rate_bits_up += 4 * 64 * 3 / 2;
	c->stats.rate_bits_down += 4 * 64 * 3;
	c->stats.rate_square += 4;
	c->stats.rate_lost += .02;
	c->stats.trial = THC_TRIAL_FOR_RATE;
	c->stats.trial_fixed_ns = 900;
	if (!found)
		return;
	c->stats.trial = c->stats.rate_requests < 3 ? THC_TRIAL_RUNS : (uint64_t)found;
	c->stats.trial_rate_ns = 600;
}

int thc_allreduce_call_start(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
			     const struct thc_call *call, struct thc_request **out)
{
	const int exact = call->scheme ? !strcmp(call->scheme, "none") ||
						 (!strcmp(call->scheme, "lhc") && call->keep == 0) :
					 (int)number_from("FAKE_NONE", 0);
	struct thc_request *r;
	char what[32];
	size_t i;

	if (!buf || !count || dtype != THC_FP32)
		return thc_fail(-EINVAL, "the fake takes fp32 only");
	if (c->broken)
		return thc_fail(-ESTALE, "the client needs thc_client_rejoin() after an error");
	r = calloc(1, sizeof(*r));
	r->c = c;
	r->buf = buf;
	r->count = count;
	r->key = call->key;
	r->exact = exact;
	if (!call->scheme)
		choose_bits(c);
	r->session = c->session;
	r->number = c->requests++;
	r->in_session = c->in_session++;
	r->gives = malloc(count * sizeof(float));
	memcpy(r->gives, buf, count * sizeof(float));
	if (c->flags & THC_CLIENT_ERROR_FEEDBACK && !exact)
		compress(r);
	/* the job's precision, but for a call that names the scheme: here one of quarters */
	if (exact && !call->scheme && number_from("FAKE_PRECISION", 0))
		for (i = 0; i < count; i++)
			r->gives[i] = rintf(4 * r->gives[i]) / 4;
	if (c->exchange) {
		snprintf(what, sizeof(what), "%ld.key", r->in_session);
		publish(c, r->session, what, &r->key, sizeof(r->key));
		snprintf(what, sizeof(what), "%ld", r->in_session);
		publish(c, r->session, what, r->gives, count * sizeof(float));
	}
	*out = r;
	return 0;
}

/* 0, THC_NONFINITE or an error; @sum is the mean. */
static int reduce(struct thc_request *r, float *sum)
{
	int error = 0;
	size_t i;

	if (r->session != r->c->session)
		return thc_fail(-ECANCELED, "the client was closed or joined again");
	if (r->c->broken)
		return thc_fail(-ESTALE, "the client needs thc_client_rejoin() after an error");
	if (r->c->exchange)
		error = add_up(r, sum);
	else
		memcpy(sum, r->gives, r->count * sizeof(float));
	if (error)
		return error;
	if (fails(r->number))
		return thc_fail(-ETIMEDOUT, "rank 3 does not answer: is its process alive?");
	for (i = 0; i < r->count; i++)
		if (!isfinite(sum[i]))
			return r->c->flags & THC_CLIENT_NONFINITE ?
				       THC_NONFINITE :
				       thc_fail(-EDOM, "a gradient is not finite");
	return 0;
}

int thc_allreduce_wait(struct thc_request *r)
{
	float *sum = malloc(r->count * sizeof(float));
	struct thc_client *c = r->c;
	int result;
	size_t i;

	pause_ms(number_from("FAKE_DELAY_MS", 0));
	result = reduce(r, sum);
	for (i = 0; result == THC_NONFINITE && i < r->count; i++)
		sum[i] = NAN;
	if (result >= 0)
		memcpy(r->buf, sum, r->count * sizeof(float));
	if (!result && c->flags & THC_CLIENT_ERROR_FEEDBACK && !r->exact)
		remember(r);
	c->stats.requests += result >= 0;
	c->stats.nonfinite += result == THC_NONFINITE;
	c->stats.failures += result < 0;
	if (result < 0 && result != -EDOM && result != -ECANCELED && !c->broken) {
		c->broken = 1;
		if (c->exchange)
			publish(c, r->session, "broken", "", 1);
	}
	free(r->gives);
	free(sum);
	free(r);
	return result;
}

size_t thc_error_export(struct thc_client *c, uint64_t key, float *error, size_t count)
{
	struct memory *m = find(c, key, 0);

	if (!m)
		return 0;
	if (error)
		memcpy(error, m->error, sizeof(float) * (count < m->count ? count : m->count));
	return m->count;
}

int thc_error_import(struct thc_client *c, uint64_t key, const float *error, size_t count)
{
	struct memory *m = find(c, key, 1);

	free(m->error);
	free(m->before);
	m->error = NULL;
	m->before = NULL;
	m->count = count;
	if (count) {
		m->error = malloc(sizeof(float) * count);
		m->before = malloc(sizeof(float) * count);
		memcpy(m->error, error, sizeof(float) * count);
		m->undoable = 0;
	}
	return 0;
}

int thc_error_undo(struct thc_client *c, uint64_t key)
{
	struct memory *m = find(c, key, 0);
	float *swap;

	if (!m || !m->undoable)
		return 0;
	swap = m->error;
	m->error = m->before;
	m->before = swap;
	m->undoable = 0;
	return 0;
}

/* Rows, of a job of one rank alone: what it brings comes back. One array. */
int thc_allreduce_rows_start(struct thc_client *c, const struct thc_rows *rows,
			     enum thc_dtype dtype, const struct thc_call *call,
			     struct thc_request **out)
{
	struct thc_request *r;

	if (c->exchange || dtype != THC_FP32 || rows->arrays != 1 ||
	    strcmp(call->scheme, "lhc") != 0)
		return thc_fail(-EINVAL, "the fake takes fp32 rows of one rank only");
	r = calloc(1, sizeof(*r));
	r->c = c;
	r->buf = (void *)(uintptr_t)rows->values[0];
	r->count = rows->count * rows->width[0];
	r->rows = *rows;
	*out = r;
	return 0;
}

int thc_allreduce_rows_wait(struct thc_request *r, struct thc_rows *out)
{
	int result = 0;
	size_t i;

	for (i = 0; i < r->count; i++)
		if (!isfinite(r->buf[i]))
			result = r->c->flags & THC_CLIENT_NONFINITE ? THC_NONFINITE :
								      thc_fail(-EDOM, "NaN");
	if (!result) {
		out->count = r->rows.count;
		out->arrays = 1;
		out->row = memcpy(malloc(out->count * 8 + 1), r->rows.row, out->count * 8);
		out->values = malloc(sizeof(*out->values));
		((void **)(uintptr_t)out->values)[0] = memcpy(malloc(r->count * sizeof(float) + 1),
							      r->buf, r->count * sizeof(float));
	}
	free(r);
	return result;
}

void thc_rows_free(struct thc_rows *rows)
{
	if (rows->values)
		free((void *)(uintptr_t)rows->values[0]);
	free((void *)(uintptr_t)rows->values);
	free((void *)(uintptr_t)rows->row);
}

const char *const *thc_schemes(void)
{
	static const char *const names[] = { "thc", "other", "none", "lhc", NULL };

	return names;
}

int thc_client_info(const struct thc_client *c, struct thc_client_info *info)
{
	if (info->size != sizeof(*info))
		return thc_fail(-EINVAL, "info does not fit");
	info->ranks = c->ranks;
	info->transport = "fake";
	info->window = 92;
	info->window_limit = "the receive buffer (net.core.rmem_max)";
	info->scheme = number_from("FAKE_NONE", 0) ? "none" :
		       number_from("FAKE_LHC", 0)  ? "lhc" :
						     "thc";
	info->data_slots = 512;
	info->table.bits = 3;
	info->sum_width = 16;
	info->seal = "sum";
	info->block = 64;
	info->rate_tried = number_from("FAKE_TRIED", 0) > 0;
	info->table_error = 1e-4 * (double)number_from("FAKE_TABLE_ERROR", 0);
	info->rate_goal = info->rate_tried ? 4 : c->rate;
	info->error_goal = c->error;
	info->shards = (unsigned int)number_from("FAKE_SHARDS", 1);
	info->precision = (unsigned int)number_from("FAKE_PRECISION", 0);
	return 0;
}

int thc_client_stats(const struct thc_client *c, struct thc_client_stats *stats)
{
	if (stats->size != sizeof(*stats))
		return thc_fail(-EINVAL, "stats do not fit");
	*stats = c->stats;
	stats->size = sizeof(*stats);
	return 0;
}
