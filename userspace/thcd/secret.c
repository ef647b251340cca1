// SPDX-License-Identifier: GPL-2.0
/*
 * Reads a job's secret key from its file, which a service manager can hand over as a credential.
 * libthc parses the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "keyfile.h"

static void warn(int fd, const char *path)
{
	struct stat st;

	if (!fstat(fd, &st) && st.st_mode & S_IROTH)
		thcd_say("warning: every user can read %s and the key in it: chmod 600 %s", path,
			 path);
}

int thcd_secret_read(const char *name, u8 key[THC_KEY_BYTES], struct thcd_error *e)
{
	const char *folder = strchr(name, '/') ? NULL : getenv("CREDENTIALS_DIRECTORY");
	char path[PATH_MAX];
	int fd, err;

	snprintf(path, sizeof(path), "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
	/* neither a terminal nor a pipe is to stop us */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return thcd_fail(e, "key: cannot read %s: %s", path, strerror(errno));
	err = thc_key_read_fd(fd, path, key);
	if (err)
		err = thcd_fail(e, "%s", thc_last_error());
	else
		warn(fd, path);
	close(fd);
	return err;
}
