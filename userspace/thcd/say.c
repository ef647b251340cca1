// SPDX-License-Identifier: GPL-2.0
/*
 * Sentences about errors, lines on stderr with their limit, and the monotonic clock.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "thcd.h"

/* Lines a second that remote hosts may cause. */
#define THCD_SAY_RATE	20

uint64_t thcd_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

#undef thcd_fail
int thcd_fail(struct thcd_error *e, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(e->text, sizeof(e->text), format, ap);
	va_end(ap);
	return -1;
}

void thcd_say(const char *format, ...)
{
	char line[THCD_TEXT_MAX];
	va_list ap;

	/* one write: lines of several daemons on one terminal stay whole */
	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	fprintf(stderr, "thcd: %s\n", line);
}

/* The record of @line; if there is none, a new one in the place of the oldest. */
static struct thcd_said *said(struct thcd_limit *l, const char *line)
{
	struct thcd_said *s;
	unsigned int i;

	for (i = 0; i < THCD_SAID; i++)
		if (l->said[i].at_ms && !strcmp(l->said[i].text, line))
			return &l->said[i];
	s = &l->said[l->next++ % THCD_SAID];
	*s = (struct thcd_said){ 0 };
	strcpy(s->text, line);
	return s;
}

/* Is there room for one more line in this second? */
static bool has_room(struct thcd_limit *l, uint64_t second)
{
	if (second != l->second) {
		if (l->lines > THCD_SAY_RATE)
			thcd_say("%u more lines like these were left out",
				 l->lines - THCD_SAY_RATE);
		l->second = second;
		l->lines = 0;
	}
	return l->lines++ < THCD_SAY_RATE;
}

bool thcd_say_within(struct thcd_limit *l, const char *format, ...)
{
	uint64_t now = thcd_now_ms();
	char line[THCD_TEXT_MAX];
	struct thcd_said *s;
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	s = said(l, line);
	if (s->at_ms && now - s->at_ms < THCD_SAY_AGAIN_MS) {
		s->more++;
		return false;
	}
	if (!has_room(l, now / 1000))
		return false;
	if (s->more)
		thcd_say("%s (and %u times before)", line, s->more);
	else
		thcd_say("%s", line);
	s->at_ms = now;
	s->more = 0;
	return true;
}
