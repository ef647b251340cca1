/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A worker's side of the protocol: which chunk may be sent, what an answer
 * means, what is to be sent again. Pure functions over the state of one
 * worker, which the caller guards; sockets, memory and clocks are the
 * caller's. libthc's I/O thread and thc.ko run the same code.
 *
 * Chunk q of a stream lives in slot q mod slots, generation q div slots, and
 * may be sent once chunk q - slots has its answer. That rule is what keeps
 * results from being overwritten while somebody still needs them
 * (<thc/aggregator/slot.h> says why).
 *
 * When is a packet sent again?
 *  - Answers to packets first sent somewhat later have come: it was lost on
 *    the way up or its answer on the way down. The window is cut.
 *  - Its timer ran out and no answer at all came for as long; only the oldest
 *    few, so that a stall does not turn into a burst. When these turn out to
 *    have been lost, twice as many more follow at once.
 * WAIT in reply says it was neither: somebody else is late. The cut is undone
 * and the packet counts as just sent.
 *
 *	          launch                        answer, or STALE that says
 *	 (free) ---------> IN FLIGHT ---------------------------------> (free)
 *	                   |  ^    ^ |           who was in: land
 *	            again  +--+    +-+  WAIT
 */
#ifndef THC_FLIGHT_H
#define THC_FLIGHT_H

#include <thc/wire/format.h>
#include <thc/wire/ranks.h>
#include <thc/wire/route.h>
#include <thc/wire/seal.h>
#include <thc/worker/window.h>

/* Retransmissions by timer at a time, as long as none of them was needed. */
#define THC_PROBES		2
/* At most so many. */
#define THC_PROBES_MAX		64
/* Tries after which a packet's timer grows no further. */
#define THC_TRIES_MAX		255
/* The network may say for so long that the aggregator cannot be reached. */
#define THC_UNREACHABLE_MS	1000

/**
 * struct thc_flight - one slot's packet in flight
 * @owner: what it belongs to (the caller's); NULL: the slot is free
 * @packet: header and payload, kept by @owner until the answer
 * @sequence: of the chunk in its stream
 * @first_at: time of the first transmission
 * @sent_at: time of the last one
 * @due: retransmit then
 * @first_order: number of the first one among all of the worker's
 * @order: number of the last one, or of the next when WAIT came
 * @present: ranks whose contribution is in, by the last WAIT
 * @differs: ranks that sent something else for the chunk: this one is not in
 * @index: chunk of @owner (the caller's)
 * @bytes: of the packet
 * @tries: transmissions beyond the first
 * @waiting: a WAIT came after the last transmission
 * @cut: the last transmission was taken for a loss and cut the window
 * @left: that WAIT said that a missing rank has left
 */
struct thc_flight {
	void			*owner;
	const struct thc_hdr	*packet;
	u64			sequence;
	u64			first_at;
	u64			sent_at;
	u64			due;
	u64			first_order;
	u64			order;
	u64			present;
	u64			differs;
	u32			index;
	u16			bytes;
	u8			tries;
	u8			waiting;
	u8			cut;
	u8			left;
};

/**
 * struct thc_stream - chunks in sequence over a range of slots
 * @flight: by slot, relative to @slot_base; the caller's memory
 * @next: sequence number to be sent next
 * @oldest: sequence number of the oldest in flight, @next if none is
 * @reserved: sequence numbers given out so far
 * @order_answered: newest first transmission answered. By stream, since a norm
 *	chunk may rightly wait for ranks that are still busy with data
 * @slot_base: first slot
 * @slots: how many
 * @in_flight: slots taken
 */
struct thc_stream {
	struct thc_flight	*flight;
	u64			next;
	u64			oldest;
	u64			reserved;
	u64			order_answered;
	u32			slot_base;
	u32			slots;
	u32			in_flight;
};

/**
 * struct thc_sender - one worker of one aggregator
 * @data: chunks of gradients
 * @norms: chunks of norms, agreements among them
 * @window: of both
 * @order: packets sent so far
 * @progress_at: time of the last answer, or of the first packet after a pause
 * @unreachable_at: time of the network's first complaint since, 0: none
 * @timers_at: no retransmission by timer before
 * @probes: so many of them then
 * @stalls: times they fired since the last answer
 * @cookie: of the job
 * @all: mask of its ranks
 * @epoch: its incarnation
 * @job: its number
 * @port: the aggregator's base port, host order
 * @rank: of this worker
 * @sum_width: bits of a LUT_ADD sum
 * @nosum: packets carry no sum
 * @one_port: the base port is that of all slots
 */
struct thc_sender {
	struct thc_stream	data;
	struct thc_stream	norms;
	struct thc_window	window;
	u64			order;
	u64			progress_at;
	u64			unreachable_at;
	u64			timers_at;
	u32			probes;
	u32			stalls;
	u64			cookie;
	u64			all;
	u32			epoch;
	u16			job;
	u16			port;
	u8			rank;
	u8			sum_width;
	u8			nosum;
	u8			one_port;
};

/* What a packet from the aggregator means. */
enum thc_got {
	THC_GOT_FOREIGN,	/* not for this worker's job, or no packet of ours */
	THC_GOT_UNEXPECTED,	/* nobody waits for it: a duplicate, or an old one */
	THC_GOT_EPOCH,		/* the epoch is over: thc_hdr.epoch is the new one */
	THC_GOT_WAIT,		/* the contribution is in, somebody else is late; or differs */
	THC_GOT_ANSWER,		/* the sum of the flight's chunk: land it */
	THC_GOT_MISSED,		/* the sum is gone, who was in it is known: land it */
	THC_GOT_BEHIND,		/* the sum is gone for good: no way to go on */
};

/* Why a worker need not go on waiting for answers. */
enum thc_stall {
	THC_STALL_NONE,		/* they may come yet */
	THC_STALL_LEFT,		/* a rank that is needed has left */
	THC_STALL_UNREACHABLE,	/* the network says that packets do not arrive */
	THC_STALL_LATE,		/* none came for the timeout */
};

/* --- streams -------------------------------------------------------------- */

/* @flight: zeroed room for @slots of them. */
THC_INLINE void thc_stream_init(struct thc_stream *s, struct thc_flight *flight, u32 slot_base,
				u32 slots)
{
	s->flight = flight;
	s->next = 0;
	s->oldest = 0;
	s->reserved = 0;
	s->order_answered = 0;
	s->slot_base = slot_base;
	s->slots = slots;
	s->in_flight = 0;
}

/* Starts over in a new epoch. What was learnt about the path is kept. */
THC_INLINE void thc_sender_init(struct thc_sender *s, u32 window)
{
	thc_window_init(&s->window, window);
	s->order = 1;
	s->timers_at = 0;
	s->probes = THC_PROBES;
	s->stalls = 0;
}

/* The oldest chunk in flight, or NULL. */
THC_INLINE const struct thc_flight *thc_stream_oldest(const struct thc_stream *s)
{
	return s->in_flight ? &s->flight[s->oldest % s->slots] : NULL;
}

/* Nothing is in flight any more; what was reserved is given up. */
THC_INLINE void thc_stream_forget(struct thc_stream *s)
{
	u32 i;

	for (i = 0; i < s->slots; i++)
		s->flight[i].owner = NULL;
	s->in_flight = 0;
	s->next = s->reserved;
	s->oldest = s->next;
}

/* Chunk, slot and generation of @sequence. */
THC_INLINE void thc_stream_fill(const struct thc_stream *s, struct thc_hdr *h, u64 sequence)
{
	struct thc_place at = thc_place(s->slot_base, s->slots, sequence);

	h->chunk = thc_be32((u32)sequence);
	h->slot = thc_be16((u16)at.slot);
	h->generation = thc_be32(at.generation);
}

THC_INLINE struct thc_flight *thc_stream_flight(const struct thc_stream *s, u64 sequence)
{
	return &s->flight[sequence % s->slots];
}

/* May @next be sent, as far as window and slots go? */
THC_INLINE int thc_stream_may_send(const struct thc_stream *s, u32 window)
{
	return s->next < s->reserved && s->in_flight < window &&
	       !thc_stream_flight(s, s->next)->owner;
}

/* Is the packet about the chunk that is, or was last, in flight there? */
THC_INLINE int thc_flight_matches(const struct thc_stream *s, const struct thc_flight *f,
				  const struct thc_hdr *h)
{
	return thc_be32(h->chunk) == (u32)f->sequence &&
	       thc_be32(h->generation) == thc_place(s->slot_base, s->slots, f->sequence).generation;
}

/* --- out ------------------------------------------------------------------ */

/* What every packet of this worker says; the rest is zero. */
THC_INLINE void thc_sender_header(const struct thc_sender *s, struct thc_hdr *h, u8 op)
{
	*h = (struct thc_hdr){
		.version = THC_VERSION,
		.op = op,
		.cookie = thc_be64(s->cookie),
		.job = thc_be16(s->job),
		.rank = s->rank,
		.epoch = thc_be32(s->epoch),
	};
}

/* The header of chunk @sequence of @st, to be sealed once the payload is in. */
THC_INLINE void thc_sender_request(const struct thc_sender *s, const struct thc_stream *st,
				   struct thc_hdr *h, u8 op, u8 width, u32 round, u64 sequence)
{
	thc_sender_header(s, h, op);
	h->width = width;
	h->flags = s->nosum ? THC_F_NOSUM : 0;
	h->round = thc_be32(round);
	thc_stream_fill(st, h, sequence);
}

/* The aggregator's UDP port that slot @slot is reached on. */
THC_INLINE u16 thc_sender_port(const struct thc_sender *s, u32 slot)
{
	return s->one_port ? s->port : thc_slot_port(s->port, slot);
}

THC_INLINE void thc_flight_sent(struct thc_sender *s, struct thc_flight *f, u64 now)
{
	f->sent_at = now;
	/* what was sent again comes after what was not */
	f->due = now + thc_window_rto(&s->window) * (1 + f->tries);
	f->order = s->order++;
	f->waiting = 0;
	f->cut = 0;
}

/* Packets are in flight that had no answer yet. */
THC_INLINE int thc_sender_busy(const struct thc_sender *s)
{
	return s->data.in_flight || s->norms.in_flight;
}

/**
 * thc_flight_launch() - chunk @st->next goes out
 * @owner, @index, @packet, @bytes: see struct thc_flight
 *
 * The caller has asked thc_stream_may_send(), and sends the packet.
 */
THC_INLINE struct thc_flight *thc_flight_launch(struct thc_sender *s, struct thc_stream *st,
						void *owner, u32 index,
						const struct thc_hdr *packet, u16 bytes, u64 now)
{
	struct thc_flight *f = thc_stream_flight(st, st->next);

	/* what the network said while nothing was asked is about no answer that is missing */
	if (!thc_sender_busy(s))
		s->unreachable_at = 0;
	f->owner = owner;
	f->packet = packet;
	f->sequence = st->next;
	f->first_at = now;
	f->first_order = s->order;
	f->present = 0;
	f->differs = 0;
	f->index = index;
	f->bytes = bytes;
	f->tries = 0;
	f->left = 0;
	thc_flight_sent(s, f, now);
	st->in_flight++;
	st->next++;
	return f;
}

/* --- in ------------------------------------------------------------------- */

/* Does the aggregator send what @h says from @port? XDP answers from the port that
 * took the request, thcd from the base port. All these ports are thcd's: no other
 * program of its host can send from them.
 */
THC_INLINE int thc_sender_sent_from(const struct thc_sender *s, const struct thc_hdr *h, u16 port)
{
	u32 slot = thc_be16(h->slot);

	return port == s->port ||
	       (slot < s->data.slots + s->norms.slots && port == thc_sender_port(s, slot));
}

/* Are @count ranks of the job in @h's sum, those that its bitmap names? */
THC_INLINE int thc_sender_counts(const struct thc_sender *s, const struct thc_hdr *h)
{
	u64 bitmap = thc_be64(h->bitmap);

	return bitmap && !(bitmap & ~s->all) && thc_be16(h->count) == thc_ranks_count(bitmap);
}

/* Does the answer say what the request in flight asked for? */
THC_INLINE int thc_flight_asked_for(const struct thc_sender *s, const struct thc_flight *f,
				    const struct thc_hdr *h)
{
	u8 width = f->packet->op == THC_OP_LUT_ADD ? s->sum_width : f->packet->width;

	return h->flags & THC_F_ANSWER && h->op == f->packet->op && h->round == f->packet->round &&
	       h->width == width;
}

/**
 * thc_sender_find() - whom a packet from the aggregator is about
 * @h: its header, @bytes with the payload
 * @port: from where it was sent, host order
 * @stream, @flight: set unless the result is THC_GOT_FOREIGN, THC_GOT_EPOCH or
 *	THC_GOT_UNEXPECTED without a flight (then NULL)
 *
 * Reads the header alone, whose sum is not checked yet: nothing is changed.
 * The caller checks the sum (thc_sender_sum_ok()), then says so by
 * thc_sender_take().
 */
THC_INLINE enum thc_got thc_sender_find(struct thc_sender *s, const struct thc_hdr *h, u32 bytes,
					u16 port, struct thc_stream **stream,
					struct thc_flight **flight)
{
	struct thc_stream *st = &s->norms;
	struct thc_flight *f;
	u32 slot;

	*stream = NULL;
	*flight = NULL;
	if (bytes < sizeof(*h) || bytes % 8 || h->version != THC_VERSION ||
	    !thc_seal_cookie_ok(h, s->cookie) || h->job != thc_be16(s->job) || h->reserved ||
	    !thc_sender_sent_from(s, h, port))
		return THC_GOT_FOREIGN;
	if (h->op == THC_OP_STALE && h->flags & THC_F_EPOCH)
		/* not newer: told by a packet that was long on its way */
		return (s32)(thc_be32(h->epoch) - s->epoch) > 0 ? THC_GOT_EPOCH :
								  THC_GOT_UNEXPECTED;
	if (h->epoch != thc_be32(s->epoch))
		return THC_GOT_UNEXPECTED;
	if (thc_be16(h->slot) < s->data.slots)
		st = &s->data;
	slot = thc_be16(h->slot) - st->slot_base;
	if (slot >= st->slots)
		return THC_GOT_UNEXPECTED;
	f = &st->flight[slot];
	if (!thc_flight_matches(st, f, h))
		return THC_GOT_UNEXPECTED;
	*stream = st;
	*flight = f;
	if (!f->owner)
		return THC_GOT_UNEXPECTED;
	if (h->op == THC_OP_STALE && (st != &s->data || !(h->flags & THC_F_KNOWN)))
		return THC_GOT_BEHIND;
	if (!thc_sender_counts(s, h))
		return THC_GOT_UNEXPECTED;
	if (h->op == THC_OP_WAIT)
		return THC_GOT_WAIT;
	if (h->op == THC_OP_STALE)
		return THC_GOT_MISSED;
	if (bytes == sizeof(*h) + THC_LANE_BYTES && thc_flight_asked_for(s, f, h))
		return THC_GOT_ANSWER;
	return THC_GOT_UNEXPECTED;
}

/* Is the packet as it was sent? @h: header, @payload: @words 64-bit words. */
THC_INLINE int thc_sender_sum_ok(const struct thc_sender *s, const struct thc_hdr *h,
				 const void *payload, int words)
{
	return s->nosum || thc_seal_ok(h, payload, words);
}

/* When the next timer may fire, and for how many packets. */
THC_INLINE void thc_sender_restart_timers(struct thc_sender *s, const struct thc_flight *f, u64 now)
{
	int was_lost = f->tries && !f->waiting;

	s->stalls = 0;
	s->timers_at = was_lost ? now : now + thc_window_rto(&s->window);
	s->probes = was_lost ? s->probes * 2 : THC_PROBES;
	if (s->probes > THC_PROBES_MAX)
		s->probes = THC_PROBES_MAX;
}

/* Round trip that an answer shows, 0: none. Of what was sent again it is not known
 * which packet was answered (Karn). Yet a path that is slower than the first
 * timeout has each packet sent again before its answer, and would never be
 * measured: there the time since the first transmission has to do, which is too
 * long rather than too short.
 */
THC_INLINE u64 thc_flight_rtt(const struct thc_sender *s, const struct thc_flight *f, u64 now)
{
	if (f->waiting)
		return 0;
	if (f->tries)
		return s->window.srtt ? 0 : now - f->first_at;
	return now - f->sent_at;
}

THC_INLINE void thc_flight_land(struct thc_sender *s, struct thc_stream *st, struct thc_flight *f,
				u64 now)
{
	thc_window_answer(&s->window, thc_flight_rtt(s, f, now));
	/* a retransmission may be overtaken by the answer to the original */
	if (f->first_order > st->order_answered)
		st->order_answered = f->first_order;
	thc_sender_restart_timers(s, f, now);
	s->progress_at = now;
	f->owner = NULL;	/* but it keeps `sequence` and `cut` */
	st->in_flight--;
	while (st->oldest < st->next && !thc_stream_flight(st, st->oldest)->owner)
		st->oldest++;
}

THC_INLINE void thc_flight_wait(struct thc_sender *s, struct thc_flight *f, const struct thc_hdr *h)
{
	if (f->cut)
		thc_window_spurious(&s->window);
	f->cut = 0;
	s->probes = THC_PROBES;
	f->waiting = 1;
	f->order = s->order;
	/* an older WAIT may come later: who is in stays in */
	if (h->flags & THC_F_DIFFERS) {
		if (!f->present)
			f->differs |= thc_be64(h->bitmap);
		return;
	}
	f->left = !!(h->flags & THC_F_LEFT);
	f->present |= thc_be64(h->bitmap);
	f->differs = 0;
}

/**
 * thc_sender_take() - what the packet changes
 * @got, @st, @f: of thc_sender_find()
 * @ce: it met congestion on its way to us (ECN)
 *
 * After THC_GOT_ANSWER and THC_GOT_MISSED the flight is free: remember its
 * owner and index before.
 */
THC_INLINE void thc_sender_take(struct thc_sender *s, enum thc_got got, struct thc_stream *st,
				struct thc_flight *f, const struct thc_hdr *h, int ce, u64 now)
{
	/* An answer to a retransmission of what had its answer already: the
	 * original had arrived, so the window was cut for nothing.
	 */
	if (f && !f->owner && f->cut && (h->op == THC_OP_WAIT || h->flags & THC_F_REPEAT)) {
		thc_window_spurious(&s->window);
		f->cut = 0;
	}
	if (!f || !f->owner)
		return;
	if (ce || h->flags & THC_F_CE)
		thc_window_loss(&s->window, f->order, s->order);
	if (got == THC_GOT_WAIT)
		thc_flight_wait(s, f, h);
	else if (got == THC_GOT_ANSWER || got == THC_GOT_MISSED)
		thc_flight_land(s, st, f, now);
}

/* --- again ---------------------------------------------------------------- */

/**
 * struct thc_overdue - a pass over the flights of a stream, oldest first
 * @at: slots looked at
 * @seen: flights among them
 * @reorder: thc_window_reorder() when it began: a cut does not tighten it
 * @timers: retransmissions by timer left
 * @fired: some were made
 * @due: earliest timer met
 */
struct thc_overdue {
	u32	at;
	u32	seen;
	u32	reorder;
	u32	timers;
	u8	fired;
	u64	due;
};

THC_INLINE void thc_overdue_begin(const struct thc_sender *s, struct thc_overdue *o, u64 now)
{
	o->at = 0;
	o->seen = 0;
	o->reorder = thc_window_reorder(&s->window);
	o->timers = now < s->timers_at ? 0 : s->probes;
	o->fired = 0;
	o->due = ~0ULL;
}

THC_INLINE void thc_flight_again(struct thc_sender *s, struct thc_flight *f, u64 now)
{
	/* after a WAIT it has arrived: asking again is no sign of congestion */
	u8 cut = !f->waiting && thc_window_loss(&s->window, f->order, s->order);

	if (f->tries < THC_TRIES_MAX)
		f->tries++;
	thc_flight_sent(s, f, now);
	f->cut = cut;
}

/* The next flight to be sent again, already marked as sent; NULL: no more. */
THC_INLINE struct thc_flight *thc_overdue_next(struct thc_sender *s, struct thc_stream *st,
					       struct thc_overdue *o, u64 now)
{
	u32 oldest = o->seen < st->in_flight ? (u32)(st->oldest % st->slots) : 0;

	while (o->seen < st->in_flight) {
		u32 slot = oldest + o->at++;
		struct thc_flight *f = &st->flight[slot < st->slots ? slot : slot - st->slots];
		int timer = 0, lost;

		if (!f->owner)
			continue;
		o->seen++;
		lost = f->order + o->reorder < st->order_answered;
		if (!lost && f->due <= now && o->timers) {
			o->timers--;
			o->fired = 1;
			timer = 1;
		}
		if (lost || timer)
			thc_flight_again(s, f, now);
		if (f->due < o->due)
			o->due = f->due;
		if (lost || timer)
			return f;
	}
	return NULL;
}

/* Ends the pass; returns when to look again (~0: when something happens). */
THC_INLINE u64 thc_overdue_end(struct thc_sender *s, const struct thc_overdue *o, u64 now)
{
	if (o->fired)
		s->timers_at = now + thc_window_backoff(&s->window, s->stalls++);
	return o->due < s->timers_at ? s->timers_at : o->due;
}

/* --- when nothing moves --------------------------------------------------- */

/* The network says that packets do not arrive. */
THC_INLINE void thc_sender_unreachable(struct thc_sender *s, u64 now)
{
	if (!s->unreachable_at)
		s->unreachable_at = now;
}

/* The oldest chunks in flight, of norms and of data, that belong to @round or to an
 * earlier one: later ones do not count, since their norms may rightly wait for
 * ranks that are busy with this one's data.
 */
THC_INLINE void thc_sender_oldest(const struct thc_sender *s, u32 round,
				  const struct thc_flight *f[2])
{
	int i;

	f[0] = thc_stream_oldest(&s->norms);
	f[1] = thc_stream_oldest(&s->data);
	for (i = 0; i < 2; i++)
		if (f[i] && (s32)(thc_be32(f[i]->packet->round) - round) > 0)
			f[i] = NULL;
}

/* Ranks that sent something else for the oldest chunks in flight, 0: none is known. */
THC_INLINE u64 thc_sender_differing(const struct thc_sender *s, u32 round)
{
	const struct thc_flight *f[2];
	u64 differ = 0;
	int i;

	thc_sender_oldest(s, round, f);
	for (i = 0; i < 2; i++)
		differ |= f[i] ? f[i]->differs : 0;
	return differ & ~(1ULL << s->rank);
}

/**
 * thc_sender_missing() - whom the oldest chunks in flight lack
 * @all: mask of the job's ranks
 * @round: thc_sender_oldest()
 * @left: set if one of them has left
 *
 * Returns their mask, by the last WAIT of these chunks; 0: none came.
 */
THC_INLINE u64 thc_sender_missing(const struct thc_sender *s, u64 all, u32 round, int *left)
{
	const struct thc_flight *f[2];
	u64 missing = 0;
	int i;

	thc_sender_oldest(s, round, f);
	*left = 0;
	for (i = 0; i < 2; i++) {
		if (!f[i] || !f[i]->present)
			continue;
		*left |= f[i]->left;
		missing |= all & ~f[i]->present;
	}
	return missing;
}

/**
 * thc_sender_stall() - can the worker go on waiting?
 * @left: a rank that is waited for has left
 * @timeout: without any answer, ns
 */
THC_INLINE enum thc_stall thc_sender_stall(struct thc_sender *s, int left, u64 timeout, u64 now)
{
	if (!thc_sender_busy(s)) {
		s->unreachable_at = 0;
		return THC_STALL_NONE;
	}
	if (left)
		return THC_STALL_LEFT;
	if (s->unreachable_at && now - s->unreachable_at > THC_UNREACHABLE_MS * THC_NS_PER_MS)
		return THC_STALL_UNREACHABLE;
	return now - s->progress_at > timeout ? THC_STALL_LATE : THC_STALL_NONE;
}

#endif /* THC_FLIGHT_H */
