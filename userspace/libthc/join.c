// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Joining a job over UDP sockets: JOIN until WELCOME says that all ranks are
 * in. Leaving: LEAVE, best effort.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <thc/worker/welcome.h>

#include "client.h"
#include "failure.h"
#include "transport.h"

/* A join in progress. */
struct joining {
	struct thc_client	*c;
	struct thc_params	params;
	bool			welcome;	/* params are filled in */
	bool			unknown;	/* with constants this library cannot serve */
	bool			heard;		/* a WELCOME came over the group */
	uint32_t		sent;		/* JOINs */
	uint64_t		give_up_at;	/* ns */
};

static int send_control(struct thc_client *c, uint8_t op, const void *payload, unsigned int bytes)
{
	struct {
		struct thc_hdr	hdr;
		uint8_t		payload[sizeof(struct thc_join)];
	} packet = { 0 };
	struct thc_outgoing out = {
		.data = &packet,
		.bytes = (uint16_t)(sizeof(packet.hdr) + bytes),
		.port = c->options.port,
	};
	uint64_t calls = 0;
	int n;

	/* JOIN has the epoch that was the last, which the next one is to be newer than */
	thc_sender_header(&c->sender, &packet.hdr, op);
	if (bytes)
		memcpy(packet.payload, payload, bytes);
	thc_seal(&packet.hdr, packet.payload, (int)(bytes / 8));
	n = thc_link_send(&c->link, &out, 1, &calls);
	return n < 0 ? n : 0;
}

static void on_join_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, uint16_t port, bool ce)
{
	struct thc_welcome *w = (void *)(h + 1);
	struct joining *j = ctx;

	(void)ce;
	if (h->version != THC_VERSION || h->op != THC_OP_WELCOME ||
	    bytes != sizeof(*h) + sizeof(*w) || h->job != thc_be16(j->c->options.job))
		return;
	if (!thc_seal_ok(h, w, sizeof(*w) / 8)) {
		j->c->stats.bad_sum++;
		return;
	}
	/* thcd sends WELCOME from the base port, which no other program can have */
	if (h->reserved || port != j->c->sender.port ||
	    (!w->nonce && !thc_seal_cookie_ok(h, j->c->options.cookie))) {
		j->c->stats.foreign++;
		return;
	}
	if (!w->nonce) {
		j->heard = true;
		return;
	}
	if (thc_be64(w->nonce) != j->c->nonce)
		return;
	j->welcome = true;
	j->unknown = thc_params_take(&j->params, w, thc_be32(h->epoch), j->c->options.rank);
}

static void wait_for_packets(const struct thc_client *c, int ms)
{
	struct pollfd fds[] = {
		{ .fd = c->link.unicast, .events = POLLIN },
		{ .fd = c->link.group, .events = POLLIN },
	};

	poll(fds, 2, ms);
}

static int timed_out(struct joining *j, int last_error)
{
	uint64_t missing = 0;

	if (j->welcome)
		missing = thc_ranks_mask(j->params.ranks) & ~j->params.joined;
	return missing ? thc_fail_not_joined(j->c, missing, j->params.ranks) :
			 thc_fail_no_answer(j->c, last_error);
}

/* One JOIN and what comes back until the next is due. 1: ready. */
static int join_once(struct joining *j, int *last_error)
{
	struct thc_client *c = j->c;
	struct thc_join payload = {
		.nonce = thc_be64(c->nonce),
		.flags = thc_be32(j->heard ? THC_JOIN_F_HEARD : 0),
	};
	uint64_t until = thc_now() + thc_join_interval(++j->sent) * THC_NS_PER_MS, calls = 0, now;
	int n;

	if (until > j->give_up_at)
		until = j->give_up_at;

	n = send_control(c, THC_OP_JOIN, &payload, sizeof(payload));
	if (n < 0)
		*last_error = n;
	while ((now = thc_now()) < until) {
		wait_for_packets(c, (int)((until - now) / THC_NS_PER_MS) + 1);
		n = thc_link_receive(&c->link, c->link.unicast, on_join_packet, j, &calls);
		if (n < 0)
			*last_error = n;
		if (c->link.group >= 0)
			thc_link_receive(&c->link, c->link.group, on_join_packet, j, &calls);
		if (!j->welcome)
			continue;
		if (j->params.flags & THC_WELCOME_F_REFUSED)
			return thc_fail_refused(c, j->params.refusal);
		if (j->unknown)
			return thc_fail_unknown(c);
		if (j->params.reply == THC_REPLY_MULTICAST)
			thc_link_join_group(&c->link, &j->params);
		if (j->params.flags & THC_WELCOME_F_READY)
			return 1;
	}
	return 0;
}

static int set_up_sender(struct thc_client *c)
{
	const struct thc_params *p = &c->params;
	struct thc_sender *s = &c->sender;

	c->flights = calloc(p->data_slots + p->norm_slots, sizeof(*c->flights));
	if (!c->flights)
		return thc_fail(-ENOMEM, "out of memory for %u slots", p->data_slots);
	thc_stream_init(&s->data, c->flights, 0, p->data_slots);
	thc_stream_init(&s->norms, c->flights + p->data_slots, p->data_slots, p->norm_slots);
	thc_account(c, (ssize_t)thc_flights_bytes(c));
	thc_window_choose(c, c->link.answers_max);
	thc_sender_init(s, c->window);
	s->epoch = p->epoch;
	s->sum_width = p->sum_width;
	s->nosum = !!(p->flags & THC_WELCOME_F_NOSUM);
	s->one_port = !!(p->flags & THC_WELCOME_F_ONE_PORT);
	s->all = thc_ranks_mask(p->ranks);
	return 0;
}

/* JOIN until the job is ready; 0 or an error, with what WELCOME said in @j. */
static int join_until_ready(struct joining *j)
{
	struct thc_client *c = j->c;
	int ready = 0, last_error = 0;

	j->give_up_at = thc_now() + c->options.join_timeout_ms * THC_NS_PER_MS;
	while (!ready) {
		if (thc_now() >= j->give_up_at)
			return timed_out(j, last_error);
		ready = join_once(j, &last_error);
	}
	return ready < 0 ? ready : 0;
}

int thc_udp_join(struct thc_client *c)
{
	struct joining j = { .c = c };
	int error;

	if (getrandom(&c->nonce, sizeof(c->nonce), 0) != sizeof(c->nonce))
		return thc_fail(-EIO, "no random numbers from the kernel");
	c->nonce |= 1;
	c->sender.cookie = c->options.cookie;
	c->sender.job = c->options.job;
	c->sender.port = c->options.port;
	c->sender.rank = (uint8_t)c->options.rank;
	error = join_until_ready(&j);
	if (!error) {
		c->params = j.params;
		if (c->params.reply != THC_REPLY_MULTICAST)
			thc_link_leave_group(&c->link);
		if (c->params.flags & THC_WELCOME_F_NOGSO)
			c->link.gso = false;
		error = set_up_sender(c);
	}
	/* the others are not to start with a rank that has given up */
	if (error && j.welcome && !(j.params.flags & THC_WELCOME_F_REFUSED)) {
		uint32_t last = c->sender.epoch;

		c->sender.epoch = j.params.epoch;
		thc_udp_leave(c);
		c->sender.epoch = last;
	}
	return error;
}

/* Nobody answers a LEAVE; one of three arrives almost surely, and without any
 * the others learn by their timeout.
 */
void thc_udp_leave(struct thc_client *c)
{
	int i;

	for (i = 0; i < 3; i++)
		send_control(c, THC_OP_LEAVE, NULL, 0);
}
