// SPDX-License-Identifier: GPL-2.0
/*
 * thc.ko: the socket family AF_THC. Registration, and begin and end of a network namespace. Users
 * can reach the family as soon as it is registered, so that comes last, and goes first.
 */
#include <linux/module.h>
#include <linux/net.h>
#include <linux/percpu.h>
#include <linux/stringify.h>

#include "hostjob.h"
#include "join.h"
#include "netlink.h"
#include "netns.h"
#include "simd.h"
#include "sock.h"

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

static struct pernet_operations thc_net_ops = {
	.init	= thc_net_init,
	.exit	= thc_net_exit,
	.id	= &thc_net_id,
	.size	= sizeof(struct thc_net),
};

static const struct net_proto_family thc_family = {
	.family	= PF_THC,
	.create	= thc_socket_create,
	.owner	= THIS_MODULE,
};

static int __init thc_init(void)
{
	int error = proto_register(&thc_proto, 1);

	if (error)
		return error;
	error = thc_join_init();
	if (error)
		goto exit_socket;
	error = register_pernet_subsys(&thc_net_ops);
	if (error)
		goto exit_join;
	error = genl_register_family(&thc_genl);
	if (error)
		goto exit_netns;
	error = sock_register(&thc_family);
	if (error)
		goto exit_netlink;
	thc_simd_init();
	thc_kfunc_init();
	return 0;

exit_netlink:
	genl_unregister_family(&thc_genl);
exit_netns:
	unregister_pernet_subsys(&thc_net_ops);
exit_join:
	thc_join_exit();
exit_socket:
	proto_unregister(&thc_proto);
	return error;
}

static void __exit thc_exit(void)
{
	sock_unregister(PF_THC);
	genl_unregister_family(&thc_genl);
	unregister_pernet_subsys(&thc_net_ops);
	thc_join_exit();
	proto_unregister(&thc_proto);
	/* sockets and percpu counters that RCU still frees */
	rcu_barrier();
}

module_init(thc_init);
module_exit(thc_exit);

MODULE_DESCRIPTION("Gradient aggregation sockets (AF_THC)");
MODULE_AUTHOR("The THC authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(__stringify(THC_MODULE_VERSION));
MODULE_ALIAS_NETPROTO(PF_THC);
