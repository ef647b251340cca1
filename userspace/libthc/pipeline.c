// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Requests on their way through agreement and phases.
 *
 *	QUEUED --- memory, phases ---> BEGUN --- claims agree ---> AGREED --- all answers ---> DONE
 *	                                  +------ they do not, or a rank's is not finite ------^
 */
#include <errno.h>
#include <stdio.h>

#include <thc/worker/answer.h>

#include "client.h"
#include "pipeline.h"
#include "queue.h"
#include "request.h"
#include "scheme.h"
#include "scheme_thc.h"
#include "transport.h"

unsigned int thc_pipeline_phases(struct thc_client *c, struct thc_phases **all)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = thc_queue_active(c, active), i;

	for (i = 0; i < n && active[i]->stage != THC_STAGE_QUEUED; i++)
		all[i] = &active[i]->phases;
	return i;
}

void thc_pipeline_ready(struct thc_phase *p, uint32_t index)
{
	struct thc_transport *t = p->request->client->transport;

	p->ready = index + 1;
	if (t->ops->ready)
		t->ops->ready(t, p, index);
}

static void send_claim(struct thc_request *r)
{
	unsigned int k;

	thc_agree_claim(r);
	for (k = THC_AGREEMENT; k < THC_AGREEMENT_PHASES; k++)
		if (r->phases.phase[k].sized)
			thc_pipeline_ready(&r->phases.phase[k], 0);
}

static int begin(struct thc_client *c, struct thc_request *r)
{
	if (r->stage != THC_STAGE_QUEUED)
		return 0;
	r->round = c->round++;
	r->began_at = thc_now();
	if (thc_request_prepare(r))
		return -ENOMEM;
	r->stage = THC_STAGE_BEGUN;
	return 0;
}

/* May @r begin? Its claim holds the digest of round r - 2, by whose results a scheme may choose, so
 * round r - 2 has to be over. Round r - 1 may end earlier. @oldest: of the active requests
 */
static bool may_begin(const struct thc_client *c, const struct thc_request *r,
		      const struct thc_request *oldest)
{
	return r->stage != THC_STAGE_QUEUED || r == oldest || c->round - oldest->round < 2;
}

static bool may_claim(const struct thc_request *r)
{
	const struct thc_phase *agreement = &r->phases.phase[THC_AGREEMENT];

	return r->claimed && agreement->numbered && !agreement->ready;
}

/* Breaks the client if this rank alone has failed and cannot go on. If true, no request is active
 * any more, and the waiting threads may have freed them.
 */
static bool break_off(struct thc_request *r)
{
	if (!r->left_behind && !r->broken)
		return false;
	thc_queue_break(r->client, r->status, "%.400s; %scall thc_client_rejoin() on all ranks",
			r->sentence,
			r->broken ? "" : "the others went on without this rank, which was late: ");
	return true;
}

void thc_pipeline_advance(struct thc_client *c)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	struct thc_phases *all[THC_ACTIVE_MAX];
	unsigned int queued = thc_queue_active(c, active), n, i;

	for (n = 0; n < queued && may_begin(c, active[n], active[0]); n++) {
		if (begin(c, active[n])) {
			thc_queue_break(c, -ENOMEM, "%s", active[n]->sentence);
			return;
		}
		all[n] = &active[n]->phases;
	}
	thc_phases_number(all, n, true, &c->numbered[true]);
	thc_phases_number(all, n, false, &c->numbered[false]);
	for (i = 0; i < n; i++) {
		struct thc_request *r = active[i];

		if (may_claim(r))
			send_claim(r);
		if (r->stage == THC_STAGE_AGREED && !r->going) {
			r->going = true;
			r->scheme->agreed(r);
			if (break_off(r))
				return;
		}
	}
}

bool thc_pipeline_compute(struct thc_client *c)
{
	struct thc_request *active[THC_ACTIVE_MAX];
	unsigned int n = thc_queue_active(c, active), i;

	for (i = 0; i < n; i++)
		if ((active[i]->stage == THC_STAGE_BEGUN || active[i]->stage == THC_STAGE_AGREED) &&
		    active[i]->scheme->compute(active[i]))
			return true;
	return false;
}

/* Has the caller asked for NaN as a result, and have all contributors seen it? */
static bool may_be_nonfinite(const struct thc_request *r)
{
	return r->client->options.flags & THC_CLIENT_NONFINITE && !r->left_behind;
}

static void claims_came(struct thc_request *r)
{
	r->status = thc_agree_check(r);
	if (r->status == -EBADMSG)
		thc_rate_differ(r);
	if (r->status == -EDOM && may_be_nonfinite(r))
		r->status = THC_NONFINITE;
	r->phases.agreed = !r->status;
	r->phases.over = r->status;
	r->stage = r->status ? THC_STAGE_DONE : THC_STAGE_AGREED;
}

/* Counts chunks of data whose sums lack ranks. */
static void count_missing(struct thc_client *c, const uint16_t *counts, uint32_t chunks)
{
	uint32_t k;

	for (k = 0; k < chunks; k++) {
		c->stats.excluded += !!(counts[k] & THC_COUNT_EXCLUDED);
		c->stats.partial += !!thc_count_lacks(counts[k], c->spec.ranks);
	}
}

/* Fails @r: without a deadline sums cannot be gone, and an exact result needs all of them. */
static void sums_are_gone(struct thc_request *r, uint32_t chunks)
{
	r->status = -EPROTO;
	r->left_behind = true;
	snprintf(r->sentence, sizeof(r->sentence),
		 "the aggregator has given up the sums of %u chunks, in a job without a deadline",
		 chunks);
}

void thc_pipeline_answer(struct thc_phase *p, uint32_t first, uint32_t chunks,
			 const uint16_t *counts, const uint8_t *lanes, uint32_t digest)
{
	struct thc_request *r = p->request;
	unsigned int phase = (unsigned int)(p - r->phases.phase);

	p->answered += chunks;
	if (phase < THC_AGREEMENT_PHASES) {
		if (thc_agree_answered(r, phase, lanes))
			claims_came(r);
	} else {
		if (!p->control)
			count_missing(r->client, counts, chunks);
		thc_agree_results(r, counts, chunks, digest);
		if (!lanes && !r->scheme->loses)
			sums_are_gone(r, chunks);
		r->scheme->answer(r, phase, first, chunks, counts, lanes);
		if (thc_phases_done(&r->phases))
			r->stage = THC_STAGE_DONE;
	}
	break_off(r);
}
