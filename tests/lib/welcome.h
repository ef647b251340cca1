/* SPDX-License-Identifier: GPL-2.0 */
/*
 * WELCOME as tests make it: one part with each record once, laid out so that each field can be
 * spoilt by its name.
 */
#ifndef TESTS_LIB_WELCOME_H
#define TESTS_LIB_WELCOME_H

#include <thc/wire/welcome.h>

struct whole_welcome {
	struct thc_welcome		w;
	struct thc_record_seal		seal;
	struct thc_record_group		group;
	struct thc_record_row		row;
	__be16				level[16];
	struct thc_record_scheme	scheme;
};

_Static_assert(sizeof(struct whole_welcome) == 184, "a part of WELCOME");

/* What of it is said to the group: SEAL alone behind the fixed part. */
#define TO_GROUP_BYTES	(sizeof(struct thc_welcome) + sizeof(struct thc_record_seal))

/* Heads of records, and what is the same for all jobs; all else is zero. */
static inline void whole_welcome_init(struct whole_welcome *p)
{
	*p = (struct whole_welcome){
		.w = { .parts = 1, .version_max = THC_VERSION, .shards = thc_be16(1) },
		.seal = { .head = { THC_RECORD_SEAL, 1, thc_be16(20) } },
		.group = { .head = { THC_RECORD_GROUP, 1, thc_be16(20) }, .at.family = 4 },
		.row = { .head = { THC_RECORD_ROW, 3, thc_be16(44) }, .width = 4 },
		.scheme = { .head = { THC_RECORD_SCHEME, 3, thc_be16(20) } },
	};
}

/* After a change of a row, a scheme, the seed or features. */
static inline void whole_welcome_hash(struct whole_welcome *p)
{
	u32 hash = thc_fnv(THC_FNV_BEGIN, &p->row, sizeof(p->row) + sizeof(p->level));

	hash = thc_fnv(hash, &p->scheme, sizeof(p->scheme));
	hash = thc_fnv(hash, &p->w.seed, sizeof(p->w.seed));
	p->w.constants = thc_be32(thc_fnv(hash, &p->w.features, sizeof(p->w.features)));
}

#endif /* TESTS_LIB_WELCOME_H */
