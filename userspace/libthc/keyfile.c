// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * A job's secret key in a file. The file's contents are never shown: it may be the wrong file.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "keyfile.h"

/* Most bytes read: the digits, and room for blanks around them. */
#define FILE_BYTES	256

static const char blanks[] = " \t\r\n";

static int digit(char c)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) % 16 : -1;
}

static int parse(const char *text, uint8_t key[THC_KEY_BYTES])
{
	const char *from = text + strspn(text, blanks);
	size_t i;

	for (i = 0; i < THC_KEY_BYTES; i++, from += 2) {
		int high = digit(from[0]), low = high < 0 ? -1 : digit(from[1]);

		if (low < 0)
			return -EINVAL;
		key[i] = (uint8_t)(high << 4 | low);
	}
	return from[strspn(from, blanks)] ? -EINVAL : 0;
}

int thc_key_read_fd(int fd, const char *name, uint8_t key[THC_KEY_BYTES])
{
	char text[FILE_BYTES + 1] = { 0 };
	struct stat st;
	ssize_t n;
	int error;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return thc_fail(-EINVAL, "key: %s is no regular file", name);
	n = read(fd, text, sizeof(text));
	if (n < 0)
		return thc_fail(-errno, "key: cannot read %s: %s", name, strerror(errno));
	error = n > FILE_BYTES || strlen(text) != (size_t)n ? -EINVAL : parse(text, key);
	explicit_bzero(text, sizeof(text));
	if (!error)
		return 0;
	explicit_bzero(key, THC_KEY_BYTES);
	return thc_fail(
		error,
		"key: %s does not hold a key, which is %d hexadecimal digits: make one with "
		"thcctl genkey FILE",
		name, THC_KEY_DIGITS);
}

int thc_key_read(const char *path, uint8_t key[THC_KEY_BYTES])
{
	/* a terminal or a pipe must not block the caller */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int error;

	if (fd < 0)
		return thc_fail(-errno, "key: cannot read %s: %s", path, strerror(errno));
	error = thc_key_read_fd(fd, path, key);
	close(fd);
	return error;
}

void thc_key_print(char digits[THC_KEY_DIGITS + 1], const uint8_t key[THC_KEY_BYTES])
{
	static const char of[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < THC_KEY_BYTES; i++) {
		digits[2 * i] = of[key[i] >> 4];
		digits[2 * i + 1] = of[key[i] & 15];
	}
	digits[THC_KEY_DIGITS] = '\0';
}
