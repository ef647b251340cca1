// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a packet costs in XDP: the complete aggregator beside a bare loop that
 * only accumulates, over 4096 slots in random order, by BPF_PROG_TEST_RUN on
 * one CPU. Every packet of the complete program is a fresh contribution: the
 * slots are emptied between repetitions, and the program's own counters must
 * say that each one was added, else the run fails.
 *
 * Figures are nanoseconds a packet, medians over interleaved repetitions, as
 * the kernel measures them, with nothing subtracted. Each repetition loads the
 * programs anew: where the kernel puts their code, which is by chance, decides
 * some tens of nanoseconds.
 *
 *	bare	slot number from a prepared list, lanes lookup, lane loop
 *	full	prologue (48-byte header copied over the packet's), then parse,
 *		admission, seal, lock, state machine, lane loop
 *	complete	full, for the contribution that finishes a slot: also the
 *		digest of the lanes, the answer's headers and the redirect
 *	empty	the prologue alone, for comparison
 *
 * ratio = full / bare, with the seal nh. The prologue is part of full only, so
 * the ratio is rather too large than too small; ratio_net has it subtracted
 * from full, and ratio_same_prologue has it in both.
 *
 * add32_above_bare_ns is full, without a seal, less bare with the same prologue.
 *
 * full and complete are measured with each seal in turn. What a seal costs
 * beside another one is the median of the differences inside a repetition:
 *
 *	received	full, with 512 and 1024 bytes of payload
 *	sent	complete less received: an answer of 1024 bytes
 *
 * The classes that a rate chooses among are rows of b bits with sums of w: full, with the seal nh.
 * A packet has 8192 / w coordinates, so that they are compared by 1024 coordinates: ratio is the
 * median of their time beside that of lut, the row (4, 8), in the same repetition. --classes: these
 * alone
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
#include <thc/aggregator/maps.h>
#include <thc/wire/seal.h>

#include "bench.h"
#include "bench.skel.h"
#include "samples.h"

#define PARTS (BENCH_SLOTS / BENCH_PART) /* parts of a pass */
#define ADDED (BENCH_RANKS - 1) /* passes; the last rank completes */
#define REPS_MAX 101
#define MAPPINGS_MAX 8
#define FRAME_HEAD (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))
#define FRAME_MAX (FRAME_HEAD + sizeof(struct thc_hdr) + THC_LANE_BYTES)
#define PORT 18500
#define EPOCH 1
#define SERVER 0x0100000aU /* 10.0.0.1 */
#define CLIENT(r) (0x0200000aU + ((u32)(r) << 24))

/* ADD has no table, and shows the cost of its length. ADD32 is scheme none's op. The payload of
 * BITS8 is copied before it is sealed. The others are classes.
 */
enum scheme { LUT, LINEAR, ADD, ADD32, BITS8, CLASSES, SCHEMES = CLASSES + 12 };
enum seal { NONE, SUM, NH, SEALS }; /* those of thc_seal_type */

/* struct format - bits of a scheme's coordinate on its way up, and of its sum */
static const struct format {
	const char *name;
	u8 width, sum;
} formats[SCHEMES] = {
	[LUT] = { "lut", 4, 8 },
	[LINEAR] = { "linear", 4, 8 },
	[ADD] = { "add8", 8, 8 },
	[ADD32] = { "add32", 32, 32 },
	[BITS8] = { "bits8", 8, 16 },
	[CLASSES] = { "1_4", 1, 4 },
	{ "2_4", 2, 4 },
	{ "3_4", 3, 4 },
	{ "1_8", 1, 8 },
	{ "2_8", 2, 8 },
	{ "3_8", 3, 8 },
	{ "5_8", 5, 8 },
	{ "6_8", 6, 8 },
	{ "3_16", 3, 16 },
	{ "4_16", 4, 16 },
	{ "5_16", 5, 16 },
	{ "6_16", 6, 16 },
};
static const char *const seal_names[SEALS] = { "none", "sum", "nh" };
static u16 tables[SCHEMES][THC_LEVELS_MAX] = {
	{ 0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31 },
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	/* others: make_table() */
};

/* The map `frame` of bench.bpf.c. */
struct saved_frame {
	u8 link[48], note[16];
};

/* ns a packet, by repetition. */
struct samples {
	double bare[REPS_MAX], same[REPS_MAX];
	double full[SEALS][REPS_MAX], complete[SEALS][REPS_MAX];
};

static struct bench_bpf *skel;
static struct thc_job *jobs;
static struct thc_seals *seals;
static struct thc_slot *slots;
static struct thc_lanes *lanes;
static struct thc_hdr *headers;
static struct saved_frame *saved;
static u8 frame[FRAME_MAX];
static u16 order[BENCH_SLOTS];
static struct samples samples[SCHEMES];
static double empty[REPS_MAX];
static int reps = 31;
static bool classes_alone;

static void fail(const char *what)
{
	fprintf(stderr, "bench_xdp: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* What map_memory() has mapped. */
static struct mapped {
	void *at;
	size_t size;
} mapped[MAPPINGS_MAX];
static int mappings;

static void *map_memory(struct bpf_map *map, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	if (p == MAP_FAILED || mappings == MAPPINGS_MAX)
		fail("mapping a BPF map");
	mapped[mappings++] = (struct mapped){ p, size };
	return p;
}

/* Classes of one width are rows of one job, and share its prepared headers. */
static u32 job_of(enum scheme scheme)
{
	return scheme < CLASSES ? scheme : CLASSES + (u32)formats[scheme].sum / 8;
}

static u32 first_header(enum scheme scheme)
{
	return (scheme < CLASSES ? scheme : CLASSES) * BENCH_SCHEME;
}

static u32 payload_bytes(enum scheme scheme)
{
	return THC_LANE_BYTES * formats[scheme].width / formats[scheme].sum;
}

static u32 frame_bytes(enum scheme scheme)
{
	return FRAME_HEAD + sizeof(struct thc_hdr) + payload_bytes(scheme);
}

/* Makes a packet of @scheme without its THC header, and with room for an answer. */
static void make_frame(enum scheme scheme)
{
	struct ethhdr *eth = (void *)frame;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	u32 bytes = frame_bytes(scheme);

	memset(eth->h_dest, 0x02, ETH_ALEN);
	memset(eth->h_source, 0x06, ETH_ALEN);
	eth->h_proto = thc_be16(ETH_P_IP);
	ip->version = 4;
	ip->ihl = 5;
	ip->ttl = 64;
	ip->protocol = 17;
	ip->tot_len = thc_be16(bytes - sizeof(*eth));
	ip->saddr = CLIENT(0);
	ip->daddr = SERVER;
	udp->source = thc_be16(40000);
	udp->dest = thc_be16(PORT);
	udp->len = thc_be16(bytes - sizeof(*eth) - sizeof(*ip));
	memcpy(saved->link, frame, FRAME_HEAD);
	memcpy(saved->note, frame + FRAME_HEAD + sizeof(struct thc_hdr), sizeof(saved->note));
}

static void make_payload(void)
{
	size_t i;

	for (i = FRAME_HEAD + sizeof(struct thc_hdr); i < FRAME_MAX; i++)
		frame[i] = draw() >> 32;
}

static bool has_table(enum scheme scheme)
{
	return scheme != ADD && scheme != ADD32;
}

/* Has the scheme a bare loop? */
static bool has_bare(enum scheme scheme)
{
	return scheme == LUT || scheme == LINEAR || scheme == ADD32;
}

/* Levels of equal distance, of which the sums of all ranks fit. */
static void make_table(enum scheme scheme)
{
	u32 most = ((1U << formats[scheme].sum) - 1) / BENCH_RANKS;
	u32 last = (1U << formats[scheme].width) - 1, z;

	for (z = 0; z <= last; z++)
		tables[scheme][z] = (u16)(most * z / last);
}

static void make_row(enum scheme scheme)
{
	u8 bits = has_table(scheme) ? formats[scheme].width : 4;
	u32 key = thc_row_of_all(job_of(scheme), bits);
	struct thc_pairs pairs;

	if (scheme >= BITS8)
		make_table(scheme);
	thc_pairs_init(&pairs, tables[scheme], bits);
	if (bpf_map_update_elem(bpf_map__fd(skel->maps.pairs), &key, &pairs, 0))
		fail("filling the table");
	jobs[job_of(scheme)].widths.sum[bits - 1] = formats[scheme].sum;
}

static void make_job(enum scheme scheme)
{
	struct thc_job *job = &jobs[job_of(scheme)];
	int r;

	make_row(scheme);
	job->all = (1ULL << BENCH_RANKS) - 1;
	job->joined = job->all;
	job->epoch = EPOCH;
	job->slots = BENCH_SLOTS;
	job->data_slots = BENCH_SLOTS;
	job->ranks = BENCH_RANKS;
	job->quorum = BENCH_RANKS;
	job->reply = THC_REPLY_MULTICAST;
	job->flags = scheme == LINEAR ? THC_JOB_F_LINEAR : 0;
	job->port_base = PORT;
	job->group = thc_addr_v4(0x010000efU);
	job->group_port = thc_be16(PORT + 1);
	/* a test packet has one source, which all ranks share */
	for (r = 0; r < BENCH_RANKS; r++) {
		job->member[r].addr = thc_addr_v4(CLIENT(0));
		job->member[r].port = thc_be16(40000);
		job->member[r].joined = 1;
	}
	job->active = 1;
}

/* The keys' values do not affect the time. */
static void make_seals(enum scheme scheme)
{
	u64 *key = (void *)&seals[job_of(scheme)];
	size_t i;

	for (i = 0; i < sizeof(*seals) / sizeof(*key); i++)
		key[i] = draw();
}

/* Of rank @rank, under the job's seal. */
static void make_headers(enum scheme scheme, int rank)
{
	const struct thc_seals *s = &seals[job_of(scheme)];
	int i;

	for (i = 0; i < BENCH_SLOTS; i++) {
		struct thc_hdr *h = &headers[first_header(scheme) + rank * BENCH_SLOTS + i];

		memset(h, 0, sizeof(*h));
		h->version = THC_VERSION;
		h->op = has_table(scheme) ? THC_OP_LUT_ADD : THC_OP_ADD;
		h->width = formats[scheme].width;
		h->job = thc_be16(job_of(scheme));
		h->rank = thc_be16(rank);
		h->epoch = thc_be32(EPOCH);
		h->chunk = thc_be32(order[i]);
		h->slot = thc_be16(order[i]);
		thc_seal(h, (u8)s->seal, thc_seals_up(s, EPOCH), frame + FRAME_HEAD + sizeof(*h),
			 payload_bytes(scheme) / 8);
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
 * packet, from pass @timed on. A pass counts by the median of its parts, so that an
 * interruption has no effect.
 *
 * One TEST_RUN for all of them: with repetitions, each call waits twice for
 * all CPUs (the kernel patches its XDP dispatcher) and then finds cold caches.
 */
static double run(struct bpf_program *prog, enum scheme scheme, int timed, int passes, u32 expected)
{
	u32 start = first_header(scheme), end = start + passes * BENCH_SLOTS;
	u8 in[FRAME_MAX];
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = in, .data_size_in = frame_bytes(scheme),
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
		/* the end of the last part is not recorded */
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

/* What a contribution adds to lane @i, by plain integers. */
static u32 part_of(enum scheme scheme, int i)
{
	const u8 *payload = frame + FRAME_HEAD + sizeof(struct thc_hdr);
	int width = formats[scheme].width, at;
	u32 v = 0;

	if (!has_table(scheme)) {
		for (at = (i + 1) * width / 8; at-- > i * width / 8;)
			v = v << 8 | payload[at];
		return v;
	}
	for (at = i * width; at < (i + 1) * width; at++)
		v = v * 2 + (payload[at / 8] >> (7 - at % 8)) % 2;
	return tables[scheme][v];
}

/* Lane @i of @width bits. */
static u32 lane_of(const u8 *lane, int width, int i)
{
	u32 v = 0;
	int b;

	if (width == 4)
		return lane[i / 2] >> 4 * (i % 2) & 15;
	for (b = width / 8 - 1; b >= 0; b--)
		v = v << 8 | lane[i * width / 8 + b];
	return v;
}

/* Are the lanes those of @times contributions of the one payload? */
static void check_lanes(enum scheme scheme, int times)
{
	int slot, i, width = formats[scheme].sum;

	for (slot = 0; slot < BENCH_SLOTS; slot += 97) {
		for (i = 0; i < THC_COORDINATES(width); i++) {
			u32 got = lane_of((const u8 *)lanes[slot].word[0], width, i);
			u32 expected = times * part_of(scheme, i) & ((1ULL << width) - 1);

			if (got == expected)
				continue;
			fprintf(stderr, "bench_xdp: %s: slot %d lane %d is %u, not %u\n",
				formats[scheme].name, slot, i, got, expected);
			exit(1);
		}
	}
}

static void set_seal(enum scheme scheme, enum seal seal)
{
	int r;

	seals[job_of(scheme)].seal = seal;
	for (r = 0; r < BENCH_RANKS; r++)
		make_headers(scheme, r);
}

/* All contributions that do not finish a slot, or with @complete those that do. */
static double run_full(enum scheme scheme, bool complete)
{
	int first = complete ? ADDED : 0, passes = complete ? BENCH_RANKS : ADDED;
	struct thc_stats before;
	double ns;

	memset(slots, 0, BENCH_SLOTS * sizeof(*slots));
	read_stats(&before);
	ns = run(complete ? skel->progs.bench_complete : skel->progs.bench_full, scheme, first,
		 passes, complete ? XDP_REDIRECT : XDP_DROP);
	check_lanes(scheme, passes);
	check_added(&before, passes * BENCH_SLOTS);
	return ns;
}

/* The lane loops of @scheme alone. */
static void run_bare(enum scheme scheme, int rep)
{
	struct bpf_program *const bare[SCHEMES] = {
		skel->progs.bench_loop_lut,
		skel->progs.bench_loop_linear, [ADD32] = skel->progs.bench_loop_add32
	};
	struct bpf_program *const same[SCHEMES] = {
		skel->progs.bench_bare_lut,
		skel->progs.bench_bare_linear, [ADD32] = skel->progs.bench_bare_add32
	};

	samples[scheme].bare[rep] = run(bare[scheme], scheme, 0, ADDED, XDP_DROP);
	check_lanes(scheme, ADDED);
	samples[scheme].same[rep] = run(same[scheme], scheme, 0, ADDED, XDP_DROP);
	check_lanes(scheme, ADDED);
}

static void repetition(enum scheme scheme, int rep)
{
	enum seal seal;

	make_frame(scheme);
	set_seal(scheme, NH);
	run_full(scheme, true); /* untimed: touches the programs just loaded */
	if (scheme >= CLASSES || classes_alone) {
		samples[scheme].full[NH][rep] = run_full(scheme, false);
		return;
	}
	if (has_bare(scheme))
		run_bare(scheme, rep);
	for (seal = NONE; seal < SEALS; seal++) {
		set_seal(scheme, seal);
		samples[scheme].full[seal][rep] = run_full(scheme, false);
		samples[scheme].complete[seal][rep] = run_full(scheme, true);
	}
}

/* Cost of 1024 coordinates of the class, relative to lut. */
static double class_ratio(enum scheme scheme)
{
	double all[REPS_MAX];
	int i;

	for (i = 0; i < reps; i++)
		all[i] = samples[scheme].full[NH][i] / samples[LUT].full[NH][i];
	return median(all, reps) * formats[scheme].sum / 8;
}

/* Median of what @seal costs more than @other, for the packets of schemes @from to @to; @sent: for
 * their answers.
 */
static double seal_cost(enum seal seal, enum seal other, bool sent, enum scheme from,
			enum scheme to)
{
	double all[SCHEMES * REPS_MAX];
	enum scheme s;
	int n = 0, i;

	for (s = from; s <= to; s++) {
		const struct samples *at = &samples[s];

		for (i = 0; i < reps; i++, n++) {
			double received = at->full[seal][i] - at->full[other][i];

			all[n] = sent ? at->complete[seal][i] - at->complete[other][i] - received :
					received;
		}
	}
	return median(all, n);
}

/* Pairs of seals. Packets had the sum before there were keys: what nh costs more is the price of
 * the key.
 */
enum { COMPARED = 3 };
static const struct compared {
	const char *name, *words;
	enum seal seal, other;
} compared[COMPARED] = {
	{ "sum", "sum beside none", SUM, NONE },
	{ "nh", "nh beside none", NH, NONE },
	{ "nh_beside_sum", "nh beside sum", NH, SUM },
};

static double cost_of(int c, bool sent, enum scheme from, enum scheme to)
{
	return seal_cost(compared[c].seal, compared[c].other, sent, from, to);
}

/* Like median(), but leaves the order of repetitions, by which they are compared. */
static double median_of(const double *v)
{
	double copy[REPS_MAX];

	memcpy(copy, v, reps * sizeof(*v));
	return median(copy, reps);
}

/* Cost of the program above the bare loop with the same prologue, without a seal: the median of
 * differences within a repetition.
 */
static double above_bare(enum scheme scheme)
{
	const struct samples *at = &samples[scheme];
	double all[REPS_MAX];
	int i;

	for (i = 0; i < reps; i++)
		all[i] = at->full[NONE][i] - at->same[i];
	return median(all, reps);
}

/* An answer must have an entry for its redirect; lo does not take part. */
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
	saved = map_memory(skel->maps.frame, sizeof(*saved));
	fill_fan();
}

static void unload(void)
{
	for (; mappings; mappings--)
		if (munmap(mapped[mappings - 1].at, mapped[mappings - 1].size))
			fail("unmapping a BPF map");
	bench_bpf__destroy(skel);
}

static void measure(void)
{
	int rep, s;

	draw_order(order, BENCH_SLOTS);
	make_payload();
	for (rep = 0; rep < reps; rep++) {
		load();
		for (s = 0; s < SCHEMES; s++) {
			make_job(s);
			make_seals(s);
		}
		for (s = 0; s < SCHEMES; s++)
			if (!classes_alone || s == LUT || s >= CLASSES)
				repetition(s, rep);
		make_frame(LUT);
		empty[rep] = run(skel->progs.bench_empty, LUT, 0, ADDED, XDP_DROP);
		unload();
	}
}

/* By their names. */
static void print_json_classes(void)
{
	int s;

	printf("\"classes\": {");
	for (s = CLASSES; s < SCHEMES; s++) {
		const struct format *f = &formats[s];
		double full = median_of(samples[s].full[NH]), ratio = class_ratio(s);

		printf("\n \"%s\": {\"full_ns\": %.1f, \"of_1024_ns\": %.1f, \"ratio\": %.3f},",
		       f->name, full, full * f->sum / 8, ratio);
	}
	printf("\n \"4_8\": {\"full_ns\": %.1f}}", median_of(samples[LUT].full[NH]));
}

static void print_json(void)
{
	double none = median_of(empty);
	int s, seal, c;

	printf("{\"slots\": %d, \"repetitions\": %d, \"prologue_ns\": %.1f", BENCH_SLOTS, reps,
	       none);
	for (s = LUT; s <= LINEAR; s++) {
		const char *name = formats[s].name;
		double bare = median_of(samples[s].bare), full = median_of(samples[s].full[NH]);

		printf(",\n \"%s_bare_ns\": %.1f, \"%s_full_ns\": %.1f, \"%s_ratio\": %.3f", name,
		       bare, name, full, name, full / bare);
		printf(", \"%s_ratio_same_prologue\": %.3f, \"%s_ratio_net\": %.3f", name,
		       full / median_of(samples[s].same), name, (full - none) / bare);
	}
	printf(",\n \"add32_bare_ns\": %.1f, \"add32_above_bare_ns\": %.1f",
	       median_of(samples[ADD32].bare), above_bare(ADD32));
	for (s = 0; s < CLASSES; s++) {
		for (seal = NONE; seal < SEALS; seal++)
			printf(",\n \"%s_%s\": {\"full_ns\": %.1f, \"complete_ns\": %.1f}",
			       formats[s].name, seal_names[seal], median_of(samples[s].full[seal]),
			       median_of(samples[s].complete[seal]));
	}
	for (c = 0; c < COMPARED; c++)
		printf(",\n \"seal_%s\": {\"received_512_ns\": %.1f, \"received_1024_ns\": %.1f, "
		       "\"sent_1024_ns\": %.1f}",
		       compared[c].name, cost_of(c, false, LUT, LINEAR),
		       cost_of(c, false, ADD, ADD), cost_of(c, true, LUT, ADD));
	printf(",\n ");
	print_json_classes();
	printf("}\n");
}

static void print_table_classes(void)
{
	int s;

	printf("classes, seal nh, medians of %-3d ns a packet  1024 coordinates  x (4, 8)\n", reps);
	printf("(4, 8)  %4u bytes%28.0f\n", payload_bytes(LUT), median_of(samples[LUT].full[NH]));
	for (s = CLASSES; s < SCHEMES; s++) {
		double full = median_of(samples[s].full[NH]);

		printf("(%u, %u)%s %4u bytes%28.0f%18.0f%10.2f\n", formats[s].width, formats[s].sum,
		       formats[s].sum < 10 ? " " : "", payload_bytes(s), full,
		       full * formats[s].sum / 8, class_ratio(s));
	}
}

static void print_table(void)
{
	int s, seal, c;

	printf("ns a packet, medians of %-3d%7s%7s%7s%7s\n", reps, "bare", "none", "sum", "nh");
	for (s = 0; s < CLASSES; s++) {
		printf("%-6s %4u bytes, added    ", formats[s].name, payload_bytes(s));
		if (!has_bare(s))
			printf("%7s", "-");
		else
			printf("%7.0f", median_of(samples[s].bare));
		for (seal = NONE; seal < SEALS; seal++)
			printf("%7.0f", median_of(samples[s].full[seal]));
		printf("\n%27s%7s", "and answered", "-");
		for (seal = NONE; seal < SEALS; seal++)
			printf("%7.0f", median_of(samples[s].complete[seal]));
		printf("\n");
	}
	printf("\nadd32 without a seal, above the bare loop with its prologue: %.0f\n",
	       above_bare(ADD32));
	printf("\nwhat a seal costs, ns  received, 512 bytes  1024 bytes  sent, 1024 bytes\n");
	for (c = 0; c < COMPARED; c++)
		printf("%-21s%21.0f%12.0f%18.0f\n", compared[c].words,
		       cost_of(c, false, LUT, LINEAR), cost_of(c, false, ADD, ADD),
		       cost_of(c, true, LUT, ADD));
	printf("\n");
	print_table_classes();
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "classes", 0, NULL, 'c' },
		{ "quick", 0, NULL, 'q' },
		{ "json", 0, NULL, 'j' },
		{ 0 },
	};
	bool json = false;
	cpu_set_t cpu;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'c':
			classes_alone = true;
			break;
		case 'q':
			reps = 15;
			break;
		case 'j':
			json = true;
			break;
		default:
			fprintf(stderr, "usage: %s [--classes] [--quick] [--json]\n", argv[0]);
			return 2;
		}
	}
	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);

	measure();
	if (json && classes_alone) {
		printf("{");
		print_json_classes();
		printf("}\n");
	} else if (json) {
		print_json();
	} else if (classes_alone) {
		print_table_classes();
	} else {
		print_table();
	}
	return 0;
}
