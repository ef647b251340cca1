// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Every op, 1 to 8 contributors, in random order, with duplicates and with packets of past and
 * future generations in between, under each seal: lanes and answers of thc_xdp equal, bit for bit,
 * plain integers per coordinate (rig.h) and include/thc/aggregator/lane.h in user space. Then the
 * other ends of a generation: a new epoch, and thc_close.
 */
#include "rig.h"

#define N_MAX 8
#define GENERATIONS 5
#define LUT_BYTES 512 /* of a LUT_ADD into 8-bit sums */

struct op_case {
	const char *name;
	u8 op, width, sum_width, answer_width, linear, kind;
};

static const struct op_case op_cases[] = {
	{ "LUT_ADD 8", THC_OP_LUT_ADD, 4, 8, 8, 0, THC_LANE_LUT8 },
	{ "LUT_ADD linear", THC_OP_LUT_ADD, 4, 8, 8, 1, THC_LANE_LINEAR8 },
	{ "LUT_ADD 16", THC_OP_LUT_ADD, 4, 16, 16, 0, THC_LANE_LUT16 },
	{ "ADD 8", THC_OP_ADD, 8, 8, 8, 0, THC_LANE_ADD8 },
	{ "ADD 16", THC_OP_ADD, 16, 8, 16, 0, THC_LANE_ADD16 },
	{ "ADD 32", THC_OP_ADD, 32, 8, 32, 0, THC_LANE_ADD32 },
	{ "OR", THC_OP_OR, 32, 8, 32, 0, THC_LANE_OR },
	{ "MAX", THC_OP_MAX, 32, 8, 32, 0, THC_LANE_MAX },
	{ "CLAIM", THC_OP_CLAIM, 32, 8, 32, 0, THC_LANE_CLAIM },
};

static const u16 linear_table[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
/* Beyond 8 bits, as tables with 16-bit sums are. */
static const u16 wide_table[16] = { 0,	  100,	300,  555,  777,  901,	1200, 1500,
				    2100, 2900, 3500, 4096, 5000, 6000, 7000, 8191 };
static u16 made_table[THC_LEVELS_MAX];
static u8 data[GENERATIONS][N_MAX][1024];
static const u8 *by_rank[N_MAX];

/* What must have happened, counted beside the program. */
struct tally {
	u64 sent, added, waited, repeated, stale, busy, finished;
};

struct life {
	struct rig rig;
	struct thc_job *job;
	const struct op_case *c;
	struct tally t;
	u64 seed;
	int n;
	u32 slot;
	bool made;	/* the case's table is made_table */
};

static u32 life_send(struct life *l, int generation, int rank, u8 *out, size_t *out_len)
{
	struct rig_request r = {
		.op = l->c->op,
		.width = l->c->width,
		.rank = rank,
		.job = 2,
		.epoch = 1,
		.round = generation,
		.chunk = l->slot + 128 * generation,
		.slot = l->slot,
		.generation = generation,
	};
	size_t bytes = rig_payload(l->c->op, l->c->width, l->c->sum_width);

	l->t.sent++;
	return rig_send(&l->rig, &r, data[generation % GENERATIONS][rank], bytes, out, out_len);
}

static const u16 *life_table(const struct life *l)
{
	if (l->made)
		return made_table;
	return l->c->linear ? linear_table : l->c->sum_width == 16 ? wide_table : rig_table;
}

/* Bits of an index into the job's row, which is not looked at unless the op is LUT_ADD. */
static u8 row_bits(const struct op_case *c)
{
	return c->op == THC_OP_LUT_ADD ? c->width : 4;
}

/* The answer in @out has no lanes; it tells op and contributors. */
static void expect_told(const u8 *out, size_t len, u8 op, u8 flags, int rank, u64 bitmap)
{
	struct thc_hdr h;

	assert_int_equal(len, 14 + 20 + 8 + sizeof(h));
	memcpy(&h, out + 42, sizeof(h));
	assert_int_equal(h.op, op);
	assert_int_equal(h.flags, flags);
	assert_int_equal(thc_be16(h.rank), rank);
	assert_int_equal(thc_be64(h.bitmap), bitmap);
	assert_int_equal(thc_be16(h.count), __builtin_popcountll(bitmap));
	assert_true(rig_sealed(&h, NULL, 0));
}

/* The generation is finished: lanes, generation and answer header are right. */
static void expect_finished(struct life *l, int generation, const u8 *out)
{
	const struct thc_generation *g = &l->rig.slots[64 + l->slot].generation[generation & 1];
	const u64 *lanes = l->rig.lanes[64 + l->slot].word[generation & 1];
	u8 expected[1024];
	struct thc_pairs pairs;
	u64 core[THC_LANE_WORDS];
	struct thc_hdr h;
	int r;

	for (r = 0; r < l->n; r++)
		by_rank[r] = data[generation % GENERATIONS][r];
	rig_reference(expected, l->c->op, l->c->width, l->c->answer_width, life_table(l), by_rank,
		      l->n);
	if (memcmp(lanes, expected, sizeof(expected)))
		fail_msg("%s, n = %d: lanes differ from plain integers", l->c->name, l->n);
	thc_pairs_init(&pairs, life_table(l), row_bits(l->c));
	for (r = 0; r < l->n; r++)
		thc_lanes_add(l->c->kind, core, by_rank[r], &pairs, (u32)r, r == 0);
	if (memcmp(lanes, core, sizeof(core)))
		fail_msg("%s, n = %d: lanes differ from thc_lanes_add()", l->c->name, l->n);

	assert_int_equal(g->state, THC_FINISHED);
	assert_int_equal(g->count, l->n);
	assert_int_equal(g->bitmap, l->job->all);
	memcpy(&h, out + 42, sizeof(h));
	assert_int_equal(h.op, l->c->op);
	assert_int_equal(h.width, l->c->answer_width);
	assert_int_equal(h.flags & ~THC_F_REPEAT, THC_F_ANSWER);
	assert_int_equal(thc_be32(h.generation), generation);
	assert_int_equal(thc_be16(h.count), l->n);
	/* its seal covers lanes that are not in the frame yet */
	assert_true(rig_sealed(&h, expected, sizeof(expected)));
	expected[generation % 1024] ^= 1;
	assert_int_equal(rig_sealed(&h, expected, sizeof(expected)), rig_seal == THC_SEAL_NONE);
}

/* Sends a packet of a random kind that must not be added. */
static void disturb(struct life *l, int generation, u64 in)
{
	int rank = rig_draw(&l->seed) % l->n;
	u8 out[RIG_FRAME_MAX];
	size_t len;
	u32 action;

	switch (rig_draw(&l->seed) % 4) {
	case 0: /* a duplicate */
		if (!(in >> rank & 1))
			return;
		action = life_send(l, generation, rank, out, &len);
		assert_int_equal(action, XDP_REDIRECT);
		expect_told(out, len, THC_OP_WAIT, 0, rank, in);
		l->t.waited++;
		return;
	case 1: /* a rank that missed the last answer, if there is one */
		if (generation < 1)
			return;
		action = life_send(l, generation - 1, rank, out, &len);
		assert_int_equal(action, XDP_REDIRECT);
		assert_int_equal(((u8 *)out)[42 + 3] & THC_F_REPEAT, THC_F_REPEAT);
		expect_finished(l, generation - 1, out);
		l->t.repeated++;
		return;
	case 2: /* a straggler, too late: after the first packet of `generation` */
		if (generation < 2 || !in)
			return;
		action = life_send(l, generation - 2, rank, out, &len);
		assert_int_equal(action, XDP_REDIRECT);
		expect_told(out, len, THC_OP_STALE, THC_F_KNOWN, rank, l->job->all);
		l->t.stale++;
		return;
	default: /* a generation too early: the answer names the contributors of the slot, if any */
		action = life_send(l, generation + (in ? 1 : 2), rank, out, &len);
		l->t.busy++;
		assert_int_equal(action, in || generation ? XDP_REDIRECT : XDP_DROP);
		if (in || generation)
			expect_told(out, len, THC_OP_WAIT, THC_F_DIFFERS, rank,
				    in ? in : l->job->all);
	}
}

static void live(struct life *l)
{
	int generation, order[N_MAX], i, j, t, k;
	u8 out[RIG_FRAME_MAX];
	u64 in;

	for (generation = 0; generation < GENERATIONS; generation++) {
		for (i = 0; i < l->n; i++)
			order[i] = i;
		for (i = l->n - 1; i > 0; i--) {
			j = rig_draw(&l->seed) % (i + 1);
			t = order[i];
			order[i] = order[j];
			order[j] = t;
		}
		for (in = 0, i = 0; i < l->n; i++) {
			for (k = 0; k < 4; k++)
				disturb(l, generation, in);
			t = life_send(l, generation, order[i], out, NULL);
			assert_int_equal(t, i == l->n - 1 ? XDP_REDIRECT : XDP_DROP);
			in |= 1ULL << order[i];
			l->t.added++;
		}
		l->t.finished++;
		expect_finished(l, generation, out);
	}
}

static void check_tally(struct life *l)
{
	struct thc_stats st = rig_stats(&l->rig);

	rig_check_balance(&st);
	assert_int_equal(st.received, l->t.sent);
	assert_int_equal(st.event[THC_EVENT_ADDED], l->t.added);
	assert_int_equal(st.event[THC_EVENT_WAITED], l->t.waited);
	assert_int_equal(st.event[THC_EVENT_REPEATED], l->t.repeated);
	assert_int_equal(st.event[THC_EVENT_STALE], l->t.stale);
	assert_int_equal(st.event[THC_EVENT_FINISHED], l->t.finished);
	assert_int_equal(st.drop[THC_DROP_BUSY], l->t.busy);
	assert_int_equal(st.received,
			 l->t.added + l->t.waited + l->t.repeated + l->t.stale + l->t.busy);
}

/* Each number of ranks loads the programs anew, which takes an emulated machine seconds: there
 * THC_TEST_RANKS leaves out small numbers.
 */
static int fewest_ranks(void)
{
	const char *text = getenv("THC_TEST_RANKS");
	int fewest = text ? atoi(text) : 1;

	assert_in_range(fewest, 1, N_MAX);
	if (fewest > 1)
		printf("# from %d ranks on only\n", fewest);
	return fewest;
}

/* The job gets the case's table and flags. */
static void live_by(struct life *l, const struct op_case *c)
{
	l->c = c;
	l->job->flags = c->linear ? THC_JOB_F_LINEAR : 0;
	rig_row(&l->rig, 2, life_table(l), row_bits(c), c->sum_width);
}

static void ops__every_op_every_order(void **state)
{
	struct life l = { .seed = 20240 };
	int g, r;
	size_t c;

	(void)state;
	rig_need_root();
	for (l.n = fewest_ranks(); l.n <= N_MAX; l.n++) {
		l.job = rig_test(&l.rig, l.n);
		memset(&l.t, 0, sizeof(l.t));
		for (c = 0; c < sizeof(op_cases) / sizeof(op_cases[0]); c++) {
			for (g = 0; g < GENERATIONS; g++)
				for (r = 0; r < N_MAX; r++)
					rig_fill(&l.seed, data[g][r], sizeof(data[g][r]));
			l.slot = 3 * c;
			rig_seal = (l.n + c) % (THC_SEAL_NH + 1);
			rig_epoch(&l.rig, 2, 1);
			live_by(&l, &op_cases[c]);
			live(&l);
		}
		check_tally(&l);
		/* every kind of disturbance really occurred */
		assert_true(l.t.busy && (l.n == 1 || (l.t.waited && l.t.repeated && l.t.stale)));
		rig_close(&l.rig);
	}
	rig_seal = THC_SEAL_NH;
}

/* A case with indices of @bits bits and sums of @width bits; the table has the highest levels that
 * N_MAX ranks can add.
 */
static struct op_case case_of(struct life *l, u8 bits, u8 width)
{
	u64 most = ((1ULL << width) - 1) / N_MAX;
	struct op_case c = {
		.name = "LUT_ADD of any bits",
		.op = THC_OP_LUT_ADD,
		.width = bits,
		.sum_width = width,
		.answer_width = width,
		.kind = thc_lane_kind(THC_OP_LUT_ADD, bits,
				      (struct thc_row){ .bits = bits, .sum_width = width }),
	};
	int i;

	most = most < 65535 ? most : 65535;
	for (i = 0; i < 1 << bits; i++)
		made_table[i] = rig_draw(&l->seed) % (most + 1);
	made_table[rig_draw(&l->seed) % (1 << bits)] = most;
	return c;
}

/* The packet is dropped for @why, and counted so. */
static void expect_misfit(struct life *l, const struct rig_request *r, size_t bytes,
			  enum thc_drop_reason why)
{
	struct thc_stats before = rig_stats(&l->rig), now;

	assert_int_equal(rig_send(&l->rig, r, data[0][0], bytes, NULL, NULL), XDP_DROP);
	now = rig_stats(&l->rig);
	before.received++;
	before.drop[why]++;
	if (memcmp(&now, &before, sizeof(now)))
		fail_msg("%u bits, sums of %u: width %u with %zu bytes is not dropped for %d",
			 l->c->width, l->c->sum_width, r->width, bytes, why);
}

/* Requests whose width or length is not their job's are dropped. */
static void expect_misfits(struct life *l)
{
	size_t right = rig_payload(THC_OP_LUT_ADD, l->c->width, l->c->sum_width), bytes;
	struct rig_request r = {
		.op = THC_OP_LUT_ADD, .job = 2, .epoch = 1, .slot = l->slot,
		.generation = GENERATIONS, .chunk = l->slot + 128 * GENERATIONS,
	};

	for (r.width = 0; r.width <= 9; r.width++)
		if (r.width != l->c->width)
			expect_misfit(l, &r, right, THC_DROP_WIDTH);
	r.width = l->c->width;
	for (bytes = 32; bytes <= 1024; bytes += 32)
		if (bytes != right)
			expect_misfit(l, &r, bytes, THC_DROP_LENGTH);
	expect_misfit(l, &r, 0, THC_DROP_LENGTH);
	expect_misfit(l, &r, right - 8, THC_DROP_LENGTH);
	expect_misfit(l, &r, right + 8, THC_DROP_LENGTH);
}

/* 28 rows, every number of bits with sums of every width, each with as many ranks as it allows. */
static void ops__every_row_every_order(void **state)
{
	struct life l = { .seed = 20241, .n = N_MAX, .made = true };
	u8 bits, width;
	struct op_case c;
	int g, r, rows = 0;

	(void)state;
	rig_need_root();
	l.job = rig_test(&l.rig, l.n);
	for (width = 4; width <= 32; width *= 2) {
		for (bits = 1; bits <= 8 && bits <= width; bits++, rows++) {
			c = case_of(&l, bits, width);
			live_by(&l, &c);
			for (g = 0; g < GENERATIONS; g++)
				for (r = 0; r < N_MAX; r++)
					rig_fill(&l.seed, data[g][r], sizeof(data[g][r]));
			rig_seal = (rows + bits) % (THC_SEAL_NH + 1);
			rig_epoch(&l.rig, 2, 1);
			l.slot = 4 * rows;
			rig_stats_clear(&l.rig);
			memset(&l.t, 0, sizeof(l.t));
			live(&l);
			check_tally(&l);
			expect_misfits(&l);
		}
	}
	assert_int_equal(rows, 28);
	rig_close(&l.rig);
	rig_seal = THC_SEAL_NH;
}

/* Rank @rank contributes the indices of its data, or the lanes with their levels. */
static u32 send_either(struct life *l, u32 generation, u32 rank, bool lanes, u8 *out)
{
	struct rig_request r = {
		.op = lanes ? THC_OP_ADD : THC_OP_LUT_ADD,
		.width = lanes ? l->c->answer_width : l->c->width,
		.rank = rank, .job = 2, .epoch = 1, .slot = l->slot, .generation = generation,
		.chunk = l->slot + 128 * generation,
	};
	const u8 *indices = data[0][rank];
	u8 sums[1024];

	if (!lanes)
		return rig_send(&l->rig, &r, indices, rig_payload(r.op, r.width, l->c->sum_width),
				out, NULL);
	rig_reference(sums, THC_OP_LUT_ADD, l->c->width, l->c->answer_width, life_table(l),
		      &indices, 1);
	return rig_send(&l->rig, &r, sums, sizeof(sums), out, NULL);
}

/* Whichever ranks send lanes, the sums equal those of indices. */
static void ops__indices_and_sums_meet(void **state)
{
	struct life l = { .seed = 4711, .n = 4 };
	u32 c, mask, i, rank;
	u8 out[RIG_FRAME_MAX];
	u8 expected[1024];

	(void)state;
	rig_need_root();
	l.job = rig_test(&l.rig, l.n);
	for (i = 0; i < 4; i++) {
		rig_fill(&l.seed, data[0][i], sizeof(data[0][i]));
		by_rank[i] = data[0][i];
	}
	for (c = 0; op_cases[c].op == THC_OP_LUT_ADD; c++) {
		l.slot = c;
		live_by(&l, &op_cases[c]);
		rig_reference(expected, THC_OP_LUT_ADD, 4, l.c->answer_width, life_table(&l),
			      by_rank, l.n);
		for (mask = 0; mask < 1 << 4; mask++) {
			/* each rank comes first at some time */
			for (i = 0; i < 4; i++) {
				rank = (mask * 3 + i) % 4;
				assert_int_equal(send_either(&l, mask, rank, mask >> rank & 1, out),
						 i == 3 ? XDP_REDIRECT : XDP_DROP);
			}
			assert_memory_equal(l.rig.lanes[64 + c].word[mask & 1], expected,
					    sizeof(expected));
			rank = mask * 3 % 4;
			assert_int_equal(out[42 + offsetof(struct thc_hdr, op)],
					 mask >> rank & 1 ? THC_OP_ADD : THC_OP_LUT_ADD);
			assert_int_equal(out[42 + offsetof(struct thc_hdr, width)],
					 l.c->answer_width);
		}
	}
	assert_int_equal(c, 3);
	rig_close(&l.rig);
}

/* --- several rows ------------------------------------------------------------- */

/* Width of a row's sums, and its table, by the bits of an index. Some rows have equal widths. */
static const u8 sum_of_row[9] = { 0, 4, 4, 8, 8, 8, 16, 16, 32 };
static u16 row_table[9][THC_LEVELS_MAX];

/* The job has a row for each b. */
static void make_rows(struct life *l)
{
	u8 bits;
	int i;

	memset(&l->job->widths, 0, sizeof(l->job->widths));
	for (bits = 1; bits <= 8; bits++) {
		u64 most = ((1ULL << sum_of_row[bits]) - 1) / l->n;

		most = most < 65535 ? most : 65535;
		for (i = 0; i < 1 << bits; i++)
			row_table[bits][i] = rig_draw(&l->seed) % (most + 1);
		row_table[bits][rig_draw(&l->seed) % (1 << bits)] = most;
		rig_add_row(&l->rig, 2, row_table[bits], bits, sum_of_row[bits]);
	}
}

/* Rank @rank's indices by the row of @bits bits, or the lanes that they stand for. */
static u32 send_row(struct life *l, u8 bits, u32 generation, u32 rank, bool lanes, u8 *out,
		    size_t *len)
{
	struct rig_request r = {
		.op = lanes ? THC_OP_ADD : THC_OP_LUT_ADD,
		.width = lanes ? sum_of_row[bits] : bits,
		.rank = rank, .job = 2, .epoch = 1, .slot = l->slot, .generation = generation,
		.chunk = l->slot + 128 * generation,
	};
	const u8 *indices = data[0][rank];
	u8 sums[1024];

	if (!lanes)
		return rig_send(&l->rig, &r, indices, 1024 * bits / sum_of_row[bits], out, len);
	rig_reference(sums, THC_OP_LUT_ADD, bits, sum_of_row[bits], row_table[bits], &indices, 1);
	return rig_send(&l->rig, &r, sums, sizeof(sums), out, len);
}

/* Indices by another row are answered with the contributors, even if both rows' sums have one
 * width.
 */
static void send_strays(struct life *l, u8 bits, u32 generation, u32 rank, u64 in)
{
	struct thc_stats before = rig_stats(&l->rig), now;
	u8 out[RIG_FRAME_MAX], other;
	size_t len;

	for (other = 1; other <= 8; other++) {
		if (other == bits)
			continue;
		assert_int_equal(send_row(l, other, generation, rank, false, out, &len),
				 XDP_REDIRECT);
		expect_told(out, len, THC_OP_WAIT, THC_F_DIFFERS, (int)rank, in);
	}
	now = rig_stats(&l->rig);
	assert_int_equal(now.drop[THC_DROP_MISMATCH], before.drop[THC_DROP_MISMATCH] + 7);
}

/* A chunk by the row of @bits bits: some ranks, those of @mask, send lanes. */
static void add_chunk(struct life *l, u8 bits, u32 generation, u32 mask)
{
	u8 out[RIG_FRAME_MAX], expected[1024];
	bool fixed = false;
	u64 in = 0;
	int i;

	for (i = 0; i < l->n; i++) {
		u32 rank = (generation + (u32)i) % (u32)l->n;
		bool lanes = sum_of_row[bits] >= 8 && mask >> rank & 1;

		if (fixed)
			send_strays(l, bits, generation, rank, in);
		assert_int_equal(send_row(l, bits, generation, rank, lanes, out, NULL),
				 i == l->n - 1 ? XDP_REDIRECT : XDP_DROP);
		in |= 1ULL << rank;
		fixed |= !lanes;
		by_rank[i] = data[0][i];
	}
	rig_reference(expected, THC_OP_LUT_ADD, bits, sum_of_row[bits], row_table[bits], by_rank,
		      l->n);
	if (memcmp(l->rig.lanes[64 + l->slot].word[generation & 1], expected, sizeof(expected)))
		fail_msg("%u bits, lanes of %#x: sums differ from plain integers", bits, mask);
	assert_int_equal(out[42 + offsetof(struct thc_hdr, width)], sum_of_row[bits]);
}

/* Chunks of one slot use the rows in turn; each rank comes first with lanes, and with indices. */
static void ops__rows_of_one_job(void **state)
{
	struct life l = { .seed = 815, .n = 4 };
	u32 g, i;

	(void)state;
	rig_need_root();
	l.job = rig_test(&l.rig, l.n);
	make_rows(&l);
	for (i = 0; i < 4; i++)
		rig_fill(&l.seed, data[0][i], sizeof(data[0][i]));
	for (g = 0; g < 8 * 16; g++)
		add_chunk(&l, (u8)(1 + g * 3 % 8), g, g / 8);
	/* without its row a request is dropped */
	l.job->widths.sum[4] = 0;
	assert_int_equal(send_row(&l, 5, g, 0, false, NULL, NULL), XDP_DROP);
	assert_int_equal(rig_stats(&l.rig).drop[THC_DROP_WIDTH], 1);
	rig_close(&l.rig);
}

/* Generation numbers wrap around. */
static void ops__generations_wrap(void **state)
{
	struct life l = { .seed = 3, .n = 2, .c = &op_cases[0] };
	struct thc_slot *s;
	u8 out[RIG_FRAME_MAX];
	u32 g;

	(void)state;
	rig_need_root();
	l.job = rig_test(&l.rig, 2);
	s = &l.rig.slots[64];
	for (int i = 0; i < GENERATIONS; i++)
		for (int r = 0; r < 2; r++)
			rig_fill(&l.seed, data[i][r], sizeof(data[i][r]));
	s->epoch = 1;
	s->top = 0xfffffffc;
	s->generation[0].state = THC_FINISHED;
	s->generation[0].number = 0xfffffffc;
	for (g = 0xfffffffd; g != 3; g++) {
		struct rig_request r = {
			.op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1, .generation = g,
			.chunk = 128 * g,
		};

		for (r.rank = 0; r.rank < 2; r.rank++)
			assert_int_equal(rig_send(&l.rig, &r, data[0][r.rank], LUT_BYTES, out,
						  NULL),
					 r.rank ? XDP_REDIRECT : XDP_DROP);
		assert_int_equal(s->top, g);
		assert_int_equal(s->generation[g & 1].state, THC_FINISHED);
	}
	rig_close(&l.rig);
}

/* Answer @out to the frame @request of rank @r->rank names the epoch @epoch and who began it. */
static void expect_epoch(const u8 *out, size_t len, const u8 *request, const struct rig_request *r,
			 u16 restarter, u32 epoch, u64 joined)
{
	struct rig_frame f = rig_way(r, false);
	struct thc_end end = rig_end(&f);
	struct thc_hdr h, asked;

	assert_int_equal(len, 42 + sizeof(h));
	memcpy(&h, out + 42, sizeof(h));
	memcpy(&asked, request + 42, sizeof(asked));
	assert_int_equal(h.op, THC_OP_STALE);
	assert_int_equal(h.flags, THC_F_EPOCH);
	assert_int_equal(thc_be16(h.rank), restarter);
	assert_int_equal(thc_be32(h.epoch), epoch);
	assert_int_equal(thc_be64(h.bitmap), joined);
	assert_true(rig_ends(&h, &end, asked.tag));
}

/* A request's tag by @key, in network order. */
static __be64 tag_of(const struct thc_hdr *h, const struct thc_seal_key *key)
{
	return thc_be64(thc_seal_tag_of(THC_SEAL_NH, key, h, h + 1, LUT_BYTES / 8));
}

/* XDP keeps, per rank, SipHash's state after the headers' first words. A state of another key,
 * which has the same name once in 2^32, or of another epoch must not be used.
 */
static void seal__of_each_key_and_beginning(void **state)
{
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };
	u8 frame[RIG_FRAME_MAX];
	struct thc_hdr *h = (void *)(frame + 42);
	struct thc_seal_key *key;
	struct thc_stats st;
	struct rig rig;
	size_t len;
	int half;

	(void)state;
	rig_need_root();
	rig_test(&rig, 2);
	key = &rig.seals[2].up[1];
	len = rig_build(frame, &r, data[0][0], LUT_BYTES);
	/* no answer in between, which would begin differently: only the first of two ranks
	 * contributes
	 */
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL), XDP_DROP);
	for (half = 0; half < 2; half++) {
		r.slot++;
		r.chunk++;
		rig_build(frame, &r, data[0][0], LUT_BYTES);
		h->tag = tag_of(h, key);
		key->sip[half] ^= 1;
		assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL),
				 XDP_DROP);
		assert_int_equal(rig_stats(&rig).drop[THC_DROP_TAG], half + 1);
		h->tag = tag_of(h, key);
		assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL),
				 XDP_DROP);
	}
	h->epoch = thc_be32(3);
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL), XDP_DROP);

	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.drop[THC_DROP_TAG], 3);
	assert_int_equal(st.event[THC_EVENT_ADDED], 3);
	rig_close(&rig);
}

/* XDP uses a kept state, but neither uses nor replaces one that another packet is using. */
static void seal__of_a_beginning_that_is_taken(void **state)
{
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };
	static struct thc_seal_begun all[1024], now[1024];
	int cpus = libbpf_num_possible_cpus(), i, fd;
	u32 rank = 0, taken;
	struct rig rig;

	(void)state;
	rig_need_root();
	rig_test(&rig, 2);
	fd = bpf_map__fd(rig.skel->maps.begun);
	assert_in_range(cpus, 1, 1024);
	assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, NULL, NULL), XDP_DROP);
	assert_int_equal(bpf_map_lookup_elem(fd, &rank, all), 0);
	for (taken = 0; taken < 2; taken++) {
		for (i = 0; i < cpus; i++) {
			all[i].s.v[0] ^= !taken;
			all[i].taken = taken;
		}
		assert_int_equal(bpf_map_update_elem(fd, &rank, all, 0), 0);
		r.slot++;
		r.chunk++;
		assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, NULL, NULL), XDP_DROP);
		assert_int_equal(bpf_map_lookup_elem(fd, &rank, now), 0);
		assert_memory_equal(now, all, cpus * sizeof(*all));
		assert_int_equal(rig_stats(&rig).drop[THC_DROP_TAG], 1);
		assert_int_equal(rig_stats(&rig).event[THC_EVENT_ADDED], 1 + taken);
	}
	rig_close(&rig);
}

static void epoch__old_ones_are_told(void **state)
{
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };
	struct rig rig;
	u8 frame[RIG_FRAME_MAX], out[RIG_FRAME_MAX];
	struct thc_stats st;
	struct thc_job *job;
	size_t len, out_len;

	(void)state;
	rig_need_root();
	job = rig_test(&rig, 2);
	len = rig_build(frame, &r, data[0][0], LUT_BYTES);
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL), XDP_DROP);

	/* the old keys are kept for packets of the old epoch */
	rig_epoch(&rig, 2, 2);
	job->restarter = 1;
	job->joined = 2;
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, out, &out_len), XDP_REDIRECT);
	expect_epoch(out, out_len, frame, &r, 1, 2, 2);
	/* the new epoch's first packet clears the old contributions */
	assert_int_equal(rig.slots[64].generation[0].bitmap, 1);
	r.epoch = 2;
	r.rank = 1;
	assert_int_equal(rig_send(&rig, &r, data[0][1], LUT_BYTES, NULL, NULL), XDP_DROP);
	assert_int_equal(rig.slots[64].epoch, 2);
	assert_int_equal(rig.slots[64].generation[0].bitmap, 2);
	assert_int_equal(rig.slots[64].generation[0].count, 1);
	assert_int_equal(rig_send(&rig, &r, data[0][1], LUT_BYTES, out, &out_len), XDP_REDIRECT);
	expect_told(out, out_len, THC_OP_WAIT, 0, 1, 2);

	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_EPOCH], 1);
	assert_int_equal(st.event[THC_EVENT_ADDED], 2);
	rig_close(&rig);
}

/* After a restart the aggregator knows no rank, but it can tell older epochs from its own. */
static void epoch__before_the_aggregator_restarted_is_told(void **state)
{
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 8 };
	struct rig rig;
	u8 frame[RIG_FRAME_MAX], out[RIG_FRAME_MAX];
	struct thc_stats st;
	struct thc_job *job;
	size_t len, out_len;

	(void)state;
	rig_need_root();
	job = rig_test(&rig, 2);
	rig_epoch(&rig, 2, 9);
	job->joined = 0;
	memset(job->member, 0, sizeof(job->member));
	len = rig_build(frame, &r, data[0][0], LUT_BYTES);
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, out, &out_len), XDP_REDIRECT);
	expect_epoch(out, out_len, frame, &r, THC_WORKER_NONE, 9, 0);
	/* from the aggregator to the sender */
	assert_memory_equal(out, frame + 6, 6);
	assert_memory_equal(out + 30, frame + 26, 4);
	assert_memory_equal(out + 36, frame + 34, 2);

	/* packets of this epoch, of a later one, or of no rank are dropped */
	r.epoch = 9;
	assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, NULL, NULL), XDP_DROP);
	r.epoch = 10;
	assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, NULL, NULL), XDP_DROP);
	r.epoch = 8;
	r.rank = 2;
	assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, NULL, NULL), XDP_DROP);
	/* the key's name is by chance that of this epoch: the tag decides, and is wrong */
	frame[42 + offsetof(struct thc_hdr, epoch) + 3] = 8;
	memcpy(frame + 42 + offsetof(struct thc_hdr, key_id), &rig.seals[2].up[1].id, 4);
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL), XDP_DROP);

	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_EPOCH], 1);
	assert_int_equal(st.drop[THC_DROP_RANK], 3);
	assert_int_equal(st.drop[THC_DROP_TAG], 1);
	assert_int_equal(rig.slots[64].generation[0].bitmap, 0);
	rig_close(&rig);
}

static u32 run_close(struct rig *rig, u32 job, u32 slot, u32 generation)
{
	u8 frame[60] = { 0 };
	struct thc_close_request r = { .job = job, .slot = slot, .generation = generation };

	memcpy(frame, &r, sizeof(r));
	return rig_run(rig->skel->progs.thc_close, frame, sizeof(frame), NULL, NULL);
}

/* A CLOSE closes nothing if it does not name slot 5's open generation of job 2, or if the lock is
 * held.
 */
static void expect_no_close(struct rig *rig)
{
	assert_int_equal(run_close(rig, 2, 5, 1), XDP_DROP); /* another generation */
	assert_int_equal(run_close(rig, 2, 4, 0), XDP_DROP); /* another slot */
	assert_int_equal(run_close(rig, 2, 128, 0), XDP_DROP); /* outside the job */
	assert_int_equal(run_close(rig, 3, 5, 0), XDP_DROP); /* no such job */
	assert_int_equal(run_close(rig, 99, 5, 0), XDP_DROP);
	rig->slots[64 + 5].lock = 1;
	assert_int_equal(run_close(rig, 2, 5, 0), XDP_ABORTED);
	rig->slots[64 + 5].lock = 0;
}

/* Slot 5 of job 2 of 4 ranks is closed with two of them. */
static void check_close(void)
{
	struct rig_request r = {
		.op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1, .slot = 5, .chunk = 5
	};
	const u8 *in[2] = { data[0][1], data[0][3] };
	u8 out[RIG_FRAME_MAX], expected[1024];
	const struct thc_seal_key *down;
	struct thc_digest digest;
	struct thc_generation *g;
	struct thc_stats st;
	struct thc_job *job;
	struct thc_hdr h;
	struct rig rig;
	u64 seed = 9;
	int i;

	job = rig_test(&rig, 4);
	job->quorum = 2;
	g = &rig.slots[64 + 5].generation[0];
	for (i = 0; i < 4; i++)
		rig_fill(&seed, data[0][i], 1024);

	assert_int_equal(run_close(&rig, 2, 5, 0), XDP_DROP); /* nothing there */
	r.rank = 1;
	assert_int_equal(rig_send(&rig, &r, data[0][1], LUT_BYTES, NULL, NULL), XDP_DROP);
	assert_int_equal(run_close(&rig, 2, 5, 0), XDP_DROP); /* one of two */
	r.rank = 3;
	assert_int_equal(rig_send(&rig, &r, data[0][3], LUT_BYTES, NULL, NULL), XDP_DROP);

	expect_no_close(&rig);
	assert_int_equal(g->state, THC_OPEN);

	assert_int_equal(run_close(&rig, 2, 5, 0), XDP_TX);
	assert_int_equal(g->state, THC_CLOSED);
	assert_int_equal(rig.slots[64 + 5].lock, 0);
	rig_reference(expected, THC_OP_LUT_ADD, 4, 8, rig_table, in, 2);
	assert_memory_equal(rig.lanes[64 + 5].word[0], expected, sizeof(expected));
	down = thc_seals_down(rig_seals(2, 1), 1);
	digest = thc_seal_digest(rig_seal, down, expected, THC_LANE_WORDS);
	assert_memory_equal(&g->digest, &digest, sizeof(digest));
	assert_int_equal(run_close(&rig, 2, 5, 0), XDP_DROP); /* a second CLOSE does nothing */

	/* a rank that comes now gets the result, and sees that it is not in it */
	r.rank = 0;
	assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, out, NULL), XDP_REDIRECT);
	memcpy(&h, out + 42, sizeof(h));
	assert_int_equal(h.flags, THC_F_ANSWER | THC_F_REPEAT | THC_F_CLOSED);
	assert_int_equal(thc_be64(h.bitmap), 0xa);
	assert_int_equal(thc_be16(h.count), 2);
	assert_true(rig_sealed(&h, expected, sizeof(expected)));
	assert_memory_equal(rig.lanes[64 + 5].word[0], expected, sizeof(expected));

	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.received, 3); /* thc_close takes no packets */
	assert_int_equal(st.event[THC_EVENT_CLOSED], 1);
	assert_int_equal(st.event[THC_EVENT_FINISHED], 0);
	rig_close(&rig);
}

static void close__finishes_with_the_quorum(void **state)
{
	(void)state;
	rig_need_root();
	check_close();
}

static void close__without_a_key(void **state)
{
	(void)state;
	rig_need_root();
	rig_seal = THC_SEAL_SUM;
	check_close();
	rig_seal = THC_SEAL_NONE;
	check_close();
	rig_seal = THC_SEAL_NH;
}

/* CLOSE does not close a generation of the epoch before: its keys are not this epoch's. */
static void close__not_of_an_old_epoch(void **state)
{
	struct rig_request r = {
		.op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1, .slot = 5, .chunk = 5
	};
	struct thc_generation *g;
	struct thc_job *job;
	struct rig rig;

	(void)state;
	rig_need_root();
	job = rig_test(&rig, 2);
	job->quorum = 1;
	g = &rig.slots[64 + 5].generation[0];
	assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, NULL, NULL), XDP_DROP);
	rig_epoch(&rig, 2, 2);
	assert_int_equal(run_close(&rig, 2, 5, 0), XDP_DROP);
	assert_int_equal(g->state, THC_OPEN);
	r.epoch = 2;
	assert_int_equal(rig_send(&rig, &r, data[0][0], LUT_BYTES, NULL, NULL), XDP_DROP);
	assert_int_equal(run_close(&rig, 2, 5, 0), XDP_TX);
	rig_close(&rig);
}

/* The daemon does not empty the ring: answers are lost and counted, packets are not. Answers
 * without lanes, which anybody can cause, leave half of the ring to sums.
 */
static void relay__full_ring_is_counted(void **state)
{
	struct thc_config config = { .addr4 = rig_addr(false, 0),
				     .port_base = RIG_PORT,
				     .relay = 1 };
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };
	u8 frame[RIG_FRAME_MAX];
	u32 i, k, room, half, bytes;
	struct thc_stats st;
	struct thc_job *job;
	struct rig rig;
	size_t len;

	(void)state;
	rig_need_root();
	rig_open(&rig, &config);
	job = rig_job(&rig, 2, 2, 64, 128);
	for (k = 0; k < 2; k++)
		rig_member(job, (int)k, rig_addr(false, 10 + (int)k), (u16)(RIG_CLIENT_PORT + k));
	/* an entry has a header of 8 bytes */
	bytes = sizeof(struct thc_relay) + 8;
	room = bpf_map__max_entries(rig.skel->maps.relay) / bytes;
	half = bpf_map__max_entries(rig.skel->maps.relay) / 2 / bytes + 1;
	len = rig_build(frame, &r, data[0][0], LUT_BYTES);
	for (i = 0; i < half + 10; i++) /* the first one is added, the others get WAIT */
		assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL),
				 XDP_DROP);
	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_ADDED], 1);
	assert_int_equal(st.event[THC_EVENT_WAITED], half + 9);
	assert_int_equal(st.event[THC_EVENT_RELAYED], half);
	assert_int_equal(st.event[THC_EVENT_LOST], 9);
	/* the sum, and repeated requests for it */
	r.rank = 1;
	len = rig_build(frame, &r, data[0][1], LUT_BYTES);
	for (i = 0; i < room - half + 10; i++)
		assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL),
				 XDP_DROP);
	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_FINISHED], 1);
	assert_int_equal(st.event[THC_EVENT_REPEATED], room - half + 9);
	assert_int_equal(st.event[THC_EVENT_RELAYED], room);
	assert_int_equal(st.event[THC_EVENT_LOST], 9 + 10);
	rig_close(&rig);
}

/* Claims of 64 workers, each with all 128 words of a packet filled: CLAIM keeps the words of ranks
 * below 32, CLAIM_HIGH those of the other ranks.
 */
static void claim__of_its_worker(void **state)
{
	static const u8 op[2] = { THC_OP_CLAIM, THC_OP_CLAIM_HIGH };
	struct rig_request r = { .width = 32, .job = 2, .epoch = 1 };
	static u64 payload[64][THC_LANE_WORDS];
	u64 seed = 11, want;
	struct rig rig;
	u32 high, v;

	(void)state;
	rig_need_root();
	rig_test(&rig, 64);
	for (r.rank = 0; r.rank < 64; r.rank++)
		for (v = 0; v < THC_LANE_WORDS; v++)
			payload[r.rank][v] = rig_draw(&seed);
	for (high = 0; high < 2; high++) {
		r.op = op[high];
		r.slot = r.chunk = high;
		for (r.rank = 0; r.rank < 64; r.rank++)
			rig_send(&rig, &r, payload[63 - r.rank], 1024, NULL, NULL);
		assert_int_equal(rig.slots[64 + high].generation[0].state, THC_FINISHED);
		for (v = 0; v < THC_LANE_WORDS; v++) {
			want = payload[63 - 32 * high - v / 4][v];
			if (rig.lanes[64 + high].word[0][v] != want)
				fail_msg("op %u: word %u is not that of its worker", r.op, v);
		}
	}
	rig_close(&rig);
}

/* The verifier of any kernel looks at no more instructions than this, and refuses a program that
 * needs more.
 */
#define VERIFIER_LIMIT 1000000

static void verifier_has_room(const struct bpf_program *p)
{
	struct bpf_prog_info info = { 0 };
	u32 len = sizeof(info);

	assert_int_equal(bpf_obj_get_info_by_fd(bpf_program__fd(p), &info, &len), 0);
	assert_true(info.verified_insns > 100);
	if (info.verified_insns > VERIFIER_LIMIT / 2)
		fail_msg("%u instructions of %s: more than half of what the verifier takes",
			 info.verified_insns, bpf_program__name(p));
}

/* Kernels and compilers differ by a factor of two. */
static void load__verifier_has_room(void **state)
{
	struct thc_config config = { .port_base = RIG_PORT };
	struct rig rig;
	int relay;

	(void)state;
	rig_need_root();
	for (relay = 0; relay < 2; relay++) {
		config.relay = relay;
		config.addr4 = rig_addr(false, 1);
		rig_open(&rig, &config);
		verifier_has_room(rig.skel->progs.thc_xdp);
		verifier_has_room(rig.skel->progs.thc_close);
		verifier_has_room(rig.skel->progs.thc_egress);
		rig_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(claim__of_its_worker),
		cmocka_unit_test(load__verifier_has_room),
		cmocka_unit_test(ops__every_op_every_order),
		cmocka_unit_test(ops__every_row_every_order),
		cmocka_unit_test(ops__indices_and_sums_meet),
		cmocka_unit_test(ops__rows_of_one_job),
		cmocka_unit_test(ops__generations_wrap),
		cmocka_unit_test(seal__of_each_key_and_beginning),
		cmocka_unit_test(seal__of_a_beginning_that_is_taken),
		cmocka_unit_test(epoch__old_ones_are_told),
		cmocka_unit_test(epoch__before_the_aggregator_restarted_is_told),
		cmocka_unit_test(close__finishes_with_the_quorum),
		cmocka_unit_test(close__without_a_key),
		cmocka_unit_test(close__not_of_an_old_epoch),
		cmocka_unit_test(relay__full_ring_is_counted),
	};

	cmocka_set_test_filter(getenv("THC_TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
