/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Rows of a tensor on their way: struct thc_rows in, and out. */
#ifndef LIBTHC_ROWS_H
#define LIBTHC_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "libthc_rows.h"

/* Most values in a row, over all arrays: a claim has this many bits for the number. */
#define THC_ROW_WIDTH_MAX	0xfffff

/**
 * struct thc_row_call - arguments and results of an all-reduce of rows
 * @given: the program's rows; its arrays stay the program's
 * @width: values of a row, over all arrays
 * @row, @values: out: rows of the union, and their means, row by row, all arrays side by side;
 *	malloc()
 * @count: out: number of rows
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
/* Allocates @count result rows, of values of @size bytes, zeros at first. -ENOMEM. */
int thc_row_call_take(struct thc_row_call *call, size_t count, size_t size);
/* Checks @given, of values of @dtype: 0, or -EINVAL with a sentence. */
int thc_rows_check(const struct thc_rows *given, enum thc_dtype dtype);
/* Copies the values of row number @at of the given ones, all arrays side by side, to @to. */
void thc_rows_gather(const struct thc_row_call *call, enum thc_dtype dtype, size_t at, void *to);
/* Fills in the result in the program's form: 0 or -ENOMEM. */
int thc_rows_result(struct thc_row_call *call, enum thc_dtype dtype, struct thc_rows *out);

#endif /* LIBTHC_ROWS_H */
