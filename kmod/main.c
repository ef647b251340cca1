// SPDX-License-Identifier: GPL-2.0
/*
 * thc.ko: the socket family AF_THC. Registration and nothing else.
 */
#include <linux/module.h>
#include <linux/net.h>

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
	error = sock_register(&thc_family);
	if (error)
		thc_socket_exit();
	return error;
}

static void __exit thc_exit(void)
{
	sock_unregister(PF_THC);
	thc_socket_exit();
}

module_init(thc_init);
module_exit(thc_exit);

MODULE_DESCRIPTION("Gradient aggregation sockets (AF_THC)");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1");
MODULE_ALIAS_NETPROTO(PF_THC);
