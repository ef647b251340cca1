/* SPDX-License-Identifier: GPL-2.0 */
/* What the host's sockets may hold in all, and those of one user. */
#ifndef THC_KMOD_MEMORY_H
#define THC_KMOD_MEMORY_H

#include <linux/types.h>

struct thc_user;

/* Who opens a socket, until thc_user_put(); NULL: only the host's bound is for this one;
 * ERR_PTR(-ENOMEM).
 */
struct thc_user *thc_user_get(void);
void thc_user_put(struct thc_user *user);
/* Memory for sockets that cannot be swapped, within the bounds of host and user; false: there is no
 * room.
 */
bool thc_memory_charge(struct thc_user *user, size_t bytes);
void thc_memory_uncharge(struct thc_user *user, size_t bytes);

#endif /* THC_KMOD_MEMORY_H */
