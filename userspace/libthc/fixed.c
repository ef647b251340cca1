// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Scales, and means of any number of digits, which the loops of fixed.h leave out. */
#include <math.h>
#include <string.h>

#include "codec_ops.h"
#include "fixed.h"

/* Lanes of MAX are not negative, and 0 means that the rank has no values. */
enum { LANE_BIAS = 512 };

unsigned int thc_fixed_bits(unsigned int width, unsigned int ranks)
{
	unsigned int log2 = 0;

	while (1U << log2 < ranks)
		log2++;
	return width - 1 - log2;
}

bool thc_precision_known(unsigned int precision)
{
	return precision == THC_EXACT || precision == THC_FIXED_8 || precision == THC_FIXED_16 ||
	       precision == THC_FIXED_32;
}

bool thc_precision_fits(unsigned int precision, unsigned int ranks)
{
	return precision == THC_EXACT || thc_fixed_bits(precision, ranks) >= THC_FIXED_BITS_MIN;
}

const char *thc_precision_check(unsigned int precision, unsigned int ranks)
{
	if (!thc_precision_known(precision))
		return "its precision is none that there is";
	if (!thc_precision_fits(precision, ranks))
		return "its precision has too few bits for the sums of so many ranks";
	return NULL;
}

static size_t first_bad(const float *x, size_t n)
{
	size_t i;

	for (i = 0; i < n && isfinite(x[i]); i++)
		;
	return i;
}

bool thc_scale_measure(const struct thc_fixed_ops *ops, const float *x, size_t n, bool exact,
		       struct thc_scale *s, size_t *bad)
{
	int32_t low = THC_SCALE_LOW_MIN;
	uint32_t most;
	int top;

	if (exact)
		ops->measure(x, n, &most, &low);
	else
		ops->largest(x, n, &most);
	if (most >= 0x7f800000) {
		*bad = first_bad(x, n);
		return false;
	}
	*s = THC_SCALE_ZERO;
	if (!most)
		return true;
	frexpf(thc_bits_float(most), &top);
	*s = (struct thc_scale){ (int16_t)top, (int16_t)low };
	return true;
}

unsigned int thc_scale_limbs(struct thc_scale s, unsigned int bits)
{
	return thc_scale_is_zero(s) ? 0 : ((unsigned int)(s.top - s.low) + bits - 1) / bits;
}

uint32_t thc_scale_top_lane(struct thc_scale s)
{
	return thc_scale_is_zero(s) ? 0 : (uint32_t)(LANE_BIAS + s.top);
}

uint32_t thc_scale_low_lane(struct thc_scale s)
{
	return thc_scale_is_zero(s) ? 0 : (uint32_t)(LANE_BIAS - s.low);
}

static int between(int64_t x, int least, int most)
{
	return x < least ? least : x > most ? most : (int)x;
}

struct thc_scale thc_scale_of_lanes(uint32_t top_lane, uint32_t low_lane)
{
	int top = between((int64_t)top_lane - LANE_BIAS, THC_SCALE_LOW_MIN + 1, THC_SCALE_TOP_MAX);
	int low = between(LANE_BIAS - (int64_t)low_lane, THC_SCALE_LOW_MIN, top - 1);

	if (!top_lane)
		return THC_SCALE_ZERO;
	return (struct thc_scale){ (int16_t)top, (int16_t)low };
}

/* --- means of many digits ---------------------------------------------------- */

/* Turns @sums into digits of 0..2^bits - 1, except the top one, which is the carry; -1: the number
 * is negative, and these are the digits of its magnitude.
 */
static int carry(const int32_t *sums, unsigned int limbs, unsigned int bits, int sign,
		 int64_t *digit)
{
	int64_t carried = 0;
	unsigned int k;

	for (k = 0; k < limbs; k++) {
		int64_t sum = (int64_t)sign * sums[k] + carried;

		digit[k] = sum & ((1LL << bits) - 1);
		carried = sum >> bits;
	}
	digit[limbs] = carried;
	return carried < 0 ? carry(sums, limbs, bits, -1, digit) : sign;
}

/* The number that @sums are digits of, divided by the ranks, rounded to odd. */
static double mean_of(const int32_t *sums, unsigned int limbs, const struct thc_mean *m)
{
	int64_t digit[THC_LIMBS_MAX + 1];
	int sign = carry(sums, limbs, m->bits, 1, digit), at = (int)limbs, below, scale;
	unsigned __int128 value = 0;
	bool rest = false;
	uint64_t q;

	while (at >= 0 && !digit[at])
		at--;
	if (at < 0)
		return 0;
	/* four digits have 76 to 124 bits */
	for (below = at - 3; at >= 0 && at >= below; at--)
		value = value << m->bits | (uint64_t)digit[at];
	scale = below > 0 ? below * (int)m->bits : 0;
	for (; at >= 0; at--)
		rest |= digit[at] != 0;
	while (!(value >> 126)) {
		value <<= 1;
		scale--;
	}
	rest |= value % m->ranks != 0;
	value /= m->ranks;
	for (; value >> 53; scale++) {
		rest |= value & 1;
		value >>= 1;
	}
	q = (uint64_t)value | rest;
	return ldexp(sign * (double)q, scale) * m->unit;
}

void thc_fixed_means(const struct thc_fixed_ops *ops, const int32_t *const *digit,
		     unsigned int limbs, size_t n, const struct thc_mean *m, float *out)
{
	int32_t sums[THC_LIMBS_MAX];
	unsigned int k;
	size_t i;

	if (limbs == 1) {
		ops->mean(digit[0], 32, n, m, out);
		return;
	}
	if (limbs == 2) {
		ops->mean2(digit[0], digit[1], n, m, out);
		return;
	}
	for (i = 0; i < n; i++) {
		for (k = 0; k < limbs; k++)
			sums[k] = digit[k][i];
		out[i] = thc_round_float(mean_of(sums, limbs, m), m->odd);
	}
}

/* --- digits ------------------------------------------------------------------ */

unsigned int thc_digits_count(const struct thc_digits *d, struct thc_scale s)
{
	return d->exact ? thc_scale_limbs(s, d->bits) : 1;
}

void thc_digits_make(const struct thc_digits *d, const float *x, size_t n, struct thc_scale s,
		     unsigned int index, void *lanes)
{
	/* a block of zeros has no scale, but fixed point sends it in any case */
	if (thc_scale_is_zero(s))
		memset(lanes, 0, n * d->width / 8);
	else if (d->exact)
		d->ops->limb(x, n, s.low, d->bits, index, lanes);
	else
		d->ops->fixed(x, n, s.top, d->bits, d->width, lanes);
}

void thc_digits_means(const struct thc_digits *d, const int32_t *const *digit, size_t n,
		      struct thc_scale s, float *means)
{
	const struct thc_mean m = {
		.unit = ldexp(1, d->exact ? s.low : s.top - (int)d->bits),
		.ranks = d->ranks,
		.bits = d->bits,
		.odd = d->odd,
	};

	if (thc_scale_is_zero(s))
		memset(means, 0, n * sizeof(*means));
	else if (d->exact)
		thc_fixed_means(d->ops, digit, thc_digits_count(d, s), n, &m, means);
	else
		d->ops->mean(digit[0], d->width, n, &m, means);
}
