/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * A request's way on the I/O thread: its agreement, then the phases of its scheme. Only pipeline.c
 * changes the stage of a request.
 */
#ifndef LIBTHC_PIPELINE_H
#define LIBTHC_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "phase.h"

struct thc_client;
struct thc_request;

/* Begins requests, numbers their chunks, and tells schemes of agreements. */
void thc_pipeline_advance(struct thc_client *c);
/* One slice of computation; false: nothing to do now. */
bool thc_pipeline_compute(struct thc_client *c);
/* Marks chunk @index of @p, the next one in order, as ready: its payload is in its packet. */
void thc_pipeline_ready(struct thc_phase *p, uint32_t index);
/* The phases of the active requests that have begun, at most THC_ACTIVE_MAX: how many. */
unsigned int thc_pipeline_phases(struct thc_client *c, struct thc_phases **all);
/* See thc_scheme.answer; @digest: of the answers together, thc_received.digest. The request may be
 * gone afterwards.
 */
void thc_pipeline_answer(struct thc_phase *p, uint32_t first, uint32_t chunks,
			 const uint16_t *counts, const uint8_t *lanes, uint32_t digest);

#endif /* LIBTHC_PIPELINE_H */
