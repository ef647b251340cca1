/* SPDX-License-Identifier: GPL-2.0 */
/* Joining a job and leaving it, as packets. */
#ifndef THC_KMOD_JOIN_H
#define THC_KMOD_JOIN_H

#include <linux/workqueue.h>

#include <thc/worker/join.h>

struct thc_peer;
struct thc_sock;

/* Makes a workqueue for join_work of sockets that may wait for each other. @most: work items that
 * run at once, 0: the kernel's default. NULL: no memory.
 */
struct workqueue_struct *thc_join_queue_new(int most);
int thc_join_init(void);
void thc_join_exit(void);
void thc_join_begin(struct thc_sock *ts, u64 now);
/* Begins to join at the aggregator of @p. */
void thc_join_begin_at(struct thc_peer *p, u64 now);
/* True if the first aggregator lists more aggregators than @ts has peers. @ts has at least one. */
bool thc_join_lacks(const struct thc_sock *ts);
/* True if the join waits for a system call of the connecting process, which is to open the other
 * aggregators (listed.c).
 */
bool thc_join_needs_call(const struct thc_sock *ts);
/* Sends JOINs that are due; lowers *@due to the time of the next one. */
void thc_join_run(struct thc_sock *ts, u64 now, u64 *due);
/* Handles a WELCOME. Returns why it was dropped, or THC_DROP_NONE. */
enum thc_drop_reason thc_join_welcome(struct thc_peer *p, const struct thc_hdr *h,
				      const struct thc_welcome *w, u32 bytes,
				      struct thc_origin from);
/* Notes a CHALLENGE from the aggregator's @port, which thc_join_run() answers. Returns why it was
 * dropped, or THC_DROP_NONE.
 */
enum thc_drop_reason thc_join_challenge(struct thc_peer *p, const struct thc_hdr *h,
					const struct thc_challenge *c, u16 port);
void thc_join_work(struct work_struct *work);
void thc_join_leave(struct thc_sock *ts);

#endif /* THC_KMOD_JOIN_H */
