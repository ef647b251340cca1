/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of thcctl share.
 */
#ifndef THCCTL_H
#define THCCTL_H

#include <stdbool.h>

#include <cjson/cJSON.h>

/* An instance's name and its final zero, as thcd takes it. */
#define THCCTL_NAME_BYTES	64
#define THCCTL_INSTANCES_MAX	64

struct thcctl {
	const char	*control;	/* --control, or NULL */
	char		instance[THCCTL_NAME_BYTES];	/* found or given; empty: not known */
	bool		json;
	long		count;		/* top: rounds, 0: until interrupted */
};

/* One line on stderr. */
void thcctl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/**
 * struct thcctl_instances - instances of thcd on this host, sorted by name
 * @more: there are more than fit
 */
struct thcctl_instances {
	int	count;
	bool	more;
	char	name[THCCTL_INSTANCES_MAX][THCCTL_NAME_BYTES];
};

/* Fills @list from a folder of control sockets and one of pins. A living daemon
 * has an entry in both and is listed once, by its socket's name; a dead one by its pins.
 */
void thcctl_find_instances(const char *sockets, const char *pins, struct thcctl_instances *list);

/**
 * thcctl_ask() - ask a daemon; "stats" and "jobs" of a dead one come from its pinned maps
 *
 * Returns an object to be freed, or NULL after a sentence on stderr.
 */
cJSON *thcctl_ask(struct thcctl *t, const char *request);

/* Reads the answer from pinned maps alone. */
cJSON *thcctl_pinned(const char *instance, const char *request);

/* Commands; they return the exit status. */
int thcctl_stats(struct thcctl *t);
int thcctl_job(struct thcctl *t, const char *number);
int thcctl_top(struct thcctl *t);
int thcctl_reload(struct thcctl *t);
int thcctl_check(struct thcctl *t, const char *interface);
int thcctl_genkey(const char *path);

/* A field of an object as number, text or truth; 0, "" and false when it is not there. */
double thcctl_number(const cJSON *o, const char *name);
const char *thcctl_text(const cJSON *o, const char *name);
bool thcctl_is(const cJSON *o, const char *name);

/* "1,234,567" and "1.2 MiB"; a text is overwritten by the eighth call after it. */
const char *thcctl_grouped(double n);
const char *thcctl_bytes(double n);

/* Prints an object; the exit status. */
int thcctl_print_json(const cJSON *o);

/* The kernel's answers to `thcctl check` about an interface (netdev.c). */
struct thcctl_netdev {
	bool		known;		/* the kernel tells what XDP the driver has */
	bool		basic;		/* XDP_PASS, DROP, TX */
	bool		redirect;
	bool		target;		/* redirected frames can be sent by it */
};

void thcctl_netdev(unsigned int ifindex, struct thcctl_netdev *out);

#endif /* THCCTL_H */
