/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Error memory by key. */
#ifndef LIBTHC_RESIDUAL_H
#define LIBTHC_RESIDUAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thc_client;

/**
 * struct thc_residual - error memory of one key
 * @now: losses of compression so far, @count floats
 * @next: losses after the round in progress. Until a block is compressed, the values to compress
 *	are here. Exchanged with @now when the round succeeds, so that a failed round changes
 *	nothing
 * @turn: rounds of the key so far that had a rate, modulo THC_RATE_ROUNDS
 * @next_turn: @turn after the round in progress, exchanged with @turn when @next is
 * @undoable: @next holds the value of @now before the key's last round
 * @busy: a request uses it
 * @fresh: no round has succeeded with it, and it was not imported
 */
struct thc_residual {
	struct thc_residual	*after;	/* in client.residuals */
	uint64_t		key;
	size_t			count;
	float			*now;
	float			*next;
	uint8_t			turn;
	uint8_t			next_turn;
	bool			undoable;
	bool			busy;
	bool			fresh;
};

/* Callers of all these functions hold client.lock. */

/* Notes that a caller has started an all-reduce of @key, which may fail: earlier ones cannot be
 * undone any more.
 */
void thc_residual_asked(struct thc_client *c, uint64_t key);
/* 0, or an error with the sentence set. */
int thc_residual_get(struct thc_client *c, uint64_t key, size_t count, struct thc_residual **out);
/* Ends the use of @m by a request; if it has @failed, a fresh memory is dropped. */
void thc_residual_put(struct thc_client *c, struct thc_residual *m, bool failed);
/* Exchanges @now and @next. */
void thc_residual_swap(struct thc_residual *m, bool undoable);
void thc_residual_free(struct thc_client *c);

#endif /* LIBTHC_RESIDUAL_H */
