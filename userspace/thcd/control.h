/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control socket: one request a line, one JSON object a line back.
 */
#ifndef THCD_CONTROL_H
#define THCD_CONTROL_H

#include <poll.h>

#include "config.h"

#define THCD_CONTROL_CLIENTS	8

struct thcd_control_state {
	int		listener;
	int		client[THCD_CONTROL_CLIENTS];
	char		path[108];
};

/* -EADDRINUSE: another thcd has it. */
int thcd_control_open(struct thcd_control_state *s, const struct thcd *d, const char *path,
		      struct thcd_error *e);
void thcd_control_close(struct thcd_control_state *s);

/* Fills @p (1 + THCD_CONTROL_CLIENTS entries) for poll(), and serves it after. */
int thcd_control_poll(const struct thcd_control_state *s, struct pollfd *p);
void thcd_control_serve(struct thcd_control_state *s, struct thcd *d, const struct pollfd *p);

#endif /* THCD_CONTROL_H */
