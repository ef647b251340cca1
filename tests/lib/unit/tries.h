/* SPDX-License-Identifier: GPL-2.0 */
/* How often a test tries something at random. */
#ifndef TESTS_UNIT_TRIES_H
#define TESTS_UNIT_TRIES_H

#include <stdlib.h>

/* With sanitizers (tests/sanitized.sh) a tenth of @all, for they look for mistakes with memory, of
 * which a loop that goes through the same code again shows no others, and take ten times as long.
 * Without them all are made, so what is rare, or a bound of a statistic, is looked for there.
 */
static inline unsigned int tries(unsigned int all)
{
	return getenv("THC_SANITIZED") ? (all + 9) / 10 : all;
}

#endif /* TESTS_UNIT_TRIES_H */
