// SPDX-License-Identifier: GPL-2.0
/*
 * A socket of AF_THC from its birth to its death, and the calls that need no
 * file of their own.
 */
#include <linux/module.h>
#include <linux/poll.h>

#include "calls.h"
#include "engine.h"
#include "join.h"
#include "netns.h"
#include "sock.h"
#include "wait.h"

struct proto thc_proto = {
	.name		= "THC",
	.owner		= THIS_MODULE,
	.obj_size	= sizeof(struct thc_sock),
};

static int thc_bind(struct socket *sock, struct sockaddr_unsized *name, int len)
{
	const struct sockaddr_thc *a = (const void *)name;
	struct thc_sock *ts = thc_sk(sock->sk);
	struct thc_address address;
	int error = thc_address_check(name, len);

	if (error)
		return error;
	if (a->sthc_job || a->sthc_rank)
		return -EINVAL;
	error = thc_address_read(a, &address);
	if (error)
		return error;
	lock_sock(sock->sk);
	if (ts->bound.inet || thc_state_of(ts) != THC_STATE_IDLE)
		error = -EINVAL;
	else
		ts->bound = address;
	release_sock(sock->sk);
	return error;
}

static int thc_getname(struct socket *sock, struct sockaddr *name, int peer)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	struct sockaddr_thc *a = (void *)name;
	int error = 0;

	lock_sock(sock->sk);
	if (peer && thc_state_of(ts) == THC_STATE_IDLE)
		error = -ENOTCONN;
	else if (peer)
		*a = ts->remote;
	else
		thc_address_name(ts->shards ? &ts->peers[0]->local : &ts->bound, a);
	release_sock(sock->sk);
	return error ? error : sizeof(*a);
}

static __poll_t thc_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	__poll_t mask = 0;
	u8 shutdown;

	sock_poll_wait(file, sock, wait);
	shutdown = READ_ONCE(sock->sk->sk_shutdown);
	spin_lock_bh(&ts->lock);
	if (!list_empty(&ts->ready) && !ts->reading)
		mask |= EPOLLIN | EPOLLRDNORM;
	else if (!list_empty(&ts->ready))
		ts->hidden = true;
	if (ts->state == THC_STATE_IDLE)
		mask |= EPOLLHUP | EPOLLOUT;
	if (ts->state == THC_STATE_BROKEN)
		mask |= EPOLLERR | EPOLLIN | EPOLLOUT;
	/* another connect() is to open the aggregators that the first one has listed */
	if (thc_join_needs_call(ts))
		mask |= EPOLLPRI | EPOLLOUT;
	if (ts->state == THC_STATE_READY && thc_may_send(ts))
		mask |= EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	else if (ts->state == THC_STATE_READY)
		thc_tell_senders(ts);
	spin_unlock_bh(&ts->lock);
	if (shutdown & RCV_SHUTDOWN)
		mask |= EPOLLRDHUP | EPOLLIN | EPOLLRDNORM;
	if (shutdown == SHUTDOWN_MASK)
		mask |= EPOLLHUP;
	return mask;
}

static int thc_shutdown(struct socket *sock, int how)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	struct sock *sk = sock->sk;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	lock_sock(sk);
	WRITE_ONCE(sk->sk_shutdown, sk->sk_shutdown | (how + 1));
	sk->sk_state_change(sk);
	spin_lock_bh(&ts->lock);
	thc_wake_senders(ts);
	spin_unlock_bh(&ts->lock);
	release_sock(sk);
	return 0;
}

static int thc_release(struct socket *sock)
{
	struct sock *sk = sock->sk;

	if (!sk)
		return 0;
	thc_net_del(thc_sk(sk));
	lock_sock(sk);
	WRITE_ONCE(sk->sk_shutdown, SHUTDOWN_MASK);
	thc_disconnect(thc_sk(sk));
	thc_forget_key(thc_sk(sk));
	release_sock(sk);
	/* nothing is charged any more */
	thc_user_put(thc_sk(sk)->user);
	sock_orphan(sk);
	sock->sk = NULL;
	sock_put(sk);
	return 0;
}

THC_DEFINE_GETSOCKOPT(thc_getsockopt_op, thc_getsockopt)

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
	.THC_GETSOCKOPT	= thc_getsockopt_op,
	.sendmsg	= thc_sendmsg,
	.recvmsg	= thc_recvmsg,
	.mmap		= sock_no_mmap,
};

int thc_socket_create(struct net *net, struct socket *sock, int protocol, int kern)
{
	struct thc_user *user;
	struct thc_sock *ts;
	struct sock *sk;

	if (sock->type != SOCK_SEQPACKET)
		return -ESOCKTNOSUPPORT;
	if (protocol)
		return -EPROTONOSUPPORT;
	user = thc_user_get();
	if (IS_ERR(user))
		return PTR_ERR(user);
	sk = sk_alloc(net, PF_THC, GFP_KERNEL, &thc_proto, kern);
	if (!sk) {
		thc_user_put(user);
		return -ENOMEM;
	}
	sock_init_data(sock, sk);
	sock->ops = &thc_ops;
	ts = thc_sk(sk);
	ts->user = user;
	ts->timeout_ms = THC_TIMEOUT_MS;
	ts->join_timeout_ms = THC_JOIN_TIMEOUT_MS;
	ts->memory = THC_MEMORY_DEFAULT;
	INIT_WORK(&ts->join_work, thc_join_work);
	thc_engine_init(ts);
	thc_net_add(ts);
	return 0;
}
