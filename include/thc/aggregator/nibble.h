/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The nibble codec: two 4-bit table indices a byte, even coordinate in the
 * high nibble, and the pair table that turns such a byte into two lanes. Of
 * other numbers of bits: group.h, bits.h.
 */
#ifndef THC_NIBBLE_H
#define THC_NIBBLE_H

#include <thc/aggregator/group.h>
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
 * struct thc_pairs - a table T, as the loops look it up
 * @w8: of 4 bits: packed byte -> T[even] | T[odd] << 8, two 8-bit lanes
 * @w16: of 4 bits: packed byte -> T[even] | T[odd] << 16, two 16-bit lanes
 * @level: T by index, 0 behind the last one
 * @group: of 1 to 6 bits but 4: by groups
 * @bits: b, of an index
 * @reserved: 0
 */
struct thc_pairs {
	u16	w8[256];
	u32	w16[256];
	u16	level[THC_LEVELS_MAX];
	struct thc_groups group;
	u32	bits;
	u32	reserved;
};

/* @table: T of @bits bits. 4 bits get pairs: one lookup for two indices (THC, section 6). */
THC_INLINE void thc_pairs_init(struct thc_pairs *p, const u16 *table, u32 bits)
{
	int byte;

	p->bits = bits;
	p->reserved = 0;
	thc_groups_init(&p->group, table, bits);
	for (byte = 0; byte < THC_LEVELS_MAX; byte++)
		p->level[byte] = byte < 1 << bits ? table[byte] : 0;
	for (byte = 0; byte < 256; byte++) {
		u32 even = bits == 4 ? table[thc_nibble_even(byte)] : 0;
		u32 odd = bits == 4 ? table[thc_nibble_odd(byte)] : 0;

		p->w8[byte] = (even & 0xff) | (odd & 0xff) << 8;
		p->w16[byte] = even | odd << 16;
	}
}

/* Four packed bytes -> their eight indices as 8-bit lanes in coordinate order. The pair table of
 * T[z] = z would give the same, by lookups.
 */
THC_INLINE u64 thc_nibble_spread(u32 packed)
{
	u64 x = packed;

	x = (x | x << 16) & 0x0000ffff0000ffffULL;
	x = (x | x << 8) & 0x00ff00ff00ff00ffULL;
	return (x >> 4 | x << 8) & 0x0f0f0f0f0f0f0f0fULL;
}

#endif /* THC_NIBBLE_H */
