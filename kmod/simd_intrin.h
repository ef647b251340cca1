/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The compiler's vector intrinsics, and what loops over vectors of any size share, for files
 * that Kbuild and Makefile compile for an instruction set of their own. The intrinsics' header
 * would include one for aligned malloc(), which the kernel lacks: the macros below keep it out.
 */
#ifndef THC_KMOD_SIMD_INTRIN_H
#define THC_KMOD_SIMD_INTRIN_H

#ifdef __KERNEL__
#define _MM_MALLOC_H_INCLUDED /* GCC's */
#define __MM_MALLOC_H /* clang's */
#endif
#include <immintrin.h>

/* Combines the @i-th vector of lanes with @v by @add. The file defines the type vector, VECTOR, its
 * bytes, and load() and store().
 */
#define PUT(add, i, v) \
	do { \
		vector *at_ = (vector *)lanes + (i); \
\
		store(at_, first ? (v) : add(load(at_), v)); \
	} while (0)

#define THC_SIMD_ADD(set, width, add) \
	THC_INLINE void set##_add##width(u64 *lanes, const void *payload, int first) \
	{ \
		const u8 *in = payload; \
		int i; \
\
		for (i = 0; i < THC_LANE_BYTES / VECTOR; i++) \
			PUT(add, i, load(in + VECTOR * i)); \
	}

#endif /* THC_KMOD_SIMD_INTRIN_H */
