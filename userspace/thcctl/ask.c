// SPDX-License-Identifier: GPL-2.0
/*
 * Finding a daemon and asking it, or else what a dead one left; the fields of its answer.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "../aggregator/paths.h"
#include "thcctl.h"

/* An answer is some kilobytes; more is not from thcd. */
#define ANSWER_MAX	(4 << 20)
#define REQUEST_MAX	64
#define PATIENCE_S	10
/* Room for all names of struct thcctl_instances, a blank before each. */
#define NAMES_BYTES	(THCCTL_INSTANCES_MAX * (THCCTL_NAME_BYTES + 1) + sizeof(" and more"))

double thcctl_number(const cJSON *o, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

	return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

const char *thcctl_text(const cJSON *o, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

bool thcctl_is(const cJSON *o, const char *name)
{
	return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, name));
}

/* Adds a name that is not listed yet. With @pins names are compared as pins are named, with '_' for
 * '.'.
 */
static void add_name(struct thcctl_instances *list, const char *name, size_t length, bool pins)
{
	char known[sizeof(list->name[0])], *c;
	int i;

	if (!length || length >= sizeof(list->name[0]))
		return;
	for (i = 0; i < list->count; i++) {
		strcpy(known, list->name[i]);
		for (c = known; pins && *c; c++)
			if (*c == '.')
				*c = '_';
		if (strlen(known) == length && !memcmp(known, name, length))
			return;
	}
	if (list->count == THCCTL_INSTANCES_MAX) {
		list->more = true;
		return;
	}
	memcpy(list->name[list->count], name, length);
	list->name[list->count++][length] = '\0';
}

/* @flags: of the socket */
static int connect_to(const char *path, int flags)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = PATIENCE_S };
	int fd, err;

	if (strlen(path) >= sizeof(un.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(un.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!connect(fd, (struct sockaddr *)&un, sizeof(un)))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

/* Does nobody listen at @path? A daemon with a full backlog (EAGAIN) listens. */
static bool is_dead(const char *path)
{
	int fd = connect_to(path, SOCK_NONBLOCK);
	bool refused = fd < 0 && errno == ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return refused;
}

static void add_folder(struct thcctl_instances *list, const char *folder, bool pins)
{
	char path[PATH_MAX];
	static const char suffix[] = ".sock";
	struct dirent *entry;
	DIR *dir = opendir(folder);

	while (dir && (entry = readdir(dir))) {
		size_t length = strlen(entry->d_name);

		if (entry->d_name[0] == '.')
			continue;
		if (!pins) {
			if (length < sizeof(suffix) ||
			    strcmp(entry->d_name + length - strlen(suffix), suffix))
				continue;
			/* if a dead daemon left pins, these list its name */
			snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
			if (is_dead(path))
				continue;
			length -= strlen(suffix);
		}
		add_name(list, entry->d_name, length, pins);
	}
	if (dir)
		closedir(dir);
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

void thcctl_find_instances(const char *sockets, const char *pins, struct thcctl_instances *list)
{
	memset(list, 0, sizeof(*list));
	add_folder(list, sockets, false);
	add_folder(list, pins, true);
	qsort(list->name, list->count, sizeof(list->name[0]), compare);
}

/* All names, each after a blank; they live until the next call. */
static const char *join_names(const struct thcctl_instances *list)
{
	static char out[NAMES_BYTES];
	size_t used = 0;
	int i;

	*out = '\0';
	for (i = 0; i < list->count && used < sizeof(out); i++)
		used += snprintf(out + used, sizeof(out) - used, " %s", list->name[i]);
	if (list->more && used < sizeof(out))
		snprintf(out + used, sizeof(out) - used, " and more");
	return out;
}

static int choose_instance(struct thcctl *t)
{
	struct thcctl_instances list;

	if (*t->instance || t->control)
		return 0;
	thcctl_find_instances(THC_RUN, THC_PINS_ROOT, &list);
	if (list.count == 1) {
		strcpy(t->instance, list.name[0]);
		return 0;
	}
	if (!list.count)
		thcctl_say("no thcd runs here: neither %s nor %s has an instance; thcd(8) says "
			   "how to start one",
			   THC_RUN, THC_PINS_ROOT);
	else
		thcctl_say("several instances: give --instance, one of:%s", join_names(&list));
	return -1;
}

/* Sends the request, and reads the answer into @text until @fd is closed, at most ANSWER_MAX bytes;
 * 0, or errno.
 */
static int exchange(int fd, const char *request, char *text)
{
	char line[REQUEST_MAX];
	int length = snprintf(line, sizeof(line), "%s\n", request);
	size_t used = 0;
	ssize_t n = 1;

	*text = '\0';
	if (send(fd, line, (size_t)length, MSG_NOSIGNAL) != length)
		return errno;
	while (used < ANSWER_MAX && (n = recv(fd, text + used, ANSWER_MAX - used, 0)) > 0)
		used += n;
	text[used] = '\0';
	return n < 0 ? errno : 0;
}

static cJSON *converse(int fd, const char *request)
{
	char *text = malloc(ANSWER_MAX + 1);
	cJSON *o = NULL;
	int err = text ? exchange(fd, request, text) : ENOMEM;

	if (err == EAGAIN)
		thcctl_say("thcd did not answer within %d s: it is stopped, or has no time",
			   PATIENCE_S);
	else if (err == EPIPE || err == ECONNRESET || (!err && !*text))
		thcctl_say("thcd closed the connection without an answer: it ends, has no memory, "
			   "or is asked by many at once");
	else if (err)
		thcctl_say("cannot talk to thcd: %s", strerror(err));
	else if (!(o = cJSON_Parse(text)))
		thcctl_say("thcd's answer is not JSON: are thcd and thcctl of one version?");
	free(text);
	return o;
}

/* Shows the reason if thcd has refused the request. */
static cJSON *check_answer(cJSON *o)
{
	const char *error = thcctl_text(o, "error");

	if (!*error)
		return o;
	thcctl_say("%s", error);
	cJSON_Delete(o);
	return NULL;
}

cJSON *thcctl_ask(struct thcctl *t, const char *request)
{
	char path[THC_PATH_BYTES];
	struct thcctl_instances list;
	const char *reason;
	cJSON *o;
	int fd;

	if (choose_instance(t))
		return NULL;
	if (t->control)
		snprintf(path, sizeof(path), "%s", t->control);
	else
		thc_control_path(t->instance, path, sizeof(path));
	fd = connect_to(path, 0);
	if (fd >= 0) {
		o = converse(fd, request);
		close(fd);
		return o ? check_answer(o) : NULL;
	}
	reason = strerror(errno);
	if (errno == EACCES || errno == EPERM) {
		thcctl_say("not allowed to talk to %s: run thcctl as root, or as a member of the "
			   "socket's group (ls -l %s)",
			   path, path);
		return NULL;
	}
	o = *t->instance ? thcctl_pinned(t->instance, request) : NULL;
	if (o && strcmp(request, "reload"))
		return o;
	if (o) {
		thcctl_say("no thcd at %s (%s), so nothing was read again; its program and maps "
			   "live on: start thcd again, it reads its configuration then",
			   path, reason);
		cJSON_Delete(o);
		return NULL;
	}
	thcctl_find_instances(THC_RUN, THC_PINS_ROOT, &list);
	thcctl_say("no thcd at %s (%s)%s; there is%s", path, reason,
		   t->control ? "" : ", and it left no pinned maps",
		   list.count ? join_names(&list) : " none here");
	return NULL;
}
