// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Joining a job over UDP sockets: JOIN until WELCOME says that all ranks are
 * in, again at once when a CHALLENGE comes. Leaving: LEAVE, best effort.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>

#include <thc/key.h>
#include <thc/worker/join.h>

#include "client.h"
#include "transport.h"

/* A join in progress. */
struct joining {
	struct thc_client	*c;
	struct thc_joining	j;
	struct thc_params	params;		/* of the last WELCOME */
	uint64_t		give_up_at;	/* ns */
};

struct control_packet {
	struct thc_hdr		hdr;
	union {
		struct thc_join		join;
		struct thc_leave	leave;
	};
};

/* Sends @p, of which @payload bytes follow the header. */
static void send_control(struct thc_client *c, struct control_packet *p, size_t payload)
{
	struct thc_outgoing out = {
		.data = p,
		.bytes = (uint16_t)(sizeof(p->hdr) + payload),
		.port = c->options.port,
	};
	uint64_t calls = 0;
	int n;

	thc_sender_seal_control(&c->sender, &p->hdr, &p->join, (int)(payload / 8));
	n = thc_link_send(&c->link, &out, 1, &calls);
	if (n < 0)
		thc_sender_unreachable(&c->sender, -n, thc_now());
}

void thc_udp_dropped(struct thc_client *c, enum thc_drop_reason why)
{
	c->stats.bad_tag += why == THC_DROP_TAG;
	c->stats.unexpected += why == THC_DROP_UNEXPECTED;
	c->stats.foreign += thc_drop_is_foreign(why);
}

static void on_join_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, struct thc_origin from)
{
	struct joining *joining = ctx;
	struct thc_client *c = joining->c;
	const struct thc_welcome *w = (void *)(h + 1);
	enum thc_drop_reason why;

	/* answers of a session before this one */
	if (h->version != THC_VERSION || !thc_op_is_joining(h->op) || bytes < sizeof(*h) ||
	    !thc_joining_fits(h->op, bytes - (unsigned int)sizeof(*h)))
		return;
	bytes -= sizeof(*h);
	if (h->op == THC_OP_CHALLENGE) {
		why = thc_joining_challenge(&joining->j, &c->sender, h, (void *)(h + 1), from.port);
	} else {
		why = thc_joining_admit(&joining->j, &c->sender, h, w, bytes, from.port);
		if (!why)
			why = thc_joining_take(&joining->j, &c->sender, h, w, bytes, thc_now());
	}
	thc_udp_dropped(c, why);
}

static void wait_for_packets(const struct thc_client *c, int ms)
{
	struct pollfd fds[] = {
		{ .fd = c->link.unicast, .events = POLLIN },
		{ .fd = c->link.group, .events = POLLIN },
	};

	poll(fds, 2, ms);
}

static int failed(const struct joining *joining, const struct thc_failure *f)
{
	return thc_failed_to_join(joining->c, f, joining->j.spec.ranks);
}

static void join_group(struct joining *joining)
{
	uint64_t now = thc_now();

	if (!thc_joining_wants_group(&joining->j, now))
		return;
	joining->j.group_at = now + THC_GROUP_RETRY_MS * THC_NS_PER_MS;
	thc_link_join_group(&joining->c->link, &joining->j.spec.group);
}

/* Receives once. 1: the job is ready. */
static int receive_some(struct joining *joining)
{
	const struct thc_spec *spec = &joining->j.spec;
	struct thc_failure f = { .reason = THC_FAILED_REFUSED };
	struct thc_client *c = joining->c;
	uint64_t calls = 0;
	int n;

	n = thc_link_receive(&c->link, c->link.unicast, c->rx, on_join_packet, joining, &calls);
	if (n < 0)
		thc_sender_unreachable(&c->sender, -n, thc_now());
	if (c->link.group >= 0)
		thc_link_receive(&c->link, c->link.group, c->rx, on_join_packet, joining, &calls);
	switch (thc_joining_step(&joining->j, &c->sender)) {
	case THC_JOIN_ASK:
		return 0;
	case THC_JOIN_REFUSED:
		f.refusal = spec->refusal;
		return failed(joining, &f);
	case THC_JOIN_READY:
	case THC_JOIN_WAIT:
		join_group(joining);
		if (!thc_params_take(&joining->params, spec, joining->j.epoch, &c->options))
			return joining->j.ready;
		break;
	case THC_JOIN_UNSOUND:
		break;
	}
	f.reason = THC_FAILED_VERSION;
	return failed(joining, &f);
}

/* One JOIN and what comes back until the next is due. 1: ready. */
static int join_once(struct joining *joining)
{
	struct thc_client *c = joining->c;
	struct control_packet p;
	uint64_t until, now;
	int ready = 0;

	thc_joining_request(&joining->j, &c->sender, &p.hdr, &p.join, thc_now());
	send_control(c, &p, sizeof(p.join));
	for (;;) {
		until = thc_joining_at(&joining->j);
		if (until > joining->give_up_at)
			until = joining->give_up_at;
		now = thc_now();
		if (ready || now >= until)
			return ready;
		wait_for_packets(c, (int)((until - now) / THC_NS_PER_MS) + 1);
		ready = receive_some(joining);
	}
}

/* JOIN until the job is ready; 0 or an error. */
static int join_until_ready(struct joining *joining)
{
	struct thc_client *c = joining->c;
	struct thc_failure f;
	int ready = 0;

	while (!ready) {
		if (thc_now() >= joining->give_up_at) {
			thc_joining_failure(&joining->j, &c->sender, &f);
			return failed(joining, &f);
		}
		ready = join_once(joining);
	}
	return ready < 0 ? ready : 0;
}

/* The job is ready. */
static int set_up(struct thc_client *c, const struct joining *joining)
{
	const struct thc_spec *spec = &joining->j.spec;

	c->params = joining->params;
	if (spec->reply != THC_REPLY_MULTICAST)
		thc_link_leave_group(&c->link);
	if (spec->flags & THC_WELCOME_F_NOGSO)
		c->link.gso = false;
	c->flights = calloc(c->params.data_slots + c->params.control_slots, sizeof(*c->flights));
	if (!c->flights)
		return thc_fail(-ENOMEM, "out of memory for %u slots", c->params.data_slots);
	thc_window_choose(c, c->link.answers_max);
	thc_sender_set_epoch(&c->sender, spec, c->options.key);
	thc_joining_end(&joining->j, &c->sender, c->flights, c->window);
	thc_account(c, (ssize_t)thc_flights_bytes(c));
	return 0;
}

int thc_udp_join(struct thc_client *c)
{
	uint8_t random[THC_NONCE_BYTES];
	uint64_t now = thc_now();
	struct joining joining = {
		.c = c,
		.give_up_at = now + c->options.join_timeout_ms * THC_NS_PER_MS,
	};
	int error;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return thc_fail(-EIO, "no random numbers from the kernel");
	thc_joining_begin(&joining.j, &c->sender, random, now);
	c->sender.job = c->options.job;
	thc_sender_set_key(&c->sender, c->options.key);
	thc_link_end(&c->link, &c->sender.end);
	c->sender.port = c->options.port;
	c->sender.rank = (uint8_t)c->options.rank;
	c->sender.unreachable = 0;
	error = join_until_ready(&joining);
	if (!error)
		error = set_up(c, &joining);
	/* the other ranks must not start with a rank that has given up */
	if (error && joining.j.welcomed && !(joining.j.spec.flags & THC_WELCOME_F_REFUSED))
		thc_udp_leave(c);
	return error;
}

void thc_udp_leave(struct thc_client *c)
{
	struct control_packet p;
	int i;

	thc_sender_leave(&c->sender, &p.hdr, &p.leave);
	for (i = 0; i < THC_LEAVES; i++)
		send_control(c, &p, sizeof(p.leave));
}
