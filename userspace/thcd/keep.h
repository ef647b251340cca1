/* SPDX-License-Identifier: GPL-2.0 */
/*
 * May a restarted daemon go on with what its predecessor left?
 */
#ifndef THCD_KEEP_H
#define THCD_KEEP_H

#include "thcd.h"

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
