/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The loops of include/thc/aggregator/lane.h as BPF subprograms, one per kind, and the seal, one
 * per payload size of THC_FORMATS. Other LUT_ADD payloads are first copied to a map's value, for
 * which there is one seal for all sizes. In thc_simd.bpf.c a kind's subprogram first calls thc.ko
 * (include/thc/aggregator/kfunc.h), and runs its own loop if thc.ko cannot; the seal nh of
 * THC_PAYLOADS_LENT is thc.ko's there.
 *
 * The subprograms are global functions: the verifier checks each once, for arguments of exactly
 * these types, instead of once per path to a call (addresses, tags and first or later contribution
 * multiply). A global function must check its pointers; that is why there are tests against NULL.
 */
#ifndef THC_LANES_BPF_H
#define THC_LANES_BPF_H

#include "maps.bpf.h"

#include <thc/aggregator/answer.h>
#include <thc/aggregator/kfunc.h>
#include <thc/wire/seal.h>

/* Has thc.ko done it? Only thc_simd.bpf.c calls thc.ko. */
#ifdef THC_SIMD
#define THC_BY_MODULE(call) (!(call))
#else
#define THC_BY_MODULE(call) 0
#endif
#define THC_NOT_BY_MODULE (-1)

#define THC_LANES_TABLE(name, sum, bytes) \
	__noinline int thc_lanes_bpf_##name(struct thc_lane_block *to, \
					    const struct thc_payload_##bytes *payload, \
					    const struct thc_pairs *table, u32 first) \
	{ \
		if (!to || !payload || !table) \
			return -1; \
		if (THC_BY_MODULE(thc_kfunc_##name(to, payload, table, first))) \
			return 0; \
		if (first) \
			thc_lanes_##name(to->word, payload, table, 1); \
		else \
			thc_lanes_##name(to->word, payload, table, 0); \
		return 0; \
	}

#define THC_LANES_PLAIN(name, sum, bytes) \
	__noinline int thc_lanes_bpf_##name(struct thc_lane_block *to, \
					    const struct thc_payload_##bytes *payload, u32 first) \
	{ \
		if (!to || !payload) \
			return -1; \
		if (THC_BY_MODULE(thc_kfunc_##name(to, payload, first))) \
			return 0; \
		if (first) \
			thc_lanes_##name(to->word, payload, 1); \
		else \
			thc_lanes_##name(to->word, payload, 0); \
		return 0; \
	}

#define THC_LANES_OWN(name, sum, bytes) \
	__noinline int thc_lanes_bpf_##name(struct thc_lane_block *to, \
					    const struct thc_payload_##bytes *payload, u32 rank, \
					    u32 first) \
	{ \
		if (!to || !payload) \
			return -1; \
		if (first) \
			thc_lanes_##name(to->word, payload, rank, 1); \
		else \
			thc_lanes_##name(to->word, payload, rank, 0); \
		return 0; \
	}

/* The packet, not its payload alone: see thc_lanes_group(). */
#define THC_LANES_GROUP(name, sum, bytes) \
	__noinline int thc_lanes_bpf_##name(struct thc_lane_block *to, \
					    const struct thc_sized_##bytes *packet, \
					    const struct thc_pairs *table, u32 first) \
	{ \
		if (!to || !packet || !table) \
			return -1; \
		if (THC_BY_MODULE( \
			    thc_kfunc_group##sum(to, packet, sizeof(*packet), table, first))) \
			return 0; \
		if (first) \
			thc_lanes_##name(to->word, packet->payload, table, 1); \
		else \
			thc_lanes_##name(to->word, packet->payload, table, 0); \
		return 0; \
	}

/* Loops that thc.ko does not lend. */
#define thc_kfunc_or(to, payload, first) THC_NOT_BY_MODULE
#define thc_kfunc_max(to, payload, first) THC_NOT_BY_MODULE

#define THC_LANES_BPF(kind, name, op, up, sum, bytes, loop) THC_LANES_##loop(name, sum, bytes)
THC_FORMATS(THC_LANES_BPF)
#undef THC_LANES_BPF

/* More loops that thc.ko does not have. @payload: a copy, with bytes behind the packet's. */
#define THC_LANES_BPF(kind, name, sum) \
	__noinline int thc_lanes_bpf_##name(struct thc_lane_block *to, \
					    const struct thc_payload_copied *payload, \
					    const struct thc_pairs *table, u32 first) \
	{ \
		if (!to || !payload || !table) \
			return -1; \
		if (first) \
			thc_lanes_##name(to->word, payload, table, 1); \
		else \
			thc_lanes_##name(to->word, payload, table, 0); \
		return 0; \
	}
THC_FORMATS_BITS(THC_LANES_BPF)
#undef THC_LANES_BPF

__noinline u64 thc_seal_bpf_tag(const struct thc_hdr *h, const struct thc_seal_key *key, u64 nh)
{
	return h && key ? thc_seal_tag_by_nh(h, key, nh) : 0;
}

/* The seal nh of a packet that has come, and digest and checksum of lanes to be sent. */
#define THC_TAG_OWN(bytes, p, key) \
	thc_seal_tag_of(THC_SEAL_NH, key, &(p)->hdr, (p)->payload, (bytes) / 8)

#ifdef THC_SIMD
#define THC_TAG_LENT(bytes, p, key) thc_kfunc_tag_##bytes(p, key)

/* thc.ko reads words as they are sent, which lanes are on little-endian hosts alone. */
THC_INLINE int thc_finish_by_module(struct thc_generation *g, const struct thc_lane_block *from,
				    const struct thc_seals *seals, u32 epoch)
{
	const struct thc_seal_key *key = thc_seals_down(seals, epoch);

	if (thc_le16(1) != 1 || seals->seal != THC_SEAL_NH)
		return 0;
	thc_answer_pass(g, THC_SEAL_NONE, from->word);
	g->digest.a = thc_kfunc_nh((const void *)from, key);
	return 1;
}
#else
#define THC_TAG_LENT THC_TAG_OWN

THC_INLINE int thc_finish_by_module(struct thc_generation *g, const struct thc_lane_block *from,
				    const struct thc_seals *seals, u32 epoch)
{
	return 0;
}
#endif

/* Digests a finished generation's lanes for its answers. */
__noinline int thc_lanes_finish(struct thc_generation *g, const struct thc_lane_block *from,
				const struct thc_seals *seals, u32 epoch)
{
	if (!g || !from || !seals)
		return -1;
	if (!thc_finish_by_module(g, from, seals, epoch))
		thc_answer_finish(g, from->word, seals, epoch);
	return 0;
}

/* @seal: not THC_SEAL_NONE, for which thc_home_seal() needs no call. */
#define THC_SEAL_SIZED(bytes, tag_nh) \
	__noinline int thc_seal_bpf_##bytes(const struct thc_sized_##bytes *p, u32 seal, \
					    const struct thc_seal_key *key) \
	{ \
		if (!p || !key) \
			return 0; \
		if (seal == THC_SEAL_NH) \
			return p->hdr.tag == thc_be64(tag_nh(bytes, p, key)); \
		return thc_seal_ok(&p->hdr, THC_SEAL_SUM, key, p->payload, (bytes) / 8); \
	}

#define THC_SEAL_LENT(bytes) THC_SEAL_SIZED(bytes, THC_TAG_LENT)
#define THC_SEAL_OWN(bytes) THC_SEAL_SIZED(bytes, THC_TAG_OWN)
THC_PAYLOADS_LENT(THC_SEAL_LENT)
THC_PAYLOADS_OWN(THC_SEAL_OWN)

/* Bytes of a payload between two looks at its end: all lengths are multiples. */
#define THC_SEAL_PART	32

/* The payload of a packet whose size is none of THC_PAYLOADS, or whose loop wants a copy: @bytes
 * from byte @at of the frame on, to @to. Returns 0, or what went wrong.
 */
__noinline int thc_payload_copy(struct xdp_md *ctx, u32 at, u32 bytes,
				struct thc_payload_copied *to)
{
	if (!to || bytes < THC_SEAL_PART)
		return -1;
	/* the compiler would merge both bounds, and the verifier of kernel 6.1 would see neither */
	asm volatile("" : "+r"(bytes));
	if (bytes > THC_LANE_BYTES)
		return -1;
	return (int)bpf_xdp_load_bytes(ctx, at, to, bytes);
}

/* Checks the seal of a packet whose payload, of @bytes bytes, was copied. @seal: as in
 * THC_SEAL_SIZED()
 */
__noinline int thc_seal_bpf_copied(const struct thc_hdr *h, u32 seal,
				   const struct thc_seal_key *key,
				   const struct thc_payload_copied *payload, u32 bytes)
{
	struct thc_sum sum = { 0, 0 };
	struct thc_digest d;
	u64 nh = 0;
	u32 i;

	if (!h || !key || !payload)
		return 0;
	for (i = 0; i < THC_LANE_BYTES; i += THC_SEAL_PART) {
		if (i >= bytes)
			break;
		if (seal == THC_SEAL_NH)
			nh += thc_nh(key->nh + i / 4, payload->word + i / 8, THC_SEAL_PART / 8);
		else
			thc_sum_add(&sum, payload->word + i / 8, THC_SEAL_PART / 8);
	}
	d.a = seal == THC_SEAL_NH ? nh : sum.a;
	d.b = sum.b;
	return thc_seal_fits(h, (u8)seal, key, d, bytes / 8);
}

#define THC_SEAL_MEMBERSHIP(name) \
	struct thc_sized_##name { \
		struct thc_hdr hdr; \
		struct thc_##name payload; \
	}; \
\
	__noinline int thc_seal_bpf_##name(const struct thc_sized_##name *p, u32 seal, \
					   const struct thc_member_key *key, \
					   const struct thc_end *end) \
	{ \
		return p && key && end && \
		       p->hdr.tag == thc_member_tag((u8)seal, key, &p->hdr, end, &p->payload, \
						    sizeof(p->payload) / 8); \
	}

THC_SEAL_MEMBERSHIP(join)
THC_SEAL_MEMBERSHIP(leave)

#endif /* THC_LANES_BPF_H */
