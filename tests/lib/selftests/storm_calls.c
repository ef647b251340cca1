// SPDX-License-Identifier: GPL-2.0
#include "knownjob.h"
#include "storm_calls.h"

#define CALLERS		4
/* Most milliseconds to join, of one rank and of two that meet. A joining rank sends 50 packets per
 * second: many of these for long would take all time of emulated processors.
 */
#define JOIN_MS		300
#define BOTH_JOIN_MS	5000
/* Callers that make two ranks meet, at a time. */
#define BOTH_JOINING	2
/* Most chunks of a message. */
#define CALL_CHUNKS	24

int places[PLACES];

static unsigned int job_at(unsigned int place)
{
	return JOB_WILD + place / RANKS;
}

uint8_t *make_area(void)
{
	uint8_t *area =
		mmap(NULL, AREA + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED || mprotect(area + AREA, 4096, PROT_NONE))
		return NULL;
	memset(area, 0x5a, AREA);
	return area;
}

/* @bytes of the caller's memory. */
static void *some_memory(struct caller *c, size_t bytes)
{
	return c->area + below(&c->rng, (unsigned int)(AREA - bytes + 1));
}

/* @bytes that are missing, wholly or in part. */
static void *no_memory(struct caller *c, size_t bytes)
{
	switch (below(&c->rng, 4)) {
	case 0:
		return NULL;
	case 1:
		return (void *)0xffff888000001000;
	case 2:
		return (void *)0x4000000000001000;
	}
	return c->area + AREA - below(&c->rng, (unsigned int)(bytes < AREA ? bytes : AREA));
}

static uint32_t some_ms(struct caller *c, unsigned int least, unsigned int most)
{
	return least + below(&c->rng, most - least + 1);
}

static int valid_bind(struct caller *c)
{
	static const char *const at[] = { "0.0.0.0", WORKERS4, "::", WORKERS6 };
	unsigned int v6 = job_is_v6(job_at(c->place)) ? 2 : 0;
	struct sockaddr_thc a = place(at[v6 + below(&c->rng, 2)], 0, 0, 0);

	return ERRNO_OF(bind(c->fd, (void *)&a, sizeof(a)));
}

static void put_away(struct caller *c, int fd)
{
	if (fd >= 0)
		note(c->storm, CLOSE, ERRNO_OF(close(fd)));
}

/* A new socket replaces the one in the table. */
static int valid_socket(struct caller *c)
{
	int fd = thc_open(one_in(&c->rng, 2) ? SOCK_NONBLOCK : 0);

	if (fd < 0)
		return errno;
	if (!one_in(&c->rng, 8)) {
		set_timeo(fd, SO_RCVTIMEO, some_ms(c, 1, 100));
		set_timeo(fd, SO_SNDTIMEO, some_ms(c, 1, 300));
	}
	set_u32(fd, THC_OPT_JOIN_TIMEOUT, some_ms(c, 50, JOIN_MS));
	set_u32(fd, THC_OPT_TIMEOUT, some_ms(c, 500, 5000));
	c->fd = fd;
	if (one_in(&c->rng, 3))
		note(c->storm, BIND, valid_bind(c));
	put_away(c, __atomic_exchange_n(&places[c->place], fd, __ATOMIC_ACQ_REL));
	return 0;
}

static int valid_close(struct caller *c)
{
	int fd = __atomic_exchange_n(&places[c->place], -1, __ATOMIC_ACQ_REL);

	return ERRNO_OF(close(fd >= 0 ? fd : c->fd));
}

static int valid_connect(struct caller *c)
{
	unsigned int job = job_at(c->place), rank = c->place % RANKS;
	struct sockaddr_thc a = aggregator_of(job, rank);
	bool is_host_job = one_in(&c->rng, 4);

	if (is_host_job)
		a = place(NULL, 0, (uint16_t)job, (uint8_t)rank);
	/* other callers may set the key, too, between these calls */
	note(c->storm, SETSOCKOPT, -set_key(c->fd, job_key, is_host_job ? 0 : sizeof(job_key)));
	return ERRNO_OF(connect(c->fd, (void *)&a, sizeof(a)));
}

static bool is_joined(int fd)
{
	return (poll_now(fd) & (POLLOUT | POLLERR | POLLHUP)) == POLLOUT;
}

void tell_forgers(struct storm *s, unsigned int job, unsigned int rank, int fd)
{
	struct target *t = &s->target[job];
	struct sockaddr_thc name = { 0 };
	struct known_job j;
	socklen_t len = sizeof(name);

	if (!getsockname(fd, (void *)&name, &len))
		t->port[rank] = ntohs(name.sthc_port);
	if (know_job(fd, &j))
		return;
	t->epoch = j.epoch;
	memcpy(t->salt, j.spec.salt, sizeof(t->salt));
	t->group_port = 0;
	if (j.spec.reply != THC_REPLY_MULTICAST || !thc_addr_is_v4(&j.spec.group.addr))
		return;
	t->group_port = be16toh(j.spec.group.port);
	t->group.s_addr = j.spec.group.addr.word[3];
}

static int valid_shutdown(struct caller *c)
{
	return ERRNO_OF(shutdown(c->fd, (int)below(&c->rng, 3)));
}

/* A message that both ranks of a job mostly describe alike. */
static struct thc_send some_message(struct caller *c)
{
	struct thc_send s = describe(THC_OP_ADD, 8, 1, draw(&c->rng));

	if (one_in(&c->rng, 4)) {
		s.op = THC_OP_MAX;
		s.width = 32;
	} else if (one_in(&c->rng, 64)) {
		s.op = THC_OP_OR;
		s.width = 32;
	}
	return s;
}

static int valid_sendmsg(struct caller *c)
{
	static const int flags[] = { 0, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_EOR | MSG_DONTWAIT };
	size_t chunks = one_in(&c->rng, 6) ? 1 + below(&c->rng, CALL_CHUNKS) : 1;
	struct thc_send s = some_message(c);
	size_t stride = LANES, bytes;
	ssize_t sent;

	if (one_in(&c->rng, 8)) {
		s.stride = (uint16_t)(LANES + below(&c->rng, LANES));
		stride = s.stride;
	}
	bytes = (chunks - 1) * stride + LANES;
	sent = send_with(c->fd, some_memory(c, bytes), bytes, &s, sizeof(s), THC_SEND,
			 flags[below(&c->rng, 4)]);
	return sent < 0 ? (int)-sent : 0;
}

/* The buffers for lanes and description may be too small or missing. */
static int valid_recvmsg(struct caller *c)
{
	static const int flags[] = { 0, MSG_DONTWAIT, MSG_PEEK | MSG_DONTWAIT, MSG_TRUNC };
	size_t bytes = one_in(&c->rng, 4) ? 1 + below(&c->rng, AREA / 2) : CALL_CHUNKS * ANSWER;
	char control[128];
	struct iovec iov[2] = { { .iov_base = some_memory(c, bytes), .iov_len = bytes / 2 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	ssize_t got;

	iov[1].iov_base = (uint8_t *)iov[0].iov_base + bytes / 2;
	iov[1].iov_len = bytes - bytes / 2;
	if (one_in(&c->rng, 16))
		iov[1].iov_base = no_memory(c, bytes);
	if (one_in(&c->rng, 16))
		msg.msg_control = no_memory(c, sizeof(control));
	if (one_in(&c->rng, 8))
		msg.msg_controllen = below(&c->rng, sizeof(control));
	got = recvmsg(c->fd, &msg, flags[below(&c->rng, 4)]);
	/* the end, after shutdown(), is no message */
	return got < 0 ? errno : got ? 0 : ENODATA;
}

/* One message of both ranks, which others may take, or spoil. */
static void sum_both(struct caller *c, int here, int there)
{
	const int fd[RANKS] = { here, there };
	struct thc_received r;
	ssize_t done;
	int i;

	for (i = 0; i < RANKS; i++) {
		done = send_message(fd[i], some_memory(c, LANES), LANES, &add8, MSG_DONTWAIT);
		note(c->storm, SENDMSG, done < 0 ? (int)-done : 0);
	}
	set_timeo(here, SO_RCVTIMEO, 1000);
	done = receive_message(here, some_memory(c, ANSWER), ANSWER, &r, 0, NULL);
	note(c->storm, RECVMSG, done < 0 ? (int)-done : done ? 0 : ENODATA);
}

/* The second rank of the pair, which begins to join; its socket. */
static int begin_other(struct caller *c)
{
	unsigned int here = c->place, other = here ^ 1;
	struct sockaddr_thc a = aggregator_of(job_at(other), other % RANKS);
	int error;

	c->place = other;
	c->fd = __atomic_load_n(&places[other], __ATOMIC_ACQUIRE);
	if (c->fd < 0)
		note(c->storm, SOCKET, valid_socket(c));
	c->place = here;
	set_u32(c->fd, THC_OPT_JOIN_TIMEOUT, BOTH_JOIN_MS);
	set_key(c->fd, job_key, sizeof(job_key));
	error = begin_join(c->fd, &a);
	note(c->storm, CONNECT, error ? -error : EINPROGRESS);
	return c->fd;
}

static int finish_both(struct caller *c, int here)
{
	struct sockaddr_thc a = aggregator_of(job_at(c->place), c->place % RANKS);
	int error;

	set_nonblock(here, false);
	set_timeo(here, SO_SNDTIMEO, BOTH_JOIN_MS);
	set_u32(here, THC_OPT_JOIN_TIMEOUT, BOTH_JOIN_MS);
	error = ERRNO_OF(connect(here, (void *)&a, sizeof(a)));
	/* connect() after a signal goes on waiting */
	while (error == EINTR) {
		note(c->storm, CONNECT, error);
		error = ERRNO_OF(connect(here, (void *)&a, sizeof(a)));
	}
	return error;
}

/* Both ranks of a job meet; few callers at a time, see JOIN_MS. */
static int connect_both(struct caller *c)
{
	unsigned int job = job_at(c->place), rank = c->place % RANKS, n;
	static unsigned int joining;
	int there, here, error;

	there = __atomic_load_n(&places[c->place ^ 1], __ATOMIC_ACQUIRE);
	if (is_joined(there) && is_joined(c->fd) && !one_in(&c->rng, 8)) {
		sum_both(c, c->fd, there);
		return 0;
	}
	if (__atomic_fetch_add(&joining, 1, __ATOMIC_ACQ_REL) < BOTH_JOINING) {
		note(c->storm, SOCKET, valid_socket(c));
		here = c->fd;
		there = begin_other(c);
		error = note(c->storm, CONNECT, finish_both(c, here));
		for (n = error ? 0 : 1 + below(&c->rng, 8); n; n--)
			sum_both(c, here, there);
		tell_forgers(c->storm, job, rank, here);
		tell_forgers(c->storm, job, rank ^ 1, there);
	}
	__atomic_fetch_sub(&joining, 1, __ATOMIC_ACQ_REL);
	return 0;
}

int valid_poll(struct caller *c)
{
	struct pollfd p[2] = { { .fd = c->fd, .events = (short)below(&c->rng, 0x2000) },
			       { .fd = places[below(&c->rng, PLACES)], .events = POLLIN } };

	return ERRNO_OF(poll(p, 2, (int)below(&c->rng, 20)));
}

int valid_epoll(struct caller *c)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP };
	int epoll = epoll_create1(EPOLL_CLOEXEC), error;

	if (one_in(&c->rng, 2))
		e.events |= EPOLLET;
	error = ERRNO_OF(epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e));
	if (!error)
		error = ERRNO_OF(epoll_wait(epoll, &e, 1, (int)below(&c->rng, 20)));
	close(epoll);
	return error;
}

int valid_getsockopt(struct caller *c)
{
	int option = THC_OPT_TIMEOUT + (int)below(&c->rng, THC_OPT_FAILURE);
	socklen_t len = sizeof(struct described_job);
	void *room = some_memory(c, len);

	if (one_in(&c->rng, 4))
		return ERRNO_OF(getsockopt(c->fd, SOL_SOCKET, SO_ERROR, room, &len));
	return ERRNO_OF(getsockopt(c->fd, SOL_THC, option, room, &len));
}

static int valid_setsockopt(struct caller *c)
{
	uint64_t memory = one_in(&c->rng, 4) ? 256ULL << 20 : 1 + below(&c->rng, 1 << 18);

	switch (below(&c->rng, 6)) {
	case 0:
		return -set_u32(c->fd, THC_OPT_TIMEOUT, some_ms(c, 100, 5000));
	case 1:
		return -set_u32(c->fd, THC_OPT_JOIN_TIMEOUT, some_ms(c, 50, JOIN_MS));
	case 2:
		return -set_u32(c->fd, THC_OPT_WINDOW, below(&c->rng, 2 * JOB_SLOTS));
	case 3:
		return -set_u32(c->fd, THC_OPT_PARTIAL, below(&c->rng, 2));
	case 4:
		return -set_key(c->fd, job_key, one_in(&c->rng, 4) ? 0 : sizeof(job_key));
	}
	return ERRNO_OF(setsockopt(c->fd, SOL_THC, THC_OPT_MEMORY, &memory, sizeof(memory)));
}

static int valid_ioctl(struct caller *c)
{
	int on = (int)below(&c->rng, 2);

	return ERRNO_OF(ioctl(c->fd, FIONBIO, &on));
}

int valid_getname(struct caller *c)
{
	struct sockaddr_thc name;
	socklen_t len = sizeof(name);

	return one_in(&c->rng, 2) ? ERRNO_OF(getsockname(c->fd, (void *)&name, &len)) :
				    ERRNO_OF(getpeername(c->fd, (void *)&name, &len));
}

/* A second descriptor of the socket works even if another caller closes the first. */
static int valid_dup(struct caller *c)
{
	int fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	c->fd = fd;
	note(c->storm, SENDMSG, valid_sendmsg(c));
	note(c->storm, RECVMSG, valid_recvmsg(c));
	close(fd);
	return 0;
}

static int bad_socket(struct caller *c)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, 77, 0x100 };
	int protocol = 1 + (int)below(&c->rng, 300);

	return one_in(&c->rng, 2) ?
		       ERRNO_OF(socket(AF_THC, SOCK_SEQPACKET, protocol)) :
		       ERRNO_OF(socket(AF_THC, types[below(&c->rng, 5)] | SOCK_CLOEXEC, 0));
}

/* Makes an address that neither bind() nor connect() accepts; *@bytes: its length. */
static void spoil_address(struct caller *c, struct sockaddr_thc *a, socklen_t *bytes)
{
	switch (below(&c->rng, 7)) {
	case 0:
		*bytes = below(&c->rng, sizeof(*a));
		break;
	case 1:
		*bytes = 0x80000000 + below(&c->rng, 1000);
		break;
	case 2:
		a->sthc_family ^= (uint16_t)(1 + below(&c->rng, 0xffff));
		break;
	case 3:
		a->sthc_inet = (uint16_t)(20 + below(&c->rng, 1000));
		break;
	case 4:
		a->sthc_reserved[below(&c->rng, 3)] = 1;
		break;
	case 5:
		a->sthc_reserved2[below(&c->rng, 8)] = 1;
		break;
	default:
		a->sthc_ifindex = 0x80000000 + below(&c->rng, 1000);
	}
}

int bad_bind(struct caller *c)
{
	struct sockaddr_thc a = place(WORKERS4, 0, 0, 0);
	socklen_t bytes = sizeof(a);

	if (one_in(&c->rng, 4))
		return ERRNO_OF(bind(c->fd, no_memory(c, sizeof(a)), sizeof(a)));
	spoil_address(c, &a, &bytes);
	return ERRNO_OF(bind(c->fd, (void *)&a, bytes));
}

int bad_connect(struct caller *c)
{
	static const char *const nobody[] = { "0.0.0.0", "255.255.255.255", "224.0.0.1",
					      "::",	 "ff02::1",	    "::ffff:10.79.0.1" };
	struct sockaddr_thc a = aggregator_of(job_at(c->place), c->place % RANKS);
	socklen_t bytes = sizeof(a);

	switch (below(&c->rng, 4)) {
	case 0:
		return ERRNO_OF(connect(c->fd, no_memory(c, sizeof(a)), sizeof(a)));
	case 1:
		a = place(nobody[below(&c->rng, 6)], PORT, JOB_WILD, 0);
		break;
	case 2:
		a.sthc_rank = (uint8_t)(THC_RANKS_MAX + below(&c->rng, 100));
		break;
	default:
		spoil_address(c, &a, &bytes);
	}
	return ERRNO_OF(connect(c->fd, (void *)&a, bytes));
}

/* A message with one mistake. */
static int bad_message(struct caller *c)
{
	size_t bytes = 4 * LANES, length = sizeof(struct thc_send);
	void *payload = some_memory(c, bytes);
	struct thc_send s = some_message(c);
	int type = THC_SEND, flags = 0;
	ssize_t sent;

	switch (below(&c->rng, 8)) {
	case 0:
		payload = no_memory(c, bytes);
		break;
	case 1:
		bytes -= 1 + below(&c->rng, LANES - 1);
		break;
	case 2:
		bytes = 0;
		break;
	case 3:
		s.op = (uint8_t)(THC_OP_DATA_MAX + 1 + below(&c->rng, 200));
		break;
	case 4:
		s.width = (uint8_t)(33 + below(&c->rng, 200));
		break;
	case 5:
		s.stride = (uint16_t)(1 + below(&c->rng, LANES - 1));
		break;
	case 6:
		length = below(&c->rng, 64) ?: 1;
		length += length == sizeof(s);
		break;
	default:
		flags = one_in(&c->rng, 2) ? MSG_OOB : MSG_ZEROCOPY;
	}
	sent = send_with(c->fd, payload, bytes, length > sizeof(s) ? (void *)c->area : &s, length,
			 type, flags | MSG_DONTWAIT);
	return sent < 0 ? (int)-sent : 0;
}

int bad_sendmsg(struct caller *c)
{
	struct iovec iov = { .iov_base = c->area, .iov_len = LANES };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct sockaddr_thc a = aggregator_of(JOB_WILD, 0);

	switch (below(&c->rng, 10)) {
	case 0:
		return ERRNO_OF(sendmsg(c->fd, no_memory(c, sizeof(msg)), MSG_DONTWAIT));
	case 1:
		msg.msg_control = no_memory(c, CMSG_SPACE(sizeof(struct thc_send)));
		msg.msg_controllen = CMSG_SPACE(sizeof(struct thc_send));
		break;
	case 2:
		msg.msg_control = c->area;
		msg.msg_controllen = 1 + below(&c->rng, 0xffffffff);
		break;
	case 3:
		msg.msg_iovlen = 1025 + below(&c->rng, 1 << 20);
		break;
	case 4:
		msg.msg_iov = no_memory(c, sizeof(iov));
		break;
	case 5:
		msg.msg_name = &a;
		msg.msg_namelen = sizeof(a);
		break;
	default:
		return bad_message(c);
	}
	return ERRNO_OF(sendmsg(c->fd, &msg, MSG_DONTWAIT));
}

int bad_recvmsg(struct caller *c)
{
	static const int flags[] = { MSG_OOB, MSG_WAITALL, MSG_ERRQUEUE, 1 << 20 };
	struct msghdr msg = { .msg_iov = no_memory(c, sizeof(struct iovec)), .msg_iovlen = 1 };

	switch (below(&c->rng, 4)) {
	case 0:
		return ERRNO_OF(recvmsg(c->fd, no_memory(c, sizeof(msg)), MSG_DONTWAIT));
	case 1:
		return ERRNO_OF(recvmsg(c->fd, &msg, MSG_DONTWAIT));
	}
	msg.msg_iovlen = 0;
	return ERRNO_OF(recvmsg(c->fd, &msg, flags[below(&c->rng, 4)] | MSG_DONTWAIT));
}

static int bad_poll(struct caller *c)
{
	return one_in(&c->rng, 2) ? ERRNO_OF(poll(no_memory(c, sizeof(struct pollfd)), 1, 0)) :
				    ERRNO_OF(poll((void *)c->area, 1 << 30, 0));
}

int bad_getsockopt(struct caller *c)
{
	int option = THC_OPT_TIMEOUT + (int)below(&c->rng, THC_OPT_FAILURE);
	socklen_t len = sizeof(struct described_job);

	switch (below(&c->rng, 5)) {
	case 0:
		return ERRNO_OF(getsockopt(c->fd, SOL_THC, option, no_memory(c, 4), &len));
	case 1:
		return ERRNO_OF(getsockopt(c->fd, SOL_THC, option, c->area, no_memory(c, 4)));
	case 2:
		len = below(&c->rng, 4);
		break;
	case 3:
		len = 0x80000000 + below(&c->rng, 1000);
		break;
	default:
		option = THC_OPT_FAILURE + 1 + (int)below(&c->rng, 100);
	}
	return ERRNO_OF(getsockopt(c->fd, SOL_THC, option, c->area, &len));
}

int bad_setsockopt(struct caller *c)
{
	static const int word[] = { THC_OPT_TIMEOUT, THC_OPT_JOIN_TIMEOUT, THC_OPT_WINDOW,
				    THC_OPT_PARTIAL };
	int option = word[below(&c->rng, 4)];
	uint64_t none = 0;

	switch (below(&c->rng, 7)) {
	case 0:
		return ERRNO_OF(setsockopt(c->fd, SOL_THC, option, no_memory(c, 4), 4));
	case 1:
		return ERRNO_OF(
			setsockopt(c->fd, SOL_THC, option, c->area, 5 + below(&c->rng, 1000)));
	case 2:
		return ERRNO_OF(setsockopt(c->fd, SOL_THC, THC_OPT_MEMORY, &none, sizeof(none)));
	case 3:
		option = THC_OPT_WELCOME + (int)below(&c->rng, 100);
		return ERRNO_OF(setsockopt(c->fd, SOL_THC, option, c->area, 4));
	case 4:
		return -set_key(c->fd, c->area, THC_KEY_BYTES + 1 + below(&c->rng, 1000));
	case 5:
		return -set_key(c->fd, no_memory(c, THC_KEY_BYTES), THC_KEY_BYTES);
	}
	option = one_in(&c->rng, 2) ? THC_OPT_WINDOW : THC_OPT_PARTIAL;
	return -set_u32(c->fd, option, THC_SLOTS_MAX + 1 + below(&c->rng, 1000));
}

int bad_ioctl(struct caller *c)
{
	static const unsigned long number[] = { FIONREAD, SIOCOUTQ, SIOCATMARK, 0x12345678 };

	return ERRNO_OF(ioctl(c->fd, number[below(&c->rng, 4)],
			      one_in(&c->rng, 2) ? c->area : no_memory(c, 4)));
}

static int bad_dup(struct caller *c)
{
	return one_in(&c->rng, 2) ? ERRNO_OF(dup(-1)) :
				    ERRNO_OF(fcntl(c->fd, F_DUPFD_CLOEXEC, 1 << 30));
}

static int bad_close(struct caller *c)
{
	return ERRNO_OF(close((1 << 29) + (int)below(&c->rng, 1 << 29)));
}

int foreign_call(struct caller *c)
{
	int pair[2];

	switch (below(&c->rng, 5)) {
	case 0:
		return ERRNO_OF(listen(c->fd, 1));
	case 1:
		return ERRNO_OF(accept(c->fd, NULL, NULL));
	case 2:
		return ERRNO_OF(socketpair(AF_THC, SOCK_SEQPACKET, 0, pair));
	case 3:
		return mmap(NULL, 4096, PROT_READ, MAP_SHARED, c->fd, 0) == MAP_FAILED ? errno : 0;
	}
	return ERRNO_OF(write(c->fd, c->area, LANES));
}

static const struct call calls[] = {
	{ 30, SENDMSG, valid_sendmsg },	    { 30, RECVMSG, valid_recvmsg },
	{ 3, CONNECT, valid_connect },	    { 6, KINDS, connect_both },
	{ 2, SOCKET, valid_socket },	    { 2, BIND, valid_bind },
	{ 6, POLL, valid_poll },	    { 4, EPOLL, valid_epoll },
	{ 6, GETSOCKOPT, valid_getsockopt }, { 4, SETSOCKOPT, valid_setsockopt },
	{ 3, IOCTL, valid_ioctl },	    { 4, GETNAME, valid_getname },
	{ 1, SHUTDOWN, valid_shutdown },    { 4, DUP, valid_dup },
	{ 2, CLOSE, valid_close },	    { 2, BAD_SOCKET, bad_socket },
	{ 2, BAD_BIND, bad_bind },	    { 2, BAD_CONNECT, bad_connect },
	{ 8, BAD_SENDMSG, bad_sendmsg },    { 4, BAD_RECVMSG, bad_recvmsg },
	{ 1, BAD_POLL, bad_poll },	    { 3, BAD_GETSOCKOPT, bad_getsockopt },
	{ 3, BAD_SETSOCKOPT, bad_setsockopt }, { 1, BAD_IOCTL, bad_ioctl },
	{ 1, BAD_SHUTDOWN, bad_shutdown },  { 1, BAD_DUP, bad_dup },
	{ 1, BAD_CLOSE, bad_close },	    { 2, FOREIGN, foreign_call },
};

#define CALLS	(sizeof(calls) / sizeof(calls[0]))

static size_t some_call(struct rng *r)
{
	unsigned int all = 0, at;
	size_t i;

	for (i = 0; i < CALLS; i++)
		all += calls[i].weight;
	at = below(r, all);
	for (i = 0; at >= calls[i].weight; i++)
		at -= calls[i].weight;
	return i;
}

static void *call_forever(void *arg)
{
	struct caller *c = arg;
	size_t n, i;
	int error;

	for (n = 0;; n++) {
		/* each call once, then at random */
		i = n < CALLS ? n : some_call(&c->rng);
		c->place = below(&c->rng, PLACES);
		c->fd = __atomic_load_n(&places[c->place], __ATOMIC_ACQUIRE);
		if (c->fd < 0)
			note(c->storm, SOCKET, valid_socket(c));
		error = calls[i].make(c);
		if (calls[i].kind < KINDS)
			note(c->storm, calls[i].kind, error);
	}
	return NULL;
}

static void on_interrupt(int number)
{
	(void)number;
}

int run_callers(struct storm *s, struct rng r)
{
	struct sigaction act = { .sa_handler = on_interrupt };
	static struct caller caller[CALLERS];
	unsigned int i;

	sigaction(SIGUSR1, &act, NULL);
	sigaction(SIGPIPE, &act, NULL);
	memset(places, 0xff, sizeof(places));
	for (i = 0; i < CALLERS; i++) {
		caller[i].storm = s;
		caller[i].rng.state = draw(&r);
		caller[i].area = make_area();
		if (!caller[i].area ||
		    pthread_create(&caller[i].thread, NULL, call_forever, &caller[i]))
			return 1;
	}
	for (;;) {
		sleep_ms(1 + below(&r, 200));
		pthread_kill(caller[below(&r, CALLERS)].thread, SIGUSR1);
	}
}
