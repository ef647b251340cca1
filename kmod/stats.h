/* SPDX-License-Identifier: GPL-2.0 */
/* Counters of sockets and namespaces, and words for states and reasons. */
#ifndef THC_KMOD_STATS_H
#define THC_KMOD_STATS_H

#include <linux/thc.h>

struct thc_net;
struct thc_sock;

/* One word for a state, a reason: the same in netlink, /proc and traces. */
extern const char *const thc_state_name[];
const char *thc_reason_name(enum thc_drop_reason reason);
void thc_show_stats(struct thc_sock *ts, struct thc_socket_stats *stats);
void thc_net_drop(struct thc_sock *ts, enum thc_drop_reason reason);
u64 thc_net_drops(struct thc_net *tn, enum thc_drop_reason reason);

#endif /* THC_KMOD_STATS_H */
