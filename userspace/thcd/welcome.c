// SPDX-License-Identifier: GPL-2.0
/*
 * Handles the packets JOIN and LEAVE, and answers a JOIN: by a CHALLENGE, or by WELCOMEs to the
 * worker and to the group, so that the worker learns whether multicast reaches it. join.c decides
 * what a JOIN does.
 */
#include <string.h>

#include <thc/key.h>
#include <thc/wire/announce.h>
#include <thc/wire/nonce.h>
#include <thc/wire/seal.h>
#include <thc/wire/version1.h>

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

void thcd_spec_fill(struct thc_spec *s, const struct thc_job *job, const struct thcd_record *r,
		    u16 mode_flags)
{
	const struct thcd_plan *plan = &r->plan;

	*s = (struct thc_spec){
		.group = { .addr = job->group, .port = job->group_port },
		.joined = job->joined,
		.seed = plan->seed,
		.deadline_ms = plan->deadline_ms,
		.features = plan->correlated ? THC_FEATURE_CORRELATED : 0,
		.rate = plan->rate,
		.error = plan->error,
		.rate_flags = plan->rate_tried ? THC_RATE_F_TRY : 0,
		.ranks = plan->ranks,
		.quorum = plan->quorum,
		.data_slots = plan->data_slots,
		.control_slots = plan->control_slots,
		.shard = (u16)plan->shards.own,
		.shards = plan->shards.count ? (u16)plan->shards.count : 1,
		.flags = mode_flags | (r->ready ? THC_WELCOME_F_READY : 0),
		.reply = job->reply,
		.seal = plan->seal,
		.bits = plan->bits,
		.scheme = plan->scheme,
		.value_bits = plan->value_bits,
		.grain = plan->grain_log2 ? (u16)(1U << plan->grain_log2) : 0,
		.scheme_features = plan->sketch | (plan->rotate ? 0 : THC_SCHEME_F_UNROTATED),
		.block_log2 = plan->block_log2,
	};
	s->tables = plan->tables;
	memcpy(s->salt, r->salt, sizeof(s->salt));
}

/* The header of an answer to @request, not sealed yet. */
static struct thc_hdr header(u8 op, const struct thc_hdr *request)
{
	return (struct thc_hdr){
		.version = THC_VERSION,
		.op = op,
		.job = request->job,
		.rank = request->rank,
	};
}

/* Sends a CHALLENGE or WELCOME, sealed by the key of @plan's job; without a plan or a key, by a
 * checksum. @bytes: of @body
 */
static void put(struct thcd *d, struct thc_hdr *h, const void *body, u32 bytes,
		const struct thcd_plan *plan, const struct thc_end *end)
{
	const u8 *secret = plan ? thcd_plan_key(plan) : NULL;
	struct thc_member_key key = { .id = 0 };
	struct thc_end sealed = *end;

	if (secret) {
		thc_member_key_derive(&key, secret, THC_KEY_WELCOME, (u16)plan->job);
		sealed.aggregator = thc_be16((u16)plan->shards.own);
	}
	thc_member_seal(h, secret ? THC_SEAL_NH : THC_SEAL_SUM, &key, &sealed, body,
			(int)(bytes / 8));
	thcd_out_put(d, &end->addr, thc_be16(end->port), h, NULL, body, bytes);
}

static struct thc_end end_of(const struct thc_path *path)
{
	return (struct thc_end){ .addr = path->src, .port = thc_be16(path->src_port) };
}

/* Sends all parts of @a to @end. */
static void announce(struct thcd *d, u16 job_id, const struct thc_hdr *request,
		     struct thc_announcement *a, const struct thc_end *end)
{
	u8 part[THC_WELCOME_BYTES] __attribute__((aligned(8)));
	u32 at = 0, bytes;

	do {
		struct thc_hdr h = header(THC_OP_WELCOME, request);

		h.epoch = thc_be32(d->job[job_id].epoch);
		bytes = thc_announce_part(a, part, &at);
		put(d, &h, part, bytes, &d->record[job_id].plan, end);
	} while (at < a->bytes);
}

static void welcome(struct thcd *d, u16 job_id, const struct thc_hdr *request, const u8 *nonce,
		    const struct thc_end *end)
{
	struct thc_announcement a;
	struct thc_spec spec;

	thcd_spec_fill(&spec, &d->job[job_id], &d->record[job_id], d->welcome_flags);
	thc_announce(&a, &spec, &d->record[job_id].plan.shards, nonce);
	announce(d, job_id, request, &a, end);
}

/* Every rank learns at once that rounds may start, not at its next JOIN. */
static void welcome_all(struct thcd *d, u16 job_id, const struct thc_hdr *request)
{
	const struct thc_job *job = &d->job[job_id];
	struct thc_hdr h = *request;
	int i;

	for (i = 0; i < job->ranks; i++) {
		const struct thc_member *m = &job->member[i];
		const struct thc_end end = { .addr = m->addr, .port = m->port };

		h.rank = thc_be16(i);
		welcome(d, job_id, &h, d->record[job_id].nonce[i], &end);
	}
}

static void welcome_group(struct thcd *d, u16 job_id)
{
	const struct thc_job *job = &d->job[job_id];
	const struct thc_hdr of_group = { .job = thc_be16(job_id) };
	const struct thc_end end = { .addr = job->group, .port = job->group_port };
	struct thc_announcement a;
	struct thc_spec spec;

	thcd_spec_fill(&spec, job, &d->record[job_id], d->welcome_flags);
	thc_announce_to_group(&a, &spec);
	announce(d, job_id, &of_group, &a, &end);
}

/* A CHALLENGE has the nonce of its JOIN and the challenge, and is shorter than the JOIN. Without
 * its own JOIN a rank gets one only when another JOIN, which was challenged itself, has ended its
 * epoch.
 */
static void challenge(struct thcd *d, u16 job_id, const struct thc_hdr *request,
		      const struct thcd_joining *j, const u8 *challenge)
{
	struct thc_hdr h = header(THC_OP_CHALLENGE, request);
	struct thc_end end = end_of(j->path);
	struct thc_challenge body;

	_Static_assert(sizeof(body) < sizeof(struct thc_join), "amplification");
	thc_nonce_copy(body.nonce, j->nonce);
	thc_nonce_copy(body.challenge, challenge);
	d->counters.challenged++;
	put(d, &h, &body, sizeof(body), &d->record[job_id].plan, &end);
}

/* Asks the other ranks of the epoch that has ended to join anew at once, not at their next JOIN: a
 * rank that waits for other aggregators would start if these got ready before.
 */
static void challenge_others(struct thcd *d, u16 job_id, const struct thc_hdr *request, u64 others)
{
	const struct thc_job *job = &d->job[job_id];
	const struct thcd_record *r = &d->record[job_id];
	struct thc_hdr h = *request;
	u8 asked[THC_CHALLENGE_BYTES];
	int i;

	for (i = 0; i < job->ranks; i++) {
		const struct thc_member *m = &job->member[i];
		const struct thc_path path = { .src = m->addr, .src_port = thc_be16(m->port) };
		const struct thcd_joining j = { .path = &path,
						.nonce = r->nonce[i],
						.rank = (u16)i };

		if (!(others & 1ULL << i))
			continue;
		h.rank = thc_be16(i);
		thcd_ask_again(asked, job, r, &j, &d->secret, thcd_now_ms());
		challenge(d, job_id, &h, &j, asked);
	}
}

/* Native XDP makes all copies of an answer from one packet, so they have one IP version. */
static bool fans_out_to_some(const struct thcd *d, const struct thc_job *job)
{
	return job->reply == THC_REPLY_FANOUT && thcd_job_is_mixed(job) &&
	       !strcmp(d->mode, "native");
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
	if (j->ready && fans_out_to_some(d, job))
		thcd_say_limited(
			"job %u: some ranks have joined over IPv4, others over IPv6: native XDP "
			"sends an answer by fanout to the ranks of one of the two, and the others "
			"have to ask for it: let all ranks use one",
			job_id);
}

/* @plan: of the job whose key the JOIN names, NULL: there is no such job */
static void refuse(struct thcd *d, const struct thc_hdr *request, const struct thcd_joining *j,
		   enum thc_refusal refusal, const struct thcd_plan *plan)
{
	static const char *const why[] = {
		[THC_REFUSED_JOB] = "no such job, or another key",
		[THC_REFUSED_RANK] = "the job has fewer ranks",
		[THC_REFUSED_PREFIX] = "no prefix of the job has this address: add the worker's "
				       "subnet to the job's key prefix",
		[THC_REFUSED_TAKEN] = "another worker holds the rank",
		[THC_REFUSED_NO_XDP] = "the XDP program was taken away, as said before",
		[THC_REFUSED_SEAL] = "the worker cannot do the job's seal: both need one release",
	};
	const struct thc_path *path = j->path;
	struct thc_end end = end_of(path);
	struct thc_hdr h = header(THC_OP_WELCOME, request);
	struct thc_welcome w;
	char text[INET6_ADDRSTRLEN];

	d->counters.refused++;
	if (!may_refuse(d))
		return;
	thcd_say_limited("refused rank %u of job %u from %s port %u: %s", thc_be16(request->rank),
			 thc_be16(request->job), thc_addr_text(&path->src, text), path->src_port,
			 why[refusal]);
	thc_announce_refusal(&w, j->nonce, refusal);
	put(d, &h, &w, sizeof(w), plan, &end);
}

/* Checks a JOIN without a look at its job. */
static enum thc_drop_reason check(const struct thc_join *j, const struct thc_path *path)
{
	unsigned int i;

	/* port 0 is none: nothing can be sent there, and a rank would be lost to it */
	if (!path->src_port)
		return THC_DROP_ADDRESS;
	if (j->flags & ~thc_be32(THC_JOIN_F_HEARD | THC_JOIN_F_NODE))
		return THC_DROP_FLAGS;
	/* no rank is a node */
	if (j->flags & thc_be32(THC_JOIN_F_NODE) || j->workers ||
	    j->restarted != thc_be16(THC_WORKER_NONE))
		return THC_DROP_RESERVED;
	for (i = 0; i < sizeof(j->reserved2); i++)
		if (j->reserved2[i])
			return THC_DROP_RESERVED;
	return j->reserved || thc_nonce_is_none(j->nonce) ? THC_DROP_RESERVED : THC_DROP_NONE;
}

/* The answer to a JOIN that is not refused, if there is one. */
static void answer(struct thcd *d, u16 job_id, const struct thc_hdr *h,
		   const struct thcd_joining *j, const struct thcd_join_result *out)
{
	struct thc_end end = end_of(j->path);

	if (out->challenged) {
		challenge(d, job_id, h, j, out->challenge);
		return;
	}
	say_joined(d, job_id, (u8)j->rank, out);
	challenge_others(d, job_id, h, out->others);
	if (out->answered)
		return;
	if (out->ready)
		welcome_all(d, job_id, h);
	else
		welcome(d, job_id, h, j->nonce, &end);
	if (d->job[job_id].reply == THC_REPLY_MULTICAST && !d->record[job_id].ready)
		welcome_group(d, job_id);
}

/* @job: NULL: none has that number, or the JOIN has another key */
static enum thc_drop_reason join(struct thcd *d, u16 job_id, struct thc_job *job,
				 const struct thc_hdr *h, const struct thc_join *j,
				 const struct thc_path *path)
{
	const struct thcd_joining asked = {
		.path = path,
		.nonce = j->nonce,
		.challenge = j->challenge,
		.last = thc_be32(h->epoch),
		.offers = thc_be32(j->offers),
		.rank = thc_be16(h->rank),
		.heard = j->flags & thc_be32(THC_JOIN_F_HEARD),
	};
	struct thcd_join_result out = { .refusal = THC_REFUSED_NO_XDP };
	enum thc_drop_reason why = check(j, path);
	struct thcd_record *r;

	if (why)
		return why;
	if (!job) {
		refuse(d, h, &asked, THC_REFUSED_JOB, NULL);
		return THC_DROP_NONE;
	}
	r = &d->record[job_id];
	/* without XDP the worker would join, and time out in its first round */
	if (!d->detached)
		out = thcd_join(job, &d->seals[job_id], r, &asked, &d->secret, thcd_now_ms());
	if (out.refusal)
		refuse(d, h, &asked, out.refusal, &r->plan);
	else
		answer(d, job_id, h, &asked, &out);
	return THC_DROP_NONE;
}

/* Reports a worker of version 1 once for each address, of which the last 64 are remembered. */
static void say_old(const struct thc_hdr *request, const struct thc_path *path)
{
	static struct thc_addr said[64];
	static unsigned int next;
	char text[INET6_ADDRSTRLEN];
	unsigned int i;

	for (i = 0; i < 64; i++)
		if (thc_addr_equal(&said[i], &path->src))
			return;
	if (thcd_say_limited("refused a worker of version 1 from %s port %u, job %u: install one "
			     "release on all hosts, that of the aggregators first",
			     thc_addr_text(&path->src, text), path->src_port,
			     thc_be16(request->job)))
		said[next++ % 64] = path->src;
}

/* Refuses a worker of version 1 in its own protocol; its JOIN proves nothing: seldom is enough. */
static enum thc_drop_reason old_join(struct thcd *d, const struct thc_hdr *request,
				     const struct thc_path *path)
{
	u8 welcome[THC_VERSION1_WELCOME] __attribute__((aligned(8)));
	struct thc_hdr h;

	if (!path->src_port)
		return THC_DROP_ADDRESS;
	d->counters.refused++;
	if (!may_refuse(d))
		return THC_DROP_VERSION;
	say_old(request, path);
	thc_version1_refuse(&h, welcome, request);
	thcd_out_put(d, &path->src, path->src_port, &h, NULL, welcome, sizeof(welcome));
	return THC_DROP_VERSION;
}

enum thc_drop_reason thcd_join_or_leave(struct thcd *d, const struct thc_hdr *h,
					const void *payload, const struct thc_path *path)
{
	u16 job_id = thc_be16(h->job);
	struct thc_job *job = job_id < THC_JOBS_MAX ? &d->job[job_id] : NULL;
	struct thc_join j;

	if (h->version != THC_VERSION)
		return old_join(d, h, path);
	if (h->op == THC_OP_LEAVE) {
		const struct thc_leave *leave = payload;

		thcd_leave(job, &d->record[job_id], (u8)thc_be16(h->rank), leave->nonce);
		return THC_DROP_NONE;
	}
	/* another key is answered like a job that does not exist */
	if (job && (!job->active || !thc_seal_names(h, d->seals[job_id].join.id)))
		job = NULL;
	memcpy(&j, payload, sizeof(j));
	return join(d, job_id, job, h, &j, path);
}
