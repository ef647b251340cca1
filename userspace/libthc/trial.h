/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * A trial: is a rate worth its time? In a job with rate=auto the ranks try both: some rounds have
 * the bits of the job's table, and some have bits by norms. The choice that took less time per
 * value on most ranks is kept for a while, and tried again, since links, processors and other
 * traffic change.
 *
 * All ranks must choose alike, so each rank votes in its claims. The choice for round r follows
 * from the claims of rounds up to r - 2 of the epoch, all of which are over when r begins. Ranks
 * whose claims differ may have counted different rounds, so they begin a new trial.
 */
#ifndef LIBTHC_TRIAL_H
#define LIBTHC_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "libthc.h"

/* Rounds at the beginning of a trial whose times do not count, since the window grows; then so many
 * of each kind in turns: a step or more of buckets, which differ.
 */
#define THC_TRIAL_FIRST		4
#define THC_TRIAL_ROUNDS	32
/* From the beginning of a trial to that of the next. */
#define THC_TRIAL_EVERY		2048

/* A rank's vote in its claims. */
enum thc_vote {
	THC_VOTE_NONE,		/* not known yet */
	THC_VOTE_FIXED,
	THC_VOTE_RATE,
};

/**
 * struct thc_trial - the trial of a client
 * @rounds: rounds so far that could have a rate
 * @began: value of @rounds when this trial began, in round @first
 * @state: the choice so far
 * @votes: of the claims of the last two such rounds: round plus 1, and number by vote
 * @ns: time of 1024 values in this trial, by kind: [1] with the rate
 * @taken: number of these times
 * @differed: the last two rounds whose claims differed, plus 1; 0: none
 */
struct thc_trial {
	uint64_t		rounds;
	uint64_t		began;
	uint64_t		first;
	enum thc_trial_state	state;
	struct {
		uint64_t	after;
		unsigned int	of[THC_VOTE_RATE + 1];
	}			votes[2];
	uint32_t		ns[2][THC_TRIAL_ROUNDS];
	unsigned int		taken[2];
	uint64_t		differed[2];
};

/* Chooses whether @round, which could have a rate, has one. Called once for each such round, in
 * order. @least: number of ranks that have to vote. @timed: out: its time counts.
 */
bool thc_trial_begin(struct thc_trial *t, uint64_t round, unsigned int least, bool *timed);
/* The vote of this rank. */
enum thc_vote thc_trial_vote(const struct thc_trial *t);
/* Notes the claims of @round; @of: number of ranks by vote. */
void thc_trial_note(struct thc_trial *t, uint64_t round, const unsigned int of[THC_VOTE_RATE + 1]);
/* Notes that the claims of @round differ, whether or not the round could have a rate here. */
void thc_trial_differ(struct thc_trial *t, uint64_t round);
/* Notes the time of a successful round: @ns for @count values. */
void thc_trial_took(struct thc_trial *t, uint64_t round, bool rated, uint64_t ns, uint64_t count);
/* The median of what 1024 values took so far in this trial, in ns; 0: none has ended. */
uint32_t thc_trial_median(const struct thc_trial *t, bool rated);

#endif /* LIBTHC_TRIAL_H */
