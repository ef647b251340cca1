// SPDX-License-Identifier: GPL-2.0
/*
 * Rates, one line a second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <thc/names.h>
#include "thcctl.h"

#define LINES_PER_HEAD	20

struct sample {
	double	at;
	double	received;
	double	dropped;
	double	event[THC_EVENTS];
	double	drop[THC_DROP_REASONS];
};

static bool take(struct thcctl *t, struct sample *s)
{
	cJSON *o = thcctl_ask(t, "stats"), *events, *drops;
	struct timespec ts;
	int i;

	if (!o)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	events = cJSON_GetObjectItemCaseSensitive(o, "events");
	drops = cJSON_GetObjectItemCaseSensitive(o, "drops");
	s->at = ts.tv_sec + ts.tv_nsec * 1e-9;
	s->received = thcctl_number(o, "received");
	s->dropped = thcctl_number(o, "dropped");
	for (i = 0; i < THC_EVENTS; i++)
		s->event[i] = thcctl_number(events, thc_event_name[i].name);
	for (i = 0; i < THC_DROP_REASONS; i++)
		s->drop[i] = thcctl_number(drops, thc_drop_name[i].name);
	cJSON_Delete(o);
	return true;
}

static void print_json_line(const struct sample *a, const struct sample *b, double dt)
{
	cJSON *o = cJSON_CreateObject(), *events, *drops;
	char *text;
	int i;

	cJSON_AddNumberToObject(o, "received_per_s", (b->received - a->received) / dt);
	events = cJSON_AddObjectToObject(o, "events_per_s");
	for (i = 0; i < THC_EVENTS; i++)
		cJSON_AddNumberToObject(events, thc_event_name[i].name,
					(b->event[i] - a->event[i]) / dt);
	drops = cJSON_AddObjectToObject(o, "drops_per_s");
	for (i = 0; i < THC_DROP_REASONS; i++)
		if (thc_drop_is_reason(i))
			cJSON_AddNumberToObject(drops, thc_drop_name[i].name,
						(b->drop[i] - a->drop[i]) / dt);
	text = cJSON_PrintUnformatted(o);
	if (text)
		puts(text);
	free(text);
	cJSON_Delete(o);
}

static void print_line(const struct sample *a, const struct sample *b, double dt, long line)
{
	static const enum thc_event column[] = {
		THC_EVENT_ADDED, THC_EVENT_FINISHED, THC_EVENT_SENT, THC_EVENT_WAITED,
		THC_EVENT_REPEATED, THC_EVENT_STALE,
	};
	unsigned int i;

	if (line % LINES_PER_HEAD == 0) {
		printf("%12s", "received/s");
		for (i = 0; i < sizeof(column) / sizeof(column[0]); i++)
			printf(" %11s", thc_event_name[column[i]].name);
		printf(" %9s  %s\n", "dropped", "by reason");
	}
	printf("%12s", thcctl_grouped((b->received - a->received) / dt));
	for (i = 0; i < sizeof(column) / sizeof(column[0]); i++)
		printf(" %11s", thcctl_grouped((b->event[column[i]] - a->event[column[i]]) / dt));
	printf(" %9s", thcctl_grouped((b->dropped - a->dropped) / dt));
	for (i = THC_DROP_NONE + 1; i < THC_DROP_REASONS; i++)
		if (b->drop[i] > a->drop[i])
			printf("  %s %s", thc_drop_name[i].name,
			       thcctl_grouped((b->drop[i] - a->drop[i]) / dt));
	if (b->event[THC_EVENT_LOST] > a->event[THC_EVENT_LOST])
		printf("  answers lost %s",
		       thcctl_grouped((b->event[THC_EVENT_LOST] - a->event[THC_EVENT_LOST]) / dt));
	putchar('\n');
}

int thcctl_top(struct thcctl *t)
{
	struct sample a, b;
	long line;

	if (!take(t, &a))
		return EXIT_FAILURE;
	for (line = 0; !t->count || line < t->count; line++) {
		sleep(1);
		if (!take(t, &b))
			return EXIT_FAILURE;
		if (t->json)
			print_json_line(&a, &b, b.at - a.at);
		else
			print_line(&a, &b, b.at - a.at, line);
		/* main() reports that the output could not be written */
		if (fflush(stdout))
			return EXIT_FAILURE;
		a = b;
	}
	return EXIT_SUCCESS;
}
