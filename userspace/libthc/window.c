// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Round-trip estimate and congestion window; see window.h. The estimator is
 * Jacobson's (RFC 6298) with gains 1/8 and 1/4.
 */
#include "window.h"

void thc_window_init(struct thc_window *w, uint32_t max)
{
	struct thc_window old = *w;

	*w = (struct thc_window){
		.size = max < THC_WINDOW_FIRST ? max : THC_WINDOW_FIRST,
		.threshold = max,
		.max = max,
		.floor = old.floor,
		.srtt = old.srtt,
		.rttvar = old.rttvar,
	};
}

/* An answer comes when the last rank has sent. If the others' timers were part
 * of our round trip, and ours of theirs, all would grow with each loss: what
 * exceeds the shortest round trips by far is cut off. The floor drifts upwards,
 * so that a path that has become longer is believed after some thousand answers.
 */
static uint64_t network_rtt(struct thc_window *w, uint64_t rtt)
{
	if (!w->floor || rtt < w->floor)
		w->floor = rtt;
	else
		w->floor += w->floor / 1024 + 1;
	return rtt < THC_RTT_SPREAD * w->floor ? rtt : THC_RTT_SPREAD * w->floor;
}

static void sample(struct thc_window *w, uint64_t rtt)
{
	uint64_t deviation = rtt > w->srtt ? rtt - w->srtt : w->srtt - rtt;

	if (!w->srtt) {
		w->srtt = rtt;
		w->rttvar = rtt / 2;
		return;
	}
	w->rttvar = w->rttvar - w->rttvar / 4 + deviation / 4;
	w->srtt = w->srtt - w->srtt / 8 + rtt / 8;
}

void thc_window_answer(struct thc_window *w, uint64_t rtt)
{
	if (rtt)
		sample(w, network_rtt(w, rtt));
	w->size += w->size < w->threshold ? 1.0 : 1.0 / w->size;
	if (w->size > w->max)
		w->size = w->max;
}

bool thc_window_loss(struct thc_window *w, uint64_t lost, uint64_t next)
{
	double floor = w->max < THC_WINDOW_MIN ? w->max : THC_WINDOW_MIN;

	if (lost < w->cut_order)
		return false;
	w->before_cut = w->size;
	w->threshold_before_cut = w->threshold;
	w->size /= 2;
	if (w->size < floor)
		w->size = floor;
	w->threshold = w->size;
	w->cut_order = next;
	w->cuts++;
	return true;
}

void thc_window_spurious(struct thc_window *w)
{
	if (w->size < w->before_cut)
		w->size = w->before_cut;
	if (w->threshold < w->threshold_before_cut)
		w->threshold = w->threshold_before_cut;
	w->before_cut = 0;
	w->threshold_before_cut = 0;
}

uint64_t thc_window_rto(const struct thc_window *w)
{
	uint64_t rto = w->srtt ? w->srtt + 4 * w->rttvar : THC_RTO_FIRST;

	return rto < THC_RTO_MIN ? THC_RTO_MIN : rto > THC_RTO_MAX ? THC_RTO_MAX : rto;
}

uint64_t thc_window_backoff(const struct thc_window *w, unsigned int stalls)
{
	uint64_t rto = thc_window_rto(w);
	uint64_t wait = rto << (stalls < 8 ? stalls : 8);

	return wait > THC_BACKOFF_MAX ? (rto > THC_BACKOFF_MAX ? rto : THC_BACKOFF_MAX) : wait;
}

uint32_t thc_window_size(const struct thc_window *w)
{
	return (uint32_t)w->size;
}

uint32_t thc_window_reorder(const struct thc_window *w)
{
	uint32_t quarter = thc_window_size(w) / 4;

	return quarter < THC_REORDER_MIN ? THC_REORDER_MIN :
	       quarter > THC_REORDER_MAX ? THC_REORDER_MAX :
					   quarter;
}
