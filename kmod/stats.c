// SPDX-License-Identifier: GPL-2.0
/* Counters of a socket and of a network namespace. */
#include <linux/percpu.h>

#define CREATE_TRACE_POINTS
#include "netns.h"
#include "sock.h"
#include "trace.h"

void thc_show_stats(struct thc_sock *ts, struct thc_socket_stats *stats)
{
	u32 i;

	lockdep_assert_held(&ts->lock);
	*stats = ts->stats;
	stats->foreign += atomic64_read(&ts->strangers);
	for (i = 0; i < ts->shards; i++) {
		const struct thc_window *w = &ts->peers[i]->sender.window;

		stats->window_cuts += w->cuts;
		stats->window += thc_window_size(w);
		stats->rtt_us = max(stats->rtt_us, div_u64(w->srtt, THC_NS_PER_US));
	}
}

void thc_net_drop(struct thc_sock *ts, enum thc_drop_reason reason)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

	lockdep_assert(in_softirq());
	__this_cpu_inc(tn->drops[reason]);
	trace_thc_drop(&ts->sk, reason);
}

u64 thc_net_drops(struct thc_net *tn, enum thc_drop_reason reason)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(tn->drops, cpu)[reason]);
	return sum;
}
