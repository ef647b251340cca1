/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Rows of a tensor on their way: struct thc_rows in, and out. */
#ifndef LIBTHC_ROWS_H
#define LIBTHC_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "libthc_rows.h"

/* Values of a row, over all arrays: they are in a claim. */
#define THC_ROW_WIDTH_MAX	0xfffff

/**
 * struct thc_row_call - what one all-reduce of rows was given, and what came
 * @given: by the program, whose arrays it points to
 * @width: values of a row, over all arrays
 * @row, @values: out: rows of the union, and their means, row by row, all arrays side by side;
 *	malloc()
 * @count: out: how many
 */
struct thc_row_call {
	struct thc_rows	given;
	uint32_t	width;
	int64_t		*row;
	void		*values;
	size_t		count;
};

/* rows.c. NULL: -ENOMEM. */
struct thc_row_call *thc_row_call_create(const struct thc_rows *given);
void thc_row_call_destroy(struct thc_row_call *call);
/* Room for what comes: @count rows, of values of @size bytes, zeros at first. -ENOMEM. */
int thc_row_call_take(struct thc_row_call *call, size_t count, size_t size);
/* 0, or -EINVAL with a sentence: what is wrong with @given, of values of @dtype. */
int thc_rows_check(const struct thc_rows *given, enum thc_dtype dtype);
/* The values of row number @at of the given ones, all arrays side by side, to @to, and back. */
void thc_rows_gather(const struct thc_row_call *call, enum thc_dtype dtype, size_t at, void *to);
/* What came, as the program has it: 0 or -ENOMEM. */
int thc_rows_result(struct thc_row_call *call, enum thc_dtype dtype, struct thc_rows *out);

#endif /* LIBTHC_ROWS_H */
