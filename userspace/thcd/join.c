// SPDX-License-Identifier: GPL-2.0
/*
 * The join state machine. A job is in one epoch; a rank is outside it or in
 * it, with the nonce of the incarnation that joined.
 *
 *	JOIN of a rank outside			joins
 *	JOIN of a rank inside, its nonce	has no effect (if the address is its)
 *	JOIN of a rank inside, another nonce	epoch + 1, with this rank alone inside
 *	JOIN of a rank that left		epoch + 1, with this rank alone inside
 *	JOIN with the nonce it had before	refused: two workers claim the rank
 *
 * An epoch is ready when all ranks are in and it is settled how answers
 * travel: by multicast if all hear the group, by fanout if one does not for a
 * second. It stays ready when ranks leave, for a WELCOME that says so may have
 * been lost. A rank that leaves before its epoch is ready counts as never joined.
 */
#include "jobs.h"
#include "join.h"
#include "plan.h"

static void settle(struct thc_job *job, struct thcd_record *r, u64 now_ms,
		   struct thcd_join_result *out)
{
	if (r->ready || job->joined != job->all)
		return;
	if (!r->full_since_ms)
		r->full_since_ms = now_ms ? now_ms : 1;
	if (job->reply == THC_REPLY_MULTICAST && r->heard != job->all) {
		if (now_ms - r->full_since_ms < THCD_HEARD_MS)
			return;
		/* no rank has sent data in this epoch yet: safe to change */
		__atomic_store_n(&job->reply, THC_REPLY_FANOUT, __ATOMIC_RELEASE);
		r->fallback = 1;
		out->fallback = true;
	}
	r->ready = 1;
	out->ready = true;
}

static void restart(struct thc_job *job, struct thc_seals *seals, struct thcd_record *r, u8 rank,
		    const struct thcd_joining *j)
{
	/* a new run, not a rejoin: multicast gets another chance */
	bool run_over = job->left == job->joined && r->ready;

	r->ready = 0;
	r->heard = 0;
	r->full_since_ms = 0;
	if (run_over && r->fallback) {
		r->fallback = 0;
		__atomic_store_n(&job->reply, r->plan.reply, __ATOMIC_RELEASE);
	}
	thcd_job_restart(job, seals, r, rank, j->last, j->path);
}

static struct thcd_join_result refused(enum thc_refusal why)
{
	return (struct thcd_join_result){ .refusal = why };
}

struct thcd_join_result thcd_join(struct thc_job *job, struct thc_seals *seals,
				  struct thcd_record *r, const struct thcd_joining *j, u64 now_ms)
{
	struct thcd_join_result out = { .refusal = THC_REFUSED_NOT };
	const struct thc_path *path = j->path;
	const struct thc_member *m;
	u64 bit, nonce = j->nonce;
	u8 rank;

	if (!job || !job->active)
		return refused(THC_REFUSED_JOB);
	if (j->rank >= job->ranks)
		return refused(THC_REFUSED_RANK);
	rank = (u8)j->rank;
	if (!thcd_plan_admits(&r->plan, &path->src))
		return refused(THC_REFUSED_PREFIX);
	if (nonce == r->previous[rank] && nonce != r->nonce[rank])
		return refused(THC_REFUSED_TAKEN);
	m = &job->member[rank];
	bit = 1ULL << rank;
	if (job->joined & bit && nonce == r->nonce[rank] && !(job->left & bit)) {
		if (m->port != thc_be16(path->src_port) || !thc_addr_equal(&m->addr, &path->src))
			return refused(THC_REFUSED_TAKEN);
	} else if (job->joined & bit) {
		/* an incarnation that left does not claim the rank any more */
		if (job->left & bit)
			r->nonce[rank] = 0;
		restart(job, seals, r, rank, j);
		out.restarted = true;
	} else if (thcd_job_is_behind(job, j->last)) {
		/* an earlier aggregator's epoch, whose clock was ahead: all ranks join again */
		restart(job, seals, r, rank, j);
		out.behind = true;
	} else {
		thcd_job_enter(job, rank, path);
	}
	if (nonce != r->nonce[rank]) {
		r->previous[rank] = r->nonce[rank];
		r->nonce[rank] = nonce;
	}
	if (j->heard)
		r->heard |= bit;
	settle(job, r, now_ms, &out);
	return out;
}

bool thcd_leave(struct thc_job *job, struct thcd_record *r, u8 rank, u32 epoch)
{
	u64 bit = 1ULL << rank;

	if (epoch != job->epoch || !(job->joined & bit))
		return false;
	if (!r->ready) {
		job->member[rank].joined = 0;
		__atomic_store_n(&job->joined, job->joined & ~bit, __ATOMIC_RELEASE);
		r->heard &= ~bit;
		r->full_since_ms = 0;
		return true;
	}
	job->member[rank].left = 1;
	__atomic_store_n(&job->left, job->left | bit, __ATOMIC_RELEASE);
	return true;
}
