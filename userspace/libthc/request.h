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
	THC_STAGE_QUEUED,	/* nothing done */
	THC_STAGE_BEGUN,	/* its agreement is not over */
	THC_STAGE_AGREED,	/* the phases behind it */
	THC_STAGE_DONE,
};

/**
 * struct thc_request - one all-reduce
 * @scheme: turns @buf into chunks, and sums into @buf
 * @stage: pipeline.c's
 * @ended: 1: status and sentence are final, and who waits for it owns it
 * @claimed: the scheme knows what this rank brings: claim_status, enum thc_claim_status
 * @going: the scheme knows of the agreement
 * @left_behind: it failed here, the other ranks go on without this one
 * @broken: it failed here, and the others wait for this one
 * @bad: first value that is not finite
 * @claim: packets of the agreement
 * @claims: its answers, by rank
 * @levels: of the index that scheme lhc has chosen
 * @keep: the fraction that it sends, 0: everything
 * @goal: of a bucket with a rate, else zero; @group: buckets of a step that share it, 0: it is
 *	alone; @chosen: what the claim says of the goal
 * @tried: the ranks find out whether the rate is worth its time (trial.h); @vote: what this one
 *	says of that; @timed: the time of this round counts
 * @began_at: ns
 * @sketched: it sends a sketch, of values of @scale, which the claim brings
 * @counted: by thc_budget_begin()
 * @taken, @progress: of @scheme, which takes them, and gives nothing back; @late: what it takes
 *	whenever it knows more
 * @rows: of thc_allreduce_rows_start(), or NULL
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
/* Gives back what it took; if it has failed, the caller's buffer is what it was. */
void thc_request_release(struct thc_request *r);
/* Ends a request that has succeeded: exchanges error memories, or fills the caller's buffer with
 * NaN.
 */
void thc_request_finish(struct thc_request *r);

/* agree.c: that all ranks mean the same all-reduce. */
void thc_agree_prepare(struct thc_request *r);
/* The lanes of both its packets, for @r's phases of the agreement. */
void thc_agree_claim(struct thc_request *r);
/* The scale that spans what all claims have. */
struct thc_scale thc_agree_scale(const struct thc_request *r);
/* How many of the ranks that made a claim said what of a rate, by enum thc_vote. */
void thc_agree_votes(const struct thc_request *r, unsigned int of[THC_VOTE_RATE + 1]);
/* Rounds of the key before this one, modulo THC_RATE_ROUNDS: the largest that claims say. */
uint32_t thc_agree_turn(const struct thc_request *r);
/* The answer of @phase; true: all of them are there. */
bool thc_agree_answered(struct thc_request *r, unsigned int phase, const void *lanes);
/* @r has answers of @chunks chunks behind its agreement: who is in them, and their digest. */
void thc_agree_results(struct thc_request *r, const uint16_t *counts, uint32_t chunks,
		       uint32_t digest);
/* 0, or -EBADMSG / -EDOM with the request's sentence filled in, and `left_behind` if
 * only this rank, left out by a deadline, knows of it.
 */
int thc_agree_check(struct thc_request *r);

#endif /* LIBTHC_REQUEST_H */
