/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* That all ranks mean the same all-reduce. */
#ifndef LIBTHC_AGREE_H
#define LIBTHC_AGREE_H

#include "request.h"

void thc_agree_claim(const struct thc_request *r, void *lanes);
/* 0, or -EBADMSG / -EDOM with the request's sentence filled in, and `left_behind` if
 * only this rank, left out by a deadline, knows of it.
 */
int thc_agree_check(struct thc_request *r, const void *lanes);

#endif /* LIBTHC_AGREE_H */
