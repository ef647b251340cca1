/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How a worker joins a job that has several aggregators: each of them as join.h says, and what
 * follows from what all have said. Number 0 lists them, so the worker may know more of them later.
 */
#ifndef THC_WORKER_SHARDS_H
#define THC_WORKER_SHARDS_H

#include <thc/wire/shards.h>
#include <thc/worker/join.h>

/* A worker's way into the job of one aggregator, and the sender that goes it. */
struct thc_joiner {
	const struct thc_joining *j;
	const struct thc_sender *s;
};

/**
 * struct thc_joiners - a worker's ways into the job of all aggregators that it knows
 * @home: whose they are
 * @at: that of aggregator number @shard, below @known
 * @known: aggregators that the worker sends to, at least one
 * @listed: they are all that the job has. Else number 0 is to say how many there are
 */
struct thc_joiners {
	const void *home;
	struct thc_joiner (*at)(const void *home, u32 shard);
	u32 known;
	u8 listed;
};

/* Does number 0 list aggregators that the worker does not know yet? */
THC_INLINE int thc_joiners_lack(const struct thc_joiners *all)
{
	const struct thc_joining *j = all->at(all->home, 0).j;

	return j->welcomed && j->spec.shards > all->known;
}

/* The first aggregator that has not said that all ranks are in; @known: there is none. */
THC_INLINE u32 thc_joiners_unready(const struct thc_joiners *all)
{
	u32 i;

	for (i = 0; i < all->known && all->at(all->home, i).j->ready; i++)
		;
	return i;
}

/* Have all of the job's aggregators said that all ranks are in? */
THC_INLINE int thc_joiners_ready(const struct thc_joiners *all)
{
	return thc_joiners_unready(all) == all->known && !thc_joiners_lack(all);
}

/* Do all aggregators that have spoken mean the job that number @shard means, and is @shard the
 * number that it has for itself?
 */
THC_INLINE int thc_joiners_agree(const struct thc_joiners *all, u32 shard)
{
	const struct thc_spec *spec = &all->at(all->home, shard).j->spec;
	u32 i;

	if (spec->shard != shard || (all->listed && spec->shards != all->known))
		return 0;
	for (i = 0; i < all->known; i++) {
		const struct thc_joining *j = all->at(all->home, i).j;

		if (j->welcomed && !thc_shards_agree(&j->spec, spec))
			return 0;
	}
	return 1;
}

/**
 * thc_joiners_step() - what follows from the last words of aggregator number @shard
 * @f: out: why the worker cannot join; THC_FAILED_NOT: it may
 */
THC_INLINE enum thc_join_step thc_joiners_step(const struct thc_joiners *all, u32 shard,
					       struct thc_failure *f)
{
	struct thc_joiner at = all->at(all->home, shard);
	enum thc_join_step step = thc_joining_step(at.j, at.s);

	*f = (struct thc_failure){ .reason = THC_FAILED_NOT, .shard = (u8)shard };
	switch (step) {
	case THC_JOIN_ASK:
		break;
	case THC_JOIN_WAIT:
	case THC_JOIN_READY:
		if (thc_joiners_agree(all, shard))
			break;
		f->error = EPROTO;
		f->reason = THC_FAILED_SHARDS;
		break;
	case THC_JOIN_REFUSED:
		f->error = EACCES;
		f->reason = THC_FAILED_REFUSED;
		f->refusal = at.j->spec.refusal;
		break;
	case THC_JOIN_UNSOUND:
		f->error = EPROTO;
		f->reason = THC_FAILED_VERSION;
		break;
	}
	return step;
}

/* The time to join has run out: who is to blame, and why? To those that the worker has never sent
 * to it is itself the rank that is missing.
 */
THC_INLINE void thc_joiners_failure(const struct thc_joiners *all, struct thc_failure *f)
{
	u32 shard = thc_joiners_unready(all);

	if (shard < all->known) {
		struct thc_joiner unready = all->at(all->home, shard);

		thc_joining_failure(unready.j, unready.s, f);
	} else {
		*f = (struct thc_failure){ .error = ETIMEDOUT, .reason = THC_FAILED_JOIN };
		if (thc_joiners_lack(all))
			f->ranks = 1ULL << all->at(all->home, 0).s->rank;
		else
			shard = 0;
	}
	f->shard = (u8)shard;
}

#endif /* THC_WORKER_SHARDS_H */
