// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers as operators write them.
 */
#include <errno.h>
#include <stdlib.h>

#include "config.h"

int thcd_number_parse(const char *text, u64 *out)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	*out = strtoull(text, &end, text[1] == 'x' || text[1] == 'X' ? 16 : 10);
	return errno || *end ? -1 : 0;
}
