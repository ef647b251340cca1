// SPDX-License-Identifier: GPL-2.0
/*
 * Addresses out of the options' text (userspace/libthc/resolve.c). Names are
 * known to this test alone, which stands in for the system's resolver.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libthc.h"
#include "resolve.h"

#define LO	1	/* index of lo in every namespace */

/* --- the resolver --------------------------------------------------------- */

/* Names with their addresses in the order of the answer, or the error. */
static const struct {
	const char	*name;
	const char	*address[3];
	int		error;
} names[] = {
	{ "six-then-four", { "fd00::1", "10.0.0.1", "fd00::2" }, 0 },
	{ "four-then-six", { "10.0.0.1", "fd00::1" }, 0 },
	{ "fours", { "10.0.0.1", "10.0.0.2" }, 0 },
	{ "nobody", { NULL }, EAI_NONAME },
	{ "not-now", { NULL }, EAI_AGAIN },
	{ "no-memory", { NULL }, EAI_MEMORY },
};

static int numeric(const char *text, const char *service, const struct addrinfo *hints,
		   struct addrinfo **out)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	struct addrinfo more = *hints;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	assert_non_null(real);
	more.ai_flags |= AI_NUMERICHOST;
	return real(text, service, &more, out);
}

/* The lists are chained from real ones, so that freeaddrinfo() frees them. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
		struct addrinfo **out)
{
	struct addrinfo **end = out;
	size_t i, k;

	assert_int_equal(hints->ai_socktype, SOCK_DGRAM);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i].name))
			continue;
		for (k = 0; k < 3 && names[i].address[k]; k++) {
			assert_int_equal(numeric(names[i].address[k], service, hints, end), 0);
			end = &(*end)->ai_next;
		}
		return names[i].error;
	}
	return numeric(name, service, hints, out);
}

/* --- what comes out ------------------------------------------------------- */

/* "ADDRESS%INDEX:PORT" */
static const char *text_of(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *in6 = (const void *)a;
	const struct sockaddr_in *in = (const void *)a;
	static char text[80];
	char address[INET6_ADDRSTRLEN];

	if (a->ss_family == AF_INET) {
		inet_ntop(AF_INET, &in->sin_addr, address, sizeof(address));
		snprintf(text, sizeof(text), "%s:%u", address, ntohs(in->sin_port));
	} else if (a->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &in6->sin6_addr, address, sizeof(address));
		snprintf(text, sizeof(text), "%s%%%u:%u", address, in6->sin6_scope_id,
			 ntohs(in6->sin6_port));
	} else {
		return "none";
	}
	return text;
}

static void expect(const char *aggregator, const char *bind, const char *interface,
		   const char *peer, const char *local)
{
	const struct thc_client_options o = {
		.aggregator = aggregator, .bind = bind, .interface = interface, .port = 18500,
	};
	struct thc_ends ends;

	if (thc_resolve(&ends, &o))
		fail_msg("%s: %s", aggregator, thc_last_error());
	assert_string_equal(text_of(&ends.aggregator), peer);
	assert_string_equal(text_of(&ends.local), local);
	assert_int_equal(ends.addrlen, ends.aggregator.ss_family == AF_INET ?
					       sizeof(struct sockaddr_in) :
					       sizeof(struct sockaddr_in6));
}

static void expect_error(const char *aggregator, const char *bind, const char *interface, int error,
			 const char *words)
{
	const struct thc_client_options o = {
		.aggregator = aggregator, .bind = bind, .interface = interface, .port = 18500,
	};
	struct thc_ends ends;

	assert_int_equal(thc_resolve(&ends, &o), error);
	if (!strstr(thc_last_error(), words))
		fail_msg("\"%s\" does not say \"%s\"", thc_last_error(), words);
}

static void numeric__addresses(void **state)
{
	(void)state;
	expect("10.0.0.100", NULL, NULL, "10.0.0.100:18500", "none");
	expect("10.0.0.100", "10.0.0.7", "lo", "10.0.0.100:18500", "10.0.0.7:0");
	expect("fd00::1", NULL, NULL, "fd00::1%0:18500", "none");
	expect("fd00::1", "fd00::7", "lo", "fd00::1%0:18500", "fd00::7%0:0");
	expect_error("10.0.0.100", "fd00::7", NULL, -EINVAL, "family");
	expect_error("fd00::1", "10.0.0.7", NULL, -EINVAL, "family");
	expect_error("fd00::1::2", NULL, NULL, -EINVAL, "not an IPv6 address");
	expect_error("10.0.0.300", NULL, NULL, -EHOSTUNREACH, "\"10.0.0.300\" has no address");
}

/* The first address of the aggregator whose family one of ours has. */
static void name__of_several_addresses(void **state)
{
	(void)state;
	expect("six-then-four", NULL, NULL, "fd00::1%0:18500", "none");
	expect("four-then-six", NULL, NULL, "10.0.0.1:18500", "none");
	expect("six-then-four", "10.0.0.7", NULL, "10.0.0.1:18500", "10.0.0.7:0");
	expect("four-then-six", "fd00::7", NULL, "fd00::1%0:18500", "fd00::7%0:0");
	expect("six-then-four", "fours", NULL, "10.0.0.1:18500", "10.0.0.1:0");
	expect("four-then-six", "six-then-four", NULL, "10.0.0.1:18500", "10.0.0.1:0");
	expect_error("fours", "fd00::7", NULL, -EINVAL, "family");
}

static void name__that_has_none(void **state)
{
	(void)state;
	expect_error("nobody", NULL, NULL, -EHOSTUNREACH,
		     "the aggregator \"nobody\" has no address");
	expect_error("not-now", NULL, NULL, -EHOSTUNREACH, gai_strerror(EAI_AGAIN));
	expect_error("no-memory", NULL, NULL, -ENOMEM, "memory");
	expect_error("fours", "nobody", NULL, -EHOSTUNREACH, "local address \"nobody\"");
}

static void link_local__has_one_interface(void **state)
{
	char by_index[32], want[64];

	(void)state;
	assert_int_equal(if_nametoindex("lo"), LO);
	expect("fe80::1%lo", NULL, NULL, "fe80::1%1:18500", "none");
	expect("fe80::1", NULL, "lo", "fe80::1%1:18500", "none");
	expect("fe80::1%lo", NULL, "lo", "fe80::1%1:18500", "none");
	expect("fe80::1", "fe80::7%lo", NULL, "fe80::1%1:18500", "fe80::7%1:0");
	expect("fe80::1%lo", "fe80::7", NULL, "fe80::1%1:18500", "fe80::7%1:0");
	expect("fe80::1%lo", "fd00::7", NULL, "fe80::1%1:18500", "fd00::7%0:0");
	expect("fd00::1", "fe80::7", "lo", "fd00::1%0:18500", "fe80::7%1:0");
	/* a number needs no interface that is there */
	snprintf(by_index, sizeof(by_index), "fe80::1%%%u", LO + 1000);
	snprintf(want, sizeof(want), "fe80::1%%%u:18500", LO + 1000);
	expect(by_index, NULL, NULL, want, "none");
	expect_error(by_index, NULL, "lo", -EINVAL, "than lo");
	expect_error(by_index, "fe80::7%lo", NULL, -EINVAL, "than fe80::7%lo");
	expect_error("fe80::1", NULL, NULL, -EINVAL, "as in fe80::1%eth0");
	expect_error("fd00::1", "fe80::7", NULL, -EINVAL, "as in fe80::7%eth0");
	expect_error("fe80::1%nosuch0", NULL, NULL, -EINVAL, "no interface \"nosuch0\"");
}

static void scope__is_of_link_local_addresses_alone(void **state)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_scope_id = 3 };
	struct sockaddr_storage a = { .ss_family = AF_INET };

	(void)state;
	assert_int_equal(thc_scope_of(&a), 0);
	inet_pton(AF_INET6, "fe80::1", &in6.sin6_addr);
	memcpy(&a, &in6, sizeof(in6));
	assert_int_equal(thc_scope_of(&a), 3);
	inet_pton(AF_INET6, "fd00::1", &in6.sin6_addr);
	memcpy(&a, &in6, sizeof(in6));
	assert_int_equal(thc_scope_of(&a), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numeric__addresses),
		cmocka_unit_test(name__of_several_addresses),
		cmocka_unit_test(name__that_has_none),
		cmocka_unit_test(link_local__has_one_interface),
		cmocka_unit_test(scope__is_of_link_local_addresses_alone),
	};

	return cmocka_run_group_tests_name("resolve", tests, NULL, NULL);
}
