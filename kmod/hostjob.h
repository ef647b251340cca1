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
 * @last: last number of the range, not U32_MAX. The range is empty if @first > @last
 */
struct thc_ids {
	u32			first;
	u32			last;
};

/**
 * struct thc_host_job - a job that the host's administrator knows
 * @list: in thc_net.jobs
 * @id: its number
 * @shards: number of its aggregators
 * @key: its secret key, which the processes of the host need not have
 * @keyed: the job has a key
 * @join: key that seals JOIN, zero without a key; connect() fills it in
 * @users: users who may be ranks of it
 * @groups: members of these groups may be ranks of it
 * @aggregator: by shard number, addresses with base ports
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

/* Adds @job, which the namespace owns then; -EEXIST; -ENOSPC: there are THC_GENL_JOBS_MAX. */
int thc_host_job_add(struct net *net, struct thc_host_job *job);
int thc_host_job_del(struct net *net, u16 id);
/* A copy. @as_rank: for the calling process, which is to be a rank; then the copy has the key, and
 * the caller wipes it. -EPERM: the process may not be a rank; its effective user and all its groups
 * count, and CAP_NET_ADMIN is always enough.
 */
int thc_host_job_find(struct net *net, u16 id, bool as_rank, struct thc_host_job *out);
void thc_host_jobs_free(struct thc_net *tn);

#endif /* THC_KMOD_HOSTJOB_H */
