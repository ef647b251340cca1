/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Is a rate worth its time? In a job that leaves it to its ranks they try both: some rounds have
 * the bits of the job's table, and some follow norms. Whichever took a value less time on most
 * ranks is kept for a while, since links, processors and other traffic change.
 *
 * All ranks must choose alike. A rank says in its claims which was faster. What is kept in round r
 * follows from the claims of rounds up to r - 2 of the epoch, all of which are over when r begins.
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

/* What a rank says in its claims. */
enum thc_vote {
	THC_VOTE_NONE,		/* it does not know */
	THC_VOTE_FIXED,
	THC_VOTE_RATE,
};

/**
 * struct thc_trial - of a client
 * @rounds: that could have a rate, so far
 * @began: how many of them there were when this trial began, in round @first
 * @state: what it has come to
 * @votes: those of claims of the last two such rounds: rounds plus 1, and how many for each
 * @ns: what 1024 values took in this trial, by kind: [1] with the rate
 * @taken: how many of these there are
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
};

/* Has @round, which could, a rate? Once for each such round, in order. @least: so many ranks have
 * to vote. @timed: out: its time counts.
 */
bool thc_trial_begin(struct thc_trial *t, uint64_t round, unsigned int least, bool *timed);
/* What this rank says in its claim. */
enum thc_vote thc_trial_vote(const struct thc_trial *t);
/* The claims of @round are there: @of: how many of the ranks that made one said what. */
void thc_trial_note(struct thc_trial *t, uint64_t round, const unsigned int of[THC_VOTE_RATE + 1]);
/* A round whose time counts has ended well: it took @ns for @count values. */
void thc_trial_took(struct thc_trial *t, uint64_t round, bool rated, uint64_t ns, uint64_t count);
/* The median of what 1024 values took so far in this trial, in ns; 0: none has ended. */
uint32_t thc_trial_median(const struct thc_trial *t, bool rated);

#endif /* LIBTHC_TRIAL_H */
