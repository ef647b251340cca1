// SPDX-License-Identifier: GPL-2.0
/*
 * recvmsg(): the sums of one message, in the order in which they became
 * complete; struct thc_received says which one it is.
 */
#include <linux/uio.h>

#include "calls.h"
#include "wait.h"

#define RECV_FLAGS	(MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC | MSG_CMSG_CLOEXEC | MSG_CMSG_COMPAT)

/* Looks for a message. @joins: the connection's number when the call began. Returns 1: a message is
 * ready that no other call is receiving; -EAGAIN: the call may wait for a message; else what the
 * call returns.
 */
static int find_ready(struct thc_sock *ts, u32 joins)
{
	lockdep_assert_held(&ts->lock);
	if (ts->joins != joins)
		return -ECANCELED;
	if (!list_empty(&ts->ready)) {
		ts->hidden |= ts->reading;
		return ts->reading ? -EAGAIN : 1;
	}
	if (ts->state == THC_STATE_BROKEN)
		return -ts->failure.error;
	if (ts->state == THC_STATE_IDLE)
		return -ENOTCONN;
	return READ_ONCE(ts->sk.sk_shutdown) & RCV_SHUTDOWN ? 0 : -EAGAIN;
}

static bool need_not_wait(struct thc_sock *ts, u64 joins)
{
	return find_ready(ts, joins) != -EAGAIN;
}

/* Takes the turn to receive, and a reference to the first ready message, which stays in the list.
 * NULL: *@error is what find_ready() returned.
 */
static struct thc_message *first_ready(struct thc_sock *ts, u32 joins, int *error)
{
	struct thc_message *m = NULL;

	spin_lock_bh(&ts->lock);
	*error = find_ready(ts, joins);
	if (*error > 0) {
		m = list_first_entry(&ts->ready, struct thc_message, ready);
		refcount_inc(&m->refs);
		ts->reading = true;
	}
	spin_unlock_bh(&ts->lock);
	return m;
}

/* A chunk that never came is zero, not what the memory held before. */
static void blank_missing(struct thc_message *m)
{
	u32 i;

	for (i = 0; i < m->chunks; i++) {
		if (!(m->counts[i] & ~THC_COUNT_EXCLUDED))
			memset(m->lanes + (size_t)i * THC_LANE_BYTES, 0, THC_LANE_BYTES);
		thc_message_resched(i);
	}
}

static int copy_lanes(const struct thc_message *m, size_t bytes, struct iov_iter *to)
{
	size_t done, part;

	for (done = 0; done < bytes; done += part) {
		part = min_t(size_t, bytes - done, THC_RESCHED_CHUNKS * THC_LANE_BYTES);
		if (copy_to_iter(m->lanes + done, part, to) != part)
			return -EFAULT;
		cond_resched();
	}
	return 0;
}

/* Too little room is MSG_CTRUNC, no error. */
static int describe(const struct thc_message *m, struct msghdr *msg)
{
	struct thc_received r = {
		.op = m->send.op,
		.width = m->width,
		.flags = m->flags,
		.round = m->send.round,
		.tag = m->send.tag,
		.chunks = m->chunks,
		.least = m->least,
		.ranks = m->ranks,
		.digest = m->digest,
		.missed = m->chunks - m->sums,
	};

	return put_cmsg(msg, SOL_THC, THC_RECEIVED, sizeof(r), &r);
}

/* Copies lanes and counts to the caller, as far as there is room. */
static int copy_answer(struct thc_message *m, struct msghdr *msg, size_t len, size_t *whole)
{
	size_t lanes = (size_t)m->chunks * THC_LANE_BYTES, counts = m->chunks * sizeof(u16);
	size_t part = min(len, lanes), rest = min(len - part, counts);

	*whole = lanes + counts;
	if (m->least == 0)
		blank_missing(m);
	if (copy_lanes(m, part, &msg->msg_iter) ||
	    copy_to_iter(m->counts, rest, &msg->msg_iter) != rest)
		return -EFAULT;
	if (len < *whole)
		msg->msg_flags |= MSG_TRUNC;
	msg->msg_flags |= MSG_EOR;
	return part + rest;
}

/* The message has been received; a connect() may already have taken it off the list. */
static void dequeue(struct thc_sock *ts, struct thc_message *m)
{
	lockdep_assert_held(&ts->lock);
	if (list_empty(&m->ready))
		return;
	list_del_init(&m->ready);
	ts->called_at = ktime_get_ns();
	ts->stats.messages++;
	thc_message_put(ts, m);
}

/* The caller has the turn to receive and a reference to @m; both end here. */
static int receive_message(struct thc_sock *ts, struct thc_message *m, struct msghdr *msg,
			   size_t len, int flags)
{
	size_t whole;
	int got = copy_answer(m, msg, len, &whole);
	int error = got < 0 ? got : describe(m, msg);
	bool taken = !error && !(flags & MSG_PEEK), more;

	spin_lock_bh(&ts->lock);
	if (taken)
		dequeue(ts, m);
	thc_message_put(ts, m);
	ts->reading = false;
	/* the caller knows of a message that stays: another event would make a peek spin */
	more = (taken || ts->hidden) && need_not_wait(ts, ts->joins);
	ts->hidden = false;
	spin_unlock_bh(&ts->lock);
	if (more)
		ts->sk.sk_data_ready(&ts->sk);
	if (error)
		return error;
	return flags & MSG_TRUNC ? whole : got;
}

int thc_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	long timeo = sock_rcvtimeo(sock->sk, flags & MSG_DONTWAIT);
	struct thc_message *m;
	u32 joins;
	int error;

	if (flags & ~RECV_FLAGS)
		return -EOPNOTSUPP;
	joins = thc_joins_of(ts);
	do {
		error = thc_wait_for(ts, need_not_wait, joins, &timeo);
		if (error)
			return error;
		m = first_ready(ts, joins, &error);
		/* another reader may have been quicker */
	} while (!m && error == -EAGAIN);
	return m ? receive_message(ts, m, msg, len, flags) : error;
}
