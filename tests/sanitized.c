// SPDX-License-Identifier: GPL-2.0
/*
 * Linked into what tests/sanitized.sh builds: gcc's runtime library for undefined behaviour is
 * one beside that of AddressSanitizer, and does not take the file for its reports from the
 * environment.
 */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void report_to_file(void)
{
	void *library = dlopen("libubsan.so.1", RTLD_NOW | RTLD_NOLOAD);
	const char *path = getenv("UBSAN_REPORT");
	void (*set)(const char *path) = NULL;

	if (library && path)
		*(void **)&set = dlsym(library, "__sanitizer_set_report_path");
	if (set)
		set(path);
}
