/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A socket of AF_THC: messages go down, their sums come up. The parts, most with a header:
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
 *	memory.c    how much memory all sockets of the host, and of one user, may hold
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
 *	main.c      the family, the module, begin and end of a network namespace
 *
 * The protocol itself is <thc/worker/>, which libthc compiles, too.
 * Documentation/locking.md has the lock order and lifetimes. In short: lock_sock()
 * for system calls among themselves, thc_sock.lock (BH) for everything that a
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
 * @join_work: the part of joining that may sleep: the multicast group, memory
 * @list: in thc_net.sockets
 * @user: who is charged for its peers, messages and flights; NULL: the host alone. Never changes
 *
 * Changed under lock_sock and @lock together, while no timer or packet is under way. Exceptions:
 * connect() increments @joins before it takes the old connection down, and listed.c adds the
 * aggregators of a WELCOME while the join goes on.
 * @peers: the aggregators that it is connected to, by shard number
 * @shards: length of @peers
 * @remote: address of connect()
 * @join_key: key that seals JOIN, zero without a key; connect() with another key means another job
 * @keyed: that job has a secret key
 * @joins: number of the connection; each connect() increments it
 *
 * Written by connect() under both locks. Then join_work owns it, and wipes it when it has derived
 * the epochs' keys; if the join ends before that, thc_disconnect() wipes it:
 * @job_key: secret key of that job
 *
 * Under lock_sock:
 * @last_epoch: by shard, last epoch of the job at @remote in which the socket was ready; 0: none
 * @has_key: @key is set
 * @key: THC_OPT_KEY, for the next connect() to an address. Cannot be read back. Wiped by close()
 *
 * Under @lock:
 * @state: enum thc_state
 * @failure: the reason of THC_STATE_BROKEN
 * @messages: by stream, messages in order of sendmsg(), until all their chunks are answered
 * @reserved: by stream, chunks numbered so far, over all shards
 * @ready: messages that recvmsg() may return
 * @refused: bytes of the last message that found no room, 0: the last message found room
 * @reading: a recvmsg() has the turn to receive
 * @hidden: poll() or another recvmsg() did not see a message because of that turn; cleared when the
 *	call that has the turn ends
 * @writing: by stream, a sendmsg() has the turn to send
 * @turned_away: by stream, a sendmsg() got EAGAIN because another call was sending; cleared when
 *	that call ends
 * @called_at: time of the caller's last sendmsg() or recvmsg() of a message
 * @join_until: time when the join fails
 * @memory_at: time to ask again for memory for the slots, which the host lacked when all ranks were
 *	in; 0: it did not ask, or had enough
 * @outbox: packets built under @lock, in order; thc_outbox_flush() hands them to the network after
 *	unlocking
 * @flushing: a context is handing packets of @outbox to the network
 * @scrap: place for a packet's payload that is not kept; on the stack, many kernels would clear it
 *	for each packet
 * @stats: all counters but @strangers
 *
 * @unclaimed: no call has returned the result of the join yet: a signal interrupted the connect()
 *	that waited for it, or the join took a second connect()
 *
 * Options, under lock_sock, read under @lock or without:
 * @timeout_ms, @join_timeout_ms, @window, @memory, @partial
 *
 * Without a lock:
 * @strangers: packets from other addresses, which stats.foreign includes when shown; on a cache
 *	line of its own, since a flood writes to it
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
