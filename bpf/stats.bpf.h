/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Per-CPU counters. One lookup a packet: callers pass the pointer on.
 */
#ifndef THC_STATS_BPF_H
#define THC_STATS_BPF_H

#include "maps.bpf.h"

static __always_inline struct thc_stats *thc_stats_get(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&stats, &key);
}

static __always_inline void thc_count(struct thc_stats *st, enum thc_event event)
{
	st->event[event]++;
}

#endif /* THC_STATS_BPF_H */
