// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Copies between structs of this library's version and of the caller's, as
 * clone3() does with its argument.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "error.h"
#include "libthc.h"
#include "structs.h"

static int check_size(const struct thc_struct_layout *layout, size_t size)
{
	if (size < layout->first)
		return thc_fail(
			-EINVAL,
			"%s.size is %zu, but the struct has had at least %zu bytes from the beginning: set it to sizeof(struct %s)",
			layout->name, size, layout->first, layout->name);
	if (size > THC_STRUCT_MOST)
		return thc_fail(
			-E2BIG,
			"%s.size is %zu, more than any version of the struct has: set it to sizeof(struct %s)",
			layout->name, size, layout->name);
	return 0;
}

int thc_struct_in(const struct thc_struct_layout *layout, void *ours, const void *theirs)
{
	size_t size = *(const size_t *)theirs, i;
	int error = check_size(layout, size);
	const uint8_t *bytes = theirs;

	if (error)
		return error;
	for (i = layout->now; i < size; i++) {
		if (bytes[i])
			return thc_fail(
				-E2BIG,
				"byte %zu of %s is set, which libthc %s does not know: install the libthc that this program was built for, or leave its newer members zero",
				i, layout->name, thc_version());
	}
	memset(ours, 0, layout->now);
	memcpy(ours, theirs, size < layout->now ? size : layout->now);
	*(size_t *)ours = layout->now;
	return 0;
}

int thc_struct_out(const struct thc_struct_layout *layout, void *theirs, const void *ours)
{
	size_t size = *(const size_t *)theirs, common = size < layout->now ? size : layout->now;
	int error = check_size(layout, size);

	if (error)
		return error;
	memcpy(theirs, ours, common);
	memset((uint8_t *)theirs + common, 0, size - common);
	*(size_t *)theirs = size;
	return 0;
}
