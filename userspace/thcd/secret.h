/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files that hold cookies.
 */
#ifndef THCD_SECRET_H
#define THCD_SECRET_H

#include "thcd.h"

/* Warns if every user can read the open file @name. */
void thcd_secret_warn(int fd, const char *name);

/* The number in file @name; one without a slash is looked for among systemd's credentials. */
int thcd_secret_read(const char *name, u64 *cookie, struct thcd_error *e);

#endif /* THCD_SECRET_H */
