/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The rest of version 1: a worker of that version is told, in its own format, that the version is
 * obsolete. Version 1's header has a sum and a cookie in the place of key_id and tag.
 */
#ifndef THC_VERSION1_H
#define THC_VERSION1_H

#include <thc/wire/sum.h>

/* Payload bytes of JOIN and of WELCOME in version 1. */
#define THC_VERSION1_JOIN	16
#define THC_VERSION1_WELCOME	136

/* Offsets in version 1's WELCOME that refuses: the JOIN's nonce, 8 bytes; flags; reason. */
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
 * thc_version1_refuse() - makes version 1's WELCOME that refuses a JOIN for its version
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
		.tag = join->tag,	/* the cookie's place */
	};
	for (i = 0; i < THC_VERSION1_WELCOME; i++)
		welcome[i] = 0;
	for (i = 0; i < 8; i++)
		welcome[THC_VERSION1_NONCE + i] = nonce[i];
	welcome[THC_VERSION1_FLAGS] = THC_VERSION1_F_REFUSED;
	welcome[THC_VERSION1_REFUSAL] = THC_REFUSED_VERSION;
	/* key_id, the place of the sum, is still zero */
	thc_sum_add(&s, h, sizeof(*h) / 8);
	thc_sum_add(&s, welcome, THC_VERSION1_WELCOME / 8);
	h->key_id = thc_be32(thc_sum_fold(s));
}

#endif /* THC_VERSION1_H */
