/* SPDX-License-Identifier: GPL-2.0 */
/*
 * BPF helpers for user space: just enough of the kernel that bpf/thc.bpf.c
 * runs as ordinary C, under sanitizers. Stands in for libbpf's header of the
 * same name. Maps are arrays of the program that includes this (fuzz_lookup()),
 * frames lie in the low 4 GiB because struct xdp_md has 32-bit pointers.
 */
#ifndef FUZZ_BPF_HELPERS_H
#define FUZZ_BPF_HELPERS_H

/* libbpf's header of the same name is not to be read. */
#define __BPF_HELPERS__

#define SEC(name)
/* clang-format off */
#define __uint(name, value) int (*name)[value]
#define __type(name, value) value *name
#define __array(name, value) value *name[]
/* clang-format on */
#undef __always_inline
/* a hint here: what the verifier needs inlined, sanitizers make huge */
#define __always_inline inline
#define __noinline __attribute__((noinline))
#define __weak __attribute__((weak))

static void *fuzz_lookup(void *map, const void *key);
static long fuzz_redirect(void *map, __u32 key, __u64 flags);
static long fuzz_adjust_tail(struct xdp_md *ctx, int delta);
static long fuzz_load_bytes(struct xdp_md *ctx, __u32 at, void *to, __u32 bytes);
static void *fuzz_reserve(void *ring, __u64 size, __u64 flags);
static __u64 fuzz_query(void *ring, __u64 what);
static void fuzz_submit(void *record, __u64 flags);
static __u64 fuzz_clock(void);

static inline long fuzz_loop(__u32 most, void *callback, void *context, __u64 flags)
{
	long (*look)(__u32 i, void *context) = callback;
	__u32 i;

	for (i = 0; i < most && !flags; i++)
		if (look(i, context))
			break;
	return i;
}

#define bpf_map_lookup_elem	fuzz_lookup
#define bpf_redirect_map	fuzz_redirect
#define bpf_xdp_adjust_tail	fuzz_adjust_tail
#define bpf_xdp_load_bytes	fuzz_load_bytes
#define bpf_loop		fuzz_loop
#define bpf_ringbuf_reserve	fuzz_reserve
#define bpf_ringbuf_query	fuzz_query
#define bpf_ringbuf_submit	fuzz_submit
#define bpf_ktime_get_coarse_ns	fuzz_clock

#endif /* FUZZ_BPF_HELPERS_H */
