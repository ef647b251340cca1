/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * When is a packet sent again?
 *  - It is lost: answers have come to packets first sent somewhat later. The packet was lost on
 *    the way up, or its answer on the way down. The window is cut.
 *  - Its timer has run out, and no answer at all came for as long. Only the oldest few packets
 *    are sent, so that a stall does not become a burst. If they turn out to have been lost, twice
 *    as many follow a moment later. The first timer of a stall cuts the window. An answer to a
 *    packet that was in flight then, and was not sent again, shows that nothing was lost: the cut
 *    is undone.
 *    A WAIT in reply means that nothing was lost, and another rank is late: the cut is undone,
 *    and the packet counts as just sent.
 *  - The network reports an error, which anybody can forge: the oldest packet of each stream is
 *    sent every THC_ASK, until a valid packet comes or stall.h gives up.
 */
#ifndef THC_OVERDUE_H
#define THC_OVERDUE_H

#include <thc/worker/sender.h>

/* Tries after which a packet's timer grows no further. */
#define THC_TRIES_MAX		255

/* A look walks all packets in flight. Another CPU may still hold answers that the latest one has
 * overtaken, so a seeming loss is looked at a quarter of a round trip later, within these limits.
 */
#define THC_LOOK_LEAST		(50 * THC_NS_PER_US)
#define THC_LOOK_MOST		(5 * THC_NS_PER_MS)

/* Interval of such questions while the network reports errors; thc_sender_asks_at() has looks come
 * about as often.
 */
#define THC_ASK			(200 * THC_NS_PER_MS)

/**
 * struct thc_overdue - a pass over the flights of a stream, oldest first
 * @at: slots passed so far
 * @seen: flights among them
 * @reorder: thc_window_reorder() at the beginning: a cut during the pass does not tighten it
 * @timers: retransmissions by timer that are left
 * @fired: a timer has retransmitted a packet
 * @due: earliest timer of the flights seen
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

/* Cuts the window for a retransmission, and returns whether it did. A packet's second timeout is no
 * further sign of congestion (RFC 5681, section 3.1).
 */
THC_INLINE u8 thc_flight_cuts(struct thc_sender *s, const struct thc_flight *f, int lost)
{
	/* after a WAIT the packet has arrived: sending it again is no sign of congestion */
	if (f->waiting)
		return 0;
	if (lost)
		return (u8)thc_window_loss(&s->window, f->order, s->order);
	return (u8)thc_window_stall(&s->window, f->first_order, s->order);
}

THC_INLINE void thc_flight_again(struct thc_sender *s, struct thc_flight *f, int lost, u64 now)
{
	u8 cut = thc_flight_cuts(s, f, lost);

	if (f->tries < THC_TRIES_MAX)
		f->tries++;
	thc_flight_sent(s, f, now);
	f->cut = cut;
}

/* Has the network reported an error, about which @f, the oldest of its stream, asks now? */
THC_INLINE int thc_flight_asks(const struct thc_sender *s, const struct thc_flight *f, u64 now)
{
	return s->unreachable_at && now >= f->sent_at + THC_ASK;
}

/* The next flight to be sent again, already marked as sent; NULL: no more. */
THC_INLINE struct thc_flight *thc_overdue_next(struct thc_sender *s, struct thc_stream *st,
					       struct thc_overdue *o, u64 now)
{
	u32 oldest = o->seen < st->in_flight ? (u32)(st->oldest % st->slots) : 0;

	while (o->seen < st->in_flight) {
		u32 slot = oldest + o->at++;
		struct thc_flight *f = &st->flight[slot < st->slots ? slot : slot - st->slots];
		int again = 0, lost;

		if (!f->owner)
			continue;
		o->seen++;
		lost = f->order + o->reorder < st->order_answered;
		if (!lost && f->due <= now && o->timers) {
			o->timers--;
			o->fired = 1;
			again = 1;
		}
		again |= lost || (o->seen == 1 && thc_flight_asks(s, f, now));
		if (again)
			thc_flight_again(s, f, lost, now);
		if (f->due < o->due)
			o->due = f->due;
		if (again)
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

/* Something has happened: is it time to look? If not, the next look is brought forward. */
THC_INLINE int thc_sender_looks(struct thc_sender *s, u64 now)
{
	u64 soon = s->window.srtt / 4;

	if (now >= s->look_at)
		return 1;
	soon = soon < THC_LOOK_LEAST ? THC_LOOK_LEAST : soon > THC_LOOK_MOST ? THC_LOOK_MOST : soon;
	if (s->look_at > now + soon)
		s->look_at = now + soon;
	return 0;
}

/* A look has shown that the next one is due at @due (~0: when something happens): returns when it
 * will be.
 */
THC_INLINE u64 thc_sender_looked(struct thc_sender *s, u64 due, u64 now)
{
	s->look_at = due > now + THC_LOOK_LEAST ? due : now + THC_LOOK_LEAST;
	return due == ~0ULL ? due : s->look_at;
}

#endif /* THC_OVERDUE_H */
