// SPDX-License-Identifier: GPL-2.0
/*
 * What belongs to a network namespace: its sockets, the jobs its
 * administrator has described, and counters of packets that were not used.
 * All of it goes with the namespace, which lives as long as its sockets.
 */
#include <linux/percpu.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#define CREATE_TRACE_POINTS
#include "sock.h"
#include "trace.h"

static unsigned int thc_net_id __read_mostly;

struct thc_net *thc_net_of(const struct net *net)
{
	return net_generic(net, thc_net_id);
}

void thc_net_add(struct thc_sock *ts)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

	mutex_lock(&tn->lock);
	list_add_tail(&ts->link, &tn->sockets);
	mutex_unlock(&tn->lock);
}

/* After this nobody finds it any more. */
void thc_net_del(struct thc_sock *ts)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

	mutex_lock(&tn->lock);
	list_del(&ts->link);
	mutex_unlock(&tn->lock);
}

/* Called with bottom halves off. */
void thc_net_drop(struct thc_sock *ts, enum thc_drop_reason reason)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

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

const char *thc_reason_name(enum thc_drop_reason reason)
{
	return thc_drop_name[reason].name;
}

int thc_host_job_find(struct net *net, u16 id, struct thc_host_job *out)
{
	struct thc_net *tn = thc_net_of(net);
	struct thc_host_job *job;
	int error = -ENOENT;

	mutex_lock(&tn->lock);
	list_for_each_entry(job, &tn->jobs, link) {
		if (job->id != id)
			continue;
		*out = *job;
		error = 0;
		break;
	}
	mutex_unlock(&tn->lock);
	return error;
}

static int __net_init thc_net_init(struct net *net)
{
	struct thc_net *tn = thc_net_of(net);
	int error;

	mutex_init(&tn->lock);
	INIT_LIST_HEAD(&tn->sockets);
	INIT_LIST_HEAD(&tn->jobs);
	tn->drops = __alloc_percpu(sizeof(u64) * THC_WORKER_DROP_REASONS, sizeof(u64));
	if (!tn->drops)
		return -ENOMEM;
	error = thc_proc_init(net);
	if (error)
		free_percpu(tn->drops);
	return error;
}

static void __net_exit thc_net_exit(struct net *net)
{
	struct thc_net *tn = thc_net_of(net);
	struct thc_host_job *job, *next;

	thc_proc_exit(net);
	WARN_ON_ONCE(!list_empty(&tn->sockets));
	list_for_each_entry_safe(job, next, &tn->jobs, link)
		kfree_sensitive(job);
	free_percpu(tn->drops);
}

static struct pernet_operations thc_net_ops = {
	.init	= thc_net_init,
	.exit	= thc_net_exit,
	.id	= &thc_net_id,
	.size	= sizeof(struct thc_net),
};

int thc_netns_init(void)
{
	return register_pernet_subsys(&thc_net_ops);
}

void thc_netns_exit(void)
{
	unregister_pernet_subsys(&thc_net_ops);
}
