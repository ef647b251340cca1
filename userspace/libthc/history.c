// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* How dense unions were, by key. */
#include <errno.h>

#include <thc/types.h>

#include "history.h"

/* Bits of a packet: a level of at most this many gains nothing by another level above it. */
#define CHUNK_BITS	(8 * THC_LANE_BYTES)
/* Unions of this density and denser ones have an index of one level, of two. */
#define ONE_LEVEL	250000
#define TWO_LEVELS	3000

static struct thc_habit *habit_of(struct thc_history *h, uint64_t key)
{
	struct thc_habit *all = (void *)h->habits.at;
	size_t i;

	for (i = 0; i < h->count; i++)
		if (all[i].key == key)
			return &all[i];
	return NULL;
}

static struct thc_habit *new_habit(struct thc_client *c, struct thc_history *h, uint64_t key)
{
	size_t room = h->habits.bytes / sizeof(struct thc_habit);
	struct thc_habit *all;

	if (h->count == room &&
	    thc_buffer_grow(c, &h->habits, (room ? 2 * room : 16) * sizeof(*all)))
		return NULL;
	all = (void *)h->habits.at;
	all[h->count] = (struct thc_habit){ .key = key, .density = TWO_LEVELS };
	return &all[h->count++];
}

static void learn(struct thc_habit *habit, int32_t density)
{
	/* rows have an index in any case */
	habit->rest -= habit->rest > 0;
	if (density == THC_DENSITY_UNKNOWN)
		return;
	habit->density = density;
	habit->known = true;
	if (density < THC_DENSITY_THINNER)
		habit->full = 0;
	else if (density > THC_DENSITY_FULL && habit->full < THC_FULL_ROUNDS)
		habit->full++;
	if (habit->full < THC_FULL_ROUNDS)
		return;
	habit->full--;
	habit->rest = THC_REST_ROUNDS;
}

/* Takes in the notes of rounds before @end, in their order. */
static void learn_until(struct thc_history *h, uint64_t end)
{
	struct thc_habit *habit;
	unsigned int first;

	while (h->notes) {
		first = h->notes > 1 && h->note[1].round < h->note[0].round;
		if (h->note[first].round >= end)
			return;
		/* the note's round has begun, so the habit exists */
		habit = habit_of(h, h->note[first].key);
		if (habit)
			learn(habit, h->note[first].density);
		h->note[first] = h->note[--h->notes];
	}
}

const struct thc_habit *thc_history_begin(struct thc_client *c, struct thc_history *h, uint64_t key,
					  uint64_t round)
{
	struct thc_habit *habit;

	learn_until(h, round ? round - 1 : 0);
	habit = habit_of(h, key);
	return habit ? habit : new_habit(c, h, key);
}

unsigned int thc_habit_levels(const struct thc_habit *habit, size_t items)
{
	unsigned int most = items <= CHUNK_BITS ? 1 : items <= 32 * CHUNK_BITS ? 2 : 3, levels;

	levels = habit->density >= ONE_LEVEL ? 1 : habit->density >= TWO_LEVELS ? 2 : 3;
	return levels < most ? levels : most;
}

void thc_history_note(struct thc_history *h, uint64_t key, uint64_t round, int32_t density)
{
	h->note[h->notes++] = (struct thc_note){ round, key, density };
}
