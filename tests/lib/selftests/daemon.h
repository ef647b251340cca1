/* SPDX-License-Identifier: GPL-2.0 */
/*
 * `thcd --software` on loopback, for the tests of AF_THC. Functions return 0 or a negative
 * errno.
 */
#ifndef THC_SELFTESTS_DAEMON_H
#define THC_SELFTESTS_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PORT		18500

struct daemon {
	pid_t	pid;
	int	out;
};

const char *daemon_path(void);

/* Waits for the line that says "ready"; false: the daemon died before. */
bool is_ready(int out);

/* Starts `thcd --software` with up to two jobs on @at:@port; JOB_KEY is their key. */
int start_daemon(struct daemon *d, const char *at, uint16_t port, const char *job,
		 const char *other);

void stop_daemon(struct daemon *d, int number);

/* Port of aggregator number @shard, if loopback has several. */
static inline uint16_t shard_port(unsigned int shard)
{
	return (uint16_t)(PORT + 100 * shard);
}

/* Starts number @shard of @n aggregators; @job describes the job without its shards. */
int start_shard(struct daemon *d, const char *job, unsigned int shard, unsigned int n);

#endif /* THC_SELFTESTS_DAEMON_H */
