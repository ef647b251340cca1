/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For loaders: thc.bpf.c and thc_simd.bpf.c are one program text with the same
 * maps, so that one skeleton type serves both objects.
 */
#ifndef THC_OPEN_H
#define THC_OPEN_H

#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stdlib.h>

#include <thc/aggregator/maps.h>

#ifdef __clang_analyzer__
/* The analyser assumes that functions of system headers free nothing. */
static inline void thc_destroy_skeleton(struct bpf_object_skeleton *s)
{
	if (s) {
		free(s->maps);
		free(s->progs);
	}
	free(s);
}
#define bpf_object__destroy_skeleton(s)	thc_destroy_skeleton(s)
#endif

#include "thc.skel.h"
#include "thc_simd.skel.h"

/* As thc_bpf__open(); with @simd, thc.ko sums lanes. Such an object fails to load where thc.ko is
 * not loaded or its functions cannot be called.
 */
static inline struct thc_bpf *thc_bpf_open(bool simd)
{
	struct thc_bpf *skel;
	int err;

	if (!simd)
		return thc_bpf__open();
	skel = calloc(1, sizeof(*skel));
	if (!skel)
		return NULL;
	err = thc_bpf__create_skeleton(skel);
	if (!err) {
		skel->skeleton->data = thc_simd_bpf__elf_bytes(&skel->skeleton->data_sz);
		err = bpf_object__open_skeleton(skel->skeleton, NULL);
	}
	if (!err)
		return skel;
	thc_bpf__destroy(skel);
	errno = -err;
	return NULL;
}

#endif /* THC_OPEN_H */
