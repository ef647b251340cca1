// SPDX-License-Identifier: GPL-2.0
/*
 * How thcctl speaks: one line on stderr.
 */
#include <stdarg.h>
#include <stdio.h>

#include "thcctl.h"

void thcctl_say(const char *format, ...)
{
	va_list ap;

	fputs("thcctl: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}
