/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control socket: a request is one line, its answer a JSON object on one line. And the reload
 * that the socket or SIGHUP asks for: thcd reads its configuration again while jobs run.
 */
#ifndef THCD_CONTROL_H
#define THCD_CONTROL_H

#include <poll.h>

#include <cjson/cJSON.h>

#include "config.h"

#define THCD_CONTROL_CLIENTS	8

/* Members of this group may use the control socket, if the group exists. */
#define THCD_CONTROL_GROUP	"thc"

/**
 * struct thcd_control_state - the listening socket and its clients
 * @since: each client's serial number, from @clients: the lowest connected first
 * @trusted: the client is root, or thcd's own user
 * @again_ms: no accept4() before this time (monotonic), since the last one failed
 * @reload: carries out "reload" and adds its lines to @said; false: something could not be
 *	changed
 */
struct thcd_control_state {
	int		listener;
	int		client[THCD_CONTROL_CLIENTS];
	u64		since[THCD_CONTROL_CLIENTS];
	bool		trusted[THCD_CONTROL_CLIENTS];
	u64		clients;
	u64		again_ms;
	char		path[108];
	bool		(*reload)(void *context, cJSON *said);
	void		*context;
};

/**
 * thcd_control_open() - make the socket
 * @s: zeroed except .listener (-1), .reload and .context
 * @c: path and group; default: the instance's path, and THCD_CONTROL_GROUP if it exists
 *
 * Returns 0, -EADDRINUSE if another thcd has the socket, or -1.
 */
int thcd_control_open(struct thcd_control_state *s, const struct thcd *d,
		      const struct thcd_config *c, struct thcd_error *e);
/* Removes the socket that a dead thcd has left there; false: there was none. */
bool thcd_control_discard(const struct thcd *d, const struct thcd_config *c);
/* Removes the socket. Clients stay connected until thcd ends. */
void thcd_control_close(struct thcd_control_state *s);

/* thcd_control_poll() fills @p (1 + THCD_CONTROL_CLIENTS entries) for poll() and shortens @wait
 * (ms, -1: forever) if need be; thcd_control_serve() handles the events.
 */
int thcd_control_poll(const struct thcd_control_state *s, struct pollfd *p, int *wait);
void thcd_control_serve(struct thcd_control_state *s, const struct thcd *d, const struct pollfd *p);

/**
 * thcd_reload() - add and remove jobs as the file now says
 * @was: what thcd was started with; @argc, @argv: its command line
 * @said: list that takes the printed lines, or NULL
 *
 * Of a job that has ranks in it only the prefixes change. A file with an error changes nothing.
 * Returns false if something could not be changed.
 */
bool thcd_reload(struct thcd *d, const struct thcd_config *was, int argc, char **argv, cJSON *said);

#endif /* THCD_CONTROL_H */
