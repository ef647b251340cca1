// SPDX-License-Identifier: GPL-2.0
/*
 * Packets in, in the network's softirq. Packets that were joined on the way
 * (GRO) are taken apart here; the lanes of an answer are copied once, straight
 * to their place in the message, and count only if the packet's sum is right.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>

#include "sock.h"

/* What the layers below say about a packet, or about all that were joined. */
struct origin {
	bool	ce;	/* met congestion (RFC 3168) */
	bool	peer;	/* comes from the aggregator */
};

static struct origin origin_of(const struct thc_peer *p, const struct sk_buff *skb)
{
	struct origin o = { 0 };

	if (skb->protocol == htons(ETH_P_IP)) {
		o.ce = INET_ECN_is_ce(ip_hdr(skb)->tos);
		o.peer = p->address.inet == AF_INET && ip_hdr(skb)->saddr == p->address.in;
	} else {
		o.ce = INET_ECN_is_ce(ipv6_get_dsfield(ipv6_hdr(skb)));
		o.peer = p->address.inet == AF_INET6 &&
			 ipv6_addr_equal(&ipv6_hdr(skb)->saddr, &p->address.in6);
	}
	return o;
}

static void on_welcome(struct thc_peer *p, struct sk_buff *skb, u32 offset, u32 bytes,
		       const struct thc_hdr *h)
{
	struct thc_sock *ts = p->owner;
	struct thc_welcome w;

	if (bytes != sizeof(*h) + sizeof(w) ||
	    skb_copy_bits(skb, offset + sizeof(*h), &w, sizeof(w))) {
		ts->stats.foreign++;
		return;
	}
	if (h->sum != cpu_to_be32(thc_sum_packet(h, &w, sizeof(w) / 8))) {
		ts->stats.bad_sum++;
		return;
	}
	thc_join_welcome(p, h, &w);
}

static void on_epoch(struct thc_peer *p, const struct thc_hdr *h)
{
	struct thc_sock *ts = p->owner;

	ts->failure.rank = h->rank;
	ts->failure.epoch = be32_to_cpu(h->epoch);
	thc_engine_break(ts, ESTALE, THC_FAILED_EPOCH);
}

/* Is the packet as it was sent? Copies an answer's lanes to their place. */
static noinline bool is_sound(struct thc_peer *p, struct sk_buff *skb, u32 offset, u32 bytes,
			      const struct thc_hdr *h, u8 *lanes)
{
	u32 payload = bytes - sizeof(*h);
	u8 scrap[THC_LANE_BYTES];

	if (!lanes)
		lanes = scrap;
	if (payload > THC_LANE_BYTES || skb_copy_bits(skb, offset + sizeof(*h), lanes, payload))
		return false;
	return thc_sender_sum_ok(&p->sender, h, lanes, payload / 8);
}

static void count(struct thc_sock *ts, enum thc_got got, const struct thc_hdr *h)
{
	ts->stats.waits += got == THC_GOT_WAIT;
	ts->stats.unexpected += got == THC_GOT_UNEXPECTED;
	ts->stats.repeats += got == THC_GOT_ANSWER && h->flags & THC_F_REPEAT;
}

static void on_packet(struct thc_peer *p, struct sk_buff *skb, u32 offset, u32 bytes, bool ce,
		      u64 now)
{
	struct thc_sock *ts = p->owner;
	struct thc_stream *st;
	struct thc_flight *f;
	struct thc_message *m;
	enum thc_got got;
	struct thc_hdr h;
	u8 *lanes = NULL;
	u32 index;

	ts->stats.packets_down++;
	ts->stats.bytes_down += thc_wire_bytes(p, bytes);
	if (bytes < sizeof(h) || skb_copy_bits(skb, offset, &h, sizeof(h))) {
		ts->stats.foreign++;
		return;
	}
	if (h.op == THC_OP_WELCOME && h.version == THC_VERSION) {
		on_welcome(p, skb, offset, bytes, &h);
		return;
	}
	if (ts->state != THC_STATE_READY) {
		ts->stats.unexpected++;
		return;
	}
	got = thc_sender_find(&p->sender, &h, bytes, &st, &f);
	if (got == THC_GOT_FOREIGN) {
		ts->stats.foreign++;
		return;
	}
	m = f ? f->owner : NULL;
	index = f ? f->index : 0;
	if (got == THC_GOT_ANSWER && !m->closed)
		lanes = m->lanes + (size_t)index * THC_LANE_BYTES;
	if (!is_sound(p, skb, offset, bytes, &h, lanes)) {
		ts->stats.bad_sum++;
		return;
	}
	p->unreachable_at = 0;
	count(ts, got, &h);
	if (got == THC_GOT_EPOCH) {
		on_epoch(p, &h);
		return;
	}
	if (got == THC_GOT_BEHIND) {
		thc_engine_break(ts, ESTALE, THC_FAILED_BEHIND);
		return;
	}
	/* a duplicate may still say that the window was cut for nothing */
	if (got != THC_GOT_UNEXPECTED || !m)
		thc_sender_take(&p->sender, got, st, f, &h, ce, now);
	if (got == THC_GOT_ANSWER || got == THC_GOT_MISSED)
		thc_engine_landed(ts, m, index, &h, got == THC_GOT_ANSWER);
}

/* Each packet of one that was joined from several. */
static void each_packet(struct thc_peer *p, struct sk_buff *skb, bool ce)
{
	u32 offset = sizeof(struct udphdr), bytes = skb->len - offset;
	u32 each = skb_is_gso(skb) ? skb_shinfo(skb)->gso_size : bytes;
	u64 now = ktime_get_ns();

	while (bytes) {
		u32 n = min(each, bytes);

		on_packet(p, skb, offset, n, ce, now);
		offset += n;
		bytes -= n;
	}
}

/* encap_rcv of both sockets of a peer. Consumes @skb. */
int thc_receive(struct sock *sk, struct sk_buff *skb)
{
	struct thc_peer *p = rcu_dereference_sk_user_data(sk);
	struct thc_outbox out;
	struct thc_sock *ts;
	struct origin from;

	if (!p || skb->len <= sizeof(struct udphdr))
		goto drop;
	ts = p->owner;
	from = origin_of(p, skb);
	__skb_queue_head_init(&out.packets);
	spin_lock_bh(&ts->lock);
	if (from.peer) {
		each_packet(p, skb, from.ce);
		thc_engine_run(ts, &out);
	} else {
		ts->stats.foreign++;
	}
	spin_unlock_bh(&ts->lock);
	thc_outbox_flush(ts, &out);
drop:
	consume_skb(skb);
	return 0;
}
