/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names and meanings of events and drop reasons, for all programs that show counters: thcd, thcctl
 * and thc.ko. The lists follow enum thc_event and enum thc_drop_reason; an enumerator without a
 * name, or in another place, does not compile.
 */
#ifndef THC_NAMES_H
#define THC_NAMES_H

#include <thc/aggregator/event.h>
#include <thc/wire/spec.h>

#define THC_EVENT_LIST(X)								\
	X(ADDED, "added", "contributions counted into a sum")				\
	X(WAITED, "waited", "duplicates for a chunk that is not finished")			\
	X(REPEATED, "repeated", "duplicates for a finished chunk, answered again")		\
	X(STALE, "stale", "contributions to a chunk whose slot has moved on")		\
	X(EPOCH, "epoch", "packets of a session that has ended")				\
	X(MEMBERSHIP, "membership", "JOIN and LEAVE")					\
	X(FINISHED, "finished", "chunks finished by all ranks")				\
	X(CLOSED, "closed", "chunks closed by deadline")					\
	X(SENT, "sent", "answer frames sent")						\
	X(RELAYED, "relayed", "answers handed to thcd to send")				\
	X(LOST, "lost", "answers that could not be sent; workers ask again")

#define THC_DROP_LIST(X)								\
	X(NONE, "none", "not a reason")							\
	X(TRUNCATED, "truncated", "shorter than its headers say")			\
	X(IP_OPTIONS, "ip_options", "IP options, which no THC packet has")		\
	X(FRAGMENT, "fragment", "IP fragment: is the path's MTU below 1500?")		\
	X(VERSION, "version", "another protocol version")				\
	X(OP, "op", "unknown op, or one not taken from the wire")			\
	X(WIDTH, "width", "lane width does not fit op or job")				\
	X(FLAGS, "flags", "a flag a worker may not set")				\
	X(RESERVED, "reserved", "a reserved field is not zero")				\
	X(LENGTH, "length", "payload length does not fit op and width")			\
	X(TAG, "tag", "wrong tag: forged, or corrupted on the way")			\
	X(JOB, "job", "no such job")							\
	X(KEY, "key", "sealed by a key that does not count here")			\
	X(RANK, "rank", "rank not below n, or not joined")				\
	X(ADDRESS, "address", "not from the rank's, or aggregator's, address and port")		\
	X(SLOT, "slot", "slot outside the job, on the wrong port, or not the chunk's")	\
	X(MISMATCH, "mismatch", "op, width or round differ from the slot's")		\
	X(BUSY, "busy", "generation too far ahead")					\
	X(LOCK, "lock", "slot lock not got in time")					\
	X(FLOOD, "flood", "too many JOINs or LEAVEs, of strangers or of one rank")	\
	X(INTERNAL, "internal", "a map lookup failed: a bug")				\
	X(HOPS, "hops", "came through more routers than the job allows")

/* Drop reasons that only workers have. */
#define THC_WORKER_DROP_LIST(X)								\
	X(UNEXPECTED, "unexpected", "an answer nobody waits for: a duplicate, an old one")

#define THC_NAMES_PLACE_EVENT(id, name, meaning) THC_NAMES_EVENT_##id,
#define THC_NAMES_PLACE_DROP(id, name, meaning) THC_NAMES_DROP_##id,
enum thc_names_event_place { THC_EVENT_LIST(THC_NAMES_PLACE_EVENT) THC_NAMES_EVENTS };
enum thc_names_drop_place {
	THC_DROP_LIST(THC_NAMES_PLACE_DROP) THC_NAMES_DROPS,
	THC_NAMES_DROP_UNEXPECTED = THC_NAMES_DROPS,
	THC_NAMES_WORKER_DROPS
};

#define THC_NAMES_ASSERT_EVENT(id, name, meaning)				\
	_Static_assert((int)THC_NAMES_EVENT_##id == (int)THC_EVENT_##id, "place of " name);
#define THC_NAMES_ASSERT_DROP(id, name, meaning)				\
	_Static_assert((int)THC_NAMES_DROP_##id == (int)THC_DROP_##id, "place of " name);
THC_EVENT_LIST(THC_NAMES_ASSERT_EVENT)
THC_DROP_LIST(THC_NAMES_ASSERT_DROP)
THC_WORKER_DROP_LIST(THC_NAMES_ASSERT_DROP)
_Static_assert((int)THC_NAMES_EVENTS == (int)THC_EVENTS, "an event has no name");
_Static_assert((int)THC_NAMES_DROPS == (int)THC_DROP_REASONS, "a drop reason has no name");
_Static_assert((int)THC_NAMES_WORKER_DROPS == (int)THC_WORKER_DROP_REASONS,
	       "a worker's drop reason has no name");

struct thc_name {
	const char *name;
	const char *meaning;
};

#define THC_NAMES_ENTRY(id, name, meaning) { name, meaning },

/* Indexed by enum thc_event and enum thc_drop_reason; not every program uses both. */
static const struct thc_name thc_event_name[]
	__attribute__((unused)) = { THC_EVENT_LIST(THC_NAMES_ENTRY) };
static const struct thc_name thc_drop_name[] __attribute__((unused)) = { THC_DROP_LIST(
	THC_NAMES_ENTRY) THC_WORKER_DROP_LIST(THC_NAMES_ENTRY) };

/* Indexed by enum thc_scheme_id; NULL ends the list. */
#define THC_NAMES_SCHEME(id, name) #name,
static const char *const thc_scheme_name[]
	__attribute__((unused)) = { THC_SCHEMES(THC_NAMES_SCHEME) NULL };
#undef THC_NAMES_SCHEME

/* Indexed by enum thc_seal_type. */
#define THC_NAMES_PLACE_SEAL(id, name) THC_NAMES_SEAL_##id,
#define THC_NAMES_ASSERT_SEAL(id, name)                                                            \
	_Static_assert((int)THC_NAMES_SEAL_##id == (int)THC_SEAL_##id, "place of " #name);
#define THC_NAMES_SEAL(id, name) #name,
enum thc_names_seal_place { THC_SEALS(THC_NAMES_PLACE_SEAL) THC_NAMES_SEALS };
THC_SEALS(THC_NAMES_ASSERT_SEAL)
static const char *const thc_seal_name[] __attribute__((unused)) = { THC_SEALS(THC_NAMES_SEAL) };

/* Can packets be counted under @reason? Programs show no other reason. */
static inline int thc_drop_is_reason(int reason)
{
	return reason != THC_DROP_NONE;
}

/* Does the counter rule of include/thc/aggregator/event.h hold? @fates, @drops: out: both sums. */
static inline int thc_stats_add_up(const struct thc_stats *s, u64 *fates, u64 *drops)
{
	int i;

	*fates = 0;
	*drops = 0;
	for (i = 0; i < THC_EVENT_FATES; i++)
		*fates += s->event[i];
	for (i = 0; i < THC_DROP_REASONS; i++)
		*drops += s->drop[i];
	return s->received == *fates + *drops;
}

#endif /* THC_NAMES_H */
