/* SPDX-License-Identifier: GPL-2.0 */
/* The secret key of all jobs in these tests: in a file for thcd, and for sockets of AF_THC. */
#ifndef THC_SELFTESTS_JOBKEY_H
#define THC_SELFTESTS_JOBKEY_H

#include <errno.h>
#include <linux/thc.h>
#include <stdint.h>
#include <sys/socket.h>

#define KEY_FILE	"/tmp/afthc.key"
/* The key's part of a job's description for thcd. */
#define JOB_KEY		"key=@" KEY_FILE
/* The same with a uniform table: an emulated machine needs a second to compute another one. */
#define JOB_OF_TEST	JOB_KEY ",table=uniform,reply=fanout"

extern const uint8_t job_key[THC_KEY_BYTES];

/* Writes the key's file. Call before thcd starts; another thcd may be reading the file. 0 or
 * -errno.
 */
int write_key_file(void);

/* THC_OPT_KEY; @bytes 0: @fd forgets its key. 0 or -errno. */
static inline int set_key(int fd, const void *key, socklen_t bytes)
{
	return setsockopt(fd, SOL_THC, THC_OPT_KEY, key, bytes) ? -errno : 0;
}

#endif /* THC_SELFTESTS_JOBKEY_H */
