/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* A phase of MAX, in which all ranks agree on the scale of each block (fixed.h). */
#ifndef LIBTHC_SCALES_H
#define LIBTHC_SCALES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "fixed.h"
#include "phase.h"

/**
 * struct thc_scales - the scales of a bucket
 * @of: by block: this rank's scale, then the agreed one
 * @packets: packets of all chunks
 * @came: by chunk: it has its answer
 * @blocks, @chunks: numbers of blocks and chunks
 * @known: blocks, from the first one on, that the ranks have agreed on
 * @prefix: chunks that have their answer, from the first one on
 * @exact: two lanes a block, top and low, else top alone
 */
struct thc_scales {
	struct thc_scale	*of;
	uint8_t			*packets;
	uint8_t			*came;
	uint32_t		blocks;
	uint32_t		chunks;
	uint32_t		known;
	uint32_t		prefix;
	bool			exact;
};

/* Of @count coordinates. */
void thc_scales_init(struct thc_scales *s, size_t count, bool exact);
void thc_scales_lay_out(struct thc_scales *s, struct thc_layout *l);
/* The phase of scales in @r. */
struct thc_phase thc_scales_phase(const struct thc_scales *s, struct thc_request *r);
/* All chunks of @p, which are numbered, are ready then. */
void thc_scales_send(const struct thc_scales *s, struct thc_phase *p);
/* The lanes of chunk @index. */
void thc_scales_answer(struct thc_scales *s, uint32_t index, const uint8_t *lanes);

#endif /* LIBTHC_SCALES_H */
