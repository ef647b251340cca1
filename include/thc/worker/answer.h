/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets from the aggregator: what each means to a worker, and how it changes the sender.
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
 * @port: source port, host order
 * @ce: it met congestion on its way down (RFC 3168)
 * @group: it was sent to the job's group, not to this worker alone
 */
struct thc_origin {
	u16	port;
	u8	ce;
	u8	group;
};

/* The meaning of a packet from the aggregator. */
enum thc_got {
	THC_GOT_FOREIGN,	/* not a THC packet, or not for this worker's job */
	THC_GOT_UNEXPECTED,	/* a duplicate, or an answer to an old request */
	THC_GOT_EPOCH,		/* the epoch is over: thc_hdr.epoch is the new one */
	THC_GOT_WAIT,		/* the contribution waits for another rank, or differs */
	THC_GOT_ANSWER,		/* the sum of the flight's chunk: land it */
	THC_GOT_MISSED,		/* the sum is gone, its ranks are known: land it */
	THC_GOT_BEHIND,		/* the sum is gone for good: no way to go on */
};

/* May the aggregator send a packet with header @h from @port? XDP answers from the port of the
 * request, thcd from the base port. thcd has bound all these ports; a program that sends from one
 * of them all the same (IP_PKTINFO) needs the job's key.
 */
THC_INLINE int thc_sender_sent_from(const struct thc_sender *s, const struct thc_hdr *h, u16 port)
{
	u32 slot = thc_be16(h->slot);

	return port == s->port ||
	       (slot < s->data.slots + s->control.slots && port == thc_sender_port(s, slot));
}

/* Does @h name contributors, all of them ranks of the job, and count as many? */
THC_INLINE int thc_sender_counts(const struct thc_sender *s, const struct thc_hdr *h)
{
	u64 bitmap = thc_be64(h->bitmap);

	return bitmap && !(bitmap & ~s->all) && thc_be16(h->count) == thc_ranks_count(bitmap);
}

/* Is @h the answer to the request in flight? Its op is that of the first contribution. */
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
 * thc_sender_find() - finds the flight that a packet from the aggregator is about
 * @h: its header; @bytes: of header and payload
 * @port: source port, host order
 * @stream, @flight: out: NULL if the result is THC_GOT_FOREIGN, and if it is THC_GOT_UNEXPECTED
 *	without a flight
 *
 * Reads the header alone, whose tag is not checked yet, and changes nothing. The caller checks the
 * tag (thc_sender_seal_ok()), and then calls thc_sender_apply().
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
	/* an aggregator answers each request under an unknown key with an epoch's end; one that
	 * names this epoch has nothing to do with it
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

/* Tells why a packet for which thc_sender_find() finds no flight is dropped. */
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

/* Does a drop for @why count as foreign? Corrupted and late packets have their own counters. */
THC_INLINE int thc_drop_is_foreign(enum thc_drop_reason why)
{
	return why != THC_DROP_NONE && why != THC_DROP_TAG && why != THC_DROP_UNEXPECTED;
}

/* Does the packet's tag match? @got, @f: of thc_sender_find(); @d: digest of the payload, of @words
 * 64-bit words, by the seal of answers.
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

/* Does a sum with @count, as in struct thc_received, lack any of a job's @ranks? A sum that is gone
 * lacks all.
 */
THC_INLINE int thc_count_lacks(u16 count, u32 ranks)
{
	return (count & ~THC_COUNT_EXCLUDED) < ranks;
}

/**
 * struct thc_landing - the result of a chunk
 * @lanes: its sum; NULL: the sum is gone
 * @ranks: its contributors; 0: the sum is gone
 * @digest: its contribution to the digest of its round, 0: none
 * @count: number of contributors, 0: the sum is gone; and THC_COUNT_EXCLUDED, if this worker is
 *	none
 */
struct thc_landing {
	const void *lanes;
	u64	ranks;
	u32	digest;
	u16	count;
};

/* Makes the result from an answer with header @h and @lanes, or from a STALE (THC_GOT_MISSED). */
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

/* Sets when timers fire next, and for how many packets. An answer to a retransmitted packet shows
 * that it was lost, and more may be lost; or it is the late answer to the first transmission, and
 * then answers to the packets behind it come within a quarter of a round trip.
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

/* Round trip that an answer shows, 0: none. After a retransmission it is not known which packet was
 * answered (Karn). On a path slower than the first timeout, however, every packet is retransmitted
 * before its answer comes, and there would never be a sample: there the time since the first
 * transmission, which is rather too long than too short, is the sample.
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
	/* the answer to the first transmission may overtake a retransmission */
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
	/* an older WAIT may come later, but a contributor stays one */
	if (h->flags & THC_F_DIFFERS) {
		if (!f->present)
			f->differs |= thc_be64(h->bitmap);
		return;
	}
	f->left = !!(h->flags & THC_F_LEFT);
	f->present |= thc_be64(h->bitmap);
	f->differs = 0;
}

/* Takes in marks of congestion. @ce: on this packet's way down. The header's flag means that a
 * contribution to the chunk, of any rank, was marked; all packets about the chunk repeat it, so it
 * counts once.
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
 * thc_sender_apply() - changes the sender by a packet whose tag matches
 * @got, @st, @f: of thc_sender_find()
 * @ce: the packet met congestion on its way down (ECN)
 *
 * After THC_GOT_ANSWER and THC_GOT_MISSED the flight is free: remember its owner and index before.
 */
THC_INLINE void thc_sender_apply(struct thc_sender *s, enum thc_got got, struct thc_stream *st,
				 struct thc_flight *f, const struct thc_hdr *h, int ce, u64 now)
{
	/* A WAIT or repeated answer after the chunk's answer: the retransmission was needless,
	 * since the original had arrived, so the cut was, too.
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
