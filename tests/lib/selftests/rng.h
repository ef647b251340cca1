/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Random numbers, one sequence for each thread from one seed (splitmix64).
 */
#ifndef THC_SELFTESTS_RNG_H
#define THC_SELFTESTS_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

uint64_t draw(struct rng *r);

/* The sequence of thread @id. */
struct rng rng_of(uint64_t seed, unsigned int id);

static inline unsigned int below(struct rng *r, unsigned int n)
{
	return (unsigned int)(draw(r) % n);
}

static inline bool one_in(struct rng *r, unsigned int n)
{
	return !below(r, n);
}

#endif /* THC_SELFTESTS_RNG_H */
