// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes libthc with what comes from the network: WELCOME while it joins, answers while
 * it reduces. Client, engine, transport and codec are the library's; sockets, clock and
 * threads are this file's, so an input means the same on every machine. The aggregator
 * is honest, or changes what it sends, before the packet is sealed or after; packets come
 * twice, late, from other ports, or are bytes without a meaning.
 *
 * A model, written from the protocol's description, says of each packet whether a worker
 * has to believe it:
 *	- a join ends well exactly if the newest WELCOME to be believed says READY, and has
 *	  constants that a worker can serve;
 *	- an all-reduce succeeds only if all its chunks have answers to be believed and all
 *	  claims agree; its result is then what the codec makes of exactly these lanes;
 *	- one that fails leaves the caller's buffer as it was, and a sentence;
 *	- what is sent again has the very same bytes;
 *	- a claim has the digest of the answers to the round before the last one, and goes out
 *	  once it has all of them;
 *	- once all answers are there, the all-reduce ends.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <thc/worker/join.h>
#include <thc/worker/result.h>

#include "client.h"
#include "client_aggregator.h"
#include "client_rate.h"
#include "client_rounds.h"
#include "client_sockets.h"
#include "fuzz.h"
#include "request.h"
#include "scheme_thc.h"
#include "structs.h"

static int fuzz_poll(struct pollfd *fds, nfds_t count, int ms);

#define clock_gettime	fuzz_clock
#include "../../userspace/libthc/queue.c"
#include "../../userspace/libthc/engine.c"
#define poll		fuzz_poll
#define getrandom	fuzz_random
#include "../../userspace/libthc/join.c"
#define pthread_create	no_thread
#define pthread_join	no_end
#include "../../userspace/libthc/client.c"
#undef poll
#undef pthread_create
#undef pthread_join

/* --- while joining --------------------------------------------------------------------- */

static void act_join(void)
{
	uint8_t action = next(&w.in);
	struct coming *p;
	size_t at;

	switch (action & 7) {
	case 0:
	case 1:
		put_welcome(THC_WELCOME_F_READY);
		break;
	case 2:
		p = put_welcome(THC_WELCOME_F_READY);
		spoil(p, action & 8 ? next(&w.in) : 1);
		break;
	case 3:
		/* another constant */
		p = put_welcome(THC_WELCOME_F_READY);
		at = next(&w.in);
		/* larger numbers change another byte, in the records behind */
		if (w.more.bytes && at >= sizeof(struct whole_welcome))
			at = sizeof(struct whole_welcome) + (at << 8 | next(&w.in)) % w.more.bytes;
		else
			at %= sizeof(struct whole_welcome);
		p->at[sizeof(struct thc_hdr) + at] ^= next(&w.in);
		/* with a right hash of the constants */
		if (action & 8)
			hash_welcome(p->at + sizeof(struct thc_hdr),
				     p->bytes - sizeof(struct thc_hdr));
		seal(p);
		break;
	case 4:
		put_welcome(0);
		w.now += (action >> 3) * 10000000ULL;
		break;
	case 5:
		if (w.keyed && action & 0x40) {
			put_doubtful(action >> 3 & 7);
			break;
		}
		p = put_refusal(action >> 3);
		if (action & 0x80)
			spoil(p, next(&w.in));
		break;
	case 6:
		if (!(action & 8)) {
			put_raw();
			break;
		}
		p = put_challenge(action >> 4 & 7);
		if (action & 0x80)
			spoil(p, next(&w.in));
		break;
	case 7:
		w.complaint = action & 8 ? ECONNREFUSED : ENETUNREACH;
		w.now += (action >> 3) * 10000000ULL;
		break;
	}
}

static int fuzz_poll(struct pollfd *fds, nfds_t count, int ms)
{
	(void)fds, (void)count;
	w.now += (uint64_t)ms * 250000;
	if (w.in.left)
		act_join();
	else
		w.now += 50000000;
	return 0;
}

/* --- while reducing --------------------------------------------------------------------- */

static void begin_round(uint8_t what)
{
	size_t count = 1 + (next(&w.in) << 8 | next(&w.in)) % (what & 8 ? VALUES_MAX : 1024), i;
	const struct thc_call call = has_rate() ? rated_call(next(&w.in)) : rated_call(0);
	uint8_t shape = has_rate() ? next(&w.in) : 0;
	enum thc_dtype dtype = what % 3;
	struct under_way *u = under_way;
	uint32_t x = what;
	size_t size;

	while (u < under_way + UNDER_WAY_MAX && u->request)
		u++;
	if (u == under_way + UNDER_WAY_MAX || rounds == ROUNDS_MAX || w.client->broken)
		return;
	count = rated_count(count, &call);
	size = count * thc_dtype_size(dtype);
	u->count = count;
	u->dtype = dtype;
	u->call = call;
	u->call.key = count;
	u->buf = malloc(size);
	u->was = malloc(size);
	require(u->buf && u->was);
	for (i = 0; i < count; i++) {
		float v = (what & 0x70) == 0x70 && i == count / 2 ?
				  NAN :
				  some_float(&x) * block_scale(shape, i);

		thc_store(dtype, u->buf + i * thc_dtype_size(dtype), &v, 1);
	}
	memcpy(u->was, u->buf, size);
	memset(u->before, 0, sizeof(u->before));
	thc_error_export(w.client, u->call.key, u->before, count);
	if (!thc_allreduce_call_start(w.client, u->buf, count, dtype, &u->call, &u->request)) {
		u->round = rounds++;
		note_begun(u);
		return;
	}
	/* its error memory is in use */
	require(*thc_last_error());
	free(u->buf);
	free(u->was);
}

static void check_mean(unsigned int k, const struct asked **norms, const struct asked **data,
		       unsigned int chunks)
{
	static uint8_t lanes[ASKED_MAX][THC_LANE_BYTES];
	static float mean[ASKED_MAX * THC_COORDINATES(8)], norm[THC_NORMS];
	const struct thc_compressor *z = compressor();
	size_t blocks = chunks * z->chunk >> z->codec.block_log2, i;
	static uint8_t stored[VALUES_MAX * 4];
	uint16_t count[ASKED_MAX];

	require(blocks && blocks <= THC_NORMS);
	for (i = 0; i < chunks; i++) {
		memcpy(lanes[i], data[i]->lanes, THC_LANE_BYTES);
		count[i] = data[i]->count;
	}
	for (i = 0; i < THC_NORMS; i++)
		norm[i] = scale_from(norms[1]->lanes + 4 * i);
	thc_codec_decode(&z->codec,
			 &(struct thc_sums){ lanes, THC_LANE_BYTES, z->chunk,
					     thc_spec_sum_width(&w.client->spec), count },
			 under_way[k].count, &(struct thc_blocks){ under_way[k].round, 0, norm, 0 },
			 mean);
	thc_store(under_way[k].dtype, stored, mean, under_way[k].count);
	require(!memcmp(stored, under_way[k].buf,
			under_way[k].count * thc_dtype_size(under_way[k].dtype)));
}

static void check_result(unsigned int k)
{
	const struct asked *norms[ASKED_MAX], *data[ASKED_MAX];
	unsigned int n = chunks_of(under_way[k].round, true, norms), i;
	unsigned int chunks = chunks_of(under_way[k].round, false, data);
	size_t block = (size_t)1 << compressor()->codec.block_log2;

	require(n == 2 && norms[0]->answered && norms[1]->answered);
	require(!agreed(norms[0]));
	if (has_rate() && goal_asked(&under_way[k]).bits + goal_asked(&under_way[k]).error) {
		check_rated(&under_way[k], norms);
		return;
	}
	require(chunks == (under_way[k].count + block - 1) / block * (block / compressor()->chunk));
	for (i = 0; i < chunks; i++)
		require(data[i]->answered);
	check_mean(k, norms, data, chunks);
}

/* A bucket without a mean has left the error memory as it was. */
static void check_unchanged(const struct under_way *u)
{
	static float after[VALUES_MAX];

	memset(after, 0, sizeof(after));
	thc_error_export(w.client, u->call.key, after, u->count);
	require(!memcmp(after, u->before, sizeof(after)));
}

static void check_nonfinite(unsigned int k)
{
	const struct asked *norms[ASKED_MAX];
	float v;

	require(chunks_of(under_way[k].round, true, norms) == 1 && norms[0]->answered);
	require(w.client->options.flags & THC_CLIENT_NONFINITE && agreed(norms[0]) == -EDOM);
	thc_load(under_way[k].dtype, &v, under_way[k].buf, 1);
	require(v != v);
	check_unchanged(&under_way[k]);
}

static void count_failure(int status)
{
	reached[DISAGREED].times += status == -EBADMSG;
	reached[NOT_FINITE].times += status == -EDOM;
	reached[ENDED_SESSION].times += status == -ESTALE;
	reached[TIMED_OUT].times += status == -ETIMEDOUT;
	reached[RANK_LEFT].times += status == -EPIPE;
	reached[UNREACHABLE].times += status == -ECONNREFUSED || status == -ENETUNREACH;
}

static void check_failure(unsigned int k, int status)
{
	const struct asked *norms[ASKED_MAX];

	require(*thc_last_error());
	require(!memcmp(under_way[k].was, under_way[k].buf,
			under_way[k].count * thc_dtype_size(under_way[k].dtype)));
	check_unchanged(&under_way[k]);
	/* a rank that a deadline left out breaks its client, and so all its other rounds */
	if (!w.broken && (status == -EBADMSG || status == -EDOM))
		require(chunks_of(under_way[k].round, true, norms) == 1 && norms[0]->answered &&
			agreed(norms[0]) == status);
	count_failure(status);
}

static void count_success(int status)
{
	const struct thc_spec *p = &w.client->spec;

	reached[SUCCESS].times += !status;
	reached[UNIFORM].times += !status && p->scheme == THC_SCHEME_UTHC;
	reached[UNROTATED].times += !status && p->scheme_features & THC_SCHEME_F_UNROTATED;
	reached[NONFINITE].times += status == THC_NONFINITE;
}

/* Looks at all-reduces that have ended. */
static void collect(bool canceled)
{
	unsigned int k;
	int status;

	for (k = 0; k < UNDER_WAY_MAX; k++) {
		if (!under_way[k].request || !thc_allreduce_test(under_way[k].request))
			continue;
		status = thc_allreduce_wait(under_way[k].request);
		require(!canceled || status <= 0);
		check_claimed_rate(&under_way[k]);
		if (!status)
			check_result(k);
		else if (status == THC_NONFINITE)
			check_nonfinite(k);
		else
			check_failure(k, status);
		count_success(status);
		free(under_way[k].buf);
		free(under_way[k].was);
		memset(&under_way[k], 0, sizeof(under_way[k]));
	}
}

/* One turn of the I/O thread. */
static bool look(void)
{
	struct thc_client *c = w.client;
	uint64_t due;
	bool busy;

	require(!stopping(c));
	busy = turn(c, &due);
	w.broken |= c->broken;
	collect(false);
	w.now += 20000;
	return busy;
}

/* A chunk in flight, if there is one. */
static struct asked *some_asked(void)
{
	uint8_t which = next(&w.in);
	uint32_t i, k;

	if (which & 0x80)
		return w.asks ? &asked[which % w.asks] : NULL;
	for (k = 0; k < w.asks; k++) {
		i = (k + which) % w.asks;
		if (!asked[i].answered)
			return &asked[i];
	}
	return NULL;
}

static void answer_all(uint64_t in)
{
	uint32_t i;

	for (i = 0; i < w.asks; i++)
		if (!asked[i].answered)
			put_answer(&asked[i], in);
}

static void act_answer(uint8_t action)
{
	struct asked *a = some_asked();
	struct coming *p;
	uint8_t flags;

	if (!a)
		return;
	switch (action >> 4 & 3) {
	case 0:
		p = put_answer(a, action & 0x80 ? next(&w.in) : 0);
		break;
	case 1:
		p = put_header(a, THC_OP_WAIT, action & 0x80 ? THC_F_LEFT : 0, next(&w.in));
		break;
	case 2:
		p = put_header(a, THC_OP_STALE, THC_F_KNOWN, next(&w.in));
		break;
	case 3:
		flags = next(&w.in);
		p = put_header(a, THC_OP_STALE, flags < 200 ? THC_F_KNOWN : flags, next(&w.in));
		break;
	}
	flags = next(&w.in);
	if (action & 0x40)
		spoil(p, flags);
}

static void check_joined(void)
{
	struct thc_client_info info = { .size = sizeof(info) };
	const struct thc_spec *p = &w.client->spec;

	require(w.ready);
	require(!thc_client_info(w.client, &info) && info.ranks == p->ranks);
	/* schemes that do not compress have blocks of their own */
	require(thc_scheme_is_precise(p->scheme) || info.block == 1U << p->block_log2);
	require(info.window <= info.data_slots);
}

/* Constants for which the answers are known here, and an all-reduce takes microseconds. */
static bool is_modelled(void)
{
	const struct thc_spec *p = &w.client->spec;

	return !thc_scheme_is_precise(p->scheme) && p->bits == 4 &&
	       p->block_log2 <= BLOCK_LOG2_RUN && p->ranks <= 16;
}

/* Answers an agreement with a different claim of some rank. */
static void act_claim(void)
{
	struct asked *a = some_asked();
	struct coming *p;
	size_t at;

	if (!a || !a->claims)
		return;
	p = put_answer(a, 0);
	at = sizeof(struct thc_hdr) + next(&w.in) % (CLAIM * w.client->spec.ranks);
	p->at[at] ^= next(&w.in);
	seal(p);
}

static void rejoin(void)
{
	struct thc_client_info info = { .size = sizeof(info) };
	int error;

	w.joining = true;
	w.ready = false;
	w.read = w.queued = 0;
	error = thc_client_rejoin(w.client);
	collect(true);
	w.joining = false;
	w.asks = 0;
	rounds = 0;
	memset(w.held, 0, sizeof(w.held));
	w.read = w.queued = 0;
	w.broken = w.client->broken;
	require(!error == w.ready && !error == !w.broken);
	reached[REJOINED].times += !error;
	/* after a join that failed, too */
	require(!thc_client_info(w.client, &info));
	if (!error)
		check_joined();
	if (!error && !is_modelled())
		w.in.left = 0;
}

static void act(void)
{
	uint8_t action = next(&w.in);

	switch (action & 15) {
	case 0:
	case 1:
	case 2:
		begin_round(next(&w.in));
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		act_answer(action);
		break;
	case 7:
		answer_all(0);
		break;
	case 8:
		answer_all(next(&w.in));
		break;
	case 9:
		put_raw();
		break;
	case 10:
		w.now += (uint64_t)(action >> 4) * 100000000;
		break;
	case 11:
		w.complaint = action & 0x80 ? ECONNREFUSED : ENETUNREACH;
		break;
	case 12:
		if (w.broken)
			rejoin();
		break;
	case 13:
		act_claim();
		break;
	default:
		break;
	}
	if (w.client->running) {
		look();
		if (action & 0x80)
			look();
	}
}

/* From now on all chunks are answered, so that every all-reduce ends. */
static void drain(void)
{
	unsigned int looks, k, left;

	w.complaint = 0;
	for (looks = 0; looks < LOOKS_MAX; looks++) {
		for (left = k = 0; k < UNDER_WAY_MAX; k++)
			left += !!under_way[k].request;
		if (!left)
			return;
		if (w.read == w.queued)
			answer_all(0);
		if (!look())
			w.now += 5000000;
	}
	require(!"an all-reduce whose answers are there ends");
}

/* --- from the beginning ------------------------------------------------------------------ */

/* @form: bit 0: uniform THC, bit 1: blocks are not rotated */
static void make_job(uint8_t ranks, uint8_t how, uint8_t form)
{
	unsigned int i, g = (how | form) & 1 ? 15 : 21;
	struct whole_welcome *c = &w.welcome;

	whole_welcome_init(c);
	c->w.seed = thc_be64(0x1234567 + how);
	c->w.ranks = thc_be16(ranks);
	c->w.quorum = thc_be16(1);
	c->w.data_slots = thc_be16(4);
	c->w.control_slots = thc_be16(2);
	c->w.deadline_ms = thc_be32(how & 2 ? 50 : 0);
	c->w.features = thc_be32(THC_FEATURE_CORRELATED);
	c->w.reply = how & 8 ? THC_REPLY_MULTICAST : THC_REPLY_FANOUT;
	c->w.flags = thc_be16(how & 0x40 ? THC_WELCOME_F_ONE_PORT : 0);
	c->w.joined = thc_be64(~0ULL >> (64 - ranks));
	c->group.at.port = thc_be16(18564);
	memcpy(c->group.at.addr, (uint8_t[]){ 239, 84, 1, 2 }, 4);
	c->row.granularity = thc_be16((uint16_t)g);
	c->row.sum_width = how & 4 ? 16 : 8;
	c->row.clamp = thc_be64(0x4002000000000000ULL);
	for (i = 0; i < 16; i++)
		c->level[i] = thc_be16((uint16_t)(i * g / 15));
	c->scheme.scheme = form & 1 ? THC_SCHEME_UTHC : THC_SCHEME_THC;
	c->scheme.features = thc_be32(form & 2 ? THC_SCHEME_F_UNROTATED : 0);
	c->scheme.block_log2 = how & 0x10 ? 11 : 10;
	memcpy(c->seal.salt, (uint8_t[]){ 0x5a, 0x17 }, 2);
	whole_welcome_hash(c);
	w.deaf = how & 0x80;
	w.keyed = !(how & 0x20);
	w.seal = w.keyed ? THC_SEAL_NH : how & 1 ? THC_SEAL_SUM : THC_SEAL_NONE;
	c->seal.seal = w.seal;
	set_salt(c->seal.salt);
}

static void count_join(int error)
{
	reached[JOINED].times += !error;
	reached[JOIN_UNKNOWN].times += error == -EPROTO;
	reached[JOIN_LATE].times += error == -ETIMEDOUT || error == -EHOSTUNREACH;
	reached[JOIN_REFUSED].times += error == -ENOENT || error == -EACCES || error == -ERANGE ||
				       error == -EADDRINUSE || error == -EHOSTDOWN;
}

/* The client that joined, or NULL. */
static struct thc_client *join(uint8_t how)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	struct thc_client *c = NULL;
	int error;

	o.aggregator = "10.77.0.100";
	o.job = JOB;
	o.rank = w.rank;
	o.key = w.keyed ? key : NULL;
	o.timeout_ms = how & 0x20 ? 3000 : 400;
	o.join_timeout_ms = 300;
	o.transport = THC_TRANSPORT_UDP;
	/* the scalar code gives the same bits more slowly */
	o.simd = (how & 0xc1) == 0xc1 ? THC_SIMD_SCALAR : THC_SIMD_AUTO;
	o.flags = how >> 1 & 3;
	o.window = how >> 3 & 3;
	error = thc_client_open(&o, &c);
	count_join(error);
	require(!error == !!c && !error == w.ready);
	require(!error || *thc_last_error());
	return c;
}

static void report(void)
{
	report_outcomes(reached, OUTCOMES, "packets", packets);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	thc_member_key_derive(&join_key[1], key, THC_KEY_JOIN, JOB);
	thc_member_key_derive(&welcome_key[1], key, THC_KEY_WELCOME, JOB);
	thc_member_key_derive(&lost_key[1], key, THC_KEY_LOST, JOB);
	atexit(report);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t ranks, how, form;

	begin_input();
	memset(&w, 0, sizeof(w));
	w.in = (struct input){ data, size };
	w.now = 1000000000;
	ranks = next(&w.in);
	form = ranks >> 6;
	w.rank = (ranks >> 4 & 3) % (1 + ranks % 5);
	ranks = 1 + ranks % 5;
	how = next(&w.in);
	w.epoch = (uint32_t)next(&w.in) << 24 | 7;
	rounds = 0;
	make_job(ranks, next(&w.in), form);
	/* not with the scalar code */
	if (!(form & 1) && how & 0x80 && (how & 0xc1) != 0xc1)
		rate_job(how & 0x40 ? 1 : 2 * (how & 1));
	w.joining = true;
	w.client = join(how);
	w.joining = false;
	w.read = w.queued = 0;
	if (!w.client)
		return 0;
	check_joined();
	if (is_modelled()) {
		while (w.in.left && w.asks < ASKED_MAX / 2)
			act();
		drain();
	}
	thc_client_close(w.client);
	return 0;
}
