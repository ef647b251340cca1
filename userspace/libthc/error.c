// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The calling thread's last error, words for sentences, and the library's version.
 */
#include <stdarg.h>
#include <stdio.h>

#include <linux/thc.h>

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

const char *thc_name_ranks(uint64_t ranks, char *text, size_t size)
{
	unsigned int i, total = (unsigned int)__builtin_popcountll(ranks), n = 0;
	size_t used = (size_t)snprintf(text, size, total == 1 ? "rank" : "ranks");

	for (i = 0; i < THC_RANKS_MAX && used < size; i++) {
		if (!(ranks >> i & 1))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s %u",
					 !n		? "" :
					 n + 1 == total ? " and" :
							  ",",
					 i);
		n++;
	}
	return text;
}

const char *thc_version(void)
{
	return THC_LIB_VERSION;
}
