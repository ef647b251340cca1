// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Joining a job: JOIN until WELCOME says that all ranks are in, and the job's
 * constants out of it. Leaving: one LEAVE, best effort.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client.h"

#define JOIN_INTERVAL_MS	20

/* A join in progress. */
struct joining {
	struct thc_client	*c;
	struct thc_params	params;
	bool			welcome;	/* params are filled in */
	bool			unknown;	/* with constants this library cannot serve */
	bool			heard;		/* a WELCOME came over the group */
};

void thc_client_header(const struct thc_client *c, struct thc_hdr *h, uint8_t op, uint8_t width)
{
	memset(h, 0, sizeof(*h));
	h->version = THC_VERSION;
	h->op = op;
	h->width = width;
	h->flags = c->params.flags & THC_WELCOME_F_NOSUM ? THC_F_NOSUM : 0;
	h->cookie = thc_be64(c->options.cookie);
	h->job = thc_be16(c->options.job);
	h->rank = (uint8_t)c->options.rank;
	h->epoch = thc_be32(c->params.epoch);
}

const char *thc_name_ranks(uint64_t ranks, char *text, size_t room)
{
	unsigned int i, total = (unsigned int)__builtin_popcountll(ranks), n = 0;
	size_t used = (size_t)snprintf(text, room, total == 1 ? "rank" : "ranks");

	for (i = 0; i < THC_RANKS_MAX && used < room; i++) {
		if (!(ranks >> i & 1))
			continue;
		used += (size_t)snprintf(text + used, room - used, "%s %u",
					 !n		? "" :
					 n + 1 == total ? " and" :
							  ",",
					 i);
		n++;
	}
	return text;
}

static int send_control(struct thc_client *c, uint8_t op, const void *payload, unsigned int bytes)
{
	struct {
		struct thc_hdr	hdr;
		uint8_t		payload[sizeof(struct thc_join)];
	} packet;
	struct thc_outgoing out = {
		.data = &packet,
		.bytes = (uint16_t)(sizeof(packet.hdr) + bytes),
		.port = c->options.port,
	};
	uint64_t calls = 0;
	int n;

	thc_client_header(c, &packet.hdr, op, 0);
	packet.hdr.flags = 0;
	if (bytes)
		memcpy(packet.payload, payload, bytes);
	packet.hdr.sum = thc_be32(thc_sum_packet(&packet.hdr, packet.payload, (int)(bytes / 8)));
	n = thc_link_send(&c->link, &out, 1, &calls);
	return n < 0 ? n : 0;
}

static double clamp_of(uint64_t bits)
{
	double t;

	memcpy(&t, &bits, sizeof(t));
	return t;
}

/* The welcome's table, as the daemon solved it; -EINVAL if it is none. */
static int take_table(const struct thc_welcome *w, struct thc_table *t)
{
	unsigned int i;

	*t = (struct thc_table){
		.bits = w->bits,
		.granularity = thc_be16(w->granularity),
		.t = clamp_of(thc_be64(w->clamp)),
	};
	if (t->bits < 1 || t->bits > 4 || !(t->t > 0))
		return -EINVAL;
	t->levels = 1U << t->bits;
	for (i = 0; i < t->levels; i++)
		t->value[i] = thc_be16(w->table[i]);
	return 0;
}

static void take_welcome(struct joining *j, const struct thc_hdr *h, const struct thc_welcome *w)
{
	struct thc_params *p = &j->params;

	*p = (struct thc_params){
		.seed = thc_be64(w->seed),
		.joined = thc_be64(w->joined),
		.epoch = thc_be32(h->epoch),
		.table_hash = thc_be32(w->table_hash),
		.ranks = thc_be16(w->ranks),
		.data_slots = thc_be16(w->data_slots),
		.norm_slots = thc_be16(w->norm_slots),
		.chunk = thc_be16(w->chunk),
		.deadline_ms = thc_be32(w->deadline_ms),
		.group_port = thc_be16(w->group_port),
		.flags = w->flags,
		.refusal = w->refusal,
		.reply = w->reply,
		.sum_width = w->sum_width,
		.block_log2 = w->block_log2,
		.family = w->family,
	};
	memcpy(p->group, w->group, sizeof(p->group));
	j->welcome = true;
	if (w->flags & THC_WELCOME_F_REFUSED)
		return;
	j->unknown = take_table(w, &p->table) || p->ranks <= j->c->options.rank ||
		     p->ranks > THC_RANKS_MAX || !p->data_slots || !p->norm_slots ||
		     p->data_slots + p->norm_slots > THC_SLOTS_MAX || thc_be16(w->shards) > 1 ||
		     (p->sum_width != 8 && p->sum_width != 16) ||
		     thc_table_check(&p->table, p->ranks, p->sum_width) ||
		     p->chunk != (p->sum_width == 8 ? THC_CHUNK_8 : THC_CHUNK_16);
}

static void on_join_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, bool ce)
{
	struct thc_welcome *w = (void *)(h + 1);
	struct joining *j = ctx;
	uint32_t sum = h->sum;

	(void)ce;
	if (h->version != THC_VERSION || h->op != THC_OP_WELCOME ||
	    bytes != sizeof(*h) + sizeof(*w) || h->job != thc_be16(j->c->options.job))
		return;
	h->sum = 0;
	if (sum != thc_be32(thc_sum_packet(h, w, sizeof(*w) / 8)))
		return;
	if (!w->nonce) {
		j->heard |= h->cookie == thc_be64(j->c->options.cookie);
		return;
	}
	if (thc_be64(w->nonce) == j->c->nonce)
		take_welcome(j, h, w);
}

static int refused(const struct thc_client *c, const struct thc_params *p)
{
	const struct thc_client_options *o = &c->options;

	switch (p->refusal) {
	case THC_REFUSED_RANK:
		return thc_fail(-ERANGE,
				"rank %u is too large for job %u: ranks count from 0 to n - 1",
				o->rank, o->job);
	case THC_REFUSED_PREFIX:
		return thc_fail(
			-EACCES,
			"job %u does not admit workers from this address: change the job's prefix or use --bind",
			o->job);
	case THC_REFUSED_TAKEN:
		return thc_fail(
			-EADDRINUSE,
			"rank %u of job %u is taken by another worker: give every worker its own rank",
			o->rank, o->job);
	case THC_REFUSED_JOB:
		return thc_fail(
			-ENOENT,
			"the aggregator has no job %u with this cookie: compare job and cookie with its configuration",
			o->job);
	}
	return thc_fail(-EACCES, "the aggregator refused rank %u of job %u (reason %u)", o->rank,
			o->job, p->refusal);
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
	struct thc_client *c = j->c;
	char peer[80], ranks[THC_RANKS_TEXT];
	uint64_t missing = 0;

	if (j->welcome)
		missing = thc_ranks_mask(j->params.ranks) & ~j->params.joined;
	if (missing)
		return thc_fail(-ETIMEDOUT,
				"%s of job %u did not join within %u ms: start all %u workers",
				thc_name_ranks(missing, ranks, sizeof(ranks)), c->options.job,
				c->options.join_timeout_ms, j->params.ranks);
	thc_link_peer_name(&c->link, peer, sizeof(peer));
	if (last_error)
		return thc_fail(last_error, "nobody serves at %s: %s; start thcd there", peer,
				strerror(-last_error));
	return thc_fail(
		-EHOSTUNREACH,
		"no answer from %s for %u ms: is thcd running there with job %u, and is UDP open?",
		peer, c->options.join_timeout_ms, c->options.job);
}

/* One JOIN and what comes back until the next is due. 1: ready. */
static int join_once(struct joining *j, int *last_error)
{
	struct thc_client *c = j->c;
	struct thc_join payload = {
		.nonce = thc_be64(c->nonce),
		.flags = thc_be32(j->heard ? THC_JOIN_F_HEARD : 0),
	};
	uint64_t until = thc_now() + JOIN_INTERVAL_MS * THC_NS_PER_MS, calls = 0, now;
	int n;

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
			return refused(c, &j->params);
		if (j->unknown)
			return thc_fail(
				-EPROTO,
				"the aggregator's job %u has parameters this library does not know: use the same version of THC on all hosts",
				c->options.job);
		if (j->params.reply == THC_REPLY_MULTICAST)
			thc_link_join_group(&c->link, &j->params);
		if (j->params.flags & THC_WELCOME_F_READY)
			return 1;
	}
	return 0;
}

/* At most so many data chunks are in flight. */
static uint32_t window_max(const struct thc_client *c)
{
	uint32_t window = c->params.data_slots;

	if (c->link.answers_max < window)
		window = c->link.answers_max;
	if (c->options.window && c->options.window < window)
		window = c->options.window;
	return window ? window : 1;
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
	thc_sender_init(s, window_max(c));
	s->cookie = c->options.cookie;
	s->epoch = p->epoch;
	s->job = (uint16_t)c->options.job;
	s->rank = (uint8_t)c->options.rank;
	s->sum_width = p->sum_width;
	s->nosum = !!(p->flags & THC_WELCOME_F_NOSUM);
	return 0;
}

static int set_up(struct thc_client *c)
{
	int error;

	if (thc_table_hash(&c->params.table) != c->params.table_hash)
		return thc_fail(
			-EPROTO,
			"the aggregator's table does not match its hash: use the same version of THC on all hosts");
	error = thc_codec_init(&c->codec, &c->params.table, c->params.block_log2, c->params.seed,
			       c->options.simd);
	if (error == -ENOTSUP)
		return thc_fail(error,
				"this CPU lacks the instruction set asked for: use THC_SIMD_AUTO");
	if (error)
		return thc_fail(error, "cannot set up the codec: %s", strerror(-error));
	c->codec_ready = true;
	if (c->params.flags & THC_WELCOME_F_NOGSO)
		c->link.gso = false;
	if (c->params.flags & THC_WELCOME_F_CORRELATED)
		thc_codec_set_correlated(&c->codec, c->params.ranks);
	error = set_up_sender(c);
	if (error)
		return error;
	c->scratch = malloc(thc_scratch_bytes(c));
	if (!c->scratch)
		return thc_fail(-ENOMEM, "out of memory for a block of %u values",
				1U << c->params.block_log2);
	thc_account(c, (ssize_t)thc_scratch_bytes(c));
	c->round = 0;
	c->unreachable_at = 0;
	return 0;
}

/* JOIN until the job is ready; 0 or an error, with what WELCOME said in @j. */
static int join_until_ready(struct joining *j)
{
	struct thc_client *c = j->c;
	uint64_t until = thc_now() + c->options.join_timeout_ms * THC_NS_PER_MS;
	int ready = 0, last_error = 0;

	while (!ready) {
		if (thc_now() > until)
			return timed_out(j, last_error);
		ready = join_once(j, &last_error);
	}
	return ready < 0 ? ready : 0;
}

int thc_client_join(struct thc_client *c)
{
	struct joining j = { .c = c };
	int error;

	if (getrandom(&c->nonce, sizeof(c->nonce), 0) != sizeof(c->nonce))
		return thc_fail(-EIO, "no random numbers from the kernel");
	c->nonce |= 1;
	error = join_until_ready(&j);
	if (!error) {
		c->params = j.params;
		if (c->params.reply != THC_REPLY_MULTICAST)
			thc_link_leave_group(&c->link);
		error = set_up(c);
	}
	/* the others are not to start with a rank that has given up */
	if (error && j.welcome && !(j.params.flags & THC_WELCOME_F_REFUSED)) {
		c->params.epoch = j.params.epoch;
		thc_client_leave(c);
	}
	return error;
}

/* Nobody answers a LEAVE; one of three arrives almost surely, and without any
 * the others learn by their timeout.
 */
void thc_client_leave(struct thc_client *c)
{
	int i;

	for (i = 0; i < 3; i++)
		send_control(c, THC_OP_LEAVE, NULL, 0);
}
