/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Answers on their way out: a request's frame is turned into its answer. The
 * THC header has been written by then (include/thc/aggregator/answer.h, under the slot's
 * lock); here are addresses, lengths, lanes and copies.
 *
 * Where frames come from decides the shape of this file:
 *
 *	thc_xdp		rewrites the headers, leaves a struct thc_note where the
 *			payload was, and redirects to `fan`. It cannot append the
 *			lanes: from kernel 6.12 on, a frame received on veth has
 *			no tailroom.
 *	devmap		clones the frame for every entry of the chosen map but the
 *			last, which gets the frame itself. Clones are page-sized.
 *	thc_egress	runs on each frame, clones first: grows a clone to the
 *			answer's size, copies the lanes in, addresses it. The
 *			original, which could not grow, is dropped.
 *
 * All frames of a device's bulk queue run the egress program of the first one
 * queued, so header-only answers (WAIT, STALE) go through `fan` as well,
 * alone and unchanged.
 *
 * An answer that cannot be sent is counted as THC_EVENT_LOST and not repeated
 * here: whoever misses it asks again. Its request has a fate of its own.
 */
#ifndef THC_REPLY_BPF_H
#define THC_REPLY_BPF_H

#include "parse.bpf.h"
#include "slots.bpf.h"
#include "stats.bpf.h"

/* How an answer travels; header-only ones always to one. */
enum thc_mode {
	THC_MODE_ONE,
	THC_MODE_GROUP,
	THC_MODE_FANOUT,
};

/**
 * struct thc_note - message from thc_xdp to thc_egress, at the payload's start
 * @tag: the same in all clones of an answer, different in the next answer's
 * @index: slot in the aggregator's arrays
 * @generation: of the answer
 * @job: job number
 * @mode: enum thc_mode
 * @reserved: zero
 */
struct thc_note {
	u32 tag;
	u32 index;
	u32 generation;
	u16 job;
	u8 mode;
	u8 reserved;
};

/**
 * struct thc_frame - the headers of a frame that thc_parse() has accepted before
 * @eth: start of the frame
 * @vlan: behind @eth; a tag if @tagged
 * @ip4: the IP header if @v4, at the address of @ip6
 * @ip6: the IP header if not @v4
 * @udp: UDP header
 * @hdr: THC header
 * @end: end of the frame
 *
 * Flags beside pointers that are always valid, rather than NULL pointers: the
 * compiler copies pointers, and the verifier does not connect a copy's NULL
 * check with the original.
 */
struct thc_frame {
	struct ethhdr *eth;
	struct thc_vlan *vlan;
	struct iphdr *ip4;
	struct ipv6hdr *ip6;
	struct udphdr *udp;
	struct thc_hdr *hdr;
	void *end;
	bool tagged;
	bool v4;
};

static __always_inline int thc_frame_get(struct xdp_md *ctx, struct thc_frame *f)
{
	struct thc_cursor c = {
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	__be16 proto;

	f->end = c.end;
	f->eth = thc_pull(&c, sizeof(*f->eth));
	if (!f->eth)
		return -1;
	proto = f->eth->h_proto;
	f->vlan = c.pos;
	f->tagged = thc_is_vlan(proto);
	if (f->tagged) {
		if (!thc_pull(&c, sizeof(*f->vlan)))
			return -1;
		proto = f->vlan->proto;
	}
	f->v4 = proto == thc_be16(ETH_P_IP);
	f->ip4 = c.pos;
	f->ip6 = c.pos;
	if (!thc_pull(&c, f->v4 ? sizeof(*f->ip4) : sizeof(*f->ip6)))
		return -1;
	f->udp = thc_pull(&c, sizeof(*f->udp));
	if (!f->udp)
		return -1;
	f->hdr = thc_pull(&c, sizeof(*f->hdr));
	return f->hdr ? 0 : -1;
}

static __always_inline void thc_mac_copy(u8 *to, const u8 *from)
{
	__builtin_memcpy(to, from, ETH_ALEN);
}

/* RFC 1112, section 6.4, and RFC 2464, section 7. */
static __always_inline void thc_mac_group(u8 *mac, const struct thc_addr *group, bool v4)
{
	const u8 *low = (const u8 *)&group->word[3];

	mac[0] = v4 ? 0x01 : 0x33;
	mac[1] = v4 ? 0x00 : 0x33;
	mac[2] = v4 ? 0x5e : low[0];
	mac[3] = v4 ? low[1] & 0x7f : low[1];
	mac[4] = low[2];
	mac[5] = low[3];
}

static __always_inline void thc_ip4_seal(struct iphdr *ip)
{
	const u16 *w = (const u16 *)ip;
	u32 sum = 0;
	int i;

	ip->check = 0;
#pragma unroll
	for (i = 0; i < (int)sizeof(*ip) / 2; i++)
		sum += w[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
}

/* Clears a CE mark, since an answer has met no congestion yet, but keeps ECN on. */
static __always_inline u8 thc_ecn_fresh(u8 tos)
{
	return (tos & THC_ECN_MASK) == THC_ECN_CE ? (tos & ~THC_ECN_MASK) | THC_ECN_ECT0 : tos;
}

/* Sender becomes receiver, for @bytes of UDP payload. */
static __always_inline void thc_frame_turn(struct thc_frame *f, u32 bytes)
{
	u16 port = f->udp->source;
	u8 mac[ETH_ALEN];

	thc_mac_copy(mac, f->eth->h_source);
	thc_mac_copy(f->eth->h_source, f->eth->h_dest);
	thc_mac_copy(f->eth->h_dest, mac);
	f->udp->source = f->udp->dest;
	f->udp->dest = port;
	f->udp->len = thc_be16(sizeof(*f->udp) + bytes);
	f->udp->check = 0;
	if (f->v4) {
		u32 addr = f->ip4->saddr;

		f->ip4->tos = thc_ecn_fresh(f->ip4->tos);
		f->ip4->tot_len = thc_be16(sizeof(*f->ip4) + sizeof(*f->udp) + bytes);
		f->ip4->id = 0;
		f->ip4->frag_off = thc_be16(THC_IP4_DF);
		f->ip4->ttl = THC_TTL;
		f->ip4->saddr = f->ip4->daddr;
		f->ip4->daddr = addr;
	} else {
		struct in6_addr addr = f->ip6->saddr;

		/* traffic class: high half in `priority`, low half in front of the label */
		f->ip6->flow_lbl[0] = thc_ecn_fresh(f->ip6->flow_lbl[0] >> 4 & 0xf) << 4;
		f->ip6->flow_lbl[1] = 0;
		f->ip6->flow_lbl[2] = 0;
		f->ip6->payload_len = thc_be16(sizeof(*f->udp) + bytes);
		f->ip6->hop_limit = THC_TTL;
		f->ip6->saddr = f->ip6->daddr;
		f->ip6->daddr = addr;
	}
}

/* Sets the frame's destination, in its own family; @port in network order. */
static __always_inline void thc_frame_to(struct thc_frame *f, const struct thc_addr *addr, u16 port)
{
	f->udp->dest = port;
	if (f->v4)
		f->ip4->daddr = addr->word[3];
	else
		__builtin_memcpy(&f->ip6->daddr, addr, sizeof(*addr));
}

static __always_inline u32 thc_turn_next(void)
{
	u32 key = 0;
	struct thc_turn *t = bpf_map_lookup_elem(&turn, &key);

	return t ? ++t->next : 0;
}

/* Number of this clone among those of answer @tag, from 0 on this CPU. All clones of an answer pass
 * before the next answer's, so a new tag starts a new count. An answer of which some clones could
 * not be made does not disturb the next one.
 */
static __always_inline u32 thc_turn_clone(u32 tag)
{
	u32 key = 0;
	struct thc_turn *t = bpf_map_lookup_elem(&turn, &key);

	if (!t)
		return THC_RANKS_MAX;
	if (t->tag != tag) {
		t->tag = tag;
		t->count = 0;
	}
	return t->count++;
}

/* An answer that ends here: no room in the frame or the relay, no job, no map
 * entry, or the redirect failed.
 */
static __always_inline int thc_reply_lost(void)
{
	struct thc_stats *st = thc_stats_get();

	if (st)
		thc_count(st, THC_EVENT_LOST);
	return XDP_DROP;
}

/* Passes an answer to the daemon, which sends it in generic XDP. All jobs share one ring, and
 * anybody can cause header-only answers: half of the ring is reserved for sums.
 */
static __always_inline int thc_reply_relay(const struct thc_frame *f, u32 mode, u32 rank)
{
	const struct thc_hdr *h = f->hdr;
	struct thc_stats *st = thc_stats_get();
	struct thc_relay *r;

	if (!(h->flags & THC_F_ANSWER) &&
	    bpf_ringbuf_query(&relay, BPF_RB_AVAIL_DATA) > THC_RELAY_BYTES / 2)
		return thc_reply_lost();
	r = bpf_ringbuf_reserve(&relay, sizeof(*r), 0);
	if (!r)
		return thc_reply_lost();
	r->type = !(h->flags & THC_F_ANSWER) ? THC_RELAY_HEADER :
		  mode == THC_MODE_ONE	     ? THC_RELAY_ONE :
					       THC_RELAY_ALL;
	r->job = thc_be16(h->job);
	r->rank = rank;
	r->slot = thc_be16(h->slot);
	r->generation = thc_be32(h->generation);
	r->hdr = *h;
	if (f->v4)
		r->path.src = thc_addr_v4(f->ip4->saddr);
	else
		__builtin_memcpy(&r->path.src, &f->ip6->saddr, sizeof(r->path.src));
	r->path.ttl = f->v4 ? f->ip4->ttl : f->ip6->hop_limit;
	r->path.src_port = thc_be16(f->udp->source);
	r->path.dst_port = thc_be16(f->udp->dest);
	bpf_ringbuf_submit(r, 0);
	if (st)
		thc_count(st, THC_EVENT_RELAYED);
	return XDP_DROP;
}

/**
 * thc_reply() - sends the answer whose header stands in the frame
 * @ctx: the request's frame, its THC header replaced by the answer's
 * @job_id: job
 * @index: slot in the aggregator's arrays; any for header-only answers
 * @mode: enum thc_mode
 * @rank: the request's
 *
 * Returns the action for the frame.
 */
__noinline int thc_reply(struct xdp_md *ctx, u32 job_id, u32 index, u32 mode, u32 rank)
{
	struct thc_job *job = bpf_map_lookup_elem(&jobs, &job_id);
	struct thc_frame f;
	u32 entry = 0;
	void *out;
	int lanes;
	long rc;

	if (!job || thc_frame_get(ctx, &f))
		return thc_reply_lost();
	if (thc_config.relay)
		return thc_reply_relay(&f, mode, rank);

	lanes = f.hdr->flags & THC_F_ANSWER ? THC_LANE_BYTES : 0;
	/* a group of the other family does not fit this frame's headers */
	if (mode == THC_MODE_GROUP && thc_addr_is_v4(&job->group) != f.v4)
		mode = THC_MODE_FANOUT;

	thc_frame_turn(&f, sizeof(*f.hdr) + lanes);
	if (mode == THC_MODE_GROUP) {
		thc_mac_group(f.eth->h_dest, &job->group, f.v4);
		thc_frame_to(&f, &job->group, job->group_port);
		if (f.v4)
			f.ip4->ttl = THC_TTL_GROUP;
		else
			f.ip6->hop_limit = THC_TTL_GROUP;
	}
	if (f.v4)
		thc_ip4_seal(f.ip4);

	if (lanes) {
		struct thc_note *note = (void *)(f.hdr + 1);

		if ((void *)(note + 1) > f.end)
			return thc_reply_lost();
		note->tag = thc_turn_next();
		note->index = index;
		note->generation = thc_be32(f.hdr->generation);
		note->job = job_id;
		note->mode = mode;
		note->reserved = 0;
		entry = mode == THC_MODE_FANOUT ? job->ranks : 1;
	} else if (bpf_xdp_adjust_tail(ctx, (int)((void *)(f.hdr + 1) - f.end))) {
		return thc_reply_lost();
	}

	out = bpf_map_lookup_elem(&fan, &entry);
	if (!out)
		return thc_reply_lost();
	rc = bpf_redirect_map(out, 0, entry ? BPF_F_BROADCAST | XDP_DROP : XDP_DROP);
	return rc == XDP_REDIRECT ? XDP_REDIRECT : thc_reply_lost();
}

/* Addresses a grown clone to one member; -1: the member's headers have another form. */
static __always_inline int thc_frame_member(struct thc_frame *f, const struct thc_member *m)
{
	if (!m->port || thc_addr_is_v4(&m->addr) != f->v4 || m->tagged != f->tagged)
		return -1;
	if (!(m->mac[0] | m->mac[1] | m->mac[2] | m->mac[3] | m->mac[4] | m->mac[5]))
		return -1;
	thc_mac_copy(f->eth->h_dest, m->mac);
	if (f->tagged)
		f->vlan->tci = m->vlan;
	thc_frame_to(f, &m->addr, m->port);
	if (f->v4)
		thc_ip4_seal(f->ip4);
	return 0;
}

static __always_inline u64 thc_checksum_words(u64 acc, const void *data, int words)
{
	const u32 *w = data;
	int i;

#pragma unroll
	for (i = 0; i < words; i++)
		acc += w[i];
	return acc;
}

/* UDP checksum of a complete answer; @lanes: thc_generation.checksum. */
static __always_inline u16 thc_frame_checksum(const struct thc_frame *f, u16 lanes)
{
	u64 acc = lanes;

	/* pseudo header: addresses, protocol, length */
	if (f->v4)
		acc = thc_checksum_words(acc, &f->ip4->saddr, 2);
	else
		acc = thc_checksum_words(acc, &f->ip6->saddr, 8);
	acc += thc_be16(IPPROTO_UDP);
	acc += f->udp->len;
	acc += f->udp->source;
	acc += f->udp->dest;
	acc += f->udp->len;
	acc = thc_checksum_words(acc, f->hdr, sizeof(*f->hdr) / 4);
	return thc_checksum_udp(acc);
}

/* Is the answer still in the slot? Contributions may have opened two more generations. */
static __always_inline bool thc_note_holds(const struct thc_slot *s, const struct thc_generation *g,
					   const struct thc_note *note, u32 epoch)
{
	return *(volatile u32 *)&s->epoch == epoch &&
	       *(volatile u32 *)&g->number == note->generation && thc_generation_done(g);
}

/* Completes clone @k of an answer; -1: it cannot be sent. */
static __always_inline int thc_egress_clone(struct xdp_md *ctx, const struct thc_note *note, u32 k)
{
	u32 index = note->index, job_id = note->job;
	struct thc_lanes *l = thc_lanes_get(index);
	struct thc_slot *s = thc_slot_get(index);
	struct thc_job *job = bpf_map_lookup_elem(&jobs, &job_id);
	struct thc_generation *g;
	struct thc_frame f;
	thc_word *out;
	u32 epoch;
	u64 *in;
	int i;

	if (!l || !s || !job || thc_frame_get(ctx, &f))
		return -1;
	out = (void *)(f.hdr + 1);
	if ((void *)out + THC_LANE_BYTES > f.end)
		return -1;
	g = &s->generation[note->generation & 1];
	in = l->word[note->generation & 1];
	epoch = thc_be32(f.hdr->epoch);

	if (!thc_note_holds(s, g, note, epoch))
		return -1;
	for (i = 0; i < THC_LANE_WORDS; i++)
		out[i] = thc_le64(in[i]);
	if (note->mode == THC_MODE_FANOUT &&
	    thc_frame_member(&f, &job->member[k & (THC_RANKS_MAX - 1)]))
		return -1;
	f.udp->check = thc_frame_checksum(&f, g->checksum);
	return thc_note_holds(s, g, note, epoch) ? 0 : -1;
}

/* Completes frames that leave through `fan`: see the top of this file. */
SEC("xdp/devmap")
int thc_egress(struct xdp_md *ctx)
{
	struct thc_stats *st = thc_stats_get();
	u32 k, copies = 1, job_id;
	struct thc_note note;
	struct thc_frame f;

	if (!st || thc_frame_get(ctx, &f))
		return thc_reply_lost();
	if (!(f.hdr->flags & THC_F_ANSWER)) {
		thc_count(st, THC_EVENT_SENT);
		return XDP_PASS;
	}
	if ((void *)(f.hdr + 1) + sizeof(note) > f.end)
		return thc_reply_lost();
	__builtin_memcpy(&note, f.hdr + 1, sizeof(note));

	job_id = note.job;
	if (note.mode == THC_MODE_FANOUT) {
		struct thc_job *job = bpf_map_lookup_elem(&jobs, &job_id);

		copies = job ? job->ranks : 0;
	}
	k = thc_turn_clone(note.tag);
	if (k >= copies)
		return XDP_DROP;

	if (bpf_xdp_adjust_tail(ctx, (int)((void *)(f.hdr + 1) - f.end) + THC_LANE_BYTES) ||
	    thc_egress_clone(ctx, &note, k))
		return thc_reply_lost();
	thc_count(st, THC_EVENT_SENT);
	return XDP_PASS;
}

#endif /* THC_REPLY_BPF_H */
