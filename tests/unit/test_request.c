// SPDX-License-Identifier: GPL-2.0
/*
 * One all-reduce without sockets: scales of other ranks come back in any order and at any time,
 * between any two slices of computation. Whatever was computed when, packets and error memory have
 * the bits of compressing the bucket at once with the agreed scales. Sums come back in any order,
 * some without this rank, some not at all: the result is that of decoding them at once.
 */
#include <thc/key.h>

#include "codec_util.h"

#include "client.h"
#include "codec_ops.h"
#include "pipeline.h"
#include "request.h"
#include "scheme.h"
#include "scheme_thc.h"
#include "testkey.h"
#include "transport_udp.h"

#define SEED	0x7e57
#define ROUND	5
#define DATA_SLOTS	512
#define NORM_SLOTS	64
#define DIGEST		0xd16e57	/* of each answer */

/* A bucket to be reduced, and what is expected of it. */
struct bucket {
	enum thc_dtype	dtype;
	size_t		count;
	unsigned int	width;		/* of sums, bits */
	unsigned int	block_log2;
	bool		feedback;
	unsigned int	bits;		/* 0: 4 */
	bool		ranges;		/* scheme uthc */
	bool		unrotated;
};

static struct thc_udp udp;

static unsigned int bits_of(const struct bucket *b)
{
	return b->bits ? b->bits : 4;
}

static const struct thc_scheme *scheme_of(const struct bucket *b)
{
	return b->ranges ? &thc_scheme_uthc : &thc_scheme_thc;
}

static struct thc_spec spec_of(const struct bucket *b)
{
	struct thc_spec s = {
		.ranks = 1, .seed = SEED, .data_slots = DATA_SLOTS, .control_slots = NORM_SLOTS,
		.bits = (uint8_t)bits_of(b),
		.block_log2 = (uint8_t)b->block_log2, .scheme = (uint8_t)scheme_of(b)->id,
		.scheme_features = b->unrotated ? THC_SCHEME_F_UNROTATED : 0,
	};
	unsigned int i, row = s.bits - 1U, g = b->bits ? (1U << b->bits) - 1 : 30;
	struct thc_table t;

	s.tables.granularity[row] = (uint16_t)g;
	s.tables.widths.sum[row] = (uint8_t)b->width;
	assert_int_equal(thc_table_solve(s.bits, g, 1.0 / 32, &t), 0);
	memcpy(&s.tables.clamp[row], &t.t, sizeof(t.t));
	for (i = 0; i < t.levels; i++)
		s.tables.level[t.levels + i] = (uint16_t)t.value[i];
	return s;
}

static void client_init(struct thc_client *c, const struct bucket *b)
{
	static const uint8_t salt[THC_SALT_BYTES] = { 1 };
	static struct thc_flight flight[DATA_SLOTS + NORM_SLOTS];

	memset(c, 0, sizeof(*c));
	pthread_mutex_init(&c->lock, NULL);
	udp = (struct thc_udp){ .base = { .ops = &thc_udp_ops, .client = c } };
	c->transport = &udp.base;
	c->scheme = scheme_of(b);
	c->spec = spec_of(b);
	assert_null(c->scheme->check(&c->spec));
	c->counted_least = THC_COUNTED_BYTES;
	c->simd = thc_simd_ops(THC_SIMD_AUTO);
	assert_true(!c->scheme->open || !c->scheme->open(c));
	assert_int_equal(thc_shards_grow(&udp, 1), 0);
	udp.peer->sender.seal = THC_SEAL_NH;
	thc_seal_key_set(&udp.peer->sender.up, test_key, THC_KEY_UP, 0, salt);
	/* nothing is sent: sequence numbers and sealed packets, but nothing in flight */
	thc_stream_init(&udp.peer->sender.data, flight, 0, DATA_SLOTS);
	thc_stream_init(&udp.peer->sender.control, flight + DATA_SLOTS, DATA_SLOTS, NORM_SLOTS);
}

static unsigned int sum_width(const struct thc_request *r)
{
	return thc_spec_sum_width(&r->client->spec);
}

static const struct thc_compressor *compressor(const struct thc_client *c)
{
	return c->context[c->scheme->id];
}

static void client_exit(struct thc_client *c)
{
	c->scheme->close(c);
	thc_buffer_free(c);
	pthread_mutex_destroy(&c->lock);
	/* all memory is given back, except the receive buffer */
	assert_int_equal(c->memory_now, udp.base.rx.bytes);
	free(udp.base.rx.at);
	free(udp.peer);
}

static struct thc_request *begin(struct thc_client *c, const struct bucket *b, void *buf,
				 struct thc_residual *error)
{
	struct thc_request *r = thc_request_create(c, buf, b->count, b->dtype, c->scheme, 1);

	assert_non_null(r);
	r->error = b->feedback ? error : NULL;
	c->round = ROUND;
	c->queue = r;
	thc_pipeline_advance(c);
	assert_int_equal(r->stage, THC_STAGE_BEGUN);
	while (!r->claimed)
		assert_true(thc_pipeline_compute(c));
	thc_pipeline_advance(c);
	assert_int_equal(r->phases.phase[THC_AGREEMENT].ready, 1);
	return r;
}

/* Computes some slices in every other call, as many as the dice say; all if @most is 0. */
static void compute_some(struct thc_request *r, struct rng *dice, unsigned int most)
{
	unsigned int slices = most ? (unsigned int)(rng_u64(dice) % (most + 1)) : ~0U;

	if (most && rng_u64(dice) & 1)
		return;
	while (slices-- && thc_pipeline_compute(r->client))
		;
}

/* Another rank's norms are larger by this factor. */
#define AGREED	2

/* The scale of a rank with larger values. */
static float larger(float scale)
{
	return scale > 0 ? scale * AGREED : scale / AGREED;
}

/* A lane of a range: magnitudes count up from the middle, those of negative numbers down. */
static uint32_t lane_of(float f)
{
	uint32_t bits, magnitude;

	memcpy(&bits, &f, sizeof(bits));
	magnitude = bits & 0x7fffffff;
	return bits >> 31 ? 0x7fffffff - magnitude : 0x80000000 + magnitude;
}

static float of_lane(uint32_t lane)
{
	bool negative = lane < 0x80000000;
	uint32_t magnitude = negative ? 0x7fffffff - lane : lane - 0x80000000;
	float f;

	memcpy(&f, &magnitude, sizeof(f));
	return negative ? -f : f;
}

static void enlarge(uint8_t *at, bool ranges)
{
	uint32_t lane;
	float scale;

	memcpy(&lane, at, sizeof(lane));
	lane = thc_le32(lane);
	memcpy(&scale, &lane, sizeof(scale));
	if (ranges && lane) {
		lane = lane_of(larger(of_lane(lane)));
	} else if (!ranges) {
		scale = larger(scale);
		memcpy(&lane, &scale, sizeof(lane));
	}
	lane = thc_le32(lane);
	memcpy(at, &lane, sizeof(lane));
}

/* Chunk @index of the agreement, or of the scales, which are the next phase. */
static void scale_comes_back(struct thc_request *r, unsigned int phase, uint32_t index)
{
	struct thc_phase *p = &r->phases.phase[phase];
	uint8_t lanes[THC_LANE_BYTES];
	const uint16_t count = 1;
	size_t i;

	assert_true(index < p->ready);
	memcpy(lanes, p->packets + index * p->stride + sizeof(struct thc_hdr), sizeof(lanes));
	for (i = 0; phase >= THC_AGREEMENT_PHASES && i < sizeof(lanes); i += sizeof(uint32_t))
		enlarge(lanes + i, r->scheme == &thc_scheme_uthc);
	thc_pipeline_answer(p, index, 1, &count, lanes, DIGEST);
}

/* The agreement, then the packets of scales in a random order. */
static void scales_come_back(struct thc_request *r, struct rng *dice, unsigned int most)
{
	const struct thc_progress *g = r->progress;
	uint32_t *order = test_buffer((g->scales.chunks + 1) * sizeof(*order)), i;

	compute_some(r, dice, most);
	scale_comes_back(r, THC_AGREEMENT, 0);
	assert_int_equal(r->stage, THC_STAGE_AGREED);
	thc_pipeline_advance(r->client);
	for (i = 0; i < g->scales.chunks; i++) {
		uint32_t at = (uint32_t)(rng_u64(dice) % (i + 1));

		order[i] = order[at];
		order[at] = i;
	}
	for (i = 0; i < g->scales.chunks; i++) {
		compute_some(r, dice, most);
		scale_comes_back(r, THC_AGREEMENT_PHASES, order[i]);
	}
	compute_some(r, dice, 0);
	assert_int_equal(g->packed, g->scales.blocks);
	free(order);
}

static void *gradient_of(const struct bucket *b)
{
	float *x = normal_vector(b->count, 11);
	size_t i;
	void *buf;

	/* ranges below zero, around it and above */
	for (i = 0; b->ranges && i < b->count; i++)
		x[i] += 10 * ((float)(i / 2048 % 3) - 1);

	if (b->dtype == THC_FP32)
		return x;
	buf = test_buffer(b->count * 2);
	thc_store(b->dtype, buf, x, b->count);
	free(x);
	return buf;
}

/* Every packet that may be sent is sealed. */
static void assert_sealed(const struct thc_request *r)
{
	const struct thc_sender *s = &udp.peer->sender;
	unsigned int k;
	uint32_t i;

	for (k = 0; k < r->phases.count; k++) {
		const struct thc_phase *p = &r->phases.phase[k];

		for (i = 0; i < p->ready; i++) {
			const struct thc_hdr *h = (const void *)(p->packets + i * p->stride);

			assert_int_equal(h->key_id, s->up.id);
			assert_true(thc_seal_ok(h, s->seal, &s->up, h + 1, (int)(p->payload / 8)));
		}
	}
}

static void assert_packets(struct thc_request *r, const uint8_t *packed)
{
	const struct thc_phase *p = &r->phases.phase[THC_AGREEMENT_PHASES + 1];
	uint32_t i;

	assert_sealed(r);
	assert_int_equal(p->op, THC_OP_LUT_ADD);
	assert_int_equal(p->width, r->client->spec.bits);
	assert_int_equal(p->payload, 1024 * r->client->spec.bits / sum_width(r));
	assert_int_equal(p->ready, p->sized);
	for (i = 0; i < p->sized; i++)
		assert_memory_equal(p->packets + i * p->stride + sizeof(struct thc_hdr),
				    packed + i * p->payload, p->payload);
}

/* One rank's packets come back as sums, in any order of chunks; every seventh sum lacks the rank,
 * and every eleventh is gone. Sets @counts and @lost.
 */
static void sums_come_back(struct thc_request *r, struct rng *dice, uint8_t *lanes,
			   uint16_t *counts, uint8_t *lost)
{
	struct thc_phase *p = &r->phases.phase[THC_AGREEMENT_PHASES + 1];
	const struct thc_spec *s = &r->client->spec;
	uint32_t *order = test_buffer(p->sized * sizeof(*order)), k, at, i;
	uint32_t each = 8192 / sum_width(r);

	for (k = 0; k < p->sized; k++) {
		const uint8_t *packed = p->packets + k * p->stride + sizeof(struct thc_hdr);

		at = (uint32_t)(rng_u64(dice) % (k + 1));
		order[k] = order[at];
		order[at] = k;
		for (i = 0; i < each; i++)
			lane_add(lanes + (size_t)k * 1024, sum_width(r), i,
				 thc_spec_row(s, s->bits).level[index_of(packed, s->bits, i)]);
		counts[k] = k % 11 == 10 ? 0 : 1;
		lost[k] = k % 11 == 10 || k % 7 == 6;
	}
	for (k = 0; k < p->sized; k++) {
		uint16_t count;

		at = order[k];
		count = (uint16_t)(counts[at] | (lost[at] ? THC_COUNT_EXCLUDED : 0));
		thc_pipeline_answer(p, at, 1, &count, counts[at] ? lanes + (size_t)at * 1024 : NULL,
				    DIGEST);
	}
	assert_int_equal(r->stage, THC_STAGE_DONE);
	free(order);
}

/* The result and the error memory are those of the codec alone. */
static void assert_result(struct thc_request *r, struct rng *dice, const uint8_t *packed,
			  const float *scales, float *lost_before)
{
	const struct thc_compressor *z = compressor(r->client);
	const struct thc_phase *p = &r->phases.phase[THC_AGREEMENT_PHASES + 1];
	size_t padded = padded_count(&z->codec, r->count);
	size_t blocks = thc_codec_blocks(&z->codec, r->count);
	uint8_t *lanes = test_buffer((size_t)p->sized * 1024), *lost = test_buffer(p->sized);
	uint16_t *counts = test_buffer(p->sized * sizeof(*counts));
	float *out = test_buffer(padded * sizeof(float));
	void *want = test_buffer(padded * sizeof(float));
	const struct thc_blocks b = { ROUND, 0, scales, 0 };

	sums_come_back(r, dice, lanes, counts, lost);
	thc_codec_decode(&z->codec,
			 &(struct thc_sums){ lanes, 1024, z->chunk, sum_width(r), counts },
			 r->count, &b, out);
	thc_store(r->dtype, want, out, r->count);
	assert_memory_equal(r->buf, want, r->count * (r->dtype == THC_FP32 ? 4 : 2));
	if (lost_before) {
		thc_codec_putback(&z->codec,
				  &(struct thc_chunks){ (void *)packed, p->payload, z->chunk },
				  lost, blocks, &b,
				  &(struct thc_residual_at){ lost_before, r->count, out });
		assert_memory_equal(r->error->next, lost_before, r->count * sizeof(float));
	}
	free(want);
	free(out);
	free(counts);
	free(lost);
	free(lanes);
}

/* @most as in compute_some() */
static void check(const struct bucket *b, uint64_t seed, unsigned int most)
{
	struct rng dice = rng_seeded(seed);
	struct thc_residual error = { .count = b->count };
	const struct thc_compressor *z;
	struct thc_client c;
	struct thc_request *r;
	float *scales, *lost = NULL;
	uint8_t *packed;
	void *buf = gradient_of(b);
	size_t padded, blocks, i, bytes;

	client_init(&c, b);
	z = compressor(&c);
	if (b->feedback) {
		error.now = normal_vector(b->count, 12);
		error.next = test_buffer(b->count * sizeof(float));
		lost = test_buffer(b->count * sizeof(float));
	}
	padded = padded_count(&z->codec, b->count);
	blocks = thc_codec_blocks(&z->codec, b->count);
	scales = test_buffer(2 * blocks * sizeof(float));
	packed = test_buffer(padded);
	assert_int_equal(measure_scales(&z->codec,
					&(struct thc_values){ buf, b->dtype, b->count, error.now },
					&(struct thc_blocks){ ROUND, 0, NULL, 0 }, scales),
			 0);
	for (i = 0; i < thc_codec_scales(&z->codec) * blocks; i++)
		scales[i] = larger(scales[i]);
	bytes = (size_t)1024 * bits_of(b) / b->width;
	thc_codec_compress(&z->codec, &(struct thc_values){ buf, b->dtype, b->count, error.now },
			   &(struct thc_blocks){ ROUND, 0, scales, 0 },
			   &(struct thc_chunks){ packed, bytes, 8192 / b->width },
			   &(struct thc_residual_at){ lost, b->count, (void *)c.scratch.at });

	r = begin(&c, b, buf, &error);
	scales_come_back(r, &dice, most);
	assert_packets(r, packed);
	if (b->feedback)
		assert_memory_equal(error.next, lost, b->count * sizeof(float));
	/* the larger ones would take long */
	if (b->count < 50000)
		assert_result(r, &dice, packed, scales, lost);
	c.queue = NULL;
	thc_request_release(r);
	thc_request_destroy(r);
	client_exit(&c);
	free(error.now);
	free(error.next);
	free(lost);
	free(scales);
	free(packed);
	free(buf);
}

static void bits__whatever_was_computed_when(void **state)
{
	static const size_t counts[] = { 1, 8192, 100001, 700000 };
	struct bucket b = { .block_log2 = 10 };
	unsigned int dtype, i, seed;

	(void)state;
	for (dtype = THC_FP32; dtype <= THC_BF16; dtype++) {
		for (i = 0; i < 4 * 4; i++) {
			b.dtype = (enum thc_dtype)dtype;
			b.count = counts[i / 4];
			b.width = i & 1 ? 16 : 8;
			b.feedback = i & 2;
			for (seed = 0; seed < 4; seed++)
				check(&b, 100 * i + seed, seed * 4);
		}
	}
}

static void bits__blocks_larger_than_a_slice(void **state)
{
	struct bucket b = { .count = 3000000, .width = 8, .block_log2 = 17 };
	unsigned int dtype, seed;

	(void)state;
	for (dtype = THC_FP32; dtype <= THC_BF16; dtype++) {
		b.dtype = (enum thc_dtype)dtype;
		for (seed = 0; seed < 4; seed++) {
			b.feedback = seed & 1;
			check(&b, seed, seed * 2);
		}
	}
}

/* Every number of bits with every possible width, norms and ranges, rotated or not, small and
 * large blocks.
 */
static void bits__of_every_width(void **state)
{
	struct bucket b = { .count = 20001 };
	unsigned int form;

	(void)state;
	for (b.bits = 1; b.bits <= 8; b.bits++)
		for (b.width = 4; b.width <= 32; b.width *= 2)
			for (form = 0; form < 4 && b.bits <= b.width; form++) {
				b.ranges = form & 1;
				b.unrotated = form & 2;
				b.dtype = (enum thc_dtype)((b.bits + form) % 3);
				b.feedback = (b.bits + form) % 4 != 3;
				b.block_log2 = b.width == 4 || form == 3 ? 11 : 10;
				check(&b, b.bits + form, b.bits % 3);
			}
}

/* Ranges have half as many blocks a packet. */
static void bits__of_many_ranges(void **state)
{
	struct bucket b = { .count = 300000, .width = 8, .block_log2 = 10, .bits = 2 };
	unsigned int seed;

	(void)state;
	b.ranges = true;
	for (seed = 0; seed < 4; seed++)
		check(&b, seed, seed * 2);
}

/* Data chunks have no numbers while the bucket before has not numbered its own. They are not made,
 * since their seal would be for wrong numbers.
 */
static void data__waits_for_its_numbers(void **state)
{
	struct bucket b = { .count = 100001, .width = 8, .block_log2 = 10, .bits = 4 };
	void *buf = gradient_of(&b);
	struct thc_request *r;
	struct thc_phase *p;
	struct thc_client c;

	(void)state;
	client_init(&c, &b);
	r = begin(&c, &b, buf, NULL);
	scale_comes_back(r, THC_AGREEMENT, 0);
	thc_pipeline_advance(&c);
	p = &r->phases.phase[THC_AGREEMENT_PHASES + 1];
	assert_int_equal(p->numbered, p->sized);
	p->numbered = 0;
	scale_comes_back(r, THC_AGREEMENT_PHASES, 0);
	while (thc_pipeline_compute(&c))
		;
	assert_int_equal(p->ready, 0);
	p->numbered = p->sized;
	while (thc_pipeline_compute(&c))
		;
	assert_int_equal(p->ready, p->sized);
	assert_sealed(r);
	c.queue = NULL;
	thc_request_release(r);
	thc_request_destroy(r);
	client_exit(&c);
	free(buf);
}

/* Three requests; the second ends first. The third claims the digest of the first, so it waits
 * until the first has ended.
 */
static void rounds__wait_for_the_one_before_the_last(void **state)
{
	const struct bucket b = { .dtype = THC_FP32, .count = 5, .width = 8, .block_log2 = 10 };
	struct thc_request *r[3];
	float buf[3][5] = { { 1 } };
	const struct thc_claim *claim;
	struct thc_client c;
	unsigned int i;

	(void)state;
	client_init(&c, &b);
	for (i = 0; i < 3; i++) {
		r[i] = thc_request_create(&c, buf[i], b.count, b.dtype, &thc_scheme_thc, i);
		assert_non_null(r[i]);
		if (i)
			r[i - 1]->next = r[i];
	}
	c.queue = r[0];
	for (i = 0; i < 2; i++) {
		thc_pipeline_advance(&c);
		while (thc_pipeline_compute(&c))
			;
		thc_pipeline_advance(&c);
		assert_int_equal(r[i]->phases.phase[THC_AGREEMENT].ready, 1);
		scale_comes_back(r[i], THC_AGREEMENT, 0);
	}
	thc_pipeline_advance(&c);
	scale_comes_back(r[0], THC_AGREEMENT_PHASES, 0);
	r[0]->next = r[2];
	thc_pipeline_advance(&c);
	while (thc_pipeline_compute(&c))
		;
	thc_pipeline_advance(&c);
	assert_int_equal(r[2]->stage, THC_STAGE_QUEUED);
	thc_pipeline_answer(&r[0]->phases.phase[THC_AGREEMENT_PHASES + 1], 0, 1, &(uint16_t){ 1 },
			    (const uint8_t[THC_LANE_BYTES]){ 0 }, 1);
	assert_int_equal(r[0]->stage, THC_STAGE_DONE);
	c.queue = r[2];
	thc_pipeline_advance(&c);
	while (thc_pipeline_compute(&c))
		;
	thc_pipeline_advance(&c);
	assert_int_equal(r[2]->phases.phase[THC_AGREEMENT].ready, 1);
	/* a digest of all answers but the agreement's */
	claim = (const void *)((const struct thc_hdr *)r[2]->claim[0] + 1);
	assert_int_equal(thc_le32(claim->digest), DIGEST + 1);
	c.queue = NULL;
	for (i = 0; i < 3; i++) {
		thc_request_release(r[i]);
		thc_request_destroy(r[i]);
	}
	client_exit(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds__wait_for_the_one_before_the_last),
		cmocka_unit_test(data__waits_for_its_numbers),
		cmocka_unit_test(bits__whatever_was_computed_when),
		cmocka_unit_test(bits__blocks_larger_than_a_slice),
		cmocka_unit_test(bits__of_every_width),
		cmocka_unit_test(bits__of_many_ranges),
	};

	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
