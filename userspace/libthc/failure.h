/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* What went wrong, in sentences. */
#ifndef LIBTHC_FAILURE_H
#define LIBTHC_FAILURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thc_client;
struct thc_failure;

/* Breaks the client; false: @f does not say why. */
bool thc_failed(struct thc_client *c, const struct thc_failure *f);
/* thc_fail() for a join that ended; 0: @f does not say why. @ranks: of the job, 0: not known. */
int thc_failed_to_join(const struct thc_client *c, const struct thc_failure *f, unsigned int ranks);
/* Room for the names of THC_RANKS_MAX ranks. */
#define THC_RANKS_TEXT		288
/* "rank 2" or "ranks 2, 5 and 7" for the bits set in @ranks. */
const char *thc_name_ranks(uint64_t ranks, char *text, size_t room);

#endif /* LIBTHC_FAILURE_H */
