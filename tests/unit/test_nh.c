// SPDX-License-Identifier: GPL-2.0
/*
 * NH (include/thc/wire/nh.h), also by libthc's vectors, against plain integers; and under how many
 * keys two payloads have one NH: for at most one value of a word of the key, out of 2^32.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <thc/key.h>

#include "codec_ops.h"
#include "codec_util.h"
#include "randomword.h"
#include "testkey.h"

static u32 key[THC_NH_WORDS];
static u8 payload[THC_LANE_BYTES];

static u64 number(const u8 *at, int bytes)
{
	u64 n = 0;

	while (bytes--)
		n = n << 8 | at[bytes];
	return n;
}

/* As the paper writes it: sums modulo 2^32, their product, and the sum of products modulo 2^64. */
static u64 plain_nh(const u32 *n, const u8 *data, int words)
{
	unsigned __int128 sum = 0;
	int i;

	for (i = 0; i < words; i++) {
		u64 low = (number(data + 8 * i, 4) + n[2 * i]) % (1ULL << 32);
		u64 high = (number(data + 8 * i + 4, 4) + n[2 * i + 1]) % (1ULL << 32);

		sum += (unsigned __int128)low * high;
	}
	return (u64)(sum % ((unsigned __int128)1 << 64));
}

static void put(u8 *at, u32 value)
{
	int i;

	for (i = 0; i < 4; i++)
		at[i] = (u8)(value >> 8 * i);
}

typedef uint64_t (*nh_loop)(const u32 *key, const void *data, int words);

static uint64_t by_the_text(const u32 *k, const void *data, int words)
{
	return thc_nh(k, data, words);
}

static void check_lengths(nh_loop nh)
{
	u8 shifted[THC_LANE_BYTES + 8];
	int words, shift;

	for (words = 0; words <= THC_LANE_WORDS; words++) {
		random_bytes(key, sizeof(key));
		random_bytes(payload, sizeof(payload));
		assert_true(nh(key, payload, words) == plain_nh(key, payload, words));
		for (shift = 1; shift < 8; shift++) {
			memcpy(shifted + shift, payload, sizeof(payload));
			assert_true(nh(key, shifted + shift, words) ==
				    plain_nh(key, payload, words));
		}
	}
}

/* The least and largest sums and products. */
static void check_extremes(nh_loop nh)
{
	static const u32 words[] = { 0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff };
	const size_t n = sizeof(words) / sizeof(*words);
	size_t k, m, i;

	for (k = 0; k < n * n; k++) {
		for (m = 0; m < n * n; m++) {
			for (i = 0; i < THC_NH_WORDS; i++) {
				key[i] = words[i % 2 ? k / n : k % n];
				put(payload + 4 * i, words[i % 2 ? m / n : m % n]);
			}
			assert_true(nh(key, payload, THC_LANE_WORDS) ==
				    plain_nh(key, payload, THC_LANE_WORDS));
		}
	}
}

static void nh__as_plain_integers(void **state)
{
	(void)state;
	check_lengths(by_the_text);
	check_extremes(by_the_text);
}

static void check_vectors(enum thc_simd simd)
{
	need_simd(simd);
	check_lengths(thc_simd_ops(simd)->nh);
	check_extremes(thc_simd_ops(simd)->nh);
}

static void nh__by_avx2(void **state)
{
	(void)state;
	check_vectors(THC_SIMD_AVX2);
}

static void nh__by_avx512(void **state)
{
	(void)state;
	check_vectors(THC_SIMD_AVX512);
}

/* By tests/lib/decoder.py: job 1, salt 10 11 .. 1f, payload 3, 10, 17 and so on. */
static void nh__known_answers(void **state)
{
	u8 salt[THC_SALT_BYTES];
	struct thc_seal_key k;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(salt); i++)
		salt[i] = (u8)(0x10 + i);
	for (i = 0; i < sizeof(payload); i++)
		payload[i] = (u8)(7 * i + 3);
	thc_seal_key_set(&k, test_key, THC_KEY_UP, 1, salt);
	assert_true(thc_nh(k.nh, payload, 32) == 0x08321bcf89fde22cULL);
	assert_true(thc_nh(k.nh, payload, 64) == 0x44e122120312d972ULL);
	assert_true(thc_nh(k.nh, payload, 128) == 0x25af977ac7b6978bULL);
}

/* A changed half of a word is missed only if its other half plus the key is zero, whatever the
 * rest of the key.
 */
static void nh__misses_a_changed_half_for_one_key(void **state)
{
	u64 whole, changed;
	u32 half, other;
	int round;

	(void)state;
	for (round = 0; round < 20000; round++) {
		random_bytes(key, sizeof(key));
		random_bytes(payload, sizeof(payload));
		half = random_word() % THC_NH_WORDS;
		other = half ^ 1;
		key[other] = -(u32)number(payload + 4 * other, 4);
		whole = thc_nh(key, payload, THC_LANE_WORDS);
		put(payload + 4 * half, (u32)random_word());
		assert_true(thc_nh(key, payload, THC_LANE_WORDS) == whole);
		/* it is seen with the next value of the key, and with any other */
		key[other] += round & 1 ? 1 : 1 + (u32)(random_word() % 0xffffffff);
		whole = thc_nh(key, payload, THC_LANE_WORDS);
		payload[4 * half + random_word() % 4] ^= 1 << random_word() % 8;
		changed = thc_nh(key, payload, THC_LANE_WORDS);
		assert_true(changed != whole);
	}
}

/* Two payloads differ in one half of a word, and perhaps elsewhere: with each step of the key's
 * word for the other half, the difference of their NH grows by the difference of that half. So it
 * is zero for at most one value of that word.
 */
static void nh__difference_moves_with_the_key(void **state)
{
	static u8 other[THC_LANE_BYTES];
	int round, step;

	(void)state;
	for (round = 0; round < 2000; round++) {
		u32 half = random_word() % THC_NH_WORDS, beside = half ^ 1;
		u64 before = 0, now, by;

		random_bytes(key, sizeof(key));
		random_bytes(payload, sizeof(payload));
		random_bytes(other, sizeof(other));
		memcpy(other + 4 * beside, payload + 4 * beside, 4);
		by = (u64)((u32)number(payload + 4 * half, 4) + key[half]) -
		     (u64)((u32)number(other + 4 * half, 4) + key[half]);
		assert_true(by);
		/* the key for which the sum modulo 2^32 is zero */
		key[beside] = -(u32)number(payload + 4 * beside, 4);
		for (step = 0; step < 8; step++, key[beside]++, before = now) {
			now = thc_nh(key, payload, THC_LANE_WORDS) -
			      thc_nh(key, other, THC_LANE_WORDS);
			assert_true(!step || now - before == by);
		}
	}
}

/* Every place has its own word of the key. */
static void nh__sees_where_a_word_stands(void **state)
{
	u64 word, whole;
	int i, k;

	(void)state;
	random_bytes(key, sizeof(key));
	random_bytes(payload, sizeof(payload));
	whole = thc_nh(key, payload, THC_LANE_WORDS);
	for (i = 0; i < THC_LANE_WORDS; i++) {
		for (k = 0; k < i; k++) {
			u8 changed[THC_LANE_BYTES];

			memcpy(changed, payload, sizeof(payload));
			memcpy(&word, payload + 8 * i, 8);
			memcpy(changed + 8 * i, payload + 8 * k, 8);
			memcpy(changed + 8 * k, &word, 8);
			assert_true(thc_nh(key, changed, THC_LANE_WORDS) != whole);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nh__as_plain_integers),
		cmocka_unit_test(nh__by_avx2),
		cmocka_unit_test(nh__by_avx512),
		cmocka_unit_test(nh__known_answers),
		cmocka_unit_test(nh__misses_a_changed_half_for_one_key),
		cmocka_unit_test(nh__difference_moves_with_the_key),
		cmocka_unit_test(nh__sees_where_a_word_stands),
	};

	return cmocka_run_group_tests_name("nh", tests, NULL, NULL);
}
