/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What thcd asks of whoever wants to change a job by a JOIN: to say it again with 16 bytes that
 * only thcd can make. They stand for the JOIN and for the state that it would change, so that a
 * recorded JOIN is worth nothing once anything has changed, and thcd keeps nothing of a JOIN that
 * it only challenges. Pure functions; who needs a challenge is join.c's.
 */
#ifndef THCD_CHALLENGE_H
#define THCD_CHALLENGE_H

#include <stdbool.h>

#include <thc/aggregator/job.h>

/* A challenge is made for a minute and counts in the next one, too. */
#define THCD_CHALLENGE_MS	60000

/* Drawn when thcd starts, and kept to itself: a challenge of a thcd before this one is none. */
struct thcd_secret {
	u8	bytes[THC_KEY_BYTES];
};

/**
 * struct thcd_challenged - who asks, and the state of the rank that it would change
 * @path: where the JOIN came from
 * @nonce: of the JOIN
 * @entered: nonce that the rank has joined this epoch with last, NULL: it has not joined it
 * @epoch: of the job
 * @job: its number
 * @rank: the one that the JOIN is about
 * @left: the rank has left this epoch since
 */
struct thcd_challenged {
	const struct thc_path	*path;
	const u8		*nonce;
	const u8		*entered;
	u32			epoch;
	u16			job;
	u16			rank;
	bool			left;
};

/* @now_ms: of a clock that does not go back. */
void thcd_challenge_make(u8 out[THC_CHALLENGE_BYTES], const struct thcd_secret *secret,
			 const struct thcd_challenged *c, u64 now_ms);

/* Is @said what thcd made of this, in this minute or the one before? */
bool thcd_challenge_is(const u8 said[THC_CHALLENGE_BYTES], const struct thcd_secret *secret,
		       const struct thcd_challenged *c, u64 now_ms);

#endif /* THCD_CHALLENGE_H */
