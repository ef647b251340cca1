/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys for the jobs of a test: a folder of credentials, as a service manager makes one, which is
 * named in $CREDENTIALS_DIRECTORY. So key=@one and key=@two are keys that thcd can read.
 */
#ifndef THC_TEST_CREDENTIALS_H
#define THC_TEST_CREDENTIALS_H

#include <stdint.h>
#include <sys/types.h>

#include "libthc.h"

/* The folder, while there is one. */
extern char credentials[];

/* The key called @name. */
void credential_key(const char *name, uint8_t key[THC_KEY_BYTES]);

/* A further file in the folder; or another text for one. */
void credential_write(const char *name, const char *text, mode_t mode);

/* For a group of tests: before the first, behind the last. */
int credentials_make(void **state);
int credentials_remove(void **state);

#endif /* THC_TEST_CREDENTIALS_H */
