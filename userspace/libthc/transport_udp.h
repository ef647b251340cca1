/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The transport over UDP sockets, private to transport_udp.c, join.c and shards.c.
 *
 * Each aggregator of the job has sockets, a window and an epoch of its own; chunk q of a stream
 * goes to number q mod shards (<thc/wire/route.h>).
 */
#ifndef LIBTHC_TRANSPORT_UDP_H
#define LIBTHC_TRANSPORT_UDP_H

#include <thc/wire/shards.h>
#include <thc/worker/sender.h>

#include "transport.h"
#include "udp.h"

/* One aggregator: sockets to it, and the protocol's state. */
struct thc_peer {
	struct thc_sockets		sockets;
	struct thc_sender	sender;
};

/**
 * struct thc_udp - a client's transport over UDP
 * @peer: aggregators that have sockets, by number; there are @shards
 * @flights: of all senders, one behind the other; NULL: the job is not ready
 * @flights_bytes: of @flights
 */
struct thc_udp {
	struct thc_transport	base;
	struct thc_peer	*peer;
	uint32_t		shards;
	struct thc_flight	*flights;
	size_t			flights_bytes;
};

static inline struct thc_udp *thc_udp_of(struct thc_transport *t)
{
	return (struct thc_udp *)t;
}

extern const struct thc_transport_ops thc_udp_ops;

/* join.c: JOIN and WELCOME over UDP. */
int thc_udp_join(struct thc_transport *t);
void thc_udp_leave(struct thc_transport *t);

/* shards.c: -ENOMEM, or room for @count aggregators, of which the new ones have no sockets. */
int thc_shards_grow(struct thc_udp *u, uint32_t count);
/* Frees all aggregators, whose sockets are closed, and wipes their keys. */
void thc_shards_free(struct thc_udp *u);
/* Closes all but number 0. */
void thc_shards_only_first(struct thc_udp *u);
/* Allocates the flights of all aggregators, by client.spec; -ENOMEM */
int thc_shards_fill(struct thc_udp *u);
/* Frees all flights. */
void thc_shards_empty(struct thc_udp *u);
/* Lets the senders send all numbered chunks. */
void thc_shards_reserve(struct thc_udp *u);
/* The sockets of all aggregators, as thc_transport_ops.poll. */
unsigned int thc_shards_poll(const struct thc_transport *t, struct pollfd *fds);
/* Notes errors after a call of @p's sockets has returned @n; the network may have reported one. */
void thc_peer_returned(struct thc_peer *p, int n);
/* Counts a packet that was dropped for @why; THC_DROP_NONE: none was. */
void thc_shards_dropped(struct thc_udp *u, enum thc_drop_reason why);

#endif /* LIBTHC_TRANSPORT_UDP_H */
