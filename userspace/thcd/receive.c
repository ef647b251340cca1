// SPDX-License-Identifier: GPL-2.0
/*
 * Receives datagrams in batches of recvmmsg(), reads the path and the ECN mark of each, and hands
 * it to the software aggregator or to joining.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "join.h"
#include "net.h"
#include "software.h"

/* Datagrams per recvmmsg(), and calls before other sockets get their turn. */
#define IN_BATCH	64
#define IN_ROUNDS	16
/* Longer than any THC packet, so that too long a packet is noticed. */
#define FRAME_BYTES	1536
/* IP header field: congestion experienced. */
#define ECN_MASK	3
#define ECN_CE		3

struct batch {
	struct mmsghdr		msg[IN_BATCH];
	struct iovec		iov[IN_BATCH];
	struct sockaddr_storage	from[IN_BATCH];
	u8			control[IN_BATCH][128] __attribute__((aligned(8)));
	u8			frame[IN_BATCH][FRAME_BYTES] __attribute__((aligned(8)));
};

/* XDP takes the data that comes through its interface. Data at a socket came by another way, and is
 * lost: thcd says so at packet 1, 2, 4, 8 and so on.
 */
static void past_xdp(struct thcd *d, const struct thc_path *path)
{
	u64 n = ++d->counters.past_xdp;
	char text[INET6_ADDRSTRLEN];

	if (n & (n - 1))
		return;
	thcd_say(
		"%llu packet%s from %s came by another way than through XDP on %s and %s not counted: is "
		"the worker on this host, or does another interface answer ARP for this address?",
		(unsigned long long)n, n == 1 ? "" : "s", thc_addr_text(&path->src, text),
		d->interface, n == 1 ? "was" : "were");
}

/* In XDP mode data at a socket is not answered. XDP has counted the packets that it passed on, so
 * only the others are counted here.
 */
static void beside_xdp(struct thcd *d, const struct thc_packet *p, struct thc_reaction r)
{
	if (r.to == THC_TO_DAEMON)
		thcd_join_or_leave(d, p->hdr, p->hdr + 1, &p->path);
	else if (r.why == THC_DROP_FLOOD)
		d->counters.muted++;
	else
		past_xdp(d, &p->path);
}

void thcd_packet(struct thcd *d, void *packet, u32 length, const struct thc_path *path, bool ce)
{
	struct thc_packet p = {
		.hdr = packet, .path = *path, .payload_len = length - sizeof(*p.hdr), .ce = ce,
	};
	struct thc_reaction r;

	if (length < sizeof(*p.hdr))
		r = thc_react_drop(THC_DROP_TRUNCATED);
	else
		r = d->software ? thcd_software(d, &p) : thcd_gate(d, &p);
	if (!d->software) {
		beside_xdp(d, &p, r);
		return;
	}
	if (r.to == THC_TO_DAEMON)
		r.why = thcd_join_or_leave(d, p.hdr, p.hdr + 1, &p.path);
	thc_react_count(&d->stats, r);
}

static void prepare(struct batch *b)
{
	int i;

	for (i = 0; i < IN_BATCH; i++) {
		struct msghdr *m = &b->msg[i].msg_hdr;

		b->iov[i].iov_base = b->frame[i];
		b->iov[i].iov_len = FRAME_BYTES;
		m->msg_iov = &b->iov[i];
		m->msg_iovlen = 1;
		m->msg_name = &b->from[i];
		m->msg_namelen = sizeof(b->from[i]);
		m->msg_control = b->control[i];
		m->msg_controllen = sizeof(b->control[i]);
	}
}

static u32 value_of(struct cmsghdr *c)
{
	u32 value = *CMSG_DATA(c);

	/* a TOS is one byte or an int, by kernel and family */
	if (c->cmsg_len >= CMSG_LEN(sizeof(value)))
		memcpy(&value, CMSG_DATA(c), sizeof(value));
	return value;
}

/* True: the packet was marked CE. @ttl: out: its TTL on arrival */
static bool read_control(struct thcd *d, struct thcd_socket *s, struct msghdr *m, u8 *ttl)
{
	struct cmsghdr *c;
	bool ce = false;

	*ttl = 0;
	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		u32 value = value_of(c);

		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
		    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) {
			ce = (value & ECN_MASK) == ECN_CE;
		} else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
			   (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT)) {
			*ttl = value;
		} else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
			d->counters.overflow += (u32)(value - s->lost);
			s->lost = value;
		}
	}
	return ce;
}

void thcd_receive(struct thcd *d, int i)
{
	static struct batch b;
	struct thcd_socket *s = &d->socket[i];
	int round, n, k;

	for (round = 0; round < IN_ROUNDS; round++) {
		prepare(&b);
		n = recvmmsg(s->fd, b.msg, IN_BATCH, MSG_DONTWAIT, NULL);
		if (n <= 0)
			break;
		for (k = 0; k < n; k++) {
			struct thc_path path = { .dst_port = d->port };
			bool ce = read_control(d, s, &b.msg[k].msg_hdr, &path.ttl);

			thcd_sockaddr_parse((struct sockaddr *)&b.from[k], &path.src,
					    &path.src_port);
			thcd_packet(d, b.frame[k], b.msg[k].msg_len, &path, ce);
		}
		thcd_out_flush(d);
		if (n < IN_BATCH)
			break;
	}
}
