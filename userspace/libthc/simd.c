// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The instruction sets that the loops are compiled for, and the best one that this CPU has. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "codec_ops.h"
#include "error.h"

#ifdef THC_X86_KERNELS
#include <cpuid.h>
#endif

#ifdef THC_X86_KERNELS
/* clang's __builtin_cpu_supports() learned this name late. */
static bool cpu_has_f16c(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* Kernels of @simd; NULL: this CPU lacks it. */
static const struct thc_codec_ops *ops_of(enum thc_simd simd)
{
	switch (simd) {
	case THC_SIMD_SCALAR:
		return &thc_ops_scalar;
#ifdef THC_X86_KERNELS
	case THC_SIMD_AVX2:
		if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		    cpu_has_f16c())
			return &thc_ops_avx2;
		return NULL;
	case THC_SIMD_AVX512:
		if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
		    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		    __builtin_cpu_supports("avx512vl"))
			return &thc_ops_avx512;
		return NULL;
#endif
	default:
		return NULL;
	}
}

/* Looked for once: in a virtual machine, each cpuid is a trap to the hypervisor. */
static const struct thc_codec_ops *best_ops(void)
{
	static const struct thc_codec_ops *best;
	const struct thc_codec_ops *ops = __atomic_load_n(&best, __ATOMIC_RELAXED);
	enum thc_simd simd;

	if (ops)
		return ops;
	for (simd = THC_SIMD_AVX512; !ops; simd--)
		ops = ops_of(simd);
	__atomic_store_n(&best, ops, __ATOMIC_RELAXED);
	return ops;
}

const struct thc_codec_ops *thc_simd_ops(enum thc_simd simd)
{
	return simd == THC_SIMD_AUTO ? best_ops() : ops_of(simd);
}

int thc_simd_missing(void)
{
	return thc_fail(-EOPNOTSUPP,
			"this CPU lacks the instruction set asked for: use THC_SIMD_AUTO");
}
