// SPDX-License-Identifier: GPL-2.0
/*
 * Scheme none by itself: what it sends, where sums go, and that a request which fails half-way
 * leaves the caller's buffer as it was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "buffers.h"
#include "client.h"
#include "dtype.h"
#include "randomword.h"
#include "request.h"
#include "scheme.h"
#include "transport.h"

#define SUMS	THC_AGREEMENT_PHASES

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
	assert_int_equal(r->phases.phase[SUMS].ready, 0);
	r->phases.agreed = true;
	while (r->scheme->compute(r))
		;
	return r;
}

static void check(size_t count, enum thc_dtype dtype)
{
	struct thc_transport transport = { .ops = &ops };
	struct thc_client c = { .transport = &transport, .counted_least = THC_COUNTED_BYTES };
	size_t bytes = count * thc_dtype_size(dtype), chunks = (bytes + 1023) / 1024, i;
	uint8_t *buf = malloc(bytes), *was = malloc(bytes), lanes[THC_LANE_BYTES];
	const uint16_t counts[1] = { 2 };
	const struct thc_phase *p;
	struct thc_request *r;

	assert_true(buf && was);
	random_bytes(buf, bytes);
	memcpy(was, buf, bytes);
	r = ready(&c, buf, count, dtype);
	p = &r->phases.phase[SUMS];
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
		/* every other sum comes: all bits differ from what was sent */
		for (k = 0; k < 1024; k++)
			lanes[k] = (uint8_t)~payload[k];
		if (i % 2)
			continue;
		r->scheme->answer(r, SUMS, (uint32_t)i, 1, counts, lanes);
		for (k = 0; k < n; k++)
			assert_int_equal(buf[1024 * i + k], (uint8_t)~was[1024 * i + k]);
	}
	r->scheme->undo(r);
	assert_memory_equal(buf, was, bytes);
	r->scheme->release(r);
	r->scheme->undo(r);
	r->scheme->release(r);
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

static void none__not_beside_a_deadline(void **state)
{
	const struct thc_scheme *s = thc_scheme_named("none");
	struct thc_spec spec = { .ranks = 2 };

	(void)state;
	assert_int_equal(s->check(&spec), 0);
	spec.deadline_ms = 1;
	assert_int_not_equal(s->check(&spec), 0);
	assert_null(thc_scheme_named("non"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(none__a_request_that_fails_leaves_the_buffer),
		cmocka_unit_test(none__not_beside_a_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
