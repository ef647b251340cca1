// SPDX-License-Identifier: GPL-2.0
/*
 * All-reduces of scheme none by hand: two ranks use AF_THC sockets as Documentation/protocol.md
 * says, without libthc; a third rank of the job is libthc over UDP. For integers, floats in fixed
 * point, and exact floats all three ranks get the bits of a sum that the test computes itself.
 * Ranks that bring different things learn which rank differs and in what. af_thc(7) shows
 * exchange() and agree() as they are here.
 */
#include "afthc.h"
#include "harness.h"
#include "knownjob.h"

#include <libthc.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>

#include "../exactmean.h"

#define RANKS		3U
#define BLOCK		4096U
#define BLOCKS		3U
/* The last block has a few values, and so has its last chunk. */
#define COUNT		((BLOCKS - 1) * BLOCK + 17)
#define SCHEME_THC	0U
#define SCHEME_NONE	1U
#define BIAS		512
/* Bits of a 32-bit lane that no rank may use: the sign, and two for the sum of three ranks. */
#define SPARE_BITS	3U
#define KEY		0x500000007ULL
/* Digits of an exact value here, in any block. */
#define DIGITS_MAX	4U
#define CHUNKS_MAX	(DIGITS_MAX * (COUNT / 256 + 1))

/**
 * struct bucket - what a rank brings to a round
 * @precision: 0 for exact floats, else the bits of fixed point
 * @scheme: SCHEME_NONE, or a wrong scheme that a rank brings
 */
struct bucket {
	enum thc_dtype	dtype;
	unsigned int	precision;
	unsigned int	scheme;
};

/**
 * struct hand - a rank that does all by hand
 * @constants: of WELCOME
 * @digest: of the results of even and of odd rounds
 * @other: a rank whose claim differs, and @theirs, that claim
 */
struct hand {
	int			fd;
	unsigned int		rank;
	uint32_t		round;
	uint32_t		constants;
	uint32_t		digest[2];
	unsigned int		other;
	struct thc_claim	theirs;
};

/* --- a message, and an agreement ------------------------------------------- */

/* Sends whole chunks of lanes, and returns their sums in their place. */
static int exchange(struct hand *h, const struct thc_send *send, void *lanes, size_t bytes)
{
	union {
		struct cmsghdr	header;
		char		room[CMSG_SPACE(sizeof(struct thc_received))];
	} control = { 0 };
	uint16_t counts[CHUNKS_MAX];	/* of the ranks in each chunk's sum */
	struct iovec part[] = { { lanes, bytes }, { counts, sizeof(counts) } };
	struct msghdr msg = { .msg_iov = part, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = CMSG_SPACE(sizeof(*send)) };
	struct thc_received sums;

	control.header = (struct cmsghdr){ CMSG_LEN(sizeof(*send)), SOL_THC, THC_SEND };
	memcpy(CMSG_DATA(&control.header), send, sizeof(*send));
	if (sendmsg(h->fd, &msg, MSG_NOSIGNAL) < 0)
		return -errno;
	msg.msg_iovlen = 2;
	msg.msg_controllen = sizeof(control);
	if (recvmsg(h->fd, &msg, 0) < 0)
		return -errno;
	memcpy(&sums, CMSG_DATA(&control.header), sizeof(sums));
	if (send->op != THC_OP_CLAIM)
		h->digest[h->round & 1] += sums.digest;
	return 0;
}

/* Sends this rank's claim to the others, and compares theirs with it. */
static int agree(struct hand *h, uint32_t count, uint32_t dtype, uint32_t scheme,
		 uint32_t precision, uint64_t key)
{
	struct thc_send send = { .op = THC_OP_CLAIM, .width = 32, .round = h->round };
	struct thc_claim claims[THC_CLAIM_WORKERS] = { 0 };
	struct thc_claim mine = {
		.count_lo = htole32(count),
		.form = htole32((dtype + 1) | scheme << 8),
		.constants = htole32(h->constants),
		.tag = htole32((uint32_t)(key ^ key >> 32)),
		.call = htole32(precision),
		.digest = htole32(h->digest[h->round & 1]),	/* of two rounds ago */
	};
	int error;

	h->digest[h->round & 1] = 0;
	claims[h->rank] = mine;
	error = exchange(h, &send, claims, sizeof(claims));
	if (error)
		return error;
	for (h->other = 0; h->other < RANKS; h->other++) {
		h->theirs = claims[h->other];
		if (memcmp(&h->theirs, &mine, sizeof(mine)))
			return -EBADMSG;	/* h->other brought h->theirs */
	}
	return 0;
}

/* --- what is brought ------------------------------------------------------- */

static uint64_t mixed(unsigned int rank, size_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ULL + (rank + 1) * 0xbf58476d1ce4e5b9ULL;

	x ^= x >> 30;
	x *= 0x94d049bb133111ebULL;
	return x ^ x >> 29;
}

static size_t size_of(enum thc_dtype dtype)
{
	return dtype == THC_INT8 ? 1 : dtype == THC_INT16 ? 2 : 4;
}

/* Block 0 has values wide apart, block 1 zeros, the others values close together. */
static float float_at(unsigned int rank, size_t i)
{
	uint64_t x = mixed(rank, i);
	float mantissa = (float)(int32_t)(x >> 40) / (1 << 20);

	if (i / BLOCK == 1 || x % 7 == 0)
		return 0;
	return ldexpf(x & 128 ? mantissa : -mantissa, i / BLOCK ? 0 : (int)(x >> 8 & 63) - 60);
}

static void *make_bucket(unsigned int rank, const struct bucket *b)
{
	uint8_t *values = calloc(COUNT, 4);
	size_t i;

	for (i = 0; i < COUNT; i++) {
		uint64_t integer = htole64(mixed(rank, i));
		float f = float_at(rank, i);

		memcpy(values + i * size_of(b->dtype),
		       b->dtype == THC_FP32 ? (void *)&f : (void *)&integer, size_of(b->dtype));
	}
	return values;
}

/* --- by hand --------------------------------------------------------------- */

static size_t whole_chunks(size_t bytes)
{
	return (bytes + THC_LANE_BYTES - 1) / THC_LANE_BYTES * THC_LANE_BYTES;
}

/* Integers are sent and returned unchanged. */
static int sum_integers(struct hand *h, enum thc_dtype dtype, void *values)
{
	size_t bytes = COUNT * size_of(dtype);
	struct thc_send send = { .op = THC_OP_ADD, .width = (uint8_t)(8 * size_of(dtype)),
				 .round = h->round };
	uint8_t *lanes = calloc(1, whole_chunks(bytes));
	int error;

	memcpy(lanes, values, bytes);
	error = exchange(h, &send, lanes, whole_chunks(bytes));
	memcpy(values, lanes, bytes);
	free(lanes);
	return error;
}

static size_t block_end(size_t block)
{
	return (block + 1) * BLOCK < COUNT ? (block + 1) * BLOCK : COUNT;
}

/* Measures a block for the MAX lanes: its values are below 2^*@top and multiples of 2^*@low. */
static bool measure(const float *x, size_t block, int *top, int *low)
{
	bool any = false;
	size_t i;

	for (i = block * BLOCK; i < block_end(block); i++) {
		int exponent, last = 0;
		int32_t mantissa;

		if (x[i] == 0)
			continue;
		mantissa = (int32_t)ldexpf(frexpf(x[i], &exponent), 24);
		while (!(mantissa >> last & 1))
			last++;
		if (!any || exponent > *top)
			*top = exponent;
		if (!any || exponent - 24 + last < *low)
			*low = exponent - 24 + last;
		any = true;
	}
	return any;
}

/* Gets each block's scale, the maximum over all ranks: one lane per block, two for exact values. */
static int scale(struct hand *h, const float *x, bool exact, uint32_t *lanes)
{
	struct thc_send send = { .op = THC_OP_MAX, .width = 32, .round = h->round };
	unsigned int each = exact ? 2 : 1;
	size_t block;

	memset(lanes, 0, THC_LANE_BYTES);
	for (block = 0; block < BLOCKS; block++) {
		int top, low;

		if (!measure(x, block, &top, &low))
			continue;
		lanes[block * each] = htole32((uint32_t)(BIAS + top));
		if (exact)
			lanes[block * each + 1] = htole32((uint32_t)(BIAS - low));
	}
	return exchange(h, &send, lanes, THC_LANE_BYTES);
}

/* The integer @sum times 2^@exponent. */
static void add_integer(struct exact_sum *s, int32_t sum, int exponent)
{
	big_add(sum < 0 ? &s->negative : &s->positive, (uint32_t)llabs((long long)sum), exponent);
}

static float mean_of(const struct exact_sum *s)
{
	uint32_t bits = exact_bits(s, RANKS, THC_FP32);
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static int32_t signed_lane(const uint8_t *at, unsigned int bytes)
{
	uint32_t v = lane_of(at, bytes), sign = 1U << (8 * bytes - 1);

	return (int32_t)((v ^ sign) - sign);
}

/* @x in fixed point, in a lane of which a rank may use @bits. */
static int32_t fixed_point(float x, unsigned int bits, int top)
{
	double q = rint(ldexp(x, (int)bits - top)), most = ldexp(1, (int)bits) - 1;

	return (int32_t)(q > most ? most : q < -most ? -most : q);
}

static int mean_of_fixed(struct hand *h, unsigned int width, float *x)
{
	struct thc_send send = { .op = THC_OP_ADD, .width = (uint8_t)width, .round = h->round };
	size_t bytes = whole_chunks(COUNT * width / 8), i;
	unsigned int bits = width - SPARE_BITS;
	uint8_t *lanes = calloc(1, bytes);
	uint32_t tops[THC_LANE_BYTES / 4];
	int error = scale(h, x, false, tops);

	for (i = 0; i < COUNT && !error; i++) {
		uint32_t top = le32toh(tops[i / BLOCK]), q;

		q = htole32(top ? (uint32_t)fixed_point(x[i], bits, (int)top - BIAS) : 0);
		memcpy(lanes + i * width / 8, &q, width / 8);
	}
	if (!error)
		error = exchange(h, &send, lanes, bytes);
	for (i = 0; i < COUNT && !error; i++) {
		uint32_t top = le32toh(tops[i / BLOCK]);
		struct exact_sum s = { 0 };

		add_integer(&s, signed_lane(lanes + i * width / 8, width / 8),
			    (int)top - BIAS - (int)bits);
		x[i] = top ? mean_of(&s) : 0;
	}
	free(lanes);
	return error;
}

/* Digits of a block's values to the base 2^29, and the exponent of their lowest bit. */
static unsigned int digits_of(const uint32_t *scales, size_t block, int *low)
{
	int top = (int)le32toh(scales[2 * block]) - BIAS;
	unsigned int bits = 32 - SPARE_BITS;

	*low = BIAS - (int)le32toh(scales[2 * block + 1]);
	return scales[2 * block] ? ((unsigned int)(top - *low) + bits - 1) / bits : 0;
}

/* Digit @d of the value's magnitude, with the value's sign. */
static int32_t digit_of(float x, int low, unsigned int d)
{
	__int128 magnitude = (__int128)ldexp(fabs((double)x), -low);
	int32_t digit =
		(int32_t)(magnitude >> d * (32 - SPARE_BITS) & ((1 << (32 - SPARE_BITS)) - 1));

	return x < 0 ? -digit : digit;
}

/* 256 values take neighbouring chunks, one per digit, lowest digits first. */
static int mean_exactly(struct hand *h, float *x)
{
	struct thc_send send = { .op = THC_OP_ADD, .width = 32, .round = h->round };
	uint8_t *lanes = calloc(CHUNKS_MAX, THC_LANE_BYTES), *at;
	uint32_t scales[THC_LANE_BYTES / 4];
	int error = scale(h, x, true, scales), low;
	unsigned int digits, d;
	size_t i, chunk;

	for (i = 0, at = lanes; i < COUNT && !error; i++) {
		digits = digits_of(scales, i / BLOCK, &low);
		if (digits > DIGITS_MAX)
			error = -EOVERFLOW;
		for (d = 0; d < digits && !error; d++) {
			uint32_t lane = htole32((uint32_t)digit_of(x[i], low, d));

			memcpy(at + d * THC_LANE_BYTES + i % 256 * 4, &lane, 4);
		}
		if (i % 256 == 255 || i == COUNT - 1)
			at += digits * THC_LANE_BYTES;
	}
	if (!error)
		error = exchange(h, &send, lanes, (size_t)(at - lanes));
	for (chunk = 0, at = lanes; chunk * 256 < COUNT && !error; chunk++) {
		digits = digits_of(scales, chunk * 256 / BLOCK, &low);
		for (i = chunk * 256; i < COUNT && i < (chunk + 1) * 256; i++) {
			struct exact_sum s = { 0 };

			for (d = 0; d < digits; d++)
				add_integer(&s,
					    signed_lane(at + d * THC_LANE_BYTES + i % 256 * 4, 4),
					    (int)(d * (32 - SPARE_BITS)) + low);
			x[i] = mean_of(&s);
		}
		at += digits * THC_LANE_BYTES;
	}
	free(lanes);
	return error;
}

static int reduce_by_hand(struct hand *h, const struct bucket *b, void *values)
{
	int error = agree(h, COUNT, (uint32_t)b->dtype, b->scheme, b->precision, KEY);

	if (!error && b->dtype != THC_FP32)
		error = sum_integers(h, b->dtype, values);
	else if (!error && b->precision)
		error = mean_of_fixed(h, b->precision, values);
	else if (!error)
		error = mean_exactly(h, values);
	h->round++;
	return error;
}

/* --- what it has to be ----------------------------------------------------- */

/* The power of two above a block's values of all ranks. */
static int top_of(size_t block)
{
	float x[COUNT];
	int most = INT_MIN, top, low;
	unsigned int rank;
	size_t i;

	for (rank = 0; rank < RANKS; rank++) {
		for (i = 0; i < COUNT; i++)
			x[i] = float_at(rank, i);
		if (measure(x, block, &top, &low) && top > most)
			most = top;
	}
	return most;
}

static void expect_floats(const struct bucket *b, float *mean)
{
	unsigned int bits = b->precision - SPARE_BITS, rank;
	int top = 0;
	size_t i;

	for (i = 0; i < COUNT; i++) {
		struct exact_sum s = { 0 };

		if (i % BLOCK == 0)
			top = top_of(i / BLOCK);
		for (rank = 0; rank < RANKS && top != INT_MIN; rank++) {
			float x = float_at(rank, i);
			uint32_t as_bits;

			memcpy(&as_bits, &x, 4);
			if (b->precision)
				add_integer(&s, fixed_point(x, bits, top), top - (int)bits);
			else
				exact_add(&s, as_bits, THC_FP32);
		}
		mean[i] = mean_of(&s);
	}
}

static void expect(const struct bucket *b, void *sums)
{
	size_t size = size_of(b->dtype), i;

	if (b->dtype == THC_FP32) {
		expect_floats(b, sums);
		return;
	}
	for (i = 0; i < COUNT; i++) {
		uint64_t sum = htole64(mixed(0, i) + mixed(1, i) + mixed(2, i));

		memcpy((uint8_t *)sums + i * size, &sum, size);
	}
}

/* --- ranks ----------------------------------------------------------------- */

#define BUCKETS_MAX	8

/**
 * struct rank - a thread, and what it got
 * @bucket: its buckets; scheme 0 is thc
 * @h: state by hand; rank 0, which is libthc, has none
 */
struct rank {
	unsigned int		number;
	pthread_t		thread;
	struct bucket		bucket[BUCKETS_MAX];
	unsigned int		buckets;
	void			*values[BUCKETS_MAX];
	int			error[BUCKETS_MAX];
	char			sentence[512];
	unsigned int		other;
	struct thc_claim	theirs;
};

static void *run_by_hand(void *arg)
{
	struct rank *r = arg;
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, (uint8_t)r->number);
	struct hand h = { .fd = thc_open(0), .rank = r->number };
	struct known_job job;
	unsigned int k;

	if (connect(h.fd, (void *)&a, sizeof(a)) || know_job(h.fd, &job)) {
		r->error[0] = -errno;
		return NULL;
	}
	h.constants = job.spec.constants;
	for (k = 0; k < r->buckets; k++) {
		r->error[k] = reduce_by_hand(&h, &r->bucket[k], r->values[k]);
		if (r->error[k] != -EBADMSG)
			continue;
		r->other = h.other;
		r->theirs = h.theirs;
	}
	close(h.fd);
	return NULL;
}

static int reduce_by_libthc(struct thc_client *c, const struct bucket *b, void *values)
{
	struct thc_call call = THC_CALL_INIT;
	struct thc_request *request;
	int error;

	call.scheme = b->scheme == SCHEME_NONE ? "none" : NULL;
	call.precision = (enum thc_precision)b->precision;
	call.key = KEY;
	error = thc_allreduce_call_start(c, values, COUNT, b->dtype, &call, &request);
	return error ? error : thc_allreduce_wait(request);
}

static void *run_libthc(void *arg)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	struct rank *r = arg;
	struct thc_client *c;
	unsigned int k;

	o.aggregator = "127.0.0.1";
	o.port = PORT;
	o.job = 1;
	o.key = job_key;
	o.transport = THC_TRANSPORT_UDP;
	r->error[0] = thc_client_open(&o, &c);
	if (!r->error[0]) {
		for (k = 0; k < r->buckets; k++)
			r->error[k] = reduce_by_libthc(c, &r->bucket[k], r->values[k]);
		thc_client_close(c);
	}
	snprintf(r->sentence, sizeof(r->sentence), "%s", thc_last_error());
	return NULL;
}

/* Runs all ranks; @ranks says which buckets each brings. */
static void run(struct rank *ranks)
{
	unsigned int i, k;

	for (i = 0; i < RANKS; i++) {
		ranks[i].number = i;
		for (k = 0; k < ranks[i].buckets; k++)
			ranks[i].values[k] = make_bucket(i, &ranks[i].bucket[k]);
		pthread_create(&ranks[i].thread, NULL, i ? run_by_hand : run_libthc, &ranks[i]);
	}
	for (i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
}

static bool is_right(const struct rank *r, unsigned int k)
{
	void *wanted = calloc(COUNT, 4);
	bool right;

	expect(&r->bucket[k], wanted);
	right = !memcmp(wanted, r->values[k], COUNT * size_of(r->bucket[k].dtype));
	free(wanted);
	return right;
}

AFTHC_FIXTURE(none)

TEST_F_TIMEOUT(none, by_hand_and_by_libthc, 60)
{
	static const struct bucket all[] = {
		{ THC_INT32, 0, SCHEME_NONE },	{ THC_FP32, 0, SCHEME_NONE },
		{ THC_INT8, 0, SCHEME_NONE },	{ THC_FP32, 8, SCHEME_NONE },
		{ THC_FP32, 32, SCHEME_NONE },	{ THC_INT16, 0, SCHEME_NONE },
		{ THC_FP32, 16, SCHEME_NONE },	{ THC_FP32, 0, SCHEME_NONE },
	};
	static struct rank ranks[RANKS];
	unsigned int i, k;

	_Static_assert(sizeof(all) / sizeof(*all) <= BUCKETS_MAX, "room");
	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "3", NULL), 0);
	for (i = 0; i < RANKS; i++) {
		ranks[i].buckets = sizeof(all) / sizeof(*all);
		memcpy(ranks[i].bucket, all, sizeof(all));
	}
	run(ranks);
	for (i = 0; i < RANKS; i++) {
		for (k = 0; k < ranks[i].buckets; k++) {
			EXPECT_EQ(ranks[i].error[k], 0)
			TH_LOG("rank %u, bucket %u: %s", i, k, ranks[i].sentence);
			EXPECT_TRUE(is_right(&ranks[i], k)) TH_LOG("rank %u, bucket %u", i, k);
		}
	}
}

/* Rank 2 brings another bucket in the first round; in the second round all ranks agree. */
static void disagree(struct rank *ranks, struct bucket usual, struct bucket odd)
{
	unsigned int i;

	memset(ranks, 0, RANKS * sizeof(*ranks));
	for (i = 0; i < RANKS; i++) {
		ranks[i].buckets = 2;
		ranks[i].bucket[0] = i == 2 ? odd : usual;
		ranks[i].bucket[1] = (struct bucket){ THC_INT32, 0, SCHEME_NONE };
	}
	run(ranks);
}

#define EXPECT_DISAGREEMENT(ranks)                                            \
	do {                                                                  \
		for (i = 0; i < RANKS; i++) {                                 \
			EXPECT_EQ((ranks)[i].error[0], -EBADMSG);             \
			EXPECT_EQ((ranks)[i].error[1], 0);                    \
			EXPECT_TRUE(is_right(&(ranks)[i], 1));                \
		}                                                             \
		/* the rank that differs */                                   \
		EXPECT_EQ((ranks)[1].other, 2);                               \
		EXPECT_EQ((ranks)[2].other, 0);                               \
		EXPECT_NE(strstr((ranks)[0].sentence, "rank 2 disagrees"), NULL) \
		TH_LOG("%s", (ranks)[0].sentence); \
	} while (0)

TEST_F_TIMEOUT(none, who_brings_another_scheme_is_named, 60)
{
	static const struct bucket usual = { THC_FP32, 0, SCHEME_NONE };
	static struct rank ranks[RANKS];
	unsigned int i;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "3", NULL), 0);
	disagree(ranks, usual, (struct bucket){ THC_FP32, 0, SCHEME_THC });
	EXPECT_DISAGREEMENT(ranks);
	/* and its claim */
	EXPECT_EQ(le32toh(ranks[1].theirs.form) >> 8 & 0xff, SCHEME_THC);
	EXPECT_EQ(le32toh(ranks[2].theirs.form) >> 8 & 0xff, SCHEME_NONE);
	EXPECT_NE(strstr(ranks[0].sentence, "rank 2 brought 8209 fp32 values (scheme thc, "), NULL)
	TH_LOG("%s", ranks[0].sentence);
}

TEST_F_TIMEOUT(none, who_brings_another_precision_is_named, 60)
{
	static const struct bucket usual = { THC_FP32, 8, SCHEME_NONE };
	static struct rank ranks[RANKS];
	unsigned int i;

	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "3", NULL), 0);
	disagree(ranks, usual, (struct bucket){ THC_FP32, 16, SCHEME_NONE });
	EXPECT_DISAGREEMENT(ranks);
	EXPECT_EQ(le32toh(ranks[1].theirs.call), 16);
	EXPECT_EQ(le32toh(ranks[2].theirs.call), 8);
	EXPECT_NE(strstr(ranks[0].sentence, "it brought 8209 fp32 values (scheme none, 8 bits, "),
		  NULL)
	TH_LOG("%s", ranks[0].sentence);
	EXPECT_NE(strstr(ranks[0].sentence,
			 "rank 2 brought 8209 fp32 values (scheme none, 16 bits, "),
		  NULL)
	TH_LOG("%s", ranks[0].sentence);
}

TEST_HARNESS_MAIN
