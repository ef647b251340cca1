/* SPDX-License-Identifier: GPL-2.0 */
/* A message: one sendmsg() and its answer, and what messages may take of the host's memory. */
#ifndef THC_KMOD_MESSAGE_H
#define THC_KMOD_MESSAGE_H

#include <linux/list.h>
#include <linux/math64.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/types.h>

#include <linux/thc.h>

/* Streams of chunks: gradients, and what ranks agree on (all ops but LUT_ADD and ADD). */
enum { THC_DATA, THC_CONTROL, THC_STREAMS };

/**
 * struct thc_spread - how the first chunks of a stream are spread over the shards
 * @each: chunks that each shard has at least
 * @rest: the first @rest shards have one more
 */
struct thc_spread {
	u64			each;
	u32			rest;
};

/**
 * struct thc_message - one sendmsg() and its answer
 * @list: in thc_sock.messages of its stream until every chunk has its answer
 * @ready: in thc_sock.ready when it can be received
 * @refs: one for each list it is in; sendmsg() and recvmsg() hold one while they copy
 * @first: number of its first chunk in the stream over all shards
 * @chunks: its chunks
 * @answered: its chunks that have their answer, or whose answer is known to be gone
 * @sums: chunks whose sum is in @lanes
 * @digest: sum of the digests of these chunks, for thc_received.digest
 * @stride: bytes of a packet
 * @packets: its packets by shard, then in order: the packets of a shard are contiguous
 * @lanes: sums of the answers, THC_LANE_BYTES a chunk, in the message's order
 * @counts: by chunk, number of contributors and THC_COUNT_EXCLUDED
 * @bytes: memory it is charged with
 * @user: the socket's user, who is charged with @bytes
 * @sent_at: time of sendmsg()
 * @before: chunks of the stream before its first one
 * @until: chunks of the stream up to its last one, inclusive
 * @send: as the caller described it
 * @width: bits of a lane of the sum
 * @ranks: mask of the ranks that contributed to every answered chunk
 * @least: fewest contributors of an answered chunk
 * @flags: THC_RECV_*
 * @closed: delivered incomplete; later answers do not change it
 */
struct thc_message {
	struct list_head	list;
	struct list_head	ready;
	refcount_t		refs;
	u64			first;
	u32			chunks;
	u32			answered;
	u32			sums;
	u32			digest;
	u32			stride;
	u8			*packets;
	u8			*lanes;
	u16			*counts;
	size_t			bytes;
	struct thc_user		*user;
	u64			sent_at;
	struct thc_spread	before;
	struct thc_spread	until;
	struct thc_send		send;
	u8			width;
	u64			ranks;
	u16			least;
	u16			flags;
	bool			closed;
};

struct thc_sock;
struct thc_user;
struct workqueue_struct;

/* --- memory.c: what the host's sockets may hold in all, and those of one user --- */

/* Returns the calling user with a reference, which thc_user_put() drops; NULL: only the host's
 * bound applies; ERR_PTR(-ENOMEM).
 */
struct thc_user *thc_user_get(void);
/* May sleep. The socket has no memory charged and no work queued any more. */
void thc_user_put(struct thc_user *user);
/* For join_work of the user's sockets. */
struct workqueue_struct *thc_user_queue(const struct thc_user *user);
/* Memory for sockets that cannot be swapped, within the bounds of host and user; false: there is no
 * room.
 */
bool thc_memory_charge(struct thc_user *user, size_t bytes);
void thc_memory_uncharge(struct thc_user *user, size_t bytes);

/* --- message.c ------------------------------------------------------------ */

/* A process may ask for more than host or cgroup have: it gets ENOMEM, without an OOM kill. */
#define GFP_MESSAGE	(GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL)

/* Allocates a message with one reference, charged to @user, who outlives it. ERR_PTR(-ENOBUFS):
 * beyond the bound of host or user; ERR_PTR(-ENOMEM).
 */
struct thc_message *thc_message_alloc(struct thc_user *user, u32 chunks, u32 stride);
void thc_message_free(struct thc_message *m);
void thc_message_put(struct thc_sock *ts, struct thc_message *m);
/* Bytes thc_message_alloc() takes. */
size_t thc_message_bytes(u32 chunks, u32 stride);
/* Gives the message's chunks their numbers in the stream, from @first on. */
void thc_message_place(struct thc_message *m, u32 shards, u64 first);
/* Where chunk @index of the message has its packet; header first. */
u8 *thc_message_packet(const struct thc_message *m, u32 shards, u32 index);
/* Writes all headers; the payloads are in. */
void thc_message_seal(struct thc_message *m, struct thc_sock *ts, int stream);
/* The packet of the chunk whose number on @shard is @sequence. */
u8 *thc_message_packet_of(const struct thc_message *m, u32 shard, u64 sequence);

/* A call with more chunks than this lets others have the CPU in between. */
#define THC_RESCHED_CHUNKS	256

/* Called without spinlocks, in a loop over chunks, at chunk @index. */
static inline void thc_message_resched(u32 index)
{
	if (index % THC_RESCHED_CHUNKS == THC_RESCHED_CHUNKS - 1)
		cond_resched();
}

#endif /* THC_KMOD_MESSAGE_H */
