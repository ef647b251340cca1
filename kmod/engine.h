/* SPDX-License-Identifier: GPL-2.0 */
/* The job's clock: what is sent, what an answer changes. */
#ifndef THC_KMOD_ENGINE_H
#define THC_KMOD_ENGINE_H

#include <linux/thc.h>

#include "message.h"

/* A rank's LEAVE breaks the socket no sooner than this long after the caller last sent or received:
 * the caller may still be about to send data of a round that the rank has finished.
 */
#define THC_LEFT_GRACE_MS	200

struct thc_landing;
struct thc_peer;
struct thc_sock;

void thc_engine_init(struct thc_sock *ts);
/* Sends what may be sent, again what is overdue, and sets the timer. */
void thc_engine_run(struct thc_sock *ts);
void thc_engine_kick(struct thc_sock *ts);
/* Chunk @index of @m has its answer from @p, or will not get one. */
void thc_engine_landed(struct thc_peer *p, struct thc_message *m, u32 index,
		       const struct thc_landing *l);

#endif /* THC_KMOD_ENGINE_H */
