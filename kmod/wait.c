// SPDX-License-Identifier: GPL-2.0
/*
 * What system calls wait for. No lock is held while they sleep, and whatever
 * they waited for may be gone again when they have a lock.
 */
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
