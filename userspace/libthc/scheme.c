// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The schemes that this library has: a row of THC_SCHEMES and its own files make one. */
#include <string.h>

#include <thc/names.h>

#include "libthc.h"
#include "scheme.h"

const struct thc_scheme *thc_scheme_of(unsigned int id)
{
	static const struct thc_scheme *const row[] = {
#define THC_SCHEME_ROW(id, word) [THC_SCHEME_##id] = &thc_scheme_##word,
		THC_SCHEMES(THC_SCHEME_ROW)
#undef THC_SCHEME_ROW
	};

	return id < THC_SCHEMES_COUNT ? row[id] : NULL;
}

const struct thc_scheme *thc_scheme_named(const char *name)
{
	unsigned int id;

	for (id = 0; id < THC_SCHEMES_COUNT; id++)
		if (!strcmp(thc_scheme_name[id], name))
			return thc_scheme_of(id);
	return NULL;
}

const char *const *thc_schemes(void)
{
	return thc_scheme_name;
}
