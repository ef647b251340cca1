// SPDX-License-Identifier: GPL-2.0
/*
 * thcd's challenge: the change that it stands for, how long it is valid, and that only thcd can
 * make it. test_thcd_join tests which changes need one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "challenge.h"

#define MINUTE	60000ULL

static const struct thcd_secret secret = { "what thcd drew as it started" };
static const u8 nonce[THC_NONCE_BYTES] = { 1, 2, 3, [15] = 9 };
static const u8 joined[THC_NONCE_BYTES] = { 4, 5, 6, [15] = 8 };

/* The fields that a challenge covers, to be changed one by one. */
struct about {
	struct thc_path		path;
	u8			nonce[THC_NONCE_BYTES];
	u8			joined[THC_NONCE_BYTES];
	struct thcd_challenged	c;
};

static struct about some(void)
{
	struct about a = {
		.path = { .src = thc_addr_v4(thc_be32(0x0a000007)), .src_port = 40000 },
		.c = { .epoch = 77, .job = 1, .rank = 2 },
	};

	memcpy(a.nonce, nonce, sizeof(nonce));
	memcpy(a.joined, joined, sizeof(joined));
	return a;
}

static const struct thcd_challenged *about(struct about *a)
{
	a->c.path = &a->path;
	a->c.nonce = a->nonce;
	a->c.entered = a->joined;
	return &a->c;
}

/* Is the challenge made for some() valid for @a, too? */
static bool is(struct about a, u64 made_at, u64 said_at)
{
	struct about of = some();
	u8 made[THC_CHALLENGE_BYTES];

	thcd_challenge_make(made, &secret, about(&of), made_at);
	return thcd_challenge_is(made, &secret, about(&a), said_at);
}

static void challenge__stands_for_all_of_it(void **state)
{
	struct about a;
	unsigned int bit;

	(void)state;
	assert_true(is(some(), 0, 0));
	for (bit = 0; bit < 128; bit++) {
		a = some();
		a.nonce[bit / 8] ^= 1 << bit % 8;
		assert_false(is(a, 0, 0));
		a = some();
		a.joined[bit / 8] ^= 1 << bit % 8;
		assert_false(is(a, 0, 0));
		a = some();
		a.path.src.word[bit / 32] ^= 1U << bit % 32;
		assert_false(is(a, 0, 0));
	}
	for (bit = 0; bit < 32; bit++) {
		a = some();
		a.c.epoch ^= 1U << bit;
		assert_false(is(a, 0, 0));
	}
	for (bit = 0; bit < 16; bit++) {
		a = some();
		a.path.src_port ^= 1U << bit;
		assert_false(is(a, 0, 0));
		a = some();
		a.c.job ^= 1U << bit;
		assert_false(is(a, 0, 0));
		a = some();
		a.c.rank ^= 1U << bit;
		assert_false(is(a, 0, 0));
	}
	a = some();
	a.c.left = true;
	assert_false(is(a, 0, 0));
	/* a challenge does not cover the packet's destination and hop count */
	a = some();
	a.path.dst_port = 1;
	a.path.ttl = 1;
	assert_true(is(a, 0, 0));
}

/* A rank that has not joined differs from one with a nonce of zero. */
static void challenge__of_a_rank_outside(void **state)
{
	struct about a = some(), outside = some();
	u8 made[THC_CHALLENGE_BYTES];

	(void)state;
	memset(a.joined, 0, sizeof(a.joined));
	about(&outside);
	outside.c.entered = NULL;
	thcd_challenge_make(made, &secret, &outside.c, 0);
	assert_true(thcd_challenge_is(made, &secret, &outside.c, 0));
	assert_false(thcd_challenge_is(made, &secret, about(&a), 0));
}

static void challenge__counts_for_two_minutes_at_most(void **state)
{
	(void)state;
	assert_true(is(some(), 5 * MINUTE, 6 * MINUTE - 1));
	assert_true(is(some(), 5 * MINUTE, 7 * MINUTE - 1));
	assert_false(is(some(), 5 * MINUTE, 7 * MINUTE));
	assert_true(is(some(), 6 * MINUTE - 1, 7 * MINUTE - 1));
	assert_false(is(some(), 6 * MINUTE - 1, 7 * MINUTE));
	/* a challenge from a future minute is invalid */
	assert_false(is(some(), 6 * MINUTE, 6 * MINUTE - 1));
	assert_true(is(some(), 0, MINUTE));
	assert_true(is(some(), 0, 0));
}

static void challenge__is_this_thcds(void **state)
{
	struct thcd_secret other = secret;
	u8 made[THC_CHALLENGE_BYTES];
	struct about a = some();
	unsigned int bit;

	(void)state;
	thcd_challenge_make(made, &secret, about(&a), 0);
	for (bit = 0; bit < 8 * sizeof(other.bytes); bit++) {
		other.bytes[bit / 8] ^= 1 << bit % 8;
		assert_false(thcd_challenge_is(made, &other, about(&a), 0));
		other.bytes[bit / 8] ^= 1 << bit % 8;
	}
	for (bit = 0; bit < 8 * sizeof(made); bit++) {
		made[bit / 8] ^= 1 << bit % 8;
		assert_false(thcd_challenge_is(made, &secret, about(&a), 0));
		made[bit / 8] ^= 1 << bit % 8;
	}
	assert_true(thcd_challenge_is(made, &secret, about(&a), 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(challenge__stands_for_all_of_it),
		cmocka_unit_test(challenge__of_a_rank_outside),
		cmocka_unit_test(challenge__counts_for_two_minutes_at_most),
		cmocka_unit_test(challenge__is_this_thcds),
	};

	return cmocka_run_group_tests_name("thcd challenge", tests, NULL, NULL);
}
