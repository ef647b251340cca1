// SPDX-License-Identifier: GPL-2.0
/*
 * What system calls wait for. No lock is held while they sleep, and whatever
 * they waited for may be gone again when they have a lock.
 */
#include "sock.h"
#include "wait.h"

int thc_wait_for(struct thc_sock *ts, bool (*done)(struct thc_sock *ts, u64 need), u64 need,
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
	bool has;

	spin_lock_bh(&ts->lock);
	has = ts->state != THC_STATE_JOINING || ts->joins != joins;
	spin_unlock_bh(&ts->lock);
	return has;
}

bool thc_may_send(struct thc_sock *ts, u64 joins)
{
	return thc_has_joined(ts, joins) || READ_ONCE(ts->sk.sk_shutdown) & SEND_SHUTDOWN;
}

bool thc_has_room(struct thc_sock *ts, u64 need)
{
	bool room;

	spin_lock_bh(&ts->lock);
	room = ts->state != THC_STATE_READY || ts->stats.memory + need <= ts->memory ||
	       READ_ONCE(ts->sk.sk_shutdown) & SEND_SHUTDOWN;
	ts->refused = room ? 0 : max(need, 1ULL);
	spin_unlock_bh(&ts->lock);
	return room;
}

bool thc_has_message(struct thc_sock *ts, u64 joins)
{
	bool has;

	spin_lock_bh(&ts->lock);
	if (ts->joins != joins)
		has = true;
	else if (!list_empty(&ts->ready))
		has = !ts->reading;
	else
		has = ts->state == THC_STATE_IDLE || ts->state == THC_STATE_BROKEN ||
		      READ_ONCE(ts->sk.sk_shutdown) & RCV_SHUTDOWN;
	spin_unlock_bh(&ts->lock);
	return has;
}
