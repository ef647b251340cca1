/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Lane arithmetic: one 64-bit word of lanes and one of payload in, one word
 * of lanes out. The loops over a packet are thc_lanes_*() below. The XDP
 * program and thcd's software mode add with these loops; thc.ko, which sums
 * for the XDP program, has them and vector loops that tests compare with them.
 * Words are host values of little-endian lanes.
 */
#ifndef THC_LANE_H
#define THC_LANE_H

#include <thc/aggregator/nibble.h>

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

THC_INLINE u64 thc_add32(u64 a, u64 b)
{
	return thc_add_masked(a, b, 0x8000000080000000ULL);
}

THC_INLINE u64 thc_max32(u64 a, u64 b)
{
	u64 hi = (a >> 32) > (b >> 32) ? a : b;
	u64 lo = (u32)a > (u32)b ? a : b;

	return (hi & 0xffffffff00000000ULL) | (lo & 0xffffffffULL);
}

/* How a payload becomes lanes; chosen once per packet by thc_lane_kind(). */
enum thc_lane_kind {
	THC_LANE_NONE,		/* op and width do not go together */
	THC_LANE_LUT8,		/* 512 B of indices -> 1024 8-bit lanes */
	THC_LANE_LINEAR8,	/* the same for T[z] = z */
	THC_LANE_LUT16,		/* 256 B of indices -> 512 16-bit lanes */
	THC_LANE_ADD8,
	THC_LANE_ADD16,
	THC_LANE_ADD32,
	THC_LANE_OR,
	THC_LANE_MAX,
};

/* @op, @width: of the packet. @sum_width, @linear: of the job's table. */
THC_INLINE enum thc_lane_kind thc_lane_kind(u8 op, u8 width, u8 sum_width, u8 linear)
{
	switch (op) {
	case THC_OP_LUT_ADD:
		if (width != 4)
			return THC_LANE_NONE;
		if (sum_width == 16)
			return THC_LANE_LUT16;
		if (sum_width != 8)
			return THC_LANE_NONE;
		return linear ? THC_LANE_LINEAR8 : THC_LANE_LUT8;
	case THC_OP_ADD:
		return width == 8  ? THC_LANE_ADD8 :
		       width == 16 ? THC_LANE_ADD16 :
		       width == 32 ? THC_LANE_ADD32 :
				     THC_LANE_NONE;
	case THC_OP_OR:
		return width == 32 ? THC_LANE_OR : THC_LANE_NONE;
	case THC_OP_MAX:
		return width == 32 ? THC_LANE_MAX : THC_LANE_NONE;
	}
	return THC_LANE_NONE;
}

/* Payload bytes of a request of this kind. */
THC_INLINE u32 thc_lane_payload(enum thc_lane_kind kind)
{
	switch (kind) {
	case THC_LANE_NONE:
		return 0;
	case THC_LANE_LUT8:
	case THC_LANE_LINEAR8:
		return THC_CHUNK_8 / 2;
	case THC_LANE_LUT16:
		return THC_CHUNK_16 / 2;
	default:
		return THC_LANE_BYTES;
	}
}

/* Width of the lanes an answer of this kind carries, in bits. */
THC_INLINE u8 thc_lane_answer_width(enum thc_lane_kind kind)
{
	switch (kind) {
	case THC_LANE_LUT8:
	case THC_LANE_LINEAR8:
	case THC_LANE_ADD8:
		return 8;
	case THC_LANE_LUT16:
	case THC_LANE_ADD16:
		return 16;
	default:
		return 32;
	}
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

/* A slot's first contribution replaces what the lanes held, later ones are
 * combined with it. @first is a constant where speed matters.
 *
 * LUT sums use plain additions: the daemon refuses tables with
 * max(T) n >= 2^width, so no lane ever carries into its neighbour.
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

/* ADD, OR and MAX: payload and lanes have the same layout. */
/* clang-format off */
#define THC_LANES_WORDWISE(name, combine)						\
THC_INLINE void thc_lanes_##name(u64 *lanes, const void *payload, int first)		\
{											\
	const thc_word *in = payload;							\
	int i;										\
											\
	for (i = 0; i < THC_LANE_WORDS; i++) {						\
		u64 a = lanes[i], b = thc_le64(in[i]);					\
											\
		lanes[i] = first ? b : (combine);					\
	}										\
}
/* clang-format on */

THC_LANES_WORDWISE(add8, thc_add8(a, b))
THC_LANES_WORDWISE(add16, thc_add16(a, b))
THC_LANES_WORDWISE(add32, thc_add32(a, b))
THC_LANES_WORDWISE(or, a | b)
THC_LANES_WORDWISE(max, thc_max32(a, b))

/* Dispatch for aggregators that are not XDP (which has it as subprograms). */
THC_INLINE void thc_lanes_add(enum thc_lane_kind kind, u64 *lanes, const void *payload,
			      const struct thc_pairs *p, int first)
{
	switch (kind) {
	case THC_LANE_NONE:
		break;
	case THC_LANE_LUT8:
		thc_lanes_lut8(lanes, payload, p, first);
		break;
	case THC_LANE_LINEAR8:
		thc_lanes_linear8(lanes, payload, first);
		break;
	case THC_LANE_LUT16:
		thc_lanes_lut16(lanes, payload, p, first);
		break;
	case THC_LANE_ADD8:
		thc_lanes_add8(lanes, payload, first);
		break;
	case THC_LANE_ADD16:
		thc_lanes_add16(lanes, payload, first);
		break;
	case THC_LANE_ADD32:
		thc_lanes_add32(lanes, payload, first);
		break;
	case THC_LANE_OR:
		thc_lanes_or(lanes, payload, first);
		break;
	case THC_LANE_MAX:
		thc_lanes_max(lanes, payload, first);
		break;
	}
}

#endif /* THC_LANE_H */
