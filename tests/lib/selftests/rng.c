// SPDX-License-Identifier: GPL-2.0
#include "rng.h"

uint64_t draw(struct rng *r)
{
	uint64_t x = r->state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

struct rng rng_of(uint64_t seed, unsigned int id)
{
	struct rng r = { .state = seed + id };

	r.state = draw(&r);
	return r;
}
