// SPDX-License-Identifier: GPL-2.0
/*
 * May a restarted daemon go on with what its predecessor left? Only with the
 * same jobs: rounds are running that rely on their constants. What differs is
 * named; nothing is thrown away unless the operator says --fresh.
 */
#include <string.h>

#include <thc/names.h>

#include "pins.h"

#define DISCARD "; --fresh discards what is there, and all ranks have to join again"

int thcd_keep_meta(const struct thcd_meta *was, const struct thcd_meta *is, const char *instance,
		   struct thcd_error *e)
{
	if (was->layout != is->layout)
		return thcd_fail(
			e,
			"the pins of instance \"%s\" are those of another version of thcd" DISCARD,
			instance);
	if (was->netns != is->netns || was->ifindex != is->ifindex)
		return thcd_fail(
			e,
			"the pins of instance \"%s\" belong to another interface (index %u%s): "
			"give --instance another name; if that interface is gone, --fresh "
			"discards them",
			instance, was->ifindex,
			was->netns != is->netns ? " of another network namespace" : "");
	if (!thc_addr_equal(&was->addr4, &is->addr4) || !thc_addr_equal(&was->addr6, &is->addr6))
		return thcd_fail(
			e, "the aggregator that is attached serves other addresses than thcd is "
			   "asked to serve" DISCARD);
	if (was->port != is->port)
		return thcd_fail(
			e,
			"the aggregator that is attached uses port %u, and %u is asked for" DISCARD,
			was->port, is->port);
	return 0;
}

bool thcd_keep_equal(const struct thcd_plan *was, const struct thcd_plan *is)
{
	struct thcd_plan there = *is;
	bool equal;

	there.slot_base = was->slot_base;
	there.admits = was->admits;
	equal = !memcmp(was, &there, sizeof(there));
	/* it holds a key */
	explicit_bzero(&there, sizeof(there));
	return equal;
}

int thcd_keep_difference(const struct thcd_plan *was, const struct thcd_plan *is,
			 struct thcd_error *e)
{
#define NUMBER(field, name)                                                                      \
	if (was->field != is->field)                                                             \
		return thcd_fail(e, "%s is %u, and %u is asked for", name, was->field, is->field);
#define OTHER(field, name)                                                                       \
	if (memcmp(&was->field, &is->field, sizeof(was->field)))                                 \
		return thcd_fail(e, "%s differs", name);
	const u32 row = thc_row_at(was->bits);

	if (was->scheme != is->scheme)
		return thcd_fail(e, "scheme is %s, and %s is asked for",
				 thc_scheme_name[was->scheme % THC_SCHEMES_COUNT],
				 thc_scheme_name[is->scheme % THC_SCHEMES_COUNT]);
	NUMBER(value_bits, "bits of precision")
	NUMBER(grain_log2, "log2 of grain")
	NUMBER(sketch, "kind of sketch")
	NUMBER(rotate, "rotate")
	NUMBER(ranks, "ranks")
	NUMBER(bits, "bits")
	NUMBER(tables.granularity[row], "granularity")
	NUMBER(tables.widths.sum[row], "sum_width")
	NUMBER(data_slots, "slots")
	NUMBER(control_slots, "norm_slots")
	NUMBER(quorum, "quorum")
	NUMBER(deadline_ms, "deadline_ms")
	NUMBER(rate, "rate in thousandths")
	NUMBER(rate_tried, "whether rate is auto")
	NUMBER(error, "error in millionths")
	NUMBER(block_log2, "log2 of block")
	NUMBER(group_port, "group_port")
	OTHER(shards, "shards, or shard")
	OTHER(seal, "seal")
	OTHER(key, "key")
	OTHER(seed, "seed")
	OTHER(tables.clamp[row], "clamp")
	OTHER(tables, "table")
	OTHER(reply, "reply")
	OTHER(group, "group")
	OTHER(correlated, "correlated")
	OTHER(ttl_min, "hops")
#undef NUMBER
#undef OTHER
	return thcd_fail(e, "something else differs");
}

static int keep_job(u32 id, const struct thcd_record *was, const struct thcd_plan *is,
		    struct thcd_error *e)
{
	struct thcd_error why;

	if (thcd_keep_equal(&was->plan, is))
		return 0;
	if (!was->used)
		return thcd_fail(
			e,
			"job %u is asked for, but the aggregator that is attached has none of "
			"that number" DISCARD,
			id);
	if (!is->ranks)
		return thcd_fail(
			e,
			"the aggregator that is attached has a job %u, which is not asked for" DISCARD,
			id);
	thcd_keep_difference(&was->plan, is, &why);
	return thcd_fail(e, "job %u of the aggregator that is attached is another: %.300s" DISCARD,
			 id, why.text);
}

int thcd_keep_jobs(const struct thcd_record *was, const struct thcd_plan *plans,
		   struct thcd_error *e)
{
	int i;

	for (i = 0; i < THC_JOBS_MAX; i++)
		if (keep_job(i, &was[i], &plans[i], e))
			return -1;
	return 0;
}
