/* SPDX-License-Identifier: GPL-2.0 */
/* One aggregator of a socket's job, and the UDP sockets to it. */
#ifndef THC_KMOD_PEER_H
#define THC_KMOD_PEER_H

#include <net/dst.h>

#include <thc/worker/join.h>

#include "address.h"
#include "message.h"

/**
 * struct thc_route - how packets to one port leave; rules may tell ports apart
 * @dst: what the network has said, NULL: it is to be asked
 * @cookie: @dst is valid as long as it is, for IPv6
 * @in, @in6: our address on that route
 */
struct thc_route {
	struct dst_entry	*dst;
	u32			cookie;
	union {
		__be32		in;
		struct in6_addr	in6;
	};
};

/**
 * struct thc_peer - one aggregator of a socket's job
 * @owner: the socket
 * @address: where it is, base port
 * @unicast: requests out, answers to this rank in; owns what is on its way out
 * @wmem_limit: bytes that may be on their way, as @unicast counts them
 * @group: answers to all ranks in: connect() makes it, join_work joins the group; NULL when
 *	joining has ended without a group
 * @group_at: the one that it has joined, inet 0: none; join_work's, which changes it under
 *	thc_sock.lock
 * @route: by UDP port of the aggregator, from its first one on; whoever empties the outbox uses
 *	them, one context at a time
 * @local: our end of @unicast, on the interface that led to the aggregator
 * @oif: the interface that was asked for, 0: the route's, which may change
 * @sender: the protocol's state
 * @flights: room of its streams
 * @flights_bytes: of these, as they are charged, 0: they are not
 * @sending: by stream, the message with the chunk to be sent next, or NULL; it
 *	has no answer to that chunk, so it is in thc_sock.messages
 * @joining: how far it is in the job
 * @shard: its number. One that thc_sock.shards does not count yet is being opened
 */
struct thc_peer {
	struct thc_sock		*owner;
	struct thc_address	address;
	struct socket		*unicast;
	size_t			wmem_limit;
	struct socket		*group;
	struct thc_address	group_at;
	struct thc_route	route[THC_PORT_SPAN];
	struct thc_address	local;
	u32			oif;
	struct thc_sender	sender;
	struct thc_flight	*flights;
	size_t			flights_bytes;
	struct thc_message	*sending[THC_STREAMS];
	struct thc_joining	joining;
	u32			shard;
};

static inline struct thc_stream *thc_peer_stream(struct thc_peer *p, int stream)
{
	return stream == THC_DATA ? &p->sender.data : &p->sender.control;
}

/* Is this @p's aggregator, on one of its ports? @address: of the IP version that @protocol
 * (ETH_P_*) says. Needs no lock: where an aggregator is stays as connect() has it.
 */
bool thc_peer_is_at(const struct thc_peer *p, __be16 protocol, const void *address, __be16 port);
/* Takes room for @peers peers and their sockets, which thc_peer_free() gives back: for all or none,
 * so that who cannot have all keeps none from others. -ENOBUFS: host or user may hold no more.
 */
int thc_peer_charge(struct thc_sock *ts, u32 peers);
/* Of peers that were not made. */
void thc_peer_uncharge(struct thc_sock *ts, u32 peers);
/* Number @shard of the job that @ts->remote names, at @at, for which room was taken. @key: the
 * job's secret key, NULL: it has none. NULL: no memory.
 */
struct thc_peer *thc_peer_new(struct thc_sock *ts, u32 shard, const struct thc_address *at,
			      const u8 *key);
/* sk_data_ready of a peer's UDP sockets. */
typedef void thc_peer_ready(struct sock *sk);
/* Opens UDP sockets towards @p->address, for @p->owner, by the process that connects it. Their
 * packets go to @ready. What there is after an error is thc_peer_free()'s.
 */
int thc_peer_open(struct thc_peer *p, thc_peer_ready *ready);
/* No packet comes to @p any more, but some may be under way in a softirq, and still send through
 * its sockets.
 */
void thc_peer_silence(struct thc_peer *p);
/* After thc_peer_silence() and synchronize_net(): @p itself, too. */
void thc_peer_free(struct thc_peer *p);
/* The group that WELCOME named last; false: it is not of @p's IP version. */
bool thc_peer_group(const struct thc_peer *p, struct thc_address *group);
/* Has it been joined? */
bool thc_peer_in_group(const struct thc_peer *p, const struct thc_address *group);
/* Leaves the one before. Not fatal if it fails: nobody is heard on the group, the job answers by
 * fanout.
 */
void thc_peer_join_group(struct thc_peer *p, const struct thc_address *group);
/* The group is not needed: no answer will come there. */
void thc_peer_close_group(struct thc_peer *p);
/* Takes room for the flights of the job's slots; -ENOBUFS: messages of the host, or of the user,
 * leave none.
 */
int thc_peer_charge_flights(struct thc_peer *p);
/* Their memory, after that; -ENOMEM. */
int thc_peer_alloc_flights(struct thc_peer *p);
/* Whatever there is of both. Before thc_peer_streams(), which needs them to the end. */
void thc_peer_free_flights(struct thc_peer *p);
/* The epoch's keys and streams; thc_peer_alloc_flights() has succeeded. */
void thc_peer_streams(struct thc_peer *p);

#endif /* THC_KMOD_PEER_H */
