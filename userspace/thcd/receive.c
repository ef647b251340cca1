// SPDX-License-Identifier: GPL-2.0
/*
 * From socket to packet: batches of recvmmsg(), the path and the ECN mark of
 * each datagram, and the checks every packet passes before anybody looks at
 * what it asks for. They are those of the XDP program, in its order.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <thc/worker/window.h>

#include "../common/report.h"
#include "net.h"
#include "plan.h"
#include "receive.h"
#include "software.h"
#include "welcome.h"

/* Datagrams per recvmmsg(), and calls before other sockets get their turn. */
#define IN_BATCH	64
#define IN_ROUNDS	16
/* Longer than any THC packet, so that those which are too long show. */
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

/* Payload lengths that ops have; the packet sum of others is not even taken. */
static bool length_known(u8 op, u32 length)
{
	if (op == THC_OP_JOIN)
		return length == sizeof(struct thc_join);
	return !length || length == THC_CHUNK_16 / 2 || length == THC_CHUNK_8 / 2 ||
	       length == THC_LANE_BYTES;
}

/* Who sends it? Strangers that XDP let through are counted again: some come past it. */
static enum thc_drop_reason check_sender(struct thcd *d, const struct thc_job *job,
					 const struct thc_hdr *h, const struct thc_path *path)
{
	enum thc_drop_reason reason;

	if (h->op == THC_OP_JOIN)
		return thc_admit_join(job, h, &d->strangers, thcd_now_ms() * THC_NS_PER_MS);
	if (!job)
		return THC_DROP_JOB;
	reason = thc_admit_rank(job, h, path);
	return reason && thc_admit_lost(job, h, reason) ? THC_DROP_NONE : reason;
}

/* Version, distance, sender, length, sum and form; a corrupted packet's fields mean nothing. */
static enum thc_drop_reason check(struct thcd *d, const struct thc_hdr *h, u32 length,
				  const struct thc_path *path)
{
	u16 id = thc_be16(h->job);
	const struct thc_job *job = id < THC_JOBS_MAX ? &d->job[id] : NULL;
	enum thc_drop_reason reason;

	if (h->version != THC_VERSION)
		return THC_DROP_VERSION;
	if (job && !thc_admit_near(job, path))
		return THC_DROP_HOPS;
	reason = check_sender(d, job, h, path);
	if (reason)
		return reason;
	if (!length_known(h->op, length))
		return THC_DROP_LENGTH;
	if (!(job && thc_admit_nosum(job, h)) &&
	    thc_be32(h->sum) != thc_sum_packet(h, h + 1, length / 8))
		return THC_DROP_SUM;
	return thc_admit_form(h);
}

/* A JOIN or a LEAVE of one of the job's ranks. */
static enum thc_drop_reason control(struct thcd *d, const struct thc_hdr *h, u32 length,
				    const struct thc_path *path)
{
	if (h->width)
		return THC_DROP_WIDTH;
	if (h->op == THC_OP_LEAVE && length)
		return THC_DROP_LENGTH;
	return thcd_join_or_leave(d, h, h + 1, path);
}

/* XDP takes data on its interface; what is here came in elsewhere, and is lost.
 * Said at the first packet, and ever more rarely.
 */
static void past_xdp(struct thcd *d, const struct thc_path *path)
{
	u64 n = ++d->counters.past_xdp;
	char text[64];

	if (n & (n - 1))
		return;
	thcd_say(
		"%llu packet%s from %s came by another way than through XDP on %s and %s not counted: is "
		"the worker on this host, or does another interface answer ARP for this address?",
		(unsigned long long)n, n == 1 ? "" : "s", thc_addr_text(&path->src, text),
		d->interface, n == 1 ? "was" : "were");
}

void thcd_packet(struct thcd *d, void *packet, u32 length, const struct thc_path *path, bool ce)
{
	struct thc_hdr *h = packet;
	enum thc_drop_reason reason;

	if (length < sizeof(*h)) {
		reason = THC_DROP_TRUNCATED;
	} else {
		length -= sizeof(*h);
		reason = check(d, h, length, path);
	}
	/* XDP has counted what it passed on: here only the rest is counted */
	if (!d->software) {
		if (!reason && thc_op_is_control(h->op))
			control(d, h, length, path);
		else if (reason == THC_DROP_FLOOD)
			d->counters.muted++;
		else
			past_xdp(d, path);
		return;
	}
	d->stats.received++;
	if (!reason && thc_op_is_control(h->op)) {
		reason = control(d, h, length, path);
		if (!reason)
			d->stats.event[THC_EVENT_CONTROL]++;
	} else if (!reason) {
		reason = thcd_software(d, h, length, path, ce);
	}
	if (reason)
		d->stats.drop[reason]++;
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

/* @ttl: out: what is left of it */
static bool read_control(struct thcd *d, struct thcd_socket *s, struct msghdr *m, u8 *ttl)
{
	struct cmsghdr *c;
	bool ce = false;

	*ttl = 0;
	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
		    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) {
			/* one byte or an int, by kernel and family */
			u8 tos = *CMSG_DATA(c);

			if (c->cmsg_len >= CMSG_LEN(sizeof(int))) {
				int wide;

				memcpy(&wide, CMSG_DATA(c), sizeof(wide));
				tos = wide;
			}
			ce = (tos & ECN_MASK) == ECN_CE;
		} else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
			   (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT)) {
			int left;

			memcpy(&left, CMSG_DATA(c), sizeof(left));
			*ttl = left;
		} else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
			u32 lost;

			memcpy(&lost, CMSG_DATA(c), sizeof(lost));
			d->counters.overflow += (u32)(lost - s->lost);
			s->lost = lost;
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

			thcd_sockaddr_parse(&b.from[k], &path.src, &path.src_port);
			thcd_packet(d, b.frame[k], b.msg[k].msg_len, &path, ce);
		}
		thcd_out_flush(d);
		if (n < IN_BATCH)
			break;
	}
}
