/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a test's job is sealed by: a secret key that only tests have, and salts that are the
 * numbers of their epochs, so that each epoch has keys of its own.
 */
#ifndef THC_TEST_JOBSEALS_H
#define THC_TEST_JOBSEALS_H

#include <thc/aggregator/job.h>
#include <thc/key.h>

static const u8 job_secret[THC_KEY_BYTES] = "the key of jobs in tests alone";

/* Gives @s the keys of @epoch, beside those of the epoch with another last bit. */
static inline void job_seals_epoch(struct thc_seals *s, u16 job, u32 epoch)
{
	const u8 *key = s->seal == THC_SEAL_NH ? job_secret : NULL;
	const u8 salt[THC_SALT_BYTES] = {
		(u8)(epoch >> 24), (u8)(epoch >> 16), (u8)(epoch >> 8), (u8)epoch, 0x5a, 1, 2, 3,
	};

	thc_seal_key_set(&s->up[epoch & 1], key, THC_KEY_UP, job, salt);
	thc_seal_key_set(&s->down[epoch & 1], key, THC_KEY_DOWN, job, salt);
}

/* Seals of @job in @epoch, with those of the epoch before; @seal: enum thc_seal_type. */
static inline void job_seals(struct thc_seals *s, u8 seal, u16 job, u32 epoch)
{
	*s = (struct thc_seals){ .seal = seal };
	if (seal == THC_SEAL_NH) {
		thc_member_key_derive(&s->join, job_secret, THC_KEY_JOIN, job);
		thc_member_key_derive(&s->lost, job_secret, THC_KEY_LOST, job);
	}
	job_seals_epoch(s, job, epoch - 1);
	job_seals_epoch(s, job, epoch);
}

#endif /* THC_TEST_JOBSEALS_H */
