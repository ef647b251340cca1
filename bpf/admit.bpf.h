/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Admission, over include/thc/aggregator/job.h, which says in which order: who sends, then
 * the packet sum, then what the header says.
 */
#ifndef THC_ADMIT_BPF_H
#define THC_ADMIT_BPF_H

#include "lanes.bpf.h"
#include "parse.bpf.h"
#include "stats.bpf.h"

/* Does the packet sum hold? Payload lengths that no op has are refused. That
 * the sum may be waived is the caller's affair: mixed with a bounds check, the
 * compiler makes one value of both conditions, and kernel 6.1 loses the bound.
 */
static __always_inline enum thc_drop_reason thc_admit_sum(const struct thc_packet *p, void *end)
{
	struct thc_hdr *h = p->hdr;
	void *payload = h + 1;
	u32 sum;

	switch (p->payload_len) {
#define THC_SUM_CASE(bytes) \
	case bytes: \
		if (payload + (bytes) > end) \
			return THC_DROP_TRUNCATED; \
		sum = thc_sum_bpf_##bytes((void *)h); \
		break;
		THC_SUM_CASE(512)
		THC_SUM_CASE(1024)
		THC_SUM_CASE(256)
#undef THC_SUM_CASE
	case 0:
		sum = thc_sum_fold(thc_sum_hdr(h));
		break;
	default:
		return THC_DROP_LENGTH;
	}
	return sum == thc_be32(h->sum) ? THC_DROP_NONE : THC_DROP_SUM;
}

/* JOIN, for the daemon, which refuses it itself, with a reason. @job may be NULL. */
static __always_inline enum thc_drop_reason thc_admit_joining(const struct thc_packet *p,
							      const struct thc_job *job, void *end)
{
	enum thc_drop_reason why;
	struct thc_bucket *b;
	u32 key = 0;

	b = bpf_map_lookup_elem(&strangers, &key);
	if (!b)
		return THC_DROP_INTERNAL;
	/* a clock that is cheap to read: tokens come every 5 ms */
	why = thc_admit_join(job, p->hdr, b, bpf_ktime_get_coarse_ns());
	if (why)
		return why;
	if (p->payload_len != sizeof(struct thc_join))
		return THC_DROP_LENGTH;
	if ((void *)(p->hdr + 1) + sizeof(struct thc_join) > end)
		return THC_DROP_TRUNCATED;
	if (thc_sum_bpf_16((void *)p->hdr) != thc_be32(p->hdr->sum))
		return THC_DROP_SUM;
	why = thc_admit_form(p->hdr);
	if (why)
		return why;
	return p->hdr->width ? THC_DROP_WIDTH : THC_DROP_NONE;
}

/* For fanout; a job's record is shared, so it is written only on a change. */
static __always_inline void thc_member_seen(struct thc_member *m, const struct thc_packet *p)
{
	const u16 *src = (const u16 *)p->eth->h_source;
	u16 *mac = (u16 *)m->mac;

	if (mac[0] == src[0] && mac[1] == src[1] && mac[2] == src[2] && m->vlan == p->vlan &&
	    m->tagged == p->tagged)
		return;
	mac[0] = src[0];
	mac[1] = src[1];
	mac[2] = src[2];
	m->vlan = p->vlan;
	m->tagged = p->tagged;
}

#endif /* THC_ADMIT_BPF_H */
