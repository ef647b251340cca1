// SPDX-License-Identifier: GPL-2.0
/*
 * How a worker handles packets (include/thc/worker/receive.h, transmit.h), with a host that logs
 * what it is asked for.
 */
#include <stdbool.h>

#include "randomword.h"
#include "worker.h"

#include <thc/worker/receive.h>
#include <thc/worker/transmit.h>

#define ROOM	5

struct thc_host {
	struct worker		*w;
	const struct packet	*p;	/* the packet that comes */
	bool			cut;	/* its payload is missing */
	u32			room;	/* number of packets that may be sent */
	u32			sent;
	u32			made;	/* number of packets that are made */
	u32			took;
	u32			landed;
	enum thc_got		got;
	struct thc_ready	was;
	struct thc_landing	landing;
	struct thc_failure	failure;
	char			log[16];	/* c, d: a packet of a stream; .: flushed */
};

static void note(struct thc_host *host, char what)
{
	size_t n = strlen(host->log);

	if (n + 1 < sizeof(host->log))
		host->log[n] = what;
}

static bool is_control(const struct thc_host *host, const struct thc_flight *f)
{
	const struct thc_stream *st = &host->w->s.control;

	return f >= st->flight && f < st->flight + st->slots;
}

THC_INLINE int thc_host_may_send(struct thc_host *host, const struct thc_stream *st)
{
	(void)st;
	return host->sent < host->room;
}

THC_INLINE int thc_host_next(struct thc_host *host, const struct thc_stream *st,
			     struct thc_ready *ready)
{
	struct thc_hdr *h = &host->w->request[st->slot_base + st->next % st->slots];

	if (st->next >= host->made)
		return 0;
	h->op = THC_OP_LUT_ADD;
	h->round = thc_be32(ROUND);
	*ready = (struct thc_ready){ host->w, h, (u32)st->next + 100, DATA_BYTES };
	return 1;
}

THC_INLINE void thc_host_send(struct thc_host *host, const struct thc_flight *f)
{
	assert_ptr_equal(f->owner, host->w);
	assert_int_equal(f->bytes, DATA_BYTES);
	host->sent++;
	note(host, is_control(host, f) ? 'c' : 'd');
}

THC_INLINE void thc_host_flush(struct thc_host *host)
{
	note(host, '.');
}

THC_INLINE u64 thc_host_check(struct thc_host *host, u64 now)
{
	(void)now;
	note(host, '?');
	return ~0ULL;
}

THC_INLINE const void *thc_host_payload(struct thc_host *host, enum thc_got got,
					const struct thc_flight *f, const struct thc_hdr *h,
					u32 bytes)
{
	assert_true(bytes <= THC_LANE_BYTES);
	assert_true(got != THC_GOT_ANSWER || f->owner);
	assert_ptr_equal(h, &host->p->h);
	return host->cut ? NULL : host->p->lanes;
}

THC_INLINE struct thc_digest thc_host_digest(struct thc_host *host, const struct thc_sender *s,
					     const void *payload, int words)
{
	(void)host;
	return thc_seal_digest(s->seal, &s->down, payload, words);
}

THC_INLINE void thc_host_took(struct thc_host *host, enum thc_got got, const struct thc_hdr *h)
{
	assert_ptr_equal(h, &host->p->h);
	host->took++;
	host->got = got;
}

THC_INLINE void thc_host_landed(struct thc_host *host, const struct thc_stream *st,
				struct thc_ready was, const struct thc_landing *l)
{
	assert_ptr_equal(st, &host->w->s.data);
	assert_true(host->got == THC_GOT_ANSWER || host->got == THC_GOT_MISSED);
	assert_ptr_equal(l->lanes, host->got == THC_GOT_ANSWER ? host->p->lanes : NULL);
	host->landed++;
	host->was = was;
	host->landing = *l;
}

THC_INLINE void thc_host_failed(struct thc_host *host, const struct thc_failure *f)
{
	host->failure = *f;
}

static enum thc_drop_reason receive_from(struct thc_host *host, struct packet *p, u32 bytes,
					 u16 port)
{
	const struct thc_origin from = { .port = port };
	struct worker *w = host->w;

	host->p = p;
	return thc_worker_receive(host, &w->s, &p->h, bytes, from, w->now);
}

static enum thc_drop_reason receive(struct thc_host *host, struct packet *p, u32 bytes)
{
	u32 sealed = bytes < LANES_BYTES ? bytes : LANES_BYTES;

	if (bytes >= sizeof(p->h))
		seal(host->w, p, sealed);
	return receive_from(host, p, bytes, PORT);
}

static void receive__answers_once(void **state)
{
	struct thc_host host = { .w = *state };
	struct worker *w = *state;
	struct packet p, wait;

	launch_data(w, 3);
	wait = notice(w, &w->s.data, 1, THC_OP_WAIT, 0, 1);
	assert_int_equal(receive(&host, &wait, sizeof(wait.h)), THC_DROP_NONE);
	assert_int_equal(host.got, THC_GOT_WAIT);
	assert_int_equal(host.landed, 0);
	p = result(w, &w->s.data, 1, 0);
	assert_int_equal(receive(&host, &p, LANES_BYTES), THC_DROP_NONE);
	assert_int_equal(host.got, THC_GOT_ANSWER);
	assert_ptr_equal(host.was.owner, w);
	assert_int_equal(host.was.index, 101);
	assert_int_equal(host.took, 2);
	assert_int_equal(receive(&host, &p, LANES_BYTES), THC_DROP_UNEXPECTED);
	p = notice(w, &w->s.data, 2, THC_OP_STALE, THC_F_KNOWN, 1);
	assert_int_equal(receive(&host, &p, sizeof(p.h)), THC_DROP_NONE);
	assert_int_equal(host.got, THC_GOT_MISSED);
	assert_int_equal(host.was.index, 102);
	assert_int_equal(host.took, 3);
	assert_int_equal(host.landed, 2);
	assert_int_equal(w->s.data.in_flight, 1);
}

/* Forged answers, unless THC_FORGED says how many. */
#define FORGED	200000ULL

/* Forged answers of an attacker who has seen one, without the key: with any tag, or with another
 * answer's.
 */
static void receive__forged_answers_are_none(void **state)
{
	struct thc_host host = { .w = *state };
	const char *text = getenv("THC_FORGED");
	unsigned long long n = text ? strtoull(text, NULL, 10) : FORGED, i;
	struct worker *w = *state;
	struct packet seen, other, p;
	u64 *word = (void *)&p;

	assert_true(n);
	launch_data(w, 3);
	other = result(w, &w->s.data, 2, 0);
	seal(w, &other, LANES_BYTES);
	seen = result(w, &w->s.data, 1, 0);
	seal(w, &seen, LANES_BYTES);
	for (i = 0; i < n; i++) {
		p = seen;
		switch (i % 4) {
		case 0:
			p.h.tag = random_word();
			break;
		case 1:
			p.h.tag = other.h.tag;
			break;
		case 2:
			word[random_word() % (LANES_BYTES / 8)] ^= random_word() | 1;
			break;
		default:
			memcpy(p.lanes, other.lanes, sizeof(p.lanes));
			p.lanes[random_word() % sizeof(p.lanes)] ^= 1 + random_word() % 255;
		}
		if (!receive_from(&host, &p, LANES_BYTES, PORT))
			fail_msg("forged answer %llu is taken", i);
	}
	assert_int_equal(host.took + host.landed, 0);
	assert_int_equal(host.failure.reason, THC_FAILED_NOT);
	assert_int_equal(w->s.data.in_flight, 3);
	assert_int_equal(receive_from(&host, &seen, LANES_BYTES, PORT), THC_DROP_NONE);
}

/* Digest of this answer by the decoder of protocol.md, in tests/unit/test_protocol.py. */
#define DIGEST_NH	0xd2569c96
#define DIGEST_SUM	0x32fa59af

static void digest__known_answers(void **state)
{
	static const struct {
		u8 seal;
		u32 digest;
	} known[] = {
		{ THC_SEAL_NH, DIGEST_NH },
		{ THC_SEAL_SUM, DIGEST_SUM },
		/* the seal has not looked at the lanes */
		{ THC_SEAL_NONE, DIGEST_SUM },
	};
	struct worker *w = *state;
	struct packet p = { .h = {
				    .version = 1, .op = 2, .width = 3, .flags = 4, .tag = 5,
				    .chunk = thc_be32(0x01020304), .slot = thc_be16(0x0506),
				    .count = thc_be16(0x0708), .generation = 6, .rank = 7,
				    .bitmap = thc_be64(0x1112131415161718ULL),
			    } };
	unsigned int i;

	for (i = 0; i < sizeof(p.lanes); i++)
		p.lanes[i] = (u8)(i * 7 + 3);
	for (i = 0; i < sizeof(known) / sizeof(*known); i++) {
		const u8 *key = known[i].seal == THC_SEAL_NH ? test_key : NULL;
		struct thc_digest d;

		begin_epoch(&w->s, key, known[i].seal, 3);
		d = thc_seal_digest(known[i].seal, &w->s.down, p.lanes, THC_LANE_WORDS);
		assert_int_equal(thc_result_digest(known[i].seal, &w->s.down, &p.h, d, p.lanes),
				 known[i].digest);
	}
}

/* Contributors of a sum, and what it lacks: this rank, 2 of 0 to 3, or a sum that is gone. */
static void landing__says_who_is_in_the_sum(void **state)
{
	static const struct {
		u64 bitmap;
		enum thc_got got;
		struct thc_landing l;
		bool lacks;
	} cases[] = {
		{ 0xf, THC_GOT_ANSWER, { .ranks = 0xf, .count = 4 }, false },
		{ 0x5, THC_GOT_ANSWER, { .ranks = 0x5, .count = 2 }, true },
		{ 0xb, THC_GOT_ANSWER, { .ranks = 0xb, .count = 3 | THC_COUNT_EXCLUDED }, true },
		{ 0xf, THC_GOT_MISSED, { .count = 0 }, true },
		{ 0xb, THC_GOT_MISSED, { .count = THC_COUNT_EXCLUDED }, true },
	};
	static const struct thc_sender s = { .rank = 2, .all = 0xf };
	const u8 lanes = 0;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		bool answered = cases[i].got == THC_GOT_ANSWER;
		const struct thc_hdr h = {
			.bitmap = thc_be64(cases[i].bitmap),
			.count = thc_be16((u16)thc_ranks_count(cases[i].bitmap)),
		};
		struct thc_landing l = thc_sender_landing(&s, cases[i].got, &h, &lanes, 7);

		assert_ptr_equal(l.lanes, answered ? &lanes : NULL);
		assert_int_equal(l.digest, 7);
		assert_int_equal(l.ranks, cases[i].l.ranks);
		assert_int_equal(l.count, cases[i].l.count);
		assert_int_equal(thc_count_lacks(l.count, 4), cases[i].lacks);
	}
}

/* A host gets the digest of every answer that lands, and of nothing else. */
static void digest__is_that_of_the_answer(void **state)
{
	static const u8 seals[] = { THC_SEAL_NH, THC_SEAL_SUM, THC_SEAL_NONE };
	struct worker *w = *state;
	unsigned int i;

	for (i = 0; i < sizeof(seals); i++) {
		struct thc_host host = { .w = w };
		struct packet p;
		struct thc_digest d;

		begin_epoch(&w->s, seals[i] == THC_SEAL_NH ? test_key : NULL, seals[i], 3);
		launch_data(w, 1);
		p = notice(w, &w->s.data, 2 * i, THC_OP_WAIT, 0, 1);
		assert_int_equal(receive(&host, &p, sizeof(p.h)), THC_DROP_NONE);
		assert_int_equal(host.landing.digest, 0);
		p = result(w, &w->s.data, 2 * i, THC_F_REPEAT);
		p.h.rank = thc_be16(1);
		memset(p.lanes, (int)i + 1, sizeof(p.lanes));
		d = thc_seal_digest(seals[i], &w->s.down, p.lanes, THC_LANE_WORDS);
		assert_int_equal(receive(&host, &p, LANES_BYTES), THC_DROP_NONE);
		assert_int_not_equal(host.landing.digest, 0);
		assert_int_equal(host.landing.digest,
				 thc_result_digest(seals[i], &w->s.down, &p.h, d, p.lanes));
		launch_data(w, 1);
		p = notice(w, &w->s.data, 2 * i + 1, THC_OP_STALE, THC_F_KNOWN, 1);
		assert_int_equal(receive(&host, &p, sizeof(p.h)), THC_DROP_NONE);
		assert_int_equal(host.got, THC_GOT_MISSED);
		assert_int_equal(host.landing.digest, 0);
	}
}

/* With nodes, WAIT will name workers in a payload: today's worker ignores it. */
static void receive__wait_with_a_payload(void **state)
{
	struct thc_host host = { .w = *state };
	struct worker *w = *state;
	struct packet wait;

	launch_data(w, 1);
	wait = notice(w, &w->s.data, 0, THC_OP_WAIT, 0, 1);
	memset(wait.lanes, 0xff, 16);
	assert_int_equal(receive(&host, &wait, sizeof(wait.h) + 16), THC_DROP_NONE);
	assert_int_equal(host.got, THC_GOT_WAIT);
	/* the seal covers the payload, too */
	((u8 *)wait.lanes)[15] ^= 1;
	assert_int_equal(receive_from(&host, &wait, sizeof(wait.h) + 16, PORT), THC_DROP_TAG);
}

/* Each packet has one mistake. */
static void receive__why_a_packet_is_of_no_use(void **state)
{
	struct thc_host host = { .w = *state };
	struct worker *w = *state;
	struct packet good, p;

	launch_data(w, 3);
	w->s.unreachable_at = 1;
	good = result(w, &w->s.data, 1, 0);
#define REFUSED(change, bytes, why) \
	do { \
		p = good; \
		change; \
		assert_int_equal(receive(&host, &p, bytes), THC_DROP_##why); \
	} while (0)
	REFUSED(, sizeof(p.h) - 8, TRUNCATED);
	REFUSED(p.h.version++, LANES_BYTES, VERSION);
	REFUSED(p.h.job = thc_be16(JOB + 1), LANES_BYTES, JOB);
	REFUSED(, LANES_BYTES + 8, LENGTH);
	REFUSED(, LANES_BYTES - 8, MISMATCH);
	REFUSED(p.h.op = THC_OP_WAIT, LANES_BYTES - 4, LENGTH);
	REFUSED(p.h.round = 0, LANES_BYTES, MISMATCH);
	REFUSED(p.h.op = THC_OP_MAX, LANES_BYTES, MISMATCH);
	REFUSED(p.h.slot = thc_be16(DATA_SLOTS + NORM_SLOTS), LANES_BYTES, SLOT);
	REFUSED(p.h.slot = thc_be16(9); p.h.op = THC_OP_JOIN, LANES_BYTES, OP);
	REFUSED(p.h.slot = thc_be16(9), LANES_BYTES, UNEXPECTED);
	/* a late WELCOME; its fields about a chunk mean nothing */
	p = good;
	p.h.op = THC_OP_WELCOME;
	p.h.key_id = w->s.welcome.id;
	assert_int_equal(thc_sender_refusal(&w->s, &p.h, sizeof(p.h) + sizeof(struct thc_welcome),
					    PORT),
			 THC_DROP_UNEXPECTED);
	/* an answer that a flipped bit has turned into a WELCOME */
	REFUSED(p.h.op = THC_OP_WELCOME, LANES_BYTES, KEY);
	REFUSED(p.h.op = THC_OP_WELCOME, sizeof(p.h) + 56, LENGTH);
#undef REFUSED
	/* keys of another epoch, of joining, or none */
	p = good;
	seal(w, &p, LANES_BYTES);
	p.h.key_id ^= thc_be32(1);
	assert_int_equal(receive_from(&host, &p, LANES_BYTES, PORT), THC_DROP_KEY);
	p.h.key_id = 0;
	assert_int_equal(receive_from(&host, &p, LANES_BYTES, PORT), THC_DROP_KEY);
	p.h.op = THC_OP_STALE;
	p.h.flags = THC_F_EPOCH;
	assert_int_equal(receive_from(&host, &p, sizeof(p.h), PORT), THC_DROP_KEY);
	p = good;
	assert_int_equal(receive_from(&host, &p, LANES_BYTES, PORT + THC_PORT_SPAN),
			 THC_DROP_ADDRESS);
	assert_int_equal(receive_from(&host, &p, LANES_BYTES, PORT), THC_DROP_TAG);
	host.cut = true;
	assert_int_equal(receive(&host, &p, LANES_BYTES), THC_DROP_TAG);
	assert_int_equal(host.took, 0);
	assert_int_equal(host.failure.reason, THC_FAILED_NOT);
	assert_int_equal(w->s.data.in_flight, 3);
}

/* Drop reasons that count as foreign. */
static void receive__what_is_foreign(void **state)
{
	(void)state;
	assert_false(thc_drop_is_foreign(THC_DROP_NONE));
	assert_false(thc_drop_is_foreign(THC_DROP_TAG));
	assert_false(thc_drop_is_foreign(THC_DROP_UNEXPECTED));
	assert_true(thc_drop_is_foreign(THC_DROP_ADDRESS));
	assert_true(thc_drop_is_foreign(THC_DROP_KEY));
	assert_true(thc_drop_is_foreign(THC_DROP_MISMATCH));
}

/* A packet from the aggregator ends `unreachable`; a corrupted packet does not. */
static void receive__the_aggregator_is_there(void **state)
{
	struct thc_host host = { .w = *state };
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 1);
	w->s.unreachable_at = 1;
	p = result(w, &w->s.data, 0, 0);
	assert_int_equal(receive_from(&host, &p, LANES_BYTES, PORT), THC_DROP_TAG);
	assert_int_equal(w->s.unreachable_at, 1);
	p.h.round = 0;
	assert_int_equal(receive(&host, &p, LANES_BYTES), THC_DROP_MISMATCH);
	assert_int_equal(w->s.unreachable_at, 0);
}

static void receive__a_chunk_that_is_gone_ends_it(void **state)
{
	struct thc_host host = { .w = *state };
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 1);
	p = notice(w, &w->s.data, 0, THC_OP_STALE, 0, 1);
	assert_int_equal(receive(&host, &p, sizeof(p.h)), THC_DROP_NONE);
	assert_int_equal(host.failure.reason, THC_FAILED_BEHIND);
	assert_int_equal(host.failure.error, ESTALE);
}

static void receive__another_epoch_ends_it(void **state)
{
	struct thc_host host = { .w = *state };
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 2);
	p = epoch_over(w, &w->s.data, 1, EPOCH + 2);
	p.h.rank = thc_be16(300);
	assert_int_equal(receive(&host, &p, sizeof(p.h)), THC_DROP_NONE);
	assert_int_equal(host.failure.reason, THC_FAILED_EPOCH);
	assert_int_equal(host.failure.error, ESTALE);
	assert_int_equal(host.failure.worker, 300);
	assert_int_equal(host.failure.epoch, EPOCH + 2);
	p = epoch_over(w, &w->s.data, 1, EPOCH - 1);
	assert_int_equal(receive(&host, &p, sizeof(p.h)), THC_DROP_NONE);
	assert_int_equal(host.failure.worker, THC_WORKER_NONE);
	assert_int_equal(host.failure.epoch, EPOCH - 1);
	assert_int_equal(host.took, 0);
}

/* A STALE that is late, repeated, or about a forged packet is unexpected; one under another key,
 * or for another request, is refused.
 */
static void receive__another_epoch_without_a_reason(void **state)
{
	struct thc_host host = { .w = *state };
	struct worker *w = *state;
	struct packet p;

	launch_data(w, 2);
	w->s.unreachable_at = 1;
	p = epoch_over(w, &w->s.data, 0, EPOCH);
	assert_int_equal(receive_from(&host, &p, sizeof(p.h), PORT), THC_DROP_UNEXPECTED);
	p = epoch_over(w, &w->s.data, 3, EPOCH + 1);
	assert_int_equal(receive_from(&host, &p, sizeof(p.h), PORT), THC_DROP_UNEXPECTED);
	p = epoch_over(w, &w->s.data, 0, EPOCH + 1);
	p.h.slot = thc_be16(1);
	p.h.chunk = thc_be32(1);
	assert_int_equal(receive_from(&host, &p, sizeof(p.h), PORT), THC_DROP_TAG);
	p = epoch_over(w, &w->s.data, 0, EPOCH + 1);
	thc_member_seal(&p.h, THC_SEAL_SUM, &w->s.lost, &w->s.end, &w->request[0].tag, 1);
	assert_int_equal(receive_from(&host, &p, sizeof(p.h), PORT), THC_DROP_TAG);
	p = epoch_over(w, &w->s.data, 0, EPOCH + 1);
	p.h.key_id = w->s.down.id;
	thc_seal(&p.h, w->s.seal, &w->s.down, NULL, 0);
	assert_int_equal(receive_from(&host, &p, sizeof(p.h), PORT), THC_DROP_KEY);
	assert_int_equal(host.failure.reason, THC_FAILED_NOT);
	assert_int_equal(w->s.unreachable_at, 1);
	assert_int_equal(w->s.data.in_flight, 2);
}

/* The window, the packets made, and the room for packets: the least counts. */
static void transmit__what_is_allowed(void **state)
{
	struct thc_host host = { .w = *state, .room = 1000, .made = 3 };
	struct worker *w = *state;
	struct thc_stream *st = &w->s.data;
	u32 window = thc_window_size(&w->s.window);

	st->reserved = 200;
	thc_worker_transmit(&host, &w->s, st, w->now);
	assert_int_equal(host.sent, 3);
	host.made = 1000;
	host.room = 3 + ROOM;
	thc_worker_transmit(&host, &w->s, st, w->now);
	assert_int_equal(host.sent, 3 + ROOM);
	assert_int_equal(st->flight[7].index, 107);
	host.room = 1000;
	assert_true(window < 200);
	thc_worker_transmit(&host, &w->s, st, w->now);
	assert_int_equal(host.sent, window);
	assert_int_equal(st->in_flight, window);
	assert_int_equal(st->next, window);
}

/* Losses slow down both streams, but the control stream keeps a least window. */
static void transmit__window_of_both_streams(void **state)
{
	struct worker *w = *state;
	u32 i;

	assert_int_equal(thc_worker_window(&w->s, &w->s.data), thc_window_size(&w->s.window));
	assert_int_equal(thc_worker_window(&w->s, &w->s.control), thc_window_size(&w->s.window));
	for (i = 0; i < 10; i++)
		thc_window_loss(&w->s.window, 1000 * i + 1, 1000 * i + 500);
	assert_true(thc_window_size(&w->s.window) < THC_CONTROL_WINDOW);
	assert_int_equal(thc_worker_window(&w->s, &w->s.data), thc_window_size(&w->s.window));
	assert_int_equal(thc_worker_window(&w->s, &w->s.control), THC_CONTROL_WINDOW);
}

/* The window limits the control stream, even if it has more slots. */
static void transmit__control_obeys_the_window(void **state)
{
	struct thc_host host = { .w = *state, .room = 1000, .made = 1000 };
	struct worker *w = *state;
	struct thc_stream *st = &w->s.control;

	thc_stream_init(st, w->flights, 0, DATA_SLOTS);
	st->reserved = DATA_SLOTS;
	w->s.window.size = (THC_CONTROL_WINDOW + 5) * THC_WINDOW_ONE;
	thc_worker_transmit(&host, &w->s, st, w->now);
	assert_int_equal(host.sent, THC_CONTROL_WINDOW + 5);
	assert_int_equal(st->in_flight, THC_CONTROL_WINDOW + 5);
	w->s.window.size = (THC_CONTROL_WINDOW + 9) * THC_WINDOW_ONE;
	thc_worker_transmit(&host, &w->s, st, w->now);
	assert_int_equal(st->in_flight, THC_CONTROL_WINDOW + 9);
}

/* Packets without room stay overdue. */
static void transmit__again_as_there_is_room(void **state)
{
	struct thc_host host = { .w = *state, .room = 1 };
	struct worker *w = *state;
	u64 due;

	launch_data(w, 4);
	w->now += 10 * THC_RTO_MAX;
	w->s.probes = 3;
	due = thc_worker_retransmit(&host, &w->s, &w->s.data, w->now);
	assert_int_equal(host.sent, 1);
	assert_int_equal(data(w, 0)->tries, 1);
	assert_int_equal(data(w, 1)->tries, 0);
	assert_true(due > w->now && due != ~0ULL);
}

/* The control stream is sent first, and flushed before the data. One timer serves overdue packets
 * of both streams, the control stream first.
 */
static void send__control_first(void **state)
{
	struct thc_host host = { .w = *state, .room = 100, .made = 2 };
	struct worker *w = *state;
	u64 due;

	w->s.control.reserved = w->s.data.reserved = 2;
	thc_worker_send(&host, &w->s, w->now);
	assert_string_equal(host.log, "cc.dd.");
	memset(host.log, 0, sizeof(host.log));
	due = thc_worker_send_again(&host, &w->s, w->now);
	assert_string_equal(host.log, "..?");
	assert_true(due > w->now && due != ~0ULL);
	memset(host.log, 0, sizeof(host.log));
	w->now += 10 * THC_RTO_MAX;
	w->s.probes = 10;
	due = thc_worker_send_again(&host, &w->s, w->now);
	assert_string_equal(host.log, "cc..?");
	assert_true(due > w->now && due != ~0ULL);
}

/* Packets in flight are examined soon after an event, else when a timer is due. */
static void send__again_not_all_the_time(void **state)
{
	const u64 srtt = 4 * THC_NS_PER_MS, soon = srtt / 4;
	struct thc_host host = { .w = *state, .room = 100, .made = 2 };
	struct worker *w = *state;
	u64 due;

	w->s.data.reserved = 2;
	thc_worker_send(&host, &w->s, w->now);
	due = thc_worker_send_again(&host, &w->s, w->now);
	assert_true(due > w->now + soon);
	memset(host.log, 0, sizeof(host.log));
	w->s.window.srtt = srtt;
	assert_int_equal(thc_worker_send_again(&host, &w->s, w->now + 1), w->now + 1 + soon);
	assert_int_equal(thc_worker_send_again(&host, &w->s, w->now + soon), w->now + 1 + soon);
	assert_string_equal(host.log, "");
	assert_int_equal(thc_worker_send_again(&host, &w->s, w->now + 1 + soon), due);
	assert_string_equal(host.log, "..?");
	/* not after each answer, however short the round trip */
	memset(host.log, 0, sizeof(host.log));
	w->s.window.srtt = 4;
	w->now += 1 + soon;
	assert_int_equal(thc_worker_send_again(&host, &w->s, w->now), w->now + THC_LOOK_LEAST);
	w->s.window.srtt = 100 * THC_LOOK_MOST;
	w->s.look_at = ~0ULL;
	assert_int_equal(thc_worker_send_again(&host, &w->s, w->now), w->now + THC_LOOK_MOST);
	assert_string_equal(host.log, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(digest__known_answers),
		CASE(digest__is_that_of_the_answer),
		CASE(landing__says_who_is_in_the_sum),
		CASE(receive__answers_once),
		CASE(receive__forged_answers_are_none),
		CASE(receive__wait_with_a_payload),
		CASE(receive__why_a_packet_is_of_no_use),
		CASE(receive__what_is_foreign),
		CASE(receive__the_aggregator_is_there),
		CASE(receive__a_chunk_that_is_gone_ends_it),
		CASE(receive__another_epoch_ends_it),
		CASE(receive__another_epoch_without_a_reason),
		CASE(transmit__what_is_allowed),
		CASE(transmit__window_of_both_streams),
		CASE(transmit__control_obeys_the_window),
		CASE(transmit__again_as_there_is_room),
		CASE(send__control_first),
		CASE(send__again_not_all_the_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
