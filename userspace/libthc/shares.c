// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* What each bucket of a step aims at, by the last norms of all of them: shares.h has the rule. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "shares.h"

#define ROOM	16

static bool same(const struct thc_share_id *a, const struct thc_share_id *b)
{
	return a->group == b->group && a->key == b->key && a->blocks == b->blocks;
}

static struct thc_share *share_of(const struct thc_shares *s, const struct thc_share_id *which)
{
	struct thc_share *all = (void *)s->all.at;
	size_t i;

	for (i = 0; i < s->count; i++)
		if (same(&all[i].id, which))
			return &all[i];
	return NULL;
}

int thc_shares_open(struct thc_client *c, struct thc_shares *s)
{
	if (thc_buffer_grow(c, &s->bins, 2 * sizeof(struct thc_rate_bins)))
		return -ENOMEM;
	memset(s->bins.at, 0, s->bins.bytes);
	return 0;
}

void thc_shares_close(struct thc_client *c, struct thc_shares *s)
{
	struct thc_share *all = (void *)s->all.at;
	size_t i;

	for (i = 0; i < s->count; i++)
		thc_buffer_drop(c, &all[i].exponents);
	s->count = 0;
	thc_buffer_drop(c, &s->all);
	thc_buffer_drop(c, &s->bins);
}

int thc_shares_begin(struct thc_client *c, struct thc_shares *s, const struct thc_share_id *which)
{
	size_t room = s->all.bytes / sizeof(struct thc_share);
	struct thc_share share = { .id = *which };

	if (share_of(s, which))
		return 0;
	if (s->count == room &&
	    thc_buffer_grow(c, &s->all, (room ? 2 * room : ROOM) * sizeof(share)))
		return -ENOMEM;
	if (thc_buffer_grow(c, &share.exponents, 2 * sizeof(int16_t) * which->blocks))
		return -ENOMEM;
	memcpy(s->all.at + s->count++ * sizeof(share), &share, sizeof(share));
	return 0;
}

static int16_t *exponents_of(const struct thc_share *share, int which)
{
	return (int16_t *)(void *)share->exponents.at + (size_t)which * share->id.blocks;
}

/* Which of what has been seen is the last one before the end of @round - 2; -1: none. */
static int last_before(const struct thc_share *share, uint64_t round)
{
	int last = -1, k;

	for (k = 0; k < 2; k++)
		if (share->seen[k].after && share->seen[k].after < round &&
		    (last < 0 || share->seen[k].after > share->seen[last].after))
			last = k;
	return last;
}

static void add(struct thc_rate_bins *bins, const struct thc_share *share, int which)
{
	thc_rate_add(bins, exponents_of(share, which), share->id.blocks, share->seen[which].turn);
}

struct thc_rate_goal thc_shares_goal(struct thc_shares *s, const struct thc_share_id *which,
				     const struct thc_rate *rate, const struct thc_rate_goal *asked,
				     uint64_t round)
{
	struct thc_rate_bins *bins = (void *)s->bins.at, *all = &bins[0], *own = &bins[1];
	const struct thc_share *share = (void *)s->all.at, *of = share_of(s, which);
	int last = last_before(of, round);
	uint64_t step;
	size_t i;

	if (last < 0)
		return *asked;
	/* rounds since then: the bucket before this one may have been seen last just before */
	step = round - (of->seen[last].after - 1);
	thc_rate_empty(all);
	thc_rate_empty(own);
	add(own, of, last);
	for (i = 0; i < s->count; i++, share++) {
		last = share->id.group == which->group ? last_before(share, round) : -1;
		if (last >= 0 && share->seen[last].after + step >= round)
			add(all, share, last);
	}
	return all->blocks > own->blocks ? thc_rate_share(rate, asked, all, own) : *asked;
}

void thc_shares_note(struct thc_shares *s, const struct thc_share_id *which, uint64_t round,
		     uint32_t turn, const int16_t *exponent)
{
	struct thc_share *share = share_of(s, which);
	int k;

	if (!share)
		return;
	k = share->seen[1].after < share->seen[0].after;
	share->seen[k] = (struct thc_norms_seen){ round + 1, turn };
	memcpy(exponents_of(share, k), exponent, which->blocks * sizeof(*exponent));
}

struct thc_rate_bins *thc_shares_bins(struct thc_shares *s)
{
	return (void *)s->bins.at;
}
