/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a job may be: the checks of its constants, which WELCOME brings. thcd announces no job, and
 * a worker believes no WELCOME, that does not pass them.
 */
#ifndef THC_SPEC_H
#define THC_SPEC_H

#include <thc/wire/address.h>
#include <thc/wire/format.h>
#include <thc/wire/rows.h>

/* Schemes: id, and its name everywhere. */
#define THC_SCHEMES(X) X(THC, thc) X(NONE, none) X(UTHC, uthc) X(LHC, lhc)

enum thc_scheme_id {
#define THC_SCHEME_ID(id, name) THC_SCHEME_##id,
	THC_SCHEMES(THC_SCHEME_ID)
#undef THC_SCHEME_ID
		THC_SCHEMES_COUNT
};

/* Does @scheme send floats as integers of a precision, thc_record_scheme.value_bits? */
THC_INLINE int thc_scheme_is_precise(unsigned int scheme)
{
	return scheme == THC_SCHEME_NONE || scheme == THC_SCHEME_LHC;
}

/* Seals, as enum thc_seal_type has them: id, and its name everywhere. */
#define THC_SEALS(X) X(NONE, none) X(SUM, sum) X(NH, nh)

#define THC_WELCOME_FLAGS                                                                          \
	(THC_WELCOME_F_READY | THC_WELCOME_F_REFUSED | THC_WELCOME_F_ONE_PORT | THC_WELCOME_F_NOGSO)

/* The features that a worker of this version serves. */
#define THC_FEATURES	THC_FEATURE_CORRELATED
#define THC_SCHEME_FEATURES (THC_SCHEME_F_UNROTATED | THC_SCHEME_F_SKETCH | THC_SCHEME_F_COUPLED)

/* Has @scheme all of @features (THC_SCHEME_F_*), and is COUPLED among them only with SKETCH? */
THC_INLINE int thc_scheme_features_are_known(unsigned int scheme, u32 features)
{
	const u32 known = scheme == THC_SCHEME_LHC ? THC_SCHEME_FEATURES : THC_SCHEME_F_UNROTATED;

	return !(features & ~known) &&
	       (features & (THC_SCHEME_F_SKETCH | THC_SCHEME_F_COUPLED)) != THC_SCHEME_F_COUPLED;
}

/* Values of an item of scheme lhc, a power of two. */
#define THC_GRAIN_MAX		256

/* log2 of the coordinates of a block. */
#define THC_BLOCK_LOG2_MIN	10
#define THC_BLOCK_LOG2_MAX	20

/* log2 of a block's coordinates in jobs with a rate or an error. */
#define THC_RATE_BLOCK_LOG2	10

/* UDP ports below this one are for privileged programs. */
#define THC_PORT_UNPRIVILEGED	1024

/**
 * struct thc_spec - a job as WELCOME describes it, in host order
 * @has: bit t: a record of enum thc_record_type t was there
 * @group: receives answers, if @reply is multicast
 * @joined: bit r: rank r has joined this epoch
 * @seed: of rotations and rounding
 * @deadline_ms: a generation older than this is closed with its quorum; 0: never
 * @features: THC_FEATURE_*
 * @scheme_features: THC_SCHEME_F_*
 * @constants: hash of the fields that must be equal for all
 * @rate, @error, @rate_flags: as in struct thc_record_rate; the first two 0: there is none
 * @ranks, @quorum, @data_slots, @control_slots, @shard, @shards: as in struct thc_welcome
 * @listed: number of addresses in the records SHARDS
 * @flags: THC_WELCOME_F_*
 * @refusal: enum thc_refusal
 * @reply: enum thc_reply
 * @seal: enum thc_seal_type
 * @bits: b, bits of an index into the job's own row
 * @scheme: enum thc_scheme_id
 * @value_bits, @grain: as in struct thc_record_scheme
 * @block_log2: log2 of the coordinates of a rotated block
 * @tables: the job's rows
 * @salt: of the epoch
 */
struct thc_spec {
	u32		has;
	struct thc_end	group;
	u64		joined;
	u64		seed;
	u32		deadline_ms;
	u32		features;
	u32		scheme_features;
	u32		constants;
	u32		rate;
	u32		rate_flags;
	u32		error;
	u16		ranks;
	u16		quorum;
	u16		data_slots;
	u16		control_slots;
	u16		shard;
	u16		shards;
	u16		listed;
	u16		flags;
	u16		grain;
	u8		refusal;
	u8		reply;
	u8		seal;
	u8		bits;
	u8		scheme;
	u8		value_bits;
	u8		block_log2;
	u8		salt[THC_SALT_BYTES];
	struct thc_tables tables;
};

/* The row of @bits bits; the job's own is that of @s->bits. */
THC_INLINE struct thc_table_row thc_spec_row(const struct thc_spec *s, u32 bits)
{
	return thc_tables_row(&s->tables, bits);
}

/* Bits of a sum by the job's own row. */
THC_INLINE u8 thc_spec_sum_width(const struct thc_spec *s)
{
	return thc_widths_sum(&s->tables.widths, s->bits);
}

/* Can a worker bind a socket to the group that @s names? The group came from the network: it must
 * be no address of this host, and no privileged port. A group of the other IP version is sound; the
 * worker does not join it.
 */
THC_INLINE int thc_spec_group_is_sound(const struct thc_spec *s)
{
	if (s->reply != THC_REPLY_MULTICAST)
		return 1;
	return s->has & 1U << THC_RECORD_GROUP &&
	       thc_be16(s->group.port) >= THC_PORT_UNPRIVILEGED &&
	       thc_addr_is_group(&s->group.addr);
}

/* Does number 0 of several aggregators list all of them, and nobody else any? */
THC_INLINE int thc_spec_shards_are_sound(const struct thc_spec *s)
{
	return s->shards && s->shards <= THC_SHARDS_MAX && s->shard < s->shards &&
	       s->listed == (s->shard || s->shards == 1 ? 0 : s->shards);
}

/* Can packets of all its rows be sent and added up? Its own one has to be there. */
THC_INLINE int thc_spec_rows_are_sound(const struct thc_spec *s)
{
	u32 bits;

	for (bits = 1; bits <= THC_BITS_MAX; bits++) {
		u32 sum = thc_widths_sum(&s->tables.widths, bits);

		if ((sum || bits == s->bits) && !thc_row_is_known(bits, sum))
			return 0;
	}
	return s->bits && s->bits <= THC_BITS_MAX;
}

/* Has the job no rate and no error, or blocks that have norms? */
THC_INLINE int thc_spec_rate_is_sound(const struct thc_spec *s)
{
	return (!s->rate && !s->error) ||
	       (s->scheme == THC_SCHEME_THC && s->block_log2 == THC_RATE_BLOCK_LOG2);
}

/**
 * thc_spec_is_sound() - a job, not REFUSED, that a worker of this version can serve
 * @rank: the worker's
 * @keyed: it has the job's secret key, and takes no seal without one
 */
THC_INLINE int thc_spec_is_sound(const struct thc_spec *s, u32 rank, int keyed)
{
	const u32 needed = 1U << THC_RECORD_SEAL | 1U << THC_RECORD_ROW | 1U << THC_RECORD_SCHEME;

	if (s->flags & ~THC_WELCOME_FLAGS || s->features & ~THC_FEATURES ||
	    !thc_scheme_features_are_known(s->scheme, s->scheme_features) ||
	    s->seal > THC_SEAL_NH || (s->seal == THC_SEAL_NH) != !!keyed ||
	    (s->has & needed) != needed || s->scheme >= THC_SCHEMES_COUNT ||
	    !thc_spec_rows_are_sound(s) || !thc_spec_rate_is_sound(s))
		return 0;
	return s->ranks > rank && s->ranks <= THC_RANKS_MAX && s->data_slots && s->control_slots &&
	       s->data_slots + s->control_slots <= THC_SLOTS_MAX && thc_spec_shards_are_sound(s) &&
	       (s->reply == THC_REPLY_MULTICAST || s->reply == THC_REPLY_FANOUT) &&
	       thc_spec_group_is_sound(s);
}

#endif /* THC_SPEC_H */
