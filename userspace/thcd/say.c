// SPDX-License-Identifier: GPL-2.0
/*
 * How the daemon speaks: sentences about errors, lines on stderr, and the
 * clock both are limited by.
 */
#include <stdarg.h>
#include <stdio.h>
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

static void say(const char *format, va_list ap)
{
	char line[THCD_TEXT_MAX];

	/* one write: lines of several daemons on one terminal stay whole */
	vsnprintf(line, sizeof(line), format, ap);
	fprintf(stderr, "thcd: %s\n", line);
}

void thcd_say(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(format, ap);
	va_end(ap);
}

bool thcd_say_within(struct thcd_limit *l, const char *format, ...)
{
	uint64_t now = thcd_now_ms() / 1000;
	va_list ap;

	if (now != l->second) {
		if (l->lines > THCD_SAY_RATE)
			thcd_say("%u more lines like these were left out",
				 l->lines - THCD_SAY_RATE);
		l->second = now;
		l->lines = 0;
	}
	if (l->lines++ >= THCD_SAY_RATE)
		return false;
	va_start(ap, format);
	say(format, ap);
	va_end(ap);
	return true;
}
