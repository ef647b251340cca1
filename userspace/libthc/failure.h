/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* What went wrong, in sentences. */
#ifndef LIBTHC_FAILURE_H
#define LIBTHC_FAILURE_H

#include <stddef.h>
#include <stdint.h>

struct thc_client;

/* These break the client. */
void thc_fail_epoch(struct thc_client *c, unsigned int rank, uint32_t epoch);
void thc_fail_behind(struct thc_client *c);
void thc_fail_left(struct thc_client *c, uint64_t missing);
void thc_fail_missing(struct thc_client *c, uint64_t missing);
void thc_fail_differs(struct thc_client *c, uint64_t differing);
void thc_fail_unreachable(struct thc_client *c, int error);
/* These end a join; they return the error. */
int thc_fail_refused(const struct thc_client *c, unsigned int refusal);
int thc_fail_unknown(const struct thc_client *c);
int thc_fail_not_joined(const struct thc_client *c, uint64_t missing, unsigned int ranks);
int thc_fail_no_answer(const struct thc_client *c, int error);
/* Room for the names of THC_RANKS_MAX ranks. */
#define THC_RANKS_TEXT		288
/* "rank 2" or "ranks 2, 5 and 7" for the bits set in @ranks. */
const char *thc_name_ranks(uint64_t ranks, char *text, size_t room);

#endif /* LIBTHC_FAILURE_H */
