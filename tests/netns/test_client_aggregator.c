// SPDX-License-Identifier: GPL-2.0
/*
 * The client and an aggregator that dies, restarts empty, or misbehaves: `thcd --software` killed
 * in the middle of rounds, and a fake aggregator, a thread of this test that answers as each case
 * wants.
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

#include "../lib/welcome.h"
#include "ranks.h"

#define TRIES	200

#define JOB2	"job=1,ranks=2,reply=fanout,rate=fixed"
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

/* Ranks meet here with the thread that kills thcd. */
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

/* Runs rounds; in one of them rank 1 is late and thcd is killed meanwhile. */
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

/* thcd is killed while rank 0's agreement waits for rank 1, and restarts after @away_us without
 * knowing any rank.
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
	/* an idle I/O thread sleeps */
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

/* After an immediate restart the first epoch is still newer than the old one. */
static void restart__at_once(void **state)
{
	(void)state;
	check_restart(10000);
}

#define GONE_TIMEOUT_MS	60000

/* While thcd is away, every packet gets an ICMP error. The client fails within a second or two on
 * an idle machine, not after its timeout.
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
static void fail_and_rejoin(const char *job, float rate)
{
	struct thc_client_info info = { .size = sizeof(info) };
	struct daemon d = start_daemon(job);
	struct thc_client_options o = options_of(d.port, 0, 2000);
	struct thc_client *c = NULL;
	float g[4] = { 1, 2, 3, 4 };
	double cpu, seconds;

	o.rate = rate;
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

static void gone__failed_rejoin_leaves_a_client(void **state)
{
	(void)state;
	fail_and_rejoin("job=1,ranks=1,reply=fanout", 0);
	fail_and_rejoin("job=1,ranks=1,reply=fanout,rate=4", 0);
	fail_and_rejoin("job=1,ranks=1,reply=fanout,rate=auto", 4);
}

/* Of a child; the exit status, 0: it is told that the client is its parent's. */
static int call_in_child(struct thc_client *c)
{
	float g[4] = { 0 };

	if (thc_allreduce(c, g, 4, THC_FP32, 0) != -EINVAL ||
	    !strstr(thc_last_error(), "a client of the child's own"))
		return 1;
	return thc_client_rejoin(c) == -EINVAL ? 0 : 2;
}

/* A child closes its copy of rank 0's client while rank 1 waits for rank 0. */
static void *fork_and_close(void *arg)
{
	struct rank *r = arg;
	int error = open_client(r), status = 0;
	float *g = make_gradient(r->rank, 1000);
	pid_t pid;

	pthread_barrier_wait(r->barrier);
	if (!error && !r->rank) {
		/* if the child sent LEAVE, rank 1 would fail at once */
		usleep(100000);
		pid = fork();
		if (!pid) {
			/* kills the child if it hangs */
			alarm(20);
			status = call_in_child(r->client);
			thc_client_close(r->client);
			_exit(status);
		}
		waitpid(pid, &status, 0);
		usleep(300000);
	}
	if (!error)
		error = thc_allreduce(r->client, g, 1000, THC_FP32, 0);
	keep_error(r, error ? error : status);
	return end_rank(r, g, NULL);
}

static void fork__child_leaves_the_rank_to_its_parent(void **state)
{
	(void)state;
	run_well("job=1,ranks=2,reply=fanout", 2, fork_and_close);
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

#define FAKE_EPOCH	1000
#define FAKE_DATA_SLOTS	16
#define FAKE_NORM_SLOTS	4
/* Chunks of one stream whose answers are forged, or kept. */
#define FAKE_CHUNKS	16

/* The sum of a chunk as a packet. */
struct answer {
	struct thc_hdr	h;
	u64		lanes[THC_LANE_WORDS];
};

/* A session's answers of both streams, by chunk. */
struct answers {
	struct answer	of[2][FAKE_CHUNKS];
};

/* The STALE with EPOCH before the first answer names: */
enum end_said {
	END_NOT,
	END_OF_NO_EPOCH,	/* the client's own epoch */
	END_FOR_ANOTHER,	/* another request than the client's */
	END,
};

/**
 * struct fake - answers for two ranks, of which the other one does as this one
 * @v6: on ::1 instead of 127.0.0.1
 * @session: number of its first epoch behind FAKE_EPOCH, which has a salt of its own
 * @keyless: it has not the job's key, and welcomes a worker all the same
 * @spoil: changes the WELCOME before it is sealed
 * @refusals: so many WELCOMEs come after a REFUSED one that anybody could have made
 * @strange: so many WELCOMEs name another key
 * @bad_tags: so many after them have a wrong tag
 * @challenges: each JOIN is answered by another challenge until so many have come back
 * @mute: so many challenges get lost
 * @joins: JOINs that have come
 * @late: WELCOME comes once more, with the first answer
 * @end: enum end_said
 * @hold: data is not answered as long as this is set
 * @gap: the data chunk with this number has no answer; 0: all have
 * @left_from: WAIT with LEFT is the answer to rounds from this one on
 * @left_said: that happened
 * @ce: a contribution met congestion, its answer says
 * @forge: before each answer come forged ones, made from it and from the one before
 * @keep: where answers are kept
 * @replay: an earlier session's, which come before the answers
 * @forged: packets sent so
 * @answered: chunks that have had their answer, of either stream
 * @last: the answer before
 */
struct fake {
	pthread_t thread;
	int fd;
	int stop;
	bool v6;
	uint16_t port;
	uint32_t session;
	struct thc_job job;
	struct thc_seals seals;
	struct thc_member_key welcome;
	uint8_t salt[THC_SALT_BYTES];
	struct thc_table table;
	struct thc_pairs pairs;
	bool keyless;
	void (*spoil)(struct whole_welcome *w);
	unsigned int refusals;
	unsigned int strange;
	unsigned int bad_tags;
	unsigned int challenges;
	unsigned int mute;
	unsigned int joins;
	int late;
	int end;
	int hold;
	uint32_t gap;
	uint32_t left_from;
	int left_said;
	uint8_t ce;
	bool forge;
	struct answers *keep;
	const struct answers *replay;
	unsigned int forged;
	uint16_t answered[2];
	struct answer last;
};

static socklen_t fake_addrlen(const struct fake *f)
{
	return f->v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void fake_send(struct fake *f, const struct sockaddr_storage *to, const void *packet,
		      size_t bytes)
{
	sendto(f->fd, packet, bytes, 0, (const void *)to, fake_addrlen(f));
}

static struct thc_path path_from(const struct sockaddr_storage *from)
{
	const struct sockaddr_in6 *in6 = (const void *)from;
	const struct sockaddr_in *in = (const void *)from;
	struct thc_path path = { .ttl = THC_TTL };

	if (from->ss_family == AF_INET) {
		path.src = thc_addr_v4(in->sin_addr.s_addr);
		path.src_port = ntohs(in->sin_port);
	} else {
		memcpy(&path.src, &in6->sin6_addr, sizeof(path.src));
		path.src_port = ntohs(in6->sin6_port);
	}
	return path;
}

struct fake_welcome {
	struct thc_hdr		h;
	struct whole_welcome	p;
};

/* Sends @out, with @bytes behind its header, sealed by @key; NULL: without a key. */
static void fake_welcome_send(struct fake *f, const struct sockaddr_storage *to,
			      struct fake_welcome *out, size_t bytes,
			      const struct thc_member_key *key)
{
	static const struct thc_member_key none;
	struct thc_path path = path_from(to);
	struct thc_end end = { .addr = path.src, .port = thc_be16(path.src_port) };

	thc_member_seal(&out->h, key ? THC_SEAL_NH : THC_SEAL_SUM, key ? key : &none, &end, &out->p,
			(int)(bytes / 8));
	if (key && key->id == f->welcome.id && f->bad_tags) {
		f->bad_tags--;
		out->h.tag ^= thc_be64(1);
	}
	fake_send(f, to, out, sizeof(out->h) + bytes);
}

/* Refuses a job or key that it does not have, without secrets. */
static void fake_refuse(struct fake *f, const struct sockaddr_storage *to, const struct thc_hdr *h,
			const struct thc_join *join)
{
	struct fake_welcome out = {
		.h = { .version = THC_VERSION, .op = THC_OP_WELCOME, .job = h->job,
		       .rank = h->rank },
	};
	struct thc_welcome *w = &out.p.w;

	memcpy(w->nonce, join->nonce, sizeof(w->nonce));
	w->flags = thc_be16(THC_WELCOME_F_REFUSED);
	w->refusal = THC_REFUSED_JOB;
	w->parts = 1;
	w->version_max = THC_VERSION;
	fake_welcome_send(f, to, &out, sizeof(*w), NULL);
}

/* Describes the fake's job. */
static void fake_describe(const struct fake *f, struct whole_welcome *p)
{
	struct thc_welcome *w = &p->w;
	uint64_t clamp;
	int i;

	whole_welcome_init(p);
	w->joined = thc_be64(3);
	w->ranks = thc_be16(2);
	w->quorum = thc_be16(2);
	w->data_slots = thc_be16(FAKE_DATA_SLOTS);
	w->control_slots = thc_be16(FAKE_NORM_SLOTS);
	w->flags = thc_be16(THC_WELCOME_F_READY | THC_WELCOME_F_ONE_PORT);
	w->reply = THC_REPLY_FANOUT;
	p->seal.seal = f->keyless ? THC_SEAL_SUM : THC_SEAL_NH;
	memcpy(p->seal.salt, f->salt, sizeof(p->seal.salt));
	memcpy(&clamp, &f->table.t, sizeof(clamp));
	p->row.clamp = thc_be64(clamp);
	p->row.sum_width = 8;
	p->row.granularity = thc_be16(f->table.granularity);
	for (i = 0; i < 16; i++)
		p->level[i] = thc_be16(f->table.value[i]);
	p->scheme.block_log2 = 10;
	whole_welcome_hash(p);
}

static void fake_welcome(struct fake *f, const struct sockaddr_storage *to, const struct thc_hdr *h,
			 const struct thc_join *join)
{
	struct thc_member_key key = f->welcome;
	struct fake_welcome out = {
		.h = {
			.version = THC_VERSION, .op = THC_OP_WELCOME, .job = h->job,
			.rank = h->rank, .epoch = thc_be32(f->job.epoch),
		},
	};
	__be32 constants;

	fake_describe(f, &out.p);
	memcpy(out.p.w.nonce, join->nonce, sizeof(out.p.w.nonce));
	constants = out.p.w.constants;
	if (f->spoil)
		f->spoil(&out.p);
	/* computes `constants` anew unless @spoil has changed them */
	if (out.p.w.constants == constants)
		whole_welcome_hash(&out.p);
	if (f->refusals) {
		f->refusals--;
		fake_refuse(f, to, h, join);
	}
	if (f->strange) {
		f->strange--;
		key.id ^= thc_be32(1);
	}
	fake_welcome_send(f, to, &out, sizeof(out.p), f->keyless ? NULL : &key);
}

/* A JOIN without the last challenge gets the next one; false: it has that challenge. */
static bool fake_challenge(struct fake *f, const struct sockaddr_storage *to,
			   const struct thc_hdr *h, const struct thc_join *join)
{
	struct thc_path path = path_from(to);
	struct thc_end end = { .addr = path.src, .port = thc_be16(path.src_port) };
	struct {
		struct thc_hdr		h;
		struct thc_challenge	c;
	} p = {
		.h = { .version = THC_VERSION, .op = THC_OP_CHALLENGE, .job = h->job,
		       .rank = h->rank },
		.c = { .challenge = { (uint8_t)(join->challenge[0] + 1) } },
	};

	f->joins++;
	if (join->challenge[0] >= f->challenges)
		return false;
	if (f->mute) {
		f->mute--;
		return true;
	}
	memcpy(p.c.nonce, join->nonce, sizeof(p.c.nonce));
	thc_member_seal(&p.h, THC_SEAL_NH, &f->welcome, &end, &p.c, sizeof(p.c) / 8);
	fake_send(f, to, &p, sizeof(p));
	return true;
}

static void fake_wait_left(struct fake *f, const struct sockaddr_storage *to, struct thc_hdr h)
{
	struct thc_generation g = { .bitmap = 1, .count = 1 };
	struct thc_job job = f->job;

	job.left = 2;
	thc_answer_wait(&h, &job, &f->seals, &g);
	fake_send(f, to, &h, sizeof(h));
	__atomic_store_n(&f->left_said, 1, __ATOMIC_RELAXED);
}

static void fake_epoch(struct fake *f, const struct sockaddr_storage *to, struct thc_hdr h)
{
	enum end_said said = __atomic_exchange_n(&f->end, END_NOT, __ATOMIC_RELAXED);
	struct thc_path path = path_from(to);
	struct thc_job job = f->job;

	job.epoch += said != END_OF_NO_EPOCH;
	job.restarter = 1;
	if (said == END_FOR_ANOTHER)
		h.tag ^= thc_be64(1);
	thc_answer_epoch(&h, &job, &f->seals, &path);
	fake_send(f, to, &h, sizeof(h));
}

static void forge_send(struct fake *f, const struct sockaddr_storage *to, const struct answer *p)
{
	fake_send(f, to, p, sizeof(*p));
	/* a receiver that gets no CPU has room for some packets only */
	if (++f->forged % 256 == 0)
		usleep(2000);
}

/* @p with each bit changed, and with parts of the answer before. */
static void forge_from(struct fake *f, const struct sockaddr_storage *to, const struct answer *p)
{
	struct answer forged;
	size_t bit;

	for (bit = 0; bit < 8 * sizeof(*p); bit++) {
		forged = *p;
		((uint8_t *)&forged)[bit / 8] ^= (uint8_t)(1U << bit % 8);
		forge_send(f, to, &forged);
	}
	if (!f->last.h.version)
		return;
	forged = *p;
	memcpy(forged.lanes, f->last.lanes, sizeof(forged.lanes));
	forge_send(f, to, &forged);
	forged.h.tag = f->last.h.tag;
	forge_send(f, to, &forged);
	forged = f->last;
	forged.h.op = p->h.op;
	forged.h.round = p->h.round;
	forged.h.chunk = p->h.chunk;
	forged.h.slot = p->h.slot;
	forged.h.generation = p->h.generation;
	forge_send(f, to, &forged);
	forged = *p;
	forged.h.bitmap = thc_be64(1);
	forged.h.count = thc_be16(1);
	forge_send(f, to, &forged);
	forged.h.tag = 0;
	forge_send(f, to, &forged);
}

/* A recorded answer: unchanged, with this epoch's number, and with the name of its key. */
static void forge_again(struct fake *f, const struct sockaddr_storage *to, struct answer old,
			const struct answer *p)
{
	forge_send(f, to, &old);
	old.h.epoch = p->h.epoch;
	forge_send(f, to, &old);
	old.h.key_id = p->h.key_id;
	forge_send(f, to, &old);
}

/* Sends the packets that precede a chunk's first answer. */
static void forge(struct fake *f, const struct sockaddr_storage *to, const struct answer *p)
{
	int data = p->h.op == THC_OP_LUT_ADD;
	uint32_t chunk = thc_be32(p->h.chunk);

	if (chunk >= FAKE_CHUNKS || f->answered[data] & 1U << chunk)
		return;
	f->answered[data] |= (uint16_t)(1U << chunk);
	if (f->forge)
		forge_from(f, to, p);
	if (f->replay)
		forge_again(f, to, f->replay->of[data][chunk], p);
	if (f->keep)
		f->keep->of[data][chunk] = *p;
	f->last = *p;
}

/* Sends the sum as if the other rank had sent equal data. */
static void fake_answer(struct fake *f, const struct sockaddr_storage *to, const struct thc_hdr *h,
			const void *payload)
{
	struct answer p;
	enum thc_lane_kind kind = thc_lane_kind(h->op, h->width, thc_job_row(&f->job, h->width));
	struct thc_generation g = {
		.bitmap = 3, .count = 2, .state = THC_FINISHED, .op = h->op,
		.width = thc_sum_bits(h->op, h->width, 8),
		.round = thc_be32(h->round), .chunk = thc_be32(h->chunk),
		.number = thc_be32(h->generation), .ce = f->ce,
	};

	thc_lanes_add(kind, p.lanes, payload, &f->pairs, thc_be16(h->rank), 1);
	thc_lanes_add(kind, p.lanes, payload, &f->pairs, thc_be16(h->rank), 0);
	thc_answer_finish(&g, p.lanes, &f->seals, f->job.epoch);
	thc_answer_result(&p.h, &f->seals,
			  (struct thc_answer_at){ 1, thc_be16(h->slot), f->job.epoch }, &g, 0, 0);
	forge(f, to, &p);
	fake_send(f, to, &p, sizeof(p));
}

static void fake_packet(struct fake *f, const struct sockaddr_storage *from, struct thc_hdr *h)
{
	if (h->op == THC_OP_JOIN) {
		if (!fake_challenge(f, from, h, (void *)(h + 1)))
			fake_welcome(f, from, h, (void *)(h + 1));
		return;
	}
	if (h->op == THC_OP_LEAVE)
		return;
	if (__atomic_exchange_n(&f->late, 0, __ATOMIC_RELAXED))
		fake_welcome(f, from, h, &(struct thc_join){ .nonce = { 77 } });
	if (__atomic_load_n(&f->end, __ATOMIC_RELAXED) != END_NOT)
		fake_epoch(f, from, *h);
	if (f->gap && h->op == THC_OP_LUT_ADD && thc_be32(h->chunk) == f->gap)
		return;
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

static void fake_keys(struct fake *f)
{
	uint32_t epoch = f->job.epoch;

	memset(f->salt, (int)epoch, sizeof(f->salt));
	f->seals.seal = THC_SEAL_NH;
	thc_seal_key_set(&f->seals.down[epoch & 1], job_key, THC_KEY_DOWN, 1, f->salt);
	thc_member_key_derive(&f->seals.lost, job_key, THC_KEY_LOST, 1);
	thc_member_key_derive(&f->welcome, job_key, THC_KEY_WELCOME, 1);
}

/* All fakes share a table, since computing it takes long. */
static struct thc_table fake_table(void)
{
	static const struct thc_table_wish wish = {
		.size = sizeof(wish), .bits = 4, .ranks = 2, .width = 8,
	};
	static struct thc_table t;

	if (!t.granularity)
		assert_int_equal(thc_table_choose(&wish, &t), 0);
	return t;
}

static void fake_start(struct fake *f)
{
	struct sockaddr_in at4 = { .sin_family = AF_INET };
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6 };
	f->port = next_port();
	f->job = (struct thc_job){
		.all = 3, .joined = 3, .active = 1, .epoch = FAKE_EPOCH + f->session, .ranks = 2,
		.widths.sum[3] = 8,
	};
	fake_keys(f);
	f->table = fake_table();
	thc_pairs_init(&f->pairs, f->table.value, 4);
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

static void spoil_shards(struct whole_welcome *p)
{
	p->w.shards = thc_be16(2);
}

static void spoil_slots(struct whole_welcome *p)
{
	p->w.data_slots = 0;
}

static void spoil_many_slots(struct whole_welcome *p)
{
	p->w.data_slots = thc_be16(65535);
}

static void spoil_ranks(struct whole_welcome *p)
{
	p->w.ranks = 0;
}

static void spoil_sums(struct whole_welcome *p)
{
	p->row.sum_width = 12;
}

static void spoil_table(struct whole_welcome *p)
{
	p->row.clamp = 0;
}

static void spoil_clamp(struct whole_welcome *p)
{
	const double huge = 1e300;
	uint64_t bits;

	memcpy(&bits, &huge, sizeof(bits));
	p->row.clamp = thc_be64(bits);
}
static void spoil_block(struct whole_welcome *p)
{
	p->scheme.block_log2 = 64;
}
static void spoil_width(struct whole_welcome *p)
{
	p->w.ranks = thc_be16(64);
}

static void spoil_features(struct whole_welcome *p)
{
	p->w.features = thc_be32(0x8000);
}

static void spoil_scheme(struct whole_welcome *p)
{
	p->scheme.scheme = 99;
}

static void spoil_granularity(struct whole_welcome *p)
{
	p->row.granularity = thc_be16(1);
}

/* An unknown record that a worker must know. */
static void spoil_record(struct whole_welcome *p)
{
	p->scheme.head.type = 77;
}

/* The hash in `constants` is wrong. */
static void spoil_constants(struct whole_welcome *p)
{
	p->w.constants ^= thc_be32(1);
}

static void set_group(struct whole_welcome *p, const char *group, uint16_t port)
{
	int v6 = !!strchr(group, ':');

	p->w.reply = THC_REPLY_MULTICAST;
	p->group.at.family = v6 ? 6 : 4;
	p->group.at.port = thc_be16(port);
	inet_pton(v6 ? AF_INET6 : AF_INET, group, p->group.at.addr);
}

static void spoil_group(struct whole_welcome *p)
{
	set_group(p, "127.0.0.1", 20000);
}

static void spoil_group6(struct whole_welcome *p)
{
	set_group(p, "fe80::1", 20000);
}

static void spoil_group_port(struct whole_welcome *p)
{
	set_group(p, "239.1.2.3", 1023);
}

static void spoil_group_family(struct whole_welcome *p)
{
	set_group(p, "239.1.2.3", 20000);
	p->group.at.family = 6;
}

/* A worker with a key refuses a seal without one, even in a WELCOME sealed by the key. */
static void spoil_seal(struct whole_welcome *p)
{
	p->seal.seal = THC_SEAL_SUM;
}

static void spoil_seal_of_later_versions(struct whole_welcome *p)
{
	p->seal.seal = THC_SEAL_NH + 1;
}

static void other_group(struct whole_welcome *p)
{
	set_group(p, "ff15::77", 20000);
}

static void strange__welcome_is_refused(void **state)
{
	static void (*const spoil[])(struct whole_welcome *) = {
		spoil_shards, spoil_slots, spoil_many_slots, spoil_ranks, spoil_sums,
		spoil_table, spoil_width, spoil_group, spoil_group6, spoil_group_port,
		spoil_group_family, spoil_clamp, spoil_block, spoil_seal,
		spoil_seal_of_later_versions, spoil_features, spoil_scheme, spoil_granularity,
		spoil_record, spoil_constants,
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
		assert_int_equal(!!strstr(thc_last_error(), "scheme 99"), spoil[i] == spoil_scheme);
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

/* A WELCOME with another key's name, or a wrong tag, is no WELCOME. */
static void strange__welcome_is_dropped(void **state)
{
	struct fake f = { .strange = 3, .bad_tags = 2, .left_from = UINT32_MAX };
	struct thc_client_stats stats = { .size = sizeof(stats) };
	struct thc_client_options o;
	struct thc_client *c;

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	assert_int_equal(thc_client_stats(c, &stats), 0);
	assert_int_equal(stats.foreign, 3);
	assert_int_equal(stats.bad_tag, 2);
	thc_client_close(c);
	fake_stop(&f);
	f = (struct fake){ .strange = UINT32_MAX, .left_from = UINT32_MAX };
	fake_start(&f);
	o = options_of(f.port, 0, 300);
	assert_int_equal(thc_client_open(&o, &c), -EHOSTUNREACH);
	fake_stop(&f);
}

/* An aggregator without the job's key has no effect, not even for a moment. */
static void strange__keyless_welcome_is_dropped(void **state)
{
	struct fake f = { .keyless = true, .left_from = UINT32_MAX };
	struct thc_client_options o;
	struct thc_client *c = NULL;

	(void)state;
	fake_start(&f);
	o = options_of(f.port, 0, 3000);
	assert_int_equal(thc_client_open(&o, &c), -EHOSTUNREACH);
	fake_stop(&f);
}

/* A forged refusal does not stop a worker: the aggregator's WELCOME counts. */
static void strange__refusal_is_doubted(void **state)
{
	struct fake f = { .refusals = UINT32_MAX, .bad_tags = 4, .left_from = UINT32_MAX };
	struct thc_client *c;

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	thc_client_close(c);
	fake_stop(&f);
}

static double ms_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The fastest of several joins, in ms; *@joins: its number of JOINs. */
static double join_ms(struct fake like, unsigned int *joins)
{
	double best = 1e9;
	int i;

	for (i = 0; i < 20; i++) {
		struct fake f = like;
		struct thc_client *c;
		double start, took;

		fake_start(&f);
		start = ms_now();
		c = open_fake(&f);
		took = ms_now() - start;
		thc_client_close(c);
		fake_stop(&f);
		if (took < best) {
			best = took;
			*joins = f.joins;
		}
	}
	return best;
}

/* A challenge costs one more JOIN, at once; a lost challenge costs the time until the next JOIN;
 * endless challenges get four answers per JOIN of the timer.
 */
static void challenge__costs_a_round_trip(void **state)
{
	const struct fake plain = { .left_from = UINT32_MAX };
	double without, with, lost;
	struct thc_client_options o;
	struct thc_client *c = NULL;
	unsigned int joins;
	struct fake f;

	(void)state;
	without = join_ms(plain, &joins);
	assert_int_equal(joins, 1);
	f = plain;
	f.challenges = 1;
	with = join_ms(f, &joins);
	assert_int_equal(joins, 2);
	f.mute = 1;
	lost = join_ms(f, &joins);
	assert_int_equal(joins, 3);
	print_message("# a join takes %.2f ms, %.2f with a challenge, %.2f if one is lost\n",
		      without, with, lost);
	/* each wait for the timer takes at least 20 ms */
	assert_true(with < without + 20);
	assert_true(lost >= 20);
	f = plain;
	f.challenges = 5;
	assert_true(join_ms(f, &joins) >= 20);
	assert_in_range(joins, 6, 7);
	f = plain;
	f.challenges = UINT32_MAX;
	fake_start(&f);
	o = options_of(f.port, 0, 190);
	assert_int_equal(thc_client_open(&o, &c), -EHOSTUNREACH);
	fake_stop(&f);
	assert_in_range(f.joins, 20, 50);
}

/* Statistics of a client after an all-reduce with @f. */
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

/* A late WELCOME, for a slow network or a second JOIN, is not counted as foreign. */
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

/* The statistics of a run without losses, which cut the window, too: on a busy machine an answer
 * may come too late.
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

/* ECN: a mark on the way up comes back in the header, a mark on the way down in the answer's IP
 * header; each cuts the window, and nothing else does.
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

/* A STALE of the client's own epoch, or for a request that is not in flight, ends nothing. */
static void strange__only_another_epoch_ends_this_one(void **state)
{
	struct fake f = { .end = END_OF_NO_EPOCH, .left_from = UINT32_MAX };
	struct thc_client_stats stats = { .size = sizeof(stats) };
	struct thc_client *c;
	float *g = make_gradient(0, 5000);
	int i;

	(void)state;
	fake_start(&f);
	c = open_fake(&f);
	if (thc_allreduce(c, g, 5000, THC_FP32, 0))
		fail_msg("%s", thc_last_error());
	assert_true(nmse(g, 1, 5000) < 0.03);
	/* on a busy machine the STALE may come by another CPU, after the answer */
	for (i = 0; i < TRIES && !stats.bad_tag; i++) {
		__atomic_store_n(&f.end, END_FOR_ANOTHER, __ATOMIC_RELAXED);
		if (thc_allreduce(c, g, 5000, THC_FP32, 0))
			fail_msg("%s", thc_last_error());
		assert_int_equal(thc_client_stats(c, &stats), 0);
	}
	assert_int_equal(stats.bad_tag, 1);
	__atomic_store_n(&f.end, END, __ATOMIC_RELAXED);
	assert_int_equal(thc_allreduce(c, g, 5000, THC_FP32, 0), -ESTALE);
	assert_non_null(strstr(thc_last_error(), "rank 1 restarted"));
	thc_client_close(c);
	fake_stop(&f);
	free(g);
}

/* --- answers that the aggregator has not made ----------------------------- */

#define FORGED		100000
#define FORGED_COUNT	10240	/* ten chunks of data, and two of scales and agreement */

/* The result and statistics of a client in @f's session. */
static struct thc_client_stats reduce_beside(struct fake *f, unsigned int rank_of_gradient,
					     float *g)
{
	struct thc_client_stats stats = { .size = sizeof(stats) };
	float *from = make_gradient(rank_of_gradient, FORGED_COUNT);
	struct thc_client_options o;
	struct thc_client *c;

	memcpy(g, from, FORGED_COUNT * sizeof(*g));
	free(from);
	f->left_from = UINT32_MAX;
	fake_start(f);
	o = options_of(f->port, 0, 20000);
	o.timeout_ms = 60000;
	if (thc_client_open(&o, &c) || thc_allreduce(c, g, FORGED_COUNT, THC_FP32, 0))
		fail_msg("%s", thc_last_error());
	assert_int_equal(thc_client_stats(c, &stats), 0);
	thc_client_close(c);
	fake_stop(f);
	return stats;
}

/* Forged answers come from the aggregator's own socket, each before the answer that it is made
 * from, as if the forger knew all but the tag. The client refuses every one that it receives.
 */
static void forged__answers_are_not_believed(void **state)
{
	static float want[FORGED_COUNT], g[FORGED_COUNT];
	uint64_t refused = 0, sent = 0;
	struct fake plain = { .end = END_NOT };

	(void)state;
	reduce_beside(&plain, 0, want);
	while (refused < FORGED) {
		struct fake f = { .forge = true };
		struct thc_client_stats s = reduce_beside(&f, 0, g);

		assert_memory_equal(g, want, sizeof(g));
		assert_true(s.bad_tag > s.foreign && s.bad_tag + s.foreign <= f.forged);
		assert_int_equal(s.partial + s.excluded + s.waits, 0);
		refused += s.bad_tag + s.foreign;
		sent += f.forged;
	}
	print_message("# %llu of %llu forged packets came and were refused\n",
		      (unsigned long long)refused, (unsigned long long)sent);
}

/* Answers of the job's session before, to another gradient, with equal chunks, rounds and ranks. */
static void forged__answers_of_an_earlier_session_are_not_believed(void **state)
{
	static float want[FORGED_COUNT], g[FORGED_COUNT];
	static struct answers answers;
	struct fake plain = { .session = 1 }, first = { .keep = &answers };
	struct fake second = { .session = 1, .replay = &answers };
	struct thc_client_stats s;

	(void)state;
	reduce_beside(&plain, 0, want);
	reduce_beside(&first, 1, g);
	assert_memory_not_equal(g, want, sizeof(g));
	s = reduce_beside(&second, 0, g);
	assert_memory_equal(g, want, sizeof(g));
	assert_true(second.forged >= 3 * 12);
	/* two of three name the old key */
	assert_int_equal(s.foreign, second.forged / 3 * 2);
	assert_int_equal(s.bad_tag, second.forged / 3);
}

/* The other rank leaves after the first of two all-reduces in flight: the first one succeeds,
 * although this client still waits for its answers.
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

/* --- what had been decoded when it failed ---------------------------------- */

#define UNDO_COUNT	5000	/* five chunks, the last one not full */
#define UNDO_GAP	7	/* in the middle of the second all-reduce */

static uint64_t chunks_answered(const struct thc_client *c)
{
	struct thc_client_stats stats = { .size = sizeof(stats) };

	assert_int_equal(thc_client_stats(c, &stats), 0);
	return stats.chunks;
}

/* The second of two all-reduces has all sums but one, and fails by its timeout or by closing the
 * client. Its buffer gets its old values back.
 */
static void check_undone(enum thc_dtype dtype, bool closed)
{
	static uint8_t first[UNDO_COUNT * 4], g[UNDO_COUNT * 4], copy[UNDO_COUNT * 4];
	struct fake f = { .left_from = UINT32_MAX, .gap = UNDO_GAP };
	size_t bytes = UNDO_COUNT * (dtype == THC_FP32 ? 4 : 2), i;
	struct thc_client_options o;
	struct thc_request *r;
	struct thc_client *c;
	uint64_t chunks;

	fake_start(&f);
	o = options_of(f.port, 0, 2000);
	o.timeout_ms = closed ? 60000 : 1000;
	if (thc_client_open(&o, &c))
		fail_msg("%s", thc_last_error());
	/* for every type these bits are small numbers */
	for (i = 0; i < bytes; i++)
		first[i] = g[i] = copy[i] = (uint8_t)(i % 4 % 2 ? 0x2f : i * 37 >> 2);
	if (thc_allreduce(c, first, UNDO_COUNT, dtype, 0))
		fail_msg("%s", thc_last_error());
	assert_memory_not_equal(first, copy, bytes);
	chunks = chunks_answered(c);
	assert_int_equal(thc_allreduce_start(c, g, UNDO_COUNT, dtype, 0, &r), 0);
	for (i = 0; i < 6000 && chunks_answered(c) < 2 * chunks - 1; i++)
		usleep(10000);
	assert_int_equal(chunks_answered(c), 2 * chunks - 1);
	if (closed)
		thc_client_close(c);
	assert_int_equal(thc_allreduce_wait(r), closed ? -ECANCELED : -ETIMEDOUT);
	assert_memory_equal(g, copy, bytes);
	if (!closed)
		thc_client_close(c);
	fake_stop(&f);
}

static void undone__after_most_answers(void **state)
{
	static const enum thc_dtype dtype[] = { THC_FP32, THC_FP16, THC_BF16 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(dtype) / sizeof(*dtype); i++) {
		check_undone(dtype[i], false);
		check_undone(dtype[i], true);
	}
}

/* --- the process around it ------------------------------------------------ */

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
	(void)number;
	handled = 1;
}

/* The library's threads do not take signals that the program's threads block. */
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

/* The first of three requests finds no memory, so all fail, each with its own sentence in memory
 * that is still valid. Two requests before them are held until all have started, for a failed
 * client starts none; the one that ends first makes room for the third, and the other may have
 * ended by then.
 */
static void process__without_memory_all_requests_fail(void **state)
{
	struct fake f = { .left_from = UINT32_MAX, .hold = 1 };
	struct thc_request *r[5];
	struct rlimit old, limit;
	struct thc_client *c;
	float g[4] = { 0 };
	int i, error, done = 0;

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
		if (i < 2 && !error) {
			done++;
			continue;
		}
		assert_int_equal(error, -ENOMEM);
		assert_non_null(strstr(thc_last_error(), "4294967295 values"));
	}
	assert_in_range(done, 1, 2);
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
		cmocka_unit_test(fork__child_leaves_the_rank_to_its_parent),
		cmocka_unit_test(join__who_gave_up_is_missing),
		cmocka_unit_test(strange__welcome_is_refused),
		cmocka_unit_test(strange__welcome_is_dropped),
		cmocka_unit_test(strange__keyless_welcome_is_dropped),
		cmocka_unit_test(strange__refusal_is_doubted),
		cmocka_unit_test(challenge__costs_a_round_trip),
		cmocka_unit_test(strange__welcome_comes_late),
		cmocka_unit_test(strange__group_of_the_other_version_is_not_joined),
		cmocka_unit_test(strange__only_another_epoch_ends_this_one),
		cmocka_unit_test(forged__answers_are_not_believed),
		cmocka_unit_test(forged__answers_of_an_earlier_session_are_not_believed),
		cmocka_unit_test(strange__left_ends_only_what_lacks_the_rank),
		cmocka_unit_test(undone__after_most_answers),
		cmocka_unit_test(congestion__marks_cut_the_window),
		cmocka_unit_test(congestion__marks_cut_the_window_ipv6),
		cmocka_unit_test(process__signals_are_not_taken),
		cmocka_unit_test(process__without_memory_all_requests_fail),
	};

	return cmocka_run_group_tests_name("client_aggregator", tests, NULL, NULL);
}
