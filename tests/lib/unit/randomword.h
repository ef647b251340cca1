/* SPDX-License-Identifier: GPL-2.0 */
/* Numbers at random, the same in each run (splitmix64). */
#ifndef TESTS_UNIT_RANDOMWORD_H
#define TESTS_UNIT_RANDOMWORD_H

#include <thc/types.h>

static u64 random_state __attribute__((unused)) = 1;

static inline u64 random_word(void)
{
	u64 z = random_state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static inline void random_bytes(void *out, size_t bytes)
{
	u8 *to = out;
	size_t i;

	for (i = 0; i < bytes; i++)
		to[i] = (u8)(random_word() >> 56);
}

#endif /* TESTS_UNIT_RANDOMWORD_H */
