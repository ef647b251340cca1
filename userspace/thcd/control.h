/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control socket: one request a line, one JSON object a line back. And what it can ask for,
 * as SIGHUP does: reading the configuration again while jobs run.
 */
#ifndef THCD_CONTROL_H
#define THCD_CONTROL_H

#include <poll.h>

#include <cjson/cJSON.h>

#include "config.h"

#define THCD_CONTROL_CLIENTS	8

/* The group whose members may ask, where it exists. */
#define THCD_CONTROL_GROUP	"thc"

/**
 * struct thcd_control_state - the socket and who talks through it
 * @since: when a client came, in the order of clients
 * @trusted: the client is root, or thcd's own user
 * @again_ms: no client is taken before; 0: none could not be taken
 * @reload: carries out "reload" and adds the lines that it says to @said; false: the file
 *	could not be taken
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
 * @s: zeroed, but for .listener, -1, .reload and .context
 * @c: its path, else the instance's, and its group, else THCD_CONTROL_GROUP, if it exists
 *
 * Returns -EADDRINUSE if another thcd has it.
 */
int thcd_control_open(struct thcd_control_state *s, const struct thcd *d,
		      const struct thcd_config *c, struct thcd_error *e);
/* Removes the socket that a dead thcd has left there; false: there was none. */
bool thcd_control_discard(const struct thcd *d, const struct thcd_config *c);
/* Clients stay connected until thcd ends. */
void thcd_control_close(struct thcd_control_state *s);

/* Fills @p (1 + THCD_CONTROL_CLIENTS entries) for poll(), shortens its @wait (ms, -1: for
 * ever) if need be, and serves it after.
 */
int thcd_control_poll(const struct thcd_control_state *s, struct pollfd *p, int *wait);
void thcd_control_serve(struct thcd_control_state *s, const struct thcd *d, const struct pollfd *p);

/**
 * thcd_reload() - add and remove jobs as the file now says
 * @was: what thcd was started with; @argc, @argv: its command line
 * @said: list that gets what is said, or NULL
 *
 * No job that a rank is in ends or changes, and a file with an error changes nothing: false.
 */
bool thcd_reload(struct thcd *d, const struct thcd_config *was, int argc, char **argv, cJSON *said);

#endif /* THCD_CONTROL_H */
