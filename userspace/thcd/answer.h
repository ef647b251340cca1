/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Answers that user space sends: those of the software aggregator, those XDP
 * relays, and those of generations closed by deadline.
 */
#ifndef THCD_ANSWER_H
#define THCD_ANSWER_H

#include "thcd.h"

/* A finished generation of slot @slot of job @job_id, to all ranks. */
void thcd_answer_all(struct thcd *d, u16 job_id, u32 slot, u32 generation);

/* The same again, to one rank. */
void thcd_answer_one(struct thcd *d, u16 job_id, u32 slot, u32 generation, u8 rank);

#endif /* THCD_ANSWER_H */
