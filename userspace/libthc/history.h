/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * What the index of a key's next bucket is, by how dense the unions of earlier ones were.
 *
 * All ranks must choose alike, so the choice for round r follows from the unions of rounds up to
 * r - 2 of the epoch alone, all of which are over when r begins; round r - 1 may be over on one
 * rank and not on another. Rounds count in their order, whichever ended first.
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
/* One that a bucket without an index has. */
#define THC_DENSITY_UNKNOWN	(-1)
/* A union is full above the first, and no more below the second. */
#define THC_DENSITY_FULL	700000
#define THC_DENSITY_THINNER	600000
/* So many full unions, and a key goes so many rounds without an index. Then one more that is full
 * is enough.
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
 * struct thc_history - of a client
 * @habits: @count struct thc_habit
 * @note: of rounds that are not in @habits yet, @notes of them
 */
struct thc_history {
	struct thc_buffer	habits;
	size_t			count;
	struct thc_note		note[2];
	unsigned int		notes;
};

/* What rounds before tell of @key's bucket in @round, until the next call; NULL: -ENOMEM. */
const struct thc_habit *thc_history_begin(struct thc_client *c, struct thc_history *h, uint64_t key,
					  uint64_t round);
/* The levels of its index, of @items. */
unsigned int thc_habit_levels(const struct thc_habit *habit, size_t items);
/* The union of @key's bucket in @round has @density. */
void thc_history_note(struct thc_history *h, uint64_t key, uint64_t round, int32_t density);

#endif /* LIBTHC_HISTORY_H */
