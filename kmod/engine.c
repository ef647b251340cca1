// SPDX-License-Identifier: GPL-2.0
/*
 * A socket's clockwork: sends what windows and slots allow, sends again what
 * is overdue, notices when nothing moves, and hands finished messages to
 * recvmsg(). Runs in whatever context made something possible: a packet's
 * softirq, the timer's, or a system call. All of it under thc_sock.lock.
 */
#include "engine.h"
#include "join.h"
#include "sock.h"
#include "trace.h"

/* An answer may have overtaken others that another CPU still has: what seems lost
 * is looked at a quarter of a round trip later, within these limits.
 */
#define LOOK_LEAST	(50 * THC_NS_PER_US)
#define LOOK_MOST	(5 * THC_NS_PER_MS)

static u16 port_of(const struct thc_peer *p, const struct thc_hdr *h)
{
	return thc_sender_port(&p->sender, be16_to_cpu(h->slot));
}

static bool has_chunk(const struct thc_message *m, u64 number)
{
	return number - m->first < m->chunks;
}

/* The message with chunk @number of the stream over all shards, or NULL, from @m
 * on; or, if there is none yet, from the last one back.
 */
static struct thc_message *owner_of(struct thc_sock *ts, int kind, struct thc_message *m,
				    u64 number)
{
	struct list_head *all = &ts->messages[kind];

	if (m) {
		while (m && !has_chunk(m, number))
			m = list_is_last(&m->link, all) ? NULL : list_next_entry(m, link);
		return m;
	}
	list_for_each_entry_reverse(m, all, link)
		if (has_chunk(m, number))
			return m;
	return NULL;
}

static void count_sent(struct thc_sock *ts, struct thc_peer *p, const struct thc_flight *f)
{
	ts->stats.packets_up++;
	ts->stats.bytes_up += thc_wire_bytes(p, f->bytes);
}

static void transmit(struct thc_sock *ts, struct thc_peer *p, int kind, u32 window,
		     struct thc_train *train, struct thc_outbox *out, u64 now)
{
	struct thc_stream *st = thc_peer_stream(p, kind);
	struct thc_message *m = p->sending[kind];

	/* one may always be on its way: timers and timeouts are those of flights */
	while (thc_stream_may_send(st, window) && (!st->in_flight || thc_peer_has_room(p))) {
		u64 number = st->next * ts->shards + p->shard;
		struct thc_flight *f;
		const u8 *packet;

		m = owner_of(ts, kind, m, number);
		if (WARN_ON_ONCE(!m))
			break;
		packet = thc_message_packet_of(m, p->shard, st->next);
		f = thc_flight_launch(&p->sender, st, m, (u32)(number - m->first),
				      (const struct thc_hdr *)packet, m->stride, now);
		count_sent(ts, p, f);
		if (!thc_train_add(train, out, p, packet, f->bytes, port_of(p, f->packet)))
			ts->stats.send_errors++;	/* overdue soon */
	}
	p->sending[kind] = m ? owner_of(ts, kind, m, st->next * ts->shards + p->shard) : NULL;
	thc_train_end(train, out);
}

static void retransmit(struct thc_sock *ts, struct thc_peer *p, int kind, struct thc_train *train,
		       struct thc_outbox *out, u64 now, u64 *due)
{
	struct thc_stream *st = thc_peer_stream(p, kind);
	struct thc_overdue pass;
	struct thc_flight *f;
	bool room;
	u64 next;

	thc_overdue_begin(&p->sender, &pass, now);
	while ((room = thc_peer_has_room(p)) &&
	       (f = thc_overdue_next(&p->sender, st, &pass, now))) {
		ts->stats.retransmits++;
		trace_thc_retransmit(&ts->sk, f->packet, f->tries);
		count_sent(ts, p, f);
		if (!thc_train_add(train, out, p, (const u8 *)f->packet, f->bytes,
				   port_of(p, f->packet)))
			ts->stats.send_errors++;
	}
	thc_train_end(train, out);
	next = thc_overdue_end(&p->sender, &pass, now);
	*due = min(*due, next);
	/* The UDP socket hears when the network is done with something, but it may outlive
	 * this module, and so would the callback: we look again.
	 */
	if (!room)
		*due = min(*due, now + LOOK_MOST);
}

/* --- failures ------------------------------------------------------------- */

/* Those of a stream that were delivered as they are come before those that were not. */
static bool any_unfinished(const struct thc_sock *ts)
{
	u32 kind;

	for (kind = 0; kind < THC_STREAMS; kind++)
		if (!list_empty(&ts->messages[kind]) &&
		    !list_last_entry(&ts->messages[kind], struct thc_message, link)->closed)
			return true;
	return false;
}

/* Messages that will not be received any more. */
static u32 unfinished(const struct thc_sock *ts)
{
	const struct thc_message *m;
	u32 kind, n = 0;

	for (kind = 0; kind < THC_STREAMS; kind++)
		list_for_each_entry(m, &ts->messages[kind], link)
			n += !m->closed;
	return n;
}

void thc_engine_break(struct thc_sock *ts, int error, enum thc_failure_reason reason)
{
	u32 i;

	lockdep_assert_held(&ts->lock);
	for (i = 0; i < ts->shards; i++) {
		thc_stream_forget(&ts->peers[i].sender.data);
		thc_stream_forget(&ts->peers[i].sender.norms);
		memset(ts->peers[i].sending, 0, sizeof(ts->peers[i].sending));
	}
	/* what a connect() has to tell is how joining ended, not what came later */
	if (ts->state == THC_STATE_READY)
		ts->unclaimed = false;
	ts->failure.error = error;
	ts->failure.reason = reason;
	ts->stats.failures += unfinished(ts);
	ts->state = THC_STATE_BROKEN;
	trace_thc_break(&ts->sk, error, reason);
	WRITE_ONCE(ts->sk.sk_err, error);
	sk_error_report(&ts->sk);
}

/* One of the oldest round in flight, or NULL. */
static const struct thc_flight *oldest(const struct thc_peer *p)
{
	return thc_stream_oldest(&p->sender.data) ?: thc_stream_oldest(&p->sender.norms);
}

/* Ranks that the oldest round in flight lacks; @left: there is no point in
 * waiting for them.
 */
static u64 missing_ranks(const struct thc_sock *ts, const struct thc_peer *p, bool *left, u64 now)
{
	const struct thc_flight *f = oldest(p);
	const struct thc_welcome *w = &p->joined.welcome;
	int gone = 0;
	u64 missing = 0;

	if (f)
		missing = thc_sender_missing(&p->sender, thc_ranks_mask(be16_to_cpu(w->ranks)),
					     be32_to_cpu(f->packet->round), &gone);
	/* A job with a deadline goes on without who left. Norms may lack a rank, of
	 * a round whose predecessor's data the caller has yet to send.
	 */
	*left = gone && !w->deadline_ms &&
		(p->sender.data.in_flight ||
		 (list_empty(&ts->ready) &&
		  now - ts->called_at > THC_LEFT_GRACE_MS * THC_NS_PER_MS));
	return missing;
}

/* What has come of messages as old as the timeout is delivered, the rest stays in
 * flight.
 */
static void deliver_partial(struct thc_sock *ts, u64 now)
{
	u64 timeout = READ_ONCE(ts->timeout_ms) * THC_NS_PER_MS;
	struct thc_message *m;
	bool any = false;
	int kind;

	for (kind = 0; kind < THC_STREAMS; kind++) {
		/* in their order, without a look at those that have been delivered */
		list_for_each_entry_reverse(m, &ts->messages[kind], link)
			if (m->closed)
				break;
		list_for_each_entry_continue(m, &ts->messages[kind], link) {
			if (now - m->sent_at < timeout)
				break;
			any = true;
			m->closed = true;
			m->flags |= THC_RECV_TIMEOUT;
			m->least = 0;
			m->ranks = 0;
			refcount_inc(&m->refs);
			list_add_tail(&m->ready, &ts->ready);
		}
	}
	if (any)
		ts->sk.sk_data_ready(&ts->sk);
}

/* Nothing has moved for the timeout: whose fault is it? */
static void break_late(struct thc_sock *ts, const struct thc_peer *p, u64 missing)
{
	const struct thc_flight *f = oldest(p);
	u64 differing = 0;

	if (f)
		differing = thc_sender_differing(&p->sender, be32_to_cpu(f->packet->round));
	ts->failure.ranks = differing ?: missing;
	thc_engine_break(ts, ETIMEDOUT,
			 differing ? THC_FAILED_DIFFERS :
			 missing   ? THC_FAILED_MISSING :
				     THC_FAILED_SILENT);
}

/* Returns the time of the next look, and breaks the socket if nothing moves. */
static u64 check_progress(struct thc_sock *ts, struct thc_peer *p, u64 now)
{
	u64 timeout = READ_ONCE(ts->timeout_ms) * THC_NS_PER_MS, missing;
	bool left;

	missing = missing_ranks(ts, p, &left, now);
	switch (thc_sender_stall(&p->sender, left, timeout, now)) {
	case THC_STALL_NONE:
		break;
	case THC_STALL_LEFT:
		ts->failure.ranks = missing;
		thc_engine_break(ts, EPIPE, THC_FAILED_LEFT);
		break;
	case THC_STALL_UNREACHABLE:
		thc_engine_break(ts, -p->unreachable, THC_FAILED_UNREACHABLE);
		break;
	case THC_STALL_LATE:
		/* messages delivered as they are keep their room until their answers
		 * come: who needs it is not to wait for a dead aggregator for ever
		 */
		if (READ_ONCE(ts->partial) && (any_unfinished(ts) || !ts->refused)) {
			p->sender.progress_at = now;
			deliver_partial(ts, now);
			break;
		}
		break_late(ts, p, missing);
		break;
	}
	if (!thc_sender_busy(&p->sender))
		return U64_MAX;
	return min(p->sender.progress_at + timeout, now + THC_UNREACHABLE_MS * THC_NS_PER_MS / 4);
}

/* --- answers -------------------------------------------------------------- */

static void finish(struct thc_sock *ts, struct thc_message *m)
{
	list_del_init(&m->link);
	if (m->closed) {
		thc_message_put(ts, m);
		return;
	}
	list_add_tail(&m->ready, &ts->ready);
	trace_thc_message(&ts->sk, m->send.round, m->send.op, m->chunks, true);
	ts->sk.sk_data_ready(&ts->sk);
}

void thc_engine_landed(struct thc_sock *ts, struct thc_message *m, u32 index,
		       const struct thc_hdr *h, bool answered)
{
	const struct thc_welcome *w = &ts->peers[0].joined.welcome;
	u64 bitmap = be64_to_cpu(h->bitmap), all = thc_ranks_mask(be16_to_cpu(w->ranks));
	u16 count = answered ? be16_to_cpu(h->count) : 0;
	bool excluded = !(bitmap >> ts->peers[0].sender.rank & 1);

	ts->stats.chunks++;
	if (++m->answered == m->chunks && m->closed) {
		finish(ts, m);
		return;
	}
	if (m->closed)
		return;
	ts->stats.excluded += excluded;
	ts->stats.partial += bitmap != all;
	m->counts[index] = count | (excluded ? THC_COUNT_EXCLUDED : 0);
	m->ranks &= answered ? bitmap : 0;
	m->least = min(m->least, count);
	m->flags |= (bitmap != all ? THC_RECV_PARTIAL : 0) | (excluded ? THC_RECV_EXCLUDED : 0);
	if (m->answered == m->chunks)
		finish(ts, m);
}

/* --- the clock ------------------------------------------------------------ */

/* Looks through all that is in flight, if it is time to; the time of the next look. */
static u64 look(struct thc_sock *ts, struct thc_peer *p, struct thc_train *train, u64 now)
{
	u64 due = U64_MAX, soon = clamp(p->sender.window.srtt / 4, LOOK_LEAST, LOOK_MOST);

	if (now < p->look_at) {
		p->look_at = min(p->look_at, now + soon);
		return p->look_at;
	}
	retransmit(ts, p, THC_NORM, train, &ts->outbox, now, &due);
	retransmit(ts, p, THC_DATA, train, &ts->outbox, now, &due);
	due = min(due, check_progress(ts, p, now));
	p->look_at = max(due, now + LOOK_LEAST);
	return due == U64_MAX ? due : p->look_at;
}

bool thc_engine_wake(struct thc_sock *ts, u64 when)
{
	lockdep_assert_held(&ts->lock);
	if (ts->state != THC_STATE_JOINING && ts->state != THC_STATE_READY)
		return false;
	if (!hrtimer_is_queued(&ts->timer) || hrtimer_get_expires(&ts->timer) != ns_to_ktime(when))
		hrtimer_start(&ts->timer, ns_to_ktime(when), HRTIMER_MODE_ABS_SOFT);
	return true;
}

void thc_engine_run(struct thc_sock *ts)
{
	struct thc_outbox *out = &ts->outbox;
	u64 now = ktime_get_ns(), due = U64_MAX;
	struct thc_train train = { 0 };
	u32 i;

	lockdep_assert_held(&ts->lock);
	if (ts->state == THC_STATE_JOINING)
		thc_join_run(ts, now, &due);
	for (i = 0; i < ts->shards && ts->state == THC_STATE_READY; i++) {
		struct thc_peer *p = &ts->peers[i];

		transmit(ts, p, THC_NORM, p->sender.norms.slots, &train, out, now);
		transmit(ts, p, THC_DATA, thc_window_size(&p->sender.window), &train, out, now);
		due = min(due, look(ts, p, &train, now));
	}
	if (due != U64_MAX)
		thc_engine_wake(ts, due);
}

void thc_engine_kick(struct thc_sock *ts)
{
	spin_lock_bh(&ts->lock);
	thc_engine_run(ts);
	spin_unlock_bh(&ts->lock);
	thc_outbox_flush(ts);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	thc_engine_kick(container_of(timer, struct thc_sock, timer));
	return HRTIMER_NORESTART;
}

void thc_engine_init(struct thc_sock *ts)
{
	int kind;

	spin_lock_init(&ts->lock);
	for (kind = 0; kind < THC_STREAMS; kind++)
		INIT_LIST_HEAD(&ts->messages[kind]);
	INIT_LIST_HEAD(&ts->ready);
	__skb_queue_head_init(&ts->outbox.packets);
	hrtimer_setup(&ts->timer, on_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
}
