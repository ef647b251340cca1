/* SPDX-License-Identifier: GPL-2.0 */
/* Packets on their way out. */
#ifndef THC_KMOD_TRANSMIT_H
#define THC_KMOD_TRANSMIT_H

#include <linux/skbuff.h>

#include <linux/thc.h>

struct thc_peer;
struct thc_route;
struct thc_sock;

/**
 * struct thc_train - packets that leave as one super-packet
 * @next: where the next one has to begin to be part of it
 */
struct thc_train {
	struct sk_buff		*skb;
	const u8		*next;
	u16			bytes;
	u16			packets;
};

/* Appends the packet at @data, in pages of a message, to the train. */
bool thc_train_add(struct thc_train *t, struct thc_peer *p, const u8 *data, u16 bytes, u16 port);
void thc_train_end(struct thc_train *t);
/* Seals a JOIN or LEAVE and appends a copy to the outbox. */
void thc_send_copied(struct thc_peer *p, struct thc_hdr *h, const void *payload, u32 bytes);
/* Called by each context that has built packets, after thc_sock.lock. */
void thc_outbox_flush(struct thc_sock *ts);
/* Bytes of packets that may be on their way: each of @window chunks in flight, twice. */
size_t thc_wmem_limit(u32 window);
/* True if packets may be built for @p. Else the network has to free packets first. */
bool thc_peer_may_send(const struct thc_peer *p);
/* Asks the network how packets with @mark from @p->local leave for @port. @usk: the UDP socket that
 * sends them, NULL: there is none yet. Returns 0 with a reference in @r->dst, or an error and @r as
 * it was.
 */
int thc_route_find(const struct thc_peer *p, struct sock *usk, u32 mark, u16 port,
		   struct thc_route *r);
/* Forgets all routes to @p. */
void thc_routes_free(struct thc_peer *p);
/* Bytes on the wire of a packet with @bytes of UDP payload. */
u32 thc_wire_bytes(const struct thc_peer *p, u32 bytes);

#endif /* THC_KMOD_TRANSMIT_H */
