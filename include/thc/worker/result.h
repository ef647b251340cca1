/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The digest of a round: the sum of numbers that each answer contributes. Workers that have taken
 * all answers of a round compare digests, and so learn whether they hold the same results.
 */
#ifndef THC_RESULT_H
#define THC_RESULT_H

#include <thc/mix.h>
#include <thc/wire/seal.h>

/* Digest of an answer's lanes: from @d, which the seal has computed, or, without a seal, computed
 * here.
 */
THC_INLINE u64 thc_result_lanes(u8 seal, struct thc_digest d, const void *lanes)
{
	if (seal == THC_SEAL_NH)
		return d.a;
	if (seal == THC_SEAL_NONE)
		d = thc_seal_digest(THC_SEAL_SUM, NULL, lanes, THC_LANE_WORDS);
	return thc_mix64(d.a) + d.b;
}

/**
 * thc_result_digest() - an answer's contribution to the digest of its round
 * @key: of answers; all zero in a job without a secret key
 * @d: digest of the lanes, as for the tag
 *
 * The caller adds the contributions modulo 2^32, in any order.
 */
THC_INLINE u32 thc_result_digest(u8 seal, const struct thc_seal_key *key, const struct thc_hdr *h,
				 struct thc_digest d, const void *lanes)
{
	const thc_word *w = (const void *)h;
	const u64 words[] = {
		/* chunk, slot and count, which lie across two words; bitmap */
		thc_le64(w[3]) >> 32 | thc_le64(w[4]) << 32,
		thc_le64(w[5]),
		thc_result_lanes(seal, d, lanes),
	};

	return (u32)(thc_siphash(key->sip, words, sizeof(words) / sizeof(words[0])) >> 32);
}

#endif /* THC_RESULT_H */
