// SPDX-License-Identifier: GPL-2.0
/*
 * XDP takes packets for THC_PORT_SPAN ports, and answers from them. thcd binds all these ports, so
 * that no other program of this host can send from one: workers trust packets from them. thcd never
 * reads these sockets: JOIN and LEAVE come to the base port, and data counts only if XDP takes it.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net.h"

#define GUARDS	(THC_PORT_SPAN - 1)

static int guards[GUARDS * THCD_LISTEN_MAX];
static int count;

static int guard(const struct thcd_socket *s, u16 port)
{
	struct sockaddr_storage ss;
	socklen_t len = thcd_sockaddr(&ss, &s->addr, port, s->family, s->ifindex);
	int least = 1, fd = socket(s->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	guards[count++] = fd;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	return bind(fd, (struct sockaddr *)&ss, len) ? -errno : 0;
}

static int guard_failed(u16 port, int error, struct thcd_error *e)
{
	if (error == -EADDRINUSE)
		return thcd_fail(e,
				 "UDP port %u is taken, and XDP answers from it: stop the program "
				 "that uses it (ss -nulp shows it), or give --port a number with "
				 "%d free ports behind it",
				 port, GUARDS);
	return thcd_fail(e, "cannot reserve UDP port %u for answers: %s", port, strerror(-error));
}

int thcd_guard_init(const struct thcd *d, struct thcd_error *e)
{
	int i, k, error;

	for (i = 0; i < d->sockets; i++) {
		for (k = 1; k <= GUARDS; k++) {
			u16 port = (u16)(d->port + k);

			error = guard(&d->socket[i], port);
			if (error)
				return guard_failed(port, error, e);
		}
	}
	return 0;
}

void thcd_guard_exit(void)
{
	while (count)
		close(guards[--count]);
}
