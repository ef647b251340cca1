/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The forgers of a storm: they have the keys, and send packets that no worker and no aggregator
 * sends, random or nearly right. In a job whose sums are checked, each packet has at least one
 * mistake for which it must be refused. In the other jobs any packet may come, even a JOIN that
 * ends the epoch. Workers listen to thcd's own ports only, so the forger in thcd's namespace also
 * has a raw socket.
 */
#ifndef THC_SELFTESTS_STORM_FORGE_H
#define THC_SELFTESTS_STORM_FORGE_H

#include "fake.h"
#include "storm.h"

/* --- trains --------------------------------------------------------------- */

/* A process in the aggregator's or the workers' namespace; runs until it is killed. Packets of the
 * workers' forger to workers do not come from the aggregator's address.
 */
int run_forger(struct storm *s, struct rng r, bool aggregator);

#endif /* THC_SELFTESTS_STORM_FORGE_H */
