// SPDX-License-Identifier: GPL-2.0
/*
 * Generic netlink: the administrator describes jobs, so that processes may
 * join them without knowing their secret; anybody may ask what goes on.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <net/genetlink.h>
#include <net/sock.h>

#include <linux/thc_netlink.h>

#include "sock.h"

static struct genl_family thc_genl;

static const struct nla_policy aggregator_policy[THC_AGGR_MAX + 1] = {
	[THC_AGGR_IPV4]		= NLA_POLICY_EXACT_LEN(sizeof(struct in_addr)),
	[THC_AGGR_IPV6]		= NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[THC_AGGR_PORT]		= NLA_POLICY_MIN(NLA_U16, 1),
	[THC_AGGR_IFINDEX]	= NLA_POLICY_MIN(NLA_U32, 1),
};

static const struct nla_policy thc_policy[THC_ATTR_MAX + 1] = {
	[THC_ATTR_JOB]		= { .type = NLA_U16 },
	[THC_ATTR_COOKIE]	= { .type = NLA_U64 },
	[THC_ATTR_AGGREGATOR]	= NLA_POLICY_NESTED(aggregator_policy),
};

/* --- jobs in -------------------------------------------------------------- */

static int take_aggregator(const struct nlattr *nest, struct thc_address *out,
			   struct netlink_ext_ack *extack)
{
	struct nlattr *tb[THC_AGGR_MAX + 1];
	int error = nla_parse_nested(tb, THC_AGGR_MAX, nest, aggregator_policy, extack);

	if (error)
		return error;
	if (!tb[THC_AGGR_IPV4] == !tb[THC_AGGR_IPV6]) {
		NL_SET_ERR_MSG(extack, "an aggregator has one address, IPv4 or IPv6");
		return -EINVAL;
	}
	memset(out, 0, sizeof(*out));
	out->inet = tb[THC_AGGR_IPV4] ? AF_INET : AF_INET6;
	if (tb[THC_AGGR_IPV4])
		out->in = nla_get_in_addr(tb[THC_AGGR_IPV4]);
	else
		out->in6 = nla_get_in6_addr(tb[THC_AGGR_IPV6]);
	if (!thc_address_is_host(out)) {
		NL_SET_ERR_MSG(extack, "an aggregator's address is that of one host");
		return -EINVAL;
	}
	out->port = htons(tb[THC_AGGR_PORT] ? nla_get_u16(tb[THC_AGGR_PORT]) : THC_PORT_DEFAULT);
	if (tb[THC_AGGR_IFINDEX])
		out->ifindex = nla_get_u32(tb[THC_AGGR_IFINDEX]);
	return 0;
}

static int take_job(struct genl_info *info, struct thc_host_job *job)
{
	struct nlattr *nest;
	int rest, error;

	if (!info->attrs[THC_ATTR_JOB] || !info->attrs[THC_ATTR_COOKIE]) {
		NL_SET_ERR_MSG(info->extack, "a job needs its number and its cookie");
		return -EINVAL;
	}
	job->id = nla_get_u16(info->attrs[THC_ATTR_JOB]);
	job->cookie = nla_get_u64(info->attrs[THC_ATTR_COOKIE]);
	nlmsg_for_each_attr(nest, info->nlhdr, GENL_HDRLEN, rest) {
		if (nla_type(nest) != THC_ATTR_AGGREGATOR)
			continue;
		if (job->shards == THC_SHARDS_MAX) {
			NL_SET_ERR_MSG(info->extack, "too many aggregators: a job has at most 8");
			return -E2BIG;
		}
		error = take_aggregator(nest, &job->aggregator[job->shards++], info->extack);
		if (error)
			return error;
	}
	if (!job->shards) {
		NL_SET_ERR_MSG(info->extack, "a job needs an aggregator");
		return -EINVAL;
	}
	return 0;
}

/* Called with thc_net.lock held. */
static struct thc_host_job *find(struct thc_net *tn, u16 id)
{
	struct thc_host_job *job;

	list_for_each_entry(job, &tn->jobs, link)
		if (job->id == id)
			return job;
	return NULL;
}

static int job_new(struct sk_buff *skb, struct genl_info *info)
{
	struct thc_net *tn = thc_net_of(genl_info_net(info));
	struct thc_host_job *job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	int error;

	if (!job)
		return -ENOMEM;
	error = take_job(info, job);
	if (error)
		goto free;
	mutex_lock(&tn->lock);
	if (find(tn, job->id)) {
		NL_SET_ERR_MSG(info->extack, "this host knows the job already: delete it first");
		error = -EEXIST;
	} else {
		list_add_tail(&job->link, &tn->jobs);
	}
	mutex_unlock(&tn->lock);
	if (!error)
		return 0;
free:
	kfree_sensitive(job);
	return error;
}

static int job_del(struct sk_buff *skb, struct genl_info *info)
{
	struct thc_net *tn = thc_net_of(genl_info_net(info));
	struct thc_host_job *job;

	if (!info->attrs[THC_ATTR_JOB]) {
		NL_SET_ERR_MSG(info->extack, "which job?");
		return -EINVAL;
	}
	mutex_lock(&tn->lock);
	job = find(tn, nla_get_u16(info->attrs[THC_ATTR_JOB]));
	if (job)
		list_del(&job->link);
	mutex_unlock(&tn->lock);
	if (!job) {
		NL_SET_ERR_MSG(info->extack, "this host knows no such job");
		return -ENOENT;
	}
	kfree_sensitive(job);
	return 0;
}

/* --- jobs out ------------------------------------------------------------- */

static int put_aggregator(struct sk_buff *skb, const struct thc_address *a)
{
	struct nlattr *nest = nla_nest_start(skb, THC_ATTR_AGGREGATOR);
	int error;

	if (!nest)
		return -EMSGSIZE;
	if (a->inet == AF_INET)
		error = nla_put_in_addr(skb, THC_AGGR_IPV4, a->in);
	else
		error = nla_put_in6_addr(skb, THC_AGGR_IPV6, &a->in6);
	if (error || nla_put_u16(skb, THC_AGGR_PORT, ntohs(a->port)) ||
	    (a->ifindex && nla_put_u32(skb, THC_AGGR_IFINDEX, a->ifindex))) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

static int put_job(struct sk_buff *skb, const struct thc_host_job *job, u32 portid, u32 seq,
		   int flags, bool secret)
{
	void *head = genlmsg_put(skb, portid, seq, &thc_genl, flags, THC_CMD_JOB_GET);
	u32 i;

	if (!head)
		return -EMSGSIZE;
	if (nla_put_u16(skb, THC_ATTR_JOB, job->id) ||
	    (secret && nla_put_u64_64bit(skb, THC_ATTR_COOKIE, job->cookie, THC_ATTR_PAD)))
		goto cancel;
	for (i = 0; i < job->shards; i++)
		if (put_aggregator(skb, &job->aggregator[i]))
			goto cancel;
	genlmsg_end(skb, head);
	return 0;
cancel:
	genlmsg_cancel(skb, head);
	return -EMSGSIZE;
}

static int job_get(struct sk_buff *skb, struct genl_info *info)
{
	bool secret = netlink_ns_capable(skb, genl_info_net(info)->user_ns, CAP_NET_ADMIN);
	struct thc_host_job job;
	struct sk_buff *reply;
	int error;

	if (!info->attrs[THC_ATTR_JOB]) {
		NL_SET_ERR_MSG(info->extack, "which job? A dump lists all");
		return -EINVAL;
	}
	error = thc_host_job_find(genl_info_net(info), nla_get_u16(info->attrs[THC_ATTR_JOB]),
				  &job);
	if (error) {
		NL_SET_ERR_MSG(info->extack, "this host knows no such job");
		return error;
	}
	reply = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!reply)
		return -ENOMEM;
	error = put_job(reply, &job, info->snd_portid, info->snd_seq, 0, secret);
	if (error) {
		nlmsg_free(reply);
		return error;
	}
	return genlmsg_reply(reply, info);
}

static int job_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct net *net = sock_net(skb->sk);
	bool secret = netlink_ns_capable(cb->skb, net->user_ns, CAP_NET_ADMIN);
	struct thc_net *tn = thc_net_of(net);
	struct thc_host_job *job;
	long at = 0;

	mutex_lock(&tn->lock);
	list_for_each_entry(job, &tn->jobs, link) {
		if (at++ < cb->args[0])
			continue;
		if (put_job(skb, job, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, NLM_F_MULTI,
			    secret))
			break;
		cb->args[0]++;
	}
	mutex_unlock(&tn->lock);
	return skb->len;
}

/* --- sockets and counters ------------------------------------------------- */

static int put_socket(struct sk_buff *skb, struct thc_sock *ts, u32 portid, u32 seq)
{
	void *head = genlmsg_put(skb, portid, seq, &thc_genl, NLM_F_MULTI, THC_CMD_SOCKET_GET);
	struct thc_socket_stats stats;
	struct nlattr *nest;
	enum thc_state state;
	u32 epoch, shards;
	u16 job;
	u8 rank;

	if (!head)
		return -EMSGSIZE;
	nest = nla_nest_start(skb, THC_ATTR_SOCKET);
	if (!nest)
		goto cancel;
	spin_lock_bh(&ts->lock);
	thc_show_stats(ts, &stats);
	state = ts->state;
	job = ts->remote.sthc_job;
	rank = ts->remote.sthc_rank;
	shards = ts->shards;
	epoch = shards ? ts->peers[0].joined.epoch : 0;
	spin_unlock_bh(&ts->lock);
	if (nla_put_u64_64bit(skb, THC_SOCK_INODE, sock_i_ino(&ts->sk), THC_SOCK_PAD) ||
	    nla_put_u32(skb, THC_SOCK_UID,
			from_kuid_munged(sk_user_ns(skb->sk), sock_i_uid(&ts->sk))) ||
	    nla_put_u16(skb, THC_SOCK_JOB, job) || nla_put_u8(skb, THC_SOCK_RANK, rank) ||
	    nla_put_string(skb, THC_SOCK_STATE, thc_state_name[state]) ||
	    nla_put_u32(skb, THC_SOCK_EPOCH, epoch) || nla_put_u32(skb, THC_SOCK_SHARDS, shards) ||
	    nla_put(skb, THC_SOCK_STATS, sizeof(stats), &stats))
		goto cancel;
	nla_nest_end(skb, nest);
	genlmsg_end(skb, head);
	return 0;
cancel:
	genlmsg_cancel(skb, head);
	return -EMSGSIZE;
}

static int socket_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct thc_net *tn = thc_net_of(sock_net(skb->sk));
	struct thc_sock *ts;
	long at = 0;
	int error;

	mutex_lock(&tn->lock);
	list_for_each_entry(ts, &tn->sockets, link) {
		if (at++ < cb->args[0])
			continue;
		error = put_socket(skb, ts, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq);
		if (error)
			break;
		cb->args[0]++;
	}
	mutex_unlock(&tn->lock);
	return skb->len;
}

static int put_reason(struct sk_buff *skb, struct thc_net *tn, enum thc_drop_reason reason)
{
	struct nlattr *nest = nla_nest_start(skb, THC_ATTR_DROP);

	if (!nest)
		return -EMSGSIZE;
	if (nla_put_string(skb, THC_REASON_NAME, thc_reason_name(reason)) ||
	    nla_put_u64_64bit(skb, THC_REASON_PACKETS, thc_net_drops(tn, reason), THC_REASON_PAD)) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

static int stats_get(struct sk_buff *skb, struct genl_info *info)
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
	for (reason = THC_DROP_NONE + 1; reason < THC_WORKER_DROP_REASONS; reason++)
		if (put_reason(reply, tn, reason))
			goto full;
	genlmsg_end(reply, head);
	return genlmsg_reply(reply, info);
full:
	nlmsg_free(reply);
	return -EMSGSIZE;
}

/* --- the family ----------------------------------------------------------- */

static const struct genl_small_ops thc_genl_ops[] = {
	{ .cmd = THC_CMD_JOB_NEW, .doit = job_new, .flags = GENL_UNS_ADMIN_PERM },
	{ .cmd = THC_CMD_JOB_DEL, .doit = job_del, .flags = GENL_UNS_ADMIN_PERM },
	{ .cmd = THC_CMD_JOB_GET, .doit = job_get, .dumpit = job_dump },
	{ .cmd = THC_CMD_SOCKET_GET, .dumpit = socket_dump },
	{ .cmd = THC_CMD_STATS_GET, .doit = stats_get },
};

static struct genl_family thc_genl __ro_after_init = {
	.name		= THC_GENL_NAME,
	.version	= THC_GENL_VERSION,
	.maxattr	= THC_ATTR_MAX,
	.policy		= thc_policy,
	.netnsok	= true,
	.module		= THIS_MODULE,
	.small_ops	= thc_genl_ops,
	.n_small_ops	= ARRAY_SIZE(thc_genl_ops),
	.resv_start_op	= THC_CMD_UNSPEC + 1,
};

int thc_netlink_init(void)
{
	return genl_register_family(&thc_genl);
}

void thc_netlink_exit(void)
{
	genl_unregister_family(&thc_genl);
}

MODULE_ALIAS_GENL_FAMILY(THC_GENL_NAME);
