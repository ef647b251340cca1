/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The packet sum guards header and payload where there is no UDP checksum (veth leaves it unfilled,
 * header-only answers of XDP carry 0).
 *
 * It is two running sums modulo 2^64 over little-endian 64-bit words, after Fletcher. The first
 * detects any single changed word; the second detects exchanged words, and changes that cancel in
 * the first. Each word's upper half is mixed into its lower half before: otherwise changes of the
 * top bits alone, in words an even distance apart, would leave both sums unchanged. Both sums are
 * cheap without vector units. The sum of a packet follows from the sums of its two parts
 * (thc_sum_join()), so an answer's payload is summed once, however often it is sent.
 */
#ifndef THC_SUM_H
#define THC_SUM_H

#include <thc/types.h>

struct thc_sum {
	u64	a;	/* sum of the words, mixed */
	u64	b;	/* sum of the values a took */
};

/* A bijection of words, by which a top bit changes bit 31, too. */
THC_INLINE u64 thc_sum_mix(u64 word)
{
	return word ^ word >> 32;
}

THC_INLINE void thc_sum_word(struct thc_sum *s, u64 word)
{
	s->a += thc_sum_mix(word);
	s->b += s->a;
}

/* Adds @words 64-bit words at @data; @words is a constant where BPF calls. */
THC_INLINE void thc_sum_add(struct thc_sum *s, const void *data, int words)
{
	const thc_word *w = data;
	u64 a = s->a, b = s->b;
	int i;

	THC_UNROLL
	for (i = 0; i < words; i++) {
		a += thc_sum_mix(thc_le64(w[i]));
		b += a;
	}
	s->a = a;
	s->b = b;
}

/* The sum of @head followed by @tail, which has @words words. */
THC_INLINE struct thc_sum thc_sum_join(struct thc_sum head, struct thc_sum tail, u64 words)
{
	struct thc_sum s = {
		.a = head.a + tail.a,
		.b = head.b + tail.b + words * head.a,
	};

	return s;
}

/*
 * Folds to the 32 bits that are the tag of the seal `sum`. A change may reach only the
 * top bytes of a and b: a is mixed downwards before b joins it, so that no
 * multiple of one can cancel the other.
 */
THC_INLINE u32 thc_sum_fold(struct thc_sum s)
{
	u64 x = s.a * 0x9e3779b97f4a7c15ULL;

	x ^= x >> 32;
	x = x * 0xd6e8feb86659fd93ULL + s.b;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	return x >> 32;
}

/* Sum over the header alone, its tag taken as zero. */
THC_INLINE struct thc_sum thc_sum_hdr(const struct thc_hdr *h)
{
	const thc_word *w = (const void *)h;
	struct thc_sum s = { 0, 0 };

	thc_sum_word(&s, thc_le64(w[0]));
	thc_sum_word(&s, 0);
	thc_sum_add(&s, w + 2, THC_HDR_WORDS - 2);
	return s;
}

/* The tag of a packet whose payload sum is known, host order. */
THC_INLINE u32 thc_sum32(const struct thc_hdr *h, struct thc_sum payload, u64 words)
{
	return thc_sum_fold(thc_sum_join(thc_sum_hdr(h), payload, words));
}

#endif /* THC_SUM_H */
