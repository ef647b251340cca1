/* SPDX-License-Identifier: GPL-2.0 */
/* What system calls wait for. */
#ifndef THC_KMOD_WAIT_H
#define THC_KMOD_WAIT_H

#include "sock.h"

/* Called under thc_sock.lock: true if a call may go on. It may claim a resource for the call, since
 * it is not called again after it returned true.
 */
typedef bool thc_done(struct thc_sock *ts, u64 need);

/* Sleeps without locks until @done. Returns 0, or the error of the call. */
int thc_wait_for(struct thc_sock *ts, thc_done *done, u64 need, long *timeo);
enum thc_state thc_state_of(struct thc_sock *ts);
/* Connections of the socket so far. */
u32 thc_joins_of(struct thc_sock *ts);
/* thc_done: connection number @joins is not being made any more, or has been replaced. */
bool thc_has_joined(struct thc_sock *ts, u64 joins);

/* --- room for messages: under thc_sock.lock ------------------------------- */

/* Would a sendmsg() get further than the last one that returned EAGAIN, or fail since sending was
 * shut down? If not, poll() must not say POLLOUT: the caller would spin.
 */
bool thc_may_send(const struct thc_sock *ts);
/* Arms SIGIO, if the caller asked for it: the caller learns that it may not send now, and SIGIO
 * tells when it may.
 */
void thc_tell_senders(struct thc_sock *ts);
/* There may be room, or a turn. */
void thc_wake_senders(struct thc_sock *ts);

#endif /* THC_KMOD_WAIT_H */
