/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Transmission and retransmission of a worker's packets. libthc (over UDP) and thc.ko compile this
 * text. Each is a host: it implements the functions declared here.
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

/* Sends @f's packet, for the first time or again; it may be held back until thc_host_flush(). */
THC_INLINE void thc_host_send(struct thc_host *host, const struct thc_flight *f);

/* Passes all packets of thc_host_send() to the network. */
THC_INLINE void thc_host_flush(struct thc_host *host);

/* Should the worker go on waiting? If not, the host ends the job's session. Returns when to ask
 * again (~0: when something happens).
 */
THC_INLINE u64 thc_host_check(struct thc_host *host, u64 now);

/* Least window of the control stream, in chunks: agreements are small, and data waits for them. */
#define THC_CONTROL_WINDOW	64

THC_INLINE u32 thc_worker_window(const struct thc_sender *s, const struct thc_stream *st)
{
	u32 window = thc_window_size(&s->window);

	return st == &s->control && window < THC_CONTROL_WINDOW ? THC_CONTROL_WINDOW : window;
}

/* Sends as many chunks of @st as window and slots allow. */
THC_INLINE void thc_worker_transmit(struct thc_host *host, struct thc_sender *s,
				    struct thc_stream *st, u64 now)
{
	u32 window = thc_worker_window(s, st);
	struct thc_ready ready;

	while (thc_stream_may_send(st, window) && thc_host_may_send(host, st) &&
	       thc_host_next(host, st, &ready))
		thc_host_send(host, thc_flight_launch(s, st, ready, now));
}

/* Retransmits overdue packets of @st; returns when to look again (~0: when something happens). */
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

/* Sends packets of both streams; the control stream goes first, since data waits for it. */
THC_INLINE void thc_worker_send(struct thc_host *host, struct thc_sender *s, u64 now)
{
	thc_worker_transmit(host, s, &s->control, now);
	thc_host_flush(host);
	thc_worker_transmit(host, s, &s->data, now);
	thc_host_flush(host);
}

/* Retransmits the overdue packets of both streams, if it is time to look; returns when the next
 * look is due (~0: when something happens).
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
