// SPDX-License-Identifier: GPL-2.0
/*
 * What system calls wait for. No lock is held while a call sleeps, so the call
 * checks its condition again when it has a lock.
 */
#include <linux/poll.h>

#include "wait.h"

static bool is_done(struct thc_sock *ts, thc_done *done, u64 need)
{
	bool is;

	spin_lock_bh(&ts->lock);
	is = done(ts, need);
	spin_unlock_bh(&ts->lock);
	return is;
}

int thc_wait_for(struct thc_sock *ts, thc_done *done, u64 need, long *timeo)
{
	long left;

	if (!*timeo)
		return is_done(ts, done, need) ? 0 : -EAGAIN;
	left = wait_event_interruptible_timeout(*sk_sleep(&ts->sk), is_done(ts, done, need),
						*timeo);
	if (left < 0)
		return sock_intr_errno(*timeo);
	*timeo = left;
	return left ? 0 : -EAGAIN;
}

enum thc_state thc_state_of(struct thc_sock *ts)
{
	enum thc_state state;

	spin_lock_bh(&ts->lock);
	state = ts->state;
	spin_unlock_bh(&ts->lock);
	return state;
}

u32 thc_joins_of(struct thc_sock *ts)
{
	u32 joins;

	spin_lock_bh(&ts->lock);
	joins = ts->joins;
	spin_unlock_bh(&ts->lock);
	return joins;
}

bool thc_has_joined(struct thc_sock *ts, u64 joins)
{
	lockdep_assert_held(&ts->lock);
	return ts->state != THC_STATE_JOINING || ts->joins != joins;
}

bool thc_may_send(const struct thc_sock *ts)
{
	lockdep_assert_held(&ts->lock);
	if (READ_ONCE(ts->sk.sk_shutdown) & SEND_SHUTDOWN)
		return true;
	return !ts->turned_away[THC_DATA] && !ts->turned_away[THC_CONTROL] &&
	       ts->stats.memory + (ts->refused ?: 1) <= ts->memory;
}

void thc_tell_senders(struct thc_sock *ts)
{
	lockdep_assert_held(&ts->lock);
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, &ts->sk);
}

/* Sleeping calls and poll() check for themselves. But each SIGIO makes a program try again: one for
 * the room or turn that a failing sendmsg() gives back would make it spin, and would disarm the
 * SIGIO for real room.
 */
void thc_wake_senders(struct thc_sock *ts)
{
	struct socket_wq *wq;

	lockdep_assert_held(&ts->lock);
	rcu_read_lock();
	wq = rcu_dereference(ts->sk.sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_sync_poll(&wq->wait, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
	rcu_read_unlock();
	if (ts->state == THC_STATE_READY && thc_may_send(ts))
		sk_wake_async(&ts->sk, SOCK_WAKE_SPACE, POLL_OUT);
}
