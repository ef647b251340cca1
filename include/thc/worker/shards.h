/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How a worker joins a job that has several aggregators: it joins each as join.h says, and compares
 * what all have announced. Number 0 lists the others, so the worker may learn of them later.
 */
#ifndef THC_WORKER_SHARDS_H
#define THC_WORKER_SHARDS_H

#include <thc/wire/shards.h>
#include <thc/worker/join.h>

/* A worker's joining at one aggregator, and the sender for that aggregator. */
struct thc_joiner {
	const struct thc_joining *j;
	const struct thc_sender *s;
};

/**
 * struct thc_joiners - a worker's joinings at all aggregators that it knows
 * @home: the caller's object, for @at
 * @at: the joining at aggregator number @shard, below @known
 * @known: number of aggregators that the worker sends to, at least one
 * @listed: these are all aggregators of the job; else number 0 has still to say how many there are
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

/* The first aggregator that has not announced READY; @known: all have. */
THC_INLINE u32 thc_joiners_unready(const struct thc_joiners *all)
{
	u32 i;

	for (i = 0; i < all->known && all->at(all->home, i).j->ready; i++)
		;
	return i;
}

/* Have all of the job's aggregators announced READY? */
THC_INLINE int thc_joiners_ready(const struct thc_joiners *all)
{
	return thc_joiners_unready(all) == all->known && !thc_joiners_lack(all);
}

/* Has number @shard announced that number, and the job that all others have announced? */
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
 * thc_joiners_step() - the next step after a packet from aggregator number @shard
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

/* Names who is to blame when the time to join has run out. Aggregators that this worker has never
 * sent to miss this rank.
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
