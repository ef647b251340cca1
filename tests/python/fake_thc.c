// SPDX-License-Identifier: GPL-2.0
/*
 * A test double of libthc for the logic of the DDP hook alone: one rank, no
 * network. "Compression" keeps a quarter of (gradient + error memory) back,
 * exactly, so that a lost or misplaced error memory shows as a wrong sum.
 * Completes on request only, in any order, and fails on demand.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libthc.h"

#define MEMORIES	256

static __thread char sentence[128];

struct memory {
	uint64_t key;
	size_t count;
	float *error;
};

struct thc_client {
	struct memory memory[MEMORIES];
	struct thc_client_stats stats;
	int feedback;
	long fail_at;
	long delay_ms;
};

struct thc_request {
	struct thc_client *c;
	float *buf;
	size_t count;
	uint64_t key;
	long number;
};

static int fail(int err, const char *text)
{
	snprintf(sentence, sizeof(sentence), "%s", text);
	return err;
}

static long number_from(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

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
	if (options->size != sizeof(*options) || !options->aggregator)
		return fail(-EINVAL, "options do not fit: is this the right libthc?");
	if (!strcmp(options->aggregator, "192.0.2.1"))
		return fail(-EHOSTUNREACH, "no aggregator at 192.0.2.1: start thcd there");
	*out = calloc(1, sizeof(**out));
	(*out)->feedback = options->flags & THC_CLIENT_ERROR_FEEDBACK;
	(*out)->fail_at = number_from("FAKE_FAIL_AT", -1);
	(*out)->delay_ms = number_from("FAKE_DELAY_MS", 0);
	return 0;
}

void thc_client_close(struct thc_client *c)
{
	int i;

	for (i = 0; c && i < MEMORIES; i++)
		free(c->memory[i].error);
	free(c);
}

int thc_client_rejoin(struct thc_client *c)
{
	c->fail_at = -1;
	return 0;
}

int thc_allreduce_start(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
			uint64_t key, struct thc_request **out)
{
	struct thc_request *r;

	if (!buf || !count || dtype != THC_FP32)
		return fail(-EINVAL, "the fake takes fp32 only");
	r = calloc(1, sizeof(*r));
	r->c = c;
	r->buf = buf;
	r->count = count;
	r->key = key;
	r->number = c->stats.packets_up++;
	*out = r;
	return 0;
}

static void compress(struct thc_client *c, struct thc_request *r)
{
	struct memory *m = find(c, r->key, 1);
	size_t i;

	if (!m->error) {
		m->error = calloc(r->count, sizeof(float));
		m->count = r->count;
	}
	if (m->count != r->count)
		abort();
	for (i = 0; i < r->count; i++) {
		float x = r->buf[i] + m->error[i];

		m->error[i] = 0.25f * x;
		r->buf[i] = 0.75f * x;
	}
}

int thc_allreduce_wait(struct thc_request *r)
{
	struct timespec pause = { 0, r->c->delay_ms * 1000000 };
	struct thc_client *c = r->c;
	int err = 0;

	nanosleep(&pause, NULL);
	if (r->number == c->fail_at) {
		err = fail(-ETIMEDOUT, "rank 3 does not answer: is its process alive?");
		c->stats.failures++;
	} else {
		if (c->feedback)
			compress(c, r);
		c->stats.requests++;
	}
	free(r);
	return err;
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
	m->error = NULL;
	m->count = count;
	if (count) {
		m->error = malloc(sizeof(float) * count);
		memcpy(m->error, error, sizeof(float) * count);
	}
	return 0;
}

int thc_client_info(const struct thc_client *c, struct thc_client_info *info)
{
	(void)c;
	if (info->size != sizeof(*info))
		return fail(-EINVAL, "info does not fit");
	info->ranks = number_from("FAKE_RANKS", 1);
	info->transport = "fake";
	return 0;
}

int thc_client_stats(const struct thc_client *c, struct thc_client_stats *stats)
{
	if (stats->size != sizeof(*stats))
		return fail(-EINVAL, "stats do not fit");
	*stats = c->stats;
	stats->size = sizeof(*stats);
	return 0;
}

int thc_error_undo(struct thc_client *c, uint64_t key)
{
	(void)c;
	(void)key;
	return fail(-EINVAL, "the fake cannot undo");
}
