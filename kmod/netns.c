// SPDX-License-Identifier: GPL-2.0
/*
 * The sockets of a network namespace. Its host jobs are hostjob.c's, its counters stats.c's;
 * main.c makes and frees all of it with the namespace, which lives as long as its sockets.
 */
#include "netns.h"
#include "sock.h"

unsigned int thc_net_id __read_mostly;

void thc_net_add(struct thc_sock *ts)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

	mutex_lock(&tn->lock);
	list_add_tail(&ts->list, &tn->sockets);
	thc_generation_next(&tn->sockets_generation);
	mutex_unlock(&tn->lock);
}

/* After this, netlink and /proc do not find the socket any more. */
void thc_net_del(struct thc_sock *ts)
{
	struct thc_net *tn = thc_net_of(sock_net(&ts->sk));

	mutex_lock(&tn->lock);
	list_del(&ts->list);
	thc_generation_next(&tn->sockets_generation);
	mutex_unlock(&tn->lock);
}
