// SPDX-License-Identifier: GPL-2.0
/*
 * sendmsg(): one message, copied once, into the packets that will carry it. The
 * copy may fault and sleep for long, so it holds no lock, only its stream's turn
 * (thc_sock.writing).
 */
#include <linux/err.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>

#include <thc/wire/format.h>

#include "calls.h"
#include "engine.h"
#include "join.h"
#include "sock.h"
#include "trace.h"
#include "wait.h"

/* MSG_BATCH (sendmmsg() has more messages) is accepted and delays no packets. */
#define SEND_FLAGS	(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_CMSG_COMPAT | MSG_BATCH)

static int parse_send(struct msghdr *msg, struct thc_send *send)
{
	struct cmsghdr *c;
	bool found = false;

	for_each_cmsghdr(c, msg) {
		if (!CMSG_OK(msg, c) || c->cmsg_level != SOL_THC || c->cmsg_type != THC_SEND ||
		    c->cmsg_len != CMSG_LEN(sizeof(*send)) || found)
			return -EINVAL;
		memcpy(send, CMSG_DATA(c), sizeof(*send));
		found = true;
	}
	return found ? 0 : -EINVAL;
}

static int copy_payload(struct thc_message *m, u32 shards, struct msghdr *msg)
{
	u32 payload = m->stride - sizeof(struct thc_hdr), i;
	u32 gap = m->send.stride ? m->send.stride - payload : 0;

	for (i = 0; i < m->chunks; i++) {
		u8 *packet = thc_message_packet(m, shards, i);

		if (i)
			iov_iter_advance(&msg->msg_iter, gap);
		if (!copy_from_iter_full(packet + sizeof(struct thc_hdr), payload, &msg->msg_iter))
			return -EFAULT;
		thc_message_resched(i);
	}
	return 0;
}

/* Number of chunks in a message of @len bytes; 0: @len is not a whole number of chunks. */
static u64 chunks_of(const struct thc_send *send, u32 payload, size_t len)
{
	u32 stride = send->stride ?: payload, part;
	u64 chunks;

	if (!payload || stride < payload || len < payload)
		return 0;
	chunks = div_u64_rem(len - payload, stride, &part);
	return part ? 0 : chunks + 1;
}

/* Hands the message to the engine. */
static int commit(struct thc_sock *ts, struct thc_message *m, int stream)
{
	u64 now = ktime_get_ns();
	u32 i;

	spin_lock_bh(&ts->lock);
	if (ts->state != THC_STATE_READY) {
		spin_unlock_bh(&ts->lock);
		return -ts->failure.error;
	}
	/* a caller that sends knows how joining ended */
	ts->unclaimed = false;
	list_add_tail(&m->list, &ts->messages[stream]);
	ts->reserved[stream] += m->chunks;
	ts->called_at = now;
	m->sent_at = now;
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = ts->peers[i];

		thc_peer_stream(p, stream)->reserved =
			thc_shard_part(ts->reserved[stream], ts->shards, i);
		if (!thc_sender_busy(&p->sender))
			p->sender.progress_at = now;
	}
	trace_thc_message(&ts->sk, m->send.round, m->send.op, m->chunks, false);
	thc_engine_run(ts);
	spin_unlock_bh(&ts->lock);
	thc_outbox_flush(ts);
	return 0;
}

/* Notes in thc_sock.refused, for poll(), the @bytes that a call found no room for. */
static bool note_room(struct thc_sock *ts, u64 bytes, bool fits)
{
	lockdep_assert_held(&ts->lock);
	ts->refused = fits ? 0 : max(bytes, 1ULL);
	if (!fits)
		thc_tell_senders(ts);
	return fits;
}

/* Takes room for a message, which thc_message_put() gives back; false: there is none. */
static bool charge(struct thc_sock *ts, u64 bytes)
{
	bool fits;

	spin_lock_bh(&ts->lock);
	fits = note_room(ts, bytes, ts->stats.memory + bytes <= ts->memory);
	if (fits)
		ts->stats.memory += bytes;
	ts->stats.memory_peak = max(ts->stats.memory_peak, ts->stats.memory);
	spin_unlock_bh(&ts->lock);
	return fits;
}

static void uncharge(struct thc_sock *ts, u64 bytes)
{
	spin_lock_bh(&ts->lock);
	ts->stats.memory -= bytes;
	thc_wake_senders(ts);
	spin_unlock_bh(&ts->lock);
}

/* Connection number @joins has been made, has failed, has been replaced or needs this process, or
 * the caller has shut down sending.
 */
static bool joining_is_over(struct thc_sock *ts, u64 joins)
{
	return thc_has_joined(ts, joins) || thc_join_needs_call(ts) ||
	       READ_ONCE(ts->sk.sk_shutdown) & SEND_SHUTDOWN;
}

/* Room that a call waits for. @joins: the connection's number when the call began. */
struct room {
	u64 bytes;
	u32 joins;
};

/* thc_done with a struct room: there is room, or waiting is pointless. */
static bool has_room(struct thc_sock *ts, u64 room)
{
	const struct room *r = (const struct room *)(unsigned long)room;
	bool never = ts->state != THC_STATE_READY || ts->joins != r->joins ||
		     r->bytes > ts->memory || READ_ONCE(ts->sk.sk_shutdown) & SEND_SHUTDOWN;

	return note_room(ts, r->bytes, never || ts->stats.memory + r->bytes <= ts->memory);
}

/* thc_wait_for() without lock_sock, which the caller has before and after. */
static int wait_unlocked(struct thc_sock *ts, thc_done *done, u64 need, long *timeo)
{
	int error;

	sock_owned_by_me(&ts->sk);
	release_sock(&ts->sk);
	error = thc_wait_for(ts, done, need, timeo);
	lock_sock(&ts->sk);
	return error;
}

/* Waits until the socket is connected and has room for @bytes, and takes the room. @joins: the
 * connection's number when the call began. lock_sock is released while it waits.
 */
static int get_ready(struct thc_sock *ts, u32 joins, u64 bytes, long *timeo)
{
	const struct room room = { .bytes = bytes, .joins = joins };
	int error;

	sock_owned_by_me(&ts->sk);
	do {
		if (ts->sk.sk_shutdown & SEND_SHUTDOWN)
			return -EPIPE;
		if (joins != ts->joins)
			return -ECANCELED;
		thc_listed_open(ts);
		if (thc_state_of(ts) == THC_STATE_JOINING) {
			error = wait_unlocked(ts, joining_is_over, joins, timeo);
			continue;
		}
		error = thc_connect_outcome(ts);
		if (error)
			return error;
		if (bytes > ts->memory)
			return -EMSGSIZE;
		/* with @bytes 0, thc_sock.refused keeps what another call lacks */
		if (!bytes || charge(ts, bytes))
			return 0;
		error = wait_unlocked(ts, has_room, (unsigned long)&room, timeo);
	} while (!error);
	return error;
}

/* Seals and commits a message that has been copied, unless the socket has another connection or was
 * shut down meanwhile.
 */
static int send_whole(struct thc_sock *ts, struct thc_message *m, int stream, u32 joins)
{
	sock_owned_by_me(&ts->sk);
	if (joins != ts->joins)
		return -ECANCELED;
	if (ts->sk.sk_shutdown & SEND_SHUTDOWN)
		return -EPIPE;
	thc_message_seal(m, ts, stream);
	return commit(ts, m, stream);
}

/* The caller has the stream's turn. lock_sock is released while the call waits or copies. */
static int send_message(struct thc_sock *ts, struct msghdr *msg, size_t len,
			const struct thc_send *send, int stream, u32 joins, long *timeo)
{
	struct thc_message *m;
	u32 payload, stride, shards;
	u64 chunks, bytes;
	struct thc_row row;
	int error;

	error = get_ready(ts, joins, 0, timeo);
	if (error)
		return error;
	row = thc_widths_row(&ts->peers[0]->sender.widths, send->width);
	/* 0: op and width do not fit the job */
	payload = thc_lane_payload(thc_lane_kind(send->op, send->width, row), send->width);
	if (!thc_op_is_used(send->op, thc_ranks_count(ts->peers[0]->sender.all)))
		payload = 0;
	chunks = chunks_of(send, payload, len);
	if (!chunks)
		return -EINVAL;
	stride = payload + sizeof(struct thc_hdr);
	/* recvmsg() returns the size of the sums and counts as an int */
	if (chunks > INT_MAX / (THC_LANE_BYTES + sizeof(u16)))
		return -EMSGSIZE;
	bytes = thc_message_bytes(chunks, stride);
	error = get_ready(ts, joins, bytes, timeo);
	if (error)
		return error;
	m = thc_message_alloc(ts->user, chunks, stride);
	if (IS_ERR(m)) {
		uncharge(ts, bytes);
		return PTR_ERR(m);
	}
	m->send = *send;
	m->width = thc_sum_bits(send->op, send->width, row.sum_width);
	shards = ts->shards;
	thc_message_place(m, shards, ts->reserved[stream]);
	release_sock(&ts->sk);
	error = copy_payload(m, shards, msg);
	lock_sock(&ts->sk);
	if (!error)
		error = send_whole(ts, m, stream, joins);
	if (error) {
		spin_lock_bh(&ts->lock);
		thc_message_put(ts, m);
		spin_unlock_bh(&ts->lock);
	}
	return error;
}

/* A stream's turn. A sendmsg() keeps it until its message is committed, however long it waits for
 * room or copies, so that messages have the order of the calls.
 */
struct turn {
	int stream;
	bool taken;
};

/* thc_done with a struct turn: takes the turn. Once sending is shut down nobody waits for it. */
static bool try_turn(struct thc_sock *ts, u64 turn)
{
	struct turn *t = (struct turn *)(unsigned long)turn;

	lockdep_assert_held(&ts->lock);
	if (READ_ONCE(ts->sk.sk_shutdown) & SEND_SHUTDOWN)
		return true;
	t->taken = !ts->writing[t->stream];
	ts->writing[t->stream] = true;
	return t->taken;
}

static void give_turn(struct thc_sock *ts, int stream)
{
	spin_lock_bh(&ts->lock);
	ts->writing[stream] = false;
	ts->turned_away[stream] = false;
	thc_wake_senders(ts);
	spin_unlock_bh(&ts->lock);
}

/* A sendmsg() got EAGAIN for want of the turn: poll() hides POLLOUT until the turn is given back,
 * and SIGIO is armed. It is sent at once if the turn came back, or sending was shut down, since the
 * caller looked.
 */
static void turn_away(struct thc_sock *ts, int stream)
{
	spin_lock_bh(&ts->lock);
	ts->turned_away[stream] = ts->writing[stream];
	thc_tell_senders(ts);
	thc_wake_senders(ts);
	spin_unlock_bh(&ts->lock);
}

static int take_turn(struct thc_sock *ts, int stream, long *timeo)
{
	struct turn turn = { .stream = stream };
	int error = thc_wait_for(ts, try_turn, (unsigned long)&turn, timeo);

	if (error == -EAGAIN)
		turn_away(ts, stream);
	return error || turn.taken ? error : -EPIPE;
}

int thc_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	struct sock *sk = sock->sk;
	long timeo = sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT);
	struct thc_sock *ts = thc_sk(sk);
	u32 joins = thc_joins_of(ts);
	struct thc_send send;
	int error, stream;

	if (msg->msg_flags & ~SEND_FLAGS)
		return -EOPNOTSUPP;
	if (msg->msg_namelen)
		return -EISCONN;
	error = parse_send(msg, &send);
	if (error)
		return error;
	/* what is agreed on does not wait for data */
	stream = thc_op_is_data(send.op) && !thc_op_is_added(send.op) ? THC_CONTROL : THC_DATA;
	error = take_turn(ts, stream, &timeo);
	if (!error) {
		lock_sock(sk);
		error = send_message(ts, msg, len, &send, stream, joins, &timeo);
		release_sock(sk);
		give_turn(ts, stream);
	}
	if (error == -EPIPE && READ_ONCE(sk->sk_shutdown) & SEND_SHUTDOWN &&
	    !(msg->msg_flags & MSG_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return error ? error : (int)len;
}
