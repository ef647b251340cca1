/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The forgers of a storm: packets that no worker and no aggregator sends, random ones and
 * nearly right ones, by those who have the key. In a job whose sums are checked each has one
 * mistake at least for which it must be refused. In the others anything may come, a JOIN that
 * ends the epoch included. Workers listen to the aggregator's own ports only, which are
 * thcd's, so the forger in its namespace has a raw socket, too.
 */
#ifndef THC_SELFTESTS_STORM_FORGE_H
#define THC_SELFTESTS_STORM_FORGE_H

#include "fake.h"
#include "storm.h"

/* --- trains --------------------------------------------------------------- */

/* A process in the aggregator's namespace, or in the workers': ends by being killed. What
 * the workers' one sends to workers does not come from the aggregator.
 */
int run_forger(struct storm *s, struct rng r, bool aggregator);

#endif /* THC_SELFTESTS_STORM_FORGE_H */
