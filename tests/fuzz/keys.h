/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A stand-in for thcd's files of keys, of which a fuzzer reads none: the name of a key is the key,
 * 1 to 64 hexadecimal digits. (unit/test_key is about files.)
 */
#ifndef THC_FUZZ_KEYS_H
#define THC_FUZZ_KEYS_H

#include "config.h"
#include "fuzz.h"
#include "keyfile.h"

int thcd_secret_read(const char *name, u8 key[THC_KEY_BYTES], struct thcd_error *e)
{
	static const char of[] = "0123456789abcdef";
	size_t i, n = strspn(name, of);

	if (!n || name[n] || n > THC_KEY_DIGITS)
		return thcd_fail(e, "key: cannot read %s", name);
	memset(key, 0, THC_KEY_BYTES);
	for (i = 0; i < n; i++)
		key[THC_KEY_BYTES - 1 - i / 2] |=
			(u8)((strchr(of, name[n - 1 - i]) - of) << 4 * (i % 2));
	return 0;
}

#endif /* THC_FUZZ_KEYS_H */
