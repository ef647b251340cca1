/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Slots: lookup and lock. What a contribution does to a slot is in include/thc/aggregator/slot.h.
 *
 * The lock is a word taken by compare-and-swap, not a bpf_spin_lock: its holder may not call
 * functions, and a map value with one cannot be mmapped. A holder neither sleeps nor can be killed,
 * since only BPF programs take the lock. But a virtual CPU can be descheduled, so spinning is
 * bounded: then the packet is dropped and counted, and its sender asks again.
 */
#ifndef THC_SLOTS_BPF_H
#define THC_SLOTS_BPF_H

#include "maps.bpf.h"

/* Looks at a taken lock before the packet is dropped: about 2 us, at 1 to 2 ns a look. */
#define THC_LOCK_SPINS 1500

static __always_inline struct thc_slot *thc_slot_get(u32 index)
{
	return bpf_map_lookup_elem(&slots, &index);
}

static __always_inline struct thc_lanes *thc_lanes_get(u32 index)
{
	return bpf_map_lookup_elem(&lanes, &index);
}

/**
 * struct thc_slot_wait - a wait for a slot's lock
 * @slot: the slot
 * @held: this CPU holds the lock now
 */
struct thc_slot_wait {
	struct thc_slot	*slot;
	u64		held;
};

/* One look at a taken lock; 1 is the last one. */
static long thc_slot_look(u32 i, void *context)
{
	struct thc_slot_wait *w = context;
	struct thc_slot *s = w->slot;

	if (*(volatile u32 *)&s->lock || __sync_val_compare_and_swap(&s->lock, 0, 1))
		return 0;
	w->held = 1;
	return 1;
}

/* Waits for a lock that was found taken. Returns 1 with the lock held. */
__noinline int thc_slot_lock_contended(struct thc_slot *s)
{
	struct thc_slot_wait w = { .slot = s };

	if (!s)
		return 0;
	/* the verifier would walk every turn of a plain loop */
	bpf_loop(THC_LOCK_SPINS, thc_slot_look, &w, 0);
	return (int)w.held;
}

static __always_inline int thc_slot_trylock(struct thc_slot *s)
{
	if (__sync_val_compare_and_swap(&s->lock, 0, 1) == 0)
		return 1;
	return thc_slot_lock_contended(s);
}

static __always_inline void thc_slot_unlock(struct thc_slot *s)
{
#ifdef __TARGET_ARCH_x86
	/* x86 keeps stores in order: only the compiler has to be told */
	asm volatile("" ::: "memory");
	*(volatile u32 *)&s->lock = 0;
#else
	/* BPF has no store-release before kernel 6.15; an exchange orders all */
	__sync_lock_test_and_set(&s->lock, 0);
#endif
}

#endif /* THC_SLOTS_BPF_H */
