/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of AF_THC share: a network namespace with loopback up,
 * `thcd --software` in it (daemon.h), ranks that are non-blocking sockets of
 * one process, messages, and their sums computed with plain integers. Nothing
 * here asserts: functions return 0 or a negative errno, and tests look.
 */
#ifndef THC_SELFTESTS_AFTHC_H
#define THC_SELFTESTS_AFTHC_H

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/thc.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon.h"
#include "jobkey.h"

#define RANKS_MAX	THC_RANKS_MAX
/* An emulated machine may be busy for so long. Longer than a join's default limit, so that the
 * socket reports first why it failed.
 */
#define PATIENCE_MS	75000

uint64_t now_ms(void);
/* The time of the last tick, from which SO_RCVTIMEO and SO_SNDTIMEO count: where ticks come late,
 * a call may end so much sooner by now_ms().
 */
uint64_t tick_ms(void);

static inline void sleep_ms(unsigned int ms)
{
	usleep(ms * 1000);
}

/* Why AF_THC cannot be tested here, or NULL. A test machine has the module: there
 * the test fails.
 */
const char *why_not(void);

/* Is this the kernel that notices mistakes, and takes several times as long for everything? */
bool on_debug_kernel(void);

/* Enters a new network namespace with loopback up. */
int enter_netns(void);

#define HOST_MEMORY	"/sys/module/thc/parameters/memory_mib"

/* Limits the memory of all sockets of the host. */
int set_host_memory(const char *mib);

/* --- addresses ------------------------------------------------------------ */

/* Rank @rank of job @job at @at (text, IPv4 or IPv6); NULL: a host job. */
struct sockaddr_thc place(const char *at, uint16_t port, uint16_t job, uint8_t rank);

/* Without a key: for host jobs. */
static inline int thc_open_keyless(int flags)
{
	return socket(AF_THC, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
}

static inline int thc_open(int flags)
{
	int fd = thc_open_keyless(flags);

	/* connect() will report if the key is missing */
	if (fd >= 0)
		set_key(fd, job_key, sizeof(job_key));
	return fd;
}

static inline int set_u32(int fd, int option, uint32_t value)
{
	return setsockopt(fd, SOL_THC, option, &value, sizeof(value)) ? -errno : 0;
}

static inline int set_nonblock(int fd, bool on)
{
	return fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0);
}

/* Returns 0 once any of @events has come, or -ETIMEDOUT. */
static inline int wait_for(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, ms) > 0 && p.revents & events ? 0 : -ETIMEDOUT;
}

static inline short poll_now(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP };

	return poll(&p, 1, 0) < 0 ? -1 : p.revents;
}

/* Begins connect() on a socket, which becomes non-blocking. */
int begin_join(int fd, const struct sockaddr_thc *a);

/* Waits for the join, over all aggregators, and makes @fd blocking again. Returns 0 or SO_ERROR. */
int end_join(int fd);

/* Joins ranks 0 to @n - 1 of a job, one socket each; sockets already in @fd join again. */
int join_all(int *fd, unsigned int n, const char *at, uint16_t port, uint16_t job);

void close_all(int *fd, unsigned int n);

/* --- messages ------------------------------------------------------------- */

static inline struct thc_send describe(uint8_t op, uint8_t width, uint32_t round, uint64_t tag)
{
	struct thc_send s = { .op = op, .width = width, .round = round, .tag = tag };

	return s;
}

ssize_t send_with(int fd, const void *payload, size_t bytes, const void *send, size_t send_bytes,
		  int type, int flags);

static inline ssize_t send_message(int fd, const void *payload, size_t bytes,
				   const struct thc_send *s, int flags)
{
	return send_with(fd, payload, bytes, s, sizeof(*s), THC_SEND, flags | MSG_NOSIGNAL);
}

/* Negative errno or what recvmsg() returned; *@msg_flags may be NULL. */
ssize_t receive_message(int fd, void *room, size_t bytes, struct thc_received *r, int flags,
			int *msg_flags);

/* --- sums ----------------------------------------------------------------- */

/* Byte @i of a rank's payload, which depends on rank, tag and place alone. */
uint8_t byte_of(unsigned int rank, uint64_t tag, size_t i);

uint8_t *make_payload(unsigned int rank, uint64_t tag, size_t bytes);

uint32_t lane_of(const uint8_t *p, unsigned int bytes);

/* What rank @rank's lane @i adds to the sum. */
uint32_t contribution(const struct thc_send *s, unsigned int rank, size_t i, const uint16_t *table);

/* Lanes of @chunks that differ from the sum over @ranks (bits). */
size_t wrong_lanes(const uint8_t *got, const struct thc_send *s, uint8_t width, size_t chunks,
		   uint64_t ranks, const uint16_t *table);

/* The job's table; sum width, or 0: not connected. */
uint8_t job_table(int fd, uint16_t *table);

static inline uint64_t all_ranks(unsigned int n)
{
	return n == 64 ? ~0ULL : (1ULL << n) - 1;
}

/* One rank's part of an all-reduce. */
int send_part(int fd, unsigned int rank, const struct thc_send *s, size_t chunks,
	      uint8_t sum_width);

/* Receives the answer to @s. Returns 0, a negative errno, or > 0: the number of what is wrong. */
int check_answer(int fd, const struct thc_send *s, size_t chunks, uint8_t sum_width,
		 unsigned int ranks, const uint16_t *table);

/* A whole all-reduce of @n ranks. */
int all_reduce(int *fd, unsigned int n, const struct thc_send *s, size_t chunks);

struct thc_socket_stats stats_of(int fd);

struct thc_failure failure_of(int fd);

/* --- a fixture ------------------------------------------------------------ */

/* With one table only: computing all tables for a rate takes an emulated machine most of a second.
 */
#define JOB	"1," JOB_KEY ",rate=fixed,reply=fanout,ranks="
#define LANES	THC_LANE_BYTES
/* Bytes of a received chunk with its count. */
#define ANSWER	(LANES + 2)

/* What many tests send. */
static const struct thc_send add8 = { .op = THC_OP_ADD, .width = 8, .round = 1, .tag = 5 };

static inline void set_timeo(int fd, int option, long ms)
{
	struct timeval t = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	setsockopt(fd, SOL_SOCKET, option, &t, sizeof(t));
}

/* Receives one chunk and drops its lanes. */
ssize_t receive(int fd, int flags);

/* Starts a job and joins its first @n ranks, which must be all: else the join waits. */
static inline int begin(struct daemon *d, int *fd, const char *job, unsigned int n)
{
	int error = start_daemon(d, "127.0.0.1", PORT, job, NULL);

	return error ? error : join_all(fd, n, "127.0.0.1", PORT, 1);
}

/* What a call returned, as 0 or the errno. */
#define ERRNO_OF(call)	((call) < 0 ? errno : 0)

static inline int bind_errno(int fd, const struct sockaddr_thc *a, socklen_t len)
{
	return ERRNO_OF(bind(fd, (const void *)a, len));
}

static inline int connect_errno(int fd, const struct sockaddr_thc *a, socklen_t len)
{
	return ERRNO_OF(connect(fd, (const void *)a, len));
}

static inline int set_memory(int fd, uint64_t bytes)
{
	return setsockopt(fd, SOL_THC, THC_OPT_MEMORY, &bytes, sizeof(bytes)) ? -errno : 0;
}

#endif /* THC_SELFTESTS_AFTHC_H */
