/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* What the schemes thc and uthc keep for a client's job, and for a request. */
#ifndef LIBTHC_SCHEME_THC_H
#define LIBTHC_SCHEME_THC_H

#include <stddef.h>
#include <stdint.h>

#include "block_scales.h"
#include "codec.h"
#include "rate.h"
#include "shares.h"
#include "trial.h"

struct thc_client;
struct thc_scheme;
struct thc_spec;
struct thc_table_row;

/* Blocks of floats that a small bucket counts as, if that is more. */
#define THC_COUNTED_BLOCKS	3

/**
 * struct thc_compressor - client.context of either scheme; client.scratch has room for a block
 * @codec: codec of the job's table
 * @chunk: coordinates of a chunk
 * @row: in jobs that have tables for rates: codecs by b, for classes
 * @rate: the classes; no steps: there are none
 * @rate_hash: hash of the classes
 * @shares: buckets that share a goal
 * @trial: the trial of the job's rate
 */
struct thc_compressor {
	struct thc_codec	codec;
	uint32_t		chunk;
	struct thc_codec	row[THC_RATE_CLASSES];
	struct thc_rate		rate;
	uint32_t		rate_hash;
	struct thc_shares	shares;
	struct thc_trial	trial;
};

/* A codec for @table, as the job's other constants say; an error, with a sentence. @form:
 * THC_CODEC_RANGES or 0
 */
int thc_compressor_codec(const struct thc_client *c, const struct thc_table *table,
			 unsigned int form, struct thc_codec *out);

/* The classes of @c's job, if it has tables for a rate; an error, with a sentence. */
int thc_rate_open(struct thc_compressor *z, struct thc_client *c);
/* Returns -EOPNOTSUPP, with a sentence that there are no such tables. */
int thc_rate_missing(const struct thc_spec *s);
void thc_rate_close(struct thc_compressor *z, struct thc_client *c);
/* The goal that @rate and @error of a call or of options set, THC_RATE_FIXED: none. */
struct thc_rate_goal thc_rate_goal_of(double rate, double error);
/* The goal of calls of @c that set none. */
struct thc_rate_goal thc_rate_default(const struct thc_client *c);
/* thc_client_info.table_error */
double thc_rate_table_error(const struct thc_client *c);
/* @goal and the classes in a claim, 20 bits; 0: there is no goal. */
uint32_t thc_rate_chosen(const struct thc_client *c, const struct thc_rate_goal *goal);

/* Do the ranks of @c try the job's rate for calls that set no goal? */
bool thc_rate_is_tried(const struct thc_client *c);
/* The trial's steps for a bucket of scheme thc: at its beginning, after its agreement, after
 * success.
 */
void thc_rate_begin(struct thc_request *r);
void thc_rate_agreed(struct thc_request *r);
void thc_rate_ended(struct thc_request *r);
/* Of a bucket of any scheme, whose claims differ. */
void thc_rate_differ(const struct thc_request *r);

/* Buckets with a rate. */
extern const struct thc_scheme thc_scheme_thc_rate;

/* Reads a row as the daemon has solved it; -EPROTO: constants that a codec cannot serve. */
int thc_row_read(const struct thc_table_row *row, unsigned int ranks, struct thc_table *t);
/* Reads the job's own row; errors as thc_row_read(). */
int thc_table_read(const struct thc_spec *s, struct thc_table *t);

/**
 * struct thc_progress - a bucket in progress
 * @region_bytes: of a chunk's region
 * @regions: all chunks' regions
 * @counts: contributors of each answered chunk
 * @lost: 1: the chunk's sum lacks this rank
 * @missing: answers that each block still waits for
 * @packed: blocks that are compressed and ready to be sent
 *
 * A region belongs to one chunk: first the chunk's packet is at its front, then the answer's lanes
 * are at its end, and at last it holds the caller's values, for undo().
 */
struct thc_progress {
	struct thc_block_scales	scales;
	uint32_t	data_chunks;
	size_t		region_bytes;
	uint8_t		*regions;
	uint16_t	*counts;
	uint8_t		*lost;
	uint16_t	*missing;
	size_t		packed;
};

#endif /* LIBTHC_SCHEME_THC_H */
