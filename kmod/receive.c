// SPDX-License-Identifier: GPL-2.0
/*
 * Packets in, in the network's softirq. They are taken from the UDP socket's
 * queue as soon as they are there: a tunnel's hook (encap_rcv) would come a step
 * earlier, but for it the kernel takes apart what it has joined (GRO). Here 60
 * answers in one make one look at the clock, and one super-packet out. The lanes
 * of an answer are copied once, straight to their place in the message, and
 * count only if the packet's sum is right.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>
#include <net/udp.h>

#include "engine.h"
#include "join.h"
#include "sock.h"
#include "stats.h"
#include "trace.h"

/* Packets that a call takes from a queue before it looks at them. Whoever adds one calls us, so
 * that what is left is another call's.
 */
#define TAKE_PACKETS	64

/* What the layers below say about a packet, or about all that were joined. */
struct origin {
	bool	ce;	/* met congestion (RFC 3168) */
	u16	port;	/* of the aggregator */
};

static struct origin origin_of(const struct sk_buff *skb)
{
	struct origin o = { .port = be16_to_cpu(udp_hdr(skb)->source) };

	if (skb->protocol == htons(ETH_P_IP))
		o.ce = INET_ECN_is_ce(ip_hdr(skb)->tos);
	else
		o.ce = INET_ECN_is_ce(ipv6_get_dsfield(ipv6_hdr(skb)));
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
static bool is_joined(const struct sk_buff *skb)
{
	return skb_is_gso(skb) && skb_shinfo(skb)->gso_type & SKB_GSO_UDP_L4;
}

/**
 * struct reader - goes once through a packet, or through all that were joined
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

/* A packet that changes nothing. */
static void drop(struct thc_sock *ts, enum thc_drop_reason reason)
{
	ts->stats.bad_sum += reason == THC_DROP_SUM;
	ts->stats.unexpected += reason == THC_DROP_UNEXPECTED;
	ts->stats.foreign += reason != THC_DROP_SUM && reason != THC_DROP_UNEXPECTED;
	thc_net_drop(ts, reason);
}

/* Why thc_sender_find() would not have it. */
static enum thc_drop_reason reason_of(const struct thc_sender *s, const struct thc_hdr *h,
				      u32 bytes, u16 port)
{
	bool answer = h->flags & THC_F_ANSWER;

	if (h->version != THC_VERSION)
		return THC_DROP_VERSION;
	if (h->job != cpu_to_be16(s->job))
		return THC_DROP_JOB;
	if (!thc_seal_cookie_ok(h, s->cookie))
		return THC_DROP_COOKIE;
	if (h->reserved)
		return THC_DROP_RESERVED;
	if (!thc_sender_sent_from(s, h, port))
		return THC_DROP_ADDRESS;
	if (!thc_op_is_data(h->op) && h->op != THC_OP_WAIT && h->op != THC_OP_STALE)
		return THC_DROP_OP;
	if (bytes != sizeof(*h) + (answer ? THC_LANE_BYTES : 0))
		return THC_DROP_LENGTH;
	if (be16_to_cpu(h->slot) >= s->data.slots + s->norms.slots)
		return THC_DROP_SLOT;
	return THC_DROP_UNEXPECTED;
}

static void on_welcome(struct thc_peer *p, struct reader *r, u32 bytes, const struct thc_hdr *h,
		       u16 port)
{
	struct thc_sock *ts = p->owner;
	enum thc_drop_reason reason;
	struct thc_welcome w;

	if (port != p->sender.port)
		reason = THC_DROP_ADDRESS;
	else if (bytes != sizeof(*h) + sizeof(w) || !read_on(r, &w, sizeof(w)))
		reason = THC_DROP_LENGTH;
	else if (!thc_seal_ok(h, &w, sizeof(w) / 8))
		reason = THC_DROP_SUM;
	else
		reason = thc_join_welcome(p, h, &w);
	if (reason != THC_DROP_NONE)
		drop(ts, reason);
}

static void on_epoch(struct thc_peer *p, const struct thc_hdr *h)
{
	struct thc_sock *ts = p->owner;

	ts->failure.rank = h->rank;
	ts->failure.epoch = be32_to_cpu(h->epoch);
	thc_engine_break(ts, ESTALE, THC_FAILED_EPOCH);
}

/* Is the packet as it was sent? Copies an answer's lanes to their place. */
static bool is_sound(struct thc_peer *p, struct reader *r, u32 bytes, const struct thc_hdr *h,
		     u8 *lanes)
{
	u32 payload = bytes - sizeof(*h);

	if (!lanes)
		lanes = p->owner->scrap;
	if (payload > THC_LANE_BYTES || !read_on(r, lanes, payload))
		return false;
	return thc_sender_sum_ok(&p->sender, h, lanes, payload / 8);
}

/* What an answer that is asked for, and sound, changes. */
static void take(struct thc_peer *p, enum thc_got got, struct thc_stream *st, struct thc_flight *f,
		 const struct thc_hdr *h, bool ce, u64 now)
{
	struct thc_message *m = f->owner;
	struct thc_sock *ts = p->owner;
	u32 index = f->index;

	ts->stats.waits += got == THC_GOT_WAIT;
	ts->stats.repeats += got == THC_GOT_ANSWER && h->flags & THC_F_REPEAT;
	thc_sender_take(&p->sender, got, st, f, h, ce, now);
	trace_thc_answer(&ts->sk, h, got);
	if (got != THC_GOT_WAIT)
		thc_engine_landed(ts, m, index, h, got == THC_GOT_ANSWER);
}

static void on_answer(struct thc_peer *p, struct reader *r, u32 bytes, const struct thc_hdr *h,
		      struct origin from, u64 now)
{
	struct thc_sock *ts = p->owner;
	struct thc_message *m;
	struct thc_stream *st;
	struct thc_flight *f;
	enum thc_got got = thc_sender_find(&p->sender, h, bytes, from.port, &st, &f);
	u8 *lanes = NULL;

	if (got == THC_GOT_FOREIGN) {
		drop(ts, reason_of(&p->sender, h, bytes, from.port));
		return;
	}
	if (bytes > sizeof(*h) + THC_LANE_BYTES) {
		drop(ts, THC_DROP_LENGTH);
		return;
	}
	m = f ? f->owner : NULL;
	if (got == THC_GOT_ANSWER && !m->closed)
		lanes = m->lanes + (size_t)f->index * THC_LANE_BYTES;
	if (!is_sound(p, r, bytes, h, lanes)) {
		drop(ts, THC_DROP_SUM);
		return;
	}
	p->sender.unreachable_at = 0;
	switch (got) {
	case THC_GOT_EPOCH:
		on_epoch(p, h);
		break;
	case THC_GOT_BEHIND:
		thc_engine_break(ts, ESTALE, THC_FAILED_BEHIND);
		break;
	case THC_GOT_UNEXPECTED:
		/* a duplicate may still say that the window was cut for nothing */
		if (!m)
			thc_sender_take(&p->sender, got, st, f, h, from.ce, now);
		drop(ts, m ? THC_DROP_MISMATCH : reason_of(&p->sender, h, bytes, from.port));
		break;
	default:
		take(p, got, st, f, h, from.ce, now);
	}
}

static void on_packet(struct thc_peer *p, struct reader *r, u32 bytes, struct origin from, u64 now)
{
	struct thc_sock *ts = p->owner;
	struct thc_hdr h;

	ts->stats.packets_down++;
	ts->stats.bytes_down += thc_wire_bytes(p, bytes);
	if (bytes < sizeof(h) || !read_on(r, &h, sizeof(h)))
		drop(ts, THC_DROP_TRUNCATED);
	else if (h.version == THC_VERSION && h.op == THC_OP_WELCOME)
		on_welcome(p, r, bytes, &h, from.port);
	else if (ts->state == THC_STATE_READY)
		on_answer(p, r, bytes, &h, from, now);
	else
		drop(ts, THC_DROP_UNEXPECTED);
}

/* Each packet of one that was joined from several; UDP has pulled its header. */
static void each_packet(struct thc_peer *p, struct sk_buff *skb, u64 now)
{
	u32 each = is_joined(skb) ? skb_shinfo(skb)->gso_size : skb->len;
	struct origin from = origin_of(skb);
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

/* What udp_recvmsg() does beside copying. */
static void take_in(struct thc_peer *p, struct sock *sk, struct sk_buff *skb)
{
	if (udp_lib_checksum_complete(skb)) {
		__UDPX_INC_STATS(sk, UDP_MIB_CSUMERRORS);
		__UDPX_INC_STATS(sk, UDP_MIB_INERRORS);
		drop(p->owner, THC_DROP_SUM);
		kfree_skb(skb);
		return;
	}
	__UDPX_INC_STATS(sk, UDP_MIB_INDATAGRAMS);
	each_packet(p, skb, ktime_get_ns());
	consume_skb(skb);
}

/* From anybody else. Anybody may send as many as the network carries, to queues of all CPUs: they
 * are counted without the lock, which is for those who work.
 */
static void turn_away(struct thc_peer *p, struct sock *sk, struct sk_buff *skb)
{
	u32 packets = is_joined(skb) ? DIV_ROUND_UP(skb->len, skb_shinfo(skb)->gso_size) : 1;

	__UDPX_INC_STATS(sk, UDP_MIB_INDATAGRAMS);
	atomic64_add(packets, &p->owner->strangers);
	while (packets--)
		thc_net_drop(p->owner, THC_DROP_ADDRESS);
	kfree_skb(skb);
}

/* Moves packets of the aggregator from the queue of @sk to @ours. */
static void take_ours(struct thc_peer *p, struct sock *sk, struct sk_buff_head *ours)
{
	struct sk_buff *skb;
	int taken = 0, error;

	do {
		skb = skb_recv_udp(sk, MSG_DONTWAIT, &error);
		if (!skb)
			continue;	/* the network's last complaint, or the end */
		taken++;
		if (is_from_peer(p, skb))
			__skb_queue_tail(ours, skb);
		else
			turn_away(p, sk, skb);
	} while (skb ? taken < TAKE_PACKETS : error != -EAGAIN);
}

/* sk_data_ready of both sockets of a peer. What other CPUs have added meanwhile is taken along. */
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
	take_ours(p, sk, &ours);
	if (skb_queue_empty(&ours))
		goto out;
	spin_lock(&ts->lock);
	while ((skb = __skb_dequeue(&ours)))
		take_in(p, sk, skb);
	thc_engine_run(ts);
	spin_unlock(&ts->lock);
	thc_outbox_flush(ts);
out:
	rcu_read_unlock();
	local_bh_enable();
}
