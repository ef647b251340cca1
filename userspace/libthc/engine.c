// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The I/O thread: receive, send what the windows allow, send again what is
 * overdue, compute a slice, and sleep when there is nothing to do.
 * What an answer means and when a packet is sent again is in <thc/flight.h>.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

uint64_t thc_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* --- active requests ------------------------------------------------------ */

/* The first THC_ACTIVE_MAX requests of the queue are active. */
static unsigned int active_requests(struct thc_client *c, struct thc_request **out)
{
	struct thc_request *r;
	unsigned int n = 0;

	pthread_mutex_lock(&c->lock);
	for (r = c->queue; r && n < THC_ACTIVE_MAX; r = r->next)
		out[n++] = r;
	pthread_mutex_unlock(&c->lock);
	return n;
}

/* Takes a finished request off the queue and wakes who waits for it. */
static void complete(struct thc_client *c, struct thc_request *r)
{
	struct thc_request **p;

	if (r->status)
		c->stats.failures++;
	else
		c->stats.requests++;
	thc_request_release(r);
	pthread_mutex_lock(&c->lock);
	for (p = &c->queue; *p; p = &(*p)->next) {
		if (*p == r) {
			*p = r->next;
			break;
		}
	}
	if (r->error)
		r->error->busy = false;
	thc_client_show(c);
	pthread_mutex_unlock(&c->lock);
	thc_request_end(r);
}

/* Everything in the queue fails; only a rejoin helps. */
static void break_client(struct thc_client *c, int status, const char *sentence)
{
	struct thc_request *r;

	thc_stream_forget(&c->sender.norms);
	thc_stream_forget(&c->sender.data);
	pthread_mutex_lock(&c->lock);
	c->broken = true;
	snprintf(c->sentence, sizeof(c->sentence), "%s", sentence);
	r = c->queue;
	pthread_mutex_unlock(&c->lock);
	/* @sentence may be a request's, and who waits for it frees it */
	while (r) {
		struct thc_request *next = r->next;

		r->status = status;
		if (r->sentence != sentence)
			snprintf(r->sentence, sizeof(r->sentence), "%s", c->sentence);
		complete(c, r);
		r = next;
	}
}

/* --- answers -------------------------------------------------------------- */

/* A round that failed for this rank alone. */
static void on_adrift(struct thc_client *c, const struct thc_request *r)
{
	char text[THC_SENTENCE_MAX];

	snprintf(
		text, sizeof(text),
		"%.400s; the others went on without this rank, which was late: call thc_client_rejoin() on all ranks",
		r->sentence);
	break_client(c, r->status, text);
}

/* Chunk @index of @r has its answer; @lanes: NULL if the sum is gone. */
static void on_answer(struct thc_client *c, const struct thc_stream *s, struct thc_request *r,
		      uint32_t index, const struct thc_hdr *h, const void *lanes)
{
	c->stats.chunks++;
	if (s == &c->sender.data)
		thc_request_data_answer(r, index, h, lanes);
	else
		thc_request_norm_answer(r, index, lanes);
	if (r->adrift)
		on_adrift(c, r);
}

static void on_epoch(struct thc_client *c, const struct thc_hdr *h)
{
	char text[THC_SENTENCE_MAX];

	snprintf(
		text, sizeof(text),
		"rank %u restarted or joined again (job %u is now in epoch %u, this rank is in epoch %u): call thc_client_rejoin() on all ranks",
		h->rank, c->options.job, thc_be32(h->epoch), c->params.epoch);
	break_client(c, -ESTALE, text);
}

/* A generation closed by deadline and overwritten before this rank came. */
static void on_behind(struct thc_client *c)
{
	char text[THC_SENTENCE_MAX];

	snprintf(
		text, sizeof(text),
		"this rank (%u) fell so far behind that the others' results are gone: raise the job's deadline or call thc_client_rejoin() on all ranks",
		c->options.rank);
	break_client(c, -ESTALE, text);
}

static void on_unexpected(struct thc_client *c, const struct thc_hdr *h)
{
	/* that an older epoch is over is no answer */
	if (h->op != THC_OP_STALE || !(h->flags & THC_F_EPOCH))
		c->stats.unexpected++;
}

/* @got: the packet is whole, and about @f in @s if that is not NULL. */
static void on_sound(struct thc_client *c, enum thc_got got, struct thc_stream *s,
		     struct thc_flight *f, const struct thc_hdr *h, bool ce)
{
	/* taking the answer frees the flight */
	struct thc_request *r = f ? f->owner : NULL;
	uint32_t index = f ? f->index : 0;

	if (r)
		c->stats.repeats += !!(h->flags & THC_F_REPEAT);
	thc_sender_take(&c->sender, got, s, f, h, ce, thc_now());
	switch (got) {
	case THC_GOT_ANSWER:
		on_answer(c, s, r, index, h, h + 1);
		break;
	case THC_GOT_MISSED:
		on_answer(c, s, r, index, h, NULL);
		break;
	case THC_GOT_WAIT:
		c->stats.waits++;
		break;
	case THC_GOT_BEHIND:
		on_behind(c);
		break;
	case THC_GOT_EPOCH:
		on_epoch(c, h);
		break;
	case THC_GOT_UNEXPECTED:
		on_unexpected(c, h);
		break;
	case THC_GOT_FOREIGN:
		break;
	}
}

static void on_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, bool ce)
{
	struct thc_client *c = ctx;
	struct thc_stream *s;
	struct thc_flight *f;
	enum thc_got got;

	c->stats.packets_down++;
	c->stats.bytes_down += thc_link_wire_bytes(&c->link, bytes);
	got = thc_sender_find(&c->sender, h, bytes, &s, &f);
	if (got == THC_GOT_FOREIGN)
		return;
	if (!thc_sender_sum_ok(&c->sender, h, h + 1, (int)((bytes - sizeof(*h)) / 8))) {
		c->stats.bad_sum++;
		return;
	}
	c->unreachable_at = 0;
	on_sound(c, got, s, f, h, ce);
}

/* The network reports an error: of a packet sent before, or of the next one. */
static void unreachable(struct thc_client *c, int error)
{
	if (!c->unreachable_at)
		c->unreachable_at = thc_now();
	c->unreachable = error;
}

/* True if anything came. */
static bool receive(struct thc_client *c)
{
	struct thc_link *l = &c->link;
	bool any = false;
	int n;

	if (l->group >= 0) {
		n = thc_link_receive(l, l->group, on_packet, c, &c->stats.receive_calls);
		any |= n > 0;
	}
	n = thc_link_receive(l, l->unicast, on_packet, c, &c->stats.receive_calls);
	if (n < 0)
		unreachable(c, n);
	return any | (n > 0);
}

/* --- requests out --------------------------------------------------------- */

static uint16_t port_of(const struct thc_client *c, const struct thc_hdr *h)
{
	uint16_t base = c->options.port ? c->options.port : THC_PORT_DEFAULT;

	return c->params.flags & THC_WELCOME_F_ONE_PORT ? base :
							  thc_slot_port(base, thc_be16(h->slot));
}

static struct thc_outgoing outgoing(struct thc_client *c, const struct thc_flight *f)
{
	c->stats.packets_up++;
	c->stats.bytes_up += thc_link_wire_bytes(&c->link, f->bytes);
	return (struct thc_outgoing){
		.data = f->packet, .bytes = f->bytes, .port = port_of(c, f->packet),
	};
}

static bool send_all(struct thc_client *c, const struct thc_outgoing *out, unsigned int count)
{
	int n;

	if (!count)
		return false;
	/* what the kernel did not take now is overdue soon */
	n = thc_link_send(&c->link, out, count, &c->stats.send_calls);
	if (n < 0)
		unreachable(c, n);
	return true;
}

/* The request whose chunk @sequence of @s can be sent now, or NULL. */
static struct thc_request *sendable(struct thc_client *c, const struct thc_stream *s,
				    struct thc_request **active, unsigned int n, uint64_t sequence,
				    uint32_t *index)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct thc_request *r = active[i];
		bool norms = s == &c->sender.norms;
		uint64_t first = norms ? r->norm_first : r->data_first;
		uint64_t ready = norms ? r->norms_sendable :
					 r->packed * (r->data_chunks / (r->blocks ? r->blocks : 1));

		if (r->stage != THC_STAGE_QUEUED && sequence >= first && sequence < first + ready) {
			*index = (uint32_t)(sequence - first);
			return r;
		}
	}
	return NULL;
}

static bool transmit(struct thc_client *c, struct thc_stream *s, uint32_t window)
{
	bool norms = s == &c->sender.norms;
	uint16_t bytes =
		(uint16_t)(sizeof(struct thc_hdr) + (norms ? THC_LANE_BYTES : c->params.chunk / 2));
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = active_requests(c, active), count = 0;
	struct thc_outgoing out[THC_BATCH];
	uint64_t now = thc_now();

	while (count < THC_BATCH && thc_stream_may_send(s, window)) {
		const struct thc_flight *f;
		uint32_t index;
		struct thc_request *r = sendable(c, s, active, n, s->next, &index);

		if (!r)
			break;
		f = thc_flight_launch(&c->sender, s, r, index,
				      norms ? thc_request_norm_packet(r, index) :
					      thc_request_data_packet(r, index),
				      bytes, now);
		out[count++] = outgoing(c, f);
	}
	return send_all(c, out, count);
}

/* What is overdue of @s; true if anything was sent. Lowers *@due to the time of
 * the next timer.
 */
static bool retransmit(struct thc_client *c, struct thc_stream *s, uint64_t *due)
{
	struct thc_outgoing out[THC_BATCH];
	const struct thc_flight *f;
	uint64_t now = thc_now(), end;
	struct thc_overdue overdue;
	unsigned int count = 0;

	thc_overdue_begin(&c->sender, &overdue, now);
	while (count < THC_BATCH && (f = thc_overdue_next(&c->sender, s, &overdue, now))) {
		c->stats.retransmits++;
		out[count++] = outgoing(c, f);
	}
	end = thc_overdue_end(&c->sender, &overdue, now);
	if (end < *due)
		*due = end;
	return send_all(c, out, count);
}

/* --- time out ------------------------------------------------------------- */

/* The oldest chunk of @r in flight in @s, or NULL. */
static const struct thc_flight *oldest(const struct thc_stream *s, const struct thc_request *r)
{
	uint32_t i;

	for (i = 0; i < s->slots; i++) {
		const struct thc_flight *f = thc_stream_flight(s, s->next + i);

		if (f->owner == r)
			return f;
	}
	return NULL;
}

/* Ranks the oldest chunks in flight lack, by their last WAIT; 0: none came.
 * Only of the first request: for the next one ranks may be missing because
 * they, too, are still busy with the first.
 */
static uint64_t missing_ranks(struct thc_client *c, bool *left)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	const struct thc_flight *flights[2] = { NULL };
	uint64_t missing = 0;
	unsigned int i;

	if (active_requests(c, active)) {
		flights[0] = oldest(&c->sender.norms, active[0]);
		flights[1] = oldest(&c->sender.data, active[0]);
	}
	*left = false;
	for (i = 0; i < 2; i++) {
		if (!flights[i] || !flights[i]->present)
			continue;
		/* a job with a deadline goes on without who left */
		*left |= flights[i]->left && !c->params.deadline_ms;
		missing |= thc_ranks_mask(c->params.ranks) & ~flights[i]->present;
	}
	return missing;
}

static void name_the_missing(const struct thc_client *c, uint64_t missing, char *text, size_t room)
{
	char ranks[THC_RANKS_TEXT], peer[80];

	if (missing)
		snprintf(
			text, room,
			"no progress for %u ms: %s did not contribute; see why, then call thc_client_rejoin() on all ranks",
			c->options.timeout_ms, thc_name_ranks(missing, ranks, sizeof(ranks)));
	else
		snprintf(
			text, room,
			"no answer from the aggregator at %s for %u ms: is thcd running there, or was it restarted, and are UDP ports %u to %u open? Then call thc_client_rejoin() on all ranks",
			thc_link_peer_name(&c->link, peer, sizeof(peer)), c->options.timeout_ms,
			c->options.port, c->options.port + THC_PORT_SPAN - 1);
}

static void name_the_obstacle(const struct thc_client *c, char *text, size_t room)
{
	char peer[80];

	thc_link_peer_name(&c->link, peer, sizeof(peer));
	if (c->unreachable == -ECONNREFUSED)
		snprintf(
			text, room,
			"nobody serves at %s any more, or not the same thcd: see that it runs, then call thc_client_rejoin() on all ranks",
			peer);
	else
		snprintf(
			text, room,
			"the aggregator at %s cannot be reached: %s; is the interface up? Then call thc_client_rejoin() on all ranks",
			peer, strerror(-c->unreachable));
}

static void check_progress(struct thc_client *c)
{
	char text[THC_SENTENCE_MAX], ranks[THC_RANKS_TEXT];
	uint64_t now = thc_now(), missing;
	bool left;

	if (!c->sender.norms.in_flight && !c->sender.data.in_flight) {
		c->unreachable_at = 0;
		return;
	}
	missing = missing_ranks(c, &left);
	if (left) {
		snprintf(
			text, sizeof(text),
			"%s did not contribute, and a rank that is missing has left the job: restart it and call thc_client_rejoin() on all ranks",
			thc_name_ranks(missing, ranks, sizeof(ranks)));
		break_client(c, -EPIPE, text);
	} else if (c->unreachable_at &&
		   now - c->unreachable_at > THC_UNREACHABLE_MS * THC_NS_PER_MS) {
		name_the_obstacle(c, text, sizeof(text));
		break_client(c, c->unreachable, text);
	} else if (now - c->sender.progress_at > c->options.timeout_ms * THC_NS_PER_MS) {
		name_the_missing(c, missing, text, sizeof(text));
		break_client(c, -ETIMEDOUT, text);
	}
}

/* --- stages --------------------------------------------------------------- */

/* Sequence numbers are given in the order of the requests, and a request's
 * norms and data only once its agreement has come: a round that fails there
 * leaves no gap, and the next one can go on.
 */
static void advance(struct thc_client *c)
{
	struct thc_stream *norms = &c->sender.norms, *data = &c->sender.data;
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = active_requests(c, active), i;

	for (i = 0; i < n; i++) {
		struct thc_request *r = active[i];

		if (r->stage == THC_STAGE_QUEUED) {
			if (thc_request_prepare(r)) {
				break_client(c, -ENOMEM, r->sentence);
				return;
			}
			r->stage = THC_STAGE_MEASURE;
			r->round = c->round++;
		}
		if (r->stage == THC_STAGE_AGREE && !r->norms_sendable &&
		    (i == 0 || active[i - 1]->stage > THC_STAGE_AGREE)) {
			r->norm_first = norms->reserved++;
			thc_request_agree_packet(r);
			c->sender.progress_at = thc_now();
		}
		if (r->stage == THC_STAGE_DATA && r->norms_sendable > 1 && !r->data_reserved) {
			r->data_first = data->reserved;
			r->data_reserved = true;
			norms->reserved += r->norm_chunks;
			data->reserved += r->data_chunks;
		}
	}
}

static bool compute(struct thc_client *c)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = active_requests(c, active), i;

	for (i = 0; i < n; i++)
		if (thc_request_compute(active[i]))
			return true;
	return false;
}

static void finish_done(struct thc_client *c)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = active_requests(c, active), i;

	for (i = 0; i < n; i++) {
		if (active[i]->stage != THC_STAGE_DONE)
			continue;
		if (!active[i]->status)
			thc_request_finish(active[i]);
		complete(c, active[i]);
	}
}

/* --- the thread ----------------------------------------------------------- */

static bool stopping(struct thc_client *c)
{
	bool stop;

	pthread_mutex_lock(&c->lock);
	thc_client_show(c);
	stop = c->stop;
	pthread_mutex_unlock(&c->lock);
	return stop;
}

/* Sleeps until a packet, a new request, or time @due (~0: whenever). */
static void sleep_until(struct thc_client *c, uint64_t due)
{
	struct pollfd fds[] = {
		{ .fd = c->wake, .events = POLLIN },
		{ .fd = c->link.unicast, .events = POLLIN },
		{ .fd = c->link.group, .events = POLLIN },	/* -1 is ignored */
	};
	uint64_t now = thc_now(), wait = due > now ? due - now : 0, drained;
	struct timespec t = {
		.tv_sec = (time_t)(wait / 1000000000ULL),
		.tv_nsec = (long)(wait % 1000000000ULL),
	};

	if (ppoll(fds, 3, due == UINT64_MAX ? NULL : &t, NULL) > 0 && fds[0].revents &&
	    read(c->wake, &drained, sizeof(drained)) < 0)
		return;
}

void *thc_engine_run(void *client)
{
	struct thc_client *c = client;
	struct thc_stream *norms = &c->sender.norms, *data = &c->sender.data;

	while (!stopping(c)) {
		uint64_t due = UINT64_MAX;
		bool busy;

		advance(c);
		busy = receive(c);
		finish_done(c);
		advance(c);
		busy |= transmit(c, norms, norms->slots);
		busy |= transmit(c, data, thc_window_size(&c->sender.window));
		busy |= retransmit(c, norms, &due);
		busy |= retransmit(c, data, &due);
		check_progress(c);
		busy |= compute(c);
		if (!busy)
			sleep_until(c, due);
	}
	return NULL;
}
