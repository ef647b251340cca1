// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes the system calls of AF_THC sockets. An input is a sequence of calls on a few
 * sockets: options of any number, length and value, addresses that fit or not, messages,
 * queries and calls that the family does not have, on sockets that are idle, joining,
 * joined to an aggregator that is this program, and broken. A model has what each socket
 * was told:
 *	- setsockopt() succeeds exactly for the options, lengths and values of af_thc(7), and
 *	  getsockopt() returns the value that was set last;
 *	- getsockopt() and getsockname() write no byte beyond the length that they return;
 *	- bind() and connect() take no address with a byte that has to be zero;
 *	- connect() to a host job takes no socket with a key; nothing that is read shows a key;
 *	- calls without a meaning here fail.
 */
#include <linux/sockios.h>

#include "fake.h"
#include "seeded.h"

#define SOCKETS		3
#define CALLS_MAX	40	/* calls of an input */
#define INPUTS		200
#define OPTIONS		(THC_OPT_PARTIAL + 1)
#define GUARD		0xa5
#define MEMORY_MAX	(4ULL << 30)
#define NOBODY		(PORT + 1000)	/* a port at which no aggregator listens */

/* What the model knows of a socket. */
static struct told {
	int		fd;		/* -1: closed */
	uint64_t	option[OPTIONS];
	bool		has_key;
	bool		bound;
	bool		connected;	/* connect() may have begun something */
} told[SOCKETS];

static int udp;			/* the aggregator's */
static uint8_t area[1 << 16];	/* lanes in and out */

enum deed {
	DO_OPEN,
	DO_CLOSE,
	DO_SET,
	DO_GET,
	DO_BIND,
	DO_CONNECT,
	DO_JOIN,
	DO_SEND,
	DO_RECEIVE,
	DO_ANSWER,
	DO_POLL,
	DO_NAME,
	DO_SHUT,
	DO_IOCTL,
	DO_OTHER,
};

/* --- sockets ---------------------------------------------------------------------- */

static void open_one(struct told *t)
{
	t->fd = thc_open(SOCK_NONBLOCK);
	require(t->fd >= 0);
	t->option[THC_OPT_TIMEOUT] = 60000;
	t->option[THC_OPT_JOIN_TIMEOUT] = 60000;
	t->option[THC_OPT_WINDOW] = 0;
	t->option[THC_OPT_MEMORY] = 256 << 20;
	t->option[THC_OPT_PARTIAL] = 0;
	t->has_key = true;
	t->bound = t->connected = false;
}

static void close_one(struct told *t)
{
	if (t->fd >= 0)
		require(!close(t->fd));
	t->fd = -1;
}

/* --- options ---------------------------------------------------------------------- */

static uint64_t some_value(struct bytes *b)
{
	static const uint64_t values[] = { 0,	       1,	   2,	       4095,
					   4096,       4097,	   60000,      UINT32_MAX,
					   1ULL << 28, 1ULL << 32, 1ULL << 40, UINT64_MAX };
	uint8_t what = take(b);

	return what < 200 ? values[what % (sizeof(values) / sizeof(values[0]))] : take_bytes(b, 4);
}

static bool is_valid(int option, socklen_t len, uint64_t value)
{
	switch (option) {
	case THC_OPT_TIMEOUT:
	case THC_OPT_JOIN_TIMEOUT:
		return len == 4 && (uint32_t)value;
	case THC_OPT_WINDOW:
		return len == 4 && (uint32_t)value <= THC_SLOTS_MAX;
	case THC_OPT_PARTIAL:
		return len == 4 && (uint32_t)value <= 1;
	case THC_OPT_MEMORY:
		/* root may go beyond the default */
		return len == 8 && value && value <= MEMORY_MAX;
	case THC_OPT_KEY:
		return !len || len == THC_KEY_BYTES;
	}
	return false;
}

static int some_option(struct bytes *b)
{
	uint8_t what = take(b);

	return what < 250 ? what % 11 : (int)take_bytes(b, 4);
}

static socklen_t some_length(struct bytes *b, int option)
{
	static const socklen_t lengths[] = { 0,	 1,  3,	 4,  5,	  7,   8,   9,	 31,
					     32, 33, 40, 80, 168, 199, 200, 4096 };
	uint8_t what = take(b);

	if (what < 180 && option == THC_OPT_KEY)
		return what < 40 ? 0 : THC_KEY_BYTES;
	if (what < 180)
		return option == THC_OPT_MEMORY ? 8 : 4;
	return what < 250 ? lengths[what % (sizeof(lengths) / sizeof(lengths[0]))] :
			    (socklen_t)take_bytes(b, 4);
}

static int set_option(struct told *t, struct bytes *b)
{
	int option = some_option(b), level = take(b) < 230 ? SOL_THC : SOL_THC + 1, error;
	socklen_t len = some_length(b, option);
	uint64_t value = some_value(b);

	memset(area, 0, THC_KEY_BYTES);
	memcpy(area, &value, sizeof(value));
	error = setsockopt(t->fd, level, option, area, len) ? -errno : 0;
	require(!error == (level == SOL_THC && is_valid(option, len, value)));
	if (!error && option == THC_OPT_KEY)
		t->has_key = len;
	else if (!error)
		t->option[option] = len == 4 ? (uint32_t)value : value;
	return error;
}

/* Bytes that getsockopt() returns; 0 if there is no such option. */
static socklen_t size_of(int option)
{
	switch (option) {
	case THC_OPT_MEMORY:
		return 8;
	case THC_OPT_WELCOME:
		/* fake_join()'s has these records */
		return sizeof(struct thc_job_info) + sizeof(struct whole_welcome) -
		       sizeof(struct thc_welcome);
	case THC_OPT_STATS:
		return sizeof(struct thc_socket_stats);
	case THC_OPT_FAILURE:
		return sizeof(struct thc_failure);
	}
	return option >= THC_OPT_TIMEOUT && option <= THC_OPT_PARTIAL ? 4 : 0;
}

static void require_guarded(socklen_t from)
{
	socklen_t i;

	for (i = from; i < 512; i++)
		require(area[i] == GUARD);
}

static int get_option(struct told *t, struct bytes *b)
{
	int option = some_option(b), level = take(b) < 230 ? SOL_THC : SOL_THC + 1, error;
	socklen_t room = take(b) & 1 ? some_length(b, option) : 256, len = room;
	uint64_t value = 0;

	memset(area, GUARD, 512);
	error = getsockopt(t->fd, level, option, area, &len) ? -errno : 0;
	if (error) {
		require(level != SOL_THC || !size_of(option) || room < size_of(option) ||
			room > INT32_MAX || (option == THC_OPT_WELCOME && error == -ENOTCONN));
		require_guarded(0);
		return error;
	}
	require(level == SOL_THC && size_of(option) && len == size_of(option) && room >= len);
	require_guarded(len);
	memcpy(&value, area, len < 8 ? len : 8);
	require(option > THC_OPT_PARTIAL || value == t->option[option]);
	return 0;
}

/* --- addresses -------------------------------------------------------------------- */

static struct sockaddr_thc some_address(struct bytes *b, bool bind, socklen_t *len, bool *spoilt)
{
	uint8_t what = take(b), n = what >> 4 & 3;
	struct sockaddr_thc a = bind ? place("127.0.0.1", what & 3 ? 0 : PORT + 7, 0, 0) :
				       place("127.0.0.1", NOBODY, 1, what & 3);

	if (!bind && what & 4)
		a = place(NULL, 0, what & 3, 0);
	*len = sizeof(a);
	*spoilt = n || (what & 0xc0) == 0xc0;
	while (n--)
		((uint8_t *)&a)[take(b) % sizeof(a)] ^= take(b);
	if ((what & 0xc0) == 0xc0)
		*len = (socklen_t)take_bytes(b, 1 + (what & 1));
	return a;
}

static bool has_reserved(const struct sockaddr_thc *a)
{
	return a->sthc_reserved[0] || a->sthc_reserved[1] || a->sthc_reserved[2] ||
	       memcmp(a->sthc_reserved2, (char[8]){ 0 }, 8);
}

/* Is a reserved byte of the address not zero? */
static bool has_waste(const struct sockaddr_thc *a, socklen_t len, bool bind)
{
	unsigned int used = a->sthc_inet == AF_INET ? 4 : a->sthc_inet == AF_INET6 ? 16 : 0, i;

	if (len != sizeof(*a) || a->sthc_family != AF_THC || has_reserved(a) ||
	    a->sthc_ifindex > INT32_MAX)
		return true;
	for (i = used; i < sizeof(a->sthc_addr); i++)
		if (a->sthc_addr[i])
			return true;
	if (bind)
		return !used || a->sthc_job || a->sthc_rank;
	return !used && (a->sthc_inet || a->sthc_port || a->sthc_ifindex);
}

static int bind_one(struct told *t, struct bytes *b)
{
	struct sockaddr_thc a;
	socklen_t len;
	bool spoilt;
	int error;

	a = some_address(b, true, &len, &spoilt);
	memset(area, 0, 512);
	memcpy(area, &a, sizeof(a));
	error = bind(t->fd, (void *)area, len) ? -errno : 0;
	require(error || (!has_waste(&a, len, true) && !t->bound));
	if (!t->connected)
		require(!error == (!has_waste(&a, len, true) && !t->bound));
	t->bound |= !error;
	return error;
}

/* Begins to join, mostly where no aggregator is: then the join ends late. */
static int connect_one(struct told *t, struct bytes *b)
{
	struct sockaddr_thc a;
	socklen_t len;
	bool spoilt;
	int error;

	a = some_address(b, false, &len, &spoilt);
	if (!spoilt && take(b) & 7)
		len = 0;
	memset(area, 0, 512);
	memcpy(area, &a, sizeof(a));
	error = connect(t->fd, (void *)area, len) ? -errno : 0;
	/* no aggregator has answered yet */
	require(error || t->connected);
	if (error == -EINPROGRESS || error == -EALREADY)
		require(!has_waste(&a, len, false) && a.sthc_rank < THC_RANKS_MAX &&
			(a.sthc_inet || !t->has_key));
	t->connected |= error != -EINVAL;
	return error;
}

/* Joins this program if the input says so, which is rare. */
static int join_us(struct told *t, struct bytes *b)
{
	struct sockaddr_in worker;
	int error;

	if (t->bound || t->connected || take(b) & 7)
		return 1;
	t->connected = true;
	t->option[THC_OPT_JOIN_TIMEOUT] = 1000;
	t->has_key = true;
	require(!set_u32(t->fd, THC_OPT_JOIN_TIMEOUT, 1000));
	require(!set_key(t->fd, job_key, sizeof(job_key)));
	error = fake_join(t->fd, udp, &worker);
	set_nonblock(t->fd, true);
	return error;
}

static int name_one(struct told *t, struct bytes *b)
{
	uint8_t what = take(b);
	struct sockaddr_thc a;
	socklen_t len = what & 4 ? take(b) : sizeof(a), room = len;
	int error;

	memset(area, GUARD, 512);
	error = (what & 1 ? getpeername : getsockname)(t->fd, (void *)area, &len) ? -errno : 0;
	if (error) {
		require(what & 1 && error == -ENOTCONN);
		require_guarded(0);
		return error;
	}
	require(len == sizeof(a));
	require_guarded(room < len ? room : len);
	memcpy(&a, area, sizeof(a));
	require(room < sizeof(a) || !has_reserved(&a));
	return 0;
}

/* --- messages --------------------------------------------------------------------- */

static int send_something(struct told *t, struct bytes *b)
{
	char control[CMSG_SPACE(sizeof(struct thc_send)) * 2] __attribute__((aligned(8)));
	struct iovec iov = { .iov_base = area };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control };
	struct thc_send send = { .round = 1 };
	struct cmsghdr *c = (void *)control;
	uint8_t what = take(b);
	ssize_t n;

	send.op = (uint8_t)(1 + (what & 3));
	send.width = send.op == THC_OP_LUT_ADD ? 4 : send.op == THC_OP_ADD ? 8 : 32;
	iov.iov_len = (send.op == THC_OP_LUT_ADD ? 512 : 1024) * (size_t)(1 + (what >> 2 & 7));
	memset(control, 0, sizeof(control));
	c->cmsg_len = CMSG_LEN(sizeof(send));
	c->cmsg_level = SOL_THC;
	c->cmsg_type = THC_SEND;
	m.msg_controllen = CMSG_SPACE(sizeof(send));
	if (what & 0x20) {
		uint8_t at = take(b) % sizeof(send);

		((uint8_t *)&send)[at] ^= take(b);
	}
	memcpy(CMSG_DATA(c), &send, sizeof(send));
	if (what & 0x40) {
		iov.iov_len = (size_t)take_bytes(b, 2);
		control[take(b) % sizeof(struct cmsghdr)] ^= (char)take(b);
		m.msg_controllen = take(b) % (sizeof(control) + 1);
	}
	n = sendmsg(t->fd, &m, MSG_NOSIGNAL | (what & 0x80 ? (int)take_bytes(b, 3) : 0));
	if (n < 0)
		return -errno;
	require(t->connected && (size_t)n == iov.iov_len);
	return 0;
}

static int receive_something(struct told *t, struct bytes *b)
{
	uint8_t what = take(b);
	size_t room = what & 1 ? (size_t)take_bytes(b, 2) : sizeof(area) - 1;
	char control[128];
	struct iovec iov = { .iov_base = area, .iov_len = room };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = what & 2 ? take(b) % sizeof(control) : 128 };
	ssize_t n;

	area[room] = GUARD;
	n = recvmsg(t->fd, &m, what & 4 ? (int)take_bytes(b, 3) : 0);
	require(area[room] == GUARD);
	if (n < 0)
		return -errno;
	require(t->connected && (size_t)n <= sizeof(area) * 2);
	return n ? 2 : 1;
}

/* Answers the requests received so far, rightly or wrongly. */
static int answer_some(struct bytes *b)
{
	uint8_t what = take(b), most = 8;
	struct chunk_packet request, answer;
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	int answered = 0;

	while (most-- && recvfrom(udp, &request, sizeof(request), MSG_DONTWAIT, (void *)&from,
				  &len) >= (ssize_t)sizeof(request.h)) {
		if (request.h.op == THC_OP_JOIN || request.h.op == THC_OP_LEAVE)
			continue;
		fake_answer(&answer, &request.h, 3, what);
		answer.h.width = request.h.op == THC_OP_LUT_ADD ? 8 : request.h.width;
		if (what & 3)
			((uint8_t *)&answer.h)[take(b) % sizeof(answer.h)] ^= take(b);
		if (what & 4)
			tag_answer(fake_seals(), &answer.h, sizeof(answer));
		answered += !send_one(udp, &from, &answer, sizeof(answer));
	}
	return answered;
}

/* --- the rest --------------------------------------------------------------------- */

static int ask_poll(struct told *t)
{
	short events = poll_now(t->fd);

	require(events >= 0 && !(events & POLLNVAL));
	require(t->connected || events & POLLHUP);
	return events;
}

static int some_ioctl(struct told *t, struct bytes *b)
{
	static const unsigned long known[] = { SIOCINQ, SIOCOUTQ, SIOCATMARK, 0x89e0 };
	uint8_t what = take(b);
	unsigned long number = what < 128 ? known[what % 4] : 0x8a00 + take_bytes(b, 1);

	memset(area, 0, 512);
	require(ioctl(t->fd, number, area) < 0);
	return -errno;
}

static int other_call(struct told *t, struct bytes *b)
{
	int pair[2], error = 0;

	switch (take(b) % 6) {
	case 0:
		error = listen(t->fd, 1);
		break;
	case 1:
		error = accept4(t->fd, NULL, NULL, 0);
		break;
	case 2:
		error = socketpair(AF_THC, SOCK_SEQPACKET, 0, pair);
		break;
	case 3:
		error = socket(AF_THC, take(b) % 12, take(b));
		/* the only type and protocol of the family */
		if (error >= 0)
			return close(error);
		break;
	case 4:
		error = (int)read(t->fd, area, 64);
		if (error > 0) {
			require(t->connected);
			return 1;
		}
		break;
	case 5:
		error = (int)write(t->fd, area, 64);
		break;
	}
	require(error <= 0);
	return error ? -errno : 0;
}

static int shut(struct told *t, struct bytes *b)
{
	uint8_t what = take(b);
	int how = what & 8 ? (int)what : what % 3, error = shutdown(t->fd, how) ? -errno : 0;

	require(!error == (how >= SHUT_RD && how <= SHUT_RDWR));
	return error;
}

static const uint8_t often[] = {
	DO_SET,	    DO_SET,	DO_SET,	   DO_SET,     DO_GET,	 DO_GET,   DO_GET,   DO_GET,
	DO_BIND,    DO_BIND,	DO_BIND,   DO_CONNECT, DO_NAME,	 DO_NAME,  DO_SEND,  DO_SEND,
	DO_RECEIVE, DO_RECEIVE, DO_POLL,   DO_SHUT,    DO_IOCTL, DO_OTHER, DO_OTHER, DO_OPEN,
	DO_CLOSE,   DO_JOIN,	DO_ANSWER, DO_ANSWER,  DO_SEND,	 DO_SET,   DO_GET,   DO_BIND,
};

static void call(struct bytes *b)
{
	uint8_t what = take(b);
	struct told *t = &told[what % SOCKETS];
	enum deed deed = often[what / SOCKETS % (sizeof(often) / sizeof(often[0]))];
	int result = 0;

	if (t->fd < 0 && deed != DO_ANSWER)
		deed = DO_OPEN;
	switch (deed) {
	case DO_OPEN:
		if (t->fd < 0)
			open_one(t);
		break;
	case DO_CLOSE:
		close_one(t);
		break;
	case DO_SET:
		result = set_option(t, b);
		break;
	case DO_GET:
		result = get_option(t, b);
		break;
	case DO_BIND:
		result = bind_one(t, b);
		break;
	case DO_CONNECT:
		result = connect_one(t, b);
		break;
	case DO_JOIN:
		result = join_us(t, b);
		break;
	case DO_SEND:
		result = send_something(t, b);
		break;
	case DO_RECEIVE:
		result = receive_something(t, b);
		break;
	case DO_ANSWER:
		result = answer_some(b);
		break;
	case DO_POLL:
		result = ask_poll(t);
		break;
	case DO_NAME:
		result = name_one(t, b);
		break;
	case DO_SHUT:
		result = shut(t, b);
		break;
	case DO_IOCTL:
		result = some_ioctl(t, b);
		break;
	case DO_OTHER:
		result = other_call(t, b);
		break;
	}
	seeded_saw(deed, result);
}

static void one_input(struct bytes *b)
{
	unsigned int i, calls = 0;

	for (i = 0; i < SOCKETS; i++)
		open_one(&told[i]);
	while (b->left && calls++ < CALLS_MAX)
		call(b);
	for (i = 0; i < SOCKETS; i++)
		close_one(&told[i]);
}

int main(void)
{
	struct timeval patience = { .tv_sec = 2 };

	seeded_begin();
	udp = fake_open();
	require(udp >= 0 && !setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	return seeded_run("fuzz_socket", INPUTS, one_input);
}
