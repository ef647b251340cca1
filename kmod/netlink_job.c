// SPDX-License-Identifier: GPL-2.0
/*
 * Generic netlink: the administrator describes jobs, so that processes may
 * join them without knowing their secret. hostjob.c keeps them.
 */
#include <linux/slab.h>
#include <linux/stringify.h>

#include "hostjob.h"
#include "netlink.h"
#include "netns.h"
#include "sock.h"

#define TOO_MANY "too many aggregators: a job has at most " __stringify(THC_GENL_AGGREGATORS_MAX)
#define NO_ROOM "a namespace has at most " __stringify(THC_GENL_JOBS_MAX) " jobs: delete one"

/* Tells the administrator @text, about attribute @attr unless it is NULL. Its value is @error. */
#define REFUSE(extack, attr, error, text) \
	({ \
		NL_SET_ERR_MSG_ATTR(extack, attr, text); \
		error; \
	})

static const struct nla_policy aggregator_policy[THC_AGGR_MAX + 1] = {
	[THC_AGGR_IPV4]		= NLA_POLICY_EXACT_LEN(sizeof(struct in_addr)),
	[THC_AGGR_IPV6]		= NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[THC_AGGR_PORT]		= NLA_POLICY_MIN(NLA_U16, 1),
	[THC_AGGR_IFINDEX]	= NLA_POLICY_MIN(NLA_U32, 1),
};

static const struct nla_policy ids_policy[THC_IDS_MAX + 1] = {
	[THC_IDS_FIRST]		= { .type = NLA_U32 },
	[THC_IDS_LAST]		= { .type = NLA_U32 },
};

const struct nla_policy thc_nl_job_policy[] = {
	[THC_ATTR_JOB]		= { .type = NLA_U16 },
	[THC_ATTR_KEY]		= NLA_POLICY_EXACT_LEN(THC_KEY_BYTES),
	[THC_ATTR_AGGREGATOR]	= NLA_POLICY_NESTED(aggregator_policy),
	[THC_ATTR_USERS]	= NLA_POLICY_NESTED(ids_policy),
	[THC_ATTR_GROUPS]	= NLA_POLICY_NESTED(ids_policy),
};

const struct nla_policy thc_nl_id_policy[] = {
	[THC_ATTR_JOB]		= { .type = NLA_U16 },
};

/* --- jobs in -------------------------------------------------------------- */

static int parse_aggregator(const struct nlattr *nest, struct thc_address *out,
			    struct netlink_ext_ack *extack)
{
	struct nlattr *tb[THC_AGGR_MAX + 1];
	int error = nla_parse_nested(tb, THC_AGGR_MAX, nest, aggregator_policy, extack);

	if (error)
		return error;
	if (!tb[THC_AGGR_IPV4] == !tb[THC_AGGR_IPV6])
		return REFUSE(extack, NULL, -EINVAL, "an aggregator has one address, IPv4 or IPv6");
	memset(out, 0, sizeof(*out));
	out->inet = tb[THC_AGGR_IPV4] ? AF_INET : AF_INET6;
	if (tb[THC_AGGR_IPV4])
		out->in = nla_get_in_addr(tb[THC_AGGR_IPV4]);
	else
		out->in6 = nla_get_in6_addr(tb[THC_AGGR_IPV6]);
	if (!thc_address_is_host(out))
		return REFUSE(extack, NULL, -EINVAL, "an aggregator's address is that of one host");
	out->port = htons(tb[THC_AGGR_PORT] ? nla_get_u16(tb[THC_AGGR_PORT]) : THC_PORT_DEFAULT);
	if (tb[THC_AGGR_IFINDEX])
		out->ifindex = (int)nla_get_u32(tb[THC_AGGR_IFINDEX]);
	/* as in struct sockaddr_thc */
	if (out->ifindex < 0)
		return REFUSE(extack, tb[THC_AGGR_IFINDEX], -ERANGE,
			      "an interface's number is at most 2147483647");
	return 0;
}

/* Users or groups; without @nest there are none. */
static int parse_ids(const struct nlattr *nest, struct thc_ids *out, struct netlink_ext_ack *extack)
{
	struct nlattr *tb[THC_IDS_MAX + 1];
	int error;

	out->first = 1;
	out->last = 0;
	if (!nest)
		return 0;
	error = nla_parse_nested(tb, THC_IDS_MAX, nest, ids_policy, extack);
	if (error)
		return error;
	if (!tb[THC_IDS_FIRST] || !tb[THC_IDS_LAST])
		return REFUSE(extack, nest, -EINVAL, "a range needs its first and its last number");
	out->first = nla_get_u32(tb[THC_IDS_FIRST]);
	out->last = nla_get_u32(tb[THC_IDS_LAST]);
	if (out->last == U32_MAX)
		return REFUSE(extack, tb[THC_IDS_LAST], -ERANGE,
			      "a user's or group's number is at most 4294967294");
	if (out->first > out->last)
		return REFUSE(extack, nest, -EINVAL,
			      "a range's last number is not less than its first one");
	return 0;
}

static int parse_job(struct genl_info *info, struct thc_host_job *job)
{
	struct nlattr *nest;
	int rest, error;

	if (!info->attrs[THC_ATTR_JOB] || !info->attrs[THC_ATTR_KEY])
		return REFUSE(info->extack, NULL, -EINVAL, "a job needs its number and its key");
	job->id = nla_get_u16(info->attrs[THC_ATTR_JOB]);
	memcpy(job->key, nla_data(info->attrs[THC_ATTR_KEY]), sizeof(job->key));
	error = parse_ids(info->attrs[THC_ATTR_USERS], &job->users, info->extack) ?:
			parse_ids(info->attrs[THC_ATTR_GROUPS], &job->groups, info->extack);
	if (error)
		return error;
	nlmsg_for_each_attr(nest, info->nlhdr, GENL_HDRLEN, rest) {
		if (nla_type(nest) != THC_ATTR_AGGREGATOR)
			continue;
		if (job->shards == THC_GENL_AGGREGATORS_MAX)
			return REFUSE(info->extack, NULL, -E2BIG, TOO_MANY);
		error = parse_aggregator(nest, &job->aggregator[job->shards++], info->extack);
		if (error)
			return error;
	}
	if (!job->shards)
		return REFUSE(info->extack, NULL, -EINVAL, "a job needs an aggregator");
	return 0;
}

/* Wipes the keys in the message, whose memory will be reused. A message may have several: the last
 * one counts, but each is secret.
 */
static void wipe_keys(struct genl_info *info)
{
	struct nlattr *attr;
	int left;

	nlmsg_for_each_attr(attr, info->nlhdr, GENL_HDRLEN, left) {
		if (nla_type(attr) == THC_ATTR_KEY)
			memzero_explicit(nla_data(attr), nla_len(attr));
	}
}

int thc_nl_job_new(struct sk_buff *skb, struct genl_info *info)
{
	struct thc_host_job *job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	int error;

	error = job ? parse_job(info, job) : -ENOMEM;
	wipe_keys(info);
	if (!error) {
		error = thc_host_job_add(genl_info_net(info), job);
		if (error == -ENOSPC)
			NL_SET_ERR_MSG(info->extack, NO_ROOM);
		else if (error)
			NL_SET_ERR_MSG(info->extack,
				       "this host knows the job already: delete it first");
	}
	if (error)
		kfree_sensitive(job);
	return error;
}

int thc_nl_job_del(struct sk_buff *skb, struct genl_info *info)
{
	int error;

	if (!info->attrs[THC_ATTR_JOB])
		return REFUSE(info->extack, NULL, -EINVAL, "which job?");
	error = thc_host_job_del(genl_info_net(info), nla_get_u16(info->attrs[THC_ATTR_JOB]));
	if (error)
		NL_SET_ERR_MSG(info->extack, "this host knows no such job");
	return error;
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
	    (a->ifindex && nla_put_u32(skb, THC_AGGR_IFINDEX, a->ifindex)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

/* Into @nest, which is NULL if there was no room for it. */
static int put_ids(struct sk_buff *skb, struct nlattr *nest, const struct thc_ids *ids)
{
	if (!nest || nla_put_u32(skb, THC_IDS_FIRST, ids->first) ||
	    nla_put_u32(skb, THC_IDS_LAST, ids->last))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static bool are_any(const struct thc_ids *ids)
{
	return ids->first <= ids->last;
}

/* All but the key. @cb: the dump's that it is part of, or NULL. */
static int put_job(struct sk_buff *skb, const struct thc_host_job *job, u32 portid, u32 seq,
		   struct netlink_callback *cb)
{
	void *head =
		genlmsg_put(skb, portid, seq, &thc_genl, cb ? NLM_F_MULTI : 0, THC_CMD_JOB_GET);
	u32 i;

	if (!head)
		return -EMSGSIZE;
	if (nla_put_u16(skb, THC_ATTR_JOB, job->id))
		goto cancel;
	for (i = 0; i < job->shards; i++)
		if (put_aggregator(skb, &job->aggregator[i]))
			goto cancel;
	if (are_any(&job->users) && put_ids(skb, nla_nest_start(skb, THC_ATTR_USERS), &job->users))
		goto cancel;
	if (are_any(&job->groups) &&
	    put_ids(skb, nla_nest_start(skb, THC_ATTR_GROUPS), &job->groups))
		goto cancel;
	if (cb)
		genl_dump_check_consistent(cb, head);
	genlmsg_end(skb, head);
	return 0;
cancel:
	genlmsg_cancel(skb, head);
	return -EMSGSIZE;
}

int thc_nl_job_get(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply = NULL;
	struct thc_host_job *job;
	int error;

	if (!info->attrs[THC_ATTR_JOB])
		return REFUSE(info->extack, NULL, -EINVAL, "which job? A dump lists all");
	job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	if (!job)
		return -ENOMEM;
	error = thc_host_job_find(genl_info_net(info), nla_get_u16(info->attrs[THC_ATTR_JOB]),
				  false, job);
	if (error)
		NL_SET_ERR_MSG(info->extack, "this host knows no such job");
	else
		reply = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (reply)
		error = put_job(reply, job, info->snd_portid, info->snd_seq, NULL);
	else if (!error)
		error = -ENOMEM;
	kfree_sensitive(job);
	if (error) {
		nlmsg_free(reply);
		return error;
	}
	return genlmsg_reply(reply, info);
}

int thc_nl_job_dump_start(struct netlink_callback *cb)
{
	if (!nlmsg_attrlen(cb->nlh, GENL_HDRLEN))
		return 0;
	return REFUSE(cb->extack, NULL, -EINVAL, "a dump lists all jobs: it takes no attributes");
}

static int dump_job(struct sk_buff *skb, struct netlink_callback *cb, struct list_head *entry)
{
	return put_job(skb, list_entry(entry, struct thc_host_job, list),
		       NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, cb);
}

int thc_nl_job_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct thc_net *tn = thc_net_of(sock_net(skb->sk));

	return thc_nl_dump(skb, cb, &tn->jobs, &tn->jobs_generation, dump_job);
}
