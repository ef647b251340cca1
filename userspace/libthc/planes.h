/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Integers of one or more digits as chunks that are added: a plane has one digit of each, and
 * chunks of its own. Digits are words of 32 bits here, and lanes of 8, 16 or 32 in packets, where
 * their lower bits are.
 */
#ifndef LIBTHC_PLANES_H
#define LIBTHC_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "phase.h"

/**
 * struct thc_planes - the integers
 * @at: @planes arrays of @count digits, one behind the other: this rank's digits, later the sums
 * @width: bits of a lane; @each: lanes of a chunk
 * @chunks: number of chunks in a plane
 * @packets: packets of all chunks
 */
struct thc_planes {
	uint32_t	*at;
	uint8_t		*packets;
	size_t		count;
	uint32_t	planes;
	uint32_t	width;
	uint32_t	each;
	uint32_t	chunks;
};

void thc_planes_init(struct thc_planes *p, size_t count, unsigned int planes, unsigned int width);
void thc_planes_lay_out(struct thc_planes *p, struct thc_layout *l);
/* The phase of the planes in @r; all its chunks are known. */
struct thc_phase thc_planes_phase(const struct thc_planes *p, struct thc_request *r);
/* Makes chunks of @phase, at most a slice; false: none can be made now. */
bool thc_planes_make(const struct thc_planes *p, struct thc_phase *phase);
/* The sum of chunk @chunk: bits above a lane's are zero. */
void thc_planes_answer(struct thc_planes *p, uint32_t chunk, const uint8_t *lanes);

#endif /* LIBTHC_PLANES_H */
