// SPDX-License-Identifier: GPL-2.0
/*
 * Rows of a tensor by scheme lhc, against a real daemon: every rank gets the union's rows and
 * their exact means, bit for bit, against big integers (tests/lib/exactmean.h).
 */
#include <stdbool.h>

#include "../exactmean.h"
#include "libthc_rows.h"
#include "ranks.h"

enum { ARRAYS = 2 };
static const uint32_t width[ARRAYS] = { 3, 40 };

/* A tensor of @total rows: every rank has one in @each rows, with values. */
struct tensor {
	uint64_t	total;
	uint32_t	each;
	enum thc_dtype	dtype;
};

static uint32_t random_at(uint64_t a, uint64_t b)
{
	uint64_t x = (a + 1) * 0x9e3779b97f4a7c15ULL + (b + 1) * 0xbf58476d1ce4e5b9ULL;

	x ^= x >> 30;
	x *= 0x94d049bb133111ebULL;
	return (uint32_t)((x ^ x >> 29) >> 16);
}

/* Rank 1 has no row. */
static bool has_row(const struct tensor *t, unsigned int rank, uint64_t row)
{
	return rank != 1 && random_at(rank, row) % t->each == 0;
}

/* The bits of value @i of array @k, all finite. */
static uint32_t value_at(const struct tensor *t, unsigned int rank, uint64_t row, uint32_t k,
			 uint32_t i)
{
	const struct exact_form *f = &exact_form[t->dtype];
	uint32_t r = random_at(row * 64 + i, 8 * k + rank), middle;

	middle = 1U << (f->bits - f->digits - 1);
	return (r >> 31) << (f->bits - 1) | (middle - (r >> 24 & 7)) << (f->digits - 1) |
	       (r & ((1U << (f->digits - 1)) - 1));
}

static size_t size_of(const struct tensor *t)
{
	return (size_t)exact_form[t->dtype].bits / 8;
}

/* What @rank has, in memory that end_rows() frees. */
static struct thc_rows make_rows(const struct tensor *t, unsigned int rank, void *values[ARRAYS])
{
	struct thc_rows rows = THC_ROWS_INIT;
	int64_t *number = malloc((t->total + 1) * sizeof(*number));
	uint64_t row;
	uint32_t k, i;

	for (k = 0; k < ARRAYS; k++)
		values[k] = malloc(t->total * width[k] * size_of(t) + 1);
	for (row = 0; row < t->total; row++) {
		if (!has_row(t, rank, row))
			continue;
		for (k = 0; k < ARRAYS; k++)
			for (i = 0; i < width[k]; i++) {
				uint32_t bits = value_at(t, rank, row, k, i);

				memcpy((uint8_t *)values[k] +
					       (rows.count * width[k] + i) * size_of(t),
				       &bits, size_of(t));
			}
		number[rows.count++] = (int64_t)row;
	}
	rows.total = t->total;
	rows.row = number;
	rows.arrays = ARRAYS;
	rows.width = width;
	rows.values = (const void *const *)values;
	return rows;
}

static void end_rows(const struct thc_rows *rows, void *values[ARRAYS])
{
	uint32_t k;

	free((void *)(uintptr_t)rows->row);
	for (k = 0; k < ARRAYS; k++)
		free(values[k]);
}

static uint32_t mean_at(const struct tensor *t, unsigned int ranks, uint64_t row, uint32_t k,
			uint32_t i)
{
	struct exact_sum sum = { .positive = { { 0 } } };
	unsigned int rank;

	for (rank = 0; rank < ranks; rank++)
		if (has_row(t, rank, row))
			exact_add(&sum, value_at(t, rank, row, k, i), t->dtype);
	return exact_bits(&sum, ranks, t->dtype);
}

/* Returns 0, or -EILSEQ if rows are not the union or values not the means. */
static int check(const struct tensor *t, unsigned int ranks, const struct thc_rows *out)
{
	uint64_t row;
	size_t n = 0;

	if (out->arrays != ARRAYS || out->total != t->total ||
	    memcmp(out->width, width, sizeof(width)))
		return -EILSEQ;
	for (row = 0; row < t->total; row++) {
		bool any = false;
		unsigned int rank;
		uint32_t k, i;

		for (rank = 0; rank < ranks; rank++)
			any |= has_row(t, rank, row);
		if (!any)
			continue;
		if (n == out->count || out->row[n] != (int64_t)row)
			return -EILSEQ;
		for (k = 0; k < ARRAYS; k++) {
			for (i = 0; i < width[k]; i++) {
				uint32_t got = 0;

				memcpy(&got,
				       (const uint8_t *)out->values[k] +
					       (n * width[k] + i) * size_of(t),
				       size_of(t));
				if (got != mean_at(t, ranks, row, k, i))
					return -EILSEQ;
			}
		}
		n++;
	}
	return n == out->count ? 0 : -EILSEQ;
}

static int reduce_tensor(struct rank *r, const struct tensor *t)
{
	struct thc_call call = THC_CALL_INIT;
	struct thc_rows out = THC_ROWS_INIT;
	struct thc_request *request;
	void *values[ARRAYS];
	struct thc_rows rows = make_rows(t, r->rank, values);
	int error;

	call.key = t->total;
	error = thc_allreduce_rows_start(r->client, &rows, t->dtype, &call, &request);
	/* the other wait leaves the request as it is */
	if (!error && thc_allreduce_wait(request) != -EINVAL)
		return -EIO;
	if (!error)
		error = thc_allreduce_rows_wait(request, &out);
	if (!error)
		error = check(t, r->ranks, &out);
	thc_rows_free(&out);
	end_rows(&rows, values);
	return error;
}

static void *reduce_tensors(void *arg)
{
	static const struct tensor tensors[] = {
		{ 1, 1, THC_FP32 }, { 1000, 3, THC_FP16 }, { 1000, 1, THC_BF16 },
		{ 40000, 200, THC_FP32 }, { 40000, 200, THC_BF16 }, { 300001, 20000, THC_FP32 },
		/* no rank has any */
		{ 500, 100000, THC_FP32 },
	};
	struct rank *r = arg;
	int error = open_client(r);
	unsigned int i, times;

	/* later rounds choose levels by the first ones */
	for (times = 0; times < 3; times++)
		for (i = 0; i < sizeof(tensors) / sizeof(*tensors) && !error; i++)
			error = reduce_tensor(r, &tensors[i]);
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void rows__of_all_ranks(void **state)
{
	static const unsigned int n[] = { 1, 2, 5 };
	struct rank ranks[RANKS_MAX];
	unsigned int k, i;

	(void)state;
	for (k = 0; k < sizeof(n) / sizeof(*n); k++) {
		run_job(ranks, n[k], reduce_tensors);
		for (i = 0; i < n[k]; i++)
			if (ranks[i].error)
				fail_msg("n=%u rank %u: %d: %s", n[k], i, ranks[i].error,
					 ranks[i].sentence);
	}
}

/* --- what is wrong ------------------------------------------------------------ */

static int refused(struct rank *r, const struct thc_rows *rows, const struct thc_call *call,
		   const char *sentence)
{
	struct thc_request *request;

	if (thc_allreduce_rows_start(r->client, rows, THC_FP32, call, &request) == -EINVAL &&
	    strstr(thc_last_error(), sentence))
		return 0;
	print_error("%s, not: %s\n", thc_last_error(), sentence);
	return -EIO;
}

static void *give_what_is_wrong(void *arg)
{
	static const int64_t row[] = { 3, 7, 7, 2, 100, -1 };
	static const float value[64] = { 1 };
	const void *values[ARRAYS] = { value, value };
	struct thc_rows rows = { sizeof(rows), 100, 2, row, ARRAYS, width, values };
	struct thc_call call = THC_CALL_INIT;
	struct rank *r = arg;
	int error = open_client(r);
	static const struct {
		unsigned int first;
		size_t count;
		const char *sentence;
	} cases[] = {
		{ 0, 3, "row 7 comes behind row 7: give each row once" },
		{ 2, 2, "row 2 comes behind row 7" },
		{ 4, 1, "row 100 is none of the tensor, which has 100" },
		{ 5, 1, "row -1 is none of the tensor" },
	};
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases) && !error; i++) {
		rows.row = row + cases[i].first;
		rows.count = cases[i].count;
		error = refused(r, &rows, &call, cases[i].sentence);
	}
	rows.row = row;
	rows.count = 1;
	call.scheme = "none";
	if (!error)
		error = refused(r, &rows, &call, "rows go by the scheme lhc, not by none");
	call.scheme = "lhc";
	call.grain = 4;
	if (!error)
		error = refused(r, &rows, &call, "the grain of rows is a row");
	call.grain = 0;
	rows.total = 1ULL << 32;
	if (!error)
		error = refused(r, &rows, &call, "too many for one all-reduce");
	rows.total = 100;
	rows.arrays = 0;
	if (!error)
		error = refused(r, &rows, &call, "give at least one array");
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void rows__that_are_wrong_are_named(void **state)
{
	(void)state;
	run_well("job=1,ranks=1,reply=fanout", 1, give_what_is_wrong);
}

/* Rank 1 has an infinite value, then rows of another width, then a bucket instead of rows: all
 * ranks get an error, and go on.
 */
static void *reduce_wrongly(void *arg)
{
	static const int64_t row[] = { 3, 7 };
	float value[2 * 64] = { 1 };
	const void *values[1] = { value };
	struct thc_call call = THC_CALL_INIT;
	struct thc_rows out = THC_ROWS_INIT, rows = THC_ROWS_INIT;
	struct thc_request *request;
	struct rank *r = arg;
	uint32_t wide = 5;
	int error = open_client(r), round;

	rows.total = 100;
	rows.count = 2;
	rows.row = row;
	rows.arrays = 1;
	rows.width = &wide;
	rows.values = values;
	for (round = 0; round < 3 && !error; round++) {
		value[6] = !round && r->rank == 1 ? INFINITY : 1;
		wide = round == 1 && r->rank == 1 ? 10 : 5;
		rows.total = 500 / wide;
		error = thc_allreduce_rows_start(r->client, &rows, THC_FP32, &call, &request);
		if (error)
			break;
		error = thc_allreduce_rows_wait(request, &out);
		if (round == 0)
			error = error == -EDOM && strstr(thc_last_error(), "is not finite") ? 0 :
											      -EIO;
		else if (round == 1)
			error = error == -EBADMSG && strstr(thc_last_error(), "in rows of 10") ?
					0 :
					-EIO;
		else if (!error && (out.count != 2 || out.row[1] != 7 ||
				    ((const float *)out.values[0])[6] != 1))
			error = -EIO;
		thc_rows_free(&out);
	}
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void rows__what_ranks_do_not_share_is_told(void **state)
{
	(void)state;
	run_well("job=1,ranks=3,reply=fanout", 3, reduce_wrongly);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows__of_all_ranks),
		cmocka_unit_test(rows__that_are_wrong_are_named),
		cmocka_unit_test(rows__what_ranks_do_not_share_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
