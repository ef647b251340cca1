/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Rates: how many bits each block of a bucket gets, by its agreed norm.
 *
 * A class is a row of the job's tables, b bits up and w down, or no bits. A block of norm u takes
 * the class with the least u^2 cost + lambda (b + w), where cost is the class's expected error:
 * with equal lambda, no bit that moved from one block to another would lower the error of the
 * bucket. The lambda that meets the goal is found from this bucket's agreed norms, which all ranks
 * know before any of its data leaves. The goal of a bucket in a group is in shares.h.
 *
 * Choices that all ranks must make alike use integers. Squares of norms are represented by their
 * logarithms, in sixteenths; the conversion of a float to one does not use a mathematical library.
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
/* Limit for a bucket of a group, in sixteenths of an octave of squares: if its norms have risen by
 * more, the lambda of the other buckets chooses the bits of the rest.
 */
#define THC_RATE_RISE		32
/* The unit of costs, which is the cost of a block that is not sent. */
#define THC_RATE_ONE		(1U << 24)
/* thc_rate_exponent() of norms that count: from THC_NORM_MIN, 2^-80, to THC_NORM_MAX, 2^112. */
#define THC_EXPONENT_MIN	(-80 * 32)
#define THC_EXPONENT_MAX	(112 * 32)

/**
 * struct thc_rate_class - a way to send a block
 * @bits, @sum_width: bits of a coordinate, up and down; 0, 0: the block is not sent
 * @cost: by which classes are compared: expected squared error of the mean of equal gradients that
 *	are rounded independently, in parts of the squared norm; THC_RATE_ONE is all of it. It lies
 *	between the error of equal gradients rounded as the job says, and that of gradients that
 *	differ
 * @error: expected squared error with the job's rounding, to which goals of an error refer
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
 * struct thc_rate_goal - the goal of a bucket
 * @bits: thousandths of a bit per coordinate, up and down together; 0: @error is the goal
 * @error: expected squared error of the mean, millionths of the squared norm of the bucket
 * @turn: rounds of the key before this one
 * @shared: the goal is the bucket's share of a group's: @asked is the group's goal, bits or error,
 *	and @lambda that of the group's last norms
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
 * struct thc_rate_bins - number of blocks by the exponents of their norms, from which the result of
 *	a lambda follows without a look at each block
 * @blocks: number of all blocks, with those of norm zero
 * @low, @high: bounds of the exponents; @low above @high: there is no exponent
 * @of: number of blocks by exponent, [1] of those whose turn it is to come back
 */
struct thc_rate_bins {
	uint32_t	blocks;
	int32_t		low;
	int32_t		high;
	uint32_t	of[2][THC_EXPONENT_MAX - THC_EXPONENT_MIN + 1];
};

/**
 * struct thc_rate_choice - the classes chosen for a bucket
 * @of: by block: its class, an index into thc_rate.class
 * @blocks: by class: number of blocks
 * @lambda: 16 log2 of lambda
 * @bits: b + w, summed over blocks
 * @square: square of the bucket, by its agreed norms
 * @lost: expected loss of @square in the mean over ranks with equal gradients
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
/* Empties @bins, whose memory was zeroed when it was allocated. */
void thc_rate_empty(struct thc_rate_bins *bins);
/* Adds blocks of a key that has had @turn rounds, or removes them. */
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
/* The goal of a bucket of @own blocks, such that @all blocks of its group, with these, meet @asked
 * together. With one lambda for all, no bit that moved between buckets would lower the error of
 * all.
 */
struct thc_rate_goal thc_rate_share(const struct thc_rate *rate, const struct thc_rate_goal *asked,
				    const struct thc_rate_bins *all,
				    const struct thc_rate_bins *own);

#endif /* LIBTHC_RATE_H */
