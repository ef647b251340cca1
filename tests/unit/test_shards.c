// SPDX-License-Identifier: GPL-2.0
/*
 * A job of several aggregators: chunks are spread over them, number 0 lists all of them in
 * WELCOME, and an incomplete list is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/wire/announce.h>
#include <thc/wire/route.h>
#include <thc/worker/parts.h>

static const u8 nonce[THC_NONCE_BYTES] = { 1 };

static struct thc_spec spec_of(u32 shards)
{
	return (struct thc_spec){
		.has = 1U << THC_RECORD_SEAL | 1U << THC_RECORD_ROW | 1U << THC_RECORD_SCHEME,
		.ranks = 4, .quorum = 4, .data_slots = 512, .control_slots = 64,
		.shards = (u16)shards, .reply = THC_REPLY_FANOUT,
		.seal = THC_SEAL_SUM, .bits = 4, .block_log2 = 10,
		.tables = {
			.granularity[3] = 30, .widths.sum[3] = 8,
			.level = { [16] = 0, 1, 3, 5, 7, 9, 11, 13, 17, 19, 21, 23, 25, 27, 29,
				   30 },
		},
	};
}

/* Addresses of IPv4; if @mixed, the second half are of IPv6. */
static struct thc_shards list_of(u32 count, int mixed)
{
	struct thc_shards list = { .count = count };
	u32 i;

	for (i = 0; i < count; i++) {
		list.at[i] = (struct thc_end){
			.addr = thc_addr_v4(thc_be32(0x0a000001 + i)),
			.port = thc_be16((u16)(9000 + 100 * i)),
			.aggregator = thc_be16((u16)i),
		};
		if (mixed && i >= count / 2)
			list.at[i].addr.word[0] = thc_be32(0xfd000000);
	}
	return list;
}

/* Passes all parts of the announcement to a worker. */
static int pass_on(struct thc_announcement *a, struct thc_spec *out, struct thc_shards *list)
{
	static struct thc_parts parts;
	u8 payload[THC_WELCOME_BYTES] __attribute__((aligned(8)));
	int whole = 0;
	u32 at = 0;

	thc_parts_begin(&parts);
	do {
		u32 bytes = thc_announce_part(a, payload, &at);

		whole = thc_parts_add(&parts, 1, (void *)payload, bytes);
	} while (at < a->bytes);
	assert_true(whole);
	if (!thc_spec_read(out, &parts.info.welcome, parts.record, parts.info.bytes))
		return 0;
	memset(list, 0xff, sizeof(*list));
	thc_shards_read(list, out, parts.record, parts.info.bytes);
	return 1;
}

static void list__comes_as_it_was_written(void **state)
{
	static struct thc_announcement a;
	struct thc_spec s, read;
	struct thc_shards list, got;
	u32 n;

	(void)state;
	for (n = 2; n <= THC_SHARDS_MAX; n++) {
		s = spec_of(n);
		list = list_of(n, n % 2);
		thc_announce(&a, &s, &list, nonce);
		assert_true(pass_on(&a, &read, &got));
		assert_true(thc_spec_is_sound(&read, 3, 0));
		assert_int_equal(got.count, n);
		assert_memory_equal(got.at, list.at, n * sizeof(list.at[0]));
	}
}

/* Record SHARDS of two addresses by hand. */
static void list__is_as_the_page_says(void **state)
{
	static const u8 known[] = {
		4, 1, 0, 44, 0, 0, 0, 2,
		4, 0, 0x23, 0x28, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		6, 0, 0x23, 0x8c, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2,
	};
	static struct thc_announcement a;
	struct thc_shards list = list_of(2, 1);
	struct thc_spec s = spec_of(2);

	(void)state;
	thc_announce(&a, &s, &list, nonce);
	assert_memory_equal(a.record, known, sizeof(known));
}

static void list__is_number_0s_alone(void **state)
{
	static struct thc_announcement a;
	struct thc_shards list = list_of(4, 0), got;
	struct thc_spec s = spec_of(4), read;
	u32 i;

	(void)state;
	for (i = 1; i < 4; i++) {
		s.shard = (u16)i;
		thc_announce(&a, &s, &list, nonce);
		assert_true(pass_on(&a, &read, &got));
		assert_int_equal(read.listed, 0);
		assert_true(thc_spec_is_sound(&read, 0, 0));
		assert_int_equal(got.count, 0);
	}
	/* a single aggregator needs no list */
	s = spec_of(1);
	thc_announce(&a, &s, NULL, nonce);
	assert_true(pass_on(&a, &read, &got));
	assert_true(thc_spec_is_sound(&read, 0, 0));
}

static struct thc_record_shards *record_in(struct thc_announcement *a, u32 n)
{
	u32 at = 0;

	for (;;) {
		struct thc_record *r = (void *)(a->record + at);

		if (r->type == THC_RECORD_SHARDS && !n--)
			return (void *)r;
		at += thc_record_size(thc_be16(r->bytes));
	}
}

static void list__is_whole(void **state)
{
	static struct thc_announcement a;
	struct thc_shards list = list_of(40, 0), got;
	struct thc_spec s = spec_of(40), read;
	struct thc_record_address *at;
	struct thc_record_shards *r;
	int i;

	(void)state;
	for (i = 0; i < 12; i++) {
		thc_announce(&a, &s, &list, nonce);
		r = record_in(&a, i / 6);
		at = (void *)(r + 1);
		switch (i % 6) {
		case 0:
			r->first = thc_be16((u16)(thc_be16(r->first) + 1));
			break;
		case 1:
			r->count = 0;
			break;
		case 2:
			/* a higher count than there are addresses */
			r->count = thc_be16((u16)(thc_be16(r->count) + 1));
			break;
		case 3:
			at[3].reserved = 1;
			break;
		case 4:
			at[3].port = 0;
			break;
		case 5:
			/* a group, of either version */
			at[3].addr[0] = at[3].family == 4 ? 239 : 0xff;
			break;
		}
		a.fixed.constants = thc_be32(thc_welcome_constants(&a.fixed, a.record, a.bytes));
		assert_false(pass_on(&a, &read, &got));
	}
	/* the second record lacks an address, and only the count tells */
	thc_announce(&a, &s, &list, nonce);
	r = record_in(&a, 1);
	r->count = thc_be16((u16)(thc_be16(r->count) - 1));
	assert_true(pass_on(&a, &read, &got));
	assert_int_equal(read.listed, 39);
	assert_false(thc_spec_is_sound(&read, 0, 0));
}

static void numbers__are_sound(void **state)
{
	static const struct {
		u16 shard, shards, listed;
		int sound;
	} cases[] = {
		{ 0, 1, 0, 1 }, { 0, 0, 0, 0 }, { 1, 1, 0, 0 }, { 0, 1, 1, 0 },
		{ 0, 2, 2, 1 }, { 0, 2, 0, 0 }, { 0, 2, 1, 0 }, { 1, 2, 0, 1 },
		{ 1, 2, 2, 0 }, { 2, 2, 0, 0 }, { 0, 64, 64, 1 }, { 63, 64, 0, 1 },
		{ 64, 64, 0, 0 }, { 0, 65, 65, 0 }, { 1, 65, 0, 0 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct thc_spec s = spec_of(cases[i].shards);

		s.shard = cases[i].shard;
		s.listed = cases[i].listed;
		assert_int_equal(thc_spec_is_sound(&s, 0, 0), cases[i].sound);
	}
}

static void aggregators__mean_one_job(void **state)
{
	struct thc_spec a = spec_of(4), b;

	(void)state;
	a.constants = 7;
	b = a;
	/* each has its own */
	b.shard = 3;
	b.joined = 5;
	b.salt[0] = 1;
	b.group.port = 1;
	assert_true(thc_shards_agree(&a, &b));
#define DIFFERS(field)					\
	do {						\
		b = a;					\
		b.field++;				\
		assert_false(thc_shards_agree(&a, &b));	\
	} while (0)
	DIFFERS(ranks);
	DIFFERS(quorum);
	DIFFERS(shards);
	DIFFERS(data_slots);
	DIFFERS(control_slots);
	DIFFERS(constants);
	DIFFERS(seal);
#undef DIFFERS
}

/* Each chunk has one aggregator, and is the next chunk there. */
static void chunks__are_spread(void **state)
{
	u64 next[THC_SHARDS_MAX], q;
	u32 shards, i;

	(void)state;
	for (shards = 1; shards <= THC_SHARDS_MAX; shards++) {
		memset(next, 0, sizeof(next));
		for (q = 0; q < 300; q++) {
			for (i = 0; i < shards; i++)
				assert_true(thc_shard_part(q, shards, i) == next[i]);
			assert_true(next[q % shards]++ == q / shards);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list__comes_as_it_was_written),
		cmocka_unit_test(list__is_as_the_page_says),
		cmocka_unit_test(list__is_number_0s_alone),
		cmocka_unit_test(list__is_whole),
		cmocka_unit_test(numbers__are_sound),
		cmocka_unit_test(aggregators__mean_one_job),
		cmocka_unit_test(chunks__are_spread),
	};

	return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
