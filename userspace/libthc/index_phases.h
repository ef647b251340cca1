/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* An index (index.h) as phases of a request: a phase of OR for each level, the top one first. */
#ifndef LIBTHC_INDEX_PHASES_H
#define LIBTHC_INDEX_PHASES_H

#include <stdbool.h>
#include <stdint.h>

#include "index.h"

struct thc_request;

/* @r's phases from number @first on are those of @x, which has this rank's bits later. */
void thc_index_phases_init(struct thc_index *x, struct thc_request *r, unsigned int first);
/* Makes all numbered chunks; false: there are none. */
bool thc_index_phases_make(struct thc_index *x, struct thc_request *r, unsigned int first);
/* Takes in answers of @chunks chunks of phase number @phase, from @index on, and sets the known
 * sizes of all levels. Fails @r if an answer is no union.
 */
void thc_index_phases_answer(struct thc_index *x, struct thc_request *r, unsigned int first,
			     unsigned int phase, uint32_t index, uint32_t chunks,
			     const uint8_t *lanes);

#endif /* LIBTHC_INDEX_PHASES_H */
