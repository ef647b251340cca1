/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * BLAKE2s (Aumasson, Neves, Wilcox-O'Hearn, Winnerlein: BLAKE2, ACNS 2013; RFC 7693): a hash with
 * a key, from which a job's other keys come. Names of variables are the RFC's.
 */
#ifndef THC_BLAKE2S_H
#define THC_BLAKE2S_H

#include <thc/types.h>

#define THC_BLAKE2S_BLOCK	64
#define THC_BLAKE2S_MAX		32	/* bytes of a hash, and of a key */
#define THC_BLAKE2S_ROUNDS	10

THC_INLINE u32 thc_blake2s_rotate(u32 x, u32 by)
{
	return x >> by | x << (32 - by);
}

/* G of RFC 7693, section 3.1. */
THC_INLINE void thc_blake2s_mix(u32 v[16], const u8 at[4], u32 x, u32 y)
{
	u32 a = v[at[0]], b = v[at[1]], c = v[at[2]], d = v[at[3]];

	a += b + x;
	d = thc_blake2s_rotate(d ^ a, 16);
	c += d;
	b = thc_blake2s_rotate(b ^ c, 12);
	a += b + y;
	d = thc_blake2s_rotate(d ^ a, 8);
	c += d;
	b = thc_blake2s_rotate(b ^ c, 7);
	v[at[0]] = a;
	v[at[1]] = b;
	v[at[2]] = c;
	v[at[3]] = d;
}

/* IV of RFC 7693, section 2.6. */
THC_INLINE u32 thc_blake2s_iv(u32 i)
{
	static const u32 iv[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	return iv[i];
}

/* F of RFC 7693, section 3.2. @t: bytes so far, this block's included. */
static inline void thc_blake2s_compress(u32 h[8], const u8 block[THC_BLAKE2S_BLOCK], u64 t,
					int last)
{
	/* clang-format off */
	static const u8 sigma[THC_BLAKE2S_ROUNDS][16] = {
		{  0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15 },
		{ 14, 10,  4,  8,  9, 15, 13,  6,  1, 12,  0,  2, 11,  7,  5,  3 },
		{ 11,  8, 12,  0,  5,  2, 15, 13, 10, 14,  3,  6,  7,  1,  9,  4 },
		{  7,  9,  3,  1, 13, 12, 11, 14,  2,  6,  5, 10,  4,  0, 15,  8 },
		{  9,  0,  5,  7,  2,  4, 10, 15, 14,  1, 11, 12,  6,  8,  3, 13 },
		{  2, 12,  6, 10,  0, 11,  8,  3,  4, 13,  7,  5, 15, 14,  1,  9 },
		{ 12,  5,  1, 15, 14, 13,  4, 10,  0,  7,  6,  3,  9,  2,  8, 11 },
		{ 13, 11,  7, 14, 12,  1,  3,  9,  5,  0, 15,  4,  8,  6,  2, 10 },
		{  6, 15, 14,  9, 11,  3,  0,  8, 12,  2, 13,  7,  1,  4, 10,  5 },
		{ 10,  2,  8,  4,  7,  6,  1,  5, 15, 11,  9, 14,  3, 12, 13,  0 },
	};
	/* columns, then diagonals */
	static const u8 at[8][4] = {
		{ 0, 4,  8, 12 }, { 1, 5,  9, 13 }, { 2, 6, 10, 14 }, { 3, 7, 11, 15 },
		{ 0, 5, 10, 15 }, { 1, 6, 11, 12 }, { 2, 7,  8, 13 }, { 3, 4,  9, 14 },
	};
	/* clang-format on */
	u32 v[16] = { 0 }, m[16] = { 0 };
	u32 i, k;

	for (i = 0; i < 16; i++)
		m[i] = block[4 * i] | (u32)block[4 * i + 1] << 8 | (u32)block[4 * i + 2] << 16 |
		       (u32)block[4 * i + 3] << 24;
	for (i = 0; i < 8; i++) {
		v[i] = h[i];
		v[8 + i] = thc_blake2s_iv(i);
	}
	v[12] ^= (u32)t;
	v[13] ^= (u32)(t >> 32);
	if (last)
		v[14] = ~v[14];
	for (i = 0; i < THC_BLAKE2S_ROUNDS; i++)
		for (k = 0; k < 8; k++)
			thc_blake2s_mix(v, at[k], m[sigma[i][2 * k]], m[sigma[i][2 * k + 1]]);
	for (i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[8 + i];
}

/**
 * thc_blake2s() - BLAKE2s of a message, RFC 7693, section 3.3
 * @out: the hash, @out_bytes, 1 to THC_BLAKE2S_MAX
 * @key: @key_bytes, 0 to THC_BLAKE2S_MAX
 * @data: @bytes of message
 */
static inline void thc_blake2s(u8 *out, u32 out_bytes, const u8 *key, u32 key_bytes,
			       const void *data, u32 bytes)
{
	u32 blocks = (bytes + THC_BLAKE2S_BLOCK - 1) / THC_BLAKE2S_BLOCK;
	const u8 *from = data;
	u32 h[8], i, b, n;
	u64 t = 0;

	for (i = 0; i < 8; i++)
		h[i] = thc_blake2s_iv(i);
	h[0] ^= 0x01010000 ^ key_bytes << 8 ^ out_bytes;
	/* block 0 is the key, if there is one; a message of nothing is a block of zeros */
	for (b = key_bytes ? 0 : 1; b <= (blocks || key_bytes ? blocks : 1); b++) {
		u8 block[THC_BLAKE2S_BLOCK] = { 0 };

		n = !b ? key_bytes : bytes < THC_BLAKE2S_BLOCK ? bytes : THC_BLAKE2S_BLOCK;
		for (i = 0; i < n; i++)
			block[i] = b ? from[i] : key[i];
		t += b ? n : THC_BLAKE2S_BLOCK;
		if (b) {
			from += n;
			bytes -= n;
		}
		thc_blake2s_compress(h, block, t, !bytes);
	}
	for (i = 0; i < out_bytes; i++)
		out[i] = (u8)(h[i / 4] >> 8 * (i % 4));
}

#endif /* THC_BLAKE2S_H */
