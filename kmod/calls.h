/* SPDX-License-Identifier: GPL-2.0 */
/* System calls on a socket: connect.c, send.c, recv.c, options.c. */
#ifndef THC_KMOD_CALLS_H
#define THC_KMOD_CALLS_H

#include <linux/net.h>
#include <linux/sockptr.h>

#include "compat/compat.h"

struct thc_sock;

int thc_connect(struct socket *sock, struct sockaddr_unsized *name, int len, int flags);
void thc_disconnect(struct thc_sock *ts);
/* 0 when joined, or why not. */
int thc_outcome(struct thc_sock *ts);
int thc_sendmsg(struct socket *sock, struct msghdr *msg, size_t len);
int thc_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags);
int thc_setsockopt(struct socket *sock, int level, int option, sockptr_t from, unsigned int len);
int thc_getsockopt(struct socket *sock, int level, int option, sockopt_t *opt);

#endif /* THC_KMOD_CALLS_H */
