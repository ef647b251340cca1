/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of include/thc/worker/ share: one worker whose clock is a variable, its keys,
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
#include <thc/worker/join.h>
#include <thc/worker/overdue.h>

#include "testkey.h"

#define DATA_SLOTS	256
#define NORM_SLOTS	8
#define JOB		7
#define EPOCH		3
#define ROUND		5
#define PORT		1000	/* the aggregator's */
#define RANKS		8
#define SUM_WIDTH	8
#define RTT		THC_NS_PER_MS
#define DATA_BYTES	(sizeof(struct thc_hdr) + THC_COORDINATES(8) / 2)
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

/* Keys of an epoch whose salt is @salt, @salt and so on; @key NULL: the job has no secret key. */
void begin_epoch(struct thc_sender *s, const u8 *key, u8 seal, u8 salt);

/* A worker with the secret key, in an epoch. */
int setup(void **state);

static inline int teardown(void **state)
{
	free(*state);
	return 0;
}

/* --- requests ------------------------------------------------------------- */

struct thc_flight *launch_in(struct worker *w, struct thc_stream *st, u32 round);

static inline struct thc_flight *launch(struct worker *w, struct thc_stream *st)
{
	return launch_in(w, st, ROUND);
}

/* Chunks @st->next and on, as many as window and slots let go, @most at most. */
u32 launch_all(struct worker *w, struct thc_stream *st, u32 window, u32 most);

static inline void launch_data(struct worker *w, u32 count)
{
	w->s.data.reserved += count;
	assert_int_equal(launch_all(w, &w->s.data, DATA_SLOTS, count), count);
}

struct thc_flight *data(struct worker *w, u64 sequence);

/* --- answers -------------------------------------------------------------- */

/* The aggregator's seal of @p, @bytes with the payload. STALE that ends an epoch is sealed for the
 * request that was sent last in the slot.
 */
void seal(struct worker *w, struct packet *p, u32 bytes);

/* That epoch @epoch has come, as answer to the request of chunk @sequence of @st. */
struct packet epoch_over(struct worker *w, const struct thc_stream *st, u64 sequence, u32 epoch);

/* What everybody gets for chunk @sequence of @st. */
struct packet result(struct worker *w, const struct thc_stream *st, u64 sequence, u8 flags);

/* WAIT or STALE, header only. */
struct packet notice(struct worker *w, const struct thc_stream *st, u64 sequence, u8 op, u8 flags,
		     u64 bitmap);

enum thc_got find_from(struct worker *w, const struct packet *p, u32 bytes, u16 port);

static inline enum thc_got find(struct worker *w, const struct packet *p, u32 bytes)
{
	return find_from(w, p, bytes, PORT);
}

enum thc_got take_marked(struct worker *w, const struct packet *p, u32 bytes, int ce);

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
u32 again(struct worker *w, struct thc_stream *st, u64 *sent, u32 room, u64 *due);

void assert_again(struct worker *w, struct thc_stream *st, u64 first, u32 count);

#define CASE(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif /* TESTS_UNIT_WORKER_H */
