// SPDX-License-Identifier: GPL-2.0
/* Generic netlink: dumps of a list of a network namespace, in as many parts as they need. */
#include <net/sock.h>

#include "netlink.h"
#include "netns.h"

int thc_nl_dump(struct sk_buff *skb, struct netlink_callback *cb, struct list_head *list,
		const u32 *generation, thc_nl_put *put)
{
	struct thc_net *tn = thc_net_of(sock_net(skb->sk));
	struct list_head *entry;
	int error = 0;
	long at = 0;

	mutex_lock(&tn->lock);
	cb->seq = *generation;
	list_for_each(entry, list) {
		if (at++ < cb->args[0])
			continue;
		error = put(skb, cb, entry);
		if (error)
			break;
		cb->args[0]++;
	}
	mutex_unlock(&tn->lock);
	/* an entry that does not fit is for the next part, unless this part is empty */
	return skb->len ?: error;
}
