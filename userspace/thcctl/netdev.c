// SPDX-License-Identifier: GPL-2.0
/*
 * Which XDP features a driver has, from the kernel itself: generic netlink
 * family "netdev", kernel 6.3 on (Documentation/netlink/specs/netdev.yaml). Two
 * small requests do not need a netlink library.
 */
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "thcctl.h"

/* linux/netdev.h is newer than Debian 12's headers. */
#define NETDEV_CMD_DEV_GET	1
#define NETDEV_A_DEV_IFINDEX	1
#define NETDEV_A_DEV_XDP_FEATURES 3
#define NETDEV_XDP_ACT_BASIC	1
#define NETDEV_XDP_ACT_REDIRECT	2
#define NETDEV_XDP_ACT_NDO_XMIT	4

struct message {
	struct nlmsghdr		nl;
	struct genlmsghdr	genl;
	char			attributes[4096];
};

static void put(struct message *m, uint16_t type, const void *data, uint16_t length)
{
	struct nlattr *a = (struct nlattr *)((char *)m + NLMSG_ALIGN(m->nl.nlmsg_len));

	a->nla_type = type;
	a->nla_len = NLA_HDRLEN + length;
	memcpy((char *)a + NLA_HDRLEN, data, length);
	m->nl.nlmsg_len = NLMSG_ALIGN(m->nl.nlmsg_len) + NLA_ALIGN(a->nla_len);
}

static void begin(struct message *m, uint16_t family, uint8_t command)
{
	memset(m, 0, sizeof(*m));
	m->nl.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	m->nl.nlmsg_type = family;
	m->nl.nlmsg_flags = NLM_F_REQUEST;
	m->genl.cmd = command;
	m->genl.version = 1;
}

/* Sends @m and reads one answer over it; 0 if it is of that family. */
static int converse(int fd, struct message *m, uint16_t family)
{
	ssize_t n;

	if (send(fd, m, m->nl.nlmsg_len, 0) < 0)
		return -1;
	n = recv(fd, m, sizeof(*m), 0);
	if (n < (ssize_t)NLMSG_LENGTH(GENL_HDRLEN) || m->nl.nlmsg_type != family ||
	    m->nl.nlmsg_len > (uint32_t)n)
		return -1;
	return 0;
}

static const struct nlattr *find(const struct message *m, uint16_t type)
{
	const char *at = (const char *)m + NLMSG_LENGTH(GENL_HDRLEN);
	const char *end = (const char *)m + m->nl.nlmsg_len;

	while (at + NLA_HDRLEN <= end) {
		const struct nlattr *a = (const struct nlattr *)at;

		if (a->nla_len < NLA_HDRLEN || at + a->nla_len > end)
			return NULL;
		if ((a->nla_type & NLA_TYPE_MASK) == type)
			return a;
		at += NLA_ALIGN(a->nla_len);
	}
	return NULL;
}

static int find_family(int fd, uint16_t *family)
{
	static const char name[] = "netdev";
	const struct nlattr *a;
	struct message m;

	begin(&m, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
	put(&m, CTRL_ATTR_FAMILY_NAME, name, sizeof(name));
	if (converse(fd, &m, GENL_ID_CTRL))
		return -1;
	a = find(&m, CTRL_ATTR_FAMILY_ID);
	if (!a || a->nla_len < NLA_HDRLEN + sizeof(*family))
		return -1;
	memcpy(family, (const char *)a + NLA_HDRLEN, sizeof(*family));
	return 0;
}

void thcctl_netdev(unsigned int ifindex, struct thcctl_netdev *out)
{
	struct timeval patience = { .tv_sec = 1 };
	uint32_t index = ifindex;
	const struct nlattr *a;
	uint64_t features;
	struct message m;
	uint16_t family;
	int fd;

	memset(out, 0, sizeof(*out));
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!find_family(fd, &family)) {
		begin(&m, family, NETDEV_CMD_DEV_GET);
		put(&m, NETDEV_A_DEV_IFINDEX, &index, sizeof(index));
		a = converse(fd, &m, family) ? NULL : find(&m, NETDEV_A_DEV_XDP_FEATURES);
		if (a && a->nla_len >= NLA_HDRLEN + sizeof(features)) {
			memcpy(&features, (const char *)a + NLA_HDRLEN, sizeof(features));
			out->known = true;
			out->basic = features & NETDEV_XDP_ACT_BASIC;
			out->redirect = features & NETDEV_XDP_ACT_REDIRECT;
			out->target = features & NETDEV_XDP_ACT_NDO_XMIT;
		}
	}
	close(fd);
}
