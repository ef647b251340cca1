/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is left of version 1: a worker of it is told that it is over, in the words that it knows.
 * Its header has a sum and a cookie where version 2 has key_id and tag.
 */
#ifndef THC_VERSION1_H
#define THC_VERSION1_H

#include <thc/wire/sum.h>

/* Payloads of its JOIN, and of its WELCOME. */
#define THC_VERSION1_JOIN	16
#define THC_VERSION1_WELCOME	136

/* Where its WELCOME has what a refusal says: the nonce of the JOIN, 8 bytes; flags; why. */
#define THC_VERSION1_NONCE	24
#define THC_VERSION1_FLAGS	56
#define THC_VERSION1_REFUSAL	57
#define THC_VERSION1_F_REFUSED	2

/* Is it a JOIN of version 1? @bytes: of its payload */
THC_INLINE int thc_version1_joins(const struct thc_hdr *h, u32 bytes)
{
	return h->version == 1 && h->op == THC_OP_JOIN && bytes == THC_VERSION1_JOIN;
}

/**
 * thc_version1_refuse() - the WELCOME of version 1 that refuses a JOIN of it, for its version
 * @h: out: the header
 * @welcome: out: THC_VERSION1_WELCOME bytes, aligned to 8
 * @join: header of the JOIN, its payload behind it
 */
static inline void thc_version1_refuse(struct thc_hdr *h, u8 *welcome, const struct thc_hdr *join)
{
	const u8 *nonce = (const u8 *)(join + 1);
	struct thc_sum s = { 0, 0 };
	u32 i;

	*h = (struct thc_hdr){
		.version = 1, .op = THC_OP_WELCOME, .job = join->job, .rank = join->rank,
		.tag = join->tag,	/* there is the cookie */
	};
	for (i = 0; i < THC_VERSION1_WELCOME; i++)
		welcome[i] = 0;
	for (i = 0; i < 8; i++)
		welcome[THC_VERSION1_NONCE + i] = nonce[i];
	welcome[THC_VERSION1_FLAGS] = THC_VERSION1_F_REFUSED;
	welcome[THC_VERSION1_REFUSAL] = THC_REFUSED_VERSION;
	/* key_id, where the sum goes, is zero */
	thc_sum_add(&s, h, sizeof(*h) / 8);
	thc_sum_add(&s, welcome, THC_VERSION1_WELCOME / 8);
	h->key_id = thc_be32(thc_sum_fold(s));
}

#endif /* THC_VERSION1_H */
