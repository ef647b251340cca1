// SPDX-License-Identifier: GPL-2.0
/*
 * JOIN and LEAVE as packets, and the WELCOMEs that answer them: to the worker
 * and, so that it learns whether multicast reaches it, to the group. What
 * joining means is join.c's.
 */
#include <string.h>

#include <thc/key.h>
#include <thc/wire/seal.h>

#include "jobs.h"
#include "join.h"
#include "net.h"
#include "plan.h"

/* Refusals a second: they are longer than the JOINs that provoke them, and a
 * forged source address would direct them to another host.
 */
#define REFUSALS_RATE	200

static bool may_refuse(struct thcd *d)
{
	static uint64_t second;
	static unsigned int sent;
	uint64_t now = thcd_now_ms() / 1000;

	if (now != second) {
		second = now;
		sent = 0;
	}
	if (sent++ < REFUSALS_RATE)
		return true;
	d->counters.muted++;
	return false;
}

static void fill_constants(const struct thc_job *job, const struct thcd_record *r,
			   struct thc_welcome *w)
{
	const struct thcd_plan *plan = &r->plan;
	int i;

	w->joined = thc_be64(job->joined);
	w->seed = thc_be64(plan->seed);
	w->clamp = thc_be64(plan->clamp);
	w->table_hash = thc_be32(plan->table_hash);
	w->deadline_ms = thc_be32(plan->deadline_ms);
	w->ranks = thc_be16(plan->ranks);
	w->quorum = thc_be16(plan->quorum);
	w->data_slots = thc_be16(plan->data_slots);
	w->norm_slots = thc_be16(plan->norm_slots);
	w->chunk = thc_be16(plan->chunk);
	w->granularity = thc_be16(plan->granularity);
	w->shards = thc_be16(1);
	w->reply = job->reply;
	w->bits = plan->bits;
	w->sum_width = plan->sum_width;
	w->block_log2 = plan->block_log2;
	w->family = plan->family;
	w->seal = plan->seal;
	memcpy(w->salt, r->salt, sizeof(w->salt));
	for (i = 0; i < 16; i++)
		w->table[i] = thc_be16(plan->table[i]);
	if (job->reply != THC_REPLY_MULTICAST)
		return;
	w->group_port = job->group_port;
	if (plan->family == 4)
		memcpy(w->group, &job->group.word[3], 4);
	else
		memcpy(w->group, &job->group, 16);
}

/* The fields of every WELCOME; it is not sealed yet. */
static void label(struct thcd_welcome *out, const struct thc_hdr *request, u64 nonce)
{
	memset(out, 0, sizeof(*out));
	out->hdr.version = THC_VERSION;
	out->hdr.op = THC_OP_WELCOME;
	out->hdr.job = request->job;
	out->hdr.rank = request->rank;
	out->body.nonce = thc_be64(nonce);
}

void thcd_welcome_fill(struct thcd_welcome *out, const struct thc_job *job,
		       const struct thcd_record *r, const struct thc_hdr *request, u64 nonce,
		       u8 mode_flags)
{
	label(out, request, nonce);
	out->hdr.epoch = thc_be32(job->epoch);
	fill_constants(job, r, &out->body);
	out->body.flags = mode_flags | (r->ready ? THC_WELCOME_F_READY : 0) |
			  (r->plan.correlated ? THC_WELCOME_F_CORRELATED : 0);
}

/* Sends @w, sealed by the key of @plan, NULL: by none that a stranger could not have. */
static void put(struct thcd *d, struct thcd_welcome *w, const struct thcd_plan *plan,
		const struct thc_addr *addr, u16 port)
{
	const struct thc_end end = { .addr = *addr, .port = thc_be16(port) };
	const u8 *secret = plan ? thcd_plan_key(plan) : NULL;
	struct thc_control_key key = { .id = 0 };

	if (secret)
		thc_control_key_derive(&key, secret, THC_KEY_WELCOME, (u16)plan->job);
	thc_control_seal(&w->hdr, secret ? THC_SEAL_NH : THC_SEAL_SUM, &key, &end, &w->body,
			 sizeof(w->body) / 8);
	thcd_out_put(d, addr, port, &w->hdr, NULL, &w->body, sizeof(w->body));
}

static void welcome(struct thcd *d, u16 job_id, const struct thc_hdr *request, u64 nonce,
		    const struct thc_addr *addr, u16 port)
{
	struct thcd_welcome w;

	thcd_welcome_fill(&w, &d->job[job_id], &d->record[job_id], request, nonce,
			  d->welcome_flags);
	put(d, &w, &d->record[job_id].plan, addr, port);
}

/* Every rank learns at once that rounds may start, not at its next JOIN. */
static void welcome_all(struct thcd *d, u16 job_id, const struct thc_hdr *request)
{
	const struct thc_job *job = &d->job[job_id];
	struct thc_hdr h = *request;
	int i;

	for (i = 0; i < job->ranks; i++) {
		const struct thc_member *m = &job->member[i];

		h.rank = thc_be16(i);
		welcome(d, job_id, &h, d->record[job_id].nonce[i], &m->addr, thc_be16(m->port));
	}
}

static void say_joined(const struct thcd *d, u16 job_id, u8 rank, const struct thcd_join_result *j)
{
	const struct thc_job *job = &d->job[job_id];

	if (j->restarted)
		thcd_say_limited("job %u: rank %u restarted: session %u, all ranks have to rejoin",
				 job_id, rank, job->epoch);
	if (j->behind)
		thcd_say_limited(
			"job %u: rank %u was in a newer session of a thcd before this one (was the "
			"clock set back?): session %u, all ranks have to rejoin",
			job_id, rank, job->epoch);
	if (j->fallback) {
		u64 missing = job->all & ~d->record[job_id].heard;

		thcd_say_limited(
			"job %u: multicast does not reach %d of %u ranks (first: rank %d): "
			"answers go by fanout",
			job_id, __builtin_popcountll(missing), job->ranks,
			__builtin_ctzll(missing));
	}
	if (j->ready)
		thcd_say_limited("job %u: all %u ranks joined session %u, answers by %s", job_id,
				 job->ranks, job->epoch,
				 job->reply == THC_REPLY_MULTICAST ? "multicast" : "fanout");
}

/* @plan: of the job whose key the JOIN has, NULL: of none */
static void refuse(struct thcd *d, const struct thc_hdr *request, u64 nonce,
		   enum thc_refusal refusal, const struct thcd_plan *plan,
		   const struct thc_path *path)
{
	static const char *const why[] = {
		[THC_REFUSED_JOB] = "no such job, or another key",
		[THC_REFUSED_RANK] = "the job has fewer ranks",
		[THC_REFUSED_PREFIX] = "no prefix of the job has this address: add the worker's "
				       "subnet to the job's key prefix",
		[THC_REFUSED_TAKEN] = "another worker holds the rank",
		[THC_REFUSED_NO_XDP] = "the XDP program was taken away, as said before",
	};
	struct thcd_welcome w;
	char text[INET6_ADDRSTRLEN];

	d->counters.refused++;
	if (!may_refuse(d))
		return;
	thcd_say_limited("refused rank %u of job %u from %s port %u: %s", thc_be16(request->rank),
			 thc_be16(request->job), thc_addr_text(&path->src, text), path->src_port,
			 why[refusal]);
	label(&w, request, nonce);
	w.body.refusal = refusal;
	w.body.flags = THC_WELCOME_F_REFUSED;
	put(d, &w, plan, &path->src, path->src_port);
}

static enum thc_drop_reason join(struct thcd *d, u16 job_id, struct thc_job *job,
				 const struct thc_hdr *h, const struct thc_join *j,
				 const struct thc_path *path)
{
	const struct thcd_plan *plan = job ? &d->record[job_id].plan : NULL;
	const struct thc_hdr of_group = { .job = h->job };
	u64 nonce = thc_be64(j->nonce);
	struct thcd_joining asked;
	struct thcd_join_result out;

	/* port 0 is none: nothing can be sent there, and a rank would be lost to it */
	if (!path->src_port)
		return THC_DROP_ADDRESS;
	if (j->reserved)
		return THC_DROP_RESERVED;
	if (j->flags & ~thc_be32(THC_JOIN_F_HEARD))
		return THC_DROP_FLAGS;
	/* it would be told that all is well, and time out in its first round */
	if (job && d->detached) {
		refuse(d, h, nonce, THC_REFUSED_NO_XDP, plan, path);
		return THC_DROP_NONE;
	}
	asked = (struct thcd_joining){
		.path = path,
		.nonce = nonce,
		.last = thc_be32(h->epoch),
		.rank = thc_be16(h->rank),
		.heard = j->flags & thc_be32(THC_JOIN_F_HEARD),
	};
	out = thcd_join(job, job ? &d->seals[job_id] : NULL, job ? &d->record[job_id] : NULL,
			&asked, thcd_now_ms());
	if (!job || out.refusal) {
		refuse(d, h, nonce, out.refusal, plan, path);
		return THC_DROP_NONE;
	}
	say_joined(d, job_id, (u8)asked.rank, &out);
	if (out.ready)
		welcome_all(d, job_id, h);
	else
		welcome(d, job_id, h, nonce, &path->src, path->src_port);
	if (job->reply != THC_REPLY_MULTICAST)
		return THC_DROP_NONE;
	welcome(d, job_id, &of_group, 0, &job->group, thc_be16(job->group_port));
	return THC_DROP_NONE;
}

enum thc_drop_reason thcd_join_or_leave(struct thcd *d, const struct thc_hdr *h,
					const void *payload, const struct thc_path *path)
{
	u16 job_id = thc_be16(h->job);
	struct thc_job *job = job_id < THC_JOBS_MAX ? &d->job[job_id] : NULL;
	struct thc_join j;

	if (h->op == THC_OP_LEAVE) {
		thcd_leave(job, &d->record[job_id], (u8)thc_be16(h->rank), thc_be32(h->epoch));
		return THC_DROP_NONE;
	}
	/* another key is answered like a job that does not exist */
	if (job && (!job->active || !thc_seal_names(h, d->seals[job_id].join.id)))
		job = NULL;
	memcpy(&j, payload, sizeof(j));
	return join(d, job_id, job, h, &j, path);
}
