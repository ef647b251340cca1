/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A challenge: 16 bytes that only thcd can make, and that a worker has to repeat in a second JOIN
 * before its JOIN changes the job. A challenge holds for one JOIN and for the state which that JOIN
 * would change: a recorded JOIN is worthless once anything has changed, and thcd remembers no JOIN
 * that it only challenges. Pure functions; join.c decides which JOIN needs a challenge.
 */
#ifndef THCD_CHALLENGE_H
#define THCD_CHALLENGE_H

#include <stdbool.h>

#include <thc/aggregator/job.h>

/* A challenge is made for a minute and counts in the next one, too. */
#define THCD_CHALLENGE_MS	60000

/* Drawn at each start and never stored: challenges of an earlier thcd are invalid. */
struct thcd_secret {
	u8	bytes[THC_KEY_BYTES];
};

/**
 * struct thcd_challenged - a JOIN, and the state of the rank that the JOIN would change
 * @path: where the JOIN came from
 * @nonce: the JOIN's nonce
 * @entered: nonce of the rank's last joining of this epoch, NULL: it has not joined
 * @epoch: the job's epoch
 * @job: the job's number
 * @rank: the rank that the JOIN asks for
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

/* Makes the challenge for @c. @now_ms: monotonic */
void thcd_challenge_make(u8 out[THC_CHALLENGE_BYTES], const struct thcd_secret *secret,
			 const struct thcd_challenged *c, u64 now_ms);

/* Is @said the challenge for @c, of this minute or of the one before? */
bool thcd_challenge_is(const u8 said[THC_CHALLENGE_BYTES], const struct thcd_secret *secret,
		       const struct thcd_challenged *c, u64 now_ms);

#endif /* THCD_CHALLENGE_H */
