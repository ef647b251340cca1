/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What rounds by libthc's codecs have in common. They need no network: every rank's gradient
 * becomes what its packets carry, that is summed, and the sums become the mean. Python calls them
 * by ctypes (library.py), draws the gradients and works the error out.
 */
#ifndef EXPERIMENTS_TRIAL_H
#define EXPERIMENTS_TRIAL_H

#include <stdint.h>

#define CALL	__attribute__((visibility("default")))

/**
 * struct trial - a round; library.py has the same
 * @count: coordinates of a gradient
 * @round, @seed: of the rotation and the rounding
 * @ranks: gradients, which stand one behind the other
 * @block_log2: log2 of the coordinates that are rotated together
 * @correlated: ranks round in a correlated way
 * @width: bits of a lane
 * @form: THC_CODEC_*
 */
struct trial {
	uint64_t count;
	uint64_t round;
	uint64_t seed;
	uint32_t ranks;
	uint32_t block_log2;
	uint32_t correlated;
	uint32_t width;
	uint32_t form;
};

#endif /* EXPERIMENTS_TRIAL_H */
