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
 * @owner: what it belongs to (the caller's); NULL: the slot is free
 * @packet: header and payload, kept by @owner until the answer
 * @sequence: of the chunk in its stream
 * @first_at: time of the first transmission
 * @sent_at: time of the last one
 * @due: retransmit then
 * @first_order: number of the first one among all of the worker's
 * @order: number of the last one, or of the next when WAIT came
 * @present: ranks whose contribution is in, by the last WAIT
 * @differs: ranks that sent something else for the chunk: this one is not in
 * @index: chunk of @owner (the caller's)
 * @bytes: of the packet
 * @tries: transmissions beyond the first
 * @waiting: a WAIT came after the last transmission
 * @cut: the last transmission was taken for a loss and cut the window
 * @left: that WAIT said that a missing rank has left
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

/* A packet that can go out: see struct thc_flight. */
struct thc_ready {
	void			*owner;
	const struct thc_hdr	*packet;
	u32			index;
	u16			bytes;
};

/**
 * struct thc_stream - chunks in sequence over a range of slots
 * @flight: by slot, relative to @slot_base; the caller's memory
 * @next: sequence number to be sent next
 * @oldest: sequence number of the oldest in flight, @next if none is
 * @reserved: sequence numbers given out so far
 * @order_answered: newest first transmission answered. By stream, since a
 *	control chunk may rightly wait for ranks that are still busy with data
 * @slot_base: first slot
 * @slots: how many
 * @in_flight: slots taken
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

/* Nothing is in flight any more; what was reserved is given up. */
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

/* Is the packet about the chunk that is, or was last, in flight there? */
THC_INLINE int thc_flight_matches(const struct thc_stream *s, const struct thc_flight *f,
				  const struct thc_hdr *h)
{
	return thc_be32(h->chunk) == (u32)f->sequence &&
	       thc_be32(h->generation) == thc_place(s->slot_base, s->slots, f->sequence).generation;
}

#endif /* THC_STREAM_H */
