/* SPDX-License-Identifier: GPL-2.0 */
/* What system calls wait for. */
#ifndef THC_KMOD_WAIT_H
#define THC_KMOD_WAIT_H

#include "sock.h"

/* Sleeps until @done, without locks. 0, or what the call returns instead. @done
 * may take what it finds: it returns true no more than once.
 */
int thc_wait_for(struct thc_sock *ts, bool (*done)(struct thc_sock *ts, u64 need), u64 need,
		 long *timeo);
enum thc_state thc_state_of(struct thc_sock *ts);
/* Connections of the socket so far. */
u32 thc_joins_of(struct thc_sock *ts);
/* Connection number @joins is not being made any more, or has been replaced. */
bool thc_has_joined(struct thc_sock *ts, u64 joins);
/* The same, or nothing may be sent any more. */
bool thc_may_send(struct thc_sock *ts, u64 joins);
/* There is room for @need bytes, or no point in waiting; poll() is told if not. */
bool thc_has_room(struct thc_sock *ts, u64 need);
/* There is one that nobody is receiving, or no point in waiting; likewise. */
bool thc_has_message(struct thc_sock *ts, u64 joins);

#endif /* THC_KMOD_WAIT_H */
