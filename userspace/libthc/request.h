/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* One all-reduce: agreement, norms, compress, decode. */
#ifndef LIBTHC_REQUEST_H
#define LIBTHC_REQUEST_H

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <thc/types.h>

#include "error.h"
#include "libthc.h"

/* Bytes of an answer: header and lanes. */
#define THC_ANSWER_BYTES	(sizeof(struct thc_hdr) + THC_LANE_BYTES)
/* Coordinates compressed between two looks at the sockets. */
#define THC_SLICE		65536
/* fp16 and bf16: coordinates rotated ahead of their norms at most, and the part
 * of the bucket that their floats may take. A millisecond of work: the norms
 * take two round trips.
 */
#define THC_AHEAD		(1U << 20)
#define THC_AHEAD_SHARE		8
struct thc_client;

struct thc_residual;

enum thc_stage {
	THC_STAGE_QUEUED,	/* nothing done */
	THC_STAGE_MEASURE,	/* norms and finiteness of the bucket, slice by slice */
	THC_STAGE_AGREE,	/* agreement in flight or waiting for its turn */
	THC_STAGE_DATA,		/* norms, compress, decode, all overlapped */
	THC_STAGE_DONE,
};

/**
 * struct thc_request - one all-reduce
 *
 * A region holds one chunk while it is on its way: its packet at the front,
 * the answer's lanes at the end, at last the chunk's mean in the caller's
 * dtype. For fp32 regions are as long as the chunk's floats, so that blocks
 * are rotated and decoded in place; for the others blocks that are rotated
 * ahead of their norms wait in a ring.
 *
 * @region_bytes: of a chunk's region
 * @regions: all chunks' regions
 * @arrays: one allocation for all that follows, up to @ahead
 * @norms: of each block; own ones, replaced by the agreed maxima
 * @norm_packets: agreement, then norm chunks, THC_ANSWER_BYTES each
 * @counts: contributors of each answered chunk
 * @lost: 1: the chunk's sum lacks this rank
 * @missing: answers each block still waits for
 * @measured: blocks whose norm is known
 * @norm_done: by norm packet: its maxima are in @norms
 * @ahead: the ring
 * @ahead_blocks: blocks of floats it has room for; 0 for fp32
 * @rotated: blocks rotated, the last of them ahead of their norms
 * @packed: blocks compressed and ready to be sent
 * @answered: data chunks answered
 */
struct thc_request {
	struct thc_request	*next;
	struct thc_client	*client;
	void			*buf;
	size_t			count;
	uint64_t		key;
	enum thc_dtype		dtype;

	enum thc_stage		stage;
	sem_t			ended;		/* 1: status and sentence are final */
	bool			data_reserved;	/* sequence numbers are given */
	bool			adrift;		/* it failed here, the others go on without us */
	int			status;
	int			claim_status;
	size_t			bad;
	char			sentence[THC_SENTENCE_MAX];

	uint64_t		round;
	uint64_t		norm_first;	/* sequence of the agreement */
	uint64_t		data_first;
	uint32_t		norm_chunks;	/* agreement not counted */
	uint32_t		data_chunks;
	uint32_t		norms_sendable;	/* norm packets ready, agreement included */
	uint32_t		norms_handed;	/* AF_THC: norm packets handed over */
	uint32_t		data_handed;	/* AF_THC: data packets handed over */
	size_t			blocks;
	size_t			region_bytes;
	uint8_t			*regions;
	size_t			regions_room;
	uint8_t			*arrays;
	float			*norms;
	uint8_t			*norm_packets;
	uint8_t			*norm_done;
	uint16_t		*counts;
	uint8_t			*lost;
	uint16_t		*missing;
	float			*ahead;
	size_t			ahead_blocks;
	size_t			arrays_bytes;
	size_t			counted;	/* by thc_budget_begin() */
	struct thc_residual	*error;
	size_t			measured;
	size_t			rotated;
	size_t			packed;
	uint32_t		answered;
};

struct thc_request *thc_request_create(struct thc_client *c, void *buf, size_t count,
				       enum thc_dtype dtype, uint64_t key);
void thc_request_destroy(struct thc_request *r);
/* Its end: wakes who waits for it, who then owns it. */
void thc_request_end(struct thc_request *r);
int thc_request_prepare(struct thc_request *r);
void thc_request_release(struct thc_request *r);
/* One slice of computation; false: nothing to do now. */
bool thc_request_compute(struct thc_request *r);
void thc_request_agree_packet(struct thc_request *r);
void thc_request_norm_answer(struct thc_request *r, uint32_t index, const void *lanes);
void thc_request_data_answer(struct thc_request *r, uint32_t index, const struct thc_hdr *h,
			     const void *lanes);
/* Answers to data chunks from @first on, side by side; counts as recvmsg() of
 * AF_THC gives them.
 */
void thc_request_data_answers(struct thc_request *r, uint32_t first, uint32_t chunks,
			      const uint16_t *counts, const uint8_t *lanes);
/* The packet of norm chunk (0: agreement) or data chunk @index. */
struct thc_hdr *thc_request_norm_packet(const struct thc_request *r, uint32_t index);
struct thc_hdr *thc_request_data_packet(const struct thc_request *r, uint32_t index);
/* It has succeeded: hands the mean, or THC_NONFINITE's NaN, to the caller's buffer. */
void thc_request_finish(struct thc_request *r);

#endif /* LIBTHC_REQUEST_H */
