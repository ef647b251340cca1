// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a packet costs in XDP: the complete aggregator beside a bare loop that
 * only accumulates, over 4096 slots in random order, by BPF_PROG_TEST_RUN on
 * one CPU. Every packet of the complete program is a fresh contribution: the
 * slots are emptied between repetitions, and the program's own counters must
 * say that each one was added, else the run fails.
 *
 * Figures are nanoseconds a packet, medians over interleaved repetitions, as
 * the kernel measures them, with nothing subtracted:
 *
 *	bare	slot number from a prepared list, lanes lookup, lane loop
 *	full	prologue (48-byte header copied over the packet's), then parse,
 *		admission, seal, lock, state machine, lane loop
 *	unsealed, summed	full in a job with the seal none, and sum
 *	complete	full, for the contribution that finishes a slot: also the
 *		digest of the lanes, the answer's headers and the redirect
 *	empty	the prologue alone, for comparison
 *
 * ratio = full / bare. The prologue is part of full only, so the ratio is
 * rather too large than too small; ratio_net has it subtracted from full, and
 * ratio_same_prologue has it in both.
 */
#include <errno.h>
#include <getopt.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <thc/wire/seal.h>

#include "thc_maps.h"
#include "bench.h"
#include "bench.skel.h"
#include "samples.h"

#define PARTS (BENCH_SLOTS / BENCH_PART) /* of a pass */
#define ADDED (BENCH_RANKS - 1) /* passes; the last rank completes */
#define REPS_MAX 101
#define PAYLOAD 512
#define FRAME_HEAD (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))
#define FRAME_LEN (FRAME_HEAD + sizeof(struct thc_hdr) + PAYLOAD)
#define PORT 18500
#define EPOCH 1
#define SERVER 0x0100000aU /* 10.0.0.1 */
#define CLIENT(r) (0x0200000aU + ((u32)(r) << 24))

enum scheme { LUT, LINEAR, SCHEMES };
enum variant { BARE, SAME, FULL, UNSEALED, SUMMED, COMPLETE, VARIANTS };

static const u16 tables[SCHEMES][16] = {
	{ 0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31 },
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
};

static struct bench_bpf *skel;
static struct thc_job *jobs;
static struct thc_seals *seals;
static struct thc_slot *slots;
static struct thc_lanes *lanes;
static struct thc_hdr *headers;
static u8 frame[FRAME_LEN];
static u16 order[BENCH_SLOTS];
static double samples[SCHEMES][VARIANTS][REPS_MAX], empty[REPS_MAX];

static void fail(const char *what)
{
	fprintf(stderr, "bench_xdp: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *map_memory(struct bpf_map *map, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	if (p == MAP_FAILED)
		fail("mapping a BPF map");
	return p;
}

static void make_frame(void)
{
	struct ethhdr *eth = (void *)frame;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	size_t i;

	memset(eth->h_dest, 0x02, ETH_ALEN);
	memset(eth->h_source, 0x06, ETH_ALEN);
	eth->h_proto = thc_be16(ETH_P_IP);
	ip->version = 4;
	ip->ihl = 5;
	ip->ttl = 64;
	ip->protocol = 17;
	ip->tot_len = thc_be16(FRAME_LEN - sizeof(*eth));
	ip->saddr = CLIENT(0);
	ip->daddr = SERVER;
	udp->source = thc_be16(40000);
	udp->dest = thc_be16(PORT);
	udp->len = thc_be16(FRAME_LEN - sizeof(*eth) - sizeof(*ip));
	for (i = FRAME_HEAD + sizeof(struct thc_hdr); i < FRAME_LEN; i++)
		frame[i] = draw() >> 32;
}

static void make_job(int id)
{
	struct thc_job *job = &jobs[id];
	struct thc_pairs pairs;
	u32 key = id;
	int r;

	thc_pairs_init(&pairs, tables[id]);
	if (bpf_map_update_elem(bpf_map__fd(skel->maps.pairs), &key, &pairs, 0))
		fail("filling the table");
	job->all = (1ULL << BENCH_RANKS) - 1;
	job->joined = job->all;
	job->epoch = EPOCH;
	job->slots = BENCH_SLOTS;
	job->data_slots = BENCH_SLOTS;
	job->ranks = BENCH_RANKS;
	job->quorum = BENCH_RANKS;
	job->sum_width = 8;
	job->reply = THC_REPLY_MULTICAST;
	job->flags = id == LINEAR ? THC_JOB_F_LINEAR : 0;
	job->port_base = PORT;
	job->group = thc_addr_v4(0x010000efU);
	job->group_port = thc_be16(PORT + 1);
	/* one test packet has one source: all ranks share it */
	for (r = 0; r < BENCH_RANKS; r++) {
		job->member[r].addr = thc_addr_v4(CLIENT(0));
		job->member[r].port = thc_be16(40000);
		job->member[r].joined = 1;
	}
	job->active = 1;
}

/* Which numbers a key has does not matter: the time is the same. */
static void make_seals(int id)
{
	u64 *key = (void *)&seals[id];
	size_t i;

	for (i = 0; i < sizeof(seals[id]) / sizeof(*key); i++)
		key[i] = draw();
}

/* Of rank @rank, under the job's seal. */
static void make_headers(enum scheme scheme, int rank)
{
	const struct thc_seals *s = &seals[scheme];
	int i;

	for (i = 0; i < BENCH_SLOTS; i++) {
		struct thc_hdr *h = &headers[scheme * BENCH_SCHEME + rank * BENCH_SLOTS + i];

		memset(h, 0, sizeof(*h));
		h->version = THC_VERSION;
		h->op = THC_OP_LUT_ADD;
		h->width = 4;
		h->job = thc_be16(scheme);
		h->rank = thc_be16(rank);
		h->epoch = thc_be32(EPOCH);
		h->chunk = thc_be32(order[i]);
		h->slot = thc_be16(order[i]);
		thc_seal(h, (u8)s->seal, thc_seals_up(s, EPOCH), frame + FRAME_HEAD + sizeof(*h),
			 PAYLOAD / 8);
	}
}

static void read_stats(struct thc_stats *sum)
{
	int cpus = libbpf_num_possible_cpus(), c;
	struct thc_stats *each = calloc(cpus, sizeof(*each));
	u32 key = 0;
	size_t i;

	if (!each || bpf_map_lookup_elem(bpf_map__fd(skel->maps.stats), &key, each))
		fail("reading the counters");
	memset(sum, 0, sizeof(*sum));
	for (c = 0; c < cpus; c++)
		for (i = 0; i < sizeof(*sum) / sizeof(u64); i++)
			((u64 *)sum)[i] += ((u64 *)&each[c])[i];
	free(each);
}

/* Runs @prog over @passes passes of @scheme's prepared headers; returns ns a
 * packet, from pass @timed on. Each pass counts with its median part, so that
 * an interruption does not.
 *
 * One TEST_RUN for all of them: with repetitions, each call waits twice for
 * all CPUs (the kernel patches its XDP dispatcher) and then finds cold caches.
 */
static double run(struct bpf_program *prog, enum scheme scheme, int timed, int passes, u32 expected)
{
	u32 start = scheme * BENCH_SCHEME, end = start + passes * BENCH_SLOTS;
	u8 in[FRAME_LEN];
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = in, .data_size_in = sizeof(in),
		    .repeat = end - start);
	const u64 *t = &skel->bss->bench_time[start / BENCH_PART + timed * PARTS];
	double sum = 0, part[PARTS];
	int pass, i, n;

	memcpy(in, frame, sizeof(in));
	skel->bss->bench_next = start;
	if (bpf_prog_test_run_opts(bpf_program__fd(prog), &opts))
		fail("BPF_PROG_TEST_RUN");
	if (opts.retval != expected || skel->bss->bench_next != end) {
		fprintf(stderr, "bench_xdp: %s returned %u after %u of %u packets, not %u\n",
			bpf_program__name(prog), opts.retval, skel->bss->bench_next - start,
			end - start, expected);
		exit(1);
	}
	for (pass = timed; pass < passes; pass++, t += PARTS) {
		/* nobody notes when the last part ends */
		n = pass < passes - 1 ? PARTS : PARTS - 1;
		for (i = 0; i < n; i++)
			part[i] = (double)(t[i + 1] - t[i]) / BENCH_PART;
		sum += median(part, n);
	}
	return sum / (passes - timed);
}

static void check_added(const struct thc_stats *before, u64 added)
{
	struct thc_stats now;
	int i;

	read_stats(&now);
	for (i = 0; i < THC_DROP_REASONS; i++) {
		if (now.drop[i] != before->drop[i]) {
			fprintf(stderr, "bench_xdp: packets dropped, reason %d\n", i);
			exit(1);
		}
	}
	if (now.event[THC_EVENT_ADDED] - before->event[THC_EVENT_ADDED] != added ||
	    now.received - before->received != added) {
		fprintf(stderr, "bench_xdp: %llu of %llu packets were fresh contributions\n",
			(unsigned long long)(now.event[THC_EVENT_ADDED] -
					     before->event[THC_EVENT_ADDED]),
			(unsigned long long)added);
		exit(1);
	}
}

/* What @times contributions of the one payload add up to, by plain integers. */
static void check_lanes(enum scheme scheme, int times)
{
	const u8 *payload = frame + FRAME_HEAD + sizeof(struct thc_hdr);
	int slot, i;

	for (slot = 0; slot < BENCH_SLOTS; slot += 97) {
		const u8 *got = (const u8 *)lanes[slot].word[0];

		for (i = 0; i < 2 * PAYLOAD; i++) {
			int z = i & 1 ? payload[i / 2] & 15 : payload[i / 2] >> 4;

			if (got[i] == times * tables[scheme][z])
				continue;
			fprintf(stderr, "bench_xdp: slot %d lane %d is %u, not %u\n", slot, i,
				got[i], times * tables[scheme][z]);
			exit(1);
		}
	}
}

static void set_seal(enum scheme scheme, enum thc_seal_kind seal)
{
	int r;

	seals[scheme].seal = seal;
	for (r = 0; r < BENCH_RANKS; r++)
		make_headers(scheme, r);
}

/* All contributions but those that finish a slot. */
static double run_full(enum scheme scheme)
{
	struct thc_stats before;
	double ns;

	memset(slots, 0, BENCH_SLOTS * sizeof(*slots));
	read_stats(&before);
	ns = run(skel->progs.bench_full, scheme, 0, ADDED, XDP_DROP);
	check_lanes(scheme, ADDED);
	check_added(&before, ADDED * BENCH_SLOTS);
	return ns;
}

static void repetition(enum scheme scheme, int rep)
{
	struct bpf_program *bare[SCHEMES] = { skel->progs.bench_loop_lut,
					      skel->progs.bench_loop_linear };
	struct bpf_program *same[SCHEMES] = { skel->progs.bench_bare_lut,
					      skel->progs.bench_bare_linear };
	struct thc_stats before;

	samples[scheme][BARE][rep] = run(bare[scheme], scheme, 0, ADDED, XDP_DROP);
	check_lanes(scheme, ADDED);
	samples[scheme][SAME][rep] = run(same[scheme], scheme, 0, ADDED, XDP_DROP);
	check_lanes(scheme, ADDED);

	set_seal(scheme, THC_SEAL_NONE);
	samples[scheme][UNSEALED][rep] = run_full(scheme);
	set_seal(scheme, THC_SEAL_SUM);
	samples[scheme][SUMMED][rep] = run_full(scheme);
	set_seal(scheme, THC_SEAL_NH);
	samples[scheme][FULL][rep] = run_full(scheme);

	memset(slots, 0, BENCH_SLOTS * sizeof(*slots));
	read_stats(&before);
	samples[scheme][COMPLETE][rep] =
		run(skel->progs.bench_complete, scheme, ADDED, BENCH_RANKS, XDP_REDIRECT);
	check_lanes(scheme, BENCH_RANKS);
	check_added(&before, BENCH_RANKS * BENCH_SLOTS);
}

/* An answer needs an entry to be redirected to; lo takes no part in it. */
static void fill_fan(void)
{
	struct bpf_devmap_val val = { .ifindex = 1,
				      .bpf_prog.fd = bpf_program__fd(skel->progs.thc_egress) };
	u32 key = 1, i;
	int fd = bpf_map_create(BPF_MAP_TYPE_DEVMAP, NULL, sizeof(u32), sizeof(val), 2, NULL);

	if (fd < 0)
		fail("creating a devmap");
	for (i = 0; i < 2; i++)
		if (bpf_map_update_elem(fd, &i, &val, 0))
			fail("filling a devmap");
	if (bpf_map_update_elem(bpf_map__fd(skel->maps.fan), &key, &fd, 0))
		fail("filling fan");
	close(fd);
}

static void load(void)
{
	skel = bench_bpf__open();
	if (!skel)
		fail("opening the BPF object");
	skel->rodata->thc_config.addr4 = thc_addr_v4(SERVER);
	skel->rodata->thc_config.port_base = PORT;
	bpf_map__set_max_entries(skel->maps.slots, BENCH_SLOTS);
	bpf_map__set_max_entries(skel->maps.lanes, BENCH_SLOTS);
	if (bench_bpf__load(skel))
		fail("loading the BPF object (root is needed)");
	jobs = map_memory(skel->maps.jobs, THC_JOBS_MAX * sizeof(*jobs));
	seals = map_memory(skel->maps.seals_of, THC_JOBS_MAX * sizeof(*seals));
	slots = map_memory(skel->maps.slots, BENCH_SLOTS * sizeof(*slots));
	lanes = map_memory(skel->maps.lanes, BENCH_SLOTS * sizeof(*lanes));
	headers = map_memory(skel->maps.headers, BENCH_HEADERS * sizeof(*headers));
	fill_fan();
}

static void save_frame(void)
{
	struct {
		u8 link[48], note[16];
	} *saved = map_memory(skel->maps.frame, sizeof(*saved));

	memcpy(saved->link, frame, FRAME_HEAD);
	memcpy(saved->note, frame + FRAME_HEAD + sizeof(struct thc_hdr), sizeof(saved->note));
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "quick", 0, NULL, 'q' }, { 0 } };
	static const char *const names[SCHEMES] = { "lut", "linear" };
	int reps = 31, rep, s, c;
	double none;
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

	load();
	draw_order(order, BENCH_SLOTS);
	make_frame();
	save_frame();
	for (s = 0; s < SCHEMES; s++) {
		make_job(s);
		make_seals(s);
		set_seal(s, THC_SEAL_NH);
	}
	for (rep = -1; rep < reps; rep++) { /* the first one warms up */
		for (s = 0; s < SCHEMES; s++)
			repetition(s, rep < 0 ? 0 : rep);
		empty[rep < 0 ? 0 : rep] = run(skel->progs.bench_empty, LUT, 0, ADDED, XDP_DROP);
	}

	none = median(empty, reps);
	printf("{\"slots\": %d, \"repetitions\": %d, \"prologue_ns\": %.1f", BENCH_SLOTS, reps,
	       none);
	for (s = 0; s < SCHEMES; s++) {
		double bare = median(samples[s][BARE], reps), full = median(samples[s][FULL], reps);
		double same = median(samples[s][SAME], reps);

		printf(",\n \"%s_bare_ns\": %.1f, \"%s_full_ns\": %.1f, \"%s_ratio\": %.3f",
		       names[s], bare, names[s], full, names[s], full / bare);
		printf(", \"%s_ratio_same_prologue\": %.3f, \"%s_ratio_net\": %.3f", names[s],
		       full / same, names[s], (full - none) / bare);
		printf(", \"%s_complete_ns\": %.1f", names[s], median(samples[s][COMPLETE], reps));
		printf(", \"%s_unsealed_ns\": %.1f, \"%s_summed_ns\": %.1f", names[s],
		       median(samples[s][UNSEALED], reps), names[s],
		       median(samples[s][SUMMED], reps));
	}
	printf("}\n");
	bench_bpf__destroy(skel);
	return 0;
}
