/* SPDX-License-Identifier: GPL-2.0 */
/* Joining a job and leaving it, as packets. */
#ifndef THC_KMOD_JOIN_H
#define THC_KMOD_JOIN_H

#include <linux/workqueue.h>

#include <linux/thc.h>

struct thc_peer;
struct thc_sock;

int thc_join_init(void);
void thc_join_exit(void);
void thc_join_begin(struct thc_sock *ts, u64 now);
/* JOINs that are due; lowers *@due to the time of the next. */
void thc_join_run(struct thc_sock *ts, u64 now, u64 *due);
/* Why a WELCOME from the aggregator's @port is of no use, or THC_DROP_NONE. */
enum thc_drop_reason thc_join_welcome(struct thc_peer *p, const struct thc_hdr *h,
				      const struct thc_welcome *w, u16 port);
void thc_join_work(struct work_struct *work);
void thc_join_leave(struct thc_sock *ts);

#endif /* THC_KMOD_JOIN_H */
