/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the tests of the XDP programs share: loading the object, making jobs,
 * running the programs on frames (frames.h) and reading counters.
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
#include "frames.h"
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

/* Job @id with @n ranks over slots [@base, @base + @slots), in epoch 1. No members yet. */
struct thc_job *rig_job(struct rig *rig, u32 id, int n, u32 base, u32 slots);

/* Job @id has one more row, of 2^@bits levels @table and sums of @sum_width bits. */
void rig_add_row(struct rig *rig, u32 id, const u16 *table, u8 bits, u8 sum_width);
/* It has no other. */
void rig_row(struct rig *rig, u32 id, const u16 *table, u8 bits, u8 sum_width);

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
