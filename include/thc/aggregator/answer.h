/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Answers: the headers an aggregator sends, made from a slot and from the
 * request that caused them. Addresses and frames are the caller's.
 */
#ifndef THC_ANSWER_H
#define THC_ANSWER_H

#include <thc/wire/checksum.h>
#include <thc/aggregator/job.h>
#include <thc/aggregator/slot.h>
#include <thc/wire/format.h>
#include <thc/wire/seal.h>

/* Computes digest and checksum of a finished generation's lanes in one pass, for the seals none and
 * sum. Lanes are host values here; the sums are over their little-endian form. @seal: a constant
 * where BPF calls
 */
THC_INLINE void thc_answer_pass(struct thc_generation *g, u8 seal, const u64 *lanes)
{
	struct thc_sum sum = { 0, 0 };
	u64 whole = 0, upper = 0;
	int i;

	THC_UNROLL
	for (i = 0; i < THC_LANE_WORDS; i++) {
		whole += thc_le64(lanes[i]);
		upper += thc_le64(lanes[i]) >> 32;
		if (seal == THC_SEAL_SUM)
			thc_sum_word(&sum, lanes[i]);
	}
	g->digest.a = sum.a;
	g->digest.b = sum.b;
	g->checksum = thc_checksum_fold(thc_checksum_of(whole, upper));
}

/* Digest and checksum for the seal nh. Both take halves of words, which are loaded as such, since
 * shifts cost more.
 */
THC_INLINE void thc_answer_pass_nh(struct thc_generation *g, const struct thc_seal_key *key,
				   const u64 *lanes)
{
	const thc_half_word *half = (const void *)lanes;
	u64 lower = 0, upper = 0, nh = 0;
	int i;

	THC_UNROLL
	for (i = 0; i < THC_LANE_WORDS; i++) {
		const u32 low = half[THC_HALF_AT(2 * i)], high = half[THC_HALF_AT(2 * i + 1)];

		lower += thc_le32(low);
		upper += thc_le32(high);
		THC_IN_ORDER(lower);
		THC_IN_ORDER(upper);
		nh += thc_nh_word(key->nh + 2 * i, low, high);
		THC_NH_IN_ORDER(nh);
	}
	g->digest.a = nh;
	g->digest.b = 0;
	g->checksum = thc_checksum_fold(lower + upper);
}

/* Digests a finished generation's lanes once, however often they are sent.
 * @epoch: the slot's
 */
THC_INLINE void thc_answer_finish(struct thc_generation *g, const u64 *lanes,
				  const struct thc_seals *seals, u32 epoch)
{
	switch (seals->seal) {
	case THC_SEAL_NH:
		thc_answer_pass_nh(g, thc_seals_down(seals, epoch), lanes);
		break;
	case THC_SEAL_SUM:
		thc_answer_pass(g, THC_SEAL_SUM, lanes);
		break;
	default:
		thc_answer_pass(g, THC_SEAL_NONE, lanes);
	}
}

/**
 * struct thc_answer_at - job, slot and epoch of an answer
 * @job: number of the job
 * @slot: slot inside the job
 * @epoch: the slot's epoch; the job may be in the next one already
 */
struct thc_answer_at {
	u16	job;
	u16	slot;
	u32	epoch;
};

/* Seals the answer of generation @g, whose header is complete but for that. */
THC_INLINE void thc_answer_seal(struct thc_hdr *h, const struct thc_seals *seals,
				const struct thc_generation *g)
{
	/* clang for BPF would copy a struct argument byte by byte */
	const struct thc_digest d = { g->digest.a, g->digest.b };

	thc_seal_digested(h, (u8)seals->seal, thc_seals_down(seals, thc_be32(h->epoch)), d,
			  THC_LANE_WORDS);
}

/**
 * thc_answer_result() - writes the header of a finished generation's answer
 * @h: out: header, sealed
 * @g: a generation of slot @at
 * @rank: the receiver; 0 if all ranks are
 * @repeat: the answer goes to one worker again
 */
THC_INLINE void thc_answer_result(struct thc_hdr *h, const struct thc_seals *seals,
				  struct thc_answer_at at, const struct thc_generation *g, u8 rank,
				  int repeat)
{
	h->version = THC_VERSION;
	h->job = thc_be16(at.job);
	h->rank = thc_be16(rank);
	h->epoch = thc_be32(at.epoch);
	h->slot = thc_be16(at.slot);
	h->op = g->op;
	h->width = g->width;
	h->flags = THC_F_ANSWER | (repeat ? THC_F_REPEAT : 0) | (g->ce ? THC_F_CE : 0) |
		   (g->state == THC_CLOSED ? THC_F_CLOSED : 0);
	h->round = thc_be32(g->round);
	h->chunk = thc_be32(g->chunk);
	h->count = thc_be16(g->count);
	h->generation = thc_be32(g->number);
	h->bitmap = thc_be64(g->bitmap);
	thc_answer_seal(h, seals, g);
}

/* Turns a request's header into an answer without lanes, not sealed yet: rank, epoch, round,
 * chunk, slot and generation stay.
 */
THC_INLINE void thc_answer_bare(struct thc_hdr *h, u8 op, u8 flags, u16 count, u64 bitmap)
{
	h->op = op;
	h->width = 0;
	h->flags = flags;
	h->count = thc_be16(count);
	h->bitmap = thc_be64(bitmap);
}

/* Seals an answer without lanes to a request of its epoch. */
THC_INLINE void thc_answer_seal_bare(struct thc_hdr *h, const struct thc_seals *seals)
{
	thc_seal(h, (u8)seals->seal, thc_seals_down(seals, thc_be32(h->epoch)), NULL, 0);
}

/* Turns a request's header into WAIT. */
THC_INLINE void thc_answer_wait(struct thc_hdr *h, const struct thc_job *job,
				const struct thc_seals *seals, const struct thc_generation *g)
{
	u8 flags = (job->left & ~g->bitmap ? THC_F_LEFT : 0) | (g->ce ? THC_F_CE : 0);

	thc_answer_bare(h, THC_OP_WAIT, flags, g->count, g->bitmap);
	thc_answer_seal_bare(h, seals);
}

/**
 * thc_answer_differs() - turns the header of a BUSY or MISMATCH into WAIT
 *
 * The WAIT names the ranks whose contributions are in the way: a worker without an answer would
 * blame the aggregator. Returns 0 if there is no such rank: the request is dropped without an
 * answer, and the worker's next one is told of the new epoch.
 */
THC_INLINE int thc_answer_differs(struct thc_hdr *h, const struct thc_seals *seals,
				  const struct thc_slot *s)
{
	u32 generation = thc_be32(h->generation);
	const struct thc_generation *g;

	if ((s32)(generation - s->top) > 0)
		generation = s->top;
	g = &s->generation[generation & 1];
	if (s->epoch != thc_be32(h->epoch) || g->state == THC_EMPTY)
		return 0;
	thc_answer_bare(h, THC_OP_WAIT, THC_F_DIFFERS, g->count, g->bitmap);
	thc_answer_seal_bare(h, seals);
	return 1;
}

/* Turns a request's header into STALE for a generation that is gone. */
THC_INLINE void thc_answer_stale(struct thc_hdr *h, const struct thc_seals *seals,
				 struct thc_slot *s)
{
	u32 generation = thc_be32(h->generation);
	const struct thc_past *p = thc_slot_past(s, generation);
	int known = thc_past_known(p, generation);

	thc_answer_bare(h, THC_OP_STALE, known ? THC_F_KNOWN : 0, known ? p->count : 0,
			known ? p->bitmap : 0);
	thc_answer_seal_bare(h, seals);
}

/* Turns a request's header into STALE for an epoch that is gone, and its keys with it. The tag
 * of the request is in the seal, so that it answers this one alone.
 */
THC_INLINE void thc_answer_epoch(struct thc_hdr *h, const struct thc_job *job,
				 const struct thc_seals *seals, const struct thc_path *path)
{
	const struct thc_end end = thc_path_end(path, seals);
	__be64 request = h->tag;

	h->rank = thc_be16(job->restarter);
	h->epoch = thc_be32(job->epoch);
	thc_answer_bare(h, THC_OP_STALE, THC_F_EPOCH, 0, job->joined);
	thc_member_seal(h, thc_seal_of_members((u8)seals->seal), &seals->lost, &end, &request, 1);
}

#endif /* THC_ANSWER_H */
