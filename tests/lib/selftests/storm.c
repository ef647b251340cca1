// SPDX-License-Identifier: GPL-2.0
#include "storm.h"

int note(struct storm *s, enum kind kind, int error)
{
	struct tally *t = &s->tally[kind];
	int index = error >= 0 && error < ERRNOS ? error : ERRNOS - 1;

	__atomic_fetch_add(&t->called, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(error ? &t->failed[index] : &t->succeeded, 1, __ATOMIC_RELAXED);
	return error;
}

#define ERRNOS_SHOWN	4

/* The most frequent errno that is not yet @shown; 0: there is none. */
static int most_frequent(const struct tally *t, const bool *shown)
{
	int most = 0, i;

	for (i = 1; i < ERRNOS; i++)
		if (!shown[i] && t->failed[i] && (!most || t->failed[i] > t->failed[most]))
			most = i;
	return most;
}

static const char *errno_name(int error)
{
	return strerrorname_np(error) ?: "an unknown errno";
}

static void print_row(enum kind kind, const struct tally *t)
{
	bool shown[ERRNOS] = { false };
	int i, error;

	printf("# %-40s %8u %8u ", kinds[kind].name, t->called, t->succeeded);
	for (i = 0; i < ERRNOS_SHOWN && (error = most_frequent(t, shown)); i++) {
		printf(" %s %u", errno_name(error), t->failed[error]);
		shown[error] = true;
	}
	printf("%s\n", most_frequent(t, shown) ? " ..." : "");
}

void print_table(const struct storm *s)
{
	enum kind kind;

	printf("# %-40s %8s %8s  failed\n", "kind of call", "called", "success");
	for (kind = 0; kind < KINDS; kind++)
		print_row(kind, &s->tally[kind]);
	fflush(stdout);
}
