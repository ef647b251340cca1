/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Groups: buckets of a step that meet a goal together. This file finds the goal of each bucket, so
 * that bits go where they count in the whole step.
 *
 * As with an index (history.h), all ranks must choose alike. The goal of a bucket in round r
 * follows from the norms of rounds up to r - 2 of the epoch, all of which are over when r begins:
 * from the norms of this bucket's last round with a rate, and of the other buckets' last rounds
 * since then.
 */
#ifndef LIBTHC_SHARES_H
#define LIBTHC_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "rate.h"

struct thc_client;

/**
 * struct thc_norms_seen - the norms of a bucket in one round
 * @after: the number of the round plus 1; 0: there is none
 * @turn: turn of the next round, if this is the last one
 */
struct thc_norms_seen {
	uint64_t	after;
	uint32_t	turn;
};

/* Names a bucket; a bucket of another size is another one. */
struct thc_share_id {
	uint64_t	group;
	uint64_t	key;
	uint32_t	blocks;
};

/**
 * struct thc_share - a bucket of a group
 * @seen: its last two rounds
 * @exponents: exponents of the norms of both rounds
 * @counted: thc_norms_seen.after of the norms that are in the group's bins; 0: none
 * @begun: its last round
 */
struct thc_share {
	struct thc_share_id	id;
	struct thc_norms_seen	seen[2];
	struct thc_buffer	exponents;
	uint64_t		counted;
	uint64_t		begun;
};

/* Norms of a group's buckets: those that counted in its last round. */
struct thc_group {
	uint64_t		number;
	struct thc_buffer	bins;
};

/**
 * struct thc_shares - of a client
 * @all: @count struct thc_share
 * @groups: @group_count struct thc_group
 * @bins: room for one choice
 */
struct thc_shares {
	struct thc_buffer	all;
	size_t			count;
	struct thc_buffer	groups;
	size_t			group_count;
	struct thc_buffer	bins;
};

/* Rounds after which a bucket without one is forgotten. */
#define THC_SHARE_ROUNDS	4096

/* -ENOMEM, and nothing has changed. */
int thc_shares_open(struct thc_client *c, struct thc_shares *s);
void thc_shares_close(struct thc_client *c, struct thc_shares *s);
/* Makes room for norms of @which, which begins @round; -ENOMEM. */
int thc_shares_begin(struct thc_client *c, struct thc_shares *s, const struct thc_share_id *which,
		     uint64_t round);
/* The goal of a bucket in @round; @asked: the goal of its group. */
struct thc_rate_goal thc_shares_goal(struct thc_shares *s, const struct thc_share_id *which,
				     const struct thc_rate *rate, const struct thc_rate_goal *asked,
				     uint64_t round);
/* Notes the exponents of a bucket's norms in @round, and its next turn @turn; a bucket that has not
 * begun is ignored.
 */
void thc_shares_note(struct thc_shares *s, const struct thc_share_id *which, uint64_t round,
		     uint32_t turn, const int16_t *exponent);
/* Room for one choice, between calls of thc_shares_goal(). */
struct thc_rate_bins *thc_shares_bins(struct thc_shares *s);

#endif /* LIBTHC_SHARES_H */
