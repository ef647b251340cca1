// SPDX-License-Identifier: GPL-2.0
/*
 * The agreement that opens a round: the claims of several ranks side by side, as the aggregator's
 * maximum makes them, and what one rank concludes. Without sockets; tests/netns/ tests how claims
 * reach other ranks.
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
#include "scheme.h"

#define TABLE	0xabcd1234U

/* What one rank brings to the round. */
struct brought {
	size_t		count;
	enum thc_dtype	dtype;
	uint32_t	table;
	uint64_t	key;
	int		status;
	bool		absent;
	uint32_t	digest;		/* digest of round ROUND - 2 */
	uint32_t	missed;
	unsigned int	precision;
	uint32_t	chosen;
	const struct thc_scheme *scheme;	/* NULL: thc */
};

#define ROUND	5

static const struct brought usual = {
	.count = 4096, .dtype = THC_FP32, .table = TABLE, .key = 7, .digest = 0xd16e57,
};

#define LANES	(THC_LANE_BYTES / 4)

/* The lanes in the packets of @r's phase @phase. */
static const uint32_t *lanes_of(const struct thc_request *r, unsigned int phase)
{
	return (const void *)((const struct thc_hdr *)r->claim[phase] + 1);
}

/* Makes rank @rank's claim about @b. */
static void claim(struct thc_request *r, unsigned int rank, const struct brought *b)
{
	r->client->options.rank = (uint16_t)rank;
	r->client->spec.constants = b->table;
	r->count = b->count;
	r->dtype = b->dtype;
	r->key = b->key;
	r->precision = b->precision;
	r->chosen = b->chosen;
	r->scheme = b->scheme ? b->scheme : &thc_scheme_thc;
	r->claim_status = b->status;
	r->client->results[r->round & 1] =
		(struct thc_results){ r->round - 2, b->digest, b->missed };
	thc_agree_claim(r);
}

/* The agreement as @self sees it when rank r brings @all[r]. */
static int agree(const struct brought *all, unsigned int ranks, unsigned int self, char *sentence)
{
	uint32_t sum[THC_AGREEMENT_PHASES][LANES] = { 0 };
	struct thc_client c = { .spec.ranks = (uint16_t)ranks };
	struct thc_request r = { .client = &c, .scheme = &thc_scheme_thc, .round = ROUND };
	unsigned int rank, i, k;
	int error;

	thc_agree_prepare(&r);
	for (rank = 0; rank < ranks; rank++) {
		claim(&r, rank, &all[rank]);
		for (k = 0; k < THC_AGREEMENT_PHASES && !all[rank].absent; k++)
			for (i = 0; i < LANES; i++)
				if (thc_le32(lanes_of(&r, k)[i]) > thc_le32(sum[k][i]))
					sum[k][i] = lanes_of(&r, k)[i];
	}
	/* the last claim stays in the packet: that of @self */
	claim(&r, self, &all[self]);
	for (k = 0; k < THC_AGREEMENT_PHASES; k++) {
		assert_int_equal(r.phases.phase[k].sized, k == 0 || ranks > 32);
		if (!r.phases.phase[k].sized)
			continue;
		r.phases.phase[k].answered = 1;
		/* the last answer completes the agreement */
		assert_int_equal(thc_agree_answered(&r, k, sum[k]), k == (ranks > 32));
	}
	error = thc_agree_check(&r);
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

/* A rank's claim is in its own eight lanes of its own packet, and nowhere else. */
static void agree__lanes_of_a_rank(void **state)
{
	struct thc_client c = { .spec.ranks = 64 };
	struct thc_request r = { .client = &c, .scheme = &thc_scheme_thc, .round = ROUND };
	struct brought b = {
		.count = 0x1122334455667788ULL, .dtype = THC_BF16, .table = TABLE,
		.key = 9 | 1ULL << 32, .status = 1, .digest = 0xd16e57, .precision = 16,
		.scheme = &thc_scheme_none,
	};
	/* values as in protocol.md */
	uint32_t want[] = { 0x55667788, 0x33440103, TABLE, 8, 16, 0xd16e57, 0, 1 };
	unsigned int rank, k, i;

	(void)state;
	for (rank = 0; rank < 64; rank++) {
		/* a rank that has missed results claims no digest */
		b.missed = want[6] = rank % 2 * 3;
		want[5] = rank % 2 ? 0 : 0xd16e57;
		claim(&r, rank, &b);
		for (k = 0; k < THC_AGREEMENT_PHASES; k++)
			for (i = 0; i < LANES; i++)
				assert_int_equal(
					thc_le32(lanes_of(&r, k)[i]),
					k == rank / 32 && i / 8 == rank % 32 ? want[i % 8] : 0);
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
		assert_says(sentence,
			    "4096 fp32 values (scheme thc, table abcd1234, key 00000007)");
		assert_says(sentence, self == 2 ? "ranks 0, 1 and 3 disagree with this rank (2)" :
						  "rank 2 disagrees with this rank");
	}
}

/* A rank of the upper half differs. */
static void agree__rank_above_31(void **state)
{
	struct brought all[40];
	char sentence[THC_SENTENCE_MAX];
	unsigned int i;

	(void)state;
	for (i = 0; i < 40; i++)
		all[i] = usual;
	all[39].count = 1;
	for (i = 0; i < 40; i++) {
		assert_int_equal(agree(all, 40, i, sentence), -EBADMSG);
		if (i < 39)
			assert_says(sentence, "rank 39 disagrees with this rank");
	}
}

static void agree__length(void **state)
{
	struct brought odd = usual;

	(void)state;
	odd.count = 4095;
	assert_named(odd, "4095 fp32 values");
	/* with an equal lower half */
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

static void agree__scheme(void **state)
{
	struct brought odd = usual;

	(void)state;
	odd.scheme = &thc_scheme_none;
	assert_named(odd, "4096 fp32 values (scheme none, exact, table");
	odd.precision = THC_FIXED_16;
	assert_named(odd, "4096 fp32 values (scheme none, 16 bits, table");
	/* integers have no precision to choose */
	odd.precision = 0;
	odd.dtype = THC_INT8;
	assert_named(odd, "4096 int8 values (scheme none, table");
}

/* The choice of a rate, by its hash; 0: no choice. */
static void agree__rate(void **state)
{
	struct brought all[3] = { usual, usual, usual };
	char sentence[THC_SENTENCE_MAX];

	(void)state;
	all[0].chosen = all[2].chosen = 0xabcde;
	assert_int_equal(agree(all, 3, 0, sentence), -EBADMSG);
	assert_says(sentence, "rank 1 disagrees with this rank (0)");
	assert_says(sentence, "scheme thc, rate abcde,");
	all[1].chosen = 0xabcdf;
	assert_int_equal(agree(all, 3, 1, sentence), -EBADMSG);
	assert_says(sentence, "it brought 4096 fp32 values (scheme thc, rate abcdf,");
	all[1].chosen = 0xabcde;
	assert_int_equal(agree(all, 3, 1, sentence), 0);
}

static void agree__precision(void **state)
{
	struct brought odd = usual;

	(void)state;
	odd.precision = THC_FIXED_8;
	assert_named(odd, "4096 fp32 values (scheme thc, 8 bits, table");
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
	/* any status but OK */
	all[1].status = THC_CLAIM_OK;
	all[3].status = 0x80;
	assert_int_equal(agree(all, 4, 0, sentence), -EDOM);
	assert_says(sentence, "rank 3");
}

static void agree__other_results(void **state)
{
	struct brought all[4] = { usual, usual, usual, usual };
	char sentence[THC_SENTENCE_MAX];
	unsigned int self;

	(void)state;
	all[2].digest = 1;
	for (self = 0; self < 4; self++) {
		assert_int_equal(agree(all, 4, self, sentence), -EBADMSG);
		assert_says(sentence, self == 2 ? "ranks 0, 1 and 3 hold other results" :
						  "rank 2 holds other results");
		assert_says(sentence, "of round 3 than this rank");
	}
	/* a difference is reported before a status */
	all[0].status = THC_CLAIM_NOT_FINITE;
	assert_int_equal(agree(all, 4, 1, sentence), -EBADMSG);
}

/* A rank that has missed results is compared with no other, but learns whether the others differ.
 */
static void agree__results_that_were_missed(void **state)
{
	struct brought all[4] = { usual, usual, usual, usual };
	char sentence[THC_SENTENCE_MAX];
	unsigned int self;

	(void)state;
	all[0].missed = 2;
	all[0].digest = 77;
	for (self = 0; self < 4; self++)
		assert_int_equal(agree(all, 4, self, sentence), 0);
	all[3].digest = 1;
	for (self = 0; self < 4; self++)
		assert_int_equal(agree(all, 4, self, sentence), -EBADMSG);
	agree(all, 4, 0, sentence);
	assert_says(sentence, "rank 3 holds other results of round 3 than rank 1:");
	/* a single digest cannot be compared */
	all[1].missed = all[2].missed = 1;
	for (self = 0; self < 4; self++)
		assert_int_equal(agree(all, 4, self, sentence), 0);
	all[3].missed = 1;
	for (self = 0; self < 4; self++)
		assert_int_equal(agree(all, 4, self, sentence), 0);
}

/* Digests are of two rounds before; those of the first two rounds cover no results. */
static void agree__results_of_which_round(void **state)
{
	struct thc_client c = { .spec.ranks = 1 };
	struct thc_request r = { .client = &c, .scheme = &thc_scheme_thc };
	const uint16_t counts[] = { 1, THC_COUNT_EXCLUDED, 1 | THC_COUNT_EXCLUDED };
	const uint32_t *lanes = lanes_of(&r, 0);

	(void)state;
	for (r.round = 0; r.round < 2; r.round++) {
		thc_agree_claim(&r);
		assert_int_equal(lanes[5], 0);
		thc_agree_results(&r, counts, 1, 100 + (uint32_t)r.round);
		thc_agree_results(&r, counts, 1, 1000);
	}
	thc_agree_claim(&r);
	assert_int_equal(thc_le32(lanes[5]), 1100);
	assert_int_equal(lanes[6], 0);
	/* a rank misses sums that are gone, but not sums without this rank */
	thc_agree_results(&r, counts, 3, 5);
	r.round = 3;
	thc_agree_claim(&r);
	assert_int_equal(thc_le32(lanes[5]), 1101);
	r.round = 4;
	thc_agree_claim(&r);
	assert_int_equal(lanes[5], 0);
	assert_int_equal(thc_le32(lanes[6]), 1);
	/* round 3 ended in its agreement */
	r.round = 5;
	thc_agree_claim(&r);
	assert_int_equal(lanes[5], 0);
	assert_int_equal(lanes[6], 0);
	/* another rank's claim differs */
	c.spec.ranks = 2;
	r.round = 1;
	thc_agree_claim(&r);
	memcpy(&r.claims[0], lanes, sizeof(r.claims[0]));
	r.claims[1] = r.claims[0];
	assert_int_equal(thc_agree_check(&r), 0);
	r.claims[1].digest = 1;
	assert_int_equal(thc_agree_check(&r), -EBADMSG);
	assert_says(r.sentence, "rank 1 claims results of a round before the first one");
}

/* A rank that a deadline left out is not counted, but it counts itself. */
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
		cmocka_unit_test(agree__lanes_of_a_rank),
		cmocka_unit_test(agree__other_results),
		cmocka_unit_test(agree__results_that_were_missed),
		cmocka_unit_test(agree__results_of_which_round),
		cmocka_unit_test(agree__rank_above_31),
		cmocka_unit_test(agree__dtype),	     cmocka_unit_test(agree__table),
		cmocka_unit_test(agree__scheme),     cmocka_unit_test(agree__precision),
		cmocka_unit_test(agree__rate),
		cmocka_unit_test(agree__round),	     cmocka_unit_test(agree__not_finite),
		cmocka_unit_test(agree__absent),
	};

	return cmocka_run_group_tests_name("agree", tests, NULL, NULL);
}
