/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The reaction to a packet: which checks an aggregator makes, in which order, and what follows. The
 * XDP program, thcd's software aggregator and the tests compile this text. Each is a home: it
 * implements the functions of the first section.
 *
 * The sender is checked first: a few compares refuse a packet that is not of the job, so a flood of
 * such packets costs little. Key and tag come next, since a forged or corrupted header means
 * nothing. Then come the header's other fields, and the slot comes last.
 */
#ifndef THC_REACT_H
#define THC_REACT_H

#include <thc/aggregator/admit.h>
#include <thc/aggregator/answer.h>
#include <thc/aggregator/reaction.h>
#include <thc/aggregator/slot.h>
#include <thc/wire/version1.h>

/* --- functions that a home implements ---------------------------------------- */

/* The home, with whatever its functions need. */
struct thc_home;

/* The bucket that limits JOINs of strangers; NULL: there is none. */
THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home);

/* The bucket that limits JOINs with the key of @job as its rank @rank. */
THC_INLINE struct thc_bucket *thc_home_joins(struct thc_home *home, struct thc_job *job, u32 rank);

/* The bucket that limits LEAVEs of rank @rank of @job. */
THC_INLINE struct thc_bucket *thc_home_leaves(struct thc_home *home, struct thc_job *job, u32 rank);

/* Does @key, which the packet names, confirm the tag of data by seal @seal? THC_DROP_LENGTH: no op
 * has a payload of this length; a home that needs the length checks it in passing.
 */
THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p,
					      u8 seal, const struct thc_seal_key *key);

/* Is the tag of a JOIN or LEAVE right? The caller has checked its length. */
THC_INLINE enum thc_drop_reason thc_home_membership(struct thc_home *home,
						    const struct thc_packet *p,
						    const struct thc_seals *seals);

/* Does the daemon hear what comes to the packet's port? It listens on the base port alone. */
THC_INLINE int thc_home_hears(struct thc_home *home, const struct thc_packet *p);

/* ns, of a clock that does not go back. */
THC_INLINE u64 thc_home_clock(struct thc_home *home);

/* Where the time is kept at which the member's rank was last told that its epoch is over. */
THC_INLINE u64 *thc_home_told(struct thc_home *home, struct thc_member *m);

/* Notes the source of a member's packet that is being added. */
THC_INLINE void thc_home_heard(struct thc_home *home, struct thc_member *m);

/* Locks the slot at @index of all slots, until thc_home_unlock(). @row: index of the LUT_ADD row
 * among the rows of all jobs
 */
THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 row,
					      struct thc_slot **slot);
THC_INLINE void thc_home_unlock(struct thc_home *home, struct thc_slot *slot);

/* Combines the payload with the lanes of generation @odd of the slot that is locked. */
THC_INLINE void thc_home_combine(struct thc_home *home, enum thc_lane_kind kind,
				 const struct thc_packet *p, u32 odd, u32 first);

/* Digests the finished lanes of generation @odd of @slot: thc_answer_finish(). */
THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 odd,
				const struct thc_seals *seals);

/* thc_react_answer(), which a home may not want inlined. */
THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       const struct thc_seals *seals, struct thc_slot *slot, u32 verdict);

/* Least interval, in ns, between two messages to a joined rank that its epoch is over. */
#define THC_TOLD_NS	(100 * THC_NS_PER_MS)

/* --- the questions -------------------------------------------------------- */

/* Passes a JOIN or LEAVE to the daemon if there is a token; a new one comes every @each ns. */
THC_INLINE struct thc_reaction thc_react_token(struct thc_home *home, struct thc_bucket *bucket,
					       u64 each)
{
	if (!bucket)
		return thc_react_drop(THC_DROP_INTERNAL);
	return thc_bucket_take(bucket, thc_home_clock(home), each) ?
		       thc_react_with(THC_EVENT_MEMBERSHIP, THC_TO_DAEMON) :
		       thc_react_drop(THC_DROP_FLOOD);
}

/* Checks form and port of a JOIN or LEAVE; @bytes: of the payload. */
THC_INLINE enum thc_drop_reason thc_react_membership_form(struct thc_home *home,
							  const struct thc_packet *p, u32 bytes)
{
	enum thc_drop_reason why = thc_admit_form(p->hdr);

	if (!why && p->hdr->width)
		why = THC_DROP_WIDTH;
	if (!why && p->payload_len != bytes)
		why = THC_DROP_LENGTH;
	if (!why && !thc_home_hears(home, p))
		why = THC_DROP_SLOT;
	return why;
}

/* Passes JOIN to the daemon; @job may be NULL. A worker without the job's key, or with a rank that
 * the job does not have, counts as a stranger, and the daemon refuses it.
 */
THC_INLINE struct thc_reaction thc_react_join(struct thc_home *home, struct thc_job *job,
					      const struct thc_seals *seals,
					      const struct thc_packet *p)
{
	enum thc_drop_reason why = thc_react_membership_form(home, p, sizeof(struct thc_join));
	u32 rank = thc_be16(p->hdr->rank);

	if (why)
		return thc_react_drop(why);
	if (!job || !job->active || !thc_seal_names(p->hdr, seals->join.id) || rank >= job->ranks)
		return thc_react_token(home, thc_home_strangers(home), THC_JOINS_NS);
	why = thc_home_membership(home, p, seals);
	if (why)
		return thc_react_drop(why);
	return thc_react_token(home, thc_home_joins(home, job, rank & (THC_RANKS_MAX - 1)),
			       THC_JOINS_NS);
}

/* Passes LEAVE to the daemon; the sender's address is right. Like a JOIN, it may be a replay. */
THC_INLINE struct thc_reaction thc_react_leave(struct thc_home *home, struct thc_job *job,
					       const struct thc_seals *seals,
					       const struct thc_packet *p)
{
	u32 rank = thc_be16(p->hdr->rank) & (THC_RANKS_MAX - 1);
	enum thc_drop_reason why = thc_react_membership_form(home, p, sizeof(struct thc_leave));

	if (!why && !thc_seal_names(p->hdr, seals->join.id))
		why = THC_DROP_KEY;
	if (!why)
		why = thc_home_membership(home, p, seals);
	if (why)
		return thc_react_drop(why);
	return thc_react_token(home, thc_home_leaves(home, job, rank), THC_LEAVES_NS);
}

/* May the rank of a packet be told again that its epoch is over? */
THC_INLINE int thc_react_tells(struct thc_home *home, struct thc_job *job,
			       const struct thc_packet *p)
{
	u64 *told = thc_home_told(home, &job->member[thc_be16(p->hdr->rank) & (THC_RANKS_MAX - 1)]);
	u64 now = thc_home_clock(home);

	if (*told && now - *told < THC_TOLD_NS)
		return 0;
	*told = now;
	return 1;
}

/* Answers data of an ended epoch. Nothing in the packet has been proved, and one such answer is
 * enough, so a rank gets them at a limited rate. There is no limit if the packet is @lost: without
 * a joined rank's address to compare, anybody could use up the rate, and the rank would wait in
 * vain. The answer goes to the source of the packet, and is never longer than it.
 */
THC_INLINE struct thc_reaction thc_react_epoch(struct thc_home *home, struct thc_job *job,
					       const struct thc_seals *seals,
					       const struct thc_packet *p, int lost)
{
	if (!lost && !thc_react_tells(home, job, p))
		return thc_react_drop(THC_DROP_KEY);
	thc_answer_epoch(p->hdr, job, seals, &p->path);
	return thc_react_with(THC_EVENT_EPOCH, THC_TO_SENDER);
}

/* Passes a JOIN of version 1 to the daemon, which tells the worker that the version is obsolete. */
THC_INLINE struct thc_reaction thc_react_version(struct thc_home *home, const struct thc_packet *p)
{
	if (thc_version1_joins(p->hdr, p->payload_len) && thc_home_hears(home, p))
		return thc_react_token(home, thc_home_strangers(home), THC_JOINS_NS);
	return thc_react_drop(THC_DROP_VERSION);
}

/**
 * thc_react_gate() - all checks before the slot
 * @job: found by thc_hdr.job; NULL: no job can have that number
 * @seals: the job's; not NULL if @job is not
 */
THC_INLINE struct thc_reaction thc_react_gate(struct thc_home *home, struct thc_job *job,
					      const struct thc_seals *seals,
					      const struct thc_packet *p)
{
	const struct thc_seal_key *key;
	struct thc_hdr *h = p->hdr;
	enum thc_drop_reason why;
	u32 epoch;
	int lost;

	if (h->version != THC_VERSION)
		return thc_react_version(home, p);
	if (job && !thc_admit_near(job, &p->path))
		return thc_react_drop(THC_DROP_HOPS);
	if (h->op == THC_OP_JOIN)
		return thc_react_join(home, job, seals, p);
	if (!job)
		return thc_react_drop(THC_DROP_JOB);
	why = thc_admit_rank(job, h, &p->path);
	lost = thc_admit_lost(job, h, why);
	if (why && !lost)
		return thc_react_drop(why);
	if (h->op == THC_OP_LEAVE)
		return lost ? thc_react_drop(why) : thc_react_leave(home, job, seals, p);
	if (!thc_op_is_data(h->op))
		return thc_react_drop(THC_DROP_OP);
	/* read the epoch once for key and compare: the daemon may begin the next epoch meanwhile */
	epoch = *(volatile u32 *)&job->epoch;
	key = thc_seals_up(seals, epoch);
	if (!thc_seal_names(h, key->id))
		return thc_react_epoch(home, job, seals, p, lost);
	why = thc_home_seal(home, p, (u8)seals->seal, key);
	if (!why)
		why = thc_admit_form(h);
	if (why)
		return thc_react_drop(why);
	if (lost || thc_be32(h->epoch) != epoch)
		return thc_react_epoch(home, job, seals, p, lost);
	why = thc_admit_data(job, h, &p->path, p->payload_len);
	return why ? thc_react_drop(why) : thc_react_with(THC_EVENT_ADDED, THC_TO_SLOT);
}

/**
 * thc_react_answer() - writes the answer to a contribution over its header
 * @h: the request's header, in its packet
 * @slot: its slot, locked
 * @verdict: enum thc_verdict; THC_ADD: the generation is finished
 *
 * Returns 0: there is no answer.
 */
THC_INLINE int thc_react_answer(struct thc_hdr *h, const struct thc_job *job,
				const struct thc_seals *seals, struct thc_slot *slot, u32 verdict)
{
	struct thc_generation *g = &slot->generation[thc_be32(h->generation) & 1];
	struct thc_answer_at at = { thc_be16(h->job), thc_be16(h->slot), slot->epoch };

	switch (verdict) {
	case THC_ADD:
		thc_answer_result(h, seals, at, g, 0, 0);
		break;
	case THC_REPEAT:
		thc_answer_result(h, seals, at, g, (u8)thc_be16(h->rank), 1);
		break;
	case THC_WAIT:
		thc_answer_wait(h, job, seals, g);
		break;
	case THC_BUSY:
	case THC_MISMATCH:
		return thc_answer_differs(h, seals, slot);
	default:
		thc_answer_stale(h, seals, slot);
	}
	return 1;
}

/* The reaction to a contribution, by the slot's verdict. */
THC_INLINE struct thc_reaction thc_react_verdict(u32 verdict)
{
	switch (verdict) {
	case THC_ADD:
		return thc_react_with(THC_EVENT_ADDED, THC_TO_ALL);
	case THC_WAIT:
		return thc_react_with(THC_EVENT_WAITED, THC_TO_SENDER);
	case THC_REPEAT:
		return thc_react_with(THC_EVENT_REPEATED, THC_TO_SENDER);
	case THC_STALE:
		return thc_react_with(THC_EVENT_STALE, THC_TO_SENDER);
	default: {
		struct thc_reaction r = {
			.why = verdict == THC_BUSY ? THC_DROP_BUSY : THC_DROP_MISMATCH,
			.to = THC_TO_SENDER,
		};

		return r;
	}
	}
}

/* A contribution of the current epoch meets its slot. */
THC_INLINE struct thc_reaction thc_react_slot(struct thc_home *home, struct thc_job *job,
					      const struct thc_seals *seals,
					      const struct thc_packet *p)
{
	struct thc_hdr *h = p->hdr;
	struct thc_arrival a = {
		/* the epoch that was admitted; the job may be in the next one already */
		.epoch = thc_be32(h->epoch),
		.generation = thc_be32(h->generation),
		.round = thc_be32(h->round),
		.chunk = thc_be32(h->chunk),
		.rank = (u8)thc_be16(h->rank),
		.op = h->op,
		.width = thc_sum_bits(h->op, h->width,
				      thc_widths_row(&job->widths, h->width).sum_width),
		.row = thc_row_of(h->op, h->width),
		.ce = p->ce,
	};
	enum thc_drop_reason why;
	struct thc_reaction r;
	struct thc_slot *slot;
	struct thc_outcome o;

	why = thc_home_lock(home, job->slot_base + thc_be16(h->slot),
			    thc_row_of_all(thc_be16(h->job), h->width), &slot);
	if (why)
		return thc_react_drop(why);
	o = thc_slot_arrive(slot, &a, job->all);
	r = thc_react_verdict(o.verdict);
	if (o.verdict == THC_ADD) {
		/* a contribution that is not added may be a replay, from anywhere */
		thc_home_heard(home, &job->member[a.rank & (THC_RANKS_MAX - 1)]);
		/* asked again: the verifier of BPF would follow each kind from the gate to here */
		thc_home_combine(home, thc_admit_kind(job, h), p, a.generation & 1, o.first);
		if (!o.complete) {
			thc_home_unlock(home, slot);
			r.to = THC_TO_NOBODY;
			return r;
		}
		thc_home_finish(home, slot, a.generation & 1, seals);
	}
	if (!thc_home_answer(home, h, job, seals, slot, o.verdict))
		r.to = THC_TO_NOBODY;
	thc_home_unlock(home, slot);
	return r;
}

/**
 * thc_react() - the reaction to a packet
 * @job: found by thc_hdr.job; NULL: no job can have that number
 * @seals: the job's; not NULL if @job is not
 * @p: has at least a header
 */
THC_INLINE struct thc_reaction thc_react(struct thc_home *home, struct thc_job *job,
					 const struct thc_seals *seals, const struct thc_packet *p)
{
	struct thc_reaction r = thc_react_gate(home, job, seals, p);

	return r.to == THC_TO_SLOT ? thc_react_slot(home, job, seals, p) : r;
}

#endif /* THC_REACT_H */
