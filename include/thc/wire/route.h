/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The place of a chunk: chunk q of a stream belongs to aggregator q mod shards, as its chunk q div
 * shards. At that aggregator chunk q lives in slot q mod slots, in the slot's generation q div
 * slots. A slot is reached on a UDP port of its own or on the first one. Workers and aggregators
 * both use these functions, so that they agree.
 */
#ifndef THC_ROUTE_H
#define THC_ROUTE_H

#include <thc/types.h>

/* Chunks of a stream below @number that are @shard's. */
THC_INLINE u64 thc_shard_part(u64 number, u32 shards, u32 shard)
{
	return (number + shards - 1 - shard) / shards;
}

/* The number of the stream's chunk that is @shard's chunk @sequence. */
THC_INLINE u64 thc_shard_number(u64 sequence, u32 shards, u32 shard)
{
	return sequence * shards + shard;
}

/* A slot's number in its job, and its generation modulo 2^32. */
struct thc_place {
	u32	slot;
	u32	generation;
};

/* Chunk @sequence of the stream whose slots are @base .. @base + @slots - 1. */
THC_INLINE struct thc_place thc_place(u32 base, u32 slots, u64 sequence)
{
	struct thc_place r = {
		.slot = base + (u32)(sequence % slots),
		.generation = (u32)(sequence / slots),
	};

	return r;
}

/* The chunk, modulo 2^32, that @r is for in a job of @slots slots: the first @data_slots belong to
 * the data stream, the rest to the control stream.
 */
THC_INLINE u32 thc_place_chunk(struct thc_place r, u32 data_slots, u32 slots)
{
	u32 control_slots = slots - data_slots;

	return r.slot < data_slots ? r.generation * data_slots + r.slot :
				     r.generation * control_slots + r.slot - data_slots;
}

/* The UDP port slot @slot is reached on. */
THC_INLINE u16 thc_slot_port(u16 port_base, u32 slot)
{
	return port_base + slot / THC_SLOTS_PER_PORT;
}

#endif /* THC_ROUTE_H */
