// SPDX-License-Identifier: GPL-2.0
/*
 * From an idle socket to a rank of a job and back.
 */
#include <linux/slab.h>
#include <linux/string.h>

#include <thc/key.h>

#include "calls.h"
#include "engine.h"
#include "hostjob.h"
#include "join.h"
#include "receive.h"
#include "sock.h"
#include "wait.h"

/* Drops one message; false: no message is left. The idle socket gets no new ones, but a recvmsg()
 * may still take one that is ready.
 */
static bool drop_one(struct thc_sock *ts)
{
	struct thc_message *m = NULL;
	int stream;

	spin_lock_bh(&ts->lock);
	for (stream = 0; stream < THC_STREAMS && !m; stream++) {
		m = list_first_entry_or_null(&ts->messages[stream], struct thc_message, list);
		if (m)
			list_del_init(&m->list);
	}
	if (!m) {
		m = list_first_entry_or_null(&ts->ready, struct thc_message, ready);
		if (m)
			list_del_init(&m->ready);
	}
	if (m)
		thc_message_put(ts, m);
	spin_unlock_bh(&ts->lock);
	return m;
}

/* Takes the connection down; the socket is as if it had never been connected. The order matters:
 * Documentation/locking.md, "Taking down".
 */
void thc_disconnect(struct thc_sock *ts)
{
	u32 i, shards;

	sock_owned_by_me(&ts->sk);
	spin_lock_bh(&ts->lock);
	ts->state = THC_STATE_IDLE;
	spin_unlock_bh(&ts->lock);
	cancel_work_sync(&ts->join_work);
	memzero_explicit(ts->job_key, sizeof(ts->job_key));
	hrtimer_cancel(&ts->timer);
	for (i = 0; i < ts->shards; i++)
		ts->last_epoch[i] = ts->peers[i]->sender.epoch;
	thc_join_leave(ts);
	for (i = 0; i < ts->shards; i++)
		thc_peer_silence(ts->peers[i]);
	if (ts->shards)
		synchronize_net();
	while (drop_one(ts))
		cond_resched();
	spin_lock_bh(&ts->lock);
	memset(ts->reserved, 0, sizeof(ts->reserved));
	memset(&ts->failure, 0, sizeof(ts->failure));
	ts->refused = 0;
	ts->unclaimed = false;
	memset(ts->turned_away, 0, sizeof(ts->turned_away));
	shards = ts->shards;
	/* the windows end with their peers; their cuts stay counted */
	for (i = 0; i < shards; i++)
		ts->stats.window_cuts += ts->peers[i]->sender.window.cuts;
	ts->shards = 0;
	spin_unlock_bh(&ts->lock);
	for (i = 0; i < shards; i++)
		thc_peer_free(ts->peers[i]);
	memset(ts->peers, 0, sizeof(ts->peers));
	WRITE_ONCE(ts->sk.sk_err, 0);
}

/* Finds the job's aggregators: in the address, or, with the key, in the host job that the
 * administrator has described.
 */
static int find_job(struct thc_sock *ts, const struct sockaddr_thc *a, struct thc_host_job *job)
{
	int error;

	if (!a->sthc_inet) {
		if (a->sthc_port || a->sthc_ifindex ||
		    memchr_inv(a->sthc_addr, 0, sizeof(a->sthc_addr)))
			return -EINVAL;
		return thc_host_job_find(sock_net(&ts->sk), a->sthc_job, true, job);
	}
	error = thc_address_read(a, &job->aggregator[0]);
	if (!error && !thc_address_is_host(&job->aggregator[0]))
		error = -EINVAL;
	if (!job->aggregator[0].port)
		job->aggregator[0].port = htons(THC_PORT_DEFAULT);
	job->shards = 1;
	return error;
}

/* Takes the key of the socket or of the host job. For a host job, the socket must have no key: it
 * would be ignored. noinline: key derivation needs large stack frames, gone before the network is
 * called.
 */
static noinline int find_key(const struct thc_sock *ts, const struct sockaddr_thc *a,
			     struct thc_host_job *job)
{
	sock_owned_by_me(&ts->sk);
	if (!a->sthc_inet && ts->has_key)
		return -EINVAL;
	job->keyed = !a->sthc_inet || ts->has_key;
	if (a->sthc_inet)
		memcpy(job->key, ts->key, sizeof(job->key));
	if (job->keyed)
		thc_member_key_derive(&job->join, job->key, THC_KEY_JOIN, a->sthc_job);
	return 0;
}

/* True if address and key are those of the last connect(). */
static bool is_same_job(const struct thc_sock *ts, const struct sockaddr_thc *a,
			const struct thc_host_job *job)
{
	return !memcmp(&ts->remote, a, sizeof(*a)) &&
	       !memcmp(&ts->join_key, &job->join, sizeof(job->join));
}

/* Makes a peer for each known aggregator. The socket is idle. */
static int make_peers(struct thc_sock *ts, const struct thc_host_job *job)
{
	int error = thc_peer_charge(ts, job->shards);
	u32 i;

	for (i = 0; i < job->shards && !error; i++) {
		struct thc_peer *p =
			thc_peer_new(ts, i, &job->aggregator[i], job->keyed ? job->key : NULL);

		if (!p) {
			thc_peer_uncharge(ts, job->shards - i);
			return -ENOMEM;
		}
		spin_lock_bh(&ts->lock);
		ts->peers[i] = p;
		ts->shards = i + 1;
		spin_unlock_bh(&ts->lock);
	}
	return error;
}

static int open_peers(struct thc_sock *ts, const struct sockaddr_thc *a,
		      const struct thc_host_job *job)
{
	int error;
	u32 i;

	if (!is_same_job(ts, a, job))
		memset(ts->last_epoch, 0, sizeof(ts->last_epoch));
	spin_lock_bh(&ts->lock);
	ts->remote = *a;
	ts->join_key = job->join;
	ts->keyed = job->keyed;
	memcpy(ts->job_key, job->key, sizeof(ts->job_key));
	spin_unlock_bh(&ts->lock);
	error = make_peers(ts, job);
	for (i = 0; i < ts->shards && !error; i++)
		error = thc_peer_open(ts->peers[i], thc_receive);
	return error;
}

static int start_join(struct thc_sock *ts, const struct sockaddr_thc *a,
		      const struct thc_host_job *job, bool waits)
{
	int error;

	/* first, so that calls waiting on the old connection see another number when they wake */
	spin_lock_bh(&ts->lock);
	ts->joins++;
	spin_unlock_bh(&ts->lock);
	thc_disconnect(ts);
	error = open_peers(ts, a, job);
	if (error) {
		thc_disconnect(ts);
		return error;
	}
	spin_lock_bh(&ts->lock);
	thc_join_begin(ts, ktime_get_ns());
	ts->state = THC_STATE_JOINING;
	ts->unclaimed = waits;
	spin_unlock_bh(&ts->lock);
	thc_engine_kick(ts);
	return 0;
}

int thc_connect_outcome(struct thc_sock *ts)
{
	int error = 0;

	spin_lock_bh(&ts->lock);
	if (ts->state == THC_STATE_BROKEN) {
		error = -ts->failure.error;
		ts->unclaimed = false;
	} else if (ts->state != THC_STATE_READY) {
		error = -ENOTCONN;
	}
	spin_unlock_bh(&ts->lock);
	return error;
}

/* True if a join with this address and key is under way, or has ended without telling its result:
 * it must not begin anew. A call that waits leaves the result unclaimed until it returns it.
 */
static bool has_begun(struct thc_sock *ts, const struct sockaddr_thc *a,
		      const struct thc_host_job *job, bool waits)
{
	bool begun;

	spin_lock_bh(&ts->lock);
	begun = (ts->state == THC_STATE_JOINING || ts->unclaimed) && is_same_job(ts, a, job);
	if (begun)
		ts->unclaimed |= waits;
	spin_unlock_bh(&ts->lock);
	return begun;
}

static int begin(struct thc_sock *ts, const struct sockaddr_thc *a, struct thc_host_job *job,
		 bool waits)
{
	int error;

	sock_owned_by_me(&ts->sk);
	error = find_key(ts, a, job);
	if (error)
		return error;
	/* a bound port can serve only one aggregator; the old connection stays */
	if (job->shards > 1 && ts->bound.port)
		return -EINVAL;
	if (has_begun(ts, a, job, waits)) {
		thc_listed_open(ts);
		return !waits && thc_state_of(ts) == THC_STATE_JOINING ? -EALREADY : 0;
	}
	error = start_join(ts, a, job, waits);
	/* calls that wait on the old connection return ECANCELED */
	ts->sk.sk_state_change(&ts->sk);
	/* even if the aggregator has answered: poll() tells the caller what to do next */
	return error || waits ? error : -EINPROGRESS;
}

/* thc_done: the join of connection number @joins is over, or needs a call of this process. */
static bool needs_call(struct thc_sock *ts, u64 joins)
{
	return thc_has_joined(ts, joins) || thc_join_needs_call(ts);
}

/* True if the join of connection number @joins is over, with its result in *@error. A join that
 * needs this process is helped on.
 */
static bool has_ended(struct thc_sock *ts, u32 joins, int *error)
{
	bool ended = true;

	*error = -ECANCELED;
	lock_sock(&ts->sk);
	if (joins == ts->joins) {
		thc_listed_open(ts);
		spin_lock_bh(&ts->lock);
		ended = ts->state != THC_STATE_JOINING;
		if (ended)
			ts->unclaimed = false;
		spin_unlock_bh(&ts->lock);
		*error = thc_connect_outcome(ts);
	}
	release_sock(&ts->sk);
	return ended;
}

/* Waits for the end of the join of connection number @joins. */
static int wait_for_end(struct thc_sock *ts, u32 joins, long timeo)
{
	int error;

	do {
		error = thc_wait_for(ts, needs_call, joins, &timeo);
		if (error)
			return error == -EAGAIN ? -EINPROGRESS : error;
	} while (!has_ended(ts, joins, &error));
	return error;
}

/* connect() on a socket that is connected or broken joins again. */
int thc_connect(struct socket *sock, struct sockaddr_unsized *name, int len, int flags)
{
	const struct sockaddr_thc *a = (const void *)name;
	struct thc_sock *ts = thc_sk(sock->sk);
	bool waits = !(flags & O_NONBLOCK);
	int error = thc_address_check(name, len);
	struct thc_host_job *job;
	u32 joins;

	if (error)
		return error;
	if (a->sthc_rank >= THC_RANKS_MAX)
		return -EINVAL;
	job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	if (!job)
		return -ENOMEM;
	error = find_job(ts, a, job);
	if (!error) {
		lock_sock(sock->sk);
		error = begin(ts, a, job, waits);
		joins = ts->joins;
		release_sock(sock->sk);
	}
	/* it has the key */
	kfree_sensitive(job);
	if (!error)
		error = wait_for_end(ts, joins, sock_sndtimeo(sock->sk, !waits));
	if (!error)
		sock->state = SS_CONNECTED;
	return error;
}
