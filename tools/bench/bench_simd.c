// SPDX-License-Identifier: GPL-2.0
/*
 * The lane loops that thc.ko lends XDP, in user space on one CPU: nanoseconds
 * for one payload, combined with 1024 bytes of lanes (1024 coordinates of 8
 * bits, 512 of 16, 256 of 32, 2048 of 4), per instruction set of this CPU. b3s8 is 3 bits of
 * an index with sums of 8 bits. nh512 and nh1024 are NH
 * of a payload, and of lanes, of so many bytes; tag512 and tag1024 the tag of a
 * packet by the seal nh.
 *
 *	hot	one slot over and over: the arithmetic
 *	slots	4096 slots in random order: 4 MiB of lanes, as bench_xdp
 *
 * Medians over repetitions that take the sets in turn. What the kernel adds in
 * thc.ko, kernel_fpu_begin() and the call out of BPF, is not included.
 */
#include <getopt.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <thc/aggregator/maps.h>

#include "samples.h"
#include "simd.h"

#define SLOTS 4096
#define REPS_MAX 101
#define SETS 3
#define COUNT_ROW(...) +1
#define ROWS (0 THC_FORMATS_GROUP(COUNT_ROW))
#define KINDS (10 + ROWS)
/* Bytes in front of the payload in its frame: Ethernet, IPv4, UDP, THC. */
#define HEADERS (14 + 20 + 8 + 48)

enum { HOT, MANY, WAYS };

#define NAME_ROW(kind, name, ...) #name,
static const char *const kinds[KINDS] = { "lut8",
					  "linear8",
					  "lut16",
					  "add8",
					  "add16",
					  "add32",
					  "nh512",
					  "nh1024",
					  "tag512",
					  "tag1024",
					  THC_FORMATS_GROUP(NAME_ROW) };
static const struct thc_row rows[ROWS] = {
#define BITS_OF_ROW(kind, name, op, up, sum, ...) { .bits = up, .sum_width = sum },
	THC_FORMATS_GROUP(BITS_OF_ROW)
};
static const char *const ways[WAYS] = { "hot", "slots" };
/* For 4 bits the first 16 levels are used. */
static const u16 table[64] = {
	0,  3,	5,  7,	9,  11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31, 32, 33, 35, 36, 37, 38,
	40, 41, 42, 43, 45, 46, 47, 48, 50, 51, 52, 53, 55, 56, 57, 58, 60, 61, 62, 63, 65, 66,
	67, 68, 70, 71, 72, 73, 75, 76, 77, 78, 80, 81, 82, 83, 85, 86, 87, 88, 90, 91,
};

static struct thc_lanes *lanes;
static u16 order[SLOTS];
static struct thc_pairs pairs, row_pairs[ROWS];
static struct thc_seal_key key;
static u64 nh;
static u8 frame[HEADERS + THC_LANE_BYTES] __attribute__((aligned(64)));
static double samples[SETS][KINDS][WAYS][REPS_MAX];

static void prepare(void)
{
	int i;

	lanes = aligned_alloc(4096, SLOTS * sizeof(*lanes));
	if (!lanes) {
		fprintf(stderr, "bench_simd: out of memory\n");
		exit(1);
	}
	memset(lanes, 0, SLOTS * sizeof(*lanes));
	draw_order(order, SLOTS);
	for (i = 0; i < (int)sizeof(frame); i++)
		frame[i] = draw() >> 32;
	for (i = 0; i < THC_NH_WORDS; i++)
		key.nh[i] = draw() >> 32;
	thc_pairs_init(&pairs, table, 4);
	for (i = 0; i < ROWS; i++)
		thc_pairs_init(&row_pairs[i], table, rows[i].bits);
}

/* Computes the tag like thc_kfunc_tag_512(). */
static void tag(const struct thc_simd_ops *ops, int words)
{
	struct thc_siphash s;

	thc_seal_begin(&s, key.sip, (const void *)(frame + HEADERS - sizeof(struct thc_hdr)));
	ops->nh(&nh, key.nh, frame + HEADERS, words);
	nh = thc_seal_end(&s, nh);
}

static void combine(const struct thc_simd_ops *ops, int kind, u64 *to)
{
	const u8 *payload = frame + HEADERS;

	switch (kind) {
	case 0:
		ops->lut8(to, payload, &pairs, 0);
		break;
	case 1:
		ops->linear8(to, payload, 0);
		break;
	case 2:
		ops->lut16(to, payload, &pairs, 0);
		break;
	case 3:
		ops->add8(to, payload, 0);
		break;
	case 4:
		ops->add16(to, payload, 0);
		break;
	case 5:
		ops->add32(to, payload, 0);
		break;
	case 6:
		ops->nh(&nh, key.nh, payload, 64);
		break;
	case 7:
		ops->nh(&nh, key.nh, to, THC_LANE_WORDS);
		break;
	case 8:
		tag(ops, 64);
		break;
	case 9:
		tag(ops, THC_LANE_WORDS);
		break;
	default:
		kind -= KINDS - ROWS;
		ops->group(to, payload, &row_pairs[kind], rows[kind].bits, rows[kind].sum_width, 0);
	}
}

/* Nanoseconds per payload, over a pass with as many payloads as slots. */
static double pass(const struct thc_simd_ops *ops, int kind, int way)
{
	struct timespec a, b;
	int i;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < SLOTS; i++)
		combine(ops, kind, lanes[way == HOT ? 0 : order[i]].word[0]);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / SLOTS;
}

/* The instruction sets of this CPU. */
static int sets(const struct thc_simd_ops **set)
{
	int n = 0;

	set[n++] = &thc_simd_scalar;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		set[n++] = &thc_simd_avx2;
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vbmi"))
		set[n++] = &thc_simd_avx512;
#endif
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "quick", 0, NULL, 'q' }, { 0 } };
	const struct thc_simd_ops *set[SETS];
	int reps = 51, n = sets(set), rep, s, k, w, c;
	cpu_set_t cpu;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'q') {
			fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
			return 2;
		}
		reps = 15;
	}
	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	prepare();
	for (rep = -1; rep < reps; rep++) /* the first one warms up */
		for (k = 0; k < KINDS; k++)
			for (w = 0; w < WAYS; w++)
				for (s = 0; s < n; s++)
					samples[s][k][w][rep < 0 ? 0 : rep] = pass(set[s], k, w);

	printf("{\"slots\": %d, \"repetitions\": %d", SLOTS, reps);
	for (s = 0; s < n; s++) {
		printf(",\n \"%s\": {", set[s]->name);
		for (k = 0; k < KINDS; k++)
			for (w = 0; w < WAYS; w++)
				printf("%s\"%s_%s_ns\": %.1f", k + w ? ", " : "", kinds[k], ways[w],
				       median(samples[s][k][w], reps));
		printf("}");
	}
	printf("}\n");
	free(lanes);
	return 0;
}
