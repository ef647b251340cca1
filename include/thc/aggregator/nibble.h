/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The nibble codec: two 4-bit table indices a byte, even coordinate in the
 * high nibble, and the pair table that turns such a byte into two lanes.
 */
#ifndef THC_NIBBLE_H
#define THC_NIBBLE_H

#include <thc/wire/format.h>

THC_INLINE u8 thc_nibble_even(u8 byte)
{
	return byte >> 4;
}

THC_INLINE u8 thc_nibble_odd(u8 byte)
{
	return byte & 0xf;
}

/**
 * struct thc_pairs - a table T, ready to be added two coordinates at a time
 * @w8: packed byte -> T[even] | T[odd] << 8, two 8-bit lanes
 * @w16: packed byte -> T[even] | T[odd] << 16, two 16-bit lanes
 */
struct thc_pairs {
	u16	w8[256];
	u32	w16[256];
};

/* @table: T of 4 bits (THC, section 6: two a lookup). */
THC_INLINE void thc_pairs_init(struct thc_pairs *p, const u16 table[16])
{
	int byte;

	for (byte = 0; byte < 256; byte++) {
		u32 even = table[thc_nibble_even(byte)];
		u32 odd = table[thc_nibble_odd(byte)];

		p->w8[byte] = (even & 0xff) | (odd & 0xff) << 8;
		p->w16[byte] = even | odd << 16;
	}
}

/* Four packed bytes -> the same eight indices as 8-bit lanes in coordinate
 * order: what the pair table of T[z] = z gives, without a lookup.
 */
THC_INLINE u64 thc_nibble_spread(u32 packed)
{
	u64 x = packed;

	x = (x | x << 16) & 0x0000ffff0000ffffULL;
	x = (x | x << 8) & 0x00ff00ff00ff00ffULL;
	return (x >> 4 | x << 8) & 0x0f0f0f0f0f0f0f0fULL;
}

#endif /* THC_NIBBLE_H */
