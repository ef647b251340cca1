// SPDX-License-Identifier: GPL-2.0
/* The state of a socket: its name, what its end does to messages, and when its timer runs. */
#include "sock.h"
#include "state.h"
#include "trace.h"

const char *const thc_state_name[] = {
	[THC_STATE_IDLE]	= "idle",
	[THC_STATE_JOINING]	= "joining",
	[THC_STATE_READY]	= "ready",
	[THC_STATE_BROKEN]	= "broken",
};

bool thc_state_waits(const struct thc_sock *ts)
{
	u32 stream;

	lockdep_assert_held(&ts->lock);
	for (stream = 0; stream < THC_STREAMS; stream++) {
		const struct list_head *all = &ts->messages[stream];

		if (!list_empty(all) && !list_last_entry(all, struct thc_message, list)->closed)
			return true;
	}
	return false;
}

/* Undelivered messages, which fail with the socket. Walks all, but only once per connection. */
static u32 unfinished(const struct thc_sock *ts)
{
	const struct thc_message *m;
	u32 stream, n = 0;

	for (stream = 0; stream < THC_STREAMS; stream++)
		list_for_each_entry(m, &ts->messages[stream], list)
			n += !m->closed;
	return n;
}

void thc_state_break(struct thc_sock *ts, struct thc_failure failure)
{
	u32 i;

	lockdep_assert_held(&ts->lock);
	for (i = 0; i < ts->shards; i++) {
		thc_stream_forget(&ts->peers[i]->sender.data);
		thc_stream_forget(&ts->peers[i]->sender.control);
		memset(ts->peers[i]->sending, 0, sizeof(ts->peers[i]->sending));
	}
	/* connect() reports how joining ended, not a later failure */
	if (ts->state == THC_STATE_READY)
		ts->unclaimed = false;
	ts->failure = failure;
	ts->stats.failures += unfinished(ts);
	ts->state = THC_STATE_BROKEN;
	trace_thc_break(&ts->sk, failure.error, failure.reason);
	WRITE_ONCE(ts->sk.sk_err, failure.error);
	sk_error_report(&ts->sk);
}

void thc_state_break_at(const struct thc_peer *p, struct thc_failure failure)
{
	failure.shard = p->shard;
	thc_state_break(p->owner, failure);
}

bool thc_state_wake(struct thc_sock *ts, u64 when)
{
	lockdep_assert_held(&ts->lock);
	if (ts->state != THC_STATE_JOINING && ts->state != THC_STATE_READY)
		return false;
	if (!hrtimer_is_queued(&ts->timer) || hrtimer_get_expires(&ts->timer) != ns_to_ktime(when))
		hrtimer_start(&ts->timer, ns_to_ktime(when), HRTIMER_MODE_ABS_SOFT);
	return true;
}
