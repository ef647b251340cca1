// SPDX-License-Identifier: GPL-2.0
/*
 * Generic netlink: what the sockets of a network namespace are doing, and the
 * packets that they could not use. Anybody may ask.
 */
#include <net/sock.h>
#include <thc/names.h>

#include "netlink.h"
#include "netns.h"
#include "sock.h"
#include "state.h"

static int put_socket(struct sk_buff *skb, struct netlink_callback *cb, struct list_head *entry)
{
	struct thc_sock *ts = list_entry(entry, struct thc_sock, list);
	void *head = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &thc_genl,
				 NLM_F_MULTI, THC_CMD_SOCKET_GET);
	struct thc_socket_stats stats;
	struct nlattr *nest;
	bool full;

	if (!head)
		return -EMSGSIZE;
	nest = nla_nest_start(skb, THC_ATTR_SOCKET);
	if (!nest)
		goto cancel;
	if (nla_put_u64_64bit(skb, THC_SOCK_INODE, sock_i_ino(&ts->sk), THC_SOCK_PAD) ||
	    nla_put_u32(skb, THC_SOCK_UID, from_kuid_munged(sk_user_ns(skb->sk), sk_uid(&ts->sk))))
		goto cancel;
	spin_lock_bh(&ts->lock);
	thc_show_stats(ts, &stats);
	full = nla_put_u16(skb, THC_SOCK_JOB, ts->remote.sthc_job) ||
	       nla_put_u8(skb, THC_SOCK_RANK, ts->remote.sthc_rank) ||
	       nla_put_string(skb, THC_SOCK_STATE, thc_state_name[ts->state]) ||
	       nla_put_u32(skb, THC_SOCK_EPOCH, ts->shards ? ts->peers[0]->joining.epoch : 0) ||
	       nla_put_u32(skb, THC_SOCK_SHARDS, ts->shards) ||
	       nla_put(skb, THC_SOCK_STATS, sizeof(stats), &stats);
	spin_unlock_bh(&ts->lock);
	if (full)
		goto cancel;
	nla_nest_end(skb, nest);
	genl_dump_check_consistent(cb, head);
	genlmsg_end(skb, head);
	return 0;
cancel:
	genlmsg_cancel(skb, head);
	return -EMSGSIZE;
}

int thc_nl_socket_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct thc_net *tn = thc_net_of(sock_net(skb->sk));

	return thc_nl_dump(skb, cb, &tn->sockets, &tn->sockets_generation, put_socket);
}

static int put_reason(struct sk_buff *skb, struct thc_net *tn, enum thc_drop_reason reason)
{
	struct nlattr *nest = nla_nest_start(skb, THC_ATTR_DROP);

	if (!nest)
		return -EMSGSIZE;
	if (nla_put_string(skb, THC_REASON_NAME, thc_drop_name[reason].name) ||
	    nla_put_u64_64bit(skb, THC_REASON_PACKETS, thc_net_drops(tn, reason), THC_REASON_PAD))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

int thc_nl_stats_get(struct sk_buff *skb, struct genl_info *info)
{
	struct thc_net *tn = thc_net_of(genl_info_net(info));
	struct sk_buff *reply = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	int reason;
	void *head;

	if (!reply)
		return -ENOMEM;
	head = genlmsg_put_reply(reply, info, &thc_genl, 0, THC_CMD_STATS_GET);
	if (!head)
		goto full;
	for (reason = 0; reason < THC_WORKER_DROP_REASONS; reason++)
		if (thc_drop_is_reason(reason) && put_reason(reply, tn, reason))
			goto full;
	genlmsg_end(reply, head);
	return genlmsg_reply(reply, info);
full:
	nlmsg_free(reply);
	return -EMSGSIZE;
}
