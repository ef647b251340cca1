/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A cgroup of the test's own, and BPF programs that refuse what its processes do.
 */
#ifndef THC_SELFTESTS_CGROUP_H
#define THC_SELFTESTS_CGROUP_H

#include <bpf/bpf.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "afthc.h"

#define CGROUPS		"/tmp/afthc-cgroups"
#define CGROUP		CGROUPS "/afthc"

/* This process in a cgroup of its own, whose file is returned; or a negative errno. */
int enter_cgroup(void);

void leave_cgroup(int cgroup);

/* A program that refuses: return 0. */
int load_refusal(enum bpf_prog_type type, enum bpf_attach_type attach);

#endif /* THC_SELFTESTS_CGROUP_H */
