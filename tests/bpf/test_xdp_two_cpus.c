// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Whole rounds over real sockets while two CPUs receive: every result is right,
 * reaches everybody, and packets add up.
 */
#include "net.h"

#define CPUS_SLOTS 8
#define CPUS_GENERATIONS 500

/* Times 20 ms without an answer, on a loaded machine. */
#define LAP_PATIENCE 500

/* A slot's result of this generation. */
#define LAP_DONE 1 /* has come, in any way */
#define LAP_HEARD 2 /* came in the answer to all */

/* A thread of two_cpus__rounds: its ranks run real rounds on one CPU. */
struct lap {
	int cpu, first, ranks;
	struct lap *other;
	u32 begun; /* generations */
	const char *volatile wrong; /* the first error, or NULL */
};

/* Both threads begin each generation at the same instant, so that packets for one slot arrive on
 * both CPUs together and compete for the lock.
 */
static void lap_meet(struct lap *lap)
{
	u32 mine = ++lap->begun;

	__atomic_store_n(&lap->begun, mine, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&lap->other->begun, __ATOMIC_SEQ_CST) < mine && !lap->other->wrong)
		sched_yield();
}

static void lap_send(int rank, u32 generation, const u8 *got)
{
	struct rig_request r = {
		.op = THC_OP_LUT_ADD, .width = 4, .epoch = 1, .generation = generation
	};
	struct sockaddr_storage to;
	socklen_t size;
	struct thc_hdr h;
	u8 packet[1200];
	size_t len;

	r.rank = rank;
	r.job = 2;
	for (r.slot = 0; r.slot < CPUS_SLOTS; r.slot++) {
		if (got[r.slot])
			continue;
		r.chunk = r.slot + 128 * generation;
		rig_header(&h, &r);
		len = rig_packet(packet, &h, payload[rank], 512);
		size = sockaddr_of(&to, address(AGG), RIG_PORT);
		/* an error counts as a lost packet, which is sent again */
		sendto(net.one[rank], packet, len, 0, (void *)&to, size);
	}
}

/* Receives one datagram and marks its result. Returns an error or NULL. */
static const char *lap_take(int fd, u32 generation, const u8 *expected, u8 *got, int *missing)
{
	u8 packet[2048];
	struct thc_hdr *h = (void *)packet;
	ssize_t len = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);
	u32 slot;

	if (len < (ssize_t)sizeof(*h))
		return "a short packet";
	if (!rig_sealed(h, h + 1, len - sizeof(*h)))
		return "a packet whose tag is wrong";
	if (!(h->flags & THC_F_ANSWER) || thc_be32(h->generation) != generation)
		return NULL; /* WAIT, or a repeat that was slow */
	slot = thc_be16(h->slot);
	if (slot >= CPUS_SLOTS || len != sizeof(*h) + 1024 || thc_be64(h->bitmap) != 7 ||
	    thc_be16(h->count) != RANKS || memcmp(h + 1, expected, 1024))
		return "a result that is wrong";
	/* the answer to all ranks comes once; a repeated one may overtake it */
	if (!(h->flags & THC_F_REPEAT)) {
		if (got[slot] & LAP_HEARD)
			return "a result that came twice";
		got[slot] |= LAP_HEARD;
	}
	if (!(got[slot] & LAP_DONE))
		(*missing)--;
	got[slot] |= LAP_DONE;
	return NULL;
}

static void *lap_run(void *arg)
{
	struct lap *lap = arg;
	u8 expected[1024];
	u32 generation;
	cpu_set_t set;
	int r, again, quiet;

	CPU_ZERO(&set);
	CPU_SET(lap->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		lap->wrong = "no such CPU";
	rig_reference(expected, THC_OP_LUT_ADD, 4, 8, rig_table, payloads, RANKS);
	for (generation = 0; generation < CPUS_GENERATIONS && !lap->wrong && !lap->other->wrong;
	     generation++) {
		u8 got[RANKS][CPUS_SLOTS] = { 0 };

		lap_meet(lap);
		for (r = lap->first; r < lap->first + lap->ranks; r++)
			lap_send(r, generation, got[r]);
		for (r = lap->first; r < lap->first + lap->ranks; r++) {
			int missing = CPUS_SLOTS;

			/* stop without an error if the other thread has one */
			for (quiet = 0; missing && !lap->wrong && !lap->other->wrong;) {
				struct pollfd p[2] = { { .fd = net.one[r], .events = POLLIN },
						       { .fd = net.group[r], .events = POLLIN } };
				int i;

				if (poll(p, 2, 20) <= 0) {
					if (++quiet > LAP_PATIENCE)
						lap->wrong = "no result";
					/* send again for later ranks, too: this rank may wait for
					 * their lost packets
					 */
					for (again = r; again < lap->first + lap->ranks; again++)
						lap_send(again, generation, got[again]);
					continue;
				}
				for (i = 0; i < 2 && !lap->wrong; i++)
					if (p[i].revents)
						lap->wrong = lap_take(p[i].fd, generation, expected,
								      got[r], &missing);
			}
		}
	}
	return NULL;
}

/* How many CPUs ran thc_xdp. */
static int cpus_used(void)
{
	int cpus = libbpf_num_possible_cpus(), used = 0, c;
	struct thc_stats *each = calloc(cpus, sizeof(*each));
	u32 key = 0;

	assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(net.rig.skel->maps.stats), &key, each), 0);
	for (c = 0; c < cpus; c++)
		used += each[c].received > 0;
	free(each);
	return used;
}

/* Prints all counters and fails with the thread's error. */
static void lap_failed(int thread, const struct lap *lap, const struct thc_stats *st)
{
	int i;

	for (i = 0; i < THC_EVENTS; i++)
		if (st->event[i])
			print_error("event %d: %llu\n", i, (unsigned long long)st->event[i]);
	for (i = 0; i < THC_DROP_REASONS; i++)
		if (st->drop[i])
			print_error("drop %d: %llu\n", i, (unsigned long long)st->drop[i]);
	fail_msg("thread %d, generation %u: %s", thread, lap->begun - 1, lap->wrong);
}

/* Two queues, each served by its own CPU, meet in the same slots. */
static void two_cpus__rounds(void **state)
{
	struct lap lap[2] = { { .cpu = 0, .first = 0, .ranks = 1 },
			      { .cpu = 1, .first = 1, .ranks = 2 } };
	pthread_t thread[2];
	struct thc_stats st;
	u64 seed = 99;
	int i, mode;

	(void)state;
	rig_need_root();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		print_message("# SKIP two CPUs are needed to race\n");
		skip();
	}
	for (mode = THC_REPLY_MULTICAST; mode <= THC_REPLY_FANOUT; mode++) {
		net_up_queues(false, false, 2);
		/* the transmit queue follows the sender's CPU, and the queue's NAPI runs there */
		run(SWITCH,
		    "unshare -m sh -c 'mount -t sysfs none /sys && cd /sys/class/net/sw%d/queues && "
		    "echo 1 > tx-0/xps_cpus && echo 2 > tx-1/xps_cpus'",
		    AGG);
		net.job->reply = mode;
		for (i = 0; i < RANKS; i++)
			rig_fill(&seed, payload[i], sizeof(payload[i]));
		for (i = 0; i < 2; i++) {
			lap[i].wrong = NULL;
			lap[i].begun = 0;
			lap[i].other = &lap[!i];
		}
		for (i = 0; i < 2; i++) {
			assert_int_equal(pthread_create(&thread[i], NULL, lap_run, &lap[i]), 0);
		}
		for (i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		st = rig_stats(&net.rig);
		for (i = 0; i < 2; i++)
			if (lap[i].wrong)
				lap_failed(i, &lap[i], &st);
		rig_check_balance(&st);
		assert_int_equal(st.event[THC_EVENT_ADDED], RANKS * CPUS_SLOTS * CPUS_GENERATIONS);
		assert_int_equal(st.event[THC_EVENT_FINISHED], CPUS_SLOTS * CPUS_GENERATIONS);
		assert_int_equal(cpus_used(), 2);
		net_down();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_cpus__rounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
