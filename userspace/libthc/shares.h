/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Buckets of a step that meet a goal together, a group: what each of them aims at, so that bits go
 * where they count in the whole step, not in each bucket by itself.
 *
 * As with an index (history.h), all ranks must choose alike. What a bucket of round r aims at
 * follows from the norms of rounds up to r - 2 of the epoch, all of which are over when r begins:
 * of this bucket's last one with a rate, and of the others since then, each the last one that
 * counts.
 */
#ifndef LIBTHC_SHARES_H
#define LIBTHC_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "rate.h"

struct thc_client;

/**
 * struct thc_norms_seen - those of a bucket in one round
 * @after: the number of the round plus 1; 0: there is none
 * @turn: that its next round begins with, if it is the last one
 */
struct thc_norms_seen {
	uint64_t	after;
	uint32_t	turn;
};

/* One of another size is another bucket. */
struct thc_share_id {
	uint64_t	group;
	uint64_t	key;
	uint32_t	blocks;
};

/**
 * struct thc_share - a bucket of a group
 * @seen: its last two rounds
 * @exponents: of the norms of either
 * @counted: thc_norms_seen.after of those that are in the group's bins; 0: none
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

/* A bucket that has had no round for so many is forgotten. */
#define THC_SHARE_ROUNDS	4096

/* -ENOMEM, and nothing has changed. */
int thc_shares_open(struct thc_client *c, struct thc_shares *s);
void thc_shares_close(struct thc_client *c, struct thc_shares *s);
/* Makes room for norms of @which, which begins @round; -ENOMEM. */
int thc_shares_begin(struct thc_client *c, struct thc_shares *s, const struct thc_share_id *which,
		     uint64_t round);
/* What it aims at in @round; @asked: what its group does. */
struct thc_rate_goal thc_shares_goal(struct thc_shares *s, const struct thc_share_id *which,
				     const struct thc_rate *rate, const struct thc_rate_goal *asked,
				     uint64_t round);
/* The exponents of its norms are known; its next turn is @turn. Nothing if it has not begun. */
void thc_shares_note(struct thc_shares *s, const struct thc_share_id *which, uint64_t round,
		     uint32_t turn, const int16_t *exponent);
/* Room for one choice, between calls of thc_shares_goal(). */
struct thc_rate_bins *thc_shares_bins(struct thc_shares *s);

#endif /* LIBTHC_SHARES_H */
