// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two CPUs at once: two threads, each pinned, run thc_xdp on the same slot
 * without waiting for each other. Sums must be exact and every contribution
 * counted once, whatever the lock did; a third thread closes generations all
 * the while, which takes the same lock from process context.
 */
#include "rig.h"
#include <pthread.h>
#include <sched.h>

#define RANKS 8
#define HALF (RANKS / 2)
#define ROUNDS 400
#define SLOTS 100
#define TRIES 50 /* a packet may find the lock taken for long */

static struct rig rig;
static struct thc_job *job;
static u8 data[RANKS][1024];
static u8 frames[RANKS][ROUNDS][RIG_FRAME_MAX];
static size_t frame_len;
static pthread_barrier_t barrier;
static u32 slot_of_round[ROUNDS];
static volatile int stop;

struct side {
	int cpu, first;
	u64 sent;
	int failed;
};

static int pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

static int run_quietly(struct bpf_program *prog, const u8 *frame, size_t len, u32 *action)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = len);
	int err = bpf_prog_test_run_opts(bpf_program__fd(prog), &opts);

	*action = opts.retval;
	return err;
}

/* Sends the contributions of its ranks in every round, each twice: a duplicate that is added would
 * change the sum. Both threads begin a round together.
 */
static void *hammer(void *arg)
{
	struct side *side = arg;
	int round, k, twice, try;
	u32 action;

	side->failed |= pin(side->cpu);
	for (round = 0; round < ROUNDS; round++) {
		u32 generation = round / 100;
		volatile struct thc_generation *g =
			&rig.slots[64 + slot_of_round[round]].generation[generation & 1];

		pthread_barrier_wait(&barrier);
		for (try = 0; try < TRIES; try++) {
			for (k = 0; k < HALF; k++) {
				/* one thread goes upwards through its ranks, the other downwards */
				int rank = side->first + (side->first ? HALF - 1 - k : k);

				for (twice = 0; twice < 2; twice++) {
					side->failed |= run_quietly(rig.skel->progs.thc_xdp,
								    frames[rank][round], frame_len,
								    &action);
					side->sent++;
				}
			}
			if (g->number == generation && g->state == THC_FINISHED)
				break;
		}
		/* a packet dropped for want of the lock was counted; the next try repeats it */
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* CLOSE never closes a generation here, since the quorum is all ranks. */
static void *closer(void *arg)
{
	u32 *calls = arg, action;
	u8 frame[60];

	while (!stop) {
		struct thc_close_request r = { .job = 2, .slot = slot_of_round[*calls % ROUNDS] };

		memset(frame, 0, sizeof(frame));
		memcpy(frame, &r, sizeof(r));
		if (run_quietly(rig.skel->progs.thc_close, frame, sizeof(frame), &action) ||
		    action == XDP_TX)
			return (void *)1;
		(*calls)++;
		usleep(50);
	}
	return NULL;
}

/* Builds the frames of all ranks and rounds: SLOTS slots, each with four generations in turn. */
static void build_frames(void)
{
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };
	int i, round;

	for (round = 0; round < ROUNDS; round++) {
		slot_of_round[round] = round % SLOTS;
		r.slot = slot_of_round[round];
		r.generation = round / SLOTS;
		r.chunk = r.slot + 128 * r.generation;
		for (i = 0; i < RANKS; i++) {
			r.rank = i;
			frame_len = rig_build(frames[i][round], &r, data[i], 512);
		}
	}
}

/* The last two generations of each slot have the sum of all ranks. */
static void check_slots(const u8 *expected, size_t bytes)
{
	const struct thc_seal_key *down = thc_seals_down(rig_seals(2, 1), 1);
	struct thc_digest digest = thc_seal_digest(rig_seal, down, expected, THC_LANE_WORDS);
	int round, i;

	for (round = 0; round < SLOTS; round++) {
		struct thc_slot *s = &rig.slots[64 + round];

		assert_int_equal(s->lock, 0);
		assert_int_equal(s->top, 3);
		for (i = 0; i < 2; i++) {
			assert_int_equal(s->generation[i].state, THC_FINISHED);
			assert_int_equal(s->generation[i].count, RANKS);
			assert_memory_equal(rig.lanes[64 + round].word[i], expected, bytes);
			assert_memory_equal(&s->generation[i].digest, &digest, sizeof(digest));
		}
	}
}

static void cpus__two_hammer_one_slot(void **state)
{
	struct side side[2] = { { .cpu = 0, .first = 0 }, { .cpu = 1, .first = HALF } };
	const u8 *by_rank[RANKS];
	pthread_t thread[2], closing;
	struct thc_stats st;
	u8 expected[1024];
	u64 seed = 4711;
	u32 closes = 0;
	void *bad;
	int i;

	(void)state;
	rig_need_root();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		print_message("# SKIP two CPUs are needed to race\n");
		skip();
	}
	job = rig_test(&rig, RANKS);
	job->quorum = RANKS;
	for (i = 0; i < RANKS; i++) {
		rig_fill(&seed, data[i], sizeof(data[i]));
		by_rank[i] = data[i];
	}
	build_frames();
	rig_reference(expected, THC_OP_LUT_ADD, 4, 8, rig_table, by_rank, RANKS);
	pthread_barrier_init(&barrier, NULL, 2);
	stop = 0;
	assert_int_equal(pthread_create(&closing, NULL, closer, &closes), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, hammer, &side[i]), 0);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	stop = 1;
	pthread_join(closing, &bad);
	assert_null(bad);
	assert_true(closes > 0);

	check_slots(expected, sizeof(expected));
	assert_int_equal(side[0].failed | side[1].failed, 0);

	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.received, side[0].sent + side[1].sent);
	assert_int_equal(st.event[THC_EVENT_ADDED], ROUNDS * RANKS);
	assert_int_equal(st.event[THC_EVENT_FINISHED], ROUNDS);
	for (i = 0; i < THC_DROP_REASONS; i++)
		if (i != THC_DROP_LOCK)
			assert_int_equal(st.drop[i], 0);
	print_message("# %llu packets, %llu gave up on the lock\n", (unsigned long long)st.received,
		      (unsigned long long)st.drop[THC_DROP_LOCK]);
	pthread_barrier_destroy(&barrier);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cpus__two_hammer_one_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
