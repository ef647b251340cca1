// SPDX-License-Identifier: GPL-2.0
/*
 * A worker's side of the protocol (include/thc/worker/), rule by rule; test_worker_overdue.c tests
 * its timers, and test_worker_loss.c runs it with slots over a bad network.
 */
#include "worker.h"

#include <thc/worker/stall.h>

/* --- in order ------------------------------------------------------------- */

static void answers__in_order_free_slots_and_open_the_window(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u32 window = thc_window_size(&w->s.window);
	u64 i;

	st->reserved = 1000;
	assert_int_equal(launch_all(w, st, window, ~0U), window);
	assert_int_equal(st->in_flight, window);
	assert_int_equal(st->next, window);
	for (i = 0; i < window; i++) {
		struct thc_flight *f = data(w, i);

		assert_ptr_equal(f->owner, w);
		assert_int_equal(f->index, i + 100);
		assert_int_equal(f->bytes, DATA_BYTES);
		assert_int_equal(f->due, w->now + THC_RTO_FIRST);
	}
	w->now += RTT;
	for (i = 0; i < window; i++) {
		assert_int_equal(take_result(w, st, i, 0), THC_GOT_ANSWER);
		assert_ptr_equal(w->stream, st);
		assert_ptr_equal(w->flight, data(w, i));
		assert_null(w->flight->owner);
		assert_int_equal(st->in_flight, window - 1 - i);
		assert_int_equal(thc_window_size(&w->s.window), window + 1 + i);
	}
	assert_int_equal(w->s.progress_at, w->now);
	assert_int_equal(w->s.window.srtt, RTT);
	assert_int_equal(w->s.window.cuts, 0);
	assert_int_equal(launch_all(w, st, thc_window_size(&w->s.window), ~0U), 2 * window);
}

static void answers__of_norms_are_in_their_own_slots(void **state)
{
	struct worker *w = *state;
	struct packet p;

	w->s.control.reserved = 2 * NORM_SLOTS;
	launch_data(w, 2);
	assert_int_equal(launch_all(w, &w->s.control, NORM_SLOTS, ~0U), NORM_SLOTS);
	assert_int_equal(take_result(w, &w->s.control, 1, 0), THC_GOT_ANSWER);
	assert_ptr_equal(w->stream, &w->s.control);
	assert_ptr_equal(w->flight, &w->flights[DATA_SLOTS + 1]);
	assert_int_equal(w->s.control.in_flight, NORM_SLOTS - 1);
	assert_int_equal(w->s.data.in_flight, 2);
	/* data with a norm's width, and a norm with that of data */
	p = result(w, &w->s.data, 1, 0);
	p.h.width = 32;
	assert_int_equal(take(w, &p, LANES_BYTES), THC_GOT_UNEXPECTED);
	p = result(w, &w->s.control, 2, 0);
	p.h.width = SUM_WIDTH;
	assert_int_equal(take(w, &p, LANES_BYTES), THC_GOT_UNEXPECTED);
}

static void answers__twice_land_once(void **state)
{
	struct worker *w = *state;

	launch_data(w, 2);
	assert_int_equal(take_result(w, &w->s.data, 0, 0), THC_GOT_ANSWER);
	assert_int_equal(take_result(w, &w->s.data, 0, 0), THC_GOT_UNEXPECTED);
	assert_int_equal(take_result(w, &w->s.data, 0, THC_F_REPEAT), THC_GOT_UNEXPECTED);
	assert_int_equal(w->s.data.in_flight, 1);
}

/* --- what is not an answer ------------------------------------------------ */

static void find__leaves_foreign_packets_alone(void **state)
{
	struct worker *w = *state;
	struct packet good, p;

	launch_data(w, 1);
	good = p = result(w, &w->s.data, 0, 0);
	p.h.version++;
	assert_int_equal(find(w, &p, LANES_BYTES), THC_GOT_FOREIGN);
	assert_null(w->stream);
	assert_null(w->flight);
	p = good;
	p.h.key_id ^= thc_be32(1);
	assert_int_equal(find(w, &p, LANES_BYTES), THC_GOT_FOREIGN);
	/* keys of STALE and of joining seal no answers */
	p.h.key_id = w->s.lost.id;
	assert_int_equal(find(w, &p, LANES_BYTES), THC_GOT_FOREIGN);
	p.h.key_id = 0;
	assert_int_equal(find(w, &p, LANES_BYTES), THC_GOT_FOREIGN);
	p = good;
	p.h.job = thc_be16(JOB + 1);
	assert_int_equal(find(w, &p, LANES_BYTES), THC_GOT_FOREIGN);
	p = good;
	p.h.op = THC_OP_WELCOME;
	assert_int_equal(find(w, &p, LANES_BYTES), THC_GOT_FOREIGN);
	assert_int_equal(find(w, &good, LANES_BYTES - 4), THC_GOT_FOREIGN);
	assert_int_equal(find(w, &good, sizeof(good.h) - 8), THC_GOT_FOREIGN);
	assert_int_equal(find(w, &good, 0), THC_GOT_FOREIGN);
	/* another job's STALE, one under the answers' key, or under none does not end our epoch */
	p = epoch_over(w, &w->s.data, 0, EPOCH + 1);
	p.h.job = thc_be16(JOB + 1);
	assert_int_equal(find(w, &p, sizeof(p.h)), THC_GOT_FOREIGN);
	p = epoch_over(w, &w->s.data, 0, EPOCH + 1);
	p.h.key_id = w->s.down.id;
	assert_int_equal(find(w, &p, sizeof(p.h)), THC_GOT_FOREIGN);
	p.h.key_id = 0;
	assert_int_equal(find(w, &p, sizeof(p.h)), THC_GOT_FOREIGN);
	assert_int_equal(find(w, &good, LANES_BYTES), THC_GOT_ANSWER);
}

/* Any program of the aggregator's host can send from its address. */
static void find__asks_from_which_port(void **state)
{
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 80);
	p = result(w, &w->s.data, 70, 0);
	assert_int_equal(find_from(w, &p, LANES_BYTES, PORT), THC_GOT_ANSWER);
	assert_int_equal(find_from(w, &p, LANES_BYTES, PORT + 1), THC_GOT_ANSWER);
	assert_int_equal(find_from(w, &p, LANES_BYTES, PORT + 2), THC_GOT_FOREIGN);
	assert_int_equal(find_from(w, &p, LANES_BYTES, PORT - 1), THC_GOT_FOREIGN);
	assert_int_equal(find_from(w, &p, LANES_BYTES, 0), THC_GOT_FOREIGN);
	w->s.one_port = 1;
	assert_int_equal(find_from(w, &p, LANES_BYTES, PORT), THC_GOT_ANSWER);
	assert_int_equal(find_from(w, &p, LANES_BYTES, PORT + 1), THC_GOT_FOREIGN);
	w->s.one_port = 0;
	/* for any kind of packet */
	p = epoch_over(w, &w->s.data, 70, EPOCH + 1);
	assert_int_equal(find_from(w, &p, sizeof(p.h), PORT), THC_GOT_EPOCH);
	assert_int_equal(find_from(w, &p, sizeof(p.h), PORT + 1), THC_GOT_EPOCH);
	assert_int_equal(find_from(w, &p, sizeof(p.h), PORT + 2), THC_GOT_FOREIGN);
	/* slots that the job lacks have no port */
	p.h.slot = thc_be16(64 * 64);
	assert_int_equal(find_from(w, &p, sizeof(p.h), PORT + 64), THC_GOT_FOREIGN);
	assert_int_equal(find_from(w, &p, sizeof(p.h), PORT), THC_GOT_UNEXPECTED);
	p.h.slot = thc_be16(DATA_SLOTS + NORM_SLOTS - 1);
	assert_int_equal(find_from(w, &p, sizeof(p.h), PORT + 4), THC_GOT_UNEXPECTED);
	p.h.slot = thc_be16(DATA_SLOTS + NORM_SLOTS);
	assert_int_equal(find_from(w, &p, sizeof(p.h), PORT + 4), THC_GOT_FOREIGN);
}

/* The packet is about the chunk in flight, but does not answer the request. */
static void assert_no_answer(struct worker *w, const struct packet *p, u32 bytes)
{
	assert_int_equal(take(w, p, bytes), THC_GOT_UNEXPECTED);
	assert_ptr_equal(w->flight, data(w, 0));
	assert_ptr_equal(w->flight->owner, w);
	assert_int_equal(w->s.data.in_flight, 1);
}

/* The count must be right, since it scales the mean. */
static void find__counts_who_is_in(void **state)
{
	static const struct {
		u64 bitmap;
		u16 count;
	} wrong[] = {
		{ 3, 1 },
		{ 3, 3 },
		{ 0, 0 },
		{ 0, 2 },
		{ 1 << RANKS | 1, 2 },
		{ 1ULL << 63, 1 },
		{ 3, THC_COUNT_EXCLUDED | 2 },
		{ 0xff, 256 + 8 },
	};
	struct worker *w = *state;
	struct packet p;
	size_t i;

	launch_data(w, 1);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		p = result(w, &w->s.data, 0, 0);
		p.h.bitmap = thc_be64(wrong[i].bitmap);
		p.h.count = thc_be16(wrong[i].count);
		assert_no_answer(w, &p, LANES_BYTES);
		p.h.op = THC_OP_WAIT;
		p.h.flags = 0;
		assert_no_answer(w, &p, sizeof(p.h));
		p.h.op = THC_OP_STALE;
		p.h.flags = THC_F_KNOWN;
		assert_no_answer(w, &p, sizeof(p.h));
	}
	for (i = 0; i < 64; i++) {
		assert_int_equal(thc_ranks_count(1ULL << i), 1);
		assert_int_equal(thc_ranks_count(thc_ranks_mask((u32)i + 1)), i + 1);
	}
	assert_int_equal(thc_ranks_count(0), 0);
}

static void find__takes_only_what_was_asked_for(void **state)
{
	struct worker *w = *state;
	struct packet good, p;

	launch_data(w, 1);
	good = p = result(w, &w->s.data, 0, 0);
	p.h.op = THC_OP_MAX;
	assert_no_answer(w, &p, LANES_BYTES);
	p = good;
	p.h.round = thc_be32(ROUND + 1);
	assert_no_answer(w, &p, LANES_BYTES);
	p = good;
	p.h.width = 16;
	assert_no_answer(w, &p, LANES_BYTES);
	p = good;
	p.h.width = 4;		/* the worker's own request, reflected */
	assert_no_answer(w, &p, LANES_BYTES);
	p = good;
	p.h.count = 0;
	assert_no_answer(w, &p, LANES_BYTES);
	p.h.count = thc_be16(THC_COUNT_EXCLUDED);
	assert_no_answer(w, &p, LANES_BYTES);
	p.h.op = THC_OP_STALE;
	p.h.flags = THC_F_KNOWN;
	assert_no_answer(w, &p, sizeof(p.h));
	p = good;
	p.h.flags = 0;
	assert_no_answer(w, &p, LANES_BYTES);
	assert_no_answer(w, &good, LANES_BYTES - 8);
	assert_no_answer(w, &good, LANES_BYTES + 8);
	assert_no_answer(w, &good, sizeof(good.h));
	assert_int_equal(take(w, &good, LANES_BYTES), THC_GOT_ANSWER);
}

/* The first contribution may have been lanes of a node that passes sums on. */
static void find__takes_sums_of_indices_by_another_op(void **state)
{
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 1);
	p = result(w, &w->s.data, 0, 0);
	assert_int_equal(p.h.op, THC_OP_LUT_ADD);
	p.h.op = THC_OP_ADD;
	assert_int_equal(take(w, &p, LANES_BYTES), THC_GOT_ANSWER);
}

static void assert_about_nobody(struct worker *w, const struct packet *p)
{
	assert_int_equal(take(w, p, LANES_BYTES), THC_GOT_UNEXPECTED);
	assert_null(w->stream);
	assert_null(w->flight);
}

static void find__knows_slot_chunk_and_generation(void **state)
{
	struct worker *w = *state;
	struct packet good, p;

	launch_data(w, 2);
	good = p = result(w, &w->s.data, 0, 0);
	p.h.slot = thc_be16(1);
	assert_about_nobody(w, &p);
	p = good;
	p.h.chunk = thc_be32(1);
	assert_about_nobody(w, &p);
	p = good;
	p.h.generation = thc_be32(1);
	assert_about_nobody(w, &p);
	p = good;
	p.h.slot = thc_be16(DATA_SLOTS + NORM_SLOTS);
	assert_about_nobody(w, &p);
	p.h.slot = thc_be16(0xffff);
	assert_about_nobody(w, &p);
	p = good;
	p.h.epoch = thc_be32(EPOCH - 1);
	assert_about_nobody(w, &p);
	p.h.epoch = thc_be32(EPOCH + 1);
	assert_about_nobody(w, &p);
	assert_int_equal(w->s.data.in_flight, 2);
}

/* An aggregator sends STALE for every request with an unknown key: a STALE about no request in
 * flight may be recorded, and one of this epoch is about a forged packet.
 */
static void find__believes_that_the_epoch_is_another(void **state)
{
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 2);
	p = epoch_over(w, &w->s.data, 1, EPOCH + 1);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_EPOCH);
	assert_ptr_equal(w->flight, data(w, 1));
	/* an aggregator that has lost its state may be behind */
	p = epoch_over(w, &w->s.data, 1, EPOCH - 1);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_EPOCH);
	p = epoch_over(w, &w->s.data, 1, EPOCH);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_UNEXPECTED);
	assert_null(w->flight);
	p = epoch_over(w, &w->s.data, 1, EPOCH + 1);
	p.h.generation = thc_be32(1);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_UNEXPECTED);
	p = epoch_over(w, &w->s.data, 1, EPOCH + 1);
	p.h.chunk = thc_be32(0);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_UNEXPECTED);
	p = epoch_over(w, &w->s.data, 2, EPOCH + 1);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_UNEXPECTED);
	p = epoch_over(w, &w->s.data, DATA_SLOTS + NORM_SLOTS, EPOCH + 1);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_UNEXPECTED);
	answer_data(w, 1, 2);
	p = epoch_over(w, &w->s.data, 1, EPOCH + 1);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_UNEXPECTED);
	assert_int_equal(w->s.data.in_flight, 1);
}

/* --- seals ---------------------------------------------------------------- */

/* Is @p, of @bytes, taken for the aggregator's? */
static int is_genuine(struct worker *w, const struct packet *p, u32 bytes)
{
	enum thc_got got = find(w, p, bytes);
	int words = (int)((bytes - sizeof(p->h)) / 8);

	return thc_sender_seal_ok(&w->s, got, w->flight, &p->h,
				  thc_seal_digest(w->s.seal, &w->s.down, p->lanes, words), words);
}

static void seal__guards_header_and_payload(void **state)
{
	static const u8 seals[] = { THC_SEAL_NH, THC_SEAL_SUM };
	struct worker *w = *state;
	struct packet p;
	size_t i;

	launch_data(w, 1);
	for (i = 0; i < sizeof(seals); i++) {
		begin_epoch(&w->s, seals[i] == THC_SEAL_NH ? test_key : NULL, seals[i], 1);
		p = result(w, &w->s.data, 0, 0);
		seal(w, &p, LANES_BYTES);
		assert_true(is_genuine(w, &p, LANES_BYTES));
		p.lanes[THC_LANE_BYTES - 1] ^= 0x80;
		assert_false(is_genuine(w, &p, LANES_BYTES));
		p.lanes[THC_LANE_BYTES - 1] ^= 0x80;
		p.h.count ^= thc_be16(1);
		assert_false(is_genuine(w, &p, LANES_BYTES));
		p.h.count ^= thc_be16(1);
		p.h.tag ^= thc_be64(1ULL << 63);
		assert_false(is_genuine(w, &p, LANES_BYTES));
	}
	/* without a seal, lanes are not checked, and the tag must be zero */
	begin_epoch(&w->s, NULL, THC_SEAL_NONE, 1);
	p = result(w, &w->s.data, 0, 0);
	p.lanes[7] = 1;
	assert_true(is_genuine(w, &p, LANES_BYTES));
	p.h.tag = 1;
	assert_false(is_genuine(w, &p, LANES_BYTES));
}

/* Requests and answers have different keys: a worker's own packet is no answer. */
static void seal__of_requests_is_not_that_of_answers(void **state)
{
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 1);
	assert_int_equal(w->s.up.id, w->s.down.id);
	p = result(w, &w->s.data, 0, 0);
	thc_seal(&p.h, w->s.seal, &w->s.up, p.lanes, THC_LANE_WORDS);
	assert_int_equal(find(w, &p, LANES_BYTES), THC_GOT_ANSWER);
	assert_false(is_genuine(w, &p, LANES_BYTES));
}

/* Each change makes the aggregator's STALE invalid. */
static void seal__of_an_epochs_end_is_for_one_request(void **state)
{
	static const u8 seals[] = { THC_SEAL_NH, THC_SEAL_SUM, THC_SEAL_NONE };
	struct worker *w = *state;
	struct packet good, p;
	size_t i;

	launch_data(w, 2);
	for (i = 0; i < sizeof(seals); i++) {
		int keyed = seals[i] == THC_SEAL_NH;

		begin_epoch(&w->s, keyed ? test_key : NULL, seals[i], 1);
		w->request[0].tag = thc_be64(0x1111);
		w->request[1].tag = thc_be64(0x2222);
		good = p = epoch_over(w, &w->s.data, 1, EPOCH + 1);
		assert_true(is_genuine(w, &p, sizeof(p.h)));
		p.h.rank = thc_be16(5);
		assert_false(is_genuine(w, &p, sizeof(p.h)));
		p = good;
		p.h.epoch = thc_be32(EPOCH + 2);
		assert_false(is_genuine(w, &p, sizeof(p.h)));
		/* another request is in flight */
		w->request[1].tag = thc_be64(0x1111);
		assert_false(is_genuine(w, &good, sizeof(p.h)));
		w->request[1].tag = thc_be64(0x2222);
		assert_true(is_genuine(w, &good, sizeof(p.h)));
		/* a STALE has only a header */
		memcpy(p.lanes, &w->request[1].tag, 8);
		p.h = good.h;
		assert_false(is_genuine(w, &p, sizeof(p.h) + 8));
		thc_member_seal(&p.h, w->s.member_seal, &w->s.lost, &w->s.end, p.lanes, 1);
		assert_false(is_genuine(w, &p, sizeof(p.h) + 8));
		/* for another worker's address or port: only seals with a key cover them */
		w->s.end.port ^= thc_be16(1);
		assert_int_equal(is_genuine(w, &good, sizeof(p.h)), !keyed);
		w->s.end.port ^= thc_be16(1);
		w->s.end.addr.word[3] ^= thc_be32(1);
		assert_int_equal(is_genuine(w, &good, sizeof(p.h)), !keyed);
		w->s.end.addr.word[3] ^= thc_be32(1);
	}
}

/* --- slots ---------------------------------------------------------------- */

static void slots__are_used_again_once_answered(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	struct thc_flight *f;
	struct thc_hdr h;

	launch_data(w, DATA_SLOTS);
	st->reserved += 2;
	/* all others are answered, but chunk DATA_SLOTS waits for chunk 0's slot */
	answer_data(w, 1, DATA_SLOTS);
	assert_false(thc_stream_may_send(st, DATA_SLOTS));
	assert_int_equal(take_wait(w, st, 0, THC_F_LEFT, 5), THC_GOT_WAIT);
	answer_data(w, 0, 1);
	assert_true(thc_stream_may_send(st, DATA_SLOTS));
	f = launch(w, st);
	assert_ptr_equal(f, &w->flights[0]);
	thc_stream_fill(st, &h, f->sequence);
	assert_int_equal(thc_be32(h.chunk), DATA_SLOTS);
	assert_int_equal(thc_be16(h.slot), 0);
	assert_int_equal(thc_be32(h.generation), 1);
	/* the slot forgets the former chunk, whose answers no longer count */
	assert_int_equal(f->present, 0);
	assert_false(f->left || f->waiting || f->tries);
	assert_int_equal(take_result(w, st, 0, 0), THC_GOT_UNEXPECTED);
	assert_null(w->flight);
	assert_int_equal(take_wait(w, st, 0, 0, 1), THC_GOT_UNEXPECTED);
	assert_null(w->flight);
	assert_int_equal(st->in_flight, 1);
	assert_int_equal(take_result(w, st, DATA_SLOTS, 0), THC_GOT_ANSWER);
	/* an answer to the slot's next chunk, which was not sent, does not count */
	assert_int_equal(take_result(w, st, 2 * DATA_SLOTS, 0), THC_GOT_UNEXPECTED);
	assert_null(w->flight);
}

static void slots__count_beyond_32_bits(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u64 first = 1ULL << 32 | 5;
	struct packet p;

	st->next = first;
	st->oldest = first;
	st->reserved = first + 1;
	launch(w, st);
	p = result(w, st, first, 0);
	assert_int_equal(thc_be32(p.h.chunk), 5);
	assert_int_equal(thc_be16(p.h.slot), 5);
	assert_int_equal(thc_be32(p.h.generation), (u32)(first / DATA_SLOTS));
	assert_int_equal(take(w, &p, LANES_BYTES), THC_GOT_ANSWER);
}

static void may_send__minds_reservation_window_and_slots(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;

	assert_false(thc_stream_may_send(st, DATA_SLOTS));
	st->reserved = 10 * DATA_SLOTS;
	assert_true(thc_stream_may_send(st, 1));
	launch(w, st);
	assert_false(thc_stream_may_send(st, 1));
	assert_true(thc_stream_may_send(st, 2));
	assert_int_equal(launch_all(w, st, ~0U, ~0U), DATA_SLOTS - 1);
	assert_false(thc_stream_may_send(st, ~0U));
}

static void forget__frees_slots_and_gives_up_reservations(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;

	launch_data(w, 10);
	st->reserved += 20;
	thc_stream_forget(st);
	assert_int_equal(st->in_flight, 0);
	assert_int_equal(st->next, 30);
	assert_false(thc_stream_may_send(st, DATA_SLOTS));
	assert_int_equal(take_result(w, st, 3, 0), THC_GOT_UNEXPECTED);
	assert_int_equal(take_wait(w, st, 4, 0, 1), THC_GOT_UNEXPECTED);
	assert_int_equal(st->in_flight, 0);
	w->now += 1000 * THC_NS_PER_MS;
	assert_again(w, st, 0, 0);
	launch_data(w, 2);
	answer_data(w, 30, 32);
}

/* --- loss ----------------------------------------------------------------- */

static void loss__is_seen_by_later_answers(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u32 window = thc_window_size(&w->s.window), reorder = window / 4, n;
	u64 sent[DATA_SLOTS];
	struct thc_flight *f;
	u64 order;

	assert_true(reorder > THC_REORDER_MIN && reorder < THC_REORDER_MAX);
	launch_data(w, window);
	/* chunk 0 is late by no more than reordering explains */
	answer_data(w, reorder, reorder + 1);
	w->s.window.size = window * THC_WINDOW_ONE;
	assert_again(w, st, 0, 0);
	/* late by one more; an answer to an earlier packet adds nothing */
	answer_data(w, reorder + 1, reorder + 2);
	answer_data(w, 2, 3);
	w->s.window.size = window * THC_WINDOW_ONE;
	order = w->s.order;
	assert_again(w, st, 0, 1);
	f = data(w, 0);
	assert_int_equal(f->tries, 1);
	assert_true(f->cut);
	assert_int_equal(f->order, order);
	assert_int_equal(f->due, w->now + 2 * thc_window_rto(&w->s.window));
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
	assert_int_equal(w->s.window.cuts, 1);
	/* the same answers do not show another loss */
	w->s.window.size = window * THC_WINDOW_ONE;
	assert_again(w, st, 0, 0);
	/* further losses of one round trip: no further cut */
	answer_data(w, window - 1, window);
	n = again(w, st, sent, DATA_SLOTS, NULL);
	assert_true(n > reorder);
	assert_int_equal(sent[0], 1);
	assert_int_equal(sent[1], 3);
	assert_int_equal(w->s.window.cuts, 1);
	assert_false(data(w, 1)->cut);
}

/* The first loss halves the window; the next pass measures by that. */
static void loss__in_one_pass_is_measured_alike(void **state)
{
	struct worker *w = *state;

	launch_data(w, 64);
	answer_data(w, 20, 21);
	w->s.window.size = 64 * THC_WINDOW_ONE;
	assert_again(w, &w->s.data, 0, 4);
	assert_int_equal(thc_window_size(&w->s.window), 32);
	assert_again(w, &w->s.data, 4, 8);
}

static void loss__is_not_seen_by_answers_to_retransmissions(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u64 sent[4];

	launch_data(w, 60);
	w->now += THC_RTO_FIRST;
	assert_int_equal(again(w, st, sent, 4, NULL), THC_PROBES);
	/* chunk 0's last transmission came after all others' first */
	assert_true(data(w, 0)->order > data(w, 59)->order);
	answer_data(w, 0, 1);
	assert_int_equal(st->order_answered, 1);
	w->s.timers_at = ~0ULL;
	assert_again(w, st, 0, 0);
}

static void loss__of_norms_is_not_seen_by_data(void **state)
{
	struct worker *w = *state;

	w->s.control.reserved = 1;
	launch(w, &w->s.control);
	launch_data(w, 200);
	answer_data(w, 100, 200);
	assert_again(w, &w->s.control, 0, 0);
	assert_int_equal(w->s.control.order_answered, 0);
	assert_true(w->s.data.order_answered > 100);
}

static void loss__gives_no_sample_of_the_round_trip(void **state)
{
	struct worker *w = *state;
	u64 sent[4];

	launch_data(w, 1);
	w->now += RTT;
	answer_data(w, 0, 1);
	assert_int_equal(w->s.window.srtt, RTT);
	launch_data(w, 1);
	w->now += THC_RTO_MAX;
	assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 1);
	w->now += 2 * RTT;
	answer_data(w, 1, 2);
	assert_int_equal(w->s.window.srtt, RTT);
}

static void ce__cuts_like_a_loss(void **state)
{
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 64);
	p = result(w, &w->s.data, 0, 0);
	assert_int_equal(take_marked(w, &p, LANES_BYTES, 1), THC_GOT_ANSWER);
	assert_int_equal(w->s.window.cuts, 1);
	/* one cut per round trip, for any kind of mark */
	assert_int_equal(take_result(w, &w->s.data, 1, THC_F_CE), THC_GOT_ANSWER);
	assert_int_equal(w->s.window.cuts, 1);
	launch_data(w, 2);
	assert_int_equal(take_result(w, &w->s.data, 64, THC_F_CE), THC_GOT_ANSWER);
	assert_int_equal(w->s.window.cuts, 2);
	/* an answer that is not awaited does not count */
	launch_data(w, 2);
	answer_data(w, 66, 67);
	assert_int_equal(take_result(w, &w->s.data, 66, THC_F_CE), THC_GOT_UNEXPECTED);
	assert_int_equal(w->s.window.cuts, 2);
	/* a WAIT does */
	assert_int_equal(take_wait(w, &w->s.data, 67, THC_F_CE, 1), THC_GOT_WAIT);
	assert_int_equal(w->s.window.cuts, 3);
}

/* The aggregator repeats a chunk's mark while a rank is missing: it cuts once. A mark on the
 * packet itself is another mark.
 */
static void ce__of_a_chunk_cuts_once(void **state)
{
	struct worker *w = *state;
	struct packet p;
	int i;

	launch_data(w, 1);
	for (i = 0; i < 10; i++) {
		assert_int_equal(take_wait(w, &w->s.data, 0, THC_F_CE, 1), THC_GOT_WAIT);
		assert_int_equal(w->s.window.cuts, 1);
	}
	w->s.window.cuts = 0;
	p = notice(w, &w->s.data, 0, THC_OP_WAIT, THC_F_CE, 1);
	assert_int_equal(take_marked(w, &p, sizeof(p.h), 1), THC_GOT_WAIT);
	assert_int_equal(take_marked(w, &p, sizeof(p.h), 1), THC_GOT_WAIT);
	assert_int_equal(w->s.window.cuts, 2);
	assert_int_equal(take_result(w, &w->s.data, 0, THC_F_CE), THC_GOT_ANSWER);
	assert_int_equal(w->s.window.cuts, 2);
	/* the slot's next chunk has a mark of its own */
	launch_data(w, DATA_SLOTS);
	assert_int_equal(take_wait(w, &w->s.data, DATA_SLOTS, THC_F_CE, 1), THC_GOT_WAIT);
	assert_int_equal(w->s.window.cuts, 3);
}

/* --- neither lost: WAIT, REPEAT ------------------------------------------- */

/* Chunk 0 is taken for lost and sent again, which cuts the window. */
static u32 lose_first(struct worker *w)
{
	u32 window;

	launch_data(w, 64);
	answer_data(w, 40, 41);
	window = thc_window_size(&w->s.window);
	assert_again(w, &w->s.data, 0, 24);
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
	assert_true(data(w, 0)->cut);
	assert_false(data(w, 1)->cut);
	return window;
}

static void wait__undoes_the_cut(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u32 window = lose_first(w);

	assert_int_equal(take_wait(w, st, 1, 0, 0x15), THC_GOT_WAIT);
	/* another packet's WAIT does not undo this cut */
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
	assert_int_equal(take_wait(w, st, 0, THC_F_LEFT, 0x25), THC_GOT_WAIT);
	assert_int_equal(thc_window_size(&w->s.window), window);
	assert_ptr_equal(data(w, 0)->owner, w);
	assert_true(data(w, 0)->waiting && data(w, 0)->left && !data(w, 0)->cut);
	assert_int_equal(data(w, 0)->present, 0x25);
	assert_true(data(w, 1)->waiting && !data(w, 1)->left);
	assert_int_equal(data(w, 1)->present, 0x15);
	/* only once */
	w->s.window.size = 40 * THC_WINDOW_ONE;
	assert_int_equal(take_wait(w, st, 0, 0, 0x25), THC_GOT_WAIT);
	assert_int_equal(thc_window_size(&w->s.window), 40);
	/* the missing rank came back */
	assert_false(data(w, 0)->left);
}

/* WAIT with a mark: the packet was not lost, but met congestion; one of two cuts stays. */
static void wait__with_a_mark_undoes_the_loss_alone(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u32 window = lose_first(w), threshold = w->s.window.threshold_before_cut;

	/* the mark's cut does not depend on answers that came in between */
	w->s.window.size += 5 * THC_WINDOW_ONE;
	assert_true(threshold > window * THC_WINDOW_ONE);
	assert_int_equal(take_wait(w, st, 0, THC_F_CE, 1), THC_GOT_WAIT);
	assert_int_equal(w->s.window.cuts, 2);
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
	assert_int_equal(w->s.window.threshold / THC_WINDOW_ONE, window / 2);
	/* nothing undoes the mark's cut */
	data(w, 1)->cut = 1;
	assert_int_equal(take_wait(w, st, 1, 0, 1), THC_GOT_WAIT);
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
}

static void wait__of_before_takes_nobody_away(void **state)
{
	struct worker *w = *state;

	launch_data(w, 1);
	assert_int_equal(take_wait(w, &w->s.data, 0, 0, 0x7), THC_GOT_WAIT);
	assert_int_equal(take_wait(w, &w->s.data, 0, 0, 0x1), THC_GOT_WAIT);
	assert_int_equal(take_wait(w, &w->s.data, 0, 0, 0x20), THC_GOT_WAIT);
	assert_int_equal(thc_sender_absent(&w->s, ROUND).missing, 0xd8);
}

static void wait__means_just_sent(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;

	launch_data(w, 64);
	assert_int_equal(take_wait(w, st, 0, 0, 1), THC_GOT_WAIT);
	answer_data(w, 63, 64);
	/* of the other chunks, those that are late are lost */
	assert_again(w, st, 1, 64 - 1 - thc_window_size(&w->s.window) / 4 - 1);
	assert_int_equal(data(w, 0)->tries, 0);
	/* chunk 0 waited for a rank, so its time is no round trip */
	w->s.window.srtt = 0;
	w->now += RTT;
	answer_data(w, 0, 1);
	assert_int_equal(w->s.window.srtt, 0);
}

static void wait__asking_again_is_no_loss(void **state)
{
	struct worker *w = *state;
	u64 sent[4];

	launch_data(w, 1);
	assert_int_equal(take_wait(w, &w->s.data, 0, 0, 1), THC_GOT_WAIT);
	w->now += THC_RTO_FIRST;
	assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 1);
	assert_int_equal(w->s.window.cuts, 0);
	assert_false(data(w, 0)->waiting);
	/* the next time no WAIT has come since */
	w->now = data(w, 0)->due + THC_RTO_MAX;
	assert_int_equal(again(w, &w->s.data, sent, 4, NULL), 1);
	assert_int_equal(w->s.window.cuts, 1);
}

/* The original's answer was late, and the repetition's follows. */
static void repeat__undoes_the_cut(void **state)
{
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u32 window = lose_first(w);

	answer_data(w, 0, 1);
	assert_true(data(w, 0)->cut);
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
	/* a duplicate of the original's shows nothing */
	assert_int_equal(take_result(w, st, 0, 0), THC_GOT_UNEXPECTED);
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
	/* nor does a repeated answer for a chunk that cut nothing */
	answer_data(w, 1, 2);
	assert_int_equal(take_result(w, st, 1, THC_F_REPEAT), THC_GOT_UNEXPECTED);
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
	assert_int_equal(take_result(w, st, 0, THC_F_REPEAT), THC_GOT_UNEXPECTED);
	assert_int_equal(thc_window_size(&w->s.window), window);
	w->s.window.size = 40 * THC_WINDOW_ONE;
	assert_int_equal(take_result(w, st, 0, THC_F_REPEAT), THC_GOT_UNEXPECTED);
	assert_int_equal(thc_window_size(&w->s.window), 40);
}

static void repeat__as_late_wait_undoes_the_cut(void **state)
{
	struct worker *w = *state;
	u32 window = lose_first(w);

	answer_data(w, 0, 1);
	assert_int_equal(take_wait(w, &w->s.data, 0, 0, 1), THC_GOT_UNEXPECTED);
	assert_int_equal(thc_window_size(&w->s.window), window);
	assert_int_equal(w->s.data.in_flight, 62);
}

static void repeat__in_reply_to_a_loss_keeps_the_cut(void **state)
{
	struct worker *w = *state;
	u32 window = lose_first(w);

	assert_int_equal(take_result(w, &w->s.data, 0, THC_F_REPEAT), THC_GOT_ANSWER);
	assert_int_equal(thc_window_size(&w->s.window), window / 2);
}

/* --- STALE ---------------------------------------------------------------- */

static void stale__lands_if_it_is_known_who_was_in(void **state)
{
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 2);
	w->now += RTT;
	p = notice(w, &w->s.data, 0, THC_OP_STALE, THC_F_KNOWN, 6);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_MISSED);
	assert_ptr_equal(w->flight, data(w, 0));
	assert_null(data(w, 0)->owner);
	assert_int_equal(w->s.data.in_flight, 1);
	assert_int_equal(w->s.progress_at, w->now);
	p = notice(w, &w->s.data, 1, THC_OP_STALE, 0, 0);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_BEHIND);
	assert_ptr_equal(data(w, 1)->owner, w);
	assert_int_equal(w->s.data.in_flight, 1);
	/* about a chunk that has its answer */
	p = notice(w, &w->s.data, 0, THC_OP_STALE, 0, 0);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_UNEXPECTED);
}

/* Without the agreed norms a rank cannot compress. */
static void stale__of_norms_is_the_end(void **state)
{
	struct worker *w = *state;
	struct packet p;

	w->s.control.reserved = 1;
	launch(w, &w->s.control);
	p = notice(w, &w->s.control, 0, THC_OP_STALE, THC_F_KNOWN, 6);
	assert_int_equal(take(w, &p, sizeof(p.h)), THC_GOT_BEHIND);
	assert_int_equal(w->s.control.in_flight, 1);
}

/* --- epochs --------------------------------------------------------------- */

static void init__keeps_what_is_known_of_the_path(void **state)
{
	struct worker *w = *state;

	launch_data(w, 64);
	w->now += RTT;
	answer_data(w, 0, 10);
	w->now += THC_RTO_MAX;
	assert_again(w, &w->s.data, 10, THC_PROBES);
	memset(w->flights, 0, sizeof(w->flights));
	thc_stream_init(&w->s.data, w->flights, 0, DATA_SLOTS);
	thc_sender_init(&w->s, 16);
	w->s.epoch++;
	assert_int_equal(w->s.window.srtt, RTT);
	assert_int_equal(thc_window_size(&w->s.window), 16);
	assert_int_equal(w->s.window.cuts, 0);
	assert_int_equal(w->s.timers_at, 0);
	assert_int_equal(w->s.stalls, 0);
	launch_data(w, 1);
	assert_int_equal(data(w, 0)->first_order, 1);
	answer_data(w, 0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(answers__in_order_free_slots_and_open_the_window),
		CASE(answers__of_norms_are_in_their_own_slots),
		CASE(answers__twice_land_once),
		CASE(find__leaves_foreign_packets_alone),
		CASE(find__asks_from_which_port),
		CASE(find__counts_who_is_in),
		CASE(find__takes_only_what_was_asked_for),
		CASE(find__takes_sums_of_indices_by_another_op),
		CASE(find__knows_slot_chunk_and_generation),
		CASE(find__believes_that_the_epoch_is_another),
		CASE(seal__guards_header_and_payload),
		CASE(seal__of_requests_is_not_that_of_answers),
		CASE(seal__of_an_epochs_end_is_for_one_request),
		CASE(slots__are_used_again_once_answered),
		CASE(slots__count_beyond_32_bits),
		CASE(may_send__minds_reservation_window_and_slots),
		CASE(forget__frees_slots_and_gives_up_reservations),
		CASE(loss__is_seen_by_later_answers),
		CASE(loss__in_one_pass_is_measured_alike),
		CASE(loss__is_not_seen_by_answers_to_retransmissions),
		CASE(loss__of_norms_is_not_seen_by_data),
		CASE(loss__gives_no_sample_of_the_round_trip),
		CASE(ce__cuts_like_a_loss),
		CASE(ce__of_a_chunk_cuts_once),
		CASE(wait__undoes_the_cut),
		CASE(wait__with_a_mark_undoes_the_loss_alone),
		CASE(wait__of_before_takes_nobody_away),
		CASE(wait__means_just_sent),
		CASE(wait__asking_again_is_no_loss),
		CASE(repeat__undoes_the_cut),
		CASE(repeat__as_late_wait_undoes_the_cut),
		CASE(repeat__in_reply_to_a_loss_keeps_the_cut),
		CASE(stale__lands_if_it_is_known_who_was_in),
		CASE(stale__of_norms_is_the_end),
		CASE(init__keeps_what_is_known_of_the_path),
	};

	return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
