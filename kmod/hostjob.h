/* SPDX-License-Identifier: GPL-2.0 */
/* Jobs that the host's administrator has described. */
#ifndef THC_KMOD_HOSTJOB_H
#define THC_KMOD_HOSTJOB_H

#include <linux/list.h>
#include <linux/thc_netlink.h>

#include <thc/wire/seal.h>

#include "address.h"
#include "message.h"

/**
 * struct thc_ids - a range of users, or of groups
 * @first: number in the user namespace that owns the network namespace
 * @last: in the range, too; U32_MAX never is. The range is empty if @first is more
 */
struct thc_ids {
	u32			first;
	u32			last;
};

/**
 * struct thc_host_job - a job that the host's administrator knows
 * @list: in thc_net.jobs
 * @id: its number
 * @shards: aggregators, in the order of shards
 * @key: its secret key, which the processes of the host need not have
 * @keyed: it has one
 * @join: by what JOIN is sealed, zero without a key; for connect(), which fills it in
 * @users: users who may be ranks of it
 * @groups: members of these groups may be ranks of it
 * @aggregator: base ports included
 */
struct thc_host_job {
	struct list_head	list;
	u16			id;
	u32			shards;
	u8			key[THC_KEY_BYTES];
	bool			keyed;
	struct thc_member_key	join;
	struct thc_ids		users;
	struct thc_ids		groups;
	struct thc_address	aggregator[THC_GENL_AGGREGATORS_MAX];
};

struct thc_net;

/* 0: @job is the namespace's now; -EEXIST; -ENOSPC: there are THC_GENL_JOBS_MAX. */
int thc_host_job_add(struct net *net, struct thc_host_job *job);
int thc_host_job_del(struct net *net, u16 id);
/* A copy. @as_rank: for the calling process, which is to be a rank; then the copy has the key, and
 * the caller wipes it. -EPERM: the process may not be a rank; its effective user and all its groups
 * count, and CAP_NET_ADMIN is always enough.
 */
int thc_host_job_find(struct net *net, u16 id, bool as_rank, struct thc_host_job *out);
void thc_host_jobs_free(struct thc_net *tn);

#endif /* THC_KMOD_HOSTJOB_H */
