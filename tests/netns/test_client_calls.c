// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that choose their scheme, against a real daemon: integers by scheme none, between means by
 * the job's scheme; and choices that are refused. Each sum equals one computed here, bit for bit.
 */
#include <math.h>
#include <stdbool.h>

#include "ranks.h"

/* Value @i of @rank: all bits of 64, of which a dtype has some. */
static uint64_t integer_at(unsigned int rank, size_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ULL + (rank + 1) * 0xbf58476d1ce4e5b9ULL;

	x ^= x >> 30;
	x *= 0x94d049bb133111ebULL;
	return x ^ x >> 29;
}

static size_t size_of(enum thc_dtype dtype)
{
	return dtype == THC_INT8 ? 1 : dtype == THC_INT16 ? 2 : 4;
}

static void put(uint8_t *at, uint64_t value, enum thc_dtype dtype)
{
	const uint8_t v8 = (uint8_t)value;
	const uint16_t v16 = (uint16_t)value;
	const uint32_t v32 = (uint32_t)value;

	memcpy(at,
	       dtype == THC_INT8  ? (const void *)&v8 :
	       dtype == THC_INT16 ? (const void *)&v16 :
				    (const void *)&v32,
	       size_of(dtype));
}

static void fill(const struct rank *r)
{
	size_t i;

	for (i = 0; i < r->count; i++)
		put((uint8_t *)r->buf + i * size_of(r->dtype), integer_at(r->rank, i), r->dtype);
}

/* 0, or -EILSEQ: a value is not the sum. */
static int check_sum(const struct rank *r)
{
	uint8_t wanted[4];
	unsigned int k;
	uint64_t sum;
	size_t i;

	for (i = 0; i < r->count; i++) {
		for (sum = 0, k = 0; k < r->ranks; k++)
			sum += integer_at(k, i);
		put(wanted, sum, r->dtype);
		if (memcmp((uint8_t *)r->buf + i * size_of(r->dtype), wanted, size_of(r->dtype))) {
			print_error("rank %u of %u: value %zu of %zu\n", r->rank, r->ranks, i,
				    r->count);
			return -EILSEQ;
		}
	}
	return 0;
}

static int reduce(struct rank *r, const char *scheme)
{
	struct thc_call call = THC_CALL_INIT;
	struct thc_request *request;
	int error;

	call.scheme = scheme;
	error = thc_allreduce_call_start(r->client, r->buf, r->count, r->dtype, &call, &request);
	return error ? error : thc_allreduce_wait(request);
}

/* Integers of each width, means of floats in between, with the same key. */
static void *reduce_integers(void *arg)
{
	static const size_t counts[] = { 1, 255, 256, 257, 1025, 4097, 70001 };
	struct rank *r = arg;
	int error = open_client(r), width;
	size_t k;

	for (k = 0; k < sizeof(counts) / sizeof(*counts) && !error; k++) {
		float *mean = make_gradient(r->rank, counts[k]);

		for (width = THC_INT8; width <= THC_INT32 && !error; width++) {
			r->count = counts[k];
			r->dtype = (enum thc_dtype)width;
			r->buf = malloc(r->count * size_of(r->dtype));
			fill(r);
			error = reduce(r, "none");
			if (!error)
				error = check_sum(r);
			free(r->buf);
		}
		if (!error)
			error = thc_allreduce(r->client, mean, counts[k], THC_FP32, 0);
		if (!error && counts[k] > 4000 && !(nmse(mean, r->ranks, counts[k]) < 0.05))
			error = -EILSEQ;
		free(mean);
	}
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void integers__sums_of_each_width(void **state)
{
	static const unsigned int n[] = { 1, 2, 3, 8 };
	struct rank ranks[RANKS_MAX];
	unsigned int k, i;

	(void)state;
	for (k = 0; k < sizeof(n) / sizeof(*n); k++) {
		run_job(ranks, n[k], reduce_integers);
		for (i = 0; i < n[k]; i++)
			if (ranks[i].error)
				fail_msg("n=%u rank %u: %d: %s", n[k], i, ranks[i].error,
					 ranks[i].sentence);
	}
}

/* By ranges, which a job with a uniform table allows, and by the job's scheme in between. */
static void *reduce_by_ranges(void *arg)
{
	static const size_t counts[] = { 1, 1024, 70001, 300000 };
	struct rank *r = arg;
	int error = open_client(r);
	size_t k;

	r->dtype = THC_FP32;
	for (k = 0; k < 2 * sizeof(counts) / sizeof(*counts) && !error; k++) {
		r->count = counts[k / 2];
		r->buf = make_gradient(r->rank, r->count);
		error = reduce(r, k % 2 ? NULL : "uthc");
		if (!error && r->count > 1 && !(nmse(r->buf, r->ranks, r->count) < 0.05)) {
			print_error("%zu values: NMSE %g\n", r->count,
				    nmse(r->buf, r->ranks, r->count));
			error = -EILSEQ;
		}
		free(r->buf);
	}
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void floats__by_ranges(void **state)
{
	(void)state;
	run_well("job=1,ranks=3,reply=fanout,table=uniform", 3, reduce_by_ranges);
}

/* Calls that differ, and the words by which other ranks describe them. */
static const struct brought {
	size_t		count;
	enum thc_dtype	dtype;
	const char	*scheme;
	unsigned int	precision;
	uint64_t	key;
	const char	*words;
} usual = { 5000, THC_FP32, "none", 0, 7, "5000 fp32 values (scheme none, exact, table " },
  odd[] = {
	  { 5000, THC_FP32, NULL, 0, 7, "5000 fp32 values (scheme thc, table " },
	  { 5000, THC_FP32, "none", 16, 7, "5000 fp32 values (scheme none, 16 bits, table " },
	  { 5000, THC_BF16, "none", 0, 7, "5000 bf16 values (scheme none, exact, table " },
	  { 5000, THC_INT32, "none", 0, 7, "5000 int32 values (scheme none, table " },
	  { 4999, THC_FP32, "none", 0, 7, "4999 fp32 values (scheme none, exact, table " },
	  { 5000, THC_FP32, "none", 0, 8, ", key 00000008)" },
  };

/* Returns 0, or -EILSEQ if the call does not fail or does not tell this rank who differs and in
 * what.
 */
static int is_told(struct rank *r, const struct brought *other)
{
	const struct brought *own = r->rank ? &usual : other;
	struct thc_call call = THC_CALL_INIT;
	struct thc_request *request;
	int error;

	call.scheme = own->scheme;
	call.precision = (enum thc_precision)own->precision;
	call.key = own->key;
	error = thc_allreduce_call_start(r->client, r->buf, own->count, own->dtype, &call,
					 &request);
	if (!error)
		error = thc_allreduce_wait(request);
	if (r->rank == 1)
		print_message("%s\n", thc_last_error());
	if (error == -EBADMSG && strstr(thc_last_error(), usual.words) &&
	    strstr(thc_last_error(), other->words) &&
	    strstr(thc_last_error(), r->rank ? "rank 0 disagrees with this rank" :
					       "ranks 1 and 2 disagree with this rank (0)"))
		return 0;
	print_error("rank %u: %d: %s\n", r->rank, error, thc_last_error());
	return -EILSEQ;
}

/* Rank 0 makes another call than the others: all are told, and go on. */
static void *reduce_differently(void *arg)
{
	struct rank *r = arg;
	int error = open_client(r);
	size_t k;

	r->buf = calloc(5000, 4);
	for (k = 0; k < sizeof(odd) / sizeof(*odd) && !error; k++) {
		error = is_told(r, &odd[k]);
		r->count = 5000;
		r->dtype = THC_INT32;
		fill(r);
		if (!error)
			error = reduce(r, "none");
		if (!error)
			error = check_sum(r);
		memset(r->buf, 0, 5000 * 4);
	}
	keep_error(r, error);
	return end_rank(r, r->buf, NULL);
}

static void call__ranks_that_choose_differently_are_told(void **state)
{
	struct rank ranks[RANKS_MAX];
	unsigned int i;

	(void)state;
	run_job(ranks, 3, reduce_differently);
	for (i = 0; i < 3; i++)
		if (ranks[i].error)
			fail_msg("rank %u: %d: %s", i, ranks[i].error, ranks[i].sentence);
}

/* 0, or -EILSEQ: the call is not refused so. */
static int refused(struct rank *r, const struct thc_call *call, enum thc_dtype dtype, int error,
		   const char *words)
{
	struct thc_request *request;
	uint32_t values[8] = { 1 };
	int got = thc_allreduce_call_start(r->client, values, 8, dtype, call, &request);

	if (got == error && strstr(thc_last_error(), words))
		return 0;
	print_error("%d, \"%s\": not %d with \"%s\"\n", got, thc_last_error(), error, words);
	return -EILSEQ;
}

/* In a job without tables for rates. */
static int rates_are_refused(struct rank *r)
{
	static const struct {
		const char *scheme;
		double rate, error;
		int refusal;
		const char *words;
	} rows[] = {
		{ "thc", 4, 0, -EOPNOTSUPP, "the job has no tables for a rate" },
		{ NULL, 0, 0.01, -EOPNOTSUPP, "the job has no tables for a rate" },
		{ "thc", 4, 0.01, -EINVAL, "are two goals" },
		{ NULL, 0.2, 0, -EINVAL, "no rate of 0.2 bits" },
		{ NULL, -2, 0, -EINVAL, "no rate of -2 bits" },
		{ NULL, NAN, 0, -EINVAL, "no rate of nan bits" },
		{ NULL, 0, 0.6, -EINVAL, "no error of 0.6" },
		{ "lhc", 4, 0, -EINVAL, "a rate is for the scheme thc" },
	};
	struct thc_call call = THC_CALL_INIT;
	unsigned int i;
	int e = 0;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		call.scheme = rows[i].scheme;
		call.rate = rows[i].rate;
		call.error = rows[i].error;
		e |= refused(r, &call, THC_FP32, rows[i].refusal, rows[i].words);
	}
	return e;
}

static void *ask_for_what_is_not_there(void *arg)
{
	struct thc_call call = THC_CALL_INIT, none = THC_CALL_INIT, lossy = THC_CALL_INIT;
	struct rank *r = arg;
	int e = open_client(r);

	none.scheme = "none";
	lossy.scheme = "lossy";
	if (!e) {
		e |= refused(r, &call, THC_INT32, -EINVAL, "thc takes no int32 values: integers");
		e |= refused(r, &call, (enum thc_dtype)6, -EINVAL, "unknown dtype 6");
		none.precision = 24;
		e |= refused(r, &none, THC_FP32, -EINVAL, "unknown precision 24");
		none.precision = THC_FIXED_16;
		e |= refused(r, &none, THC_INT16, -EINVAL,
			     "is for floats by the schemes none and lhc");
		call.precision = THC_FIXED_16;
		e |= refused(r, &call, THC_FP32, -EINVAL,
			     "is for floats by the schemes none and lhc");
		call.precision = THC_EXACT;
		e |= refused(r, &lossy, THC_FP32, -EINVAL, "there is no scheme \"lossy\"");
		lossy.scheme = "uthc";
		e |= refused(r, &lossy, THC_FP32, -EOPNOTSUPP, "the job's table is not uniform");
		none.precision = THC_EXACT;
		none.grain = 4;
		e |= refused(r, &none, THC_FP32, -EINVAL, "a grain is for the scheme lhc");
		none.scheme = "lhc";
		e |= refused(r, &none, THC_INT8, -EINVAL, "lhc takes no int8 values");
		none.grain = 6;
		e |= refused(r, &none, THC_FP32, -EINVAL, "the grain 6 is no power of two");
		none.grain = 512;
		e |= refused(r, &none, THC_FP32, -EINVAL, "the grain 512 is no power of two up");
		e |= rates_are_refused(r);
		e |= refused(r, NULL, THC_FP32, -EINVAL, "THC_CALL_INIT");
		call.size = 8;
		e |= refused(r, &call, THC_FP32, -EINVAL, "thc_call.size is 8");
	}
	keep_error(r, e);
	return end_rank(r, NULL, NULL);
}

static void call__what_is_not_there_is_refused(void **state)
{
	(void)state;
	run_well("job=1,ranks=1,reply=fanout,rate=fixed", 1, ask_for_what_is_not_there);
}

static void *ask_for_a_rate(void *arg)
{
	struct thc_call call = THC_CALL_INIT;
	struct rank *r = arg;
	int error = open_client(r);

	call.scheme = "thc";
	call.rate = 4;
	if (!error)
		error = refused(r, &call, THC_FP32, -EOPNOTSUPP,
				"the job has scheme none, and only jobs of scheme thc have tables");
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

/* The error advises the operator nothing: thcd takes a rate with scheme=thc alone. */
static void call__rate_in_a_job_of_another_scheme(void **state)
{
	(void)state;
	run_well("job=1,ranks=1,reply=fanout,scheme=none", 1, ask_for_a_rate);
}

static void *ask_beside_a_deadline(void *arg)
{
	struct thc_call call = THC_CALL_INIT;
	struct rank *r = arg;
	int error = open_client(r);

	call.scheme = "none";
	if (!error)
		error = refused(r, &call, THC_INT8, -EOPNOTSUPP, "it has a deadline");
	call.scheme = "lhc";
	if (!error)
		error = refused(r, &call, THC_FP32, -EOPNOTSUPP, "it has a deadline");
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

/* 5 bits for the sums of 17 to 32 ranks, of 8 with a sign: 2 are left */
static void *ask_for_too_few_bits(void *arg)
{
	struct thc_call call = THC_CALL_INIT;
	struct rank *r = arg;
	int error = open_client(r);

	call.scheme = "none";
	call.precision = THC_FIXED_8;
	if (!error)
		error = refused(r, &call, THC_BF16, -EOPNOTSUPP,
				"8 bits are too few for sums of 17");
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void call__bits_have_to_suffice(void **state)
{
	struct rank ranks[RANKS_MAX];
	unsigned int i;

	(void)state;
	run_job(ranks, 17, ask_for_too_few_bits);
	for (i = 0; i < 17; i++)
		assert_int_equal(ranks[i].error, 0);
}

static void call__integers_need_a_job_without_a_deadline(void **state)
{
	struct daemon d = start_daemon("job=1,ranks=1,reply=fanout,quorum=1,deadline_ms=50");
	struct rank rank[RANKS_MAX];

	(void)state;
	set_up_ranks(rank, 1, d);
	run_ranks(rank, 1, ask_beside_a_deadline);
	stop_daemon(d);
	assert_int_equal(rank->error, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers__sums_of_each_width),
		cmocka_unit_test(floats__by_ranges),
		cmocka_unit_test(call__ranks_that_choose_differently_are_told),
		cmocka_unit_test(call__what_is_not_there_is_refused),
		cmocka_unit_test(call__rate_in_a_job_of_another_scheme),
		cmocka_unit_test(call__bits_have_to_suffice),
		cmocka_unit_test(call__integers_need_a_job_without_a_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
