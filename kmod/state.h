/* SPDX-License-Identifier: GPL-2.0 */
/* A socket's state (enum thc_state), and its timer. */
#ifndef THC_KMOD_STATE_H
#define THC_KMOD_STATE_H

#include "sock.h"

/* The word for a state in netlink and /proc. */
extern const char *const thc_state_name[];
/* True if a message waits for delivery. Messages that were delivered incomplete come first in their
 * stream, so a look at the last one is enough.
 */
bool thc_state_waits(const struct thc_sock *ts);
/* Breaks the socket: nothing is sent or answered until connect() is called again. */
void thc_state_break(struct thc_sock *ts, struct thc_failure failure);
/* The failure is about @p's aggregator. */
void thc_state_break_at(const struct thc_peer *p, struct thc_failure failure);
/* The timer is to run the engine at @when; false: the socket has no use for it any more. */
bool thc_state_wake(struct thc_sock *ts, u64 when);

#endif /* THC_KMOD_STATE_H */
