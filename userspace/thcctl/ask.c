// SPDX-License-Identifier: GPL-2.0
/*
 * Finding a daemon and asking it; if it is dead, what it left is asked.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "../common/paths.h"
#include "thcctl.h"

/* An answer is some kilobytes; more is not from thcd. */
#define ANSWER_MAX	(4 << 20)
#define PATIENCE_S	5

static void add_name(char *names, size_t size, const char *name, int length)
{
	char word[80];

	snprintf(word, sizeof(word), " %.*s", length, name);
	/* a daemon's socket and pins are one instance */
	if (!strstr(names, word) && strlen(names) + strlen(word) + 1 < size)
		strcat(names, word);
}

/* Names of all instances, each after a blank; returns how many. */
static int find_instances(char *names, size_t size)
{
	static const char *const places[] = { THC_RUN, THC_PINS_ROOT };
	struct dirent *entry;
	int i, count = 0;
	char *c;

	*names = '\0';
	for (i = 0; i < 2; i++) {
		DIR *dir = opendir(places[i]);

		while (dir && (entry = readdir(dir))) {
			char *dot = strstr(entry->d_name, ".sock");

			if (entry->d_name[0] == '.' || (!i && !dot))
				continue;
			add_name(names, size, entry->d_name,
				 dot ? (int)(dot - entry->d_name) : (int)strlen(entry->d_name));
		}
		if (dir)
			closedir(dir);
	}
	for (c = names; *c; c++)
		count += *c == ' ';
	return count;
}

static int choose_instance(struct thcctl *t)
{
	char names[1024];
	int count;

	if (*t->instance || t->control)
		return 0;
	count = find_instances(names, sizeof(names));
	if (count == 1) {
		if (strlen(names + 1) >= sizeof(t->instance))
			return -1;
		strcpy(t->instance, names + 1);
		return 0;
	}
	if (!count)
		thcctl_say("no thcd runs here: neither %s nor %s has an instance; thcd(8) says "
			   "how to start one",
			   THC_RUN, THC_PINS_ROOT);
	else
		thcctl_say("several instances: give --instance, one of:%s", names);
	return -1;
}

static int connect_to(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = PATIENCE_S };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (strlen(path) >= sizeof(un.sun_path)) {
		close(fd);
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(un.sun_path, path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&un, sizeof(un))) {
		int err = errno;

		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}

static cJSON *converse(int fd, const char *request)
{
	char *text = malloc(ANSWER_MAX + 1);
	cJSON *o = NULL;
	size_t used = 0;
	ssize_t n = 1;

	if (text && dprintf(fd, "%s\n", request) > 0) {
		while (used < ANSWER_MAX && (n = recv(fd, text + used, ANSWER_MAX - used, 0)) > 0)
			used += n;
		text[used] = '\0';
		o = cJSON_Parse(text);
	}
	free(text);
	if (!o)
		thcctl_say("thcd did not answer within %d s, or not in JSON", PATIENCE_S);
	return o;
}

cJSON *thcctl_ask(struct thcctl *t, const char *request)
{
	char path[128], names[1024];
	const char *reason;
	cJSON *o;
	int fd;

	if (choose_instance(t))
		return NULL;
	if (t->control)
		snprintf(path, sizeof(path), "%s", t->control);
	else
		thc_control_path(t->instance, path, sizeof(path));
	fd = connect_to(path);
	if (fd >= 0) {
		o = converse(fd, request);
		close(fd);
		return o;
	}
	reason = strerror(errno);
	if (errno == EACCES || errno == EPERM) {
		thcctl_say("not allowed to talk to %s: run thcctl as root", path);
		return NULL;
	}
	if (*t->instance) {
		o = thcctl_pinned(t->instance, request);
		if (o)
			return o;
	}
	find_instances(names, sizeof(names));
	thcctl_say("no thcd at %s (%s)%s; there is%s", path, reason,
		   t->control ? "" : ", and it left no pinned maps", *names ? names : " none here");
	return NULL;
}
