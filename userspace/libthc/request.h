/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* One all-reduce. */
#ifndef LIBTHC_REQUEST_H
#define LIBTHC_REQUEST_H

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <thc/types.h>

#include "buffers.h"
#include "error.h"
#include "fixed.h"
#include "libthc.h"
#include "phase.h"
#include "rate.h"
#include "trial.h"

/* Bytes of an answer: header and lanes. */
#define THC_ANSWER_BYTES	(sizeof(struct thc_hdr) + THC_LANE_BYTES)
/* Coordinates computed between two looks at the sockets; block_scales.c takes a slice for each
 * aggregator, but no more than THC_SLICES, which are compressed in a third of a millisecond.
 */
#define THC_SLICE		65536
#define THC_SLICES		4
/* How often a scheme may take more memory. */
#define THC_TAKEN_LATE		3

struct thc_client;

struct thc_residual;
struct thc_row_call;
struct thc_scheme;

enum thc_stage {
	THC_STAGE_QUEUED,	/* not begun */
	THC_STAGE_BEGUN,	/* in its agreement */
	THC_STAGE_AGREED,	/* in the phases after the agreement */
	THC_STAGE_DONE,
};

/**
 * struct thc_request - one all-reduce
 * @scheme: turns @buf into chunks, and sums into @buf
 * @stage: changed by pipeline.c alone
 * @ended: 1: status and sentence are final, and the waiting thread owns the request
 * @claimed: the scheme has measured this rank's gradient, and set claim_status, enum
 *	thc_claim_status
 * @going: the scheme has been told that the ranks agree
 * @left_behind: it failed here, the other ranks go on without this one
 * @broken: it failed here, and the others wait for this one
 * @bad: first value that is not finite
 * @claim: packets of the agreement
 * @claims: all claims, by rank, from the answers
 * @levels: levels of the index that scheme lhc has chosen
 * @keep: fraction that scheme lhc sends, 0: all
 * @goal: rate or error of the bucket, else zero; @group: number of buckets that meet it together,
 *	0: this one alone; @chosen: the goal as in the claim
 * @tried: the ranks measure whether the rate is worth its time (trial.h); @vote: this rank's;
 *	@timed: the time of this round counts
 * @began_at: when the round began, ns
 * @sketched: the bucket is sent as a sketch; @scale: of its values, agreed by claims
 * @counted: bytes that thc_budget_begin() has counted
 * @taken, @progress: memory of @scheme, which takes it, and never gives it back; @late: memory that
 *	@scheme takes later, when it knows more
 * @rows: rows of thc_allreduce_rows_start(), or NULL
 */
struct thc_request {
	struct thc_request	*next;
	struct thc_client	*client;
	void			*buf;
	size_t			count;
	uint64_t		key;
	enum thc_dtype		dtype;
	enum thc_precision	precision;
	unsigned int		grain_log2;
	unsigned int		levels;
	double			keep;
	struct thc_rate_goal	goal;
	uint64_t		group;
	uint32_t		chosen;
	bool			tried;
	bool			timed;
	enum thc_vote	vote;
	uint64_t		began_at;
	bool			sketched;
	struct thc_scale	scale;
	const struct thc_scheme	*scheme;

	enum thc_stage		stage;
	sem_t			ended;
	bool			claimed;
	bool			going;
	bool			left_behind;
	bool			broken;
	int			status;
	int			claim_status;
	size_t			bad;
	char			sentence[THC_SENTENCE_MAX];

	uint64_t		round;
	struct thc_phases	phases;
	uint64_t		claim[THC_AGREEMENT_PHASES][THC_ANSWER_BYTES / sizeof(uint64_t)];
	struct thc_claim	claims[THC_RANKS_MAX];
	size_t			counted;
	struct thc_residual	*error;
	struct thc_taken	taken;
	struct thc_taken	late[THC_TAKEN_LATE];
	void			*progress;
	struct thc_row_call	*rows;
};

struct thc_request *thc_request_create(struct thc_client *c, void *buf, size_t count,
				       enum thc_dtype dtype, const struct thc_scheme *scheme,
				       uint64_t key);
void thc_request_destroy(struct thc_request *r);
int thc_request_prepare(struct thc_request *r);
/* Gives back the request's memory; if it has failed, restores the caller's buffer. */
void thc_request_release(struct thc_request *r);
/* Ends a request that has succeeded: exchanges error memories, or fills the caller's buffer with
 * NaN.
 */
void thc_request_finish(struct thc_request *r);

/* agree.c: the ranks check that they begin the same all-reduce. */
void thc_agree_prepare(struct thc_request *r);
/* Writes the lanes of both packets of @r's agreement. */
void thc_agree_claim(struct thc_request *r);
/* The scale that spans the scales of all claims. */
struct thc_scale thc_agree_scale(const struct thc_request *r);
/* Number of claims by vote on the rate, enum thc_vote. */
void thc_agree_votes(const struct thc_request *r, unsigned int of[THC_VOTE_RATE + 1]);
/* Earlier rounds of the key, modulo THC_RATE_ROUNDS: the largest number in the claims. */
uint32_t thc_agree_turn(const struct thc_request *r);
/* Takes in the answer of @phase; returns true if all answers of the agreement are here. */
bool thc_agree_answered(struct thc_request *r, unsigned int phase, const void *lanes);
/* Notes answers of @chunks chunks after @r's agreement: their contributors, and their digest. */
void thc_agree_results(struct thc_request *r, const uint16_t *counts, uint32_t chunks,
		       uint32_t digest);
/* 0, or -EBADMSG / -EDOM with the request's sentence filled in, and `left_behind` if
 * only this rank, left out by a deadline, knows of it.
 */
int thc_agree_check(struct thc_request *r);

#endif /* LIBTHC_REQUEST_H */
