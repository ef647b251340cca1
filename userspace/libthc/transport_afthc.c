// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The transport over a socket of AF_THC: thc.ko owns packets, windows and
 * retransmission. A bucket goes down in few messages, straight from the regions,
 * and its sums are decoded from where recvmsg() put them. man 7 af_thc.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <thc/wire/welcome.h>

#include "client.h"
#include "pipeline.h"
#include "queue.h"
#include "request.h"
#include "resolve.h"
#include "transport.h"

/* Chunks of a message at most, and at least. */
#define MESSAGE_MOST	4096U
#define MESSAGE_LEAST	64U
/* The part of a bucket that room to receive one may take: half of its chunks, if
 * it is fp32 and sums have 8 bits, so that the network works while the second
 * half is compressed.
 */
#define MESSAGE_SHARE	8
/* Lanes and contributors of a chunk. */
#define CHUNK_ROOM	(THC_LANE_BYTES + sizeof(uint16_t))
/* Until the first look for a control message while there is something to compute, at
 * least; twice as long after each that was in vain.
 */
#define LOOK_NS		(2 * THC_NS_PER_MS)
/* Between two tries to send while the host has no memory for a message. */
#define RETRY_NS	(5 * THC_NS_PER_MS)

/**
 * struct thc_afthc - a client's socket of AF_THC
 * @blocked: the socket has no room for more messages
 * @starved_at: its host has had no memory for one since then, 0: it has
 * @retry_at: time of the next try while it has none
 * @asked_at: time the last control message was sent
 * @took_ns: what the last agreement took, and the last other control message
 * @looked_at: time of the last look for messages
 * @look_ns: from that look to the next one
 * @messages: messages in flight, of both streams
 * @control_messages: messages in flight of the control stream
 */
struct thc_afthc {
	int		socket;
	bool		blocked;
	uint64_t	starved_at;
	uint64_t	retry_at;
	uint64_t	asked_at;
	uint64_t	took_ns[2];
	uint64_t	looked_at;
	uint64_t	look_ns;
	unsigned int	messages;
	unsigned int	control_messages;
};

/* thc_send.tag: which part of which request a message is: round, phase, first chunk. */
#define TAG_ROUND_SHIFT	32
#define TAG_PHASE_SHIFT	28
#define TAG_CHUNK_MASK	((1U << TAG_PHASE_SHIFT) - 1)

static unsigned int phase_of(uint64_t tag)
{
	return (uint32_t)tag >> TAG_PHASE_SHIFT;
}

/* --- failures ------------------------------------------------------------- */

static struct thc_failure failure_of(const struct thc_client *c)
{
	struct thc_failure f = { .reason = THC_FAILED_NOT };
	socklen_t len = sizeof(f);

	/* without an answer the errno alone has to do */
	(void)!getsockopt(c->afthc->socket, SOL_THC, THC_OPT_FAILURE, &f, &len);
	return f;
}

/* A call failed with @error (positive): the client is broken. */
static void fail(struct thc_client *c, int error)
{
	struct thc_failure f = failure_of(c);

	if (thc_failed(c, &f))
		return;
	if (error == ENOBUFS)
		thc_queue_break(
			c, -error,
			"for %u ms the AF_THC sockets of this host, or of this user, held as much memory as they may together: raise thc.ko's parameter memory_mib, then call thc_client_rejoin() on all ranks",
			c->options.timeout_ms);
	else
		thc_queue_break(
			c, -error,
			"the AF_THC socket failed: %s; call thc_client_rejoin() on all ranks",
			strerror(error));
}

/* The job that the socket is in, and its aggregators; @epoch: out. -EPROTO: a WELCOME that is not
 * one.
 */
static int describe(struct thc_client *c, struct thc_spec *spec, uint32_t *epoch)
{
	struct {
		struct thc_joined	joined;
		uint8_t			record[THC_RECORDS_MAX];
	} in;
	socklen_t len = sizeof(in);

	if (getsockopt(c->afthc->socket, SOL_THC, THC_OPT_WELCOME, &in, &len))
		return -errno;
	*epoch = in.joined.epoch;
	if (!thc_spec_take(spec, &in.joined.welcome, in.record, in.joined.bytes))
		return -EPROTO;
	thc_shards_take(&c->list, spec, in.record, in.joined.bytes);
	return 0;
}

/* Why connect() failed with @error (positive). */
static int not_joined(struct thc_client *c, int error)
{
	struct thc_failure f = failure_of(c);
	struct thc_spec spec = { .ranks = 0 };
	uint32_t epoch;
	int why;

	/* if nothing is known of the job, nothing is filled in */
	(void)!describe(c, &spec, &epoch);
	why = thc_failed_to_join(c, &f, spec.ranks);
	if (why)
		return why;
	if (error == EADDRNOTAVAIL || error == EADDRINUSE)
		return thc_fail(
			-error,
			"cannot send from the local address %s: %s; give one that `ip address` shows",
			c->options.bind ? c->options.bind : "", strerror(error));
	if (error == ENOMEM || error == ENOBUFS || error == ENFILE)
		return thc_fail(
			-error,
			"no memory for the connection: %s; close sockets, or raise the memory of this process's cgroup or memory_mib of thc.ko",
			strerror(error));
	if (error == EACCES || error == EPERM)
		return thc_fail(
			-error,
			"this process may not send to the aggregator: %s; see `ip rule`, and the rules of its cgroup and security module",
			strerror(error));
	f = (struct thc_failure){ .error = error, .reason = THC_FAILED_UNREACHABLE };
	return thc_failed_to_join(c, &f, 0);
}

/* --- joining -------------------------------------------------------------- */

static struct sockaddr_thc address_of(const struct sockaddr_storage *from)
{
	struct sockaddr_thc a = { .sthc_family = AF_THC, .sthc_inet = from->ss_family };

	if (from->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)from;

		a.sthc_port = in->sin_port;
		memcpy(a.sthc_addr, &in->sin_addr, sizeof(in->sin_addr));
	} else {
		const struct sockaddr_in6 *in6 = (const void *)from;

		a.sthc_port = in6->sin6_port;
		memcpy(a.sthc_addr, &in6->sin6_addr, sizeof(in6->sin6_addr));
		a.sthc_ifindex = thc_scope_of(from);
	}
	return a;
}

static void close_socket(struct thc_client *c)
{
	if (!c->afthc)
		return;
	close(c->afthc->socket);
	free(c->afthc);
	c->afthc = NULL;
}

static int open_socket(struct thc_client *c)
{
	struct sockaddr_thc local;
	int error, fd = socket(AF_THC, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		error = -errno;
		thc_fail(error, "cannot open a socket of AF_THC: %s; is thc.ko loaded?",
			 strerror(-error));
		/* some security modules say EPERM or EACCES for families they do not know */
		return error == -EAFNOSUPPORT || error == -EPERM || error == -EACCES ?
			       -EAFNOSUPPORT :
			       error;
	}
	c->afthc = calloc(1, sizeof(*c->afthc));
	if (!c->afthc) {
		close(fd);
		return thc_fail(-ENOMEM, "out of memory");
	}
	c->afthc->socket = fd;
	error = thc_way_find(&c->shard->link.way, &c->options);
	if (!error && (c->options.bind || c->options.interface)) {
		local = address_of(&c->shard->link.way.local);
		local.sthc_ifindex = (uint32_t)c->shard->link.way.ifindex;
		if (bind(c->afthc->socket, (void *)&local, sizeof(local)))
			error = thc_fail(-errno, "cannot bind: %s", strerror(errno));
	}
	/* whoever can open the socket does not fall back to another transport */
	if (error)
		close_socket(c);
	return error;
}

static void forget(struct thc_client *c)
{
	*c->afthc = (struct thc_afthc){ .socket = c->afthc->socket };
}

static int join_job(struct thc_client *c)
{
	struct sockaddr_thc to = address_of(&c->shard->link.way.peer);
	uint32_t timeout = c->options.timeout_ms, join = c->options.join_timeout_ms,
		 window = c->options.window;
	struct thc_spec spec;
	uint32_t epoch = 0;
	int error;

	to.sthc_job = c->options.job;
	to.sthc_rank = (uint8_t)c->options.rank;
	if (window > THC_SLOTS_MAX)
		window = 0;
	if (setsockopt(c->afthc->socket, SOL_THC, THC_OPT_TIMEOUT, &timeout, sizeof(timeout)) ||
	    setsockopt(c->afthc->socket, SOL_THC, THC_OPT_JOIN_TIMEOUT, &join, sizeof(join)) ||
	    setsockopt(c->afthc->socket, SOL_THC, THC_OPT_WINDOW, &window, sizeof(window)) ||
	    setsockopt(c->afthc->socket, SOL_THC, THC_OPT_KEY, c->key,
		       c->options.key ? sizeof(c->key) : 0))
		return thc_fail(-errno, "cannot set options of the AF_THC socket: %s",
				strerror(errno));
	while (connect(c->afthc->socket, (void *)&to, sizeof(to)))
		if (errno != EINTR)
			return not_joined(c, errno);
	error = describe(c, &spec, &epoch);
	if (error && error != -EPROTO)
		return thc_fail(error, "the AF_THC socket does not describe its job: %s",
				strerror(-error));
	if (error || thc_params_take(&c->params, &spec, epoch, &c->options))
		return thc_failed_to_join(c, &(struct thc_failure){ .reason = THC_FAILED_VERSION },
					  0);
	/* as thc.ko does: it empties its sockets at once, their buffers bound nothing */
	thc_window_choose(c, UINT32_MAX);
	forget(c);
	c->readable = false;
	return 0;
}

/* The kernel says LEAVE when the socket is closed, or connected again. */
static void leave_job(struct thc_client *c)
{
	(void)c;
}

/* --- looking for control messages ----------------------------------------- */

/* A call in vain costs as much as one that brings a message. While there is something to
 * compute, only control messages are waited for: the first look comes when the last one of
 * its kind had come, later looks after twice the time each.
 */
static void expect_control(struct thc_client *c, uint64_t tag)
{
	uint64_t took = c->afthc->took_ns[phase_of(tag) >= THC_AGREEMENT_PHASES];

	c->afthc->control_messages++;
	c->afthc->asked_at = thc_now();
	c->afthc->looked_at = c->afthc->asked_at;
	c->afthc->look_ns = took > LOOK_NS ? took : LOOK_NS;
}

/* A little less than it took: a look finds what came a while ago. */
static void control_came(struct thc_client *c, uint64_t tag)
{
	c->afthc->control_messages--;
	c->afthc->took_ns[phase_of(tag) >= THC_AGREEMENT_PHASES] =
		(thc_now() - c->afthc->asked_at) / 8 * 7;
}

/* --- out ------------------------------------------------------------------ */

/* The host has no memory for a message. Others will give some back, but poll() does not say when.
 * False: they have not for the whole timeout.
 */
static bool wait_for_memory(struct thc_client *c)
{
	uint64_t now = thc_now();

	if (!c->afthc->starved_at)
		c->afthc->starved_at = now;
	c->afthc->retry_at = now + RETRY_NS;
	return now - c->afthc->starved_at < c->options.timeout_ms * THC_NS_PER_MS;
}

/* A message of the next @count chunks of @p. 1: it is the kernel's now, 0: not yet, -1: the client
 * is broken.
 */
static int send_message(struct thc_client *c, const struct thc_phase *p, uint32_t count)
{
	const struct thc_request *r = p->request;
	struct thc_hdr *h = (void *)(p->packets + p->handed * p->stride);
	const struct thc_send send = {
		.op = p->op,
		.width = p->width,
		.stride = (uint16_t)p->stride,
		.round = (uint32_t)r->round,
		.tag = r->round << TAG_ROUND_SHIFT |
		       (uint64_t)(p - r->phases.phase) << TAG_PHASE_SHIFT | p->handed,
	};
	struct iovec all = { .iov_base = h + 1, .iov_len = (count - 1) * p->stride + p->payload };
	union {
		struct cmsghdr	align;
		char		room[CMSG_SPACE(sizeof(send))];
	} control = { .room = { 0 } };
	struct msghdr m = {
		.msg_iov = &all,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.room),
	};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&m);

	cm->cmsg_level = SOL_THC;
	cm->cmsg_type = THC_SEND;
	cm->cmsg_len = CMSG_LEN(sizeof(send));
	memcpy(CMSG_DATA(cm), &send, sizeof(send));
	c->stats.send_calls++;
	if (sendmsg(c->afthc->socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
		c->afthc->messages++;
		c->afthc->starved_at = 0;
		if (p->control)
			expect_control(c, send.tag);
		return 1;
	}
	c->afthc->blocked = errno == EAGAIN;
	if (c->afthc->blocked || errno == EINTR || (errno == ENOBUFS && wait_for_memory(c)))
		return 0;
	fail(c, errno);
	return -1;
}

/* 1: all that there is of @p is the kernel's, 0: not yet, -1: the client is broken. */
static int send_phase(struct thc_client *c, struct thc_phase *p)
{
	const uint32_t most = (uint32_t)(c->rx.bytes / CHUNK_ROOM);

	while (p->handed < p->sized) {
		uint32_t left = p->sized - p->handed, n = left < most ? left : most;
		int sent;

		/* whole messages */
		if (n > p->ready - p->handed)
			return 0;
		sent = send_message(c, p, n);
		if (sent <= 0)
			return sent;
		p->handed += n;
	}
	return p->closed;
}

/* All ranks hand over a stream's chunks in the order of their numbers. */
static int send_stream(struct thc_client *c, struct thc_phases *const *all, unsigned int n,
		       bool control)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < all[i]->count && !all[i]->over; k++) {
			struct thc_phase *p = &all[i]->phase[k];
			int sent = p->control == control ? send_phase(c, p) : 1;

			if (sent <= 0)
				return sent;
		}
	}
	return 1;
}

/* True: there was a change. */
static bool hand_over(struct thc_client *c)
{
	struct thc_phases *all[THC_ACTIVE_MAX];
	unsigned int n = thc_pipeline_phases(c, all), before = c->afthc->messages;

	return send_stream(c, all, n, true) < 0 || send_stream(c, all, n, false) < 0 ||
	       c->afthc->messages != before;
}

/* Timers are the kernel's, but for the one that looks for memory. */
static bool send_more(struct thc_client *c, uint64_t *due)
{
	bool changed = false;

	if (!c->afthc->starved_at || thc_now() >= c->afthc->retry_at) {
		c->afthc->retry_at = 0;
		changed = hand_over(c);
		/* nothing was refused for want of memory, or what was has been given up */
		if (!c->afthc->retry_at)
			c->afthc->starved_at = 0;
	}
	if (c->afthc->starved_at && c->afthc->retry_at < *due)
		*due = c->afthc->retry_at;
	return changed;
}

/* --- in ------------------------------------------------------------------- */

static struct thc_request *request_of(struct thc_client *c, uint64_t tag)
{
	struct thc_phases *all[THC_ACTIVE_MAX];
	unsigned int n = thc_pipeline_phases(c, all), i;

	for (i = 0; i < n; i++)
		if ((uint32_t)all[i]->phase[THC_AGREEMENT].request->round == tag >> TAG_ROUND_SHIFT)
			return all[i]->phase[THC_AGREEMENT].request;
	return NULL;
}

/* 1: a message, 0: none now, -1: the client is broken. */
static int receive_message(struct thc_client *c)
{
	union {
		struct cmsghdr	align;
		char		room[CMSG_SPACE(sizeof(struct thc_received))];
	} control;
	struct iovec all = { .iov_base = c->rx.at, .iov_len = c->rx.bytes };
	struct msghdr m = {
		.msg_iov = &all,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.room),
	};
	struct thc_received received;
	const uint8_t *lanes = c->rx.at;
	struct thc_request *r;
	struct cmsghdr *cm;

	c->stats.receive_calls++;
	if (recvmsg(c->afthc->socket, &m, MSG_DONTWAIT) < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return 0;
		fail(c, errno);
		return -1;
	}
	c->afthc->messages--;
	c->afthc->blocked = false;
	cm = CMSG_FIRSTHDR(&m);
	if (!cm || cm->cmsg_level != SOL_THC || cm->cmsg_type != THC_RECEIVED ||
	    m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		fail(c, EPROTO);
		return -1;
	}
	memcpy(&received, CMSG_DATA(cm), sizeof(received));
	if (!thc_op_is_added(received.op))
		control_came(c, received.tag);
	r = request_of(c, received.tag);
	/* NULL: it failed at its agreement */
	if (r)
		thc_pipeline_answer(&r->phases.phase[phase_of(received.tag)],
				    (uint32_t)received.tag & TAG_CHUNK_MASK, received.chunks,
				    (const void *)(lanes + received.chunks * THC_LANE_BYTES), lanes,
				    received.digest);
	return 1;
}

static bool receive_some(struct thc_client *c)
{
	uint64_t now = thc_now();
	int got;

	if (!c->afthc->messages)
		return false;
	if (!c->readable &&
	    (!c->afthc->control_messages || now - c->afthc->looked_at < c->afthc->look_ns))
		return false;
	c->readable = false;
	got = receive_message(c);
	c->afthc->looked_at = now;
	c->afthc->look_ns *= 2;
	return got != 0;
}

static unsigned int fill_poll(const struct thc_client *c, struct pollfd *fds)
{
	short events = POLLIN;

	if (!c->afthc->messages && !c->afthc->starved_at)
		return 0;
	if (c->afthc->blocked)
		events |= POLLOUT;
	/* while there is only memory to wait for, time alone ends the sleep */
	fds[0] = (struct pollfd){ .fd = c->afthc->messages ? c->afthc->socket : -1,
				  .events = events };
	return 1;
}

/* --- room and counters ---------------------------------------------------- */

/* For one message; messages are as large as there is room. */
static size_t room_for(size_t bytes)
{
	size_t chunks = bytes / MESSAGE_SHARE / THC_LANE_BYTES;

	chunks = chunks < MESSAGE_LEAST ? MESSAGE_LEAST : chunks;
	return (chunks < MESSAGE_MOST ? chunks : MESSAGE_MOST) * CHUNK_ROOM;
}

/* Not what the sums lack: the socket's count has control chunks in it, too. */
static void add_stats(const struct thc_client *c, struct thc_client_stats *stats)
{
	struct thc_socket_stats s;
	socklen_t len = sizeof(s);

	if (getsockopt(c->afthc->socket, SOL_THC, THC_OPT_STATS, &s, &len))
		return;
	stats->packets_up = s.packets_up;
	stats->bytes_up = s.bytes_up;
	stats->packets_down = s.packets_down;
	stats->bytes_down = s.bytes_down;
	stats->chunks = s.chunks;
	stats->retransmits = s.retransmits;
	stats->repeats = s.repeats;
	stats->waits = s.waits;
	stats->bad_tag = s.bad_tag;
	stats->unexpected = s.unexpected;
	stats->foreign = s.foreign;
	stats->window_cuts = s.window_cuts;
	stats->rtt_us = s.rtt_us;
	stats->window = s.window;
}

const struct thc_transport thc_afthc_transport = {
	.name = "AF_THC",
	.open = open_socket,
	.close = close_socket,
	.join = join_job,
	.leave = leave_job,
	.room = room_for,
	.forget = forget,
	.receive = receive_some,
	.send = send_more,
	.poll = fill_poll,
	.ask = add_stats,
};
