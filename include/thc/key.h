/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Derivation of all keys of a job from its secret key, which thcd and the job's workers have. No
 * packet carries the secret key, and no derived key reveals it.
 */
#ifndef THC_KEY_H
#define THC_KEY_H

#include <thc/blake2s.h>
#include <thc/wire/seal.h>

/* The purposes that keys are derived for, each with the label that is hashed for it. */
#define THC_KEY_PURPOSES(X)		\
	X(UP, "thc2 up")		\
	X(DOWN, "thc2 down")		\
	X(JOIN, "thc2 join")		\
	X(WELCOME, "thc2 welcome")	\
	X(LOST, "thc2 lost")		\
	X(ID, "thc2 id")		\
	X(SEED, "thc2 seed")

enum thc_key_purpose {
#define THC_KEY_PURPOSE(purpose, label) THC_KEY_##purpose,
	THC_KEY_PURPOSES(THC_KEY_PURPOSE)
#undef THC_KEY_PURPOSE
};

/* Bytes of a label, padded by zeros, and of the hash's input. */
#define THC_KEY_LABEL_BYTES	16
#define THC_KEY_INPUT_BYTES	(THC_KEY_LABEL_BYTES + 8 + THC_SALT_BYTES)

/**
 * thc_key_derive() - derives a key for one purpose
 * @out: @bytes of key; a shorter key is the beginning of a longer one
 * @key: the job's secret key
 * @job: the job's number
 * @salt: NULL: all zero
 *
 * Block i of 32 bytes is BLAKE2s, keyed with @key, of label, be16 @job, be16 0, be32 i and @salt.
 */
static inline void thc_key_derive(void *out, u32 bytes, const u8 key[THC_KEY_BYTES],
				  enum thc_key_purpose purpose, u16 job,
				  const u8 salt[THC_SALT_BYTES])
{
	static const char label[][THC_KEY_LABEL_BYTES] = {
#define THC_KEY_LABEL(purpose, label) label,
		THC_KEY_PURPOSES(THC_KEY_LABEL)
#undef THC_KEY_LABEL
	};
	u8 input[THC_KEY_INPUT_BYTES] = { 0 }, block[THC_BLAKE2S_MAX], *to = out;
	u32 i, k;

	for (i = 0; i < THC_KEY_LABEL_BYTES; i++)
		input[i] = (u8)label[purpose][i];
	input[16] = (u8)(job >> 8);
	input[17] = (u8)job;
	for (i = 0; salt && i < THC_SALT_BYTES; i++)
		input[24 + i] = salt[i];
	for (i = 0; i < bytes; i += THC_BLAKE2S_MAX) {
		u32 number = i / THC_BLAKE2S_MAX;

		for (k = 0; k < 4; k++)
			input[20 + k] = (u8)(number >> (24 - 8 * k));
		thc_blake2s(block, sizeof(block), key, THC_KEY_BYTES, input, sizeof(input));
		for (k = 0; k < THC_BLAKE2S_MAX && i + k < bytes; k++)
			to[i + k] = block[k];
	}
}

/* The name of the keys that come from @key and @salt; NULL: of zeros. */
static inline __be32 thc_key_id(const u8 key[THC_KEY_BYTES], u16 job, const u8 salt[THC_SALT_BYTES])
{
	__be32 id;

	thc_key_derive(&id, sizeof(id), key, THC_KEY_ID, job, salt);
	return id;
}

/**
 * thc_seal_key_set() - derives the key of an epoch's packets in one direction
 * @key: the job's secret key, NULL: the job has none, and the salt alone names the epoch
 * @purpose: THC_KEY_UP or THC_KEY_DOWN
 */
static inline void thc_seal_key_set(struct thc_seal_key *out, const u8 *key,
				    enum thc_key_purpose purpose, u16 job,
				    const u8 salt[THC_SALT_BYTES])
{
	u8 *id = (u8 *)&out->id;
	u32 i;

	*out = (struct thc_seal_key){ .reserved = 0 };
	if (!key) {
		for (i = 0; i < sizeof(out->id); i++)
			id[i] = salt[i];
		return;
	}
	thc_key_derive(out, offsetof(struct thc_seal_key, id), key, purpose, job, salt);
	for (i = 0; i < 2; i++)
		out->sip[i] = thc_le64(out->sip[i]);
	for (i = 0; i < THC_NH_WORDS; i++)
		out->nh[i] = thc_le32(out->nh[i]);
	out->id = thc_key_id(key, job, salt);
}

/* @purpose: THC_KEY_JOIN, THC_KEY_WELCOME or THC_KEY_LOST */
static inline void thc_member_key_derive(struct thc_member_key *out, const u8 key[THC_KEY_BYTES],
					 enum thc_key_purpose purpose, u16 job)
{
	u32 i;

	thc_key_derive(out->sip, sizeof(out->sip), key, purpose, job, NULL);
	for (i = 0; i < 2; i++)
		out->sip[i] = thc_le64(out->sip[i]);
	out->id = thc_key_id(key, job, NULL);
	out->reserved = 0;
}

/* The seed of @job's rotations and rounding, which WELCOME tells every worker. */
static inline u64 thc_key_seed(const u8 key[THC_KEY_BYTES], u16 job)
{
	u64 seed;

	thc_key_derive(&seed, sizeof(seed), key, THC_KEY_SEED, job, NULL);
	return thc_le64(seed);
}

#endif /* THC_KEY_H */
