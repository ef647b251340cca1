// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The agreement that opens every round: each rank states what it brought to
 * the all-reduce, and compares what the others brought (struct thc_claim).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "request.h"

static const char *const dtype_name[] = { "fp32", "fp16", "bf16" };

/* Where thc_claim.kind has what. */
enum { STATUS_SHIFT = 8, COUNT_SHIFT = 16 };

void thc_agree_claim(const struct thc_request *r, void *lanes)
{
	const struct thc_client *c = r->client;
	uint32_t kind = ((uint32_t)r->dtype + 1) | (uint32_t)r->claim_status << STATUS_SHIFT |
			(uint32_t)(r->count >> 32) << COUNT_SHIFT;
	struct thc_claim claim = {
		.count_lo = thc_le32((uint32_t)r->count),
		.kind = thc_le32(kind),
		.table = thc_le32(c->params.table_hash),
		.tag = thc_le32((uint32_t)(r->key ^ r->key >> 32)),
	};

	memset(lanes, 0, THC_LANE_BYTES);
	memcpy((uint8_t *)lanes + c->options.rank * sizeof(claim), &claim, sizeof(claim));
}

static struct thc_claim claim_of(const void *lanes, unsigned int rank)
{
	struct thc_claim c;

	memcpy(&c, (const uint8_t *)lanes + rank * sizeof(c), sizeof(c));
	return c;
}

/* False: a deadline has left the rank out. */
static bool is_made(const struct thc_claim *c)
{
	return thc_le32(c->kind) & 0xff;
}

static unsigned int status_of(const struct thc_claim *c)
{
	return thc_le32(c->kind) >> STATUS_SHIFT & 0xff;
}

/* But for the status. */
static bool same(const struct thc_claim *a, const struct thc_claim *b)
{
	return a->count_lo == b->count_lo && a->table == b->table && a->tag == b->tag &&
	       !((a->kind ^ b->kind) & ~thc_le32(0xff << STATUS_SHIFT));
}

static void describe(const struct thc_claim *c, char *text, size_t size)
{
	uint32_t kind = thc_le32(c->kind), dtype = (kind & 0xff) - 1;

	snprintf(text, size, "%llu %s values (table %08x, key %08x)",
		 (unsigned long long)(kind >> COUNT_SHIFT) << 32 | thc_le32(c->count_lo),
		 dtype < 3 ? dtype_name[dtype] : "unknown", thc_le32(c->table), thc_le32(c->tag));
}

/* The result of comparing the claims of all ranks with this rank's. */
struct verdict {
	uint64_t	differ;		/* ranks that brought something else than this one */
	uint64_t	bad;		/* ranks whose gradient is not finite */
	bool		others_end;	/* the other ranks' claims alone differ, or one is bad */
};

static struct verdict compare(const struct thc_claim *own, const void *lanes, unsigned int self,
			      unsigned int ranks)
{
	struct thc_claim first = { .kind = 0 };
	struct verdict v = { .differ = 0 };
	unsigned int i;

	if (status_of(own) != THC_CLAIM_OK)
		v.bad |= 1ULL << self;
	for (i = 0; i < ranks; i++) {
		struct thc_claim other = claim_of(lanes, i);

		if (!is_made(&other))
			continue;
		if (!is_made(&first))
			first = other;
		/* there may be others than NOT_FINITE one day: none is a reason to go on */
		if (status_of(&other) != THC_CLAIM_OK)
			v.bad |= 1ULL << i;
		if (!same(own, &other))
			v.differ |= 1ULL << i;
		v.others_end |= status_of(&other) != THC_CLAIM_OK || !same(&first, &other);
	}
	return v;
}

static int disagreement(struct thc_request *r, const struct thc_claim *own, const void *lanes,
			uint64_t differ)
{
	unsigned int first = (unsigned int)__builtin_ctzll(differ);
	struct thc_claim other = claim_of(lanes, first);
	char ranks[THC_RANKS_TEXT], mine[96], theirs[96];

	describe(own, mine, sizeof(mine));
	describe(&other, theirs, sizeof(theirs));
	snprintf(
		r->sentence, sizeof(r->sentence),
		"%s disagree%s with this rank (%u): it brought %s, rank %u brought %s; all ranks must call with the same count, dtype and key in the same order",
		thc_name_ranks(differ, ranks, sizeof(ranks)), differ & (differ - 1) ? "" : "s",
		r->client->options.rank, mine, first, theirs);
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

int thc_agree_check(struct thc_request *r, const void *lanes)
{
	unsigned int self = r->client->options.rank;
	struct thc_claim own = claim_of((const struct thc_hdr *)r->claim + 1, self);
	struct thc_claim summed = claim_of(lanes, self);
	struct verdict v = compare(&own, lanes, self, r->client->params.ranks);
	int error;

	if (v.differ)
		error = disagreement(r, &own, lanes, v.differ);
	else if (v.bad)
		error = not_finite(r, v.bad);
	else
		return 0;
	r->left_behind = !is_made(&summed) && !v.others_end;
	return error;
}
