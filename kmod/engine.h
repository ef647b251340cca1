/* SPDX-License-Identifier: GPL-2.0 */
/* The job's clock: what is sent, what an answer changes. */
#ifndef THC_KMOD_ENGINE_H
#define THC_KMOD_ENGINE_H

#include <linux/thc.h>

#include "message.h"

/* A rank that leaves ends a socket this long after the last message sent or
 * received: what was complete without that rank may still be on its way through
 * the caller.
 */
#define THC_LEFT_GRACE_MS	200

struct thc_sock;

void thc_engine_init(struct thc_sock *ts);
/* Sends what may be sent, again what is overdue, and sets the timer. */
void thc_engine_run(struct thc_sock *ts);
void thc_engine_kick(struct thc_sock *ts);
/* The clock is to run at @when; false: it does not run any more. */
bool thc_engine_wake(struct thc_sock *ts, u64 when);
/* Nothing moves any more until connect() is called again. */
void thc_engine_break(struct thc_sock *ts, struct thc_failure failure);
/* Chunk @index of @m has its answer, or (@answered 0) will not get one. */
void thc_engine_landed(struct thc_sock *ts, struct thc_message *m, u32 index,
		       const struct thc_hdr *h, bool answered);

#endif /* THC_KMOD_ENGINE_H */
