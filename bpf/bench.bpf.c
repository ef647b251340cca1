// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs for tools/bench/bench_xdp.c, never loaded by the daemon: the
 * complete aggregator, a bare accumulate loop over the same slots, and what
 * both need to run over and over on one test packet.
 *
 * The next of the prepared headers decides what a run does; the complete
 * program gets it copied over its packet's, the bare loops take only slot and
 * version from it. So all variants meet the same slots in the same order.
 * Every BENCH_PART runs the time is noted: one run is too short to be timed,
 * and a measurement of all runs would be interrupted.
 */
#include "ingress.bpf.h"

#include "bench.h"

#define BENCH_FRAME (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BENCH_HEADERS);
	__type(key, u32);
	__type(value, struct thc_hdr);
} headers SEC(".maps");

/* The part of a frame that the answer to it overwrites: restored for the next packet. In
 * words, since bytes just written and then read as words stall the CPU; the
 * last 6 bytes of @l2 are the header's.
 */
struct bench_frame {
	u64 l2[6];
	u64 note[sizeof(struct thc_note) / sizeof(u64)];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct bench_frame);
} frame SEC(".maps");

/* Header of the next run. */
u32 bench_next;
/* When header BENCH_PART * i was taken, ns. */
u64 bench_time[BENCH_HEADERS / BENCH_PART];

static __always_inline struct thc_hdr *bench_header(void)
{
	u32 i = bench_next++ & (BENCH_HEADERS - 1);

	if (!(i & (BENCH_PART - 1)))
		bench_time[i / BENCH_PART] = bpf_ktime_get_ns();
	return bpf_map_lookup_elem(&headers, &i);
}

/* Do the bare loops stand at the first contribution to their slot? */
static __always_inline u32 bench_first(void)
{
	return ((bench_next - 1) & (BENCH_SCHEME - 1)) < BENCH_SLOTS;
}

/* Copies the next header into the packet; NULL: the packet is too short. */
static __always_inline struct thc_hdr *bench_prologue(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct thc_hdr *from = bench_header();
	struct thc_hdr *to = data + BENCH_FRAME;

	if (!from || (void *)(to + 1) > end)
		return NULL;
	__builtin_memcpy(to, from, sizeof(*to));
	return to;
}

SEC("xdp")
int bench_empty(struct xdp_md *ctx)
{
	return bench_prologue(ctx) ? XDP_DROP : XDP_ABORTED;
}

SEC("xdp")
int bench_full(struct xdp_md *ctx)
{
	return bench_prologue(ctx) ? thc_ingress(ctx) : XDP_ABORTED;
}

/* thc_ingress() on packets that complete their slot and are answered. */
SEC("xdp")
int bench_complete(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct thc_hdr *h = data + BENCH_FRAME;
	u32 zero = 0;
	struct bench_frame *from = bpf_map_lookup_elem(&frame, &zero);

	if (!from || (void *)(h + 1) + sizeof(from->note) > end)
		return XDP_ABORTED;
	__builtin_memcpy(data, from->l2, sizeof(from->l2));
	__builtin_memcpy(h + 1, from->note, sizeof(from->note));
	return bench_prologue(ctx) ? thc_ingress(ctx) : XDP_ABORTED;
}

/* The lanes of the next header's slot. */
static __always_inline struct thc_lane_block *bench_lanes(const struct thc_hdr *h)
{
	struct thc_lanes *l = thc_lanes_get(thc_be16(h->slot));

	return l ? (void *)l->word[thc_be32(h->generation) & 1] : NULL;
}

/* The lanes of the slot that @of names, to which a loop adds the @bytes behind @h; NULL: the packet
 * is too short.
 */
static __always_inline struct thc_lane_block *bench_target(struct xdp_md *ctx,
							   const struct thc_hdr *h,
							   const struct thc_hdr *of, u32 bytes)
{
	void *end = (void *)(long)ctx->data_end;

	return h && of && (void *)(h + 1) + bytes <= end ? bench_lanes(of) : NULL;
}

SEC("xdp")
int bench_bare_lut(struct xdp_md *ctx)
{
	struct thc_hdr *h = bench_prologue(ctx);
	u32 row = thc_row_of_all(0, 4);
	struct thc_pairs *table = bpf_map_lookup_elem(&pairs, &row);
	struct thc_lane_block *to = bench_target(ctx, h, h, 512);

	if (!table || !to)
		return XDP_ABORTED;
	thc_lanes_bpf_lut8(to, (void *)(h + 1), table, bench_first());
	return XDP_DROP;
}

SEC("xdp")
int bench_bare_linear(struct xdp_md *ctx)
{
	struct thc_hdr *h = bench_prologue(ctx);
	struct thc_lane_block *to = bench_target(ctx, h, h, 512);

	if (!to)
		return XDP_ABORTED;
	thc_lanes_bpf_linear8(to, (void *)(h + 1), bench_first());
	return XDP_DROP;
}

SEC("xdp")
int bench_bare_add32(struct xdp_md *ctx)
{
	struct thc_hdr *h = bench_prologue(ctx);
	struct thc_lane_block *to = bench_target(ctx, h, h, 1024);

	if (!to)
		return XDP_ABORTED;
	thc_lanes_bpf_add32(to, (void *)(h + 1), bench_first());
	return XDP_DROP;
}

/* Bare loops that do not copy the header: a loop needs only the slot number, and takes it from the
 * prepared headers.
 */
SEC("xdp")
int bench_loop_lut(struct xdp_md *ctx)
{
	struct thc_hdr *h = (void *)(long)ctx->data + BENCH_FRAME;
	u32 row = thc_row_of_all(0, 4);
	struct thc_pairs *table = bpf_map_lookup_elem(&pairs, &row);
	struct thc_lane_block *to = bench_target(ctx, h, bench_header(), 512);

	if (!table || !to)
		return XDP_ABORTED;
	thc_lanes_bpf_lut8(to, (void *)(h + 1), table, bench_first());
	return XDP_DROP;
}

SEC("xdp")
int bench_loop_linear(struct xdp_md *ctx)
{
	struct thc_hdr *h = (void *)(long)ctx->data + BENCH_FRAME;
	struct thc_lane_block *to = bench_target(ctx, h, bench_header(), 512);

	if (!to)
		return XDP_ABORTED;
	thc_lanes_bpf_linear8(to, (void *)(h + 1), bench_first());
	return XDP_DROP;
}

SEC("xdp")
int bench_loop_add32(struct xdp_md *ctx)
{
	struct thc_hdr *h = (void *)(long)ctx->data + BENCH_FRAME;
	struct thc_lane_block *to = bench_target(ctx, h, bench_header(), 1024);

	if (!to)
		return XDP_ABORTED;
	thc_lanes_bpf_add32(to, (void *)(h + 1), bench_first());
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
