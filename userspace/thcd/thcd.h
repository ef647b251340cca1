/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the daemon share: its one state object and the types of
 * its parts. thcd is a single thread around poll(); nothing here is locked.
 * The data path of XDP mode runs beside it in the kernel and meets it in
 * mmapped maps only (jobs.c says in which order those are written).
 */
#ifndef THCD_H
#define THCD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <thc/aggregator/bucket.h>
#include <thc/aggregator/job.h>
#include <thc/aggregator/maps.h>
#include <thc/aggregator/nibble.h>
#include <thc/aggregator/reaction.h>
#include <thc/aggregator/slot.h>

#include "../aggregator/record.h"
#include "../aggregator/report.h"
#include "challenge.h"
#include "libthc.h"

#define THCD_LISTEN_MAX		2
#define THCD_TEXT_MAX		512

/* A sentence about what went wrong and what to do. */
struct thcd_error {
	char	text[THCD_TEXT_MAX];
};

/* Fills in the sentence and returns -1. */
int thcd_fail(struct thcd_error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* clang's analyser sees one file at a time and would assume that thcd_fail() may return 0. */
#ifdef __clang_analyzer__
#define thcd_fail(...) (thcd_fail(__VA_ARGS__), -1)
#endif

/* One line on stderr. */
void thcd_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define THCD_SAID	16

/**
 * struct thcd_said - a line on stderr, kept to limit its repetition
 * @at_ms: when the line was printed last (monotonic), 0: never
 * @more: equal lines left out since then
 */
struct thcd_said {
	uint64_t	at_ms;
	unsigned int	more;
	char		text[THCD_TEXT_MAX];
};

/**
 * struct thcd_limit - the limit of one call of thcd_say_limited()
 * @second: the second (monotonic) that @lines counts
 * @lines: lines of @second, printed or beyond the rate
 * @said: the last different lines, the oldest at @next modulo THCD_SAID
 */
struct thcd_limit {
	uint64_t		second;
	unsigned int		lines;
	unsigned int		next;
	struct thcd_said	said[THCD_SAID];
};

/* For this time an equal line is left out; the next one printed tells how often that was. */
#define THCD_SAY_AGAIN_MS	10000

bool thcd_say_within(struct thcd_limit *l, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* For lines that remote hosts can cause. Returns false if the line was left out. Each call has a
 * limit of its own, so that a flood at one call does not silence another.
 */
#define thcd_say_limited(...) \
	({ \
		static struct thcd_limit limit; \
		thcd_say_within(&limit, __VA_ARGS__); \
	})

/* Monotonic milliseconds. */
uint64_t thcd_now_ms(void);

/* Counters only the daemon has, beside struct thc_stats. */
struct thcd_counters {
#define THCD_COUNTER(name, meaning) u64 name;
	THCD_COUNTERS(THCD_COUNTER)
#undef THCD_COUNTER
};

struct thcd_socket {
	int		fd;
	int		family;
	unsigned int	ifindex;
	struct thc_addr	addr;
	u32		lost;	/* SO_RXQ_OVFL at last sight */
	int		room;	/* bytes of packets that may wait to be sent */
};

struct thcd_xdp;
struct ring_buffer;

/* The daemon's state. Arrays are maps (XDP) or plain memory (software). */
struct thcd {
	struct thc_job		*job;		/* THC_JOBS_MAX */
	struct thc_seals	*seals;		/* THC_JOBS_MAX */
	struct thcd_record	*record;	/* THC_JOBS_MAX */
	struct thc_slot		*slot;		/* slots */
	struct thc_lanes	*lanes;		/* slots */
	struct thc_pairs	*pairs;		/* THC_ROWS_MAX; software mode only */
	u32			slots;
	u16			port;
	bool			software;
	bool			kept;		/* jobs continue from a dead thcd's pins */
	bool			adopted;	/* root prepared XDP: thcd only uses it */
	bool			detached;	/* our XDP program is not on the interface now */
	u8			welcome_flags;	/* in every WELCOME of this mode */
	bool			verbose;
	bool			no_simd;	/* BPF sums lanes, whatever thc.ko offers */
	const char		*lanes_by;	/* "BPF", "thc.ko (avx2)", ...; NULL: software */
	const char		*mode;		/* "software", "native", "generic" */
	const char		*instance;
	const char		*interface;
	char			privileges[96];	/* capabilities left, or "none" */
	struct thc_stats	stats;		/* software: all; XDP: what thcd sent */
	struct thc_bucket	strangers;	/* limits JOINs that no job admits */
	struct thc_bucket	joins[THC_JOBS_MAX][THC_RANKS_MAX];
	struct thc_bucket	leaves[THC_JOBS_MAX][THC_RANKS_MAX];
	struct thcd_secret	secret;		/* of challenges */
	struct thcd_counters	counters;
	struct thcd_socket	socket[THCD_LISTEN_MAX];
	int			sockets;
	struct thcd_xdp		*xdp;
	struct ring_buffer	*relay;		/* NULL: XDP relays nothing */
};

#endif /* THCD_H */
