/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The rows of a job: its tables for LUT_ADD, at most one for each number of bits of an index.
 * Whoever sends or adds up indices needs the widths of their sums alone.
 */
#ifndef THC_ROWS_H
#define THC_ROWS_H

#include <thc/wire/format.h>

/* Room for one row of each b: the levels of b bits begin at 2^b, and the first two are unused. */
#define THC_LEVELS_ALL	(2 * THC_LEVELS_MAX)

/**
 * struct thc_widths - the rows of a job, as far as packets depend on them
 * @sum: [b - 1]: bits of a sum of levels with indices of b bits, 0: there is no such row
 */
struct thc_widths {
	u8	sum[THC_BITS_MAX];
} __attribute__((aligned(8)));

_Static_assert(sizeof(struct thc_widths) == sizeof(u64), "widths are a word");

/**
 * struct thc_tables - the rows of a job, each at [b - 1]
 * @clamp: IEEE-754 bits of t_p, the clamp in units of the coordinates' standard deviation
 * @granularity: g, max(T)
 * @widths: of sums
 * @level: T by index, of the row of b bits from [2^b] on
 */
struct thc_tables {
	u64			clamp[THC_BITS_MAX];
	u16			granularity[THC_BITS_MAX];
	struct thc_widths	widths;
	u16			level[THC_LEVELS_ALL];
};

/* Index of the row of @bits bits in an array of rows; in bounds, whatever @bits is. */
THC_INLINE u32 thc_row_at(u32 bits)
{
	return (bits - 1) & (THC_BITS_MAX - 1);
}

/* Bits of a sum of levels by indices of @bits bits; 0: there is no such row. */
THC_INLINE u8 thc_widths_sum(const struct thc_widths *w, u32 bits)
{
	u8 sum = w->sum[thc_row_at(bits)];

	return bits - 1 < THC_BITS_MAX ? sum : 0;
}

/* The row of LUT_ADD with indices of @bits bits, for thc_lane_kind(), which refuses impossible
 * bits. It shifts in place of indexing, and has no branch: the BPF verifier walks the code behind a
 * branch once for each way to it.
 */
THC_INLINE struct thc_row thc_widths_row(const struct thc_widths *w, u8 bits)
{
	u64 all = thc_le64(*(const thc_word *)w);
	struct thc_row row = {
		.bits = bits,
		.sum_width = (u8)(all >> 8 * thc_row_at(bits)),
	};

	return row;
}

/* The row of a request with @op and @width, by the bits of an index: 0 unless it is LUT_ADD. */
THC_INLINE u8 thc_row_of(u8 op, u8 width)
{
	return op == THC_OP_LUT_ADD ? width : 0;
}

/**
 * struct thc_table_row - one row of struct thc_tables
 * @clamp, @granularity: as in struct thc_tables
 * @level: T, 2^bits levels
 * @bits: b
 * @sum_width: bits of a sum; 0: there is no such row
 */
struct thc_table_row {
	u64		clamp;
	const u16	*level;
	u16		granularity;
	u8		bits;
	u8		sum_width;
};

/* The row of @bits bits. */
THC_INLINE struct thc_table_row thc_tables_row(const struct thc_tables *t, u32 bits)
{
	u32 at = thc_row_at(bits);
	struct thc_table_row row = {
		.clamp = t->clamp[at],
		.level = t->level + (2U << at),
		.granularity = t->granularity[at],
		.bits = (u8)bits,
		.sum_width = thc_widths_sum(&t->widths, bits),
	};

	return row;
}

/* Is T[z] = z in the row of 4 bits? There is a loop without a table for that. */
THC_INLINE int thc_tables_linear(const struct thc_tables *t)
{
	const struct thc_table_row row = thc_tables_row(t, 4);
	u32 z;

	for (z = 0; z < 16; z++)
		if (row.level[z] != z)
			return 0;
	return 1;
}

#endif /* THC_ROWS_H */
