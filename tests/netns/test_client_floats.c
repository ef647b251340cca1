// SPDX-License-Identifier: GPL-2.0
/*
 * Floats by schemes none and lhc, against a real daemon: exact means against big integers
 * (tests/lib/exactmean.h), fixed point against its definition, bit for bit on every rank.
 */
#include <math.h>
#include <stdbool.h>

#include "../exactmean.h"
#include "ranks.h"

#define BLOCK	4096

/* Kinds of blocks: values of one binade, of all, or few; zero on one rank, on all, or in most
 * places.
 */
enum { CLOSE, SPREAD, FEW, ALL, TINY, ZERO, FEW_ALIKE, ZERO_BUT_ONE, SORTS };

/* A rank's sparse rounds: most values are zero, others in each round; @shared values share a
 * scale.
 */
static __thread struct draw {
	bool		sparse;
	unsigned int	round;
	size_t		shared;
} draw = { .shared = BLOCK };

static uint32_t random_at(unsigned int rank, size_t i)
{
	uint64_t x = (i + 1 + ((uint64_t)draw.round << 40)) * 0x9e3779b97f4a7c15ULL +
		     (rank + 1) * 0xbf58476d1ce4e5b9ULL;

	x ^= x >> 30;
	x *= 0x94d049bb133111ebULL;
	return (uint32_t)((x ^ x >> 29) >> 16);
}

static uint32_t dense_at(unsigned int rank, size_t i, enum thc_dtype dtype)
{
	const struct exact_form *f = &exact_form[dtype];
	unsigned int low = f->digits - 1, exponents = 1U << (f->bits - f->digits);
	unsigned int sort = (unsigned int)(i / BLOCK % SORTS), middle = exponents / 2;
	uint32_t r = random_at(rank, i), sign = (r >> 31) << (f->bits - 1);
	uint32_t mantissa = r & ((1U << low) - 1), spread = r >> 24 & 7;

	if (sort == ZERO || (sort == ZERO_BUT_ONE && rank) || (sort == FEW && r % 32) ||
	    (sort == FEW_ALIKE && random_at(RANKS_MAX, i) % 64))
		return i & 1 ? sign : 0;
	if (sort == TINY)
		return sign | mantissa;
	if (sort == ALL)
		return sign | (r >> 8) % (exponents - 1) << low | mantissa;
	return sign | (middle - (sort == SPREAD ? spread : 0)) << low | mantissa;
}

/* A round with more values than others, one without values of rank 1, one without any. */
enum { THICK = 4, UNEVEN = 5, NOTHING = 6, SPARSE_ROUNDS = 9 };

static uint32_t sparse_at(unsigned int rank, size_t i, enum thc_dtype dtype)
{
	const struct exact_form *f = &exact_form[dtype];
	unsigned int low = f->digits - 1, middle = 1U << (f->bits - f->digits - 1);
	uint32_t r = random_at(rank, i), chance = random_at(rank + RANKS_MAX, i);

	if (draw.round == NOTHING || (draw.round == UNEVEN && rank == 1) ||
	    chance % (draw.round == THICK ? 11 : 151))
		return i & 1 ? (r >> 31) << (f->bits - 1) : 0;
	return (r >> 31) << (f->bits - 1) | (middle - (r >> 24 & 3) - i / BLOCK % 8) << low |
	       (r & ((1U << low) - 1));
}

/* The bits of value @i of @rank. */
static uint32_t value_at(unsigned int rank, size_t i, enum thc_dtype dtype)
{
	return draw.sparse ? sparse_at(rank, i, dtype) : dense_at(rank, i, dtype);
}

static size_t size_of(enum thc_dtype dtype)
{
	return (size_t)exact_form[dtype].bits / 8;
}

static void fill(const struct rank *r)
{
	size_t i;

	for (i = 0; i < r->count; i++) {
		uint32_t bits = value_at(r->rank, i, r->dtype);

		memcpy((uint8_t *)r->buf + i * size_of(r->dtype), &bits, size_of(r->dtype));
	}
}

static double magnitude_at(unsigned int rank, size_t i, enum thc_dtype dtype)
{
	uint32_t mantissa;
	int exponent;

	mantissa = exact_parts(value_at(rank, i, dtype), dtype, &exponent);
	return ldexp(mantissa, exponent);
}

/* The power of two above all values that share a scale with @i; false: all are zero. */
static bool top_of(const struct rank *r, size_t i, int *top)
{
	size_t first = i / draw.shared * draw.shared;
	double most = 0, one;
	unsigned int k;

	for (i = first; i < r->count && i < first + draw.shared; i++) {
		for (k = 0; k < r->ranks; k++) {
			one = magnitude_at(k, i, r->dtype);
			most = one > most ? one : most;
		}
	}
	frexp(most, top);
	return most > 0;
}

/* Adds value @i of all ranks in fixed point, @bits per rank in units of 2^(top - bits). */
static void add_fixed(struct exact_sum *sum, const struct rank *r, size_t i, int top, int bits)
{
	double most = ldexp(1, bits) - 1, one;
	unsigned int k;

	for (k = 0; k < r->ranks; k++) {
		one = nearbyint(ldexp(magnitude_at(k, i, r->dtype), bits - top));
		one = one > most ? most : one;
		big_add(exact_is_negative(value_at(k, i, r->dtype), r->dtype) ? &sum->negative :
										&sum->positive,
			(uint32_t)one, top - bits);
	}
}

static void add_exact(struct exact_sum *sum, const struct rank *r, size_t i)
{
	unsigned int k;

	for (k = 0; k < r->ranks; k++)
		exact_add(sum, value_at(k, i, r->dtype), r->dtype);
}

static int bits_of(const struct rank *r, enum thc_precision precision)
{
	int bits = (int)precision - 1;
	unsigned int reach;

	for (reach = 1; reach < r->ranks; reach *= 2)
		bits--;
	return bits;
}

/* 0, or -EILSEQ: a value is not the mean. */
static int check(const struct rank *r, enum thc_precision precision)
{
	bool some = false;
	int top = 0;
	size_t i;

	for (i = 0; i < r->count; i++) {
		struct exact_sum sum = { .positive = { { 0 } } };
		uint32_t wanted, got = 0;

		if (precision && i % draw.shared == 0)
			some = top_of(r, i, &top);
		if (!precision)
			add_exact(&sum, r, i);
		else if (some)
			add_fixed(&sum, r, i, top, bits_of(r, precision));
		wanted = exact_bits(&sum, r->ranks, r->dtype);
		memcpy(&got, (uint8_t *)r->buf + i * size_of(r->dtype), size_of(r->dtype));
		if (got != wanted) {
			print_error("rank %u of %u, dtype %d, precision %d: value %zu of %zu is "
				    "%08x, not %08x\n",
				    r->rank, r->ranks, r->dtype, precision, i, r->count, got,
				    wanted);
			return -EILSEQ;
		}
	}
	return 0;
}

/* @scheme: NULL: the job's. */
static int reduce(struct rank *r, const char *scheme, enum thc_precision precision, uint32_t grain)
{
	struct thc_call call = THC_CALL_INIT;
	struct thc_request *request;
	int error;

	call.scheme = scheme;
	call.precision = precision;
	call.grain = grain;
	call.key = draw.sparse ? 1000 * r->count + 10 * precision + r->dtype : 0;
	error = thc_allreduce_call_start(r->client, r->buf, r->count, r->dtype, &call, &request);
	return error ? error : thc_allreduce_wait(request);
}

/* Calls with @scheme and @precision; the result must be the mean of precision @wanted. */
static int reduce_by(struct rank *r, const char *scheme, enum thc_precision precision,
		     uint32_t grain, enum thc_precision wanted)
{
	int error;

	r->buf = malloc(r->count * size_of(r->dtype));
	fill(r);
	error = reduce(r, scheme, precision, grain);
	if (!error)
		error = check(r, wanted);
	free(r->buf);
	return error;
}

static int reduce_one(struct rank *r, size_t count, enum thc_dtype dtype,
		      enum thc_precision precision)
{
	int error;

	r->count = count;
	r->dtype = dtype;
	error = reduce_by(r, "none", precision, 0, precision);
	return error ? error : reduce_by(r, "lhc", precision, 1U << count % 9, precision);
}

static void *reduce_floats(void *arg)
{
	static const enum thc_precision precisions[] = { THC_EXACT, THC_FIXED_32, THC_FIXED_16,
							 THC_FIXED_8 };
	static const size_t counts[] = { 1, 257, 4096, 4097, 40001 };
	struct rank *r = arg;
	int error = open_client(r), dtype;
	size_t k, m;

	for (k = 0; k < sizeof(counts) / sizeof(*counts); k++)
		for (m = 0; m < sizeof(precisions) / sizeof(*precisions); m++)
			for (dtype = THC_FP32; dtype <= THC_BF16 && !error; dtype++)
				error = reduce_one(r, counts[k], (enum thc_dtype)dtype,
						   precisions[m]);
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void floats__means_of_each_precision(void **state)
{
	static const unsigned int n[] = { 1, 2, 3, 8 };
	struct rank ranks[RANKS_MAX];
	unsigned int k, i;

	(void)state;
	for (k = 0; k < sizeof(n) / sizeof(*n); k++) {
		run_job(ranks, n[k], reduce_floats);
		for (i = 0; i < n[k]; i++)
			if (ranks[i].error)
				fail_msg("n=%u rank %u: %d: %s", n[k], i, ranks[i].error,
					 ranks[i].sentence);
	}
}

/* A job of fixed16: a call without a scheme gives that mean, a call of scheme none without a
 * precision the exact one.
 */
static void *reduce_by_the_job(void *arg)
{
	struct thc_client_info info = { .size = sizeof(info) };
	struct rank *r = arg;
	int error = open_client(r), dtype;

	if (!error)
		error = thc_client_info(r->client, &info);
	/* the info also has the table for calls of scheme thc */
	if (!error && (strcmp(info.scheme, "none") != 0 || info.precision != THC_FIXED_16 ||
		       info.table.bits != 4 || info.sum_width != 8))
		error = -ENOEXEC;
	r->count = 9001;
	for (dtype = THC_FP32; dtype <= THC_BF16 && !error; dtype++) {
		r->dtype = (enum thc_dtype)dtype;
		error = reduce_by(r, NULL, THC_EXACT, 0, THC_FIXED_16);
		if (!error)
			error = reduce_by(r, "none", THC_EXACT, 0, THC_EXACT);
	}
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void floats__of_the_jobs_precision(void **state)
{
	(void)state;
	run_well("job=1,ranks=3,scheme=none,precision=fixed16,reply=fanout", 3, reduce_by_the_job);
}

/* The share of values that some rank has. */
static double density(const struct rank *r)
{
	size_t i, there = 0;
	unsigned int k;

	for (i = 0; i < r->count; i++) {
		for (k = 0; k < r->ranks && magnitude_at(k, i, r->dtype) == 0; k++)
			;
		there += k < r->ranks;
	}
	return (double)there / (double)r->count;
}

/* Rounds of a key in a job with sketches. From the third round on, sketches are used if the round
 * before the last was sparse enough; then all values share a scale.
 */
static int reduce_sparse(struct rank *r, size_t count, enum thc_precision precision)
{
	double before[2] = { 1, 1 };
	int error = 0;

	r->count = count;
	for (draw.round = 0; draw.round < SPARSE_ROUNDS && !error; draw.round++) {
		draw.shared = before[draw.round % 2] < 0.0625 ? count : BLOCK;
		before[draw.round % 2] = density(r);
		error = reduce_by(r, "lhc", precision, 1U << (count % 3 ? 0 : 1), precision);
	}
	return error;
}

static void *reduce_sketches(void *arg)
{
	static const enum thc_precision precisions[] = { THC_EXACT, THC_FIXED_32, THC_FIXED_16,
							 THC_FIXED_8 };
	static const size_t counts[] = { 1, 300, 4097, 70002 };
	struct thc_client_info info = { .size = sizeof(info) };
	struct rank *r = arg;
	int error = open_client(r);
	size_t k, m;

	draw.sparse = true;
	for (k = 0; k < sizeof(counts) / sizeof(*counts); k++)
		for (m = 0; m < sizeof(precisions) / sizeof(*precisions) && !error; m++) {
			r->dtype = (enum thc_dtype)((k + m) % 3);
			error = reduce_sparse(r, counts[k], precisions[m]);
		}
	/* the bound for a bucket whose values count 12 bytes each */
	if (!error)
		error = thc_client_info(r->client, &info);
	if (!error && info.memory_peak > 2 * 12 * counts[3])
		error = -ENOBUFS;
	print_message("# %zu bytes at most for %zu values\n", info.memory_peak, counts[3]);
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void floats__of_sketches(void **state)
{
	(void)state;
	run_well("job=1,ranks=3,scheme=lhc,sketch=three,reply=fanout", 3, reduce_sketches);
	run_well("job=1,ranks=2,scheme=lhc,sketch=coupled,reply=fanout", 2, reduce_sketches);
}

/* Requests started without waiting: exact means, whose chunks depend on their values, alternate
 * with means by scheme thc, whose chunks follow.
 */
static void *reduce_at_once(void *arg)
{
	struct thc_call call = THC_CALL_INIT;
	struct rank *r = arg;
	struct thc_request *request[8];
	int error = open_client(r), e;
	struct rank one[8];
	unsigned int k, n;

	for (n = 0; n < 8 && !error; n++) {
		one[n] = *r;
		one[n].count = 30000 + 1000 * n;
		one[n].dtype = THC_FP32;
		one[n].buf = n % 2 ? (void *)make_gradient(r->rank, one[n].count) :
				     malloc(one[n].count * sizeof(float));
		if (n % 2 == 0)
			fill(&one[n]);
		call.scheme = n % 2 ? NULL : n % 4 ? "lhc" : "none";
		error = thc_allreduce_call_start(r->client, one[n].buf, one[n].count, THC_FP32,
						 &call, &request[n]);
	}
	for (k = 0; k < n; k++) {
		e = thc_allreduce_wait(request[k]);
		if (!e && k % 2 == 0)
			e = check(&one[k], THC_EXACT);
		else if (!e && !(nmse(one[k].buf, r->ranks, one[k].count) < 0.05))
			e = -EILSEQ;
		error = error ? error : e;
		free(one[k].buf);
	}
	keep_error(r, error);
	return end_rank(r, NULL, NULL);
}

static void floats__and_means_by_thc_at_once(void **state)
{
	(void)state;
	/* so few that the ring turns */
	run_well("job=1,ranks=3,reply=fanout,slots=24", 3, reduce_at_once);
}

/* Rank 1 has a value that is not finite, then another precision: all ranks get an error, and no
 * buffer changes.
 */
static void *reduce_wrongly(void *arg)
{
	struct rank *r = arg;
	int error = open_client(r);
	float *was;

	if (error) {
		keep_error(r, error);
		return end_rank(r, NULL, NULL);
	}
	r->count = 9000;
	r->dtype = THC_FP32;
	r->buf = malloc(r->count * sizeof(float));
	was = malloc(r->count * sizeof(float));
	fill(r);
	if (r->rank == 1)
		((float *)r->buf)[8765] = -INFINITY;
	memcpy(was, r->buf, r->count * sizeof(float));
	error = reduce(r, "none", THC_EXACT, 0);
	if (error != -EDOM || memcmp(was, r->buf, r->count * sizeof(float)) ||
	    !strstr(thc_last_error(), r->rank == 1 ? "index 8765 of 9000" : "rank 1"))
		error = -EIO;
	else
		error = reduce(r, "none", r->rank == 1 ? THC_FIXED_16 : THC_EXACT, 0);
	if (memcmp(was, r->buf, r->count * sizeof(float)))
		error = -EIO;
	keep_error(r, error);
	return end_rank(r, r->buf, was);
}

static void floats__what_ranks_do_not_share_is_told(void **state)
{
	struct rank ranks[RANKS_MAX];
	unsigned int i;

	(void)state;
	run_job(ranks, 3, reduce_wrongly);
	for (i = 0; i < 3; i++) {
		assert_int_equal(ranks[i].error, -EBADMSG);
		assert_non_null(strstr(ranks[i].sentence, "(scheme none, 16 bits, "));
		assert_non_null(strstr(ranks[i].sentence, "(scheme none, exact, table"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(floats__means_of_each_precision),
		cmocka_unit_test(floats__of_the_jobs_precision),
		cmocka_unit_test(floats__of_sketches),
		cmocka_unit_test(floats__and_means_by_thc_at_once),
		cmocka_unit_test(floats__what_ranks_do_not_share_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
