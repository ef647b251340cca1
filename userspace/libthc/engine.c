// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The I/O thread: receive, send, compute a slice, and sleep when there is
 * nothing to do. How chunks travel is the transport's: transport_udp.c or
 * transport_afthc.c.
 */
#include <errno.h>
#include <fenv.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "pipeline.h"
#include "queue.h"
#include "request.h"
#include "transport.h"

static void finish_done(struct thc_client *c)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = thc_queue_active(c, active), i;

	for (i = 0; i < n; i++) {
		if (active[i]->stage != THC_STAGE_DONE)
			continue;
		if (active[i]->status >= 0)
			thc_request_finish(active[i]);
		thc_queue_complete(c, active[i]);
	}
}

static bool stopping(struct thc_client *c)
{
	bool stop;

	pthread_mutex_lock(&c->lock);
	thc_client_show(c);
	c->state = THC_AWAKE;
	c->news = false;
	stop = c->stop;
	pthread_mutex_unlock(&c->lock);
	return stop;
}

/* Sleeps until there are news: nothing is in flight. */
static void idle(struct thc_client *c)
{
	pthread_mutex_lock(&c->lock);
	c->state = THC_IDLE;
	while (!c->news)
		pthread_cond_wait(&c->work, &c->lock);
	c->state = THC_AWAKE;
	pthread_mutex_unlock(&c->lock);
}

/* Has other threads write to the eventfd from now on; false: client.news is set already. */
static bool may_poll(struct thc_client *c)
{
	bool may;

	pthread_mutex_lock(&c->lock);
	may = !c->news;
	if (may)
		c->state = THC_POLLING;
	pthread_mutex_unlock(&c->lock);
	return may;
}

/* Sleeps until a packet, a new request, or time @due (~0: whenever). */
static void sleep_until(struct thc_client *c, uint64_t due)
{
	struct pollfd fds[1 + THC_POLL_MAX] = { { .fd = c->wake, .events = POLLIN } };
	uint64_t now = thc_now(), wait = due > now ? due - now : 0, drained;
	struct timespec t = {
		.tv_sec = (time_t)(wait / 1000000000ULL),
		.tv_nsec = (long)(wait % 1000000000ULL),
	};
	struct thc_transport *transport = c->transport;
	unsigned int n = transport->ops->poll(transport, fds + 1);

	if (!n) {
		idle(c);
		return;
	}
	if (!may_poll(c) || ppoll(fds, n + 1, due == UINT64_MAX ? NULL : &t, NULL) <= 0)
		return;
	if (transport->ops->polled)
		transport->ops->polled(transport, fds + 1);
	if (fds[0].revents && read(c->wake, &drained, sizeof(drained)) < 0)
		return;
}

/* Does all that can be done now; false: nothing could be done, nor can be before time *@due. */
static bool turn(struct thc_client *c, uint64_t *due)
{
	bool busy;

	*due = UINT64_MAX;
	thc_pipeline_advance(c);
	busy = c->transport->ops->receive(c->transport);
	finish_done(c);
	thc_pipeline_advance(c);
	busy |= c->transport->ops->send(c->transport, due);
	return thc_pipeline_compute(c) || busy;
}

void *thc_engine_thread(void *client)
{
	struct thc_client *c = client;
	uint64_t due;

	/* threads inherit a program's rounding mode and flushing of subnormals: set the defaults */
	fesetenv(FE_DFL_ENV);
	while (!stopping(c))
		if (!turn(c, &due))
			sleep_until(c, due);
	return NULL;
}
