/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Formats of a request's payload, and of its slot's lanes. XDP, thc.ko and user space take their
 * cases from one table. A slot always has THC_LANE_BYTES.
 */
#ifndef THC_FORMAT_H
#define THC_FORMAT_H

#include <thc/types.h>

/*
 * Columns: kind; its loop (aggregator/lane.h); op; bits of a coordinate up; bits of its sum, which
 * is what an answer carries; bytes of payload up; what the loop uses beside lanes and payload: the
 * job's table (TABLE and GROUP), the sender's rank (OWN), or nothing (PLAIN).
 *
 * LINEAR8 is LUT8 for T[z] = z. The job tells rows of LUT_ADD apart, the request alone all others.
 */
/* clang-format off */
#define THC_FORMATS(X)						\
	X(LUT8,    lut8,    LUT_ADD,  4,  8,  512, TABLE)	\
	X(LINEAR8, linear8, LUT_ADD,  4,  8,  512, PLAIN)	\
	X(LUT16,   lut16,   LUT_ADD,  4, 16,  256, TABLE)	\
	X(ADD8,    add8,    ADD,      8,  8, 1024, PLAIN)	\
	X(ADD16,   add16,   ADD,     16, 16, 1024, PLAIN)	\
	X(ADD32,   add32,   ADD,     32, 32, 1024, PLAIN)	\
	X(OR,      or,      OR,      32, 32, 1024, PLAIN)	\
	X(MAX,     max,     MAX,     32, 32, 1024, PLAIN)	\
	X(CLAIM,   claim,   CLAIM,   32, 32, 1024, OWN)		\
	X(CLAIM_HIGH, claim_high, CLAIM_HIGH, 32, 32, 1024, OWN)	\
	THC_FORMATS_GROUP(X)

/* The rows that a rate brings (thcd's plan_table.c). Their loops look up a GROUP of indices at a
 * time, and read words that may begin in the header (aggregator/group.h).
 */
#define THC_FORMATS_GROUP(X)					\
	X(B1S4,  b1s4,  LUT_ADD, 1,  4, 256, GROUP)		\
	X(B2S4,  b2s4,  LUT_ADD, 2,  4, 512, GROUP)		\
	X(B3S4,  b3s4,  LUT_ADD, 3,  4, 768, GROUP)		\
	X(B1S8,  b1s8,  LUT_ADD, 1,  8, 128, GROUP)		\
	X(B2S8,  b2s8,  LUT_ADD, 2,  8, 256, GROUP)		\
	X(B3S8,  b3s8,  LUT_ADD, 3,  8, 384, GROUP)		\
	X(B5S8,  b5s8,  LUT_ADD, 5,  8, 640, GROUP)		\
	X(B6S8,  b6s8,  LUT_ADD, 6,  8, 768, GROUP)		\
	X(B3S16, b3s16, LUT_ADD, 3, 16, 192, GROUP)		\
	X(B5S16, b5s16, LUT_ADD, 5, 16, 320, GROUP)		\
	X(B6S16, b6s16, LUT_ADD, 6, 16, 384, GROUP)

/* LUT_ADD of any number of bits for which there is no row above: one loop for each width of a sum.
 * Columns: kind; its loop (aggregator/lane.h); bits of a sum. A payload has
 * THC_LANE_BYTES * b / sum bytes.
 */
#define THC_FORMATS_BITS(X)	\
	X(BITS4,  bits4,   4)	\
	X(BITS8,  bits8,   8)	\
	X(BITS16, bits16, 16)	\
	X(BITS32, bits32, 32)

/* The payload lengths of THC_FORMATS, each once, the most frequent one first: lengths for which
 * thc.ko offers the seal, and the others.
 */
#define THC_PAYLOADS_LENT(X) X(512) X(1024) X(256)
#define THC_PAYLOADS_OWN(X) X(128) X(192) X(320) X(384) X(640) X(768)
#define THC_PAYLOADS(X) THC_PAYLOADS_LENT(X) THC_PAYLOADS_OWN(X)
/* clang-format on */

/* The loop that turns a payload into lanes; thc_lane_kind() chooses it once per packet. */
enum thc_lane_kind {
	THC_LANE_NONE,		/* op, width and row do not match */
#define THC_FORMAT_KIND(kind, ...) THC_LANE_##kind,
	THC_FORMATS(THC_FORMAT_KIND) THC_FORMATS_BITS(THC_FORMAT_KIND)
#undef THC_FORMAT_KIND
};

/* Coordinates of a chunk whose sums have @bits bits. */
#define THC_COORDINATES(bits)	(THC_LANE_BYTES * 8 / (bits))

/* Bytes that @coordinates of @bits bits take. */
#define THC_BYTES(coordinates, bits)	((coordinates) * (bits) / 8)

/* Bit @op for each op of the table. */
#define THC_FORMAT_BIT(kind, name, op, ...) | 1U << THC_OP_##op
#define THC_OPS_OF_DATA (0 THC_FORMATS(THC_FORMAT_BIT))

/* Is @op one of data? A worker may send it, and it is the common case. */
THC_INLINE int thc_op_is_data(u8 op)
{
	return op <= THC_OP_DATA_MAX && THC_OPS_OF_DATA >> op & 1;
}

THC_INLINE int thc_op_is_membership(u8 op)
{
	return op == THC_OP_JOIN || op == THC_OP_LEAVE;
}

/* Do chunks of @op, one of data, belong to the data stream? All others are agreed on, in the
 * control stream.
 */
THC_INLINE int thc_op_is_added(u8 op)
{
	return op == THC_OP_LUT_ADD || op == THC_OP_ADD;
}

/* May contributions of ops @a and @b be in one slot? LUT_ADD and ADD may, all others only with
 * themselves.
 */
THC_INLINE int thc_ops_meet(u8 a, u8 b)
{
	return a == b || (thc_op_is_added(a) && thc_op_is_added(b));
}

/* Has a job of @ranks ranks any use for @op? */
THC_INLINE int thc_op_is_used(u8 op, u32 ranks)
{
	return op != THC_OP_CLAIM_HIGH || ranks > THC_CLAIM_WORKERS;
}

/* Does an aggregator send @op to a worker that joins? */
THC_INLINE int thc_op_is_joining(u8 op)
{
	return op == THC_OP_WELCOME || op == THC_OP_CHALLENGE;
}

/* Can @op, one of joining, have a payload of @bytes? */
THC_INLINE int thc_joining_fits(u8 op, u32 bytes)
{
	return op == THC_OP_WELCOME ?
		       bytes >= sizeof(struct thc_welcome) && bytes <= THC_WELCOME_BYTES :
		       bytes == sizeof(struct thc_challenge);
}

/* Bits of an index into a job's table, and levels that a table has, at most. */
#define THC_BITS_MAX	8
#define THC_LEVELS_MAX	(1 << THC_BITS_MAX)

/**
 * struct thc_row - LUT_ADD in a job
 * @bits: b, of an index
 * @sum_width: bits of a sum
 * @linear: T[z] = z
 */
struct thc_row {
	u8	bits;
	u8	sum_width;
	u8	linear;
};

/* Can indices of @bits bits be summed in @sum_width bits? */
THC_INLINE int thc_row_is_known(u32 bits, u32 sum_width)
{
	if (!bits || bits > THC_BITS_MAX || bits > sum_width)
		return 0;
	switch (sum_width) {
#define THC_SUM_CASE(kind, name, sum) case sum:
		THC_FORMATS_BITS(THC_SUM_CASE)
#undef THC_SUM_CASE
		return 1;
	}
	return 0;
}

/* Can a request's payload have @length bytes, JOIN and LEAVE aside? Lengths are multiples of 32. */
THC_INLINE int thc_payload_is_known(u32 length)
{
	/* clang-format off */
#define THC_PAYLOAD_OF_SUM(kind, name, sum)							\
	if (length * (sum) % THC_LANE_BYTES == 0 &&						\
	    thc_row_is_known(length * (sum) / THC_LANE_BYTES, sum))				\
		return 1;
	/* clang-format on */
	THC_FORMATS_BITS(THC_PAYLOAD_OF_SUM)
#undef THC_PAYLOAD_OF_SUM
	return 0;
}

/* What a row is found by, as one number, of which a compiler makes a tree of compares. @last: of 16
 * bits
 */
#define THC_FORMAT_KEY(op, width, last)	((u32)(op) << 24 | (u32)(width) << 16 | (last))

/* Has THC_FORMATS a row for such a request? A request without one may still have a kind. */
THC_INLINE int thc_has_format(u8 op, u8 width, u32 payload)
{
	const u32 key = THC_FORMAT_KEY(op, width, payload);

	if (payload > THC_LANE_BYTES)
		return 0;
#define THC_FORMAT_FITS(kind, name, row_op, up, sum, bytes, ...) \
	if (key == THC_FORMAT_KEY(THC_OP_##row_op, up, bytes)) \
		return 1;
	THC_FORMATS(THC_FORMAT_FITS)
#undef THC_FORMAT_FITS
	return 0;
}

#define THC_FORMAT_CHECK(kind, name, op, up, sum, bytes, ...)					\
	_Static_assert((bytes) == THC_BYTES(THC_COORDINATES(sum), up), "payload of " #kind);
THC_FORMATS(THC_FORMAT_CHECK)
#undef THC_FORMAT_CHECK

/* @op, @width: of the packet. @row: of its job */
THC_INLINE enum thc_lane_kind thc_lane_kind(u8 op, u8 width, struct thc_row row)
{
	const u32 sum_width = op == THC_OP_LUT_ADD ? row.sum_width : width;
	const u32 key = THC_FORMAT_KEY(op, width, sum_width);

	/* clang-format off */
	if (op == THC_OP_LUT_ADD && width != row.bits)
		return THC_LANE_NONE;
#define THC_FORMAT_MATCH(kind, name, row_op, up, sum, ...)					\
	if (key == THC_FORMAT_KEY(THC_OP_##row_op, up, sum) &&					\
	    (THC_LANE_##kind != THC_LANE_LUT8 || !row.linear))					\
		return THC_LANE_##kind;
#define THC_FORMAT_MATCH_BITS(kind, name, sum)							\
	if (row.sum_width == (sum))								\
		return THC_LANE_##kind;
	/* clang-format on */
	THC_FORMATS(THC_FORMAT_MATCH)
	if (op != THC_OP_LUT_ADD || !thc_row_is_known(row.bits, row.sum_width))
		return THC_LANE_NONE;
	THC_FORMATS_BITS(THC_FORMAT_MATCH_BITS)
#undef THC_FORMAT_MATCH_BITS
#undef THC_FORMAT_MATCH
	return THC_LANE_NONE;
}

/* Payload bytes of a request of this kind, whose width is @width. */
THC_INLINE u32 thc_lane_payload(enum thc_lane_kind kind, u8 width)
{
	switch (kind) {
	case THC_LANE_NONE:
		break;
#define THC_FORMAT_PAYLOAD(kind, name, op, up, sum, bytes, ...) \
	case THC_LANE_##kind: \
		return bytes;
		THC_FORMATS(THC_FORMAT_PAYLOAD)
#undef THC_FORMAT_PAYLOAD
#define THC_FORMAT_PAYLOAD(kind, name, sum) \
	case THC_LANE_##kind: \
		return THC_BYTES(THC_COORDINATES(sum), width);
		THC_FORMATS_BITS(THC_FORMAT_PAYLOAD)
#undef THC_FORMAT_PAYLOAD
	}
	return 0;
}

/* Bits of a lane of the sum, which the answer to a request of @op and @width carries. */
THC_INLINE u8 thc_sum_bits(u8 op, u8 width, u8 sum_width)
{
	return op == THC_OP_LUT_ADD ? sum_width : width;
}

#endif /* THC_FORMAT_H */
