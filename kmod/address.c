// SPDX-License-Identifier: GPL-2.0
/*
 * struct sockaddr_thc, checked and taken apart. Everything that is not used
 * has to be zero, so that it can get a meaning later.
 */
#include <linux/in.h>
#include <linux/string.h>
#include <net/ipv6.h>

#include "sock.h"

int thc_address_read(const struct sockaddr_thc *a, struct thc_address *out)
{
	u32 used = a->sthc_inet == AF_INET ? 4 : a->sthc_inet == AF_INET6 ? 16 : 0;

	if (!used)
		return -EAFNOSUPPORT;
	if (memchr_inv(a->sthc_addr + used, 0, sizeof(a->sthc_addr) - used) ||
	    a->sthc_ifindex > INT_MAX)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	out->inet = a->sthc_inet;
	out->port = a->sthc_port;
	out->ifindex = (int)a->sthc_ifindex;
	memcpy(&out->in6, a->sthc_addr, used);
	return 0;
}

bool thc_address_is_host(const struct thc_address *a)
{
	int type;

	if (a->inet == AF_INET)
		return !ipv4_is_zeronet(a->in) && !ipv4_is_multicast(a->in) &&
		       !ipv4_is_lbcast(a->in);
	type = ipv6_addr_type(&a->in6);
	return type & IPV6_ADDR_UNICAST && !(type & IPV6_ADDR_MAPPED);
}

struct thc_address thc_address_of(const struct thc_end *end, int ifindex)
{
	struct thc_address a = { .port = end->port, .ifindex = ifindex };

	if (thc_addr_is_v4(&end->addr)) {
		a.inet = AF_INET;
		a.in = end->addr.word[3];
	} else {
		a.inet = AF_INET6;
		memcpy(&a.in6, &end->addr, sizeof(a.in6));
	}
	return a;
}

bool thc_address_equal(const struct thc_address *a, const struct thc_address *b)
{
	if (a->inet != b->inet || a->port != b->port || a->ifindex != b->ifindex)
		return false;
	return a->inet == AF_INET ? a->in == b->in : ipv6_addr_equal(&a->in6, &b->in6);
}

int thc_address_check(const struct sockaddr_unsized *name, int len)
{
	const struct sockaddr_thc *a = (const void *)name;

	if (len != sizeof(*a))
		return -EINVAL;
	if (a->sthc_family != AF_THC)
		return -EAFNOSUPPORT;
	if (memchr_inv(a->sthc_reserved, 0, sizeof(a->sthc_reserved)) ||
	    memchr_inv(a->sthc_reserved2, 0, sizeof(a->sthc_reserved2)))
		return -EINVAL;
	return 0;
}

void thc_address_name(const struct thc_address *from, struct sockaddr_thc *a)
{
	memset(a, 0, sizeof(*a));
	a->sthc_family = AF_THC;
	a->sthc_inet = from->inet;
	a->sthc_port = from->port;
	a->sthc_ifindex = from->ifindex;
	memcpy(a->sthc_addr, &from->in6, from->inet == AF_INET ? 4 : 16);
}
