/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * libthc: means of tensors of which each rank has some rows, as embeddings give them. What libthc.h
 * says of errors and of structs that begin with @size holds here, too.
 */
#ifndef LIBTHC_LIBTHC_ROWS_H
#define LIBTHC_LIBTHC_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "libthc.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct thc_rows - some rows of a tensor whose other rows are zero
 * @size: sizeof(struct thc_rows)
 * @total: rows of the tensor
 * @count: rows here, also 0
 * @row: their numbers, from 0, each once, in ascending order
 * @arrays: arrays of values that share the row numbers, at least 1
 * @width: by array: values of a row
 * @values: by array: @count rows, one behind the other
 */
struct thc_rows {
	size_t			size;
	uint64_t		total;
	size_t			count;
	const int64_t		*row;
	uint32_t		arrays;
	const uint32_t		*width;
	const void *const	*values;
};

/* clang-format off */
#define THC_ROWS_INIT { .size = sizeof(struct thc_rows) }
/* clang-format on */

/**
 * thc_allreduce_rows_start() - the mean over all ranks of a tensor of which each has some rows
 * @rows: of @dtype, a float; what @row and @values point to belongs to the library until
 *	thc_allreduce_rows_wait(), and stays as it is
 * @call: its scheme is NULL or "lhc", its grain 0
 *
 * All ranks must call with the same total, widths (their sum is compared), dtype and key, in the
 * same order as their other all-reduces; rows that a rank does not have count as zeros. -EINVAL:
 * what is wrong with @rows is in the sentence; -EOPNOTSUPP: not in this job; -EPROTO, when
 * it is waited for: the aggregator's index lacks what this rank has. Memory is needed for the rows
 * that ranks have together.
 */
THC_API int thc_allreduce_rows_start(struct thc_client *c, const struct thc_rows *rows,
				     enum thc_dtype dtype, const struct thc_call *call,
				     struct thc_request **out);

/**
 * thc_allreduce_rows_wait() - waits for @r, frees it and returns what thc_allreduce() would have
 * @out: of THC_ROWS_INIT; 0: the rows that any rank has, and their means, to be freed by
 *	thc_rows_free(); THC_NONFINITE and errors: no rows
 */
THC_API int thc_allreduce_rows_wait(struct thc_request *r, struct thc_rows *out);

/* Frees what thc_allreduce_rows_wait() filled in. */
THC_API void thc_rows_free(struct thc_rows *rows);

#ifdef __cplusplus
}
#endif

#endif /* LIBTHC_LIBTHC_ROWS_H */
