// SPDX-License-Identifier: GPL-2.0
/*
 * The join state machine: joining, restarting, leaving, who is refused, when
 * an epoch is ready, which keys it has and how multicast is given up. A random
 * walk checks what must hold in every state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <thc/key.h>

#include "jobs.h"
#include "join.h"

#define N 3

static struct thc_job jobs[THC_JOBS_MAX];
static struct thcd_record records[THC_JOBS_MAX];
static struct thc_seals all_seals[THC_JOBS_MAX];
static struct thc_job *const job = &jobs[1];
static struct thcd_record *const record = &records[1];
static struct thc_seals *const seals = &all_seals[1];
static const u8 key[THC_KEY_BYTES] = "the key of the job of this test";
static u64 now;

static struct thc_path path_of(unsigned int host, u16 port)
{
	struct thc_path p = { .src = thc_addr_v4(thc_be32(0x0a000000 + host)), .src_port = port };

	return p;
}

/* The job, and thcd as it starts; @seal: enum thc_seal_kind */
static void create(u8 seal)
{
	struct thcd_plan plan = { .job = 1,
				  .ranks = N,
				  .quorum = N,
				  .data_slots = 8,
				  .norm_slots = 2,
				  .sum_width = 8,
				  .reply = THC_REPLY_MULTICAST,
				  .seal = seal,
				  .admits = { .count = 1,
					      .at = { { path_of(0, 0).src, 96 + 8 } } } };
	struct thcd d = { .job = jobs, .seals = all_seals, .record = records, .port = 18500 };

	if (seal == THC_SEAL_NH)
		memcpy(plan.key, key, sizeof(key));
	thcd_job_create(&d, &plan);
}

static int setup(void **state)
{
	(void)state;
	now = 1000;
	create(THC_SEAL_NH);
	return 0;
}

static struct thcd_join_result join(struct thc_job *to, struct thcd_record *r, u16 rank, u64 nonce,
				    bool heard, u32 last, const struct thc_path *path)
{
	const struct thcd_joining j = {
		.path = path, .nonce = nonce, .last = last, .rank = rank, .heard = heard,
	};

	return thcd_join(to, to ? seals : NULL, r, &j, now);
}

/* Of a rank that was in epoch @last, 0: in none. */
static struct thcd_join_result join_after(u8 rank, u64 nonce, u32 last)
{
	struct thc_path p = path_of(rank + 1, 4000 + nonce);

	return join(job, record, rank, nonce, true, last, &p);
}

static struct thcd_join_result join_as(u8 rank, u64 nonce, bool heard)
{
	struct thc_path p = path_of(rank + 1, 4000 + nonce);

	return join(job, record, rank, nonce, heard, 0, &p);
}

static void all_join(void)
{
	int r;

	for (r = 0; r < N; r++)
		join_as(r, 10 + r, true);
	assert_true(record->ready);
}

static void join__the_last_one_makes_it_ready(void **state)
{
	u32 epoch = job->epoch;
	struct thcd_join_result out;

	(void)state;
	assert_true(epoch != 0);
	assert_int_equal(job->joined, 0);
	assert_false(join_as(0, 10, true).ready);
	assert_false(join_as(2, 12, true).ready);
	assert_int_equal(job->joined, 5);
	out = join_as(1, 11, true);
	assert_true(out.ready);
	assert_false(out.refusal || out.restarted || out.fallback);
	assert_int_equal(job->joined, 7);
	assert_int_equal(job->epoch, epoch);
	assert_int_equal(job->reply, THC_REPLY_MULTICAST);
	/* told once; repeated JOINs have no effect */
	assert_false(join_as(1, 11, true).ready);
	assert_int_equal(job->epoch, epoch);
	assert_int_equal(thc_be16(job->member[1].port), 4011);
}

static void join__heard_comes_later(void **state)
{
	(void)state;
	join_as(0, 10, false);
	join_as(1, 11, false);
	assert_false(join_as(2, 12, false).ready);
	assert_false(join_as(0, 10, true).ready);
	assert_false(join_as(1, 11, true).ready);
	assert_true(join_as(2, 12, true).ready);
	assert_int_equal(job->reply, THC_REPLY_MULTICAST);
}

static void join__a_rank_without_the_group_means_fanout(void **state)
{
	struct thcd_join_result out;

	(void)state;
	join_as(0, 10, true);
	now += 5000; /* a late rank hears the group */
	join_as(1, 11, true);
	now += 5000;
	assert_false(join_as(2, 12, false).ready);
	now += THCD_HEARD_MS - 1;
	assert_false(join_as(2, 12, false).ready);
	now++;
	out = join_as(0, 10, true);
	assert_true(out.ready && out.fallback);
	assert_int_equal(job->reply, THC_REPLY_FANOUT);
	/* a restart does not try again, a new run does */
	assert_true(join_as(1, 77, false).restarted);
	assert_int_equal(job->reply, THC_REPLY_FANOUT);
	join_as(0, 10, false);
	assert_true(join_as(2, 12, false).ready);
	for (int r = 0; r < N; r++)
		assert_true(thcd_leave(job, record, r, job->epoch));
	assert_true(join_as(0, 99, false).restarted);
	assert_int_equal(job->reply, THC_REPLY_MULTICAST);
}

static void restart__raises_the_epoch(void **state)
{
	struct thcd_join_result out;
	u32 epoch;

	(void)state;
	all_join();
	epoch = job->epoch;
	out = join_as(1, 50, false);
	assert_true(out.restarted);
	assert_false(out.ready || out.refusal);
	assert_int_equal(job->epoch, epoch + 1);
	assert_int_equal(job->joined, 2);
	assert_int_equal(job->restarter, 1);
	assert_false(record->ready);
	assert_int_equal(thc_be16(job->member[1].port), 4050);
	/* the others keep address and port: they must be told */
	assert_int_equal(thc_be16(job->member[0].port), 4010);
	assert_false(job->member[0].joined);
	/* they rejoin with an old nonce or a new one */
	assert_false(join_as(0, 10, true).restarted);
	assert_false(join_as(2, 60, true).restarted);
	assert_int_equal(job->epoch, epoch + 1);
	assert_true(join_as(1, 50, true).ready);
}

static void restart__the_epoch_never_is_zero(void **state)
{
	(void)state;
	job->epoch = UINT32_MAX - 1;
	join_as(0, 10, true);
	join_as(0, 11, true);
	assert_int_equal(job->epoch, UINT32_MAX);
	/* nor 1, which has the last bit of the one before, and so its keys' place */
	join_as(0, 12, true);
	assert_int_equal(job->epoch, 2);
}

/* The clock was set back between two daemons: this one's first epoch is no newer than that
 * of one that is gone.
 */
static void restart__is_newer_than_what_a_rank_was_in(void **state)
{
	u32 epoch = 1000;

	(void)state;
	job->epoch = epoch;
	assert_false(join_after(0, 10, epoch - 1).behind);
	assert_true(join_after(1, 11, epoch + 1000).behind);
	assert_int_equal(job->epoch, epoch + 1001);
	assert_int_equal(job->joined, 2);
	/* no rank's doing */
	assert_int_equal(job->restarter, THC_WORKER_NONE);
	/* its next JOIN changes nothing, nor do ranks that were in the same one or none */
	assert_false(join_after(1, 11, epoch + 1000).behind);
	assert_false(join_after(0, 10, epoch - 1).behind);
	/* by chance it has the number of one that is gone */
	assert_true(join_after(2, 12, epoch + 1001).behind);
	assert_int_equal(job->epoch, epoch + 1002);
	assert_int_equal(job->joined, 4);
	assert_false(join_after(0, 10, epoch - 1).behind);
	assert_true(join_after(1, 11, epoch + 1000).ready);
	/* one that is in it restarts; the next number has this one's last bit */
	assert_true(join_after(1, 51, epoch + 5001).restarted);
	assert_int_equal(job->epoch, epoch + 5003);
	assert_int_equal(job->restarter, 1);
}

static void restart__newer_is_in_serial_arithmetic(void **state)
{
	(void)state;
	job->epoch = 5;
	assert_false(join_after(0, 10, UINT32_MAX).behind);
	job->epoch = UINT32_MAX - 1;
	assert_true(join_after(1, 11, UINT32_MAX).behind);
	assert_int_equal(job->epoch, 1);
	assert_true(join_after(2, 12, 3).behind);
	assert_int_equal(job->epoch, 4);
	/* ranks would take the epoch behind this one for an old one, and never rejoin */
	assert_false(join_after(0, 10, 4 + 0x7fffffffU).behind);
	assert_int_equal(job->epoch, 4);
	assert_true(join_after(1, 11, 4 + 0x7ffffffeU).behind);
	assert_int_equal(job->epoch, 4 + 0x7fffffffU);
	/* nor the one behind the last number of all, which is 1, or 2 by its last bit */
	job->joined = 0;
	job->epoch = 0x80000001;
	assert_false(join_after(2, 12, UINT32_MAX).behind);
	assert_int_equal(job->epoch, 0x80000001);
	job->joined = 0;
	job->epoch = 0x80000002;
	assert_true(join_after(2, 12, UINT32_MAX).behind);
	assert_int_equal(job->epoch, 1);
	job->joined = 0;
	job->epoch = 0x80000003;
	assert_true(join_after(2, 12, UINT32_MAX).behind);
	assert_int_equal(job->epoch, 2);
}

/* --- keys --------------------------------------------------------------------- */

/* Do the keys of the job's epoch come from the record's salt, and have names of their own? */
static void check_keys(u8 seal)
{
	const u8 *secret = seal == THC_SEAL_NH ? key : NULL;
	const struct thc_seal_key *up = thc_seals_up(seals, job->epoch);
	const struct thc_seal_key *down = thc_seals_down(seals, job->epoch);
	struct thc_seal_key want;

	assert_int_equal(seals->seal, seal);
	thc_seal_key_set(&want, secret, THC_KEY_UP, 1, record->salt);
	assert_memory_equal(up, &want, sizeof(want));
	thc_seal_key_set(&want, secret, THC_KEY_DOWN, 1, record->salt);
	assert_memory_equal(down, &want, sizeof(want));
	assert_int_equal(up->id, down->id);
	assert_true(up->id && up->id != seals->join.id);
	assert_true(up->id != thc_seals_up(seals, job->epoch + 1)->id);
}

static void check_control_keys(u8 seal)
{
	struct thc_control_key join_key = { .id = 0 }, lost = { .id = 0 };

	if (seal == THC_SEAL_NH) {
		thc_control_key_derive(&join_key, key, THC_KEY_JOIN, 1);
		thc_control_key_derive(&lost, key, THC_KEY_LOST, 1);
		assert_true(join_key.id != 0);
	}
	assert_memory_equal(&seals->join, &join_key, sizeof(join_key));
	assert_memory_equal(&seals->lost, &lost, sizeof(lost));
}

static void keys__of_the_first_epoch(void **state)
{
	static const struct thc_seal_key none;
	u8 salt[THC_SALT_BYTES], seal;

	(void)state;
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		create(seal);
		check_keys(seal);
		check_control_keys(seal);
		/* the other half has none yet, and nothing that a packet could name */
		assert_memory_equal(thc_seals_up(seals, job->epoch + 1), &none, sizeof(none));
		assert_memory_equal(thc_seals_down(seals, job->epoch + 1), &none, sizeof(none));
		/* a thcd that starts anew draws another salt */
		memcpy(salt, record->salt, sizeof(salt));
		create(seal);
		assert_memory_not_equal(salt, record->salt, sizeof(salt));
	}
}

/* Each epoch has keys of its own. Those of the epoch before stay, for what came of it; no number
 * and no key comes back.
 */
static void keys__of_the_next_epoch(void **state)
{
	u8 seal;

	(void)state;
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		struct thc_seal_key up, down;
		u8 salt[THC_SALT_BYTES];
		__be32 names[20];
		u32 i, k;

		create(seal);
		join_as(0, 100, true);
		for (i = 0; i < 20; i++) {
			u32 before = job->epoch, last = i % 3 ? 0 : before + i;

			up = *thc_seals_up(seals, before);
			down = *thc_seals_down(seals, before);
			memcpy(salt, record->salt, sizeof(salt));
			assert_true(join_after(0, 101 + i, last).restarted);
			assert_true((s32)(job->epoch - before) > 0);
			assert_true(!last || (s32)(job->epoch - last) > 0);
			assert_int_equal((job->epoch ^ before) & 1, 1);
			check_keys(seal);
			check_control_keys(seal);
			assert_memory_not_equal(salt, record->salt, sizeof(salt));
			assert_memory_equal(thc_seals_up(seals, before), &up, sizeof(up));
			assert_memory_equal(thc_seals_down(seals, before), &down, sizeof(down));
			names[i] = thc_seals_up(seals, job->epoch)->id;
			for (k = 0; k < i; k++)
				assert_true(names[k] != names[i]);
		}
	}
}

/* Names that cannot tell this epoch from the one before, or from none, are drawn again. */
static void keys__have_names_that_differ(void **state)
{
	struct thc_seals *s = seals;
	u32 epoch;

	(void)state;
	create(THC_SEAL_NH);
	epoch = job->epoch + 1;
	assert_true(thcd_key_id_is_new(thc_be32(0x12345678), s, epoch));
	assert_false(thcd_key_id_is_new(0, s, epoch));
	assert_false(thcd_key_id_is_new(s->join.id, s, epoch));
	assert_false(thcd_key_id_is_new(thc_seals_up(s, job->epoch)->id, s, epoch));
	/* that of the one before the last is free again */
	s->up[epoch & 1].id = thc_be32(0x9abcdef0);
	assert_true(thcd_key_id_is_new(thc_be32(0x9abcdef0), s, epoch));
}

/* What changes nothing leaves the keys alone: a JOIN again, leaving, another rank's joining. */
static void keys__stay_within_an_epoch(void **state)
{
	struct thc_seals before = *seals;
	u8 salt[THC_SALT_BYTES];
	int r;

	(void)state;
	memcpy(salt, record->salt, sizeof(salt));
	all_join();
	for (r = 0; r < N; r++)
		join_as(r, 10 + r, true);
	assert_true(thcd_leave(job, record, 1, job->epoch));
	assert_memory_equal(seals, &before, sizeof(before));
	assert_memory_equal(record->salt, salt, sizeof(salt));
}

/* A job that is gone leaves no key behind. */
static void keys__go_with_their_job(void **state)
{
	static const struct thc_seals none;
	struct thc_slot slots[16];
	struct thcd d = {
		.job = jobs, .seals = all_seals, .record = records, .slot = slots, .port = 18500,
	};

	(void)state;
	thcd_job_forget(&d, 1);
	assert_memory_equal(seals, &none, sizeof(none));
}

static void leave__and_come_back(void **state)
{
	u32 epoch;

	(void)state;
	all_join();
	epoch = job->epoch;
	assert_false(thcd_leave(job, record, 1, epoch - 1));
	assert_int_equal(job->left, 0);
	assert_true(thcd_leave(job, record, 1, epoch));
	assert_int_equal(job->left, 2);
	assert_int_equal(job->joined, 7);
	assert_int_equal(job->epoch, epoch);
	/* whoever lost its WELCOME is still told that the job is ready */
	assert_false(join_as(0, 10, true).restarted);
	assert_true(record->ready);
	/* the same nonce after leaving is a restart, and not a rival */
	assert_true(join_as(1, 11, true).restarted);
	assert_int_equal(job->epoch, epoch + 1);
	assert_int_equal(job->left, 0);
	assert_int_equal(job->restarter, 1);
	/* nor are two that take turns */
	join_as(0, 10, true);
	assert_true(join_as(2, 12, true).ready);
	assert_true(thcd_leave(job, record, 1, job->epoch));
	assert_true(join_as(1, 70, true).restarted);
	join_as(0, 10, true);
	assert_true(join_as(2, 12, true).ready);
	assert_true(thcd_leave(job, record, 1, job->epoch));
	assert_int_equal(join_as(1, 11, true).refusal, THC_REFUSED_NOT);
}

static void leave__before_ready_is_as_if_never_joined(void **state)
{
	u32 epoch = job->epoch;

	(void)state;
	join_as(0, 10, true);
	join_as(1, 11, true);
	assert_true(thcd_leave(job, record, 0, epoch));
	assert_int_equal(job->joined, 2);
	assert_int_equal(job->left, 0);
	assert_false(join_as(2, 12, true).ready);
	/* what it heard before does not count for who comes instead */
	assert_false(join_as(0, 33, false).ready);
	assert_true(join_as(0, 33, true).ready);
	assert_int_equal(job->epoch, epoch);
}

static void refuse__strangers(void **state)
{
	struct thc_path p = path_of(9, 1);

	(void)state;
	assert_int_equal(join(NULL, NULL, 0, 1, false, 0, &p).refusal, THC_REFUSED_JOB);
	assert_int_equal(join(job, record, N, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	assert_int_equal(join(job, record, 255, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	/* ranks have 16 bits */
	assert_int_equal(join(job, record, 256, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	assert_int_equal(join(job, record, 65535, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	record->plan.admits.at[0].len = 96 + 29;
	assert_int_equal(join(job, record, 0, 1, false, 0, &p).refusal, THC_REFUSED_PREFIX);
	assert_int_equal(job->joined, 0);
	p = path_of(7, 1);
	assert_int_equal(join(job, record, 0, 1, false, 0, &p).refusal, THC_REFUSED_NOT);
}

static void refuse__two_workers_of_one_rank(void **state)
{
	struct thc_path elsewhere = path_of(1, 5555);
	u32 epoch;

	(void)state;
	all_join();
	epoch = job->epoch;
	/* the same incarnation cannot have two addresses */
	assert_int_equal(join(job, record, 0, 10, true, 0, &elsewhere).refusal, THC_REFUSED_TAKEN);
	assert_int_equal(job->epoch, epoch);
	/* who was replaced does not replace its successor */
	assert_true(join_as(0, 90, true).restarted);
	assert_int_equal(join_as(0, 10, true).refusal, THC_REFUSED_TAKEN);
	assert_int_equal(job->epoch, epoch + 1);
	assert_int_equal(thc_be16(job->member[0].port), 4090);
}

/* What holds after any sequence of JOINs and LEAVEs. */
static void check_invariants(u32 before)
{
	int r;

	assert_true(job->epoch == before || job->epoch == before + 1);
	assert_int_equal(job->left & ~job->joined, 0);
	assert_int_equal(job->joined & ~job->all, 0);
	if (job->left)
		assert_true(record->ready);
	if (record->ready)
		assert_true(job->joined == job->all);
	if (record->ready && job->reply == THC_REPLY_MULTICAST)
		assert_true(record->heard == job->all);
	for (r = 0; r < N; r++) {
		assert_int_equal(job->member[r].joined, job->joined >> r & 1);
		assert_int_equal(job->member[r].left, job->left >> r & 1);
		if (job->member[r].joined)
			assert_true(job->member[r].port);
	}
}

static void walk__random(void **state)
{
	unsigned int step, readies = 0, restarts = 0, fallback = 0;
	u64 nonce[N] = { 10, 11, 12 };

	(void)state;
	srand(1);
	for (step = 0; step < 200000; step++) {
		u32 before = job->epoch;
		int r = rand() % N;

		now += rand() % 200;
		switch (rand() % 16) {
		case 0:
			nonce[r] += N;
			break;
		case 1:
			thcd_leave(job, record, r, job->epoch);
			break;
		default: {
			struct thc_path p = path_of(r + 1, 4000 + nonce[r] % 1000);
			struct thcd_join_result out =
				join(job, record, r, nonce[r], rand() % 8, 0, &p);

			assert_int_equal(out.refusal, THC_REFUSED_NOT);
			assert_true(job->joined >> r & 1);
			assert_false(job->left >> r & 1);
			assert_int_equal(out.restarted, job->epoch != before);
			readies += out.ready;
			restarts += out.restarted;
			fallback += out.fallback;
		}
		}
		check_invariants(before);
	}
	assert_true(readies > 100 && restarts > 100 && fallback > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(join__the_last_one_makes_it_ready, setup),
		cmocka_unit_test_setup(join__heard_comes_later, setup),
		cmocka_unit_test_setup(join__a_rank_without_the_group_means_fanout, setup),
		cmocka_unit_test_setup(restart__raises_the_epoch, setup),
		cmocka_unit_test_setup(restart__the_epoch_never_is_zero, setup),
		cmocka_unit_test_setup(restart__is_newer_than_what_a_rank_was_in, setup),
		cmocka_unit_test_setup(restart__newer_is_in_serial_arithmetic, setup),
		cmocka_unit_test_setup(keys__of_the_first_epoch, setup),
		cmocka_unit_test_setup(keys__of_the_next_epoch, setup),
		cmocka_unit_test_setup(keys__have_names_that_differ, setup),
		cmocka_unit_test_setup(keys__stay_within_an_epoch, setup),
		cmocka_unit_test_setup(keys__go_with_their_job, setup),
		cmocka_unit_test_setup(leave__and_come_back, setup),
		cmocka_unit_test_setup(leave__before_ready_is_as_if_never_joined, setup),
		cmocka_unit_test_setup(refuse__strangers, setup),
		cmocka_unit_test_setup(refuse__two_workers_of_one_rank, setup),
		cmocka_unit_test_setup(walk__random, setup),
	};

	return cmocka_run_group_tests_name("thcd join", tests, NULL, NULL);
}
