/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How an aggregator announces a job: it makes the records of WELCOME from struct thc_spec, and cuts
 * them into parts.
 */
#ifndef THC_ANNOUNCE_H
#define THC_ANNOUNCE_H

#include <thc/wire/shards.h>
#include <thc/wire/welcome.h>

/**
 * struct thc_announcement - a WELCOME before it is cut into parts
 * @fixed: complete but for `part`
 * @seal: the record SEAL, which each part has
 * @bytes: of @record
 * @record: all other records in their order
 */
struct thc_announcement {
	struct thc_welcome	fixed;
	struct thc_record_seal	seal;
	u32			bytes;
	u8			record[THC_RECORDS_MAX] __attribute__((aligned(8)));
};

/* Room for a record of @type with @bytes of data, zeroed. */
static inline void *thc_announce_record(struct thc_announcement *a, u8 type, u8 flags, u32 bytes)
{
	struct thc_record *r = (void *)(a->record + a->bytes);
	u32 i, size = thc_record_size(bytes);

	for (i = 0; i < size; i++)
		a->record[a->bytes + i] = 0;
	r->type = type;
	r->flags = flags;
	r->bytes = thc_be16((u16)bytes);
	a->bytes += size;
	return r;
}

#define THC_RECORD_DATA(type) ((u32)(sizeof(type) - sizeof(struct thc_record)))

static inline void thc_announce_group(struct thc_announcement *a, const struct thc_spec *s)
{
	struct thc_record_group *r =
		thc_announce_record(a, THC_RECORD_GROUP, THC_RECORD_F_KNOW, THC_RECORD_DATA(*r));

	thc_record_address_put(&r->at, &s->group);
}

/* Fills each record with as many addresses as a part has room for. */
static inline void thc_announce_shards(struct thc_announcement *a, const struct thc_shards *shards)
{
	u32 i, first, count;

	for (first = 0; first < shards->count; first += count) {
		struct thc_record_shards *r;
		struct thc_record_address *at;

		count = shards->count - first;
		if (count > THC_SHARDS_PER_RECORD)
			count = THC_SHARDS_PER_RECORD;
		r = thc_announce_record(a, THC_RECORD_SHARDS, THC_RECORD_F_KNOW,
					THC_RECORD_DATA(*r) + count * (u32)sizeof(*at));
		r->first = thc_be16((u16)first);
		r->count = thc_be16((u16)count);
		at = (void *)(r + 1);
		for (i = 0; i < count; i++)
			thc_record_address_put(&at[i], &shards->at[first + i]);
	}
}

static inline void thc_announce_row(struct thc_announcement *a, const struct thc_table_row *row)
{
	struct thc_record_row *r = thc_announce_record(a, THC_RECORD_ROW,
						       THC_RECORD_F_KNOW | THC_RECORD_F_CONSTANT,
						       THC_RECORD_DATA(*r) + (2U << row->bits));
	__be16 *level = (__be16 *)(r + 1);
	u32 i;

	r->width = row->bits;
	r->sum_width = row->sum_width;
	r->granularity = thc_be16(row->granularity);
	r->clamp = thc_be64(row->clamp);
	for (i = 0; i < 1U << row->bits; i++)
		level[i] = thc_be16(row->level[i]);
}

/* The job's own row is the first one. */
static inline void thc_announce_rows(struct thc_announcement *a, const struct thc_spec *s)
{
	struct thc_table_row row = thc_spec_row(s, s->bits);
	u32 bits;

	thc_announce_row(a, &row);
	for (bits = 1; bits <= THC_BITS_MAX; bits++) {
		row = thc_spec_row(s, bits);
		if (row.sum_width && bits != s->bits)
			thc_announce_row(a, &row);
	}
}

static inline void thc_announce_scheme(struct thc_announcement *a, const struct thc_spec *s)
{
	struct thc_record_scheme *r = thc_announce_record(a, THC_RECORD_SCHEME,
							  THC_RECORD_F_KNOW | THC_RECORD_F_CONSTANT,
							  THC_RECORD_DATA(*r));

	r->scheme = s->scheme;
	r->value_bits = s->value_bits;
	r->grain = thc_be16(s->grain);
	r->features = thc_be32(s->scheme_features);
	r->block_log2 = s->block_log2;
}

static inline void thc_announce_rate(struct thc_announcement *a, const struct thc_spec *s)
{
	struct thc_record_rate *r = thc_announce_record(
		a, THC_RECORD_RATE, THC_RECORD_F_KNOW | THC_RECORD_F_CONSTANT, THC_RECORD_DATA(*r));

	r->rate = thc_be32(s->rate);
	r->error = thc_be32(s->error);
	r->flags = thc_be32(s->rate_flags);
}

/* Bytes of whole records from @at on that one part holds beside SEAL. */
static inline u32 thc_announce_fitting(const struct thc_announcement *a, u32 at)
{
	u32 end = at;

	while (end < a->bytes) {
		const struct thc_record *r = (const void *)(a->record + end);
		u32 size = thc_record_size(thc_be16(r->bytes));

		if (end + size - at > THC_RECORDS_PER_PART - sizeof(a->seal))
			break;
		end += size;
	}
	return end - at;
}

/* Completes the fixed part, after all records. */
static inline void thc_announce_fixed(struct thc_announcement *a, const struct thc_spec *s)
{
	struct thc_welcome *w = &a->fixed;
	u32 at = 0;

	w->joined = thc_be64(s->joined);
	w->seed = thc_be64(s->seed);
	w->deadline_ms = thc_be32(s->deadline_ms);
	w->features = thc_be32(s->features);
	w->ranks = thc_be16(s->ranks);
	w->quorum = thc_be16(s->quorum);
	w->data_slots = thc_be16(s->data_slots);
	w->control_slots = thc_be16(s->control_slots);
	w->flags = thc_be16(s->flags);
	w->reply = s->reply;
	w->version_max = THC_VERSION;
	w->shard = thc_be16(s->shard);
	w->shards = thc_be16(s->shards);
	w->constants = thc_be32(thc_welcome_constants(w, a->record, a->bytes));
	do {
		at += thc_announce_fitting(a, at);
		w->parts++;
	} while (at < a->bytes);
}

/* SEAL, which stands in each part. */
static inline void thc_announce_seal(struct thc_announcement *a, const struct thc_spec *s)
{
	a->seal = (struct thc_record_seal){
		.head = { THC_RECORD_SEAL, THC_RECORD_F_KNOW, thc_be16(THC_RECORD_DATA(a->seal)) },
		.seal = s->seal,
	};
	thc_nonce_copy(a->seal.salt, s->salt);
}

/**
 * thc_announce() - the WELCOME that describes @s to a worker
 * @shards: the job's aggregators, which number 0 of several lists; NULL: this is the only one
 * @nonce: of its JOIN
 */
static inline void thc_announce(struct thc_announcement *a, const struct thc_spec *s,
				const struct thc_shards *shards, const u8 nonce[THC_NONCE_BYTES])
{
	a->fixed = (struct thc_welcome){ .part = 0 };
	a->bytes = 0;
	thc_nonce_copy(a->fixed.nonce, nonce);
	thc_announce_seal(a, s);
	if (s->reply == THC_REPLY_MULTICAST)
		thc_announce_group(a, s);
	if (shards && s->shards > 1 && !s->shard)
		thc_announce_shards(a, shards);
	thc_announce_rows(a, s);
	thc_announce_scheme(a, s);
	if (s->rate || s->error)
		thc_announce_rate(a, s);
	thc_announce_fixed(a, s);
}

/* Makes the WELCOME to the group: its only record is SEAL, whose salt names the epoch. */
static inline void thc_announce_to_group(struct thc_announcement *a, const struct thc_spec *s)
{
	static const u8 none[THC_NONCE_BYTES];

	thc_announce(a, s, NULL, none);
	a->bytes = 0;
	a->fixed.parts = 1;
	a->fixed.flags &= ~thc_be16(THC_WELCOME_F_READY);
}

/* A WELCOME that refuses the worker of @nonce; one part without records, of sizeof(@w) bytes. */
static inline void thc_announce_refusal(struct thc_welcome *w, const u8 nonce[THC_NONCE_BYTES],
					u8 refusal)
{
	*w = (struct thc_welcome){
		.flags = thc_be16(THC_WELCOME_F_REFUSED),
		.refusal = refusal,
		.parts = 1,
		.version_max = THC_VERSION,
	};
	thc_nonce_copy(w->nonce, nonce);
}

/**
 * thc_announce_part() - the next part of @a
 * @payload: out: up to THC_WELCOME_BYTES
 * @at: 0 for the first part, then as it is left
 *
 * Returns the bytes of the payload.
 */
static inline u32 thc_announce_part(struct thc_announcement *a, void *payload, u32 *at)
{
	u32 i, k = 0, bytes = thc_announce_fitting(a, *at);
	const u8 *fixed = (const u8 *)&a->fixed, *seal = (const u8 *)&a->seal;
	u8 *to = payload;

	for (i = 0; i < sizeof(a->fixed); i++)
		to[k++] = fixed[i];
	for (i = 0; i < sizeof(a->seal); i++)
		to[k++] = seal[i];
	for (i = 0; i < bytes; i++)
		to[k++] = a->record[*at + i];
	*at += bytes;
	a->fixed.part++;
	return k;
}

#endif /* THC_ANNOUNCE_H */
