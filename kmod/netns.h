/* SPDX-License-Identifier: GPL-2.0 */
/* What the module keeps for a network namespace. */
#ifndef THC_KMOD_NETNS_H
#define THC_KMOD_NETNS_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <net/net_namespace.h>

struct thc_sock;

/**
 * struct thc_net - what the module keeps for a network namespace
 * @lock: guards both lists; taken outside of every socket's locks
 * @sockets: all of AF_THC
 * @sockets_generation: another one after each change of that list
 * @jobs: of netlink, at most THC_GENL_JOBS_MAX
 * @jobs_count: length of that list
 * @jobs_generation: another one after each change of that list
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

struct thc_net *thc_net_of(const struct net *net);
void thc_net_add(struct thc_sock *ts);
void thc_net_del(struct thc_sock *ts);
int thc_netns_init(void);
void thc_netns_exit(void);

#endif /* THC_KMOD_NETNS_H */
