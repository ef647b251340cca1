/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Congestion control: round-trip estimate, retransmission timeout, and the congestion window (slow
 * start, then additive increase, multiplicative decrease on loss and on ECN). Pure arithmetic; time
 * is in nanoseconds, the window in chunks, and `order` counts packets sent. The estimator is
 * Jacobson's (RFC 6298) with gains 1/8 and 1/4.
 */
#ifndef THC_WINDOW_H
#define THC_WINDOW_H

#include <thc/types.h>

/* Least and largest timeout of a first retransmission, and the one without an RTT sample. */
#define THC_RTO_MIN	(5 * THC_NS_PER_MS)
#define THC_RTO_MAX	(500 * THC_NS_PER_MS)
#define THC_RTO_FIRST	(20 * THC_NS_PER_MS)
/* Longest pause between two firings of timers without an answer, unless the RTO is longer. One
 * packet's own timeout is in thc_flight_sent().
 */
#define THC_BACKOFF_MAX	(100 * THC_NS_PER_MS)
/* A round trip longer than the shortest one times this has waited for another rank. */
#define THC_RTT_SPREAD	4
/* Answers of a lot, see thc_window_network_rtt(). */
#define THC_RTT_LOT	64

/* Least window after a cut, and the first window. The least is like TCP's initial window: 19 kB of
 * 4-bit chunks.
 */
#define THC_WINDOW_MIN	32
#define THC_WINDOW_FIRST 64
/* Chunks that it grows by in a round trip above the threshold: about as many bytes as TCP's, whose
 * segment is as long as the packets of three chunks.
 */
#define THC_WINDOW_GROWTH 3
/* One chunk in the fixed-point unit of a window's size. */
#define THC_WINDOW_ONE	(1U << 16)

/* Bounds of thc_window_reorder(): three packets as in TCP, more in a large window. */
#define THC_REORDER_MIN	3
#define THC_REORDER_MAX	24

/**
 * struct thc_window - congestion state of one worker
 * @size: chunks that may be in flight, in parts of THC_WINDOW_ONE
 * @threshold: slow start ends here
 * @before_cut: size, threshold and cut_order before the last cut for a loss, to undo a spurious one
 * @max: the job's slots, chunks
 * @floor: shortest round trip of late, which is the network's: no other rank delayed it
 * @lot_floor: shortest round trip of the current lot
 * @lot: round trips in the current lot so far
 * @srtt: smoothed round trip, 0 before the first sample
 * @rttvar: smoothed mean deviation of the round trip
 * @cut_order: a loss of a packet sent before this one belongs to the last cut
 * @stall_order: a timer made the last cut, before this packet: an answer to an earlier packet that
 *	was not sent again since shows that nothing was lost. 0: no timer made it, or that was
 *	undone
 * @cuts: multiplicative decreases
 */
struct thc_window {
	u32	size;
	u32	threshold;
	u32	before_cut;
	u32	threshold_before_cut;
	u64	order_before_cut;
	u32	max;
	u64	floor;
	u64	lot_floor;
	u32	lot;
	u64	srtt;
	u64	rttvar;
	u64	cut_order;
	u64	stall_order;
	u64	cuts;
};

/* @max: 1 .. THC_SLOTS_MAX. The round-trip estimate is kept: the path is the same. */
THC_INLINE void thc_window_init(struct thc_window *w, u32 max)
{
	u32 first = max < THC_WINDOW_FIRST ? max : THC_WINDOW_FIRST;

	w->size = first * THC_WINDOW_ONE;
	w->threshold = max * THC_WINDOW_ONE;
	w->before_cut = 0;
	w->threshold_before_cut = 0;
	w->order_before_cut = 0;
	w->max = max;
	w->cut_order = 0;
	w->stall_order = 0;
	w->cuts = 0;
}

/* The network's part of round trip @rtt. An answer comes when the last rank has sent. If the timers
 * of other ranks were part of this rank's round trip, and its timers of theirs, all would grow with
 * each loss: so a round trip is capped at THC_RTT_SPREAD times the shortest. The shortest is that
 * of the last one or two lots: a queue in the network makes all round trips longer, and timers have
 * to follow, or they fire while nothing is lost; a rank that waits for its timer delays only a few.
 */
THC_INLINE u64 thc_window_network_rtt(struct thc_window *w, u64 rtt)
{
	if (!w->floor || rtt < w->floor)
		w->floor = rtt;
	if (!w->lot || rtt < w->lot_floor)
		w->lot_floor = rtt;
	if (++w->lot == THC_RTT_LOT) {
		w->floor = w->lot_floor;
		w->lot = 0;
	}
	return rtt < THC_RTT_SPREAD * w->floor ? rtt : THC_RTT_SPREAD * w->floor;
}

THC_INLINE void thc_window_sample(struct thc_window *w, u64 rtt)
{
	u64 deviation = rtt > w->srtt ? rtt - w->srtt : w->srtt - rtt;

	if (!w->srtt) {
		w->srtt = rtt;
		w->rttvar = rtt / 2;
		return;
	}
	w->rttvar = w->rttvar - w->rttvar / 4 + deviation / 4;
	w->srtt = w->srtt - w->srtt / 8 + rtt / 8;
}

/* Takes in an answer; @rtt: its round trip, 0: not known (Karn). */
THC_INLINE void thc_window_answer(struct thc_window *w, u64 rtt)
{
	u32 max = w->max * THC_WINDOW_ONE, step = THC_WINDOW_ONE;

	if (rtt)
		thc_window_sample(w, thc_window_network_rtt(w, rtt));
	if (w->size >= w->threshold)
		step = (u32)((u64)THC_WINDOW_GROWTH * THC_WINDOW_ONE * THC_WINDOW_ONE / w->size);
	w->size = max - w->size < step ? max : w->size + step;
}

/* The window after a cut of @size. */
THC_INLINE u32 thc_window_half(const struct thc_window *w, u32 size)
{
	u32 floor = (w->max < THC_WINDOW_MIN ? w->max : THC_WINDOW_MIN) * THC_WINDOW_ONE;

	return size / 2 < floor ? floor : size / 2;
}

/* The packet sent as number @lost was lost; @next: number of the next packet. Cuts the window at
 * most once a round trip; returns whether it did.
 */
THC_INLINE int thc_window_loss(struct thc_window *w, u64 lost, u64 next)
{
	if (lost < w->cut_order)
		return 0;
	w->before_cut = w->size;
	w->threshold_before_cut = w->threshold;
	w->order_before_cut = w->cut_order;
	w->size = thc_window_half(w, w->size);
	w->threshold = w->size;
	w->cut_order = next;
	w->stall_order = 0;
	w->cuts++;
	return 1;
}

/* A timer has run out: packet @lost may be lost, or all answers may be late. Returns as
 * thc_window_loss() does.
 */
THC_INLINE int thc_window_stall(struct thc_window *w, u64 lost, u64 next)
{
	int cut = thc_window_loss(w, lost, next);

	if (cut)
		w->stall_order = next;
	return cut;
}

/* The packet sent as number @order met congestion: a cut that nothing undoes. If that of a loss
 * before it turns out to be spurious, the window is what this one alone would have left.
 */
THC_INLINE void thc_window_mark(struct thc_window *w, u64 order, u64 next)
{
	u32 before = w->before_cut ? thc_window_half(w, w->before_cut) : 0;

	if (!thc_window_loss(w, order, next))
		return;
	w->before_cut = before;
	w->threshold_before_cut = before;
}

/* Undoes the last cut, since the packet had arrived. */
THC_INLINE void thc_window_spurious(struct thc_window *w)
{
	if (w->size < w->before_cut)
		w->size = w->before_cut;
	if (w->threshold < w->threshold_before_cut)
		w->threshold = w->threshold_before_cut;
	w->before_cut = 0;
	w->threshold_before_cut = 0;
	w->stall_order = 0;
}

/* An answer to the packet sent last as number @order: if it was on its way when timers fired, they
 * were too early (F-RTO, RFC 5682).
 */
THC_INLINE void thc_window_late(struct thc_window *w, u64 order)
{
	if (order >= w->stall_order)
		return;
	/* other packets sent before the cut may be lost */
	w->cut_order = w->order_before_cut;
	thc_window_spurious(w);
}

THC_INLINE u64 thc_window_rto(const struct thc_window *w)
{
	u64 rto = w->srtt ? w->srtt + 4 * w->rttvar : THC_RTO_FIRST;

	return rto < THC_RTO_MIN ? THC_RTO_MIN : rto > THC_RTO_MAX ? THC_RTO_MAX : rto;
}

/* Pause until timers fire again, after @stalls firings without an answer. */
THC_INLINE u64 thc_window_backoff(const struct thc_window *w, u32 stalls)
{
	u64 rto = thc_window_rto(w);
	u64 wait = rto << (stalls < 8 ? stalls : 8);

	return wait > THC_BACKOFF_MAX ? (rto > THC_BACKOFF_MAX ? rto : THC_BACKOFF_MAX) : wait;
}

/* Whole chunks that may be in flight, at least one. */
THC_INLINE u32 thc_window_size(const struct thc_window *w)
{
	return w->size / THC_WINDOW_ONE;
}

/* A packet counts as lost after answers to this many later packets. */
THC_INLINE u32 thc_window_reorder(const struct thc_window *w)
{
	u32 quarter = thc_window_size(w) / 4;

	return quarter < THC_REORDER_MIN ? THC_REORDER_MIN :
	       quarter > THC_REORDER_MAX ? THC_REORDER_MAX :
					   quarter;
}

#endif /* THC_WINDOW_H */
