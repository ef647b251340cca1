// SPDX-License-Identifier: GPL-2.0
/*
 * The software aggregator, for hosts without BPF: admission, slots, lanes and
 * answers are those of include/thc/, so its bits are those of XDP. It is alone
 * with its memory: no locks.
 */
#include <sys/mman.h>

#include <thc/aggregator/lane.h>
#include <thc/aggregator/react.h>

#include "net.h"
#include "software.h"

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int thcd_software_init(struct thcd *d, u32 slots, struct thcd_error *e)
{
	static struct thcd_record record[THC_JOBS_MAX];
	static struct thc_pairs pairs[THC_JOBS_MAX];
	static struct thc_job job[THC_JOBS_MAX];

	d->job = job;
	d->record = record;
	d->pairs = pairs;
	d->slots = slots;
	d->slot = map(slots * sizeof(*d->slot));
	d->lanes = map(slots * sizeof(*d->lanes));
	return d->slot && d->lanes ? 0 : thcd_fail(e, "out of memory for %u slots", slots);
}

void thcd_software_exit(struct thcd *d)
{
	if (d->slot)
		munmap(d->slot, d->slots * sizeof(*d->slot));
	if (d->lanes)
		munmap(d->lanes, d->slots * sizeof(*d->lanes));
}

/* What <thc/aggregator/react.h> asks of its home: one thread, so nothing is locked. */
struct thc_home {
	struct thcd	*d;
	u16		job;
	u32		at;	/* the slot, of all */
};

THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home, u64 *now)
{
	*now = thcd_now_ms() * THC_NS_PER_MS;
	return &home->d->strangers;
}

THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p)
{
	struct thc_hdr *h = p->hdr;

	(void)home;
	if (h->op != THC_OP_JOIN && !thc_payload_is_known(p->payload_len))
		return THC_DROP_LENGTH;
	return thc_seal_ok(h, h + 1, (int)(p->payload_len / 8)) ? THC_DROP_NONE : THC_DROP_SUM;
}

THC_INLINE void thc_home_heard(struct thc_home *home, struct thc_member *m)
{
	(void)home;
	(void)m;
}

THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 job,
					      struct thc_slot **slot)
{
	home->job = (u16)job;
	home->at = index;
	*slot = &home->d->slot[index];
	return THC_DROP_NONE;
}

THC_INLINE void thc_home_unlock(struct thc_home *home, struct thc_slot *slot)
{
	(void)home;
	(void)slot;
}

THC_INLINE void thc_home_combine(struct thc_home *home, enum thc_lane_kind kind,
				 const struct thc_packet *p, u32 v, u32 first)
{
	const struct thc_pairs *table = &home->d->pairs[home->job];
	u64 *lanes = home->d->lanes[home->at].word[v];

	if (first)
		thc_lanes_add(kind, lanes, p->hdr + 1, table, 1);
	else
		thc_lanes_add(kind, lanes, p->hdr + 1, table, 0);
}

THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 v)
{
	thc_answer_finish(&slot->version[v], home->d->lanes[home->at].word[v]);
}

THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       struct thc_slot *slot, u32 verdict)
{
	(void)home;
	/* a result goes out with its lanes: answer.c makes its header */
	return verdict == THC_ADD || verdict == THC_REPEAT ||
	       thc_react_answer(h, job, slot, verdict);
}

static struct thc_job *job_of(struct thcd *d, const struct thc_hdr *h)
{
	u16 id = thc_be16(h->job);

	return id < THC_JOBS_MAX ? &d->job[id] : NULL;
}

struct thc_reaction thcd_gate(struct thcd *d, const struct thc_packet *p)
{
	struct thc_home home = { .d = d };
	enum thc_lane_kind kind;

	return thc_react_gate(&home, job_of(d, p->hdr), p, &kind);
}

struct thc_reaction thcd_software(struct thcd *d, const struct thc_packet *p)
{
	struct thc_home home = { .d = d };
	struct thc_reaction r = thc_react(&home, job_of(d, p->hdr), p);
	const struct thc_hdr *h = p->hdr;
	u16 job_id = thc_be16(h->job), slot = thc_be16(h->slot);

	if (r.to == THC_TO_ALL)
		thcd_answer_all(d, job_id, slot, thc_be32(h->generation));
	else if (r.to == THC_TO_SENDER && r.event == THC_EVENT_REPEATED)
		thcd_answer_one(d, job_id, slot, thc_be32(h->generation), h->rank);
	else if (r.to == THC_TO_SENDER)
		thcd_out_put(d, &p->path.src, p->path.src_port, h, NULL, NULL, 0);
	return r;
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
