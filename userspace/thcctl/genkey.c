// SPDX-License-Identifier: GPL-2.0
/*
 * A new secret key for a job, in a file of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "keyfile.h"
#include "thcctl.h"

static int draw(uint8_t key[THC_KEY_BYTES])
{
	/* so few bytes come whole, once the kernel has gathered any at all */
	return getrandom(key, THC_KEY_BYTES, 0) == THC_KEY_BYTES ? 0 : -1;
}

/* Writes all of @text, and waits until it is on the disk. */
static int write_whole(int fd, const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, text, bytes);

		if (n < 0)
			return -1;
		text += n;
		bytes -= (size_t)n;
	}
	return fsync(fd);
}

static int fill(int fd)
{
	char text[THC_KEY_DIGITS + 1];
	uint8_t key[THC_KEY_BYTES];
	int error = draw(key);

	if (!error) {
		thc_key_print(text, key);
		text[THC_KEY_DIGITS] = '\n';
		error = write_whole(fd, text, sizeof(text));
	}
	explicit_bzero(key, sizeof(key));
	explicit_bzero(text, sizeof(text));
	return error;
}

int thcctl_genkey(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int error;

	if (fd < 0 && errno == EEXIST) {
		thcctl_say("%s is there already: a key that is in use would be lost; give another "
			   "name, or remove the file first",
			   path);
		return EXIT_FAILURE;
	}
	if (fd < 0) {
		thcctl_say("cannot make %s: %s", path, strerror(errno));
		return EXIT_FAILURE;
	}
	error = fill(fd) ? errno : 0;
	if (close(fd) && !error)
		error = errno;
	if (error) {
		/* an incomplete key is useless */
		unlink(path);
		thcctl_say("cannot write %s: %s", path, strerror(error));
		return EXIT_FAILURE;
	}
	printf("%s has a new key: give this file to thcd, as key=@FILE of the job, and a copy to "
	       "each worker, as THC_KEY_FILE\n",
	       path);
	return EXIT_SUCCESS;
}
