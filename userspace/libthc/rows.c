// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* A program's rows, and their means. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "error.h"
#include "rows.h"

/* Copies the arrays of pointers and widths, since the program may free its own after the call. */
struct thc_row_call *thc_row_call_create(const struct thc_rows *given)
{
	size_t pointers = given->arrays * sizeof(*given->values);
	struct thc_row_call *call;
	uint32_t *width, k;
	void *values;

	call = calloc(1, sizeof(*call) + pointers + given->arrays * sizeof(*given->width));
	if (!call)
		return NULL;
	values = call + 1;
	width = (void *)((uint8_t *)values + pointers);
	memcpy(values, given->values, pointers);
	memcpy(width, given->width, given->arrays * sizeof(*width));
	call->given = *given;
	call->given.values = values;
	call->given.width = width;
	for (k = 0; k < given->arrays; k++)
		call->width += width[k];
	return call;
}

void thc_row_call_destroy(struct thc_row_call *call)
{
	if (!call)
		return;
	free(call->row);
	free(call->values);
	free(call);
}

int thc_row_call_take(struct thc_row_call *call, size_t count, size_t size)
{
	call->count = count;
	call->row = malloc(count * sizeof(*call->row) + 1);
	call->values = calloc(count + 1, call->width * size);
	return call->row && call->values ? 0 : -ENOMEM;
}

static int check_arrays(const struct thc_rows *given)
{
	uint64_t width = 0;
	uint32_t k;

	if (!given->arrays || !given->width || !given->values)
		return thc_fail(-EINVAL, "rows have no values: give at least one array");
	if (given->arrays > THC_ROW_WIDTH_MAX)
		return thc_fail(-EINVAL, "%u arrays are too many", given->arrays);
	for (k = 0; k < given->arrays; k++) {
		if (!given->width[k] || (given->count && !given->values[k]))
			return thc_fail(-EINVAL, "array %u of the rows has no values", k);
		width += given->width[k];
	}
	if (width > THC_ROW_WIDTH_MAX)
		return thc_fail(-EINVAL, "rows of %llu values are too wide: at most %u",
				(unsigned long long)width, THC_ROW_WIDTH_MAX);
	if (!given->total || given->total > UINT32_MAX / width)
		return thc_fail(
			-EINVAL,
			"%llu rows of %llu values are nothing, or too many for one all-reduce",
			(unsigned long long)given->total, (unsigned long long)width);
	return 0;
}

int thc_rows_check(const struct thc_rows *given, enum thc_dtype dtype)
{
	int error = check_arrays(given);
	int64_t last = -1;
	size_t i;

	if (error)
		return error;
	if ((unsigned int)dtype >= THC_DTYPES || !(THC_DTYPES_FLOAT & 1U << dtype))
		return thc_fail(-EINVAL, "rows are of THC_FP32, THC_FP16 or THC_BF16, not of %s",
				thc_dtype_name(dtype));
	if (given->count && !given->row)
		return thc_fail(-EINVAL, "there are %zu rows, and no numbers of them",
				given->count);
	for (i = 0; i < given->count; i++) {
		if (given->row[i] < 0 || (uint64_t)given->row[i] >= given->total)
			return thc_fail(-EINVAL, "row %lld is none of the tensor, which has %llu",
					(long long)given->row[i], (unsigned long long)given->total);
		if (given->row[i] <= last)
			return thc_fail(
				-EINVAL,
				"row %lld comes behind row %lld: give each row once, in ascending order (PyTorch: coalesce())",
				(long long)given->row[i], (long long)last);
		last = given->row[i];
	}
	return 0;
}

void thc_rows_gather(const struct thc_row_call *call, enum thc_dtype dtype, size_t at, void *to)
{
	size_t size = thc_dtype_size(dtype), bytes;
	uint8_t *end = to;
	uint32_t k;

	for (k = 0; k < call->given.arrays; k++, end += bytes) {
		bytes = call->given.width[k] * size;
		memcpy(end, (const uint8_t *)call->given.values[k] + at * bytes, bytes);
	}
}

/* Copies the values of array @k, which begin with value @skip of a row. */
static void scatter(const struct thc_row_call *call, uint32_t k, uint32_t skip, size_t size,
		    uint8_t *to)
{
	size_t bytes = call->given.width[k] * size, i;
	const uint8_t *from = (const uint8_t *)call->values + skip * size;

	for (i = 0; i < call->count; i++)
		memcpy(to + i * bytes, from + i * call->width * size, bytes);
}

int thc_rows_result(struct thc_row_call *call, enum thc_dtype dtype, struct thc_rows *out)
{
	size_t size = thc_dtype_size(dtype), rows = call->count * sizeof(*call->row);
	uint32_t arrays = call->given.arrays, k, skip = 0;
	uint8_t *all = malloc(rows + arrays * (sizeof(void *) + sizeof(uint32_t)) +
			      call->count * call->width * size + 1);
	const void **values;
	uint32_t *width;
	uint8_t *at;

	if (!all)
		return -ENOMEM;
	if (rows)
		memcpy(all, call->row, rows);
	values = (void *)(all + rows);
	width = (void *)(values + arrays);
	at = (void *)(width + arrays);
	for (k = 0; k < arrays; k++) {
		width[k] = call->given.width[k];
		values[k] = at;
		scatter(call, k, skip, size, at);
		skip += width[k];
		at += call->count * width[k] * size;
	}
	out->total = call->given.total;
	out->count = call->count;
	out->row = (void *)all;
	out->arrays = arrays;
	out->width = width;
	out->values = values;
	return 0;
}

void thc_rows_free(struct thc_rows *rows)
{
	free((void *)(uintptr_t)rows->row);
	rows->row = NULL;
	rows->width = NULL;
	rows->values = NULL;
	rows->count = 0;
}
