/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A worker's packets out, and again. libthc over UDP and thc.ko compile this text; each is a
 * host, which lends what differs between them.
 */
#ifndef THC_TRANSMIT_H
#define THC_TRANSMIT_H

#include <thc/worker/overdue.h>

/* The host, with whatever its functions need. */
struct thc_host;

/* Can a packet of @st go out now? */
THC_INLINE int thc_host_may_send(struct thc_host *host, const struct thc_stream *st);

/* The packet of chunk @st->next; 0: it is not made yet. */
THC_INLINE int thc_host_next(struct thc_host *host, const struct thc_stream *st,
			     struct thc_ready *ready);

/* @f's packet goes out, for the first time or again. */
THC_INLINE void thc_host_send(struct thc_host *host, const struct thc_flight *f);

/* What thc_host_send() was given leaves this host. */
THC_INLINE void thc_host_flush(struct thc_host *host);

/* Is there a point in waiting? If not, the host ends it. Returns when to ask again (~0: when
 * something happens).
 */
THC_INLINE u64 thc_host_check(struct thc_host *host, u64 now);

/* Chunks of the control stream that may be in flight however small the window is: what is
 * agreed on is little, and all else waits for it.
 */
#define THC_CONTROL_WINDOW	64

THC_INLINE u32 thc_worker_window(const struct thc_sender *s, const struct thc_stream *st)
{
	u32 window = thc_window_size(&s->window);

	return st == &s->control && window < THC_CONTROL_WINDOW ? THC_CONTROL_WINDOW : window;
}

/* Sends what window and slots allow. */
THC_INLINE void thc_worker_transmit(struct thc_host *host, struct thc_sender *s,
				    struct thc_stream *st, u64 now)
{
	u32 window = thc_worker_window(s, st);
	struct thc_ready ready;

	while (thc_stream_may_send(st, window) && thc_host_may_send(host, st) &&
	       thc_host_next(host, st, &ready))
		thc_host_send(host, thc_flight_launch(s, st, ready, now));
}

/* Sends again what is overdue; returns when to look again (~0: when something happens). */
THC_INLINE u64 thc_worker_retransmit(struct thc_host *host, struct thc_sender *s,
				     struct thc_stream *st, u64 now)
{
	struct thc_overdue pass;
	struct thc_flight *f;

	thc_overdue_begin(s, &pass, now);
	while (thc_host_may_send(host, st) && (f = thc_overdue_next(s, st, &pass, now)))
		thc_host_send(host, f);
	return thc_overdue_end(s, &pass, now);
}

/* Sends of both streams what may be sent: what is agreed on goes first, since all else waits for
 * it.
 */
THC_INLINE void thc_worker_send(struct thc_host *host, struct thc_sender *s, u64 now)
{
	thc_worker_transmit(host, s, &s->control, now);
	thc_host_flush(host);
	thc_worker_transmit(host, s, &s->data, now);
	thc_host_flush(host);
}

/* Sends again what is overdue of both, if it is time to look; returns when it is (~0: when
 * something happens).
 */
THC_INLINE u64 thc_worker_send_again(struct thc_host *host, struct thc_sender *s, u64 now)
{
	u64 due, at;

	if (!thc_sender_looks(s, now))
		return s->look_at;
	due = thc_worker_retransmit(host, s, &s->control, now);

	thc_host_flush(host);
	at = thc_worker_retransmit(host, s, &s->data, now);
	due = at < due ? at : due;
	thc_host_flush(host);
	at = thc_host_check(host, now);
	return thc_sender_looked(s, at < due ? at : due, now);
}

#endif /* THC_TRANSMIT_H */
