// SPDX-License-Identifier: GPL-2.0
/*
 * A job's table, and the width of its sums.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

/* Widths that thcd chooses from, the narrowest that fits. Sums of 4 bits take half the bytes down,
 * but hold so little that a job has to ask for them.
 */
static const u32 widths[] = { 8, 16, 32 };

static u32 width_max(u32 width)
{
	return (u32)(((u64)1 << width) - 1);
}

/* The narrowest of widths[] that @sum fits. */
static u32 width_of(u32 sum)
{
	u32 i = 0;

	while (sum > width_max(widths[i]))
		i++;
	return widths[i];
}

/* Is the job's table uniform? With scheme uthc it always is. */
static bool is_uniform(const struct thcd_job_wish *w)
{
	return w->table == THCD_TABLE_UNIFORM || w->scheme == THC_SCHEME_UTHC;
}

/* The least max(T) of the tables that suit the wish. */
static u32 least_reach(const struct thcd_job_wish *w)
{
	return w->table == THCD_TABLE_LIST ? w->value[w->values - 1] :
	       w->granularity		   ? w->granularity :
					     (1u << w->bits) - 1;
}

/* The sentence that says what would fit. */
static int too_wide(const struct thcd_job_wish *w, u32 reach, u32 width, struct thcd_error *e)
{
	u32 g = width_max(width) / w->ranks, least = (1u << w->bits) - 1;
	char fits[96];

	if (g >= least)
		snprintf(fits, sizeof(fits), "granularity up to %u fits %u ranks, ", g, w->ranks);
	else
		snprintf(fits, sizeof(fits), "no table of %u bits fits %u ranks, ", w->bits,
			 w->ranks);
	return thcd_fail(
		e,
		"the table reaches %u, and %u ranks make %u, more than the %u of %u-bit sums: %sup to %u ranks fit this table; or set sum_width=%u",
		reach, w->ranks, reach * w->ranks, width_max(width), width, fits,
		width_max(width) / reach, width_of(reach * w->ranks));
}

static int choose_width(u32 *width, const struct thcd_job_wish *w, struct thcd_error *note,
			struct thcd_error *e)
{
	u32 reach = least_reach(w);

	*width = w->sum_width;
	if (*width)
		return reach * w->ranks > width_max(*width) ? too_wide(w, reach, *width, e) : 0;
	*width = width_of(reach * w->ranks);
	if (*width > widths[0])
		thcd_fail(note,
			  "sums of %u ranks need %u bits (%u x %u > %u): chunks of %d coordinates",
			  w->ranks, *width, w->ranks, reach, width_max(*width / 2),
			  THC_COORDINATES(*width));
	return 0;
}

static int no_threshold(double p, struct thcd_error *e)
{
	return thcd_fail(e, "clamp=%g gives no table: give a fraction from 1e-12 to 0.99", p);
}

static int take_levels(struct thc_table *t, const struct thcd_job_wish *w, struct thcd_error *e)
{
	double p = w->table_clamp > 0 ? w->table_clamp : w->clamp;
	u32 levels = 1u << w->bits, g = w->value[w->values - 1];
	int err;

	if (w->values != levels)
		return thcd_fail(e, "table: %u level%s given, bits=%u needs %u", w->values,
				 w->values == 1 ? "" : "s", w->bits, levels);
	if (w->granularity && w->granularity != g)
		return thcd_fail(e, "granularity=%u, but the table ends with %u", w->granularity,
				 g);
	if (w->table_clamp > 0 && thcd_job_wish_given(w, "clamp"))
		return thcd_fail(e, "clamp: the table's file has its own: leave one of them out");
	err = thc_table_from_values(w->bits, g, p, w->value, t);
	if (err == -ERANGE)
		return no_threshold(p, e);
	return err ? thcd_fail(e, "table: levels must begin with 0 and rise strictly") : 0;
}

static int choose(struct thc_table *t, const struct thcd_job_wish *w, u32 width,
		  struct thcd_error *e)
{
	const struct thc_table_wish wish = {
		.size = sizeof(wish),
		.bits = w->bits,
		.ranks = w->ranks,
		.width = width,
		.granularity = is_uniform(w) ? (1u << w->bits) - 1 : w->granularity,
		.p = thcd_job_wish_given(w, "clamp") ? w->clamp : 0,
		.flags = w->feedback ? THC_TABLE_FEEDBACK : 0,
	};
	int err = thc_table_choose(&wish, t);

	/* choose_width() made the sums fit, so the clamp fraction is out of range */
	if (err == -ERANGE)
		return no_threshold(w->clamp, e);
	return err ? thcd_fail(e, "no table for bits=%u granularity=%u: %s", w->bits,
			       wish.granularity, strerror(-err)) :
		     0;
}

static int check_uniform(const struct thcd_job_wish *w, struct thcd_error *e)
{
	if (w->scheme != THC_SCHEME_UTHC)
		return 0;
	if (w->table == THCD_TABLE_LIST)
		return thcd_fail(e, "scheme=uthc has levels of equal distance: leave table out");
	if (thcd_job_wish_given(w, "clamp"))
		return thcd_fail(e, "scheme=uthc clamps nothing: leave clamp out");
	return 0;
}

static int check_granularity(const struct thcd_job_wish *w, struct thcd_error *e)
{
	u32 levels = 1u << w->bits, g = w->granularity;

	if (!g)
		return 0;
	if (is_uniform(w) && g != levels - 1)
		return thcd_fail(e, "a uniform table of %u bits has granularity %u, not %u",
				 w->bits, levels - 1, g);
	if (g < levels - 1)
		return thcd_fail(
			e, "granularity=%u is too small for the %u levels of bits=%u: at least %u",
			g, levels, w->bits, levels - 1);
	return 0;
}

int thcd_table_of(struct thc_table *t, u32 *width, const struct thcd_job_wish *w, u32 bits,
		  struct thcd_error *e)
{
	struct thc_table_wish wish = {
		.size = sizeof(wish),
		.bits = bits,
		.ranks = w->ranks,
		.flags = w->feedback ? THC_TABLE_FEEDBACK : 0,
	};
	u32 sum = ((1u << bits) - 1) * w->ranks;
	int err;

	*width = sum <= width_max(4) ? 4 : sum <= width_max(8) ? 8 : 16;
	wish.width = *width;
	err = thc_table_choose(&wish, t);
	return err ? thcd_fail(e, "no table of %u bits for %u ranks: %s", bits, w->ranks,
			       strerror(-err)) :
		     0;
}

int thcd_table_choose(struct thc_table *t, u32 *width, const struct thcd_job_wish *w,
		      struct thcd_error *note, struct thcd_error *e)
{
	if (check_uniform(w, e) || check_granularity(w, e) || choose_width(width, w, note, e))
		return -1;
	return w->table == THCD_TABLE_LIST ? take_levels(t, w, e) : choose(t, w, *width, e);
}
