// SPDX-License-Identifier: GPL-2.0
/*
 * Joining a job: JOIN to every aggregator until WELCOME says that all ranks
 * are in, and the job's constants out of it. Leaving: LEAVE, best effort.
 *
 *	connect()        JOIN, again after thc_join_interval()
 *	WELCOME          constants; with a group: join_work joins it
 *	WELCOME (group)  next JOIN says HEARD
 *	WELCOME READY    from all: join_work makes room for slots, READY
 */
#include <linux/in.h>
#include <net/ipv6.h>

#include <thc/worker/welcome.h>

#include "engine.h"
#include "join.h"
#include "sock.h"

/* For join_work, which waits for RTNL. Who holds RTNL may wait for whatever is queued in one
 * of the system's workqueues: here is nothing but our own. Unbound, since it sleeps for long
 * and needs no CPU of its own.
 */
static struct workqueue_struct *join_queue;

int thc_join_init(void)
{
	join_queue = alloc_workqueue("thc_join", WQ_UNBOUND, 0);
	return join_queue ? 0 : -ENOMEM;
}

void thc_join_exit(void)
{
	destroy_workqueue(join_queue);
}

void thc_join_begin(struct thc_sock *ts, u64 now)
{
	u32 i;

	ts->join_until = now + ts->join_timeout_ms * THC_NS_PER_MS;
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = &ts->peers[i];

		get_random_bytes(&p->nonce, sizeof(p->nonce));
		p->nonce |= 1;
		p->join_at = now;
		p->joins = 0;
	}
}

static void give_up(struct thc_sock *ts)
{
	enum thc_failure_reason reason = THC_FAILED_SILENT;
	int error = EHOSTUNREACH;
	u32 i;

	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = &ts->peers[i];
		const struct thc_welcome *w = &p->joined.welcome;

		if (p->ready)
			continue;
		if (p->welcomed) {
			ts->failure.ranks = thc_ranks_mask(be16_to_cpu(w->ranks)) &
					    ~be64_to_cpu(w->joined);
			reason = THC_FAILED_JOIN;
			error = ETIMEDOUT;
		} else if (p->unreachable) {
			reason = THC_FAILED_UNREACHABLE;
			error = -p->unreachable;
		}
		break;
	}
	thc_engine_break(ts, error, reason);
}

void thc_join_run(struct thc_sock *ts, u64 now, u64 *due)
{
	u32 i;

	if (now > ts->join_until) {
		give_up(ts);
		return;
	}
	*due = min(*due, ts->join_until + 1);
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = &ts->peers[i];
		struct thc_join join = { .nonce = cpu_to_be64(p->nonce) };
		struct thc_hdr h;

		if (p->ready)
			continue;
		if (p->join_at <= now && thc_peer_has_room(p)) {
			join.flags = cpu_to_be32(p->heard ? THC_JOIN_F_HEARD : 0);
			thc_sender_header(&p->sender, &h, THC_OP_JOIN);
			thc_send_control(p, &ts->outbox, &h, &join, sizeof(join));
			p->join_at = now + thc_join_interval(++p->joins) * THC_NS_PER_MS;
		}
		*due = min(*due, max(p->join_at, now + THC_NS_PER_MS));
	}
}

static bool same_job(const struct thc_welcome *a, const struct thc_welcome *b)
{
	return a->ranks == b->ranks && a->seed == b->seed && a->table_hash == b->table_hash &&
	       a->chunk == b->chunk && a->sum_width == b->sum_width &&
	       a->block_log2 == b->block_log2;
}

/* Do all aggregators that have spoken, whichever was first, mean the same job? */
static bool all_agree(const struct thc_sock *ts, const struct thc_welcome *w)
{
	u32 i;

	for (i = 0; i < ts->shards; i++)
		if (ts->peers[i].welcomed && !same_job(&ts->peers[i].joined.welcome, w))
			return false;
	return true;
}

static bool all_ready(const struct thc_sock *ts)
{
	u32 i;

	for (i = 0; i < ts->shards; i++)
		if (!ts->peers[i].ready)
			return false;
	return true;
}

static bool same_group(const struct thc_welcome *a, const struct thc_welcome *b)
{
	return a->reply == b->reply && a->group_port == b->group_port && a->family == b->family &&
	       !memcmp(a->group, b->group, sizeof(a->group));
}

/* A group that cannot be joined, which each WELCOME names again, is tried now and then: it
 * costs locks that all the host needs. Called with thc_sock.lock held.
 */
static bool wants_group(const struct thc_peer *p, u64 now)
{
	return p->welcomed && thc_peer_has_group(p) && !p->in_group && now >= p->group_at;
}

/* Called with thc_sock.lock held, the packet's sum checked. Why it is of no
 * use, or THC_DROP_NONE.
 */
enum thc_drop_reason thc_join_welcome(struct thc_peer *p, const struct thc_hdr *h,
				      const struct thc_welcome *w)
{
	struct thc_sock *ts = p->owner;

	if (h->job != cpu_to_be16(p->sender.job))
		return THC_DROP_JOB;
	if (!w->nonce && !thc_seal_cookie_ok(h, p->sender.cookie))
		return THC_DROP_COOKIE;
	if (h->reserved)
		return THC_DROP_RESERVED;
	if (ts->state != THC_STATE_JOINING || p->ready)
		return THC_DROP_UNEXPECTED;
	if (!w->nonce) {
		p->heard = true;
		return THC_DROP_NONE;
	}
	if (w->nonce != cpu_to_be64(p->nonce))
		return THC_DROP_UNEXPECTED;
	if (!same_group(&p->joined.welcome, w)) {
		p->group_at = 0;
		p->heard = false;
	}
	p->joined.epoch = be32_to_cpu(h->epoch);
	p->joined.shards = ts->shards;
	p->joined.welcome = *w;
	p->welcomed = true;
	/* it is there: what the network said before is no reason to give it up later */
	p->unreachable = 0;
	p->sender.unreachable_at = 0;
	if (w->flags & THC_WELCOME_F_REFUSED) {
		ts->failure.refusal = w->refusal;
		thc_engine_break(ts, EACCES, THC_FAILED_REFUSED);
	} else if (!thc_welcome_is_sound(w, p->sender.rank)) {
		thc_engine_break(ts, EPROTO, THC_FAILED_VERSION);
	} else if (!all_agree(ts, w)) {
		thc_engine_break(ts, EPROTO, THC_FAILED_SHARDS);
	} else {
		p->ready = w->flags & THC_WELCOME_F_READY;
		if (all_ready(ts) || wants_group(p, ktime_get_ns()))
			queue_work(join_queue, &ts->join_work);
	}
	return THC_DROP_NONE;
}

static int make_ready(struct thc_sock *ts)
{
	u32 i;
	int error;

	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = &ts->peers[i];

		if (!p->in_group || p->joined.welcome.reply != THC_REPLY_MULTICAST)
			thc_peer_close_group(p);
		error = thc_peer_streams(p);
		if (error)
			return error;
	}
	return 0;
}

/* What may sleep. The peers cannot go: who takes them away waits for us. */
void thc_join_work(struct work_struct *work)
{
	struct thc_sock *ts = container_of(work, struct thc_sock, join_work);
	bool ready;
	int error;
	u32 i;

	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = &ts->peers[i];
		u64 now = ktime_get_ns();
		bool wanted;

		spin_lock_bh(&ts->lock);
		wanted = ts->state == THC_STATE_JOINING && wants_group(p, now);
		if (wanted)
			p->group_at = now + THC_GROUP_RETRY_MS * THC_NS_PER_MS;
		spin_unlock_bh(&ts->lock);
		/* not fatal: nobody is heard on the group, the job answers by fanout */
		if (wanted)
			thc_peer_join_group(p);
	}
	spin_lock_bh(&ts->lock);
	ready = ts->state == THC_STATE_JOINING && all_ready(ts);
	spin_unlock_bh(&ts->lock);
	if (!ready)
		return;
	error = make_ready(ts);
	spin_lock_bh(&ts->lock);
	if (ts->state != THC_STATE_JOINING) {
		/* it failed meanwhile, or is being taken down */
	} else if (error) {
		thc_engine_break(ts, -error, THC_FAILED_NOT);
	} else {
		ts->state = THC_STATE_READY;
		ts->sk.sk_state_change(&ts->sk);
		ts->sk.sk_write_space(&ts->sk);
	}
	spin_unlock_bh(&ts->lock);
}

void thc_join_leave(struct thc_sock *ts)
{
	struct thc_hdr h;
	u32 i, k;

	spin_lock_bh(&ts->lock);
	for (i = 0; i < ts->shards; i++) {
		if (!ts->peers[i].welcomed)
			continue;
		ts->peers[i].sender.epoch = ts->peers[i].joined.epoch;
		thc_sender_header(&ts->peers[i].sender, &h, THC_OP_LEAVE);
		for (k = 0; k < THC_LEAVES; k++)
			thc_send_control(&ts->peers[i], &ts->outbox, &h, NULL, 0);
	}
	spin_unlock_bh(&ts->lock);
	thc_outbox_flush(ts);
	/* a softirq that was sending takes these along */
	if (READ_ONCE(ts->flushing))
		synchronize_net();
}
