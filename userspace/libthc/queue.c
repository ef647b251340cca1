// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * What the I/O thread shares with the program's threads under client.lock: the queue of requests,
 * and the counters shown; and their clock.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client.h"
#include "queue.h"
#include "request.h"
#include "transport.h"

uint64_t thc_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

void thc_client_show(struct thc_client *c)
{
	c->shown = c->stats;
	if (c->transport->ops->show)
		c->transport->ops->show(c->transport, &c->shown);
	c->memory_shown = c->memory_peak;
}

unsigned int thc_queue_active(struct thc_client *c, struct thc_request **out)
{
	struct thc_request *r;
	unsigned int n = 0;

	pthread_mutex_lock(&c->lock);
	for (r = c->queue; r && n < THC_ACTIVE_MAX; r = r->next)
		out[n++] = r;
	pthread_mutex_unlock(&c->lock);
	return n;
}

void thc_queue_complete(struct thc_client *c, struct thc_request *r)
{
	struct thc_request **p;

	if (r->status < 0)
		c->stats.failures++;
	else
		c->stats.requests++;
	c->stats.nonfinite += r->status == THC_NONFINITE;
	thc_request_release(r);
	pthread_mutex_lock(&c->lock);
	for (p = &c->queue; *p; p = &(*p)->next) {
		if (*p == r) {
			*p = r->next;
			break;
		}
	}
	if (r->error)
		thc_residual_put(c, r->error, r->status < 0);
	thc_client_show(c);
	pthread_mutex_unlock(&c->lock);
	sem_post(&r->ended);
}

void thc_queue_break(struct thc_client *c, int status, const char *format, ...)
{
	struct thc_request *r, *next;
	va_list args;

	c->transport->ops->forget(c->transport);
	pthread_mutex_lock(&c->lock);
	c->broken = true;
	va_start(args, format);
	vsnprintf(c->sentence, sizeof(c->sentence), format, args);
	va_end(args);
	r = c->queue;
	pthread_mutex_unlock(&c->lock);
	for (; r; r = next) {
		next = r->next;
		r->status = status;
		memcpy(r->sentence, c->sentence, sizeof(r->sentence));
		thc_queue_complete(c, r);
	}
}
