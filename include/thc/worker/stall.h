/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * When nothing moves: whom a worker lacks, and whether there is a point in waiting.
 */
#ifndef THC_STALL_H
#define THC_STALL_H

#include <linux/errno.h>

#include <thc/worker/sender.h>

/* The network may say for so long that the aggregator cannot be reached. */
#define THC_UNREACHABLE_MS	1000

/* The oldest chunks in flight, of the control stream and of the data stream, that belong to
 * @round or to an earlier one. Later ones do not count: they may rightly wait for ranks that
 * are busy with this round's data.
 */
THC_INLINE void thc_sender_oldest(const struct thc_sender *s, u32 round,
				  const struct thc_flight *f[2])
{
	int i;

	f[0] = thc_stream_oldest(&s->control);
	f[1] = thc_stream_oldest(&s->data);
	for (i = 0; i < 2; i++)
		if (f[i] && (s32)(thc_be32(f[i]->packet->round) - round) > 0)
			f[i] = NULL;
}

/* Ranks that sent something else for the oldest chunks in flight, 0: none is known. @round:
 * thc_sender_oldest().
 */
THC_INLINE u64 thc_sender_differing(const struct thc_sender *s, u32 round)
{
	const struct thc_flight *f[2];
	u64 differ = 0;
	int i;

	thc_sender_oldest(s, round, f);
	for (i = 0; i < 2; i++)
		differ |= f[i] ? f[i]->differs : 0;
	return differ & ~(1ULL << s->rank);
}

/**
 * thc_sender_missing() - whom the oldest chunks in flight lack
 * @round: thc_sender_oldest()
 * @left: set if one of them has left
 *
 * Returns their mask, by the last WAIT of these chunks; 0: none came.
 */
THC_INLINE u64 thc_sender_missing(const struct thc_sender *s, u32 round, int *left)
{
	const struct thc_flight *f[2];
	u64 missing = 0;
	int i;

	thc_sender_oldest(s, round, f);
	*left = 0;
	for (i = 0; i < 2; i++) {
		if (!f[i] || !f[i]->present)
			continue;
		*left |= f[i]->left;
		missing |= s->all & ~f[i]->present;
	}
	return missing;
}

/**
 * thc_sender_stalled() - is there no point in waiting for answers any longer?
 * @round: thc_sender_oldest()
 * @needed: a rank that has left is needed
 * @timeout: without any answer, ns
 * @f: out: why; THC_FAILED_NOT: they may come yet
 */
THC_INLINE int thc_sender_stalled(struct thc_sender *s, u32 round, int needed, u64 timeout, u64 now,
				  struct thc_failure *f)
{
	u64 missing, differing;
	int left;

	*f = (struct thc_failure){ .reason = THC_FAILED_NOT };
	if (!thc_sender_busy(s)) {
		s->unreachable_at = 0;
		return 0;
	}
	missing = thc_sender_missing(s, round, &left);
	if (left && needed) {
		f->error = EPIPE;
		f->reason = THC_FAILED_LEFT;
		f->ranks = missing;
	} else if (s->unreachable_at &&
		   now - s->unreachable_at > THC_UNREACHABLE_MS * THC_NS_PER_MS) {
		f->error = s->unreachable;
		f->reason = THC_FAILED_UNREACHABLE;
	} else if (now - s->progress_at > timeout) {
		differing = thc_sender_differing(s, round);
		f->error = ETIMEDOUT;
		f->reason = differing ? THC_FAILED_DIFFERS :
			    missing   ? THC_FAILED_MISSING :
					THC_FAILED_SILENT;
		f->ranks = differing ? differing : missing;
	}
	return f->reason != THC_FAILED_NOT;
}

#endif /* THC_STALL_H */
