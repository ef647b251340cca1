// SPDX-License-Identifier: GPL-2.0
/*
 * include/thc/blake2s.h and include/thc/key.h against RFC 7693 and hashlib, and files of keys.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <thc/key.h>

#include "keyfile.h"
#include "libthc.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* RFC 7693, appendix B, for BLAKE2s. */
static void blake2s__abc(void **state)
{
	static const u8 want[32] = {
		0x50, 0x8c, 0x5e, 0x8c, 0x32, 0x7c, 0x14, 0xe2, 0xe1, 0xa7, 0x2b,
		0xa3, 0x4e, 0xeb, 0x45, 0x2f, 0x37, 0x45, 0x8b, 0x20, 0x9e, 0xd6,
		0x3a, 0x29, 0x4d, 0x99, 0x9b, 0x4c, 0x86, 0x67, 0x59, 0x82,
	};
	u8 hash[32];

	(void)state;
	thc_blake2s(hash, sizeof(hash), NULL, 0, "abc", 3);
	assert_memory_equal(hash, want, sizeof(want));
}

/* The RFC's numbers to hash, appendix E. */
static void sequence(u8 *out, u32 bytes, u32 seed)
{
	u32 a = 0xdead4bad * seed, b = 1, sum, i;

	for (i = 0; i < bytes; i++) {
		sum = a + b;
		a = b;
		b = sum;
		out[i] = (u8)(sum >> 24);
	}
}

/* RFC 7693, appendix E: a hash of hashes of many lengths, with and without keys. */
static void blake2s__many_lengths(void **state)
{
	static const u8 want[32] = {
		0x6a, 0x41, 0x1f, 0x08, 0xce, 0x25, 0xad, 0xcd, 0xfb, 0x02, 0xab,
		0xa6, 0x41, 0x45, 0x1c, 0xec, 0x53, 0xc5, 0x98, 0xb2, 0x4f, 0x4f,
		0xc7, 0x87, 0xfb, 0xdc, 0x88, 0x79, 0x7f, 0x4c, 0x1d, 0xfe,
	};
	static const u32 hashes[] = { 16, 20, 28, 32 }, inputs[] = { 0, 3, 64, 65, 255, 1024 };
	u8 all[2 * COUNT(inputs) * (16 + 20 + 28 + 32)], *to = all;
	u8 input[1024], key[32], hash[32];
	u32 i, k;

	(void)state;
	for (i = 0; i < COUNT(hashes); i++) {
		for (k = 0; k < COUNT(inputs); k++) {
			sequence(input, inputs[k], inputs[k]);
			thc_blake2s(to, hashes[i], NULL, 0, input, inputs[k]);
			to += hashes[i];
			sequence(key, hashes[i], hashes[i]);
			thc_blake2s(to, hashes[i], key, hashes[i], input, inputs[k]);
			to += hashes[i];
		}
	}
	assert_ptr_equal(to, all + sizeof(all));
	thc_blake2s(hash, sizeof(hash), NULL, 0, all, sizeof(all));
	assert_memory_equal(hash, want, sizeof(want));
}

static void count_up(u8 key[THC_KEY_BYTES])
{
	u32 i;

	for (i = 0; i < THC_KEY_BYTES; i++)
		key[i] = (u8)i;
}

/* By Python's hashlib: see the recipe at thc_key_derive(). */
static void derive__as_hashlib_does(void **state)
{
	static const u8 want[48] = {
		0xe2, 0x4f, 0x32, 0x4c, 0x14, 0x11, 0x11, 0x9d, 0x97, 0x6f, 0x20,
		0x14, 0x40, 0x3d, 0x96, 0xda, 0x83, 0x6f, 0xe3, 0x10, 0x86, 0x3a,
		0x44, 0xd8, 0x5f, 0xa3, 0x0d, 0x8c, 0x78, 0x03, 0xdf, 0x53, 0x7d,
		0x84, 0xac, 0xb1, 0x8d, 0x9c, 0x2d, 0xac, 0x9d, 0x5c, 0x6d, 0x15,
		0x4f, 0x1b, 0xee, 0xe4,
	};
	static const u8 salted[8] = {
		0x5b, 0xe1, 0xae, 0x4f, 0x76, 0xc7, 0x00, 0x95,
	};
	u8 key[THC_KEY_BYTES], salt[THC_SALT_BYTES], out[48];
	u32 bytes;

	(void)state;
	count_up(key);
	thc_key_derive(out, sizeof(out), key, THC_KEY_COOKIE, 0x1234, NULL);
	assert_memory_equal(out, want, sizeof(want));
	for (bytes = 1; bytes < sizeof(out); bytes++) {
		memset(out, 0x5a, sizeof(out));
		thc_key_derive(out, bytes, key, THC_KEY_COOKIE, 0x1234, NULL);
		assert_memory_equal(out, want, bytes);
		assert_int_equal(out[bytes], 0x5a);
	}
	memset(salt, 7, sizeof(salt));
	thc_key_derive(out, sizeof(salted), key, THC_KEY_COOKIE, 0x1234, salt);
	assert_memory_equal(out, salted, sizeof(salted));
}

static void cookie__depends_on_key_and_job(void **state)
{
	u8 key[THC_KEY_BYTES];
	u64 cookie;

	(void)state;
	count_up(key);
	cookie = thc_key_cookie(key, 1);
	assert_true(cookie & 1);
	assert_true(cookie != thc_key_cookie(key, 2));
	key[31] ^= 0x80;
	assert_true(cookie != thc_key_cookie(key, 1));
}

/* --- files --------------------------------------------------------------------- */

static char path[] = "/tmp/thc-test-key-XXXXXX";

static void write_file(const char *text, size_t bytes)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, bytes, f), bytes);
	assert_int_equal(fclose(f), 0);
}

static int make_file(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	return fd < 0 || close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void file__holds_what_is_printed(void **state)
{
	static const char *const around[][2] = { { "", "" }, { "", "\n" }, { " \t", "\r\n\n" } };
	u8 key[THC_KEY_BYTES], read[THC_KEY_BYTES];
	char digits[THC_KEY_DIGITS + 1], text[128];
	size_t i, k;

	(void)state;
	for (i = 0; i < THC_KEY_BYTES; i++)
		key[i] = (u8)(0xfe - 9 * i);
	thc_key_print(digits, key);
	assert_int_equal(strlen(digits), THC_KEY_DIGITS);
	for (i = 0; i < COUNT(around); i++) {
		snprintf(text, sizeof(text), "%s%s%s", around[i][0], digits, around[i][1]);
		for (k = 0; i && text[k]; k++)
			if (text[k] >= 'a' && text[k] <= 'f')
				text[k] -= 'a' - 'A';
		write_file(text, strlen(text));
		assert_int_equal(thc_key_read(path, read), 0);
		assert_memory_equal(read, key, sizeof(key));
	}
}

static void file__no_key(void **state)
{
	static const char digits[] =
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
	static const u8 nothing[THC_KEY_BYTES];
	u8 key[THC_KEY_BYTES];
	char text[400];
	size_t i;

	(void)state;
	for (i = 0; i < 6; i++) {
		size_t bytes = snprintf(text, sizeof(text), "%s", digits);

		switch (i) {
		case 0: /* a digit less */
			bytes--;
			break;
		case 1: /* a digit more */
			text[bytes++] = '0';
			break;
		case 2:
			text[63] = 'g';
			break;
		case 3: /* ends at a zero */
			text[bytes] = '\0';
			text[bytes + 1] = '1';
			bytes += 2;
			break;
		case 4: /* blanks without an end */
			memset(text + bytes, ' ', sizeof(text) - bytes);
			bytes = sizeof(text);
			break;
		case 5:
			bytes = 0;
			break;
		}
		write_file(text, bytes);
		assert_int_equal(thc_key_read(path, key), -EINVAL);
		assert_non_null(strstr(thc_last_error(), "thcctl genkey"));
		assert_null(strstr(thc_last_error(), "000102"));
		assert_memory_equal(key, nothing, sizeof(key));
	}
}

static void file__not_there(void **state)
{
	u8 key[THC_KEY_BYTES];

	(void)state;
	assert_int_equal(thc_key_read("/nowhere/at/all", key), -ENOENT);
	assert_non_null(strstr(thc_last_error(), "/nowhere/at/all"));
	assert_int_equal(thc_key_read("/dev/null", key), -EINVAL);
	assert_non_null(strstr(thc_last_error(), "no regular file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blake2s__abc),
		cmocka_unit_test(blake2s__many_lengths),
		cmocka_unit_test(derive__as_hashlib_does),
		cmocka_unit_test(cookie__depends_on_key_and_job),
		cmocka_unit_test(file__holds_what_is_printed),
		cmocka_unit_test(file__no_key),
		cmocka_unit_test(file__not_there),
	};

	return cmocka_run_group_tests_name("key", tests, make_file, remove_file);
}
