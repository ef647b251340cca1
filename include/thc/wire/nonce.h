/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Nonces, challenges and salts: 16 bytes, of which only equality matters; all zero: there is none.
 */
#ifndef THC_NONCE_H
#define THC_NONCE_H

#include <thc/types.h>

_Static_assert(THC_NONCE_BYTES == THC_CHALLENGE_BYTES && THC_NONCE_BYTES == THC_SALT_BYTES,
	       "one length");

THC_INLINE int thc_nonce_equal(const u8 *a, const u8 *b)
{
	u32 i;

	for (i = 0; i < THC_NONCE_BYTES; i++)
		if (a[i] != b[i])
			return 0;
	return 1;
}

THC_INLINE int thc_nonce_is_none(const u8 *nonce)
{
	u32 i;

	for (i = 0; i < THC_NONCE_BYTES; i++)
		if (nonce[i])
			return 0;
	return 1;
}

THC_INLINE void thc_nonce_copy(u8 *to, const u8 *from)
{
	u32 i;

	for (i = 0; i < THC_NONCE_BYTES; i++)
		to[i] = from[i];
}

#endif /* THC_NONCE_H */
