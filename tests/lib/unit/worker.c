// SPDX-License-Identifier: GPL-2.0
#include "worker.h"

void begin_epoch(struct thc_sender *s, const u8 *key, u8 seal, u8 salt)
{
	struct thc_spec spec = { .seal = seal };

	memset(spec.salt, salt, sizeof(spec.salt));
	thc_sender_set_key(s, key);
	thc_sender_set_epoch(s, &spec, key);
}

int setup(void **state)
{
	struct worker *w = calloc(1, sizeof(*w));

	*state = w;
	if (!w)
		return -1;
	thc_stream_init(&w->s.data, w->flights, 0, DATA_SLOTS);
	thc_stream_init(&w->s.control, w->flights + DATA_SLOTS, DATA_SLOTS, NORM_SLOTS);
	thc_sender_init(&w->s, DATA_SLOTS);
	w->s.epoch = EPOCH;
	w->s.job = JOB;
	w->s.port = PORT;
	w->s.end.addr = thc_addr_v4(thc_be32(0x0a000007));
	w->s.end.port = thc_be16(40000);
	begin_epoch(&w->s, test_key, THC_SEAL_NH, EPOCH);
	w->s.all = thc_ranks_mask(RANKS);
	w->s.widths.sum[3] = SUM_WIDTH;
	w->now = 1000 * THC_NS_PER_MS;
	w->s.progress_at = w->now;
	return 0;
}

struct thc_flight *launch_in(struct worker *w, struct thc_stream *st, u32 round)
{
	int control = st == &w->s.control;
	struct thc_hdr *h = &w->request[st->slot_base + st->next % st->slots];
	struct thc_ready ready = { w, h, (u32)st->next + 100, control ? LANES_BYTES : DATA_BYTES };
	struct thc_flight *f;

	memset(h, 0, sizeof(*h));
	h->version = THC_VERSION;
	h->op = control ? THC_OP_MAX : THC_OP_LUT_ADD;
	h->width = control ? 32 : 4;
	h->job = thc_be16(JOB);
	h->epoch = thc_be32(w->s.epoch);
	h->round = thc_be32(round);
	thc_stream_fill(st, h, st->next);
	thc_seal(h, w->s.seal, &w->s.up, NULL, 0);
	f = thc_flight_launch(&w->s, st, ready, w->now);
	assert_ptr_equal(f, &st->flight[f->sequence % st->slots]);
	return f;
}

u32 launch_all(struct worker *w, struct thc_stream *st, u32 window, u32 most)
{
	u32 n = 0;

	while (n < most && thc_stream_may_send(st, window)) {
		launch(w, st);
		n++;
	}
	return n;
}

struct thc_flight *data(struct worker *w, u64 sequence)
{
	struct thc_flight *f = thc_stream_flight(&w->s.data, sequence);

	assert_int_equal(f->sequence, sequence);
	return f;
}

struct packet result(struct worker *w, const struct thc_stream *st, u64 sequence, u8 flags)
{
	struct packet p = { .h = {
				    .version = THC_VERSION,
				    .op = st == &w->s.control ? THC_OP_MAX : THC_OP_LUT_ADD,
				    .width = st == &w->s.control ? 32 : SUM_WIDTH,
				    .flags = THC_F_ANSWER | flags,
				    .key_id = w->s.down.id,
				    .job = thc_be16(JOB),
				    .epoch = thc_be32(w->s.epoch),
				    .round = thc_be32(ROUND),
				    .count = thc_be16(2),
				    .bitmap = thc_be64(3),
			    } };

	thc_stream_fill(st, &p.h, sequence);
	return p;
}

struct packet notice(struct worker *w, const struct thc_stream *st, u64 sequence, u8 op, u8 flags,
		     u64 bitmap)
{
	struct packet p = result(w, st, sequence, 0);

	p.h.op = op;
	p.h.width = 0;
	p.h.flags = flags;
	p.h.bitmap = thc_be64(bitmap);
	p.h.count = thc_be16(thc_ranks_count(bitmap));
	return p;
}

void seal(struct worker *w, struct packet *p, u32 bytes)
{
	const u32 slot = thc_be16(p->h.slot) % (DATA_SLOTS + NORM_SLOTS);
	const int words = (int)((bytes - sizeof(p->h)) / 8);

	if (p->h.op == THC_OP_STALE && p->h.flags & THC_F_EPOCH)
		thc_member_seal(&p->h, w->s.member_seal, &w->s.lost, &w->s.end,
				&w->request[slot].tag, 1);
	else
		thc_seal(&p->h, w->s.seal, &w->s.down, p->lanes, words);
}

struct packet epoch_over(struct worker *w, const struct thc_stream *st, u64 sequence, u32 epoch)
{
	struct packet p = notice(w, st, sequence, THC_OP_STALE, THC_F_EPOCH, 3);

	p.h.epoch = thc_be32(epoch);
	p.h.rank = thc_be16(THC_WORKER_NONE);
	seal(w, &p, sizeof(p.h));
	return p;
}

enum thc_got find_from(struct worker *w, const struct packet *p, u32 bytes, u16 port)
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

enum thc_got take_marked(struct worker *w, const struct packet *p, u32 bytes, int ce)
{
	enum thc_got got = find(w, p, bytes);

	thc_sender_apply(&w->s, got, w->stream, w->flight, &p->h, ce, w->now);
	return got;
}

u32 again(struct worker *w, struct thc_stream *st, u64 *sent, u32 room, u64 *due)
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

void assert_again(struct worker *w, struct thc_stream *st, u64 first, u32 count)
{
	u64 sent[DATA_SLOTS];
	u32 n = again(w, st, sent, DATA_SLOTS, NULL), i;

	assert_int_equal(n, count);
	for (i = 0; i < count; i++)
		assert_int_equal(sent[i], first + i);
}
