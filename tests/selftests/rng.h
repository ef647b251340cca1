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

static inline uint64_t draw(struct rng *r)
{
	uint64_t x = r->state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* The sequence of thread @id. */
static inline struct rng rng_of(uint64_t seed, unsigned int id)
{
	struct rng r = { .state = seed + id };

	r.state = draw(&r);
	return r;
}

static inline unsigned int below(struct rng *r, unsigned int n)
{
	return (unsigned int)(draw(r) % n);
}

static inline bool one_in(struct rng *r, unsigned int n)
{
	return !below(r, n);
}

#endif /* THC_SELFTESTS_RNG_H */
