// SPDX-License-Identifier: GPL-2.0
/*
 * Scheme lhc without a network: the test joins the ranks' chunks and answers them in any order.
 * All ranks get the mean of big integers, bit for bit, and send as many chunks as the union needs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <thc/wire/format.h>

#include "buffers.h"
#include "client.h"
#include "codec_ops.h"
#include "dtype.h"
#include "../lib/exactmean.h"
#include "history.h"
#include "phase.h"
#include "pipeline.h"
#include "randomword.h"
#include "request.h"
#include "scheme.h"
#include "transport.h"

enum { RANKS_MAX = 4, SCALES = THC_AGREEMENT_PHASES };

static const struct thc_transport_ops ops;

/**
 * struct bed - ranks of one job, and the bucket they reduce
 * @features: THC_SCHEME_F_*, of sketches
 * @spoiled: phase whose first chunk gets a wrong lane
 * @scheme: lhc, or none to compare with
 * @x: by rank: its bucket
 * @answered: by rank, phase and chunk
 */
struct bed {
	unsigned int	ranks;
	size_t		count;
	enum thc_dtype	dtype;
	enum thc_precision precision;
	unsigned int	grain_log2;
	enum thc_simd	simd;
	u32		features;
	unsigned int	spoiled;
	const struct thc_scheme *scheme;
	struct thc_transport transport;
	struct thc_client client[RANKS_MAX];
	struct thc_request *request[RANKS_MAX];
	u64		next[RANKS_MAX][2];
	/* bytes that a bucket counts as, which limit the kept own values; and those that were used
	 */
	size_t		counted;
	size_t		taken;
	/* the aggregator adds index bits of coordinates without values */
	bool		exaggerates;
	void		*x[RANKS_MAX];
	void		*buf[RANKS_MAX];
	uint8_t		*answered[RANKS_MAX][THC_PHASES_MAX];
};

static size_t bytes_of(const struct bed *b)
{
	return b->count * thc_dtype_size(b->dtype);
}

static void open_bed(struct bed *b)
{
	unsigned int i;

	b->transport.ops = &ops;
	b->scheme = &thc_scheme_lhc;
	for (i = 0; i < b->ranks; i++) {
		b->client[i] = (struct thc_client){
			.transport = &b->transport, .counted_least = THC_COUNTED_BYTES,
			.spec.ranks = (u16)b->ranks, .options.rank = (uint16_t)i,
			.spec.scheme = THC_SCHEME_LHC, .spec.scheme_features = b->features,
			.simd = thc_simd_ops(b->simd),
		};
		assert_int_equal(thc_scheme_lhc.open(&b->client[i]), 0);
		b->x[i] = calloc(1, bytes_of(b));
		b->buf[i] = malloc(bytes_of(b));
		assert_true(b->x[i] && b->buf[i]);
	}
}

static void close_bed(struct bed *b)
{
	unsigned int i;

	for (i = 0; i < b->ranks; i++) {
		thc_scheme_lhc.close(&b->client[i]);
		thc_scheme_lhc.close(&b->client[i]);
		thc_buffer_free(&b->client[i]);
		assert_int_equal(b->client[i].memory_now, 0);
		free(b->x[i]);
		free(b->buf[i]);
	}
}

/* A value of any size, or a small one: @bits of a float. */
static float value_of(uint64_t bits, unsigned int binades)
{
	uint32_t u = (uint32_t)bits & 0x807fffff;

	return thc_bits_float(u | (127 - binades / 2 + (uint32_t)(bits >> 32) % binades) << 23);
}

/* Each rank has values with probability @density, up to @binades apart; @alike: in equal places. */
static void bring(struct bed *b, double density, unsigned int binades, bool alike)
{
	uint64_t limit = (uint64_t)(density * 0x1p32), where;
	unsigned int k;
	size_t i;

	for (i = 0; i < b->count; i++) {
		where = random_word() >> 32;
		for (k = 0; k < b->ranks; k++) {
			float x = 0;

			if ((alike ? where : random_word() >> 32) < limit)
				x = value_of(random_word(), binades);
			/* -0 counts as zero, too; in two blocks of three */
			else if (i / 4096 % 3 && random_word() % 16 == 0)
				x = -0.0f;
			thc_store_one(b->dtype, b->x[k], i, x);
		}
	}
}

static void begin(struct bed *b, uint64_t round)
{
	unsigned int k, p;

	for (k = 0; k < b->ranks; k++) {
		struct thc_request *r;

		memcpy(b->buf[k], b->x[k], bytes_of(b));
		r = thc_request_create(&b->client[k], b->buf[k], b->count, b->dtype, b->scheme, 7);
		assert_non_null(r);
		b->request[k] = r;
		r->precision = b->precision;
		r->grain_log2 = b->grain_log2;
		r->round = round;
		r->phases.count = THC_AGREEMENT_PHASES;
		for (p = 0; p < THC_AGREEMENT_PHASES; p++)
			r->phases.phase[p].closed = r->phases.phase[p].control = true;
		if (b->counted)
			r->counted = thc_budget_begin(&b->client[k], b->counted);
		assert_int_equal(r->scheme->prepare(r, 0), 0);
		b->taken = r->taken.size;
		while (!r->claimed)
			assert_true(r->scheme->compute(r));
		assert_int_equal(r->claim_status, THC_CLAIM_OK);
		assert_false(r->scheme->compute(r));
		r->phases.agreed = true;
		b->next[k][0] = b->next[k][1] = 0;
		for (p = 0; p < THC_PHASES_MAX; p++) {
			b->answered[k][p] = calloc(1, 8 * b->count / 256 + 16 * 64);
			assert_non_null(b->answered[k][p]);
		}
	}
}

/* Exchanges all ranks' claims, as far as schemes use them. */
static void exchange_claims(struct bed *b)
{
	unsigned int k, i;

	for (k = 0; k < b->ranks; k++) {
		thc_agree_claim(b->request[k]);
		for (i = 0; i < b->ranks; i++) {
			const struct thc_hdr *h = (const void *)b->request[k]->claim[THC_AGREEMENT];

			b->request[i]->claims[k] = ((const struct thc_claim *)(h + 1))[k];
		}
	}
}

static void number(struct bed *b, unsigned int k)
{
	struct thc_phases *all = &b->request[k]->phases;

	thc_phases_number(&all, 1, true, &b->next[k][1]);
	thc_phases_number(&all, 1, false, &b->next[k][0]);
	while (b->request[k]->scheme->compute(b->request[k]))
		;
}

static void join_lanes(const struct thc_phase *p, const void *from, void *to)
{
	const __le32 *lane = from;
	uint32_t i, *sum = to;

	for (i = 0; i < THC_LANE_BYTES / 4; i++) {
		uint32_t v = thc_le32(lane[i]);

		if (p->op == THC_OP_OR)
			sum[i] |= v;
		else if (p->op == THC_OP_MAX)
			sum[i] = v > sum[i] ? v : sum[i];
		else if (p->width == 32)
			sum[i] += v;
		else if (p->width == 16)
			sum[i] = ((sum[i] + v) & 0xffff) | (((sum[i] >> 16) + (v >> 16)) << 16);
	}
	for (i = 0; p->op == THC_OP_ADD && p->width == 8 && i < THC_LANE_BYTES; i++)
		((uint8_t *)to)[i] = (uint8_t)(((uint8_t *)to)[i] + ((const uint8_t *)from)[i]);
}

/* Joins the chunk in @lanes; false if a rank has not made it yet. */
static bool joined(struct bed *b, unsigned int phase, uint32_t chunk, uint32_t *lanes)
{
	unsigned int k;

	memset(lanes, 0, THC_LANE_BYTES);
	for (k = 0; k < b->ranks; k++) {
		const struct thc_phase *p = &b->request[k]->phases.phase[phase];

		if (chunk >= p->ready)
			return false;
		join_lanes(p, thc_phase_packet(p, chunk) + 1, lanes);
	}
	return true;
}

/* Sets some surplus bits of an index. */
static void exaggerate(uint32_t *lanes)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		lanes[random_word() % (THC_LANE_BYTES / 4)] |= 1U << random_word() % 32;
}

/* Answers a chunk to all ranks, in random order; false if it was not joined or is answered
 * already.
 */
static bool answer_chunk(struct bed *b, unsigned int phase, uint32_t chunk)
{
	const uint16_t counts[1] = { (uint16_t)b->ranks };
	uint32_t lanes[THC_LANE_BYTES / 4];
	unsigned int k, first = (unsigned int)(random_word() % b->ranks);

	if (b->answered[0][phase][chunk] || !joined(b, phase, chunk, lanes))
		return false;
	if (b->exaggerates && b->request[0]->phases.phase[phase].op == THC_OP_OR)
		exaggerate(lanes);
	for (k = 0; k < b->ranks; k++) {
		struct thc_request *r = b->request[(first + k) % b->ranks];

		b->answered[(first + k) % b->ranks][phase][chunk] = 1;
		r->phases.phase[phase].answered++;
		lanes[3] ^= phase == b->spoiled && !chunk && !k ? 1U << 20 : 0;
		r->scheme->answer(r, phase, chunk, 1, counts, (const uint8_t *)lanes);
		if (random_word() % 2)
			number(b, (first + k) % b->ranks);
	}
	return true;
}

static bool done(const struct bed *b)
{
	unsigned int k;

	for (k = 0; k < b->ranks; k++)
		if (!thc_phases_done(&b->request[k]->phases))
			return false;
	return true;
}

/* Answers chunks in random order, until none is left or @most have their answer. */
static uint32_t run(struct bed *b, uint32_t most)
{
	uint32_t n = 0, chunk, start, sized;
	unsigned int k, phase;
	bool any = true;

	exchange_claims(b);
	for (k = 0; k < b->ranks; k++) {
		number(b, k);
		b->request[k]->going = true;
		b->request[k]->scheme->agreed(b->request[k]);
	}
	while (any && !done(b)) {
		any = false;
		for (k = 0; k < b->ranks; k++)
			number(b, k);
		for (phase = SCALES; phase < b->request[0]->phases.count; phase++) {
			sized = b->request[0]->phases.phase[phase].ready;
			start = sized ? (uint32_t)(random_word() % sized) : 0;
			for (chunk = 0; chunk < sized && n < most; chunk++) {
				bool could = answer_chunk(b, phase, (start + chunk) % sized);

				any |= could;
				n += could;
			}
		}
	}
	return n;
}

static void finish(struct bed *b, bool failed)
{
	unsigned int k, p;

	for (k = 0; k < b->ranks; k++) {
		if (failed)
			b->request[k]->status = -EPROTO;
		thc_request_release(b->request[k]);
		thc_request_destroy(b->request[k]);
		for (p = 0; p < THC_PHASES_MAX; p++)
			free(b->answered[k][p]);
	}
}

static void check_exact(const struct bed *b)
{
	unsigned int k;
	size_t i;

	for (i = 0; i < b->count; i++) {
		struct exact_sum sum = { 0 };
		uint32_t bits = 0, got = 0, want;

		for (k = 0; k < b->ranks; k++) {
			memcpy(&bits, (uint8_t *)b->x[k] + i * thc_dtype_size(b->dtype),
			       thc_dtype_size(b->dtype));
			exact_add(&sum, bits, b->dtype);
		}
		want = exact_bits(&sum, b->ranks, b->dtype);
		for (k = 0; k < b->ranks; k++) {
			memcpy(&got, (uint8_t *)b->buf[k] + i * thc_dtype_size(b->dtype),
			       thc_dtype_size(b->dtype));
			if (got != want)
				fail_msg("value %zu of rank %u: %08x, not %08x", i, k, got, want);
		}
	}
}

/* --- exact -------------------------------------------------------------------- */

static void exact__is_the_mean_rounded_once(void **state)
{
	static const size_t counts[] = { 1, 33, 4095, 4097, 20000, 300001 };
	static const double densities[] = { 0, 0.001, 0.05, 0.5, 1 };
	static const unsigned int grains[] = { 0, 2, 6, 8 };
	unsigned int c, d, n = 0;

	(void)state;
	for (c = 0; c < sizeof(counts) / sizeof(*counts); c++)
		for (d = 0; d < sizeof(densities) / sizeof(*densities); d++, n++) {
			struct bed b = { .ranks = 1 + n % RANKS_MAX, .count = counts[c],
					 .dtype = (enum thc_dtype)(n % 3),
					 .precision = THC_EXACT,
					 .grain_log2 = grains[n / 2 % 4],
					 .exaggerates = n % 7 == 0 };

			b.counted = n % 4 ? 4 * bytes_of(&b) : 0;
			open_bed(&b);
			bring(&b, densities[d], b.dtype == THC_FP16 ? 14 : n % 4 ? 40 : 250, n % 2);
			begin(&b, 2 * n);
			run(&b, UINT32_MAX);
			assert_true(done(&b));
			check_exact(&b);
			finish(&b, false);
			close_bed(&b);
		}
}

/* --- fixed point ---------------------------------------------------------------- */

/* Coordinates that any rank has, of @block; with grains whole items. */
static uint32_t union_of(const struct bed *b, uint32_t block, size_t *count)
{
	size_t grain = (size_t)1 << b->grain_log2, first = (size_t)block * 4096, end, i, k;
	uint32_t n = 0;
	unsigned int rank;

	end = b->count < first + 4096 ? b->count : first + 4096;
	*count = end - first;
	for (i = first; i < end; i += grain) {
		bool any = false;

		for (k = i; k < end && k < i + grain; k++)
			for (rank = 0; rank < b->ranks; rank++)
				any |= thc_load_one(b->dtype, b->x[rank], k) != 0;
		n += any ? (uint32_t)(k - i) : 0;
	}
	return n;
}

/* Chunks of values: those of the union, or all values of a block with more than 7/10 of them. */
static uint32_t chunks_of(const struct bed *b)
{
	uint32_t block, values = 0, n;
	size_t count;

	for (block = 0; block < (b->count + 4095) / 4096; block++) {
		n = union_of(b, block, &count);
		values += n > 0.7 * (double)count ? (uint32_t)count : n;
	}
	return (values + 8192 / b->precision - 1) / (8192 / b->precision);
}

/* Equals scheme none, which sends all values. */
static void fixed__is_what_none_has(void **state)
{
	static const enum thc_precision widths[] = { THC_FIXED_8, THC_FIXED_16, THC_FIXED_32 };
	static const size_t counts[] = { 31, 4097, 100001 };
	static const double densities[] = { 0.003, 0.1, 0.69, 0.72 };
	static const unsigned int grains[] = { 0, 0, 3 };
	unsigned int n, k;
	void *means;

	(void)state;
	for (n = 0; n < 36; n++) {
		struct bed b = { .ranks = 1 + n % RANKS_MAX, .count = counts[n % 3],
				 .dtype = (enum thc_dtype)(n / 3 % 3),
				 .precision = widths[(n + n / 9) % 3],
				 .grain_log2 = grains[n / 4 % 3] };

		b.counted = n % 5 ? 4 * bytes_of(&b) : 0;
		open_bed(&b);
		bring(&b, densities[n % 4], 12, true);
		begin(&b, 2 * n);
		run(&b, UINT32_MAX);
		assert_true(done(&b));
		assert_int_equal(b.request[0]->phases.phase[b.request[0]->phases.count - 1].sized,
				 chunks_of(&b));
		means = malloc(bytes_of(&b));
		assert_non_null(means);
		memcpy(means, b.buf[0], bytes_of(&b));
		for (k = 1; k < b.ranks; k++)
			assert_memory_equal(b.buf[k], means, bytes_of(&b));
		finish(&b, false);
		b.scheme = thc_scheme_none.floats;
		begin(&b, 0);
		run(&b, UINT32_MAX);
		assert_true(done(&b));
		assert_memory_equal(b.buf[0], means, bytes_of(&b));
		finish(&b, false);
		close_bed(&b);
		free(means);
	}
}

/* --- failures --------------------------------------------------------------------- */

/* From coordinate @first on all ranks have zeros, of either sign. */
static void bring_nothing(struct bed *b, size_t first)
{
	unsigned int k;
	size_t i;

	for (k = 0; k < b->ranks; k++)
		for (i = first; i < b->count; i++)
			thc_store_one(b->dtype, b->x[k], i, i % 7 ? 0.0f : -0.0f);
}

static void lhc__a_request_that_fails_leaves_the_buffer(void **state)
{
	unsigned int n, k, changed = 0;

	(void)state;
	for (n = 0; n < 24; n++) {
		struct bed b = { .ranks = 2, .count = 60001, .dtype = (enum thc_dtype)(n % 3),
				 .precision = n % 2 ? THC_EXACT : THC_FIXED_16,
				 .grain_log2 = n % 4,
				 .exaggerates = n / 3 % 2 };
		uint32_t most = 1 + (uint32_t)(random_word() % 200);

		b.counted = n % 5 != 2 ? 4 * bytes_of(&b) : 0;
		open_bed(&b);
		bring(&b, n % 5 ? 0.05 : 0.9, 12, false);
		if (n % 8 < 4)
			bring_nothing(&b, 45000);
		begin(&b, n);
		run(&b, most);
		for (k = 0; k < b.ranks; k++)
			changed += memcmp(b.buf[k], b.x[k], bytes_of(&b)) != 0;
		finish(&b, true);
		for (k = 0; k < b.ranks; k++)
			assert_memory_equal(b.buf[k], b.x[k], bytes_of(&b));
		close_bed(&b);
	}
	assert_true(changed > 10);
}

/* Own values are kept within the memory that a bucket counts as. */
static void lhc__keeps_own_values_within_its_budget(void **state)
{
	static const size_t own = 4 * (74 * 128 + 300001 / 8 + 16);
	size_t bytes = 4 * 300001, taken = 0, n;

	(void)state;
	for (n = 0; n < 3; n++) {
		struct bed b = { .ranks = 1, .count = 300001, .dtype = THC_FP32,
				 .precision = THC_FIXED_32,
				 .counted = n == 2 ? 2 * bytes : n * (bytes / 2 + 1024) };

		open_bed(&b);
		/* another bucket was larger, but this one may not use its memory */
		thc_budget_end(&b.client[0], thc_budget_begin(&b.client[0], 4 * bytes));
		begin(&b, 0);
		if (!n)
			taken = b.taken;
		assert_in_range(b.taken, taken + (n == 2 ? own : 0),
				taken + (n == 2 ? own + 64 : 0));
		finish(&b, true);
		close_bed(&b);
	}
}

static void lhc__what_is_not_finite_is_named(void **state)
{
	struct bed b = { .ranks = 1, .count = 9000, .dtype = THC_FP32, .precision = THC_EXACT };
	struct thc_request *r;

	(void)state;
	open_bed(&b);
	((float *)b.x[0])[8500] = INFINITY;
	r = thc_request_create(&b.client[0], b.x[0], b.count, b.dtype, &thc_scheme_lhc, 7);
	assert_non_null(r);
	assert_int_equal(r->scheme->prepare(r, 0), 0);
	while (!r->claimed)
		assert_true(r->scheme->compute(r));
	assert_int_equal(r->claim_status, THC_CLAIM_NOT_FINITE);
	assert_int_equal(r->bad, 8500);
	thc_request_release(r);
	thc_request_destroy(r);
	close_bed(&b);
}

/* --- sketches ------------------------------------------------------------------------ */

/* Rounds of one key, which use the densities of earlier rounds; few values of two parts. */
static void lhc__sketches_give_the_same_means(void **state)
{
	static const double density[] = { .02, .02, .0005, .3, .02, 0, .03 };
	unsigned int n, round;

	(void)state;
	for (n = 0; n < 6; n++) {
		struct bed b = { .ranks = 1 + n % 3,
				 .count = n ? 60001 : 1100003,
				 .dtype = (enum thc_dtype)(n % 3),
				 .precision = THC_EXACT,
				 .grain_log2 = n == 3,
				 .features = n % 2 ? 6 : 2 };

		open_bed(&b);
		for (round = 0; round < (n ? 7 : 2); round++) {
			bring(&b, density[round], n == 4 ? 200 : 12, n % 2);
			begin(&b, 2 * round);
			assert_int_equal(b.request[0]->sketched, round && round != 4);
			run(&b, UINT32_MAX);
			assert_true(done(&b));
			check_exact(&b);
			finish(&b, false);
		}
		close_bed(&b);
	}
}

/* A wrong lane of a sketch's cells, or of the values left by peeling, is noticed. */
static void lhc__a_sketch_that_is_wrong_is_told(void **state)
{
	struct bed b = { .ranks = 2, .count = 60001, .dtype = THC_FP32, .features = 2 };
	unsigned int phase, round = 0;

	(void)state;
	b.precision = THC_FIXED_16;
	open_bed(&b);
	for (phase = SCALES + 1; phase <= SCALES + 2; phase++, round += 4) {
		bring(&b, .02, 12, false);
		begin(&b, round);
		run(&b, UINT32_MAX);
		finish(&b, false);
		/* more than fits, so that some are left */
		bring(&b, phase == SCALES + 1 ? .02 : .1, 12, false);
		begin(&b, round + 2);
		b.spoiled = phase;
		run(&b, UINT32_MAX);
		b.spoiled = 0;
		assert_int_equal(b.request[0]->status, -EPROTO);
		assert_true(b.request[0]->broken);
		assert_non_null(strstr(b.request[0]->sentence, "is not that of their values"));
		finish(&b, true);
		assert_memory_equal(b.buf[0], b.x[0], bytes_of(&b));
	}
	close_bed(&b);
}

/* A union without this rank's items is refused: sums would lack its values. */
static void lhc__a_union_that_lacks_a_rank_is_none(void **state)
{
	struct bed b = { .ranks = 2, .count = 60001, .dtype = THC_FP32, .precision = THC_EXACT };
	const uint16_t counts[1] = { 2 };
	const uint8_t lanes[THC_LANE_BYTES] = { 0 };
	struct thc_request *r;

	(void)state;
	open_bed(&b);
	bring(&b, 0.1, 12, false);
	begin(&b, 0);
	number(&b, 0);
	r = b.request[0];
	r->scheme->answer(r, SCALES + 1, 0, 1, counts, lanes);
	assert_int_equal(r->status, -EPROTO);
	assert_true(r->broken);
	assert_non_null(strstr(r->sentence, "the index of all ranks lacks what this rank has"));
	assert_memory_equal(b.buf[0], b.x[0], bytes_of(&b));
	finish(&b, true);
	close_bed(&b);
}

/* --- with and without an index ------------------------------------------------------ */

/* A bucket that is full on all ranks is sent without an index after eight rounds, two of which may
 * still be under way, and the result stays the same.
 */
static void lhc__full_buckets_go_without_an_index(void **state)
{
	struct bed b = { .ranks = 3, .count = 20000, .dtype = THC_FP32, .precision = THC_EXACT };
	unsigned int round, phases;

	(void)state;
	open_bed(&b);
	for (round = 0; round < 80; round++) {
		bring(&b, round < 70 ? 0.95 : 0.01, 12, false);
		begin(&b, round);
		run(&b, UINT32_MAX);
		assert_true(done(&b));
		check_exact(&b);
		phases = b.request[0]->phases.count - THC_AGREEMENT_PHASES;
		/* scales, levels, values; rounds 9 to 72 have none, with one that came too late */
		if (round < 9 || round > 73)
			assert_true(phases > 2);
		else if (round > 9 && round < 73)
			assert_int_equal(phases, 2);
		finish(&b, false);
	}
	close_bed(&b);
}

/* Three levels, of which the lower two have no chunk: they are over with the first one. */
static void lhc__an_empty_union_is_over_at_once(void **state)
{
	struct bed b = { .ranks = 2, .count = 300001, .dtype = THC_FP32, .precision = THC_EXACT };
	unsigned int round;

	(void)state;
	open_bed(&b);
	for (round = 0; round < 4; round += 2) {
		bring(&b, round ? 0 : 0.0005, 12, false);
		begin(&b, round);
		assert_int_equal(b.request[0]->levels, round ? 3 : 2);
		run(&b, UINT32_MAX);
		assert_true(done(&b));
		check_exact(&b);
		finish(&b, false);
	}
	close_bed(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exact__is_the_mean_rounded_once),
		cmocka_unit_test(fixed__is_what_none_has),
		cmocka_unit_test(lhc__a_request_that_fails_leaves_the_buffer),
		cmocka_unit_test(lhc__keeps_own_values_within_its_budget),
		cmocka_unit_test(lhc__what_is_not_finite_is_named),
		cmocka_unit_test(lhc__sketches_give_the_same_means),
		cmocka_unit_test(lhc__a_sketch_that_is_wrong_is_told),
		cmocka_unit_test(lhc__a_union_that_lacks_a_rank_is_none),
		cmocka_unit_test(lhc__full_buckets_go_without_an_index),
		cmocka_unit_test(lhc__an_empty_union_is_over_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
