// SPDX-License-Identifier: GPL-2.0
/*
 * Properties of the packet sum, the tag of the seal `sum`: which changes it detects, sums in two
 * steps, and independence of alignment and of the old tag. Its constants are not tested.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/wire/seal.h>

#include "randomword.h"

struct packet {
	struct thc_hdr hdr;
	u64 payload[THC_LANE_WORDS];
};

static void random_packet(struct packet *p)
{
	u64 *w = (void *)p;
	size_t i;

	for (i = 0; i < sizeof(*p) / 8; i++)
		w[i] = random_word();
	p->hdr.tag = 0;
}

static u32 sum_at(const void *hdr, const void *payload, int words)
{
	struct thc_sum sum = { 0, 0 };

	thc_sum_add(&sum, payload, words);
	return thc_sum32(hdr, sum, words);
}

static u32 sum_of(const struct packet *p, int words)
{
	return sum_at(&p->hdr, p->payload, words);
}

/* The same bytes at an address that is a multiple of nothing. */
static u32 sum_unaligned(const struct packet *p, int words)
{
	u8 buffer[sizeof(*p) + 7];
	int shift;
	u32 sum = 0;

	for (shift = 1; shift < 8; shift += 3) {
		memcpy(buffer + shift, p, sizeof(*p));
		sum = sum_at(buffer + shift, buffer + shift + sizeof(struct thc_hdr), words);
		assert_int_equal(sum, sum_of(p, words));
	}
	return sum;
}

/* 64-bit word of the header that holds the tag, which the sum takes as zero. */
#define TAG_WORD	(offsetof(struct thc_hdr, tag) / 8)

static int is_tag(size_t bit)
{
	return bit / 64 == TAG_WORD;
}

static void sum__sees_every_flipped_bit(void **state)
{
	struct packet p;
	u8 *bytes = (void *)&p;
	size_t bit;
	u32 sum;
	int round;

	(void)state;
	for (round = 0; round < 4; round++) {
		random_packet(&p);
		if (round == 0)
			memset(&p, 0, sizeof(p));
		if (round == 1)
			memset(&p, 0xff, sizeof(p));
		sum = sum_of(&p, THC_LANE_WORDS);
		for (bit = 0; bit < sizeof(p) * 8; bit++) {
			bytes[bit / 8] ^= 1 << bit % 8;
			assert_int_equal(sum_of(&p, THC_LANE_WORDS) == sum, is_tag(bit));
			bytes[bit / 8] ^= 1 << bit % 8;
		}
	}
}

#define PAIR_WORDS	70	/* a contribution of 4 bits a coordinate */

/* Every pair of bits, even two of one word, or the top bits of two words. */
static void sum__sees_every_two_flipped_bits(void **state)
{
	const size_t bits = PAIR_WORDS * 64, payload = PAIR_WORDS - THC_HDR_WORDS;
	struct packet p;
	u8 *bytes = (void *)&p;
	size_t i, k;
	u32 sum;

	(void)state;
	random_packet(&p);
	sum = sum_of(&p, payload);
	for (i = 0; i < bits; i++) {
		if (is_tag(i))
			continue;
		bytes[i / 8] ^= 1 << i % 8;
		assert_int_not_equal(sum_of(&p, payload), sum);
		for (k = 0; k < i; k++) {
			if (is_tag(k))
				continue;
			bytes[k / 8] ^= 1 << k % 8;
			if (sum_of(&p, payload) == sum)
				fail_msg("bits %zu and %zu go unseen", i, k);
			bytes[k / 8] ^= 1 << k % 8;
		}
		bytes[i / 8] ^= 1 << i % 8;
	}
	assert_int_equal(sum_of(&p, payload), sum);
}

/* A byte may become any other byte. */
static void sum__sees_every_changed_byte(void **state)
{
	static const int payload_words[] = { 0, 2, 32, 64, THC_LANE_WORDS };
	struct packet p;
	u8 *bytes = (void *)&p;
	size_t i, n;
	int x;
	u32 sum;

	(void)state;
	for (n = 0; n < sizeof(payload_words) / sizeof(*payload_words); n++) {
		random_packet(&p);
		sum = sum_of(&p, payload_words[n]);
		for (i = 0; i < sizeof(p.hdr) + 8 * payload_words[n]; i++) {
			for (x = 1; x < 256 && !is_tag(8 * i); x++) {
				bytes[i] ^= x;
				if (sum_of(&p, payload_words[n]) == sum)
					fail_msg("byte %zu ^ %02x of %d words goes unseen", i, x,
						 payload_words[n]);
				bytes[i] ^= x;
			}
		}
	}
}

/* Several bytes next to each other, as a broken buffer would leave them. */
static void sum__sees_bursts(void **state)
{
	struct packet p, bad;
	int round, i;

	(void)state;
	random_packet(&p);
	for (round = 0; round < 100000; round++) {
		int size = 2 + round % 11, at = random_word() % (sizeof(p.payload) - size);

		bad = p;
		for (i = 0; i < size; i++)
			((u8 *)bad.payload)[at + i] ^= random_word();
		if (memcmp(&bad, &p, sizeof(p)))
			assert_int_not_equal(sum_of(&bad, THC_LANE_WORDS),
					     sum_of(&p, THC_LANE_WORDS));
	}
}

static void sum__sees_exchanged_words(void **state)
{
	struct packet p;
	u64 *w = (void *)&p, keep;
	u32 sum;
	size_t i, k;

	(void)state;
	random_packet(&p);
	sum = sum_of(&p, THC_LANE_WORDS);
	for (i = 0; i < sizeof(p) / 8; i++) {
		for (k = 0; k < i; k++) {
			if (i == TAG_WORD || k == TAG_WORD)
				continue;
			keep = w[i];
			w[i] = w[k];
			w[k] = keep;
			assert_int_not_equal(sum_of(&p, THC_LANE_WORDS), sum);
			keep = w[i];
			w[i] = w[k];
			w[k] = keep;
		}
	}
	assert_int_equal(sum_of(&p, THC_LANE_WORDS), sum);
}

/* Changes of two words that cancel out: sums without positions would miss them. */
static void sum__sees_changes_that_cancel(void **state)
{
	struct packet p;
	u64 *w = (void *)&p;
	u32 sum;
	int round;

	(void)state;
	random_packet(&p);
	sum = sum_of(&p, THC_LANE_WORDS);
	for (round = 0; round < 20000; round++) {
		size_t i = random_word() % (sizeof(p) / 8);
		size_t k = random_word() % (sizeof(p) / 8);
		u64 by = 1ULL << random_word() % 64;

		if (i == k || i == TAG_WORD || k == TAG_WORD)
			continue;
		w[i] += by;
		w[k] -= by;
		assert_int_not_equal(sum_of(&p, THC_LANE_WORDS), sum);
		w[i] -= by;
		w[k] += by;
	}
}

/* Corruption at random is missed once in 2^32: never in 10^5, hardly ever. */
static void sum__sees_random_corruption(void **state)
{
	struct packet p, bad;
	int round, n;

	(void)state;
	for (round = 0; round < 100000; round++) {
		int words = 32 << round % 3;

		if (round % 100 == 0)
			random_packet(&p);
		bad = p;
		for (n = 1 + random_word() % 4; n; n--)
			((u8 *)bad.payload)[random_word() % (8 * words)] = random_word();
		if (!memcmp(&bad, &p, sizeof(p)))
			continue;
		assert_int_not_equal(sum_of(&bad, words), sum_of(&p, words));
	}
}

static void sum__halves_join(void **state)
{
	struct packet p;
	int words;

	(void)state;
	random_packet(&p);
	for (words = 0; words <= THC_LANE_WORDS; words++) {
		struct thc_sum head = { 0, 0 }, tail = { 0, 0 }, all = { 0, 0 }, joined;

		thc_sum_add(&head, p.payload, words);
		thc_sum_add(&tail, p.payload + words, THC_LANE_WORDS - words);
		thc_sum_add(&all, p.payload, THC_LANE_WORDS);
		joined = thc_sum_join(head, tail, THC_LANE_WORDS - words);
		assert_memory_equal(&joined, &all, sizeof(all));
		/* adding the rest to the head's sum equals one sum */
		thc_sum_add(&head, p.payload + words, THC_LANE_WORDS - words);
		assert_memory_equal(&head, &all, sizeof(all));
	}
}

static void sum__header_and_payload_apart_is_the_packet(void **state)
{
	struct packet p;
	int round, words;

	(void)state;
	for (round = 0; round < 100; round++) {
		random_packet(&p);
		for (words = 0; words <= THC_LANE_WORDS; words += 32) {
			struct thc_sum payload = { 0, 0 };

			thc_sum_add(&payload, p.payload, words);
			assert_int_equal(thc_sum32(&p.hdr, payload, words), sum_of(&p, words));
			assert_int_equal(sum_unaligned(&p, words), sum_of(&p, words));
		}
		assert_int_equal(thc_sum_fold(thc_sum_hdr(&p.hdr)), sum_of(&p, 0));
	}
}

static void sum__does_not_see_the_tag(void **state)
{
	struct packet p;
	u32 sum;

	(void)state;
	random_packet(&p);
	sum = sum_of(&p, THC_LANE_WORDS);
	p.hdr.tag = thc_be64(sum);
	assert_int_equal(sum_of(&p, THC_LANE_WORDS), sum);
	p.hdr.tag = ~0ULL;
	assert_int_equal(sum_of(&p, THC_LANE_WORDS), sum);
}

/* The tags of data and of membership packets, for workers without a key. */
static void sum__is_the_tag_of_jobs_without_a_key(void **state)
{
	const struct thc_member_key none = { .id = 0 };
	struct thc_seal_key key = { .id = thc_be32(0x01020304) };
	static const int payload_words[] = { 0, 2, 32, 64, THC_LANE_WORDS };
	struct packet p;
	size_t n;

	(void)state;
	for (n = 0; n < sizeof(payload_words) / sizeof(*payload_words); n++) {
		random_packet(&p);
		thc_seal(&p.hdr, THC_SEAL_SUM, &key, p.payload, payload_words[n]);
		assert_int_equal(p.hdr.key_id, key.id);
		assert_true(thc_be64(p.hdr.tag) == sum_of(&p, payload_words[n]));
		thc_member_seal(&p.hdr, THC_SEAL_SUM, &none, NULL, p.payload, payload_words[n]);
		assert_int_equal(p.hdr.key_id, 0);
		assert_true(thc_be64(p.hdr.tag) == sum_of(&p, payload_words[n]));
	}
}

/* A longer packet of zeros is not the shorter one. */
static void sum__sees_the_length_of_a_packet(void **state)
{
	struct packet p;
	int words;

	(void)state;
	random_packet(&p);
	memset(p.payload, 0, sizeof(p.payload));
	for (words = 1; words <= THC_LANE_WORDS; words++)
		assert_int_not_equal(sum_of(&p, words), sum_of(&p, words - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum__sees_every_flipped_bit),
		cmocka_unit_test(sum__sees_every_two_flipped_bits),
		cmocka_unit_test(sum__sees_every_changed_byte),
		cmocka_unit_test(sum__sees_bursts),
		cmocka_unit_test(sum__sees_exchanged_words),
		cmocka_unit_test(sum__sees_changes_that_cancel),
		cmocka_unit_test(sum__sees_random_corruption),
		cmocka_unit_test(sum__halves_join),
		cmocka_unit_test(sum__header_and_payload_apart_is_the_packet),
		cmocka_unit_test(sum__does_not_see_the_tag),
		cmocka_unit_test(sum__is_the_tag_of_jobs_without_a_key),
		cmocka_unit_test(sum__sees_the_length_of_a_packet),
	};

	return cmocka_run_group_tests_name("sum", tests, NULL, NULL);
}
