/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Groups of indices: the tables of the rows in THC_FORMATS_GROUP, from which one lookup takes
 * several lanes. A group has as many indices as its table stays small with.
 */
#ifndef THC_GROUP_H
#define THC_GROUP_H

#include <thc/types.h>

/**
 * struct thc_groups - tables by group, for one number of bits
 * @one8, @one4: of 1 bit: eight indices -> lanes of 8 bits, of 4 bits
 * @two8, @two4: of 2 bits: four indices
 * @three8, @three4: of 3 bits: three indices
 * @pair8: of 5 and 6 bits: two indices -> lanes of 8 bits
 *
 * A group's first index is in its most significant bits, and yields the lowest lane.
 */
struct thc_groups {
	union {
		struct {
			u64	one8[256];
			u32	one4[256];
		};
		struct {
			u32	two8[256];
			u16	two4[256];
		};
		struct {
			u32	three8[512];
			u16	three4[512];
		};
		u16	pair8[4096];
	};
};

/* Number of indices of @bits bits in a group, for lanes of @width bits. For lanes of 16 bits a
 * group is one index, since such a packet has few indices.
 */
THC_INLINE u32 thc_group_size(u32 bits, u32 width)
{
	return width > 8 ? 1 : bits == 1 ? 8 : bits == 2 ? 4 : bits == 3 ? 3 : 2;
}

/* Words of lanes whose indices one load yields: a power of two, with at most 64 bits of indices. */
THC_INLINE u32 thc_group_words(u32 bits, u32 width)
{
	return width > 8	 ? 2 :
	       width >= 8 * bits ? 8 :
	       width >= 4 * bits ? 4 :
	       width >= 2 * bits ? 2 :
				   1;
}

/* The lanes of @width bits of a group, from T = @table. */
THC_INLINE u64 thc_group_lanes(const u16 *table, u32 group, u32 bits, u32 width)
{
	u32 size = thc_group_size(bits, width), i;
	u64 lanes = 0;

	for (i = 0; i < size; i++) {
		u64 level = table[group >> bits * (size - 1 - i) & ((1U << bits) - 1)];

		lanes |= (level & ((1U << width) - 1)) << width * i;
	}
	return lanes;
}

/* @table: T of @bits bits. There are no groups of 4 bits, nor of more than 6. */
THC_INLINE void thc_groups_init(struct thc_groups *g, const u16 *table, u32 bits)
{
	u32 i;

	__builtin_memset(g, 0, sizeof(*g));
	for (i = 0; bits == 1 && i < 256; i++) {
		g->one8[i] = thc_group_lanes(table, i, 1, 8);
		g->one4[i] = (u32)thc_group_lanes(table, i, 1, 4);
	}
	for (i = 0; bits == 2 && i < 256; i++) {
		g->two8[i] = (u32)thc_group_lanes(table, i, 2, 8);
		g->two4[i] = (u16)thc_group_lanes(table, i, 2, 4);
	}
	for (i = 0; bits == 3 && i < 512; i++) {
		g->three8[i] = (u32)thc_group_lanes(table, i, 3, 8);
		g->three4[i] = (u16)thc_group_lanes(table, i, 3, 4);
	}
	for (i = 0; (bits == 5 || bits == 6) && i < 1U << 2 * bits; i++)
		g->pair8[i] = (u16)thc_group_lanes(table, i, bits, 8);
}

/* Entry @at of an array. Of a sum of pointer and index clang makes a move more for BPF. */
#define THC_GROUP_ENTRY(array, at)	\
	(*(const __typeof__(*(array)) *)((unsigned long)(at) * sizeof(*(array)) + \
					 (unsigned long)(array)))

/* The result of thc_group_lanes(), by lookup. @bits and @width are constants. */
THC_INLINE u64 thc_group_find(const struct thc_groups *g, u64 at, u32 bits, u32 width)
{
	switch (bits) {
	case 1:
		return width == 4 ? THC_GROUP_ENTRY(g->one4, at) : THC_GROUP_ENTRY(g->one8, at);
	case 2:
		return width == 4 ? THC_GROUP_ENTRY(g->two4, at) : THC_GROUP_ENTRY(g->two8, at);
	case 3:
		return width == 4 ? THC_GROUP_ENTRY(g->three4, at) : THC_GROUP_ENTRY(g->three8, at);
	}
	return THC_GROUP_ENTRY(g->pair8, at);
}

#endif /* THC_GROUP_H */
