// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Floods of JOINs that no job admits: a burst reaches the daemon, the others are dropped under
 * THC_DROP_FLOOD. The job's own ranks pass, each at its own rate, however many strangers send
 * JOINs. A JOIN of a host with the job's key is known by its tag, which covers sender and
 * aggregator. LEAVEs are limited to a burst, too.
 */
#include <sched.h>
#include <time.h>
#include <thc/wire/version1.h>

#include "rig.h"

#define FLOOD 100000
#define RANKS 4
#define JOIN_LEN sizeof(struct thc_join)
#define HOUR_NS 3600000000000ULL

static u8 nonce[JOIN_LEN] = { 1, 2, 3, 4, 5, 6, 7, 8 };

static u64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* The buckets of all CPUs are full again at @full_at. */
static void set_buckets(struct rig *rig, u64 full_at)
{
	int cpus = libbpf_num_possible_cpus(), c;
	struct thc_bucket *each = calloc(cpus, sizeof(*each));
	u32 key = 0;

	for (c = 0; c < cpus; c++)
		each[c].full_at = full_at;
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(rig->skel->maps.strangers), &key, each, 0),
			 0);
	free(each);
}

/* Runs @times JOINs on this CPU; returns how they were counted. */
static struct thc_stats flood(struct rig *rig, const u8 *frame, size_t len, int times)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = len,
		    .repeat = times);
	struct thc_stats st;

	rig_stats_clear(rig);
	assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(rig->skel->progs.thc_xdp), &opts),
			 0);
	st = rig_stats(rig);
	rig_check_balance(&st);
	assert_int_equal(st.received, times);
	return st;
}

static void stay_here(void)
{
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	assert_int_equal(sched_setaffinity(0, sizeof(cpu), &cpu), 0);
}

static struct rig_request join_of(int rank)
{
	return (struct rig_request){ .op = THC_OP_JOIN, .job = 2, .rank = rank };
}

#define VERSION_AT (14 + 20 + 8 + offsetof(struct thc_hdr, version))
#define KEY_AT (14 + 20 + 8 + offsetof(struct thc_hdr, key_id))

/* Ways in which no job admits a JOIN. */
enum stranger {
	STRANGER_KEY,
	STRANGER_RANK, /* the sender has the job's key */
	STRANGER_HIGH_RANK, /* a rank whose low byte is a valid rank */
	STRANGER_JOB, /* no such job */
	STRANGER_NUMBER, /* no job can have that number */
	STRANGER_VERSION, /* of version 1 */
	STRANGERS
};

/* @frame_len: bytes of the frame */
static void make_stranger(u8 *frame, size_t *frame_len, enum stranger how)
{
	struct rig_request r = join_of(how == STRANGER_RANK	 ? RANKS :
				       how == STRANGER_HIGH_RANK ? 256 :
								   0);

	if (how == STRANGER_JOB)
		r.job = 3;
	if (how == STRANGER_NUMBER)
		r.job = THC_JOBS_MAX;
	*frame_len =
		rig_build(frame, &r, nonce, how == STRANGER_VERSION ? THC_VERSION1_JOIN : JOIN_LEN);
	if (how == STRANGER_KEY)
		frame[KEY_AT] ^= 1;
	if (how == STRANGER_VERSION)
		frame[VERSION_AT] = 1;
}

static void flood__none_without_a_token(void **state)
{
	u8 frame[RIG_FRAME_MAX];
	struct thc_stats st;
	struct rig rig;
	size_t len;
	int how;

	(void)state;
	rig_need_root();
	rig_test(&rig, RANKS);
	set_buckets(&rig, now_ns() + HOUR_NS);
	for (how = 0; how < STRANGERS; how++) {
		make_stranger(frame, &len, how);
		st = flood(&rig, frame, len, FLOOD);
		assert_int_equal(st.drop[THC_DROP_FLOOD], FLOOD);
		assert_int_equal(st.event[THC_EVENT_MEMBERSHIP], 0);
		/* the tag is not checked: this host has no key to check it */
		frame[len - 1] ^= 1;
		st = flood(&rig, frame, len, 1);
		assert_int_equal(st.drop[THC_DROP_FLOOD], 1);
	}
	rig_close(&rig);
}

/* A full bucket passes its burst, and as many tokens as the measured time adds. */
static void flood__a_bucketful_reaches_the_daemon(void **state)
{
	u8 frame[RIG_FRAME_MAX];
	struct rig rig;
	size_t len;
	int how;

	(void)state;
	rig_need_root();
	rig_test(&rig, RANKS);
	stay_here();
	for (how = 0; how < STRANGERS; how++) {
		struct thc_stats st;
		u64 start, most;

		make_stranger(frame, &len, how);
		set_buckets(&rig, 0);
		start = now_ns();
		st = flood(&rig, frame, len, FLOOD);
		/* the program's clock ticks: it may be two tokens behind at first */
		most = THC_JOINS_BURST + (now_ns() - start) / THC_JOINS_NS + 3;
		assert_in_range(st.event[THC_EVENT_MEMBERSHIP], THC_JOINS_BURST,
				most < FLOOD ? most : FLOOD);
		assert_int_equal(st.drop[THC_DROP_FLOOD], FLOOD - st.event[THC_EVENT_MEMBERSHIP]);
	}
	rig_close(&rig);
}

/* JOINs with the key need no strangers' token, whether their rank has joined or not, and from any
 * address. Each rank has tokens of its own, so a rank that joins too often stops no other rank.
 */
static void flood__ranks_pass_by_their_own_tokens(void **state)
{
	u8 frame[RIG_FRAME_MAX], strange[RIG_FRAME_MAX];
	size_t len, strange_len;
	struct thc_stats st;
	struct thc_job *job;
	u64 start, most;
	struct rig rig;
	int rank, i;

	(void)state;
	rig_need_root();
	job = rig_test(&rig, RANKS);
	set_buckets(&rig, now_ns() + HOUR_NS);
	make_stranger(strange, &strange_len, STRANGER_KEY);
	job->member[1].port = 0;
	rig_member(job, 2, rig_addr(false, 99), 1);
	for (rank = 0; rank < RANKS; rank++) {
		struct rig_request r = join_of(rank);

		len = rig_build(frame, &r, nonce, JOIN_LEN);
		start = now_ns();
		st = flood(&rig, frame, len, FLOOD);
		most = THC_JOINS_BURST + (now_ns() - start) / THC_JOINS_NS + 3;
		assert_in_range(st.event[THC_EVENT_MEMBERSHIP], THC_JOINS_BURST,
				most < FLOOD ? most : FLOOD);
		assert_int_equal(st.drop[THC_DROP_FLOOD], FLOOD - st.event[THC_EVENT_MEMBERSHIP]);
		job->member[rank].joins.full_at = 0;
		for (i = 0; i < THC_JOINS_BURST; i++) {
			st = flood(&rig, strange, strange_len, 1);
			assert_int_equal(st.drop[THC_DROP_FLOOD], 1);
			st = flood(&rig, frame, len, 1);
			assert_int_equal(st.event[THC_EVENT_MEMBERSHIP], 1);
		}
	}
	rig_close(&rig);
}

/* A recorded LEAVE takes the tokens of its rank for LEAVE, which that rank's JOIN does not need. */
static void flood__of_leaves_is_a_ranks(void **state)
{
	struct rig_request leave = { .op = THC_OP_LEAVE, .job = 2, .rank = 1 }, join = join_of(1);
	const u64 burst = THC_JOINS_BURST * THC_JOINS_NS / THC_LEAVES_NS;
	u8 frame[RIG_FRAME_MAX];
	struct thc_stats st;
	u64 start, most;
	struct rig rig;
	size_t len;

	(void)state;
	rig_need_root();
	rig_test(&rig, RANKS);
	for (leave.rank = 1; leave.rank < 3; leave.rank++) {
		len = rig_build(frame, &leave, nonce, sizeof(struct thc_leave));
		start = now_ns();
		st = flood(&rig, frame, len, FLOOD);
		most = burst + (now_ns() - start) / THC_LEAVES_NS + 3;
		assert_in_range(st.event[THC_EVENT_MEMBERSHIP], burst, most < FLOOD ? most : FLOOD);
		assert_int_equal(st.drop[THC_DROP_FLOOD], FLOOD - st.event[THC_EVENT_MEMBERSHIP]);
	}
	len = rig_build(frame, &join, nonce, JOIN_LEN);
	st = flood(&rig, frame, len, 1);
	assert_int_equal(st.event[THC_EVENT_MEMBERSHIP], 1);
	rig_close(&rig);
}

/* A stranger's JOIN with a token goes to the daemon, which tells why the JOIN is refused: XDP has
 * no key to check the tag. XDP checks the form.
 */
static void stranger__goes_to_the_daemon(void **state)
{
	u8 frame[RIG_FRAME_MAX];
	struct thc_stats st;
	struct rig rig;
	size_t len;

	(void)state;
	rig_need_root();
	rig_test(&rig, RANKS);
	make_stranger(frame, &len, STRANGER_KEY);
	frame[len - 1] ^= 1;
	st = flood(&rig, frame, len, 1);
	assert_int_equal(st.event[THC_EVENT_MEMBERSHIP], 1);
	frame[42 + offsetof(struct thc_hdr, width)] = 8;
	st = flood(&rig, frame, len, 1);
	assert_int_equal(st.drop[THC_DROP_WIDTH], 1);
	rig_close(&rig);
}

/* The frame of a JOIN that is sealed for @end and sent by rank @rank. */
static size_t make_join(u8 *frame, int rank, bool v6, const struct thc_end *end)
{
	struct rig_request r = join_of(rank);
	struct rig_frame f = rig_way(&r, v6);
	u8 packet[sizeof(struct thc_hdr) + JOIN_LEN];
	struct thc_hdr h;

	rig_header(&h, &r);
	return rig_frame(frame, &f, packet, rig_membership(packet, &h, end, nonce, JOIN_LEN));
}

/* A JOIN under the job's key passes without a stranger's token if the tag fits its sender, this
 * aggregator and its contents; otherwise it is dropped, and takes no token.
 */
static void check_join(struct rig *rig, bool v6)
{
	struct rig_request r = join_of(1);
	struct rig_frame f = rig_way(&r, v6);
	struct thc_end end = rig_end(&f), other;
	u8 frame[RIG_FRAME_MAX];
	struct thc_stats st;
	size_t len, at;
	int i;

	len = make_join(frame, 1, v6, &end);
	st = flood(rig, frame, len, 1);
	assert_int_equal(st.event[THC_EVENT_MEMBERSHIP], 1);
	for (i = 0; i < 6; i++) {
		other = end;
		if (i < 4)
			other.addr.word[i] ^= thc_be32(1);
		other.port ^= thc_be16(i == 4);
		other.aggregator ^= thc_be16(i == 5);
		len = make_join(frame, 1, v6, &other);
		st = flood(rig, frame, len, 1);
		assert_int_equal(st.drop[THC_DROP_TAG], 1);
	}
	/* bytes of tag and nonce: a change there names no other job and makes no stranger */
	len = make_join(frame, 1, v6, &end);
	for (at = 0; at < 8 + JOIN_LEN; at++) {
		u8 *byte = frame + (at < 8 ? len - JOIN_LEN - 40 + at : len - JOIN_LEN + at - 8);

		*byte ^= 0x10;
		st = flood(rig, frame, len, 1);
		assert_int_equal(st.drop[THC_DROP_TAG], 1);
		*byte ^= 0x10;
	}
	st = flood(rig, frame, len, 1);
	assert_int_equal(st.event[THC_EVENT_MEMBERSHIP], 1);
}

static void join__is_of_its_sender(void **state)
{
	struct rig rig;

	(void)state;
	rig_need_root();
	rig_test(&rig, RANKS);
	set_buckets(&rig, now_ns() + HOUR_NS);
	check_join(&rig, false);
	check_join(&rig, true);
	rig_close(&rig);
}

/* In a job without a key, a JOIN with key_id 0 and the right sum is a rank's; with another key_id
 * it is a stranger's.
 */
static void join__without_a_key(void **state)
{
	struct rig_request r = join_of(1);
	u8 frame[RIG_FRAME_MAX];
	struct thc_stats st;
	struct rig rig;
	size_t len;

	(void)state;
	rig_need_root();
	for (rig_seal = THC_SEAL_NONE; rig_seal <= THC_SEAL_SUM; rig_seal++) {
		rig_test(&rig, RANKS);
		set_buckets(&rig, now_ns() + HOUR_NS);
		len = rig_build(frame, &r, nonce, JOIN_LEN);
		st = flood(&rig, frame, len, 1);
		assert_int_equal(st.event[THC_EVENT_MEMBERSHIP], 1);
		frame[len - 1] ^= 1;
		st = flood(&rig, frame, len, 1);
		assert_int_equal(st.drop[THC_DROP_TAG], 1);
		frame[KEY_AT] ^= 1;
		st = flood(&rig, frame, len, 1);
		assert_int_equal(st.drop[THC_DROP_FLOOD], 1);
		rig_close(&rig);
	}
	rig_seal = THC_SEAL_NH;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flood__none_without_a_token),
		cmocka_unit_test(flood__a_bucketful_reaches_the_daemon),
		cmocka_unit_test(flood__ranks_pass_by_their_own_tokens),
		cmocka_unit_test(flood__of_leaves_is_a_ranks),
		cmocka_unit_test(stranger__goes_to_the_daemon),
		cmocka_unit_test(join__is_of_its_sender),
		cmocka_unit_test(join__without_a_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
