// SPDX-License-Identifier: GPL-2.0
/*
 * The slot state machine row by row: every cell of the table in
 * include/thc/aggregator/slot.h, the wrap of serial arithmetic, what must agree between
 * contributions, what is remembered and what CLOSE refuses.
 * test_slot_states.c explores what workers can bring about; here is also what
 * they cannot.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/answer.h>

#define EPOCH	7
#define ALL	7ULL

static struct thc_arrival from(u8 rank, u32 generation)
{
	return (struct thc_arrival){
		.epoch = EPOCH, .generation = generation, .round = 100 + generation,
		.chunk = 200 + generation, .rank = rank, .op = THC_OP_ADD, .width = 8,
	};
}

static struct thc_outcome arrive(struct thc_slot *s, u8 rank, u32 generation)
{
	struct thc_arrival a = from(rank, generation);

	return thc_slot_arrive(s, &a, ALL);
}

static void expect(struct thc_slot *s, u8 rank, u32 generation, enum thc_verdict verdict)
{
	assert_int_equal(arrive(s, rank, generation).verdict, verdict);
}

static void fill(struct thc_slot *s, u32 generation)
{
	u8 rank;

	for (rank = 0; rank < 3; rank++)
		expect(s, rank, generation, THC_ADD);
}

/* A slot whose newest generation, @top, is finished. */
static struct thc_slot slot_at(u32 top)
{
	struct thc_slot s = { .epoch = EPOCH, .top = top - 2 };

	fill(&s, top - 1);
	fill(&s, top);
	return s;
}

static void slot__first_of_three_opens_and_third_finishes(void **state)
{
	struct thc_slot s = { 0 };
	struct thc_outcome o;

	(void)state;
	o = arrive(&s, 1, 0);
	assert_int_equal(o.verdict, THC_ADD);
	assert_true(o.first && !o.complete && o.odd == 0);
	o = arrive(&s, 0, 0);
	assert_true(o.verdict == THC_ADD && !o.first && !o.complete);
	o = arrive(&s, 2, 0);
	assert_true(o.verdict == THC_ADD && !o.first && o.complete);
	assert_int_equal(s.generation[0].state, THC_FINISHED);
	assert_int_equal(s.generation[0].bitmap, ALL);
	assert_int_equal(s.generation[0].count, 3);
	o = arrive(&s, 0, 1);
	assert_true(o.verdict == THC_ADD && o.first && o.odd == 1);
	assert_int_equal(s.generation[0].state, THC_FINISHED);
}

static void table(u32 top)
{
	struct thc_slot s;

	/* top FINISHED */
	s = slot_at(top);
	expect(&s, 0, top, THC_REPEAT);
	expect(&s, 0, top - 1, THC_REPEAT);
	expect(&s, 0, top - 2, THC_STALE);
	expect(&s, 0, top - 3, THC_STALE);
	expect(&s, 0, top - 0x7fffffff, THC_STALE);
	expect(&s, 0, top + 2, THC_BUSY);
	expect(&s, 0, top + 0x7fffffff, THC_BUSY);
	expect(&s, 0, top + 1, THC_ADD);
	/* top OPEN, holding rank 0 */
	top++;
	assert_int_equal(s.top, top);
	expect(&s, 0, top, THC_WAIT);
	expect(&s, 1, top, THC_ADD);
	expect(&s, 1, top, THC_WAIT);
	expect(&s, 0, top - 1, THC_REPEAT);
	expect(&s, 0, top - 2, THC_STALE);
	expect(&s, 0, top + 1, THC_BUSY);
	expect(&s, 2, top + 1, THC_BUSY);
	expect(&s, 0, top + 2, THC_BUSY);
	assert_int_equal(s.generation[top & 1].count, 2);
	expect(&s, 2, top, THC_ADD);
	/* a generation closed by its deadline counts as finished */
	expect(&s, 0, top + 1, THC_ADD);
	assert_true(thc_slot_close(&s, EPOCH, top + 1, 1));
	expect(&s, 1, top + 1, THC_REPEAT);
	expect(&s, 1, top + 2, THC_ADD);
	expect(&s, 1, top, THC_STALE);
}

static void slot__table_of_verdicts(void **state)
{
	(void)state;
	table(5);
}

static void slot__serial_arithmetic_wraps(void **state)
{
	u32 top;

	(void)state;
	for (top = 0x7ffffffa; top != 0x80000006; top++)
		table(top);
	for (top = 0xfffffffa; top != 6; top++)
		table(top);
}

static void slot__never_used_has_no_past(void **state)
{
	struct thc_slot s = { 0 };

	(void)state;
	expect(&s, 0, 1, THC_BUSY);
	expect(&s, 0, 0xffffffff, THC_STALE);
	expect(&s, 0, 0xfffffffe, THC_STALE);
	assert_int_equal(s.generation[0].state, THC_EMPTY);
	assert_int_equal(s.generation[1].state, THC_EMPTY);
	expect(&s, 0, 0, THC_ADD);
	/* generation -1 would be the odd one, and there is none */
	expect(&s, 0, 0xffffffff, THC_STALE);
}

static void slot__disagreement_is_a_mismatch_and_changes_nothing(void **state)
{
	struct thc_slot s = { 0 }, before;
	struct thc_arrival a;
	int i;

	(void)state;
	expect(&s, 0, 0, THC_ADD);
	before = s;
	for (i = 0; i < 4; i++) {
		a = from(1, 0);
		a.round += i == 0;
		a.chunk += i == 1;
		a.op = i == 2 ? THC_OP_OR : a.op;
		a.width = i == 3 ? 16 : a.width;
		assert_int_equal(thc_slot_arrive(&s, &a, ALL).verdict, THC_MISMATCH);
		assert_memory_equal(&s, &before, sizeof(s));
	}
	expect(&s, 1, 0, THC_ADD);
}

/* Sums of indices and of lanes meet. Claims are maxima, but meet no other op. */
static void slot__ops_meet(void **state)
{
	static const struct {
		u8 op;
		char kind;
	} of[] = {
		{ THC_OP_LUT_ADD, '+' }, { THC_OP_ADD, '+' }, { THC_OP_OR, '|' },
		{ THC_OP_MAX, '>' }, { THC_OP_CLAIM, 'l' }, { THC_OP_CLAIM_HIGH, 'h' },
	};
	unsigned int i, k;

	(void)state;
	for (i = 0; i < 6; i++) {
		for (k = 0; k < 6; k++) {
			struct thc_slot s = { 0 };
			struct thc_arrival a = from(0, 0), b = from(1, 0);

			a.width = b.width = 32;
			a.op = of[i].op;
			b.op = of[k].op;
			assert_int_equal(thc_slot_arrive(&s, &a, ALL).verdict, THC_ADD);
			assert_int_equal(thc_slot_arrive(&s, &b, ALL).verdict,
					 of[i].kind == of[k].kind ? THC_ADD : THC_MISMATCH);
			assert_int_equal(s.generation[0].op, of[i].op);
		}
	}
}

/* All sums that meet have one width, and a duplicate is told as usual. */
static void slot__sums_that_meet_are_of_one_width(void **state)
{
	struct thc_slot s = { 0 };
	struct thc_arrival indices = from(0, 0), sums = from(1, 0);

	(void)state;
	indices.op = THC_OP_LUT_ADD;
	sums.op = THC_OP_ADD;
	assert_int_equal(thc_slot_arrive(&s, &indices, 3).verdict, THC_ADD);
	sums.width *= 2;
	assert_int_equal(thc_slot_arrive(&s, &sums, 3).verdict, THC_MISMATCH);
	sums.width /= 2;
	indices.op = THC_OP_ADD;
	assert_int_equal(thc_slot_arrive(&s, &indices, 3).verdict, THC_WAIT);
	assert_true(thc_slot_arrive(&s, &sums, 3).complete);
	assert_int_equal(thc_slot_arrive(&s, &sums, 3).verdict, THC_REPEAT);
	assert_int_equal(s.generation[0].op, THC_OP_LUT_ADD);
	assert_int_equal(s.generation[0].count, 2);
}

/* The first indices fix the row, even if lanes came first; lanes fit any row. The next generation
 * may have another row.
 */
static void slot__indices_that_meet_are_of_one_row(void **state)
{
	struct thc_slot s = { 0 };
	struct thc_arrival three = from(0, 0), four = from(1, 0), lanes = from(2, 0);
	u32 g;

	(void)state;
	three.op = four.op = THC_OP_LUT_ADD;
	three.row = 3;
	four.row = 4;
	for (g = 0; g < 6; g++) {
		three.generation = four.generation = lanes.generation = g;
		/* lanes come first, in between, or last */
		if (g % 3 == 0)
			assert_int_equal(thc_slot_arrive(&s, &lanes, ALL).verdict, THC_ADD);
		assert_int_equal(thc_slot_arrive(&s, &three, ALL).verdict, THC_ADD);
		assert_int_equal(thc_slot_arrive(&s, &four, ALL).verdict, THC_MISMATCH);
		if (g % 3 == 1)
			assert_int_equal(thc_slot_arrive(&s, &lanes, ALL).verdict, THC_ADD);
		assert_int_equal(s.generation[g & 1].row, three.row);
		four.row = three.row;
		assert_int_equal(thc_slot_arrive(&s, &four, ALL).verdict, THC_ADD);
		assert_int_equal(thc_slot_arrive(&s, &lanes, ALL).verdict,
				 g % 3 == 2 ? THC_ADD : THC_REPEAT);
		assert_int_equal(s.generation[g & 1].count, 3);
		/* also once the generation is finished */
		four.row++;
		assert_int_equal(thc_slot_arrive(&s, &four, ALL).verdict, THC_MISMATCH);
		assert_int_equal(thc_slot_arrive(&s, &three, ALL).verdict, THC_REPEAT);
		three.row ^= 7;
		four.row = three.row ^ 7;
	}
}

static void slot__a_new_epoch_empties_and_an_old_one_does_not(void **state)
{
	struct thc_slot s = slot_at(9), before;
	struct thc_arrival a = from(0, 0);
	int i;

	(void)state;
	expect(&s, 0, 10, THC_ADD);
	before = s;
	a.epoch = EPOCH - 1;
	assert_int_equal(thc_slot_arrive(&s, &a, ALL).verdict, THC_MISMATCH);
	assert_memory_equal(&s, &before, sizeof(s));
	a.epoch = EPOCH + 1;
	assert_int_equal(thc_slot_arrive(&s, &a, ALL).verdict, THC_ADD);
	assert_int_equal(s.epoch, EPOCH + 1);
	assert_int_equal(s.generation[0].bitmap, 1);
	assert_int_equal(s.generation[1].state, THC_EMPTY);
	for (i = 0; i < THC_PASTS; i++)
		assert_false(s.past[i].known);
	/* epochs are serial numbers too */
	s.epoch = 0xffffffff;
	a.epoch = 3;
	assert_int_equal(thc_slot_arrive(&s, &a, ALL).verdict, THC_ADD);
	assert_int_equal(s.epoch, 3);
}

static void slot__past_is_remembered(void **state)
{
	struct thc_slot s = { 0 };
	u32 g, k;

	(void)state;
	for (g = 0; g < 20; g++) {
		/* every generation has other contributors */
		expect(&s, g % 3, g, THC_ADD);
		if (g & 1)
			expect(&s, (g + 1) % 3, g, THC_ADD);
		assert_true(thc_slot_close(&s, EPOCH, g, 1));
		for (k = 0; k <= g; k++) {
			const struct thc_past *p = thc_slot_past(&s, k);
			int known = thc_past_known(p, k);

			assert_int_equal(known, k + 2 <= g && k + 2 + THC_PASTS > g);
			if (!known)
				continue;
			assert_int_equal(p->count, k & 1 ? 2 : 1);
			assert_int_equal(p->bitmap, 1U << k % 3 | (k & 1 ? 1U << (k + 1) % 3 : 0));
		}
	}
}

static void slot__close_wants_epoch_generation_and_quorum(void **state)
{
	struct thc_slot s = { 0 };

	(void)state;
	assert_false(thc_slot_close(&s, EPOCH, 0, 0));
	expect(&s, 0, 0, THC_ADD);
	expect(&s, 1, 0, THC_ADD);
	assert_false(thc_slot_close(&s, EPOCH + 1, 0, 1));
	assert_false(thc_slot_close(&s, EPOCH - 1, 0, 1));
	assert_false(thc_slot_close(&s, EPOCH, 2, 1));
	assert_false(thc_slot_close(&s, EPOCH, 1, 1));
	assert_false(thc_slot_close(&s, EPOCH, 0, 3));
	assert_int_equal(s.generation[0].state, THC_OPEN);
	assert_true(thc_slot_close(&s, EPOCH, 0, 2));
	assert_int_equal(s.generation[0].state, THC_CLOSED);
	assert_false(thc_slot_close(&s, EPOCH, 0, 2));
	expect(&s, 2, 0, THC_REPEAT);
	assert_int_equal(s.generation[0].bitmap, 3);
	fill(&s, 1);
	assert_false(thc_slot_close(&s, EPOCH, 1, 1));
}

static void slot__congestion_seen_once_stays(void **state)
{
	struct thc_slot s = { 0 };
	struct thc_arrival a = from(0, 0);

	(void)state;
	a.ce = 1;
	assert_int_equal(thc_slot_arrive(&s, &a, ALL).verdict, THC_ADD);
	expect(&s, 1, 0, THC_ADD);
	expect(&s, 2, 0, THC_ADD);
	assert_int_equal(s.generation[0].ce, 1);
	fill(&s, 1);
	fill(&s, 2);
	assert_int_equal(s.generation[0].ce, 0);
}

static void slot__sixty_four_ranks(void **state)
{
	struct thc_slot s = { 0 };
	struct thc_outcome o;
	u8 rank;

	(void)state;
	for (rank = 0; rank < THC_RANKS_MAX; rank++) {
		struct thc_arrival a = from(rank, 0);

		o = thc_slot_arrive(&s, &a, ~0ULL);
		assert_int_equal(o.verdict, THC_ADD);
		assert_int_equal(o.complete, rank == THC_RANKS_MAX - 1);
	}
	assert_int_equal(s.generation[0].count, THC_RANKS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slot__first_of_three_opens_and_third_finishes),
		cmocka_unit_test(slot__table_of_verdicts),
		cmocka_unit_test(slot__serial_arithmetic_wraps),
		cmocka_unit_test(slot__never_used_has_no_past),
		cmocka_unit_test(slot__disagreement_is_a_mismatch_and_changes_nothing),
		cmocka_unit_test(slot__ops_meet),
		cmocka_unit_test(slot__sums_that_meet_are_of_one_width),
		cmocka_unit_test(slot__indices_that_meet_are_of_one_row),
		cmocka_unit_test(slot__a_new_epoch_empties_and_an_old_one_does_not),
		cmocka_unit_test(slot__past_is_remembered),
		cmocka_unit_test(slot__close_wants_epoch_generation_and_quorum),
		cmocka_unit_test(slot__congestion_seen_once_stays),
		cmocka_unit_test(slot__sixty_four_ranks),
	};

	return cmocka_run_group_tests_name("slot", tests, NULL, NULL);
}
