// SPDX-License-Identifier: GPL-2.0
/*
 * Deadlines. The data path keeps no clock. The daemon scans all slots a few times per deadline,
 * remembers when it first saw a generation open, and closes the generation once that is a deadline
 * ago and the quorum is reached. So a generation with its quorum lives between 1 and 1.25
 * deadlines.
 *
 * In XDP mode only BPF can take a slot's lock: the daemon closes a generation by a
 * BPF_PROG_TEST_RUN of thc_close.
 */
#include <stdlib.h>

#include "jobs.h"
#include "net.h"
#include "software.h"
#include "xdp.h"

/* Looks per deadline. */
#define LOOKS	4

/* When a slot's generation was first seen open; epoch 0, which no job has: none is open. */
struct age {
	u64	since_ms;
	u32	epoch;
	u32	generation;
};

static struct age *ages;
static u64 next_scan_ms;

int thcd_deadline_init(const struct thcd *d, struct thcd_error *e)
{
	ages = calloc(d->slots, sizeof(*ages));
	return ages ? 0 : thcd_fail(e, "out of memory for %u slots", d->slots);
}

void thcd_deadline_exit(void)
{
	free(ages);
}

/* The open generation of a slot; a slot has at most one, its newest. */
static const struct thc_generation *open_generation(const struct thc_slot *s, u32 epoch)
{
	const struct thc_generation *g = &s->generation[s->top & 1];

	return s->epoch == epoch && g->state == THC_OPEN && g->number == s->top ? g : NULL;
}

static void close_generation(struct thcd *d, u16 job_id, u32 slot, u32 generation)
{
	bool closed = d->software ? thcd_software_close(d, job_id, slot, generation) :
				    thcd_xdp_close(d, job_id, slot, generation);

	if (closed)
		thcd_answer_all(d, job_id, slot, generation);
}

static void scan_job(struct thcd *d, u16 job_id, u64 now_ms)
{
	const struct thc_job *job = &d->job[job_id];
	u32 i;

	for (i = 0; i < job->slots; i++) {
		const struct thc_generation *g =
			open_generation(&d->slot[job->slot_base + i], job->epoch);
		struct age *age = &ages[job->slot_base + i];

		if (!g)
			age->epoch = 0;
		else if (age->epoch != job->epoch || age->generation != g->number)
			*age = (struct age){ now_ms, job->epoch, g->number };
		else if (now_ms - age->since_ms >= job->deadline_ms && g->count >= job->quorum)
			close_generation(d, job_id, i, age->generation);
	}
}

int thcd_deadline_scan(struct thcd *d)
{
	u64 now = thcd_now_ms();
	int wait = -1, i;

	for (i = 0; i < THC_JOBS_MAX; i++) {
		int pace = d->job[i].deadline_ms / LOOKS;

		if (!d->job[i].active || !d->job[i].deadline_ms)
			continue;
		pace = pace ? pace : 1;
		wait = wait < 0 || pace < wait ? pace : wait;
	}
	if (wait < 0)
		return -1;
	/* a job created since then may have a shorter deadline */
	if (next_scan_ms > now + wait)
		next_scan_ms = now + wait;
	if (now < next_scan_ms)
		return next_scan_ms - now;
	for (i = 0; i < THC_JOBS_MAX; i++)
		if (d->job[i].active && d->job[i].deadline_ms)
			scan_job(d, i, now);
	thcd_out_flush(d);
	next_scan_ms = now + wait;
	return wait;
}
