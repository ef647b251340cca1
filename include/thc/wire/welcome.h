/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * WELCOME: a fixed part and records, in up to THC_WELCOME_PARTS packets. This file reads it,
 * announce.h writes it, and spec.h tells what a worker can serve.
 */
#ifndef THC_WELCOME_H
#define THC_WELCOME_H

#include <thc/fnv.h>
#include <thc/wire/nonce.h>
#include <thc/wire/spec.h>

/* Bytes of the records of one part, at most. */
#define THC_RECORDS_PER_PART	(THC_WELCOME_BYTES - sizeof(struct thc_welcome))

/* A record's bytes on the wire, zeros behind it included; @bytes: of its data. */
THC_INLINE u32 thc_record_size(u32 bytes)
{
	return ((u32)sizeof(struct thc_record) + bytes + 7) & ~7U;
}

/* thc_welcome.constants, in host order: a hash of the records with CONSTANT, of seed and of
 * features. @records: whole ones, @bytes of them
 */
static inline u32 thc_welcome_constants(const struct thc_welcome *w, const void *records, u32 bytes)
{
	u32 at = 0, hash = THC_FNV_BEGIN;

	while (at < bytes) {
		const struct thc_record *r = (const void *)((const u8 *)records + at);
		u32 size = thc_record_size(thc_be16(r->bytes));

		if (r->flags & THC_RECORD_F_CONSTANT)
			hash = thc_fnv(hash, r, size);
		at += size;
	}
	hash = thc_fnv(hash, &w->seed, sizeof(w->seed));
	return thc_fnv(hash, &w->features, sizeof(w->features));
}

/* --- reading ---------------------------------------------------------------------- */

/* Has record @r at least the bytes of @type? */
#define THC_RECORD_HAS(r, type) (thc_be16((r)->bytes) >= sizeof(type) - sizeof(struct thc_record))

THC_INLINE int thc_spec_read_seal(struct thc_spec *s, const struct thc_record_seal *r)
{
	if (r->reserved[0] | r->reserved[1] | r->reserved[2])
		return 0;
	/* each part has this record, with the same contents */
	if (s->has & 1U << THC_RECORD_SEAL)
		return s->seal == r->seal && thc_nonce_equal(s->salt, r->salt);
	thc_nonce_copy(s->salt, r->salt);
	s->seal = r->seal;
	return 1;
}

THC_INLINE int thc_spec_read_group(struct thc_spec *s, const struct thc_record_group *r)
{
	return !(s->has & 1U << THC_RECORD_GROUP) && thc_record_address_read(&s->group, &r->at);
}

/* Addresses that @r has room for, by its length. */
THC_INLINE u32 thc_shards_held(const struct thc_record_shards *r)
{
	u32 bytes = thc_be16(r->head.bytes) - (u32)(sizeof(*r) - sizeof(r->head));

	return bytes / (u32)sizeof(struct thc_record_address);
}

/* Records SHARDS follow one another, from number 0 on. */
static inline int thc_spec_read_shards(struct thc_spec *s, const struct thc_record_shards *r)
{
	const struct thc_record_address *at = (const void *)(r + 1);
	u32 i, count = thc_be16(r->count);
	struct thc_end end;

	if (thc_be16(r->first) != s->listed || !count || count > thc_shards_held(r) ||
	    s->listed + count > s->shards || s->listed + count > THC_SHARDS_MAX)
		return 0;
	for (i = 0; i < count; i++)
		if (!thc_record_address_read(&end, &at[i]) || !end.port ||
		    thc_addr_is_group(&end.addr))
			return 0;
	s->listed += count;
	return 1;
}

/* Reads a row. A job has at most one for a number of bits, its own first. Larger widths have a
 * meaning to come, and are passed over.
 */
static inline int thc_spec_read_row(struct thc_spec *s, const struct thc_record_row *r)
{
	u32 i, bits = r->width & 15, at = thc_row_at(bits), g = 0;
	struct thc_tables *t = &s->tables;

	if (bits < 1 || bits > THC_BITS_MAX ||
	    thc_be16(r->head.bytes) < sizeof(*r) - sizeof(r->head) + (2U << bits))
		return 0;
	if (r->width > THC_BITS_MAX)
		return 1;
	if (!r->sum_width || t->widths.sum[at])
		return 0;
	if (!(s->has & 1U << THC_RECORD_ROW))
		s->bits = r->width;
	t->widths.sum[at] = r->sum_width;
	t->granularity[at] = thc_be16(r->granularity);
	t->clamp[at] = thc_be64(r->clamp);
	for (i = 0; i < 1U << bits; i++) {
		u16 level = thc_be16(((const __be16 *)(r + 1))[i]);

		t->level[(1U << bits) + i] = level;
		g = level > g ? level : g;
	}
	s->has |= 1U << THC_RECORD_ROW;
	return g == t->granularity[at];
}

/* The job's own scheme comes first. */
THC_INLINE int thc_spec_read_scheme(struct thc_spec *s, const struct thc_record_scheme *r)
{
	if (r->reserved)
		return 0;
	if (s->has & 1U << THC_RECORD_SCHEME)
		return 1;
	s->scheme = r->scheme;
	s->value_bits = r->value_bits;
	s->grain = thc_be16(r->grain);
	s->scheme_features = thc_be32(r->features);
	s->block_log2 = r->block_log2;
	return 1;
}

/* A job aims at a rate or at an error. */
THC_INLINE int thc_spec_read_rate(struct thc_spec *s, const struct thc_record_rate *r)
{
	if (s->has & 1U << THC_RECORD_RATE || thc_be32(r->flags) & ~THC_RATE_F_TRY ||
	    !r->rate == !r->error)
		return 0;
	s->rate = thc_be32(r->rate);
	s->error = thc_be32(r->error);
	s->rate_flags = thc_be32(r->flags);
	return 1;
}

/* Returns 0 if this worker cannot serve the record. */
static inline int thc_spec_read_record(struct thc_spec *s, const struct thc_record *r)
{
	const void *data = r;
	int good = 0;

	switch (r->type) {
	case THC_RECORD_SEAL:
		good = THC_RECORD_HAS(r, struct thc_record_seal) && thc_spec_read_seal(s, data);
		break;
	case THC_RECORD_GROUP:
		good = THC_RECORD_HAS(r, struct thc_record_group) && thc_spec_read_group(s, data);
		break;
	case THC_RECORD_ROW:
		/* thc_spec_read_row() sets its bit of @has */
		return THC_RECORD_HAS(r, struct thc_record_row) && thc_spec_read_row(s, data);
	case THC_RECORD_SHARDS:
		good = THC_RECORD_HAS(r, struct thc_record_shards) && thc_spec_read_shards(s, data);
		break;
	case THC_RECORD_SCHEME:
		good = THC_RECORD_HAS(r, struct thc_record_scheme) && thc_spec_read_scheme(s, data);
		break;
	case THC_RECORD_RATE:
		good = THC_RECORD_HAS(r, struct thc_record_rate) && thc_spec_read_rate(s, data);
		break;
	default:
		return !(r->flags & THC_RECORD_F_KNOW);
	}
	s->has |= 1U << r->type;
	return good;
}

/* Reads the fixed part by fields: a kernel's stack has no room for a second struct thc_spec. */
static inline void thc_spec_read_fixed(struct thc_spec *s, const struct thc_welcome *w)
{
	*s = (struct thc_spec){ .has = 0 };
	s->joined = thc_be64(w->joined);
	s->seed = thc_be64(w->seed);
	s->deadline_ms = thc_be32(w->deadline_ms);
	s->features = thc_be32(w->features);
	s->constants = thc_be32(w->constants);
	s->ranks = thc_be16(w->ranks);
	s->quorum = thc_be16(w->quorum);
	s->data_slots = thc_be16(w->data_slots);
	s->control_slots = thc_be16(w->control_slots);
	s->flags = thc_be16(w->flags);
	s->refusal = w->refusal;
	s->reply = w->reply;
	s->shard = thc_be16(w->shard);
	s->shards = thc_be16(w->shards);
}

/**
 * thc_spec_read() - reads a WELCOME into @s
 * @w: the fixed part
 * @records: of all parts in their order, aligned like a u64
 *
 * Returns 0 if the WELCOME is malformed, or has a record that a worker has to know and this one
 * does not.
 */
static inline int thc_spec_read(struct thc_spec *s, const struct thc_welcome *w,
				const void *records, u32 bytes)
{
	const u8 *from = records;
	u32 at = 0, i;

	thc_spec_read_fixed(s, w);
	while (at < bytes) {
		const struct thc_record *r = (const void *)(from + at);
		u32 size;

		if (bytes - at < 8)
			return 0;
		size = thc_record_size(thc_be16(r->bytes));
		if (size > bytes - at || r->flags & ~(THC_RECORD_F_KNOW | THC_RECORD_F_CONSTANT))
			return 0;
		for (i = (u32)sizeof(*r) + thc_be16(r->bytes); i < size; i++)
			if (from[at + i])
				return 0;
		if (!thc_spec_read_record(s, r))
			return 0;
		at += size;
	}
	return thc_welcome_constants(w, records, bytes) == s->constants;
}

#endif /* THC_WELCOME_H */
