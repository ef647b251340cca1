/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the tests of the XDP programs share: loading the object, making jobs,
 * building frames and reading counters. Frames are built byte by byte from
 * the RFCs, not with the structures the programs parse with.
 */
#ifndef THC_TEST_RIG_H
#define THC_TEST_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <thc/aggregator/lane.h>
#include <thc/wire/seal.h>

#include "../jobseals.h"
#include "thc_open.h"

#define RIG_PORT 18500
#define RIG_SLOTS 256
#define RIG_GROUP_PORT 18600

struct rig {
	struct thc_bpf *skel;
	struct thc_job *jobs;
	struct thc_seals *seals;
	struct thc_slot *slots;
	struct thc_lanes *lanes;
};

/* A table of 31 steps: n = 8 sums stay below 256. */
static const u16 rig_table[16] = { 0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31 };

/* Without root there is no BPF: the test says so and counts as skipped. */
void rig_need_root(void);

void rig_open(struct rig *rig, const struct thc_config *config);

void rig_close(struct rig *rig);

/* By what requests are sealed, and what jobs are made with: enum thc_seal_kind. At first NH. */
extern u8 rig_seal;

/* The keys of @job in @epoch, under rig_seal, as its workers know them; of this thread, until its
 * next call.
 */
const struct thc_seals *rig_seals(u16 job, u32 epoch);

/* Job @id with @n ranks over slots [@base, @base + @slots), in epoch 1. No members yet. */
struct thc_job *rig_job(struct rig *rig, u32 id, int n, u32 base, u32 slots);

/* Job @id goes on to @epoch, and to seal rig_seal; keys of an epoch before stay. */
void rig_epoch(struct rig *rig, u32 id, u32 epoch);

void rig_member(struct thc_job *job, int rank, struct thc_addr addr, u16 port);

/* All CPUs' counters together. */
struct thc_stats rig_stats(struct rig *rig);

void rig_stats_clear(struct rig *rig);

/* Every packet has one fate: received = fates + drops. */
void rig_check_balance(const struct thc_stats *st);

/* fan[@k] of maps.bpf.h: @ifindex k + 1 times. */
void rig_fan(struct rig *rig, u32 k, u32 ifindex);

/* A request; @h gets what the fields above do not say. */
struct rig_request {
	u8 op, width;
	u16 rank, job;
	u32 epoch, round, chunk, slot, generation;
};

void rig_header(struct thc_hdr *h, const struct rig_request *r);

/* Data @h + @payload into @out, under the keys of its job and epoch; returns its length. */
size_t rig_packet(u8 *out, struct thc_hdr *h, const void *payload, size_t len);

/* JOIN or LEAVE of a worker at @end, into @out. */
size_t rig_control(u8 *out, struct thc_hdr *h, const struct thc_end *end, const void *payload,
		   size_t len);

/* Is @h sealed as an answer of its job and epoch, with @len bytes of @payload? */
bool rig_sealed(const struct thc_hdr *h, const void *payload, size_t len);

/* Does @h end the epoch of the worker at @end, in answer to its request of this @tag? */
bool rig_ends(const struct thc_hdr *h, const struct thc_end *end, __be64 tag);

/**
 * struct rig_frame - everything in front of a THC packet
 * @vlan: tag control, host order
 * @vlan_proto: 0x8100 unless set; untagged if both are 0
 * @options: bytes of IPv4 options
 * @frag: IPv4 flags and offset
 * @next: IP protocol, 17 unless set
 * @ttl: TTL or hop limit, 3 unless set
 * @ip_len: 0: right, else what the IP header says
 * @udp_len: 0: right, else what the UDP header says
 */
struct rig_frame {
	bool v6;
	u16 vlan, vlan_proto;
	u8 src_mac[6], dst_mac[6];
	struct thc_addr src, dst;
	u16 sport, dport;
	u8 tos, options, next, ttl;
	u16 frag, ip_len, udp_len;
};

/* The worker's end of a frame from it. */
struct thc_end rig_end(const struct rig_frame *f);

/* The frame of UDP payload @data; returns its length. RFC 768, 791, 8200. */
size_t rig_frame(u8 *out, const struct rig_frame *f, const void *data, size_t len);

/* Payload bytes that an op with this width takes. */
static inline size_t rig_payload(u8 op, u8 sum_width)
{
	return op != THC_OP_LUT_ADD ? 1024 : sum_width == 16 ? 256 : 512;
}

/* Answer bytes expected from @n payloads; the first replaces. */
void rig_reference(u8 *out, u8 op, u8 answer_width, const u16 *table, const u8 *const payload[],
		   int n);

/* xorshift64*: the same numbers in every run. */
u64 rig_draw(u64 *state);

void rig_fill(u64 *state, u8 *p, size_t len);

/* --- BPF_PROG_TEST_RUN ------------------------------------------------------ */

#define RIG_FRAME_MAX 2048
#define RIG_CLIENT_PORT 40000

struct thc_addr rig_addr(bool v6, int host);

/* A rig for test runs: answers count as sent by a redirect to lo, which
 * nothing follows. Job 2 has @n ranks and slots 64..191; rank r is at host
 * 10 + r, port RIG_CLIENT_PORT + r; the aggregator is host 0, IPv4 and IPv6.
 */
struct thc_job *rig_test(struct rig *rig, int n);

/* Where request @r comes from and goes to, in rig_test()'s world. */
struct rig_frame rig_way(const struct rig_request *r, bool v6);

/* Request @r as a frame, JOIN and LEAVE included; returns its length. */
size_t rig_build(u8 *frame, const struct rig_request *r, const void *payload, size_t len);

/* Runs @prog on @frame; @out (RIG_FRAME_MAX) and @out_len take what it left. */
u32 rig_run(struct bpf_program *prog, const u8 *frame, size_t len, u8 *out, size_t *out_len);

/* Runs thc_xdp on request @r with @bytes of @payload; @out and @out_len as above. */
u32 rig_send(struct rig *rig, const struct rig_request *r, const void *payload, size_t bytes,
	     u8 *out, size_t *out_len);

#endif /* THC_TEST_RIG_H */
