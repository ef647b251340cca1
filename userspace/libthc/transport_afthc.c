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
#include "way.h"

/* Most and least chunks of a message. */
#define MESSAGE_MOST	4096U
#define MESSAGE_LEAST	64U
/* The receive buffer is at most this part of a bucket. For fp32 and sums of 8 bits a message then
 * has half of the bucket's chunks, so that the network works while the second half is compressed.
 */
#define MESSAGE_SHARE	8
/* Bytes of a chunk's lanes and number of contributors. */
#define CHUNK_ROOM	(THC_LANE_BYTES + sizeof(uint16_t))
/* Least ns until the first look for a control message while there is something to compute; the
 * interval doubles after each look in vain.
 */
#define LOOK_NS		(2 * THC_NS_PER_MS)
/* Between two tries to send while the host has no memory for a message. */
#define RETRY_NS	(5 * THC_NS_PER_MS)

/**
 * struct thc_afthc - a client's transport over AF_THC
 * @way: to the aggregator that the client names; thc.ko knows the ways to others
 * @socket: of AF_THC
 * @readable: poll() has found something to receive
 * @blocked: the socket has no room for more messages
 * @starved_at: since when the host has had no memory for a message, 0: it has
 * @retry_at: time of the next attempt while the host has none
 * @asked_at: time the last control message was sent
 * @took_ns: duration of the last agreement, and of the last other control message
 * @looked_at: time of the last look for messages
 * @look_ns: interval to the next look
 * @messages: messages in flight, of both streams
 * @control_messages: messages in flight of the control stream
 */
struct thc_afthc {
	struct thc_transport	base;
	struct thc_way		way;
	int			socket;
	bool			readable;
	bool			blocked;
	uint64_t		starved_at;
	uint64_t		retry_at;
	uint64_t		asked_at;
	uint64_t		took_ns[2];
	uint64_t		looked_at;
	uint64_t		look_ns;
	unsigned int		messages;
	unsigned int		control_messages;
};

static const struct thc_transport_ops afthc_ops;

static struct thc_afthc *afthc_of(struct thc_transport *t)
{
	return (struct thc_afthc *)t;
}

/* thc_send.tag: which part of which request a message is: round, phase, first chunk. */
#define TAG_ROUND_SHIFT	32
#define TAG_PHASE_SHIFT	28
#define TAG_CHUNK_MASK	((1U << TAG_PHASE_SHIFT) - 1)

static unsigned int phase_of(uint64_t tag)
{
	return (uint32_t)tag >> TAG_PHASE_SHIFT;
}

/* --- failures ------------------------------------------------------------- */

static struct thc_failure failure_of(const struct thc_afthc *a)
{
	struct thc_failure f = { .reason = THC_FAILED_NOT };
	socklen_t len = sizeof(f);

	/* if this call fails, the caller has the errno alone */
	(void)!getsockopt(a->socket, SOL_THC, THC_OPT_FAILURE, &f, &len);
	return f;
}

/* A call failed with @error (positive): the client is broken. */
static void fail(struct thc_afthc *a, int error)
{
	struct thc_client *c = a->base.client;
	struct thc_failure f = failure_of(a);

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

/* Reads the socket's job, and its aggregators; @epoch: out. -EPROTO: the WELCOME is malformed. */
static int describe(struct thc_afthc *a, struct thc_spec *spec, uint32_t *epoch)
{
	struct {
		struct thc_job_info	info;
		uint8_t			record[THC_RECORDS_MAX];
	} in;
	socklen_t len = sizeof(in);

	if (getsockopt(a->socket, SOL_THC, THC_OPT_WELCOME, &in, &len))
		return -errno;
	*epoch = in.info.epoch;
	if (!thc_spec_read(spec, &in.info.welcome, in.record, in.info.bytes))
		return -EPROTO;
	thc_shards_read(&a->base.client->list, spec, in.record, in.info.bytes);
	return 0;
}

/* Sets a sentence for connect(), which failed with @error (positive). */
static int not_joined(struct thc_afthc *a, int error)
{
	const struct thc_client *c = a->base.client;
	struct thc_failure f = failure_of(a);
	struct thc_spec spec = { .has = 0 };
	uint32_t epoch;
	int why;

	if (error == ENOBUFS && f.shard)
		return thc_fail(
			-error,
			"job %u was not joined, since the AF_THC sockets of this host, or of this user, leave no memory for connections to all of its aggregators: raise thc.ko's parameter memory_mib, then join again",
			c->options.job);
	if (error == ENOBUFS)
		return thc_fail(
			-error,
			"job %u was not joined within %u ms, in which the AF_THC sockets of this host, or of this user, held as much memory as they may together: raise thc.ko's parameter memory_mib, then join again",
			c->options.job, c->options.join_timeout_ms);
	/* if nothing is known of the job, nothing is filled in */
	(void)!describe(a, &spec, &epoch);
	why = thc_failed_to_join(c, &f, &spec);
	if (why)
		return why;
	if (error == EADDRNOTAVAIL || error == EADDRINUSE)
		return thc_fail(
			-error,
			"cannot send from the local address %s: %s; give one that `ip address` shows",
			c->options.bind ? c->options.bind : "", strerror(error));
	if (error == ENOMEM || error == ENFILE)
		return thc_fail(
			-error,
			"no memory for the connection: %s; close sockets, or raise the memory of this process's cgroup",
			strerror(error));
	if (error == EACCES || error == EPERM)
		return thc_fail(
			-error,
			"this process may not send to the aggregator: %s; see `ip rule`, and the rules of its cgroup and security module",
			strerror(error));
	f = (struct thc_failure){ .error = error, .reason = THC_FAILED_UNREACHABLE };
	return thc_failed_to_join(c, &f, &spec);
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

static void close_socket(struct thc_transport *t)
{
	struct thc_afthc *a = afthc_of(t);

	close(a->socket);
	free(t->rx.at);
	free(a);
}

static int open_socket(void)
{
	int error, fd = socket(AF_THC, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		return fd;
	error = -errno;
	thc_fail(error, "cannot open a socket of AF_THC: %s; is thc.ko loaded?", strerror(-error));
	/* some security modules return EPERM or EACCES for unknown families */
	return error == -EPERM || error == -EACCES ? -EAFNOSUPPORT : error;
}

/* Binds the socket to the address and interface of the options, if any. */
static int bind_socket(struct thc_afthc *a)
{
	const struct thc_client_options *o = &a->base.client->options;
	int error = thc_way_find(&a->way, o);
	struct sockaddr_thc local;

	if (error || (!o->bind && !o->interface))
		return error;
	local = address_of(&a->way.local);
	local.sthc_ifindex = (uint32_t)a->way.ifindex;
	if (bind(a->socket, (void *)&local, sizeof(local)))
		return thc_fail(-errno, "cannot bind: %s", strerror(errno));
	return 0;
}

int thc_afthc_open(struct thc_client *c, struct thc_transport **out)
{
	struct thc_afthc *a;
	int error, fd = open_socket();

	if (fd < 0)
		return fd;
	a = calloc(1, sizeof(*a));
	if (!a) {
		close(fd);
		return thc_fail(-ENOMEM, "out of memory");
	}
	a->base = (struct thc_transport){ .ops = &afthc_ops, .client = c };
	a->socket = fd;
	error = bind_socket(a);
	/* whoever can open the socket does not fall back to another transport */
	if (error)
		close_socket(&a->base);
	else
		*out = &a->base;
	return error;
}

static void forget(struct thc_transport *t)
{
	struct thc_afthc *a = afthc_of(t);

	*a = (struct thc_afthc){ .base = a->base, .way = a->way, .socket = a->socket };
}

/* 0 or an errno. */
static int set_join_timeout(const struct thc_afthc *a, uint32_t ms)
{
	return setsockopt(a->socket, SOL_THC, THC_OPT_JOIN_TIMEOUT, &ms, sizeof(ms)) ? errno : 0;
}

/* Connects; returns 0 or an errno. connect() itself waits for memory for the packets in flight.
 * Without memory for the connection it fails before it joins, and nothing tells when there is
 * memory, so it is repeated here. It is not repeated if there is no memory for connections to the
 * aggregators that the first one lists: a repeated connect() would leave the first one. @within_ms:
 * the join timeout
 */
static int connect_to(const struct thc_afthc *a, const struct sockaddr_thc *to, uint32_t within_ms)
{
	uint64_t until = thc_now() + within_ms * THC_NS_PER_MS;
	int error = 0;

	while (!error && connect(a->socket, (const void *)to, sizeof(*to))) {
		uint64_t now = thc_now();
		int why = errno;

		if (why == EINTR)
			continue;
		if (why != ENOBUFS || failure_of(a).error || now >= until)
			return why;
		usleep(RETRY_NS / 1000);
		error = set_join_timeout(a, (uint32_t)((until - now) / THC_NS_PER_MS) + 1);
	}
	return error;
}

static int join_job(struct thc_transport *t)
{
	struct thc_afthc *a = afthc_of(t);
	struct thc_client *c = t->client;
	struct sockaddr_thc to = address_of(&a->way.aggregator);
	uint32_t timeout = c->options.timeout_ms, within = c->options.join_timeout_ms,
		 window = c->options.window;
	struct thc_spec spec = { .has = 0 };
	uint32_t epoch = 0;
	int error;

	to.sthc_job = c->options.job;
	to.sthc_rank = (uint8_t)c->options.rank;
	if (window > THC_SLOTS_MAX)
		window = 0;
	if (setsockopt(a->socket, SOL_THC, THC_OPT_TIMEOUT, &timeout, sizeof(timeout)) ||
	    set_join_timeout(a, within) ||
	    setsockopt(a->socket, SOL_THC, THC_OPT_WINDOW, &window, sizeof(window)) ||
	    setsockopt(a->socket, SOL_THC, THC_OPT_KEY, c->key,
		       c->options.key ? sizeof(c->key) : 0))
		return thc_fail(-errno, "cannot set options of the AF_THC socket: %s",
				strerror(errno));
	error = connect_to(a, &to, within);
	if (error)
		return not_joined(a, error);
	error = describe(a, &spec, &epoch);
	if (error && error != -EPROTO)
		return thc_fail(error, "the AF_THC socket does not describe its job: %s",
				strerror(-error));
	if (error || thc_job_check(&spec, &c->options))
		return thc_failed_to_join(c, &(struct thc_failure){ .reason = THC_FAILED_VERSION },
					  &spec);
	c->spec = spec;
	c->epoch = epoch;
	/* as thc.ko does: it empties its sockets at once, their buffers bound nothing */
	thc_window_choose(c, UINT32_MAX);
	forget(t);
	return 0;
}

/* --- looking for control messages ----------------------------------------- */

/* Schedules looks for a control message. A receive call in vain costs as much as one that brings a
 * message. While there is something to compute, only control messages are waited for: the first
 * look comes after the time that the last message of this kind took, and each later look after
 * twice the interval.
 */
static void expect_control(struct thc_afthc *a, uint64_t tag)
{
	uint64_t took = a->took_ns[phase_of(tag) >= THC_AGREEMENT_PHASES];

	a->control_messages++;
	a->asked_at = thc_now();
	a->looked_at = a->asked_at;
	a->look_ns = took > LOOK_NS ? took : LOOK_NS;
}

/* Notes the duration, a little less than measured, since the message came before the look that
 * found it.
 */
static void control_came(struct thc_afthc *a, uint64_t tag)
{
	a->control_messages--;
	a->took_ns[phase_of(tag) >= THC_AGREEMENT_PHASES] = (thc_now() - a->asked_at) / 8 * 7;
}

/* --- out ------------------------------------------------------------------ */

/* Schedules another attempt, since the host has no memory for a message; poll() does not tell when
 * others free some. False: the timeout is over.
 */
static bool wait_for_memory(struct thc_afthc *a)
{
	uint64_t now = thc_now();

	if (!a->starved_at)
		a->starved_at = now;
	a->retry_at = now + RETRY_NS;
	return now - a->starved_at < a->base.client->options.timeout_ms * THC_NS_PER_MS;
}

/* A message of the next @count chunks of @p. 1: it is the kernel's now, 0: not yet, -1: the client
 * is broken.
 */
static int send_message(struct thc_afthc *a, const struct thc_phase *p, uint32_t count)
{
	const struct thc_request *r = p->request;
	struct thc_hdr *h = thc_phase_packet(p, p->handed);
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
		char		bytes[CMSG_SPACE(sizeof(send))];
	} control = { .bytes = { 0 } };
	struct msghdr m = {
		.msg_iov = &all,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&m);

	cm->cmsg_level = SOL_THC;
	cm->cmsg_type = THC_SEND;
	cm->cmsg_len = CMSG_LEN(sizeof(send));
	memcpy(CMSG_DATA(cm), &send, sizeof(send));
	a->base.client->stats.send_calls++;
	if (sendmsg(a->socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
		a->messages++;
		a->starved_at = 0;
		if (p->control)
			expect_control(a, send.tag);
		return 1;
	}
	a->blocked = errno == EAGAIN;
	if (a->blocked || errno == EINTR || (errno == ENOBUFS && wait_for_memory(a)))
		return 0;
	fail(a, errno);
	return -1;
}

/* Sends what can be sent of @p. 1: the kernel has all of it, 0: not yet, -1: broken client. */
static int send_phase(struct thc_afthc *a, struct thc_phase *p)
{
	const uint32_t most = (uint32_t)(a->base.rx.bytes / CHUNK_ROOM);

	while (p->handed < p->sized) {
		uint32_t left = p->sized - p->handed, n = left < most ? left : most;
		uint32_t ready = p->ready - p->handed;
		int sent;

		/* a ring is filled as its places come free: what is ready, up to the ring's end; an
		 * open phase is not whole yet
		 */
		if (p->ring || !p->closed)
			n = n < ready ? n : ready;
		if (p->ring) {
			n = n < p->ring - p->handed % p->ring ? n : p->ring - p->handed % p->ring;
		}
		/* send complete messages only */
		if (!n || n > ready)
			return 0;
		sent = send_message(a, p, n);
		if (sent <= 0)
			return sent;
		p->handed += n;
	}
	return p->closed;
}

/* Sends phases of a stream, in the order of their numbers, as all ranks do. */
static int send_stream(struct thc_afthc *a, struct thc_phases *const *all, unsigned int n,
		       bool control)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < all[i]->count && !all[i]->over; k++) {
			struct thc_phase *p = &all[i]->phase[k];
			int sent = p->control == control ? send_phase(a, p) : 1;

			if (sent <= 0)
				return sent;
		}
	}
	return 1;
}

/* Hands messages to the kernel; true if the state changed. */
static bool hand_over(struct thc_afthc *a)
{
	struct thc_phases *all[THC_ACTIVE_MAX];
	unsigned int n = thc_pipeline_phases(a->base.client, all), before = a->messages;

	return send_stream(a, all, n, true) < 0 || send_stream(a, all, n, false) < 0 ||
	       a->messages != before;
}

/* Sends messages. The kernel has all timers except the one that waits for memory. */
static bool send_more(struct thc_transport *t, uint64_t *due)
{
	struct thc_afthc *a = afthc_of(t);
	bool changed = false;

	if (!a->starved_at || thc_now() >= a->retry_at) {
		a->retry_at = 0;
		changed = hand_over(a);
		/* no message was refused for lack of memory, or the refused one was given up */
		if (!a->retry_at)
			a->starved_at = 0;
	}
	if (a->starved_at && a->retry_at < *due)
		*due = a->retry_at;
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

/* Receives a message; 1: there was one, 0: none now, -1: the client is broken. */
static int receive_message(struct thc_afthc *a)
{
	struct thc_client *c = a->base.client;
	union {
		struct cmsghdr	align;
		char		bytes[CMSG_SPACE(sizeof(struct thc_received))];
	} control;
	struct iovec all = { .iov_base = a->base.rx.at, .iov_len = a->base.rx.bytes };
	struct msghdr m = {
		.msg_iov = &all,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	struct thc_received received;
	const uint8_t *lanes = a->base.rx.at;
	struct thc_request *r;
	struct cmsghdr *cm;

	c->stats.receive_calls++;
	if (recvmsg(a->socket, &m, MSG_DONTWAIT) < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return 0;
		fail(a, errno);
		return -1;
	}
	a->messages--;
	a->blocked = false;
	cm = CMSG_FIRSTHDR(&m);
	if (!cm || cm->cmsg_level != SOL_THC || cm->cmsg_type != THC_RECEIVED ||
	    m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		fail(a, EPROTO);
		return -1;
	}
	memcpy(&received, CMSG_DATA(cm), sizeof(received));
	if (!thc_op_is_added(received.op))
		control_came(a, received.tag);
	r = request_of(c, received.tag);
	/* NULL: the request failed in its agreement */
	if (r)
		thc_pipeline_answer(&r->phases.phase[phase_of(received.tag)],
				    (uint32_t)received.tag & TAG_CHUNK_MASK, received.chunks,
				    (const void *)(lanes + received.chunks * THC_LANE_BYTES), lanes,
				    received.digest);
	return 1;
}

static bool receive_some(struct thc_transport *t)
{
	struct thc_afthc *a = afthc_of(t);
	uint64_t now = thc_now();
	int got;

	if (!a->messages)
		return false;
	if (!a->readable && (!a->control_messages || now - a->looked_at < a->look_ns))
		return false;
	a->readable = false;
	got = receive_message(a);
	a->looked_at = now;
	a->look_ns *= 2;
	return got != 0;
}

static unsigned int fill_poll(const struct thc_transport *t, struct pollfd *fds)
{
	const struct thc_afthc *a = (const void *)t;
	short events = POLLIN;

	if (!a->messages && !a->starved_at)
		return 0;
	if (a->blocked)
		events |= POLLOUT;
	/* while the socket waits for memory alone, only time ends the sleep */
	fds[0] = (struct pollfd){ .fd = a->messages ? a->socket : -1, .events = events };
	return 1;
}

static void note_polled(struct thc_transport *t, const struct pollfd *fds)
{
	afthc_of(t)->readable = fds[0].revents;
}

/* --- receive buffer and counters ------------------------------------------------- */

/* For one message; messages are as large as there is room. */
static size_t rx_bytes(size_t bytes)
{
	size_t chunks = bytes / MESSAGE_SHARE / THC_LANE_BYTES;

	chunks = chunks < MESSAGE_LEAST ? MESSAGE_LEAST : chunks;
	return (chunks < MESSAGE_MOST ? chunks : MESSAGE_MOST) * CHUNK_ROOM;
}

/* Adds the socket's counters, except those of missing ranks, which count control chunks, too. */
static void add_stats(const struct thc_transport *t, struct thc_client_stats *stats)
{
	const struct thc_afthc *a = (const void *)t;
	struct thc_socket_stats s;
	socklen_t len = sizeof(s);

	if (getsockopt(a->socket, SOL_THC, THC_OPT_STATS, &s, &len))
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

static const struct thc_way *way_to(const struct thc_transport *t, uint32_t shard)
{
	return shard ? NULL : &((const struct thc_afthc *)t)->way;
}

/* The session at number 0; thc.ko knows the sessions at others. */
static uint32_t epoch_at(const struct thc_transport *t, uint32_t shard)
{
	(void)shard;
	return t->client->epoch;
}

static const struct thc_transport_ops afthc_ops = {
	.name = "AF_THC",
	.close = close_socket,
	.join = join_job,
	.rx_bytes = rx_bytes,
	.forget = forget,
	.receive = receive_some,
	.send = send_more,
	.poll = fill_poll,
	.polled = note_polled,
	.way = way_to,
	.epoch = epoch_at,
	.ask = add_stats,
};
