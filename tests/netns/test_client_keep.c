// SPDX-License-Identifier: GPL-2.0
/*
 * Scheme lhc sends a fraction of a gradient that is not sparse, against a real daemon: the largest
 * values are sent and come back as their exact mean (tests/lib/exactmean.h), bit for bit, and the
 * error memory keeps the others.
 */
#include <stdbool.h>

#include "../exactmean.h"
#include "libthc_rows.h"
#include "ranks.h"

enum { RANKS = 3, COUNT = 150001, ROUNDS = 5, KEY = 7 };

/* By rank: gradient and error memory before a round, and the memory after it. */
static float *brought[RANKS], *rest[RANKS];

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Bits of value @i of the buffer, fp32 or bf16, and itself. */
static uint32_t at(const struct rank *r, size_t i)
{
	return r->dtype == THC_FP32 ? ((uint32_t *)r->buf)[i] : ((uint16_t *)r->buf)[i];
}

static float value_at(const struct rank *r, size_t i)
{
	return float_of(r->dtype == THC_FP32 ? at(r, i) : at(r, i) << 16);
}

/* Sets the gradient of @round, and the sum with the error memory: zero in one block, whose
 * gradient is the negative of the memory.
 */
static void fill(struct rank *r, unsigned int round)
{
	size_t i;

	thc_error_export(r->client, KEY, rest[r->rank], COUNT);
	for (i = 0; i < COUNT; i++) {
		bool undone = round && i / 4096 == 3;
		float x = undone ? -rest[r->rank][i] : gradient_at(r->rank + RANKS * round, i);
		uint32_t bits = bits_of(x);

		if (r->dtype == THC_FP32)
			((uint32_t *)r->buf)[i] = bits;
		else
			((uint16_t *)r->buf)[i] = (uint16_t)(bits >> 16);
		brought[r->rank][i] = value_at(r, i) + rest[r->rank][i];
	}
}

static int reduce(struct rank *r, const struct thc_call *call)
{
	struct thc_request *request;
	int error = thc_allreduce_call_start(r->client, r->buf, COUNT, r->dtype, call, &request);

	return error ? error : thc_allreduce_wait(request);
}

/* *@sent: have the ranks sent value @i? False if the error memory or the mean is wrong. */
static bool is_right(const struct rank *r, size_t i, bool *sent)
{
	struct exact_sum sum = { 0 };
	unsigned int k;

	*sent = true;
	for (k = 0; k < RANKS; k++)
		*sent &= rest[k][i] == 0;
	for (k = 0; k < RANKS; k++) {
		if (!*sent && bits_of(rest[k][i]) != bits_of(brought[k][i]))
			return false;
		exact_add(&sum, bits_of(brought[k][i]), THC_FP32);
	}
	return at(r, i) == (*sent ? exact_bits(&sum, RANKS, r->dtype) : 0);
}

/* A rank sends its largest values, as many as it keeps, up to the error of the sample and of a
 * bound of eight bits. With the other ranks' values that is a few per cent, except in the block of
 * zeros.
 */
static int check(const struct rank *r, const struct thc_call *call)
{
	const double keep = call->keep * COUNT;
	size_t i, all = 0, largest = 0;
	float most = 0;
	bool sent;

	for (i = 0; i < COUNT; i++) {
		if (!is_right(r, i, &sent))
			return -EIO;
		all += sent && i / 4096 != 3;
		if (!sent)
			most = fmaxf(most, fabsf(brought[r->rank][i]));
	}
	for (i = 0; i < COUNT; i++)
		largest += fabsf(brought[r->rank][i]) > most;
	if (largest < 0.8 * keep || largest > 1.25 * keep)
		return -ERANGE;
	return (double)all > 1.25 * RANKS * keep * (call->grain ? (double)call->grain : 1) ?
		       -EOVERFLOW :
		       0;
}

static int first_of(int error, int next)
{
	return error ? error : next;
}

/* After an error a rank still meets the others. */
static int reduce_rounds(struct rank *r, const struct thc_call *call)
{
	unsigned int round;
	int error = 0;

	for (round = 0; round < ROUNDS; round++) {
		fill(r, round);
		error = first_of(error, reduce(r, call));
		thc_error_export(r->client, KEY, rest[r->rank], COUNT);
		pthread_barrier_wait(r->barrier);
		error = first_of(error, check(r, call));
		pthread_barrier_wait(r->barrier);
	}
	return error;
}

static const struct thc_call largest = {
	.size = sizeof(largest), .scheme = "lhc", .key = KEY, .keep = 0.02,
};

static void begin(struct rank *r, enum thc_dtype dtype)
{
	r->flags |= THC_CLIENT_ERROR_FEEDBACK;
	r->dtype = dtype;
	r->count = COUNT;
	r->buf = calloc(COUNT, sizeof(float));
	brought[r->rank] = calloc(COUNT, sizeof(float));
	rest[r->rank] = calloc(COUNT, sizeof(float));
}

static void *end(struct rank *r, int error)
{
	void *ended;

	if (error)
		keep_error(r, error);
	ended = end_rank(r, r->buf, rest[r->rank]);
	free(brought[r->rank]);
	return ended;
}

static void *reduce_fp32(void *arg)
{
	struct rank *r = arg;
	int error;

	begin(r, THC_FP32);
	error = open_client(r);
	return end(r, error ? error : reduce_rounds(r, &largest));
}

static void keep__the_largest_come_back_and_the_rest_stays(void **state)
{
	(void)state;
	run_well("job=1,ranks=3,reply=fanout,slots=24", RANKS, reduce_fp32);
}

static void *reduce_bf16(void *arg)
{
	struct thc_call items = largest;
	struct rank *r = arg;
	int error;

	begin(r, THC_BF16);
	error = open_client(r);
	/* an item is sent for any of its values, so there are fewer items, but sums are as exact */
	items.grain = 2;
	items.keep = 0.01;
	return end(r, error ? error : reduce_rounds(r, &items));
}

static void keep__of_items_and_of_bf16(void **state)
{
	(void)state;
	run_well("job=1,ranks=3,reply=fanout,slots=24", RANKS, reduce_bf16);
}

/* The error memory has the values of @brought. */
static int remembers(const struct rank *r)
{
	float *now = malloc(COUNT * sizeof(*now));
	bool same;

	same = thc_error_export(r->client, KEY, now, COUNT) == COUNT &&
	       !memcmp(now, brought[r->rank], COUNT * sizeof(*now));
	free(now);
	return same ? 0 : -EIO;
}

/* A round fails, because a rank has an infinity, and another round is undone. */
static void *reduce_in_vain(void *arg)
{
	struct rank *r = arg;
	int error, in_vain;

	begin(r, THC_FP32);
	error = open_client(r);
	if (error)
		return end(r, error);
	fill(r, 0);
	error = reduce(r, &largest);
	thc_error_export(r->client, KEY, brought[r->rank], COUNT);
	((float *)r->buf)[4097] = r->rank == 1 ? INFINITY : 1;
	in_vain = reduce(r, &largest);
	error = first_of(error, in_vain == -EDOM ? remembers(r) : -EIO);
	((float *)r->buf)[4097] = 1;
	error = first_of(error, reduce(r, &largest));
	error = first_of(error, remembers(r) ? 0 : -EINVAL);
	error = first_of(error, thc_error_undo(r->client, KEY));
	return end(r, first_of(error, remembers(r)));
}

static void keep__a_round_in_vain_leaves_the_memory(void **state)
{
	(void)state;
	run_well("job=1,ranks=3,reply=fanout,slots=24", RANKS, reduce_in_vain);
}

static int refused(const struct rank *r, double keep, const char *scheme, const char *why)
{
	struct thc_call call = { .size = sizeof(call), .scheme = scheme, .keep = keep };
	struct thc_request *request;
	int error = thc_allreduce_call_start(r->client, r->buf, COUNT, r->dtype, &call, &request);

	return error == -EINVAL && strstr(thc_last_error(), why) ? 0 : -EIO;
}

static int rows_refused(const struct rank *r)
{
	struct thc_rows rows = THC_ROWS_INIT;
	const void *const values[] = { r->buf };
	const uint32_t width = 4;
	struct thc_request *request;
	int error;

	rows.total = 10;
	rows.arrays = 1;
	rows.width = &width;
	rows.values = values;
	error = thc_allreduce_rows_start(r->client, &rows, THC_FP32, &largest, &request);
	return error == -EINVAL && strstr(thc_last_error(), "kept as a whole") ? 0 : -EIO;
}

static void *ask_wrongly(void *arg)
{
	struct rank *r = arg;
	int error;

	begin(r, THC_FP32);
	error = open_client(r);
	if (error)
		return end(r, error);
	error = refused(r, -0.1, "lhc", "above 0 and below 1");
	error = first_of(error, refused(r, 1, "lhc", "above 0 and below 1"));
	error = first_of(error, refused(r, NAN, "lhc", "above 0 and below 1"));
	error = first_of(error, refused(r, 0.1, "none", "for the scheme lhc"));
	return end(r, first_of(error, rows_refused(r)));
}

static void *ask_without_a_memory(void *arg)
{
	struct rank *r = arg;
	int error;

	begin(r, THC_FP32);
	r->flags = 0;
	error = open_client(r);
	return end(r, error ? error : refused(r, 0.1, "lhc", "THC_CLIENT_ERROR_FEEDBACK"));
}

static void keep__what_makes_no_sense_is_refused(void **state)
{
	(void)state;
	run_well("job=1,ranks=1,reply=fanout", 1, ask_wrongly);
	run_well("job=1,ranks=1,reply=fanout", 1, ask_without_a_memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keep__the_largest_come_back_and_the_rest_stays),
		cmocka_unit_test(keep__of_items_and_of_bf16),
		cmocka_unit_test(keep__a_round_in_vain_leaves_the_memory),
		cmocka_unit_test(keep__what_makes_no_sense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
