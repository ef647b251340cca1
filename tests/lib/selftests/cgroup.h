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

/* Moves this process to a new cgroup; returns the cgroup's descriptor, or a negative errno. */
int enter_cgroup(void);

void leave_cgroup(int cgroup);

/* A program that refuses: return 0. */
int load_refusal(enum bpf_prog_type type, enum bpf_attach_type attach);

#endif /* THC_SELFTESTS_CGROUP_H */
