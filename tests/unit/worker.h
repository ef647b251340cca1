/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of include/thc/worker/ share: one worker whose clock is a variable,
 * its requests, packets from the aggregator, and what it would send again. No sockets.
 */
#ifndef TESTS_UNIT_WORKER_H
#define TESTS_UNIT_WORKER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <thc/worker/answer.h>
#include <thc/worker/overdue.h>

#define DATA_SLOTS	256
#define NORM_SLOTS	8
#define COOKIE		0x1122334455667788ULL
#define JOB		7
#define EPOCH		3
#define ROUND		5
#define PORT		1000	/* the aggregator's */
#define RANKS		8
#define SUM_WIDTH	8
#define RTT		THC_NS_PER_MS
#define DATA_BYTES	(sizeof(struct thc_hdr) + THC_CHUNK_8 / 2)
#define LANES_BYTES	(sizeof(struct thc_hdr) + THC_LANE_BYTES)

/* A packet from the aggregator. */
struct packet {
	struct thc_hdr	h;
	u8		lanes[THC_LANE_BYTES];
};

struct worker {
	struct thc_sender	s;
	struct thc_flight	flights[DATA_SLOTS + NORM_SLOTS + 1];	/* the last: nobody's */
	struct thc_hdr		request[DATA_SLOTS + NORM_SLOTS];	/* by slot */
	u64			now;
	/* the last packet: whom it was about */
	struct thc_stream	*stream;
	struct thc_flight	*flight;
};

static inline int setup(void **state)
{
	struct worker *w = calloc(1, sizeof(*w));

	*state = w;
	if (!w)
		return -1;
	thc_stream_init(&w->s.data, w->flights, 0, DATA_SLOTS);
	thc_stream_init(&w->s.norms, w->flights + DATA_SLOTS, DATA_SLOTS, NORM_SLOTS);
	thc_sender_init(&w->s, DATA_SLOTS);
	w->s.cookie = COOKIE;
	w->s.epoch = EPOCH;
	w->s.job = JOB;
	w->s.port = PORT;
	w->s.all = thc_ranks_mask(RANKS);
	w->s.sum_width = SUM_WIDTH;
	w->now = 1000 * THC_NS_PER_MS;
	w->s.progress_at = w->now;
	return 0;
}

static inline int teardown(void **state)
{
	free(*state);
	return 0;
}

/* --- requests ------------------------------------------------------------- */

static inline struct thc_flight *launch_in(struct worker *w, struct thc_stream *st, u32 round)
{
	int norms = st == &w->s.norms;
	struct thc_hdr *h = &w->request[st->slot_base + st->next % st->slots];
	struct thc_ready ready = { w, h, (u32)st->next + 100, norms ? LANES_BYTES : DATA_BYTES };
	struct thc_flight *f;

	memset(h, 0, sizeof(*h));
	h->version = THC_VERSION;
	h->op = norms ? THC_OP_MAX : THC_OP_LUT_ADD;
	h->width = norms ? 32 : 4;
	h->cookie = thc_be64(COOKIE);
	h->job = thc_be16(JOB);
	h->epoch = thc_be32(w->s.epoch);
	h->round = thc_be32(round);
	thc_stream_fill(st, h, st->next);
	f = thc_flight_launch(&w->s, st, ready, w->now);
	assert_ptr_equal(f, &st->flight[f->sequence % st->slots]);
	return f;
}

static inline struct thc_flight *launch(struct worker *w, struct thc_stream *st)
{
	return launch_in(w, st, ROUND);
}

/* Chunks @st->next and on, as many as window and slots let go, @most at most. */
static inline u32 launch_all(struct worker *w, struct thc_stream *st, u32 window, u32 most)
{
	u32 n = 0;

	while (n < most && thc_stream_may_send(st, window)) {
		launch(w, st);
		n++;
	}
	return n;
}

static inline void launch_data(struct worker *w, u32 count)
{
	w->s.data.reserved += count;
	assert_int_equal(launch_all(w, &w->s.data, DATA_SLOTS, count), count);
}

static inline struct thc_flight *data(struct worker *w, u64 sequence)
{
	struct thc_flight *f = thc_stream_flight(&w->s.data, sequence);

	assert_int_equal(f->sequence, sequence);
	return f;
}

/* --- answers -------------------------------------------------------------- */

/* What everybody gets for chunk @sequence of @st. */
static inline struct packet result(struct worker *w, const struct thc_stream *st, u64 sequence,
				   u8 flags)
{
	struct packet p = { .h = {
				    .version = THC_VERSION,
				    .op = st == &w->s.norms ? THC_OP_MAX : THC_OP_LUT_ADD,
				    .width = st == &w->s.norms ? 32 : SUM_WIDTH,
				    .flags = THC_F_ANSWER | flags,
				    .cookie = thc_be64(COOKIE),
				    .job = thc_be16(JOB),
				    .epoch = thc_be32(w->s.epoch),
				    .round = thc_be32(ROUND),
				    .count = thc_be16(2),
				    .bitmap = thc_be64(3),
			    } };

	thc_stream_fill(st, &p.h, sequence);
	return p;
}

/* WAIT or STALE, header only. */
static inline struct packet notice(struct worker *w, const struct thc_stream *st, u64 sequence,
				   u8 op, u8 flags, u64 bitmap)
{
	struct packet p = result(w, st, sequence, 0);

	p.h.op = op;
	p.h.width = 0;
	p.h.flags = flags;
	p.h.bitmap = thc_be64(bitmap);
	p.h.count = thc_be16(thc_ranks_count(bitmap));
	return p;
}

static inline enum thc_got find_from(struct worker *w, const struct packet *p, u32 bytes, u16 port)
{
	static struct worker before;
	enum thc_got got;

	memcpy(&before, w, sizeof(before));
	got = thc_sender_find(&w->s, &p->h, bytes, port, &w->stream, &w->flight);
	/* what is not checked yet changes nothing */
	assert_memory_equal(&w->s, &before.s, sizeof(w->s));
	assert_memory_equal(w->flights, before.flights, sizeof(w->flights));
	return got;
}

static inline enum thc_got find(struct worker *w, const struct packet *p, u32 bytes)
{
	return find_from(w, p, bytes, PORT);
}

static inline enum thc_got take_marked(struct worker *w, const struct packet *p, u32 bytes, int ce)
{
	enum thc_got got = find(w, p, bytes);

	thc_sender_take(&w->s, got, w->stream, w->flight, &p->h, ce, w->now);
	return got;
}

static inline enum thc_got take(struct worker *w, const struct packet *p, u32 bytes)
{
	return take_marked(w, p, bytes, 0);
}

static inline enum thc_got take_result(struct worker *w, struct thc_stream *st, u64 sequence,
				       u8 flags)
{
	struct packet p = result(w, st, sequence, flags);

	return take(w, &p, LANES_BYTES);
}

static inline enum thc_got take_wait(struct worker *w, struct thc_stream *st, u64 sequence,
				     u8 flags, u64 bitmap)
{
	struct packet p = notice(w, st, sequence, THC_OP_WAIT, flags, bitmap);

	return take(w, &p, sizeof(p.h));
}

static inline void answer_data(struct worker *w, u64 first, u64 end)
{
	for (; first < end; first++)
		assert_int_equal(take_result(w, &w->s.data, first, 0), THC_GOT_ANSWER);
}

/* --- what is sent again --------------------------------------------------- */

/* Sequences sent again of @st, oldest first, at most @room; *@due: look again then. */
static inline u32 again(struct worker *w, struct thc_stream *st, u64 *sent, u32 room, u64 *due)
{
	const struct thc_flight *f;
	struct thc_overdue o;
	u64 when;
	u32 n = 0;

	thc_overdue_begin(&w->s, &o, w->now);
	while (n < room && (f = thc_overdue_next(&w->s, st, &o, w->now))) {
		assert_int_equal(f->sent_at, w->now);
		sent[n++] = f->sequence;
	}
	when = thc_overdue_end(&w->s, &o, w->now);
	if (due)
		*due = when;
	return n;
}

static inline void assert_again(struct worker *w, struct thc_stream *st, u64 first, u32 count)
{
	u64 sent[DATA_SLOTS];
	u32 n = again(w, st, sent, DATA_SLOTS, NULL), i;

	assert_int_equal(n, count);
	for (i = 0; i < count; i++)
		assert_int_equal(sent[i], first + i);
}

#define CASE(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif /* TESTS_UNIT_WORKER_H */
