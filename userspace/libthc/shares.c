// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* What each bucket of a step aims at, by the last norms of all of them: shares.h has the rule. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "shares.h"

#define ROOM	16

/* Appends a zeroed element of @size bytes to @count elements; NULL: -ENOMEM. */
static void *append(struct thc_client *c, struct thc_buffer *b, size_t *count, size_t size)
{
	size_t room = b->bytes / size;

	if (*count == room && thc_buffer_grow(c, b, (room ? 2 * room : ROOM) * size))
		return NULL;
	return memset(b->at + (*count)++ * size, 0, size);
}

/* --- buckets ------------------------------------------------------------------ */

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

static int16_t *exponents_of(const struct thc_share *share, int which)
{
	return (int16_t *)(void *)share->exponents.at + (size_t)which * share->id.blocks;
}

/* Index in @seen of the last round up to @round - 2; -1: none. */
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

/* --- groups ------------------------------------------------------------------- */

static struct thc_rate_bins *bins_of(const struct thc_shares *s, uint64_t group)
{
	struct thc_group *all = (void *)s->groups.at;
	size_t i;

	for (i = 0; i < s->group_count; i++)
		if (all[i].number == group)
			return (void *)all[i].bins.at;
	return NULL;
}

static int add_group(struct thc_client *c, struct thc_shares *s, uint64_t number)
{
	struct thc_group *group;

	if (bins_of(s, number))
		return 0;
	group = append(c, &s->groups, &s->group_count, sizeof(*group));
	if (!group)
		return -ENOMEM;
	if (thc_buffer_grow(c, &group->bins, sizeof(struct thc_rate_bins))) {
		s->group_count--;
		return -ENOMEM;
	}
	group->number = number;
	memset(group->bins.at, 0, group->bins.bytes);
	thc_rate_empty((void *)group->bins.at);
	return 0;
}

/* Takes the norms of @share out of its group's bins. */
static void discount(const struct thc_shares *s, struct thc_share *share)
{
	struct thc_rate_bins *bins = bins_of(s, share->id.group);
	int which = share->seen[1].after == share->counted;

	if (bins && share->counted)
		thc_rate_remove(bins, exponents_of(share, which), share->id.blocks,
				share->seen[which].turn);
	share->counted = 0;
}

/* Brings the group's bins up to @round: norms count if seen at most @step rounds before. */
static const struct thc_rate_bins *bring_up(const struct thc_shares *s, uint64_t group,
					    uint64_t round, uint64_t step)
{
	struct thc_share *share = (void *)s->all.at;
	struct thc_rate_bins *bins = bins_of(s, group);
	size_t i;

	for (i = 0; bins && i < s->count; i++, share++) {
		int last = share->id.group == group ? last_before(share, round) : -1;
		bool counts = last >= 0 && share->seen[last].after + step >= round;

		if (counts && share->counted == share->seen[last].after)
			continue;
		if (share->id.group == group)
			discount(s, share);
		if (!counts)
			continue;
		add(bins, share, last);
		share->counted = share->seen[last].after;
	}
	return bins;
}

/* --- of a client --------------------------------------------------------------- */

int thc_shares_open(struct thc_client *c, struct thc_shares *s)
{
	if (thc_buffer_grow(c, &s->bins, sizeof(struct thc_rate_bins)))
		return -ENOMEM;
	memset(s->bins.at, 0, s->bins.bytes);
	return 0;
}

void thc_shares_close(struct thc_client *c, struct thc_shares *s)
{
	struct thc_share *all = (void *)s->all.at;
	struct thc_group *group = (void *)s->groups.at;
	size_t i;

	for (i = 0; i < s->count; i++)
		thc_buffer_drop(c, &all[i].exponents);
	for (i = 0; i < s->group_count; i++)
		thc_buffer_drop(c, &group[i].bins);
	s->count = s->group_count = 0;
	thc_buffer_drop(c, &s->all);
	thc_buffer_drop(c, &s->groups);
	thc_buffer_drop(c, &s->bins);
}

static bool has_buckets(const struct thc_shares *s, uint64_t group)
{
	const struct thc_share *all = (void *)s->all.at;
	size_t i;

	for (i = 0; i < s->count; i++)
		if (all[i].id.group == group)
			return true;
	return false;
}

static void forget_groups(struct thc_client *c, struct thc_shares *s)
{
	struct thc_group *all = (void *)s->groups.at;
	size_t i = 0;

	while (i < s->group_count) {
		if (has_buckets(s, all[i].number)) {
			i++;
			continue;
		}
		thc_buffer_drop(c, &all[i].bins);
		all[i] = all[--s->group_count];
	}
}

/* Forgets old buckets, and their groups: by rounds alone, so that all ranks do the same. */
static void forget(struct thc_client *c, struct thc_shares *s, uint64_t round)
{
	struct thc_share *all = (void *)s->all.at;
	size_t i = 0;

	while (i < s->count) {
		if (all[i].begun + THC_SHARE_ROUNDS >= round) {
			i++;
			continue;
		}
		discount(s, &all[i]);
		thc_buffer_drop(c, &all[i].exponents);
		all[i] = all[--s->count];
	}
	forget_groups(c, s);
}

int thc_shares_begin(struct thc_client *c, struct thc_shares *s, const struct thc_share_id *which,
		     uint64_t round)
{
	struct thc_share *share = share_of(s, which);

	if (!share) {
		forget(c, s, round);
		if (add_group(c, s, which->group))
			return -ENOMEM;
		share = append(c, &s->all, &s->count, sizeof(*share));
		if (!share)
			return -ENOMEM;
		share->id = *which;
		if (thc_buffer_grow(c, &share->exponents, 2 * sizeof(int16_t) * which->blocks)) {
			s->count--;
			return -ENOMEM;
		}
	}
	share->begun = round;
	return 0;
}

struct thc_rate_goal thc_shares_goal(struct thc_shares *s, const struct thc_share_id *which,
				     const struct thc_rate *rate, const struct thc_rate_goal *asked,
				     uint64_t round)
{
	struct thc_rate_bins *own = thc_shares_bins(s);
	const struct thc_share *share = share_of(s, which);
	const struct thc_rate_bins *all;
	int last = share ? last_before(share, round) : -1;

	if (last < 0)
		return *asked;
	thc_rate_empty(own);
	add(own, share, last);
	/* the last norms of the previous bucket may be from just before this bucket's */
	all = bring_up(s, which->group, round, round - (share->seen[last].after - 1));
	return all && all->blocks > own->blocks ? thc_rate_share(rate, asked, all, own) : *asked;
}

void thc_shares_note(struct thc_shares *s, const struct thc_share_id *which, uint64_t round,
		     uint32_t turn, const int16_t *exponent)
{
	struct thc_share *share = share_of(s, which);
	int k;

	if (!share)
		return;
	k = share->seen[1].after < share->seen[0].after;
	if (share->seen[k].after == share->counted)
		discount(s, share);
	share->seen[k] = (struct thc_norms_seen){ round + 1, turn };
	memcpy(exponents_of(share, k), exponent, which->blocks * sizeof(*exponent));
}

struct thc_rate_bins *thc_shares_bins(struct thc_shares *s)
{
	return (void *)s->bins.at;
}
