/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's private structures. A message goes down and its answer up:
 *
 *	socket.c    birth, bind, poll, shutdown, death
 *	connect.c   joining a job, leaving it (address.c: struct sockaddr_thc)
 *	send.c      sendmsg()
 *	recv.c      recvmsg()
 *	options.c   socket options
 *	wait.c      what system calls wait for
 *	message.c   memory of a message: packets up, lanes down
 *	memory.c    how much of it the host's sockets, and one user's, may hold
 *	engine.c    the job's clock: what is sent, what an answer changes
 *	join.c      JOIN, WELCOME, LEAVE
 *	receive.c   UDP packets in, out of the network's softirq
 *	transmit.c  packets out, as UDP super-packets over the message's pages
 *	peer.c      UDP sockets to one aggregator
 *	netns.c     what belongs to a network namespace, its sockets
 *	hostjob.c   jobs that its administrator has described
 *	stats.c     counters of both, and words for states and reasons
 *	netlink.c   the administrator's side: generic netlink (netlink.h)
 *	netlink_job.c, netlink_show.c	its commands: host jobs; sockets and counters
 *	proc.c      /proc/net/thc
 *	trace.h     tracepoints
 *	main.c      the family and the module
 *
 * The protocol itself is <thc/worker/flight.h>, which libthc compiles, too.
 * Documentation/locking.md says who holds what when; in short: lock_sock() for
 * system calls among themselves, thc_sock.lock (BH) for everything that a
 * packet can change, and no packet is handed to the network under either lock.
 */
#ifndef THC_KMOD_SOCK_H
#define THC_KMOD_SOCK_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>
#include <net/dst.h>
#include <net/sock.h>

#include <linux/thc_netlink.h>
#include <thc/worker/flight.h>
#include <thc/aggregator/admit.h>

#include "compat/compat.h"

/* Aggregators that may share a job's chunks. */
#define THC_SHARDS_MAX		THC_GENL_AGGREGATORS_MAX
#define THC_TIMEOUT_MS		60000U
#define THC_JOIN_TIMEOUT_MS	60000U
/* A group that could not be joined is not tried again sooner. */
#define THC_GROUP_RETRY_MS	1000U
/* A rank that leaves ends a socket this long after the last message sent or
 * received: what was complete without that rank may still be on its way through
 * the caller.
 */
#define THC_LEFT_GRACE_MS	200
/* Bytes of messages a socket may hold, unless it asks for less or more. */
#define THC_MEMORY_DEFAULT	(256ULL << 20)
#define THC_MEMORY_MAX		(4ULL << 30)
/* LEAVE is not answered: one of three arrives almost surely. */
#define THC_LEAVES		3

/* Where an aggregator is, or a local end. */
struct thc_address {
	u16		inet;		/* AF_INET, AF_INET6; 0: none */
	__be16		port;
	int		ifindex;
	union {
		__be32		in;
		struct in6_addr	in6;
	};
};

/* A call with more chunks than this lets others have the CPU in between. */
#define THC_BREATH_CHUNKS	256

/* Streams of chunks: gradients, and norms with their agreements. */
enum { THC_DATA, THC_NORM, THC_STREAMS };

/**
 * struct thc_message - one sendmsg() and its answer
 * @link: in thc_sock.messages of its stream until every chunk has its answer
 * @ready: in thc_sock.ready when it can be received
 * @refs: one for each of these lists
 * @first: number of its first chunk in the stream over all shards
 * @chunks: how many
 * @answered: of them
 * @stride: bytes of a packet
 * @packets: by shard, then in order: each shard's packets are contiguous
 * @lanes: the answers', THC_LANE_BYTES a chunk, in the message's order
 * @counts: contributors of each chunk, THC_COUNT_EXCLUDED
 * @bytes: memory it is charged with
 * @user: who is charged, the socket's
 * @sent_at: time of sendmsg()
 * @base: index of each shard's first packet
 * @local: each shard's first chunk, in the shard's own numbers
 * @send: as the caller described it
 * @width: bits of a lane of the sum
 * @ranks: those in every chunk answered
 * @least: contributors of the chunk answered that has the fewest
 * @flags: THC_RECV_*
 * @closed: to be received as it is, incomplete; what comes now comes too late
 */
struct thc_message {
	struct list_head	link;
	struct list_head	ready;
	refcount_t		refs;
	u64			first;
	u32			chunks;
	u32			answered;
	u32			stride;
	u8			*packets;
	u8			*lanes;
	u16			*counts;
	size_t			bytes;
	struct thc_user		*user;
	u64			sent_at;
	u32			base[THC_SHARDS_MAX];
	u64			local[THC_SHARDS_MAX];
	struct thc_send		send;
	u8			width;
	u64			ranks;
	u16			least;
	u16			flags;
	bool			closed;
};

/**
 * struct thc_route - how packets to one port leave; rules may tell ports apart
 * @dst: what the network has said, NULL: it is to be asked
 * @cookie: @dst is valid as long as it is, for IPv6
 * @in, @in6: our address on that route
 */
struct thc_route {
	struct dst_entry	*dst;
	u32			cookie;
	union {
		__be32		in;
		struct in6_addr	in6;
	};
};

/**
 * struct thc_peer - one aggregator of a socket's job
 * @owner: the socket
 * @address: where it is, base port
 * @unicast: requests out, answers to this rank in; owns what is on its way out
 * @room: bytes that may be on their way, as @unicast counts them
 * @group: answers to all ranks in: connect() makes it, join_work joins the group; NULL when
 *	joining has ended without a group
 * @in_group: it has joined; under thc_sock.lock
 * @route: by UDP port of the aggregator, from its first one on; whoever empties the outbox uses
 *	them, one context at a time
 * @local: our end of @unicast, on the interface that led to the aggregator
 * @oif: the interface that was asked for, 0: the route's, which may change
 * @sender: the protocol's state
 * @flights: room of its streams, @flights_bytes
 * @sending: by stream, the message with the chunk to be sent next, or NULL; it
 *	has no answer to that chunk, so it is in thc_sock.messages
 * @nonce: of our JOIN
 * @joined: what WELCOME said last; @welcomed: it came
 * @heard: a WELCOME came over the group
 * @group_at: the group may be joined from then on; 0: at once
 * @ready: all ranks are in, @joined is final
 * @join_at: next JOIN; @joins: those of this joining
 * @unreachable: the network's last complaint, negative errno
 * @look_at: time to look for what is overdue, unless an answer comes before
 * @shard: its index
 */
struct thc_peer {
	struct thc_sock		*owner;
	struct thc_address	address;
	struct socket		*unicast;
	size_t			room;
	struct socket		*group;
	bool			in_group;
	struct thc_route	route[THC_PORT_SPAN];
	struct thc_address	local;
	u32			oif;
	struct thc_sender	sender;
	struct thc_flight	*flights;
	size_t			flights_bytes;
	struct thc_message	*sending[THC_STREAMS];
	u64			nonce;
	struct thc_joined	joined;
	bool			welcomed;
	bool			heard;
	bool			ready;
	u64			group_at;
	u64			join_at;
	u32			joins;
	int			unreachable;
	u64			look_at;
	u32			shard;
};

enum thc_state {
	THC_STATE_IDLE,		/* not connected */
	THC_STATE_JOINING,	/* connect() under way */
	THC_STATE_READY,
	THC_STATE_BROKEN,	/* failure says why; connect() again */
};

/* What is to be handed to the network after unlocking, by thc_outbox_flush(). */
struct thc_outbox {
	struct sk_buff_head	packets;
};

/**
 * struct thc_sock - a socket of AF_THC
 * @bound: local address of bind(), inet 0: none
 * @timer: next retransmission, JOIN or timeout
 * @join_work: what of joining may sleep: the multicast group, memory
 * @peers: connected to; changed under lock_sock and @lock, while no timer or
 *	packet is under way
 * @shards: how many, changed likewise
 * @remote: address of connect(), changed likewise
 * @joins: times it was connected, changed likewise
 * @last_epoch: by shard, the last epoch that was ready of the job at @remote, 0: none;
 *	under lock_sock
 * @link: in thc_net.sockets
 * @user: whose memory its messages and flights are, NULL: the host's alone; stays as it is
 *
 * Under @lock:
 * @state: enum thc_state
 * @failure: why THC_STATE_BROKEN
 * @messages: by stream, in order, until all chunks are answered
 * @reserved: by stream, chunks given out over all shards
 * @ready: messages to be received
 * @refused: bytes of the message for which there was no room last, 0: there was
 * @reading: a recvmsg() has the turn
 * @writing: by stream, a sendmsg() has the turn
 * @turned_away: by stream, a sendmsg() returned for want of the turn that is still taken
 * @called_at: time a message was last sent or received by the caller
 * @join_until: JOIN gives up then
 * @outbox: built, to be handed to the network in this order
 * @flushing: somebody is doing that
 * @scrap: for lanes that nobody wants but the packet's sum; many kernels would clear
 *	them on the stack for each packet
 * @stats: counters, but for @strangers
 *
 * @unclaimed: a connect() that waited for the join under way has not told how it
 *	ended: a signal interrupted it
 *
 * Options, under lock_sock, read under @lock or without:
 * @timeout_ms, @join_timeout_ms, @window, @memory, @partial
 *
 * Without a lock:
 * @strangers: packets from elsewhere, a part of what stats.foreign shows; on a cache line of its
 *	own, since who floods us writes to it
 */
struct thc_sock {
	struct sock		sk;
	struct thc_address	bound;
	struct sockaddr_thc	remote;
	struct hrtimer		timer;
	struct work_struct	join_work;
	struct thc_peer		*peers;
	u32			shards;
	u32			joins;
	u32			last_epoch[THC_SHARDS_MAX];
	struct list_head	link;
	struct thc_user		*user;

	spinlock_t		lock;
	enum thc_state		state;
	struct thc_failure	failure;
	struct list_head	messages[THC_STREAMS];
	u64			reserved[THC_STREAMS];
	struct list_head	ready;
	u64			refused;
	bool			reading;
	bool			writing[THC_STREAMS];
	bool			turned_away[THC_STREAMS];
	u64			called_at;
	u64			join_until;
	struct thc_outbox	outbox;
	bool			flushing;
	u8			scrap[THC_LANE_BYTES];
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

static inline struct thc_stream *thc_peer_stream(struct thc_peer *p, int kind)
{
	return kind == THC_DATA ? &p->sender.data : &p->sender.norms;
}

/* In a loop over chunks, at @index of them. Without spinlocks. */
static inline void thc_breathe(u32 index)
{
	if (index % THC_BREATH_CHUNKS == THC_BREATH_CHUNKS - 1)
		cond_resched();
}

/* --- message.c ------------------------------------------------------------ */

/* A process may ask for more than there is, or than its cgroup may have: ENOMEM is enough of
 * an answer, nobody is to be killed for it.
 */
#define GFP_MESSAGE	(GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL)

/* Charged to @user, who stays; ERR_PTR(-ENOBUFS): the host's messages, or the user's, have no room
 * for it; ERR_PTR(-ENOMEM).
 */
struct thc_message *thc_message_alloc(struct thc_user *user, u32 chunks, u32 stride);
void thc_message_free(struct thc_message *m);
/* Called with thc_sock.lock held. */
void thc_message_put(struct thc_sock *ts, struct thc_message *m);
/* Bytes thc_message_alloc() takes. */
size_t thc_message_bytes(u32 chunks, u32 stride);
/* It is to be chunks from @first on of a stream. */
void thc_message_place(struct thc_message *m, u32 shards, u64 first);
/* Where chunk @index of the message has its packet; header first. */
u8 *thc_message_packet(const struct thc_message *m, u32 shards, u32 index);
/* Writes all headers; the payloads are in. */
void thc_message_seal(struct thc_message *m, struct thc_sock *ts, int kind);
/* The packet of the chunk whose number on @shard is @sequence. */
u8 *thc_message_packet_of(const struct thc_message *m, u32 shard, u64 sequence);

/* --- memory.c ------------------------------------------------------------- */

struct thc_user;

/* Who opens a socket, until thc_user_put(); NULL: only the host's bound is for this one;
 * ERR_PTR(-ENOMEM).
 */
struct thc_user *thc_user_get(void);
void thc_user_put(struct thc_user *user);
/* Memory for sockets that cannot be swapped, within the bounds of host and user; false: there is no
 * room.
 */
bool thc_memory_charge(struct thc_user *user, size_t bytes);
void thc_memory_uncharge(struct thc_user *user, size_t bytes);

/* --- engine.c ------------------------------------------------------------- */

void thc_engine_init(struct thc_sock *ts);
/* Sends what may be sent, again what is overdue, and sets the timer. */
void thc_engine_run(struct thc_sock *ts);
void thc_engine_kick(struct thc_sock *ts);
/* The clock is to run at @when; false: it does not run any more. */
bool thc_engine_wake(struct thc_sock *ts, u64 when);
/* Nothing moves any more until connect() is called again. Called with the lock. */
void thc_engine_break(struct thc_sock *ts, int error, enum thc_failure_reason reason);
/* Chunk @index of @m has its answer, or (@answered 0) will not get one. */
void thc_engine_landed(struct thc_sock *ts, struct thc_message *m, u32 index,
		       const struct thc_hdr *h, bool answered);

/* --- join.c --------------------------------------------------------------- */

int thc_join_init(void);
void thc_join_exit(void);
void thc_join_begin(struct thc_sock *ts, u64 now);
/* JOINs that are due; lowers *@due to the time of the next. */
void thc_join_run(struct thc_sock *ts, u64 now, u64 *due);
enum thc_drop_reason thc_join_welcome(struct thc_peer *p, const struct thc_hdr *h,
				      const struct thc_welcome *w);
void thc_join_work(struct work_struct *work);
void thc_join_leave(struct thc_sock *ts);

/* --- receive.c ------------------------------------------------------------ */

/* sk_data_ready of the UDP sockets. */
void thc_receive(struct sock *sk);

/* --- transmit.c ----------------------------------------------------------- */

/**
 * struct thc_train - packets that leave as one super-packet
 * @next: where the next one has to begin to be part of it
 */
struct thc_train {
	struct thc_peer		*peer;
	struct sk_buff		*skb;
	const u8		*next;
	u16			port;
	u16			bytes;
	u16			packets;
};

/* Appends the packet at @data, in pages of a message, to the train. */
bool thc_train_add(struct thc_train *t, struct thc_outbox *out, struct thc_peer *p, const u8 *data,
		   u16 bytes, u16 port);
void thc_train_end(struct thc_train *t, struct thc_outbox *out);
/* A control packet, copied. */
void thc_send_control(struct thc_peer *p, struct thc_outbox *out, struct thc_hdr *h,
		      const void *payload, u32 bytes);
/* Without locks, by everybody who has put something there. */
void thc_outbox_flush(struct thc_sock *ts);
/* Bytes of packets that may be on their way when @window chunks may be in flight:
 * each of these twice.
 */
size_t thc_transmit_room(u32 window);
/* May packets be built for @p? If not, those on their way have to arrive first. */
bool thc_peer_has_room(const struct thc_peer *p);
/* Forgets all routes to @p. */
void thc_routes_free(struct thc_peer *p);
/* Bytes on the wire of a packet with @bytes of UDP payload. */
u32 thc_wire_bytes(const struct thc_peer *p, u32 bytes);

/* --- peer.c --------------------------------------------------------------- */

/* Is this @p's aggregator, on one of its ports? @address: of the IP version that @protocol
 * (ETH_P_*) says. Needs no lock: where an aggregator is stays as connect() has it.
 */
bool thc_peer_is_at(const struct thc_peer *p, __be16 protocol, const void *address, __be16 port);
/* Towards @p->address, for @p->owner, by the process that connects it. What there is after an
 * error is thc_peer_free()'s.
 */
int thc_peer_open(struct thc_peer *p);
/* No packet comes to @p any more, but one may be under way. */
void thc_peer_silence(struct thc_peer *p);
/* After thc_peer_silence() and synchronize_net(). */
void thc_peer_free(struct thc_peer *p);
/* The job has a group that @p can be in: of its IP version. Called with thc_sock.lock held. */
bool thc_peer_has_group(const struct thc_peer *p);
int thc_peer_join_group(struct thc_peer *p);
/* Nobody will be heard there. */
void thc_peer_close_group(struct thc_peer *p);
/* Room for the job's slots; -ENOMEM. */
int thc_peer_streams(struct thc_peer *p);

/* --- address.c ------------------------------------------------------------ */

/* -EINVAL: a reserved field, or what lies beyond the address, is not zero. */
int thc_address_check(const struct sockaddr_unsized *name, int len);
int thc_address_take(const struct sockaddr_thc *a, struct thc_address *out);
/* One host's, as an aggregator's has to be: not a group, not all, not none. */
bool thc_address_is_host(const struct thc_address *a);
void thc_address_name(const struct thc_address *from, struct sockaddr_thc *a);

/* --- wait.c --------------------------------------------------------------- */

/* Sleeps until @done, without locks. 0, or what the call returns instead. @done
 * may take what it finds: it returns true no more than once.
 */
int thc_wait_for(struct thc_sock *ts, bool (*done)(struct thc_sock *ts, u64 need), u64 need,
		 long *timeo);
enum thc_state thc_state_of(struct thc_sock *ts);
/* Connections of the socket so far. */
u32 thc_joins_of(struct thc_sock *ts);
/* Connection number @joins is not being made any more, or has been replaced. */
bool thc_has_joined(struct thc_sock *ts, u64 joins);
/* The same, or nothing may be sent any more. */
bool thc_may_send(struct thc_sock *ts, u64 joins);
/* There is room for @need bytes, or no point in waiting; poll() is told if not. */
bool thc_has_room(struct thc_sock *ts, u64 need);
/* There is one that nobody is receiving, or no point in waiting; likewise. */
bool thc_has_message(struct thc_sock *ts, u64 joins);

/* --- connect.c, send.c, recv.c, options.c --------------------------------- */

int thc_connect(struct socket *sock, struct sockaddr_unsized *name, int len, int flags);
void thc_disconnect(struct thc_sock *ts);
/* 0 when joined, or why not. */
int thc_outcome(struct thc_sock *ts);
int thc_sendmsg(struct socket *sock, struct msghdr *msg, size_t len);
int thc_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags);
int thc_setsockopt(struct socket *sock, int level, int option, sockptr_t from, unsigned int len);
int thc_getsockopt(struct socket *sock, int level, int option, sockopt_t *opt);

/* --- netns.c, hostjob.c --------------------------------------------------- */

/**
 * struct thc_ids - a range of users, or of groups
 * @first: number in the user namespace that owns the network namespace
 * @last: in the range, too; U32_MAX never is. The range is empty if @first is more
 */
struct thc_ids {
	u32			first;
	u32			last;
};

/**
 * struct thc_host_job - a job that the host's administrator knows
 * @link: in thc_net.jobs
 * @id: its number
 * @shards: aggregators, in the order of shards
 * @cookie: its secret, which the processes of the host need not have
 * @users: may be ranks of it
 * @groups: their members may be ranks of it, too
 * @aggregator: base ports included
 */
struct thc_host_job {
	struct list_head	link;
	u16			id;
	u32			shards;
	u64			cookie;
	struct thc_ids		users;
	struct thc_ids		groups;
	struct thc_address	aggregator[THC_SHARDS_MAX];
};

/**
 * struct thc_net - what the module keeps for a network namespace
 * @lock: guards both lists; taken outside of every socket's locks
 * @sockets: all of AF_THC
 * @sockets_generation: another one after each change of that list
 * @jobs: of netlink, at most THC_GENL_JOBS_MAX
 * @jobs_count: length of that list
 * @jobs_generation: another one after each change of that list
 * @drops: received packets that changed nothing, by enum thc_drop_reason
 */
struct thc_net {
	struct mutex		lock;
	struct list_head	sockets;
	u32			sockets_generation;
	struct list_head	jobs;
	u32			jobs_count;
	u32			jobs_generation;
	u64 __percpu		*drops;
};

/* Under thc_net.lock. Never 0: netlink takes that for a dump that has just begun. */
static inline void thc_generation_next(u32 *generation)
{
	*generation = *generation + 1 ?: 1;
}

struct thc_net *thc_net_of(const struct net *net);
void thc_net_add(struct thc_sock *ts);
void thc_net_del(struct thc_sock *ts);
/* 0: @job is the namespace's now; -EEXIST; -ENOSPC: there are THC_GENL_JOBS_MAX. */
int thc_host_job_add(struct net *net, struct thc_host_job *job);
int thc_host_job_del(struct net *net, u16 id);
/* A copy, with the cookie: who takes it wipes it. */
int thc_host_job_find(struct net *net, u16 id, struct thc_host_job *out);
/* A copy for the calling process, which is to be a rank. -EPERM: it may not; its effective user
 * and all its groups count, and CAP_NET_ADMIN is always enough.
 */
int thc_host_job_enter(struct net *net, u16 id, struct thc_host_job *out);
void thc_host_jobs_free(struct thc_net *tn);
int thc_netns_init(void);
void thc_netns_exit(void);

/* --- stats.c -------------------------------------------------------------- */

/* One word for a state, a reason: the same in netlink, /proc and traces. */
extern const char *const thc_state_name[];
const char *thc_reason_name(enum thc_drop_reason reason);
/* Called with thc_sock.lock held. */
void thc_show_stats(struct thc_sock *ts, struct thc_socket_stats *stats);
void thc_net_drop(struct thc_sock *ts, enum thc_drop_reason reason);
u64 thc_net_drops(struct thc_net *tn, enum thc_drop_reason reason);

/* --- netlink.c, proc.c ---------------------------------------------------- */

int thc_netlink_init(void);
void thc_netlink_exit(void);
int thc_proc_init(struct net *net);
void thc_proc_exit(struct net *net);

/* --- socket.c ------------------------------------------------------------- */

int thc_socket_create(struct net *net, struct socket *sock, int protocol, int kern);
int thc_socket_init(void);
void thc_socket_exit(void);

#endif /* THC_KMOD_SOCK_H */
