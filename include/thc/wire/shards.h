/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The aggregators of a job that has several. The job's chunks are spread over them (route.h). A
 * worker joins each, and number 0 lists the addresses of all.
 */
#ifndef THC_SHARDS_H
#define THC_SHARDS_H

#include <thc/wire/welcome.h>

/**
 * struct thc_shards - where the aggregators of a job are
 * @count: how many
 * @own: number of the aggregator that keeps this list, if one does
 * @at: by number, with base ports; thc_end.aggregator is the number
 */
struct thc_shards {
	u32		count;
	u32		own;
	struct thc_end	at[THC_SHARDS_MAX];
};

/* Addresses per record: a part has room for such a record beside SEAL. */
#define THC_SHARDS_PER_RECORD	32

_Static_assert(sizeof(struct thc_record_shards) +
			       THC_SHARDS_PER_RECORD * sizeof(struct thc_record_address) + 7 +
			       sizeof(struct thc_record_seal) <=
		       THC_RECORDS_PER_PART,
	       "SHARDS and SEAL fit into a part");

/**
 * thc_shards_read() - reads the addresses of all aggregators of a job
 * @s: the result of thc_spec_read() for these records, sound; of number 0
 * @records: the records, @bytes of them
 */
static inline void thc_shards_read(struct thc_shards *out, const struct thc_spec *s,
				   const void *records, u32 bytes)
{
	u32 at = 0, i;

	out->count = s->listed;
	out->own = 0;
	while (at < bytes) {
		const struct thc_record *r = (const void *)((const u8 *)records + at);
		const struct thc_record_shards *list = (const void *)r;
		const struct thc_record_address *address = (const void *)(list + 1);

		at += thc_record_size(thc_be16(r->bytes));
		if (r->type != THC_RECORD_SHARDS)
			continue;
		for (i = 0; i < thc_be16(list->count); i++) {
			u32 number = thc_be16(list->first) + i;

			thc_record_address_read(&out->at[number], &address[i]);
			out->at[number].aggregator = thc_be16((u16)number);
		}
	}
}

/* Do two aggregators mean the same job? Levels, scheme, seed and features are in the constants. */
THC_INLINE int thc_shards_agree(const struct thc_spec *a, const struct thc_spec *b)
{
	return a->ranks == b->ranks && a->quorum == b->quorum && a->shards == b->shards &&
	       a->data_slots == b->data_slots && a->control_slots == b->control_slots &&
	       a->constants == b->constants && a->seal == b->seal;
}

#endif /* THC_SHARDS_H */
