// SPDX-License-Identifier: GPL-2.0
/*
 * Packets in, in the network's softirq. They are received from the UDP socket's
 * queue as soon as they are there. A tunnel's hook (encap_rcv) would get them a
 * step earlier, but for it the kernel segments what GRO has coalesced. Here 60
 * coalesced answers cost one look at the clock, and send one super-packet. The
 * lanes of an answer are copied once, straight to their place in the message,
 * and count only if the packet's tag is right.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>
#include <net/udp.h>

#include <thc/worker/receive.h>

#include "engine.h"
#include "join.h"
#include "netns.h"
#include "receive.h"
#include "sock.h"
#include "state.h"
#include "trace.h"

/* Packets that a call takes from a queue before it handles them. UDP calls sk_data_ready once for
 * every packet, so another call takes the rest.
 */
#define RECEIVE_PACKETS	64

/* What UDP and IP headers say of a packet, or of all packets that GRO has coalesced. */
static struct thc_origin origin_of(const struct sk_buff *skb)
{
	struct thc_origin o = { .port = be16_to_cpu(udp_hdr(skb)->source) };

	if (skb->protocol == htons(ETH_P_IP)) {
		o.ce = INET_ECN_is_ce(ip_hdr(skb)->tos);
		o.group = ipv4_is_multicast(ip_hdr(skb)->daddr);
	} else {
		o.ce = INET_ECN_is_ce(ipv6_get_dsfield(ipv6_hdr(skb)));
		o.group = ipv6_addr_is_multicast(&ipv6_hdr(skb)->daddr);
	}
	return o;
}

/* Does it come from the aggregator, from one of its ports? */
static bool is_from_peer(const struct thc_peer *p, const struct sk_buff *skb)
{
	const void *from = skb->protocol == htons(ETH_P_IP) ? (const void *)&ip_hdr(skb)->saddr :
							      &ipv6_hdr(skb)->saddr;

	return thc_peer_is_at(p, skb->protocol, from, udp_hdr(skb)->source);
}

/* Several packets, of @gso_size bytes but for the last one. */
static bool is_coalesced(const struct sk_buff *skb)
{
	return skb_is_gso(skb) && skb_shinfo(skb)->gso_type & SKB_GSO_UDP_L4;
}

/**
 * struct reader - goes once through a packet, or through all that were coalesced
 * @seq: where it is; to begin at the front for each packet would take longer than
 *	to read it
 * @at: bytes read
 */
struct reader {
	struct skb_seq_state	seq;
	u32			at;
};

/* Copies the next @bytes; false: there are not that many. */
static bool read_on(struct reader *r, void *to, u32 bytes)
{
	const u8 *from;
	u32 part;

	for (; bytes; bytes -= part) {
		part = min_t(u32, bytes, skb_seq_read(r->at, &from, &r->seq));
		if (!part)
			return false;
		memcpy(to, from, part);
		to += part;
		r->at += part;
	}
	return true;
}

/* Counts a packet that changed nothing. */
static void drop(struct thc_sock *ts, enum thc_drop_reason reason)
{
	ts->stats.bad_tag += reason == THC_DROP_TAG;
	ts->stats.unexpected += reason == THC_DROP_UNEXPECTED;
	ts->stats.foreign += thc_drop_is_foreign(reason);
	thc_net_drop(ts, reason);
}

/* --- what this host lends to <thc/worker/receive.h> ------------------------ */

struct thc_host {
	struct thc_peer	*p;
	struct reader	*r;
};

THC_INLINE const void *thc_host_payload(struct thc_host *host, enum thc_got got,
					const struct thc_flight *f, const struct thc_hdr *h,
					u32 bytes)
{
	const struct thc_message *m = got == THC_GOT_ANSWER ? f->owner : NULL;
	u8 *lanes = host->p->owner->scrap;

	if (m && !m->closed)
		lanes = m->lanes + (size_t)f->index * THC_LANE_BYTES;
	return read_on(host->r, lanes, bytes) ? lanes : NULL;
}

THC_INLINE struct thc_digest thc_host_digest(struct thc_host *host, const struct thc_sender *s,
					     const void *payload, int words)
{
	return thc_seal_digest(s->seal, &s->down, payload, words);
}

THC_INLINE void thc_host_took(struct thc_host *host, enum thc_got got, const struct thc_hdr *h)
{
	struct thc_sock *ts = host->p->owner;

	ts->stats.waits += got == THC_GOT_WAIT;
	ts->stats.repeats += got == THC_GOT_ANSWER && h->flags & THC_F_REPEAT;
	trace_thc_answer(&ts->sk, h, got);
}

THC_INLINE void thc_host_landed(struct thc_host *host, const struct thc_stream *st,
				struct thc_ready was, const struct thc_landing *l)
{
	thc_engine_landed(host->p, was.owner, was.index, l);
}

THC_INLINE void thc_host_failed(struct thc_host *host, const struct thc_failure *f)
{
	thc_state_break_at(host->p, *f);
}

/* --- packets -------------------------------------------------------------- */

static enum thc_drop_reason on_joining(struct thc_peer *p, struct reader *r, u32 bytes,
				       const struct thc_hdr *h, struct thc_origin from)
{
	u32 payload = bytes - sizeof(*h);
	void *in = p->owner->scrap;

	BUILD_BUG_ON(THC_WELCOME_BYTES > sizeof(p->owner->scrap));
	if (!thc_joining_fits(h->op, payload) || !read_on(r, in, payload))
		return THC_DROP_LENGTH;
	return h->op == THC_OP_CHALLENGE ? thc_join_challenge(p, h, in, from.port) :
					   thc_join_welcome(p, h, in, payload, from);
}

static void on_packet(struct thc_peer *p, struct reader *r, u32 bytes, struct thc_origin from,
		      u64 now)
{
	enum thc_drop_reason why = THC_DROP_UNEXPECTED;
	struct thc_host host = { p, r };
	struct thc_sock *ts = p->owner;
	struct thc_hdr h;

	ts->stats.packets_down++;
	ts->stats.bytes_down += thc_wire_bytes(p, bytes);
	/* of a peer that is being opened nothing is expected yet */
	if (p->shard >= ts->shards)
		why = THC_DROP_UNEXPECTED;
	else if (bytes < sizeof(h) || !read_on(r, &h, sizeof(h)))
		why = THC_DROP_TRUNCATED;
	else if (h.version == THC_VERSION && thc_op_is_joining(h.op))
		why = on_joining(p, r, bytes, &h, from);
	else if (ts->state == THC_STATE_READY)
		why = thc_worker_receive(&host, &p->sender, &h, bytes, from, now);
	if (why)
		drop(ts, why);
}

/* Each packet of one that GRO coalesced; UDP has pulled its header. */
static void each_packet(struct thc_peer *p, struct sk_buff *skb, u64 now)
{
	u32 each = is_coalesced(skb) ? skb_shinfo(skb)->gso_size : skb->len;
	struct thc_origin from = origin_of(skb);
	struct reader r = { .at = 0 };
	u32 next = 0, n;

	skb_prepare_seq_read(skb, 0, skb->len, &r.seq);
	do {
		n = min(each, skb->len - next);
		r.at = next;
		on_packet(p, &r, n, from, now);
		next += n;
	} while (next < skb->len);
	skb_abort_seq_read(&r.seq);
}

/* Checks and counts a packet as udp_recvmsg() would, and reads it. */
static void receive_one(struct thc_peer *p, struct sock *sk, struct sk_buff *skb)
{
	if (udp_lib_checksum_complete(skb)) {
		__UDPX_INC_STATS(sk, UDP_MIB_CSUMERRORS);
		__UDPX_INC_STATS(sk, UDP_MIB_INERRORS);
		drop(p->owner, THC_DROP_TAG);
		kfree_skb(skb);
		return;
	}
	__UDPX_INC_STATS(sk, UDP_MIB_INDATAGRAMS);
	each_packet(p, skb, ktime_get_ns());
	consume_skb(skb);
}

/* Drops packets that are not the aggregator's. Anybody can flood the queues of all CPUs, so they
 * are counted without thc_sock.lock: a flood must not delay answers.
 */
static void turn_away(struct thc_peer *p, struct sock *sk, struct sk_buff *skb)
{
	u32 packets = is_coalesced(skb) ? DIV_ROUND_UP(skb->len, skb_shinfo(skb)->gso_size) : 1;

	__UDPX_INC_STATS(sk, UDP_MIB_INDATAGRAMS);
	atomic64_add(packets, &p->owner->strangers);
	while (packets--)
		thc_net_drop(p->owner, THC_DROP_ADDRESS);
	kfree_skb(skb);
}

/* Moves packets of the aggregator from the queue of @sk to @ours. */
static void receive_queue(struct thc_peer *p, struct sock *sk, struct sk_buff_head *ours)
{
	struct sk_buff *skb;
	int received = 0, error;

	do {
		skb = skb_recv_udp(sk, MSG_DONTWAIT, &error);
		if (!skb)
			continue;	/* the network's last complaint, or the end */
		received++;
		if (is_from_peer(p, skb))
			__skb_queue_tail(ours, skb);
		else
			turn_away(p, sk, skb);
	} while (skb ? received < RECEIVE_PACKETS : error != -EAGAIN);
}

/* sk_data_ready of both sockets of a peer. What other CPUs add meanwhile is received, too. */
void thc_receive(struct sock *sk)
{
	struct sk_buff_head ours;
	struct thc_peer *p;
	struct thc_sock *ts;
	struct sk_buff *skb;

	__skb_queue_head_init(&ours);
	local_bh_disable();
	rcu_read_lock();
	p = rcu_dereference_sk_user_data(sk);
	if (!p)
		goto out;
	ts = p->owner;
	receive_queue(p, sk, &ours);
	if (skb_queue_empty(&ours))
		goto out;
	spin_lock(&ts->lock);
	while ((skb = __skb_dequeue(&ours)))
		receive_one(p, sk, skb);
	thc_engine_run(ts);
	spin_unlock(&ts->lock);
	thc_outbox_flush(ts);
out:
	rcu_read_unlock();
	local_bh_enable();
}
