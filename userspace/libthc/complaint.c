// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Complaints of the network, which a UDP socket keeps in a queue beside its packets. */
#include <netinet/in.h>
#include <string.h>
#include <time.h>

#include <linux/errqueue.h>
#include <linux/thc_wire.h>

#include "complaint.h"

/* Most errors read at a time, so that a flood of them does not hold a thread. */
#define COMPLAINTS_MAX	256

/* The kernel's control data for an error: the DSCP of its packet, the error, and its sender. */
union notes {
	struct cmsghdr	align;
	char		bytes[CMSG_SPACE(sizeof(int)) +
		   CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
};

/* The errno that the network has reported in @m; 0: the kernel's own error, which its system call
 * has returned already.
 */
static int complaint_in(struct msghdr *m)
{
	struct sock_extended_err e;
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (!(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) &&
		    !(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR))
			continue;
		memcpy(&e, CMSG_DATA(c), sizeof(e));
		if (e.ee_origin == SO_EE_ORIGIN_ICMP || e.ee_origin == SO_EE_ORIGIN_ICMP6)
			return (int)e.ee_errno;
	}
	return 0;
}

/* Did the packet go to a port of the aggregator? */
static bool went_to(const struct thc_way *w, const struct sockaddr_storage *to)
{
	uint16_t above = (uint16_t)(thc_address_port(to) - thc_address_port(&w->aggregator));

	return thc_address_is_same(to, &w->aggregator) && above < THC_PORT_SPAN;
}

unsigned int thc_complaints_read(int fd, const struct thc_way *w, int *error)
{
	unsigned int n, complaints = 0;
	struct sockaddr_storage to;
	union notes notes;

	for (n = 0; n < COMPLAINTS_MAX; n++) {
		struct msghdr m = { .msg_name = &to,
				    .msg_namelen = sizeof(to),
				    .msg_control = &notes,
				    .msg_controllen = sizeof(notes) };
		int said;

		if (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			break;
		said = complaint_in(&m);
		complaints += said != 0;
		if (said && went_to(w, &to))
			*error = said;
	}
	return complaints;
}
