/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Joining and leaving: pure functions over a job and its record, for XDP and software mode.
 * welcome.c has the packets.
 */
#ifndef THCD_JOIN_H
#define THCD_JOIN_H

#include <thc/wire/spec.h>

#include "thcd.h"

/* Milliseconds until fanout, if all ranks have joined but not all hear the group. */
#define THCD_HEARD_MS	1000
/* A JOIN of a rank that has joined may be a recorded one: it gets one answer in this time. */
#define THCD_ANSWER_MS	10

/**
 * struct thcd_join_result - the outcome of a JOIN
 * @refusal: why the worker is not admitted
 * @challenged: the JOIN has changed nothing; @challenge is the answer
 * @answered: the rank had joined before and was just told so: send no answer
 * @restarted: the rank had joined before and joins anew: a new epoch has begun
 * @behind: the rank's last epoch, of an earlier aggregator, was not older than the job's: a
 *	new epoch has begun
 * @ready: this JOIN made the epoch ready: tell all ranks
 * @fallback: the job gave up multicast with this JOIN
 * @others: the other ranks of the epoch that this JOIN has ended
 */
struct thcd_join_result {
	enum thc_refusal	refusal;
	u8			challenge[THC_CHALLENGE_BYTES];
	bool			challenged;
	bool			answered;
	bool			restarted;
	bool			behind;
	bool			ready;
	bool			fallback;
	u64			others;
};

/**
 * struct thcd_joining - the content of a JOIN
 * @path: its source
 * @nonce: of this joining
 * @challenge: thcd's challenge; with @heard the salt of the worker's epoch
 * @last: the worker's last epoch of the job, 0: it knows none
 * @offers: seals that the worker supports, THC_OFFER_SEAL()
 * @rank: the rank that the worker claims
 * @heard: the worker has heard a WELCOME on the group address
 */
struct thcd_joining {
	const struct thc_path	*path;
	const u8		*nonce;
	const u8		*challenge;
	u32			last;
	u32			offers;
	u16			rank;
	bool			heard;
};

/**
 * thcd_join() - a worker wants to be a rank
 * @job: the job; its key seals the JOIN
 * @seals: the job's
 * @secret: key of challenges
 */
struct thcd_join_result thcd_join(struct thc_job *job, struct thc_seals *seals,
				  struct thcd_record *r, const struct thcd_joining *j,
				  const struct thcd_secret *secret, u64 now_ms);

/* Makes the challenge for a rank whose epoch another rank's JOIN has ended. @j: the JOIN that the
 * rank is to send
 */
void thcd_ask_again(u8 out[THC_CHALLENGE_BYTES], const struct thc_job *job,
		    const struct thcd_record *r, const struct thcd_joining *j,
		    const struct thcd_secret *secret, u64 now_ms);

/**
 * thcd_leave() - a rank is done
 * @nonce: of the joining that ends; a LEAVE with another nonce is too old
 *
 * The caller has checked thc_admit_rank(). Returns true if the rank was a member.
 */
bool thcd_leave(struct thc_job *job, struct thcd_record *r, u8 rank, const u8 *nonce);

/* Handles a JOIN from anybody, or a LEAVE that thc_admit_rank() admits. The caller has checked form
 * and length, and the tag if the packet names the job's key. Returns the drop reason that software
 * mode counts, or THC_DROP_NONE.
 */
enum thc_drop_reason thcd_join_or_leave(struct thcd *d, const struct thc_hdr *h,
					const void *payload, const struct thc_path *path);

/* Fills in the constants of a job that WELCOME tells; @mode_flags: thcd.welcome_flags. */
void thcd_spec_fill(struct thc_spec *s, const struct thc_job *job, const struct thcd_record *r,
		    u16 mode_flags);

#endif /* THCD_JOIN_H */
