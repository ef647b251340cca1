// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The agreement that opens every round: each rank states what it brought to
 * the all-reduce, and compares what the others brought (struct thc_claim).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client.h"

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
	snprintf(text, room, "%llu %s values (table %08x, key %08x)",
		 (unsigned long long)c->count, c->dtype < 3 ? dtype_name[c->dtype] : "unknown",
		 c->table, c->tag);
}

int thc_agree_check(struct thc_request *r, const void *lanes)
{
	const struct thc_client *c = r->client;
	struct claim own = claim_of(thc_request_norm_packet(r, 0) + 1, c->options.rank);
	uint64_t differ = 0, bad = 0;
	char ranks[128], mine[96], theirs[96];
	unsigned int i, first = 0;

	for (i = 0; i < c->params.ranks; i++) {
		struct claim other = claim_of(lanes, i);

		if (!other.made)
			continue;	/* left out by a deadline */
		if (other.status == THC_CLAIM_NOT_FINITE)
			bad |= 1ULL << i;
		if (!same(&own, &other)) {
			if (!differ)
				first = i;
			differ |= 1ULL << i;
		}
	}
	if (differ) {
		struct claim other = claim_of(lanes, first);

		describe(&own, mine, sizeof(mine));
		describe(&other, theirs, sizeof(theirs));
		snprintf(r->sentence, sizeof(r->sentence),
			 "%s disagree%s with this rank (%u): it brought %s, rank %u brought %s; all ranks must call with the same count, dtype and key in the same order",
			 thc_name_ranks(differ, ranks, sizeof(ranks)),
			 differ & (differ - 1) ? "" : "s", c->options.rank, mine, first, theirs);
		return -EBADMSG;
	}
	if (bad) {
		if (bad & 1ULL << c->options.rank)
			snprintf(r->sentence, sizeof(r->sentence),
				 "the gradient of this rank (%u) is not finite at index %zu of %zu (NaN, Inf or too large); nothing was sent and the buffer is unchanged: lower the learning rate or the loss scale, or skip this step on all ranks",
				 c->options.rank, r->bad, r->count);
		else
			snprintf(r->sentence, sizeof(r->sentence),
				 "the gradient of %s is not finite (NaN, Inf or too large); nothing was reduced and the buffer is unchanged: skip this step on all ranks",
				 thc_name_ranks(bad, ranks, sizeof(ranks)));
		return -EDOM;
	}
	return 0;
}
