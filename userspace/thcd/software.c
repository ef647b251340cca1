// SPDX-License-Identifier: GPL-2.0
/*
 * The software aggregator, for hosts without BPF. It runs the code of include/thc/ for admission,
 * slots, lanes and answers, as XDP does, so both give the same bits. Only one thread uses its
 * memory, so nothing is locked.
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
	static struct thc_seals seals[THC_JOBS_MAX];
	static struct thc_pairs pairs[THC_ROWS_MAX];
	static struct thc_job job[THC_JOBS_MAX];

	d->job = job;
	d->seals = seals;
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

/* The home of <thc/aggregator/react.h>: one thread, so nothing is locked. */
struct thc_home {
	struct thcd	*d;
	u32		row;	/* among the rows of all jobs */
	u32		at;	/* slot among those of all jobs */
	u64		told_at;	/* see thc_home_told() */
};

THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home)
{
	return &home->d->strangers;
}

/* Not the member's bucket, from which XDP has taken a token for this packet. */
THC_INLINE struct thc_bucket *thc_home_joins(struct thc_home *home, struct thc_job *job, u32 rank)
{
	return &home->d->joins[job - home->d->job][rank];
}

THC_INLINE struct thc_bucket *thc_home_leaves(struct thc_home *home, struct thc_job *job, u32 rank)
{
	return &home->d->leaves[job - home->d->job][rank];
}

/* In XDP mode thcd sends no such answer, and must not mark the rank as told: XDP will tell it. */
THC_INLINE u64 *thc_home_told(struct thc_home *home, struct thc_member *m)
{
	return home->d->software ? &m->told_at : &home->told_at;
}

/* The packet came by the daemon's socket. */
THC_INLINE int thc_home_hears(struct thc_home *home, const struct thc_packet *p)
{
	(void)home;
	(void)p;
	return 1;
}

THC_INLINE u64 thc_home_clock(struct thc_home *home)
{
	(void)home;
	return thcd_now_ms() * THC_NS_PER_MS;
}

THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p,
					      u8 seal, const struct thc_seal_key *key)
{
	const struct thc_hdr *h = p->hdr;

	(void)home;
	if (!thc_payload_is_known(p->payload_len))
		return THC_DROP_LENGTH;
	return thc_seal_ok(h, seal, key, h + 1, (int)(p->payload_len / 8)) ? THC_DROP_NONE :
									     THC_DROP_TAG;
}

THC_INLINE enum thc_drop_reason thc_home_membership(struct thc_home *home,
						    const struct thc_packet *p,
						    const struct thc_seals *seals)
{
	const struct thc_end end = thc_path_end(&p->path, seals);
	const struct thc_hdr *h = p->hdr;

	(void)home;
	return h->tag == thc_member_tag(thc_seal_of_members((u8)seals->seal), &seals->join, h, &end,
					h + 1, (int)(p->payload_len / 8)) ?
		       THC_DROP_NONE :
		       THC_DROP_TAG;
}

THC_INLINE void thc_home_heard(struct thc_home *home, struct thc_member *m)
{
	(void)home;
	(void)m;
}

THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 row,
					      struct thc_slot **slot)
{
	home->row = row;
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
				 const struct thc_packet *p, u32 odd, u32 first)
{
	const struct thc_pairs *table = &home->d->pairs[home->row];
	u64 *lanes = home->d->lanes[home->at].word[odd];
	u32 rank = thc_be16(p->hdr->rank);

	if (first)
		thc_lanes_add(kind, lanes, p->hdr + 1, table, rank, 1);
	else
		thc_lanes_add(kind, lanes, p->hdr + 1, table, rank, 0);
}

THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 odd,
				const struct thc_seals *seals)
{
	thc_answer_finish(&slot->generation[odd], home->d->lanes[home->at].word[odd], seals,
			  slot->epoch);
}

THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       const struct thc_seals *seals, struct thc_slot *slot, u32 verdict)
{
	(void)home;
	/* a result goes out with its lanes: answer.c makes its header */
	return verdict == THC_ADD || verdict == THC_REPEAT ||
	       thc_react_answer(h, job, seals, slot, verdict);
}

/* The job that the header names; NULL: no job can have that number. */
static struct thc_job *job_of(struct thcd *d, const struct thc_hdr *h, struct thc_seals **seals)
{
	u16 id = thc_be16(h->job);

	*seals = id < THC_JOBS_MAX ? &d->seals[id] : NULL;
	return id < THC_JOBS_MAX ? &d->job[id] : NULL;
}

struct thc_reaction thcd_gate(struct thcd *d, const struct thc_packet *p)
{
	struct thc_home home = { .d = d };
	struct thc_seals *seals;
	struct thc_job *job = job_of(d, p->hdr, &seals);

	return thc_react_gate(&home, job, seals, p);
}

struct thc_reaction thcd_software(struct thcd *d, const struct thc_packet *p)
{
	struct thc_home home = { .d = d };
	struct thc_seals *seals;
	struct thc_job *job = job_of(d, p->hdr, &seals);
	struct thc_reaction r = thc_react(&home, job, seals, p);
	const struct thc_hdr *h = p->hdr;
	u16 job_id = thc_be16(h->job), slot = thc_be16(h->slot);

	if (r.to == THC_TO_ALL)
		thcd_answer_all(d, job_id, slot, thc_be32(h->generation));
	else if (r.to == THC_TO_SENDER && r.event == THC_EVENT_REPEATED)
		thcd_answer_one(d, job_id, slot, thc_be32(h->generation), (u8)thc_be16(h->rank));
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
	thc_answer_finish(&s->generation[generation & 1], d->lanes[at].word[generation & 1],
			  &d->seals[job_id], s->epoch);
	d->stats.event[THC_EVENT_CLOSED]++;
	return true;
}
