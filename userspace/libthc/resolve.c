// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Socket addresses from the options. Sends no packet except the system resolver's for names.
 */
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "resolve.h"

static bool is_link_local(const struct sockaddr *a)
{
	const struct sockaddr_in6 *in6 = (const void *)a;

	return a->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

unsigned int thc_scope_of(const struct sockaddr_storage *a)
{
	return is_link_local((const void *)a) ? ((const struct sockaddr_in6 *)a)->sin6_scope_id : 0;
}

static int not_found(const char *what, const char *text, int error)
{
	const char *scope = strchr(text, '%');

	if (error == EAI_MEMORY)
		return thc_fail(-ENOMEM, "out of memory");
	if (scope && strchr(text, ':'))
		return thc_fail(
			-EINVAL,
			"the %s \"%s\" is no IPv6 address, or there is no interface \"%s\" here: `ip link` shows those",
			what, text, scope + 1);
	if (strchr(text, ':'))
		return thc_fail(-EINVAL, "the %s \"%s\" is not an IPv6 address", what, text);
	return thc_fail(
		-EHOSTUNREACH,
		"the %s \"%s\" has no address: %s; give an IPv4 or IPv6 address, or a name that `getent ahosts` finds",
		what, text, gai_strerror(error));
}

static int look_up(const char *what, const char *text, uint16_t port, struct addrinfo **out)
{
	const struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV,
	};
	char service[8];
	int error;

	snprintf(service, sizeof(service), "%u", port);
	error = getaddrinfo(text, service, &hints, out);
	return error ? not_found(what, text, error) : 0;
}

static const struct addrinfo *of_family(const struct addrinfo *list, int family)
{
	while (list && list->ai_family != family)
		list = list->ai_next;
	return list;
}

/* The first of @peers whose family @locals has, and that local address; @locals may be NULL. */
static bool choose(struct thc_ends *ends, const struct addrinfo *peers,
		   const struct addrinfo *locals)
{
	const struct addrinfo *p, *l = NULL;

	for (p = peers; p; p = p->ai_next) {
		if (p->ai_family != AF_INET && p->ai_family != AF_INET6)
			continue;
		l = of_family(locals, p->ai_family);
		if (l || !locals)
			break;
	}
	if (!p)
		return false;
	memcpy(&ends->aggregator, p->ai_addr, p->ai_addrlen);
	if (l)
		memcpy(&ends->local, l->ai_addr, l->ai_addrlen);
	ends->addrlen = p->ai_addrlen;
	return true;
}

/* Sets the scope of @a, which is @text in the options, to @otherwise if it has none. */
static int set_scope(struct sockaddr_storage *a, const char *text, unsigned int otherwise)
{
	struct sockaddr_in6 *in6 = (void *)a;

	if (!is_link_local((void *)a) || in6->sin6_scope_id)
		return 0;
	in6->sin6_scope_id = otherwise;
	return otherwise ?
		       0 :
		       thc_fail(
			       -EINVAL,
			       "\"%s\" is a link-local address, which means another host on each interface: name the interface, as in %s%%eth0",
			       text, text);
}

/* Gives all link-local addresses one interface. */
static int set_scopes(struct thc_ends *ends, const struct thc_client_options *o)
{
	unsigned int named = o->interface ? if_nametoindex(o->interface) : 0, scope, local;
	int error;

	local = thc_scope_of(&ends->local);
	error = set_scope(&ends->aggregator, o->aggregator, named ? named : local);
	if (error)
		return error;
	scope = thc_scope_of(&ends->aggregator);
	if (o->bind)
		error = set_scope(&ends->local, o->bind, scope ? scope : named);
	if (error)
		return error;
	local = thc_scope_of(&ends->local);
	if ((scope && local && scope != local) || (scope && named && scope != named))
		return thc_fail(
			-EINVAL,
			"the aggregator \"%s\" is on another interface than %s: a link-local address is reached through its own interface alone",
			o->aggregator, local && scope != local ? o->bind : o->interface);
	return 0;
}

int thc_resolve(struct thc_ends *ends, const struct thc_client_options *o)
{
	struct addrinfo *peers, *locals = NULL;
	int error;

	memset(ends, 0, sizeof(*ends));
	error = look_up("aggregator", o->aggregator, o->port, &peers);
	if (error)
		return error;
	if (o->bind)
		error = look_up("local address", o->bind, 0, &locals);
	if (!error && !choose(ends, peers, locals))
		error = thc_fail(-EINVAL, "local address \"%s\" is not of the aggregator's family",
				 o->bind);
	freeaddrinfo(peers);
	if (locals)
		freeaddrinfo(locals);
	return error ? error : set_scopes(ends, o);
}
