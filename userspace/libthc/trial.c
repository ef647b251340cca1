// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Whether a rate is worth its time: trial.h has the rule. */
#include <stdlib.h>
#include <string.h>

#include "trial.h"

/* The rate is chosen only if it takes at most this many hundredths of the table's time: at equal
 * time, the more exact choice is better.
 */
#define WORTH	97

/* Number of ranks by vote in the last claims of this trial, up to @round - 2. */
static const unsigned int *votes_before(const struct thc_trial *t, uint64_t round)
{
	const unsigned int *of = NULL;
	uint64_t last = 0;
	int k;

	for (k = 0; k < 2; k++)
		if (t->votes[k].after > t->first && t->votes[k].after < round &&
		    t->votes[k].after > last) {
			last = t->votes[k].after;
			of = t->votes[k].of;
		}
	return of;
}

static void decide(struct thc_trial *t, uint64_t round, unsigned int least)
{
	const unsigned int *of = votes_before(t, round);

	/* wait for all ranks to vote */
	if (!of || of[THC_VOTE_NONE] || of[THC_VOTE_FIXED] + of[THC_VOTE_RATE] < least)
		return;
	t->state = of[THC_VOTE_RATE] > of[THC_VOTE_FIXED] ? THC_TRIAL_FOR_RATE :
							    THC_TRIAL_FOR_FIXED;
}

static void start(struct thc_trial *t, uint64_t round)
{
	t->began = t->rounds;
	t->first = round;
	t->state = THC_TRIAL_RUNS;
	memset(t->taken, 0, sizeof(t->taken));
}

/* Have claims differed since this trial began, or just before, in a round up to @round - 2? */
static bool has_differed(const struct thc_trial *t, uint64_t round)
{
	int k;

	for (k = 0; k < 2; k++)
		if (t->differed[k] && t->differed[k] >= t->first && t->differed[k] < round)
			return true;
	return false;
}

bool thc_trial_begin(struct thc_trial *t, uint64_t round, unsigned int least, bool *timed)
{
	uint64_t at;

	if (t->state == THC_TRIAL_RUNS)
		decide(t, round, least);
	if (t->state == THC_TRIAL_NOT || t->rounds - t->began >= THC_TRIAL_EVERY ||
	    has_differed(t, round))
		start(t, round);
	at = t->rounds++ - t->began;
	*timed = at >= THC_TRIAL_FIRST;
	if (t->state != THC_TRIAL_RUNS)
		return t->state == THC_TRIAL_FOR_RATE;
	return at < THC_TRIAL_FIRST || (at - THC_TRIAL_FIRST) / THC_TRIAL_ROUNDS % 2;
}

static bool is_known(const struct thc_trial *t)
{
	return t->taken[false] == THC_TRIAL_ROUNDS && t->taken[true] == THC_TRIAL_ROUNDS;
}

enum thc_vote thc_trial_vote(const struct thc_trial *t)
{
	uint64_t rate, fixed;

	if (!is_known(t))
		return THC_VOTE_NONE;
	rate = thc_trial_median(t, true);
	fixed = thc_trial_median(t, false);
	return 100 * rate <= WORTH * fixed ? THC_VOTE_RATE : THC_VOTE_FIXED;
}

void thc_trial_note(struct thc_trial *t, uint64_t round, const unsigned int of[THC_VOTE_RATE + 1])
{
	unsigned int k = t->votes[1].after < t->votes[0].after;

	t->votes[k].after = round + 1;
	memcpy(t->votes[k].of, of, sizeof(t->votes[k].of));
}

void thc_trial_differ(struct thc_trial *t, uint64_t round)
{
	t->differed[t->differed[1] < t->differed[0]] = round + 1;
}

void thc_trial_took(struct thc_trial *t, uint64_t round, bool rated, uint64_t ns, uint64_t count)
{
	uint64_t each = ns / ((count + 1023) / 1024);

	/* a round of an earlier trial, or one too many */
	if (t->state != THC_TRIAL_RUNS || round < t->first || t->taken[rated] == THC_TRIAL_ROUNDS)
		return;
	t->ns[rated][t->taken[rated]++] = each < UINT32_MAX ? (uint32_t)each : UINT32_MAX;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

uint32_t thc_trial_median(const struct thc_trial *t, bool rated)
{
	uint32_t sorted[THC_TRIAL_ROUNDS];

	if (!t->taken[rated])
		return 0;
	memcpy(sorted, t->ns[rated], sizeof(sorted));
	qsort(sorted, t->taken[rated], sizeof(*sorted), compare);
	return sorted[t->taken[rated] / 2];
}
