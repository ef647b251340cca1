// SPDX-License-Identifier: GPL-2.0
/*
 * A socket's clockwork: sends what windows and slots allow, sends again what
 * is overdue, notices when nothing moves, and hands finished messages to
 * recvmsg(). Runs in whatever context made something possible: a packet's
 * softirq, the timer's, or a system call. All of it under thc_sock.lock.
 */
#include <thc/worker/stall.h>
#include <thc/worker/transmit.h>

#include "engine.h"
#include "join.h"
#include "sock.h"
#include "state.h"
#include "trace.h"

static bool has_chunk(const struct thc_message *m, u64 number)
{
	return number - m->first < m->chunks;
}

/* The message that has chunk @number, counted over all shards, or NULL. Searches from @m on; if @m
 * is NULL, from the last message back.
 */
static struct thc_message *owner_of(struct thc_sock *ts, int stream, struct thc_message *m,
				    u64 number)
{
	struct list_head *all = &ts->messages[stream];

	if (m) {
		while (m && !has_chunk(m, number))
			m = list_is_last(&m->list, all) ? NULL : list_next_entry(m, list);
		return m;
	}
	list_for_each_entry_reverse(m, all, list)
		if (has_chunk(m, number))
			return m;
	return NULL;
}

/* --- what this host lends to <thc/worker/transmit.h> ----------------------- */

/* One peer of a socket, which sends. */
struct thc_host {
	struct thc_sock		*ts;
	struct thc_peer		*p;
	struct thc_train	*train;
	bool			full;	/* there was no room for a packet */
};

/* One packet of a stream may always be in flight: the retransmission timer and the timeout need a
 * flight.
 */
THC_INLINE int thc_host_may_send(struct thc_host *host, const struct thc_stream *st)
{
	if (!st->in_flight || thc_peer_may_send(host->p))
		return true;
	host->full = true;
	return false;
}

THC_INLINE int thc_host_next(struct thc_host *host, const struct thc_stream *st,
			     struct thc_ready *ready)
{
	u64 number = thc_shard_number(st->next, host->ts->shards, host->p->shard);
	int stream = st == &host->p->sender.control ? THC_CONTROL : THC_DATA;
	struct thc_message *m = owner_of(host->ts, stream, host->p->sending[stream], number);

	host->p->sending[stream] = m;
	if (WARN_ON_ONCE(!m))
		return 0;
	ready->owner = m;
	ready->packet = (void *)thc_message_packet_of(m, host->p->shard, st->next);
	ready->index = (u32)(number - m->first);
	ready->bytes = (u16)m->stride;
	return 1;
}

THC_INLINE void thc_host_send(struct thc_host *host, const struct thc_flight *f)
{
	u16 port = thc_sender_port(&host->p->sender, be16_to_cpu(f->packet->slot));
	struct thc_sock *ts = host->ts;

	if (f->tries) {
		ts->stats.retransmits++;
		trace_thc_retransmit(&ts->sk, f->packet, f->tries);
	}
	ts->stats.packets_up++;
	ts->stats.bytes_up += thc_wire_bytes(host->p, f->bytes);
	if (!thc_train_add(host->train, host->p, (const u8 *)f->packet, f->bytes, port))
		ts->stats.send_errors++;	/* overdue soon */
}

/* Ends the train, and moves @p on to the message with its next chunk: a message that has been sent
 * may be freed soon.
 */
THC_INLINE void thc_host_flush(struct thc_host *host)
{
	struct thc_peer *p = host->p;
	int stream;

	for (stream = 0; stream < THC_STREAMS; stream++) {
		u64 number = thc_shard_number(thc_peer_stream(p, stream)->next, host->ts->shards,
					      p->shard);

		if (p->sending[stream])
			p->sending[stream] = owner_of(host->ts, stream, p->sending[stream], number);
	}
	thc_train_end(host->train);
}

/* --- failures ------------------------------------------------------------- */

/* True if a rank that has left breaks the socket. A job with a deadline goes on without that rank.
 * A chunk of the control stream may miss it while the caller has yet to send the data of the round
 * before.
 */
static bool needs_all(const struct thc_sock *ts, const struct thc_peer *p, u64 now)
{
	return !p->joining.spec.deadline_ms &&
	       (p->sender.data.in_flight ||
		(list_empty(&ts->ready) &&
		 now - ts->called_at > THC_LEFT_GRACE_MS * THC_NS_PER_MS));
}

/* Delivers messages that are as old as the timeout with the sums that have come. Their other chunks
 * stay in flight.
 */
static void deliver_partial(struct thc_sock *ts, u64 now)
{
	u64 timeout = READ_ONCE(ts->timeout_ms) * THC_NS_PER_MS;
	struct thc_message *m;
	bool any = false;
	int stream;

	lockdep_assert_held(&ts->lock);
	for (stream = 0; stream < THC_STREAMS; stream++) {
		/* oldest first; messages that have been delivered are not walked */
		list_for_each_entry_reverse(m, &ts->messages[stream], list)
			if (m->closed)
				break;
		list_for_each_entry_continue(m, &ts->messages[stream], list) {
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

/* If there is no point in waiting: breaks the socket, or delivers the sums that have come. */
THC_INLINE u64 thc_host_check(struct thc_host *host, u64 now)
{
	struct thc_sock *ts = host->ts;
	struct thc_peer *p = host->p;
	u64 timeout = READ_ONCE(ts->timeout_ms) * THC_NS_PER_MS;
	/* of the oldest round in flight */
	const struct thc_flight *f = thc_stream_oldest(&p->sender.data) ?:
					     thc_stream_oldest(&p->sender.control);
	u32 round = f ? be32_to_cpu(f->packet->round) : 0;
	struct thc_failure failure;

	lockdep_assert_held(&ts->lock);
	if (thc_sender_stalled(&p->sender, round, needs_all(ts, p, now), timeout, now, &failure)) {
		/* messages delivered incomplete keep their room until their answers come:
		 * a sendmsg() that needs room must not wait for a dead aggregator for ever
		 */
		if (failure.reason != THC_FAILED_LEFT && failure.reason != THC_FAILED_UNREACHABLE &&
		    READ_ONCE(ts->partial) && (!ts->refused || thc_state_waits(ts))) {
			p->sender.progress_at = now;
			deliver_partial(ts, now);
		} else {
			thc_state_break_at(p, failure);
		}
	}
	return thc_sender_asks_at(&p->sender, timeout, now);
}

/* --- packets out ---------------------------------------------------------- */

/* Sends what may be sent, and again what is overdue. Returns the time of the next look. */
static u64 transmit(struct thc_sock *ts, struct thc_peer *p, struct thc_train *train, u64 now)
{
	struct thc_host host = { ts, p, train };
	u64 due;

	lockdep_assert_held(&ts->lock);
	thc_worker_send(&host, &p->sender, now);
	due = thc_worker_send_again(&host, &p->sender, now);
	/* sk_write_space() would tell when the network has freed packets, but the UDP socket, and
	 * so the callback, may outlive this module: look again instead.
	 */
	return host.full ? min(due, now + THC_LOOK_MOST) : due;
}

/* --- answers -------------------------------------------------------------- */

static void finish(struct thc_sock *ts, struct thc_message *m)
{
	lockdep_assert_held(&ts->lock);
	list_del_init(&m->list);
	if (m->closed) {
		thc_message_put(ts, m);
		return;
	}
	list_add_tail(&m->ready, &ts->ready);
	trace_thc_message(&ts->sk, m->send.round, m->send.op, m->chunks, true);
	ts->sk.sk_data_ready(&ts->sk);
}

void thc_engine_landed(struct thc_peer *p, struct thc_message *m, u32 index,
		       const struct thc_landing *l)
{
	bool excluded = l->count & THC_COUNT_EXCLUDED;
	bool partial = thc_count_lacks(l->count, p->joining.spec.ranks);
	u16 count = l->count & ~THC_COUNT_EXCLUDED;
	struct thc_sock *ts = p->owner;

	lockdep_assert_held(&ts->lock);
	ts->stats.chunks++;
	m->answered++;
	if (!m->closed) {
		ts->stats.excluded += excluded;
		ts->stats.partial += partial;
		m->counts[index] = l->count;
		m->ranks &= l->ranks;
		m->least = min(m->least, count);
		m->sums += !!count;
		m->digest += l->digest;
		m->flags |= (partial ? THC_RECV_PARTIAL : 0) | (excluded ? THC_RECV_EXCLUDED : 0);
	}
	if (m->answered == m->chunks)
		finish(ts, m);
}

/* --- the clock ------------------------------------------------------------ */

void thc_engine_run(struct thc_sock *ts)
{
	u64 now = ktime_get_ns(), due = U64_MAX;
	struct thc_train train = { 0 };
	u32 i;

	lockdep_assert_held(&ts->lock);
	if (ts->state == THC_STATE_JOINING)
		thc_join_run(ts, now, &due);
	for (i = 0; i < ts->shards && ts->state == THC_STATE_READY; i++) {
		u64 at = transmit(ts, ts->peers[i], &train, now);

		due = min(due, at);
	}
	if (due != U64_MAX)
		thc_state_wake(ts, due);
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
	int stream;

	spin_lock_init(&ts->lock);
	for (stream = 0; stream < THC_STREAMS; stream++)
		INIT_LIST_HEAD(&ts->messages[stream]);
	INIT_LIST_HEAD(&ts->ready);
	__skb_queue_head_init(&ts->outbox);
	hrtimer_setup(&ts->timer, on_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
}
