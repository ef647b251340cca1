// SPDX-License-Identifier: GPL-2.0
/*
 * Packets out. Consecutive packets of a message lie side by side in its
 * pages, and go to one UDP port for THC_SLOTS_PER_PORT slots: they leave as
 * one UDP super-packet that refers to those pages, without a copy, and the
 * network below takes it apart. Built under thc_sock.lock, handed to the
 * network after it. Until the network is done with them, they belong to the
 * peer's UDP socket, which holds the namespace and belongs to the caller's
 * cgroup.
 */
#include <linux/ip.h>
#include <linux/mm.h>
#include <linux/udp.h>
#include <linux/vmalloc.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/route.h>
#include <net/udp_tunnel.h>

#include "compat/compat.h"
#include "sock.h"
#include "state.h"

#define HEADROOM	(LL_MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct udphdr))
/* Approximate truesize of a packet that is sent alone: its head, and the page it refers to. */
#define PACKET_WMEM	(SKB_TRUESIZE(HEADROOM) + PAGE_SIZE)
/* Room for JOINs, which come before the windows are known. */
#define JOINS	8
/* Times that one context empties the outbox before it leaves the rest to the timer. */
#define FLUSH_TURNS	16

/* Kept in skb->cb from building to sending; the layers below begin anew. */
struct thc_out_cb {
	struct thc_peer	*peer;
	u16		port;
};

static struct thc_out_cb *out_cb(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct thc_out_cb) > sizeof(skb->cb));
	return (struct thc_out_cb *)skb->cb;
}

u32 thc_wire_bytes(const struct thc_peer *p, u32 bytes)
{
	return bytes + (p->address.inet == AF_INET ? THC_WIRE_IP4 : THC_WIRE_IP6);
}

size_t thc_wmem_limit(u32 window)
{
	return (2 * (size_t)window + JOINS) * PACKET_WMEM;
}

bool thc_peer_may_send(const struct thc_peer *p)
{
	return sk_wmem_alloc_get(p->unicast->sk) < p->wmem_limit;
}

static struct sk_buff *new_packet(struct thc_peer *p, u16 port, u32 linear)
{
	struct sk_buff *skb = alloc_skb(HEADROOM + linear, GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	skb_reserve(skb, HEADROOM);
	skb_set_owner_w(skb, p->unicast->sk);
	skb->mark = READ_ONCE(p->owner->sk.sk_mark);
	skb->priority = READ_ONCE(p->owner->sk.sk_priority);
	out_cb(skb)->peer = p;
	out_cb(skb)->port = port;
	return skb;
}

/* Adds pages of vmalloc() memory as fragments; false: there is no room for them. Each page is
 * charged whole, since the packet may hold its last reference. SKBFL_SHARED_FRAG: nobody may write
 * to the pages, from which packets are sent again.
 */
static bool refer_to_pages(struct sk_buff *skb, const u8 *data, u32 bytes)
{
	u32 need = (offset_in_page(data) + bytes + PAGE_SIZE - 1) / PAGE_SIZE;
	int n = skb_shinfo(skb)->nr_frags;

	if (n + need > MAX_SKB_FRAGS)
		return false;
	while (bytes) {
		u32 offset = offset_in_page(data);
		u32 part = min_t(u32, bytes, PAGE_SIZE - offset);
		struct page *page = vmalloc_to_page(data);

		n = skb_shinfo(skb)->nr_frags;
		if (skb_can_coalesce(skb, n, page, offset)) {
			skb_frag_size_add(&skb_shinfo(skb)->frags[n - 1], part);
		} else {
			get_page(page);
			skb_fill_page_desc(skb, n, page, offset, part);
			skb_shinfo(skb)->flags |= SKBFL_SHARED_FRAG;
			skb->truesize += PAGE_SIZE;
			refcount_add(PAGE_SIZE, &skb->sk->sk_wmem_alloc);
		}
		skb->len += part;
		skb->data_len += part;
		data += part;
		bytes -= part;
	}
	return true;
}

void thc_train_end(struct thc_train *t)
{
	struct sk_buff *skb = t->skb;

	if (!skb)
		return;
	if (t->packets > 1) {
		skb_shinfo(skb)->gso_size = t->bytes;
		skb_shinfo(skb)->gso_segs = t->packets;
		skb_shinfo(skb)->gso_type = SKB_GSO_UDP_L4;
		/* the checksum is that of the UDP header, which the tunnel helpers put in front */
		skb->ip_summed = CHECKSUM_PARTIAL;
		skb->csum_start = skb_headroom(skb) - sizeof(struct udphdr);
		skb->csum_offset = offsetof(struct udphdr, check);
	}
	__skb_queue_tail(&out_cb(skb)->peer->owner->outbox, skb);
	t->skb = NULL;
}

static bool fits(const struct thc_train *t, const struct thc_peer *p, const u8 *data, u16 bytes,
		 u16 port)
{
	return t->skb && out_cb(t->skb)->peer == p && out_cb(t->skb)->port == port &&
	       t->next == data && t->bytes == bytes && t->packets < THC_TRAIN_PACKETS &&
	       t->skb->len + bytes <= THC_TRAIN_BYTES &&
	       !(p->joining.spec.flags & THC_WELCOME_F_NOGSO);
}

bool thc_train_add(struct thc_train *t, struct thc_peer *p, const u8 *data, u16 bytes, u16 port)
{
	lockdep_assert_held(&p->owner->lock);
	if (!fits(t, p, data, bytes, port) || !refer_to_pages(t->skb, data, bytes)) {
		thc_train_end(t);
		t->skb = new_packet(p, port, 0);
		if (!t->skb)
			return false;
		refer_to_pages(t->skb, data, bytes);
		t->bytes = bytes;
		t->packets = 0;
	}
	t->packets++;
	t->next = data + bytes;
	return true;
}

void thc_send_copied(struct thc_peer *p, struct thc_hdr *h, const void *payload, u32 bytes)
{
	struct sk_buff *skb = new_packet(p, be16_to_cpu(p->address.port), sizeof(*h) + bytes);

	lockdep_assert_held(&p->owner->lock);
	if (!skb)
		return;
	thc_sender_seal_membership(&p->sender, h, payload, bytes / 8);
	skb_put_data(skb, h, sizeof(*h));
	skb_put_data(skb, payload, bytes);
	__skb_queue_tail(&p->owner->outbox, skb);
}

/* --- to the network ------------------------------------------------------- */

int thc_route_find(const struct thc_peer *p, struct sock *usk, u32 mark, u16 port,
		   struct thc_route *r)
{
	struct net *net = sock_net(&p->owner->sk);
	__be16 from = usk ? p->local.port : 0;

	if (p->address.inet == AF_INET) {
		struct flowi4 fl = {
			.flowi4_oif = p->oif,
			.flowi4_proto = IPPROTO_UDP,
			.flowi4_mark = mark,
			.flowi4_uid = sock_net_uid(net, &p->owner->sk),
			.saddr = p->local.in,
			.daddr = p->address.in,
			.fl4_sport = from,
			.fl4_dport = htons(port),
		};
		struct rtable *rt = ip_route_output_flow(net, &fl, usk);

		if (IS_ERR(rt))
			return PTR_ERR(rt);
		/* only the route tells that an address is a network's broadcast address */
		if (rt->rt_flags & (RTCF_BROADCAST | RTCF_MULTICAST)) {
			ip_rt_put(rt);
			return -EINVAL;
		}
		r->dst = &rt->dst;
		r->in = fl.saddr;
	} else if (IS_ENABLED(CONFIG_IPV6)) {
		struct flowi6 fl = {
			.flowi6_oif = p->oif,
			.flowi6_proto = IPPROTO_UDP,
			.flowi6_mark = mark,
			.flowi6_uid = sock_net_uid(net, &p->owner->sk),
			.saddr = p->local.in6,
			.daddr = p->address.in6,
			.fl6_sport = from,
			.fl6_dport = htons(port),
		};
		struct dst_entry *dst = thc_route6(net, usk, &fl);

		if (IS_ERR(dst))
			return PTR_ERR(dst);
		r->dst = dst;
		r->in6 = fl.saddr;
		r->cookie = rt6_get_cookie(container_of(dst, struct rt6_info, dst));
	} else {
		return -EAFNOSUPPORT;
	}
	return 0;
}

void thc_routes_free(struct thc_peer *p)
{
	u32 i;

	for (i = 0; i < THC_PORT_SPAN; i++)
		dst_release(p->route[i].dst);
}

/* Each port has a route of its own, since routing rules and IPsec policies may match ports. Routes
 * need no lock: thc_sock.flushing lets one context at a time send.
 */
static int send_to_port(struct thc_peer *p, struct sk_buff *skb, u16 port)
{
	struct thc_route *r = &p->route[(u16)(port - p->sender.port)];
	struct sock *usk = p->unicast->sk;
	int error;

	if (r->dst && !dst_check(r->dst, r->cookie)) {
		dst_release(r->dst);
		r->dst = NULL;
	}
	error = r->dst ? 0 : thc_route_find(p, usk, skb->mark, port, r);
	if (error) {
		kfree_skb(skb);
		return error;
	}
	dst_hold(r->dst);	/* for the packet */
	if (p->address.inet == AF_INET)
		thc_tunnel_xmit4(container_of(r->dst, struct rtable, dst), usk, skb, r->in,
				 p->address.in, INET_ECN_ECT_0, THC_TTL, htons(IP_DF),
				 p->local.port, htons(port), false, false);
	else if (IS_ENABLED(CONFIG_IPV6))
		thc_tunnel_xmit6(r->dst, usk, skb, NULL, &r->in6, &p->address.in6, INET_ECN_ECT_0,
				 THC_TTL, 0, p->local.port, htons(port), false);
	return 0;
}

static void send_one(struct thc_sock *ts, struct sk_buff *skb)
{
	/* the network may take it apart, or free it */
	u16 packets = skb_shinfo(skb)->gso_segs ?: 1;
	struct thc_peer *p = out_cb(skb)->peer;
	u16 port = out_cb(skb)->port;
	int error;

	memset(skb->cb, 0, sizeof(skb->cb));
	error = send_to_port(p, skb, port);
	if (!error)
		return;
	spin_lock_bh(&ts->lock);
	ts->stats.send_errors += packets;
	thc_sender_unreachable(&p->sender, -error, ktime_get_ns());
	spin_unlock_bh(&ts->lock);
}

/* Contexts on several CPUs build packets at once. A packet that overtook others would look like
 * their loss, so one context at a time sends what all have built, in that order. It leaves the rest
 * to the timer after FLUSH_TURNS, since softirqs are off meanwhile.
 */
void thc_outbox_flush(struct thc_sock *ts)
{
	struct sk_buff_head now;
	struct sk_buff *skb;
	int turns = 0;

	lockdep_assert_not_held(&ts->lock);
	__skb_queue_head_init(&now);
	spin_lock_bh(&ts->lock);
	while (!ts->flushing && !skb_queue_empty(&ts->outbox)) {
		if (turns++ >= FLUSH_TURNS && thc_state_wake(ts, ktime_get_ns()))
			break;
		skb_queue_splice_init(&ts->outbox, &now);
		WRITE_ONCE(ts->flushing, true);
		spin_unlock(&ts->lock);		/* softirqs stay off */
		while ((skb = __skb_dequeue(&now)))
			send_one(ts, skb);
		spin_lock(&ts->lock);
		WRITE_ONCE(ts->flushing, false);
	}
	spin_unlock_bh(&ts->lock);
}
