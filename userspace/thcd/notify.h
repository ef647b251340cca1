/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reports thcd's state by systemd's protocol, if a service manager asks for it.
 */
#ifndef THCD_NOTIFY_H
#define THCD_NOTIFY_H

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. */
void thcd_notify_init(void);

/* Sends lines of NAME=VALUE. */
void thcd_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "RELOADING=1", to be followed by "READY=1". */
void thcd_notify_reloading(void);

/* For the main loop: sends a sign of life to the watchdog if it is due. Returns ms that poll() may
 * wait: @wait (-1: forever), or less.
 */
int thcd_notify_alive(int wait);

#endif /* THCD_NOTIFY_H */
