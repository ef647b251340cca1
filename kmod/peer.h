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
 * @dst: the network's answer, NULL: the network has yet to be asked
 * @cookie: @dst is valid while this matches, for IPv6
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
 * @address: address of the aggregator, with its base port
 * @unicast: sends requests, receives answers to this rank; owns packets on their way out
 * @wmem_limit: bound of the truesize of these packets, sk_wmem_alloc
 * @group: receives answers to all ranks: connect() makes it, join_work joins the group; NULL when
 *	joining has ended without a group
 * @group_at: the group that @group has joined, inet 0: none; only join_work changes it, under
 *	thc_sock.lock
 * @route: by UDP port of the aggregator, from the base port on; the context that flushes the outbox
 *	uses them without a lock
 * @local: local address and port of @unicast; interface that led to the aggregator
 * @oif: interface that the caller asked for, 0: routing chooses one, and may choose another later
 * @sender: the protocol's state
 * @flights: flights of its streams
 * @flights_bytes: bytes charged for @flights, 0: none
 * @sending: by stream, the message with the chunk to be sent next, or NULL; that chunk has no
 *	answer, so the message is in thc_sock.messages
 * @joining: state of its join
 * @shard: its number. A peer with @shard >= thc_sock.shards is still being opened
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

/* True if @p's aggregator has @address and @port is one of its ports. @address: of the IP version
 * that @protocol (ETH_P_*) says. Needs no lock: the address changes only while the peer is being
 * opened.
 */
bool thc_peer_is_at(const struct thc_peer *p, __be16 protocol, const void *address, __be16 port);
/* Charges room for @peers peers and their sockets, for all or none, so that a socket that cannot
 * have all keeps none from others. thc_peer_free() gives it back. -ENOBUFS: beyond the bound of
 * host or user.
 */
int thc_peer_charge(struct thc_sock *ts, u32 peers);
/* Gives back the room of peers that were not made. */
void thc_peer_uncharge(struct thc_sock *ts, u32 peers);
/* Makes the peer of aggregator number @shard, at @at, of the job that @ts->remote names. Its room
 * has been charged. @key: the job's secret key, NULL: it has none. Returns NULL without memory.
 */
struct thc_peer *thc_peer_new(struct thc_sock *ts, u32 shard, const struct thc_address *at,
			      const u8 *key);
/* sk_data_ready of a peer's UDP sockets. */
typedef void thc_peer_ready(struct sock *sk);
/* Opens UDP sockets to @p->address, by the process that connects @p->owner. Their packets go to
 * @ready. After an error, thc_peer_free() cleans up.
 */
int thc_peer_open(struct thc_peer *p, thc_peer_ready *ready);
/* No packet comes to @p any more, but some may be under way in a softirq, and still send through
 * its sockets.
 */
void thc_peer_silence(struct thc_peer *p);
/* Frees @p and all that it has, after thc_peer_silence() and synchronize_net(). */
void thc_peer_free(struct thc_peer *p);
/* The group that WELCOME named last; false: it is not of @p's IP version. */
bool thc_peer_group(const struct thc_peer *p, struct thc_address *group);
/* True if @p has joined @group. */
bool thc_peer_in_group(const struct thc_peer *p, const struct thc_address *group);
/* Leaves the group joined before. Failure is not fatal: nothing is heard on the group, so the job
 * answers by fanout.
 */
void thc_peer_join_group(struct thc_peer *p, const struct thc_address *group);
/* The group is not needed: no answer will come there. */
void thc_peer_close_group(struct thc_peer *p);
/* Takes room for the flights of the job's slots; -ENOBUFS: messages of the host, or of the user,
 * leave none.
 */
int thc_peer_charge_flights(struct thc_peer *p);
/* Allocates the flights, which have been charged; -ENOMEM. */
int thc_peer_alloc_flights(struct thc_peer *p);
/* Frees and uncharges flights, if any. After thc_peer_streams() only when @p ends: its streams use
 * them.
 */
void thc_peer_free_flights(struct thc_peer *p);
/* The epoch's keys and streams; thc_peer_alloc_flights() has succeeded. */
void thc_peer_streams(struct thc_peer *p);

#endif /* THC_KMOD_PEER_H */
