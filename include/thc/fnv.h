/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * FNV-1a, 32 bits (Fowler, Noll, Vo; draft-eastlake-fnv): detects accidental differences, not
 * intended ones.
 */
#ifndef THC_FNV_H
#define THC_FNV_H

#include <thc/types.h>

#define THC_FNV_BEGIN	2166136261U

THC_INLINE u32 thc_fnv(u32 hash, const void *data, u32 bytes)
{
	const u8 *p = data;
	u32 i;

	for (i = 0; i < bytes; i++)
		hash = (hash ^ p[i]) * 16777619U;
	return hash;
}

#endif /* THC_FNV_H */
