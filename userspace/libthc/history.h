/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Choice of an index for a key's next bucket, by the density of its earlier unions.
 *
 * All ranks must choose alike, so the choice for round r follows from the unions of rounds up to
 * r - 2 of the epoch alone, all of which are over when r begins; round r - 1 may be over on some
 * ranks only. Rounds count in their order, whichever ended first.
 */
#ifndef LIBTHC_HISTORY_H
#define LIBTHC_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"

struct thc_client;

/* Densities are in parts of this. */
#define THC_DENSITY_ONE		1000000
/* The density of a bucket without an index. */
#define THC_DENSITY_UNKNOWN	(-1)
/* A union becomes full above the first, and ceases to be full below the second. */
#define THC_DENSITY_FULL	700000
#define THC_DENSITY_THINNER	600000
/* After THC_FULL_ROUNDS full unions a key goes without an index for THC_REST_ROUNDS. After these,
 * one more full union is enough.
 */
#define THC_FULL_ROUNDS		8
#define THC_REST_ROUNDS		64

/**
 * struct thc_habit - a key's
 * @density: of its last union
 * @full: full unions lately, up to THC_FULL_ROUNDS
 * @rest: rounds without an index that are left
 * @known: there was one
 */
struct thc_habit {
	uint64_t	key;
	int32_t		density;
	uint8_t		full;
	uint8_t		rest;
	bool		known;
};

struct thc_note {
	uint64_t	round;
	uint64_t	key;
	int32_t		density;
};

/**
 * struct thc_history - the history of a client
 * @habits: @count struct thc_habit
 * @note: @notes rounds that are not in @habits yet
 */
struct thc_history {
	struct thc_buffer	habits;
	size_t			count;
	struct thc_note		note[2];
	unsigned int		notes;
};

/* The history of @key before @round, valid until the next call; NULL: -ENOMEM. */
const struct thc_habit *thc_history_begin(struct thc_client *c, struct thc_history *h, uint64_t key,
					  uint64_t round);
/* The levels of its index, of @items. */
unsigned int thc_habit_levels(const struct thc_habit *habit, size_t items);
/* The union of @key's bucket in @round has @density. */
void thc_history_note(struct thc_history *h, uint64_t key, uint64_t round, int32_t density);

#endif /* LIBTHC_HISTORY_H */
