// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The aggregators that a client has UDP sockets to. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <thc/wire/route.h>

#include "client.h"
#include "transport_udp.h"

void thc_shards_free(struct thc_udp *u)
{
	if (u->peer)
		explicit_bzero(u->peer, u->shards * sizeof(*u->peer));
	free(u->peer);
	u->peer = NULL;
}

int thc_shards_grow(struct thc_udp *u, uint32_t count)
{
	struct thc_peer *more = calloc(count, sizeof(*more));
	uint32_t i;

	if (!more)
		return thc_fail(-ENOMEM, "out of memory for %u aggregators", count);
	/* not realloc(), which may leave a copy: peers have keys */
	if (u->peer)
		memcpy(more, u->peer, u->shards * sizeof(*more));
	thc_shards_free(u);
	for (i = u->shards; i < count; i++)
		more[i].sockets.unicast = more[i].sockets.group = -1;
	u->peer = more;
	u->shards = count;
	return 0;
}

void thc_shards_only_first(struct thc_udp *u)
{
	uint32_t i;

	/* a window begins anew, but its cuts stay counted */
	for (i = 0; i < u->shards; i++) {
		u->base.client->stats.window_cuts += u->peer[i].sender.window.cuts;
		u->peer[i].sender.window.cuts = 0;
	}
	while (u->shards > 1) {
		thc_sockets_close(&u->peer[--u->shards].sockets);
		explicit_bzero(&u->peer[u->shards], sizeof(*u->peer));
	}
	u->base.client->list.count = 0;
}

int thc_shards_fill(struct thc_udp *u)
{
	struct thc_client *c = u->base.client;
	size_t slots = c->spec.data_slots + c->spec.control_slots;

	u->flights_bytes = slots * u->shards * sizeof(*u->flights);
	u->flights = calloc(1, u->flights_bytes);
	if (!u->flights)
		return thc_fail(-ENOMEM, "out of memory for the slots of %u aggregators",
				u->shards);
	thc_account(c, (ssize_t)u->flights_bytes);
	return 0;
}

void thc_shards_empty(struct thc_udp *u)
{
	uint32_t i;

	if (u->flights)
		thc_account(u->base.client, -(ssize_t)u->flights_bytes);
	free(u->flights);
	u->flights = NULL;
	for (i = 0; i < u->shards; i++) {
		thc_stream_init(&u->peer[i].sender.data, NULL, 0, 0);
		thc_stream_init(&u->peer[i].sender.control, NULL, 0, 0);
	}
}

void thc_shards_reserve(struct thc_udp *u)
{
	const u64 *numbered = u->base.client->numbered;
	uint32_t i;

	for (i = 0; i < u->shards; i++) {
		struct thc_sender *s = &u->peer[i].sender;

		s->data.reserved = thc_shard_part(numbered[false], u->shards, i);
		s->control.reserved = thc_shard_part(numbered[true], u->shards, i);
	}
}

unsigned int thc_shards_poll(const struct thc_transport *t, struct pollfd *fds)
{
	const struct thc_udp *u = (const void *)t;
	unsigned int n = 0;
	uint32_t i;

	for (i = 0; i < u->shards; i++) {
		const struct thc_sockets *l = &u->peer[i].sockets;

		fds[n++] = (struct pollfd){ .fd = l->unicast, .events = POLLIN };
		if (l->group >= 0)
			fds[n++] = (struct pollfd){ .fd = l->group, .events = POLLIN };
	}
	return n;
}

void thc_peer_returned(struct thc_peer *p, int n)
{
	int error = n < 0 ? -n : p->sockets.complaint;

	p->sockets.complaint = 0;
	if (error)
		thc_sender_unreachable(&p->sender, error, thc_now());
}

void thc_shards_dropped(struct thc_udp *u, enum thc_drop_reason why)
{
	struct thc_client *c = u->base.client;

	c->stats.bad_tag += why == THC_DROP_TAG;
	c->stats.unexpected += why == THC_DROP_UNEXPECTED;
	c->stats.foreign += thc_drop_is_foreign(why);
}
