// SPDX-License-Identifier: GPL-2.0
/*
 * Workers (include/thc/worker/) and an aggregator (include/thc/aggregator/slot.h,
 * answer.h) over a network in memory that loses, corrupts, duplicates, delays
 * and reorders, by a clock that jumps from event to event. All from a seed. Jobs
 * have the seals nh and sum by turns.
 *
 *	worker --- up: one packet a microsecond ---> aggregator: slots, lanes
 *	   ^                                              |
 *	   +------------- down, for each worker ----------+
 *
 * Lanes are two words: word 0 counts contributions, 16 bits for each rank,
 * word 1 adds what each rank has of the chunk.
 *
 * Checked in every step: a chunk lands once; its sum holds exactly the ranks
 * that its header names, each once, the same ones for everybody, and all of
 * them unless a deadline closed it; a worker's first transmissions keep to its
 * window and to free slots; no worker is told that it is too far ahead, nor that a result is
 * gone that it waits for. At the end: every chunk has landed, in time, and few packets were
 * superfluous.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/admit.h>
#include <thc/aggregator/answer.h>
#include <thc/worker/join.h>
#include <thc/worker/receive.h>
#include <thc/worker/transmit.h>

#include "testkey.h"

#define RANKS_MAX_HERE	4
#define DATA_SLOTS	128
#define NORM_SLOTS	8
#define SLOTS		(DATA_SLOTS + NORM_SLOTS)
#define DATA_CHUNKS	1000
#define NORM_CHUNKS	40
#define BATCH		16
#define PORT		1000
#define JOB		2
#define EPOCH		9
#define SUM_WIDTH	8

#define NS_PER_PACKET	1000ULL
#define NS_LATENCY	(40 * THC_NS_PER_US)
/* Longest time of a run, which otherwise hangs. */
#define ENDS_MS		10000

/* Faults of the network, in 1000 packets or 1000 steps of a worker. */
struct weather {
	u32	loss;
	u32	corrupt;
	u32	duplicate;
	u32	late;		/* delayed by up to 200 us */
	u32	busy;		/* a worker does not look for up to @busy_ms */
	u32	busy_ms;
	u32	skew_ms;	/* between the workers' beginnings */
	u32	deadline_ms;	/* 0: none */
	u32	control_chunks;
	u32	tells;		/* a strange key id is answered with the epoch */
};

struct packet {
	struct thc_hdr	h;
	u64		lanes[THC_LANE_WORDS];
};

enum kind { UP, DOWN, WAKE, CLOSE };

struct event {
	u64		at;
	u64		number;		/* order of events at one time */
	enum kind	kind;
	u32		rank;
	u32		bytes;
	int		corrupt;
	struct packet	p;
};

struct worker {
	struct thc_sender	s;
	struct thc_flight	flights[SLOTS];
	struct packet		request[SLOTS];
	u8			landed[2][DATA_CHUNKS];
	u32			left;		/* chunks that have not */
	u32			in_flight[2];	/* counted by this test */
	u32			rank;
	u64			wake_at;
	u64			busy_until;
	u64			up_free_at;
};

static struct {
	const struct weather	*weather;
	u32			ranks;
	u64			dice;
	u64			now;
	u64			numbers;
	struct event		**heap;
	u32			events, room;

	struct thc_job		job;
	struct thc_seals	seals;
	struct thc_slot		slot[SLOTS];
	u64			lanes[SLOTS][2][THC_LANE_WORDS];
	u64			who[2][DATA_CHUNKS];	/* ranks in the sum that landed first */
	struct worker		worker[RANKS_MAX_HERE];

	u64			sent, missed, waits, repeats, bad_tags, strange_keys, cuts, closed;
} net;

/* --- dice ----------------------------------------------------------------- */

static u64 roll(void)
{
	net.dice ^= net.dice << 13;
	net.dice ^= net.dice >> 7;
	net.dice ^= net.dice << 17;
	return net.dice * 0x2545f4914f6cdd1dULL >> 16;
}

static u64 below(u64 n)
{
	return n ? roll() % n : 0;
}

static int happens(u32 of_1000)
{
	return below(1000) < of_1000;
}

/* @rank's part of chunk @sequence. */
static u64 value_of(int control, u64 sequence, u32 rank)
{
	return (sequence + 1) * 0x9e3779b97f4a7c15ULL * (rank + 1) + (u64)control;
}

/* --- events --------------------------------------------------------------- */

static int earlier(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void push(struct event *e)
{
	u32 i = net.events++;

	if (net.events > net.room) {
		net.room = 2 * net.events + 1000;
		net.heap = realloc(net.heap, net.room * sizeof(*net.heap));
		assert_non_null(net.heap);
	}
	for (; i && earlier(e, net.heap[(i - 1) / 2]); i = (i - 1) / 2)
		net.heap[i] = net.heap[(i - 1) / 2];
	net.heap[i] = e;
}

static struct event *pop(void)
{
	struct event *first = net.heap[0], *last = net.heap[--net.events];
	u32 i = 0, child;

	while ((child = 2 * i + 1) < net.events) {
		if (child + 1 < net.events && earlier(net.heap[child + 1], net.heap[child]))
			child++;
		if (!earlier(net.heap[child], last))
			break;
		net.heap[i] = net.heap[child];
		i = child;
	}
	net.heap[i] = last;
	return first;
}

static struct event *event(u64 at, enum kind kind, u32 rank)
{
	struct event *e = malloc(sizeof(*e));

	assert_non_null(e);
	e->at = at;
	e->number = net.numbers++;
	e->kind = kind;
	e->rank = rank;
	e->bytes = 0;
	e->corrupt = 0;
	return e;
}

static void transfer(enum kind kind, u32 rank, const struct packet *p, u32 bytes, u64 at)
{
	const struct weather *w = net.weather;
	struct event *e;
	u32 bit;

	if (happens(w->loss))
		return;
	at += NS_LATENCY + below(2 * NS_PER_PACKET);
	if (happens(w->late))
		at += below(200 * THC_NS_PER_US);
	e = event(at, kind, rank);
	memcpy(&e->p, p, bytes);
	e->bytes = bytes;
	if (happens(w->corrupt)) {
		bit = (u32)below(8 * bytes);
		((u8 *)&e->p)[bit / 8] ^= (u8)(1U << bit % 8);
		e->corrupt = 1;
	}
	push(e);
}

static void carry(enum kind kind, u32 rank, const struct packet *p, u32 bytes, u64 at)
{
	transfer(kind, rank, p, bytes, at);
	if (happens(net.weather->duplicate))
		transfer(kind, rank, p, bytes, at);
}

/* --- aggregator ----------------------------------------------------------- */

static void answer(u32 rank, const struct packet *p, u32 bytes)
{
	carry(DOWN, rank, p, bytes, net.now);
}

static void send_result(u32 slot, u32 odd, u32 rank, int repeat)
{
	struct packet p;

	thc_answer_result(&p.h, &net.seals, (struct thc_answer_at){ JOB, slot, EPOCH },
			  &net.slot[slot].generation[odd], repeat ? (u8)rank : 0, repeat);
	memcpy(p.lanes, net.lanes[slot][odd], sizeof(p.lanes));
	answer(rank, &p, sizeof(p));
}

static void finish(u32 slot, u32 odd)
{
	u32 rank;

	thc_answer_finish(&net.slot[slot].generation[odd], net.lanes[slot][odd], &net.seals, EPOCH);
	for (rank = 0; rank < net.ranks; rank++)
		send_result(slot, odd, rank, 0);
}

static void add(const struct packet *p, u32 slot, const struct thc_outcome *out)
{
	u64 *lanes = net.lanes[slot][out->odd];
	struct event *e;

	if (out->first) {
		memset(lanes, 0, THC_LANE_BYTES);
		if (net.weather->deadline_ms && !out->complete) {
			e = event(net.now + net.weather->deadline_ms * THC_NS_PER_MS, CLOSE, 0);
			e->p.h = p->h;
			push(e);
		}
	}
	lanes[0] += p->lanes[0];
	lanes[1] += p->lanes[1];
	if (out->complete)
		finish(slot, out->odd);
}

/* STALE only if the worker has the result, or was too late for a deadline. */
static void check_stale(const struct thc_hdr *h)
{
	int control = thc_be16(h->slot) >= DATA_SLOTS;

	if (!net.weather->deadline_ms)
		assert_true(net.worker[thc_be16(h->rank)].landed[control][thc_be32(h->chunk)]);
}

static struct thc_end end_of(u32 rank)
{
	return (struct thc_end){ .addr = thc_addr_v4(thc_be32(0x0a000000 + rank)),
				 .port = thc_be16(40000) };
}

/* Is the request as its worker sealed it? */
static int is_genuine(const struct event *e, int words)
{
	const struct thc_seal_key *key = thc_seals_up(&net.seals, EPOCH);
	const struct thc_end end = end_of(e->rank);
	const struct thc_path path = { .src = end.addr, .src_port = thc_be16(end.port) };
	struct packet p = e->p;

	if (thc_seal_names(&p.h, key->id))
		return thc_seal_ok(&p.h, (u8)net.seals.seal, key, p.lanes, words);
	net.strange_keys++;
	if (!net.weather->tells)
		return 0;
	thc_answer_epoch(&p.h, &net.job, &net.seals, &path);
	answer(e->rank, &p, sizeof(p.h));
	return 0;
}

static void on_request(const struct event *e)
{
	struct packet p = e->p;
	u32 slot = thc_be16(p.h.slot), payload = e->bytes - sizeof(p.h);
	struct thc_arrival a = {
		.epoch = thc_be32(p.h.epoch), .generation = thc_be32(p.h.generation),
		.round = thc_be32(p.h.round), .chunk = thc_be32(p.h.chunk),
		.rank = (u8)thc_be16(p.h.rank), .op = p.h.op,
	};
	enum thc_lane_kind kind =
		thc_lane_kind(p.h.op, p.h.width, thc_job_row(&net.job, p.h.width));
	struct thc_outcome out;

	if (!is_genuine(e, (int)(payload / 8))) {
		assert_true(e->corrupt);
		return;
	}
	a.width = thc_sum_bits(p.h.op, p.h.width, SUM_WIDTH);
	a.row = thc_row_of(p.h.op, p.h.width);
	assert_int_equal(thc_admit_form(&p.h), THC_DROP_NONE);
	assert_int_equal(payload, thc_lane_payload(kind, p.h.width));
	out = thc_slot_arrive(&net.slot[slot], &a, net.job.all);
	switch (out.verdict) {
	case THC_ADD:
		add(&p, slot, &out);
		break;
	case THC_WAIT:
		thc_answer_wait(&p.h, &net.job, &net.seals, &net.slot[slot].generation[out.odd]);
		answer(a.rank, &p, sizeof(p.h));
		break;
	case THC_REPEAT:
		send_result(slot, out.odd, a.rank, 1);
		break;
	case THC_STALE:
		check_stale(&p.h);
		thc_answer_stale(&p.h, &net.seals, &net.slot[slot]);
		answer(a.rank, &p, sizeof(p.h));
		break;
	default:
		fail_msg("a worker that keeps the rules met verdict %u", out.verdict);
	}
}

static void on_deadline(const struct event *e)
{
	u32 slot = thc_be16(e->p.h.slot), generation = thc_be32(e->p.h.generation);

	if (!thc_slot_close(&net.slot[slot], EPOCH, generation, 1))
		return;
	net.closed++;
	finish(slot, generation & 1);
}

/* --- worker --------------------------------------------------------------- */

static int is_control(const struct worker *w, const struct thc_stream *st)
{
	return st == &w->s.control;
}

static void send_flight(struct worker *w, const struct thc_flight *f)
{
	assert_ptr_equal(f->owner, w);
	net.sent++;
	w->up_free_at = (w->up_free_at > net.now ? w->up_free_at : net.now) + NS_PER_PACKET;
	carry(UP, w->rank, (const struct packet *)f->packet, f->bytes, w->up_free_at);
}

static void compose(struct worker *w, const struct thc_stream *st, struct packet *p, u32 bytes)
{
	int control = is_control(w, st);

	memset(p, 0, sizeof(*p));
	p->h.version = THC_VERSION;
	p->h.op = control ? THC_OP_MAX : THC_OP_LUT_ADD;
	p->h.width = control ? 32 : 4;
	p->h.job = thc_be16(JOB);
	p->h.rank = thc_be16(w->rank);
	p->h.epoch = thc_be32(EPOCH);
	p->h.round = thc_be32((u32)(st->next / 100));
	thc_stream_fill(st, &p->h, st->next);
	p->lanes[0] = 1ULL << 16 * w->rank;
	p->lanes[1] = value_of(control, st->next, w->rank);
	thc_seal(&p->h, w->s.seal, &w->s.up, p->lanes, (int)((bytes - sizeof(p->h)) / 8));
}

/* The host of transmit.h and receive.h: packet @e has come, @sent packets have been flushed and @n
 * not yet.
 */
struct thc_host {
	struct worker		*w;
	const struct event	*e;
	int			n;
	int			sent;
};

THC_INLINE int thc_host_may_send(struct thc_host *host, const struct thc_stream *st)
{
	(void)st;
	return host->n < BATCH;
}

THC_INLINE int thc_host_next(struct thc_host *host, const struct thc_stream *st,
			     struct thc_ready *ready)
{
	struct worker *w = host->w;
	int control = is_control(w, st);
	u32 bytes = sizeof(struct thc_hdr) + (control ? THC_LANE_BYTES : THC_COORDINATES(8) / 2);
	struct packet *p = &w->request[st->slot_base + st->next % st->slots];

	/* the slot's former chunk has landed */
	if (st->next >= st->slots)
		assert_true(w->landed[control][st->next - st->slots]);
	assert_true(w->in_flight[control] < thc_worker_window(&w->s, st));
	compose(w, st, p, bytes);
	*ready = (struct thc_ready){ w, &p->h, (u32)st->next, (u16)bytes };
	w->in_flight[control]++;
	return 1;
}

THC_INLINE void thc_host_send(struct thc_host *host, const struct thc_flight *f)
{
	struct worker *w = host->w;
	int control = thc_be16(f->packet->slot) >= DATA_SLOTS;
	const struct thc_stream *st = control ? &w->s.control : &w->s.data;

	assert_false(w->landed[control][f->sequence]);
	assert_int_equal(w->in_flight[control], st->in_flight);
	assert_true(st->in_flight <= st->slots);
	send_flight(w, f);
	host->n++;
}

THC_INLINE void thc_host_flush(struct thc_host *host)
{
	host->sent += host->n;
	host->n = 0;
}

THC_INLINE u64 thc_host_check(struct thc_host *host, u64 now)
{
	(void)host;
	(void)now;
	return ~0ULL;
}

/* Does all work of a worker that is due, then sets its timer. */
static void step(struct worker *w)
{
	struct thc_host host;
	u64 due;

	do {
		host = (struct thc_host){ .w = w };
		thc_worker_send(&host, &w->s, net.now);
		due = thc_worker_send_again(&host, &w->s, net.now);
	} while (host.sent);
	/* a worker with packets in flight has a timer */
	assert_true(due != ~0ULL || (!w->s.data.in_flight && !w->s.control.in_flight));
	if (due < w->wake_at) {
		w->wake_at = due;
		push(event(due, WAKE, w->rank));
	}
	if (happens(net.weather->busy))
		w->busy_until = net.now + below(net.weather->busy_ms * THC_NS_PER_MS);
}

static void check_sum(const struct packet *p, int control, u64 sequence)
{
	u64 bitmap = thc_be64(p->h.bitmap), counts = 0, values = 0;
	u32 rank, n = 0;

	for (rank = 0; rank < net.ranks; rank++) {
		if (!(bitmap >> rank & 1))
			continue;
		counts += 1ULL << 16 * rank;
		values += value_of(control, sequence, rank);
		n++;
	}
	assert_int_equal(p->lanes[0], counts);
	assert_int_equal(p->lanes[1], values);
	assert_int_equal(thc_be16(p->h.count), n);
	assert_int_equal(bitmap & ~net.job.all, 0);
	if (!(p->h.flags & THC_F_CLOSED))
		assert_int_equal(bitmap, net.job.all);
}

/* The answer to @index has landed, or only its contributors. */
static void land(struct worker *w, const struct packet *p, int control, u64 index, int missed)
{
	u64 bitmap = thc_be64(p->h.bitmap);

	assert_false(w->landed[control][index]);
	w->landed[control][index] = 1;
	w->in_flight[control]--;
	w->left--;
	if (!missed)
		check_sum(p, control, index);
	assert_true(!missed || net.weather->deadline_ms);
	if (!net.who[control][index])
		net.who[control][index] = bitmap;
	assert_int_equal(net.who[control][index], bitmap);
	net.missed += (u64)missed;
}

THC_INLINE const void *thc_host_payload(struct thc_host *host, enum thc_got got,
					const struct thc_flight *f, const struct thc_hdr *h,
					u32 bytes)
{
	assert_true(got != THC_GOT_ANSWER || f->owner == host->w);
	assert_int_equal(bytes, host->e->bytes - sizeof(*h));
	return host->e->p.lanes;
}

THC_INLINE struct thc_digest thc_host_digest(struct thc_host *host, const struct thc_sender *s,
					     const void *payload, int words)
{
	(void)host;
	return thc_seal_digest(s->seal, &s->down, payload, words);
}

THC_INLINE void thc_host_took(struct thc_host *host, enum thc_got got, const struct thc_hdr *h)
{
	(void)host;
	net.waits += got == THC_GOT_WAIT;
	net.repeats += got == THC_GOT_ANSWER && h->flags & THC_F_REPEAT;
}

THC_INLINE void thc_host_landed(struct thc_host *host, const struct thc_stream *st,
				struct thc_ready was, const struct thc_landing *l)
{
	assert_ptr_equal(was.owner, host->w);
	land(host->w, &host->e->p, is_control(host->w, st), was.index, !l->lanes);
}

THC_INLINE void thc_host_failed(struct thc_host *host, const struct thc_failure *f)
{
	fail_msg("rank %u fails with %u", host->w->rank, f->reason);
}

static void on_answer(struct worker *w, const struct event *e)
{
	const struct thc_origin from = { .port = PORT };
	struct thc_host host = { .w = w, .e = e };

	switch (thc_worker_receive(&host, &w->s, &e->p.h, e->bytes, from, net.now)) {
	case THC_DROP_NONE:
	case THC_DROP_UNEXPECTED:
		break;
	case THC_DROP_TAG:
		net.bad_tags++;
		/* fall through */
	default:
		assert_true(e->corrupt);
	}
}

/* --- one run -------------------------------------------------------------- */

/* Derives the job's keys; @key NULL: no secret key. */
static void begin_job(const u8 *key, u32 ranks)
{
	static const u8 salt[THC_SALT_BYTES] = { 1, 2, 3 };

	net.job.all = thc_ranks_mask(ranks);
	net.job.joined = net.job.all;
	net.job.epoch = EPOCH;
	net.job.ranks = (u16)ranks;
	net.job.restarter = THC_WORKER_NONE;
	net.job.widths.sum[3] = SUM_WIDTH;
	net.job.active = 1;
	net.seals.seal = key ? THC_SEAL_NH : THC_SEAL_SUM;
	thc_seal_key_set(&net.seals.up[EPOCH & 1], key, THC_KEY_UP, JOB, salt);
	thc_seal_key_set(&net.seals.down[EPOCH & 1], key, THC_KEY_DOWN, JOB, salt);
	if (key)
		thc_member_key_derive(&net.seals.lost, key, THC_KEY_LOST, JOB);
}

static void begin_sender(struct thc_sender *s, const u8 *key, u32 rank)
{
	thc_sender_init(s, DATA_SLOTS);
	s->epoch = EPOCH;
	s->job = JOB;
	s->port = PORT;
	s->all = net.job.all;
	s->rank = (u8)rank;
	s->widths.sum[3] = SUM_WIDTH;
	s->end = end_of(rank);
	thc_sender_set_key(s, key);
	s->seal = (u8)net.seals.seal;
	s->up = net.seals.up[EPOCH & 1];
	s->down = net.seals.down[EPOCH & 1];
}

static void begin(const struct weather *weather, u32 ranks, u64 seed)
{
	const u8 *key = seed & 1 ? test_key : NULL;
	u32 rank;

	free(net.heap);
	memset(&net, 0, sizeof(net));
	net.weather = weather;
	net.ranks = ranks;
	net.dice = (seed * 64 + ranks) * 0x9e3779b97f4a7c15ULL + 1;
	net.now = THC_NS_PER_MS;
	begin_job(key, ranks);
	for (rank = 0; rank < ranks; rank++) {
		struct worker *w = &net.worker[rank];

		thc_stream_init(&w->s.data, w->flights, 0, DATA_SLOTS);
		thc_stream_init(&w->s.control, w->flights + DATA_SLOTS, DATA_SLOTS, NORM_SLOTS);
		begin_sender(&w->s, key, rank);
		w->s.data.reserved = DATA_CHUNKS;
		w->s.control.reserved = weather->control_chunks;
		w->rank = rank;
		w->left = DATA_CHUNKS + weather->control_chunks;
		w->wake_at = net.now + below(weather->skew_ms * THC_NS_PER_MS);
		push(event(w->wake_at, WAKE, rank));
	}
}

static void on_worker(struct event *e)
{
	struct worker *w = &net.worker[e->rank];

	if (e->kind == DOWN)
		on_answer(w, e);
	else if (e->at >= w->wake_at)
		w->wake_at = ~0ULL;
	step(w);
}

static u32 chunks_left(void)
{
	u32 rank, left = 0;

	for (rank = 0; rank < net.ranks; rank++)
		left += net.worker[rank].left;
	return left;
}

/* Runs until all workers have all chunks; returns the time. */
static u64 run(const struct weather *weather, u32 ranks, u64 seed)
{
	u64 start;
	u32 rank;

	begin(weather, ranks, seed);
	start = net.now;
	while (chunks_left()) {
		struct event *e;

		assert_true(net.events);
		e = pop();
		net.now = e->at;
		assert_true(net.now - start < ENDS_MS * THC_NS_PER_MS);
		if (e->kind == UP) {
			on_request(e);
		} else if (e->kind == CLOSE) {
			on_deadline(e);
		} else if (net.worker[e->rank].busy_until > net.now) {
			e->at = net.worker[e->rank].busy_until;
			push(e);
			continue;
		} else {
			on_worker(e);
		}
		free(e);
	}
	while (net.events)
		free(pop());
	for (rank = 0; rank < ranks; rank++) {
		struct worker *w = &net.worker[rank];

		assert_int_equal(w->s.data.in_flight + w->s.control.in_flight, 0);
		assert_int_equal(w->s.data.next, DATA_CHUNKS);
		net.cuts += w->s.window.cuts;
	}
	return net.now - start;
}

/* --- cases ---------------------------------------------------------------- */

#define SEEDS	10

/* Totals over all runs of a case. */
struct totals {
	u64	mean_ms;
	u64	most_sent;	/* packets for 1000 chunks, in one run */
	u64	cuts, waits, repeats, bad_tags, strange_keys, missed, closed;
};

/* @most_ms: bound of the mean time, 1.4 times that of eighty seeds */
static struct totals all_runs(const struct weather *weather, u64 most_ms)
{
	struct totals t = { 0 };
	u64 seed, sent, took = 0;
	u32 ranks;

	for (ranks = 1; ranks <= RANKS_MAX_HERE; ranks++) {
		for (seed = 1; seed <= SEEDS; seed++) {
			took += run(weather, ranks, seed);
			sent = net.sent * 1000 / (ranks * (DATA_CHUNKS + weather->control_chunks));
			t.most_sent = sent > t.most_sent ? sent : t.most_sent;
			t.cuts += net.cuts;
			t.waits += net.waits;
			t.repeats += net.repeats;
			t.bad_tags += net.bad_tags;
			t.strange_keys += net.strange_keys;
			t.missed += net.missed;
			t.closed += net.closed;
		}
	}
	t.mean_ms = took / (RANKS_MAX_HERE * SEEDS * THC_NS_PER_MS);
	free(net.heap);
	net.heap = NULL;
	assert_in_range(t.mean_ms, 0, most_ms);
	return t;
}

/* A packet a microsecond and a round trip: nothing waits, nothing is sent twice. */
static void loss__0_nothing_is_sent_twice(void **state)
{
	struct weather fine = { .control_chunks = NORM_CHUNKS };
	struct totals t = all_runs(&fine, 2);

	(void)state;
	assert_int_equal(t.most_sent, 1000);
	assert_int_equal(t.cuts + t.waits + t.repeats + t.bad_tags, 0);
}

/* A cut is undone if a later answer shows that nothing was lost. */
static void loss__0_in_disorder(void **state)
{
	struct weather w = { .duplicate = 20, .late = 20, .control_chunks = NORM_CHUNKS };
	struct totals t = all_runs(&w, 3);

	(void)state;
	assert_true(t.waits > 0 && t.cuts > 0);
	assert_in_range(t.most_sent, 1001, 1150);
}

static void loss__0_with_late_workers(void **state)
{
	struct weather w = {
		.late = 10, .duplicate = 10, .skew_ms = 30, .busy = 1, .busy_ms = 20,
		.control_chunks = NORM_CHUNKS,
	};
	struct totals t = all_runs(&w, 70);

	(void)state;
	assert_true(t.waits > 0);
	assert_in_range(t.most_sent, 1001, 1300);
}

static void loss__1_percent(void **state)
{
	struct weather w = {
		.loss = 10,
		.corrupt = 2,
		.duplicate = 10,
		.late = 10,
		.control_chunks = NORM_CHUNKS,
	};
	struct totals t = all_runs(&w, 13);

	(void)state;
	assert_true(t.waits > 0 && t.repeats > 0 && t.cuts > 0 && t.bad_tags > 0);
	assert_in_range(t.most_sent, 1010, 1200);
}

static void loss__5_percent(void **state)
{
	struct weather w = {
		.loss = 50,
		.corrupt = 5,
		.duplicate = 20,
		.late = 20,
		.control_chunks = NORM_CHUNKS,
	};
	struct totals t = all_runs(&w, 56);

	(void)state;
	assert_in_range(t.most_sent, 1050, 1500);
}

static void loss__20_percent(void **state)
{
	struct weather w = {
		.loss = 200, .corrupt = 10, .duplicate = 50, .late = 50,
		.control_chunks = NORM_CHUNKS,
	};
	struct totals t = all_runs(&w, 400);

	(void)state;
	assert_in_range(t.most_sent, 1200, 2500);
}

static void loss__20_percent_with_late_workers(void **state)
{
	struct weather w = {
		.loss = 200, .corrupt = 5, .duplicate = 20, .late = 20, .skew_ms = 30, .busy = 1,
		.busy_ms = 20, .control_chunks = NORM_CHUNKS,
	};
	struct totals t = all_runs(&w, 520);

	(void)state;
	assert_in_range(t.most_sent, 1200, 2500);
}

/* The aggregator answers corrupted key ids with its epoch, which ends no epoch. */
static void corrupt__key_id_ends_nothing(void **state)
{
	struct weather w = { .corrupt = 100, .control_chunks = NORM_CHUNKS, .tells = 1 };
	struct totals t = all_runs(&w, 120);

	(void)state;
	assert_true(t.strange_keys > 20);
	assert_in_range(t.most_sent, 1100, 1700);
}

/* Chunks close without late ranks, which still learn the contributors. */
static void deadline__closes_and_is_told_of(void **state)
{
	/* busy for less than four deadlines: a slot does not remember more generations */
	struct weather w = {
		.loss = 10, .corrupt = 5, .duplicate = 20, .late = 20, .busy = 1, .busy_ms = 40,
		.deadline_ms = 15,
	};
	struct totals t = all_runs(&w, 85);

	(void)state;
	assert_true(t.closed > 0 && t.missed > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loss__0_nothing_is_sent_twice),
		cmocka_unit_test(loss__0_in_disorder),
		cmocka_unit_test(loss__0_with_late_workers),
		cmocka_unit_test(loss__1_percent),
		cmocka_unit_test(loss__5_percent),
		cmocka_unit_test(loss__20_percent),
		cmocka_unit_test(loss__20_percent_with_late_workers),
		cmocka_unit_test(corrupt__key_id_ends_nothing),
		cmocka_unit_test(deadline__closes_and_is_told_of),
	};

	return cmocka_run_group_tests_name("flight_loss", tests, NULL, NULL);
}
