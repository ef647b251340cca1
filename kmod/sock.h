/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A socket of AF_THC. A message goes down and its answer up; each part has a header:
 *
 *	socket.c    birth, bind, poll, shutdown, death
 *	connect.c   joining a job, leaving it (address.c: struct sockaddr_thc)
 *	listed.c    the other aggregators of a job, which the first one lists
 *	sendmsg.c   sendmsg()
 *	recvmsg.c   recvmsg()
 *	options.c   socket options
 *	wait.c      what system calls wait for
 *	state.c     JOINING, READY, BROKEN, and the timer
 *	message.c   memory of a message: packets up, lanes down
 *	memory.c    how much of it the host's sockets, and one user's, may hold
 *	engine.c    the job's clock: what is sent, what an answer changes
 *	join.c      JOIN, WELCOME, LEAVE
 *	receive.c   UDP packets in, out of the network's softirq
 *	transmit.c  packets out, as UDP super-packets over the message's pages
 *	peer.c      UDP sockets to one aggregator
 *	netns.c     the sockets of a network namespace
 *	hostjob.c   jobs that its administrator has described
 *	stats.c     counters of sockets and namespaces
 *	netlink.c   the administrator's side: generic netlink (netlink.h)
 *	netlink_job.c, netlink_show.c	its commands: host jobs; sockets and counters
 *	netlink_dump.c	lists, in parts
 *	proc.c      /proc/net/thc
 *	trace.h     tracepoints
 *	main.c      the family, the module, what a network namespace begins and ends with
 *
 * The protocol itself is <thc/worker/>, which libthc compiles, too.
 * Documentation/locking.md says who holds what when; in short: lock_sock() for
 * system calls among themselves, thc_sock.lock (BH) for everything that a
 * packet can change, and no packet is handed to the network under thc_sock.lock.
 */
#ifndef THC_KMOD_SOCK_H
#define THC_KMOD_SOCK_H

#include <linux/hrtimer.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include <linux/thc_netlink.h>

#include "peer.h"
#include "transmit.h"

/* Bytes of messages a socket may hold, unless it asks for less or more. */
#define THC_MEMORY_DEFAULT	(256ULL << 20)
#define THC_MEMORY_MAX		(4ULL << 30)

enum thc_state {
	THC_STATE_IDLE,		/* not connected */
	THC_STATE_JOINING,	/* connect() under way */
	THC_STATE_READY,
	THC_STATE_BROKEN,	/* failure says why; connect() again */
};

/**
 * struct thc_sock - a socket of AF_THC
 * @bound: local address of bind(), inet 0: none
 * @timer: next retransmission, JOIN or timeout
 * @join_work: what of joining may sleep: the multicast group, memory
 * @list: in thc_net.sockets
 * @user: whose memory its peers, messages and flights are, NULL: the host's alone; stays as it is
 *
 * Changed under lock_sock and @lock together, while no timer or packet is under way (but the
 * aggregators that WELCOME lists are added while the first one is joined: listed.c):
 * @peers: the aggregators it is connected to, by their numbers
 * @shards: how many
 * @remote: address of connect()
 * @join_key: by what JOIN is sealed there, zero without a key: another key, another job
 * @keyed: that job has a secret key
 * @joins: number of the connection; connect() counts it up
 *
 * Written by connect() like these. Then it is join_work's, which wipes it when it has made the
 * epochs' keys; thc_disconnect() does if the join ended before:
 * @job_key: secret key of that job
 *
 * Under lock_sock:
 * @last_epoch: by shard, the last epoch that was ready of the job at @remote, 0: none
 * @has_key: @key is there
 * @key: THC_OPT_KEY, for the next connect() to an address; nobody is shown it. Wiped by close()
 *
 * Under @lock:
 * @state: enum thc_state
 * @failure: why THC_STATE_BROKEN
 * @messages: by stream, in order, until all chunks are answered
 * @reserved: by stream, chunks given out over all shards
 * @ready: messages to be received
 * @refused: bytes of the last message that did not fit, 0: the last one did
 * @reading: a recvmsg() has the turn
 * @hidden: poll() or another recvmsg() was not told of a message because of that; cleared when the
 *	call that has the turn ends
 * @writing: by stream, a sendmsg() has the turn
 * @turned_away: by stream, a sendmsg() got EAGAIN because another call was sending; cleared when
 *	that call ends
 * @called_at: time a message was last sent or received by the caller
 * @join_until: JOIN gives up then
 * @memory_at: all ranks are in, and the host lacks memory for the slots: when to ask again; 0: it
 *	was not asked, or had some
 * @outbox: built, to be handed to the network in this order after unlocking, by thc_outbox_flush()
 * @flushing: a context is emptying @outbox
 * @scrap: for a packet's payload that nobody keeps; many kernels would clear
 *	it on the stack for each packet
 * @stats: counters, but for @strangers
 *
 * @unclaimed: how the join ended is yet to be told: a signal interrupted the connect() that
 *	waited for it, or the join took a second connect()
 *
 * Options, under lock_sock, read under @lock or without:
 * @timeout_ms, @join_timeout_ms, @window, @memory, @partial
 *
 * Without a lock:
 * @strangers: packets from elsewhere, a part of what stats.foreign shows; on a cache line of its
 *	own, since a flood writes to it
 */
struct thc_sock {
	struct sock		sk;
	struct thc_address	bound;
	struct sockaddr_thc	remote;
	struct hrtimer		timer;
	struct work_struct	join_work;
	struct thc_peer		*peers[THC_GENL_AGGREGATORS_MAX];
	u32			shards;
	u32			joins;
	struct thc_member_key	join_key;
	bool			keyed;
	u8			job_key[THC_KEY_BYTES];
	u32			last_epoch[THC_GENL_AGGREGATORS_MAX];
	bool			has_key;
	u8			key[THC_KEY_BYTES];
	struct list_head	list;
	struct thc_user		*user;

	spinlock_t		lock;
	enum thc_state		state;
	struct thc_failure	failure;
	struct list_head	messages[THC_STREAMS];
	u64			reserved[THC_STREAMS];
	struct list_head	ready;
	u64			refused;
	bool			reading;
	bool			hidden;
	bool			writing[THC_STREAMS];
	bool			turned_away[THC_STREAMS];
	u64			called_at;
	u64			join_until;
	u64			memory_at;
	struct sk_buff_head	outbox;
	bool			flushing;
	u8			scrap[THC_LANE_BYTES] __aligned(8);
	struct thc_socket_stats	stats;
	bool			unclaimed;

	u32			timeout_ms;
	u32			join_timeout_ms;
	u32			window;
	u32			partial;
	u64			memory;

	atomic64_t		strangers ____cacheline_aligned_in_smp;
};

static inline struct thc_sock *thc_sk(const struct sock *sk)
{
	return (struct thc_sock *)sk;
}

extern struct proto thc_proto;

void thc_show_stats(struct thc_sock *ts, struct thc_socket_stats *stats);
int thc_socket_create(struct net *net, struct socket *sock, int protocol, int kern);

#endif /* THC_KMOD_SOCK_H */
