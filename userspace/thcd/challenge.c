// SPDX-License-Identifier: GPL-2.0
/*
 * A challenge is the BLAKE2s hash of struct hashed, keyed with thcd's secret. The hash includes the
 * number of the minute: a challenge expires although thcd keeps no list of challenges.
 */
#include <thc/blake2s.h>
#include <thc/wire/nonce.h>

#include "challenge.h"

/* The bytes that are hashed. There is no padding, whose content would be undefined. */
struct hashed {
	u64		minute;
	struct thc_addr	addr;
	u8		nonce[THC_NONCE_BYTES];
	u8		entered[THC_NONCE_BYTES];
	u32		epoch;
	u16		port;
	u16		job;
	u16		rank;
	u8		in;
	u8		left;
	u32		zero;
};

_Static_assert(sizeof(struct hashed) == 8 + 3 * 16 + 4 + 3 * 2 + 2 + 4, "padding");

static void make(u8 out[THC_CHALLENGE_BYTES], const struct thcd_secret *secret,
		 const struct thcd_challenged *c, u64 minute)
{
	struct hashed h = {
		.minute = minute,
		.addr = c->path->src,
		.epoch = c->epoch,
		.port = c->path->src_port,
		.job = c->job,
		.rank = c->rank,
		.in = !!c->entered,
		.left = c->left,
	};

	thc_nonce_copy(h.nonce, c->nonce);
	if (c->entered)
		thc_nonce_copy(h.entered, c->entered);
	thc_blake2s(out, THC_CHALLENGE_BYTES, secret->bytes, sizeof(secret->bytes), &h, sizeof(h));
}

void thcd_challenge_make(u8 out[THC_CHALLENGE_BYTES], const struct thcd_secret *secret,
			 const struct thcd_challenged *c, u64 now_ms)
{
	make(out, secret, c, now_ms / THCD_CHALLENGE_MS);
}

/* Takes constant time, so that its duration does not tell which byte differs. */
static bool equal(const u8 *a, const u8 *b)
{
	u8 differs = 0;
	int i;

	for (i = 0; i < THC_CHALLENGE_BYTES; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

bool thcd_challenge_is(const u8 said[THC_CHALLENGE_BYTES], const struct thcd_secret *secret,
		       const struct thcd_challenged *c, u64 now_ms)
{
	u8 now[THC_CHALLENGE_BYTES], before[THC_CHALLENGE_BYTES];
	u64 minute = now_ms / THCD_CHALLENGE_MS;

	make(now, secret, c, minute);
	make(before, secret, c, minute - 1);
	return equal(said, now) || equal(said, before);
}
