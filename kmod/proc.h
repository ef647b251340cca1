/* SPDX-License-Identifier: GPL-2.0 */
/* /proc/net/thc. */
#ifndef THC_KMOD_PROC_H
#define THC_KMOD_PROC_H

#include <net/net_namespace.h>

int thc_proc_init(struct net *net);
void thc_proc_exit(struct net *net);

#endif /* THC_KMOD_PROC_H */
