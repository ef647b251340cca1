// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of a message: packets as they go on the wire, header and payload
 * side by side, so that its pages are sent and sent again without a copy; and
 * room for the sums. It cannot be swapped, so it is charged to the caller's
 * memory cgroup, which need not have a limit, and to user and host, which have
 * one (memory.c).
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "sock.h"
#include "wait.h"

static size_t counts_bytes(u32 chunks)
{
	return (size_t)chunks * sizeof(u16);
}

/* Whole pages, none of which a packet refers to. */
static size_t lanes_bytes(u32 chunks)
{
	return PAGE_ALIGN((size_t)chunks * THC_LANE_BYTES);
}

size_t thc_message_bytes(u32 chunks, u32 stride)
{
	return sizeof(struct thc_message) + PAGE_ALIGN((size_t)chunks * stride) +
	       lanes_bytes(chunks) + counts_bytes(chunks);
}

struct thc_message *thc_message_alloc(struct thc_user *user, u32 chunks, u32 stride)
{
	struct thc_message *m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);

	if (!m)
		return ERR_PTR(-ENOMEM);
	m->bytes = thc_message_bytes(chunks, stride);
	m->user = user;
	if (!thc_memory_charge(user, m->bytes)) {
		kfree(m);
		return ERR_PTR(-ENOBUFS);
	}
	INIT_LIST_HEAD(&m->list);
	INIT_LIST_HEAD(&m->ready);
	refcount_set(&m->refs, 1);
	m->chunks = chunks;
	m->stride = stride;
	m->ranks = ~0ULL;
	m->least = U16_MAX;
	/* One area with the lanes in front: vfree() in a softirq writes a list's link into the
	 * first bytes of the area, while packets on their way still refer to theirs.
	 */
	m->lanes = __vmalloc(lanes_bytes(chunks) + (size_t)chunks * stride, GFP_MESSAGE);
	m->packets = m->lanes + lanes_bytes(chunks);
	m->counts = kvzalloc(counts_bytes(chunks), GFP_MESSAGE);
	if (!m->lanes || !m->counts) {
		thc_message_free(m);
		return ERR_PTR(-ENOMEM);
	}
	return m;
}

/* Packets that are still on their way hold their pages themselves. */
void thc_message_free(struct thc_message *m)
{
	vfree(m->lanes);
	kvfree(m->counts);
	thc_memory_uncharge(m->user, m->bytes);
	kfree(m);
}

void thc_message_put(struct thc_sock *ts, struct thc_message *m)
{
	lockdep_assert_held(&ts->lock);
	if (!refcount_dec_and_test(&m->refs))
		return;
	ts->stats.memory -= m->bytes;
	thc_message_free(m);
	thc_wake_senders(ts);
}

/* A shard's packets lie together, for super-packets. */
void thc_message_place(struct thc_message *m, u32 shards, u64 first)
{
	m->first = first;
	m->before.each = div_u64_rem(first, shards, &m->before.rest);
	m->until.each = div_u64_rem(first + m->chunks, shards, &m->until.rest);
}

u8 *thc_message_packet_of(const struct thc_message *m, u32 shard, u64 sequence)
{
	const struct thc_spread *before = &m->before, *until = &m->until;
	/* the shard's first chunk in the message, in the shard's own numbers */
	u64 local = before->each + (shard < before->rest);
	/* packets of the shards before it */
	u64 base = shard * (until->each - before->each) + min(shard, until->rest) -
		   min(shard, before->rest);

	return m->packets + (base + sequence - local) * m->stride;
}

u8 *thc_message_packet(const struct thc_message *m, u32 shards, u32 index)
{
	u32 shard;
	u64 sequence = div_u64_rem(m->first + index, shards, &shard);

	return thc_message_packet_of(m, shard, sequence);
}

void thc_message_seal(struct thc_message *m, struct thc_sock *ts, int stream)
{
	u32 index, shard, words = (m->stride - sizeof(struct thc_hdr)) / 8;

	for (index = 0; index < m->chunks; index++) {
		u64 sequence = div_u64_rem(m->first + index, ts->shards, &shard);
		struct thc_hdr *h = (struct thc_hdr *)thc_message_packet_of(m, shard, sequence);
		struct thc_peer *p = ts->peers[shard];

		thc_sender_request(&p->sender, thc_peer_stream(p, stream), h, m->send.op,
				   m->send.width, m->send.round, sequence);
		thc_seal(h, p->sender.seal, &p->sender.up, h + 1, words);
		thc_message_resched(index);
	}
}
