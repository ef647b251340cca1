/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Does thc.ko sum lanes for XDP programs on this host?
 */
#ifndef THC_COMMON_SIMD_H
#define THC_COMMON_SIMD_H

#include <stddef.h>

enum thc_simd_offer {
	THC_SIMD_NO_MODULE,	/* thc.ko is not loaded */
	THC_SIMD_NO_FUNCTIONS,	/* it was built without BTF, or is another version */
	THC_SIMD_OFFERED,
};

/* Asks the kernel; @name takes the vector unit's name ("avx2"), or "". */
enum thc_simd_offer thc_simd_offered(char *name, size_t size);

#endif /* THC_COMMON_SIMD_H */
