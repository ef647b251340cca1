/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Files that hold a job's secret key: 64 hexadecimal digits, with blanks around them.
 */
#ifndef THC_KEYFILE_H
#define THC_KEYFILE_H

#include "libthc.h"

#define THC_KEY_DIGITS	(2 * THC_KEY_BYTES)

/* Reads the key from @fd, an open file that thc_last_error() calls @name; as thc_key_read(). */
int thc_key_read_fd(int fd, const char *name, uint8_t key[THC_KEY_BYTES]);

/* The digits of @key and a final zero. */
void thc_key_print(char digits[THC_KEY_DIGITS + 1], const uint8_t key[THC_KEY_BYTES]);

#endif /* THC_KEYFILE_H */
