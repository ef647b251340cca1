/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Generic netlink family "thc" in parts: netlink.c has its commands, whose
 * functions are in netlink_job.c and netlink_show.c. In dumps (netlink_dump.c)
 * the list may change between two parts: its generation is cb->seq, so that user
 * space is told (NLM_F_DUMP_INTR) and asks again.
 */
#ifndef THC_KMOD_NETLINK_H
#define THC_KMOD_NETLINK_H

#include <net/genetlink.h>

#include <linux/thc_netlink.h>

extern struct genl_family thc_genl;

/* --- netlink_dump.c ------------------------------------------------------- */

/* Puts one entry of a list, or nothing and -EMSGSIZE. */
typedef int thc_nl_put(struct sk_buff *skb, struct netlink_callback *cb, struct list_head *entry);
/* The next part of a dump of @list, which changes with @generation. Takes thc_net.lock. */
int thc_nl_dump(struct sk_buff *skb, struct netlink_callback *cb, struct list_head *list,
		const u32 *generation, thc_nl_put *put);

/* --- netlink_job.c -------------------------------------------------------- */

/* Attributes of THC_CMD_JOB_NEW. */
extern const struct nla_policy thc_nl_job_policy[THC_ATTR_GROUPS + 1];
/* Attributes of commands about one job, given by its number. */
extern const struct nla_policy thc_nl_id_policy[THC_ATTR_JOB + 1];

int thc_nl_job_new(struct sk_buff *skb, struct genl_info *info);
int thc_nl_job_del(struct sk_buff *skb, struct genl_info *info);
int thc_nl_job_get(struct sk_buff *skb, struct genl_info *info);
/* Refuses attributes: the dump takes none, but its command has one policy for both operations. */
int thc_nl_job_dump_start(struct netlink_callback *cb);
int thc_nl_job_dump(struct sk_buff *skb, struct netlink_callback *cb);

/* --- netlink_show.c ------------------------------------------------------- */

int thc_nl_socket_dump(struct sk_buff *skb, struct netlink_callback *cb);
int thc_nl_stats_get(struct sk_buff *skb, struct genl_info *info);

#endif /* THC_KMOD_NETLINK_H */
