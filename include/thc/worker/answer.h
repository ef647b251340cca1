/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a packet from the aggregator means to a worker, and what it changes.
 */
#ifndef THC_WORKER_ANSWER_H
#define THC_WORKER_ANSWER_H

#include <thc/wire/format.h>
#include <thc/wire/ranks.h>
#include <thc/worker/sender.h>

/* Limit of thc_sender.probes, which grows from THC_PROBES while retransmissions are needed. */
#define THC_PROBES_MAX		64

/**
 * struct thc_origin - how a packet came
 * @port: from where it was sent, host order
 * @ce: it met congestion on its way to us (RFC 3168)
 * @group: it was sent to the job's group, not to us alone
 */
struct thc_origin {
	u16	port;
	u8	ce;
	u8	group;
};

/* The meaning of a packet from the aggregator. */
enum thc_got {
	THC_GOT_FOREIGN,	/* not for this worker's job, or no packet of ours */
	THC_GOT_UNEXPECTED,	/* a duplicate, or an answer to an old request */
	THC_GOT_EPOCH,		/* the epoch is over: thc_hdr.epoch is the new one */
	THC_GOT_WAIT,		/* our contribution waits for another rank, or differs */
	THC_GOT_ANSWER,		/* the sum of the flight's chunk: land it */
	THC_GOT_MISSED,		/* the sum is gone, its ranks are known: land it */
	THC_GOT_BEHIND,		/* the sum is gone for good: no way to go on */
};

/* Does the aggregator send what @h says from @port? XDP answers from the port that
 * took the request, thcd from the base port. All these ports are thcd's. Who sends from them
 * all the same (IP_PKTINFO) needs the job's key.
 */
THC_INLINE int thc_sender_sent_from(const struct thc_sender *s, const struct thc_hdr *h, u16 port)
{
	u32 slot = thc_be16(h->slot);

	return port == s->port ||
	       (slot < s->data.slots + s->control.slots && port == thc_sender_port(s, slot));
}

/* Are @count ranks of the job in @h's sum, those that its bitmap names? */
THC_INLINE int thc_sender_counts(const struct thc_sender *s, const struct thc_hdr *h)
{
	u64 bitmap = thc_be64(h->bitmap);

	return bitmap && !(bitmap & ~s->all) && thc_be16(h->count) == thc_ranks_count(bitmap);
}

/* Does the answer say what the request in flight asked for? Its op is the first contribution's. */
THC_INLINE int thc_flight_asked_for(const struct thc_sender *s, const struct thc_flight *f,
				    const struct thc_hdr *h)
{
	const struct thc_hdr *asked = f->packet;

	return h->flags & THC_F_ANSWER && h->round == asked->round &&
	       thc_ops_meet(h->op, asked->op) &&
	       h->width == thc_sum_bits(asked->op, asked->width,
					thc_widths_sum(&s->widths, asked->width));
}

/* Does the packet end the epoch? Then a key that outlasts the epoch seals it; the epoch's key seals
 * all others.
 */
THC_INLINE int thc_sender_is_end(const struct thc_hdr *h)
{
	return h->op == THC_OP_STALE && h->flags & THC_F_EPOCH;
}

/* Does the packet name the key that it has to be sealed by? */
THC_INLINE int thc_sender_knows_key(const struct thc_sender *s, const struct thc_hdr *h)
{
	return thc_seal_names(h, thc_sender_is_end(h) ? s->lost.id : s->down.id);
}

/**
 * thc_sender_find() - whom a packet from the aggregator is about
 * @h: its header, @bytes with the payload
 * @port: from where it was sent, host order
 * @stream, @flight: set unless the result is THC_GOT_FOREIGN or THC_GOT_UNEXPECTED
 *	without a flight (then NULL)
 *
 * Reads the header alone, whose tag is not checked yet: nothing is changed.
 * The caller checks the tag (thc_sender_seal_ok()), then says so by
 * thc_sender_apply().
 */
THC_INLINE enum thc_got thc_sender_find(struct thc_sender *s, const struct thc_hdr *h, u32 bytes,
					u16 port, struct thc_stream **stream,
					struct thc_flight **flight)
{
	struct thc_stream *st = &s->control;
	int ends = thc_sender_is_end(h);
	struct thc_flight *f;
	u32 slot;

	*stream = NULL;
	*flight = NULL;
	/* WELCOME and CHALLENGE come late, or again, and have another key */
	if (bytes < sizeof(*h) || bytes % 8 || h->version != THC_VERSION ||
	    h->job != thc_be16(s->job) || thc_op_is_joining(h->op) || !thc_sender_knows_key(s, h) ||
	    !thc_sender_sent_from(s, h, port))
		return THC_GOT_FOREIGN;
	/* an aggregator says of each request with a strange key that its epoch is over, and
	 * which one is not: ours
	 */
	if (ends == (h->epoch == thc_be32(s->epoch)))
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
	if (ends)
		return THC_GOT_EPOCH;
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

/* Why a packet that thc_sender_find() finds nobody for is of no use. */
THC_INLINE enum thc_drop_reason thc_sender_refusal(const struct thc_sender *s,
						   const struct thc_hdr *h, u32 bytes, u16 port)
{
	if (bytes < sizeof(*h))
		return THC_DROP_TRUNCATED;
	if (h->version != THC_VERSION)
		return THC_DROP_VERSION;
	if (h->job != thc_be16(s->job))
		return THC_DROP_JOB;
	if (!thc_sender_sent_from(s, h, port))
		return THC_DROP_ADDRESS;
	if (thc_op_is_joining(h->op)) {
		if (!thc_joining_fits(h->op, bytes - (u32)sizeof(*h)))
			return THC_DROP_LENGTH;
		return thc_seal_names(h, s->welcome.id) ? THC_DROP_UNEXPECTED : THC_DROP_KEY;
	}
	if (!thc_sender_knows_key(s, h))
		return THC_DROP_KEY;
	if (!thc_op_is_data(h->op) && h->op != THC_OP_WAIT && h->op != THC_OP_STALE)
		return THC_DROP_OP;
	if (bytes != sizeof(*h) + (h->flags & THC_F_ANSWER ? THC_LANE_BYTES : 0))
		return THC_DROP_LENGTH;
	if (thc_be16(h->slot) >= s->data.slots + s->control.slots)
		return THC_DROP_SLOT;
	return THC_DROP_UNEXPECTED;
}

/* Is what a worker drops for @why counted as foreign? What is corrupted, or came too late, has
 * counters of its own.
 */
THC_INLINE int thc_drop_is_foreign(enum thc_drop_reason why)
{
	return why != THC_DROP_NONE && why != THC_DROP_TAG && why != THC_DROP_UNEXPECTED;
}

/* Is the packet the aggregator's, as it was sent? @got, @f: of thc_sender_find(); @d: of the
 * payload, @words 64-bit words, by the seal of answers.
 */
THC_INLINE int thc_sender_seal_ok(const struct thc_sender *s, enum thc_got got,
				  const struct thc_flight *f, const struct thc_hdr *h,
				  struct thc_digest d, int words)
{
	const struct thc_hdr *asked;

	if (got != THC_GOT_EPOCH)
		return thc_seal_fits(h, s->seal, &s->down, d, (u64)words);
	asked = f->packet;
	return !words &&
	       h->tag == thc_member_tag(s->member_seal, &s->lost, h, &s->end, &asked->tag, 1);
}

/* Of @count, as struct thc_received has it, in a job of @ranks: does the sum lack any? One that is
 * gone lacks all.
 */
THC_INLINE int thc_count_lacks(u16 count, u32 ranks)
{
	return (count & ~THC_COUNT_EXCLUDED) < ranks;
}

/**
 * struct thc_landing - what a worker learns of a chunk
 * @lanes: its sum; NULL: the sum is gone
 * @ranks: in the sum; 0: it is gone
 * @digest: what it adds to the digest of its round, 0: nothing
 * @count: ranks in the sum, 0: it is gone; and THC_COUNT_EXCLUDED, if not this worker
 */
struct thc_landing {
	const void *lanes;
	u64	ranks;
	u32	digest;
	u16	count;
};

/* By its answer @h, with @lanes, or (THC_GOT_MISSED) by the message that there is none. */
THC_INLINE struct thc_landing thc_sender_landing(const struct thc_sender *s, enum thc_got got,
						 const struct thc_hdr *h, const void *lanes,
						 u32 digest)
{
	u64 bitmap = thc_be64(h->bitmap);
	struct thc_landing l = { .digest = digest };

	if (got == THC_GOT_ANSWER) {
		l.lanes = lanes;
		l.ranks = bitmap;
		l.count = thc_be16(h->count);
	}
	if (!(bitmap >> s->rank & 1))
		l.count |= THC_COUNT_EXCLUDED;
	return l;
}

/* When the next timer may fire, and for how many packets. What was sent again, and then had an
 * answer, was lost, and so may be more; or this is the late answer to its first transmission, and
 * then those to the packets behind it come soon: within a quarter of a round trip.
 */
THC_INLINE void thc_sender_restart_timers(struct thc_sender *s, const struct thc_flight *f, u64 now)
{
	int was_lost = f->tries && !f->waiting;

	s->stalls = 0;
	s->timers_at = now + (was_lost ? s->window.srtt / 4 : thc_window_rto(&s->window));
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
	thc_window_late(&s->window, f->order);
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

/* Each packet that comes with a mark is one that met congestion. The header's flag is that of a
 * contribution, ours or another rank's, and all that the aggregator says of a chunk repeats it.
 */
THC_INLINE void thc_flight_marked(struct thc_sender *s, struct thc_flight *f,
				  const struct thc_hdr *h, int ce)
{
	if (h->flags & THC_F_CE && !f->ce) {
		f->ce = 1;
		ce = 1;
	}
	if (ce)
		thc_window_mark(&s->window, f->order, s->order);
}

/**
 * thc_sender_apply() - what the packet changes
 * @got, @st, @f: of thc_sender_find()
 * @ce: it met congestion on its way to us (ECN)
 *
 * After THC_GOT_ANSWER and THC_GOT_MISSED the flight is free: remember its
 * owner and index before.
 */
THC_INLINE void thc_sender_apply(struct thc_sender *s, enum thc_got got, struct thc_stream *st,
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
	thc_flight_marked(s, f, h, ce);
	if (got == THC_GOT_WAIT)
		thc_flight_wait(s, f, h);
	else if (got == THC_GOT_ANSWER || got == THC_GOT_MISSED)
		thc_flight_land(s, st, f, now);
}

#endif /* THC_WORKER_ANSWER_H */
