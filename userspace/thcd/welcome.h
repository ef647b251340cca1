/* SPDX-License-Identifier: GPL-2.0 */
/*
 * JOIN and LEAVE as packets, and the WELCOMEs that answer them.
 */
#ifndef THCD_WELCOME_H
#define THCD_WELCOME_H

#include "thcd.h"

/* A JOIN, of whoever may have sent it, or a LEAVE that thc_admit_rank() admits; form, length
 * and sum are good. Returns the drop reason it is counted under in software mode, or
 * THC_DROP_NONE.
 */
enum thc_drop_reason thcd_join_or_leave(struct thcd *d, const struct thc_hdr *h,
					const void *payload, const struct thc_path *path);

/* A WELCOME as it is sent. */
struct thcd_welcome {
	struct thc_hdr		hdr;
	struct thc_welcome	body;
};

/* The WELCOME of a job, sealed; @mode_flags: thcd.welcome_flags. */
void thcd_welcome_fill(struct thcd_welcome *out, const struct thc_job *job,
		       const struct thcd_record *r, const struct thc_hdr *request, u64 nonce,
		       u8 mode_flags);

#endif /* THCD_WELCOME_H */
