/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Bits where they count: how many bits each block of a bucket is sent with, by its agreed norm.
 *
 * A class is a row of the job's tables, b bits up and w down, or nothing. A block of norm u takes
 * the class that makes u^2 cost + lambda (b + w) least, where cost is the class's expected error:
 * so with equal lambda no bit moved from one block to another lowers the error of the bucket. A
 * lambda is found that meets the goal, from this bucket's agreed norms: all ranks know these before
 * any of its data leaves. What a bucket of several aims at, shares.h says.
 *
 * Whatever ranks have to choose alike is done with integers. Squares of norms are their logarithms,
 * in sixteenths; how a float becomes one is not left to a mathematical library.
 *
 * Pure functions, tested by tests/unit/test_rate.c.
 */
#ifndef LIBTHC_RATE_H
#define LIBTHC_RATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nothing, and rows of one to six bits. */
#define THC_RATE_BITS_MAX	6
#define THC_RATE_CLASSES	(THC_RATE_BITS_MAX + 1)
/* A block is skipped in fewer rounds of its key running than these. */
#define THC_RATE_ROUNDS		8
/* A bucket of several whose norms are more than so much larger than they were, in sixteenths of an
 * octave of their squares, has what the others' lambda gives the rest.
 */
#define THC_RATE_RISE		32
/* Costs are in parts of this: a block that is not sent costs as much. */
#define THC_RATE_ONE		(1U << 24)
/* thc_rate_exponent() of norms that count: from THC_NORM_MIN, 2^-80, to THC_NORM_MAX, 2^112. */
#define THC_EXPONENT_MIN	(-80 * 32)
#define THC_EXPONENT_MAX	(112 * 32)

/**
 * struct thc_rate_class - a way to send a block
 * @bits, @sum_width: of a coordinate, up and down; 0, 0: not at all
 * @cost: expected squared error of the mean of equal gradients that are rounded independently, in
 *	parts of the squared norm; THC_RATE_ONE is all. Classes are compared by it: it is between
 *	what is so of equal gradients that are rounded as the job says, and of gradients that differ
 * @error: expected squared error as the job's ranks round: what goals of an error are about
 */
struct thc_rate_class {
	uint8_t		bits;
	uint8_t		sum_width;
	uint32_t	cost;
	uint32_t	error;
};

/**
 * struct thc_rate - the classes of a job, by bits: [0] is nothing
 * @step: classes that are best for some norm, in ascending order
 * @edge: of @step[k]: the least log2 of u^2 / lambda, in sixteenths, from which it is; not of the
 *	first one
 * @steps: how many there are
 */
struct thc_rate {
	struct thc_rate_class	class[THC_RATE_CLASSES];
	uint8_t			step[THC_RATE_CLASSES];
	int32_t			edge[THC_RATE_CLASSES];
	unsigned int		steps;
};

/**
 * struct thc_rate_goal - what a bucket aims at
 * @bits: thousandths of a bit a coordinate, up and down together; 0: @error counts
 * @error: expected squared error of the mean, millionths of the squared norm of the bucket
 * @turn: rounds of the key before this one
 * @shared: it is the bucket's share of what several aim at together: @asked is that, bits or error,
 *	and @lambda what their last norms had between them
 */
struct thc_rate_goal {
	uint32_t	bits;
	uint32_t	error;
	uint32_t	turn;
	bool		shared;
	uint32_t	asked;
	int32_t		lambda;
};

/**
 * struct thc_rate_bins - blocks by the exponents of their norms; what a lambda gives all of them is
 * found without looking at each
 * @blocks: all of them, of norm zero, too
 * @low, @high: no exponent is outside; above each other: there is none
 * @of: how many blocks have an exponent, [1] of those whose turn it is to come back
 */
struct thc_rate_bins {
	uint32_t	blocks;
	int32_t		low;
	int32_t		high;
	uint32_t	of[2][THC_EXPONENT_MAX - THC_EXPONENT_MIN + 1];
};

/**
 * struct thc_rate_choice - what was chosen
 * @of: by block: its class, which is an index into thc_rate.class
 * @blocks: by class: how many
 * @lambda: 16 log2 of it
 * @bits: b + w, summed over blocks
 * @square: of the bucket, by its agreed norms
 * @lost: of that, expected, of the mean over ranks with equal gradients
 */
struct thc_rate_choice {
	uint8_t		*of;
	uint32_t	blocks[THC_RATE_CLASSES];
	int32_t		lambda;
	uint64_t	bits;
	double		square;
	double		lost;
};

/* Fills in steps and edges, by the classes. @skips: blocks may be sent not at all */
void thc_rate_init(struct thc_rate *rate, bool skips);
/* 16 log2(norm^2), rounded down; INT16_MIN of one that counts as nothing. */
int16_t thc_rate_exponent(float norm);
/* Bins without a block. Whoever has made room for @bins has zeroed it. */
void thc_rate_empty(struct thc_rate_bins *bins);
/* More blocks, whose key has had @turn rounds before; and the same ones less again. */
void thc_rate_add(struct thc_rate_bins *bins, const int16_t *exponent, uint32_t blocks,
		  uint32_t turn);
void thc_rate_remove(struct thc_rate_bins *bins, const int16_t *exponent, uint32_t blocks,
		     uint32_t turn);
/* The classes of @blocks blocks. @exponent: room for as many. @bins: room, and what is chosen from
 * afterwards. A block of norm zero is not sent.
 */
void thc_rate_choose(const struct thc_rate *rate, const struct thc_rate_goal *goal,
		     const float *norms, uint32_t blocks, struct thc_rate_bins *bins,
		     int16_t *exponent, struct thc_rate_choice *choice);
/* What a bucket of @own blocks aims at, so that @all, of which they are some, meet @asked together.
 * By one lambda for all: no bit that moved from a bucket to another would lower the error of all.
 */
struct thc_rate_goal thc_rate_share(const struct thc_rate *rate, const struct thc_rate_goal *asked,
				    const struct thc_rate_bins *all,
				    const struct thc_rate_bins *own);

#endif /* LIBTHC_RATE_H */
