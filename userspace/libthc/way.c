// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Addresses and interfaces towards aggregators: from what the options say and the system knows. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "resolve.h"
#include "way.h"

bool thc_address_is_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return thc_scope_of(a) == thc_scope_of(b) &&
	       !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
}

void thc_address_set_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)a)->sin6_port = htons(port);
}

uint16_t thc_address_port(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET ? ((const struct sockaddr_in *)a)->sin_port :
					       ((const struct sockaddr_in6 *)a)->sin6_port);
}

static bool is_any(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET ?
		       ((const struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_ANY) :
		       IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

const char *thc_way_name(const struct thc_way *w, char *text, size_t size)
{
	char address[INET6_ADDRSTRLEN + IF_NAMESIZE] = "?", port[8] = "?";

	getnameinfo((const void *)&w->aggregator, w->addrlen, address, sizeof(address), port,
		    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(text, size, w->aggregator.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", address,
		 port);
	return text;
}

/* The local address the system would use towards the aggregator. */
static int find_local(struct thc_way *w)
{
	socklen_t len = sizeof(w->local);
	int fd = socket(w->aggregator.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, (void *)&w->aggregator, w->addrlen) ||
	    getsockname(fd, (void *)&w->local, &len))
		error = -errno;
	close(fd);
	thc_address_set_port(&w->local, 0);
	return error;
}

struct sockaddr_storage thc_way_address(const struct thc_way *w, const struct thc_end *end)
{
	struct sockaddr_storage a = { .ss_family = w->aggregator.ss_family };
	struct sockaddr_in6 *in6 = (void *)&a;

	if (a.ss_family == AF_INET) {
		((struct sockaddr_in *)&a)->sin_addr.s_addr = end->addr.word[3];
	} else {
		memcpy(&in6->sin6_addr, &end->addr, sizeof(end->addr));
		if (IN6_IS_ADDR_MULTICAST(&in6->sin6_addr) ||
		    IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			in6->sin6_scope_id = (uint32_t)w->ifindex;
	}
	thc_address_set_port(&a, thc_be16(end->port));
	return a;
}

/* Finds the interface of the local address; none if that is any address. */
static int find_interface(struct thc_way *w)
{
	struct ifaddrs *list, *i;

	if (getifaddrs(&list))
		return thc_fail(-errno, "cannot list interfaces: %s", strerror(errno));
	for (i = list; i; i = i->ifa_next) {
		if (i->ifa_addr && thc_address_is_same((void *)i->ifa_addr, &w->local)) {
			w->ifindex = if_nametoindex(i->ifa_name);
			break;
		}
	}
	freeifaddrs(list);
	return 0;
}

/* Finds local address and interface towards the aggregator, unless the options name them. */
static int find_way(struct thc_way *w)
{
	char aggregator[80];
	int error = w->bound ? 0 : find_local(w);

	if (error)
		return thc_fail(error, "no route to the aggregator %s: %s",
				thc_way_name(w, aggregator, sizeof(aggregator)), strerror(-error));
	return w->ifindex ? 0 : find_interface(w);
}

int thc_way_find(struct thc_way *w, const struct thc_client_options *o)
{
	struct thc_ends ends;
	int error;

	*w = (struct thc_way){ .addrlen = 0 };
	if (o->interface) {
		w->named = true;
		w->ifindex = (int)if_nametoindex(o->interface);
		if (!w->ifindex)
			return thc_fail(-EINVAL,
					"there is no interface \"%s\" here: `ip link` shows those",
					o->interface);
	}
	error = thc_resolve(&ends, o);
	if (error)
		return error;
	w->aggregator = ends.aggregator;
	w->local = ends.local;
	w->addrlen = ends.addrlen;
	w->bound = o->bind && !is_any(&w->local);
	return find_way(w);
}

int thc_way_beside(struct thc_way *w, const struct thc_way *first, const struct thc_end *to)
{
	const bool v4 = thc_addr_is_v4(&to->addr);
	char name[INET6_ADDRSTRLEN] = "?";

	if (v4 != (first->aggregator.ss_family == AF_INET)) {
		inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? &to->addr.word[3] : to->addr.word, name,
			  sizeof(name));
		return thc_fail(-EAFNOSUPPORT,
				"the job's aggregators are reached over %s, such as %s: give the "
				"first one's %s address",
				v4 ? "IPv4" : "IPv6", name, v4 ? "IPv4" : "IPv6");
	}
	*w = (struct thc_way){
		.aggregator = thc_way_address(first, to), .addrlen = first->addrlen,
		.bound = first->bound, .named = first->named,
		.ifindex = first->named ? first->ifindex : 0,
	};
	if (first->bound) {
		w->local = first->local;
		thc_address_set_port(&w->local, 0);
	}
	return find_way(w);
}

void thc_way_end(const struct thc_way *w, struct thc_end *end)
{
	const struct sockaddr_in6 *in6 = (const void *)&w->local;
	const struct sockaddr_in *in = (const void *)&w->local;

	*end = (struct thc_end){ .zero = 0 };
	if (w->local.ss_family == AF_INET) {
		end->addr = thc_addr_v4(in->sin_addr.s_addr);
		end->port = in->sin_port;
	} else {
		memcpy(&end->addr, &in6->sin6_addr, sizeof(end->addr));
		end->port = in6->sin6_port;
	}
}
