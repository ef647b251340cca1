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
 * @now: what compression has lost so far, @count floats
 * @next: the loss after the round in progress, until a block is compressed what is to be
 *	compressed of it; exchanged with @now when the round succeeds, so that one that fails
 *	leaves nothing half-applied
 * @turn: rounds of the key so far that had a rate, modulo THC_RATE_ROUNDS
 * @next_turn: that after the round in progress, exchanged with @turn as @next is with @now
 * @undoable: @next is what @now was before the last round of the key
 * @busy: a request uses it
 * @fresh: no round has succeeded with it, nor was it imported
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

/* All with client.lock held. */

/* An all-reduce of @key is asked for, whatever becomes of it: what was before it is not undone. */
void thc_residual_asked(struct thc_client *c, uint64_t key);
/* 0, or an error with the sentence set. */
int thc_residual_get(struct thc_client *c, uint64_t key, size_t count, struct thc_residual **out);
/* The request that uses @m has ended: a memory that is fresh goes if it @failed. */
void thc_residual_put(struct thc_client *c, struct thc_residual *m, bool failed);
/* Exchanges what is now and what is next. */
void thc_residual_swap(struct thc_residual *m, bool undoable);
void thc_residual_free(struct thc_client *c);

#endif /* LIBTHC_RESIDUAL_H */
