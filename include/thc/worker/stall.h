/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Stalls: which ranks a worker waits for, and when it gives up.
 */
#ifndef THC_STALL_H
#define THC_STALL_H

#include <linux/errno.h>

#include <thc/worker/sender.h>

/* ms for which the network may report that the aggregator is unreachable. */
#define THC_UNREACHABLE_MS	1000

/**
 * struct thc_absent - what the last WAITs say of the oldest chunks in flight
 * @missing: ranks whose contributions the chunks lack, 0: no WAIT came
 * @differing: ranks that sent other data for the chunks, 0: none is known
 * @left: one of the missing ranks has left
 */
struct thc_absent {
	u64	missing;
	u64	differing;
	int	left;
};

/* Looks at the oldest chunk of the control stream and of the data stream, unless it belongs to a
 * later round than @round: such a chunk may rightly wait for ranks that are busy with this round's
 * data.
 */
THC_INLINE struct thc_absent thc_sender_absent(const struct thc_sender *s, u32 round)
{
	const struct thc_stream *stream[] = { &s->control, &s->data };
	struct thc_absent a = { 0 };
	int i;

	for (i = 0; i < 2; i++) {
		const struct thc_flight *f = thc_stream_oldest(stream[i]);

		if (!f || (s32)(thc_be32(f->packet->round) - round) > 0)
			continue;
		a.differing |= f->differs & ~(1ULL << s->rank);
		if (f->present) {
			a.missing |= s->all & ~f->present;
			a.left |= f->left;
		}
	}
	return a;
}

/**
 * thc_sender_stalled() - is there no point in waiting for answers any longer?
 * @round: see thc_sender_absent()
 * @needed: a rank that has left is needed
 * @timeout: without any answer, ns
 * @f: out: why; THC_FAILED_NOT: they may come yet
 */
THC_INLINE int thc_sender_stalled(struct thc_sender *s, u32 round, int needed, u64 timeout, u64 now,
				  struct thc_failure *f)
{
	struct thc_absent a;

	*f = (struct thc_failure){ .reason = THC_FAILED_NOT };
	if (!thc_sender_busy(s)) {
		s->unreachable_at = 0;
		return 0;
	}
	a = thc_sender_absent(s, round);
	if (a.left && needed) {
		f->error = EPIPE;
		f->reason = THC_FAILED_LEFT;
		f->ranks = a.missing;
	} else if (s->unreachable_at && now > s->unreachable_at &&
		   now - s->unreachable_at > THC_UNREACHABLE_MS * THC_NS_PER_MS) {
		f->error = s->unreachable;
		f->reason = THC_FAILED_UNREACHABLE;
	} else if (now - s->progress_at > timeout) {
		f->error = ETIMEDOUT;
		f->reason = a.differing ? THC_FAILED_DIFFERS :
			    a.missing	? THC_FAILED_MISSING :
					  THC_FAILED_SILENT;
		f->ranks = a.differing ? a.differing : a.missing;
	}
	return f->reason != THC_FAILED_NOT;
}

/* When to call thc_sender_stalled() again; ~0: when something is sent. */
THC_INLINE u64 thc_sender_asks_at(const struct thc_sender *s, u64 timeout, u64 now)
{
	u64 soon = now + THC_UNREACHABLE_MS * THC_NS_PER_MS / 4, at = s->progress_at + timeout;

	if (!thc_sender_busy(s))
		return ~0ULL;
	return at < soon ? at : soon;
}

#endif /* THC_STALL_H */
