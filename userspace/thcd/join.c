// SPDX-License-Identifier: GPL-2.0
/*
 * The join state machine. A job is in one epoch; a rank is outside it or in
 * it, with the nonce of the joining that brought it in.
 *
 *	JOIN of a rank outside			joins
 *	JOIN of a rank inside, its nonce	has no effect (if the address is its)
 *	JOIN of a rank inside, another nonce	epoch + 1, with this rank alone inside
 *	JOIN of a rank that left		epoch + 1, with this rank alone inside
 *	JOIN with the nonce it had before	refused: two workers claim the rank
 *
 * A JOIN with an effect needs a challenge (challenge.h), which proves that its sender is live and
 * knows the job's key. A recorded JOIN is answered by a challenge and changes nothing. The fifth
 * line is for two live workers with one rank: both answer challenges, and would end each other's
 * epoch in turns until they time out. So the first worker is refused, and its user is told why.
 *
 * When a JOIN ends an epoch, the other ranks of that epoch get a challenge that they have not asked
 * for: a rank that still waits for other aggregators of its job joins anew at once.
 *
 * An epoch is ready when all ranks are in and the way of answers is settled: multicast if all ranks
 * hear the group, fanout if one does not within a second. The epoch stays ready when ranks leave,
 * for a WELCOME with READY may have been lost. A rank that leaves before its epoch is ready counts
 * as never joined, but the challenge of its next JOIN includes the nonce of the joining that ended.
 */
#include <string.h>

#include <thc/wire/nonce.h>

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
	r->entered = 0;
	r->full_since_ms = 0;
	if (run_over && r->fallback) {
		r->fallback = 0;
		__atomic_store_n(&job->reply, r->plan.reply, __ATOMIC_RELEASE);
	}
	thcd_job_restart(job, seals, r, rank, j->last, j->path);
}

/* Does another worker hold the rank, or has it taken the rank from this one? */
static bool is_taken(const struct thc_job *job, const struct thcd_record *r,
		     const struct thcd_joining *j)
{
	const struct thc_member *m = &job->member[j->rank];
	u64 bit = 1ULL << j->rank;

	if (!thc_nonce_equal(j->nonce, r->nonce[j->rank]))
		return thc_nonce_equal(j->nonce, r->previous[j->rank]);
	return job->joined & ~job->left & bit &&
	       (m->port != thc_be16(j->path->src_port) || !thc_addr_equal(&m->addr, &j->path->src));
}

static enum thc_refusal why_refused(const struct thc_job *job, const struct thcd_record *r,
				    const struct thcd_joining *j)
{
	if (!job->active)
		return THC_REFUSED_JOB;
	if (j->rank >= job->ranks)
		return THC_REFUSED_RANK;
	if (!thcd_plan_admits(&r->plan, &j->path->src))
		return THC_REFUSED_PREFIX;
	if (!(j->offers & THC_OFFER_SEAL(r->plan.seal)))
		return THC_REFUSED_SEAL;
	return is_taken(job, r, j) ? THC_REFUSED_TAKEN : THC_REFUSED_NOT;
}

/* The state that the JOIN, which is not refused, would change. */
static struct thcd_challenged state_of(const struct thc_job *job, const struct thcd_record *r,
				       const struct thcd_joining *j)
{
	u64 bit = 1ULL << j->rank;
	bool entered = r->entered & bit;

	return (struct thcd_challenged){
		.path = j->path,
		.nonce = j->nonce,
		.entered = entered ? r->nonce[j->rank] : NULL,
		.epoch = job->epoch,
		.job = (u16)r->plan.job,
		.rank = j->rank,
		.left = entered && !(job->joined & ~job->left & bit),
	};
}

/* The rank joins, whatever state it is in. */
static void enter(struct thc_job *job, struct thc_seals *seals, struct thcd_record *r,
		  const struct thcd_joining *j, struct thcd_join_result *out)
{
	u8 rank = (u8)j->rank;
	u64 bit = 1ULL << rank, in = job->joined & ~job->left & ~bit;

	if (job->joined & bit) {
		/* an incarnation that left does not claim the rank any more */
		if (job->left & bit)
			memset(r->nonce[rank], 0, THC_NONCE_BYTES);
		restart(job, seals, r, rank, j);
		out->restarted = true;
	} else if (thcd_job_is_behind(job, j->last)) {
		/* an earlier aggregator's epoch, whose clock was ahead: all ranks join again */
		restart(job, seals, r, rank, j);
		out->behind = true;
	} else {
		thcd_job_enter(job, rank, j->path);
	}
	if (out->restarted || out->behind)
		out->others = in;
	r->entered |= bit;
	if (thc_nonce_equal(j->nonce, r->nonce[rank]))
		return;
	thc_nonce_copy(r->previous[rank], r->nonce[rank]);
	thc_nonce_copy(r->nonce[rank], j->nonce);
}

struct thcd_join_result thcd_join(struct thc_job *job, struct thc_seals *seals,
				  struct thcd_record *r, const struct thcd_joining *j,
				  const struct thcd_secret *secret, u64 now_ms)
{
	struct thcd_join_result out = { .refusal = why_refused(job, r, j) };
	u64 bit = 1ULL << (j->rank & (THC_RANKS_MAX - 1));
	struct thcd_challenged state;

	if (out.refusal)
		return out;
	if (job->joined & ~job->left & bit && thc_nonce_equal(j->nonce, r->nonce[j->rank])) {
		if (j->heard && thc_nonce_equal(j->challenge, r->salt))
			r->heard |= bit;
		out.answered = now_ms - r->answered_ms[j->rank] < THCD_ANSWER_MS;
	} else {
		state = state_of(job, r, j);
		out.challenged = j->heard ||
				 !thcd_challenge_is(j->challenge, secret, &state, now_ms);
		if (out.challenged) {
			thcd_challenge_make(out.challenge, secret, &state, now_ms);
			return out;
		}
		enter(job, seals, r, j, &out);
	}
	settle(job, r, now_ms, &out);
	if (out.ready)
		out.answered = false;
	if (!out.answered)
		r->answered_ms[j->rank] = now_ms;
	return out;
}

void thcd_ask_again(u8 out[THC_CHALLENGE_BYTES], const struct thc_job *job,
		    const struct thcd_record *r, const struct thcd_joining *j,
		    const struct thcd_secret *secret, u64 now_ms)
{
	struct thcd_challenged state = state_of(job, r, j);

	thcd_challenge_make(out, secret, &state, now_ms);
}

bool thcd_leave(struct thc_job *job, struct thcd_record *r, u8 rank, const u8 *nonce)
{
	u64 bit = 1ULL << rank;

	if (!(job->joined & ~job->left & bit) || !thc_nonce_equal(nonce, r->nonce[rank]))
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
