/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Joining and leaving: pure functions over a job and what the daemon
 * remembers of it, for XDP and software mode alike. Sockets are welcome.c's.
 */
#ifndef THCD_JOIN_H
#define THCD_JOIN_H

#include <thc/wire/spec.h>

#include "thcd.h"

/* Milliseconds until fanout, if all ranks have joined but not all hear the group. */
#define THCD_HEARD_MS	1000
/* A JOIN of a rank that is in already is answered once in so many ms: it may be recorded. */
#define THCD_ANSWER_MS	10

/**
 * struct thcd_join_result - the outcome of a JOIN
 * @refusal: why the worker is not admitted
 * @challenged: nothing has changed, and @challenge is the answer
 * @answered: the rank is in already, and was told so a moment ago: there is no answer
 * @restarted: the rank did, so the epoch was raised
 * @behind: the rank was in an epoch of an aggregator before this one that was
 *	not older than this one's: it was raised for that
 * @ready: rounds may start since this JOIN; tell all ranks
 * @fallback: the job gave up multicast with this JOIN
 * @others: the ranks, but for this one, that were in the epoch that this JOIN has ended
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
 * struct thcd_joining - what a JOIN says
 * @path: where it came from
 * @nonce: of this joining
 * @challenge: what thcd has asked of it; with @heard the salt of the epoch that it is in
 * @last: the epoch of the job that it was in last, 0: none it knows
 * @offers: seals that it can do, THC_OFFER_SEAL()
 * @rank: the one that the worker wants to be
 * @heard: it has heard a WELCOME on the group address
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
 * @job: whose key the JOIN is sealed by
 * @seals: the job's
 * @secret: by which its challenges are made
 */
struct thcd_join_result thcd_join(struct thc_job *job, struct thc_seals *seals,
				  struct thcd_record *r, const struct thcd_joining *j,
				  const struct thcd_secret *secret, u64 now_ms);

/* What thcd asks of a rank whose epoch another one's JOIN has ended; @j: the JOIN that the rank may
 * send, which has not come.
 */
void thcd_ask_again(u8 out[THC_CHALLENGE_BYTES], const struct thc_job *job,
		    const struct thcd_record *r, const struct thcd_joining *j,
		    const struct thcd_secret *secret, u64 now_ms);

/**
 * thcd_leave() - a rank is done
 * @nonce: of the joining that ends; another than the rank's is one that has ended already
 *
 * The caller has checked thc_admit_rank(). Returns true if it was a member.
 */
bool thcd_leave(struct thc_job *job, struct thcd_record *r, u8 rank, const u8 *nonce);

/* A JOIN, of whoever may have sent it, or a LEAVE that thc_admit_rank() admits; form, length
 * and tag are good. Returns the drop reason it is counted under in software mode, or
 * THC_DROP_NONE.
 */
enum thc_drop_reason thcd_join_or_leave(struct thcd *d, const struct thc_hdr *h,
					const void *payload, const struct thc_path *path);

/* Fills in the constants of a job that WELCOME tells; @mode_flags: thcd.welcome_flags. */
void thcd_spec_fill(struct thc_spec *s, const struct thc_job *job, const struct thcd_record *r,
		    u16 mode_flags);

#endif /* THCD_JOIN_H */
