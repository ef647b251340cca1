// SPDX-License-Identifier: GPL-2.0
/*
 * The agreement that opens a round: claims of several ranks side by side, as
 * the aggregator's maximum makes them, and what one rank concludes. No
 * sockets: what reaches the other ranks is in tests/netns/.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "client.h"
#include "request.h"

#define TABLE	0xabcd1234U

/* What one rank brings to the round. */
struct brought {
	size_t		count;
	enum thc_dtype	dtype;
	uint32_t	table;
	uint64_t	key;
	int		status;
	bool		absent;
};

static const struct brought usual = { 4096, THC_FP32, TABLE, 7, THC_CLAIM_OK, false };

/* The agreement as @self sees it when rank r brings @all[r]. */
static int agree(const struct brought *all, unsigned int ranks, unsigned int self, char *sentence)
{
	uint32_t sum[THC_LANE_BYTES / 4] = { 0 }, lanes[THC_LANE_BYTES / 4];
	struct thc_client c = { .params.ranks = (uint16_t)ranks };
	struct thc_request r = { .client = &c };
	unsigned int rank, i, pass;
	int error;

	/* the last pass is the rank itself, whose claim stays in its packet */
	for (pass = 0; pass <= ranks; pass++) {
		rank = pass < ranks ? pass : self;
		c.options.rank = (uint16_t)rank;
		c.params.table_hash = all[rank].table;
		r.count = all[rank].count;
		r.dtype = all[rank].dtype;
		r.key = all[rank].key;
		r.claim_status = all[rank].status;
		thc_agree_claim(&r, lanes);
		for (i = 0; i < THC_LANE_BYTES / 4 && !all[rank].absent; i++)
			if (thc_le32(lanes[i]) > thc_le32(sum[i]))
				sum[i] = lanes[i];
	}
	memcpy((struct thc_hdr *)r.claim + 1, lanes, sizeof(lanes));
	error = thc_agree_check(&r, sum);
	strcpy(sentence, r.sentence);
	return error;
}

static void assert_says(const char *sentence, const char *words)
{
	if (!strstr(sentence, words))
		fail_msg("\"%s\" does not say \"%s\"", sentence, words);
}

static void agree__alike(void **state)
{
	struct brought all[THC_RANKS_MAX];
	char sentence[THC_SENTENCE_MAX];
	unsigned int n, i;

	(void)state;
	for (n = 1; n <= THC_RANKS_MAX; n++) {
		for (i = 0; i < n; i++)
			all[i] = usual;
		assert_int_equal(agree(all, n, n - 1, sentence), 0);
	}
}

/* Rank 2 of 4 differs: the others name it, and it names them. */
static void assert_named(struct brought odd, const char *theirs)
{
	struct brought all[4] = { usual, usual, odd, usual };
	char sentence[THC_SENTENCE_MAX];
	unsigned int self;

	for (self = 0; self < 4; self++) {
		assert_int_equal(agree(all, 4, self, sentence), -EBADMSG);
		assert_says(sentence, theirs);
		assert_says(sentence, "4096 fp32 values (table abcd1234, key 00000007)");
		assert_says(sentence, self == 2 ? "ranks 0, 1 and 3 disagree with this rank (2)" :
						  "rank 2 disagrees with this rank");
	}
}

static void agree__length(void **state)
{
	struct brought odd = usual;

	(void)state;
	odd.count = 4095;
	assert_named(odd, "4095 fp32 values");
	/* the same low half */
	odd.count = 4096 + (1ULL << 32);
	assert_named(odd, "4294971392 fp32 values");
}

static void agree__dtype(void **state)
{
	struct brought odd = usual;

	(void)state;
	odd.dtype = THC_BF16;
	assert_named(odd, "4096 bf16 values");
}

static void agree__table(void **state)
{
	struct brought odd = usual;

	(void)state;
	odd.table = 0x00c0ffee;
	assert_named(odd, "table 00c0ffee");
}

/* A rank that skipped or repeated a round brings another bucket's key. */
static void agree__round(void **state)
{
	struct brought odd = usual;

	(void)state;
	odd.key = 8;
	assert_named(odd, "key 00000008");
	/* keys that differ in their upper half only */
	odd.key = 7 | 5ULL << 32;
	assert_named(odd, "key 00000002");
}

static void agree__not_finite(void **state)
{
	struct brought all[4] = { usual, usual, usual, usual };
	char sentence[THC_SENTENCE_MAX];

	(void)state;
	all[1].status = THC_CLAIM_NOT_FINITE;
	assert_int_equal(agree(all, 4, 0, sentence), -EDOM);
	assert_says(sentence, "the gradient of rank 1 is not finite");
	assert_int_equal(agree(all, 4, 1, sentence), -EDOM);
	assert_says(sentence, "the gradient of this rank (1) is not finite");
	all[3].status = THC_CLAIM_NOT_FINITE;
	assert_int_equal(agree(all, 4, 0, sentence), -EDOM);
	assert_says(sentence, "ranks 1 and 3");
	/* whatever is not OK */
	all[1].status = THC_CLAIM_OK;
	all[3].status = 0x80;
	assert_int_equal(agree(all, 4, 0, sentence), -EDOM);
	assert_says(sentence, "rank 3");
}

/* Left out by a deadline, a rank is neither counted nor forgotten by itself. */
static void agree__absent(void **state)
{
	struct brought all[3] = { usual, usual, usual };
	char sentence[THC_SENTENCE_MAX];

	(void)state;
	all[2].absent = true;
	assert_int_equal(agree(all, 3, 0, sentence), 0);
	assert_int_equal(agree(all, 3, 2, sentence), 0);
	all[2].count = 5;
	assert_int_equal(agree(all, 3, 0, sentence), 0);
	assert_int_equal(agree(all, 3, 2, sentence), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agree__alike),	     cmocka_unit_test(agree__length),
		cmocka_unit_test(agree__dtype),	     cmocka_unit_test(agree__table),
		cmocka_unit_test(agree__round),	     cmocka_unit_test(agree__not_finite),
		cmocka_unit_test(agree__absent),
	};

	return cmocka_run_group_tests_name("agree", tests, NULL, NULL);
}
