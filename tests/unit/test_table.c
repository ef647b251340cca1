// SPDX-License-Identifier: GPL-2.0
/*
 * The table solver against published tables and costs, against brute force, and its closed forms
 * against numbers computed by other means. test_codec_nmse.c tests that the codec has these
 * errors.
 */
#include "codec_util.h"
#include "table.h"

struct row {
	unsigned int bits;
	unsigned int g;
	double p;
	double cost;
	uint16_t value[16];
};

/* clang-format off */

/* Optimal tables (values and costs) as published or worked out by other means. */
static const struct row optimal[] = {
	{ 4, 30, 1.0 / 32, .0130625,
	  { 0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30 } },
	{ 4, 30, 1.0 / 512, .0229056,
	  { 0, 4, 7, 9, 11, 12, 13, 14, 15, 16, 17, 19, 21, 23, 26, 30 } },
	{ 4, 34, 1.0 / 32, .0121253,
	  { 0, 3, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 31, 34 } },
	{ 4, 31, 1.0 / 32, .0127516,
	  { 0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31 } },
	{ 3, 16, 1.0 / 32, .0554679, { 0, 3, 5, 7, 9, 11, 13, 16 } },
	{ 3, 16, 1.0 / 1024, .1149526, { 0, 4, 6, 7, 8, 10, 12, 16 } },
	{ 2, 34, 1.0 / 1024, .6243084, { 0, 13, 21, 34 } },
};

/* Tables of the published prototype, which are good but not all optimal. */
static const struct row published[] = {
	{ 4, 30, 1.0 / 32, .0130746,
	  { 0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30 } },
	{ 4, 30, 1.0 / 512, .0235126,
	  { 0, 4, 7, 9, 11, 12, 13, 14, 16, 17, 18, 19, 21, 23, 26, 30 } },
	{ 4, 34, 1.0 / 32, .0121253,
	  { 0, 3, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 31, 34 } },
	{ 3, 16, 1.0 / 32, .0554679, { 0, 3, 5, 7, 9, 11, 13, 16 } },
	{ 3, 16, 1.0 / 1024, .1171355, { 0, 4, 6, 7, 9, 10, 12, 16 } },
	{ 2, 34, 1.0 / 1024, .6243084, { 0, 13, 21, 34 } },
};

/* clang-format on */

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void assert_near(double got, double want, double tolerance)
{
	if (!(fabs(got - want) <= tolerance))
		fail_msg("%.12g is not %.12g within %g", got, want, tolerance);
}

static void solve__known_optima(void **state)
{
	struct thc_table t;
	unsigned int i, z;

	(void)state;
	for (i = 0; i < COUNT(optimal); i++) {
		const struct row *r = &optimal[i];

		solve(r->bits, r->g, r->p, &t);
		assert_int_equal(t.levels, 1U << r->bits);
		assert_int_equal(t.granularity, r->g);
		for (z = 0; z < t.levels; z++)
			assert_int_equal(t.value[z], r->value[z]);
		assert_near(t.cost, r->cost, 1.1e-7);
	}
}

static void from_values__published_costs(void **state)
{
	struct thc_table t, best;
	unsigned int i;

	(void)state;
	for (i = 0; i < COUNT(published); i++) {
		const struct row *r = &published[i];

		assert_int_equal(thc_table_from_values(r->bits, r->g, r->p, r->value, &t), 0);
		assert_near(t.cost, r->cost, 1.1e-7);
		assert_memory_equal(t.value, r->value, t.levels * sizeof(*t.value));
		solve(r->bits, r->g, r->p, &best);
		assert_true(best.cost <= t.cost + 1e-12);
	}
}

static void solve__equals_integral(void **state)
{
	struct thc_table t;
	double sum = 0;
	unsigned int z;
	int i, n = 2000;

	(void)state;
	solve(4, 31, 1.0 / 32, &t);
	for (z = 0; z + 1 < t.levels; z++) {
		double l = 2 * t.t * t.value[z] / t.granularity - t.t;
		double h = 2 * t.t * t.value[z + 1] / t.granularity - t.t;

		for (i = 0; i < n; i++) {
			double a = l + (h - l) * (i + 0.5) / n;

			sum += (h - a) * (a - l) * exp(-a * a / 2) * (h - l) / n;
		}
	}
	assert_near(t.cost, sum * 0.3989422804014327, 1e-8);
}

static unsigned int bits_set(uint32_t v)
{
	return (unsigned int)__builtin_popcount(v);
}

/* Every subset of the inner grid positions. */
static void assert_no_better(unsigned int bits, unsigned int g, double p)
{
	uint16_t value[16] = { 0 };
	struct thc_table best, t;
	uint32_t subset;
	bool met = false;

	solve(bits, g, p, &best);
	for (subset = 0; subset < 1U << (g - 1); subset++) {
		unsigned int i, z = 1;

		if (bits_set(subset) + 2 != 1U << bits)
			continue;
		for (i = 1; i < g; i++)
			if (subset >> (i - 1) & 1)
				value[z++] = (uint16_t)i;
		value[z] = (uint16_t)g;
		assert_int_equal(thc_table_from_values(bits, g, p, value, &t), 0);
		assert_true(best.cost <= t.cost + 1e-12);
		met |= !memcmp(value, best.value, best.levels * sizeof(*value));
	}
	assert_true(met);
}

static void solve__brute_force(void **state)
{
	static const double fractions[] = { 0.25, 1.0 / 32, 1.0 / 1024 };
	unsigned int g, i;

	(void)state;
	for (i = 0; i < COUNT(fractions); i++) {
		for (g = 1; g <= 5; g++)
			assert_no_better(1, g, fractions[i]);
		for (g = 3; g <= 14; g++)
			assert_no_better(2, g, fractions[i]);
		for (g = 7; g <= 14; g++)
			assert_no_better(3, g, fractions[i]);
		for (g = 15; g <= 18; g++)
			assert_no_better(4, g, fractions[i]);
	}
}

/* Every bits with granularities from the least on, odd and even. */
static void least__is_what_the_best_levels_cost(void **state)
{
	static const double p[] = { 1e-9, 1.0 / 728, 1.0 / 32, 0.25 };
	struct thc_table t, least;
	unsigned int bits, g, i;

	(void)state;
	for (bits = 1; bits <= THC_TABLE_BITS_MAX; bits++) {
		for (g = (1U << bits) - 1; g < 2U << bits; g += 1 + g / 7) {
			for (i = 0; i < COUNT(p); i++) {
				solve(bits, g, p[i], &t);
				assert_int_equal(thc_table_least(bits, g, p[i], &least), 0);
				assert_near(least.cost, t.cost, 1e-12);
				assert_true(least.t == t.t);
			}
		}
	}
	assert_int_equal(thc_table_least(4, 14, 0.1, &t), -EINVAL);
}

static void solve__uniform(void **state)
{
	struct thc_table t;
	unsigned int bits, z;

	(void)state;
	for (bits = 1; bits <= 4; bits++) {
		solve(bits, (1U << bits) - 1, 1.0 / 32, &t);
		for (z = 0; z < t.levels; z++)
			assert_int_equal(t.value[z], z);
	}
	assert_near(t.cost, .013319, 1e-6);
}

static void solve__thresholds(void **state)
{
	static const struct {
		double p, t;
	} want[] = {
		{ 1.0 / 16, 1.8627318674 }, { 1.0 / 32, 2.1538746941 },
		{ 1.0 / 64, 2.4175590162 }, { 1.0 / 128, 2.6600674686 },
		{ 1.0 / 512, 3.0972690782 }, { 1.0 / 1024, 3.2971933457 },
	};
	struct thc_table t;
	unsigned int i;

	(void)state;
	for (i = 0; i < COUNT(want); i++) {
		solve(4, 30, want[i].p, &t);
		assert_near(t.t, want[i].t, 1e-9);
		assert_true(t.t * 0x1p30 == floor(t.t * 0x1p30));
		assert_near(thc_normal_quantile(1 - want[i].p / 2), want[i].t, 1e-10);
	}
}

static void normal_quantile__inverts_erfc(void **state)
{
	double q;

	(void)state;
	for (q = 1e-8; q < 0.5; q *= 1.3) {
		double a = thc_normal_quantile(q), density = exp(-a * a / 2) * 0.3989422804014327;

		assert_near(0.5 * erfc(-a * 0.7071067811865476), q, 1e-12 * density + 1e-16);
		if (q > 1e-3)	/* nearer to 1, 1 - q itself is rounded */
			assert_near(thc_normal_quantile(1 - q), -a, 1e-12);
	}
	assert_near(thc_normal_quantile(0.5), 0, 1e-12);
	assert_near(thc_normal_quantile(0.975), 1.959963984540054, 1e-12);
	assert_true(isnan(thc_normal_quantile(0)) && isnan(thc_normal_quantile(1)));
	assert_true(isnan(thc_normal_quantile(NAN)));
}

static void solve__bad_arguments(void **state)
{
	static const uint16_t falling[4] = { 0, 5, 4, 9 }, equal[4] = { 0, 4, 4, 9 };
	static const uint16_t offset[4] = { 1, 4, 5, 9 }, shorter[4] = { 0, 4, 5, 8 };
	struct thc_table t;

	(void)state;
	assert_int_equal(thc_table_solve(0, 30, 0.1, &t), -EINVAL);
	assert_int_equal(thc_table_solve(9, 600, 0.1, &t), -EINVAL);
	assert_int_equal(thc_table_solve(4, 14, 0.1, &t), -EINVAL);
	assert_int_equal(thc_table_solve(4, THC_TABLE_GRANULARITY_MAX + 1, 0.1, &t), -EINVAL);
	assert_int_equal(thc_table_solve(4, 30, 0, &t), -EINVAL);
	assert_int_equal(thc_table_solve(4, 30, 1, &t), -EINVAL);
	assert_int_equal(thc_table_solve(4, 30, NAN, &t), -EINVAL);
	assert_int_equal(thc_table_solve(4, 30, 0.1, NULL), -EINVAL);
	assert_int_equal(thc_table_from_values(2, 9, 0.1, falling, &t), -EINVAL);
	assert_int_equal(thc_table_from_values(2, 9, 0.1, equal, &t), -EINVAL);
	assert_int_equal(thc_table_from_values(2, 9, 0.1, offset, &t), -EINVAL);
	assert_int_equal(thc_table_from_values(2, 9, 0.1, shorter, &t), -EINVAL);
	assert_int_equal(thc_table_from_values(2, 9, 0.1, NULL, &t), -EINVAL);
}

/* The largest n for each granularity and width, and one more. */
static void check__overflow_rule(void **state)
{
	static const unsigned int want[][3] = {
		{ 15, 8, 17 }, { 20, 8, 12 }, { 30, 8, 8 }, { 31, 8, 8 }, { 36, 8, 7 },
		{ 51, 8, 5 }, { 30, 16, 2184 }, { 255, 8, 1 }, { 256, 8, 0 },
	};
	struct thc_table t;
	unsigned int i;

	(void)state;
	for (i = 0; i < COUNT(want); i++) {
		solve(4, want[i][0], 1.0 / 32, &t);
		assert_int_equal(thc_table_check(&t, want[i][2], want[i][1]), 0);
		assert_int_equal(thc_table_check(&t, want[i][2] + 1, want[i][1]), -ERANGE);
	}
	assert_int_equal(thc_table_check(NULL, 1, 8), -EINVAL);
}

static void nmse__closed_form(void **state)
{
	struct thc_table t;
	unsigned int i, k;

	(void)state;
	for (i = 0; i < COUNT(known_errors); i++) {
		solve(known_errors[i].bits, known_errors[i].g, known_errors[i].p, &t);
		for (k = 0; k < 3; k++)
			assert_near(thc_table_nmse(&t, known_ranks[k]), known_errors[i].nmse[k],
				    1.01e-5);
	}
}

/* The best table for @n equal gradients whose sums have @width bits. */
static void chosen(unsigned int bits, unsigned int n, unsigned int width, struct thc_table *t)
{
	assert_int_equal(choose(bits, n, width, t), 0);
	assert_int_equal(t->bits, bits);
	assert_int_equal(thc_table_check(t, n, width), 0);
}

/* Computed by another program: the least error of tables with granularities up to 255. 0: no table
 * fits.
 */
static void choose__at_least_as_good_as_known(void **state)
{
	static const struct {
		unsigned int n, width;
		double nmse[THC_TABLE_BITS_MAX];
	} want[] = {
		{ 4, 8, { .2717, .07455, .01995, .005175, .001495, .000575 } },
		{ 4, 16, { .2717, .07455, .01995, .005175, .001315, .000345, .0000885, .0000475 } },
		{ 8, 8, { .1965, .04545, .01125, .003105, .001075 } },
		{ 8, 16, { .1965, .04545, .01125, .002825, .000675, .000175, .0000445, .0000255 } },
		{ 2, 8, { .3595, .11725, .03465, .009565, .002565, .000710, .000305 } },
		{ 16, 8, { .1355, .02675, .00615, .002055 } },
	};
	struct thc_table t;
	unsigned int i, b;

	(void)state;
	for (i = 0; i < COUNT(want); i++) {
		for (b = 1; b <= THC_TABLE_BITS_MAX; b++) {
			double most = want[i].nmse[b - 1];

			if (!most) {
				assert_int_equal(choose(b, want[i].n, want[i].width, &t), -ERANGE);
				continue;
			}
			chosen(b, want[i].n, want[i].width, &t);
			if (thc_table_nmse(&t, want[i].n) > most)
				fail_msg("n=%u b=%u: %g", want[i].n, b,
					 thc_table_nmse(&t, want[i].n));
		}
	}
}

/* Up to 4 bits no other granularity is better; with more bits, where only some are tried, none is
 * better by 4 %.
 */
static void choose__granularity(void **state)
{
	static const unsigned int n[] = { 2, 4, 8, 16 };
	struct thc_table t, other;
	unsigned int i, b, g;

	(void)state;
	for (i = 0; i < COUNT(n); i++) {
		for (b = 2; b <= 6 && ((1U << b) - 1) * n[i] <= 255; b++) {
			double slack = b <= 4 ? 1 + 1e-9 : 1.04;

			chosen(b, n[i], 8, &t);
			for (g = (1U << b) - 1; g <= 127 && g * n[i] <= 255; g++) {
				solve(b, g, t.p, &other);
				assert_true(thc_table_nmse(&t, n[i]) <=
					    thc_table_nmse(&other, n[i]) * slack);
			}
		}
	}
}

/* Neighbouring clamp fractions of the granularity that was chosen are no better. */
static void choose__clamp(void **state)
{
	static const unsigned int n[] = { 1, 4, 64 };
	struct thc_table t, other;
	unsigned int i, b;

	(void)state;
	for (i = 0; i < COUNT(n); i++) {
		for (b = 1; b <= THC_TABLE_BITS_MAX; b++) {
			chosen(b, n[i], 32, &t);
			solve(b, t.granularity, t.p * 1.1, &other);
			assert_true(thc_table_nmse(&t, n[i]) < thc_table_nmse(&other, n[i]));
			solve(b, t.granularity, t.p / 1.1, &other);
			assert_true(thc_table_nmse(&t, n[i]) < thc_table_nmse(&other, n[i]));
		}
	}
}

/* Values of the wish are taken, and the others chosen to fit. */
static void choose__given(void **state)
{
	struct thc_table_wish w = THC_TABLE_WISH_INIT;
	struct thc_table t, other;

	(void)state;
	w.bits = 4;
	w.ranks = 4;
	w.width = 8;
	w.granularity = 30;
	assert_int_equal(thc_table_choose(&w, &t), 0);
	assert_int_equal(t.granularity, 30);
	solve(4, 30, 1.0 / 512, &other);
	assert_true(thc_table_nmse(&t, 4) < thc_table_nmse(&other, 4));
	w.p = 1.0 / 32;
	assert_int_equal(thc_table_choose(&w, &t), 0);
	solve(4, 30, 1.0 / 32, &other);
	assert_memory_equal(&t, &other, sizeof(t));
	w.granularity = 0;
	assert_int_equal(thc_table_choose(&w, &t), 0);
	assert_true(t.p == w.p && t.granularity != 30);
	assert_true(thc_table_nmse(&t, 4) < thc_table_nmse(&other, 4));
	w.granularity = 1000;
	w.width = 16;
	assert_int_equal(thc_table_choose(&w, &t), 0);
	assert_int_equal(t.granularity, 1000);
}

/* If a rank loses all that it compresses, its error memory grows without end. */
static void choose__feedback(void **state)
{
	struct thc_table_wish w = THC_TABLE_WISH_INIT;
	struct thc_table plain, t;
	unsigned int n;

	(void)state;
	w.flags = THC_TABLE_FEEDBACK;
	w.width = 16;
	for (w.bits = 1; w.bits <= 4; w.bits++) {
		for (n = 1; n <= 64; n *= 2) {
			w.ranks = n;
			assert_int_equal(thc_table_choose(&w, &t), 0);
			assert_true(thc_table_nmse(&t, 1) < 0.5005);
			chosen(w.bits, n, 16, &plain);
			if (w.bits > 1 || n < 3)
				assert_memory_equal(&t, &plain, sizeof(t));
			else
				assert_true(thc_table_nmse(&plain, 1) > 0.6);
		}
	}
}

static void choose__bad_arguments(void **state)
{
	struct thc_table_wish w = THC_TABLE_WISH_INIT;
	struct thc_table t;

	(void)state;
	chosen(4, 17, 8, &t);
	assert_int_equal(t.granularity, 15);
	assert_int_equal(choose(4, 18, 8, &t), -ERANGE);
	chosen(4, 18, 16, &t);
	/* sums of two levels are as small as they can be */
	chosen(1, 4, 8, &t);
	assert_int_equal(t.granularity, 1);
	/* four-bit sums */
	chosen(1, 15, 4, &t);
	assert_int_equal(t.granularity, 1);
	chosen(2, 5, 4, &t);
	assert_int_equal(t.granularity, 3);
	assert_int_equal(choose(2, 6, 4, &t), -ERANGE);
	assert_int_equal(choose(4, 2, 4, &t), -ERANGE);
	assert_int_equal(choose(4, 0, 8, &t), -EINVAL);
	assert_int_equal(choose(4, 4, 12, &t), -EINVAL);
	assert_int_equal(choose(0, 4, 8, &t), -EINVAL);
	assert_int_equal(choose(9, 4, 32, &t), -EINVAL);
	assert_int_equal(choose(4, 4, 8, NULL), -EINVAL);
	assert_int_equal(thc_table_choose(NULL, &t), -EINVAL);
	w.bits = 4;
	w.ranks = 4;
	w.width = 8;
	w.flags = 2;
	assert_int_equal(thc_table_choose(&w, &t), -EINVAL);
	w.flags = 0;
	w.p = 1;
	assert_int_equal(thc_table_choose(&w, &t), -EINVAL);
	w.p = NAN;
	assert_int_equal(thc_table_choose(&w, &t), -EINVAL);
	w.p = 1e-300;
	assert_int_equal(thc_table_choose(&w, &t), -ERANGE);
	w.p = 0;
	w.granularity = 14;
	assert_int_equal(thc_table_choose(&w, &t), -EINVAL);
	w.granularity = 64;
	assert_int_equal(thc_table_choose(&w, &t), -ERANGE);
	w.granularity = 63;
	w.size--;
	assert_int_equal(thc_table_choose(&w, &t), -EINVAL);
}

/* Ranks compare the hash, so its value must never change. */
static void hash__stable_and_sensitive(void **state)
{
	struct thc_table a, b;
	unsigned int z;

	(void)state;
	solve(4, 30, 1.0 / 32, &a);
	assert_int_equal(thc_table_hash(&a), 0x3bad0bfa);
	for (z = 0; z < 16; z++) {
		b = a;
		b.value[z] ^= 1;
		assert_int_not_equal(thc_table_hash(&a), thc_table_hash(&b));
	}
	solve(4, 30, 1.0 / 33, &b);
	memcpy(b.value, a.value, sizeof(a.value));
	assert_int_not_equal(thc_table_hash(&a), thc_table_hash(&b));
	b = a;
	b.cost = 7;	/* follows from the rest */
	b.p = 0.5;
	assert_int_equal(thc_table_hash(&a), thc_table_hash(&b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(solve__known_optima),
		cmocka_unit_test(from_values__published_costs),
		cmocka_unit_test(solve__equals_integral),
		cmocka_unit_test(solve__brute_force),
		cmocka_unit_test(least__is_what_the_best_levels_cost),
		cmocka_unit_test(solve__uniform),
		cmocka_unit_test(solve__thresholds),
		cmocka_unit_test(normal_quantile__inverts_erfc),
		cmocka_unit_test(solve__bad_arguments),
		cmocka_unit_test(check__overflow_rule),
		cmocka_unit_test(nmse__closed_form),
		cmocka_unit_test(choose__at_least_as_good_as_known),
		cmocka_unit_test(choose__granularity),
		cmocka_unit_test(choose__clamp),
		cmocka_unit_test(choose__given),
		cmocka_unit_test(choose__feedback),
		cmocka_unit_test(choose__bad_arguments),
		cmocka_unit_test(hash__stable_and_sensitive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
