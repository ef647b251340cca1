// SPDX-License-Identifier: GPL-2.0
/*
 * Scheme thc with a rate, without a network: the test adds the ranks' chunks lane by lane and
 * answers them in any order. Result and error memory equal, bit for bit, what the codec makes of
 * each block alone.
 */
#include "codec_util.h"

#include <thc/wire/format.h>

#include "client.h"
#include "dtype.h"
#include "pipeline.h"
#include "randomword.h"
#include "request.h"
#include "scheme.h"
#include "scheme_thc.h"
#include "transport.h"

enum { RANKS_MAX = 20, SCALES = THC_AGREEMENT_PHASES, BLOCK = 1024, ROUND = 5 };

static const struct thc_transport_ops ops;

/**
 * struct bed - ranks of one job, and the bucket they reduce
 * @late: one in @late chunks of rank 0 comes too late; 0: none
 * @hurried: ranks compute only what they must before they send
 * @octaves: range of the blocks' norms
 * @error: by rank: the error memory
 * @x: by rank: its bucket
 * @packed: by rank and block: indices, as the codec makes them
 * @lost: by rank: the error memory, as it should be
 * @want: by rank: the result, as it should be
 * @blocks: of each class
 */
struct bed {
	unsigned int	ranks;
	size_t		count;
	enum thc_dtype	dtype;
	bool		feedback;
	bool		correlated;
	unsigned int	late;
	bool		hurried;
	double		octaves;
	struct thc_rate_goal goal;
	struct thc_transport transport;
	struct thc_client client[RANKS_MAX];
	struct thc_request *request[RANKS_MAX];
	struct thc_residual error[RANKS_MAX];
	u64		next[RANKS_MAX][2];
	void		*x[RANKS_MAX];
	void		*buf[RANKS_MAX];
	float		*norm[RANKS_MAX];
	uint8_t		*packed[RANKS_MAX];
	float		*lost[RANKS_MAX];
	float		*want[RANKS_MAX];
	uint32_t	blocks[THC_RATE_CLASSES];
};

static size_t blocks_of(const struct bed *b)
{
	return (b->count + BLOCK - 1) / BLOCK;
}

static size_t bytes_of(const struct bed *b)
{
	return b->count * thc_dtype_size(b->dtype);
}

static const struct thc_compressor *compressor(const struct bed *b)
{
	return b->client[0].context[THC_SCHEME_THC];
}

static unsigned int width_for(unsigned int bits, unsigned int ranks)
{
	unsigned int width = 4;

	while (((1U << bits) - 1) * ranks >= 1U << width)
		width *= 2;
	return width < bits ? 8 : width;
}

/* The rows that thcd makes, for as many ranks. */
static void make_rows(struct thc_spec *s, unsigned int ranks)
{
	unsigned int bits, i;

	for (bits = 1; bits <= THC_RATE_BITS_MAX; bits++) {
		unsigned int width = width_for(bits, ranks), at = thc_row_at(bits);
		struct thc_table t;

		assert_int_equal(choose(bits, ranks, width, &t), 0);
		s->tables.widths.sum[at] = (u8)width;
		s->tables.granularity[at] = (u16)t.granularity;
		memcpy(&s->tables.clamp[at], &t.t, sizeof(t.t));
		for (i = 0; i < t.levels; i++)
			s->tables.level[(1U << bits) + i] = t.value[i];
	}
	s->bits = 4;
}

static void open_rank(struct bed *b, unsigned int rank, const struct thc_spec *spec)
{
	struct thc_client *c = &b->client[rank];
	size_t padded = blocks_of(b) * BLOCK;

	*c = (struct thc_client){
		.transport = &b->transport, .counted_least = THC_COUNTED_BYTES, .spec = *spec,
		.options.rank = (uint16_t)rank,
		.options.flags = b->feedback ? THC_CLIENT_ERROR_FEEDBACK : 0,
	};
	assert_int_equal(thc_scheme_thc.open(c), 0);
	b->x[rank] = test_buffer(bytes_of(b));
	b->buf[rank] = test_buffer(bytes_of(b));
	b->norm[rank] = test_buffer(blocks_of(b) * sizeof(float));
	b->packed[rank] = test_buffer(blocks_of(b) * BLOCK);
	b->lost[rank] = test_buffer(b->count * sizeof(float));
	b->want[rank] = test_buffer(padded * sizeof(float));
	b->error[rank] = (struct thc_residual){ .count = b->count };
	b->error[rank].now = test_buffer(b->count * sizeof(float));
	b->error[rank].next = test_buffer(b->count * sizeof(float));
}

static void open_bed(struct bed *b)
{
	struct thc_spec spec = {
		.scheme = THC_SCHEME_THC, .ranks = (u16)b->ranks, .seed = 77, .rate = 6000,
		.block_log2 = THC_RATE_BLOCK_LOG2,
		.features = b->correlated ? THC_FEATURE_CORRELATED : 0,
	};
	unsigned int i;

	b->transport.ops = &ops;
	make_rows(&spec, b->ranks);
	for (i = 0; i < b->ranks; i++)
		open_rank(b, i, &spec);
}

static void close_bed(struct bed *b)
{
	unsigned int i;

	for (i = 0; i < b->ranks; i++) {
		thc_scheme_thc.close(&b->client[i]);
		thc_buffer_free(&b->client[i]);
		assert_int_equal(b->client[i].memory_now, 0);
		free(b->x[i]);
		free(b->buf[i]);
		free(b->norm[i]);
		free(b->packed[i]);
		free(b->lost[i]);
		free(b->want[i]);
		free(b->error[i].now);
		free(b->error[i].next);
	}
}

/* Gradients whose blocks differ in size, some of them zero, and errors of earlier rounds. */
static void bring(struct bed *b)
{
	struct rng dice = rng_seeded(b->count + b->ranks);
	double size = 1;
	unsigned int k;
	size_t i;

	for (i = 0; i < b->count; i++) {
		if (i % BLOCK == 0)
			size = rng_u64(&dice) % 9 ? exp2(b->octaves * (rng_unit(&dice) - 0.5)) : 0;
		for (k = 0; k < b->ranks; k++) {
			float x = (float)(size * rng_normal(&dice));

			thc_store(b->dtype, (uint8_t *)b->x[k] + i * thc_dtype_size(b->dtype), &x,
				  1);
			b->error[k].now[i] = b->feedback ? (float)(size * 0.3 * rng_normal(&dice)) :
							   0;
		}
	}
}

/* --- what the codec makes of each block ------------------------------------------ */

static struct thc_values values_of(const struct bed *b, unsigned int rank, size_t block)
{
	size_t first = block * BLOCK, left = b->count - first;

	return (struct thc_values){
		.x = (const uint8_t *)b->x[rank] + first * thc_dtype_size(b->dtype),
		.dtype = b->dtype,
		.count = left < BLOCK ? left : BLOCK,
		.error = b->feedback ? b->error[rank].now + first : NULL,
	};
}

/* Puts the largest norms of all ranks into rank 0's. */
static void agree_on_norms(struct bed *b)
{
	size_t i, bad;
	unsigned int k;

	for (k = 0; k < b->ranks; k++)
		for (i = 0; i < blocks_of(b); i++) {
			struct thc_values v = values_of(b, k, i);

			assert_int_equal(thc_codec_norms(&compressor(b)->codec, &v, &b->norm[k][i],
							 &bad),
					 0);
			b->norm[0][i] = fmaxf(b->norm[0][i], b->norm[k][i]);
		}
}

static unsigned int chunk_of(const struct bed *b, unsigned int k)
{
	unsigned int chunk = THC_COORDINATES(compressor(b)->rate.class[k].sum_width);

	return chunk < BLOCK ? chunk : BLOCK;
}

/* Is half @half of block @at of class @k too late? A chunk is late as a whole. */
static bool is_late(const struct bed *b, unsigned int k, uint32_t at, unsigned int half)
{
	unsigned int chunk = THC_COORDINATES(compressor(b)->rate.class[k].sum_width);
	uint32_t index = chunk > BLOCK ? at / 2 : at * (BLOCK / chunk) + half;

	return b->late && (index + k) % b->late == 0;
}

static void expect_block(struct bed *b, size_t block, unsigned int k, uint32_t at)
{
	const struct thc_codec *c = &compressor(b)->row[k];
	unsigned int chunk = chunk_of(b, k), halves = BLOCK / chunk, rank, i;
	unsigned int width = compressor(b)->rate.class[k].sum_width;
	size_t bytes = (size_t)chunk * k / 8, each = (size_t)chunk * width / 8;
	uint8_t lanes[2 * THC_LANE_BYTES] = { 0 };
	float scratch[BLOCK];

	for (rank = 0; rank < b->ranks; rank++) {
		struct thc_values v = values_of(b, rank, block);
		uint8_t *packed = b->packed[rank] + block * BLOCK;

		thc_codec_compress(c, &v,
				   &(struct thc_blocks){ ROUND, block, &b->norm[0][block], rank },
				   &(struct thc_chunks){ packed, bytes, chunk },
				   &(struct thc_residual_at){
					   b->feedback ? b->lost[rank] + block * BLOCK : NULL,
					   v.count, scratch });
		for (i = 0; i < BLOCK; i++)
			if (rank || !is_late(b, k, at, i / chunk))
				lane_add(lanes + i / chunk * each, width, i % chunk,
					 c->table.value[index_of(packed + i / chunk * bytes, k,
								 i % chunk)]);
	}
	for (rank = 0; rank < b->ranks; rank++) {
		struct thc_values v = values_of(b, rank, block);
		struct thc_blocks at_block = { ROUND, block, &b->norm[0][block], rank };
		uint16_t counts[2];
		uint8_t lost[2];

		for (i = 0; i < halves; i++) {
			lost[i] = !rank && is_late(b, k, at, i);
			counts[i] = (uint16_t)(b->ranks - is_late(b, k, at, i));
		}
		if (b->feedback)
			thc_codec_putback(c,
					  &(struct thc_chunks){ b->packed[rank] + block * BLOCK,
								bytes, chunk },
					  lost, 1, &at_block,
					  &(struct thc_residual_at){ b->lost[rank] + block * BLOCK,
								     v.count, scratch });
		thc_codec_decode(c, &(struct thc_sums){ lanes, each, chunk, width, counts },
				 v.count, &at_block, b->want[rank] + block * BLOCK);
	}
}

static void expect_nothing(struct bed *b, size_t block)
{
	unsigned int rank;
	size_t i;

	for (rank = 0; rank < b->ranks; rank++) {
		struct thc_values v = values_of(b, rank, block);
		float own[BLOCK];

		thc_load(b->dtype, own, v.x, v.count);
		for (i = 0; b->feedback && i < v.count; i++)
			b->lost[rank][block * BLOCK + i] = own[i] + v.error[i];
	}
}

static void expect(struct bed *b)
{
	struct thc_rate_choice choice = { .of = test_buffer(blocks_of(b)) };
	int16_t *exponent = test_buffer(blocks_of(b) * sizeof(*exponent));
	struct thc_rate_bins bins = { 0 };
	size_t i;

	agree_on_norms(b);
	thc_rate_choose(&compressor(b)->rate, &b->goal, b->norm[0], (uint32_t)blocks_of(b), &bins,
			exponent, &choice);
	for (i = 0; i < blocks_of(b); i++) {
		unsigned int k = choice.of[i];

		if (k)
			expect_block(b, i, k, b->blocks[k]);
		else
			expect_nothing(b, i);
		b->blocks[k]++;
	}
	free(exponent);
	free(choice.of);
}

/* --- the scheme -------------------------------------------------------------------- */

static void begin(struct bed *b)
{
	unsigned int k, p;

	for (k = 0; k < b->ranks; k++) {
		struct thc_request *r;

		memcpy(b->buf[k], b->x[k], bytes_of(b));
		r = thc_request_create(&b->client[k], b->buf[k], b->count, b->dtype,
				       &thc_scheme_thc, 7);
		assert_non_null(r);
		b->request[k] = r;
		r->goal = b->goal;
		r->chosen = thc_rate_chosen(&b->client[k], &b->goal);
		r->error = b->feedback ? &b->error[k] : NULL;
		b->error[k].turn = (uint8_t)b->goal.turn;
		r->round = ROUND;
		r->phases.count = THC_AGREEMENT_PHASES;
		for (p = 0; p < THC_AGREEMENT_PHASES; p++)
			r->phases.phase[p].closed = r->phases.phase[p].control = true;
		assert_int_equal(r->scheme->prepare(r, 0), 0);
		assert_ptr_equal(r->scheme, &thc_scheme_thc_rate);
		while (!r->claimed)
			assert_true(r->scheme->compute(r));
		assert_int_equal(r->claim_status, THC_CLAIM_OK);
		r->phases.agreed = true;
	}
}

/* Is every chunk made that will be sent? */
static bool is_made(const struct thc_phases *all)
{
	unsigned int k;

	for (k = SCALES + 1; k < all->count; k++)
		if (!all->phase[k].closed || all->phase[k].ready < all->phase[k].sized)
			return false;
	return true;
}

static void number(struct bed *b, unsigned int k)
{
	struct thc_phases *all = &b->request[k]->phases;

	thc_phases_number(&all, 1, true, &b->next[k][1]);
	thc_phases_number(&all, 1, false, &b->next[k][0]);
	while (!(b->hurried && is_made(all)) && b->request[k]->scheme->compute(b->request[k]))
		;
}

/* Claims of all ranks, as far as the scheme looks at them; then norms may go out. */
static void agree(struct bed *b)
{
	unsigned int k, i;

	for (k = 0; k < b->ranks; k++) {
		thc_agree_claim(b->request[k]);
		for (i = 0; i < b->ranks; i++) {
			const struct thc_hdr *h = (const void *)b->request[k]->claim[THC_AGREEMENT];

			b->request[i]->claims[k] = ((const struct thc_claim *)(h + 1))[k];
		}
	}
	for (k = 0; k < b->ranks; k++) {
		number(b, k);
		b->request[k]->scheme->agreed(b->request[k]);
	}
}

static void add_chunk(struct bed *b, unsigned int phase, uint32_t chunk, bool late, uint8_t *lanes)
{
	const struct thc_rate_class *c = &compressor(b)->rate.class[phase - SCALES];
	const struct thc_table *t = &compressor(b)->row[c->bits].table;
	unsigned int k, i;

	for (k = late; k < b->ranks; k++) {
		const struct thc_phase *p = &b->request[k]->phases.phase[phase];
		const uint8_t *payload = (const uint8_t *)(thc_phase_packet(p, chunk) + 1);

		assert_true(chunk < p->ready);
		assert_int_equal(p->width, c->bits);
		assert_int_equal(p->payload, 1024 * c->bits / c->sum_width);
		/* an odd last block has no neighbour, which adds nothing */
		if (c->sum_width == 4 && b->blocks[c->bits] == 2 * chunk + 1)
			for (i = p->payload / 2; i < p->payload; i++)
				assert_int_equal(payload[i], 0);
		for (i = 0; i < THC_COORDINATES(c->sum_width); i++)
			lane_add(lanes, c->sum_width, i, t->value[index_of(payload, c->bits, i)]);
	}
}

static void largest_norms(struct bed *b, uint32_t chunk, uint8_t *lanes)
{
	unsigned int k, i;

	for (k = 0; k < b->ranks; k++) {
		const struct thc_phase *p = &b->request[k]->phases.phase[SCALES];
		const uint32_t *own = (const void *)(thc_phase_packet(p, chunk) + 1);
		uint32_t *all = (void *)lanes;

		for (i = 0; i < THC_LANE_BYTES / 4; i++)
			all[i] = own[i] > all[i] ? own[i] : all[i];
	}
}

static void answer(struct bed *b, unsigned int phase, uint32_t chunk)
{
	bool late = phase != SCALES && b->late && (chunk + phase - SCALES) % b->late == 0;
	uint16_t count = (uint16_t)(b->ranks - late);
	uint32_t lanes[THC_LANE_BYTES / 4] = { 0 };
	unsigned int k;

	if (phase == SCALES)
		largest_norms(b, chunk, (uint8_t *)lanes);
	else
		add_chunk(b, phase, chunk, late, (uint8_t *)lanes);
	for (k = 0; k < b->ranks; k++) {
		const uint16_t own = late && !k ? count | THC_COUNT_EXCLUDED : count;

		b->request[k]->phases.phase[phase].answered++;
		b->request[k]->scheme->answer(b->request[k], phase, chunk, 1, &own,
					      (const uint8_t *)lanes);
	}
}

/* Answers up to @most chunks of a phase, in any order. */
static uint32_t answer_phase(struct bed *b, unsigned int phase, uint32_t most)
{
	uint32_t sized = b->request[0]->phases.phase[phase].sized, i, at;
	uint32_t *order = test_buffer((sized + 1) * sizeof(*order));

	for (i = 0; i < sized; i++) {
		at = (uint32_t)(random_word() % (i + 1));
		order[i] = order[at];
		order[at] = i;
	}
	for (i = 0; i < sized && i < most; i++)
		answer(b, phase, order[i]);
	free(order);
	return i;
}

static void run(struct bed *b, uint32_t most)
{
	unsigned int k, phase;

	agree(b);
	answer_phase(b, SCALES, UINT32_MAX);
	for (k = 0; k < b->ranks; k++)
		number(b, k);
	for (phase = SCALES + THC_RATE_BITS_MAX; phase > SCALES; phase--)
		most -= answer_phase(b, phase, most);
}

/* All has come, and no rank has failed: errors are in the memories now. */
static void end(struct bed *b)
{
	unsigned int k;

	for (k = 0; k < b->ranks; k++) {
		assert_true(thc_phases_done(&b->request[k]->phases));
		thc_request_finish(b->request[k]);
	}
}

static void finish(struct bed *b, int status)
{
	unsigned int k;

	for (k = 0; k < b->ranks; k++) {
		b->request[k]->status = status;
		thc_request_release(b->request[k]);
		thc_request_destroy(b->request[k]);
	}
}

static void assert_results(const struct bed *b)
{
	void *want = test_buffer(bytes_of(b));
	unsigned int k;

	for (k = 0; k < b->ranks; k++) {
		assert_true(thc_phases_done(&b->request[k]->phases));
		thc_store(b->dtype, want, b->want[k], b->count);
		assert_memory_equal(b->buf[k], want, bytes_of(b));
		if (b->feedback)
			assert_memory_equal(b->error[k].now, b->lost[k], b->count * sizeof(float));
	}
	free(want);
}

/* What a client says of its rounds. */
static void assert_counted(const struct bed *b)
{
	uint64_t up = 0, down = 0;
	unsigned int i, k;

	for (k = 1; k < THC_RATE_CLASSES; k++) {
		up += (uint64_t)b->blocks[k] * k * BLOCK;
		down += (uint64_t)b->blocks[k] * width_for(k, b->ranks) * BLOCK;
	}
	for (i = 0; i < b->ranks; i++) {
		const struct thc_client_stats *s = &b->client[i].stats;

		assert_int_equal(s->rate_requests, 1);
		assert_int_equal(s->rate_blocks, blocks_of(b));
		assert_int_equal(s->rate_skipped, b->blocks[0]);
		assert_int_equal(s->rate_bits_up, up);
		assert_int_equal(s->rate_bits_down, down);
		assert_true(s->rate_lost > 0 && s->rate_lost <= s->rate_square);
	}
}

static void check(struct bed b, uint32_t *blocks)
{
	open_bed(&b);
	bring(&b);
	expect(&b);
	begin(&b);
	run(&b, UINT32_MAX);
	end(&b);
	assert_results(&b);
	assert_counted(&b);
	memcpy(blocks, b.blocks, sizeof(b.blocks));
	finish(&b, 0);
	close_bed(&b);
}

/* --- cases ------------------------------------------------------------------------ */

/* Two to twenty ranks, whose sums have different widths; all classes. */
static void results__are_those_of_the_codec(void **state)
{
	static const unsigned int ranks[] = { 2, 4, 5, 8, 20 };
	static const uint32_t rates[] = { 700, 2000, 6000, 9000, 14000, 20000 };
	uint32_t seen[THC_RATE_CLASSES] = { 0 }, blocks[THC_RATE_CLASSES];
	unsigned int i, k, c;

	(void)state;
	for (i = 0; i < sizeof(ranks) / sizeof(*ranks); i++)
		for (k = 0; k < sizeof(rates) / sizeof(*rates); k++) {
			check((struct bed){ .ranks = ranks[i],
					    .count = 40 * BLOCK + 17 * k,
					    .feedback = true,
					    .octaves = 9, .correlated = k % 2,
					    .goal = { .bits = rates[k], .turn = k } },
			      blocks);
			for (c = 0; c < THC_RATE_CLASSES; c++)
				seen[c] += blocks[c];
		}
	for (c = 0; c < THC_RATE_CLASSES; c++)
		assert_true(seen[c] > 10);
}

static void halves__of_all_types(void **state)
{
	uint32_t blocks[THC_RATE_CLASSES];
	unsigned int dtype, ranks;

	(void)state;
	for (dtype = THC_FP32; dtype <= THC_BF16; dtype++)
		for (ranks = 2; ranks <= 20; ranks += 18)
			check((struct bed){ .ranks = ranks,
					    .count = 71 * BLOCK + 5,
					    .dtype = (enum thc_dtype)dtype,
					    .feedback = ranks == 2,
					    .hurried = true,
					    .octaves = 5,
					    .goal = { .error = 8000, .turn = 3 } },
			      blocks);
}

/* More norms than a packet holds. Blocks that are not sent wait for those that are, at most until
 * these have landed.
 */
static void large__buckets(void **state)
{
	uint32_t blocks[THC_RATE_CLASSES];
	unsigned int hurried;

	(void)state;
	for (hurried = 0; hurried < 2; hurried++) {
		check((struct bed){ .ranks = 2,
				    .count = 700 * BLOCK,
				    .feedback = true,
				    .hurried = hurried,
				    .octaves = 12,
				    .goal = { .bits = 4000, .turn = 1 } },
		      blocks);
		assert_true(blocks[0] > 100);
	}
}

static void late__chunks_go_back_to_the_memory(void **state)
{
	uint32_t blocks[THC_RATE_CLASSES];

	(void)state;
	check((struct bed){ .ranks = 4,
			    .count = 90 * BLOCK,
			    .feedback = true,
			    .octaves = 6,
			    .late = 3,
			    .goal = { .bits = 7000 } },
	      blocks);
	check((struct bed){ .ranks = 20,
			    .count = 30 * BLOCK + 9,
			    .feedback = true,
			    .octaves = 6,
			    .late = 3,
			    .dtype = THC_FP16,
			    .goal = { .bits = 14000 } },
	      blocks);
}

/* All norms are zero, or little and due later: no chunk of data comes. */
static void buckets__of_which_nothing_is_sent(void **state)
{
	struct bed b = { .ranks = 3, .count = 5 * BLOCK - 1, .feedback = true, .hurried = true };
	size_t i;

	(void)state;
	b.goal = (struct thc_rate_goal){ .bits = 250, .turn = 1 };
	open_bed(&b);
	for (i = 0; i < b.count; i++)
		((float *)b.x[1])[i] = 0x1p-100f;
	expect(&b);
	begin(&b);
	run(&b, UINT32_MAX);
	end(&b);
	assert_results(&b);
	assert_true(b.error[1].now[4] == 0x1p-100f);
	finish(&b, 0);
	close_bed(&b);
}

/* A failed bucket gets its old values back, whatever has been answered. */
static void failed__buckets_are_what_they_were(void **state)
{
	uint32_t most;
	unsigned int k;

	(void)state;
	for (most = 0; most < 60; most += 7) {
		struct bed b = { .ranks = 8,
				 .count = 33 * BLOCK + 3,
				 .feedback = true,
				 .octaves = 6,
				 .goal = { .bits = 9000, .turn = 2 } };

		b.dtype = most % 2 ? THC_BF16 : THC_FP32;
		open_bed(&b);
		bring(&b);
		expect(&b);
		begin(&b);
		run(&b, most);
		finish(&b, -EPIPE);
		for (k = 0; k < b.ranks; k++)
			assert_memory_equal(b.buf[k], b.x[k], bytes_of(&b));
		close_bed(&b);
	}
}

/* Do all ranks but the last have @first as count of rounds, and the last one @last? */
static void assert_turns(const struct bed *b, u8 first, u8 last)
{
	unsigned int k;

	for (k = 0; k < b->ranks; k++)
		assert_int_equal(b->error[k].turn, k + 1 < b->ranks ? first : last);
}

/* If counts of rounds differ, because a rank has lost its memory, all go by the largest. A failed
 * or undone round does not count.
 */
static void turns__are_agreed(void **state)
{
	struct bed b = { .ranks = 3, .count = 64 * BLOCK, .feedback = true, .octaves = 20,
			 .goal = { .bits = 1000, .turn = 6 } };
	unsigned int k;

	(void)state;
	open_bed(&b);
	bring(&b);
	expect(&b);
	begin(&b);
	b.error[2].turn = 0;
	run(&b, UINT32_MAX);
	assert_turns(&b, 6, 0);
	end(&b);
	assert_results(&b);
	assert_turns(&b, 7, 7);
	for (k = 0; k < b.ranks; k++)
		thc_residual_swap(&b.error[k], false);
	assert_turns(&b, 6, 0);
	finish(&b, 0);
	close_bed(&b);
}

/* The squared distance of the mean from the ranks' values, relative to the mean's square. */
static double measured(const struct bed *b)
{
	const float *x = b->x[0], *mean = b->buf[0];
	double lost = 0, all = 0;
	size_t i;

	for (i = 0; i < b->count; i++) {
		all += (double)x[i] * x[i];
		lost += ((double)x[i] - mean[i]) * ((double)x[i] - mean[i]);
	}
	return lost / all;
}

/* For equal gradients, the error that a client reports is right within 5 %. */
static void errors__are_those_expected(void **state)
{
	static const struct thc_rate_goal goals[] = {
		{ .bits = 9000 },  { .bits = 6000, .turn = 1 },	  { .bits = 2500, .turn = 2 },
		{ .error = 2000 }, { .error = 30000, .turn = 3 },
	};
	unsigned int i, k;

	(void)state;
	for (i = 0; i < sizeof(goals) / sizeof(*goals); i++) {
		struct bed b = { .ranks = 4,
				 .count = 400 * BLOCK,
				 .octaves = 6,
				 .goal = goals[i],
				 .feedback = i % 2,
				 .correlated = i < 4 };
		double told;

		open_bed(&b);
		bring(&b);
		for (k = 0; k < b.ranks; k++) {
			memcpy(b.x[k], b.x[0], bytes_of(&b));
			memset(b.error[k].now, 0, b.count * sizeof(float));
		}
		expect(&b);
		begin(&b);
		run(&b, UINT32_MAX);
		end(&b);
		told = b.client[0].stats.rate_lost / b.client[0].stats.rate_square;
		assert_true(fabs(measured(&b) / told - 1) < 0.05);
		if (goals[i].error)
			assert_true(fabs(told / (goals[i].error * 1e-6) - 1) < 0.05);
		finish(&b, 0);
		close_bed(&b);
	}
}

/* An aggregator with a rate, but without rows for any class, is refused. */
static void job__without_classes_is_refused(void **state)
{
	struct thc_spec spec = {
		.scheme = THC_SCHEME_THC, .ranks = 2, .rate = 6000, .bits = 7,
		.block_log2 = THC_RATE_BLOCK_LOG2,
	};
	unsigned int flags, i, at = thc_row_at(7);
	struct thc_table t;

	(void)state;
	assert_int_equal(choose(7, 2, 16, &t), 0);
	spec.tables.widths.sum[at] = 16;
	spec.tables.granularity[at] = (u16)t.granularity;
	memcpy(&spec.tables.clamp[at], &t.t, sizeof(t.t));
	for (i = 0; i < t.levels; i++)
		spec.tables.level[t.levels + i] = t.value[i];
	for (flags = 0; flags <= THC_CLIENT_ERROR_FEEDBACK; flags++) {
		struct thc_client c = { .spec = spec, .options.flags = flags };

		assert_null(thc_scheme_thc.check(&spec));
		assert_int_equal(thc_scheme_thc.open(&c), -EPROTO);
		thc_scheme_thc.close(&c);
		c.spec.rate = 0;
		assert_int_equal(thc_scheme_thc.open(&c), 0);
		thc_scheme_thc.close(&c);
		thc_buffer_free(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(results__are_those_of_the_codec),
		cmocka_unit_test(halves__of_all_types),
		cmocka_unit_test(large__buckets),
		cmocka_unit_test(late__chunks_go_back_to_the_memory),
		cmocka_unit_test(buckets__of_which_nothing_is_sent),
		cmocka_unit_test(failed__buckets_are_what_they_were),
		cmocka_unit_test(turns__are_agreed),
		cmocka_unit_test(errors__are_those_expected),
		cmocka_unit_test(job__without_classes_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
