// SPDX-License-Identifier: GPL-2.0
/*
 * sd_notify(3) on one datagram socket: READY, RELOADING, STOPPING, STATUS, and WATCHDOG. Only the
 * main loop sends WATCHDOG, so that the manager notices a loop that hangs.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "notify.h"
#include "thcd.h"

/* Signs of life per interval of the watchdog. */
#define SIGNS	3
/* A sign of life that could not be sent is tried again after this time. */
#define AGAIN_MS	50

static struct sockaddr_un manager;
static socklen_t manager_length;
static int notify_fd = -1;
static uint64_t sign_ms;	/* between two signs of life, 0: the manager has no watchdog */
static uint64_t next_ms;

static void read_watchdog(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t interval = usec ? strtoull(usec, NULL, 10) : 0;

	if (!interval || (pid && strtoll(pid, NULL, 10) != getpid()))
		return;
	sign_ms = interval / 1000 / SIGNS;
	sign_ms = sign_ms ? sign_ms : 1;
}

void thcd_notify_init(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;

	if (!length || (*path != '/' && *path != '@') || length >= sizeof(manager.sun_path))
		return;
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (notify_fd < 0)
		return;
	manager.sun_family = AF_UNIX;
	memcpy(manager.sun_path, path, length);
	/* the name of an abstract socket begins with 0, and has none at its end */
	if (*path == '@')
		manager.sun_path[0] = '\0';
	manager_length = offsetof(struct sockaddr_un, sun_path) + length;
	read_watchdog();
}

static bool tell(const char *text, int flags)
{
	return notify_fd >= 0 && sendto(notify_fd, text, strlen(text), flags | MSG_NOSIGNAL,
					(struct sockaddr *)&manager, manager_length) >= 0;
}

void thcd_notify(const char *format, ...)
{
	char text[THCD_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	tell(text, 0);
}

void thcd_notify_reloading(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	thcd_notify("RELOADING=1\nMONOTONIC_USEC=%llu",
		    (unsigned long long)t.tv_sec * 1000000 + t.tv_nsec / 1000);
}

static uint64_t again_ms(void)
{
	return sign_ms < AGAIN_MS ? sign_ms : AGAIN_MS;
}

int thcd_notify_alive(int wait)
{
	uint64_t now;
	int left;

	if (!sign_ms)
		return wait;
	now = thcd_now_ms();
	/* a manager that has no time for it, or is gone, must not stop us: try again soon */
	if (now >= next_ms)
		next_ms = now + (tell("WATCHDOG=1", MSG_DONTWAIT) ? sign_ms : again_ms());
	left = (int)(next_ms - now);
	return wait < 0 || wait > left ? left : wait;
}
