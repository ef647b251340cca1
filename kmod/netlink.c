// SPDX-License-Identifier: GPL-2.0
/*
 * Generic netlink family "thc": its commands, who may use them and which
 * attributes each takes; any other is refused. One without a policy takes none.
 */
#include <linux/module.h>

#include "netlink.h"

#define POLICY(array)	.policy = (array), .maxattr = ARRAY_SIZE(array) - 1

static const struct genl_ops thc_genl_ops[] = {
	{
		.cmd	= THC_CMD_JOB_NEW,
		.doit	= thc_nl_job_new,
		.flags	= GENL_UNS_ADMIN_PERM,
		POLICY(thc_nl_job_policy),
	},
	{
		.cmd	= THC_CMD_JOB_DEL,
		.doit	= thc_nl_job_del,
		.flags	= GENL_UNS_ADMIN_PERM,
		POLICY(thc_nl_id_policy),
	},
	{
		.cmd	= THC_CMD_JOB_GET,
		.doit	= thc_nl_job_get,
		.start	= thc_nl_job_dump_start,
		.dumpit	= thc_nl_job_dump,
		POLICY(thc_nl_id_policy),
	},
	{
		.cmd	= THC_CMD_SOCKET_GET,
		.dumpit	= thc_nl_socket_dump,
	},
	{
		.cmd	= THC_CMD_STATS_GET,
		.doit	= thc_nl_stats_get,
	},
};

struct genl_family thc_genl __ro_after_init = {
	.name		= THC_GENL_NAME,
	.version	= THC_GENL_VERSION,
	.netnsok	= true,
	.module		= THIS_MODULE,
	.ops		= thc_genl_ops,
	.n_ops		= ARRAY_SIZE(thc_genl_ops),
};

MODULE_ALIAS_GENL_FAMILY(THC_GENL_NAME);
