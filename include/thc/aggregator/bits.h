/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A payload of indices as a stream of bits: b bits each, coordinate 0 in the most significant ones
 * of byte 0. One text for every b, which takes as many coordinates at a time as have fields in a
 * 64-bit word.
 */
#ifndef THC_BITS_H
#define THC_BITS_H

#include <thc/types.h>

/* Splits the pair of @bits-bit numbers in each field of @x, the first one above: each number goes
 * to its own half of the field, the first one below. @half: bits of half a field; @fields: 1 in
 * each field
 */
THC_INLINE u64 thc_bits_part(u64 x, u32 bits, u32 half, u64 fields)
{
	u64 mask = ((1ULL << bits) - 1) * fields;

	return (x >> bits & mask) | (x & mask) << half;
}

/* Indices of @bits bits, in the low bits of @x with the first one above, to fields of @field (4 or
 * 8) bits with the first one below: 16 or 8 of them.
 */
THC_INLINE u64 thc_bits_spread(u64 x, u32 bits, u32 field)
{
	if (field == 4) {
		x = thc_bits_part(x, 8 * bits, 32, 1);
		x = thc_bits_part(x, 4 * bits, 16, 0x0000000100000001ULL);
		x = thc_bits_part(x, 2 * bits, 8, 0x0001000100010001ULL);
		return thc_bits_part(x, bits, 4, 0x0101010101010101ULL);
	}
	x = thc_bits_part(x, 4 * bits, 32, 1);
	x = thc_bits_part(x, 2 * bits, 16, 0x0000000100000001ULL);
	return thc_bits_part(x, bits, 8, 0x0001000100010001ULL);
}

/* Indices number @turn of @payload, as many as @field says, spread by thc_bits_spread(). Reads 8
 * bytes, whatever @bits is; a BPF program has 8 bytes more behind THC_LANE_BYTES.
 */
THC_INLINE u64 thc_bits_take(const void *payload, u32 turn, u32 bits, u32 field)
{
	u32 each = bits * (64 / field); /* bits of the payload */
	u32 at = turn * (each / 8);
	const thc_word *from;

#ifdef __bpf__
	/* the verifier has to see a bound at the access, and the compiler must not know that it is
	 * needless; a branch instead would double the verifier's paths with each turn
	 */
	asm volatile("" : "+r"(at));
	at &= THC_LANE_BYTES - 1;
#endif
	from = (const void *)((const u8 *)payload + at);
	return thc_bits_spread(thc_stream64(*from) >> (64 - each), bits, field);
}

#endif /* THC_BITS_H */
