// SPDX-License-Identifier: GPL-2.0
/*
 * The control socket. A request is one word on a line ("stats", "jobs", "reload"), an answer one
 * JSON object on a line. The socket belongs to the daemon's user and to a group whose members may
 * ask; only root and the daemon's user may change anything. thcd does not wait for a client that
 * does not read: it drops the client.
 */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../aggregator/paths.h"
#include "control.h"
#include "xdp.h"

#define REQUEST_MAX	64

/* If accept4() fails (no file descriptor), the listener stays readable: poll() leaves it out for
 * this time, so that thcd does not spin.
 */
#define ACCEPT_AGAIN_MS	500

/* The socket's address; -1: its path is too long. */
static int find(const struct thcd *d, const struct thcd_config *c, struct sockaddr_un *un)
{
	int n;

	un->sun_family = AF_UNIX;
	n = *c->control ? snprintf(un->sun_path, sizeof(un->sun_path), "%s", c->control) :
			  thc_control_path(d->instance, un->sun_path, sizeof(un->sun_path));
	return n < 0 || n >= (int)sizeof(un->sun_path) ? -1 : 0;
}

/* Removes the socket of a dead thcd, and nothing else. @fd: socket to connect with */
static int make_way(int fd, const struct sockaddr_un *un, struct thcd_error *e)
{
	struct stat st;

	if (lstat(un->sun_path, &st))
		return errno == ENOENT ? 0 :
					 thcd_fail(e, "cannot look at the control socket %s: %s",
						   un->sun_path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return thcd_fail(e, "%s is there, and no socket: give another --control PATH",
				 un->sun_path);
	/* a living thcd accepts, or has a full backlog (EAGAIN) */
	if (!connect(fd, (const struct sockaddr *)un, sizeof(*un)) || errno == EAGAIN) {
		thcd_fail(e, "another thcd serves %s; stop it, or give --instance NAME",
			  un->sun_path);
		return -EADDRINUSE;
	}
	unlink(un->sun_path);
	return 0;
}

/* Members of the group have to get through the directory, whatever root's umask is. */
static int make_run_dir(void)
{
	if (!mkdir(THC_RUN, 0755))
		return chmod(THC_RUN, 0755);
	return errno == EEXIST ? 0 : -1;
}

/* Gives the socket to the group. Only a group that the operator names has to exist and take it: the
 * default group may be there by chance, and a plain user need not be its member.
 */
static int admit_group(const struct thcd_control_state *s, const char *name, struct thcd_error *e)
{
	const struct group *g;

	errno = 0;
	g = getgrnam(*name ? name : THCD_CONTROL_GROUP);
	if (!g && !*name)
		return 0;
	if (!g)
		return thcd_fail(e, "--control-group: there is no group %s: groupadd --system %s",
				 name, name);
	if (!chown(s->path, (uid_t)-1, g->gr_gid))
		return chmod(s->path, 0660) ? thcd_fail(e, "cannot open %s to group %s: %s",
							s->path, g->gr_name, strerror(errno)) :
					      0;
	return *name ? thcd_fail(e, "--control-group: cannot give %s to group %s: %s", s->path,
				 name, strerror(errno)) :
		       0;
}

static int listen_on(struct thcd_control_state *s, const struct sockaddr_un *un, const char *group,
		     struct thcd_error *e)
{
	int err;

	s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->listener < 0)
		return thcd_fail(e, "no control socket: %s", strerror(errno));
	err = make_way(s->listener, un, e);
	if (err)
		return err;
	if (!bind(s->listener, (const struct sockaddr *)un, sizeof(*un)))
		strcpy(s->path, un->sun_path);
	if (!*s->path || chmod(s->path, 0600))
		return thcd_fail(e,
				 "cannot make the control socket %s: %s; give another --control "
				 "PATH%s",
				 un->sun_path, strerror(errno),
				 errno == EACCES || errno == EPERM ? ", or run thcd as root" : "");
	if (admit_group(s, group, e))
		return -1;
	return listen(s->listener, SOMAXCONN) ?
		       thcd_fail(e, "cannot listen on the control socket %s: %s", s->path,
				 strerror(errno)) :
		       0;
}

int thcd_control_open(struct thcd_control_state *s, const struct thcd *d,
		      const struct thcd_config *c, struct thcd_error *e)
{
	struct sockaddr_un un;
	int i, err;

	for (i = 0; i < THCD_CONTROL_CLIENTS; i++)
		s->client[i] = -1;
	if (!*c->control && make_run_dir())
		return thcd_fail(e, "cannot make %s: %s; give --control PATH", THC_RUN,
				 strerror(errno));
	if (find(d, c, &un))
		return thcd_fail(e, "--control: the path is longer than %zu characters",
				 sizeof(un.sun_path) - 1);
	err = listen_on(s, &un, c->control_group, e);
	if (err)
		thcd_control_close(s);
	return err;
}

bool thcd_control_discard(const struct thcd *d, const struct thcd_config *c)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct thcd_error e;
	struct sockaddr_un un;
	bool removed;

	removed = fd >= 0 && !find(d, c, &un) && !access(un.sun_path, F_OK) &&
		  !make_way(fd, &un, &e);
	if (removed)
		thcd_say("removed the control socket %s", un.sun_path);
	if (fd >= 0)
		close(fd);
	return removed;
}

void thcd_control_close(struct thcd_control_state *s)
{
	if (s->listener >= 0)
		close(s->listener);
	s->listener = -1;
	if (*s->path && unlink(s->path) && errno != ENOENT)
		thcd_say("cannot remove the control socket %s: %s", s->path, strerror(errno));
	s->path[0] = '\0';
}

int thcd_control_poll(const struct thcd_control_state *s, struct pollfd *p, int *wait)
{
	u64 now = thcd_now_ms();
	int i, later = s->again_ms > now ? (int)(s->again_ms - now) : 0;

	p[0] = (struct pollfd){ .fd = later ? -1 : s->listener, .events = POLLIN };
	if (later && (*wait < 0 || *wait > later))
		*wait = later;
	for (i = 0; i < THCD_CONTROL_CLIENTS; i++)
		p[1 + i] = (struct pollfd){ .fd = s->client[i], .events = POLLIN };
	return 1 + THCD_CONTROL_CLIENTS;
}

static cJSON *own_counters(const struct thcd *d)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "sent", d->stats.event[THC_EVENT_SENT]);
#define ADD(name, meaning) cJSON_AddNumberToObject(o, #name, d->counters.name);
	THCD_COUNTERS(ADD)
#undef ADD
	return o;
}

static cJSON *head(const struct thcd *d)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "instance", d->instance);
	cJSON_AddStringToObject(o, "mode", d->mode);
	if (d->interface)
		cJSON_AddStringToObject(o, "interface", d->interface);
	if (d->lanes_by)
		cJSON_AddStringToObject(o, "lanes_by", d->lanes_by);
	cJSON_AddNumberToObject(o, "pid", getpid());
	cJSON_AddStringToObject(o, "capabilities", d->privileges);
	cJSON_AddNumberToObject(o, "port", d->port);
	cJSON_AddNumberToObject(o, "slots", d->slots);
	cJSON_AddNumberToObject(o, "slot_bytes", (double)thc_report_slot_bytes(d->slots));
	return o;
}

static cJSON *stats(const struct thcd *d)
{
	struct thc_stats all;
	cJSON *o = head(d);

	if (d->software)
		all = d->stats;
	else
		thcd_xdp_stats(d, &all);
	thc_report_stats(o, &all);
	cJSON_AddItemToObject(o, "daemon", own_counters(d));
	return o;
}

static cJSON *jobs(const struct thcd *d)
{
	cJSON *o = head(d);

	thc_report_jobs(o, d->job, d->record, d->slot, d->slots);
	return o;
}

static cJSON *refusal(const char *why)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "error", why);
	return o;
}

static cJSON *reload(struct thcd_control_state *s, bool trusted)
{
	cJSON *o;

	if (!trusted)
		return refusal("reload changes what thcd does: only root and thcd's own user may "
			       "ask for it");
	o = cJSON_CreateObject();
	cJSON_AddBoolToObject(o, "ok", s->reload(s->context, cJSON_AddArrayToObject(o, "said")));
	return o;
}

static cJSON *answer(struct thcd_control_state *s, const struct thcd *d, const char *request,
		     bool trusted)
{
	if (!strcmp(request, "stats"))
		return stats(d);
	if (!strcmp(request, "jobs"))
		return jobs(d);
	if (!strcmp(request, "reload"))
		return reload(s, trusted);
	return refusal("unknown request; there are: stats, jobs, reload");
}

/* One request per connection: read a line, answer, close. */
static void serve(struct thcd_control_state *s, const struct thcd *d, int fd, bool trusted)
{
	char request[REQUEST_MAX + 1], *text;
	ssize_t n = recv(fd, request, REQUEST_MAX, MSG_DONTWAIT);
	int space = 1 << 20;
	cJSON *o;

	if (n <= 0)
		return;
	request[n] = '\0';
	request[strcspn(request, "\r\n")] = '\0';
	o = answer(s, d, request, trusted);
	text = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	if (!text)
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &space, sizeof(space));
	if (send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		send(fd, "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	free(text);
}

/* Returns a free place, else that of the untrusted client that connected first: silent members of
 * the group must not keep others out. -1: trusted clients have all places.
 */
static int find_place(const struct thcd_control_state *s)
{
	int i, oldest = -1;

	for (i = 0; i < THCD_CONTROL_CLIENTS; i++) {
		if (s->client[i] < 0)
			return i;
		if (!s->trusted[i] && (oldest < 0 || s->since[i] < s->since[oldest]))
			oldest = i;
	}
	return oldest;
}

static bool is_trusted(int fd)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) &&
	       (!peer.uid || peer.uid == geteuid());
}

static void accept_client(struct thcd_control_state *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int i = find_place(s);

	if (fd < 0) {
		if (errno == EAGAIN)
			return;
		thcd_say_limited("cannot talk to a client of the control socket: %s; thcd tries "
				 "again",
				 strerror(errno));
		s->again_ms = thcd_now_ms() + ACCEPT_AGAIN_MS;
		return;
	}
	if (i < 0) {
		close(fd);
		return;
	}
	if (s->client[i] >= 0)
		close(s->client[i]);
	s->client[i] = fd;
	s->since[i] = s->clients++;
	s->trusted[i] = is_trusted(fd);
}

void thcd_control_serve(struct thcd_control_state *s, const struct thcd *d, const struct pollfd *p)
{
	int i;

	for (i = 0; i < THCD_CONTROL_CLIENTS; i++) {
		if (s->client[i] < 0 || !p[1 + i].revents)
			continue;
		serve(s, d, s->client[i], s->trusted[i]);
		close(s->client[i]);
		s->client[i] = -1;
	}
	if (p[0].revents)
		accept_client(s);
}
