// SPDX-License-Identifier: GPL-2.0
/*
 * The client and an aggregator that dies, comes back empty, or says strange
 * things: `thcd --software` killed in the middle of rounds, and an aggregator
 * that is a thread of this test and answers as each case wants.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <thc/aggregator/answer.h>
#include <thc/aggregator/lane.h>
#include <thc/key.h>

#include "ranks.h"

#define TRIES	200

#define JOB2	"job=1,ranks=2,reply=fanout"
#define KEY	7

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- thcd dies and comes back empty --------------------------------------- */

#define COUNT	200000
#define ROUNDS	8
#define LAST	4	/* round in which it dies */

/* Ranks and the one who kills meet here. */
static pthread_barrier_t dying, back;
static double spinning;

static const char *is_unchanged(const struct rank *r, const float *g, const float *copy,
				const float *kept)
{
	static float after[2][COUNT];

	if (memcmp(g, copy, COUNT * sizeof(*g)))
		return "the buffer was changed";
	if (thc_error_export(r->client, KEY, after[r->rank], COUNT) != COUNT ||
	    memcmp(after[r->rank], kept, COUNT * sizeof(*kept)))
		return "the error memory was changed";
	return NULL;
}

/* Rounds; in one of them rank 1 is late and the aggregator dies meanwhile. */
static void *survive(void *arg)
{
	struct rank *r = arg;
	float *g = malloc(COUNT * sizeof(*g)), *copy = make_gradient(r->rank, COUNT);
	float *kept = malloc(COUNT * sizeof(*kept));
	int error = open_client(r), round;
	const char *wrong = NULL;

	for (round = 0; !error && round < ROUNDS; round++) {
		memcpy(g, copy, COUNT * sizeof(*g));
		thc_error_export(r->client, KEY, kept, COUNT);
		if (round == LAST) {
			pthread_barrier_wait(&dying);
			if (r->rank)
				pthread_barrier_wait(&back);
		}
		error = thc_allreduce(r->client, g, COUNT, THC_FP32, KEY);
		if (round != LAST)
			continue;
		if (!r->rank)
			pthread_barrier_wait(&back);
		r->error = error;
		keep_error(r, error);
		wrong = error ? is_unchanged(r, g, copy, kept) : "the round succeeded";
		error = thc_client_rejoin(r->client);
		round--;
		pthread_barrier_wait(r->barrier);
		if (!wrong && !error && !r->rank) {
			spinning = -now(CLOCK_PROCESS_CPUTIME_ID);
			usleep(300000);
			spinning += now(CLOCK_PROCESS_CPUTIME_ID);
		}
		pthread_barrier_wait(r->barrier);
		if (wrong || error)
			break;
		memcpy(g, copy, COUNT * sizeof(*g));
		error = thc_allreduce(r->client, g, COUNT, THC_FP32, KEY);
		round = LAST;
	}
	if (!error && !wrong && nmse(g, r->ranks, COUNT) > 0.03)
		wrong = "the mean is wrong";
	if (error || wrong)
		snprintf(r->sentence, sizeof(r->sentence), "%s", wrong ? wrong : thc_last_error());
	if (error || wrong)
		r->error = 1;
	free(copy);
	return end_rank(r, kept, g);
}

/* Rank 0's agreement waits for rank 1 when the aggregator is killed; it is
 * away for @away_us and then knows nobody.
 */
static void check_restart(unsigned int away_us)
{
	struct daemon d = start_daemon(JOB2);
	struct rank ranks[2];
	pthread_barrier_t barrier;
	unsigned int i;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_barrier_init(&dying, NULL, 3);
	pthread_barrier_init(&back, NULL, 2);
	set_up_ranks(ranks, 2, d);
	for (i = 0; i < 2; i++) {
		ranks[i].barrier = &barrier;
		ranks[i].flags = THC_CLIENT_ERROR_FEEDBACK;
		ranks[i].timeout_ms = 20000; /* no rank waits so long: thcd comes back */
		pthread_create(&ranks[i].thread, NULL, survive, &ranks[i]);
	}
	pthread_barrier_wait(&dying);
	usleep(100000);
	kill(d.pid, SIGKILL);
	waitpid(d.pid, NULL, 0);
	usleep(away_us);
	d = start_daemon_on(d.port, JOB2);
	for (i = 0; i < 2; i++)
		pthread_join(ranks[i].thread, NULL);
	stop_daemon(d);
	for (i = 0; i < 2; i++) {
		if (ranks[i].error != -ECONNREFUSED && ranks[i].error != -ETIMEDOUT &&
		    ranks[i].error != -ESTALE)
			fail_msg("rank %u: %d: %s", i, ranks[i].error, ranks[i].sentence);
		/* it was away, or has already told of its new epoch */
		assert_true(strstr(ranks[i].sentence, "thcd") ||
			    strstr(ranks[i].sentence, "the aggregator restarted"));
		assert_non_null(strstr(ranks[i].sentence, "rejoin"));
	}
	/* an I/O thread that sleeps when there is nothing to do */
	assert_true(spinning < 0.15);
	pthread_barrier_destroy(&barrier);
	pthread_barrier_destroy(&dying);
	pthread_barrier_destroy(&back);
}

static void restart__ranks_are_told_and_go_on(void **state)
{
	(void)state;
	check_restart(500000);
}

/* Its first epoch is newer than its predecessor's all the same. */
static void restart__at_once(void **state)
{
	(void)state;
	check_restart(10000);
}

#define GONE_TIMEOUT_MS	60000

/* As long as it is away each packet is refused: that is said within a second
 * or two of a machine that has nothing else to do, not after the timeout.
 */
static void *reduce_alone(void *arg)
{
	struct rank *r = arg;
	float *g = make_gradient(r->rank, 5000);
	double began;
	int error = open_client(r);

	pthread_barrier_wait(r->barrier);
	if (!r->rank) {
		usleep(50000);
		stop_daemon(r->d);
		began = now(CLOCK_MONOTONIC);
		if (!error)
			error = thc_allreduce(r->client, g, 5000, THC_FP32, 0);
		keep_error(r, error);
		if (now(CLOCK_MONOTONIC) - began > GONE_TIMEOUT_MS / 1000 / 4)
			r->error = 1;
	}
	return end_rank(r, g, NULL);
}

static void gone__is_said_at_once(void **state)
{
	struct daemon d = start_daemon(JOB2);
	struct rank ranks[2];

	(void)state;
	set_up_ranks(ranks, 2, d);
	ranks[0].timeout_ms = GONE_TIMEOUT_MS;
	run_ranks(ranks, 2, reduce_alone);
	assert_int_equal(ranks[0].error, -ECONNREFUSED);
	assert_non_null(strstr(ranks[0].sentence, "thcd"));
}

static struct thc_client_options options_of(uint16_t port, uint16_t rank, uint32_t join_timeout_ms)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;

	o.aggregator = "127.0.0.1";
	o.port = port;
	o.job = 1;
	o.key = job_key;
	o.rank = rank;
	o.timeout_ms = 3000;
	o.join_timeout_ms = join_timeout_ms;
	return o;
}

/* A failed rejoin leaves a client that can be asked, rejoined and closed. */
static void gone__failed_rejoin_leaves_a_client(void **state)
{
	static const char job[] = "job=1,ranks=1,reply=fanout";
	struct thc_client_info info = { .size = sizeof(info) };
	struct daemon d = start_daemon(job);
	struct thc_client_options o = options_of(d.port, 0, 2000);
	struct thc_client *c = NULL;
	float g[4] = { 1, 2, 3, 4 };
	double cpu, seconds;

	(void)state;
	assert_int_equal(thc_client_open(&o, &c), 0);
	stop_daemon(d);
	seconds = -now(CLOCK_MONOTONIC);
	cpu = -now(CLOCK_PROCESS_CPUTIME_ID);
	assert_int_equal(thc_client_rejoin(c), -ECONNREFUSED);
	cpu += now(CLOCK_PROCESS_CPUTIME_ID);
	seconds += now(CLOCK_MONOTONIC);
	/* rejoin() sleeps between two JOINs; a slow machine makes both times longer */
	assert_true(cpu < seconds / 2);
	assert_int_equal(thc_client_info(c, &info), 0);
	assert_string_equal(info.simd, "none");
	assert_int_equal(thc_allreduce(c, g, 4, THC_FP32, 0), -ESTALE);
	d = start_daemon_on(d.port, job);
	assert_int_equal(thc_client_rejoin(c), 0);
	assert_int_equal(thc_allreduce(c, g, 4, THC_FP32, 0), 0);
	thc_client_close(c);
	stop_daemon(d);
}

/* --- joining -------------------------------------------------------------- */

/* Rank 0 gives up before rank 1 comes: rank 1 must not start with a ghost. */
static void join__who_gave_up_is_missing(void **state)
{
	struct daemon d = start_daemon(JOB2);
	struct thc_client_options first = options_of(d.port, 0, 2000);
	struct thc_client_options second = options_of(d.port, 1, 2000);
	struct thc_client *c = NULL;

	(void)state;
	assert_int_equal(thc_client_open(&first, &c), -ETIMEDOUT);
	assert_int_equal(thc_client_open(&second, &c), -ETIMEDOUT);
	assert_non_null(strstr(thc_last_error(), "rank 0 of job 1 did not join"));
	stop_daemon(d);
}

/* --- an aggregator that is a thread --------------------------------------- */

/**
 * struct fake - answers for two ranks, of which the other one does as this one
 * @v6: on ::1 instead of 127.0.0.1
 * @spoil: changes the WELCOME before it is sealed
 * @reserved: so many WELCOMEs have the header's reserved byte set
 * @bad_sums: so many after them have a wrong sum
 * @late: WELCOME comes once more, with the first answer
 * @epoch_offset: STALE|EPOCH with the client's epoch plus this comes before
 *	the first answer, if not 0
 * @hold: data is not answered as long as this is set
 * @left_from: WAIT with LEFT is the answer to rounds from this one on
 * @left_said: that happened
 * @ce: a contribution met congestion, its answer says
 */
struct fake {
	pthread_t thread;
	int fd;
	int stop;
	bool v6;
	uint16_t port;
	struct thc_job job;
	struct thc_table table;
	struct thc_pairs pairs;
	void (*spoil)(struct thc_welcome *w);
	unsigned int reserved;
	unsigned int bad_sums;
	int late;
	int epoch_offset;
	int hold;
	uint32_t left_from;
	int left_said;
	uint8_t ce;
};

#define FAKE_EPOCH	1000
#define FAKE_DATA_SLOTS	16
#define FAKE_NORM_SLOTS	4

static socklen_t fake_addrlen(const struct fake *f)
{
	return f->v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void fake_send(struct fake *f, const struct sockaddr_storage *to, const void *packet,
		      size_t bytes)
{
	sendto(f->fd, packet, bytes, 0, (const void *)to, fake_addrlen(f));
}

static void fake_welcome(struct fake *f, const struct sockaddr_storage *to, const struct thc_hdr *h,
			 const struct thc_join *join)
{
	struct {
		struct thc_hdr h;
		struct thc_welcome w;
	} p = {
		.h = {
			.version = THC_VERSION, .op = THC_OP_WELCOME, .cookie = h->cookie,
			.job = h->job, .rank = h->rank, .epoch = thc_be32(FAKE_EPOCH),
		},
		.w = {
			.joined = thc_be64(3), .nonce = join->nonce, .ranks = thc_be16(2),
			.quorum = thc_be16(2), .data_slots = thc_be16(FAKE_DATA_SLOTS),
			.norm_slots = thc_be16(FAKE_NORM_SLOTS), .chunk = thc_be16(THC_CHUNK_8),
			.granularity = thc_be16(f->table.granularity), .shards = thc_be16(1),
			.flags = THC_WELCOME_F_READY | THC_WELCOME_F_ONE_PORT,
			.reply = THC_REPLY_FANOUT, .bits = f->table.bits, .sum_width = 8,
			.block_log2 = 10, .family = 4,
			.table_hash = thc_be32(thc_table_hash(&f->table)),
		},
	};
	uint64_t clamp;
	int i;

	memcpy(&clamp, &f->table.t, sizeof(clamp));
	p.w.clamp = thc_be64(clamp);
	for (i = 0; i < 16; i++)
		p.w.table[i] = thc_be16(f->table.value[i]);
	if (f->spoil)
		f->spoil(&p.w);
	p.h.reserved = f->reserved > 0;
	p.h.sum = thc_be32(thc_sum_packet(&p.h, &p.w, sizeof(p.w) / 8));
	if (f->reserved)
		f->reserved--;
	else if (f->bad_sums && f->bad_sums--)
		p.h.sum ^= 1;
	fake_send(f, to, &p, sizeof(p));
}

static void fake_wait_left(struct fake *f, const struct sockaddr_storage *to, struct thc_hdr h)
{
	struct thc_version v = { .bitmap = 1, .count = 1 };
	struct thc_job job = f->job;

	job.left = 2;
	thc_answer_wait(&h, &job, &v);
	fake_send(f, to, &h, sizeof(h));
	__atomic_store_n(&f->left_said, 1, __ATOMIC_RELAXED);
}

static void fake_epoch(struct fake *f, const struct sockaddr_storage *to, struct thc_hdr h)
{
	struct thc_job job = f->job;

	job.epoch += (uint32_t)__atomic_exchange_n(&f->epoch_offset, 0, __ATOMIC_RELAXED);
	job.restarter = 1;
	thc_answer_epoch(&h, &job);
	fake_send(f, to, &h, sizeof(h));
}

/* The sum, as if the other rank had sent the same. */
static void fake_answer(struct fake *f, const struct sockaddr_storage *to, const struct thc_hdr *h,
			const void *payload)
{
	struct {
		struct thc_hdr h;
		u64 lanes[THC_LANE_WORDS];
	} p;
	enum thc_lane_kind kind = thc_lane_kind(h->op, h->width, 8, 0);
	struct thc_version v = {
		.bitmap = 3, .count = 2, .state = THC_FINISHED, .op = h->op,
		.width = thc_sum_bits(h->op, h->width, 8),
		.round = thc_be32(h->round), .chunk = thc_be32(h->chunk),
		.generation = thc_be32(h->generation), .ce = f->ce,
	};

	thc_lanes_add(kind, p.lanes, payload, &f->pairs, 1);
	thc_lanes_add(kind, p.lanes, payload, &f->pairs, 0);
	thc_answer_finish(&v, p.lanes);
	thc_answer_result(&p.h, &f->job, (struct thc_answer_at){ 1, thc_be16(h->slot), FAKE_EPOCH },
			  &v, 0, 0);
	fake_send(f, to, &p, sizeof(p));
}

static void fake_packet(struct fake *f, const struct sockaddr_storage *from, struct thc_hdr *h)
{
	if (h->op == THC_OP_JOIN) {
		fake_welcome(f, from, h, (void *)(h + 1));
		return;
	}
	if (h->op == THC_OP_LEAVE)
		return;
	if (__atomic_exchange_n(&f->late, 0, __ATOMIC_RELAXED))
		fake_welcome(f, from, h, &(struct thc_join){ .nonce = thc_be64(77) });
	if (__atomic_load_n(&f->epoch_offset, __ATOMIC_RELAXED))
		fake_epoch(f, from, *h);
	if (thc_be32(h->round) >= f->left_from)
		fake_wait_left(f, from, *h);
	else if (h->op != THC_OP_LUT_ADD || !__atomic_load_n(&f->hold, __ATOMIC_ACQUIRE))
		fake_answer(f, from, h, h + 1);
}

static void *fake_run(void *arg)
{
	union {
		struct thc_hdr h;
		uint8_t room[2048];
	} packet;
	struct fake *f = arg;
	struct pollfd p = { .fd = f->fd, .events = POLLIN };
	struct sockaddr_storage from;

	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		socklen_t len = sizeof(from);

		if (poll(&p, 1, 20) > 0 &&
		    recvfrom(f->fd, &packet, sizeof(packet), 0, (void *)&from, &len) >=
			    (ssize_t)sizeof(packet.h))
			fake_packet(f, &from, &packet.h);
	}
	return NULL;
}

static void fake_start(struct fake *f)
{
	struct sockaddr_in at4 = { .sin_family = AF_INET };
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6 };

	f->port = next_port();
	f->job = (struct thc_job){
		.cookie = thc_key_cookie(job_key, 1), .all = 3, .joined = 3, .active = 1,
		.epoch = FAKE_EPOCH, .ranks = 2, .sum_width = 8,
	};
	assert_int_equal(thc_table_choose(2, 8, &f->table), 0);
	thc_pairs_init(&f->pairs, f->table.value);
	at4.sin_port = htons(f->port);
	at4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	at6.sin6_port = htons(f->port);
	at6.sin6_addr = in6addr_loopback;
	f->fd = socket(f->v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->fd, f->v6 ? (void *)&at6 : (void *)&at4, fake_addrlen(f)), 0);
	assert_int_equal(pthread_create(&f->thread, NULL, fake_run, f), 0);
}

static void fake_stop(struct fake *f)
{
	__atomic_store_n(&f->stop, 1, __ATOMIC_RELAXED);
	pthread_join(f->thread, NULL);
	close(f->fd);
}

static void spoil_shards(struct thc_welcome *w)
{
	w->shards = thc_be16(2);
}

static void spoil_slots(struct thc_welcome *w)
{
	w->data_slots = 0;
}

static void spoil_many_slots(struct thc_welcome *w)
{
	w->data_slots = thc_be16(65535);
}

static void spoil_ranks(struct thc_welcome *w)
{
	w->ranks = 0;
}

static void spoil_chunk(struct thc_welcome *w)
{
	w->chunk = thc_be16(64);
}

static void spoil_table(struct thc_welcome *w)
{
	w->clamp = 0;
}

static void spoil_clamp(struct thc_welcome *w)
{
	const double huge = 1e300;
	uint64_t bits;

	memcpy(&bits, &huge, sizeof(bits));
	w->clamp = thc_be64(bits);
}
static void spoil_block(struct thc_welcome *w)
{
	w->block_log2 = 64;
}
static void spoil_width(struct thc_welcome *w)
{
	w->ranks = thc_be16(64);
}

static void set_group(struct thc_welcome *w, const char *group, uint16_t port)
{
	int v6 = !!strchr(group, ':');

	w->reply = THC_REPLY_MULTICAST;
	w->family = v6 ? 6 : 4;
	w->group_port = thc_be16(port);
	inet_pton(v6 ? AF_INET6 : AF_INET, group, w->group);
}

static void spoil_group(struct thc_welcome *w)
{
	set_group(w, "127.0.0.1", 20000);
}

static void spoil_group6(struct thc_welcome *w)
{
	set_group(w, "fe80::1", 20000);
}

static void spoil_group_port(struct thc_welcome *w)
{
	set_group(w, "239.1.2.3", 1023);
}

static void spoil_group_family(struct thc_welcome *w)
{
	set_group(w, "239.1.2.3", 20000);
	w->family = 6;
}

static void other_group(struct thc_welcome *w)
{
	set_group(w, "ff15::77", 20000);
}

static void strange__welcome_is_refused(void **state)
{
	static void (*const spoil[])(struct thc_welcome *) = {
		spoil_shards, spoil_slots, spoil_many_slots, spoil_ranks, spoil_chunk,
		spoil_table, spoil_width, spoil_group, spoil_group6, spoil_group_port,
		spoil_group_family, spoil_clamp, spoil_block,
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(spoil) / sizeof(*spoil); i++) {
		struct fake f = { .spoil = spoil[i], .left_from = UINT32_MAX };
		struct thc_client_options o;
		struct thc_client *c = NULL;

		fake_start(&f);
		o = options_of(f.port, 0, 2000);
		assert_int_equal(thc_client_open(&o, &c), -EPROTO);
		assert_non_null(strstr(thc_last_error(), "same version"));
		fake_stop(&f);
	}
}

static struct thc_client *open_fake(const struct fake *f)
{
	struct thc_client_options o = options_of(f->port, 0, 2000);
	struct thc_client *c = NULL;

	if (f->v6)
		o.aggregator = "::1";
	if (thc_client_open(&o, &c))
		fail_msg("%s", thc_last_error());
	return c;
}

/* A WELCOME with the header's reserved byte set, or a wrong sum, is no WELCOME. */
static void strange__welcome_is_dropped(void **state)
{
	struct fake f = { .reserved = 3, .bad_sums = 2, .left_from = UINT32_MAX };
	struct thc_client_stats stats = { .size = sizeof(stats) };
	struct thc_client_options o;
	struct thc_client *c;

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	assert_int_equal(thc_client_stats(c, &stats), 0);
	assert_int_equal(stats.foreign, 3);
	assert_int_equal(stats.bad_sum, 2);
	thc_client_close(c);
	fake_stop(&f);
	f = (struct fake){ .reserved = UINT32_MAX, .left_from = UINT32_MAX };
	fake_start(&f);
	o = options_of(f.port, 0, 300);
	assert_int_equal(thc_client_open(&o, &c), -EHOSTUNREACH);
	fake_stop(&f);
}

/* What an all-reduce with @f did to the client's window. */
static struct thc_client_stats reduce_once(struct fake *f, int tos)
{
	struct thc_client_stats stats = { .size = sizeof(stats) };
	struct thc_client *c;
	float *g = make_gradient(0, 5000);

	fake_start(f);
	assert_int_equal(f->v6 ? setsockopt(f->fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos)) :
				 setsockopt(f->fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)),
			 0);
	c = open_fake(f);
	if (thc_allreduce(c, g, 5000, THC_FP32, 0))
		fail_msg("%s", thc_last_error());
	assert_int_equal(thc_client_stats(c, &stats), 0);
	thc_client_close(c);
	fake_stop(f);
	free(g);
	return stats;
}

/* The network is slow, or a second JOIN was answered: no other program has sent that. */
static void strange__welcome_comes_late(void **state)
{
	struct fake f = { .late = 1, .left_from = UINT32_MAX };
	struct thc_client_stats stats;

	(void)state;
	stats = reduce_once(&f, 0);
	assert_int_equal(stats.foreign, 0);
	assert_true(stats.unexpected >= 1);
}

/* A worker over IPv4 cannot join a group of IPv6. It joins the job all the same. */
static void strange__group_of_the_other_version_is_not_joined(void **state)
{
	struct fake f = { .spoil = other_group, .left_from = UINT32_MAX };
	float *g = make_gradient(0, 5000);
	struct thc_client *c;

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	if (thc_allreduce(c, g, 5000, THC_FP32, 0))
		fail_msg("%s", thc_last_error());
	assert_true(nmse(g, 1, 5000) < 0.03);
	thc_client_close(c);
	fake_stop(&f);
	free(g);
}

/* The same where nothing was lost, which cuts the window, too: on a busy machine an answer
 * may come later than the client waits for it.
 */
static struct thc_client_stats reduce_marked(const struct fake *f, int tos)
{
	struct thc_client_stats stats;
	int i;

	for (i = 0; i < TRIES; i++) {
		struct fake fresh = *f;

		stats = reduce_once(&fresh, tos);
		if (!stats.retransmits)
			return stats;
	}
	fail_msg("%llu retransmits in the last of %d tries: this showed nothing",
		 (unsigned long long)stats.retransmits, TRIES);
	return stats;
}

/* ECN: a mark on the way up comes back in the header, one on the way down is
 * in the answer's own IP header; either cuts the window, nothing else does.
 */
static void check_marks(bool v6)
{
	enum { ECT0 = 2, CE = 3 };
	struct fake plain = { .v6 = v6, .left_from = UINT32_MAX }, up = plain, down = plain;
	struct thc_client_stats stats;

	stats = reduce_marked(&plain, ECT0);
	assert_int_equal(stats.window_cuts, 0);
	up.ce = 1;
	stats = reduce_marked(&up, ECT0);
	assert_true(stats.window_cuts > 0);
	stats = reduce_marked(&down, CE);
	assert_true(stats.window_cuts > 0);
}

static void congestion__marks_cut_the_window(void **state)
{
	(void)state;
	check_marks(false);
}

static void congestion__marks_cut_the_window_ipv6(void **state)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), error;

	(void)state;
	error = fd < 0 || bind(fd, (void *)&at, sizeof(at));
	close(fd);
	if (error) {
		print_message("# SKIP there is no ::1 here\n");
		skip();
	}
	check_marks(true);
}

/* A STALE of an earlier epoch that was long on its way ends nothing. */
static void strange__only_newer_epochs_end_this_one(void **state)
{
	struct fake f = { .epoch_offset = -1, .left_from = UINT32_MAX };
	struct thc_client *c;
	float *g = make_gradient(0, 5000);

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	if (thc_allreduce(c, g, 5000, THC_FP32, 0))
		fail_msg("%s", thc_last_error());
	assert_true(nmse(g, 1, 5000) < 0.03);
	__atomic_store_n(&f.epoch_offset, 1, __ATOMIC_RELAXED);
	assert_int_equal(thc_allreduce(c, g, 5000, THC_FP32, 0), -ESTALE);
	assert_non_null(strstr(thc_last_error(), "rank 1 restarted"));
	thc_client_close(c);
	fake_stop(&f);
	free(g);
}

/* The other rank leaves after the first of two all-reduces in flight: the
 * first one, of which answers are still missing here, succeeds nevertheless.
 */
static void strange__left_ends_only_what_lacks_the_rank(void **state)
{
	struct fake f = { .left_from = 1, .hold = 1 };
	struct thc_request *first, *second;
	struct thc_client *c;
	float *a = make_gradient(0, 5000), *b = make_gradient(0, 5000);
	int i;

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	assert_int_equal(thc_allreduce_start(c, a, 5000, THC_FP32, 0, &first), 0);
	assert_int_equal(thc_allreduce_start(c, b, 5000, THC_FP32, 1, &second), 0);
	for (i = 0; i < 6000 && !__atomic_load_n(&f.left_said, __ATOMIC_ACQUIRE); i++)
		usleep(10000);
	assert_int_equal(__atomic_load_n(&f.left_said, __ATOMIC_ACQUIRE), 1);
	usleep(100000);
	__atomic_store_n(&f.hold, 0, __ATOMIC_RELEASE);
	if (thc_allreduce_wait(first))
		fail_msg("%s", thc_last_error());
	assert_true(nmse(a, 1, 5000) < 0.03);
	assert_int_equal(thc_allreduce_wait(second), -EPIPE);
	assert_non_null(strstr(thc_last_error(), "rank 1"));
	thc_client_close(c);
	fake_stop(&f);
	free(a);
	free(b);
}

/* --- the process around it ------------------------------------------------ */

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
	(void)number;
	handled = 1;
}

/* A signal that the program's threads block is not taken by the library's. */
static void process__signals_are_not_taken(void **state)
{
	struct sigaction old, act = { .sa_handler = on_signal };
	struct fake f = { .left_from = UINT32_MAX };
	struct thc_client *c;
	sigset_t set, before;

	(void)state;
	sigaction(SIGUSR2, &act, &old);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, &before);
	fake_start(&f);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	c = open_fake(&f);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGUSR2);
	usleep(50000);
	assert_int_equal(handled, 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	assert_int_equal(handled, 1);
	sigaction(SIGUSR2, &old, NULL);
	thc_client_close(c);
	fake_stop(&f);
}

/* Bytes; a sanitizer's own count, too. */
static uint64_t data_in_use(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long long kib = 0;
	char line[128];

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmData: %llu kB", &kib) == 1)
			break;
	fclose(f);
	return kib << 10;
}

/* Three requests fail because the first one finds no memory: each has its own
 * sentence, in memory that is still there. Two before them are held until all
 * are started, for a client that has failed starts none.
 */
static void process__without_memory_all_requests_fail(void **state)
{
	struct fake f = { .left_from = UINT32_MAX, .hold = 1 };
	struct thc_request *r[5];
	struct rlimit old, limit;
	struct thc_client *c;
	float g[4] = { 0 };
	int i, error;

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	assert_int_equal(getrlimit(RLIMIT_DATA, &old), 0);
	limit = old;
	limit.rlim_cur = data_in_use() + (4ULL << 30);
	assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
	/* 16 GiB of regions; the buffer is not looked at before */
	for (i = 0; i < 5; i++)
		assert_int_equal(thc_allreduce_start(c, g, i == 2 ? UINT32_MAX : 4, THC_FP32,
						     (uint64_t)i, &r[i]),
				 0);
	__atomic_store_n(&f.hold, 0, __ATOMIC_RELEASE);
	for (i = 0; i < 5; i++) {
		error = thc_allreduce_wait(r[i]);
		/* the first makes room for the third, the second may be done by then */
		if (i == 0 || (i == 1 && !error)) {
			assert_int_equal(error, 0);
			continue;
		}
		assert_int_equal(error, -ENOMEM);
		assert_non_null(strstr(thc_last_error(), "4294967295 values"));
	}
	setrlimit(RLIMIT_DATA, &old);
	thc_client_close(c);
	fake_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(restart__ranks_are_told_and_go_on),
		cmocka_unit_test(restart__at_once),
		cmocka_unit_test(gone__is_said_at_once),
		cmocka_unit_test(gone__failed_rejoin_leaves_a_client),
		cmocka_unit_test(join__who_gave_up_is_missing),
		cmocka_unit_test(strange__welcome_is_refused),
		cmocka_unit_test(strange__welcome_is_dropped),
		cmocka_unit_test(strange__welcome_comes_late),
		cmocka_unit_test(strange__group_of_the_other_version_is_not_joined),
		cmocka_unit_test(strange__only_newer_epochs_end_this_one),
		cmocka_unit_test(strange__left_ends_only_what_lacks_the_rank),
		cmocka_unit_test(congestion__marks_cut_the_window),
		cmocka_unit_test(congestion__marks_cut_the_window_ipv6),
		cmocka_unit_test(process__signals_are_not_taken),
		cmocka_unit_test(process__without_memory_all_requests_fail),
	};

	return cmocka_run_group_tests_name("client_aggregator", tests, NULL, NULL);
}
