// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Joining a job over UDP sockets: JOIN until WELCOME says that all ranks are
 * in, again at once when a CHALLENGE comes. Number 0 of several aggregators says where the others
 * are, and all of them have to be ready. Leaving: LEAVE, best effort.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>

#include <thc/key.h>
#include <thc/worker/shards.h>

#include "client.h"
#include "transport_udp.h"

/**
 * struct joining - a join in progress
 * @j: joining by aggregator, of those that the client knows
 * @at: the aggregator whose packets are being read
 * @spec, @epoch: of number 0's last WELCOME
 * @give_up_at: end of the join timeout, ns
 */
struct joining {
	struct thc_udp		*u;
	struct thc_joining	*j;
	uint32_t		at;
	struct thc_spec		spec;
	uint32_t		epoch;
	uint64_t		give_up_at;
};

struct membership_packet {
	struct thc_hdr		hdr;
	union {
		struct thc_join		join;
		struct thc_leave	leave;
	};
};

/* Sends @p, of which @payload bytes follow the header. */
static void send_membership(struct thc_peer *to, struct membership_packet *p, size_t payload)
{
	struct thc_outgoing out = {
		.data = p,
		.bytes = (uint16_t)(sizeof(p->hdr) + payload),
		.port = to->sender.port,
	};
	uint64_t calls = 0;

	thc_sender_seal_membership(&to->sender, &p->hdr, &p->join, (int)(payload / 8));
	thc_peer_returned(to, thc_sockets_send(&to->sockets, &out, 1, &calls));
}

static void leave(struct thc_peer *from)
{
	struct membership_packet p;
	int i;

	thc_sender_leave(&from->sender, &p.hdr, &p.leave);
	for (i = 0; i < THC_LEAVES; i++)
		send_membership(from, &p, sizeof(p.leave));
}

static void on_join_packet(void *ctx, struct thc_hdr *h, unsigned int bytes, struct thc_origin from)
{
	struct joining *joining = ctx;
	struct thc_sender *s = &joining->u->peer[joining->at].sender;
	struct thc_joining *j = &joining->j[joining->at];
	const struct thc_welcome *w = (void *)(h + 1);
	enum thc_drop_reason why;

	/* drops answers of an earlier session */
	if (h->version != THC_VERSION || !thc_op_is_joining(h->op) || bytes < sizeof(*h) ||
	    !thc_joining_fits(h->op, bytes - (unsigned int)sizeof(*h)))
		return;
	bytes -= sizeof(*h);
	if (h->op == THC_OP_CHALLENGE) {
		why = thc_joining_challenge(j, s, h, (void *)(h + 1), from.port);
	} else {
		why = thc_joining_admit(j, s, h, w, bytes, from);
		if (!why)
			why = thc_joining_apply(j, s, h, w, bytes, thc_now());
	}
	thc_shards_dropped(joining->u, why);
}

static void wait_for_packets(const struct thc_udp *u, int ms)
{
	struct pollfd fds[THC_POLL_MAX];

	poll(fds, thc_shards_poll(&u->base, fds), ms);
}

static struct thc_joiner joiner_at(const void *home, uint32_t shard)
{
	const struct joining *joining = home;

	return (struct thc_joiner){ &joining->j[shard], &joining->u->peer[shard].sender };
}

/* The aggregators that the client knows now; number 0 lists them once. */
static struct thc_joiners joiners_of(const struct joining *joining)
{
	uint32_t known = joining->u->shards;

	return (struct thc_joiners){ joining, joiner_at, known, known > 1 };
}

static int failed(const struct joining *joining, struct thc_failure f)
{
	return thc_failed_to_join(joining->u->base.client, &f, &joining->j->spec);
}

static void join_group(struct joining *joining, uint32_t shard)
{
	struct thc_joining *j = &joining->j[shard];
	uint64_t now = thc_now();

	if (!thc_joining_wants_group(j, now))
		return;
	thc_joining_tries_group(j, now);
	thc_sockets_join_group(&joining->u->peer[shard].sockets, &j->spec.group);
}

/* Begins to join number @shard, which has sockets. */
static int begin(struct joining *joining, uint32_t shard)
{
	struct thc_peer *at = &joining->u->peer[shard];
	const struct thc_client_options *o = &joining->u->base.client->options;
	uint8_t random[THC_NONCE_BYTES];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return thc_fail(-EIO, "no random numbers from the kernel");
	thc_joining_begin(&joining->j[shard], &at->sender, random, thc_now());
	at->sender.job = o->job;
	thc_sender_set_key(&at->sender, o->key);
	thc_way_end(&at->sockets.way, &at->sender.end);
	at->sender.end.aggregator = thc_be16((uint16_t)shard);
	at->sender.rank = (uint8_t)o->rank;
	at->sender.unreachable = 0;
	at->sender.unreachable_at = 0;
	return 0;
}

/* Opens sockets to the other aggregators, once number 0 has listed them. */
static int find_others(struct joining *joining)
{
	struct thc_udp *u = joining->u;
	struct thc_shards *list = &u->base.client->list;
	const struct thc_parts *parts = &joining->j->parts;
	uint32_t i, count = joining->j->spec.shards;
	struct thc_joining *more;
	int error;

	/* parts of the next WELCOME may have replaced the list */
	if (count <= u->shards || !thc_parts_whole(parts))
		return 0;
	thc_shards_read(list, &joining->j->spec, parts->record, parts->info.bytes);
	more = realloc(joining->j, count * sizeof(*more));
	if (!more)
		return thc_fail(-ENOMEM, "out of memory for %u aggregators", count);
	joining->j = more;
	/* if sockets to one cannot be opened, the client has not joined those behind it: they get
	 * no LEAVE
	 */
	for (i = u->shards; i < count; i++)
		more[i].welcomed = more[i].ready = 0;
	error = thc_shards_grow(u, count);
	for (i = 1; i < count && !error; i++) {
		struct thc_peer *at = &u->peer[i];

		at->sender.port = thc_be16(list->at[i].port);
		error = thc_sockets_open_beside(&at->sockets, &u->peer->sockets, &list->at[i]);
		if (!error)
			error = begin(joining, i);
	}
	return error;
}

/* Acts on the last packets of number @shard. */
static int look_at(struct joining *joining, uint32_t shard)
{
	struct thc_joining *j = &joining->j[shard];
	struct thc_joiners all = joiners_of(joining);
	struct thc_failure f;
	bool welcomed = thc_joiners_step(&all, shard, &f) != THC_JOIN_ASK;

	/* the protocol's core does not know what the codec can serve */
	if (!f.reason && welcomed && !shard &&
	    thc_job_check(&j->spec, &joining->u->base.client->options))
		f.reason = THC_FAILED_VERSION;
	if (f.reason)
		return failed(joining, f);
	if (!welcomed)
		return 0;
	join_group(joining, shard);
	if (shard)
		return 0;
	joining->spec = j->spec;
	joining->epoch = j->epoch;
	return find_others(joining);
}

static int receive_some(struct joining *joining)
{
	struct thc_udp *u = joining->u;
	int error = 0;
	uint32_t i;

	for (i = 0; i < u->shards && !error; i++) {
		struct thc_peer *at = &u->peer[i];
		uint64_t calls = 0;

		joining->at = i;
		thc_peer_returned(at,
				  thc_sockets_receive(&at->sockets, at->sockets.unicast, u->base.rx,
						      on_join_packet, joining, &calls));
		if (at->sockets.group >= 0)
			thc_sockets_receive(&at->sockets, at->sockets.group, u->base.rx,
					    on_join_packet, joining, &calls);
		error = look_at(joining, i);
	}
	return error;
}

/* Sends all JOINs that are due; returns when the next one is. */
static uint64_t ask(struct joining *joining)
{
	u64 due = joining->give_up_at;
	struct membership_packet p;
	uint32_t i;

	for (i = 0; i < joining->u->shards; i++) {
		struct thc_joining *j = &joining->j[i];
		struct thc_peer *at = &joining->u->peer[i];
		uint64_t now = thc_now();

		if (thc_joining_asks(j, &at->sender, &p.hdr, &p.join, now, &due))
			send_membership(at, &p, sizeof(p.join));
	}
	return due;
}

/* Joins until the job is ready; 0 or an error. */
static int join_until_ready(struct joining *joining)
{
	struct thc_joiners all = joiners_of(joining);
	struct thc_udp *u = joining->u;
	struct thc_failure f;
	int error = 0;

	while (!error && !thc_joiners_ready(&all)) {
		uint64_t now = thc_now(), due;

		if (now >= joining->give_up_at) {
			thc_joiners_failure(&all, &f);
			return failed(joining, f);
		}
		due = ask(joining);
		now = thc_now();
		if (now < due)
			wait_for_packets(u, (int)((due - now) / THC_NS_PER_MS) + 1);
		error = receive_some(joining);
		all = joiners_of(joining);
	}
	return error;
}

/* Makes the sender of number @shard ready, once all aggregators are. @flights: of its slots */
static void set_up(struct thc_udp *u, const struct thc_joining *j, uint32_t shard,
		   struct thc_flight *flights)
{
	const struct thc_client *c = u->base.client;
	struct thc_peer *at = &u->peer[shard];

	if (j->spec.reply != THC_REPLY_MULTICAST)
		thc_sockets_leave_group(&at->sockets);
	if (j->spec.flags & THC_WELCOME_F_NOGSO)
		at->sockets.gso = false;
	thc_sender_set_epoch(&at->sender, &j->spec, c->options.key);
	thc_joining_end(j, &at->sender, flights, c->window);
}

static int set_up_all(const struct joining *joining)
{
	struct thc_udp *u = joining->u;
	struct thc_client *c = u->base.client;
	uint32_t i, answers = UINT32_MAX, slots;
	int error;

	c->spec = joining->spec;
	c->epoch = joining->epoch;
	slots = c->spec.data_slots + c->spec.control_slots;
	error = thc_shards_fill(u);
	if (error)
		return error;
	for (i = 0; i < u->shards; i++)
		if (u->peer[i].sockets.answers_max < answers)
			answers = u->peer[i].sockets.answers_max;
	thc_window_choose(c, answers);
	for (i = 0; i < u->shards; i++)
		set_up(u, &joining->j[i], i, u->flights + (size_t)i * slots);
	return 0;
}

/* Leaves all aggregators that have let this rank in: the other ranks must not start with it. */
static void give_up(const struct joining *joining)
{
	uint32_t i;

	for (i = 0; i < joining->u->shards; i++)
		if (thc_joining_is_in(&joining->j[i]))
			leave(&joining->u->peer[i]);
}

int thc_udp_join(struct thc_transport *t)
{
	struct thc_client *c = t->client;
	struct thc_udp *u = thc_udp_of(t);
	struct joining joining = {
		.u = u,
		.j = malloc(sizeof(*joining.j)),
		.give_up_at = thc_now() + c->options.join_timeout_ms * THC_NS_PER_MS,
	};
	int error;

	if (!joining.j)
		return thc_fail(-ENOMEM, "out of memory");
	thc_shards_empty(u);
	thc_shards_only_first(u);
	u->peer->sender.port = c->options.port;
	error = begin(&joining, 0);
	if (!error) {
		error = join_until_ready(&joining);
		if (!error)
			error = set_up_all(&joining);
		if (error)
			give_up(&joining);
	}
	free(joining.j);
	return error;
}

void thc_udp_leave(struct thc_transport *t)
{
	struct thc_udp *u = thc_udp_of(t);
	uint32_t i;

	for (i = 0; i < u->shards; i++)
		leave(&u->peer[i]);
}
