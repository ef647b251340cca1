// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The agreement that opens every round: each rank states what it brought to
 * the all-reduce, and compares what the others brought (struct thc_claim).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <thc/names.h>
#include <thc/wire/format.h>

#include "client.h"
#include "dtype.h"
#include "request.h"
#include "rows.h"
#include "scheme.h"

/* Fields of thc_claim.form, behind the dtype. */
enum { SCHEME_SHIFT = 8, COUNT_SHIFT = 16 };
/* And thc_claim.call, behind the precision: levels, log2 of the grain, values of a row. */
enum { LEVELS_SHIFT = 6, GRAIN_SHIFT = 8, ROW_SHIFT = 12, CHOSEN_SHIFT = ROW_SHIFT };
/* Fields of thc_claim.status, behind enum thc_claim_status: lanes of a sketch's scale, and the mark
 * of a sketch; or the turn of a bucket with a rate, and the vote on the rate.
 */
enum {
	TURN_SHIFT = 8,
	VOTE_SHIFT = 11,
	VOTE_MASK = 3,
	TOP_SHIFT = 8,
	LOW_SHIFT = 18,
	SKETCH_SHIFT = 28,
	SCALE_MASK = 0x3ff
};

void thc_agree_prepare(struct thc_request *r)
{
	bool high = thc_op_is_used(THC_OP_CLAIM_HIGH, r->client->spec.ranks);
	unsigned int k;

	for (k = THC_AGREEMENT; k < THC_AGREEMENT_PHASES; k++)
		r->phases.phase[k] = (struct thc_phase){
			.request = r, .packets = (uint8_t *)r->claim[k],
			.stride = sizeof(r->claim[k]), .payload = THC_LANE_BYTES,
			.sized = k == THC_AGREEMENT || high,
			.op = k == THC_AGREEMENT ? THC_OP_CLAIM : THC_OP_CLAIM_HIGH, .width = 32,
			.control = true, .closed = true,
		};
	r->phases.count = THC_AGREEMENT_PHASES;
}

/* Where this rank's claim is in its packets. */
static struct thc_claim *own_claim(struct thc_request *r)
{
	unsigned int rank = r->client->options.rank;
	struct thc_hdr *h = (void *)r->claim[rank / THC_CLAIM_WORKERS];

	return (struct thc_claim *)(h + 1) + rank % THC_CLAIM_WORKERS;
}

static uint32_t status_word(const struct thc_request *r)
{
	uint32_t low = r->precision == THC_EXACT ? thc_scale_low_lane(r->scale) : 0;

	if (!r->sketched)
		return (uint32_t)r->claim_status | r->vote << VOTE_SHIFT |
		       (r->chosen && r->error ? (uint32_t)r->error->turn << TURN_SHIFT : 0);
	return (uint32_t)r->claim_status | thc_scale_top_lane(r->scale) << TOP_SHIFT |
	       low << LOW_SHIFT | 1U << SKETCH_SHIFT;
}

struct thc_scale thc_agree_scale(const struct thc_request *r)
{
	uint32_t top = 0, low = 0, status, one;
	unsigned int i;

	for (i = 0; i < r->client->spec.ranks; i++) {
		status = thc_le32(r->claims[i].status);
		one = status >> TOP_SHIFT & SCALE_MASK;
		top = one > top ? one : top;
		one = status >> LOW_SHIFT & SCALE_MASK;
		low = one > low ? one : low;
	}
	return thc_scale_of_lanes(top, low);
}

uint32_t thc_agree_turn(const struct thc_request *r)
{
	uint32_t turn = 0, one;
	unsigned int i;

	for (i = 0; i < r->client->spec.ranks; i++) {
		one = thc_le32(r->claims[i].status) >> TURN_SHIFT & (THC_RATE_ROUNDS - 1);
		turn = one > turn ? one : turn;
	}
	return turn;
}

/* Has the rank made a claim? If not, a deadline has left it out. */
static bool is_made(const struct thc_claim *c)
{
	return thc_le32(c->form) & 0xff;
}

void thc_agree_votes(const struct thc_request *r, unsigned int of[THC_VOTE_RATE + 1])
{
	unsigned int i, vote;

	memset(of, 0, (THC_VOTE_RATE + 1) * sizeof(*of));
	for (i = 0; i < r->client->spec.ranks; i++) {
		if (!is_made(&r->claims[i]))
			continue;
		vote = thc_le32(r->claims[i].status) >> VOTE_SHIFT & VOTE_MASK;
		of[vote <= THC_VOTE_RATE ? vote : THC_VOTE_NONE]++;
	}
}

void thc_agree_claim(struct thc_request *r)
{
	const struct thc_client *c = r->client;
	uint32_t form = ((uint32_t)r->dtype + 1) | (uint32_t)r->scheme->id << SCHEME_SHIFT |
			(uint32_t)(r->count >> 32) << COUNT_SHIFT;

	const struct thc_results *held = &c->results[r->round & 1];
	bool known = r->round >= 2 && held->round == r->round - 2;

	memset(r->claim, 0, sizeof(r->claim));
	*own_claim(r) = (struct thc_claim){
		.count_lo = thc_le32((uint32_t)r->count),
		.form = thc_le32(form),
		.constants = thc_le32(c->spec.constants),
		.tag = thc_le32((uint32_t)(r->key ^ r->key >> 32)),
		.call = thc_le32(
			r->precision | r->levels << LEVELS_SHIFT | r->grain_log2 << GRAIN_SHIFT |
			(r->rows ? r->rows->width : 0) << ROW_SHIFT | r->chosen << CHOSEN_SHIFT),
		.digest = thc_le32(known && !held->missed ? held->digest : 0),
		.missed = thc_le32(known ? held->missed : 0),
		.status = thc_le32(status_word(r)),
	};
}

void thc_agree_results(struct thc_request *r, const uint16_t *counts, uint32_t chunks,
		       uint32_t digest)
{
	struct thc_results *held = &r->client->results[r->round & 1];
	uint32_t k;

	if (held->round != r->round)
		*held = (struct thc_results){ .round = r->round };
	held->digest += digest;
	for (k = 0; k < chunks; k++)
		held->missed += !(counts[k] & ~THC_COUNT_EXCLUDED);
}

bool thc_agree_answered(struct thc_request *r, unsigned int phase, const void *lanes)
{
	unsigned int k;

	memcpy(&r->claims[phase * THC_CLAIM_WORKERS], lanes, THC_LANE_BYTES);
	for (k = THC_AGREEMENT; k < THC_AGREEMENT_PHASES; k++)
		if (r->phases.phase[k].answered < r->phases.phase[k].sized)
			return false;
	return true;
}

/* Any other status than OK, known or not, keeps the round from going on. */
static bool is_bad(const struct thc_claim *c)
{
	return (thc_le32(c->status) & 0xff) != THC_CLAIM_OK;
}

/* Are the fields equal that must be equal on all ranks? */
static bool same(const struct thc_claim *a, const struct thc_claim *b)
{
	return a->count_lo == b->count_lo && a->form == b->form && a->constants == b->constants &&
	       a->tag == b->tag && a->call == b->call &&
	       thc_le32(a->status ^ b->status) >> SKETCH_SHIFT == 0;
}

static void describe(const struct thc_claim *c, char *text, size_t size)
{
	uint32_t form = thc_le32(c->form), dtype = (form & 0xff) - 1;
	uint32_t scheme = form >> SCHEME_SHIFT & 0xff, call = thc_le32(c->call);
	uint32_t precision = call & ((1U << LEVELS_SHIFT) - 1), row = call >> ROW_SHIFT;
	uint32_t levels = call >> LEVELS_SHIFT & 3;
	uint32_t grain_log2 = call >> GRAIN_SHIFT & ((1U << (ROW_SHIFT - GRAIN_SHIFT)) - 1);
	char bits[24] = "", grain[24] = "", index[24] = "";

	if (precision)
		snprintf(bits, sizeof(bits), ", %u bits", precision);
	else if (thc_scheme_is_precise(scheme) && dtype <= THC_BF16)
		snprintf(bits, sizeof(bits), ", exact");
	if (scheme == THC_SCHEME_LHC)
		snprintf(index, sizeof(index),
			 thc_le32(c->status) >> SKETCH_SHIFT ? ", a sketch" : ", %u index levels",
			 levels);
	if (row && scheme == THC_SCHEME_THC)
		snprintf(bits, sizeof(bits), ", rate %05x", row);
	else if (row)
		snprintf(grain, sizeof(grain), ", in rows of %u", row);
	else if (grain_log2)
		snprintf(grain, sizeof(grain), ", grain %u", 1U << grain_log2);
	snprintf(text, size, "%llu %s values (scheme %s%s%s%s, table %08x, key %08x)",
		 (unsigned long long)(form >> COUNT_SHIFT) << 32 | thc_le32(c->count_lo),
		 thc_dtype_name(dtype),
		 scheme < THC_SCHEMES_COUNT ? thc_scheme_name[scheme] : "unknown", bits, grain,
		 index, thc_le32(c->constants), thc_le32(c->tag));
}

/**
 * struct verdict - the result of comparing the claims of all ranks with this rank's
 * @differ: ranks whose claims differ from this rank's
 * @bad: ranks whose gradient is not finite
 * @holder: a rank that has missed no result of the round before the last one: this rank, if it has
 *	missed none; -1: there is no such rank
 * @others: ranks that have missed none, either, but hold other results than @holder
 * @others_end: the round ends also for the other ranks: their claims alone differ, or one is bad
 */
struct verdict {
	uint64_t	differ;
	uint64_t	bad;
	int		holder;
	uint64_t	others;
	bool		others_end;
};

/* Do ranks that have all results of a round hold different ones? */
static bool hold_others(const struct thc_claim *a, const struct thc_claim *b)
{
	return !a->missed && !b->missed && a->digest != b->digest;
}

/* The rank whose results are compared with those of all others, or -1. */
static int holder_of(struct thc_request *r)
{
	int i;

	if (!own_claim(r)->missed)
		return (int)r->client->options.rank;
	for (i = 0; i < r->client->spec.ranks; i++)
		if (is_made(&r->claims[i]) && !r->claims[i].missed)
			return i;
	return -1;
}

static struct verdict compare(struct thc_request *r)
{
	const struct thc_claim *own = own_claim(r), *first = NULL, *whole = NULL, *held = NULL;
	struct verdict v = { .holder = holder_of(r) };
	int i;

	if (v.holder >= 0)
		held = own->missed ? &r->claims[v.holder] : own;
	if (is_bad(own))
		v.bad |= 1ULL << r->client->options.rank;
	for (i = 0; i < r->client->spec.ranks; i++) {
		const struct thc_claim *other = &r->claims[i];

		if (!is_made(other))
			continue;
		if (!first)
			first = other;
		if (!whole && !other->missed)
			whole = other;
		if (held && hold_others(held, other))
			v.others |= 1ULL << i;
		if (is_bad(other))
			v.bad |= 1ULL << i;
		if (!same(own, other))
			v.differ |= 1ULL << i;
		v.others_end |= is_bad(other) || !same(first, other) ||
				(whole && hold_others(whole, other));
	}
	return v;
}

static int disagreement(struct thc_request *r, uint64_t differ)
{
	unsigned int first = (unsigned int)__builtin_ctzll(differ);
	char ranks[THC_RANKS_TEXT], mine[128], theirs[128];

	describe(own_claim(r), mine, sizeof(mine));
	describe(&r->claims[first], theirs, sizeof(theirs));
	snprintf(
		r->sentence, sizeof(r->sentence),
		"%s disagree%s with this rank (%u): it brought %s, rank %u brought %s; all ranks must call with the same count, dtype, scheme, precision, rate, group and key in the same order",
		thc_name_ranks(differ, ranks, sizeof(ranks)), differ & (differ - 1) ? "" : "s",
		r->client->options.rank, mine, first, theirs);
	return -EBADMSG;
}

/* A result was altered on its way, or computed wrongly; nobody can tell which rank's is right. */
static int other_results(struct thc_request *r, const struct verdict *v)
{
	const char *one = v->others & (v->others - 1) ? "" : "s";
	unsigned int self = r->client->options.rank;
	char ranks[THC_RANKS_TEXT], holder[40];

	thc_name_ranks(v->others, ranks, sizeof(ranks));
	if (r->round < 2) {
		snprintf(
			r->sentence, sizeof(r->sentence),
			"%s claim%s results of a round before the first one: see that all ranks run the same program",
			ranks, one);
		return -EBADMSG;
	}
	snprintf(holder, sizeof(holder), v->holder == (int)self ? "this rank (%d)" : "rank %d",
		 v->holder);
	snprintf(
		r->sentence, sizeof(r->sentence),
		"%s hold%s other results of round %llu than %s: a packet was altered on its way, or a host has computed wrongly; this is found two rounds later, so go back to a checkpoint on all ranks",
		ranks, one, (unsigned long long)r->round - 2, holder);
	return -EBADMSG;
}

static int not_finite(struct thc_request *r, uint64_t bad)
{
	unsigned int self = r->client->options.rank;
	char ranks[THC_RANKS_TEXT];

	if (bad & 1ULL << self)
		snprintf(
			r->sentence, sizeof(r->sentence),
			"the gradient of this rank (%u) is not finite at index %zu of %zu (NaN, Inf or too large); nothing was sent and the buffer is unchanged: lower the learning rate or the loss scale, or skip this step on all ranks",
			self, r->bad, r->count);
	else
		snprintf(
			r->sentence, sizeof(r->sentence),
			"the gradient of %s is not finite (NaN, Inf or too large); nothing was reduced and the buffer is unchanged: skip this step on all ranks",
			thc_name_ranks(bad, ranks, sizeof(ranks)));
	return -EDOM;
}

int thc_agree_check(struct thc_request *r)
{
	struct verdict v = compare(r);
	int error;

	if (v.differ)
		error = disagreement(r, v.differ);
	else if (v.others)
		error = other_results(r, &v);
	else if (v.bad)
		error = not_finite(r, v.bad);
	else
		return 0;
	r->left_behind = !is_made(&r->claims[r->client->options.rank]) && !v.others_end;
	return error;
}
