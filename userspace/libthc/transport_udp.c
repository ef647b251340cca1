// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Packets of requests over UDP sockets: window, retransmission and answers
 * are <thc/worker/flight.h>'s, here are the sockets' calls around it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "client.h"
#include "engine.h"
#include "failure.h"
#include "request.h"
#include "transport.h"

/* --- answers -------------------------------------------------------------- */

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
		thc_engine_adrift(c, r);
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
		thc_fail_behind(c);
		break;
	case THC_GOT_EPOCH:
		thc_fail_epoch(c, h->rank, thc_be32(h->epoch));
		break;
	case THC_GOT_UNEXPECTED:
		on_unexpected(c, h);
		break;
	case THC_GOT_FOREIGN:
		break;
	}
}

static void on_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, uint16_t port, bool ce)
{
	struct thc_client *c = ctx;
	struct thc_stream *s;
	struct thc_flight *f;
	enum thc_got got;

	c->stats.packets_down++;
	c->stats.bytes_down += thc_link_wire_bytes(&c->link, bytes);
	got = thc_sender_find(&c->sender, h, bytes, port, &s, &f);
	if (got == THC_GOT_FOREIGN) {
		c->stats.foreign++;
		return;
	}
	if (!thc_sender_sum_ok(&c->sender, h, h + 1, (int)((bytes - sizeof(*h)) / 8))) {
		c->stats.bad_sum++;
		return;
	}
	c->sender.unreachable_at = 0;
	on_sound(c, got, s, f, h, ce);
}

/* The network reports an error: of a packet sent before, or of the next one. */
static void unreachable(struct thc_client *c, int error)
{
	thc_sender_unreachable(&c->sender, thc_now());
	c->unreachable = error;
}

/* True if anything came. */
static bool receive_some(struct thc_client *c)
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
	c->stats.foreign += l->foreign;
	l->foreign = 0;
	return any | (n > 0);
}

/* --- requests out --------------------------------------------------------- */

static struct thc_outgoing outgoing(struct thc_client *c, const struct thc_flight *f)
{
	c->stats.packets_up++;
	c->stats.bytes_up += thc_link_wire_bytes(&c->link, f->bytes);
	return (struct thc_outgoing){
		.data = f->packet,
		.bytes = f->bytes,
		.port = thc_sender_port(&c->sender, thc_be16(f->packet->slot)),
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
	unsigned int n = thc_engine_active(c, active), count = 0;
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

/* Only the first request counts: for the next one ranks may be missing because
 * they, too, are still busy with the first.
 */
static void check_progress(struct thc_client *c)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	uint64_t missing = 0, differing = 0, timeout = c->options.timeout_ms * THC_NS_PER_MS;
	int left = 0;

	if (thc_engine_active(c, active)) {
		uint32_t round = (uint32_t)active[0]->round;

		missing = thc_sender_missing(&c->sender, thc_ranks_mask(c->params.ranks), round,
					     &left);
		differing = thc_sender_differing(&c->sender, round);
	}
	/* a job with a deadline goes on without who left */
	left &= !c->params.deadline_ms;
	switch (thc_sender_stall(&c->sender, left, timeout, thc_now())) {
	case THC_STALL_NONE:
		break;
	case THC_STALL_LEFT:
		thc_fail_left(c, missing);
		break;
	case THC_STALL_UNREACHABLE:
		thc_fail_unreachable(c, c->unreachable);
		break;
	case THC_STALL_LATE:
		if (differing)
			thc_fail_differs(c, differing);
		else
			thc_fail_missing(c, missing);
		break;
	}
}

/* --- in and out ----------------------------------------------------------- */

static bool send_more(struct thc_client *c, uint64_t *due)
{
	struct thc_stream *norms = &c->sender.norms, *data = &c->sender.data;
	bool busy;

	busy = transmit(c, norms, norms->slots);
	busy |= transmit(c, data, thc_window_size(&c->sender.window));
	busy |= retransmit(c, norms, due);
	busy |= retransmit(c, data, due);
	check_progress(c);
	return busy;
}

static unsigned int fill_poll(const struct thc_client *c, struct pollfd *fds)
{
	fds[0] = (struct pollfd){ .fd = c->link.unicast, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = c->link.group, .events = POLLIN };	/* -1 is ignored */
	return 2;
}

/* --- the transport -------------------------------------------------------- */

static int open_link(struct thc_client *c)
{
	int error = thc_link_open(&c->link, &c->options);

	if (!error)
		thc_account(c, (ssize_t)thc_link_room(&c->link));
	return error;
}

static void close_link(struct thc_client *c)
{
	thc_account(c, -(ssize_t)thc_link_room(&c->link));
	thc_link_close(&c->link);
}

static size_t growth(const struct thc_client *c, size_t bytes)
{
	return thc_link_growth(&c->link, bytes);
}

static int make_room(struct thc_client *c, size_t bytes)
{
	size_t before = thc_link_room(&c->link);
	int error = thc_link_grow(&c->link, bytes);

	thc_account(c, (ssize_t)(thc_link_room(&c->link) - before));
	return error;
}

static void forget(struct thc_client *c)
{
	thc_stream_forget(&c->sender.norms);
	thc_stream_forget(&c->sender.data);
}

static void add_stats(const struct thc_client *c, struct thc_client_stats *stats)
{
	stats->window_cuts = c->sender.window.cuts;
	stats->rtt_us = c->sender.window.srtt / THC_NS_PER_US;
	stats->window = thc_window_size(&c->sender.window);
}

const struct thc_transport thc_udp_transport = {
	.name = "UDP",
	.open = open_link,
	.close = close_link,
	.join = thc_udp_join,
	.leave = thc_udp_leave,
	.growth = growth,
	.room = make_room,
	.forget = forget,
	.receive = receive_some,
	.send = send_more,
	.poll = fill_poll,
	.show = add_stats,
};
