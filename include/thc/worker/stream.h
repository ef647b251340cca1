/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Chunks in sequence over a range of slots, and what of them is in flight.
 *
 * Chunk q of a stream lives in slot q mod slots, generation q div slots, and
 * may be sent once chunk q - slots has its answer. That rule is what keeps
 * results from being overwritten while somebody still needs them
 * (<thc/aggregator/slot.h> says why).
 *
 *	          launch                        answer, or STALE that says
 *	 (free) ---------> IN FLIGHT ---------------------------------> (free)
 *	                   |  ^    ^ |           who was in: land
 *	            again  +--+    +-+  WAIT
 */
#ifndef THC_STREAM_H
#define THC_STREAM_H

#include <thc/wire/route.h>

/**
 * struct thc_flight - one slot's packet in flight
 * @owner: the caller's object that the packet belongs to; NULL: the slot is free
 * @packet: header and payload, kept by @owner until the answer
 * @sequence: sequence number of the chunk in its stream
 * @first_at: time of the first transmission
 * @sent_at: time of the last transmission
 * @due: when to retransmit
 * @first_order: number of the first transmission among all of the worker's
 * @order: number of the last transmission, or of the next one when WAIT came
 * @present: ranks whose contribution is in, by the last WAIT
 * @differs: ranks that sent other data for the chunk, so this contribution was not added
 * @index: number of the chunk in @owner, the caller's
 * @bytes: of the packet
 * @tries: transmissions beyond the first
 * @waiting: a WAIT came after the last transmission
 * @cut: the last transmission was taken for a loss and cut the window
 * @left: the last WAIT said that a missing rank has left
 * @ce: the aggregator has said that a contribution to the chunk met congestion
 */
struct thc_flight {
	void			*owner;
	const struct thc_hdr	*packet;
	u64			sequence;
	u64			first_at;
	u64			sent_at;
	u64			due;
	u64			first_order;
	u64			order;
	u64			present;
	u64			differs;
	u32			index;
	u16			bytes;
	u8			tries;
	u8			waiting;
	u8			cut;
	u8			left;
	u8			ce;
};

/* A packet that is ready to be sent; fields as in struct thc_flight. */
struct thc_ready {
	void			*owner;
	const struct thc_hdr	*packet;
	u32			index;
	u16			bytes;
};

/**
 * struct thc_stream - chunks in sequence over a range of slots
 * @flight: by slot, relative to @slot_base; the caller's memory
 * @next: sequence number of the next chunk to send
 * @oldest: sequence number of the oldest chunk in flight, @next if there is none
 * @reserved: sequence numbers that the caller has reserved so far
 * @order_answered: largest @first_order that was answered. Each stream has its own, since a control
 *	chunk may rightly wait for ranks that are still busy with data
 * @slot_base: first slot
 * @slots: number of slots
 * @in_flight: number of slots in use
 */
struct thc_stream {
	struct thc_flight	*flight;
	u64			next;
	u64			oldest;
	u64			reserved;
	u64			order_answered;
	u32			slot_base;
	u32			slots;
	u32			in_flight;
};

/* @flight: zeroed, room for @slots flights. */
THC_INLINE void thc_stream_init(struct thc_stream *s, struct thc_flight *flight, u32 slot_base,
				u32 slots)
{
	s->flight = flight;
	s->next = 0;
	s->oldest = 0;
	s->reserved = 0;
	s->order_answered = 0;
	s->slot_base = slot_base;
	s->slots = slots;
	s->in_flight = 0;
}

/* The oldest chunk in flight, or NULL. */
THC_INLINE const struct thc_flight *thc_stream_oldest(const struct thc_stream *s)
{
	return s->in_flight ? &s->flight[s->oldest % s->slots] : NULL;
}

/* Forgets all packets in flight, and gives up the chunks that were reserved. */
THC_INLINE void thc_stream_forget(struct thc_stream *s)
{
	u32 i;

	for (i = 0; i < s->slots; i++)
		s->flight[i].owner = NULL;
	s->in_flight = 0;
	s->next = s->reserved;
	s->oldest = s->next;
}

/* Chunk, slot and generation of @sequence. */
THC_INLINE void thc_stream_fill(const struct thc_stream *s, struct thc_hdr *h, u64 sequence)
{
	struct thc_place at = thc_place(s->slot_base, s->slots, sequence);

	h->chunk = thc_be32((u32)sequence);
	h->slot = thc_be16((u16)at.slot);
	h->generation = thc_be32(at.generation);
}

THC_INLINE struct thc_flight *thc_stream_flight(const struct thc_stream *s, u64 sequence)
{
	return &s->flight[sequence % s->slots];
}

/* May @next be sent, as far as window and slots go? */
THC_INLINE int thc_stream_may_send(const struct thc_stream *s, u32 window)
{
	return s->next < s->reserved && s->in_flight < window &&
	       !thc_stream_flight(s, s->next)->owner;
}

/* Is the packet about the chunk that is in flight in @f's slot, or was the last one there? */
THC_INLINE int thc_flight_matches(const struct thc_stream *s, const struct thc_flight *f,
				  const struct thc_hdr *h)
{
	return thc_be32(h->chunk) == (u32)f->sequence &&
	       thc_be32(h->generation) == thc_place(s->slot_base, s->slots, f->sequence).generation;
}

#endif /* THC_STREAM_H */
