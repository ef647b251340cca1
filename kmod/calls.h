/* SPDX-License-Identifier: GPL-2.0 */
/*
 * System calls on a socket: connect.c, of which listed.c is a part, sendmsg.c, recvmsg.c,
 * options.c.
 */
#ifndef THC_KMOD_CALLS_H
#define THC_KMOD_CALLS_H

#include <linux/net.h>
#include <linux/sockptr.h>

#include "compat/compat.h"
#include "sock.h"

int thc_connect(struct socket *sock, struct sockaddr_unsized *name, int len, int flags);
void thc_disconnect(struct thc_sock *ts);
/* 0 if the socket has joined, else the error. The caller returns the error: connect() need not. */
int thc_connect_outcome(struct thc_sock *ts);
int thc_sendmsg(struct socket *sock, struct msghdr *msg, size_t len);
int thc_recvmsg(struct socket *sock, struct msghdr *msg, size_t len, int flags);
int thc_setsockopt(struct socket *sock, int level, int option, sockptr_t from, unsigned int len);
int thc_getsockopt(struct socket *sock, int level, int option, sockopt_t *opt);
/* Wipes the socket's key and the key that seals JOIN. Called by close(), with lock_sock held. */
void thc_forget_key(struct thc_sock *ts);

/* --- listed.c: the other aggregators of a job, which the first one lists ---- */

/* Opens the listed aggregators if thc_join_needs_call(). A failure breaks the socket. Called with
 * lock_sock held.
 */
void thc_listed_open(struct thc_sock *ts);

#endif /* THC_KMOD_CALLS_H */
