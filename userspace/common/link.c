// SPDX-License-Identifier: GPL-2.0
/* Asks the kernel by rtnetlink(7) what no ioctl tells about an interface. */
#include <net/if.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include "link.h"

/* An answer about one interface, its statistics left out, is some 2 KiB. */
#define ANSWER_BYTES	16384

struct question {
	struct nlmsghdr		h;
	struct ifinfomsg	link;
	struct rtattr		attribute;
	__u32			leave_out;
};

/* Bytes of the answer; 0 or less: there is none. */
static ssize_t ask(const char *interface, void *answer)
{
	const struct question q = {
		.h = { .nlmsg_len = sizeof(q), .nlmsg_type = RTM_GETLINK,
		       .nlmsg_flags = NLM_F_REQUEST },
		.link = { .ifi_family = AF_UNSPEC, .ifi_index = (int)if_nametoindex(interface) },
		.attribute = { .rta_len = RTA_LENGTH(sizeof(__u32)), .rta_type = IFLA_EXT_MASK },
		.leave_out = RTEXT_FILTER_SKIP_STATS,
	};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t got = 0;

	if (fd < 0)
		return 0;
	if (send(fd, &q, sizeof(q), 0) == (ssize_t)sizeof(q))
		got = recv(fd, answer, ANSWER_BYTES, 0);
	close(fd);
	return got;
}

bool thc_link_is_elsewhere(const char *interface)
{
	static union {
		struct nlmsghdr	h;
		char		bytes[ANSWER_BYTES];
	} answer;
	ssize_t got = ask(interface, &answer);
	const struct rtattr *a;
	int left;

	if (got <= 0 || !NLMSG_OK(&answer.h, (size_t)got) || answer.h.nlmsg_type != RTM_NEWLINK)
		return false;
	a = IFLA_RTA(NLMSG_DATA(&answer.h));
	left = (int)IFLA_PAYLOAD(&answer.h);
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == IFLA_LINK_NETNSID)
			return true;
	return false;
}
