// SPDX-License-Identifier: GPL-2.0
/*
 * Host jobs: those that a network namespace's administrator has described, so
 * that processes may join them without knowing their secret. How they are told
 * and shown is netlink_job.c's.
 */
#include <linux/slab.h>
#include <net/net_namespace.h>

#include "sock.h"

/* Called with thc_net.lock held. */
static struct thc_host_job *find(struct thc_net *tn, u16 id)
{
	struct thc_host_job *job;

	list_for_each_entry(job, &tn->jobs, link)
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
		list_add_tail(&job->link, &tn->jobs);
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
		list_del(&job->link);
		tn->jobs_count--;
		thc_generation_next(&tn->jobs_generation);
	}
	mutex_unlock(&tn->lock);
	if (!job)
		return -ENOENT;
	kfree_sensitive(job);
	return 0;
}

int thc_host_job_find(struct net *net, u16 id, struct thc_host_job *out)
{
	struct thc_net *tn = thc_net_of(net);
	struct thc_host_job *job;

	mutex_lock(&tn->lock);
	job = find(tn, id);
	if (job)
		*out = *job;
	mutex_unlock(&tn->lock);
	return job ? 0 : -ENOENT;
}

/* With the namespace: nobody looks at the list any more. */
void thc_host_jobs_free(struct thc_net *tn)
{
	struct thc_host_job *job, *next;

	list_for_each_entry_safe(job, next, &tn->jobs, link)
		kfree_sensitive(job);
}
