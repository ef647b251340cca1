// SPDX-License-Identifier: GPL-2.0
/*
 * WELCOME as records: an aggregator writes what protocol.md says, a worker reads what was written,
 * in one part or many, and malformed parts are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <thc/wire/announce.h>
#include <thc/worker/parts.h>

#define EPOCH	7

static const u8 nonce[THC_NONCE_BYTES] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

static struct thc_spec good(void)
{
	struct thc_spec s = {
		.group = { .addr = thc_addr_v4(thc_be32(0xef010203)), .port = thc_be16(20000) },
		.joined = 7, .seed = 0x0123456789abcdefULL, .deadline_ms = 250,
		.features = THC_FEATURE_CORRELATED, .ranks = 4, .quorum = 3, .data_slots = 512,
		.control_slots = 64, .shards = 1, .flags = THC_WELCOME_F_READY,
		.reply = THC_REPLY_MULTICAST, .seal = THC_SEAL_NH, .bits = 4, .block_log2 = 12,
		.tables = {
			.granularity[3] = 30, .widths.sum[3] = 8,
			.level = { [16] = 0, 1, 3, 5, 7, 9, 11, 13, 17, 19, 21, 23, 25, 27, 29,
				   30 },
		},
	};
	const double clamp = 2.5;
	int i;

	memcpy(&s.tables.clamp[3], &clamp, sizeof(clamp));
	for (i = 0; i < THC_SALT_BYTES; i++)
		s.salt[i] = (u8)(0x10 + i);
	return s;
}

/* The payload of `good()`, computed by tests/lib/decoder.py, which has no code of ours. */
static const char known[] = "0102030405060708090a0b0c0d0e0f1000000000000000070123456789abcdef"
			    "000000fa000000018ecf4cdc0004000302000040000100010001020000000001"
			    /* SEAL, GROUP */
			    "0101001402000000101112131415161718191a1b1c1d1e1f"
			    "0201001404004e20ef010203000000000000000000000000"
			    /* ROW, SCHEME */
			    "0303002c0408001e4004000000000000"
			    "000000010003000500070009000b000d00110013001500170019001b001d001e"
			    "05030014000c000000000000000000000000000000000000";

static void announce__is_as_the_page_says(void **state)
{
	static struct thc_announcement a;
	u8 payload[THC_WELCOME_BYTES];
	char text[2 * sizeof(payload) + 1];
	struct thc_spec s = good();
	u32 at = 0, bytes, i;

	(void)state;
	thc_announce(&a, &s, NULL, nonce);
	assert_int_equal(a.fixed.parts, 1);
	bytes = thc_announce_part(&a, payload, &at);
	assert_int_equal(at, a.bytes);
	for (i = 0; i < bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", payload[i]);
	assert_string_equal(text, known);
}

/* --- a WELCOME to be spoilt ----------------------------------------------------- */

struct sample {
	struct thc_announcement	a;
	struct thc_spec		read;
};

static struct sample sample;

static int setup(void **state)
{
	struct thc_spec s = good();

	(void)state;
	thc_announce(&sample.a, &s, NULL, nonce);
	return 0;
}

/* Reads SEAL and the other records as a worker does from one part. */
static int read_sample(void)
{
	static u8 records[THC_RECORDS_MAX] __attribute__((aligned(8)));

	memcpy(records, &sample.a.seal, sizeof(sample.a.seal));
	memcpy(records + sizeof(sample.a.seal), sample.a.record, sample.a.bytes);
	return thc_spec_read(&sample.read, &sample.a.fixed, records,
			     (u32)sizeof(sample.a.seal) + sample.a.bytes);
}

/* Computes `constants` like an aggregator, then reads the sample. */
static int read_hashed(void)
{
	sample.a.fixed.constants =
		thc_be32(thc_welcome_constants(&sample.a.fixed, sample.a.record, sample.a.bytes));
	return read_sample();
}

static void *find(u8 type)
{
	u32 at = 0;

	while (sample.a.record[at] != type)
		at += thc_record_size(
			thc_be16(((struct thc_record *)(sample.a.record + at))->bytes));
	return sample.a.record + at;
}

static void read__is_what_was_written(void **state)
{
	struct thc_spec s = good();

	(void)state;
	assert_true(read_sample());
	s.has = 1U << THC_RECORD_SEAL | 1U << THC_RECORD_GROUP | 1U << THC_RECORD_ROW |
		1U << THC_RECORD_SCHEME;
	s.constants = 0x8ecf4cdc;
	assert_memory_equal(&sample.read, &s, sizeof(s));
}

/* Seed, features and each byte of ROW and SCHEME. */
static void constants__are_all_that_ranks_have_in_common(void **state)
{
	struct thc_record_row *row = find(THC_RECORD_ROW);
	u8 *bytes = (u8 *)row;
	u32 i;

	(void)state;
	sample.a.fixed.seed ^= thc_be64(1);
	assert_false(read_sample());
	sample.a.fixed.seed ^= thc_be64(1);
	sample.a.fixed.features ^= thc_be32(2);
	assert_false(read_sample());
	sample.a.fixed.features ^= thc_be32(2);
	/* the record behind its head */
	for (i = 4; i < 48; i++) {
		bytes[i] ^= 1;
		assert_false(read_sample());
		bytes[i] ^= 1;
	}
	assert_true(read_sample());
	/* the salt differs in each epoch */
	sample.a.seal.salt[3] ^= 1;
	assert_true(read_sample());
}

static void record__is_whole(void **state)
{
	struct thc_record *scheme = find(THC_RECORD_SCHEME);
	u32 whole = sample.a.bytes;

	(void)state;
	for (sample.a.bytes = whole - 8; sample.a.bytes > whole - 24; sample.a.bytes -= 8)
		assert_false(read_hashed());
	sample.a.bytes = whole;
	/* shorter than its type is known to be */
	scheme->bytes = thc_be16(19);
	assert_false(read_hashed());
	scheme->bytes = thc_be16(65535);
	assert_false(read_sample());
	scheme->bytes = thc_be16(20);
	scheme->flags = 4 | THC_RECORD_F_KNOW;
	assert_false(read_hashed());
	scheme->flags = THC_RECORD_F_KNOW;
	assert_true(read_hashed());
}

/* Records of later versions: if a worker must know such a record, it cannot join; otherwise it
 * skips the record, and surplus data of known types.
 */
static void record__of_later_versions(void **state)
{
	struct thc_record *r;

	(void)state;
	thc_announce_record(&sample.a, 77, THC_RECORD_F_CONSTANT, 3);
	assert_true(read_hashed());
	r = thc_announce_record(&sample.a, 78, THC_RECORD_F_KNOW, 0);
	assert_false(read_hashed());
	r->flags = 0;
	assert_true(read_hashed());
	/* zeros behind the data */
	sample.a.record[sample.a.bytes - 1] = 1;
	assert_false(read_hashed());
	setup(NULL);
	r = find(THC_RECORD_SCHEME);
	thc_announce_record(&sample.a, 79, 0, 4);
	r->bytes = thc_be16(28);
	assert_true(read_hashed());
}

static void record__once(void **state)
{
	const struct thc_spec s = good();

	(void)state;
	thc_announce_group(&sample.a, &s);
	assert_false(read_hashed());
	setup(NULL);
	thc_announce_rows(&sample.a, &s);
	assert_false(read_hashed());
	setup(NULL);
	/* the first scheme is the job's own; others may follow */
	thc_announce_scheme(&sample.a, &s);
	((struct thc_record_scheme *)(sample.a.record + sample.a.bytes - 24))->scheme = 9;
	assert_true(read_hashed());
	assert_int_equal(sample.read.scheme, THC_SCHEME_THC);
}

static void row__is_a_table(void **state)
{
	struct thc_record_row *row = find(THC_RECORD_ROW);
	__be16 *level = (__be16 *)(row + 1);

	(void)state;
	/* the largest level is g */
	level[15] = thc_be16(31);
	assert_false(read_hashed());
	level[15] = thc_be16(29);
	assert_false(read_hashed());
	level[15] = thc_be16(30);
	assert_true(read_hashed());
	/* 8 levels have another largest one */
	row->width = 3;
	assert_false(read_hashed());
	/* a second row of 4 bits is skipped, but must have its levels */
	row->width = 16 + 4;
	assert_true(read_hashed());
	assert_false(sample.read.has & 1U << THC_RECORD_ROW);
	row->width = 16 + 5;
	assert_false(read_hashed());
	/* a row without width counts as none */
	row->width = 4;
	row->sum_width = 0;
	assert_false(read_hashed());
	row->sum_width = 8;
	assert_true(read_hashed());
	row->width = 5;
	assert_false(read_hashed());
	row->width = 0;
	assert_false(read_hashed());
	row->width = 9;
	assert_false(read_hashed());
}

/* Rows of 2, 6 and, the job's own, 4 bits: each is read as it was written, the job's own first. */
static struct thc_spec good_rows(void)
{
	struct thc_spec s = good();
	u16 i;

	s.tables.widths.sum[1] = 4;
	s.tables.granularity[1] = 3;
	s.tables.clamp[1] = 0x3ff0000000000000ULL;
	s.tables.widths.sum[5] = 16;
	s.tables.granularity[5] = 126;
	s.tables.clamp[5] = 0x4008000000000000ULL;
	for (i = 0; i < 4; i++)
		s.tables.level[4 + i] = i;
	for (i = 0; i < 64; i++)
		s.tables.level[64 + i] = 2 * i;
	return s;
}

static void rows__are_read_as_they_were_written(void **state)
{
	static const u8 order[] = { 4, 2, 6 };
	struct thc_spec s = good_rows();
	u32 i, at = 0;

	(void)state;
	thc_announce(&sample.a, &s, NULL, nonce);
	assert_true(read_sample());
	assert_int_equal(sample.read.bits, 4);
	assert_memory_equal(&sample.read.tables, &s.tables, sizeof(s.tables));
	for (i = 0; i < 3; i++) {
		const struct thc_record_row *r;

		do {
			r = (void *)(sample.a.record + at);
			at += thc_record_size(thc_be16(r->head.bytes));
		} while (r->head.type != THC_RECORD_ROW);
		assert_int_equal(r->width, order[i]);
		assert_int_equal(thc_spec_row(&sample.read, order[i]).sum_width, r->sum_width);
	}
	for (i = 0; i < 20; i++)
		assert_int_equal(thc_spec_row(&sample.read, i).sum_width, i == 2 ? 4 :
									  i == 4 ? 8 :
									  i == 6 ? 16 :
										   0);
	assert_int_equal(thc_spec_row(&sample.read, 6).level[63], 126);
	assert_int_equal(thc_spec_row(&sample.read, 6).granularity, 126);
}

/* A width comes once, in whichever row. */
static void rows__of_a_width_come_once(void **state)
{
	struct thc_spec s = good_rows();
	u32 bits;

	(void)state;
	for (bits = 1; bits <= THC_BITS_MAX; bits++) {
		struct thc_table_row row = thc_spec_row(&s, bits);

		thc_announce(&sample.a, &s, NULL, nonce);
		assert_true(read_hashed());
		if (!row.sum_width)
			continue;
		thc_announce_row(&sample.a, &row);
		assert_false(read_hashed());
	}
}

/* Rows of all b, each with the most levels: they are in order and do not overlap. */
static void rows__of_all_widths(void **state)
{
	struct thc_spec s = good();
	u32 bits, i, at = 0;

	(void)state;
	for (bits = 1; bits <= THC_BITS_MAX; bits++) {
		s.tables.widths.sum[bits - 1] = 16;
		s.tables.granularity[bits - 1] = (u16)(100 * bits + (1U << bits) - 1);
		for (i = 0; i < 1U << bits; i++)
			s.tables.level[(1U << bits) + i] = (u16)(i ? 100 * bits + i : 0);
	}
	for (s.bits = 1; s.bits <= THC_BITS_MAX; s.bits++) {
		u8 payload[THC_WELCOME_BYTES] __attribute__((aligned(8)));

		thc_announce(&sample.a, &s, NULL, nonce);
		assert_true(read_sample());
		assert_int_equal(sample.read.bits, s.bits);
		assert_memory_equal(&sample.read.tables, &s.tables, sizeof(s.tables));
		/* parts do not cut records */
		assert_int_equal(sample.a.fixed.parts, 2);
		at = 0;
		assert_in_range(thc_announce_part(&sample.a, payload, &at), 64, 1024);
		assert_in_range(thc_announce_part(&sample.a, payload, &at), 64, 1024);
		assert_int_equal(at, sample.a.bytes);
	}
}

static void rate__is_a_rate_or_an_error(void **state)
{
	struct thc_spec s = good();
	struct thc_record_rate *r;

	(void)state;
	s.rate = 4500;
	thc_announce(&sample.a, &s, NULL, nonce);
	assert_true(read_sample());
	assert_int_equal(sample.read.rate, 4500);
	assert_int_equal(sample.read.error, 0);
	r = find(THC_RECORD_RATE);
	assert_int_equal(r->head.flags, THC_RECORD_F_KNOW | THC_RECORD_F_CONSTANT);
	assert_int_equal(thc_be16(r->head.bytes), 12);
	/* it is one of the constants */
	r->rate ^= thc_be32(1);
	assert_false(read_sample());
	r->rate = 0;
	assert_false(read_hashed());
	r->error = thc_be32(1000);
	assert_true(read_hashed());
	assert_int_equal(sample.read.rate, 0);
	assert_int_equal(sample.read.error, 1000);
	r->rate = thc_be32(4500);
	assert_false(read_hashed());
	r->error = 0;
	r->flags = thc_be32(THC_RATE_F_TRY << 1);
	assert_false(read_hashed());
	r->flags = thc_be32(THC_RATE_F_TRY);
	assert_true(read_hashed());
	assert_int_equal(sample.read.rate_flags, THC_RATE_F_TRY);
	r->flags = 0;
	assert_true(read_hashed());
	assert_int_equal(sample.read.rate_flags, 0);
	r->head.bytes = thc_be16(11);
	assert_false(read_hashed());
	r->head.bytes = thc_be16(12);
	thc_announce_rate(&sample.a, &s);
	assert_false(read_hashed());
}

static void group__is_an_address_of_its_family(void **state)
{
	struct thc_record_group *r = find(THC_RECORD_GROUP);
	static const u8 mapped[16] = { [10] = 0xff, 0xff, 239, 1, 2, 3 };

	(void)state;
	r->at.addr[4] = 1;
	assert_false(read_sample());
	r->at.addr[4] = 0;
	r->at.reserved = 1;
	assert_false(read_sample());
	r->at.reserved = 0;
	r->at.family = 0;
	assert_false(read_sample());
	r->at.family = 6;
	memcpy(r->at.addr, mapped, sizeof(mapped));
	assert_false(read_sample());
	r->at.addr[0] = 0xff;
	assert_true(read_sample());
	assert_int_equal(sample.read.group.addr.word[0], thc_be32(0xff000000));
}

/* --- parts ---------------------------------------------------------------------- */

static struct thc_parts parts;

/* Gives part @n of the sample, of @epoch; 1: the WELCOME is whole. */
static int give(u32 n, u32 epoch)
{
	u8 payload[THC_WELCOME_BYTES] __attribute__((aligned(8)));
	const struct thc_welcome *w = (const void *)payload;
	u32 at = 0, bytes = 0, i;

	sample.a.fixed.part = 0;
	for (i = 0; i <= n; i++)
		bytes = thc_announce_part(&sample.a, payload, &at);
	assert_int_equal(thc_parts_form(w, bytes), THC_DROP_NONE);
	assert_int_equal(w->part, n);
	return thc_parts_add(&parts, epoch, w, bytes);
}

/* A sample of three parts. */
static void grow(void)
{
	struct thc_spec s = good();
	u32 i;

	for (i = 0; i < 3; i++)
		memset((u8 *)thc_announce_record(&sample.a, (u8)(100 + i), 0, 500) + 4, 0x5a, 500);
	sample.a.fixed.parts = 0;
	thc_announce_fixed(&sample.a, &s);
	assert_int_equal(sample.a.fixed.parts, 3);
	thc_parts_begin(&parts);
}

static void parts__make_a_whole(void **state)
{
	(void)state;
	grow();
	assert_false(give(0, EPOCH));
	assert_false(give(1, EPOCH));
	assert_false(thc_parts_whole(&parts));
	assert_true(give(2, EPOCH));
	assert_true(thc_parts_whole(&parts));
	assert_int_equal(parts.info.bytes, sample.a.bytes + 3 * sizeof(sample.a.seal));
	assert_true(
		thc_spec_read(&sample.read, &parts.info.welcome, parts.record, parts.info.bytes));
	assert_int_equal(sample.read.tables.granularity[3], 30);
	/* a repeated part changes nothing, even after all have come */
	assert_false(give(2, EPOCH));
	assert_true(thc_parts_whole(&parts));
	assert_true(give(0, EPOCH));
	assert_true(thc_parts_whole(&parts));
	assert_false(give(1, EPOCH));
	assert_true(thc_parts_whole(&parts));
	/* a part of another WELCOME begins anew */
	sample.a.seal.salt[0] ^= 1;
	assert_false(give(0, EPOCH));
	assert_int_equal(parts.next, 1);
}

/* If a part is lost, the next JOIN brings all parts again. */
static void parts__wait_for_the_one_that_is_missing(void **state)
{
	(void)state;
	grow();
	assert_false(give(0, EPOCH));
	assert_false(give(2, EPOCH));
	assert_false(give(0, EPOCH));
	assert_false(give(0, EPOCH));
	assert_false(give(1, EPOCH));
	assert_false(give(1, EPOCH));
	assert_true(give(2, EPOCH));
}

/* Parts with another epoch or another fixed part belong to another WELCOME. */
static void parts__of_two_do_not_mix(void **state)
{
	u32 i;

	(void)state;
	grow();
	assert_false(give(0, EPOCH));
	assert_false(give(1, EPOCH + 1));
	assert_int_equal(parts.next, 1);
	for (i = 0; i < sizeof(sample.a.fixed); i++) {
		/* except for the number of this part */
		if (i == offsetof(struct thc_welcome, part) ||
		    i == offsetof(struct thc_welcome, parts) ||
		    i == offsetof(struct thc_welcome, reserved))
			continue;
		((u8 *)&sample.a.fixed)[i] ^= 1;
		assert_false(give(1, EPOCH));
		assert_int_equal(parts.next, 1);
		((u8 *)&sample.a.fixed)[i] ^= 1;
	}
	assert_false(give(1, EPOCH));
	assert_int_equal(parts.next, 2);
	/* the epoch ends before all parts have come: the next one begins anew */
	assert_false(give(0, EPOCH + 1));
	assert_int_equal(parts.next, 1);
	assert_int_equal(parts.info.epoch, EPOCH + 1);
}

static void parts__with_different_salts_are_no_welcome(void **state)
{
	(void)state;
	grow();
	give(0, EPOCH);
	sample.a.seal.salt[0] ^= 1;
	give(1, EPOCH);
	assert_true(give(2, EPOCH));
	assert_false(
		thc_spec_read(&sample.read, &parts.info.welcome, parts.record, parts.info.bytes));
}

static void parts__have_a_form(void **state)
{
	struct thc_welcome w = sample.a.fixed;

	(void)state;
	assert_int_equal(thc_parts_form(&w, sizeof(w)), THC_DROP_NONE);
	assert_int_equal(thc_parts_form(&w, sizeof(w) - 8), THC_DROP_LENGTH);
	assert_int_equal(thc_parts_form(&w, sizeof(w) + 4), THC_DROP_LENGTH);
	assert_int_equal(thc_parts_form(&w, THC_WELCOME_BYTES), THC_DROP_NONE);
	assert_int_equal(thc_parts_form(&w, THC_WELCOME_BYTES + 8), THC_DROP_LENGTH);
	w.part = 1;
	assert_int_equal(thc_parts_form(&w, sizeof(w)), THC_DROP_RESERVED);
	w.parts = THC_WELCOME_PARTS;
	assert_int_equal(thc_parts_form(&w, sizeof(w)), THC_DROP_NONE);
	w.parts++;
	assert_int_equal(thc_parts_form(&w, sizeof(w)), THC_DROP_RESERVED);
	w.part = w.parts = 0;
	assert_int_equal(thc_parts_form(&w, sizeof(w)), THC_DROP_RESERVED);
	w.parts = 1;
	w.reserved = 1;
	assert_int_equal(thc_parts_form(&w, sizeof(w)), THC_DROP_RESERVED);
}

#define CASE(f)	cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(announce__is_as_the_page_says),
		CASE(read__is_what_was_written),
		CASE(constants__are_all_that_ranks_have_in_common),
		CASE(record__is_whole),
		CASE(record__of_later_versions),
		CASE(record__once),
		CASE(row__is_a_table),
		CASE(rows__are_read_as_they_were_written),
		CASE(rows__of_a_width_come_once),
		CASE(rows__of_all_widths),
		CASE(rate__is_a_rate_or_an_error),
		CASE(group__is_an_address_of_its_family),
		CASE(parts__make_a_whole),
		CASE(parts__wait_for_the_one_that_is_missing),
		CASE(parts__of_two_do_not_mix),
		CASE(parts__with_different_salts_are_no_welcome),
		CASE(parts__have_a_form),
	};

	return cmocka_run_group_tests_name("welcome", tests, NULL, NULL);
}
