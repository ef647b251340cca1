// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers and addresses as operators write them.
 */
#include <arpa/inet.h>
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

int thcd_addr_parse(const char *text, struct thc_addr *addr)
{
	u32 v4;

	if (inet_pton(AF_INET, text, &v4) == 1) {
		*addr = thc_addr_v4(v4);
		return AF_INET;
	}
	if (inet_pton(AF_INET6, text, addr) == 1)
		return AF_INET6;
	return -1;
}
