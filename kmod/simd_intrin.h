/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The compiler's vector intrinsics, for files that Kbuild and Makefile compile
 * for an instruction set of their own. In the kernel there is no malloc() for
 * their header to declare an aligned variant of.
 */
#ifndef THC_KMOD_SIMD_INTRIN_H
#define THC_KMOD_SIMD_INTRIN_H

#ifdef __KERNEL__
#define _MM_MALLOC_H_INCLUDED /* GCC's */
#define __MM_MALLOC_H /* clang's */
#endif
#include <immintrin.h>

#endif /* THC_KMOD_SIMD_INTRIN_H */
