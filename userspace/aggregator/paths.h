/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where an instance of thcd is found: its control socket and its pins.
 */
#ifndef THC_PATHS_H
#define THC_PATHS_H

#include <stddef.h>

#define THC_RUN		"/run/thc"
#define THC_BPFFS	"/sys/fs/bpf"
#define THC_PINS_ROOT	THC_BPFFS "/thc"

/* Room for the path of a control socket or of a folder of pins, and for that of a pin in it. */
#define THC_PATH_BYTES	128
#define THC_PIN_BYTES	192

/* /run/thc/INSTANCE.sock; returns its length like snprintf(). */
int thc_control_path(const char *instance, char *path, size_t size);

/* /sys/fs/bpf/thc/INSTANCE, with '_' for '.': bpffs keeps names with a dot
 * for the kernel, and interfaces have them.
 */
void thc_pins_dir(const char *instance, char *path, size_t size);

/* A pin in such a folder. */
struct thc_pin {
	char	path[THC_PIN_BYTES];
};

struct thc_pin thc_pin(const char *dir, const char *name);

/* Is bpffs mounted at THC_BPFFS? 1 or 0; a negative errno value if the kernel does not tell. */
int thc_bpffs_mounted(void);

#endif /* THC_PATHS_H */
