/* SPDX-License-Identifier: GPL-2.0 */
/*
 * May a restarted daemon go on with what its predecessor left?
 */
#ifndef THCD_KEEP_H
#define THCD_KEEP_H

#include "thcd.h"

/* Raised when struct thcd_record or the meaning of a map changes. */
#define THCD_LAYOUT	6

/* What the pins of an instance stand for. */
struct thcd_meta {
	struct thc_addr	addr4;		/* that workers send to; zero: none */
	struct thc_addr	addr6;
	u64	netns;		/* inode of the network namespace */
	u32	layout;
	u32	ifindex;
	u32	slots;
	u32	port;
	u32	complete;	/* jobs were created, the program was attached */
	u32	reserved;
};

/* 0 if pins of @was can serve @is; -1 with the sentence that says why not. */
int thcd_keep_meta(const struct thcd_meta *was, const struct thcd_meta *is, const char *instance,
		   struct thcd_error *e);

/* 0 if the jobs of @was are those asked for; their prefixes may differ. @plans: by job,
 * ranks 0: none.
 */
int thcd_keep_jobs(const struct thcd_record *was, const struct thcd_plan *plans,
		   struct thcd_error *e);

/* Equal constants, wherever their slots lie (a reload gives slots as they are free), and whoever
 * may join from now on: who is in stays in.
 */
bool thcd_keep_equal(const struct thcd_plan *was, const struct thcd_plan *is);

/* Names the first constant in which two plans differ; returns -1. */
int thcd_keep_difference(const struct thcd_plan *was, const struct thcd_plan *is,
			 struct thcd_error *e);

#endif /* THCD_KEEP_H */
