/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The secret key of the jobs here, one for all of them: in a file for thcd, and for sockets of
 * AF_THC.
 */
#ifndef THC_SELFTESTS_JOBKEY_H
#define THC_SELFTESTS_JOBKEY_H

#include <errno.h>
#include <linux/thc.h>
#include <stdint.h>
#include <sys/socket.h>

#define KEY_FILE	"/tmp/afthc.key"
/* In a description of a job for thcd. */
#define JOB_KEY		"key=@" KEY_FILE
/* The same of a job whose table does not have to be found: an emulated machine needs a second. */
#define JOB_OF_TEST	JOB_KEY ",table=uniform,reply=fanout"

extern const uint8_t job_key[THC_KEY_BYTES];

/* Before thcd is started; others may be reading it. 0 or -errno. */
int write_key_file(void);

/* THC_OPT_KEY; @bytes 0: @fd forgets its key. 0 or -errno. */
static inline int set_key(int fd, const void *key, socklen_t bytes)
{
	return setsockopt(fd, SOL_THC, THC_OPT_KEY, key, bytes) ? -errno : 0;
}

#endif /* THC_SELFTESTS_JOBKEY_H */
