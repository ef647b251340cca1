// SPDX-License-Identifier: GPL-2.0
/*
 * Where an instance of thcd is found.
 */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/vfs.h>

#include "paths.h"

int thc_control_path(const char *instance, char *path, size_t size)
{
	return snprintf(path, size, "%s/%s.sock", THC_RUN, instance);
}

void thc_pins_dir(const char *instance, char *path, size_t size)
{
	char *c;

	snprintf(path, size, "%s/%s", THC_PINS_ROOT, instance);
	for (c = path; *c; c++)
		if (*c == '.')
			*c = '_';
}

struct thc_pin thc_pin(const char *dir, const char *name)
{
	struct thc_pin pin;

	snprintf(pin.path, sizeof(pin.path), "%s/%s", dir, name);
	return pin;
}

int thc_bpffs_mounted(void)
{
	struct statfs fs;

	return statfs(THC_BPFFS, &fs) ? -errno : (unsigned long)fs.f_type == BPF_FS_MAGIC;
}
