/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the processes of a storm (test_af_thc_storm) share: memory with the results of each kind of
 * call.
 */
#ifndef THC_SELFTESTS_STORM_H
#define THC_SELFTESTS_STORM_H

#include <sys/mman.h>

#include "afthc.h"
#include "rng.h"

/* --- what is counted ------------------------------------------------------ */

/* What calls of a kind must do: */
enum expected {
	WORKS,	/* succeed at least once */
	NEVER,	/* never succeed */
};

#define STORM_KINDS(X)                                                    \
	X(CHECKED_CONNECT, WORKS, "connect, ranks whose sums are checked") \
	X(CHECKED_SEND, WORKS, "sendmsg, ranks whose sums are checked")   \
	X(CHECKED_RECEIVE, WORKS, "recvmsg, ranks whose sums are checked") \
	X(SOCKET, WORKS, "socket")                                        \
	X(BIND, WORKS, "bind")                                            \
	X(CONNECT, WORKS, "connect")                                      \
	X(SENDMSG, WORKS, "sendmsg, on shared sockets")                \
	X(RECVMSG, WORKS, "recvmsg, on shared sockets")                \
	X(POLL, WORKS, "poll")                                            \
	X(EPOLL, WORKS, "epoll")                                          \
	X(GETSOCKOPT, WORKS, "getsockopt")                                \
	X(SETSOCKOPT, WORKS, "setsockopt")                                \
	X(IOCTL, WORKS, "ioctl")                                          \
	X(GETNAME, WORKS, "getsockname, getpeername")                     \
	X(SHUTDOWN, WORKS, "shutdown")                                    \
	X(DUP, WORKS, "dup")                                              \
	X(CLOSE, WORKS, "close")                                          \
	X(BAD_SOCKET, NEVER, "socket, invalid")                           \
	X(BAD_BIND, NEVER, "bind, invalid")                               \
	X(BAD_CONNECT, NEVER, "connect, invalid")                         \
	X(BAD_SENDMSG, NEVER, "sendmsg, invalid")                         \
	X(BAD_RECVMSG, NEVER, "recvmsg, invalid")                         \
	X(BAD_POLL, NEVER, "poll, invalid")                               \
	X(BAD_GETSOCKOPT, NEVER, "getsockopt, invalid")                   \
	X(BAD_SETSOCKOPT, NEVER, "setsockopt, invalid")                   \
	X(BAD_IOCTL, NEVER, "ioctl, invalid")                             \
	X(BAD_SHUTDOWN, NEVER, "shutdown, invalid")                       \
	X(BAD_DUP, NEVER, "dup, invalid")                                 \
	X(BAD_CLOSE, NEVER, "close, invalid")                             \
	X(FOREIGN, NEVER, "listen, accept, write, ...")                   \
	X(HOST_JOB, WORKS, "netlink: host jobs come and go")              \
	X(DUMP, WORKS, "netlink: sockets and counters")                   \
	X(PROC, WORKS, "/proc/net/thc is read")                           \
	X(FORGED_DOWN, WORKS, "forged packets to workers")                \
	X(FORGED_GROUP, WORKS, "forged packets to the group")             \
	X(FORGED_UP, WORKS, "forged packets to the aggregator")           \
	X(DAEMON, WORKS, "thcd started, later killed")                    \
	X(KILL, WORKS, "joined process killed")                           \
	X(NAMESPACE, WORKS, "namespace made and removed")

enum kind {
#define X(kind, expected, name) kind,
	STORM_KINDS(X)
#undef X
		KINDS
};

static const struct {
	const char	*name;
	enum expected	expected;
} kinds[KINDS] = {
#define X(kind, expected, name) { name, expected },
	STORM_KINDS(X)
#undef X
};

/* Larger numbers are no errno for user space, and are counted under the last. */
#define ERRNOS		140

struct tally {
	uint32_t called;
	uint32_t succeeded;
	uint32_t failed[ERRNOS];
};

/* --- jobs ----------------------------------------------------------------- */

/* Jobs, each of two ranks. Sums of the first two jobs are checked, and forged packets must not
 * change them. The next job's processes are killed. Any process may disturb the other jobs.
 */
enum {
	JOB_V6 = 1,	/* over IPv6, answers by fanout */
	JOB_GROUP,	/* over IPv4, answers to the group */
	JOB_KILLED,
	JOB_WILD,
	JOBS = 8,
};

#define JOBS_CHECKED	(JOB_KILLED - JOB_V6)
#define RANKS		2
/* Data chunks in flight of each. */
#define JOB_SLOTS	64

/* Where the aggregator and the workers are. */
#define AGGREGATOR4	"10.79.0.1"
#define AGGREGATOR6	"fd79::1"
#define WORKERS4	"10.79.0.2"
#define WORKERS6	"fd79::2"

static inline bool job_is_v6(unsigned int job)
{
	return job == JOB_V6 || job % 4 == 3;
}

/**
 * struct target - what a forger knows of a job, not always up to date
 * @port: ports of its ranks' sockets
 * @group, @group_port: the group of its answers, 0: none
 * @epoch: its session, @salt: of its keys
 * @chunk: first data chunk in flight, @round, @op, @width: of its message
 */
struct target {
	uint16_t	port[RANKS];
	uint16_t	group_port;
	struct in_addr	group;
	uint32_t	epoch;
	uint8_t		salt[THC_SALT_BYTES];
	uint32_t	chunk;
	uint32_t	round;
	uint8_t		op;
	uint8_t		width;
};

/**
 * struct storm - memory of all processes
 * @sums: right sums of each checked job
 * @wrong: wrong sums of all checked jobs
 * @lives: lives of thcd in which every checked job made enough sums
 * @stalled: the job that did not, in the next life
 * @prey: the process to be killed has joined
 */
struct storm {
	uint64_t	seed;
	struct tally	tally[KINDS];
	struct target	target[JOBS];
	uint32_t	sums[JOB_KILLED];
	uint32_t	wrong;
	uint32_t	lives;
	uint32_t	stalled;
	bool		prey;
};

/* Counts the result of a call, 0 or an errno, and returns it. */
int note(struct storm *s, enum kind kind, int error);

/* --- the table at the end ------------------------------------------------- */

void print_table(const struct storm *s);

#endif /* THC_SELFTESTS_STORM_H */
