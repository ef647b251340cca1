// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The parts of `make bench-flood` (flood.py) that must be fast:
 *
 *	flood send IFACE MAC FROM TO PORT JOB VERSION KEY CPU
 *		sends JOINs with wrong tags on one CPU, as fast as a packet
 *		socket takes them, until its input ends: {"sent":, "seconds":};
 *		VERSION of the wire, 0: the aggregator's; KEY: the name of the
 *		job's key, hexadecimal, 0: names that no key has
 *	flood drop IFACE
 *		a bare XDP_DROP there until its input ends, for comparison
 *	flood cost [--json]
 *		ns a packet by BPF_PROG_TEST_RUN, with nothing subtracted, medians
 *		of interleaved repetitions: of each packet that the program refuses
 *		(packets[] below), and of the bare XDP_DROP
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <thc/wire/seal.h>

#include "samples.h"
#include "thc_open.h"

#define BATCH 64
#define LOOKS 256 /* batches between two looks at the input */
#define REPS 31
#define REPEAT 200000 /* packets of a repetition */
#define PORT 18500
/* Names of keys: the job's for JOINs, and one that no key has; the job's key for data has name 0.
 */
#define JOIN_KEY 0x89abcdefU
#define STRANGE_KEY 0x01234567U
#define WORKER 0x0a000002U
#define WORKER_PORT 40000
#define FOREVER (~0ULL >> 1)

/* A request in its frame; @payload is that of JOIN or of LUT_ADD. */
struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct thc_hdr thc;
	u8 payload[512];
} __attribute__((packed));

#define FRAME_BYTES(payload_bytes) (offsetof(struct frame, payload) + (payload_bytes))

static void fail(const char *what)
{
	fprintf(stderr, "flood: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("staying on one CPU");
}

static u16 ip_checksum(const u8 *b)
{
	u32 sum = 0;
	size_t i;

	for (i = 0; i < sizeof(struct iphdr); i += 2)
		sum += b[i] << 8 | b[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return htons(~(sum + (sum >> 16)));
}

/* Fills in all but the addresses and a JOIN's payload. The tag stays zero, which is wrong. */
static void make_frame(struct frame *f, u8 op, u8 width, u16 job, u32 key_id, size_t bytes)
{
	f->eth.h_proto = htons(ETH_P_IP);
	f->ip.version = 4;
	f->ip.ihl = 5;
	f->ip.ttl = 64;
	f->ip.protocol = IPPROTO_UDP;
	f->ip.tot_len = htons(FRAME_BYTES(bytes) - sizeof(f->eth));
	f->ip.check = 0;
	f->ip.check = ip_checksum((const u8 *)f + offsetof(struct frame, ip));
	f->udp.len = htons(sizeof(f->udp) + sizeof(f->thc) + bytes);
	f->thc.version = THC_VERSION;
	f->thc.op = op;
	f->thc.width = width;
	f->thc.job = thc_be16(job);
	f->thc.key_id = thc_be32(key_id);
}

/* A worker's JOIN, wrong only in its key or tag. */
static void fill_join(struct frame *f)
{
	const struct thc_join j = {
		.nonce = { 1 }, .offers = thc_be32(THC_OFFER_SEAL(THC_SEAL_NH)),
		.version_max = THC_VERSION, .restarted = thc_be16(THC_WORKER_NONE),
	};

	memcpy(f->payload, &j, sizeof(j));
}

static bool input_ended(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };

	return poll(&in, 1, 0) > 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- send ------------------------------------------------------------------- */

static void parse_mac(const char *text, u8 *mac)
{
	unsigned int b[ETH_ALEN];
	int i;

	if (sscanf(text, "%x:%x:%x:%x:%x:%x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]) !=
	    ETH_ALEN) {
		fprintf(stderr, "flood: %s is no MAC address\n", text);
		exit(2);
	}
	for (i = 0; i < ETH_ALEN; i++)
		mac[i] = b[i];
}

static int packet_socket(const char *interface)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	int fd = socket(AF_PACKET, SOCK_RAW, 0), on = 1;

	to.sll_ifindex = if_nametoindex(interface);
	if (fd < 0 || bind(fd, (void *)&to, sizeof(to)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)))
		fail("opening a packet socket");
	return fd;
}

/* Different source ports, by which a NIC would spread the packets. */
static void make_flood(struct frame *f, char **argv)
{
	u32 key_id = strtoul(argv[9], NULL, 16);
	int i;

	for (i = 0; i < BATCH; i++, f++) {
		memset(f, 0, sizeof(*f));
		parse_mac(argv[3], f->eth.h_dest);
		memset(f->eth.h_source, 0x06, ETH_ALEN);
		if (inet_pton(AF_INET, argv[4], &f->ip.saddr) != 1 ||
		    inet_pton(AF_INET, argv[5], &f->ip.daddr) != 1) {
			fprintf(stderr, "flood: FROM and TO are IPv4 addresses\n");
			exit(2);
		}
		f->udp.source = htons(40000 + i);
		f->udp.dest = htons(atoi(argv[6]));
		make_frame(f, THC_OP_JOIN, 0, atoi(argv[7]), key_id ? key_id : draw(),
			   sizeof(struct thc_join));
		fill_join(f);
		if (atoi(argv[8]))
			f->thc.version = atoi(argv[8]);
	}
}

static int do_send(char **argv)
{
	static struct frame frames[BATCH];
	struct mmsghdr msg[BATCH] = { 0 };
	struct iovec iov[BATCH];
	unsigned long long sent = 0;
	double start;
	int fd, i, n;

	stay_on(atoi(argv[10]));
	fd = packet_socket(argv[2]);
	make_flood(frames, argv);
	for (i = 0; i < BATCH; i++) {
		iov[i].iov_base = &frames[i];
		iov[i].iov_len = FRAME_BYTES(sizeof(struct thc_join));
		msg[i].msg_hdr.msg_iov = &iov[i];
		msg[i].msg_hdr.msg_iovlen = 1;
	}
	start = now();
	for (i = 0; i % LOOKS || !input_ended(); i++) {
		n = sendmmsg(fd, msg, BATCH, 0);
		if (n < 0 && errno != ENOBUFS && errno != EAGAIN)
			fail("sending");
		sent += n > 0 ? n : 0;
	}
	printf("{\"sent\": %llu, \"seconds\": %.3f}\n", sent, now() - start);
	return 0;
}

/* --- drop ------------------------------------------------------------------- */

static int load_drop(void)
{
	static const struct bpf_insn drop[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "bare_drop", "Dual BSD/GPL", drop, 2, NULL);

	if (fd < 0)
		fail("loading XDP_DROP (root is needed)");
	return fd;
}

static int do_drop(const char *interface)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	int index = if_nametoindex(interface);

	errno = -bpf_xdp_attach(index, load_drop(), XDP_FLAGS_DRV_MODE, NULL);
	if (errno)
		fail("attaching XDP_DROP");
	printf("ready\n");
	fflush(stdout);
	poll(&in, 1, -1);
	bpf_xdp_detach(index, XDP_FLAGS_DRV_MODE, NULL);
	return 0;
}

/* --- cost ------------------------------------------------------------------- */

enum packet { BARE, STRANGE_JOIN, FORGED_JOIN, DATA, PACKETS };

/**
 * struct refused - a packet that the program refuses
 * @name: its key in JSON
 * @words: its row's name in the table
 * @key_id: name of the key that it claims
 * @reason: drop reason under which it is counted
 */
static const struct refused {
	const char *name, *words;
	u8 op, width;
	u16 bytes;
	u32 key_id;
	enum thc_drop_reason reason;
} packets[PACKETS] = {
	[BARE] = { "bare_drop_ns", "any packet, by a bare XDP_DROP", THC_OP_JOIN, 0,
		   sizeof(struct thc_join), STRANGE_KEY, THC_DROP_NONE },
	[STRANGE_JOIN] = { "refused_join_ns", "a JOIN that names a strange key", THC_OP_JOIN, 0,
			   sizeof(struct thc_join), STRANGE_KEY, THC_DROP_FLOOD },
	[FORGED_JOIN] = { "forged_join_ns", "a JOIN that names the job's key, wrong tag",
			  THC_OP_JOIN, 0, sizeof(struct thc_join), JOIN_KEY, THC_DROP_TAG },
	[DATA] = { "refused_data_ns", "data that names the job's key, wrong tag", THC_OP_LUT_ADD, 4,
		   512, 0, THC_DROP_TAG },
};

/* Job 0 with one worker; no CPU has a token for strangers. */
static struct thc_bpf *load_aggregator(u32 address)
{
	int cpus = libbpf_num_possible_cpus(), c;
	struct thc_bucket *none = calloc(cpus, sizeof(*none));
	struct thc_bpf *skel = thc_bpf_open(false);
	struct thc_seals seals = { .seal = THC_SEAL_NH, .join.id = thc_be32(JOIN_KEY) };
	struct thc_job *jobs;
	u32 key = 0;

	if (!skel || !none)
		fail("opening the BPF object");
	skel->rodata->thc_config.addr4 = thc_addr_v4(address);
	skel->rodata->thc_config.port_base = PORT;
	if (thc_bpf__load(skel))
		fail("loading the BPF object (root is needed)");
	jobs = mmap(NULL, THC_JOBS_MAX * sizeof(*jobs), PROT_READ | PROT_WRITE, MAP_SHARED,
		    bpf_map__fd(skel->maps.jobs), 0);
	if (jobs == MAP_FAILED)
		fail("mapping the jobs");
	if (bpf_map_update_elem(bpf_map__fd(skel->maps.seals_of), &key, &seals, 0))
		fail("filling the seals");
	/* data is checked for its tag only if its sender is a worker */
	jobs[0].member[0].addr = thc_addr_v4(htonl(WORKER));
	jobs[0].member[0].port = htons(WORKER_PORT);
	jobs[0].ranks = 2;
	jobs[0].active = 1;
	for (c = 0; c < cpus; c++)
		none[c].full_at = FOREVER;
	if (bpf_map_update_elem(bpf_map__fd(skel->maps.strangers), &key, none, 0))
		fail("emptying the buckets");
	free(none);
	return skel;
}

static u64 dropped(struct thc_bpf *skel, enum thc_drop_reason reason)
{
	int cpus = libbpf_num_possible_cpus(), c;
	struct thc_stats *each = calloc(cpus, sizeof(*each));
	u64 sum = 0;
	u32 key = 0;

	if (!each || bpf_map_lookup_elem(bpf_map__fd(skel->maps.stats), &key, each))
		fail("reading the counters");
	for (c = 0; c < cpus; c++)
		sum += each[c].drop[reason];
	free(each);
	return sum;
}

/* ns a packet; every one must have been dropped for @p's reason. */
static double run(struct thc_bpf *skel, int fd, enum packet p, const struct frame *f)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f,
		    .data_size_in = FRAME_BYTES(packets[p].bytes), .repeat = REPEAT);
	u64 before = dropped(skel, packets[p].reason);

	if (bpf_prog_test_run_opts(fd, &opts))
		fail("BPF_PROG_TEST_RUN");
	if (opts.retval != XDP_DROP ||
	    (p != BARE && dropped(skel, packets[p].reason) - before != REPEAT)) {
		fprintf(stderr, "flood: %s: not all packets were refused\n", packets[p].name);
		exit(1);
	}
	return opts.duration;
}

static void make_packets(struct frame *frame, u32 address)
{
	int p;

	for (p = 0; p < PACKETS; p++, frame++) {
		frame->ip.saddr = htonl(WORKER);
		frame->udp.source = htons(WORKER_PORT);
		frame->ip.daddr = address;
		frame->udp.dest = htons(PORT);
		make_frame(frame, packets[p].op, packets[p].width, 0, packets[p].key_id,
			   packets[p].bytes);
		if (packets[p].op == THC_OP_JOIN)
			fill_join(frame);
	}
}

static int do_cost(bool json)
{
	u32 address = htonl(0x0a000001);
	static double samples[PACKETS][REPS];
	static struct frame frame[PACKETS];
	struct thc_bpf *skel;
	int p, rep, bare;

	stay_on(sched_getcpu());
	skel = load_aggregator(address);
	bare = load_drop();
	make_packets(frame, address);
	for (rep = -1; rep < REPS; rep++) /* the first one warms up */
		for (p = 0; p < PACKETS; p++)
			samples[p][rep < 0 ? 0 : rep] =
				run(skel, p == BARE ? bare : bpf_program__fd(skel->progs.thc_xdp),
				    p, &frame[p]);
	for (p = 0; p < PACKETS; p++)
		if (json)
			printf("%s\"%s\": %.1f", p ? ", " : "{", packets[p].name,
			       median(samples[p], REPS));
		else
			printf("%-44s %6.1f ns\n", packets[p].words, median(samples[p], REPS));
	if (json)
		printf("}\n");
	thc_bpf__destroy(skel);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 11 && !strcmp(argv[1], "send"))
		return do_send(argv);
	if (argc == 3 && !strcmp(argv[1], "drop"))
		return do_drop(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "cost"))
		return do_cost(false);
	if (argc == 3 && !strcmp(argv[1], "cost") && !strcmp(argv[2], "--json"))
		return do_cost(true);
	fprintf(stderr,
		"usage: %s cost [--json] | drop IFACE | send IFACE MAC FROM TO PORT JOB VERSION KEY CPU\n",
		argv[0]);
	return 2;
}
