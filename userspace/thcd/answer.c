// SPDX-License-Identifier: GPL-2.0
/*
 * Sends the result of a finished slot. In XDP mode the slot is a value of a mmapped map: the kernel
 * may reopen it at any time, and user space cannot take its lock. So thcd copies generation and
 * lanes, then checks the generation again. If the generation is gone by then, thcd sends nothing:
 * all workers have its result (slot.h says why) or learn by STALE that they do not.
 */
#include <string.h>

#include <thc/aggregator/answer.h>

#include "net.h"

/* A finished generation, copied. */
struct result {
	struct thc_answer_at	at;
	struct thc_generation	generation;
	u64			word[THC_LANE_WORDS];
};

static bool done(const struct thc_slot *s, const struct thc_generation *g, u32 epoch,
		 u32 generation)
{
	return s->epoch == epoch && g->number == generation && thc_generation_done(g);
}

/* Copies a finished generation; false: the slot has moved on. */
static bool take(struct thcd *d, u16 job_id, u32 slot, u32 generation, struct result *out)
{
	const struct thc_job *job = &d->job[job_id];
	const struct thc_slot *s = &d->slot[job->slot_base + slot];
	const struct thc_lanes *lanes = &d->lanes[job->slot_base + slot];
	const struct thc_generation *g = &s->generation[generation & 1];

	out->at = (struct thc_answer_at){ job_id, slot, job->epoch };
	if (done(s, g, out->at.epoch, generation)) {
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		memcpy(&out->generation, g, sizeof(out->generation));
		memcpy(out->word, lanes->word[generation & 1], sizeof(out->word));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (done(s, g, out->at.epoch, generation))
			return true;
	}
	d->counters.gone++;
	return false;
}

/* @port: in network order */
static void send_result(struct thcd *d, const struct result *r, u8 rank, bool repeat,
			const struct thc_addr *to, u16 port)
{
	struct thc_hdr h;

	thc_answer_result(&h, &d->seals[r->at.job], r->at, &r->generation, rank, repeat);
	thcd_out_put(d, to, thc_be16(port), &h, r->word, NULL, sizeof(r->word));
}

void thcd_answer_all(struct thcd *d, u16 job_id, u32 slot, u32 generation)
{
	const struct thc_job *job = &d->job[job_id];
	struct result r;
	int i;

	if (!take(d, job_id, slot, generation, &r))
		return;
	if (job->reply == THC_REPLY_MULTICAST) {
		send_result(d, &r, 0, false, &job->group, job->group_port);
		return;
	}
	for (i = 0; i < job->ranks; i++) {
		const struct thc_member *m = &job->member[i];

		if (m->joined && !m->left)
			send_result(d, &r, 0, false, &m->addr, m->port);
	}
}

void thcd_answer_one(struct thcd *d, u16 job_id, u32 slot, u32 generation, u8 rank)
{
	const struct thc_member *m = &d->job[job_id].member[rank];
	struct result r;

	if (take(d, job_id, slot, generation, &r))
		send_result(d, &r, rank, true, &m->addr, m->port);
}
