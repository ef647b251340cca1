/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What comes from a job's secret key, which thcd has and whoever may be a worker of the job. The
 * key itself is on no wire, and what comes from it does not lead back to it.
 */
#ifndef THC_KEY_H
#define THC_KEY_H

#include <thc/blake2s.h>

/* What a key is derived for, and its name in what is hashed. */
#define THC_KEY_PURPOSES(X)		\
	X(COOKIE, "thc1 cookie")	\
	X(SEED, "thc2 seed")

enum thc_key_purpose {
#define THC_KEY_PURPOSE(purpose, label) THC_KEY_##purpose,
	THC_KEY_PURPOSES(THC_KEY_PURPOSE)
#undef THC_KEY_PURPOSE
};

/* Bytes of a salt, of a label with zeros behind it, and of what is hashed. */
#define THC_SALT_BYTES		16
#define THC_KEY_LABEL_BYTES	16
#define THC_KEY_INPUT_BYTES	(THC_KEY_LABEL_BYTES + 8 + THC_SALT_BYTES)

/**
 * thc_key_derive() - a key for one purpose
 * @out: @bytes of it; the beginning of a longer one is a shorter one
 * @key: the job's secret key
 * @job: the job's number
 * @salt: NULL: of zeros
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

/* The cookie of @job's packets, never 0. */
static inline u64 thc_key_cookie(const u8 key[THC_KEY_BYTES], u16 job)
{
	u64 cookie;

	thc_key_derive(&cookie, sizeof(cookie), key, THC_KEY_COOKIE, job, NULL);
	return thc_le64(cookie) | 1;
}

/* The seed of @job's rotations and rounding, which every worker is told. */
static inline u64 thc_key_seed(const u8 key[THC_KEY_BYTES], u16 job)
{
	u64 seed;

	thc_key_derive(&seed, sizeof(seed), key, THC_KEY_SEED, job, NULL);
	return thc_le64(seed);
}

#endif /* THC_KEY_H */
