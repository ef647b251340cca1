// SPDX-License-Identifier: GPL-2.0
/*
 * thc.ko: the socket family AF_THC. Registration and nothing else; what is
 * registered last can be reached by users, and goes first.
 */
#include <linux/module.h>
#include <linux/net.h>
#include <linux/stringify.h>

#include "join.h"
#include "netlink.h"
#include "netns.h"
#include "simd.h"
#include "sock.h"

static const struct net_proto_family thc_family = {
	.family	= PF_THC,
	.create	= thc_socket_create,
	.owner	= THIS_MODULE,
};

static int __init thc_init(void)
{
	int error = thc_socket_init();

	if (error)
		return error;
	error = thc_join_init();
	if (error)
		goto exit_socket;
	error = thc_netns_init();
	if (error)
		goto exit_join;
	error = thc_netlink_init();
	if (error)
		goto exit_netns;
	error = sock_register(&thc_family);
	if (error)
		goto exit_netlink;
	thc_simd_init();
	thc_kfunc_init();
	return 0;

exit_netlink:
	thc_netlink_exit();
exit_netns:
	thc_netns_exit();
exit_join:
	thc_join_exit();
exit_socket:
	thc_socket_exit();
	return error;
}

static void __exit thc_exit(void)
{
	sock_unregister(PF_THC);
	thc_netlink_exit();
	thc_netns_exit();
	thc_join_exit();
	thc_socket_exit();
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
