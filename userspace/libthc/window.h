/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * How much a client may have in flight and how long it waits: round-trip
 * estimate, retransmission timeout, and the congestion window (slow start,
 * then additive increase, multiplicative decrease on loss and on ECN). Pure
 * arithmetic; time is nanoseconds, the window is chunks, `order` counts
 * packets sent.
 */
#ifndef LIBTHC_WINDOW_H
#define LIBTHC_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define THC_NS_PER_MS	1000000ULL
#define THC_NS_PER_US	1000ULL

/* Least and most a retransmission waits, first try. */
#define THC_RTO_MIN	(5 * THC_NS_PER_MS)
#define THC_RTO_MAX	(500 * THC_NS_PER_MS)
#define THC_RTO_FIRST	(20 * THC_NS_PER_MS)
/* However long nothing comes, somebody asks this often. */
#define THC_BACKOFF_MAX	(100 * THC_NS_PER_MS)
/* A longer round trip than so many of the shortest ones waited for a rank. */
#define THC_RTT_SPREAD	4

/* A floor like TCP's initial window: 19 kB of 4-bit chunks. */
#define THC_WINDOW_MIN	32
#define THC_WINDOW_FIRST 64

/* Reordering that is not taken for loss: TCP's three, more in a large window. */
#define THC_REORDER_MIN	3
#define THC_REORDER_MAX	24

/**
 * struct thc_window - congestion state of one client
 * @size: chunks that may be in flight
 * @threshold: slow start ends here
 * @before_cut: size and threshold before the last cut, to undo a spurious one
 * @max: the job's slots
 * @floor: shortest round trip lately: the network's, without other ranks' delays
 * @srtt: smoothed round trip, 0 before the first sample
 * @rttvar: its mean deviation
 * @cut_order: losses of packets sent before this one belong to the last cut
 * @cuts: multiplicative decreases
 */
struct thc_window {
	double size;
	double threshold;
	double before_cut;
	double threshold_before_cut;
	uint32_t max;
	uint64_t floor;
	uint64_t srtt;
	uint64_t rttvar;
	uint64_t cut_order;
	uint64_t cuts;
};

void thc_window_init(struct thc_window *w, uint32_t max);
/* An answer came; @rtt is its round trip, 0 if it was retransmitted (Karn). */
void thc_window_answer(struct thc_window *w, uint64_t rtt);
/* The packet sent as number @lost was lost, or met congestion; @next is the
 * number of the next one. At most one cut a round trip; true if this was one.
 */
bool thc_window_loss(struct thc_window *w, uint64_t lost, uint64_t next);
/* The loss that made the last cut was none: the packet had arrived. */
void thc_window_spurious(struct thc_window *w);
uint64_t thc_window_rto(const struct thc_window *w);
/* Wait before timers fire again after @stalls times in vain. */
uint64_t thc_window_backoff(const struct thc_window *w, unsigned int stalls);
/* Answers to so many later packets show that one was lost. */
uint32_t thc_window_reorder(const struct thc_window *w);
uint32_t thc_window_size(const struct thc_window *w);

#endif /* LIBTHC_WINDOW_H */
