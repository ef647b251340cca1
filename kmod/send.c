// SPDX-License-Identifier: GPL-2.0
/*
 * sendmsg(): one message, copied once, into the packets that will carry it. The
 * caller's memory may take its time to come: no lock but @writing is held then.
 */
#include <linux/err.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>

#include "sock.h"
#include "trace.h"

/* MSG_BATCH: sendmmsg() has more for us, whose packets leave no later for that. */
#define SEND_FLAGS	(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_CMSG_COMPAT | MSG_BATCH)

static int take_send(struct msghdr *msg, struct thc_send *send)
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

/* Bytes of a chunk's payload, 0: op and width do not fit the job. */
static u32 payload_of(const struct thc_send *send, const struct thc_welcome *w)
{
	switch (send->op) {
	case THC_OP_LUT_ADD:
		return send->width == 4 ? be16_to_cpu(w->chunk) / 2 : 0;
	case THC_OP_ADD:
		return send->width == 8 || send->width == 16 || send->width == 32 ? THC_LANE_BYTES :
										    0;
	case THC_OP_OR:
	case THC_OP_MAX:
		return send->width == 32 ? THC_LANE_BYTES : 0;
	}
	return 0;
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
	}
	return 0;
}

/* Chunks of a message of @len bytes; 0: they are not whole. */
static u64 chunks_of(const struct thc_send *send, u32 payload, size_t len)
{
	u32 stride = send->stride ?: payload, part;
	u64 chunks;

	if (!payload || stride < payload || len < payload)
		return 0;
	chunks = div_u64_rem(len - payload, stride, &part);
	return part ? 0 : chunks + 1;
}

/* Chunks of the stream over all shards below @number that are @shard's. */
static u64 shard_part(u64 number, u32 shards, u32 shard)
{
	return div_u64(number + shards - 1 - shard, shards);
}

/* From here on it is the engine's. */
static int commit(struct thc_sock *ts, struct thc_message *m, int kind)
{
	u64 now = ktime_get_ns();
	u32 i;

	spin_lock_bh(&ts->lock);
	if (ts->state != THC_STATE_READY) {
		spin_unlock_bh(&ts->lock);
		return -ts->failure.error;
	}
	list_add_tail(&m->link, &ts->messages[kind]);
	ts->reserved[kind] += m->chunks;
	ts->stats.memory += m->bytes;
	ts->called_at = now;
	m->sent_at = now;
	ts->stats.memory_peak = max(ts->stats.memory_peak, ts->stats.memory);
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = &ts->peers[i];

		thc_peer_stream(p, kind)->reserved = shard_part(ts->reserved[kind], ts->shards, i);
		if (!thc_sender_busy(&p->sender))
			p->sender.progress_at = now;
	}
	trace_thc_message(&ts->sk, m->send.round, m->send.op, m->chunks, false);
	thc_engine_run(ts);
	spin_unlock_bh(&ts->lock);
	thc_outbox_flush(ts);
	return 0;
}

/* Waits until the socket is connected and has room. Called with lock_sock held. */
static int get_ready(struct thc_sock *ts, u64 bytes, long *timeo)
{
	struct sock *sk = &ts->sk;
	int error = 0;

	for (;;) {
		if (sk->sk_shutdown & SEND_SHUTDOWN)
			return -EPIPE;
		if (!thc_has_joined(ts, 0)) {
			release_sock(sk);
			error = thc_wait_for(ts, thc_has_joined, 0, timeo);
			lock_sock(sk);
		}
		if (!error)
			error = thc_outcome(ts);
		if (error)
			return error;
		if (bytes > ts->memory)
			return -EMSGSIZE;
		if (thc_has_room(ts, bytes))
			return 0;
		release_sock(sk);
		error = thc_wait_for(ts, thc_has_room, bytes, timeo);
		lock_sock(sk);
		if (error)
			return error;
	}
}

/* The message is whole; the socket may have changed meanwhile. Called with lock_sock held. */
static int send_whole(struct thc_sock *ts, struct thc_message *m, int kind, u32 joins)
{
	if (joins != ts->joins)
		return -ECANCELED;
	if (ts->sk.sk_shutdown & SEND_SHUTDOWN)
		return -EPIPE;
	thc_message_seal(m, ts, kind);
	return commit(ts, m, kind);
}

/* Called with @writing and lock_sock held; releases the latter while it waits. */
static int send_message(struct thc_sock *ts, struct msghdr *msg, size_t len,
			const struct thc_send *send, long *timeo)
{
	int kind = send->op == THC_OP_MAX ? THC_NORM : THC_DATA, error;
	struct thc_message *m;
	u32 payload, stride, joins, shards;
	u64 chunks;

	error = get_ready(ts, 0, timeo);
	if (error)
		return error;
	joins = ts->joins;
	payload = payload_of(send, &ts->peers[0].joined.welcome);
	chunks = chunks_of(send, payload, len);
	if (!chunks)
		return -EINVAL;
	stride = payload + sizeof(struct thc_hdr);
	/* a system call returns no more than an int */
	if (chunks > INT_MAX / (THC_LANE_BYTES + sizeof(u16)))
		return -EMSGSIZE;
	error = get_ready(ts, thc_message_bytes(chunks, stride), timeo);
	if (error)
		return error;
	/* joined again while this one waited for room */
	if (joins != ts->joins)
		return -ECANCELED;
	m = thc_message_alloc(chunks, stride);
	if (IS_ERR(m))
		return PTR_ERR(m);
	m->send = *send;
	m->width = send->op == THC_OP_LUT_ADD ? ts->peers[0].sender.sum_width : send->width;
	shards = ts->shards;
	thc_message_place(m, shards, ts->reserved[kind]);
	release_sock(&ts->sk);
	error = copy_payload(m, shards, msg);
	lock_sock(&ts->sk);
	if (!error)
		error = send_whole(ts, m, kind, joins);
	if (error)
		thc_message_free(m);
	return error;
}

/* Messages have the order of the calls, however long one's copy takes. */
static int take_turn(struct thc_sock *ts, bool dontwait, long timeo)
{
	if (dontwait)
		return mutex_trylock(&ts->writing) ? 0 : -EAGAIN;
	return mutex_lock_interruptible(&ts->writing) ? sock_intr_errno(timeo) : 0;
}

int thc_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	struct sock *sk = sock->sk;
	long timeo = sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT);
	struct thc_sock *ts = thc_sk(sk);
	struct thc_send send;
	int error;

	if (msg->msg_flags & ~SEND_FLAGS)
		return -EOPNOTSUPP;
	if (msg->msg_namelen)
		return -EISCONN;
	error = take_send(msg, &send);
	if (error)
		return error;
	error = take_turn(ts, msg->msg_flags & MSG_DONTWAIT, timeo);
	if (error)
		return error;
	lock_sock(sk);
	error = send_message(ts, msg, len, &send, &timeo);
	release_sock(sk);
	mutex_unlock(&ts->writing);
	if (sk->sk_shutdown & SEND_SHUTDOWN && error == -EPIPE && !(msg->msg_flags & MSG_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return error ? error : (int)len;
}
