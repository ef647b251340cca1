// SPDX-License-Identifier: GPL-2.0
/*
 * include/thc/siphash.h against the vectors that SipHash's authors published:
 * key 00 01 .. 0f, message 00 01 .. of whole words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <thc/siphash.h>

static const u64 key[2] = { 0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL };

#define WORDS	33

/* 00 01 .. as words. */
static void count_up(u64 message[WORDS])
{
	u32 i;

	for (i = 0; i < WORDS; i++)
		message[i] = 0x0706050403020100ULL + (u64)i * 0x0808080808080808ULL;
	/* a byte wraps */
	message[WORDS - 1] = message[0];
}

static void siphash__published_vectors(void **state)
{
	u64 message[WORDS];

	(void)state;
	count_up(message);
	assert_true(thc_siphash(key, message, 0) == 0x726fdb47dd0e0e31ULL);
	assert_true(thc_siphash(key, message, 1) == 0x93f5f5799a932462ULL);
	assert_true(thc_siphash(key, message, 2) == 0x3f2acc7f57c29bdbULL);
	assert_true(thc_siphash(key, message, 3) == 0xb8ad50c6f649af94ULL);
	assert_true(thc_siphash(key, message, 7) == 0xb78dbfaf3a8d83bdULL);
}

/* Only the lowest byte of a message's length counts. Values by tests/lib/decoder.py. */
static void siphash__of_more_than_255_bytes(void **state)
{
	u64 message[WORDS];

	(void)state;
	count_up(message);
	assert_true(thc_siphash(key, message, 32) == 0x999d0526d2a7bfd7ULL);
	assert_true(thc_siphash(key, message, 33) == 0xe76e0db3fa0ee85cULL);
}

static void siphash__word_by_word(void **state)
{
	struct thc_siphash s;
	u64 message[WORDS];
	u32 words, i;

	(void)state;
	count_up(message);
	for (words = 0; words <= WORDS; words++) {
		thc_siphash_begin(&s, key);
		for (i = 0; i < words; i++)
			thc_siphash_word(&s, message[i]);
		assert_true(thc_siphash_end(&s, words) == thc_siphash(key, message, words));
	}
}

/* Each bit of key and message changes about half of the result. */
static void siphash__every_bit_counts(void **state)
{
	const u64 small[2] = { 1, 2 }, word = 3;
	u64 whole = thc_siphash(small, &word, 1);
	int bit, changed;

	(void)state;
	for (bit = 0; bit < 192; bit++) {
		u64 other[3] = { small[0], small[1], word };

		other[bit / 64] ^= 1ULL << bit % 64;
		changed = __builtin_popcountll(whole ^ thc_siphash(other, &other[2], 1));
		assert_in_range(changed, 10, 54);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(siphash__published_vectors),
		cmocka_unit_test(siphash__of_more_than_255_bytes),
		cmocka_unit_test(siphash__word_by_word),
		cmocka_unit_test(siphash__every_bit_counts),
	};

	return cmocka_run_group_tests_name("siphash", tests, NULL, NULL);
}
