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
#include "testkey.h"

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

/* By Python's hashlib: see the recipe at thc_key_derive(). */
static void derive__as_hashlib_does(void **state)
{
	static const u8 want[48] = {
		0x50, 0x8e, 0xfd, 0x4f, 0x46, 0x68, 0xbd, 0xd1, 0x8b, 0x67, 0x97,
		0xb6, 0xa6, 0xa9, 0x80, 0xe1, 0xda, 0xc8, 0x46, 0x06, 0x9d, 0xbe,
		0x9e, 0x6e, 0xd1, 0x7c, 0x6d, 0xbd, 0x9d, 0x72, 0xc8, 0x21, 0xe6,
		0xe3, 0xfa, 0x5d, 0x17, 0x60, 0x5b, 0x63, 0x72, 0x33, 0x98, 0xfd,
		0xa9, 0x30, 0x01, 0x24,
	};
	u8 out[48];
	u32 bytes;

	(void)state;
	thc_key_derive(out, sizeof(out), test_key, THC_KEY_UP, 0x1234, NULL);
	assert_memory_equal(out, want, sizeof(want));
	for (bytes = 1; bytes < sizeof(out); bytes++) {
		memset(out, 0x5a, sizeof(out));
		thc_key_derive(out, bytes, test_key, THC_KEY_UP, 0x1234, NULL);
		assert_memory_equal(out, want, bytes);
		assert_int_equal(out[bytes], 0x5a);
	}
}

/* By hashlib, too: the first eight bytes for each purpose, without and with a salt of sevens. */
static void derive__for_each_purpose(void **state)
{
	static const struct {
		enum thc_key_purpose	purpose;
		u64			unsalted;
		u64			salted;
	} want[] = {
		{ THC_KEY_UP, 0x508efd4f4668bdd1, 0xe9e573c0e22fbad8 },
		{ THC_KEY_DOWN, 0x6fa07042430edfbe, 0x936f1aa3f111a958 },
		{ THC_KEY_JOIN, 0xd3ea7d1314ecc4d9, 0xb3867fd79823f934 },
		{ THC_KEY_WELCOME, 0xd156b1349d93e258, 0xfc570ef589d761c9 },
		{ THC_KEY_LOST, 0x4024fb6af9c138e0, 0x7237bdbc345211dc },
		{ THC_KEY_ID, 0xa7b6878b76736339, 0xd77f411b2fcce2a4 },
		{ THC_KEY_SEED, 0xf4f2afff9da173ca, 0xabec5656a32de983 },
	};
	u8 salt[THC_SALT_BYTES];
	u64 out;
	size_t i;

	(void)state;
	memset(salt, 7, sizeof(salt));
	assert_int_equal(COUNT(want), THC_KEY_SEED + 1);
	for (i = 0; i < COUNT(want); i++) {
		assert_int_equal(want[i].purpose, i);
		thc_key_derive(&out, sizeof(out), test_key, want[i].purpose, 0x1234, NULL);
		assert_true(thc_be64(out) == want[i].unsalted);
		thc_key_derive(&out, sizeof(out), test_key, want[i].purpose, 0x1234, salt);
		assert_true(thc_be64(out) == want[i].salted);
	}
}

/* Each byte of key and salt, and the job. */
static void derive__from_every_byte(void **state)
{
	u8 key[THC_KEY_BYTES], salt[THC_SALT_BYTES] = { 0 };
	u64 whole, other;
	u32 i;

	(void)state;
	memcpy(key, test_key, sizeof(key));
	thc_key_derive(&whole, sizeof(whole), key, THC_KEY_DOWN, 1, salt);
	for (i = 0; i < sizeof(key) + sizeof(salt); i++) {
		u8 *byte = i < sizeof(key) ? &key[i] : &salt[i - sizeof(key)];

		*byte ^= 0x80;
		thc_key_derive(&other, sizeof(other), key, THC_KEY_DOWN, 1, salt);
		assert_true(other != whole);
		*byte ^= 0x80;
	}
	thc_key_derive(&other, sizeof(other), key, THC_KEY_DOWN, 0x101, salt);
	assert_true(other != whole);
	thc_key_derive(&other, sizeof(other), key, THC_KEY_DOWN, 0, salt);
	assert_true(other != whole);
}

/* SipHash's key, then NH's, all read as little-endian numbers, and the name of both. */
static void seal_key__is_read_from_what_is_derived(void **state)
{
	u8 salt[THC_SALT_BYTES];
	struct thc_seal_key key;

	(void)state;
	memset(salt, 7, sizeof(salt));
	memset(&key, 0xff, sizeof(key));
	thc_seal_key_set(&key, test_key, THC_KEY_UP, 0x1234, salt);
	assert_true(key.sip[0] == 0xd8ba2fe2c073e5e9);
	assert_true(key.sip[1] == 0x28b24a742f7b7810);
	assert_int_equal(key.nh[0], 0x1031fc39);
	assert_int_equal(key.nh[1], 0x4cdcbe47);
	assert_int_equal(key.nh[255], 0x22117e68);
	assert_int_equal(thc_be32(key.id), 0xd77f411b);
	assert_int_equal(key.reserved, 0);
	assert_int_equal(thc_key_id(test_key, 0x1234, salt), key.id);
	/* the other direction has another key of the same name */
	thc_seal_key_set(&key, test_key, THC_KEY_DOWN, 0x1234, salt);
	assert_true(key.sip[0] == 0x58a911f1a31a6f93);
	assert_int_equal(thc_be32(key.id), 0xd77f411b);
}

/* Without a secret only the salt tells epochs apart, and no key seals anything. */
static void seal_key__of_a_job_without_a_secret(void **state)
{
	static const u8 salt[THC_SALT_BYTES] = { 0xde, 0xad, 0xbe, 0xef, 5 };
	struct thc_seal_key key, zero = { .id = thc_be32(0xdeadbeef) };

	(void)state;
	memset(&key, 0xff, sizeof(key));
	thc_seal_key_set(&key, NULL, THC_KEY_UP, 0x1234, salt);
	assert_memory_equal(&key, &zero, sizeof(key));
}

static void member_key__is_of_no_epoch(void **state)
{
	static const enum thc_key_purpose purpose[] = { THC_KEY_JOIN, THC_KEY_WELCOME,
							THC_KEY_LOST };
	struct thc_member_key key[COUNT(purpose)];
	size_t i;

	(void)state;
	memset(key, 0xff, sizeof(key));
	for (i = 0; i < COUNT(purpose); i++) {
		thc_member_key_derive(&key[i], test_key, purpose[i], 0x1234);
		assert_int_equal(thc_be32(key[i].id), 0xa7b6878b);
		assert_int_equal(key[i].reserved, 0);
	}
	assert_true(key[0].sip[0] == 0xd9c4ec14137dead3);
	assert_true(key[0].sip[1] == 0x0c1ea82772207040);
	assert_true(key[0].sip[0] != key[1].sip[0] && key[1].sip[0] != key[2].sip[0] &&
		    key[2].sip[0] != key[0].sip[0]);
}

static void seed__comes_from_the_key(void **state)
{
	(void)state;
	assert_true(thc_key_seed(test_key, 0x1234) == 0xca73a19dffaff2f4);
	assert_true(thc_key_seed(test_key, 0x1234) != thc_key_seed(test_key, 0x1235));
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
		cmocka_unit_test(derive__for_each_purpose),
		cmocka_unit_test(derive__from_every_byte),
		cmocka_unit_test(seal_key__is_read_from_what_is_derived),
		cmocka_unit_test(seal_key__of_a_job_without_a_secret),
		cmocka_unit_test(member_key__is_of_no_epoch),
		cmocka_unit_test(seed__comes_from_the_key),
		cmocka_unit_test(file__holds_what_is_printed),
		cmocka_unit_test(file__no_key),
		cmocka_unit_test(file__not_there),
	};

	return cmocka_run_group_tests_name("key", tests, make_file, remove_file);
}
