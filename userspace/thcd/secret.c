// SPDX-License-Identifier: GPL-2.0
/*
 * A cookie in a file of its own, which a service manager can hand over as a credential. What is in
 * the file is never shown, for it may be the wrong file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

/* A number of 64 bits in digits, and blanks around it. */
#define SECRET_BYTES	64

void thcd_secret_warn(int fd, const char *name)
{
	struct stat st;

	if (!fstat(fd, &st) && st.st_mode & S_IROTH)
		thcd_say("warning: every user can read %s and the cookies in it: chmod 600 %s",
			 name, name);
}

/* Blanks around it; 0 is no cookie. */
static int parse(char *text, u64 *cookie)
{
	static const char blanks[] = " \t\r\n";
	char *begin = text + strspn(text, blanks), *end = begin + strcspn(begin, blanks);

	if (end[strspn(end, blanks)])
		return -1;
	*end = '\0';
	return thcd_number_parse(begin, cookie) || !*cookie ? -1 : 0;
}

static int read_open(int fd, const char *path, u64 *cookie, struct thcd_error *e)
{
	char text[SECRET_BYTES + 1] = { 0 };
	struct stat st;
	ssize_t n;
	int err;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return thcd_fail(e, "cookie: %s is no regular file", path);
	thcd_secret_warn(fd, path);
	n = read(fd, text, sizeof(text));
	if (n < 0)
		return thcd_fail(e, "cookie: cannot read %s: %s", path, strerror(errno));
	err = n > SECRET_BYTES || strlen(text) != (size_t)n || parse(text, cookie);
	explicit_bzero(text, sizeof(text));
	return err ? thcd_fail(e,
			       "cookie: %s does not hold one number of 64 bits, decimal or 0x..., "
			       "not 0, and nothing else",
			       path) :
		     0;
}

int thcd_secret_read(const char *name, u64 *cookie, struct thcd_error *e)
{
	const char *folder = strchr(name, '/') ? NULL : getenv("CREDENTIALS_DIRECTORY");
	char path[PATH_MAX];
	int fd, err;

	snprintf(path, sizeof(path), "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
	/* neither a terminal nor a pipe is to stop us */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return thcd_fail(e, "cookie: cannot read %s: %s", path, strerror(errno));
	err = read_open(fd, path, cookie, e);
	close(fd);
	return err;
}
