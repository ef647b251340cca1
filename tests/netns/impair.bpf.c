// SPDX-License-Identifier: GPL-2.0
/*
 * Loses, corrupts, duplicates and delays THC packets at random on clsact of a switch port: the
 * kernels of these tests have no netem. Acts on UDP to or from THC ports only; ARP, IGMP and TCP
 * pass unchanged.
 *
 * A delayed packet takes a detour over a veth pair with a slow queue, behind which impair_return()
 * puts it back.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <linux/thc.h>
#include "impair.h"

/* skb->mark of a packet that passes here a second time and must be left alone */
#define IMPAIR_COPY	0x7468
/* skb->mark on the detour: these bits, the packet's port, and the lower bits of the number of
 * packets that had passed that port before.
 */
#define IMPAIR_LATE	(1U << 31)
#define IMPAIR_LATE_DOWN (1U << 30)
#define IMPAIR_PASSED	14
#define IMPAIR_PASSED_MASK 0xffffU
#define IMPAIR_PORTS	128

/* Probabilities in units of 2^-32, set by the loader. */
const volatile __u32 drop_below;
const volatile __u32 corrupt_below;
const volatile __u32 duplicate_below;
const volatile __u32 late_below;
/* Where the detour begins. */
const volatile __u32 late_ifindex;
const volatile __u16 port_base = THC_PORT_DEFAULT;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, IMPAIR_DIRECTIONS);
	__type(key, __u32);
	__type(value, struct impair_count);
} counts SEC(".maps");

/* Packets that went on without a detour, by port and direction. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, IMPAIR_PORTS *IMPAIR_DIRECTIONS);
	__type(key, __u32);
	__type(value, __u64);
} passed SEC(".maps");

static __always_inline __u64 *passed_at(__u32 port, __u32 direction)
{
	__u32 key = port % IMPAIR_PORTS * IMPAIR_DIRECTIONS + direction;

	return bpf_map_lookup_elem(&passed, &key);
}

static __always_inline int is_thc_port(__be16 port)
{
	return (__u16)(bpf_ntohs(port) - port_base) < THC_PORT_SPAN;
}

/* Offset of the UDP payload of a THC packet, or 0 if it is none. */
static __always_inline __u32 thc_payload(struct __sk_buff *skb)
{
	__u32 offset = ETH_HLEN;
	struct udphdr udp;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)) || ip.protocol != IPPROTO_UDP)
			return 0;
		offset += ip.ihl * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_UDP)
			return 0;
		offset += sizeof(ip);
	} else {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, offset, &udp, sizeof(udp)))
		return 0;
	if (!is_thc_port(udp.source) && !is_thc_port(udp.dest))
		return 0;
	return offset + sizeof(udp);
}

/* Changes one random byte behind @payload; returns 1 if it did. */
static __always_inline int corrupt(struct __sk_buff *skb, __u32 payload)
{
	__u32 len = skb->len - payload;
	__u32 offset;
	__u8 byte;

	if (skb->len <= payload)
		return 0;
	offset = payload + bpf_get_prandom_u32() % len;
	if (bpf_skb_load_bytes(skb, offset, &byte, 1))
		return 0;
	byte ^= 1 + bpf_get_prandom_u32() % 255;
	return !bpf_skb_store_bytes(skb, offset, &byte, 1, 0);
}

static __always_inline int detour(struct __sk_buff *skb, __u32 direction, __u32 before)
{
	skb->mark = IMPAIR_LATE | (direction == IMPAIR_DOWN ? IMPAIR_LATE_DOWN : 0) |
		    (before & IMPAIR_PASSED_MASK) << IMPAIR_PASSED | skb->ifindex % IMPAIR_PORTS;
	return bpf_redirect(late_ifindex, 0);
}

static __always_inline int impair(struct __sk_buff *skb, __u32 direction, __u64 copy_flags)
{
	struct impair_count *c = bpf_map_lookup_elem(&counts, &direction);
	__u64 *before = passed_at(skb->ifindex, direction);
	__u32 payload = thc_payload(skb);

	if (!c || !before || !payload)
		return TC_ACT_OK;
	if (skb->mark == IMPAIR_COPY) {
		skb->mark = 0;
		return TC_ACT_OK;
	}
	__sync_fetch_and_add(&c->seen, 1);
	if (skb->gso_segs > 1)
		__sync_fetch_and_add(&c->super, 1);
	if (bpf_get_prandom_u32() < drop_below) {
		__sync_fetch_and_add(&c->dropped, 1);
		return TC_ACT_SHOT;
	}
	if (bpf_get_prandom_u32() < corrupt_below && corrupt(skb, payload))
		__sync_fetch_and_add(&c->corrupted, 1);
	if (bpf_get_prandom_u32() < duplicate_below) {
		skb->mark = IMPAIR_COPY;
		if (!bpf_clone_redirect(skb, skb->ifindex, copy_flags))
			__sync_fetch_and_add(&c->duplicated, 1);
		skb->mark = 0;
	}
	if (bpf_get_prandom_u32() < late_below) {
		__sync_fetch_and_add(&c->late, 1);
		return detour(skb, direction, *before);
	}
	__sync_fetch_and_add(before, 1);
	return TC_ACT_OK;
}

/* Ingress of the detour's end. */
SEC("tc")
int impair_return(struct __sk_buff *skb)
{
	__u32 mark = skb->mark, port = mark % IMPAIR_PORTS;
	__u32 direction = mark & IMPAIR_LATE_DOWN ? IMPAIR_DOWN : IMPAIR_UP;
	struct impair_count *c = bpf_map_lookup_elem(&counts, &direction);
	__u64 *before = passed_at(port, direction);

	if (!(mark & IMPAIR_LATE) || !c || !before)
		return TC_ACT_SHOT;
	if (((*before ^ mark >> IMPAIR_PASSED) & IMPAIR_PASSED_MASK) != 0)
		__sync_fetch_and_add(&c->overtaken, 1);
	skb->mark = IMPAIR_COPY;
	return bpf_redirect(port, direction == IMPAIR_DOWN ? 0 : BPF_F_INGRESS);
}

SEC("tc")
int impair_up(struct __sk_buff *skb)
{
	return impair(skb, IMPAIR_UP, BPF_F_INGRESS);
}

SEC("tc")
int impair_down(struct __sk_buff *skb)
{
	return impair(skb, IMPAIR_DOWN, 0);
}

char _license[] SEC("license") = "GPL";
