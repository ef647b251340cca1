// SPDX-License-Identifier: GPL-2.0
#include "../meet.h"
#include "afthc.h"
#include "knownjob.h"

#include <kselftest.h>

static uint64_t clock_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t now_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC);
}

uint64_t tick_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC_COARSE);
}

bool on_debug_kernel(void)
{
	const char *kernel = getenv("THC_VM_KERNEL");

	return kernel && !strcmp(kernel, "debug");
}

const char *why_not(void)
{
	int fd;

	if (geteuid())
		return "needs root";
	fd = socket(AF_THC, SOCK_SEQPACKET, 0);
	if (fd < 0 && getenv("THC_VM_MODULE")) {
		perror("# socket(AF_THC)");
		exit(KSFT_FAIL);
	}
	if (fd < 0)
		return "this kernel has no AF_THC: run it by tests/vm/check";
	close(fd);
	return NULL;
}

int enter_netns(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd, error;

	if (unshare(CLONE_NEWNET))
		return -errno;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	error = ioctl(fd, SIOCSIFFLAGS, &lo) ? -errno : 0;
	close(fd);
	return error;
}

int set_host_memory(const char *mib)
{
	int fd = open(HOST_MEMORY, O_WRONLY | O_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = write(fd, mib, strlen(mib)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

struct sockaddr_thc place(const char *at, uint16_t port, uint16_t job, uint8_t rank)
{
	struct sockaddr_thc a = { .sthc_family = AF_THC, .sthc_job = job, .sthc_rank = rank };

	if (!at)
		return a;
	a.sthc_inet = strchr(at, ':') ? AF_INET6 : AF_INET;
	a.sthc_port = htons(port);
	inet_pton(a.sthc_inet, at, a.sthc_addr);
	return a;
}

int begin_join(int fd, const struct sockaddr_thc *a)
{
	set_nonblock(fd, true);
	if (!connect(fd, (const void *)a, sizeof(*a)))
		return 0;
	return errno == EINPROGRESS || errno == EALREADY ? 0 : -errno;
}

/* poll() has reported POLLPRI: connect() opens the other aggregators. */
static int go_on(int fd)
{
	struct sockaddr_thc a;
	socklen_t len = sizeof(a);

	if (getpeername(fd, (void *)&a, &len) || !connect(fd, (void *)&a, sizeof(a)))
		return 0;
	return errno == EALREADY ? 0 : -errno;
}

/* Waits for the list of a job's aggregators, if it has several, or for the end of the join. */
static int open_listed(int fd)
{
	int error = wait_for(fd, POLLOUT | POLLERR, PATIENCE_MS);

	return !error && poll_now(fd) & POLLPRI ? go_on(fd) : error;
}

/* The job's own limit for joining has passed, not PATIENCE_MS. */
static void say_who_is_missing(int fd)
{
	struct thc_failure f = failure_of(fd);

	printf("# aggregator %u: reason %u, ranks 0x%llx are missing\n", f.shard, f.reason,
	       (unsigned long long)f.ranks);
}

int end_join(int fd)
{
	socklen_t len = sizeof(int);
	int error = open_listed(fd);

	if (!error)
		error = wait_for(fd, POLLOUT | POLLERR, PATIENCE_MS);
	set_nonblock(fd, false);
	if (error)
		return error;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	if (error == ETIMEDOUT)
		say_who_is_missing(fd);
	return -error;
}

int join_all(int *fd, unsigned int n, const char *at, uint16_t port, uint16_t job)
{
	unsigned int i;
	int error = 0;

	for (i = 0; i < n && !error; i++) {
		struct sockaddr_thc a = place(at, port, job, (uint8_t)i);

		if (fd[i] < 0)
			fd[i] = at ? thc_open(0) : thc_open_keyless(0);
		error = fd[i] < 0 ? -errno : begin_join(fd[i], &a);
	}
	/* no rank is in before all are in, at each aggregator */
	for (i = 0; i < n && !error; i++)
		error = open_listed(fd[i]);
	for (i = 0; i < n && !error; i++)
		error = end_join(fd[i]);
	return error;
}

void close_all(int *fd, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = -1;
	}
}

ssize_t send_with(int fd, const void *payload, size_t bytes, const void *send, size_t send_bytes,
		  int type, int flags)
{
	char control[CMSG_SPACE(64)] = "";
	struct iovec iov = { .iov_base = (void *)payload, .iov_len = bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (send) {
		struct cmsghdr *c = (void *)control;

		c->cmsg_level = SOL_THC;
		c->cmsg_type = type;
		c->cmsg_len = CMSG_LEN(send_bytes);
		memcpy(CMSG_DATA(c), send, send_bytes);
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(send_bytes);
	}
	return sendmsg(fd, &msg, flags) < 0 ? -errno : (ssize_t)bytes;
}

ssize_t receive_message(int fd, void *room, size_t bytes, struct thc_received *r, int flags,
			int *msg_flags)
{
	char control[CMSG_SPACE(sizeof(*r))] = "";
	struct iovec iov = { .iov_base = room, .iov_len = bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	ssize_t got = recvmsg(fd, &msg, flags);

	if (got < 0)
		return -errno;
	memset(r, 0, sizeof(*r));
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_level == SOL_THC && c->cmsg_type == THC_RECEIVED)
			memcpy(r, CMSG_DATA(c), sizeof(*r));
	if (msg_flags)
		*msg_flags = msg.msg_flags;
	return got;
}

uint8_t byte_of(unsigned int rank, uint64_t tag, size_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15ULL + tag * 0xd1342543de82ef95ULL + rank + 1;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ULL;
	return (uint8_t)(x >> 37);
}

uint8_t *make_payload(unsigned int rank, uint64_t tag, size_t bytes)
{
	uint8_t *p = malloc(bytes);
	size_t i;

	for (i = 0; i < bytes; i++)
		p[i] = byte_of(rank, tag, i);
	return p;
}

uint32_t lane_of(const uint8_t *p, unsigned int bytes)
{
	uint32_t v = 0;
	unsigned int i;

	for (i = 0; i < bytes; i++)
		v |= (uint32_t)p[i] << 8 * i;
	return v;
}

/* Bytes of a chunk going up. */
static size_t chunk_bytes(uint8_t op, uint8_t sum_width)
{
	if (op != THC_OP_LUT_ADD)
		return THC_LANE_BYTES;
	return (sum_width == 8 ? THC_COORDINATES(8) : THC_COORDINATES(16)) / 2;
}

uint32_t contribution(const struct thc_send *s, unsigned int rank, size_t i, const uint16_t *table)
{
	uint8_t raw[4];
	unsigned int bytes = s->width / 8, k;
	bool high = s->op == THC_OP_CLAIM_HIGH;

	/* a claim: a rank fills only the lanes of its own place */
	if ((high || s->op == THC_OP_CLAIM) && (high != (rank >= 32) || i % 256 / 8 != rank % 32))
		return 0;
	if (s->op == THC_OP_LUT_ADD) {
		raw[0] = byte_of(rank, s->tag, i / 2);
		return table[i % 2 ? raw[0] & 15 : raw[0] >> 4];
	}
	for (k = 0; k < bytes; k++)
		raw[k] = byte_of(rank, s->tag, i * bytes + k);
	return lane_of(raw, bytes);
}

size_t wrong_lanes(const uint8_t *got, const struct thc_send *s, uint8_t width, size_t chunks,
		   uint64_t ranks, const uint16_t *table)
{
	size_t lanes = chunks * THC_LANE_BYTES / (width / 8u), i, wrong = 0;
	uint32_t mask = width == 32 ? UINT32_MAX : (1u << width) - 1;

	for (i = 0; i < lanes; i++) {
		uint32_t want = 0;
		unsigned int r;

		for (r = 0; r < RANKS_MAX; r++)
			if (ranks >> r & 1)
				want = meet(s->op, want, contribution(s, r, i, table));
		wrong += lane_of(got + i * (width / 8u), width / 8u) != (want & mask);
	}
	return wrong;
}

uint8_t job_table(int fd, uint16_t *table)
{
	struct thc_table_row row;
	struct known_job j;

	if (know_job(fd, &j))
		return 0;
	row = thc_spec_row(&j.spec, j.spec.bits);
	memcpy(table, row.level, sizeof(*row.level) << row.bits);
	return row.sum_width;
}

int send_part(int fd, unsigned int rank, const struct thc_send *s, size_t chunks, uint8_t sum_width)
{
	size_t each = chunk_bytes(s->op, sum_width), stride = s->stride ? s->stride : each, i;
	size_t bytes = (chunks - 1) * stride + each;
	uint8_t *p = make_payload(rank, s->tag, chunks * each), *apart = malloc(bytes);
	ssize_t sent;

	memset(apart, 0xa5, bytes);
	for (i = 0; i < chunks; i++)
		memcpy(apart + i * stride, p + i * each, each);
	sent = send_message(fd, apart, bytes, s, 0);
	free(apart);
	free(p);
	return sent == (ssize_t)bytes ? 0 : sent < 0 ? (int)sent : -EIO;
}

int check_answer(int fd, const struct thc_send *s, size_t chunks, uint8_t sum_width,
		 unsigned int ranks, const uint16_t *table)
{
	size_t lanes = chunks * THC_LANE_BYTES, bytes = lanes + chunks * 2, i;
	uint8_t *room = malloc(bytes), width = s->op == THC_OP_LUT_ADD ? sum_width : s->width;
	struct thc_received r;
	ssize_t got = receive_message(fd, room, bytes, &r, 0, NULL);
	int bad = 0;

	if (got < 0)
		bad = (int)got;
	else if (got != (ssize_t)bytes)
		bad = 1;
	else if (r.op != s->op || r.width != width || r.round != s->round || r.tag != s->tag)
		bad = 2;
	else if (r.chunks != chunks || r.least != ranks || r.flags || r.reserved || r.missed ||
		 !r.digest || r.ranks != all_ranks(ranks))
		bad = 3;
	else if (wrong_lanes(room, s, width, chunks, r.ranks, table))
		bad = 4;
	for (i = 0; !bad && i < chunks; i++)
		bad = lane_of(room + lanes + 2 * i, 2) != ranks ? 5 : 0;
	free(room);
	return bad;
}

int all_reduce(int *fd, unsigned int n, const struct thc_send *s, size_t chunks)
{
	uint16_t table[THC_LEVELS_MAX];
	uint8_t sum_width = job_table(fd[0], table);
	unsigned int i;
	int bad = sum_width ? 0 : -ENOTCONN;

	for (i = 0; i < n && !bad; i++)
		bad = send_part(fd[i], i, s, chunks, sum_width);
	for (i = 0; i < n && !bad; i++)
		bad = check_answer(fd[i], s, chunks, sum_width, n, table);
	return bad;
}

struct thc_socket_stats stats_of(int fd)
{
	struct thc_socket_stats s = { 0 };
	socklen_t len = sizeof(s);

	getsockopt(fd, SOL_THC, THC_OPT_STATS, &s, &len);
	return s;
}

struct thc_failure failure_of(int fd)
{
	struct thc_failure f = { 0 };
	socklen_t len = sizeof(f);

	getsockopt(fd, SOL_THC, THC_OPT_FAILURE, &f, &len);
	return f;
}

ssize_t receive(int fd, int flags)
{
	char room[ANSWER];
	struct thc_received r;

	return receive_message(fd, room, sizeof(room), &r, flags, NULL);
}
