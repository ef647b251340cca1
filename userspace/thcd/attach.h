/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One interface's XDP hook: query, attach, detach.
 */
#ifndef THCD_ATTACH_H
#define THCD_ATTACH_H

#include "../common/device.h"
#include "thcd.h"

int thcd_hook_query(unsigned int ifindex, const char *interface, struct thc_hook *out,
		    struct thcd_error *e);

/* The sentence that refuses to take a hook from its holder; returns -1. */
int thcd_hook_foreign(const char *interface, const struct thc_hook *hook, struct thcd_error *e);

/**
 * thcd_hook_attach() - take the hook
 * @old_fd: program to replace atomically; -1: the hook must be free
 *
 * Returns 0 or a negative errno; @reason (THCD_REASON_MAX bytes) takes the kernel's extended error,
 * or strerror().
 */
#define THCD_REASON_MAX	128
int thcd_hook_attach(unsigned int ifindex, int prog_fd, int old_fd, bool generic, char *reason);

/* Gives the hook back if @prog_fd still holds it. */
int thcd_hook_detach(unsigned int ifindex, int prog_fd, bool generic);

/**
 * thcd_inspect() - look at the interface as `thcctl check` does
 * @native: native XDP is attached, or generic XDP
 * @force: say what is wrong, and go on
 *
 * Returns 0, or -1 with a sentence if every round would time out. What cannot be checked, or may
 * change without a restart, becomes a warning on stderr.
 */
int thcd_inspect(const struct thcd *d, bool native, bool force, struct thcd_error *e);

/* Id of a loaded program, 0: cannot be told. */
u32 thcd_prog_id(int fd);

/* Takes over libbpf's log: keeps errors for thcd_hook_attach(), prints them if @verbose. */
void thcd_libbpf_quiet(bool verbose);

#endif /* THCD_ATTACH_H */
