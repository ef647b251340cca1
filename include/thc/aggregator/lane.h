/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Lane arithmetic: a 64-bit word of lanes (or half a word) and one of payload in, a word of lanes
 * out. thc_lanes_*() below loop over a packet. The XDP program and thcd's software mode add with
 * these loops. thc.ko, which sums for the XDP program, has these loops and vector loops, which
 * tests compare. Words are host values of little-endian lanes.
 */
#ifndef THC_LANE_H
#define THC_LANE_H

#include <thc/aggregator/bits.h>
#include <thc/aggregator/nibble.h>
#include <thc/wire/format.h>

/* Lane-wise sums modulo 2^width: carries stop at the lane's top bit. */
THC_INLINE u64 thc_add_masked(u64 a, u64 b, u64 top)
{
	return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

THC_INLINE u64 thc_add8(u64 a, u64 b)
{
	return thc_add_masked(a, b, 0x8080808080808080ULL);
}

THC_INLINE u64 thc_add16(u64 a, u64 b)
{
	return thc_add_masked(a, b, 0x8000800080008000ULL);
}

THC_INLINE u64 thc_max32(u64 a, u64 b)
{
	u64 hi = (a >> 32) > (b >> 32) ? a : b;
	u64 lo = (u32)a > (u32)b ? a : b;

	return (hi & 0xffffffff00000000ULL) | (lo & 0xffffffffULL);
}

THC_INLINE u64 thc_pairs_8(const struct thc_pairs *p, u32 packed)
{
	return (u64)p->w8[packed & 0xff] | (u64)p->w8[packed >> 8 & 0xff] << 16 |
	       (u64)p->w8[packed >> 16 & 0xff] << 32 | (u64)p->w8[packed >> 24] << 48;
}

THC_INLINE u64 thc_pairs_16(const struct thc_pairs *p, u32 packed)
{
	return (u64)p->w16[packed & 0xff] | (u64)p->w16[packed >> 8 & 0xff] << 32;
}

/* A slot's first contribution replaces the lanes, later ones are combined with them. @first is a
 * constant where speed matters.
 *
 * LUT sums use plain additions: the daemon refuses tables with max(T) n >= 2^width, so no lane ever
 * carries into its neighbour. Where ADD meets LUT_ADD in a slot, its lanes are sums of such levels
 * by other workers; larger ones are wrong anyway, and may spoil the next lane, too.
 */
THC_INLINE void thc_lanes_lut8(u64 *lanes, const void *payload, const struct thc_pairs *p,
			       int first)
{
	const thc_word *in = payload;
	int i;

	for (i = 0; i < THC_LANE_WORDS / 2; i++) {
		u64 w = thc_le64(in[i]);
		u64 lo = thc_pairs_8(p, (u32)w), hi = thc_pairs_8(p, w >> 32);

		lanes[2 * i] = first ? lo : lanes[2 * i] + lo;
		lanes[2 * i + 1] = first ? hi : lanes[2 * i + 1] + hi;
	}
}

THC_INLINE void thc_lanes_linear8(u64 *lanes, const void *payload, int first)
{
	const thc_word *in = payload;
	int i;

	for (i = 0; i < THC_LANE_WORDS / 2; i++) {
		u64 w = thc_le64(in[i]);
		u64 lo = thc_nibble_spread((u32)w), hi = thc_nibble_spread(w >> 32);

		lanes[2 * i] = first ? lo : lanes[2 * i] + lo;
		lanes[2 * i + 1] = first ? hi : lanes[2 * i + 1] + hi;
	}
}

THC_INLINE void thc_lanes_lut16(u64 *lanes, const void *payload, const struct thc_pairs *p,
				int first)
{
	const thc_word *in = payload;
	int i, k;

	for (i = 0; i < THC_LANE_WORDS / 4; i++) {
		u64 w = thc_le64(in[i]);

		for (k = 0; k < 4; k++) {
			u64 v = thc_pairs_16(p, w >> (16 * k) & 0xffff);

			lanes[4 * i + k] = first ? v : lanes[4 * i + k] + v;
		}
	}
}

/* The levels of the first 64 / @width indices of @x, which has fields of @field bits, as lanes of
 * @width bits.
 */
THC_INLINE u64 thc_lane_levels(const struct thc_pairs *p, u64 x, u32 field, u32 width)
{
	u64 lanes = 0;
	u32 k;

	for (k = 0; k < 64 / width; k++)
		lanes |= (u64)p->level[x >> field * k & ((1U << field) - 1)] << width * k;
	return lanes;
}

/* LUT_ADD of any number of bits into lanes of @width bits, which is a constant. @payload: of
 * THC_LANE_BYTES, of which the packet's bytes come first and the others do not matter
 */
THC_INLINE void thc_lanes_bits(u64 *lanes, const void *payload, const struct thc_pairs *p,
			       u32 width, int first)
{
	const u32 field = width < 8 ? width : 8, words = width / field;
	u32 bits = p->bits, i, k;

	/* thc_row_is_known() has refused such bits already */
	if (bits - 1 >= field)
		return;
	for (i = 0; i < THC_LANE_WORDS / words; i++) {
		u64 x = thc_bits_take(payload, i, bits, field);

		for (k = 0; k < words; k++) {
			u64 v = thc_lane_levels(p, x >> 64 / words * k, field, width);
			u64 *to = &lanes[words * i + k];

			*to = first ? v : *to + v;
		}
	}
}

#define THC_LANES_OF_BITS(kind, name, sum) \
	THC_INLINE void thc_lanes_##name(u64 *lanes, const void *payload, \
					 const struct thc_pairs *p, int first) \
	{ \
		thc_lanes_bits(lanes, payload, p, sum, first); \
	}
THC_FORMATS_BITS(THC_LANES_OF_BITS)

/* Word @k of a turn, in lanes of @width bits; the turn's indices of @bits bits are the low bits of
 * @x. If a word is no multiple of a group, the last group also takes bits of the next word, or
 * zeros, and their lanes are shifted out.
 */
THC_INLINE u64 thc_lane_groups(const struct thc_pairs *p, u64 x, u32 k, u32 bits, u32 width)
{
	const u32 size = thc_group_size(bits, width), n = 64 / width,
		  mask = (1U << size * bits) - 1;
	u64 lanes = 0;
	u32 i;

	THC_UNROLL_WHOLE
	for (i = 0; i < n; i += size) {
		int left = (int)(thc_group_words(bits, width) * n - k * n - i - size) * (int)bits;
		u64 at = (left < 0 ? x << -left : x >> left) & mask;
		u64 part = width > 8 ? THC_GROUP_ENTRY(p->level, at) :
				       thc_group_find(&p->group, at, bits, width);

		lanes |= part << i * width;
	}
	return lanes;
}

/* LUT_ADD of @bits bits into lanes of @width bits, both constants, a group at a time. A turn loads
 * 8 bytes that end with its own; the first ones may lie before it, or in the header in front of
 * @payload.
 */
THC_INLINE void thc_lanes_group(u64 *lanes, const void *payload, const struct thc_pairs *p,
				u32 bits, u32 width, int first)
{
	const u32 words = thc_group_words(bits, width), bytes = words * 8 * bits / width;
	u32 i, k;

	for (i = 0; i < THC_LANE_WORDS / words; i++) {
		const thc_word *from = (const void *)((const u8 *)payload + (i + 1) * bytes - 8);
		u64 x = thc_stream64(*from);

		THC_UNROLL_WHOLE
		for (k = 0; k < words; k++) {
			u64 v = thc_lane_groups(p, x, k, bits, width);
			u64 *to = &lanes[words * i + k];

			*to = first ? v : *to + v;
		}
	}
}

#define THC_LANES_OF_GROUP(kind, name, op, up, sum, bytes, loop) \
	THC_INLINE void thc_lanes_##name(u64 *lanes, const void *payload, \
					 const struct thc_pairs *p, int first) \
	{ \
		thc_lanes_group(lanes, payload, p, up, sum, first); \
	}
THC_FORMATS_GROUP(THC_LANES_OF_GROUP)

/* ADD, OR and MAX: payload and lanes have the same layout.
 *
 * MAX is not unrolled: it is seldom sent, and in BPF each word has branches.
 */
/* clang-format off */
#define THC_LANES_WORDWISE(name, unroll, combine)					\
THC_INLINE void thc_lanes_##name(u64 *lanes, const void *payload, int first)		\
{											\
	const thc_word *in = payload;							\
	int i;										\
											\
	unroll										\
	for (i = 0; i < THC_LANE_WORDS; i++) {						\
		u64 a = lanes[i], b = thc_le64(in[i]);					\
											\
		lanes[i] = first ? b : (combine);					\
	}										\
}
/* clang-format on */

THC_LANES_WORDWISE(add8, THC_UNROLL, thc_add8(a, b))
THC_LANES_WORDWISE(add16, THC_UNROLL, thc_add16(a, b))
THC_LANES_WORDWISE(or, THC_UNROLL, a | b)
THC_LANES_WORDWISE(max, , thc_max32(a, b))

/* Adds halves of words, so no carry crosses a lane. */
THC_INLINE void thc_lanes_add32(u64 *lanes, const void *payload, int first)
{
	const thc_half_word *in = payload;
	thc_half_word *to = (void *)lanes;
	int i;

	/* the first contribution is copied, by whole words */
	if (first) {
		thc_lanes_or(lanes, payload, 1);
		return;
	}
	THC_UNROLL
	for (i = 0; i < 2 * THC_LANE_WORDS; i++)
		to[THC_HALF_AT(i)] += thc_le32(in[i]);
}

/* 64-bit words of a claim. */
#define THC_CLAIM_WORDS	(THC_CLAIM_LANES / 2)

/* A @place that the caller has compared, bounded once more at the access, where the verifier of BPF
 * needs it. The compiler must not know that the bound is needless.
 */
THC_INLINE u32 thc_claim_word(u32 place)
{
#ifdef __bpf__
	asm volatile("" : "+r"(place));
#endif
	return place * THC_CLAIM_WORDS & (THC_LANE_WORDS - 1);
}

/* MAX of the claim at @place of the packet, in units of claims. All other lanes count as zero, so
 * no worker can make another one's claim.
 */
THC_INLINE void thc_lanes_claim_at(u64 *lanes, const void *payload, u32 place, int first)
{
	const thc_word *in = payload;
	u32 i, at;

	for (i = 0; first && i < THC_LANE_WORDS; i++)
		lanes[i] = 0;
	if (place >= THC_LANE_WORDS / THC_CLAIM_WORDS)
		return;
	at = thc_claim_word(place);
	for (i = at; i < at + THC_CLAIM_WORDS; i++)
		lanes[i] = thc_max32(lanes[i], thc_le64(in[i]));
}

THC_INLINE void thc_lanes_claim(u64 *lanes, const void *payload, u32 rank, int first)
{
	thc_lanes_claim_at(lanes, payload, rank, first);
}

/* A rank below THC_CLAIM_WORKERS wraps to a place outside the packet. */
THC_INLINE void thc_lanes_claim_high(u64 *lanes, const void *payload, u32 rank, int first)
{
	thc_lanes_claim_at(lanes, payload, rank - THC_CLAIM_WORKERS, first);
}

/* Dispatch for aggregators that are not XDP (which has it as subprograms). @rank: the sender's */
THC_INLINE void thc_lanes_add(enum thc_lane_kind kind, u64 *lanes, const void *payload,
			      const struct thc_pairs *p, u32 rank, int first)
{
	u64 room[1 + THC_LANE_WORDS];

	switch (kind) {
	case THC_LANE_NONE:
		break;
#define THC_LANES_CALL_TABLE(name) thc_lanes_##name(lanes, payload, p, first)
		/* these loops read up to a word in front of the payload ... */
#define THC_LANES_CALL_GROUP(name) \
	__builtin_memcpy(room + 1, payload, thc_lane_payload(kind, 0)); \
	thc_lanes_##name(lanes, room + 1, p, first)
#define THC_LANES_CALL_OWN(name) thc_lanes_##name(lanes, payload, rank, first)
#define THC_LANES_CALL_PLAIN(name) thc_lanes_##name(lanes, payload, first)
#define THC_LANES_CASE(kind, name, op, up, sum, bytes, loop) \
	case THC_LANE_##kind: \
		THC_LANES_CALL_##loop(name); \
		break;
		THC_FORMATS(THC_LANES_CASE)
#undef THC_LANES_CASE
#define THC_LANES_CASE(kind, name, sum) \
	case THC_LANE_##kind: \
		if (!thc_row_is_known(p->bits, sum)) \
			break; \
		/* ... and these read behind its end */ \
		__builtin_memcpy(room, payload, thc_lane_payload(THC_LANE_##kind, (u8)p->bits)); \
		thc_lanes_##name(lanes, room, p, first); \
		break;
		THC_FORMATS_BITS(THC_LANES_CASE)
#undef THC_LANES_CASE
#undef THC_LANES_CALL_PLAIN
#undef THC_LANES_CALL_OWN
#undef THC_LANES_CALL_GROUP
#undef THC_LANES_CALL_TABLE
	}
}

#endif /* THC_LANE_H */
