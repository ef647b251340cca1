// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The I/O thread: receive, send what the windows allow, send again what is
 * overdue, compute a slice, and sleep when there is nothing to do.
 *
 * When is a packet sent again?
 *  - Answers to packets first sent somewhat later have come: it was lost on the
 *    way up or its answer on the way down. The window is cut.
 *  - Its timer ran out and no answer at all came for as long; only the oldest
 *    few, so that a stall does not turn into a burst. When these turn out to
 *    have been lost, twice as many more follow at once.
 * WAIT in reply says it was neither: somebody else is late. The cut is undone
 * and the packet counts as just sent.
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

static void forget_flights(struct thc_stream *s)
{
	uint32_t i;

	for (i = 0; i < s->slots; i++)
		s->flight[i].request = NULL;
	s->in_flight = 0;
	s->next = s->reserved;
}

/* Everything in the queue fails; only a rejoin helps. */
static void break_client(struct thc_client *c, int status, const char *sentence)
{
	struct thc_request *r;

	forget_flights(&c->norms);
	forget_flights(&c->data);
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

/* When the next timer may fire, and for how many packets. */
static void restart_timers(struct thc_client *c, const struct thc_flight *f, uint64_t now)
{
	bool was_lost = f->tries && !f->waiting;

	c->stalls = 0;
	c->timers_at = was_lost ? now : now + thc_window_rto(&c->window);
	c->probes = was_lost ? c->probes * 2 : THC_PROBES;
	if (c->probes > THC_BATCH)
		c->probes = THC_BATCH;
}

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

static void land(struct thc_client *c, struct thc_stream *s, struct thc_flight *f,
		 const struct thc_hdr *h, const void *lanes)
{
	struct thc_request *r = f->request;
	uint32_t index = f->index;
	uint64_t now = thc_now();

	thc_window_answer(&c->window, f->tries || f->waiting ? 0 : now - f->sent_at);
	/* a retransmission may be overtaken by the answer to the original */
	if (f->first_order > s->order_answered)
		s->order_answered = f->first_order;
	restart_timers(c, f, now);
	c->progress_at = now;
	c->stats.chunks++;
	f->request = NULL;		/* but it keeps `sequence` and `cut` */
	s->in_flight--;
	if (s == &c->data)
		thc_request_data_answer(r, index, h, lanes);
	else
		thc_request_norm_answer(r, index, lanes);
	if (r->adrift)
		on_adrift(c, r);
}

static void on_wait(struct thc_client *c, struct thc_flight *f, const struct thc_hdr *h)
{
	c->stats.waits++;
	if (f->cut)
		thc_window_spurious(&c->window);
	f->cut = false;
	c->probes = THC_PROBES;
	f->waiting = true;
	f->left = h->flags & THC_F_LEFT;
	f->present = thc_be64(h->bitmap);
	f->order = c->order;
}

/* An answer to a retransmission of what had its answer already: the original
 * had arrived, so the window was cut for nothing.
 */
static void on_landed(struct thc_client *c, struct thc_flight *f, const struct thc_hdr *h)
{
	if (f->cut && (h->op == THC_OP_WAIT || h->flags & THC_F_REPEAT)) {
		thc_window_spurious(&c->window);
		f->cut = false;
	}
}

static void on_epoch(struct thc_client *c, const struct thc_hdr *h)
{
	char text[THC_SENTENCE_MAX];

	/* not newer: told by a packet that was long on its way */
	if ((int32_t)(thc_be32(h->epoch) - c->params.epoch) <= 0)
		return;
	snprintf(
		text, sizeof(text),
		"rank %u restarted or joined again (job %u is now in epoch %u, this rank is in epoch %u): call thc_client_rejoin() on all ranks",
		h->rank, c->options.job, thc_be32(h->epoch), c->params.epoch);
	break_client(c, -ESTALE, text);
}

/* A generation closed by deadline and overwritten before this rank came. */
static void on_stale(struct thc_client *c, struct thc_stream *s, struct thc_flight *f,
		     const struct thc_hdr *h)
{
	char text[THC_SENTENCE_MAX];

	if (s == &c->data && h->flags & THC_F_KNOWN) {
		land(c, s, f, h, NULL);
		return;
	}
	snprintf(
		text, sizeof(text),
		"this rank (%u) fell so far behind that the others' results are gone: raise the job's deadline or call thc_client_rejoin() on all ranks",
		c->options.rank);
	break_client(c, -ESTALE, text);
}

/* Does the answer say what the request in flight asked for? */
static bool is_asked_for(const struct thc_client *c, const struct thc_stream *s,
			 const struct thc_flight *f, const struct thc_hdr *h)
{
	uint8_t width = s == &c->norms ? 32 : c->params.sum_width;

	return h->op == f->packet->op && h->round == f->packet->round && h->width == width &&
	       h->count;
}

static bool is_sound(struct thc_client *c, struct thc_hdr *h, unsigned int bytes)
{
	uint32_t sum = h->sum;

	if (h->version != THC_VERSION || h->cookie != thc_be64(c->options.cookie) ||
	    h->job != thc_be16(c->options.job) || bytes % 8)
		return false;
	if (c->params.flags & THC_WELCOME_F_NOSUM)
		return true;
	h->sum = 0;
	if (sum == thc_be32(thc_sum_packet(h, h + 1, (int)((bytes - sizeof(*h)) / 8))))
		return true;
	c->stats.bad_sum++;
	return false;
}

static void on_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, bool ce)
{
	struct thc_client *c = ctx;
	struct thc_stream *s;
	struct thc_flight *f;

	c->stats.packets_down++;
	c->stats.bytes_down += thc_link_wire_bytes(&c->link, bytes);
	if (!is_sound(c, h, bytes))
		return;
	c->unreachable_at = 0;
	if (h->op == THC_OP_STALE && h->flags & THC_F_EPOCH) {
		on_epoch(c, h);
		return;
	}
	s = thc_be16(h->slot) < c->data.slots ? &c->data : &c->norms;
	f = h->epoch == thc_be32(c->params.epoch) ? thc_stream_find(s, h) : NULL;
	if (!f || !thc_flight_matches(s, f, h)) {
		c->stats.unexpected++;
		return;
	}
	if (!f->request) {
		c->stats.unexpected++;
		on_landed(c, f, h);
		return;
	}
	c->stats.repeats += !!(h->flags & THC_F_REPEAT);
	if (ce || h->flags & THC_F_CE)
		thc_window_loss(&c->window, f->order, c->order);
	if (h->op == THC_OP_WAIT)
		on_wait(c, f, h);
	else if (h->op == THC_OP_STALE)
		on_stale(c, s, f, h);
	else if (h->flags & THC_F_ANSWER && bytes == THC_ANSWER_BYTES && is_asked_for(c, s, f, h))
		land(c, s, f, h, h + 1);
	else
		c->stats.unexpected++;
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

static void outgoing(struct thc_client *c, struct thc_flight *f, struct thc_outgoing *out,
		     uint64_t now)
{
	*out = (struct thc_outgoing){
		.data = f->packet, .bytes = f->bytes, .port = port_of(c, f->packet),
	};
	f->sent_at = now;
	/* what was sent again comes after what was not */
	f->due = now + thc_window_rto(&c->window) * (1 + f->tries);
	f->order = c->order++;
	f->waiting = false;
	f->cut = false;
	c->stats.packets_up++;
	c->stats.bytes_up += thc_link_wire_bytes(&c->link, f->bytes);
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
		bool norms = s == &c->norms;
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
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = active_requests(c, active), count = 0;
	struct thc_outgoing out[THC_BATCH];
	uint64_t now = thc_now();

	while (count < THC_BATCH && s->next < s->reserved && thc_stream_may_send(s, window)) {
		struct thc_flight *f = &s->flight[s->next % s->slots];
		uint32_t index;
		struct thc_request *r = sendable(c, s, active, n, s->next, &index);

		if (!r)
			break;
		*f = (struct thc_flight){
			.request = r, .sequence = s->next, .index = index, .first_order = c->order,
		};
		f->packet = s == &c->norms ? thc_request_norm_packet(r, index) :
					     thc_request_data_packet(r, index);
		f->bytes = (uint16_t)(sizeof(struct thc_hdr) +
				      (s == &c->norms ? THC_LANE_BYTES : c->params.chunk / 2));
		outgoing(c, f, &out[count++], now);
		s->in_flight++;
		s->next++;
	}
	return send_all(c, out, count);
}

/* --- retransmission ------------------------------------------------------- */

static bool is_lost(const struct thc_stream *s, const struct thc_flight *f, uint32_t reorder)
{
	return f->order + reorder < s->order_answered;
}

static void again(struct thc_client *c, struct thc_flight *f, struct thc_outgoing *out,
		  uint64_t now)
{
	/* after a WAIT it has arrived: asking again is no sign of congestion */
	bool cut = !f->waiting && thc_window_loss(&c->window, f->order, c->order);

	if (f->tries < UINT8_MAX)
		f->tries++;
	c->stats.retransmits++;
	outgoing(c, f, out, now);
	f->cut = cut;
}

/* The chunks in flight of @s, oldest first; true if anything was sent. Lowers
 * *@due to the time of the next timer.
 */
static bool retransmit(struct thc_client *c, struct thc_stream *s, uint64_t *due)
{
	struct thc_outgoing out[THC_BATCH];
	uint64_t now = thc_now(), i;
	unsigned int count = 0, timers = now < c->timers_at ? 0 : c->probes, fired = timers;
	uint32_t reorder = thc_window_reorder(&c->window);

	for (i = 0; i < s->slots && s->in_flight && count < THC_BATCH; i++) {
		struct thc_flight *f = &s->flight[(s->next + i) % s->slots];

		if (!f->request)
			continue;
		if (is_lost(s, f, reorder)) {
			again(c, f, &out[count++], now);
		} else if (f->due <= now && timers) {
			again(c, f, &out[count++], now);
			timers--;
		}
		if (f->due < *due)
			*due = f->due;
	}
	if (timers < fired)
		c->timers_at = now + thc_window_backoff(&c->window, c->stalls++);
	if (*due < c->timers_at)
		*due = c->timers_at;
	return send_all(c, out, count);
}

/* --- time out ------------------------------------------------------------- */

/* The oldest chunk of @r in flight in @s, or NULL. */
static const struct thc_flight *oldest(const struct thc_stream *s, const struct thc_request *r)
{
	uint32_t i;

	for (i = 0; i < s->slots; i++) {
		const struct thc_flight *f = &s->flight[(s->next + i) % s->slots];

		if (f->request && f->request == r)
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
		flights[0] = oldest(&c->norms, active[0]);
		flights[1] = oldest(&c->data, active[0]);
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

	if (!c->norms.in_flight && !c->data.in_flight) {
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
	} else if (now - c->progress_at > c->options.timeout_ms * THC_NS_PER_MS) {
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
			r->norm_first = c->norms.reserved;
			c->norms.reserved++;
			thc_request_agree_packet(r);
			c->progress_at = thc_now();
		}
		if (r->stage == THC_STAGE_DATA && r->norms_sendable > 1 && !r->data_reserved) {
			r->data_first = c->data.reserved;
			r->data_reserved = true;
			c->norms.reserved += r->norm_chunks;
			c->data.reserved += r->data_chunks;
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

	while (!stopping(c)) {
		uint64_t due = UINT64_MAX;
		bool busy;

		advance(c);
		busy = receive(c);
		finish_done(c);
		advance(c);
		busy |= transmit(c, &c->norms, c->norms.slots);
		busy |= transmit(c, &c->data, thc_window_size(&c->window));
		busy |= retransmit(c, &c->norms, &due);
		busy |= retransmit(c, &c->data, &due);
		check_progress(c);
		busy |= compute(c);
		if (!busy)
			sleep_until(c, due);
	}
	return NULL;
}
