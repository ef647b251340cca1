/* SPDX-License-Identifier: GPL-2.0 */
/* The secret key of the tests' jobs, that of the example in Documentation/protocol.md. */
#ifndef TESTS_UNIT_TESTKEY_H
#define TESTS_UNIT_TESTKEY_H

#include <thc/types.h>

static const u8 test_key[THC_KEY_BYTES] __attribute__((unused)) = {
	0,  1,	2,  3,	4,  5,	6,  7,	8,  9,	10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
};

#endif /* TESTS_UNIT_TESTKEY_H */
