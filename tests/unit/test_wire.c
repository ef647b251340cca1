// SPDX-License-Identifier: GPL-2.0
/*
 * The wire, byte by byte: offsets and byte orders of all header fields, and the numbers of ops,
 * flags and reasons. A change here is a new version of the protocol.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/job.h>
#include <thc/aggregator/lane.h>
#include <thc/aggregator/slot.h>
#include <thc/wire/spec.h>

#define AT(type, field, offset, size)								\
	do {											\
		assert_int_equal(offsetof(struct type, field), offset);				\
		assert_int_equal(sizeof(((struct type *)0)->field), size);			\
	} while (0)

static void wire__header(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct thc_hdr), 48);
	AT(thc_hdr, version, 0, 1);
	AT(thc_hdr, op, 1, 1);
	AT(thc_hdr, width, 2, 1);
	AT(thc_hdr, flags, 3, 1);
	AT(thc_hdr, key_id, 4, 4);
	AT(thc_hdr, tag, 8, 8);
	AT(thc_hdr, job, 16, 2);
	AT(thc_hdr, rank, 18, 2);
	AT(thc_hdr, epoch, 20, 4);
	AT(thc_hdr, round, 24, 4);
	AT(thc_hdr, chunk, 28, 4);
	AT(thc_hdr, slot, 32, 2);
	AT(thc_hdr, count, 34, 2);
	AT(thc_hdr, generation, 36, 4);
	AT(thc_hdr, bitmap, 40, 8);
}

static void wire__join(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct thc_join), 64);
	AT(thc_join, nonce, 0, 16);
	AT(thc_join, challenge, 16, 16);
	AT(thc_join, flags, 32, 4);
	AT(thc_join, offers, 36, 4);
	AT(thc_join, workers, 40, 2);
	AT(thc_join, version_max, 42, 1);
	AT(thc_join, reserved, 43, 1);
	AT(thc_join, restarted, 44, 2);
	AT(thc_join, reserved2, 46, 18);
	assert_int_equal(sizeof(struct thc_challenge), 32);
	AT(thc_challenge, nonce, 0, 16);
	AT(thc_challenge, challenge, 16, 16);
	assert_int_equal(sizeof(struct thc_leave), 16);
	AT(thc_leave, nonce, 0, 16);
}

static void wire__welcome(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct thc_welcome), 64);
	AT(thc_welcome, nonce, 0, 16);
	AT(thc_welcome, joined, 16, 8);
	AT(thc_welcome, seed, 24, 8);
	AT(thc_welcome, deadline_ms, 32, 4);
	AT(thc_welcome, features, 36, 4);
	AT(thc_welcome, constants, 40, 4);
	AT(thc_welcome, ranks, 44, 2);
	AT(thc_welcome, quorum, 46, 2);
	AT(thc_welcome, data_slots, 48, 2);
	AT(thc_welcome, control_slots, 50, 2);
	AT(thc_welcome, flags, 52, 2);
	AT(thc_welcome, refusal, 54, 1);
	AT(thc_welcome, reply, 55, 1);
	AT(thc_welcome, part, 56, 1);
	AT(thc_welcome, parts, 57, 1);
	AT(thc_welcome, version_max, 58, 1);
	AT(thc_welcome, reserved, 59, 1);
	AT(thc_welcome, shard, 60, 2);
	AT(thc_welcome, shards, 62, 2);
}

/* The end that a membership packet is sealed with, and which no packet carries. */
static void wire__end(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct thc_end), 24);
	AT(thc_end, addr, 0, 16);
	AT(thc_end, port, 16, 2);
	AT(thc_end, aggregator, 18, 2);
	AT(thc_end, zero, 20, 4);
	assert_int_equal(THC_END_WORDS * 8, sizeof(struct thc_end));
}

static void wire__claim(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct thc_claim), 32);
	AT(thc_claim, count_lo, 0, 4);
	AT(thc_claim, form, 4, 4);
	AT(thc_claim, constants, 8, 4);
	AT(thc_claim, tag, 12, 4);
	AT(thc_claim, call, 16, 4);
	AT(thc_claim, digest, 20, 4);
	AT(thc_claim, missed, 24, 4);
	AT(thc_claim, status, 28, 4);
	assert_int_equal(THC_CLAIM_LANES, 8);
	assert_int_equal(THC_CLAIM_LANES * 4, sizeof(struct thc_claim));
	assert_int_equal(THC_CLAIM_WORKERS * sizeof(struct thc_claim), THC_LANE_BYTES);
	/* all ranks' claims fit two packets */
	assert_int_equal(2 * THC_CLAIM_WORKERS, THC_RANKS_MAX);
}

static void wire__a_header_as_bytes(void **state)
{
	static const u8 bytes[48] = {
		0x02, 0x01, 0x04, 0x83, 0x28, 0x29, 0x2a, 0x2b, /* version op width flags key_id */
		0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, /* tag */
		0x09, 0x0a, 0x0b, 0x2c, 0x0c, 0x0d, 0x0e, 0x0f, /* job rank epoch */
		0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, /* round chunk */
		0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, /* slot count generation */
		0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, /* bitmap */
	};
	struct thc_hdr h = {
		.version = THC_VERSION,
		.op = THC_OP_LUT_ADD,
		.width = 4,
		.flags = THC_F_KNOWN | THC_F_REPEAT | THC_F_ANSWER,
		.key_id = thc_be32(0x28292a2b),
		.tag = thc_be64(0x0102030405060708ULL),
		.job = thc_be16(0x090a),
		.rank = thc_be16(0x0b2c),
		.epoch = thc_be32(0x0c0d0e0f),
		.round = thc_be32(0x10111213),
		.chunk = thc_be32(0x14151617),
		.slot = thc_be16(0x1819),
		.count = thc_be16(0x1a1b),
		.generation = thc_be32(0x1c1d1e1f),
		.bitmap = thc_be64(0x2021222324252627ULL),
	};

	(void)state;
	assert_memory_equal(&h, bytes, sizeof(h));
}

static void wire__byte_order(void **state)
{
	static const u8 bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	u16 a;
	u32 b;
	u64 c;

	(void)state;
	memcpy(&a, bytes, 2);
	memcpy(&b, bytes, 4);
	memcpy(&c, bytes, 8);
	assert_int_equal(thc_be16(a), 0x0102);
	assert_int_equal(thc_be32(b), 0x01020304);
	assert_true(thc_be64(c) == 0x0102030405060708ULL);
	assert_int_equal(thc_le16(a), 0x0201);
	assert_int_equal(thc_le32(b), 0x04030201);
	assert_true(thc_le64(c) == 0x0807060504030201ULL);
}

/* Lanes and the words of the sum are little-endian on every host. */
static void wire__lanes_are_little_endian(void **state)
{
	static const u8 add16[8] = { 0x34, 0x12, 0x78, 0x56, 0xff, 0xff, 0x00, 0x80 };
	u8 payload[THC_LANE_BYTES] = { 0 };
	u64 lanes[THC_LANE_WORDS];

	(void)state;
	memcpy(payload, add16, sizeof(add16));
	thc_lanes_add16(lanes, payload, 1);
	thc_lanes_add16(lanes, payload, 0);
	assert_true(lanes[0] == 0x0000fffeacf02468ULL);
}

static void wire__numbers_of_headers(void **state)
{
	(void)state;
	assert_int_equal(THC_VERSION, 2);
	assert_int_equal(THC_PORT_DEFAULT, 18500);
	assert_int_equal(THC_TTL, 255);
	assert_int_equal(THC_TTL_GROUP, 1);
	assert_int_equal(THC_OP_LUT_ADD, 1);
	assert_int_equal(THC_OP_ADD, 2);
	assert_int_equal(THC_OP_OR, 3);
	assert_int_equal(THC_OP_MAX, 4);
	assert_int_equal(THC_OP_CLAIM, 6);
	assert_int_equal(THC_OP_CLAIM_HIGH, 7);
	assert_int_equal(THC_OP_JOIN, 16);
	assert_int_equal(THC_OP_WELCOME, 17);
	assert_int_equal(THC_OP_WAIT, 18);
	assert_int_equal(THC_OP_STALE, 19);
	assert_int_equal(THC_OP_CLOSE, 20);
	assert_int_equal(THC_OP_LEAVE, 21);
	assert_int_equal(THC_OP_CHALLENGE, 22);
	assert_int_equal(THC_F_ANSWER, 1);
	assert_int_equal(THC_F_REPEAT, 2);
	assert_int_equal(THC_F_CE, 4);
	assert_int_equal(THC_F_CLOSED, 8);
	assert_int_equal(THC_F_EPOCH, 16);
	assert_int_equal(THC_F_LEFT, 32);
	assert_int_equal(THC_F_KNOWN, 128);
	assert_int_equal(THC_F_DIFFERS, 8);
}

static void wire__numbers_of_joining(void **state)
{
	(void)state;
	assert_int_equal(THC_REPLY_MULTICAST, 1);
	assert_int_equal(THC_REPLY_FANOUT, 2);
	assert_int_equal(THC_JOIN_F_HEARD, 1);
	assert_int_equal(THC_JOIN_F_NODE, 2);
	assert_int_equal(THC_OFFER_SEAL(THC_SEAL_NH), 4);
	assert_int_equal(THC_REFUSED_JOB, 1);
	assert_int_equal(THC_REFUSED_RANK, 2);
	assert_int_equal(THC_REFUSED_PREFIX, 3);
	assert_int_equal(THC_REFUSED_TAKEN, 4);
	assert_int_equal(THC_REFUSED_NO_XDP, 5);
	assert_int_equal(THC_REFUSED_SEAL, 7);
	assert_int_equal(THC_WELCOME_F_READY, 1);
	assert_int_equal(THC_WELCOME_F_REFUSED, 2);
	assert_int_equal(THC_WELCOME_F_ONE_PORT, 4);
	assert_int_equal(THC_FEATURE_CORRELATED, 1);
	assert_int_equal(THC_RECORD_SEAL, 1);
	assert_int_equal(THC_RECORD_GROUP, 2);
	assert_int_equal(THC_RECORD_ROW, 3);
	assert_int_equal(THC_RECORD_SCHEME, 5);
	assert_int_equal(THC_RECORD_RATE, 7);
	assert_int_equal(THC_RECORD_F_KNOW, 1);
	assert_int_equal(THC_RECORD_F_CONSTANT, 2);
	assert_int_equal(THC_WELCOME_F_NOGSO, 32);
	/* version 1 had 8, packets without a sum, and 16, correlated rounding */
	assert_int_equal(THC_WELCOME_FLAGS, 39);
	assert_int_equal(THC_SEAL_NONE, 0);
	assert_int_equal(THC_SEAL_SUM, 1);
	assert_int_equal(THC_SEAL_NH, 2);
	assert_int_equal(THC_WORKER_NONE, 65535);
	assert_int_equal(THC_KEY_BYTES, 32);
	assert_int_equal(THC_SALT_BYTES, 16);
	assert_int_equal(THC_NONCE_BYTES, 16);
	assert_int_equal(THC_CHALLENGE_BYTES, 16);
}

/* They are not on the wire, but pinned maps and traces outlive a program. */
static void wire__numbers_of_drop_reasons(void **state)
{
	(void)state;
	assert_int_equal(THC_DROP_NONE, 0);
	assert_int_equal(THC_DROP_TRUNCATED, 1);
	assert_int_equal(THC_DROP_TAG, 10);
	assert_int_equal(THC_DROP_JOB, 11);
	assert_int_equal(THC_DROP_KEY, 12);
	assert_int_equal(THC_DROP_RANK, 13);
	assert_int_equal(THC_DROP_LOCK, 18);
	assert_int_equal(THC_DROP_FLOOD, 19);
	assert_int_equal(THC_DROP_INTERNAL, 20);
	assert_int_equal(THC_DROP_HOPS, 21);
	assert_int_equal(THC_DROP_UNEXPECTED, 22);
}

/* The largest packet is one linear buffer within a 1500-byte MTU, with IPv6. */
static void wire__fits_the_mtu(void **state)
{
	(void)state;
	assert_true(40 + 8 + sizeof(struct thc_hdr) + THC_LANE_BYTES <= 1500);
	assert_true(sizeof(struct thc_hdr) % 8 == 0 && sizeof(struct thc_join) % 8 == 0 &&
		    sizeof(struct thc_welcome) % 8 == 0 && sizeof(struct thc_end) % 8 == 0);
	/* NH's key has a word for each of the longest payload's */
	assert_int_equal(THC_NH_WORDS * 4, THC_LANE_BYTES);
	assert_int_equal(THC_HDR_WORDS * 8, sizeof(struct thc_hdr));
	assert_int_equal(THC_LANE_WORDS * 8, THC_LANE_BYTES);
}

/* clang-format off */
#define MEMBER_FIELDS(X)	\
	X(addr) X(port) X(joined) X(left) X(mac) X(vlan) X(tagged)	\
	X(reserved) X(told_at) X(joins) X(leaves)
#define JOB_FIELDS(X)	\
	X(all) X(left) X(joined) X(active) X(epoch) X(slot_base)	\
	X(slots) X(data_slots) X(ranks) X(restarter) X(quorum)	\
	X(ttl_min) X(reply) X(flags) X(widths)	\
	X(group_port) X(port_base) X(deadline_ms) X(group) X(member)
/* clang-format on */

/* A field begins where the one before has ended: a hole need not change a struct's size. */
#define FOLLOWS(type, field)								\
	assert_int_equal(offsetof(struct type, field), end);				\
	end += sizeof(((struct type *)0)->field);

static void maps__fields_follow_each_other(void **state)
{
	size_t end;

	(void)state;
#define MEMBER(field) FOLLOWS(thc_member, field)
	end = 0;
	MEMBER_FIELDS(MEMBER)
	assert_int_equal(sizeof(struct thc_member), end);
#undef MEMBER
#define JOB(field) FOLLOWS(thc_job, field)
	end = 0;
	JOB_FIELDS(JOB)
	assert_int_equal(sizeof(struct thc_job), end);
#undef JOB
}

/* Maps are shared by XDP and the daemon: no padding may differ between them. */
static void maps__have_no_hidden_padding(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct thc_generation), 3 * 8 + 3 * 4 + 2 + 4 + 2 + 1 + 3);
	assert_int_equal(sizeof(struct thc_past), 16);
	assert_int_equal(sizeof(struct thc_slot), 16 + 2 * sizeof(struct thc_generation) +
							  THC_PASTS * sizeof(struct thc_past) + 16);
	/* a cache line has the first generation and the lock */
	assert_int_equal(sizeof(struct thc_slot) % 64, 0);
	assert_int_equal(offsetof(struct thc_slot, generation[1]), 64);
	assert_int_equal(sizeof(struct thc_addr), 16);
	assert_int_equal(sizeof(struct thc_seal_key), 16 + 1024 + 4 + 4);
	assert_int_equal(sizeof(struct thc_member_key), 16 + 4 + 4);
	assert_int_equal(sizeof(struct thc_seals), 8 + 4 * 1048 + 2 * 24);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wire__header),
		cmocka_unit_test(wire__join),
		cmocka_unit_test(wire__welcome),
		cmocka_unit_test(wire__end),
		cmocka_unit_test(wire__claim),
		cmocka_unit_test(wire__a_header_as_bytes),
		cmocka_unit_test(wire__byte_order),
		cmocka_unit_test(wire__lanes_are_little_endian),
		cmocka_unit_test(wire__numbers_of_headers),
		cmocka_unit_test(wire__numbers_of_joining),
		cmocka_unit_test(wire__numbers_of_drop_reasons),
		cmocka_unit_test(wire__fits_the_mtu),
		cmocka_unit_test(maps__fields_follow_each_other),
		cmocka_unit_test(maps__have_no_hidden_padding),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
