// SPDX-License-Identifier: GPL-2.0
/*
 * Scheme none by itself: what it sends, where sums go, and that a failed request restores the
 * caller's buffer.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "buffers.h"
#include "client.h"
#include "codec_ops.h"
#include "dtype.h"
#include "pipeline.h"
#include "randomword.h"
#include "request.h"
#include "scheme.h"
#include "transport.h"

/* Of integers; of floats scales come before. */
enum { INTEGERS = THC_AGREEMENT_PHASES };
enum { SCALES = THC_AGREEMENT_PHASES, SUMS };

static const struct thc_transport_ops ops;

static struct thc_request *ready(struct thc_client *c, void *buf, size_t count,
				 enum thc_dtype dtype)
{
	struct thc_request *r = thc_request_create(c, buf, count, dtype, &thc_scheme_none, 0);

	assert_non_null(r);
	assert_int_equal(r->scheme->prepare(r, 0), 0);
	while (!r->claimed)
		assert_true(r->scheme->compute(r));
	/* nothing is made before the ranks agree */
	assert_false(r->scheme->compute(r));
	assert_int_equal(r->phases.phase[INTEGERS].ready, 0);
	r->phases.agreed = true;
	r->phases.phase[INTEGERS].numbered = r->phases.phase[INTEGERS].sized;
	while (r->scheme->compute(r))
		;
	return r;
}

static void check(size_t count, enum thc_dtype dtype)
{
	struct thc_transport transport = { .ops = &ops };
	struct thc_client c = { .transport = &transport, .counted_least = THC_COUNTED_BYTES,
				.simd = thc_simd_ops(THC_SIMD_AUTO) };
	size_t bytes = count * thc_dtype_size(dtype), chunks = (bytes + 1023) / 1024, i;
	uint8_t *buf = malloc(bytes), *was = malloc(bytes), lanes[THC_LANE_BYTES];
	const uint16_t counts[1] = { 2 };
	const struct thc_phase *p;
	struct thc_request *r;

	assert_true(buf && was);
	random_bytes(buf, bytes);
	memcpy(was, buf, bytes);
	r = ready(&c, buf, count, dtype);
	p = &r->phases.phase[INTEGERS];
	assert_int_equal(p->ready, chunks);
	assert_int_equal(p->sized, chunks);
	assert_int_equal(p->width, 8 * thc_dtype_size(dtype));
	assert_memory_equal(buf, was, bytes);
	for (i = 0; i < chunks; i++) {
		size_t n = bytes - 1024 * i < 1024 ? bytes - 1024 * i : 1024, k;
		const uint8_t *payload = p->packets + i * p->stride + sizeof(struct thc_hdr);

		assert_memory_equal(payload, was + 1024 * i, n);
		for (k = n; k < 1024; k++)
			assert_int_equal(payload[k], 0);
		/* every other sum comes, with bits that all differ from what was sent */
		for (k = 0; k < 1024; k++)
			lanes[k] = (uint8_t)~payload[k];
		if (i % 2)
			continue;
		r->scheme->answer(r, INTEGERS, (uint32_t)i, 1, counts, lanes);
		for (k = 0; k < n; k++)
			assert_int_equal(buf[1024 * i + k], (uint8_t)~was[1024 * i + k]);
	}
	r->scheme->undo(r);
	assert_memory_equal(buf, was, bytes);
	thc_request_release(r);
	r->scheme->undo(r);
	thc_request_release(r);
	thc_request_destroy(r);
	thc_buffer_free(&c);
	assert_int_equal(c.memory_now, 0);
	free(buf);
	free(was);
}

static void none__a_request_that_fails_leaves_the_buffer(void **state)
{
	static const size_t counts[] = { 1, 255, 256, 257, 1023, 1024, 1025, 200001 };
	unsigned int i, dtype;

	(void)state;
	for (dtype = THC_INT8; dtype <= THC_INT32; dtype++)
		for (i = 0; i < sizeof(counts) / sizeof(*counts); i++)
			check(counts[i], (enum thc_dtype)dtype);
}

static void forget(struct thc_transport *t)
{
	(void)t;
}

/* The aggregator gives up sums in a job without a deadline: the request fails, for an exact result
 * needs them all. The sum that has come is undone.
 */
static void none__sums_that_are_gone_fail_the_request(void **state)
{
	static const struct thc_transport_ops forgetful = { .forget = forget };
	struct thc_transport transport = { .ops = &forgetful };
	struct thc_client c = { .transport = &transport, .counted_least = THC_COUNTED_BYTES,
				.simd = thc_simd_ops(THC_SIMD_AUTO) };
	const uint16_t counts[3] = { 2, THC_COUNT_EXCLUDED, THC_COUNT_EXCLUDED };
	uint8_t lanes[THC_LANE_BYTES];
	int32_t buf[600], was[600];
	struct thc_request *r;
	struct thc_phase *p;

	(void)state;
	random_bytes(was, sizeof(was));
	memcpy(buf, was, sizeof(buf));
	memset(lanes, 0x55, sizeof(lanes));
	r = ready(&c, buf, 600, THC_INT32);
	c.spec.ranks = 2;
	c.queue = r;
	r->stage = THC_STAGE_AGREED;
	p = &r->phases.phase[INTEGERS];
	thc_pipeline_answer(p, 0, 1, counts, lanes, 1);
	assert_int_equal(r->status, 0);
	assert_int_equal(buf[0], 0x55555555);
	thc_pipeline_answer(p, 1, 2, counts + 1, NULL, 0);
	assert_int_equal(r->status, -EPROTO);
	assert_non_null(strstr(r->sentence, "has given up the sums of 2 chunks, in a job without"));
	assert_non_null(strstr(r->sentence, "call thc_client_rejoin() on all ranks"));
	assert_memory_equal(buf, was, sizeof(buf));
	assert_true(c.broken);
	assert_null(c.queue);
	thc_request_destroy(r);
	thc_buffer_free(&c);
}

/* --- floats ------------------------------------------------------------------- */

static void put_scales(struct thc_request *r)
{
	const struct thc_phase *p = &r->phases.phase[SCALES];
	const uint16_t counts[1] = { 1 };
	uint32_t i;

	for (i = 0; i < p->sized; i++)
		r->scheme->answer(r, SCALES, i, 1, counts, (void *)(thc_phase_packet(p, i) + 1));
}

static struct thc_request *begin_floats(struct thc_client *c, float *buf, size_t count,
					enum thc_precision precision)
{
	struct thc_request *r =
		thc_request_create(c, buf, count, THC_FP32, thc_scheme_none.floats, 0);

	assert_non_null(r);
	r->precision = precision;
	assert_int_equal(r->scheme->prepare(r, 0), 0);
	while (!r->claimed)
		assert_true(r->scheme->compute(r));
	assert_false(r->scheme->compute(r));
	r->phases.agreed = true;
	r->scheme->agreed(r);
	return r;
}

/* A single rank: its sums are what it sends. Answers the chunks in the ring, in order or
 * backwards, up to @most; returns how many.
 */
static uint32_t answer_floats(struct thc_request *r, bool backwards, uint32_t most)
{
	struct thc_phase *p = &r->phases.phase[SUMS];
	const uint16_t counts[1] = { 1 };
	uint8_t lanes[THC_LANE_BYTES];
	uint32_t done = 0, ready, k;

	/* chunks without numbers, because another bucket's phase is open, are not made */
	assert_false(r->scheme->compute(r));
	for (; done < p->sized && done < most; done = ready) {
		p->numbered = p->sized;
		while (r->scheme->compute(r))
			;
		ready = p->ready < most ? p->ready : most;
		assert_true(ready > done);
		assert_true(p->ready - done <= p->ring);
		for (k = done; k < ready; k++) {
			uint32_t chunk = backwards ? ready - 1 - (k - done) : k;

			memcpy(lanes, thc_phase_packet(p, chunk) + 1, sizeof(lanes));
			r->scheme->answer(r, SUMS, chunk, 1, counts, lanes);
		}
	}
	return done;
}

static void check_floats(size_t count, enum thc_precision precision, bool backwards, uint32_t most)
{
	struct thc_transport transport = { .ops = &ops };
	struct thc_client c = { .transport = &transport, .counted_least = THC_COUNTED_BYTES,
				.simd = thc_simd_ops(THC_SIMD_AUTO) };
	float *buf = malloc(count * sizeof(float)), *was = malloc(count * sizeof(float));
	struct thc_request *r;
	uint32_t bits;
	size_t i;

	assert_true(buf && was);
	c.spec.ranks = 1;
	for (i = 0; i < count; i++) {
		/* one block of zeros; exponents of the others differ by up to 60 */
		bits = (uint32_t)random_word();
		bits = i / 4096 == 1 ? 0 : (bits & 0x807fffff) | (90 + bits % 60) << 23;
		memcpy(&was[i], &bits, sizeof(bits));
	}
	memcpy(buf, was, count * sizeof(float));
	r = begin_floats(&c, buf, count, precision);
	put_scales(r);
	assert_true(r->phases.phase[SUMS].closed);
	if (answer_floats(r, backwards, most) == r->phases.phase[SUMS].sized) {
		assert_true(most > r->phases.phase[SUMS].ring);
		/* the mean of one rank */
		if (precision == THC_EXACT)
			assert_memory_equal(buf, was, count * sizeof(float));
		else if (count > 1)
			assert_memory_not_equal(buf, was, count * sizeof(float));
	}
	r->scheme->undo(r);
	assert_memory_equal(buf, was, count * sizeof(float));
	thc_request_release(r);
	r->scheme->undo(r);
	thc_request_release(r);
	thc_request_destroy(r);
	thc_buffer_free(&c);
	assert_int_equal(c.memory_now, 0);
	free(buf);
	free(was);
}

static void floats__a_request_that_fails_leaves_the_buffer(void **state)
{
	static const size_t counts[] = { 1, 256, 4095, 8193, 100001 };
	unsigned int i, backwards;

	(void)state;
	for (backwards = 0; backwards < 2; backwards++) {
		for (i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
			check_floats(counts[i], THC_EXACT, backwards, UINT32_MAX);
			check_floats(counts[i], THC_FIXED_16, backwards, UINT32_MAX);
		}
		check_floats(100001, THC_EXACT, backwards, 333);
		check_floats(100001, THC_FIXED_8, backwards, 70);
	}
}

/* Makes chunks as there is room, and answers all from *@answered on but number @late, until none
 * is made.
 */
static void answer_all_but(struct thc_request *r, uint32_t *answered, uint32_t late,
			   uint8_t *its_lanes)
{
	struct thc_phase *p = &r->phases.phase[SUMS];
	const uint16_t counts[1] = { 1 };
	uint8_t lanes[THC_LANE_BYTES];

	while (r->scheme->compute(r)) {
		for (; *answered < p->ready; ++*answered) {
			memcpy(lanes, thc_phase_packet(p, *answered) + 1, sizeof(lanes));
			if (*answered == late)
				memcpy(its_lanes, lanes, sizeof(lanes));
			else
				r->scheme->answer(r, SUMS, *answered, 1, counts, lanes);
		}
	}
}

/* Blocks are stored in order: while a sum of the first block is missing, the sums of later blocks
 * wait in the ring until it is full.
 */
static void floats__a_late_sum_mixes_no_groups(void **state)
{
	struct thc_transport transport = { .ops = &ops };
	struct thc_client c = { .transport = &transport, .counted_least = THC_COUNTED_BYTES,
				.simd = thc_simd_ops(THC_SIMD_AUTO) };
	const size_t count = 4096 * 16;
	float *buf = malloc(count * sizeof(float)), *was = malloc(count * sizeof(float));
	const uint16_t counts[1] = { 1 };
	uint8_t lanes[THC_LANE_BYTES];
	struct thc_request *r;
	struct thc_phase *p;
	uint32_t bits, answered = 0;
	size_t i;

	(void)state;
	assert_true(buf && was);
	c.spec.ranks = 1;
	for (i = 0; i < count; i++) {
		bits = (uint32_t)random_word();
		bits = (bits & 0x807fffff) | (90 + bits % 50) << 23;
		memcpy(&was[i], &bits, sizeof(bits));
	}
	memcpy(buf, was, count * sizeof(float));
	r = begin_floats(&c, buf, count, THC_EXACT);
	put_scales(r);
	p = &r->phases.phase[SUMS];
	p->numbered = p->sized;
	/* a block of the most digits, and parts of groups before and behind it */
	assert_int_equal(p->ring, 18 * 12);
	assert_int_equal(p->sized, 3 * count / 256);
	answer_all_but(r, &answered, 5, lanes);
	assert_int_equal(p->ready, p->ring);
	memset(lanes, 0, sizeof(lanes));
	r->scheme->answer(r, SUMS, 5, 1, counts, lanes);
	answer_all_but(r, &answered, UINT32_MAX, NULL);
	assert_int_equal(p->ready, p->sized);
	/* digit 2 of the second group was taken for 0 */
	assert_memory_equal(buf, was, 256 * sizeof(float));
	assert_memory_not_equal(buf + 256, was + 256, 256 * sizeof(float));
	assert_memory_equal(buf + 512, was + 512, (count - 512) * sizeof(float));
	thc_request_release(r);
	thc_request_destroy(r);
	thc_buffer_free(&c);
	free(buf);
	free(was);
}

/* Scales tell how many exact chunks there are, as far as they are known without a gap. */
static void floats__are_sized_by_a_prefix_of_scales(void **state)
{
	struct thc_transport transport = { .ops = &ops };
	struct thc_client c = { .transport = &transport, .counted_least = THC_COUNTED_BYTES,
				.simd = thc_simd_ops(THC_SIMD_AUTO) };
	size_t count = 4096 * 128 * 2 + 4096, i;
	float *buf = malloc(count * sizeof(float));
	const uint16_t counts[1] = { 1 };
	const struct thc_phase *p, *sums;
	struct thc_request *r;

	(void)state;
	assert_non_null(buf);
	c.spec.ranks = 1;
	for (i = 0; i < count; i++)
		buf[i] = i / 4096 % 2 ? 1 : 0;
	r = begin_floats(&c, buf, count, THC_EXACT);
	p = &r->phases.phase[SCALES];
	sums = &r->phases.phase[SUMS];
	assert_int_equal(p->sized, 3);
	assert_false(sums->closed);
	r->scheme->answer(r, SCALES, 1, 1, counts, (void *)(thc_phase_packet(p, 1) + 1));
	assert_int_equal(sums->sized, 0);
	r->scheme->answer(r, SCALES, 0, 1, counts, (void *)(thc_phase_packet(p, 0) + 1));
	assert_int_equal(sums->sized, 128 * 16);
	assert_false(sums->closed);
	r->scheme->answer(r, SCALES, 2, 1, counts, (void *)(thc_phase_packet(p, 2) + 1));
	assert_int_equal(sums->sized, 128 * 16);
	assert_true(sums->closed);
	r->scheme->undo(r);
	thc_request_release(r);
	thc_request_destroy(r);
	thc_buffer_free(&c);
	free(buf);
}

static void none__not_beside_a_deadline(void **state)
{
	const struct thc_scheme *s = thc_scheme_named("none");
	struct thc_spec spec = { .ranks = 2 };

	(void)state;
	assert_null(s->check(&spec));
	spec.deadline_ms = 1;
	assert_non_null(s->check(&spec));
	assert_null(thc_scheme_named("non"));
}

/* What a call means in a job whose own scheme is none. */
static unsigned int precision_of(struct thc_client *c, const struct thc_call *call,
				 enum thc_dtype dtype)
{
	struct thc_request *r;
	unsigned int precision;
	float values[2] = { 1, 2 };

	assert_int_equal(thc_allreduce_call_start(c, values, 2, dtype, call, &r), 0);
	assert_int_equal(r->scheme->id, THC_SCHEME_NONE);
	assert_null(r->error);
	precision = r->precision;
	c->queue = NULL;
	thc_request_destroy(r);
	return precision;
}

static void none__has_the_precision_of_its_job(void **state)
{
	struct thc_client c = { .scheme = &thc_scheme_none, .pid = getpid() };
	struct thc_call call = THC_CALL_INIT;

	(void)state;
	pthread_mutex_init(&c.lock, NULL);
	c.options.flags = THC_CLIENT_ERROR_FEEDBACK;
	c.spec = (struct thc_spec){ .ranks = 2, .scheme = THC_SCHEME_NONE, .value_bits = 16 };
	assert_int_equal(precision_of(&c, &call, THC_FP32), THC_FIXED_16);
	assert_int_equal(precision_of(&c, &call, THC_INT32), 0);
	call.precision = THC_FIXED_32;
	assert_int_equal(precision_of(&c, &call, THC_BF16), THC_FIXED_32);
	call.scheme = "none";
	assert_int_equal(precision_of(&c, &call, THC_FP16), THC_FIXED_32);
	call.precision = THC_EXACT;
	assert_int_equal(precision_of(&c, &call, THC_FP32), THC_EXACT);
	pthread_mutex_destroy(&c.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(none__a_request_that_fails_leaves_the_buffer),
		cmocka_unit_test(none__sums_that_are_gone_fail_the_request),
		cmocka_unit_test(floats__a_request_that_fails_leaves_the_buffer),
		cmocka_unit_test(floats__a_late_sum_mixes_no_groups),
		cmocka_unit_test(floats__are_sized_by_a_prefix_of_scales),
		cmocka_unit_test(none__not_beside_a_deadline),
		cmocka_unit_test(none__has_the_precision_of_its_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
