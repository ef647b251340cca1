/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Constants that bench.bpf.c and tools/bench/bench_xdp.c share: numbers of packets, and the
 * interval of time stamps. All are powers of two.
 */
#ifndef THC_BENCH_H
#define THC_BENCH_H

#define BENCH_SLOTS 4096 /* packets a pass: one a slot */
#define BENCH_RANKS 8 /* passes: one a rank */
#define BENCH_SCHEME (BENCH_SLOTS * BENCH_RANKS)
#define BENCH_HEADERS (8 * BENCH_SCHEME) /* five schemes, and a class */
#define BENCH_PART 256 /* packets between two looks at the clock */

#endif /* THC_BENCH_H */
