// SPDX-License-Identifier: GPL-2.0
/*
 * A client seals its JOINs with the address and port that the aggregator sees
 * (userspace/libthc/udp.c), whatever address the client is bound to: over loopback.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "libthc.h"
#include "udp.h"

/* A socket that stands for the aggregator at @address; *@port: its port. Returns -1 if the address
 * does not exist.
 */
static int aggregator_at(const char *address, uint16_t *port)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct timeval second = { .tv_sec = 1 };
	int v6 = !!strchr(address, ':'), fd;
	struct sockaddr *at = v6 ? (void *)&in6 : (void *)&in;
	socklen_t len = v6 ? sizeof(in6) : sizeof(in);

	assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, address,
				   v6 ? (void *)&in6.sin6_addr : (void *)&in.sin_addr),
			 1);
	fd = socket(at->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, at, len)) {
		close(fd);
		return -1;
	}
	assert_int_equal(getsockname(fd, at, &len), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second)), 0);
	*port = ntohs(v6 ? in6.sin6_port : in.sin_port);
	return fd;
}

/* The sender of the next packet, as an aggregator sees it. */
static struct thc_end seen_by(int fd)
{
	struct sockaddr_storage from;
	const struct sockaddr_in6 *in6 = (void *)&from;
	const struct sockaddr_in *in = (void *)&from;
	socklen_t len = sizeof(from);
	struct thc_end end = { .zero = 0 };
	char byte;

	assert_int_equal(recvfrom(fd, &byte, 1, MSG_TRUNC, (void *)&from, &len), 48);
	if (from.ss_family == AF_INET) {
		end.addr = thc_addr_v4(in->sin_addr.s_addr);
		end.port = in->sin_port;
	} else {
		memcpy(&end.addr, &in6->sin6_addr, 16);
		end.port = in6->sin6_port;
	}
	return end;
}

static void assert_end(const char *address, const char *local)
{
	struct thc_client_options o = { .aggregator = address, .bind = local };
	struct thc_hdr h = { .version = THC_VERSION };
	struct thc_end end, seen;
	struct thc_sockets l;
	uint64_t calls = 0;
	int fd;

	memset(&end, 0xff, sizeof(end));
	fd = aggregator_at(address, &o.port);
	if (fd < 0)
		skip();
	assert_int_equal(thc_sockets_open(&l, &o), 0);
	thc_way_end(&l.way, &end);
	assert_int_equal(thc_sockets_send(&l, &(struct thc_outgoing){ &h, sizeof(h), o.port }, 1,
					  &calls),
			 1);
	seen = seen_by(fd);
	assert_memory_equal(&end, &seen, sizeof(end));
	assert_true(end.port);
	assert_int_equal(thc_addr_is_v4(&end.addr), !strchr(address, ':'));
	thc_sockets_close(&l);
	close(fd);
}

static void end__over_ipv4(void **state)
{
	(void)state;
	assert_end("127.0.0.1", NULL);
	assert_end("127.0.0.1", "127.0.0.2");
}

static void end__over_ipv6(void **state)
{
	(void)state;
	assert_end("::1", NULL);
	assert_end("::1", "::1");
}

/* A socket bound to any address: the client asks the system which address it uses. */
static void end__of_any_address_over_ipv4(void **state)
{
	(void)state;
	assert_end("127.0.0.1", "0.0.0.0");
}

static void end__of_any_address_over_ipv6(void **state)
{
	(void)state;
	assert_end("::1", "::");
}

/* A job's aggregators must have one IP version; the error names the first one's version. */
static void beside__is_of_the_same_ip_version(void **state)
{
	struct thc_way v4 = { .aggregator.ss_family = AF_INET }, way;
	struct thc_way v6 = { .aggregator.ss_family = AF_INET6 };
	struct thc_end to = { .addr = thc_addr_v4(htonl(INADDR_LOOPBACK)) };

	(void)state;
	v4.addrlen = sizeof(struct sockaddr_in);
	v6.addrlen = sizeof(struct sockaddr_in6);
	assert_int_equal(thc_way_beside(&way, &v4, &to), 0);
	assert_int_equal(thc_way_beside(&way, &v6, &to), -EAFNOSUPPORT);
	assert_non_null(strstr(thc_last_error(),
			       "over IPv4, such as 127.0.0.1: give the first one's "
			       "IPv4 address"));
	memcpy(&to.addr, &in6addr_loopback, sizeof(to.addr));
	assert_int_equal(thc_way_beside(&way, &v4, &to), -EAFNOSUPPORT);
	assert_non_null(strstr(thc_last_error(),
			       "over IPv6, such as ::1: give the first one's IPv6 "
			       "address"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(end__over_ipv4),
		cmocka_unit_test(end__over_ipv6),
		cmocka_unit_test(end__of_any_address_over_ipv4),
		cmocka_unit_test(end__of_any_address_over_ipv6),
		cmocka_unit_test(beside__is_of_the_same_ip_version),
	};

	return cmocka_run_group_tests_name("udp", tests, NULL, NULL);
}
