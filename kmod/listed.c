// SPDX-License-Identifier: GPL-2.0
/*
 * A job with several aggregators: number 0, which the address of connect() names, lists all in its
 * WELCOME. The process that connects has to make their UDP sockets (thc_peer_open()), but WELCOME
 * comes in a softirq. So the join waits for a system call of that process:
 *
 *	WELCOME		thc_join_needs_call() is true: connect() wakes up, or poll() says POLLPRI
 *	system call	thc_listed_open(): the peers are made, opened, and become the socket's
 */
#include <linux/slab.h>
#include <linux/string.h>

#include <thc/wire/shards.h>

#include "calls.h"
#include "engine.h"
#include "join.h"
#include "receive.h"
#include "sock.h"
#include "state.h"

/**
 * struct listed - aggregators on their way into a socket
 * @list: their addresses
 * @peer: new peers, by number; entry 0 is NULL, since the socket has that peer
 * @key: the job's secret key
 */
struct listed {
	struct thc_shards	list;
	struct thc_peer		*peer[THC_SHARDS_MAX];
	u8			key[THC_KEY_BYTES];
};

/* Copies the list, and the key, which the socket keeps until it is READY. False: the join does not
 * wait for a call.
 */
static bool copy_list(struct thc_sock *ts, struct listed *l)
{
	bool waits;

	spin_lock_bh(&ts->lock);
	waits = thc_join_needs_call(ts);
	if (waits) {
		const struct thc_joining *j = &ts->peers[0]->joining;

		thc_shards_read(&l->list, &j->spec, j->parts.record, j->parts.info.bytes);
		memcpy(l->key, ts->job_key, sizeof(l->key));
	}
	spin_unlock_bh(&ts->lock);
	return waits;
}

static int open_one(struct thc_sock *ts, struct listed *l, u32 i)
{
	struct thc_address at = thc_address_of(&l->list.at[i], (int)ts->remote.sthc_ifindex);

	/* a bound port can serve only one aggregator */
	if (ts->bound.port)
		return -EINVAL;
	if (!thc_address_is_host(&at))
		return -EPROTO;
	l->peer[i] = thc_peer_new(ts, i, &at, ts->keyed ? l->key : NULL);
	return l->peer[i] ? thc_peer_open(l->peer[i], thc_receive) : -ENOMEM;
}

/* Makes the peers the socket's. False: the join has ended meanwhile, or number 0 now lists another
 * number of aggregators.
 */
static bool add(struct thc_sock *ts, const struct listed *l)
{
	u64 now = ktime_get_ns();
	bool fits;
	u32 i;

	for (i = 1; i < l->list.count; i++)
		thc_join_begin_at(l->peer[i], now);
	spin_lock_bh(&ts->lock);
	fits = ts->state == THC_STATE_JOINING && thc_join_lacks(ts) &&
	       ts->peers[0]->joining.spec.shards == l->list.count;
	if (fits) {
		for (i = 1; i < l->list.count; i++)
			ts->peers[i] = l->peer[i];
		ts->shards = l->list.count;
		/* poll() may have told the caller to call connect() again, for the join's result */
		ts->unclaimed = true;
	}
	spin_unlock_bh(&ts->lock);
	return fits;
}

/* Takes down peers that did not become the socket's. */
static void drop(const struct listed *l)
{
	u32 i;

	for (i = 1; i < l->list.count && l->peer[i]; i++)
		thc_peer_silence(l->peer[i]);
	synchronize_net();
	for (i = 1; i < l->list.count && l->peer[i]; i++)
		thc_peer_free(l->peer[i]);
}

/* Breaks the socket if the join still goes on: aggregator number @shard could not be opened, or
 * number 0 has changed its list.
 */
static void fail(struct thc_sock *ts, u32 shard, int error)
{
	struct thc_failure failure = { .error = -error, .shard = shard };

	if (error == -EPROTO)
		failure.reason = THC_FAILED_SHARDS;
	spin_lock_bh(&ts->lock);
	if (ts->state == THC_STATE_JOINING)
		thc_state_break(ts, failure);
	spin_unlock_bh(&ts->lock);
}

/* Gives back the room of peers that were not made. */
static void uncharge_rest(struct thc_sock *ts, const struct listed *l)
{
	u32 i;

	for (i = 1; i < l->list.count; i++)
		if (!l->peer[i])
			thc_peer_uncharge(ts, 1);
}

static void open_listed(struct thc_sock *ts, struct listed *l)
{
	int error = thc_peer_charge(ts, l->list.count - 1);
	u32 i = 1;

	if (error) {
		fail(ts, i, error);
		return;
	}
	for (; i < l->list.count; i++) {
		error = open_one(ts, l, i);
		if (error)
			break;
	}
	if (error) {
		uncharge_rest(ts, l);
	} else if (!add(ts, l)) {
		/* the files of these sockets end with the call: it opens no others */
		error = -EPROTO;
		i = 0;
	}
	if (error) {
		drop(l);
		fail(ts, i, error);
	}
	/* sends the first JOIN to each new peer */
	thc_engine_kick(ts);
}

void thc_listed_open(struct thc_sock *ts)
{
	struct listed *l;
	bool waits;

	sock_owned_by_me(&ts->sk);
	spin_lock_bh(&ts->lock);
	waits = thc_join_needs_call(ts);
	spin_unlock_bh(&ts->lock);
	if (!waits)
		return;
	l = kzalloc(sizeof(*l), GFP_KERNEL_ACCOUNT);
	if (!l)
		fail(ts, 0, -ENOMEM);
	else if (copy_list(ts, l))
		open_listed(ts, l);
	kfree_sensitive(l);
}
