// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The programs of thc.bpf.c, which here have thc.ko sum the lanes. An object
 * of its own: one that so much as names a function of a module needs a kernel
 * with BTF and a JIT compiler that can call it, and holds the module.
 */
#define THC_SIMD
#include "thc.bpf.c"
