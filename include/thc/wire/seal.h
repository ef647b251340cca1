/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The seal: a tag over header and payload, under a key that the header names. It shows that a
 * packet belongs to its job and was not altered. All senders and receivers make and check key_id
 * and tag by these functions.
 *
 * The payload's digest is computed apart from the header's part: the lanes of a result are digested
 * once, however often they are sent.
 */
#ifndef THC_SEAL_H
#define THC_SEAL_H

#include <thc/siphash.h>
#include <thc/wire/address.h>
#include <thc/wire/nh.h>
#include <thc/wire/sum.h>

/**
 * struct thc_seal_key - key of data or of answers, in one epoch
 * @sip: key of SipHash
 * @nh: key of NH
 * @id: thc_hdr.key_id; it differs by epoch also in jobs without a secret key
 * @reserved: zero
 */
struct thc_seal_key {
	u64	sip[2];
	u32	nh[THC_NH_WORDS];
	__be32	id;
	u32	reserved;
};

/**
 * struct thc_member_key - key of packets that join, leave, or end an epoch
 * @sip: key of SipHash
 * @id: thc_hdr.key_id; 0 in jobs without a secret key
 * @reserved: zero
 */
struct thc_member_key {
	u64	sip[2];
	__be32	id;
	u32	reserved;
};

/* The digest of a payload that goes into a tag. */
struct thc_digest {
	u64	a;	/* NH, or the first sum */
	u64	b;	/* the second sum */
};

/* The seal of membership packets in a job whose data has seal @seal. */
THC_INLINE u8 thc_seal_of_members(u8 seal)
{
	return seal == THC_SEAL_NONE ? THC_SEAL_SUM : seal;
}

/* Does the packet name the key? @id: thc_seal_key.id, thc_member_key.id */
THC_INLINE int thc_seal_names(const struct thc_hdr *h, __be32 id)
{
	return h->key_id == id;
}

/* @words 64-bit words at @payload; a constant where BPF calls. */
THC_INLINE struct thc_digest thc_seal_digest(u8 seal, const struct thc_seal_key *key,
					     const void *payload, int words)
{
	struct thc_digest d = { 0, 0 };
	struct thc_sum sum = { 0, 0 };

	if (seal == THC_SEAL_NH) {
		d.a = thc_nh(key->nh, payload, words);
	} else if (seal == THC_SEAL_SUM) {
		thc_sum_add(&sum, payload, words);
		d.a = sum.a;
		d.b = sum.b;
	}
	return d;
}

/* Words of a header without its tag. */
#define THC_SEAL_WORDS	(THC_HDR_WORDS - 1)

/* Adds word @i of the header to SipHash; the tag is not counted. */
THC_INLINE void thc_seal_word(struct thc_siphash *s, const struct thc_hdr *h, int i)
{
	const thc_word *w = (const void *)h;

	thc_siphash_word(s, thc_le64(w[i ? i + 1 : 0]));
}

/* Adds the header's words from @first on to SipHash. */
THC_INLINE void thc_seal_words(struct thc_siphash *s, const struct thc_hdr *h, int first)
{
	int i;

	/* rounds are a loop in BPF, around which clang unrolls nothing by itself */
	THC_UNROLL
	for (i = first; i < THC_SEAL_WORDS; i++)
		thc_seal_word(s, h, i);
}

/* Begins SipHash under @sip with the header but for its tag; more words may follow. */
THC_INLINE void thc_seal_begin(struct thc_siphash *s, const u64 sip[2], const struct thc_hdr *h)
{
	thc_siphash_begin(s, sip);
	thc_seal_words(s, h, 0);
}

/* WMAC (Black, Cochran: MAC reforgeability, FSE 2009): a pseudorandom function of the header and of
 * a universal hash of the payload. A tag reveals nothing of another packet's. @s: the header, by
 * thc_seal_begin()
 */
THC_INLINE u64 thc_seal_end(struct thc_siphash *s, u64 nh)
{
	thc_siphash_word(s, nh);
	return thc_siphash_end(s, THC_SEAL_WORDS + 1);
}

/**
 * struct thc_seal_begun - SipHash after a header's first two words (version to key_id, and job to
 *	epoch), which all data of a rank in an epoch share, and all answers
 * @sip: key
 * @word: the words, as they are in a header
 * @s: state after them; as secret as the key, from which it comes
 * @taken: a program is using the entry
 */
struct thc_seal_begun {
	u64			sip[2];
	u64			word[2];
	struct thc_siphash	s;
	u64			taken;
};

#ifdef __bpf__
/* Words of a header that thc_seal_begin_common() sees. */
#define THC_SEAL_COMMON	2

/* This CPU's entry for packets such as @h, which each program implements. NULL: there is none. */
THC_INLINE struct thc_seal_begun *thc_seal_begun_of(const struct thc_hdr *h);

THC_INLINE void thc_seal_common(struct thc_siphash *s, const u64 sip[2], const struct thc_hdr *h)
{
	thc_siphash_begin(s, sip);
	thc_seal_word(s, h, 0);
	thc_seal_word(s, h, 1);
}

/* Does thc_seal_begin() for the common words of data or answers: saves 4 of 18 rounds. A program
 * that another one interrupts here, as thc_xdp may interrupt thc_close, keeps the entry it has
 * taken.
 */
THC_INLINE void thc_seal_begin_common(struct thc_siphash *s, const u64 sip[2],
				      const struct thc_hdr *h)
{
	struct thc_seal_begun *b = thc_seal_begun_of(h);
	const thc_word *w = (const void *)h;

	if (!b || b->taken) {
		thc_seal_common(s, sip, h);
		return;
	}
	b->taken = 1;
	asm volatile("" ::: "memory");
	if (b->word[0] != w[0] || b->word[1] != w[2] || b->sip[0] != sip[0] ||
	    b->sip[1] != sip[1]) {
		thc_seal_common(&b->s, sip, h);
		b->sip[0] = sip[0];
		b->sip[1] = sip[1];
		b->word[0] = w[0];
		b->word[1] = w[2];
	}
	*s = b->s;
	asm volatile("" ::: "memory");
	b->taken = 0;
}

/* thc_seal_tag_by_nh() as a subprogram, which the programs lend: the code is there once. */
u64 thc_seal_bpf_tag(const struct thc_hdr *h, const struct thc_seal_key *key, u64 nh);
#define THC_SEAL_TAG_BY_NH	thc_seal_bpf_tag
#else
#define THC_SEAL_TAG_BY_NH	thc_seal_tag_by_nh
#define THC_SEAL_COMMON	0

THC_INLINE void thc_seal_begin_common(struct thc_siphash *s, const u64 sip[2],
				      const struct thc_hdr *h)
{
	(void)h;
	thc_siphash_begin(s, sip);
}
#endif

/* The tag of the seal nh, of a payload whose NH is known. */
THC_INLINE u64 thc_seal_tag_by_nh(const struct thc_hdr *h, const struct thc_seal_key *key, u64 nh)
{
	struct thc_siphash s;

	thc_seal_begin_common(&s, key->sip, h);
	thc_seal_words(&s, h, THC_SEAL_COMMON);
	return thc_seal_end(&s, nh);
}

/* thc_hdr.tag, host order; @d: of the payload's @words words. */
THC_INLINE u64 thc_seal_tag(u8 seal, const struct thc_seal_key *key, const struct thc_hdr *h,
			    struct thc_digest d, u64 words)
{
	struct thc_sum sum = { d.a, d.b };

	if (seal == THC_SEAL_NH)
		return THC_SEAL_TAG_BY_NH(h, key, d.a);
	return seal == THC_SEAL_SUM ? thc_sum32(h, sum, words) : 0;
}

#ifdef __bpf__
/* Parts of a payload, between and behind the header's words. A power of two, since the loops of NH
 * are unrolled by sixteen words.
 */
#define THC_SEAL_PARTS	4

/* Keeps clang from beginning the next word before the part: BPF lacks registers for both. */
#define THC_SEAL_IN_ORDER(s) \
	do { \
		THC_IN_ORDER((s)->v[0]); \
		THC_IN_ORDER((s)->v[1]); \
		THC_IN_ORDER((s)->v[2]); \
		THC_IN_ORDER((s)->v[3]); \
	} while (0)

/* The tag of the seal nh. Each round of SipHash waits for the one before it, and the CPU computes
 * NH meanwhile, as far as it looks ahead. BPF cannot rotate, so its rounds are too long for that:
 * header and payload take turns.
 */
THC_INLINE u64 thc_seal_tag_nh(const struct thc_seal_key *key, const struct thc_hdr *h,
			       const void *payload, int words)
{
	_Static_assert(THC_SEAL_COMMON + THC_SEAL_PARTS - 1 == THC_SEAL_WORDS, "words are left");
	const int part = words / THC_SEAL_PARTS, most = part * (THC_SEAL_PARTS - 1);
	const thc_word *p = payload;
	struct thc_siphash s;
	u64 nh = 0;
	int i;

	thc_seal_begin_common(&s, key->sip, h);
	THC_UNROLL
	for (i = 0; i < THC_SEAL_PARTS - 1; i++) {
		thc_seal_word(&s, h, THC_SEAL_COMMON + i);
		THC_SEAL_IN_ORDER(&s);
		nh += thc_nh(key->nh + 2 * part * i, p + part * i, part);
	}
	nh += thc_nh(key->nh + 2 * most, p + most, words - most);
	return thc_seal_end(&s, nh);
}
#else
/* The seal nh. The header goes first: each round of SipHash waits for the one before it, and the
 * CPU works at NH meanwhile.
 */
THC_INLINE u64 thc_seal_tag_nh(const struct thc_seal_key *key, const struct thc_hdr *h,
			       const void *payload, int words)
{
	struct thc_siphash s;

	thc_seal_begin(&s, key->sip, h);
	return thc_seal_end(&s, thc_nh(key->nh, payload, words));
}
#endif

/* thc_hdr.tag, host order, of a packet with @words words at @payload. */
THC_INLINE u64 thc_seal_tag_of(u8 seal, const struct thc_seal_key *key, const struct thc_hdr *h,
			       const void *payload, int words)
{
	if (seal == THC_SEAL_NH)
		return thc_seal_tag_nh(key, h, payload, words);
	return thc_seal_tag(seal, key, h, thc_seal_digest(seal, key, payload, words), words);
}

/* Seals a packet, complete but for key_id and tag; @d: digest of its payload, of @words words. */
THC_INLINE void thc_seal_digested(struct thc_hdr *h, u8 seal, const struct thc_seal_key *key,
				  struct thc_digest d, u64 words)
{
	h->key_id = key->id;
	h->tag = thc_be64(thc_seal_tag(seal, key, h, d, words));
}

/* Seals @h, complete but for key_id and tag, with @words words at @payload to come behind it. */
THC_INLINE void thc_seal(struct thc_hdr *h, u8 seal, const struct thc_seal_key *key,
			 const void *payload, int words)
{
	h->key_id = key->id;
	h->tag = thc_be64(thc_seal_tag_of(seal, key, h, payload, words));
}

/* Does the tag match under @key, which the packet names? @d: digest of the payload, of @words
 * words.
 */
THC_INLINE int thc_seal_fits(const struct thc_hdr *h, u8 seal, const struct thc_seal_key *key,
			     struct thc_digest d, u64 words)
{
	return h->tag == thc_be64(thc_seal_tag(seal, key, h, d, words));
}

/* thc_seal_fits() for a payload that has no digest yet: it is at @payload. */
THC_INLINE int thc_seal_ok(const struct thc_hdr *h, u8 seal, const struct thc_seal_key *key,
			   const void *payload, int words)
{
	return h->tag == thc_be64(thc_seal_tag_of(seal, key, h, payload, words));
}

/* --- membership packets ------------------------------------------------------------ */

/* Membership packets are rare, and their keys last. So SipHash covers the whole packet, and with it
 * the worker's end of the path: a packet for one aggregator, or by one worker, is invalid for
 * another.
 */
THC_INLINE u64 thc_member_siphash(const struct thc_member_key *key, const struct thc_hdr *h,
				  const struct thc_end *end, const void *payload, int words)
{
	const thc_word *e = (const void *)end, *p = payload;
	struct thc_siphash s;
	int i;

	thc_seal_begin(&s, key->sip, h);
	for (i = 0; i < THC_END_WORDS; i++)
		thc_siphash_word(&s, thc_le64(e[i]));
	for (i = 0; i < words; i++)
		thc_siphash_word(&s, thc_le64(p[i]));
	return thc_siphash_end(&s, THC_SEAL_WORDS + THC_END_WORDS + words);
}

/* thc_hdr.tag of a membership packet, in network order; @seal: thc_seal_of_members() */
THC_INLINE __be64 thc_member_tag(u8 seal, const struct thc_member_key *key, const struct thc_hdr *h,
				 const struct thc_end *end, const void *payload, int words)
{
	struct thc_sum sum = { 0, 0 };

	if (seal == THC_SEAL_NH)
		return thc_be64(thc_member_siphash(key, h, end, payload, words));
	thc_sum_add(&sum, payload, words);
	return thc_be64(thc_sum32(h, sum, words));
}

/* Seals @h, complete but for key_id and tag. @end: the worker's, or the group's */
THC_INLINE void thc_member_seal(struct thc_hdr *h, u8 seal, const struct thc_member_key *key,
				const struct thc_end *end, const void *payload, int words)
{
	h->key_id = key->id;
	h->tag = thc_member_tag(seal, key, h, end, payload, words);
}

#endif /* THC_SEAL_H */
