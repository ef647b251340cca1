// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The sockets of a client: one for requests and for answers to this rank, one for answers to the
 * group. Packets leave in batches (UDP segmentation offload for runs to one port) and arrive in
 * batches. The contents of packets do not matter here.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <unistd.h>

#include "complaint.h"
#include "error.h"
#include "request.h"
#include "udp.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT	103
#endif
#ifndef UDP_GRO
#define UDP_GRO		104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

#define SOCKETS_CLOSED \
	{ \
		.unicast = -1, .group = -1, .gso = true, .answers_max = ~0U \
	}

/* Sets room for a window of answers; without CAP_NET_ADMIN it is at most net.core.rmem_max. */
static void want_receive_buffer(struct thc_sockets *l, int fd)
{
	int bytes = (int)(2 * THC_SLOTS_MAX / 4 * THC_ANSWER_TRUESIZE), got = 0;
	socklen_t len = sizeof(got);

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (!getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &len) &&
	    (uint32_t)got / THC_ANSWER_TRUESIZE < l->answers_max)
		l->answers_max = (uint32_t)got / THC_ANSWER_TRUESIZE;
}

/* Sets options: ECN-capable, errors reported, zero checksums over IPv6 accepted, the protocol's
 * TTL, packets of one flow coalesced. Packets pass even if one option fails.
 */
static void set_options(struct thc_sockets *l, int fd)
{
	int one = 1, ect0 = 2, ttl = THC_TTL, bytes = 4 << 20;

	if (l->way.aggregator.ss_family == AF_INET6) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &ttl, sizeof(ttl));
		setsockopt(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, &one, sizeof(one));
		setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &ect0, sizeof(ect0));
		setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &one, sizeof(one));
		setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof(one));
	} else {
		setsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
		setsockopt(fd, IPPROTO_IP, IP_TOS, &ect0, sizeof(ect0));
		setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof(one));
		setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof(one));
	}
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	want_receive_buffer(l, fd);
}

static int open_unicast(struct thc_sockets *l, const char *bind_to)
{
	socklen_t len = sizeof(l->way.local);
	int error;

	l->unicast =
		socket(l->way.aggregator.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->unicast < 0 || bind(l->unicast, (void *)&l->way.local, l->way.addrlen)) {
		error = -errno;
		thc_sockets_close(l);
		if (bind_to)
			return thc_fail(
				error,
				"cannot send from the local address %s: %s; give one that `ip address` shows",
				bind_to, strerror(-error));
		return thc_fail(error, "cannot open a UDP socket: %s", strerror(-error));
	}
	getsockname(l->unicast, (void *)&l->way.local, &len);
	set_options(l, l->unicast);
	return 0;
}

int thc_sockets_open(struct thc_sockets *l, const struct thc_client_options *o)
{
	int error;

	*l = (struct thc_sockets)SOCKETS_CLOSED;
	error = thc_way_find(&l->way, o);
	return error ? error : open_unicast(l, o->bind);
}

int thc_sockets_open_beside(struct thc_sockets *l, const struct thc_sockets *first,
			    const struct thc_end *to)
{
	int error;

	*l = (struct thc_sockets)SOCKETS_CLOSED;
	error = thc_way_beside(&l->way, &first->way, to);
	return error ? error : open_unicast(l, NULL);
}

void thc_sockets_close(struct thc_sockets *l)
{
	thc_sockets_leave_group(l);
	if (l->unicast >= 0)
		close(l->unicast);
	l->unicast = -1;
}

void thc_sockets_leave_group(struct thc_sockets *l)
{
	if (l->group >= 0)
		close(l->group);
	l->group = -1;
}

/* Joins the group for packets of all senders, where the kernel has no source filters. */
static int join_for_all(const struct thc_sockets *l, const struct sockaddr_storage *group)
{
	const struct sockaddr_in6 *in6 = (const void *)group;
	struct ip_mreqn m4 = { .imr_multiaddr = ((const struct sockaddr_in *)group)->sin_addr,
			       .imr_ifindex = l->way.ifindex };
	struct ipv6_mreq m6 = { .ipv6mr_multiaddr = in6->sin6_addr,
				.ipv6mr_interface = (unsigned int)l->way.ifindex };

	return group->ss_family == AF_INET ?
		       setsockopt(l->group, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m4, sizeof(m4)) :
		       setsockopt(l->group, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof(m6));
}

/* Joins the group for packets of the aggregator alone: the kernel drops those of others. A kernel
 * without source filters returns ENOPROTOOPT.
 */
static int become_member(const struct thc_sockets *l)
{
	struct group_source_req m = { .gsr_interface = (uint32_t)l->way.ifindex,
				      .gsr_source = l->way.aggregator,
				      .gsr_group = l->group_at };
	bool v4 = l->way.aggregator.ss_family == AF_INET;
	int level = v4 ? IPPROTO_IP : IPPROTO_IPV6, zero = 0, error;

	if (bind(l->group, (void *)&m.gsr_group, l->way.addrlen) ||
	    (v4 && setsockopt(l->group, level, IP_MULTICAST_ALL, &zero, sizeof(zero))))
		return -errno;
	error = setsockopt(l->group, level, MCAST_JOIN_SOURCE_GROUP, &m, sizeof(m));
	if (error && errno == ENOPROTOOPT)
		error = join_for_all(l, &m.gsr_group);
	return error ? -errno : 0;
}

/* Opens the group socket once, and again for another group. An error is not fatal: the job then
 * answers by fanout, since this rank does not say HEARD.
 */
int thc_sockets_join_group(struct thc_sockets *l, const struct thc_end *group)
{
	struct sockaddr_storage at = thc_way_address(&l->way, group);
	int one = 1, error;

	if (thc_addr_is_v4(&group->addr) != (l->way.aggregator.ss_family == AF_INET)) {
		thc_sockets_leave_group(l);
		return -EAFNOSUPPORT;
	}
	if (l->group >= 0 && !memcmp(&l->group_at, &at, sizeof(at)))
		return 0;
	thc_sockets_leave_group(l);
	l->group_at = at;
	l->group =
		socket(l->way.aggregator.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->group < 0)
		return -errno;
	setsockopt(l->group, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	error = become_member(l);
	if (error) {
		thc_sockets_leave_group(l);
		return error;
	}
	set_options(l, l->group);
	return 0;
}

unsigned int thc_sockets_wire_bytes(const struct thc_sockets *l, unsigned int bytes)
{
	return bytes + (l->way.aggregator.ss_family == AF_INET ? THC_WIRE_IP4 : THC_WIRE_IP6);
}

/* --- sending -------------------------------------------------------------- */

/* A batch for sendmmsg(): each message is a run of equal packets to one port. */
struct send_batch {
	struct mmsghdr		msg[THC_BATCH];
	struct iovec		iov[THC_BATCH];
	struct sockaddr_storage	to[THC_BATCH];
	union {
		struct cmsghdr	align;
		char		bytes[CMSG_SPACE(sizeof(uint16_t))];
	} control[THC_BATCH];
	unsigned int		messages;
};

/* How many packets from @out on can share one message. */
static unsigned int run_length(const struct thc_sockets *l, const struct thc_outgoing *out,
			       unsigned int count)
{
	unsigned int n = 1, bytes = out->bytes;

	while (l->gso && n < count && n < THC_TRAIN_PACKETS && out[n].port == out->port &&
	       out[n].bytes == out->bytes && bytes + out->bytes <= THC_TRAIN_BYTES) {
		bytes += out->bytes;
		n++;
	}
	return n;
}

static void add_message(const struct thc_sockets *l, struct send_batch *b, unsigned int first_iov,
			const struct thc_outgoing *out, unsigned int run)
{
	struct msghdr *m = &b->msg[b->messages].msg_hdr;
	uint16_t segment = out->bytes;
	struct cmsghdr *c;

	b->to[b->messages] = l->way.aggregator;
	thc_address_set_port(&b->to[b->messages], out->port);
	*m = (struct msghdr){
		.msg_name = &b->to[b->messages],
		.msg_namelen = l->way.addrlen,
		.msg_iov = &b->iov[first_iov],
		.msg_iovlen = run,
	};
	if (run > 1) {
		m->msg_control = &b->control[b->messages];
		m->msg_controllen = sizeof(b->control[0].bytes);
		c = CMSG_FIRSTHDR(m);
		c->cmsg_level = IPPROTO_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(segment));
		memcpy(CMSG_DATA(c), &segment, sizeof(segment));
	}
	b->messages++;
}

/* Packets in the first @messages messages of @b. */
static unsigned int packets_in(const struct send_batch *b, unsigned int messages)
{
	unsigned int i, n = 0;

	for (i = 0; i < messages; i++)
		n += (unsigned int)b->msg[i].msg_hdr.msg_iovlen;
	return n;
}

static bool is_busy(int error)
{
	return error == -EAGAIN || error == -EWOULDBLOCK || error == -ENOBUFS || error == -EINTR;
}

static int send_some(struct thc_sockets *l, const struct thc_outgoing *out, unsigned int count,
		     uint64_t *calls)
{
	struct send_batch b = { .messages = 0 };
	unsigned int i = 0, n;
	int sent;

	if (count > THC_BATCH)
		count = THC_BATCH;
	for (n = 0; n < count; n++) {
		b.iov[n].iov_base = (void *)(uintptr_t)out[n].data;
		b.iov[n].iov_len = out[n].bytes;
	}
	while (i < count) {
		unsigned int run = run_length(l, out + i, count - i);

		add_message(l, &b, i, out + i, run);
		i += run;
	}
	++*calls;
	sent = sendmmsg(l->unicast, b.msg, b.messages, MSG_DONTWAIT);
	return sent < 0 ? -errno : (int)packets_in(&b, (unsigned int)sent);
}

int thc_sockets_send(struct thc_sockets *l, const struct thc_outgoing *out, unsigned int count,
		     uint64_t *calls)
{
	unsigned int done = 0;
	int errors = 0;

	while (done < count) {
		int n = send_some(l, out + done, count - done, calls);

		if (n > 0) {
			done += (unsigned int)n;
		} else if (is_busy(n)) {
			break;
		} else if (thc_complaints_read(l->unicast, &l->way, &l->complaint)) {
			if (errors++ == 3)	/* about earlier packets */
				break;
		} else if (l->gso &&
			   (n == -EIO || n == -EINVAL || n == -EMSGSIZE || n == -EOPNOTSUPP)) {
			l->gso = false;		/* this path cannot segment */
		} else {
			return n;
		}
	}
	return (int)done;
}

/* --- receiving ------------------------------------------------------------ */

/* Room for the kernel's control data of a datagram. */
union rx_control {
	struct cmsghdr	align;
	char		bytes[CMSG_SPACE(sizeof(int)) * 2];
};

/* The kernel's notes on a datagram, read. */
struct rx_notes {
	unsigned int		segment;	/* bytes of a packet, if several were coalesced */
	struct thc_origin	from;
};

static struct rx_notes read_notes(struct msghdr *m, bool group)
{
	struct rx_notes n = { .from = { .port = thc_address_port(m->msg_name), .group = group } };
	struct cmsghdr *c;
	int value;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
			n.from.ce = (*(uint8_t *)CMSG_DATA(c) & 3) == 3;
			continue;
		}
		memcpy(&value, CMSG_DATA(c), sizeof(value));
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)
			n.from.ce = (value & 3) == 3;
		else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
			n.segment = (unsigned int)value;
	}
	return n;
}

/* Takes a datagram apart into the packets that it was coalesced from. */
static void each_packet(uint8_t *data, unsigned int bytes, struct rx_notes notes,
			thc_sockets_each *each, void *ctx)
{
	unsigned int segment = notes.segment ? notes.segment : bytes, n;

	for (; bytes; data += n, bytes -= n) {
		n = bytes < segment ? bytes : segment;
		if (n >= sizeof(struct thc_hdr) && n <= THC_ANSWER_BYTES)
			each(ctx, (void *)data, n, notes.from);
	}
}

/* How many packets a datagram of @bytes was coalesced from. */
static unsigned int packets_of(unsigned int bytes, struct rx_notes notes)
{
	return notes.segment ? (bytes + notes.segment - 1) / notes.segment : 1;
}

int thc_sockets_receive(struct thc_sockets *l, int fd, struct thc_buffer rx, thc_sockets_each *each,
			void *ctx, uint64_t *calls)
{
	unsigned int batch = (unsigned int)(rx.bytes / THC_RX_BYTES);
	union rx_control control[THC_RX_BATCH];
	struct sockaddr_storage from[THC_RX_BATCH];
	struct mmsghdr msg[THC_RX_BATCH];
	struct iovec iov[THC_RX_BATCH];
	int i, n;

	for (i = 0; i < (int)batch; i++) {
		iov[i].iov_base = rx.at + (size_t)i * THC_RX_BYTES;
		iov[i].iov_len = THC_RX_BYTES;
		msg[i].msg_hdr = (struct msghdr){
			.msg_name = &from[i],
			.msg_namelen = sizeof(from[i]),
			.msg_iov = &iov[i],
			.msg_iovlen = 1,
			.msg_control = &control[i],
			.msg_controllen = sizeof(control[i].bytes),
		};
	}
	++*calls;
#ifdef __clang_analyzer__
	/* recvmmsg() fills as many as it returns, which the analyser does not know */
	memset(from, 0, sizeof(from));
	memset(iov, 0, sizeof(iov));
#endif
	n = recvmmsg(fd, msg, batch, MSG_DONTWAIT, NULL);
	if (n < 0) {
		n = -errno;
		/* poll() may have reported an error that no call has returned: sendmmsg() does not
		 * return the error of a later message of its batch
		 */
		if (thc_complaints_read(fd, &l->way, &l->complaint) || is_busy(n))
			return 0;
		return n;
	}
	for (i = 0; i < n; i++) {
		struct rx_notes notes = read_notes(&msg[i].msg_hdr, fd == l->group);

		if (thc_address_is_same(&from[i], &l->way.aggregator))
			each_packet(iov[i].iov_base, msg[i].msg_len, notes, each, ctx);
		else
			l->foreign += packets_of(msg[i].msg_len, notes);
	}
	return n;
}
