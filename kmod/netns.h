/* SPDX-License-Identifier: GPL-2.0 */
/* The module's state of a network namespace. */
#ifndef THC_KMOD_NETNS_H
#define THC_KMOD_NETNS_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include <linux/thc.h>

struct thc_sock;

/**
 * struct thc_net - what the module keeps for a network namespace
 * @lock: guards both lists; taken outside of every socket's locks
 * @sockets: all sockets of AF_THC
 * @sockets_generation: changes whenever @sockets changes
 * @jobs: host jobs, at most THC_GENL_JOBS_MAX
 * @jobs_count: length of @jobs
 * @jobs_generation: changes whenever @jobs changes
 * @drops: received packets that changed nothing, by enum thc_drop_reason
 */
struct thc_net {
	struct mutex		lock;
	struct list_head	sockets;
	u32			sockets_generation;
	struct list_head	jobs;
	u32			jobs_count;
	u32			jobs_generation;
	u64 __percpu		*drops;
};

/* Under thc_net.lock. Never 0: netlink takes that for a dump that has just begun. */
static inline void thc_generation_next(u32 *generation)
{
	*generation = *generation + 1 ?: 1;
}

extern unsigned int thc_net_id;

static inline struct thc_net *thc_net_of(const struct net *net)
{
	return net_generic(net, thc_net_id);
}

void thc_net_add(struct thc_sock *ts);
void thc_net_del(struct thc_sock *ts);
void thc_net_drop(struct thc_sock *ts, enum thc_drop_reason reason);
u64 thc_net_drops(struct thc_net *tn, enum thc_drop_reason reason);
/* /proc/net/thc. */
int thc_proc_init(struct net *net);
void thc_proc_exit(struct net *net);

#endif /* THC_KMOD_NETNS_H */
