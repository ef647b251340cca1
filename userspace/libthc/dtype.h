/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Element types of a caller's buffer, enum thc_dtype: bytes and names. */
#ifndef LIBTHC_DTYPE_H
#define LIBTHC_DTYPE_H

#include <stddef.h>

#include "libthc.h"

#define THC_DTYPES	(THC_INT32 + 1)
#define THC_DTYPES_FLOAT	(1U << THC_FP32 | 1U << THC_FP16 | 1U << THC_BF16)
#define THC_DTYPES_INTEGER	(1U << THC_INT8 | 1U << THC_INT16 | 1U << THC_INT32)

static inline size_t thc_dtype_size(enum thc_dtype dtype)
{
	return dtype == THC_FP32 || dtype == THC_INT32 ? 4 : dtype == THC_INT8 ? 1 : 2;
}

/* The name of a type; "unknown" for other numbers. */
static inline const char *thc_dtype_name(unsigned int dtype)
{
	static const char *const name[THC_DTYPES] = { "fp32", "fp16",  "bf16",
						      "int8", "int16", "int32" };

	return dtype < THC_DTYPES ? name[dtype] : "unknown";
}

#endif /* LIBTHC_DTYPE_H */
