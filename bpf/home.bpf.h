/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the XDP program lends to include/thc/aggregator/react.h: bounds that the verifier can
 * follow, slots and their locks, lanes by subprograms.
 */
#ifndef THC_HOME_BPF_H
#define THC_HOME_BPF_H

#include "lanes.bpf.h"
#include "parse.bpf.h"
#include "slots.bpf.h"

/**
 * struct thc_home - a packet's frame, and the parts of its slot
 * @ctx: the frame
 * @in: the parsed frame
 * @end: end of the frame
 * @index: slot that is, or was, locked; 0: none was
 * @lanes: lanes of the locked slot
 * @table: table of the packet's row
 * @copy: copy of the payload, if one is needed
 */
struct thc_home {
	struct xdp_md *ctx;
	const struct thc_parsed *in;
	void *end;
	u32 index;
	struct thc_lanes *lanes;
	struct thc_pairs *table;
	struct thc_payload_copied *copy;
};

THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&strangers, &key);
}

/* Two CPUs may take one token at once, but packets of one rank come through one CPU. */
THC_INLINE struct thc_bucket *thc_home_joins(struct thc_home *home, struct thc_job *job, u32 rank)
{
	return &job->member[rank].joins;
}

THC_INLINE struct thc_bucket *thc_home_leaves(struct thc_home *home, struct thc_job *job, u32 rank)
{
	return &job->member[rank].leaves;
}

THC_INLINE u64 *thc_home_told(struct thc_home *home, struct thc_member *m)
{
	return &m->told_at;
}

THC_INLINE int thc_home_hears(struct thc_home *home, const struct thc_packet *p)
{
	return p->path.dst_port == thc_config.port_base;
}

/* The coarse clock is cheap, and fine enough: tokens come every 5 ms. */
THC_INLINE u64 thc_home_clock(struct thc_home *home)
{
	return bpf_ktime_get_coarse_ns();
}

/* Bytes in front of a THC header, at most: a power of two. */
#define THC_HEADS_MAX	128

/* The packet's header, by a pointer that the verifier takes for another one. A bounds check of the
 * payload then tells nothing of the first pointer: otherwise the verifier would walk the code
 * behind it once for each length.
 */
THC_INLINE void *thc_home_packet(const struct thc_home *home, const struct thc_packet *p)
{
	u32 at = (void *)p->hdr - (void *)home->in->eth;

	asm volatile("" : "+r"(at));
	return (void *)(long)home->ctx->data + (at & (THC_HEADS_MAX - 1));
}

/* Checks the seal none, for which neither key nor payload matters. */
THC_INLINE enum thc_drop_reason thc_home_seal_none(const struct thc_packet *p)
{
	return thc_seal_ok(p->hdr, THC_SEAL_NONE, NULL, NULL, 0) ? THC_DROP_NONE : THC_DROP_TAG;
}

/* Checks the seal of a request without a row in THC_FORMATS, if its length is one of LUT_ADD at
 * all; the job decides later what the payload means.
 */
THC_INLINE enum thc_drop_reason thc_home_seal_copy(struct thc_home *home,
						   const struct thc_packet *p, u8 seal,
						   const struct thc_seal_key *key)
{
	u32 zero = 0, at = (void *)(p->hdr + 1) - (void *)home->in->eth;
	struct thc_payload_copied *copy = bpf_map_lookup_elem(&copies, &zero);

	if (!thc_payload_is_known(p->payload_len))
		return THC_DROP_LENGTH;
	if (!copy)
		return THC_DROP_INTERNAL;
	if (thc_payload_copy(home->ctx, at, p->payload_len, copy))
		return THC_DROP_TRUNCATED;
	home->copy = copy;
	if (seal == THC_SEAL_NONE)
		return thc_home_seal_none(p);
	return thc_seal_bpf_copied(p->hdr, seal, key, copy, p->payload_len) ? THC_DROP_NONE :
									      THC_DROP_TAG;
}

THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p,
					      u8 seal, const struct thc_seal_key *key)
{
	struct thc_hdr *h = thc_home_packet(home, p);
	void *payload = h + 1;
	int ok;

	if (!thc_has_format(p->hdr->op, p->hdr->width, p->payload_len))
		return thc_home_seal_copy(home, p, seal, key);
	if (seal == THC_SEAL_NONE)
		return thc_home_seal_none(p);
	switch (p->payload_len) {
#define THC_SEAL_CASE(bytes) \
	case bytes: \
		if (payload + (bytes) > home->end) \
			return THC_DROP_TRUNCATED; \
		ok = thc_seal_bpf_##bytes((void *)h, seal, key); \
		break;
		THC_PAYLOADS(THC_SEAL_CASE)
#undef THC_SEAL_CASE
	default:
		return THC_DROP_LENGTH;
	}
	return ok ? THC_DROP_NONE : THC_DROP_TAG;
}

THC_INLINE enum thc_drop_reason thc_home_membership(struct thc_home *home,
						    const struct thc_packet *p,
						    const struct thc_seals *seals)
{
	const struct thc_end end = thc_path_end(&p->path, seals);
	u8 seal = thc_seal_of_members((u8)seals->seal);
	struct thc_sized_leave *leave = (void *)p->hdr;
	struct thc_sized_join *join = (void *)p->hdr;
	int ok;

	if (p->hdr->op == THC_OP_LEAVE) {
		if ((void *)(leave + 1) > home->end)
			return THC_DROP_TRUNCATED;
		ok = thc_seal_bpf_leave(leave, seal, &seals->join, &end);
	} else {
		if ((void *)(join + 1) > home->end)
			return THC_DROP_TRUNCATED;
		ok = thc_seal_bpf_join(join, seal, &seals->join, &end);
	}
	return ok ? THC_DROP_NONE : THC_DROP_TAG;
}

/* Notes the sender's MAC address and VLAN for fanout. CPUs share a job's record, so it is written
 * only on a change, and under the slot's lock: the generation's answer may be sent as soon as it is
 * finished.
 */
THC_INLINE void thc_home_heard(struct thc_home *home, struct thc_member *m)
{
	const struct thc_parsed *in = home->in;
	const u16 *src = (const u16 *)in->eth->h_source;
	u16 *mac = (u16 *)m->mac;

	if (mac[0] == src[0] && mac[1] == src[1] && mac[2] == src[2] && m->vlan == in->vlan &&
	    m->tagged == in->tagged)
		return;
	mac[0] = src[0];
	mac[1] = src[1];
	mac[2] = src[2];
	m->vlan = in->vlan;
	m->tagged = in->tagged;
}

THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 row,
					      struct thc_slot **slot)
{
	struct thc_slot *s = thc_slot_get(index);

	home->lanes = thc_lanes_get(index);
	home->table = bpf_map_lookup_elem(&pairs, &row);
	if (!s || !home->lanes || !home->table)
		return THC_DROP_INTERNAL;
	if (!thc_slot_trylock(s))
		return THC_DROP_LOCK;
	home->index = index;
	*slot = s;
	return THC_DROP_NONE;
}

THC_INLINE void thc_home_unlock(struct thc_home *home, struct thc_slot *slot)
{
	thc_slot_unlock(slot);
}

THC_INLINE void thc_home_combine(struct thc_home *home, enum thc_lane_kind kind,
				 const struct thc_packet *p, u32 odd, u32 first)
{
	struct thc_lane_block *to = (void *)home->lanes->word[odd];
	struct thc_hdr *h = thc_home_packet(home, p);
	u32 rank = thc_be16(p->hdr->rank);
	void *payload = h + 1;

	switch (kind) {
	case THC_LANE_NONE:
		break;
#define THC_COMBINE_TABLE(name) thc_lanes_bpf_##name(to, payload, home->table, first)
#define THC_COMBINE_GROUP(name) thc_lanes_bpf_##name(to, (void *)h, home->table, first)
#define THC_COMBINE_OWN(name) thc_lanes_bpf_##name(to, payload, rank, first)
#define THC_COMBINE_PLAIN(name) thc_lanes_bpf_##name(to, payload, first)
#define THC_COMBINE(KIND, name, op, up, sum, bytes, loop) \
	case THC_LANE_##KIND: \
		if (payload + (bytes) <= home->end) \
			THC_COMBINE_##loop(name); \
		break;
		THC_FORMATS(THC_COMBINE)
#undef THC_COMBINE
#define THC_COMBINE(KIND, name, sum) \
	case THC_LANE_##KIND: \
		if (home->copy) \
			thc_lanes_bpf_##name(to, home->copy, home->table, first); \
		break;
		THC_FORMATS_BITS(THC_COMBINE)
#undef THC_COMBINE
#undef THC_COMBINE_PLAIN
#undef THC_COMBINE_OWN
#undef THC_COMBINE_GROUP
#undef THC_COMBINE_TABLE
	}
}

THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 odd,
				const struct thc_seals *seals)
{
	thc_lanes_finish(&slot->generation[odd], (void *)home->lanes->word[odd], seals,
			 slot->epoch);
}

/* thc_react_answer() as a subprogram: the verifier looks at it once. */
__noinline int thc_answer_slot(struct thc_hdr *h, struct thc_job *job,
			       const struct thc_seals *seals, struct thc_slot *s, u32 verdict)
{
	return h && job && seals && s ? thc_react_answer(h, job, seals, s, verdict) : 0;
}

THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       const struct thc_seals *seals, struct thc_slot *slot, u32 verdict)
{
	return thc_answer_slot(h, job, seals, slot, verdict);
}

#endif /* THC_HOME_BPF_H */
