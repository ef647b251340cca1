/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Phases: a request is a list of runs of chunks, each in one of the two streams of
 * <thc/worker/sender.h>. All ranks must give the same chunk the same number, or a sum would be of
 * different things:
 *
 *  - Numbers of a stream go to (request, phase, chunk) in this order. A phase gets numbers for as
 *    many chunks as it is known to have. The phases behind it in its stream wait until it is
 *    closed, that is, until it will have no more chunks.
 *  - The number of chunks in a phase follows from the claims, from answers of the control stream
 *    and from constants: never from this rank's data, from time or from the order of packets.
 *  - The first phases are the agreement. The others are numbered once it has succeeded, so a failed
 *    agreement leaves no gap.
 *
 * Pure functions; tests/unit/test_phases.c lets ranks run through them in any order.
 */
#ifndef LIBTHC_PHASE_H
#define LIBTHC_PHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <thc/types.h>

#define THC_PHASES_MAX	9
/* The agreement is the first phases of each request: CLAIM, and CLAIM_HIGH, which has no chunk in
 * jobs that do not need it.
 */
#define THC_AGREEMENT	0
#define THC_AGREEMENT_PHASES	2

struct thc_request;

/**
 * struct thc_phase - a run of chunks in one stream
 * @request: the request it belongs to
 * @packets: packets of its chunks, header first, @stride bytes apart; thc_phase_packet() finds them
 * @ring: 0, or an even number of chunks that @packets has room for: chunk i takes the place of
 *	chunk i - @ring, which its scheme no longer needs
 * @payload: bytes behind a header
 * @first: number of its first chunk, once @numbered is not 0
 * @sized: chunks that it is known to have
 * @numbered: chunks that have a number
 * @ready: numbered chunks whose packets are made, in order
 * @handed: ready chunks that the kernel has taken (AF_THC)
 * @answered: chunks that have an answer, in any order
 * @op, @width: of its requests
 * @control: in the control stream, else among the data
 * @closed: @sized is final
 */
struct thc_phase {
	struct thc_request	*request;
	uint8_t			*packets;
	size_t			stride;
	uint32_t		ring;
	uint32_t		payload;
	uint64_t		first;
	uint32_t		sized;
	uint32_t		numbered;
	uint32_t		ready;
	uint32_t		handed;
	uint32_t		answered;
	uint8_t			op;
	uint8_t			width;
	bool			control;
	bool			closed;
};

/**
 * struct thc_phases - the phases of one request
 * @agreed: the agreement has succeeded
 * @over: the agreement has failed: no phase follows
 */
struct thc_phases {
	struct thc_phase	phase[THC_PHASES_MAX];
	unsigned int		count;
	bool			agreed;
	bool			over;
};

static inline struct thc_hdr *thc_phase_packet(const struct thc_phase *p, uint32_t index)
{
	return (void *)(p->packets + (p->ring ? index % p->ring : index) * p->stride);
}

/* Numbers what can be, of the stream of @control: of @n requests in order, from *@next on. */
void thc_phases_number(struct thc_phases *const *all, unsigned int n, bool control, u64 *next);
/* Have all chunks of all phases their answers? */
bool thc_phases_done(const struct thc_phases *all);
/* The one of @n requests' phases that has chunk @number of a stream, ready or not, or NULL. */
struct thc_phase *thc_phases_find(struct thc_phases *const *all, unsigned int n, bool control,
				  uint64_t number);

#endif /* LIBTHC_PHASE_H */
