// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The agreement that opens every round: each rank states what it brought to
 * the all-reduce, and compares what the others brought (struct thc_claim).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agree.h"
#include "client.h"
#include "failure.h"
#include "request.h"

static const char *const dtype_name[] = { "fp32", "fp16", "bf16" };

/* A claim in host order. */
struct claim {
	uint64_t	count;
	uint32_t	dtype;
	uint32_t	status;
	uint32_t	table;
	uint32_t	tag;
	bool		made;
};

static uint32_t fold(uint64_t key)
{
	return (uint32_t)(key ^ key >> 32);
}

void thc_agree_claim(const struct thc_request *r, void *lanes)
{
	const struct thc_client *c = r->client;
	uint32_t kind = ((uint32_t)r->dtype + 1) | (uint32_t)r->claim_status << 8 |
			(uint32_t)(r->count >> 32) << 16;
	struct thc_claim claim = {
		.count_lo = thc_le32((uint32_t)r->count),
		.kind = thc_le32(kind),
		.table = thc_le32(c->params.table_hash),
		.tag = thc_le32(fold(r->key)),
	};

	memset(lanes, 0, THC_LANE_BYTES);
	memcpy((uint8_t *)lanes + c->options.rank * sizeof(claim), &claim, sizeof(claim));
}

static struct claim claim_of(const void *lanes, unsigned int rank)
{
	struct thc_claim wire;
	uint32_t kind;

	memcpy(&wire, (const uint8_t *)lanes + rank * sizeof(wire), sizeof(wire));
	kind = thc_le32(wire.kind);
	return (struct claim){
		.count = thc_le32(wire.count_lo) | (uint64_t)(kind >> 16) << 32,
		.dtype = (kind & 0xff) - 1,
		.status = kind >> 8 & 0xff,
		.table = thc_le32(wire.table),
		.tag = thc_le32(wire.tag),
		.made = kind & 0xff,
	};
}

static bool same(const struct claim *a, const struct claim *b)
{
	return a->count == b->count && a->dtype == b->dtype && a->table == b->table &&
	       a->tag == b->tag;
}

static void describe(const struct claim *c, char *text, size_t room)
{
	snprintf(text, room, "%llu %s values (table %08x, key %08x)", (unsigned long long)c->count,
		 c->dtype < 3 ? dtype_name[c->dtype] : "unknown", c->table, c->tag);
}

/* What the claims of all ranks amount to, as seen by one of them. */
struct verdict {
	uint64_t	differ;		/* ranks that brought something else than this one */
	uint64_t	bad;		/* ranks whose gradient is not finite */
	bool		others_end;	/* the others find this or that among themselves */
};

static struct verdict compare(const struct claim *own, const void *lanes, unsigned int self,
			      unsigned int ranks)
{
	struct claim first = { .made = false };
	struct verdict v = { .differ = 0 };
	unsigned int i;

	if (own->status != THC_CLAIM_OK)
		v.bad |= 1ULL << self;
	for (i = 0; i < ranks; i++) {
		struct claim other = claim_of(lanes, i);

		if (!other.made)
			continue;	/* left out by a deadline */
		if (!first.made)
			first = other;
		/* there may be others than NOT_FINITE one day: none is a reason to go on */
		if (other.status != THC_CLAIM_OK)
			v.bad |= 1ULL << i;
		if (!same(own, &other))
			v.differ |= 1ULL << i;
		v.others_end |= other.status != THC_CLAIM_OK || !same(&first, &other);
	}
	return v;
}

static int disagreement(struct thc_request *r, const struct claim *own, const void *lanes,
			uint64_t differ)
{
	unsigned int first = (unsigned int)__builtin_ctzll(differ);
	struct claim other = claim_of(lanes, first);
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
	struct claim own = claim_of((const struct thc_hdr *)r->claim + 1, self);
	struct verdict v = compare(&own, lanes, self, r->client->params.ranks);
	int error;

	if (v.differ)
		error = disagreement(r, &own, lanes, v.differ);
	else if (v.bad)
		error = not_finite(r, v.bad);
	else
		return 0;
	r->left_behind = !claim_of(lanes, self).made && !v.others_end;
	return error;
}
