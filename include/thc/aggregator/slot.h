/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The slot state machine: what an aggregator does with a contribution. Pure
 * functions over a slot that the caller has locked; the lanes themselves are
 * the caller's. The same code runs in XDP and in thcd's software mode, and
 * tests/unit/test_slot_states.c explores it exhaustively.
 *
 * A slot holds two generations, one with an odd number and one with an even one. The number is
 * a u32 in serial arithmetic, never a parity bit. `top` is the newest generation opened.
 *
 *                 first contribution            last one, or CLOSE
 *      (older) ------------------------> OPEN ---------------------> FINISHED
 *         ^                                                             |
 *         +---------- G+2 opens, which needs G+1 finished --------------+
 *
 *   contribution for       | top OPEN              | top FINISHED
 *   -----------------------+-----------------------+-----------------------
 *   top + 1                | BUSY                  | ADD (opens)
 *   top, new rank          | ADD                   | REPEAT
 *   top, rank already in   | WAIT                  | REPEAT
 *   top - 1                | REPEAT                | REPEAT
 *   older                  | STALE                 | STALE
 *   further ahead          | BUSY                  | BUSY
 *
 * Why nobody's result is evicted too early: a worker sends G+1 only after it
 * has the result of G. G+2 overwrites G and opens only when G+1 is finished,
 * that is when all workers sent G+1 and therefore have G. Only a deadline's
 * CLOSE leaves somebody behind, and who was in is kept in `past`.
 */
#ifndef THC_SLOT_H
#define THC_SLOT_H

#include <thc/wire/format.h>
#include <thc/wire/seal.h>

enum thc_generation_state {
	THC_EMPTY = 0,		/* never used in this epoch */
	THC_OPEN,		/* collecting contributions */
	THC_FINISHED,		/* all ranks are in */
	THC_CLOSED,		/* finished by deadline with those in bitmap */
};

/**
 * struct thc_generation - one generation of a slot
 * @bitmap: ranks whose contribution is in the lanes
 * @digest: of the finished lanes, for the seals of answers
 * @number: which one it is
 * @round: of the first contribution; others must agree
 * @chunk: of the first contribution; admission sees to it that others agree
 * @count: contributions in the lanes
 * @state: enum thc_generation_state
 * @width: bits of a lane of the sum; contributions must agree
 * @op: enum thc_op of the first contribution, and of the answer; others must meet it
 * @row: bits of an index of the first LUT_ADD; others must agree. 0: there was none
 * @ce: a contribution carried ECN CE
 * @checksum: thc_checksum_fold() of the finished lanes
 * @reserved: zero
 */
struct thc_generation {
	u64	bitmap;
	struct thc_digest digest;
	u32	number;
	u32	round;
	u32	chunk;
	u16	count;
	u8	state;
	u8	width;
	u8	op;
	u8	ce;
	u16	checksum;
	u8	row;
	u8	reserved[3];
};

/* The contributors of a generation that has been overwritten. */
struct thc_past {
	u64	bitmap;
	u32	generation;
	u16	count;
	u8	known;
	u8	reserved;
};

#define THC_PASTS	4	/* power of two */

/**
 * struct thc_slot - one slot, its lanes are kept elsewhere
 * @lock: 0 free, 1 taken; everything below belongs to the holder
 * @epoch: of the job when the slot was last reset, 0: never; a newer one
 *	empties it. Epochs count from 1, and a daemon that gives the slot to
 *	another job zeroes it first
 * @top: newest generation opened; -1 before the first
 * @reserved: zero
 * @generation: number G in generation[G & 1]
 * @past: generation G in past[G & (THC_PASTS - 1)], the newest overwritten ones
 * @padding: zero; a slot begins a cache line of 64 bytes, which has all that a contribution to an
 *	even generation, if it is open, looks at
 */
struct thc_slot {
	u32			lock;
	u32			epoch;
	u32			top;
	u32			reserved;
	struct thc_generation	generation[2];
	struct thc_past		past[THC_PASTS];
	u64			padding[2];
};

/**
 * enum thc_verdict - what to do with a contribution
 * @THC_ADD: combine the payload with the lanes of generation[odd], or replace them if `first`; if
 *	`complete`, finish and answer all ranks
 * @THC_WAIT: the rank is in already, others are missing: name the contributors to the sender
 * @THC_REPEAT: the result is there: send it to the sender again
 * @THC_STALE: the result is gone: name its contributors to the sender
 * @THC_BUSY: too far ahead: drop, and name the contributors of `top` to the sender
 * @THC_MISMATCH: op, row, width or round differ from the first one's: drop, and name the
 *	contributors to the sender. Or the epoch ended between admission and the slot's lock: drop
 */
enum thc_verdict {
	THC_ADD,
	THC_WAIT,
	THC_REPEAT,
	THC_STALE,
	THC_BUSY,
	THC_MISMATCH,
};

/* A contribution, as far as the state machine is concerned. */
struct thc_arrival {
	u32	epoch;
	u32	generation;
	u32	round;
	u32	chunk;
	u8	rank;
	u8	op;
	u8	width;	/* of the sum's lanes */
	u8	row;	/* of LUT_ADD: bits of an index; else 0 */
	u8	ce;
};

/* @verdict: enum thc_verdict; @odd: the generation that it is about has an odd number. */
struct thc_outcome {
	u8	verdict;
	u8	odd;
	u8	first;
	u8	complete;
};

THC_INLINE void thc_slot_reset(struct thc_slot *s, u32 epoch)
{
	int i;

	s->epoch = epoch;
	s->top = (u32)-1;
	s->generation[0].state = THC_EMPTY;
	s->generation[1].state = THC_EMPTY;
	for (i = 0; i < THC_PASTS; i++)
		s->past[i].known = 0;
}

THC_INLINE int thc_generation_done(const struct thc_generation *g)
{
	return g->state == THC_FINISHED || g->state == THC_CLOSED;
}

/* The slot's record of an overwritten generation; it may be another one's. */
THC_INLINE struct thc_past *thc_slot_past(struct thc_slot *s, u32 generation)
{
	return &s->past[generation & (THC_PASTS - 1)];
}

THC_INLINE int thc_past_known(const struct thc_past *p, u32 generation)
{
	return p->known && p->generation == generation;
}

THC_INLINE void thc_generation_open(struct thc_slot *s, struct thc_generation *g,
				    const struct thc_arrival *a)
{
	if (g->state != THC_EMPTY) {
		struct thc_past *p = thc_slot_past(s, g->number);

		p->bitmap = g->bitmap;
		p->generation = g->number;
		p->count = g->count;
		p->known = 1;
	}
	g->bitmap = 0;
	g->count = 0;
	g->number = a->generation;
	g->round = a->round;
	g->chunk = a->chunk;
	g->state = THC_OPEN;
	g->width = a->width;
	g->op = a->op;
	g->row = 0;
	g->ce = 0;
	s->top = a->generation;
}

/* Does the contribution agree with the earlier ones in @g? Two rows may have sums of one width; row
 * 0 agrees with any. All fields but the op are one condition: the BPF verifier walks the code
 * behind it once for each way to it.
 */
THC_INLINE int thc_generation_meets(const struct thc_generation *g, const struct thc_arrival *a)
{
	u32 rows = (u32)(g->row ^ a->row) * g->row * a->row;
	u32 differs = (g->round ^ a->round) | (g->chunk ^ a->chunk) | (g->width ^ a->width) | rows;

	return !differs && thc_ops_meet(g->op, a->op);
}

/**
 * thc_slot_arrive() - a contribution meets a slot
 * @s: the slot, locked by the caller
 * @a: the contribution; its epoch is the job's current one
 * @all: bit r set for every rank of the job
 *
 * On THC_ADD the contribution is already booked: the caller must combine the
 * lanes before it unlocks the slot.
 */
THC_INLINE struct thc_outcome thc_slot_arrive(struct thc_slot *s, const struct thc_arrival *a,
					      u64 all)
{
	u64 bit = 1ULL << (a->rank & (THC_RANKS_MAX - 1));
	struct thc_outcome out = { .odd = a->generation & 1 };
	struct thc_generation *g = &s->generation[a->generation & 1];
	s32 ahead;

	/* The epoch only goes forward: a contribution that was admitted just before its epoch ended
	 * must not reset a slot of the new one.
	 */
	if (s->epoch != a->epoch) {
		if (s->epoch && (s32)(a->epoch - s->epoch) < 0) {
			out.verdict = THC_MISMATCH;
			return out;
		}
		thc_slot_reset(s, a->epoch);
	}

	ahead = (s32)(a->generation - s->top);
	if (ahead > 1) {
		out.verdict = THC_BUSY;
		return out;
	}
	if (ahead == 1) {
		const struct thc_generation *other = &s->generation[(a->generation & 1) ^ 1];

		if (other->state == THC_OPEN) {
			out.verdict = THC_BUSY;
			return out;
		}
		thc_generation_open(s, g, a);
		out.first = 1;
	} else if (ahead < -1 || g->state == THC_EMPTY) {
		out.verdict = THC_STALE;
		return out;
	}

	if (!thc_generation_meets(g, a)) {
		out.verdict = THC_MISMATCH;
		return out;
	}
	if (thc_generation_done(g)) {
		out.verdict = THC_REPEAT;
		return out;
	}
	if (g->bitmap & bit) {
		out.verdict = THC_WAIT;
		return out;
	}
	g->bitmap |= bit;
	g->count++;
	g->row |= a->row;
	g->ce |= a->ce;
	if (g->bitmap == all) {
		g->state = THC_FINISHED;
		out.complete = 1;
	}
	out.verdict = THC_ADD;
	return out;
}

/**
 * thc_slot_close() - closes a generation whose deadline has passed
 * @s: the slot, locked by the caller
 * @epoch: the job's current epoch
 * @generation: the one to close
 * @quorum: least contributions it must have
 *
 * Returns 1 if it was open, had its quorum and is now closed: the caller digests its lanes and
 * answers all ranks. 0: nothing to do.
 */
THC_INLINE int thc_slot_close(struct thc_slot *s, u32 epoch, u32 generation, u16 quorum)
{
	struct thc_generation *g = &s->generation[generation & 1];

	if (s->epoch != epoch || g->state != THC_OPEN || g->number != generation ||
	    g->count < quorum)
		return 0;
	g->state = THC_CLOSED;
	return 1;
}

#endif /* THC_SLOT_H */
