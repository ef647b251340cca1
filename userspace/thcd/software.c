// SPDX-License-Identifier: GPL-2.0
/*
 * The software aggregator, for hosts without BPF: admission, slots, lanes and
 * answers are those of include/thc/, so its bits are those of XDP. It is alone
 * with its memory: no locks.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "answer.h"
#include "software.h"

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int thcd_software_init(struct thcd *d, u32 slots, struct thcd_error *e)
{
	d->slots = slots;
	d->job = map(THC_JOBS_MAX * sizeof(*d->job));
	d->record = map(THC_JOBS_MAX * sizeof(*d->record));
	d->pairs = map(THC_JOBS_MAX * sizeof(*d->pairs));
	d->slot = map(slots * sizeof(*d->slot));
	d->lanes = map(slots * sizeof(*d->lanes));
	if (d->job && d->record && d->pairs && d->slot && d->lanes)
		return 0;
	return thcd_fail(e, "out of memory for %u slots", slots);
}

void thcd_software_exit(struct thcd *d)
{
	if (d->job)
		munmap(d->job, THC_JOBS_MAX * sizeof(*d->job));
	if (d->record)
		munmap(d->record, THC_JOBS_MAX * sizeof(*d->record));
	if (d->pairs)
		munmap(d->pairs, THC_JOBS_MAX * sizeof(*d->pairs));
	if (d->slot)
		munmap(d->slot, d->slots * sizeof(*d->slot));
	if (d->lanes)
		munmap(d->lanes, d->slots * sizeof(*d->lanes));
}

static void add(struct thcd *d, u16 job_id, u32 slot, const struct thc_arrival *a,
		const void *payload, const struct thc_outcome *out)
{
	u32 at = d->job[job_id].slot_base + slot;
	u64 *lanes = d->lanes[at].word[out->v];

	if (out->first)
		thc_lanes_add(a->kind, lanes, payload, &d->pairs[job_id], 1);
	else
		thc_lanes_add(a->kind, lanes, payload, &d->pairs[job_id], 0);
	if (!out->complete)
		return;
	thc_answer_finish(&d->slot[at].version[out->v], lanes);
	d->stats.event[THC_EVENT_FINISHED]++;
	thcd_answer_all(d, job_id, slot, a->generation);
}

static enum thc_drop_reason arrive(struct thcd *d, u16 job_id, const struct thc_path *path,
				   struct thc_hdr *h, const struct thc_arrival *a)
{
	const struct thc_job *job = &d->job[job_id];
	u32 slot = thc_be16(h->slot);
	struct thc_slot *s = &d->slot[job->slot_base + slot];
	struct thc_outcome out = thc_slot_arrive(s, a, job->all);

	switch ((enum thc_verdict)out.verdict) {
	case THC_ADD:
		d->stats.event[THC_EVENT_ADDED]++;
		add(d, job_id, slot, a, h + 1, &out);
		return THC_DROP_NONE;
	case THC_WAIT:
		d->stats.event[THC_EVENT_WAITED]++;
		thc_answer_wait(h, job, &s->version[out.v]);
		thcd_answer_header(d, path, h);
		return THC_DROP_NONE;
	case THC_REPEAT:
		d->stats.event[THC_EVENT_REPEATED]++;
		thcd_answer_one(d, job_id, slot, a->generation, a->rank);
		return THC_DROP_NONE;
	case THC_STALE:
		d->stats.event[THC_EVENT_STALE]++;
		thc_answer_stale(h, job, s);
		thcd_answer_header(d, path, h);
		return THC_DROP_NONE;
	case THC_BUSY:
	case THC_MISMATCH:
		if (thc_answer_differs(h, job, s))
			thcd_answer_header(d, path, h);
		return out.verdict == THC_BUSY ? THC_DROP_BUSY : THC_DROP_MISMATCH;
	}
	return THC_DROP_INTERNAL;
}

enum thc_drop_reason thcd_software(struct thcd *d, struct thc_hdr *h, u32 length,
				   const struct thc_path *path, bool ce)
{
	u16 job_id = thc_be16(h->job);
	const struct thc_job *job = &d->job[job_id];
	struct thc_arrival a = {
		.epoch = thc_be32(h->epoch),
		.generation = thc_be32(h->generation),
		.round = thc_be32(h->round),
		.chunk = thc_be32(h->chunk),
		.rank = h->rank,
		.op = h->op,
		.ce = ce,
	};
	enum thc_drop_reason reason;
	enum thc_lane_kind kind;

	if (a.epoch != job->epoch) {
		d->stats.event[THC_EVENT_EPOCH]++;
		thc_answer_epoch(h, job);
		thcd_answer_header(d, path, h);
		return THC_DROP_NONE;
	}
	reason = thc_admit_data(job, h, path, length, &kind);
	if (reason)
		return reason;
	a.kind = kind;
	return arrive(d, job_id, path, h, &a);
}

bool thcd_software_close(struct thcd *d, u16 job_id, u32 slot, u32 generation)
{
	const struct thc_job *job = &d->job[job_id];
	u32 at = job->slot_base + slot;
	struct thc_slot *s = &d->slot[at];

	if (!thc_slot_close(s, job->epoch, generation, job->quorum))
		return false;
	thc_answer_finish(&s->version[generation & 1], d->lanes[at].word[generation & 1]);
	d->stats.event[THC_EVENT_CLOSED]++;
	return true;
}
