// SPDX-License-Identifier: GPL-2.0
/*
 * Joining a job: sends JOIN to every aggregator until WELCOME says that all ranks
 * are in, and takes the job's constants from WELCOME. Leaving: LEAVE, best effort.
 *
 *	connect()        sends JOIN, and again after thc_join_interval()
 *	CHALLENGE        JOIN at once, with that challenge in it
 *	WELCOME          constants; if it names a group, join_work joins the group
 *	WELCOME (group)  the next JOIN says HEARD
 *	WELCOME READY    from all aggregators: join_work makes room for the slots, then the socket
 *	                 is READY; without room it tries again until the time to join is over
 */
#include <linux/random.h>

#include <thc/worker/shards.h>

#include "join.h"
#include "sock.h"
#include "state.h"
#include "wait.h"

/* ns between two attempts to get memory for a job's slots. */
#define MEMORY_AGAIN	(20 * THC_NS_PER_MS)

/* Runs join_work of sockets without a user; each user has a queue of its own. */
static struct workqueue_struct *join_queue;

/* join_work takes RTNL, whose holder may flush the system's workqueues: join_work in one of those
 * would deadlock. Unbound, since join_work sleeps for long and needs no CPU of its own. Its
 * allocations may also wait for the memory cgroup of the socket's creator, so users share no queue.
 */
struct workqueue_struct *thc_join_queue_new(int most)
{
	return alloc_workqueue("thc_join", WQ_UNBOUND, most);
}

int thc_join_init(void)
{
	join_queue = thc_join_queue_new(0);
	return join_queue ? 0 : -ENOMEM;
}

void thc_join_exit(void)
{
	destroy_workqueue(join_queue);
}

void thc_join_begin_at(struct thc_peer *p, u64 now)
{
	u8 random[THC_NONCE_BYTES];

	get_random_bytes(random, sizeof(random));
	thc_joining_begin(&p->joining, &p->sender, random, now);
}

void thc_join_begin(struct thc_sock *ts, u64 now)
{
	u32 i;

	ts->join_until = now + ts->join_timeout_ms * THC_NS_PER_MS;
	ts->memory_at = 0;
	for (i = 0; i < ts->shards; i++)
		thc_join_begin_at(ts->peers[i], now);
}

static struct thc_joiner joiner_at(const void *home, u32 shard)
{
	const struct thc_sock *ts = home;

	return (struct thc_joiner){ &ts->peers[shard]->joining, &ts->peers[shard]->sender };
}

/* A host job names all aggregators. For a job at an address, aggregator 0 lists them, once. */
static struct thc_joiners joiners_of(const struct thc_sock *ts)
{
	lockdep_assert_held(&ts->lock);
	return (struct thc_joiners){
		.home = ts,
		.at = joiner_at,
		.known = ts->shards,
		.listed = !ts->remote.sthc_inet || ts->shards > 1,
	};
}

bool thc_join_lacks(const struct thc_sock *ts)
{
	const struct thc_joiners all = joiners_of(ts);

	return thc_joiners_lack(&all);
}

bool thc_join_needs_call(const struct thc_sock *ts)
{
	lockdep_assert_held(&ts->lock);
	/* the list may still be missing while only some parts of WELCOME have come */
	return ts->state == THC_STATE_JOINING && thc_join_lacks(ts) &&
	       thc_parts_whole(&ts->peers[0]->joining.parts);
}

static bool all_ready(const struct thc_sock *ts)
{
	const struct thc_joiners all = joiners_of(ts);

	return thc_joiners_ready(&all);
}

static void start_work(struct thc_sock *ts)
{
	lockdep_assert_held(&ts->lock);
	queue_work(ts->user ? thc_user_queue(ts->user) : join_queue, &ts->join_work);
}

static void give_up(struct thc_sock *ts)
{
	const struct thc_joiners all = joiners_of(ts);
	struct thc_failure failure = { .error = ENOBUFS };

	if (!ts->memory_at)
		thc_joiners_failure(&all, &failure);
	thc_state_break(ts, failure);
}

/* All ranks are in. If join_work found no memory, starts it again at @memory_at. */
static void wait_for_memory(struct thc_sock *ts, u64 now, u64 *due)
{
	if (!ts->memory_at)
		return;
	if (ts->memory_at <= now)
		start_work(ts);
	else
		*due = min(*due, ts->memory_at);
}

void thc_join_run(struct thc_sock *ts, u64 now, u64 *due)
{
	u32 i;

	if (now >= ts->join_until) {
		give_up(ts);
		return;
	}
	*due = min(*due, ts->join_until);
	if (all_ready(ts)) {
		wait_for_memory(ts, now, due);
		return;
	}
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = ts->peers[i];
		struct thc_join join;
		struct thc_hdr h;

		/* an aggregator that has all ranks may still ask this one to join anew */
		if (!thc_peer_may_send(p))
			*due = min(*due, now + THC_NS_PER_MS);
		else if (thc_joining_asks(&p->joining, &p->sender, &h, &join, now, due))
			thc_send_copied(p, &h, &join, sizeof(join));
	}
}

/* True if @p is to join the group of the last WELCOME. An aggregator that has restarted names
 * another one.
 */
static bool wants_group(const struct thc_peer *p, u64 now, struct thc_address *group)
{
	return thc_joining_wants_group(&p->joining, now) && thc_peer_group(p, group) &&
	       !thc_peer_in_group(p, group);
}

/* True if answers come to a group that @p has joined. */
static bool needs_group(const struct thc_peer *p)
{
	struct thc_address group;
	bool needs;

	spin_lock_bh(&p->owner->lock);
	needs = p->joining.spec.reply == THC_REPLY_MULTICAST && thc_peer_group(p, &group) &&
		thc_peer_in_group(p, &group);
	spin_unlock_bh(&p->owner->lock);
	return needs;
}

/* Wakes calls that wait for the end of the join, and tells by SIGIO that poll() says POLLOUT. */
static void wake(struct thc_sock *ts)
{
	ts->sk.sk_state_change(&ts->sk);
	thc_wake_senders(ts);
	/* for a nonblocking connect(), which has returned already */
	sk_wake_async(&ts->sk, SOCK_WAKE_IO, POLL_OUT);
}

enum thc_drop_reason thc_join_welcome(struct thc_peer *p, const struct thc_hdr *h,
				      const struct thc_welcome *w, u32 bytes,
				      struct thc_origin from)
{
	enum thc_drop_reason why = thc_joining_admit(&p->joining, &p->sender, h, w, bytes, from);
	struct thc_sock *ts = p->owner;
	struct thc_joiners all = joiners_of(ts);
	bool needed_call = thc_join_needs_call(ts);
	struct thc_failure failure;
	struct thc_address group;

	if (!why && (ts->state != THC_STATE_JOINING || all_ready(ts)))
		why = THC_DROP_UNEXPECTED;
	if (!why)
		why = thc_joining_apply(&p->joining, &p->sender, h, w, bytes, ktime_get_ns());
	if (why)
		return why;
	if (thc_joiners_step(&all, p->shard, &failure) == THC_JOIN_ASK)
		return THC_DROP_NONE;
	if (failure.reason) {
		thc_state_break_at(p, failure);
		return THC_DROP_NONE;
	}
	if (all_ready(ts) || wants_group(p, ktime_get_ns(), &group))
		start_work(ts);
	/* once, however often WELCOME comes again */
	if (!needed_call && thc_join_needs_call(ts))
		wake(ts);
	return THC_DROP_NONE;
}

enum thc_drop_reason thc_join_challenge(struct thc_peer *p, const struct thc_hdr *h,
					const struct thc_challenge *c, u16 port)
{
	lockdep_assert_held(&p->owner->lock);
	if (p->owner->state != THC_STATE_JOINING || all_ready(p->owner))
		return THC_DROP_UNEXPECTED;
	return thc_joining_challenge(&p->joining, &p->sender, h, c, port);
}

/* Room for the flights of all peers, or of none: a socket that waits for memory keeps none that
 * other sockets wait for. So all flights are charged before any is allocated.
 */
static int alloc_flights(struct thc_sock *ts)
{
	int error = 0;
	u32 i;

	for (i = 0; i < ts->shards && !error; i++)
		error = thc_peer_charge_flights(ts->peers[i]);
	for (i = 0; i < ts->shards && !error; i++)
		error = thc_peer_alloc_flights(ts->peers[i]);
	for (i = 0; i < ts->shards && error; i++)
		thc_peer_free_flights(ts->peers[i]);
	return error;
}

static int make_ready(struct thc_sock *ts)
{
	int error = alloc_flights(ts);
	u32 i;

	for (i = 0; i < ts->shards && !error; i++) {
		struct thc_peer *p = ts->peers[i];

		if (!needs_group(p))
			thc_peer_close_group(p);
		thc_peer_streams(p);
	}
	return error;
}

/* The part of joining that may sleep. thc_disconnect() waits for it before it frees peers. */
void thc_join_work(struct work_struct *work)
{
	struct thc_sock *ts = container_of(work, struct thc_sock, join_work);
	u32 i, shards;
	bool ready;
	int error;

	/* aggregators that are added later queue this work again by their WELCOME */
	spin_lock_bh(&ts->lock);
	shards = ts->shards;
	spin_unlock_bh(&ts->lock);
	for (i = 0; i < shards; i++) {
		struct thc_peer *p = ts->peers[i];
		u64 now = ktime_get_ns();
		struct thc_address group;
		bool wanted;

		spin_lock_bh(&ts->lock);
		wanted = ts->state == THC_STATE_JOINING && wants_group(p, now, &group);
		if (wanted)
			thc_joining_tries_group(&p->joining, now);
		spin_unlock_bh(&ts->lock);
		if (wanted)
			thc_peer_join_group(p, &group);
	}
	spin_lock_bh(&ts->lock);
	ready = ts->state == THC_STATE_JOINING && all_ready(ts);
	spin_unlock_bh(&ts->lock);
	if (!ready)
		return;
	error = make_ready(ts);
	/* the epoch's keys have been derived: the secret is not needed any more */
	if (error != -ENOBUFS)
		memzero_explicit(ts->job_key, sizeof(ts->job_key));
	spin_lock_bh(&ts->lock);
	if (ts->state != THC_STATE_JOINING) {
		/* it failed meanwhile, or is being taken down */
	} else if (error == -ENOBUFS) {
		ts->memory_at = ktime_get_ns() + MEMORY_AGAIN;
		thc_state_wake(ts, min(ts->memory_at, ts->join_until));
	} else if (error) {
		thc_state_break(ts, (struct thc_failure){ .error = -error });
	} else {
		ts->state = THC_STATE_READY;
		wake(ts);
	}
	spin_unlock_bh(&ts->lock);
}

void thc_join_leave(struct thc_sock *ts)
{
	struct thc_leave leave;
	struct thc_hdr h;
	u32 i, k;

	spin_lock_bh(&ts->lock);
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = ts->peers[i];

		if (!thc_joining_is_in(&p->joining))
			continue;
		thc_sender_leave(&p->sender, &h, &leave);
		for (k = 0; k < THC_LEAVES; k++)
			thc_send_copied(p, &h, &leave, sizeof(leave));
	}
	spin_unlock_bh(&ts->lock);
	thc_outbox_flush(ts);
	/* a context that is flushing the outbox sends the LEAVEs, too: wait for it */
	if (READ_ONCE(ts->flushing))
		synchronize_net();
}
