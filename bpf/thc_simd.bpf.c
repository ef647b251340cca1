// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The programs of thc.bpf.c, with thc.ko's loops. They are an object of their own, since an object
 * that names a module's function needs a kernel with BTF and a JIT compiler that can call it, and
 * holds the module.
 */
#define THC_SIMD
#include "thc.bpf.c"
