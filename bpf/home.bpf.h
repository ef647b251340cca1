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
 * struct thc_home - a packet's frame, and what its slot has
 * @in: as parsed
 * @end: of the frame
 * @index: of the slot that is, or was, locked; 0: none was
 * @lanes: of the slot that is locked
 * @table: of its job
 */
struct thc_home {
	const struct thc_parsed *in;
	void *end;
	u32 index;
	struct thc_lanes *lanes;
	struct thc_pairs *table;
};

THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home, u64 *now)
{
	u32 key = 0;

	/* a clock that is cheap to read: tokens come every 5 ms */
	*now = bpf_ktime_get_coarse_ns();
	return bpf_map_lookup_elem(&strangers, &key);
}

/* Whether the sum may be waived is asked by the caller: here the compiler would make one value
 * of that condition and the bounds check, and kernel 6.1 would lose the bound.
 */
THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p)
{
	struct thc_hdr *h = p->hdr;
	void *payload = h + 1;
	int ok;

	switch (p->payload_len) {
#define THC_SEAL(bytes) \
	if (payload + (bytes) > home->end) \
		return THC_DROP_TRUNCATED; \
	ok = thc_seal_bpf_##bytes((void *)h); \
	break;
#define THC_SEAL_CASE(bytes) \
	case bytes: \
		THC_SEAL(bytes)
		THC_PAYLOADS(THC_SEAL_CASE)
	case sizeof(struct thc_join):
		if (h->op != THC_OP_JOIN)
			return THC_DROP_LENGTH;
		THC_SEAL(16)	/* sizeof(struct thc_join), in the function's name */
#undef THC_SEAL_CASE
#undef THC_SEAL
	case 0:
		ok = thc_seal_ok(h, NULL, 0);
		break;
	default:
		return THC_DROP_LENGTH;
	}
	return ok ? THC_DROP_NONE : THC_DROP_SUM;
}

/* For fanout; a job's record is shared, so it is written only on a change. */
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

THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 job,
					      struct thc_slot **slot)
{
	struct thc_slot *s = thc_slot_get(index);

	home->lanes = thc_lanes_get(index);
	home->table = bpf_map_lookup_elem(&pairs, &job);
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
				 const struct thc_packet *p, u32 v, u32 first)
{
	struct thc_lane_block *to = (void *)home->lanes->word[v];
	void *payload = p->hdr + 1;

	switch (kind) {
	case THC_LANE_NONE:
		break;
#define THC_COMBINE_TABLE(name) thc_lanes_bpf_##name(to, payload, home->table, first)
#define THC_COMBINE_PLAIN(name) thc_lanes_bpf_##name(to, payload, first)
#define THC_COMBINE(KIND, name, op, up, sum, bytes, loop) \
	case THC_LANE_##KIND: \
		if (payload + (bytes) <= home->end) \
			THC_COMBINE_##loop(name); \
		break;
		THC_FORMATS(THC_COMBINE)
#undef THC_COMBINE
#undef THC_COMBINE_PLAIN
#undef THC_COMBINE_TABLE
	}
}

THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 v)
{
	thc_lanes_finish(&slot->version[v], (void *)home->lanes->word[v]);
}

/* thc_react_answer() as a subprogram: the verifier looks at it once. */
__noinline int thc_answer_slot(struct thc_hdr *h, struct thc_job *job, struct thc_slot *s,
			       u32 verdict)
{
	return h && job && s ? thc_react_answer(h, job, s, verdict) : 0;
}

THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       struct thc_slot *slot, u32 verdict)
{
	return thc_answer_slot(h, job, slot, verdict);
}

#endif /* THC_HOME_BPF_H */
