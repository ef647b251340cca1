/* SPDX-License-Identifier: GPL-2.0 */
/* Packets on their way out. */
#ifndef THC_KMOD_TRANSMIT_H
#define THC_KMOD_TRANSMIT_H

#include <linux/skbuff.h>

#include <linux/thc.h>

/* What is to be handed to the network after unlocking, by thc_outbox_flush(). */
struct thc_outbox {
	struct sk_buff_head	packets;
};

struct thc_peer;
struct thc_sock;

/**
 * struct thc_train - packets that leave as one super-packet
 * @next: where the next one has to begin to be part of it
 */
struct thc_train {
	struct thc_peer		*peer;
	struct sk_buff		*skb;
	const u8		*next;
	u16			port;
	u16			bytes;
	u16			packets;
};

/* Appends the packet at @data, in pages of a message, to the train. */
bool thc_train_add(struct thc_train *t, struct thc_outbox *out, struct thc_peer *p, const u8 *data,
		   u16 bytes, u16 port);
void thc_train_end(struct thc_train *t, struct thc_outbox *out);
/* A control packet, copied. */
void thc_send_control(struct thc_peer *p, struct thc_outbox *out, struct thc_hdr *h,
		      const void *payload, u32 bytes);
/* Without locks, by everybody who has put something there. */
void thc_outbox_flush(struct thc_sock *ts);
/* Bytes of packets that may be on their way when @window chunks may be in flight:
 * each of these twice.
 */
size_t thc_transmit_room(u32 window);
/* May packets be built for @p? If not, those on their way have to arrive first. */
bool thc_peer_has_room(const struct thc_peer *p);
/* Forgets all routes to @p. */
void thc_routes_free(struct thc_peer *p);
/* Bytes on the wire of a packet with @bytes of UDP payload. */
u32 thc_wire_bytes(const struct thc_peer *p, u32 bytes);

#endif /* THC_KMOD_TRANSMIT_H */
