// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* How many bits each block of a bucket is sent with: rate.h has the rule. */
#include "rate.h"

#include <math.h>

#include "codec.h"
#include "codec_ops.h"

/* Bounds of edges, and of lambdas. */
#define EDGE_MAX	(16 * 40)
#define LAMBDA_MAX	(THC_EXPONENT_MAX + EDGE_MAX + 1)

#define MANTISSA_BITS	23
#define EXPONENT_BIAS	127
/* Steps of an octave of norms: sixteenths of one of their squares. */
#define OCTAVE		32

static unsigned int rate_of(const struct thc_rate_class *c)
{
	return c->bits + c->sum_width;
}

/* Error that one more bit saves, from class @a to class @b. */
static double slope(const struct thc_rate *rate, unsigned int a, unsigned int b)
{
	const struct thc_rate_class *from = &rate->class[a], *to = &rate->class[b];

	return ((double)from->cost - to->cost) / (rate_of(to) - rate_of(from));
}

/* Appends class @k as the last step, and removes steps that are then best for no norm. */
static void push(struct thc_rate *rate, unsigned int k)
{
	if (rate->steps && rate->class[rate->step[rate->steps - 1]].cost <= rate->class[k].cost)
		return;
	while (rate->steps &&
	       rate_of(&rate->class[rate->step[rate->steps - 1]]) >= rate_of(&rate->class[k]))
		rate->steps--;
	while (rate->steps >= 2 &&
	       slope(rate, rate->step[rate->steps - 1], k) >=
		       slope(rate, rate->step[rate->steps - 2], rate->step[rate->steps - 1]))
		rate->steps--;
	rate->step[rate->steps++] = (uint8_t)k;
}

void thc_rate_init(struct thc_rate *rate, bool skips)
{
	unsigned int k;

	rate->steps = 0;
	for (k = skips ? 0 : 1; k < THC_RATE_CLASSES; k++)
		if (!k || rate->class[k].sum_width)
			push(rate, k);
	for (k = 1; k < rate->steps; k++) {
		double saved = slope(rate, rate->step[k - 1], rate->step[k]) / THC_RATE_ONE;

		rate->edge[k] = (int32_t)nearbyint(-16 * log2(saved));
	}
}

/* 2^23 (2^(k/32) - 1), rounded up: the least mantissa of each step of an octave. */
static const uint32_t mantissa[OCTAVE] = {
	0,	 183687,  371396,  563215,  759234,  959546,  1164244, 1373424,
	1587185, 1805626, 2028851, 2256964, 2490071, 2728283, 2971711, 3220470,
	3474676, 3734448, 3999908, 4271181, 4548395, 4831678, 5121165, 5416990,
	5719293, 6028216, 6343903, 6666503, 6996167, 7333050, 7677310, 8029107,
};

int16_t thc_rate_exponent(float norm)
{
	uint32_t bits = thc_float_bits(norm), part = bits & ((1U << MANTISSA_BITS) - 1);
	int octave = (int)(bits >> MANTISSA_BITS) - EXPONENT_BIAS, k = 0, step;

	if (!(norm >= THC_NORM_MIN && norm <= THC_NORM_MAX))
		return INT16_MIN;
	for (step = OCTAVE / 2; step; step /= 2)
		if (part >= mantissa[k + step])
			k += step;
	return (int16_t)(octave * OCTAVE + k);
}

/* The class of a block of @exponent. */
static unsigned int class_of(const struct thc_rate *rate, int32_t exponent, int32_t lambda,
			     bool due)
{
	unsigned int k = rate->steps - 1;

	if (exponent == INT16_MIN)
		return 0;
	while (k && exponent - lambda < rate->edge[k])
		k--;
	/* a block that was skipped for long comes back */
	if (!rate->step[k] && due && rate->steps > 1)
		k = 1;
	return rate->step[k];
}

/* 2^(k/16), in parts of 2^31. */
static const uint32_t sixteenth[16] = {
	2147483648, 2242560872, 2341847524, 2445529972, 2553802834, 2666869345,
	2784941738, 2908241642, 3037000500, 3171459999, 3311872529, 3458501653,
	3611622603, 3771522796, 3938502376, 4112874773,
};

/* 2^((exponent - top) / 16), in units of 2^-32; @top: the largest exponent. */
static uint64_t weight(int32_t exponent, int32_t top)
{
	uint32_t below = (uint32_t)(top - exponent), whole = (below + 15) / 16;

	if (exponent == INT16_MIN || whole > 31)
		return 0;
	return (uint64_t)sixteenth[16 * whole - below] * 2 >> whole;
}

void thc_rate_empty(struct thc_rate_bins *bins)
{
	int32_t e;

	for (e = bins->low; bins->blocks && e <= bins->high; e++)
		bins->of[0][e - THC_EXPONENT_MIN] = bins->of[1][e - THC_EXPONENT_MIN] = 0;
	bins->blocks = 0;
	bins->low = THC_EXPONENT_MAX;
	bins->high = THC_EXPONENT_MIN;
}

static bool is_due(uint32_t block, uint32_t turn)
{
	return (block + turn) % THC_RATE_ROUNDS == 0;
}

void thc_rate_add(struct thc_rate_bins *bins, const int16_t *exponent, uint32_t blocks,
		  uint32_t turn)
{
	uint32_t i;

	for (i = 0; i < blocks; i++) {
		int32_t e = exponent[i];

		if (e == INT16_MIN)
			continue;
		bins->low = e < bins->low ? e : bins->low;
		bins->high = e > bins->high ? e : bins->high;
		bins->of[is_due(i, turn)][e - THC_EXPONENT_MIN]++;
	}
	bins->blocks += blocks;
}

void thc_rate_remove(struct thc_rate_bins *bins, const int16_t *exponent, uint32_t blocks,
		     uint32_t turn)
{
	uint32_t i;

	for (i = 0; i < blocks; i++)
		if (exponent[i] != INT16_MIN)
			bins->of[is_due(i, turn)][exponent[i] - THC_EXPONENT_MIN]--;
	bins->blocks -= blocks;
}

/* The largest exponent of a block. */
static int32_t top_of(const struct thc_rate_bins *bins)
{
	int32_t e = bins->high;

	while (e > bins->low && !bins->of[0][e - THC_EXPONENT_MIN] &&
	       !bins->of[1][e - THC_EXPONENT_MIN])
		e--;
	return e;
}

/* A search for a lambda over the blocks of a bucket. */
struct search {
	const struct thc_rate		*rate;
	const struct thc_rate_goal	*goal;
	const struct thc_rate_bins	*bins;
	int32_t				top;
	uint64_t			most;	/* limit that the goal sets */
};

/* Contribution of a block of class @k to the amount that the goal bounds. */
static uint64_t price(const struct search *s, int32_t exponent, unsigned int k)
{
	const struct thc_rate_class *c = &s->rate->class[k];

	if (s->goal->bits)
		return rate_of(c);
	return weight(exponent, s->top) * c->error / THC_RATE_ONE;
}

static uint64_t price_of_all(const struct search *s, const struct thc_rate_bins *bins,
			     int32_t lambda)
{
	uint64_t sum = 0;
	int32_t e;
	int due;

	for (e = bins->low; e <= bins->high; e++)
		for (due = 0; due < 2; due++) {
			uint32_t n = bins->of[due][e - THC_EXPONENT_MIN];

			if (n)
				sum += n * price(s, e, class_of(s->rate, e, lambda, due));
		}
	return sum;
}

static uint64_t weight_of_all(const struct search *s, const struct thc_rate_bins *bins)
{
	uint64_t sum = 0;
	int32_t e;

	for (e = bins->low; e <= bins->high; e++)
		sum += weight(e, s->top) *
		       (bins->of[0][e - THC_EXPONENT_MIN] + bins->of[1][e - THC_EXPONENT_MIN]);
	return sum;
}

/* The amount that @goal allows; it is of bits or of an error, as that of @s. */
static uint64_t amount(const struct search *s, uint32_t goal)
{
	uint64_t all;

	if (s->goal->bits)
		return (uint64_t)goal * s->bins->blocks / 1000;
	all = weight_of_all(s, s->bins);
	return all / 1000000 * goal + all % 1000000 * goal / 1000000;
}

static struct search search_in(const struct thc_rate *rate, const struct thc_rate_goal *goal,
			       const struct thc_rate_bins *bins)
{
	struct search s = { rate, goal, bins, top_of(bins), 0 };
	uint64_t given, asked;

	s.most = amount(&s, goal->bits ? goal->bits : goal->error);
	if (!goal->shared)
		return s;
	/* norms that have risen by much get more than their share, but at most what was asked */
	given = price_of_all(&s, bins, goal->lambda + THC_RATE_RISE);
	asked = amount(&s, goal->asked);
	if (goal->bits) {
		given = given < asked ? given : asked;
		s.most = given > s.most ? given : s.most;
	} else {
		given = given > asked ? given : asked;
		s.most = given < s.most ? given : s.most;
	}
	return s;
}

/* The lambda next to one that exceeds the goal: the least for bits, the largest for an error. If
 * all exceed it, the one that exceeds it least.
 */
static int32_t find_lambda(const struct search *s)
{
	int32_t good = s->goal->bits ? LAMBDA_MAX : -LAMBDA_MAX, bad = -good;

	while (good - bad > 1 || bad - good > 1) {
		int32_t middle = (good + bad) / 2;

		if (price_of_all(s, s->bins, middle) <= s->most)
			good = middle;
		else
			bad = middle;
	}
	return good;
}

/* The next lambda, which exceeds the goal. */
static int32_t next_lambda(const struct search *s, int32_t lambda)
{
	return s->goal->bits ? lambda - 1 : lambda + 1;
}

/* Blocks take the class of the next lambda, in their order, as far as the goal allows. */
static void choose(const struct search *s, const int16_t *exponent, struct thc_rate_choice *choice)
{
	int32_t lambda = find_lambda(s), next = next_lambda(s, lambda);
	uint64_t sum = price_of_all(s, s->bins, lambda);
	uint32_t i;

	choice->lambda = lambda;
	for (i = 0; i < s->bins->blocks; i++) {
		bool due = is_due(i, s->goal->turn);
		unsigned int k = class_of(s->rate, exponent[i], lambda, due);
		unsigned int other = class_of(s->rate, exponent[i], next, due);
		uint64_t changed = sum - price(s, exponent[i], k) + price(s, exponent[i], other);

		if (changed <= s->most) {
			sum = changed;
			k = other;
		}
		choice->of[i] = (uint8_t)k;
		choice->blocks[k]++;
		choice->bits += rate_of(&s->rate->class[k]);
	}
}

static void expect(const struct thc_rate *rate, const float *norms, uint32_t blocks,
		   struct thc_rate_choice *choice)
{
	uint32_t i;

	for (i = 0; i < blocks; i++) {
		double square = (double)norms[i] * norms[i];

		if (thc_rate_exponent(norms[i]) == INT16_MIN)
			continue;
		choice->square += square;
		choice->lost += square * rate->class[choice->of[i]].error / THC_RATE_ONE;
	}
}

void thc_rate_choose(const struct thc_rate *rate, const struct thc_rate_goal *goal,
		     const float *norms, uint32_t blocks, struct thc_rate_bins *bins,
		     int16_t *exponent, struct thc_rate_choice *choice)
{
	struct search s;
	uint32_t i;

	*choice = (struct thc_rate_choice){ .of = choice->of };
	for (i = 0; i < blocks; i++)
		exponent[i] = thc_rate_exponent(norms[i]);
	thc_rate_empty(bins);
	thc_rate_add(bins, exponent, blocks, goal->turn);
	s = search_in(rate, goal, bins);
	choose(&s, exponent, choice);
	expect(rate, norms, blocks, choice);
}

/* --- buckets that share a goal ----------------------------------------------- */

/* @part as a fraction of @whole, in units of 1 / @of; all if @whole is zero. */
static uint64_t parts(uint64_t part, uint64_t whole, uint32_t of)
{
	while (whole >> 43) {
		whole >>= 1;
		part >>= 1;
	}
	return whole ? part * of / whole : of;
}

/* @of / 2^16 of @x. */
static uint64_t fraction(uint64_t x, uint64_t of)
{
	return (x >> 16) * of + ((x & 0xffff) * of >> 16);
}

/* The excess of @sum over @other. */
static uint64_t above(uint64_t sum, uint64_t other)
{
	return sum > other ? sum - other : 0;
}

struct thc_rate_goal thc_rate_share(const struct thc_rate *rate, const struct thc_rate_goal *asked,
				    const struct thc_rate_bins *all,
				    const struct thc_rate_bins *own)
{
	const struct search s = search_in(rate, asked, all);
	int32_t lambda = find_lambda(&s), next = next_lambda(&s, lambda);
	uint64_t sum = price_of_all(&s, all, lambda), left = above(s.most, sum), of;
	uint64_t more = above(price_of_all(&s, all, next), sum);
	struct thc_rate_goal goal = *asked;

	/* all buckets get the same fraction of the next lambda's excess */
	of = parts(left < more ? left : more, more, 1 << 16);
	sum = price_of_all(&s, own, lambda);
	sum += fraction(above(price_of_all(&s, own, next), sum), of);
	goal.shared = true;
	goal.asked = asked->bits ? asked->bits : asked->error;
	goal.lambda = lambda;
	if (goal.bits)
		goal.bits = (uint32_t)(sum * 1000 / own->blocks);
	else
		goal.error = (uint32_t)parts(sum, weight_of_all(&s, own), 1000000);
	/* 0 means no goal */
	if (!goal.bits && !goal.error)
		*(asked->bits ? &goal.bits : &goal.error) = 1;
	return goal;
}
