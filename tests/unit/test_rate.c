// SPDX-License-Identifier: GPL-2.0
/*
 * How many bits blocks get, against properties that need no code of the library: logarithms of
 * whole numbers by powers, a goal that is met and not wasted, and no two blocks that could
 * exchange bits for a smaller error.
 */
#include "codec_util.h"
#include "randomword.h"
#include "rate.h"

enum { BLOCKS = 3000 };

/* A job of four ranks, with roughly its classes. */
static struct thc_rate job(bool skips)
{
	struct thc_rate rate = {
		.class = {
			{ 0, 0, THC_RATE_ONE, 0 },
			{ 1, 4, THC_RATE_ONE / 5, 0 }, { 2, 4, THC_RATE_ONE / 19, 0 },
			{ 3, 8, THC_RATE_ONE / 100, 0 }, { 4, 8, THC_RATE_ONE / 195, 0 },
			{ 5, 8, THC_RATE_ONE / 700, 0 }, { 6, 8, THC_RATE_ONE / 2400, 0 },
		},
	};

	unsigned int k;

	/* correlated rounding has a smaller error than the cost says, except for skipped blocks */
	for (k = 0; k < THC_RATE_CLASSES; k++)
		rate.class[k].error = k ? rate.class[k].cost / 3 : THC_RATE_ONE;
	thc_rate_init(&rate, skips);
	return rate;
}

/* --- logarithms --------------------------------------------------------------- */

#define LIMBS	28

/* A number to the base 2^32, least limb first. */
struct big {
	uint32_t limb[LIMBS];
};

static void square(struct big *b)
{
	struct big out = { { 0 } };
	unsigned int i, j;

	for (i = 0; i < LIMBS; i++) {
		uint64_t carry = 0;

		for (j = 0; i + j < LIMBS; j++) {
			carry += (uint64_t)b->limb[i] * b->limb[j] + out.limb[i + j];
			out.limb[i + j] = (uint32_t)carry;
			carry >>= 32;
		}
	}
	*b = out;
}

static unsigned int length_of(const struct big *b)
{
	unsigned int i = LIMBS;

	while (i && !b->limb[i - 1])
		i--;
	return i ? 32 * i - (unsigned int)__builtin_clz(b->limb[i - 1]) : 0;
}

/* floor(32 log2(m / 2^23)), of m below 2^24: m^32 has 32 log2(m), rounded down, and one, bits. */
static unsigned int step_of(uint32_t m)
{
	struct big power = { { m } };
	unsigned int i;

	for (i = 0; i < 5; i++)
		square(&power);
	return length_of(&power) - 1 - 32 * 23;
}

static float norm_with(int exponent, uint32_t m)
{
	return ldexpf((float)m, exponent - 23);
}

/* For all mantissas, steps rise by one where powers of whole numbers say so. */
static void exponents__are_whole_logarithms(void **state)
{
	int last = 0, now;
	uint32_t m;

	(void)state;
	for (m = 1 << 23; m < 1 << 24; m++) {
		now = thc_rate_exponent(norm_with(0, m));
		if (now == last)
			continue;
		assert_int_equal(now, last + 1);
		assert_int_equal(step_of(m), now);
		assert_int_equal(step_of(m - 1), last);
		last = now;
	}
	assert_int_equal(last, 31);
}

static void exponents__of_all_norms(void **state)
{
	int exponent;

	(void)state;
	for (exponent = -80; exponent < 112; exponent++) {
		assert_int_equal(thc_rate_exponent(norm_with(exponent, 1 << 23)), 32 * exponent);
		assert_int_equal(thc_rate_exponent(norm_with(exponent, (1 << 24) - 1)),
				 32 * exponent + 31);
	}
	assert_int_equal(thc_rate_exponent(THC_NORM_MAX), 32 * 112);
	assert_int_equal(thc_rate_exponent(0), INT16_MIN);
	assert_int_equal(thc_rate_exponent(nextafterf(THC_NORM_MIN, 0)), INT16_MIN);
	assert_int_equal(thc_rate_exponent(nextafterf(THC_NORM_MAX, INFINITY)), INT16_MIN);
	assert_int_equal(thc_rate_exponent(NAN), INT16_MIN);
	assert_int_equal(thc_rate_exponent(-1), INT16_MIN);
}

/* --- classes ------------------------------------------------------------------ */

static void classes__that_never_pay_are_left_out(void **state)
{
	struct thc_rate rate = job(true);
	unsigned int k;

	(void)state;
	assert_int_equal(rate.steps, 7);
	for (k = 1; k < rate.steps; k++)
		assert_true(k == 1 || rate.edge[k] > rate.edge[k - 1]);
	/* a class that costs as much as one of fewer bits is dropped */
	rate.class[3].cost = rate.class[2].cost;
	thc_rate_init(&rate, true);
	assert_int_equal(rate.steps, 6);
	/* a class above the line between its neighbours is dropped */
	rate.class[1].sum_width = 8;
	rate.class[1].cost = THC_RATE_ONE / 2;
	rate.class[2].sum_width = 8;
	rate.class[2].cost = THC_RATE_ONE / 4;
	rate.class[3].cost = THC_RATE_ONE / 64;
	thc_rate_init(&rate, true);
	assert_int_equal(rate.steps, 5);
	assert_int_equal(rate.step[1], 3);
	/* a row that sends more for less is never chosen */
	rate.class[4].sum_width = 16;
	thc_rate_init(&rate, true);
	assert_int_equal(rate.step[2], 5);
	/* the job does not have this row */
	rate.class[5].sum_width = 0;
	thc_rate_init(&rate, false);
	assert_int_equal(rate.step[0], 1);
	for (k = 0; k < rate.steps; k++)
		assert_int_not_equal(rate.step[k], 5);
}

/* --- choices ------------------------------------------------------------------ */

struct bed {
	struct thc_rate		rate;
	float			norm[BLOCKS];
	struct thc_rate_bins	bins;
	int16_t			exponent[BLOCKS];
	uint8_t			of[BLOCKS];
	struct thc_rate_choice	choice;
};

static double uniform(void)
{
	return (double)(random_word() >> 11) * 0x1p-53;
}

/* Norms @octaves apart, one in @zeros of which is zero. */
static void draw(struct bed *b, double octaves, unsigned int zeros)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		b->norm[i] = (float)exp2(octaves * (uniform() - 0.5));
		if (zeros && random_word() % zeros == 0)
			b->norm[i] = 0;
	}
}

static void decide(struct bed *b, uint32_t bits, uint32_t error, uint32_t turn)
{
	const struct thc_rate_goal goal = { .bits = bits, .error = error, .turn = turn };

	b->choice.of = b->of;
	thc_rate_choose(&b->rate, &goal, b->norm, BLOCKS, &b->bins, b->exponent, &b->choice);
}

static unsigned int bits_of(const struct bed *b, unsigned int block)
{
	const struct thc_rate_class *c = &b->rate.class[b->of[block]];

	return c->bits + c->sum_width;
}

/* The cost by which classes are compared. */
static double cost_of(const struct bed *b, unsigned int block, unsigned int k)
{
	double u = b->norm[block];

	return u * u * b->rate.class[k].cost / THC_RATE_ONE;
}

static uint64_t bits_of_all(const struct bed *b)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < BLOCKS; i++)
		sum += bits_of(b, i);
	return sum;
}

static double error_of_all(const struct bed *b)
{
	double lost = 0, all = 0;
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		all += (double)b->norm[i] * b->norm[i];
		lost += (double)b->norm[i] * b->norm[i] * b->rate.class[b->of[i]].error /
			THC_RATE_ONE;
	}
	return lost / all;
}

static double told_of(const struct thc_rate_choice *choice)
{
	return choice->lost / choice->square;
}

/* A choice's counts, bits and error are true. */
static void assert_told(const struct bed *b)
{
	uint32_t blocks[THC_RATE_CLASSES] = { 0 };
	unsigned int i;

	for (i = 0; i < BLOCKS; i++)
		blocks[b->of[i]]++;
	assert_memory_equal(blocks, b->choice.blocks, sizeof(blocks));
	assert_int_equal(b->choice.bits, bits_of_all(b));
	assert_true(fabs(told_of(&b->choice) / error_of_all(b) - 1) < 1e-9);
}

/* At the choice's price of a bit no class is better for a block than its own; except within the
 * precision of sixteenths, and for blocks that have to come back.
 */
static void assert_best(const struct bed *b, uint32_t turn)
{
	double price = exp2(b->choice.lambda / 16.0), slack = exp2(3 / 16.0);
	unsigned int i, k;

	for (i = 0; i < BLOCKS; i++) {
		double own = cost_of(b, i, b->of[i]) + price * bits_of(b, i);

		if (b->norm[i] == 0)
			assert_int_equal(b->of[i], 0);
		for (k = b->rate.step[0]; b->norm[i] > 0 && k < THC_RATE_CLASSES; k++) {
			const struct thc_rate_class *c = &b->rate.class[k];
			double other = cost_of(b, i, k) + price * (c->bits + c->sum_width);

			if ((k || (i + turn) % THC_RATE_ROUNDS) && own > other * slack)
				fail_msg("block %u of norm %g has class %u, not %u: %g, %g", i,
					 (double)b->norm[i], b->of[i], k, own, other);
		}
	}
}

static void rates__are_met_and_not_wasted(void **state)
{
	static const uint32_t rates[] = { 800, 2000, 3000, 4000, 6000, 8000, 12000 };
	static const double octaves[] = { 0, 1, 4, 12 };
	struct bed b = { .rate = job(true) };
	unsigned int i, k;

	(void)state;
	for (k = 0; k < sizeof(octaves) / sizeof(*octaves); k++) {
		draw(&b, octaves[k], k % 2 ? 9 : 0);
		for (i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
			uint64_t most = (uint64_t)rates[i] * BLOCKS / 1000;

			decide(&b, rates[i], 0, i);
			assert_told(&b);
			assert_best(&b, i);
			assert_true(b.choice.bits <= most);
			/* a step is at most five bits, and blocks of zeros need none */
			assert_true(b.choice.bits + 5 > most ||
				    b.choice.blocks[6] + b.choice.blocks[0] == BLOCKS);
		}
	}
}

static void rates__that_all_bits_do_not_reach(void **state)
{
	struct bed b = { .rate = job(true) };

	(void)state;
	draw(&b, 4, 0);
	decide(&b, 24000, 0, 0);
	assert_int_equal(b.choice.blocks[6], BLOCKS);
	/* blocks that have to come back take more bits than asked for */
	decide(&b, 250, 0, 0);
	assert_int_equal(b.choice.blocks[1], BLOCKS / THC_RATE_ROUNDS);
	assert_int_equal(b.choice.blocks[0] + b.choice.blocks[1], BLOCKS);
}

static void errors__are_met_and_not_wasted(void **state)
{
	static const uint32_t errors[] = { 300, 1000, 5170, 13300, 50000, 200000 };
	static const double octaves[] = { 0, 1, 4, 12 };
	struct bed b = { .rate = job(true) };
	unsigned int i, k;

	(void)state;
	for (k = 0; k < sizeof(octaves) / sizeof(*octaves); k++) {
		draw(&b, octaves[k], k % 2 ? 9 : 0);
		for (i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
			double goal = errors[i] * 1e-6;

			decide(&b, 0, errors[i], i);
			assert_told(&b);
			assert_best(&b, i);
			/* sixteenths are rounded down: on both sides alike, about */
			if (b.choice.blocks[6] + b.choice.blocks[0] != BLOCKS)
				assert_true(told_of(&b.choice) < goal * 1.04);
			if (!b.choice.blocks[6] || errors[i] > 10000)
				assert_true(told_of(&b.choice) > goal * 0.9);
		}
	}
}

/* --- blocks that are left out ---------------------------------------------------- */

static void skipped__blocks_come_back(void **state)
{
	struct bed b = { .rate = job(true) };
	uint8_t missed[BLOCKS] = { 0 };
	unsigned int turn, i, skipped = 0;

	(void)state;
	draw(&b, 20, 10);
	for (turn = 0; turn < 3 * THC_RATE_ROUNDS; turn++) {
		decide(&b, 1500, 0, turn);
		for (i = 0; i < BLOCKS; i++) {
			skipped += !b.of[i];
			missed[i] = b.of[i] ? 0 : missed[i] + 1;
			assert_true(b.norm[i] == 0 || missed[i] < THC_RATE_ROUNDS);
		}
	}
	assert_true(skipped > 10 * BLOCKS);
}

/* Without an error memory no block but those of zeros is left out, since it would be lost. */
static void nothing__is_left_out_without_a_memory(void **state)
{
	struct bed b = { .rate = job(false) };
	unsigned int i;

	(void)state;
	draw(&b, 20, 10);
	decide(&b, 2000, 0, 0);
	assert_best(&b, 0);
	for (i = 0; i < BLOCKS; i++)
		assert_true(!b.of[i] == (b.norm[i] == 0));
}

/* --- buckets that share a goal ------------------------------------------------- */

/* Two thirds and a third of the blocks, of which the norms of the first are @octaves larger. */
struct pair {
	struct thc_rate_bins	all;
	struct thc_rate_bins	bins[2];
	struct thc_rate_goal	goal[2];
	struct thc_rate_choice	choice[2];
	uint32_t		blocks[2];
};

static void share(const struct bed *b, struct pair *p, const struct thc_rate_goal *asked)
{
	struct thc_rate_bins room = { 0 };
	uint32_t first = 0, i, k;
	int16_t exponent[BLOCKS];
	uint8_t of[BLOCKS];

	thc_rate_empty(&p->all);
	for (k = 0; k < 2; first += p->blocks[k++]) {
		for (i = 0; i < p->blocks[k]; i++)
			exponent[i] = thc_rate_exponent(b->norm[first + i]);
		thc_rate_empty(&p->bins[k]);
		thc_rate_add(&p->bins[k], exponent, p->blocks[k], asked->turn);
		thc_rate_add(&p->all, exponent, p->blocks[k], asked->turn);
	}
	for (k = 0, first = 0; k < 2; first += p->blocks[k++]) {
		p->goal[k] = thc_rate_share(&b->rate, asked, &p->all, &p->bins[k]);
		p->choice[k].of = of;
		thc_rate_choose(&b->rate, &p->goal[k], b->norm + first, p->blocks[k], &room,
				exponent, &p->choice[k]);
	}
}

/* Norms within a bucket and between the buckets differ by @octaves. */
static void draw_pair(struct bed *b, struct pair *p, double octaves)
{
	uint32_t i;

	p->blocks[0] = BLOCKS / 3 * 2;
	p->blocks[1] = BLOCKS - p->blocks[0];
	draw(b, octaves, 11);
	for (i = 0; i < p->blocks[0]; i++)
		b->norm[i] *= (float)exp2(octaves);
}

/* Both choices have one lambda, if enough blocks show it. */
static void assert_one_lambda(const struct pair *p)
{
	unsigned int i, k, between[2] = { 0 };

	for (i = 0; i < 2; i++)
		for (k = 2; k < THC_RATE_CLASSES - 1; k++)
			between[i] += p->choice[i].blocks[k];
	if (between[0] > BLOCKS / 20 && between[1] > BLOCKS / 20)
		assert_in_range(p->choice[0].lambda - p->choice[1].lambda + 2, 0, 4);
}

/* Both buckets together take the bits asked for, and waste hardly any. */
static void shares__of_bits(void **state)
{
	static const uint32_t rates[] = { 800, 2000, 3000, 4000, 6000, 8000, 12000 };
	struct bed b = { .rate = job(true) };
	struct pair p = { .blocks = { 0 } };
	unsigned int i, octaves;

	(void)state;
	for (octaves = 0; octaves < 8; octaves += 2) {
		draw_pair(&b, &p, octaves);
		for (i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
			const struct thc_rate_goal asked = { .bits = rates[i], .turn = i };
			uint64_t most = (uint64_t)rates[i] * BLOCKS / 1000, bits;

			share(&b, &p, &asked);
			bits = p.choice[0].bits + p.choice[1].bits;
			assert_true(bits <= most);
			/* a goal is in thousandths of a bit, and a step of five */
			if (p.choice[0].blocks[6] + p.choice[0].blocks[0] != p.blocks[0])
				assert_true(bits + 10 + BLOCKS / 1000 >= most);
			assert_one_lambda(&p);
			assert_int_equal(p.goal[0].turn, i);
		}
	}
}

static void shares__of_an_error(void **state)
{
	static const uint32_t errors[] = { 1000, 5170, 13300, 50000, 200000 };
	struct bed b = { .rate = job(true) };
	struct pair p = { .blocks = { 0 } };
	unsigned int i, octaves;

	(void)state;
	for (octaves = 0; octaves < 8; octaves += 2) {
		draw_pair(&b, &p, octaves);
		for (i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
			const struct thc_rate_goal asked = { .error = errors[i], .turn = i };
			double lost, goal = errors[i] * 1e-6;

			share(&b, &p, &asked);
			lost = (p.choice[0].lost + p.choice[1].lost) /
			       (p.choice[0].square + p.choice[1].square);
			assert_true(lost < goal * 1.04 && lost > goal * 0.9);
			assert_one_lambda(&p);
		}
	}
}

/* Scaling all norms of a step changes no share, and equal buckets each get the whole goal. */
static void shares__know_no_scale(void **state)
{
	const struct thc_rate_goal asked = { .bits = 3000 }, error = { .error = 20000 };
	struct pair p = { .blocks = { 0 } }, q = p;
	struct bed b = { .rate = job(true) };
	unsigned int i;

	(void)state;
	draw_pair(&b, &p, 3);
	share(&b, &p, &asked);
	draw_pair(&b, &q, 0);
	share(&b, &q, &asked);
	assert_in_range(q.goal[0].bits, 2900, 3100);
	assert_in_range(q.goal[1].bits, 2900, 3100);
	/* a bucket that hardly counts gets next to nothing, by either goal */
	draw_pair(&b, &q, 60);
	share(&b, &q, &error);
	assert_int_equal(q.goal[1].error, 1000000);
	share(&b, &q, &asked);
	assert_in_range(q.goal[1].bits, 1, 5 * 1000 / THC_RATE_ROUNDS);
	draw_pair(&b, &q, 3);
	for (i = 0; i < BLOCKS; i++)
		b.norm[i] = 0;
	share(&b, &q, &asked);
	assert_int_equal(q.goal[0].bits, 1);
	draw_pair(&b, &p, 3);
	share(&b, &p, &asked);
	q = p;
	for (i = 0; i < BLOCKS; i++)
		b.norm[i] *= 8;
	share(&b, &p, &asked);
	for (i = 0; i < 2; i++) {
		assert_int_equal(p.goal[i].bits, q.goal[i].bits);
		assert_int_equal(p.goal[i].lambda, q.goal[i].lambda + 6 * 16);
	}
}

/* A bucket that hardly counted, and counts in this step, is not left out: it gets bits as the
 * others do, except for its discount, and no more than asked for.
 */
static void shares__of_what_has_risen(void **state)
{
	const struct thc_rate_goal asked[] = { { .bits = 6000 }, { .error = 5000 } };
	struct bed b = { .rate = job(true) };
	struct pair p = { .blocks = { 0 } };
	unsigned int i, k;

	(void)state;
	for (k = 0; k < 4; k++) {
		const struct thc_rate_goal *goal = &asked[k / 2];

		draw_pair(&b, &p, 0.5);
		for (i = p.blocks[0]; i < BLOCKS; i++)
			b.norm[i] *= k % 2 ? 0 : 0x1p-20f;
		share(&b, &p, goal);
		assert_true(goal->error || p.goal[1].bits < 1000);
		assert_true(goal->bits || p.goal[1].error > 500000 || k % 2);
		draw_pair(&b, &p, 0.5);
		b.choice.of = b.of;
		p.goal[1].turn = 1;
		thc_rate_choose(&b.rate, &p.goal[1], b.norm + p.blocks[0], p.blocks[1], &b.bins,
				b.exponent, &b.choice);
		assert_true(told_of(&b.choice) < 0.05);
		assert_true(b.choice.blocks[0] < p.blocks[1] / 3);
		assert_true(!goal->bits || b.choice.bits <= 6ULL * p.blocks[1]);
		assert_true(!goal->error || told_of(&b.choice) > 0.9 * 5000e-6);
		/* a bucket that has grown less than twofold gets its share */
		for (i = p.blocks[0]; i < BLOCKS; i++)
			b.norm[i] *= k % 2 ? 0 : 0x1.8p-20f;
		thc_rate_choose(&b.rate, &p.goal[1], b.norm + p.blocks[0], p.blocks[1], &b.bins,
				b.exponent, &b.choice);
		assert_true(k % 2 || told_of(&b.choice) > 0.5);
	}
}

/* Empty buckets, and buckets of one block. */
static void small__buckets(void **state)
{
	const struct thc_rate rate = job(true);
	const struct thc_rate_goal bits = { .bits = 5000, .turn = 1 };
	const struct thc_rate_goal error = { .error = 100000, .turn = 1 };
	const float zero[2] = { 0, 0 }, one = 1;
	struct thc_rate_bins bins = { 0 };
	struct thc_rate_choice choice;
	int16_t exponent[2];
	uint8_t of[2];

	(void)state;
	choice.of = of;
	thc_rate_choose(&rate, &bits, zero, 2, &bins, exponent, &choice);
	assert_int_equal(choice.blocks[0], 2);
	assert_int_equal(choice.bits, 0);
	assert_true(choice.square == 0 && choice.lost == 0);
	thc_rate_choose(&rate, &error, zero, 2, &bins, exponent, &choice);
	assert_int_equal(choice.blocks[0], 2);
	thc_rate_choose(&rate, &bits, &one, 1, &bins, exponent, &choice);
	assert_int_equal(of[0], 1);
	thc_rate_choose(&rate, &error, &one, 1, &bins, exponent, &choice);
	assert_int_equal(of[0], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exponents__are_whole_logarithms),
		cmocka_unit_test(exponents__of_all_norms),
		cmocka_unit_test(classes__that_never_pay_are_left_out),
		cmocka_unit_test(rates__are_met_and_not_wasted),
		cmocka_unit_test(rates__that_all_bits_do_not_reach),
		cmocka_unit_test(errors__are_met_and_not_wasted),
		cmocka_unit_test(skipped__blocks_come_back),
		cmocka_unit_test(nothing__is_left_out_without_a_memory),
		cmocka_unit_test(shares__of_bits),
		cmocka_unit_test(shares__of_an_error),
		cmocka_unit_test(shares__know_no_scale),
		cmocka_unit_test(shares__of_what_has_risen),
		cmocka_unit_test(small__buckets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
