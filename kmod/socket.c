// SPDX-License-Identifier: GPL-2.0
/*
 * The system calls of AF_THC. They take lock_sock() among themselves, look at
 * what packets change under thc_sock.lock, and sleep under neither.
 */
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/uio.h>
#include <net/sock.h>

#include "sock.h"

#define SEND_FLAGS	(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_CMSG_COMPAT)
#define RECV_FLAGS	(MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC | MSG_CMSG_CLOEXEC | MSG_CMSG_COMPAT)

static struct proto thc_proto = {
	.name		= "THC",
	.owner		= THIS_MODULE,
	.obj_size	= sizeof(struct thc_sock),
};

/* --- addresses ------------------------------------------------------------ */

/* -EINVAL for what is not zero beyond the address. */
static int take_address(const struct sockaddr_thc *a, struct thc_address *out)
{
	u32 used = a->sthc_inet == AF_INET ? 4 : a->sthc_inet == AF_INET6 ? 16 : 0;

	if (!used)
		return -EAFNOSUPPORT;
	if (memchr_inv(a->sthc_addr + used, 0, sizeof(a->sthc_addr) - used) ||
	    a->sthc_ifindex > INT_MAX)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	out->inet = a->sthc_inet;
	out->port = a->sthc_port;
	out->ifindex = (int)a->sthc_ifindex;
	memcpy(&out->in6, a->sthc_addr, used);
	return 0;
}

static int check_name(const struct sockaddr *name, int len)
{
	const struct sockaddr_thc *a = (const void *)name;

	if (len != sizeof(*a))
		return -EINVAL;
	if (a->sthc_family != AF_THC)
		return -EAFNOSUPPORT;
	if (memchr_inv(a->sthc_reserved, 0, sizeof(a->sthc_reserved)))
		return -EINVAL;
	return 0;
}

static int thc_bind(struct socket *sock, struct sockaddr *name, int len)
{
	const struct sockaddr_thc *a = (const void *)name;
	struct thc_sock *ts = thc_sk(sock->sk);
	struct thc_address address;
	int error = check_name(name, len);

	if (error)
		return error;
	if (a->sthc_job || a->sthc_rank || a->sthc_cookie)
		return -EINVAL;
	error = take_address(a, &address);
	if (error)
		return error;
	lock_sock(sock->sk);
	if (ts->bound.inet || ts->state != THC_STATE_IDLE)
		error = -EINVAL;
	else
		ts->bound = address;
	release_sock(sock->sk);
	return error;
}

static void name_of(const struct thc_address *from, struct sockaddr_thc *a)
{
	memset(a, 0, sizeof(*a));
	a->sthc_family = AF_THC;
	a->sthc_inet = from->inet;
	a->sthc_port = from->port;
	a->sthc_ifindex = from->ifindex;
	memcpy(a->sthc_addr, &from->in6, from->inet == AF_INET ? 4 : 16);
}

static int thc_getname(struct socket *sock, struct sockaddr *name, int peer)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	struct sockaddr_thc *a = (void *)name;
	int error = 0;

	lock_sock(sock->sk);
	if (peer && ts->state == THC_STATE_IDLE)
		error = -ENOTCONN;
	else if (peer)
		*a = ts->remote;
	else
		name_of(ts->shards ? &ts->peers[0].local : &ts->bound, a);
	/* the secret is for who connects, not for who asks */
	a->sthc_cookie = 0;
	release_sock(sock->sk);
	return error ? error : sizeof(*a);
}

/* --- waiting -------------------------------------------------------------- */

/* Sleeps until @done, without locks. 0, or what the call returns instead. */
static int wait_for(struct thc_sock *ts, bool (*done)(struct thc_sock *ts, u64 need), u64 need,
		    long *timeo)
{
	long left;

	if (!*timeo)
		return done(ts, need) ? 0 : -EAGAIN;
	left = wait_event_interruptible_timeout(*sk_sleep(&ts->sk), done(ts, need), *timeo);
	if (left < 0)
		return sock_intr_errno(*timeo);
	*timeo = left;
	return left ? 0 : -EAGAIN;
}

static enum thc_state state_of(struct thc_sock *ts)
{
	enum thc_state state;

	spin_lock_bh(&ts->lock);
	state = ts->state;
	spin_unlock_bh(&ts->lock);
	return state;
}

static bool has_joined(struct thc_sock *ts, u64 need)
{
	return state_of(ts) != THC_STATE_JOINING;
}

/* There is room for @need bytes, or no point in waiting. */
static bool has_room(struct thc_sock *ts, u64 need)
{
	bool room;

	spin_lock_bh(&ts->lock);
	room = ts->state != THC_STATE_READY || ts->stats.memory + need <= ts->memory ||
	       ts->sk.sk_shutdown & SEND_SHUTDOWN;
	spin_unlock_bh(&ts->lock);
	return room;
}

static bool has_message(struct thc_sock *ts, u64 need)
{
	bool has;

	spin_lock_bh(&ts->lock);
	has = !list_empty(&ts->ready) || ts->state == THC_STATE_IDLE ||
	      ts->state == THC_STATE_BROKEN || ts->sk.sk_shutdown & RCV_SHUTDOWN;
	spin_unlock_bh(&ts->lock);
	return has;
}

/* --- connect -------------------------------------------------------------- */

/* Back to a socket that was never connected. Called with lock_sock held, or by
 * the last user. The order matters: Documentation/locking.md, "Taking down".
 */
static void disconnect(struct thc_sock *ts)
{
	struct thc_message *m, *next;
	int kind;
	u32 i;

	spin_lock_bh(&ts->lock);
	ts->state = THC_STATE_IDLE;
	spin_unlock_bh(&ts->lock);
	cancel_work_sync(&ts->join_work);
	hrtimer_cancel(&ts->timer);
	thc_join_leave(ts);
	for (i = 0; i < ts->shards; i++)
		thc_peer_close(&ts->peers[i]);
	spin_lock_bh(&ts->lock);
	for (kind = 0; kind < THC_STREAMS; kind++) {
		list_for_each_entry_safe(m, next, &ts->messages[kind], link)
		{
			list_del_init(&m->link);
			thc_message_put(ts, m);
		}
		ts->reserved[kind] = 0;
	}
	list_for_each_entry_safe(m, next, &ts->ready, ready)
	{
		list_del_init(&m->ready);
		thc_message_put(ts, m);
	}
	memset(&ts->failure, 0, sizeof(ts->failure));
	spin_unlock_bh(&ts->lock);
	kfree(ts->peers);
	ts->peers = NULL;
	ts->shards = 0;
	ts->sk.sk_err = 0;
}

static int open_peers(struct thc_sock *ts, const struct sockaddr_thc *a,
		      const struct thc_address *to, u32 shards)
{
	u32 i;
	int error;

	ts->peers = kcalloc(shards, sizeof(*ts->peers), GFP_KERNEL_ACCOUNT);
	if (!ts->peers)
		return -ENOMEM;
	for (i = 0; i < shards; i++) {
		struct thc_peer *p = &ts->peers[i];

		p->shard = i;
		p->sender.cookie = a->sthc_cookie;
		p->sender.job = a->sthc_job;
		p->sender.rank = a->sthc_rank;
		ts->shards = i + 1;
		error = thc_peer_open(p, ts, &to[i]);
		if (error)
			return error;
	}
	return 0;
}

static int start_join(struct thc_sock *ts, const struct sockaddr_thc *a)
{
	struct thc_address to;
	int error = take_address(a, &to);

	if (error)
		return error;
	if (!to.port)
		to.port = htons(THC_PORT_DEFAULT);
	disconnect(ts);
	error = open_peers(ts, a, &to, 1);
	if (error) {
		disconnect(ts);
		return error;
	}
	ts->remote = *a;
	spin_lock_bh(&ts->lock);
	thc_join_begin(ts, ktime_get_ns());
	ts->state = THC_STATE_JOINING;
	spin_unlock_bh(&ts->lock);
	thc_engine_kick(ts);
	return 0;
}

static int outcome(struct thc_sock *ts)
{
	int error = 0;

	spin_lock_bh(&ts->lock);
	if (ts->state == THC_STATE_BROKEN)
		error = -ts->failure.error;
	else if (ts->state != THC_STATE_READY)
		error = -ENOTCONN;
	spin_unlock_bh(&ts->lock);
	return error;
}

/* An address again, of a socket that is connected or broken, joins again. */
static int thc_connect(struct socket *sock, struct sockaddr *name, int len, int flags)
{
	const struct sockaddr_thc *a = (const void *)name;
	struct thc_sock *ts = thc_sk(sock->sk);
	long timeo = sock_sndtimeo(sock->sk, flags & O_NONBLOCK);
	int error = check_name(name, len);

	if (error)
		return error;
	if (a->sthc_rank >= THC_RANKS_MAX)
		return -EINVAL;
	lock_sock(sock->sk);
	if (state_of(ts) == THC_STATE_JOINING)
		error = flags & O_NONBLOCK ? -EALREADY : 0;
	else
		error = start_join(ts, a);
	release_sock(sock->sk);
	if (error)
		return error;
	error = wait_for(ts, has_joined, 0, &timeo);
	if (error)
		return error == -EAGAIN ? -EINPROGRESS : error;
	error = outcome(ts);
	if (!error)
		sock->state = SS_CONNECTED;
	return error;
}

/* --- sendmsg -------------------------------------------------------------- */

static int take_send(struct msghdr *msg, struct thc_send *send)
{
	struct cmsghdr *c;
	bool found = false;

	for_each_cmsghdr(c, msg)
	{
		if (!CMSG_OK(msg, c) || c->cmsg_level != SOL_THC || c->cmsg_type != THC_SEND ||
		    c->cmsg_len != CMSG_LEN(sizeof(*send)) || found)
			return -EINVAL;
		memcpy(send, CMSG_DATA(c), sizeof(*send));
		found = true;
	}
	return found && !send->reserved ? 0 : -EINVAL;
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

	for (i = 0; i < m->chunks; i++) {
		u8 *packet = thc_message_packet(m, shards, i);

		if (!copy_from_iter_full(packet + sizeof(struct thc_hdr), payload, &msg->msg_iter))
			return -EFAULT;
	}
	return 0;
}

/* Chunks of the stream over all shards below @number that are @shard's. */
static u64 shard_part(u64 number, u32 shards, u32 shard)
{
	return div_u64(number + shards - 1 - shard, shards);
}

/* From here on it is the engine's. */
static int commit(struct thc_sock *ts, struct thc_message *m, int kind)
{
	struct thc_outbox out;
	u64 now = ktime_get_ns();
	u32 i;

	__skb_queue_head_init(&out.packets);
	spin_lock_bh(&ts->lock);
	if (ts->state != THC_STATE_READY) {
		spin_unlock_bh(&ts->lock);
		return -ts->failure.error;
	}
	list_add_tail(&m->link, &ts->messages[kind]);
	ts->reserved[kind] += m->chunks;
	ts->stats.memory += m->bytes;
	ts->stats.memory_peak = max(ts->stats.memory_peak, ts->stats.memory);
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = &ts->peers[i];

		thc_peer_stream(p, kind)->reserved = shard_part(ts->reserved[kind], ts->shards, i);
		if (!p->sender.data.in_flight && !p->sender.norms.in_flight)
			p->sender.progress_at = now;
	}
	thc_engine_run(ts, &out);
	spin_unlock_bh(&ts->lock);
	thc_outbox_flush(ts, &out);
	return 0;
}

/* Waits until the socket is connected and has room. Called with lock_sock. */
static int get_ready(struct thc_sock *ts, u64 bytes, long *timeo)
{
	struct sock *sk = &ts->sk;
	int error = 0;

	for (;;) {
		if (sk->sk_shutdown & SEND_SHUTDOWN)
			return -EPIPE;
		if (!has_joined(ts, 0)) {
			release_sock(sk);
			error = wait_for(ts, has_joined, 0, timeo);
			lock_sock(sk);
		}
		if (!error)
			error = outcome(ts);
		if (error)
			return error;
		if (bytes > ts->memory)
			return -EMSGSIZE;
		if (has_room(ts, bytes))
			return 0;
		release_sock(sk);
		error = wait_for(ts, has_room, bytes, timeo);
		lock_sock(sk);
		if (error)
			return error;
	}
}

static int send_message(struct thc_sock *ts, struct msghdr *msg, size_t len,
			const struct thc_send *send, long *timeo)
{
	int kind = send->op == THC_OP_MAX ? THC_NORM : THC_DATA, error;
	struct thc_message *m;
	u32 payload, stride;

	error = get_ready(ts, 0, timeo);
	if (error)
		return error;
	payload = payload_of(send, &ts->peers[0].joined.welcome);
	if (!payload || !len || len % payload)
		return -EINVAL;
	stride = payload + sizeof(struct thc_hdr);
	if (len / payload > U32_MAX)
		return -EMSGSIZE;
	error = get_ready(ts, thc_message_bytes(len / payload, stride), timeo);
	if (error)
		return error;
	m = thc_message_alloc(len / payload, stride);
	if (!m)
		return -ENOMEM;
	m->send = *send;
	thc_message_place(m, ts->shards, ts->reserved[kind]);
	error = copy_payload(m, ts->shards, msg);
	if (!error) {
		thc_message_seal(m, ts, kind);
		error = commit(ts, m, kind);
	}
	if (error)
		thc_message_free(m);
	return error;
}

static int thc_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	struct sock *sk = sock->sk;
	long timeo = sock_sndtimeo(sk, msg->msg_flags & MSG_DONTWAIT);
	struct thc_send send;
	int error;

	if (msg->msg_flags & ~SEND_FLAGS)
		return -EOPNOTSUPP;
	if (msg->msg_namelen)
		return -EISCONN;
	error = take_send(msg, &send);
	if (error)
		return error;
	lock_sock(sk);
	error = send_message(thc_sk(sk), msg, len, &send, &timeo);
	release_sock(sk);
	if (error == -EPIPE && !(msg->msg_flags & MSG_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return error ? error : (int)len;
}

/* --- recvmsg -------------------------------------------------------------- */

/* The first message that is ready, which stays where it is. */
static struct thc_message *first_ready(struct thc_sock *ts, int *error)
{
	struct thc_message *m;

	spin_lock_bh(&ts->lock);
	m = list_first_entry_or_null(&ts->ready, struct thc_message, ready);
	*error = 0;
	if (!m && ts->state == THC_STATE_BROKEN)
		*error = -ts->failure.error;
	else if (!m && ts->state == THC_STATE_IDLE)
		*error = -ENOTCONN;
	spin_unlock_bh(&ts->lock);
	return m;
}

/* A chunk that never came is zero, not what the memory held before. */
static void blank_missing(struct thc_message *m)
{
	u32 i;

	for (i = 0; i < m->chunks; i++)
		if (!(m->counts[i] & ~THC_COUNT_EXCLUDED))
			memset(m->lanes + (size_t)i * THC_LANE_BYTES, 0, THC_LANE_BYTES);
}

static int describe(struct thc_sock *ts, const struct thc_message *m, struct msghdr *msg)
{
	struct thc_received r = {
		.op = m->send.op,
		.width = m->send.op == THC_OP_LUT_ADD ? ts->peers[0].sender.sum_width :
							m->send.width,
		.flags = m->flags,
		.round = m->send.round,
		.tag = m->send.tag,
		.chunks = m->chunks,
		.least = m->least,
		.ranks = m->ranks,
	};

	return put_cmsg(msg, SOL_THC, THC_RECEIVED, sizeof(r), &r);
}

/* Both parts, as far as there is room. */
static int copy_answer(struct thc_message *m, struct msghdr *msg, size_t len, size_t *whole)
{
	size_t lanes = (size_t)m->chunks * THC_LANE_BYTES, counts = m->chunks * sizeof(u16);
	size_t part = min(len, lanes), rest = min(len - part, counts);

	*whole = lanes + counts;
	if (m->least == 0)
		blank_missing(m);
	if (copy_to_iter(m->lanes, part, &msg->msg_iter) != part ||
	    copy_to_iter(m->counts, rest, &msg->msg_iter) != rest)
		return -EFAULT;
	if (len < *whole)
		msg->msg_flags |= MSG_TRUNC;
	msg->msg_flags |= MSG_EOR;
	return part + rest;
}

/* Called with @reading held. */
static int receive_message(struct thc_sock *ts, struct thc_message *m, struct msghdr *msg,
			   size_t len, int flags)
{
	size_t whole;
	int got = copy_answer(m, msg, len, &whole);

	if (got < 0)
		return got;
	describe(ts, m, msg);
	if (flags & MSG_PEEK)
		return flags & MSG_TRUNC ? whole : got;
	spin_lock_bh(&ts->lock);
	list_del_init(&m->ready);
	ts->stats.messages++;
	thc_message_put(ts, m);
	spin_unlock_bh(&ts->lock);
	return flags & MSG_TRUNC ? whole : got;
}

static int thc_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	long timeo = sock_rcvtimeo(sock->sk, flags & MSG_DONTWAIT);
	struct thc_message *m;
	int error;

	if (flags & ~RECV_FLAGS)
		return -EOPNOTSUPP;
	do {
		error = wait_for(ts, has_message, 0, &timeo);
		if (error)
			return error;
		error = mutex_lock_interruptible(&ts->reading);
		if (error)
			return sock_intr_errno(timeo);
		m = first_ready(ts, &error);
		if (m)
			error = receive_message(ts, m, msg, len, flags);
		mutex_unlock(&ts->reading);
		/* another reader may have been quicker */
	} while (!m && !error && !(sock->sk->sk_shutdown & RCV_SHUTDOWN));
	return error;
}

/* --- poll, ioctl, shutdown ------------------------------------------------ */

static __poll_t thc_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	struct sock *sk = sock->sk;
	__poll_t mask = 0;

	sock_poll_wait(file, sock, wait);
	spin_lock_bh(&ts->lock);
	if (!list_empty(&ts->ready))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (ts->state == THC_STATE_IDLE)
		mask |= EPOLLHUP | EPOLLOUT;
	if (ts->state == THC_STATE_BROKEN)
		mask |= EPOLLERR | EPOLLIN | EPOLLOUT;
	if (ts->state == THC_STATE_READY && ts->stats.memory < ts->memory)
		mask |= EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	spin_unlock_bh(&ts->lock);
	if (sk->sk_shutdown & RCV_SHUTDOWN)
		mask |= EPOLLRDHUP | EPOLLIN | EPOLLRDNORM;
	if (sk->sk_shutdown == SHUTDOWN_MASK)
		mask |= EPOLLHUP;
	return mask;
}

static int thc_shutdown(struct socket *sock, int how)
{
	struct sock *sk = sock->sk;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	lock_sock(sk);
	sk->sk_shutdown |= how + 1;
	sk->sk_state_change(sk);
	release_sock(sk);
	return 0;
}

/* --- options -------------------------------------------------------------- */

static int get_u32(sockptr_t from, unsigned int len, u32 *value)
{
	if (len != sizeof(*value))
		return -EINVAL;
	return copy_from_sockptr(value, from, sizeof(*value)) ? -EFAULT : 0;
}

static int set_memory(struct thc_sock *ts, sockptr_t from, unsigned int len)
{
	u64 bytes;

	if (len != sizeof(bytes))
		return -EINVAL;
	if (copy_from_sockptr(&bytes, from, sizeof(bytes)))
		return -EFAULT;
	if (!bytes)
		return -EINVAL;
	if (bytes > THC_MEMORY_DEFAULT && !ns_capable(sock_net(&ts->sk)->user_ns, CAP_NET_ADMIN))
		return -EPERM;
	if (bytes > THC_MEMORY_MAX)
		return -EINVAL;
	spin_lock_bh(&ts->lock);
	ts->memory = bytes;
	spin_unlock_bh(&ts->lock);
	ts->sk.sk_write_space(&ts->sk);
	return 0;
}

static int write_option(struct thc_sock *ts, int option, sockptr_t from, unsigned int len)
{
	u32 value = 0;
	int error;

	if (option == THC_OPT_MEMORY)
		return set_memory(ts, from, len);
	if (option > THC_OPT_PARTIAL)
		return -ENOPROTOOPT;
	error = get_u32(from, len, &value);
	if (error)
		return error;
	switch (option) {
	case THC_OPT_TIMEOUT:
		if (!value)
			return -EINVAL;
		ts->timeout_ms = value;
		return 0;
	case THC_OPT_JOIN_TIMEOUT:
		if (!value)
			return -EINVAL;
		ts->join_timeout_ms = value;
		return 0;
	case THC_OPT_WINDOW:
		if (value > THC_SLOTS_MAX)
			return -EINVAL;
		ts->window = value;
		return 0;
	case THC_OPT_PARTIAL:
		if (value > 1)
			return -EINVAL;
		ts->partial = value;
		return 0;
	}
	return -ENOPROTOOPT;
}

static int thc_setsockopt(struct socket *sock, int level, int option, sockptr_t from,
			  unsigned int len)
{
	int error;

	if (level != SOL_THC)
		return -ENOPROTOOPT;
	lock_sock(sock->sk);
	error = write_option(thc_sk(sock->sk), option, from, len);
	release_sock(sock->sk);
	return error;
}

union option_value {
	u32			word;
	u64			bytes;
	struct thc_joined	joined;
	struct thc_socket_stats	stats;
	struct thc_failure	failure;
};

static void show_stats(struct thc_sock *ts, struct thc_socket_stats *stats)
{
	u32 i;

	*stats = ts->stats;
	for (i = 0; i < ts->shards; i++) {
		const struct thc_window *w = &ts->peers[i].sender.window;

		stats->window_cuts += w->cuts;
		stats->window += thc_window_size(w);
		stats->rtt_us = max(stats->rtt_us, div_u64(w->srtt, THC_NS_PER_US));
	}
}

/* Returns the value's size, or an error. Called with both locks held. */
static int read_option(struct thc_sock *ts, int option, union option_value *v)
{
	switch (option) {
	case THC_OPT_TIMEOUT:
		v->word = ts->timeout_ms;
		return sizeof(v->word);
	case THC_OPT_JOIN_TIMEOUT:
		v->word = ts->join_timeout_ms;
		return sizeof(v->word);
	case THC_OPT_WINDOW:
		v->word = ts->window;
		return sizeof(v->word);
	case THC_OPT_PARTIAL:
		v->word = ts->partial;
		return sizeof(v->word);
	case THC_OPT_MEMORY:
		v->bytes = ts->memory;
		return sizeof(v->bytes);
	case THC_OPT_WELCOME:
		if (!ts->shards || !ts->peers[0].welcomed)
			return -ENOTCONN;
		v->joined = ts->peers[0].joined;
		return sizeof(v->joined);
	case THC_OPT_STATS:
		show_stats(ts, &v->stats);
		return sizeof(v->stats);
	case THC_OPT_FAILURE:
		v->failure = ts->failure;
		return sizeof(v->failure);
	}
	return -ENOPROTOOPT;
}

static int thc_getsockopt(struct socket *sock, int level, int option, char __user *to,
			  int __user *to_len)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	union option_value value = { 0 };
	int room, size;

	if (level != SOL_THC)
		return -ENOPROTOOPT;
	if (get_user(room, to_len))
		return -EFAULT;
	if (room < 0)
		return -EINVAL;
	lock_sock(sock->sk);
	spin_lock_bh(&ts->lock);
	size = read_option(ts, option, &value);
	spin_unlock_bh(&ts->lock);
	release_sock(sock->sk);
	if (size < 0)
		return size;
	if (room < size)
		return -EINVAL;
	if (put_user(size, to_len) || copy_to_user(to, &value, size))
		return -EFAULT;
	return 0;
}

/* --- birth and death ------------------------------------------------------ */

static int thc_release(struct socket *sock)
{
	struct sock *sk = sock->sk;

	if (!sk)
		return 0;
	lock_sock(sk);
	sk->sk_shutdown = SHUTDOWN_MASK;
	disconnect(thc_sk(sk));
	release_sock(sk);
	sock_orphan(sk);
	sock->sk = NULL;
	sock_put(sk);
	return 0;
}

static const struct proto_ops thc_ops = {
	.family		= PF_THC,
	.owner		= THIS_MODULE,
	.release	= thc_release,
	.bind		= thc_bind,
	.connect	= thc_connect,
	.socketpair	= sock_no_socketpair,
	.accept		= sock_no_accept,
	.getname	= thc_getname,
	.poll		= thc_poll,
	.ioctl		= sock_no_ioctl,
	.listen		= sock_no_listen,
	.shutdown	= thc_shutdown,
	.setsockopt	= thc_setsockopt,
	.getsockopt	= thc_getsockopt,
	.sendmsg	= thc_sendmsg,
	.recvmsg	= thc_recvmsg,
	.mmap		= sock_no_mmap,
};

int thc_socket_create(struct net *net, struct socket *sock, int protocol, int kern)
{
	struct thc_sock *ts;
	struct sock *sk;

	if (sock->type != SOCK_SEQPACKET)
		return -ESOCKTNOSUPPORT;
	if (protocol)
		return -EPROTONOSUPPORT;
	sk = sk_alloc(net, PF_THC, GFP_KERNEL, &thc_proto, kern);
	if (!sk)
		return -ENOMEM;
	sock_init_data(sock, sk);
	sock->ops = &thc_ops;
	ts = thc_sk(sk);
	ts->timeout_ms = THC_TIMEOUT_MS;
	ts->join_timeout_ms = THC_JOIN_TIMEOUT_MS;
	ts->memory = THC_MEMORY_DEFAULT;
	mutex_init(&ts->reading);
	INIT_WORK(&ts->join_work, thc_join_work);
	thc_engine_init(ts);
	return 0;
}

int thc_socket_init(void)
{
	return proto_register(&thc_proto, 1);
}

void thc_socket_exit(void)
{
	proto_unregister(&thc_proto);
}
