// SPDX-License-Identifier: GPL-2.0
/*
 * Host jobs: those that a network namespace's administrator has described, so
 * that processes may join them without knowing their secret. netlink_job.c adds
 * and shows them.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uidgid.h>
#include <net/net_namespace.h>

#include "hostjob.h"
#include "netns.h"
#include "sock.h"

static struct thc_host_job *find(struct thc_net *tn, u16 id)
{
	struct thc_host_job *job;

	lockdep_assert_held(&tn->lock);
	list_for_each_entry(job, &tn->jobs, list)
		if (job->id == id)
			return job;
	return NULL;
}

int thc_host_job_add(struct net *net, struct thc_host_job *job)
{
	struct thc_net *tn = thc_net_of(net);
	int error = 0;

	mutex_lock(&tn->lock);
	if (find(tn, job->id)) {
		error = -EEXIST;
	} else if (tn->jobs_count == THC_GENL_JOBS_MAX) {
		error = -ENOSPC;
	} else {
		list_add_tail(&job->list, &tn->jobs);
		tn->jobs_count++;
		thc_generation_next(&tn->jobs_generation);
	}
	mutex_unlock(&tn->lock);
	return error;
}

int thc_host_job_del(struct net *net, u16 id)
{
	struct thc_net *tn = thc_net_of(net);
	struct thc_host_job *job;

	mutex_lock(&tn->lock);
	job = find(tn, id);
	if (job) {
		list_del(&job->list);
		tn->jobs_count--;
		thc_generation_next(&tn->jobs_generation);
	}
	mutex_unlock(&tn->lock);
	if (!job)
		return -ENOENT;
	kfree_sensitive(job);
	return 0;
}

static bool holds(const struct thc_ids *ids, u32 id)
{
	return id >= ids->first && id <= ids->last;
}

/* May the calling process be a rank of @job? A user that the namespace has no number for is
 * 4294967295, which no range holds.
 */
static bool admits(const struct net *net, const struct thc_host_job *job)
{
	struct user_namespace *ns = net->user_ns;
	const struct cred *caller = current_cred();
	const struct group_info *more = caller->group_info;
	int i;

	if (holds(&job->users, from_kuid(ns, caller->euid)) ||
	    holds(&job->groups, from_kgid(ns, caller->egid)))
		return true;
	for (i = 0; i < more->ngroups; i++)
		if (holds(&job->groups, from_kgid(ns, more->gid[i])))
			return true;
	return ns_capable(ns, CAP_NET_ADMIN);
}

/* The process that names the job is checked, not the process that opened the socket: opening
 * named no job, and a process may open a socket before it gives up its rights.
 */
int thc_host_job_find(struct net *net, u16 id, bool as_rank, struct thc_host_job *out)
{
	struct thc_net *tn = thc_net_of(net);
	struct thc_host_job *job;
	int error = 0;

	mutex_lock(&tn->lock);
	job = find(tn, id);
	if (!job) {
		error = -ENOENT;
	} else if (as_rank && !admits(net, job)) {
		error = -EPERM;
	} else {
		*out = *job;
		if (!as_rank)
			memzero_explicit(out->key, sizeof(out->key));
	}
	mutex_unlock(&tn->lock);
	return error;
}

/* Called when the namespace ends: nobody reads the list any more. */
void thc_host_jobs_free(struct thc_net *tn)
{
	struct thc_host_job *job, *next;

	list_for_each_entry_safe(job, next, &tn->jobs, list)
		kfree_sensitive(job);
}
