/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * From a frame to a THC header: Ethernet, at most one VLAN tag, IPv4 without options or IPv6
 * without extension headers, UDP. A cursor walks the frame; nothing is read before it is pulled.
 * The contents of a THC header are not checked here.
 *
 * There are three results without a header. THC_PARSE_FOREIGN: the frame is not for the aggregator,
 * and passes unchanged and uncounted. An enum thc_drop_reason: the frame is for a THC port, but
 * malformed. THC_PARSE_EXTENDED: there may be UDP behind IPv6 extension headers, which the kernel
 * would pass to thcd's socket, so thc_parse_extensions() looks for the port.
 */
#ifndef THC_PARSE_BPF_H
#define THC_PARSE_BPF_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include "maps.bpf.h"

#include <thc/aggregator/react.h>

#define THC_PARSE_FOREIGN (-1)
#define THC_PARSE_EXTENDED (-2)

#define THC_IP4_MF 0x2000
#define THC_IP4_DF 0x4000
#define THC_IP4_OFFSET 0x1fff
#define THC_IP6_OFFSET 0xfff8
/* Most extension headers in front of UDP: as many as the parser knows kinds. */
#define THC_IP6_CHAIN 4
#define THC_ECN_MASK 3
#define THC_ECN_CE 3
#define THC_ECN_ECT0 2

struct thc_vlan {
	__be16 tci;
	__be16 proto;
};

/* An IPv6 extension header: options, routing, or a fragment's, which has @offset and no @more. */
struct thc_extension {
	u8 next;
	u8 more; /* units of sizeof(struct thc_extension) that follow */
	__be16 offset;
	u32 rest;
};

/* The unread rest of a frame. */
struct thc_cursor {
	void *pos;
	void *end;
};

/**
 * struct thc_parsed - a parsed frame
 * @packet: the packet; the frame holds as many bytes behind its header as UDP says
 * @eth: start of the frame
 * @vlan: tag control, network order; 0 without a tag
 * @tagged: there is a tag; its control may be 0 (priority 0, no VLAN)
 */
struct thc_parsed {
	struct thc_packet packet;
	struct ethhdr *eth;
	u16 vlan;
	u8 tagged;
};

static __always_inline void *thc_pull(struct thc_cursor *c, u32 size)
{
	void *pulled = c->pos;

	if (pulled + size > c->end)
		return NULL;
	c->pos = pulled + size;
	return pulled;
}

static __always_inline bool thc_is_vlan(__be16 proto)
{
	return proto == thc_be16(ETH_P_8021Q) || proto == thc_be16(ETH_P_8021AD);
}

static __always_inline bool thc_is_our_port(const struct udphdr *udp)
{
	return (u16)(thc_be16(udp->dest) - thc_config.port_base) < THC_PORT_SPAN;
}

/* @c stands behind the UDP header; @bytes: of IP payload. */
static __always_inline int thc_parse_udp(struct thc_cursor *c, const struct udphdr *udp, s32 bytes,
					 struct thc_packet *p)
{
	s32 len = thc_be16(udp->len);

	if (len > bytes || len < (s32)(sizeof(*udp) + sizeof(*p->hdr)))
		return THC_DROP_TRUNCATED;
	if (len < bytes)
		return THC_DROP_LENGTH;
	p->hdr = thc_pull(c, sizeof(*p->hdr));
	if (!p->hdr)
		return THC_DROP_TRUNCATED;
	p->payload_len = len - sizeof(*udp) - sizeof(*p->hdr);
	p->path.src_port = thc_be16(udp->source);
	p->path.dst_port = thc_be16(udp->dest);
	return THC_DROP_NONE;
}

/* IPv4 with options: the frame is counted as dropped if it is for a THC port, and else passes. */
static __always_inline int thc_parse_options(struct thc_cursor *c, const struct iphdr *ip)
{
	const struct udphdr *udp = (void *)ip + ip->ihl * 4;

	if ((void *)(udp + 1) > c->end || !thc_is_our_port(udp))
		return THC_PARSE_FOREIGN;
	return THC_DROP_IP_OPTIONS;
}

static __always_inline int thc_parse_ip4(struct thc_cursor *c, struct thc_packet *p)
{
	const struct iphdr *ip = thc_pull(c, sizeof(*ip));
	const struct udphdr *udp;
	s32 total;

	if (!ip || ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP)
		return THC_PARSE_FOREIGN;
	if (ip->daddr != thc_config.addr4.word[3] || !thc_config.addr4.word[2])
		return THC_PARSE_FOREIGN;
	/* only the first fragment shows a port; the others may be anybody's */
	if (ip->frag_off & thc_be16(THC_IP4_OFFSET))
		return THC_PARSE_FOREIGN;
	if (ip->ihl > 5)
		return thc_parse_options(c, ip);
	udp = thc_pull(c, sizeof(*udp));
	if (!udp || !thc_is_our_port(udp))
		return THC_PARSE_FOREIGN;
	if (ip->frag_off & thc_be16(THC_IP4_MF))
		return THC_DROP_FRAGMENT;
	total = thc_be16(ip->tot_len);
	if (total > c->end - (void *)ip)
		return THC_DROP_TRUNCATED;
	p->path.src = thc_addr_v4(ip->saddr);
	p->path.ttl = ip->ttl;
	p->ce = (ip->tos & THC_ECN_MASK) == THC_ECN_CE;
	return thc_parse_udp(c, udp, total - (s32)sizeof(*ip), p);
}

static __always_inline bool thc_is_our_ip6(const struct in6_addr *a)
{
	const u32 *w = (const u32 *)a;

	return w[0] == thc_config.addr6.word[0] && w[1] == thc_config.addr6.word[1] &&
	       w[2] == thc_config.addr6.word[2] && w[3] == thc_config.addr6.word[3] &&
	       (w[0] | w[1] | w[2] | w[3]);
}

static __always_inline int thc_parse_ip6(struct thc_cursor *c, struct thc_packet *p)
{
	const struct ipv6hdr *ip = thc_pull(c, sizeof(*ip));
	const struct udphdr *udp;
	s32 bytes;

	if (!ip || ip->version != 6 || !thc_is_our_ip6(&ip->daddr))
		return THC_PARSE_FOREIGN;
	if (ip->nexthdr != IPPROTO_UDP)
		return THC_PARSE_EXTENDED;
	udp = thc_pull(c, sizeof(*udp));
	if (!udp || !thc_is_our_port(udp))
		return THC_PARSE_FOREIGN;
	bytes = thc_be16(ip->payload_len);
	if (bytes > c->end - (void *)udp)
		return THC_DROP_TRUNCATED;
	__builtin_memcpy(&p->path.src, &ip->saddr, sizeof(p->path.src));
	p->path.ttl = ip->hop_limit;
	/* traffic class straddles the first two bytes, ECN is bits 4..5 of byte 1 */
	p->ce = (ip->flow_lbl[0] >> 4 & THC_ECN_MASK) == THC_ECN_CE;
	return thc_parse_udp(c, udp, bytes, p);
}

static __always_inline int thc_parse(struct xdp_md *ctx, struct thc_parsed *p)
{
	struct thc_cursor c = {
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	struct thc_vlan *tag;
	__be16 proto;

	p->eth = thc_pull(&c, sizeof(*p->eth));
	if (!p->eth)
		return THC_PARSE_FOREIGN;
	proto = p->eth->h_proto;
	p->vlan = 0;
	p->tagged = thc_is_vlan(proto);
	if (p->tagged) {
		tag = thc_pull(&c, sizeof(*tag));
		if (!tag)
			return THC_PARSE_FOREIGN;
		p->vlan = tag->tci;
		proto = tag->proto;
	}
	if (proto == thc_be16(ETH_P_IP))
		return thc_parse_ip4(&c, &p->packet);
	if (proto == thc_be16(ETH_P_IPV6))
		return thc_parse_ip6(&c, &p->packet);
	return THC_PARSE_FOREIGN;
}

/* The IPv6 header behind Ethernet and at most one tag; NULL: there is none. */
static __always_inline struct ipv6hdr *thc_pull_ip6(struct thc_cursor *c)
{
	struct ethhdr *eth = thc_pull(c, sizeof(*eth));

	if (!eth || (thc_is_vlan(eth->h_proto) && !thc_pull(c, sizeof(struct thc_vlan))))
		return NULL;
	return thc_pull(c, sizeof(struct ipv6hdr));
}

/* Follows known extension headers, the first of which is a @next; returns the protocol behind them.
 * @why: out: the reason to drop the frame
 */
static __always_inline u32 thc_pull_extensions(struct thc_cursor *c, u32 next, int *why)
{
	const struct thc_extension *ext;
	int i;

	*why = THC_DROP_IP_OPTIONS;
	for (i = 0; i < THC_IP6_CHAIN && next != IPPROTO_UDP; i++) {
		ext = thc_pull(c, sizeof(*ext));
		if (!ext)
			return IPPROTO_NONE;
		if (next == IPPROTO_FRAGMENT) {
			/* as in IPv4, fragments but the first may be for any socket */
			if (ext->offset & thc_be16(THC_IP6_OFFSET))
				return IPPROTO_NONE;
			*why = THC_DROP_FRAGMENT;
		} else if (next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING ||
			   next == IPPROTO_DSTOPTS) {
			c->pos += ext->more * sizeof(*ext);
		} else {
			return IPPROTO_NONE;
		}
		next = ext->next;
	}
	return next;
}

/* A frame that thc_parse() called THC_PARSE_EXTENDED: it is counted as dropped if it is for a THC
 * port, and else passes. The rest of a routing header's way does not matter: an aggregator is no
 * router.
 */
static __always_inline int thc_parse_extensions(struct xdp_md *ctx)
{
	struct thc_cursor c = {
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	const struct ipv6hdr *ip = thc_pull_ip6(&c);
	const struct udphdr *udp;
	int why;

	if (!ip || thc_pull_extensions(&c, ip->nexthdr, &why) != IPPROTO_UDP)
		return THC_PARSE_FOREIGN;
	udp = thc_pull(&c, sizeof(*udp));
	return udp && thc_is_our_port(udp) ? why : THC_PARSE_FOREIGN;
}

#endif /* THC_PARSE_BPF_H */
