// SPDX-License-Identifier: GPL-2.0
/*
 * The join state machine: joining, restarting, leaving, refusals, challenges, when an epoch is
 * ready, its keys, and how multicast is given up. Random walks check what holds in every state,
 * and that recorded packets have no effect.
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
static const struct thcd_secret secret = { "thcd's own" };
static const u8 none[THC_CHALLENGE_BYTES];
static u64 now;

/* Sixteen bytes for a number. */
struct nonce {
	u8	bytes[THC_NONCE_BYTES];
};

static struct nonce nonce_of(u64 number)
{
	struct nonce n = { { 0 } };

	memcpy(n.bytes, &number, sizeof(number));
	return n;
}

static struct thc_path path_of(unsigned int host, u16 port)
{
	struct thc_path p = { .src = thc_addr_v4(thc_be32(0x0a000000 + host)), .src_port = port };

	return p;
}

/* The job, and thcd as it starts; @seal: enum thc_seal_type */
static void create(u8 seal)
{
	struct thcd_plan plan = { .job = 1,
				  .ranks = N,
				  .quorum = N,
				  .data_slots = 8,
				  .control_slots = 2,
				  .bits = 4,
				  .tables.widths.sum[3] = 8,
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

static struct thcd_join_result say(const struct thcd_joining *j)
{
	return thcd_join(job, seals, record, j, &secret, now);
}

/* Acts as a worker: answers a challenge, and after joining says whether it hears the group. A JOIN
 * that is challenged must change nothing.
 */
static struct thcd_join_result join(u16 rank, u64 number, bool heard, u32 last,
				    const struct thc_path *path)
{
	const struct nonce nonce = nonce_of(number);
	struct thcd_joining j = {
		.path = path, .nonce = nonce.bytes, .challenge = none, .last = last,
		.offers = THC_OFFER_SEAL(record->plan.seal), .rank = rank,
	};
	struct thcd_record was = *record;
	struct thcd_join_result out, more;
	struct thc_job before = *job;

	out = say(&j);
	if (out.challenged) {
		assert_memory_equal(job, &before, sizeof(before));
		assert_memory_equal(record, &was, sizeof(was));
		j.challenge = out.challenge;
		out = say(&j);
		assert_false(out.challenged || out.answered);
	}
	if (out.refusal || !heard)
		return out;
	j.challenge = record->salt;
	j.heard = true;
	more = say(&j);
	assert_false(more.refusal || more.challenged || more.restarted || more.behind);
	out.ready |= more.ready;
	out.fallback |= more.fallback;
	return out;
}

/* The rank that joined with this nonce last leaves. */
static bool leave(u8 rank, u64 number)
{
	const struct nonce nonce = nonce_of(number);

	return thcd_leave(job, record, rank, nonce.bytes);
}

/* Of a rank that was in epoch @last, 0: in none. */
static struct thcd_join_result join_after(u8 rank, u64 nonce, u32 last)
{
	struct thc_path p = path_of(rank + 1, 4000 + nonce);

	return join(rank, nonce, true, last, &p);
}

static struct thcd_join_result join_as(u8 rank, u64 nonce, bool heard)
{
	struct thc_path p = path_of(rank + 1, 4000 + nonce);

	return join(rank, nonce, heard, 0, &p);
}

static void all_join(void)
{
	int r;

	for (r = 0; r < N; r++)
		join_as(r, 10 + r, true);
	assert_true(record->ready);
}

static void join__over_both_versions_of_ip(void **state)
{
	struct thc_addr v6 = { { thc_be32(0xfd000000), 0, 0, thc_be32(1) } };
	int r;

	(void)state;
	assert_false(thcd_job_is_mixed(job));
	all_join();
	assert_false(thcd_job_is_mixed(job));
	for (r = 0; r < N; r++) {
		job->member[r].addr = v6;
		assert_int_equal(thcd_job_is_mixed(job), r < N - 1);
	}
	/* a rank that is not in does not count */
	job->member[0].addr = thc_addr_v4(thc_be32(0x0a000001));
	assert_true(thcd_job_is_mixed(job));
	job->joined &= ~1ULL;
	assert_false(thcd_job_is_mixed(job));
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
	assert_true(leave(0, 10) && leave(1, 77) && leave(2, 12));
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
	/* nor 1, since 1 and UINT32_MAX would have their keys in one place */
	join_as(0, 12, true);
	assert_int_equal(job->epoch, 2);
}

/* The clock went back between two daemons, so this one's first epoch is not newer than an old one.
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
	/* no rank began this epoch */
	assert_int_equal(job->restarter, THC_WORKER_NONE);
	/* a repeated JOIN changes nothing, nor does a rank of an older epoch or none */
	assert_false(join_after(1, 11, epoch + 1000).behind);
	assert_false(join_after(0, 10, epoch - 1).behind);
	/* an old epoch may have the current number by chance */
	assert_true(join_after(2, 12, epoch + 1001).behind);
	assert_int_equal(job->epoch, epoch + 1002);
	assert_int_equal(job->joined, 4);
	assert_false(join_after(0, 10, epoch - 1).behind);
	assert_true(join_after(1, 11, epoch + 1000).ready);
	/* a rank that is in it restarts; the next number has the same last bit, and is skipped */
	assert_true(join_after(1, 51, epoch + 5001).restarted);
	assert_int_equal(job->epoch, epoch + 5003);
	assert_int_equal(job->restarter, 1);
}

/* A rank can move a job's epoch forward by an hour's worth at most. */
static void restart__believes_an_epoch_that_is_near(void **state)
{
	static const struct {
		u32	epoch;
		u32	last;
		u32	then;	/* 0: the rank is not believed */
	} cases[] = {
		{ 5, UINT32_MAX, 0 },			{ 5, 4, 0 },
		{ 5, 5, 6 },				{ 5, 0xffff + 5, 0xffff + 6 + 1 },
		{ 5, 0x10000 + 5, 0 },			{ 5, 0x80000005, 0 },
		{ UINT32_MAX - 1, UINT32_MAX, 1 },	{ UINT32_MAX, UINT32_MAX, 2 },
		/* serial arithmetic; after a wrap the epoch is never 0 */
		{ UINT32_MAX - 1, 3, 5 },		{ UINT32_MAX, 0xfffe, 0x10000 },
		{ UINT32_MAX, 0xffff, 0 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		u32 then = cases[i].then;

		create(THC_SEAL_NH);
		job->epoch = cases[i].epoch;
		assert_int_equal(join_after(1, 11, cases[i].last).behind, then != 0);
		/* the next epoch whose last bit differs from the old one's */
		if (then && ((then ^ cases[i].epoch) & 1) == 0)
			then++;
		assert_int_equal(job->epoch, then ? then : cases[i].epoch);
		assert_int_equal(job->joined, 2);
	}
}

/* --- keys --------------------------------------------------------------------- */

/* Do the epoch's keys come from the record's salt, with names of their own? */
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

static void check_member_keys(u8 seal)
{
	struct thc_member_key join_key = { .id = 0 }, lost = { .id = 0 };

	if (seal == THC_SEAL_NH) {
		thc_member_key_derive(&join_key, key, THC_KEY_JOIN, 1);
		thc_member_key_derive(&lost, key, THC_KEY_LOST, 1);
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
		check_member_keys(seal);
		/* the other half is empty, with names that no packet can have */
		assert_memory_equal(thc_seals_up(seals, job->epoch + 1), &none, sizeof(none));
		assert_memory_equal(thc_seals_down(seals, job->epoch + 1), &none, sizeof(none));
		/* a thcd that starts anew draws another salt */
		memcpy(salt, record->salt, sizeof(salt));
		create(seal);
		assert_memory_not_equal(salt, record->salt, sizeof(salt));
	}
}

/* Each epoch has its own keys; those of the epoch before are kept for late packets. No number and
 * no key returns.
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
			check_member_keys(seal);
			assert_memory_not_equal(salt, record->salt, sizeof(salt));
			assert_memory_equal(thc_seals_up(seals, before), &up, sizeof(up));
			assert_memory_equal(thc_seals_down(seals, before), &down, sizeof(down));
			names[i] = thc_seals_up(seals, job->epoch)->id;
			for (k = 0; k < i; k++)
				assert_true(names[k] != names[i]);
		}
	}
}

/* Names that do not differ from the epoch before, or are 0, are drawn again. */
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
	/* the name of the epoch before the last may return */
	s->up[epoch & 1].id = thc_be32(0x9abcdef0);
	assert_true(thcd_key_id_is_new(thc_be32(0x9abcdef0), s, epoch));
}

/* A repeated JOIN, a LEAVE or another rank's JOIN leaves the keys as they are. */
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
	assert_true(leave(1, 11));
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
	assert_false(leave(1, 10));
	assert_int_equal(job->left, 0);
	assert_true(leave(1, 11));
	assert_false(leave(1, 11));
	assert_int_equal(job->left, 2);
	assert_int_equal(job->joined, 7);
	assert_int_equal(job->epoch, epoch);
	/* a rank that lost its WELCOME is told again that the job is ready */
	assert_false(join_as(0, 10, true).restarted);
	assert_true(record->ready);
	/* the old nonce after LEAVE is a restart, not a second worker */
	assert_true(join_as(1, 11, true).restarted);
	assert_int_equal(job->epoch, epoch + 1);
	assert_int_equal(job->left, 0);
	assert_int_equal(job->restarter, 1);
	/* two workers that take turns do not replace each other either */
	join_as(0, 10, true);
	assert_true(join_as(2, 12, true).ready);
	assert_true(leave(1, 11));
	assert_true(join_as(1, 70, true).restarted);
	join_as(0, 10, true);
	assert_true(join_as(2, 12, true).ready);
	/* a late LEAVE of an earlier join does not count */
	assert_false(leave(1, 11));
	assert_true(leave(1, 70));
	assert_int_equal(join_as(1, 11, true).refusal, THC_REFUSED_NOT);
}

static void leave__before_ready_is_as_if_never_joined(void **state)
{
	u32 epoch = job->epoch;

	(void)state;
	join_as(0, 10, true);
	join_as(1, 11, true);
	assert_true(leave(0, 10));
	assert_false(leave(0, 10));
	assert_int_equal(job->joined, 2);
	assert_int_equal(job->left, 0);
	assert_false(join_as(2, 12, true).ready);
	/* the old worker's HEARD does not count for the new one */
	assert_false(join_as(0, 33, false).ready);
	assert_true(join_as(0, 33, true).ready);
	assert_int_equal(job->epoch, epoch);
}

static void refuse__strangers(void **state)
{
	struct thc_path p = path_of(9, 1);

	(void)state;
	assert_int_equal(join(N, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	assert_int_equal(join(255, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	/* ranks have 16 bits */
	assert_int_equal(join(256, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	assert_int_equal(join(65535, 1, false, 0, &p).refusal, THC_REFUSED_RANK);
	record->plan.admits.at[0].len = 96 + 29;
	assert_int_equal(join(0, 1, false, 0, &p).refusal, THC_REFUSED_PREFIX);
	assert_int_equal(job->joined, 0);
	p = path_of(7, 1);
	assert_int_equal(join(0, 1, false, 0, &p).refusal, THC_REFUSED_NOT);
}

/* Of a worker's offers only the job's seal matters. */
static void refuse__who_cannot_do_the_seal(void **state)
{
	const struct thc_path p = path_of(7, 1);
	const struct nonce nonce = nonce_of(1);
	struct thcd_joining j = { .path = &p, .nonce = nonce.bytes, .challenge = none };
	u8 seal;

	(void)state;
	for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
		create(seal);
		j.offers = ~THC_OFFER_SEAL(seal);
		assert_int_equal(say(&j).refusal, THC_REFUSED_SEAL);
		j.offers = 0;
		assert_int_equal(say(&j).refusal, THC_REFUSED_SEAL);
		j.offers = THC_OFFER_SEAL(seal);
		assert_true(say(&j).challenged);
		j.offers = ~0U;
		assert_true(say(&j).challenged);
	}
}

static void refuse__two_workers_of_one_rank(void **state)
{
	struct thc_path elsewhere = path_of(1, 5555);
	u32 epoch;

	(void)state;
	all_join();
	epoch = job->epoch;
	/* one nonce cannot have two addresses */
	assert_int_equal(join(0, 10, true, 0, &elsewhere).refusal, THC_REFUSED_TAKEN);
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
			leave((u8)r, nonce[r]);
			break;
		default: {
			struct thc_path p = path_of(r + 1, 4000 + nonce[r] % 1000);
			struct thcd_join_result out = join((u16)r, nonce[r], rand() % 8, 0, &p);

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

/* --- the challenge -------------------------------------------------------------- */

/* A JOIN as it was sent, or recorded. */
struct said {
	struct thcd_joining	j;
	struct thc_path		path;
	struct nonce		nonce;
	struct nonce		challenge;
};

static struct thcd_join_result say_again(struct said *s)
{
	s->j.path = &s->path;
	s->j.nonce = s->nonce.bytes;
	s->j.challenge = s->challenge.bytes;
	return say(&s->j);
}

/* Of rank @rank, without a challenge. */
static struct said said_of(u8 rank, u64 number)
{
	return (struct said){
		.j = { .offers = THC_OFFER_SEAL(THC_SEAL_NH), .rank = rank },
		.path = path_of(rank + 1U, 4000 + rank),
		.nonce = nonce_of(number),
	};
}

/* Sends @s, and then @s with the challenge. */
static struct thcd_join_result answered(struct said *s)
{
	struct thcd_join_result out = say_again(s);

	assert_true(out.challenged);
	memcpy(s->challenge.bytes, out.challenge, sizeof(out.challenge));
	return say_again(s);
}

/* After a restart thcd challenges the other ranks at once, and their answers let them in. */
static void restart__has_the_others_asked(void **state)
{
	struct said s[3], again;
	int i;

	(void)state;
	for (i = 0; i < 3; i++) {
		s[i] = said_of((u8)i, 10 + i);
		assert_int_equal(answered(&s[i]).others, 0);
	}
	again = said_of(1, 21);
	assert_int_equal(answered(&again).others, 5);
	for (i = 0; i < 3; i += 2) {
		thcd_ask_again(s[i].challenge.bytes, job, record, &s[i].j, &secret, now);
		assert_false(say_again(&s[i]).challenged);
	}
	assert_int_equal(job->joined, 7);
	/* ranks that have left are not challenged */
	record->ready = 1;
	assert_true(leave(0, 10));
	again = said_of(1, 22);
	assert_int_equal(answered(&again).others, 4);
}

/* @s is challenged, or refused, and changes nothing. */
static void expect_nothing(struct said *s)
{
	struct thcd_record was = *record;
	struct thc_job before = *job;
	struct thcd_join_result out = say_again(s);

	assert_true(out.challenged || out.refusal);
	assert_false(out.ready || out.restarted || out.behind || out.fallback);
	assert_memory_equal(job, &before, sizeof(before));
	assert_memory_equal(record, &was, sizeof(was));
}

/* Every state of a rank in which a JOIN has an effect, one after the other: each needs its own
 * challenge, and afterwards no earlier challenge is valid.
 */
static void challenge__is_for_one_state(void **state)
{
	struct said s[6];
	int i, k;

	(void)state;
	for (i = 0; i < 6; i++)
		s[i] = said_of(0, 100 + i);
	assert_false(answered(&s[0]).restarted); /* of a rank outside */
	assert_true(leave(0, 100));
	assert_false(answered(&s[1]).restarted); /* of one that left before all were in */
	assert_int_equal(job->joined, 1);
	assert_true(answered(&s[2]).restarted); /* of one inside */
	join_as(1, 11, true);
	join_as(2, 12, true);
	now += 2000;
	assert_false(say_again(&s[2]).challenged);
	now += 2000;
	assert_true(say_again(&s[2]).ready || record->ready);
	assert_true(leave(0, 102));
	assert_true(answered(&s[3]).restarted); /* of one that left */
	job->joined = 0;
	record->entered = 0;
	s[4].j.last = job->epoch + 5;
	assert_true(answered(&s[4]).behind); /* of one that was in a newer epoch */
	for (i = 0; i < 4; i++) {
		expect_nothing(&s[i]);
		for (k = 0; k < 5; k++) {
			s[5] = said_of(0, 200);
			s[5].challenge = s[k].challenge;
			expect_nothing(&s[5]);
		}
	}
	assert_false(say_again(&s[4]).challenged);
}

/* A rank that has left is in another state than a rank that is in or has never joined: earlier
 * challenges, even unused ones, are invalid.
 */
static void challenge__ends_with_leaving(void **state)
{
	struct said first = said_of(0, 100), withheld = said_of(0, 101);
	bool before_ready;

	(void)state;
	for (before_ready = true;; before_ready = false) {
		create(THC_SEAL_NH);
		first = said_of(0, 100);
		withheld = said_of(0, 101);
		answered(&first);
		if (!before_ready) {
			join_as(1, 11, true);
			join_as(2, 12, true);
			now += 2000;
			join_as(2, 12, true);
			assert_int_equal(record->ready, 1);
		}
		memcpy(withheld.challenge.bytes, say_again(&withheld).challenge,
		       THC_CHALLENGE_BYTES);
		assert_true(leave(0, 100));
		expect_nothing(&first);
		expect_nothing(&withheld);
		if (!before_ready)
			break;
	}
}

/* Each difference from the challenged JOIN makes the challenge invalid. */
static void challenge__is_for_one_worker(void **state)
{
	struct said s = said_of(0, 100), other;
	unsigned int bit;

	(void)state;
	now = 7 * THCD_CHALLENGE_MS - 1;
	memcpy(s.challenge.bytes, say_again(&s).challenge, THC_CHALLENGE_BYTES);
	for (bit = 0; bit < 8 * THC_CHALLENGE_BYTES; bit++) {
		other = s;
		other.challenge.bytes[bit / 8] ^= 1 << bit % 8;
		expect_nothing(&other);
		other = s;
		other.nonce.bytes[bit / 8] ^= 1 << bit % 8;
		expect_nothing(&other);
	}
	other = s;
	other.j.rank = 1;
	expect_nothing(&other);
	other = s;
	other.path.src_port ^= 1;
	expect_nothing(&other);
	other = s;
	other.path.src.word[3] ^= thc_be32(1);
	expect_nothing(&other);
	/* then the field is a salt */
	other = s;
	other.j.heard = true;
	expect_nothing(&other);
	now += THCD_CHALLENGE_MS + 1;
	expect_nothing(&s);
	now--;
	assert_false(say_again(&s).challenged);
	assert_int_equal(job->joined, 1);
}

/* HEARD counts with this epoch's salt, and from a rank that is in. */
static void heard__is_of_this_epoch(void **state)
{
	struct said s = said_of(0, 100);

	(void)state;
	answered(&s);
	s.j.heard = true;
	assert_false(say_again(&s).challenged);
	assert_int_equal(record->heard, 0);
	memcpy(s.challenge.bytes, record->salt, THC_SALT_BYTES);
	s.challenge.bytes[15] ^= 1;
	say_again(&s);
	assert_int_equal(record->heard, 0);
	s.challenge.bytes[15] ^= 1;
	say_again(&s);
	assert_int_equal(record->heard, 1);
	s = said_of(1, 101);
	s.j.heard = true;
	memcpy(s.challenge.bytes, record->salt, THC_SALT_BYTES);
	expect_nothing(&s);
}

/* Recorded JOINs of a rank that is in cause at most one WELCOME in 10 ms. */
static void answer__comes_once_in_ten_ms(void **state)
{
	struct said ranks[N] = { said_of(0, 100), said_of(1, 101), said_of(2, 102) };
	struct thcd_join_result out = { .ready = false };
	unsigned int ms, answers = 0;
	int i;

	(void)state;
	assert_false(answered(&ranks[0]).answered);
	assert_false(answered(&ranks[1]).answered);
	for (ms = 0; ms < 1000; ms++, now++)
		answers += !say_again(&ranks[0]).answered;
	assert_int_equal(answers, 99);
	assert_false(say_again(&ranks[1]).answered);
	/* a JOIN that makes the job ready is answered at any time */
	answered(&ranks[2]);
	for (i = 0; i < N; i++) {
		ranks[i].j.heard = true;
		memcpy(ranks[i].challenge.bytes, record->salt, THC_SALT_BYTES);
		out = say_again(&ranks[i]);
	}
	assert_true(out.ready);
	assert_false(out.answered);
	assert_true(say_again(&ranks[2]).answered);
}

#define RECORDED	4096

/* An attacker repeats all JOINs and LEAVEs ever sent, most of them soon, some much later. Ranks
 * draw a nonce for each join. Giving up multicast in time is not the attacker's effect, since any
 * JOIN causes it.
 */
static void walk__recorded_packets_do_nothing(void **state)
{
	static struct said recorded[RECORDED];
	u64 nonce[N] = { 10, 11, 12 }, next = 100;
	unsigned int step, n = 0, readies = 0;
	int i;

	(void)state;
	srand(2);
	for (step = 0; step < 20000; step++) {
		u8 r = (u8)(rand() % N);
		struct said s = said_of(r, nonce[r]);
		struct thcd_join_result out;

		now += (u64)(rand() % 100);
		if (!(rand() % 16) && leave(r, nonce[r])) {
			nonce[r] = next++;
		} else {
			if (!(rand() % 64))
				s = said_of(r, nonce[r] = next++);
			out = say_again(&s);
			recorded[n++ % RECORDED] = s;
			if (out.challenged) {
				memcpy(s.challenge.bytes, out.challenge, THC_CHALLENGE_BYTES);
				recorded[n++ % RECORDED] = s;
				out = say_again(&s);
				assert_false(out.challenged || out.refusal);
			}
			readies += out.ready;
		}
		for (i = 0; i < 4; i++) {
			struct thcd_record was = *record;
			struct thc_job before = *job;
			u8 of = (u8)(rand() % N);

			s = recorded[(n - 1 - (unsigned int)rand() % (i ? 16 : RECORDED)) %
				     RECORDED];
			if (!s.j.offers)
				continue;
			out = say_again(&s);
			readies += out.ready;
			assert_false(out.restarted || out.behind);
			/* a LEAVE of an earlier join */
			leave(of, nonce[of] - 1 - (u64)(rand() % 8));
			assert_int_equal(job->epoch, before.epoch);
			assert_int_equal(job->joined, before.joined);
			assert_int_equal(job->left, before.left);
			assert_memory_equal(job->member, before.member, sizeof(job->member));
			assert_memory_equal(record->nonce, was.nonce, sizeof(was.nonce));
			assert_memory_equal(record->salt, was.salt, sizeof(was.salt));
		}
	}
	assert_true(readies > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(join__the_last_one_makes_it_ready, setup),
		cmocka_unit_test_setup(join__over_both_versions_of_ip, setup),
		cmocka_unit_test_setup(join__heard_comes_later, setup),
		cmocka_unit_test_setup(join__a_rank_without_the_group_means_fanout, setup),
		cmocka_unit_test_setup(restart__raises_the_epoch, setup),
		cmocka_unit_test_setup(restart__the_epoch_never_is_zero, setup),
		cmocka_unit_test_setup(restart__is_newer_than_what_a_rank_was_in, setup),
		cmocka_unit_test_setup(restart__believes_an_epoch_that_is_near, setup),
		cmocka_unit_test_setup(keys__of_the_first_epoch, setup),
		cmocka_unit_test_setup(keys__of_the_next_epoch, setup),
		cmocka_unit_test_setup(keys__have_names_that_differ, setup),
		cmocka_unit_test_setup(keys__stay_within_an_epoch, setup),
		cmocka_unit_test_setup(keys__go_with_their_job, setup),
		cmocka_unit_test_setup(leave__and_come_back, setup),
		cmocka_unit_test_setup(leave__before_ready_is_as_if_never_joined, setup),
		cmocka_unit_test_setup(refuse__strangers, setup),
		cmocka_unit_test_setup(refuse__two_workers_of_one_rank, setup),
		cmocka_unit_test_setup(refuse__who_cannot_do_the_seal, setup),
		cmocka_unit_test_setup(restart__has_the_others_asked, setup),
		cmocka_unit_test_setup(challenge__is_for_one_state, setup),
		cmocka_unit_test_setup(challenge__ends_with_leaving, setup),
		cmocka_unit_test_setup(challenge__is_for_one_worker, setup),
		cmocka_unit_test_setup(heard__is_of_this_epoch, setup),
		cmocka_unit_test_setup(answer__comes_once_in_ten_ms, setup),
		cmocka_unit_test_setup(walk__random, setup),
		cmocka_unit_test_setup(walk__recorded_packets_do_nothing, setup),
	};

	return cmocka_run_group_tests_name("thcd join", tests, NULL, NULL);
}
