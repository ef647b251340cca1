// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Packets of requests over UDP sockets: the host of <thc/worker/transmit.h>
 * and <thc/worker/receive.h>, which decide about them.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include <thc/wire/route.h>
#include <thc/worker/receive.h>
#include <thc/worker/stall.h>
#include <thc/worker/transmit.h>

#include "client.h"
#include "codec_ops.h"
#include "pipeline.h"
#include "queue.h"
#include "request.h"
#include "transport_udp.h"

/* --- functions of the host --------------------------------------------------- */

/**
 * struct thc_host - a transport during one look at its sockets
 * @at: the current aggregator, number @shard
 * @all: phases of its requests, @count_all
 * @out: packets to be sent by one call, @count
 * @busy: packets were sent
 */
struct thc_host {
	struct thc_udp		*u;
	struct thc_client	*c;
	struct thc_peer	*at;
	uint32_t		shard;
	struct thc_phases	*all[THC_ACTIVE_MAX];
	unsigned int		count_all;
	struct thc_outgoing	out[THC_BATCH];
	unsigned int		count;
	bool			busy;
};

THC_INLINE int thc_host_may_send(struct thc_host *host, const struct thc_stream *st)
{
	(void)st;
	return host->count < THC_BATCH;
}

THC_INLINE int thc_host_next(struct thc_host *host, const struct thc_stream *st,
			     struct thc_ready *ready)
{
	uint64_t number = thc_shard_number(st->next, host->u->shards, host->shard);
	struct thc_phase *p = thc_phases_find(host->all, host->count_all,
					      st == &host->at->sender.control, number);
	uint32_t index = p ? (uint32_t)(number - p->first) : 0;

	if (!p || index >= p->ready)
		return 0;
	*ready = (struct thc_ready){
		.owner = p,
		.packet = thc_phase_packet(p, index),
		.index = index,
		.bytes = (uint16_t)(sizeof(struct thc_hdr) + p->payload),
	};
	return 1;
}

THC_INLINE void thc_host_send(struct thc_host *host, const struct thc_flight *f)
{
	struct thc_client *c = host->c;

	c->stats.packets_up++;
	c->stats.bytes_up += thc_sockets_wire_bytes(&host->at->sockets, f->bytes);
	c->stats.retransmits += f->tries > 0;
	host->out[host->count++] = (struct thc_outgoing){
		.data = f->packet,
		.bytes = f->bytes,
		.port = thc_sender_port(&host->at->sender, thc_be16(f->packet->slot)),
	};
}

/* Sends the packets; those that the kernel refuses now are sent again when they are overdue. */
THC_INLINE void thc_host_flush(struct thc_host *host)
{
	unsigned int count = host->count;

	if (!count)
		return;
	host->count = 0;
	host->busy = true;
	thc_peer_returned(host->at, thc_sockets_send(&host->at->sockets, host->out, count,
						     &host->c->stats.send_calls));
}

THC_INLINE const void *thc_host_payload(struct thc_host *host, enum thc_got got,
					const struct thc_flight *f, const struct thc_hdr *h,
					u32 bytes)
{
	(void)host;
	(void)got;
	(void)f;
	(void)bytes;
	return h + 1;
}

/* thc_seal_digest() by the client's vectors. */
static struct thc_digest digest_of(const struct thc_client *c, u8 seal,
				   const struct thc_seal_key *key, const void *payload, int words)
{
	if (seal == THC_SEAL_NH)
		return (struct thc_digest){ .a = c->simd->nh(key->nh, payload, words) };
	return thc_seal_digest(seal, key, payload, words);
}

THC_INLINE struct thc_digest thc_host_digest(struct thc_host *host, const struct thc_sender *s,
					     const void *payload, int words)
{
	return digest_of(host->c, s->seal, &s->down, payload, words);
}

THC_INLINE void thc_host_took(struct thc_host *host, enum thc_got got, const struct thc_hdr *h)
{
	struct thc_client *c = host->c;

	c->stats.repeats += got == THC_GOT_ANSWER && h->flags & THC_F_REPEAT;
	c->stats.waits += got == THC_GOT_WAIT;
	c->stats.chunks += got != THC_GOT_WAIT;
}

THC_INLINE void thc_host_landed(struct thc_host *host, const struct thc_stream *st,
				struct thc_ready was, const struct thc_landing *l)
{
	(void)st;
	(void)host;
	thc_pipeline_answer(was.owner, was.index, 1, &l->count, l->lanes, l->digest);
}

THC_INLINE void thc_host_failed(struct thc_host *host, const struct thc_failure *f)
{
	struct thc_failure here = *f;

	here.shard = (uint8_t)host->shard;
	thc_failed(host->c, &here);
}

/* Only the first request counts: for the next one ranks may be missing because
 * they, too, are still busy with the first. A job with a deadline goes on without
 * who left.
 */
THC_INLINE u64 thc_host_check(struct thc_host *host, u64 now)
{
	const struct thc_phases *first = host->count_all ? host->all[0] : NULL;
	uint32_t round = first ? (uint32_t)first->phase[THC_AGREEMENT].request->round : 0;
	const uint64_t timeout = host->c->options.timeout_ms * THC_NS_PER_MS;
	struct thc_sender *s = &host->at->sender;
	struct thc_failure f;

	if (thc_sender_stalled(s, round, !host->c->spec.deadline_ms, timeout, now, &f))
		thc_host_failed(host, &f);
	return thc_sender_asks_at(s, timeout, now);
}

/* --- packets in ------------------------------------------------------------- */

static void on_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, struct thc_origin from)
{
	struct thc_host *host = ctx;
	struct thc_client *c = host->c;

	c->stats.packets_down++;
	c->stats.bytes_down += thc_sockets_wire_bytes(&host->at->sockets, bytes);
	thc_shards_dropped(host->u,
			   thc_worker_receive(host, &host->at->sender, h, bytes, from, thc_now()));
}

/* Receives from socket @fd of number @shard; true if any packet came. */
static bool receive_from(struct thc_udp *u, uint32_t shard, int fd)
{
	struct thc_client *c = u->base.client;
	struct thc_host host = { .u = u, .c = c, .at = &u->peer[shard], .shard = shard };
	struct thc_sockets *l = &host.at->sockets;
	int n = thc_sockets_receive(l, fd, u->base.rx, on_packet, &host, &c->stats.receive_calls);

	if (fd == l->unicast)
		thc_peer_returned(host.at, n);
	c->stats.foreign += l->foreign;
	l->foreign = 0;
	return n > 0;
}

/* One poll() finds the sockets that have packets: with many aggregators most have none. */
static bool receive_some(struct thc_transport *t)
{
	struct pollfd fds[THC_POLL_MAX];
	unsigned int n = thc_shards_poll(t, fds), k = 0;
	struct thc_udp *u = thc_udp_of(t);
	bool any = false;
	uint32_t i;

	t->client->stats.receive_calls++;
	if (poll(fds, n, 0) <= 0)
		return false;
	for (i = 0; i < u->shards; i++) {
		const struct thc_sockets *l = &u->peer[i].sockets;

		for (; k < n && (fds[k].fd == l->unicast || fds[k].fd == l->group); k++)
			if (fds[k].revents)
				any |= receive_from(u, i, fds[k].fd);
	}
	return any;
}

/* --- packets out ------------------------------------------------------------ */

/* Sends to the current aggregator of @host. Lowers *@due to the time of the next timer. */
static bool send_there(struct thc_host *host, uint64_t *due)
{
	struct thc_sender *s = &host->at->sender;
	uint64_t end;

	host->busy = false;
	thc_worker_send(host, s, thc_now());
	end = thc_worker_send_again(host, s, thc_now());
	if (end < *due)
		*due = end;
	return host->busy;
}

static bool send_more(struct thc_transport *t, uint64_t *due)
{
	struct thc_host host = { .u = thc_udp_of(t), .c = t->client };
	bool busy = false;

	thc_shards_reserve(host.u);
	for (; host.shard < host.u->shards; host.shard++) {
		host.at = &host.u->peer[host.shard];
		/* a failure at the previous aggregator may have ended all requests */
		host.count_all = thc_pipeline_phases(host.c, host.all);
		busy |= send_there(&host, due);
	}
	return busy;
}

/* --- the transport -------------------------------------------------------- */

static void close_links(struct thc_transport *t)
{
	struct thc_udp *u = thc_udp_of(t);
	uint32_t i;

	for (i = 0; i < u->shards; i++)
		thc_sockets_close(&u->peer[i].sockets);
	thc_shards_empty(u);
	thc_shards_free(u);
	free(t->rx.at);
	free(u);
}

int thc_udp_open(struct thc_client *c, struct thc_transport **out)
{
	struct thc_udp *u = calloc(1, sizeof(*u));
	int error;

	if (!u)
		return thc_fail(-ENOMEM, "out of memory");
	u->base = (struct thc_transport){ .ops = &thc_udp_ops, .client = c };
	error = thc_shards_grow(u, 1);
	if (!error && thc_buffer_grow(c, &u->base.rx, THC_RX_BYTES))
		error = thc_fail(-ENOMEM, "out of memory");
	if (!error)
		error = thc_sockets_open(&u->peer->sockets, &c->options);
	if (error) {
		close_links(&u->base);
		return error;
	}
	*out = &u->base;
	return 0;
}

static size_t rx_bytes(size_t bytes)
{
	size_t datagrams = bytes / THC_RX_SHARE / THC_RX_BYTES;

	datagrams = datagrams < 1 ? 1 : datagrams > THC_RX_BATCH ? THC_RX_BATCH : datagrams;
	return datagrams * THC_RX_BYTES;
}

/* Completes the packet of a chunk, which is sent unchanged however often. */
static void seal_packet(struct thc_transport *t, struct thc_phase *p, uint32_t index)
{
	struct thc_hdr *h = thc_phase_packet(p, index);
	const struct thc_udp *u = thc_udp_of(t);
	uint64_t number = p->first + index;
	const struct thc_sender *s = &u->peer[number % u->shards].sender;
	int words = (int)(p->payload / 8);

	thc_sender_request(s, p->control ? &s->control : &s->data, h, p->op, p->width,
			   (uint32_t)p->request->round, number / u->shards);
	thc_seal_digested(h, s->seal, &s->up, digest_of(t->client, s->seal, &s->up, h + 1, words),
			  (u64)words);
}

static void forget(struct thc_transport *t)
{
	struct thc_udp *u = thc_udp_of(t);
	uint32_t i;

	thc_shards_reserve(u);
	for (i = 0; i < u->shards; i++) {
		thc_stream_forget(&u->peer[i].sender.control);
		thc_stream_forget(&u->peer[i].sender.data);
	}
}

static const struct thc_way *way_to(const struct thc_transport *t, uint32_t shard)
{
	const struct thc_udp *u = (const void *)t;

	return shard < u->shards ? &u->peer[shard].sockets.way : NULL;
}

static uint32_t epoch_at(const struct thc_transport *t, uint32_t shard)
{
	const struct thc_udp *u = (const void *)t;

	return shard && shard < u->shards ? u->peer[shard].sender.epoch : t->client->epoch;
}

static void add_stats(const struct thc_transport *t, struct thc_client_stats *stats)
{
	const struct thc_udp *u = (const void *)t;
	uint64_t rtt = 0;
	uint32_t i;

	stats->window = 0;
	for (i = 0; i < u->shards; i++) {
		const struct thc_window *w = &u->peer[i].sender.window;

		stats->window_cuts += w->cuts;
		stats->window += thc_window_size(w);
		rtt = w->srtt > rtt ? w->srtt : rtt;
	}
	stats->rtt_us = rtt / THC_NS_PER_US;
}

const struct thc_transport_ops thc_udp_ops = {
	.name = "UDP",
	.close = close_links,
	.join = thc_udp_join,
	.leave = thc_udp_leave,
	.rx_bytes = rx_bytes,
	.ready = seal_packet,
	.forget = forget,
	.receive = receive_some,
	.send = send_more,
	.poll = thc_shards_poll,
	.way = way_to,
	.epoch = epoch_at,
	.show = add_stats,
};
