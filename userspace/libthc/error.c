// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The calling thread's last error, and the library's version.
 */
#include <stdarg.h>
#include <stdio.h>

#include "error.h"
#include "libthc.h"

static __thread char sentence[THC_SENTENCE_MAX] = "no error";

#undef thc_fail
int thc_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return error;
}

const char *thc_last_error(void)
{
	return sentence;
}

const char *thc_version(void)
{
	return THC_LIB_VERSION;
}
