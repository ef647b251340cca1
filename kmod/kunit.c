// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit suites, part of thc.ko where CONFIG_THC_KUNIT=y is given to make (the
 * debug kernel of tests/vm/): where a message's chunks lie, what a socket's
 * state does without a network, and what needs no lock. The protocol's core has its tests in user
 * space.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/in.h>
#include <linux/kthread.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <linux/string.h>

#include <thc/worker/answer.h>

#include "calls.h"
#include "engine.h"
#include "join.h"
#include "receive.h"
#include "sock.h"
#include "state.h"

#define EPOCH		7
#define SLOTS		64
#define CONTROL_SLOTS	8
#define RANKS		3

static const u8 job_key[THC_KEY_BYTES] = { 0x5e, 0xed, 0x12, 0x34, 0xab, 0xcd };

/* --- a socket with peers, but without a network --------------------------- */

static struct thc_peer *new_peer(struct thc_sock *ts, u32 shard)
{
	const struct thc_address at = {
		.inet = AF_INET, .port = cpu_to_be16(THC_PORT_DEFAULT),
	};
	struct thc_peer *p;

	lock_sock(&ts->sk);
	p = thc_peer_charge(ts, 1) ? NULL : thc_peer_new(ts, shard, &at, job_key);
	release_sock(&ts->sk);
	return p;
}

static struct thc_sock *connect_to(struct kunit *test, u32 shards)
{
	struct thc_sock *ts = test->priv;
	u32 i;

	ts->keyed = true;
	memcpy(ts->job_key, job_key, sizeof(ts->job_key));
	ts->remote.sthc_job = 1;
	for (i = 0; i < shards; i++) {
		struct thc_peer *p = new_peer(ts, i);

		KUNIT_ASSERT_NOT_NULL(test, p);
		ts->peers[i] = p;
		/* the engine's packets belong to this socket until run() frees them */
		KUNIT_ASSERT_EQ(test,
				sock_create_kern(&init_net, PF_INET, SOCK_DGRAM, IPPROTO_UDP,
						 &p->unicast),
				0);
		KUNIT_ASSERT_FALSE(test, IS_ERR(sock_alloc_file(p->unicast, 0, NULL)));
		p->joining.epoch = EPOCH;
		p->joining.spec = (struct thc_spec){
			.ranks = RANKS,
			.data_slots = SLOTS,
			.control_slots = CONTROL_SLOTS,
			.bits = 4,
			.tables.widths.sum[3] = 8,
			.seal = THC_SEAL_NH,
			.salt = { 0x5a, i },
		};
		p->joining.welcomed = true;
		p->joining.ready = true;
		ts->shards = i + 1;
	}
	ts->state = THC_STATE_JOINING;
	thc_join_work(&ts->join_work);
	KUNIT_ASSERT_EQ(test, ts->state, THC_STATE_READY);
	return ts;
}

/* Time passes only where a test says so. */
static enum hrtimer_restart no_timer(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

static int socket_init(struct kunit *test)
{
	struct socket *sock;
	struct thc_sock *ts;
	int error = sock_create_kern(&init_net, PF_THC, SOCK_SEQPACKET, 0, &sock);

	if (error)
		return error;
	ts = thc_sk(sock->sk);
	hrtimer_setup(&ts->timer, no_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	test->priv = ts;
	return 0;
}

/* There is no aggregator that LEAVE could be sent to. */
static void forget_aggregators(struct thc_sock *ts)
{
	u32 i;

	for (i = 0; i < ts->shards; i++)
		ts->peers[i]->joining.welcomed = false;
}

static void disconnect(struct thc_sock *ts)
{
	lock_sock(&ts->sk);
	thc_disconnect(ts);
	release_sock(&ts->sk);
}

static void socket_exit(struct kunit *test)
{
	struct thc_sock *ts = test->priv;

	if (!ts)
		return;
	forget_aggregators(ts);
	sock_release(ts->sk.sk_socket);
}

/* A message of @chunks, as sendmsg() leaves it. */
static struct thc_message *give_to(struct kunit *test, int stream, u32 chunks, u32 round)
{
	u32 payload = stream == THC_DATA ? THC_COORDINATES(8) / 2 : THC_LANE_BYTES, i;
	struct thc_sock *ts = test->priv;
	struct thc_message *m =
		thc_message_alloc(ts->user, chunks, payload + sizeof(struct thc_hdr));

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, m);
	m->send = (struct thc_send){
		.op = stream == THC_DATA ? THC_OP_LUT_ADD : THC_OP_MAX,
		.width = stream == THC_DATA ? 4 : 32,
		.round = round,
	};
	m->width = stream == THC_DATA ? 8 : 32;
	thc_message_place(m, ts->shards, ts->reserved[stream]);
	for (i = 0; i < chunks; i++)
		memset(thc_message_packet(m, ts->shards, i) + sizeof(struct thc_hdr), (u8)i,
		       payload);
	thc_message_seal(m, ts, stream);
	spin_lock_bh(&ts->lock);
	list_add_tail(&m->list, &ts->messages[stream]);
	m->sent_at = ktime_get_ns();
	ts->reserved[stream] += chunks;
	ts->stats.memory += m->bytes;
	for (i = 0; i < ts->shards; i++) {
		struct thc_peer *p = ts->peers[i];

		thc_peer_stream(p, stream)->reserved =
			thc_shard_part(ts->reserved[stream], ts->shards, i);
		p->sender.progress_at = ktime_get_ns();
	}
	spin_unlock_bh(&ts->lock);
	return m;
}

static struct thc_message *give(struct kunit *test, u32 chunks)
{
	return give_to(test, THC_DATA, chunks, 5);
}

/* Runs the engine and frees what it sends. Returns the number of packets, GSO segments counted. */
static u32 run(struct thc_sock *ts)
{
	struct sk_buff *skb;
	u32 packets = 0;

	spin_lock_bh(&ts->lock);
	thc_engine_run(ts);
	spin_unlock_bh(&ts->lock);
	hrtimer_cancel(&ts->timer);
	while ((skb = __skb_dequeue(&ts->outbox))) {
		packets += skb_is_gso(skb) ? skb_shinfo(skb)->gso_segs : 1;
		kfree_skb(skb);
	}
	return packets;
}

/* The timeout has passed without progress, and the engine looks. */
static void let_time_out(struct thc_sock *ts)
{
	u64 timeout = (ts->timeout_ms + 1) * THC_NS_PER_MS;
	struct thc_message *m;

	ts->peers[0]->sender.progress_at -= timeout;
	ts->peers[0]->sender.look_at = 0;
	list_for_each_entry(m, &ts->messages[THC_DATA], list)
		m->sent_at -= timeout;
	run(ts);
}

/* The aggregator's answer to what is in flight for chunk @number. */
static void answer(struct thc_sock *ts, u64 number)
{
	struct thc_peer *p = ts->peers[number % ts->shards];
	struct thc_flight *f = thc_stream_flight(&p->sender.data, number / ts->shards);
	struct thc_message *m = f->owner;
	struct thc_hdr h = *f->packet;
	struct thc_landing l;
	u32 index = f->index;

	h.flags = THC_F_ANSWER;
	h.width = 8;
	h.count = cpu_to_be16(RANKS);
	h.bitmap = cpu_to_be64(thc_ranks_mask(RANKS));
	spin_lock_bh(&ts->lock);
	thc_sender_apply(&p->sender, THC_GOT_ANSWER, &p->sender.data, f, &h, 0, ktime_get_ns());
	l = thc_sender_landing(&p->sender, THC_GOT_ANSWER, &h, m->lanes, 1);
	thc_engine_landed(p, m, index, &l);
	spin_unlock_bh(&ts->lock);
}

/* The caller receives all that is ready. */
static void receive_all(struct thc_sock *ts)
{
	struct thc_message *m, *next;

	spin_lock_bh(&ts->lock);
	list_for_each_entry_safe(m, next, &ts->ready, ready) {
		list_del_init(&m->ready);
		thc_message_put(ts, m);
	}
	spin_unlock_bh(&ts->lock);
}

/* --- messages ------------------------------------------------------------- */

static void check_place(struct kunit *test, u32 shards, u64 first, u32 chunks)
{
	struct thc_message *m = thc_message_alloc(NULL, chunks, 560);
	u8 *seen = kunit_kzalloc(test, chunks, GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, m);
	KUNIT_ASSERT_NOT_NULL(test, seen);
	thc_message_place(m, shards, first);
	for (i = 0; i < chunks; i++) {
		u64 number = first + i;
		u8 *packet = thc_message_packet(m, shards, i);
		u32 position = (packet - m->packets) / 560;

		KUNIT_ASSERT_LT(test, position, chunks);
		KUNIT_EXPECT_EQ(test, seen[position]++, 0);
		KUNIT_EXPECT_PTR_EQ(test, packet,
				    thc_message_packet_of(m, number % shards, number / shards));
		/* neighbours of a shard leave as one super-packet */
		if (i >= shards)
			KUNIT_EXPECT_PTR_EQ(test, packet,
					    thc_message_packet(m, shards, i - shards) + 560);
	}
	thc_message_free(m);
}

static void message__every_chunk_has_its_place(struct kunit *test)
{
	u32 shards, chunks;

	for (shards = 1; shards <= THC_SHARDS_MAX; shards++) {
		/* some numbers up to three rounds: each takes a vmalloc() */
		for (chunks = 1; chunks <= 3 * shards; chunks += 1 + shards / 8) {
			check_place(test, shards, 0, chunks);
			check_place(test, shards, 13 * shards + chunks, chunks);
			/* beyond what 32 bits count */
			check_place(test, shards, (1ULL << 33) + chunks, chunks);
		}
	}
}

/* As Documentation/protocol.md has it, by the kernel's SipHash. @bytes: of payload */
static u64 tag_of(const struct thc_seal_key *key, const struct thc_hdr *h, u32 bytes)
{
	const siphash_key_t sip = { { key->sip[0], key->sip[1] } };
	const __le32 *m = (const __le32 *)(h + 1);
	__le64 sealed[sizeof(*h) / 8];
	u64 nh = 0;
	u32 i;

	for (i = 0; i < bytes / 4; i += 2) {
		u32 low = le32_to_cpu(m[i]) + key->nh[i];
		u32 high = le32_to_cpu(m[i + 1]) + key->nh[i + 1];

		nh += (u64)low * high;
	}
	memcpy(sealed, h, 8);
	memcpy(sealed + 1, (const u8 *)h + 16, sizeof(*h) - 16);
	sealed[5] = cpu_to_le64(nh);
	return siphash(sealed, sizeof(sealed), &sip);
}

/* Packets are sealed by the keys of their aggregator's epoch, which differ by aggregator. */
static void message__packets_are_sealed(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 3);
	struct thc_message *m = give(test, 100);
	u32 i;

	for (i = 0; i < 100; i++) {
		const struct thc_hdr *h =
			(const struct thc_hdr *)thc_message_packet(m, ts->shards, i);

		KUNIT_EXPECT_EQ(test, be32_to_cpu(h->chunk), i / 3);
		KUNIT_EXPECT_EQ(test, be16_to_cpu(h->slot), i / 3 % SLOTS);
		KUNIT_EXPECT_EQ(test, be32_to_cpu(h->epoch), EPOCH);
		KUNIT_EXPECT_EQ(test, be32_to_cpu(h->round), 5);
		KUNIT_EXPECT_TRUE(test, thc_seal_names(h, ts->peers[i % 3]->sender.up.id));
		KUNIT_EXPECT_EQ(test, be64_to_cpu(h->tag),
				tag_of(&ts->peers[i % 3]->sender.up, h, THC_COORDINATES(8) / 2));
	}
	for (i = 0; i < 3; i++) {
		const struct thc_sender *s = &ts->peers[i]->sender;
		const struct thc_sender *next = &ts->peers[(i + 1) % 3]->sender;

		KUNIT_EXPECT_NE(test, be32_to_cpu(s->up.id), be32_to_cpu(next->up.id));
		KUNIT_EXPECT_NE(test, memcmp(&s->up, &next->up, sizeof(s->up)), 0);
		KUNIT_EXPECT_NE(test, memcmp(&s->up, &s->down, sizeof(s->up)), 0);
	}
}

/* --- the socket's state --------------------------------------------------- */

static void state__window_then_answers_then_ready(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 2);
	u32 i;

	give(test, 300);
	/* the first window of both, and not more */
	KUNIT_EXPECT_EQ(test, run(ts), 2 * min_t(u32, SLOTS, THC_WINDOW_FIRST));
	run(ts);		/* by now some may be overdue, but no more are in flight */
	KUNIT_EXPECT_EQ(test, ts->peers[0]->sender.data.in_flight, SLOTS);
	KUNIT_EXPECT_EQ(test, ts->peers[1]->sender.data.in_flight, SLOTS);
	for (i = 0; i < 300; i++) {
		KUNIT_EXPECT_TRUE(test, list_empty(&ts->ready));
		answer(ts, i);
		run(ts);
	}
	KUNIT_EXPECT_FALSE(test, list_empty(&ts->ready));
	KUNIT_EXPECT_TRUE(test, list_empty(&ts->messages[THC_DATA]));
	KUNIT_EXPECT_EQ(test, ts->stats.chunks, 300);
	KUNIT_EXPECT_EQ(test, ts->peers[0]->sender.data.in_flight, 0);
	KUNIT_EXPECT_EQ(test, ts->peers[1]->sender.data.in_flight, 0);
}

static void state__break_forgets_flights_and_stays_broken(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 1);

	give(test, 10);
	run(ts);
	KUNIT_EXPECT_EQ(test, ts->peers[0]->sender.data.in_flight, 10);
	spin_lock_bh(&ts->lock);
	thc_state_break(ts, (struct thc_failure){ .error = ESTALE, .reason = THC_FAILED_EPOCH });
	spin_unlock_bh(&ts->lock);
	KUNIT_EXPECT_EQ(test, ts->peers[0]->sender.data.in_flight, 0);
	KUNIT_EXPECT_EQ(test, ts->state, THC_STATE_BROKEN);
	KUNIT_EXPECT_EQ(test, thc_connect_outcome(ts), -ESTALE);
	KUNIT_EXPECT_EQ(test, run(ts), 0);
	forget_aggregators(ts);
	disconnect(ts);
	KUNIT_EXPECT_EQ(test, ts->stats.memory, 0);
	KUNIT_EXPECT_EQ(test, thc_connect_outcome(ts), -ENOTCONN);
}

static u64 window_cuts(struct thc_sock *ts)
{
	struct thc_socket_stats stats;

	spin_lock_bh(&ts->lock);
	thc_show_stats(ts, &stats);
	spin_unlock_bh(&ts->lock);
	return stats.window_cuts;
}

static void state__cuts_stay_counted(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 2);

	ts->peers[0]->sender.window.cuts = 3;
	ts->peers[1]->sender.window.cuts = 4;
	KUNIT_EXPECT_EQ(test, window_cuts(ts), 7);
	forget_aggregators(ts);
	disconnect(ts);
	KUNIT_EXPECT_EQ(test, window_cuts(ts), 7);
}

static void state__timeout_breaks_or_delivers_what_has_come(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 1);
	struct thc_message *m;

	ts->partial = 1;
	m = give(test, 10);
	run(ts);
	answer(ts, 3);
	let_time_out(ts);
	KUNIT_EXPECT_EQ(test, ts->state, THC_STATE_READY);
	KUNIT_EXPECT_FALSE(test, list_empty(&ts->ready));
	KUNIT_EXPECT_TRUE(test, m->closed);
	KUNIT_EXPECT_EQ(test, m->flags & THC_RECV_TIMEOUT, THC_RECV_TIMEOUT);
	KUNIT_EXPECT_EQ(test, m->counts[3], RANKS);
	KUNIT_EXPECT_EQ(test, m->counts[4], 0);

	ts->partial = 0;
	let_time_out(ts);
	KUNIT_EXPECT_EQ(test, ts->state, THC_STATE_BROKEN);
	KUNIT_EXPECT_EQ(test, ts->failure.reason, THC_FAILED_SILENT);
	KUNIT_EXPECT_EQ(test, thc_connect_outcome(ts), -ETIMEDOUT);
}

static void state__late_answers_end_a_closed_message(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 1);
	u32 i;

	ts->partial = 1;
	give(test, 10);
	run(ts);
	let_time_out(ts);
	receive_all(ts);
	KUNIT_EXPECT_NE(test, ts->stats.memory, 0);
	for (i = 0; i < 10; i++)
		answer(ts, i);
	KUNIT_EXPECT_EQ(test, ts->stats.memory, 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&ts->ready));
}

/* Each shard finds the message it sends next, whatever the others have sent, and
 * though messages before it are gone.
 */
static void state__many_messages_over_several_shards(struct kunit *test)
{
	enum { MESSAGES = 120, SHARDS = 3 };
	struct thc_sock *ts = connect_to(test, SHARDS);
	u32 i, in_flight = 0, done = 0, all = 0;

	for (i = 0; i < MESSAGES; i++)
		all += give(test, 1 + i % 4)->chunks;
	run(ts);
	/* the last shard's answers come first */
	while (done < all) {
		for (i = SHARDS; i-- > 0;) {
			struct thc_peer *p = ts->peers[i];

			if (!p->sender.data.in_flight)
				continue;
			answer(ts, p->sender.data.oldest * SHARDS + i);
			done++;
			run(ts);
		}
	}
	KUNIT_EXPECT_TRUE(test, list_empty(&ts->messages[THC_DATA]));
	KUNIT_EXPECT_EQ(test, ts->stats.chunks, all);
	for (i = 0; i < SHARDS; i++)
		KUNIT_EXPECT_PTR_EQ(test, ts->peers[i]->sending[THC_DATA], NULL);
	/* shards with nothing left to send begin again */
	for (i = 0; i < 5; i++) {
		give(test, 2);
		run(ts);
	}
	for (i = 0; i < SHARDS; i++)
		in_flight += ts->peers[i]->sender.data.in_flight;
	KUNIT_EXPECT_EQ(test, in_flight, 10);
}

/* The oldest chunk of the control stream lacks a rank that has left: the socket's state then. */
static enum thc_state rank_has_left(struct thc_sock *ts)
{
	struct thc_hdr h = {
		.op = THC_OP_WAIT, .flags = THC_F_LEFT, .bitmap = cpu_to_be64(1),
	};
	struct thc_peer *p = ts->peers[0];
	struct thc_flight *f = thc_stream_flight(&p->sender.control, p->sender.control.oldest);

	spin_lock_bh(&ts->lock);
	thc_flight_wait(&p->sender, f, &h);
	p->sender.look_at = 0;
	spin_unlock_bh(&ts->lock);
	run(ts);
	return ts->state;
}

static void state__who_left_ends_it_when_the_caller_is_done(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 1);

	give_to(test, THC_CONTROL, 1, 6);
	run(ts);
	/* the caller may have data of round 5 left to send */
	ts->called_at = ktime_get_ns();
	KUNIT_EXPECT_EQ(test, rank_has_left(ts), THC_STATE_READY);
	/* while data of round 5 is in flight, control chunks of round 6 may lack any rank */
	give_to(test, THC_DATA, 1, 5);
	ts->called_at = 0;
	KUNIT_EXPECT_EQ(test, rank_has_left(ts), THC_STATE_READY);
	answer(ts, 0);
	/* the answer has yet to be received */
	KUNIT_EXPECT_EQ(test, rank_has_left(ts), THC_STATE_READY);
	receive_all(ts);
	KUNIT_EXPECT_EQ(test, rank_has_left(ts), THC_STATE_BROKEN);
	KUNIT_EXPECT_EQ(test, ts->failure.reason, THC_FAILED_LEFT);
	KUNIT_EXPECT_EQ(test, ts->failure.ranks, 6);
}

/* --- packets from elsewhere ----------------------------------------------- */

/* A thread that holds a socket's lock until it is told to let go, or for seconds. */
struct holder {
	struct thc_sock		*ts;
	struct completion	holds;
	struct completion	ended;
	bool			let_go;
	bool			in_time;	/* it was told */
};

static int hold(void *arg)
{
	u64 until = ktime_get_ns() + 5 * NSEC_PER_SEC;
	struct holder *h = arg;

	spin_lock_bh(&h->ts->lock);
	complete(&h->holds);
	while (!READ_ONCE(h->let_go) && ktime_get_ns() < until)
		cpu_relax();
	h->in_time = READ_ONCE(h->let_go);
	spin_unlock_bh(&h->ts->lock);
	complete(&h->ended);
	return 0;
}

/* A packet from another socket of this host to @to, which is bound for it. */
static void send_from_elsewhere(struct kunit *test, struct socket *to)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct msghdr msg = { .msg_name = &at, .msg_namelen = sizeof(at) };
	struct kvec packet = { .iov_base = "none", .iov_len = 4 };
	struct socket *from;
	int tries;

	KUNIT_ASSERT_EQ(test, kernel_bind(to, (void *)&at, sizeof(at)), 0);
	KUNIT_ASSERT_EQ(test, kernel_getsockname(to, (struct sockaddr *)&at), sizeof(at));
	KUNIT_ASSERT_EQ(test, sock_create_kern(&init_net, PF_INET, SOCK_DGRAM, IPPROTO_UDP, &from),
			0);
	KUNIT_EXPECT_EQ(test, kernel_sendmsg(from, &msg, &packet, 1, 4), 4);
	sock_release(from);
	for (tries = 0; skb_queue_empty_lockless(&to->sk->sk_receive_queue) && tries < 1000;
	     tries++)
		msleep(5);
}

/* A flood of a socket does not wait for its lock, and the lock does not wait for a flood. */
static void receive__strangers_need_no_lock(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 1);
	struct thc_peer *p = ts->peers[0];
	struct holder h = { .ts = ts };
	struct task_struct *thread;

	if (num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	p->address.in = htonl(INADDR_LOOPBACK);
	send_from_elsewhere(test, p->unicast);
	rcu_assign_sk_user_data(p->unicast->sk, p);
	init_completion(&h.holds);
	init_completion(&h.ended);
	thread = kthread_run(hold, &h, "thc_hold");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, thread);
	wait_for_completion(&h.holds);
	thc_receive(p->unicast->sk);
	WRITE_ONCE(h.let_go, true);
	wait_for_completion(&h.ended);
	KUNIT_EXPECT_TRUE(test, h.in_time);
	KUNIT_EXPECT_EQ(test, atomic64_read(&ts->strangers), 1);
	KUNIT_EXPECT_EQ(test, ts->stats.packets_down, 0);
}

static int set_key(struct thc_sock *ts, u8 *key, unsigned int bytes)
{
	return thc_setsockopt(ts->sk.sk_socket, SOL_THC, THC_OPT_KEY, KERNEL_SOCKPTR(key), bytes);
}

static bool is_wiped(const struct thc_sock *ts)
{
	return !ts->has_key && !memchr_inv(ts->key, 0, sizeof(ts->key)) &&
	       !memchr_inv(ts->job_key, 0, sizeof(ts->job_key)) &&
	       !memchr_inv(&ts->join_key, 0, sizeof(ts->join_key));
}

/* Neither a socket that forgets its key nor one that is closed has it in its memory. */
static void key__is_wiped(struct kunit *test)
{
	struct thc_sock *ts = test->priv;
	u8 key[THC_KEY_BYTES];

	memset(key, 0xa5, sizeof(key));
	KUNIT_EXPECT_TRUE(test, is_wiped(ts));
	KUNIT_ASSERT_EQ(test, set_key(ts, key, sizeof(key)), 0);
	KUNIT_EXPECT_TRUE(test, ts->has_key);
	KUNIT_EXPECT_EQ(test, memcmp(ts->key, key, sizeof(key)), 0);
	KUNIT_EXPECT_EQ(test, set_key(ts, key, sizeof(key) - 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, memcmp(ts->key, key, sizeof(key)), 0);
	KUNIT_ASSERT_EQ(test, set_key(ts, NULL, 0), 0);
	KUNIT_EXPECT_TRUE(test, is_wiped(ts));

	KUNIT_ASSERT_EQ(test, set_key(ts, key, sizeof(key)), 0);
	/* as connect() leaves it */
	ts->keyed = true;
	memcpy(ts->job_key, key, sizeof(ts->job_key));
	memset(&ts->join_key, 0xa5, sizeof(ts->join_key));
	sock_hold(&ts->sk);
	test->priv = NULL;
	sock_release(ts->sk.sk_socket);
	KUNIT_EXPECT_TRUE(test, is_wiped(ts));
	sock_put(&ts->sk);
}

/* A socket that has joined keeps derived keys, not the secret. */
static void key__is_wiped_when_the_job_is_joined(struct kunit *test)
{
	struct thc_sock *ts = connect_to(test, 2);
	const struct thc_sender *s = &ts->peers[1]->sender;

	KUNIT_EXPECT_TRUE(test, is_wiped(ts));
	KUNIT_EXPECT_NOT_NULL(test, memchr_inv(&s->up, 0, sizeof(s->up)));
	KUNIT_EXPECT_NOT_NULL(test, memchr_inv(&s->down, 0, sizeof(s->down)));
	KUNIT_EXPECT_NOT_NULL(test, memchr_inv(&s->lost, 0, sizeof(s->lost)));
	/* a join that is given up wipes its copy, too */
	memcpy(ts->job_key, job_key, sizeof(ts->job_key));
	forget_aggregators(ts);
	disconnect(ts);
	KUNIT_EXPECT_TRUE(test, is_wiped(ts));
}

/* clang-format off */
static struct kunit_case thc_cases[] = {
	KUNIT_CASE(message__every_chunk_has_its_place),
	KUNIT_CASE(message__packets_are_sealed),
	KUNIT_CASE(state__window_then_answers_then_ready),
	KUNIT_CASE(state__break_forgets_flights_and_stays_broken),
	KUNIT_CASE(state__cuts_stay_counted),
	KUNIT_CASE(state__timeout_breaks_or_delivers_what_has_come),
	KUNIT_CASE(state__late_answers_end_a_closed_message),
	KUNIT_CASE(state__many_messages_over_several_shards),
	KUNIT_CASE(state__who_left_ends_it_when_the_caller_is_done),
	KUNIT_CASE(receive__strangers_need_no_lock),
	KUNIT_CASE(key__is_wiped),
	KUNIT_CASE(key__is_wiped_when_the_job_is_joined),
	{}
};
/* clang-format on */

static struct kunit_suite thc_suite = {
	.name = "thc",
	.init = socket_init,
	.exit = socket_exit,
	.test_cases = thc_cases,
};
kunit_test_suites(&thc_suite);
