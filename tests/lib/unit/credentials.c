// SPDX-License-Identifier: GPL-2.0
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "credentials.h"
#include "keyfile.h"

#define TEMPLATE	"/tmp/thc-credentials-XXXXXX"

char credentials[sizeof(TEMPLATE)];

void credential_key(const char *name, uint8_t key[THC_KEY_BYTES])
{
	int i;

	for (i = 0; i < THC_KEY_BYTES; i++)
		key[i] = (uint8_t)(name[0] + i);
}

void credential_write(const char *name, const char *text, mode_t mode)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", credentials, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	/* whatever the umask is */
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

int credentials_make(void **state)
{
	static const char *const names[] = { "one", "two" };
	size_t i;

	(void)state;
	strcpy(credentials, TEMPLATE);
	if (!mkdtemp(credentials))
		return -1;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char digits[THC_KEY_DIGITS + 1];
		uint8_t key[THC_KEY_BYTES];

		credential_key(names[i], key);
		thc_key_print(digits, key);
		credential_write(names[i], digits, 0600);
	}
	return setenv("CREDENTIALS_DIRECTORY", credentials, 1);
}

int credentials_remove(void **state)
{
	DIR *dir = opendir(credentials);
	struct dirent *entry;

	(void)state;
	while (dir && (entry = readdir(dir)))
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	return rmdir(credentials);
}
