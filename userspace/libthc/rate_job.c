// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Rates of a client's job: classes, goals of calls, and the trial of a rate. */
#include <errno.h>
#include <math.h>

#include <thc/fnv.h>
#include <thc/names.h>

#include "client.h"
#include "request.h"
#include "scheme_thc.h"
#include "table.h"

/* Largest sums, so that a block has at most two chunks. */
#define SUM_WIDTH_MOST	16
/* The bits of a claim for a rate. */
#define CHOSEN_MASK	((1U << 20) - 1)

/* --- the job ---------------------------------------------------------------- */

static uint32_t hash_u32(uint32_t hash, uint32_t v)
{
	const __be32 be = thc_be32(v);

	return thc_fnv(hash, &be, sizeof(be));
}

/* A hash of all that ranks must have alike. */
static uint32_t hash_of(const struct thc_rate *rate)
{
	uint32_t hash = THC_FNV_BEGIN;
	unsigned int k;

	for (k = 0; k < rate->steps; k++) {
		const struct thc_rate_class *c = &rate->class[rate->step[k]];

		hash = hash_u32(hash, c->bits);
		hash = hash_u32(hash, c->sum_width);
		hash = hash_u32(hash, c->error);
		hash = hash_u32(hash, (uint32_t)rate->edge[k]);
	}
	return hash;
}

static uint32_t parts_of(double error)
{
	return error < 1 ? (uint32_t)(error * THC_RATE_ONE) : THC_RATE_ONE;
}

/* Of a mean of equal gradients, in parts of its square. */
static double error_by(const struct thc_spec *s, const struct thc_table *t)
{
	return s->features & THC_FEATURE_CORRELATED ? thc_table_nmse_correlated(t, s->ranks) :
						      thc_table_nmse(t, s->ranks);
}

static struct thc_rate_class class_by(const struct thc_spec *s, const struct thc_table_row *row,
				      const struct thc_table *t)
{
	return (struct thc_rate_class){
		.bits = row->bits,
		.sum_width = row->sum_width,
		.cost = parts_of(thc_table_nmse(t, s->ranks)),
		.error = parts_of(error_by(s, t)),
	};
}

double thc_rate_table_error(const struct thc_client *c)
{
	struct thc_table t;

	/* the closed form is of normal coordinates, which rotation makes */
	if (c->spec.scheme_features & THC_SCHEME_F_UNROTATED || thc_table_read(&c->spec, &t))
		return 0;
	thc_table_price(&t);
	return error_by(&c->spec, &t);
}

struct thc_rate_goal thc_rate_goal_of(double rate, double error)
{
	return (struct thc_rate_goal){
		.bits = rate > 0 ? (uint32_t)lround(rate * 1000) : 0,
		.error = (uint32_t)lround(error * 1e6),
	};
}

static bool is_set(const struct thc_client_options *o)
{
	return o->rate != 0 || o->error != 0;
}

bool thc_rate_is_tried(const struct thc_client *c)
{
	return c->spec.rate_flags & THC_RATE_F_TRY && !is_set(&c->options) &&
	       c->options.flags & THC_CLIENT_ERROR_FEEDBACK;
}

struct thc_rate_goal thc_rate_default(const struct thc_client *c)
{
	if (is_set(&c->options))
		return thc_rate_goal_of(c->options.rate, c->options.error);
	/* few bits lose much, which only error feedback brings back */
	if (c->spec.rate_flags & THC_RATE_F_TRY && !thc_rate_is_tried(c))
		return (struct thc_rate_goal){ .bits = 0 };
	return (struct thc_rate_goal){ .bits = c->spec.rate, .error = c->spec.error };
}

int thc_rate_missing(const struct thc_spec *s)
{
	if (s->scheme != THC_SCHEME_THC)
		return thc_fail(
			-EOPNOTSUPP,
			"the job has scheme %s, and only jobs of scheme thc have tables for a "
			"rate or an error: leave both 0 here",
			thc_scheme_name[s->scheme]);
	return thc_fail(
		-EOPNOTSUPP,
		"the job has no tables for a rate: give it rate= or error= (thcd(8)), or leave both 0 here");
}

int thc_rate_open(struct thc_compressor *z, struct thc_client *c)
{
	const struct thc_spec *s = &c->spec;
	struct thc_table table;
	unsigned int k;
	int error;

	if (!s->rate && !s->error)
		return is_set(&c->options) && c->options.rate != THC_RATE_FIXED ?
			       thc_rate_missing(s) :
			       0;
	z->rate.class[0].cost = THC_RATE_ONE;
	z->rate.class[0].error = THC_RATE_ONE;
	for (k = 1; k <= THC_RATE_BITS_MAX; k++) {
		const struct thc_table_row row = thc_spec_row(s, k);

		if (!row.sum_width || row.sum_width > SUM_WIDTH_MOST)
			continue;
		/* check() has read it already */
		(void)!thc_row_read(&row, s->ranks, &table);
		thc_table_price(&table);
		error = thc_compressor_codec(c, &table, 0, &z->row[k]);
		if (error)
			return error;
		z->rate.class[k] = class_by(s, &row, &table);
	}
	thc_rate_init(&z->rate, c->options.flags & THC_CLIENT_ERROR_FEEDBACK);
	/* some class has to send something */
	if (!z->rate.step[z->rate.steps ? z->rate.steps - 1 : 0])
		return thc_fail(
			-EPROTO,
			"the job has a rate, but no table of up to %u bits that is of use: its aggregator is at fault",
			THC_RATE_BITS_MAX);
	z->rate_hash = hash_of(&z->rate);
	if (thc_shares_open(c, &z->shares))
		return thc_fail(-ENOMEM, "out of memory for the bits of blocks");
	return 0;
}

void thc_rate_close(struct thc_compressor *z, struct thc_client *c)
{
	unsigned int k;

	thc_shares_close(c, &z->shares);
	for (k = 0; k < THC_RATE_CLASSES; k++)
		thc_codec_exit(&z->row[k]);
}

uint32_t thc_rate_chosen(const struct thc_client *c, const struct thc_rate_goal *goal)
{
	const struct thc_compressor *z = c->context[THC_SCHEME_THC];
	uint32_t hash;

	/* without a job, after a rejoin that failed, nothing is sent */
	if (!z || (!goal->bits && !goal->error))
		return 0;
	hash = hash_u32(hash_u32(z->rate_hash, goal->bits), goal->error);
	if (goal->shared)
		hash = hash_u32(hash_u32(hash, goal->asked), (uint32_t)goal->lambda);
	return (hash & CHOSEN_MASK) | 1;
}

/* --- is it worth its time? ---------------------------------------------------- */

static struct thc_trial *trial(const struct thc_request *r)
{
	return &((struct thc_compressor *)r->client->context[THC_SCHEME_THC])->trial;
}

void thc_rate_begin(struct thc_request *r)
{
	struct thc_client_stats *stats = &r->client->stats;

	if (!r->tried)
		return;
	if (!thc_trial_begin(trial(r), r->round, r->client->spec.quorum, &r->timed)) {
		r->goal = (struct thc_rate_goal){ .bits = 0 };
		r->chosen = 0;
	}
	stats->trial = trial(r)->state;
	/* ranks vote only while the trial runs */
	if (trial(r)->state != THC_TRIAL_RUNS)
		return;
	r->vote = thc_trial_vote(trial(r));
	stats->trial_fixed_ns = thc_trial_median(trial(r), false);
	stats->trial_rate_ns = thc_trial_median(trial(r), true);
}

void thc_rate_agreed(struct thc_request *r)
{
	unsigned int of[THC_VOTE_RATE + 1];

	if (!r->tried)
		return;
	thc_agree_votes(r, of);
	thc_trial_note(trial(r), r->round, of);
}

void thc_rate_differ(const struct thc_request *r)
{
	struct thc_compressor *z = r->client->context[THC_SCHEME_THC];

	if (z)
		thc_trial_differ(&z->trial, r->round);
}

void thc_rate_ended(struct thc_request *r)
{
	if (r->timed)
		thc_trial_took(trial(r), r->round, r->chosen, thc_now() - r->began_at, r->count);
}
