/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What rounds by libthc's codecs have in common. They need no network: every rank's gradient
 * becomes what its packets carry, that is summed, and the sums become the mean. Python calls them
 * by ctypes (library.py), draws the gradients and works the error out.
 */
#ifndef EXPERIMENTS_TRIAL_H
#define EXPERIMENTS_TRIAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <thc/types.h>

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

/* Index @i of a stream of bits, coordinate 0 in the most significant bits of byte 0. */
static inline unsigned int index_at(const uint8_t *packed, unsigned int bits, size_t i)
{
	unsigned int index = 0, k;

	for (k = 0; k < bits; k++) {
		size_t bit = i * bits + k;

		index = index << 1 | (packed[bit / 8] >> (7 - bit % 8) & 1);
	}
	return index;
}

/* Sums -> lanes of @width bits in the same memory. */
static inline void to_lanes(uint32_t *sums, size_t n, unsigned int width)
{
	uint8_t *lane = (uint8_t *)sums;
	size_t i;

	for (i = 0; i < n && width >= 8; i++) {
		uint32_t le = thc_le32(sums[i]);

		memmove(lane + i * width / 8, &le, width / 8);
	}
	for (i = 0; i < n && width == 4; i += 2)
		lane[i / 2] = (uint8_t)(sums[i] | sums[i + 1] << 4);
}

#endif /* EXPERIMENTS_TRIAL_H */
