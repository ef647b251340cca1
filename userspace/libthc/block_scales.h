/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* A phase of MAX, in which all ranks agree on the scales of blocks by thc and uthc: on their norms,
 * or on the two ends of their ranges (codec.h).
 */
#ifndef LIBTHC_BLOCK_SCALES_H
#define LIBTHC_BLOCK_SCALES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "codec.h"
#include "phase.h"

struct thc_request;

/**
 * struct thc_block_scales - the scales of a bucket
 * @codec: knows the kind of scales
 * @blocks: number of the bucket's blocks
 * @slice: blocks that are computed between two looks at the sockets
 * @chunks: number of packets
 * @of: thc_codec_scales() of each block; this rank's, replaced by the agreed maxima
 * @packets: THC_ANSWER_BYTES each
 * @came: by packet: its maxima are in @of
 * @measured: number of blocks whose own scales are known
 */
struct thc_block_scales {
	const struct thc_codec	*codec;
	size_t			blocks;
	size_t			slice;
	uint32_t		chunks;
	float			*of;
	uint8_t			*packets;
	uint8_t			*came;
	size_t			measured;
};

/* A slice of blocks to compress. With an error memory the values are those that were measured,
 * which are kept in the memory until compression puts its losses there.
 */
struct thc_slice {
	struct thc_values	values;
	struct thc_residual_at	residual;
};

/* Blocks from @first on that are computed between two looks at the sockets. */
size_t thc_slice_blocks(const struct thc_block_scales *s, size_t first);
struct thc_slice thc_slice_of(const struct thc_request *r, const struct thc_codec *c, size_t first,
			      size_t blocks);

/* For the bucket of @r. */
void thc_block_scales_init(struct thc_block_scales *s, const struct thc_request *r,
			   const struct thc_codec *codec);
void thc_block_scales_lay_out(struct thc_block_scales *s, struct thc_layout *l);
/* The phase of scales in @r. */
struct thc_phase thc_block_scales_phase(const struct thc_block_scales *s, struct thc_request *r);
/* Block @block of @r alone, as this rank quantises it. */
struct thc_blocks thc_block_at(const struct thc_block_scales *s, const struct thc_request *r,
			       size_t block);
/* Measures a slice; false: there is none left. Tells @r when all scales are known, or why they
 * cannot be.
 */
bool thc_block_scales_measure(struct thc_block_scales *s, struct thc_request *r);
/* All chunks of @p, which are numbered, are ready then. */
void thc_block_scales_send(const struct thc_block_scales *s, struct thc_phase *p);
/* The lanes of chunk @index. */
void thc_block_scales_answer(struct thc_block_scales *s, uint32_t index, const uint8_t *lanes);
/* Are the scales of @blocks blocks from @first on agreed? */
bool thc_block_scales_known(const struct thc_block_scales *s, size_t first, size_t blocks);

#endif /* LIBTHC_BLOCK_SCALES_H */
