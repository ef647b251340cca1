// SPDX-License-Identifier: GPL-2.0
/*
 * What the module keeps for a network namespace, from its birth to its death:
 * the list of its sockets here; its host jobs are hostjob.c's, its counters
 * stats.c's. All of it goes with the namespace, which lives as long as its
 * sockets.
 */
#include <linux/percpu.h>
#include <net/net_namespace.h>

#include "hostjob.h"
#include "netns.h"
#include "sock.h"

unsigned int thc_net_id __read_mostly;

void thc_net_add(struct thc_sock *ts)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

	mutex_lock(&tn->lock);
	list_add_tail(&ts->link, &tn->sockets);
	thc_generation_next(&tn->sockets_generation);
	mutex_unlock(&tn->lock);
}

/* After this nobody finds it any more. */
void thc_net_del(struct thc_sock *ts)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

	mutex_lock(&tn->lock);
	list_del(&ts->link);
	thc_generation_next(&tn->sockets_generation);
	mutex_unlock(&tn->lock);
}

static int __net_init thc_net_init(struct net *net)
{
	struct thc_net *tn = thc_net_of(net);
	int error;

	mutex_init(&tn->lock);
	INIT_LIST_HEAD(&tn->sockets);
	INIT_LIST_HEAD(&tn->jobs);
	tn->sockets_generation = 1;
	tn->jobs_generation = 1;
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

	thc_proc_exit(net);
	WARN_ON_ONCE(!list_empty(&tn->sockets));
	thc_host_jobs_free(tn);
	free_percpu(tn->drops);
}

struct pernet_operations thc_net_ops = {
	.init	= thc_net_init,
	.exit	= thc_net_exit,
	.id	= &thc_net_id,
	.size	= sizeof(struct thc_net),
};
