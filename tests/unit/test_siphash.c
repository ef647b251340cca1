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

static void siphash__published_vectors(void **state)
{
	static const u64 key[2] = { 0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL };
	static const u64 message[2] = { 0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL };

	(void)state;
	assert_true(thc_siphash(key, message, 0) == 0x726fdb47dd0e0e31ULL);
	assert_true(thc_siphash(key, message, 1) == 0x93f5f5799a932462ULL);
	assert_true(thc_siphash(key, message, 2) == 0x3f2acc7f57c29bdbULL);
}

/* Each bit of key and message changes about half of the result. */
static void siphash__every_bit_counts(void **state)
{
	const u64 key[2] = { 1, 2 }, word = 3;
	u64 whole = thc_siphash(key, &word, 1);
	int bit, changed;

	(void)state;
	for (bit = 0; bit < 192; bit++) {
		u64 other[3] = { key[0], key[1], word };

		other[bit / 64] ^= 1ULL << bit % 64;
		changed = __builtin_popcountll(whole ^ thc_siphash(other, &other[2], 1));
		assert_in_range(changed, 10, 54);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(siphash__published_vectors),
		cmocka_unit_test(siphash__every_bit_counts),
	};

	return cmocka_run_group_tests_name("siphash", tests, NULL, NULL);
}
