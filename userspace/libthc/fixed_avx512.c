// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The loops of fixed.h, with the flags that the Makefile has for this file. */
#include "fixed_loops.h"

#ifdef THC_X86_KERNELS
const struct thc_fixed_ops thc_fixed_avx512 = THC_FIXED_LOOPS;
#endif
